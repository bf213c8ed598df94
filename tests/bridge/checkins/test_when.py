import numpy as np
import pytest
from scipy.special import expit

from ppmtf_jax.bridge.checkins import when
from ppmtf_jax.bridge.checkins.law import N_HABITS, N_SINCE, NONE_YET, NONE_YET_LATER, SINCE_FROM_H
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.checkins.when import TimeCells, fit_paces
from ppmtf_jax.data.time_grid import TimeGrid

# A Wednesday; steps of two hours.
GRID = TimeGrid.cyclic("2024-01-03", 7200, 14 * 12, slot_s=7200)
N_INSTANTS, PER_DAY = GRID.n_instants, 12


def windows_of(happens: np.ndarray, grid: TimeGrid = GRID) -> ObservedWindows:
    window, instant = np.nonzero(happens)
    return ObservedWindows(np.arange(len(happens)), window, instant, np.zeros(len(window), int), grid)


def code_by_loop(events: list[int], instant: int) -> int:
    """Code of an instant after the events before it, in words."""
    before = [each for each in events if each < instant]
    hour = instant % PER_DAY * 2
    near = 0
    for each in before:
        apart = abs(each % PER_DAY * 2 - hour)
        near += each // PER_DAY < instant // PER_DAY and min(apart, 24 - apart) <= 1
    if not before:
        since = NONE_YET if instant < PER_DAY else NONE_YET_LATER
    else:
        since = sum(edge <= (instant - before[-1]) * 2 for edge in SINCE_FROM_H) - 1
    if len(before) <= 2:
        habit = 6 if near else 0
    else:
        habit = 1 + (near > 0) + sum(near / len(before) > edge for edge in (0.15, 0.3, 0.5))
    weekday = (2 + instant // PER_DAY) % 7
    return ((weekday * 24 + hour) * N_SINCE + since) * N_HABITS + habit


@pytest.mark.parametrize("at_a_time", [2 * N_INSTANTS, 10**6])
def test_cells_are_those_of_a_loop(monkeypatch: pytest.MonkeyPatch, at_a_time):
    monkeypatch.setattr(when, "INSTANTS_AT_A_TIME", at_a_time)
    happens = np.random.default_rng(0).random((5, N_INSTANTS)) < np.array([0.01, 0.05, 0.1, 0.3, 0.5])[:, None]
    happens[0, 0] = True
    cells = TimeCells.of(windows_of(happens))
    for window, row in enumerate(happens):
        events = np.flatnonzero(row).tolist()
        codes = np.array([code_by_loop(events, instant) for instant in range(N_INSTANTS)])
        for counts, of_window in ((cells.instants, codes), (cells.events, codes[row])):
            assert (counts[[window]].toarray()[0] == np.bincount(of_window, minlength=when.N_CODES)).all()
    quiet = [code_by_loop([], instant) for instant in range(N_INSTANTS)]
    assert (cells.without == np.bincount(quiet, minlength=when.N_CODES)).all()


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray]:
    """Windows whose log-odds depend on the pace, the hour and whether there was an event in the last two hours."""
    rng = np.random.default_rng(1)
    n = 600
    pace = np.where(np.arange(n) % 2, -4.0, -2.0)
    hour = np.where(np.arange(N_INSTANTS) % PER_DAY < 6, -0.5, 0.5)
    happens = np.zeros((n, N_INSTANTS), bool)
    for instant in range(N_INSTANTS):
        again = 1.5 * happens[:, instant - 1] if instant else 0
        happens[:, instant] = rng.random(n) < expit(pace + hour[instant] + again)
    return happens[happens.any(axis=1)], (np.arange(n) % 2)[happens.any(axis=1)]


@pytest.fixture(scope="module")
def learned(planted: tuple[np.ndarray, np.ndarray]) -> when.Paces:
    happens, slow = planted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(when, "N_PACES", (2,))
        return fit_paces(windows_of(happens), np.ones(len(happens)), slow, 2, np.random.default_rng(0))


def test_planted_log_odds_are_found(learned):
    # The day of the second Wednesday; six hours after an event and two hours after one, in the morning and evening.
    quiet, again = (np.searchsorted(SINCE_FROM_H, hours, side="right") - 1 for hours in (8, 2))
    log_odds = learned.log_odds[:, :PER_DAY, :, 1]
    fast, slow = np.argsort(-learned.log_odds[:, 0, NONE_YET_LATER, 0])
    # 300 windows x 168 instants; a cell of the fast pace (odds .1) has an error of about 1 / sqrt(300 x 168 x .1 / 24),
    # and effects are shared by many cells, so 0.35 is more than five standard errors.
    assert np.abs(log_odds[fast, 6:, again] - log_odds[fast, 6:, quiet] - 1.5).mean() < 0.35
    assert np.abs(log_odds[fast, 6:, quiet].mean() - log_odds[fast, :6, quiet].mean() - 1.0) < 0.35
    none = learned.log_odds[:, : 7 * PER_DAY, NONE_YET_LATER, 0].mean(axis=1)
    assert np.abs(none[fast] + 2) < 0.35
    assert np.abs(none[slow] + 4) < 0.35


@pytest.mark.slow
def test_held_out_users_decide_how_many_paces_there_are(planted, monkeypatch):
    monkeypatch.setattr(when, "N_PACES", (1, 2))
    happens, slow = planted
    one_pace = np.random.default_rng(2).random(happens.shape) < 0.05
    for times, n_paces in ((happens, 2), (one_pace, 1)):
        paces = fit_paces(windows_of(times), np.ones(len(times)), slow, 2, np.random.default_rng(0))
        assert paces.of_window.shape == (len(times), n_paces)


def test_shares_of_paces_are_those_of_all_windows_and_not_of_windows_with_an_event(learned, planted):
    slow = planted[1]
    fast = int(np.argmax(learned.log_odds[:, 0, NONE_YET_LATER, 0]))
    # Cluster 1 is slow. It is shrunk to all windows by ten windows.
    n_slow = slow.sum()
    assert learned.share[1, fast] < 20 / n_slow
    assert learned.of_window[slow == 0, fast].mean() > 0.95
    assert learned.share.sum(axis=1) == pytest.approx([1, 1])


def test_a_window_has_an_event_with_the_probability_of_a_product():
    effects = when._Effects.start(np.array([-6.0, -3.0]))
    found = when._Odds.of(effects, TimeCells.of(windows_of(np.ones((1, N_INSTANTS), bool))).without).any
    assert found == pytest.approx(1 - (1 - expit([-6.0, -3.0])) ** N_INSTANTS)


@pytest.mark.parametrize("given", [False, True])
def test_the_gradient_is_that_of_differences(planted, given):
    """The gradient in a random direction; as a planted error, windows without events are forgotten."""
    happens, cluster = planted
    cells, rng = TimeCells.of(windows_of(happens)), np.random.default_rng(3)
    # A difference of values in single precision would be rounding noise.
    cells = cells._replace(instants=cells.instants.astype(float), events=cells.events.astype(float))
    n = len(happens)
    windows = when._Observed(cells, happens.sum(axis=1), np.arange(n), rng.random(n), cluster, 2, GRID)
    share = np.array([[0.2, 0.8], [0.7, 0.3]])
    paces = rng.dirichlet([1, 1], n)
    # With such rare events, two thirds of the windows of the slow pace have none.
    start = when._Effects.start(np.array([-6.0, -3.0]))
    at, way = (rng.normal(0, 0.1, len(start.flat())) for _ in range(2))

    def along(step: float, windows: when._Observed = windows) -> tuple[float, float]:
        effects = start.like(start.flat() + at + step * way)
        if given:
            value, gradient = when._Sums.of(windows, paces * windows.weight[:, None]).log_posterior(effects)
        else:
            value, gradient = when._log_posterior(effects, windows, share)
        return value, float(gradient.flat() @ way)

    # The error of a central difference is of the order of the square of its step, 1e-8.
    wanted = (along(1e-4)[0] - along(-1e-4)[0]) / 2e-4
    assert along(0)[1] == pytest.approx(wanted, rel=1e-6)
    forgotten = windows._replace(cells=cells._replace(without=np.zeros_like(cells.without)))
    assert along(0, forgotten)[1] != pytest.approx(wanted, rel=1e-4)


def test_what_the_bound_takes_from_a_user_counts_for_all_clusters():
    # User 0 has 50 windows of pace 0 in cluster 0. 60 others have one window of pace 1 each, 10 of them in cluster 0.
    user = np.append(np.zeros(50, int), np.arange(1, 61))
    cluster = np.append(np.zeros(60, int), np.ones(50, int))
    weighted = np.zeros((110, 2))
    weighted[:50, 0] = weighted[50:, 1] = 1
    found = when._shares(weighted, user, cluster, 2)
    # She is alone in pace 0, so the bound takes all of her windows from cluster 0. Of the 50 windows, each cluster gets
    # back its part of all windows.
    prior = when.PACE_MASS * np.array([50, 60]) / 110
    counts = np.array([[50 * 60 / 110, 10], [50 * 50 / 110, 50]]) + prior
    assert found == pytest.approx(counts / counts.sum(axis=1, keepdims=True))
