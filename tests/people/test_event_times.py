from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.special import expit

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people import event_times as when
from ppmtf_jax.people import windows as time_cells
from ppmtf_jax.people.bins import N_HABITS, N_SINCE, NONE_YET, NONE_YET_LATER, SINCE_FROM_H
from ppmtf_jax.people.event_times import TimeCells, fit_activity_levels
from ppmtf_jax.people.user_bounds import bounded_columns
from ppmtf_jax.people.windows import ObservedWindows

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
    monkeypatch.setattr(time_cells, "INSTANTS_AT_A_TIME", at_a_time)
    happens = np.random.default_rng(0).random((5, N_INSTANTS)) < np.array([0.01, 0.05, 0.1, 0.3, 0.5])[:, None]
    happens[0, 0] = True
    cells = TimeCells.of(windows_of(happens))
    for window, row in enumerate(happens):
        events = np.flatnonzero(row).tolist()
        codes = np.array([code_by_loop(events, instant) for instant in range(N_INSTANTS)])
        for counts, of_window in ((cells.instants, codes), (cells.events, codes[row])):
            assert (counts[[window]].toarray()[0] == np.bincount(of_window, minlength=time_cells.N_CODES)).all()
    quiet = [code_by_loop([], instant) for instant in range(N_INSTANTS)]
    assert (cells.without == np.bincount(quiet, minlength=time_cells.N_CODES)).all()


@pytest.fixture(scope="module")
def planted() -> tuple[np.ndarray, np.ndarray]:
    """Windows whose log-odds depend on the level, the hour and whether there was an event in the last two hours."""
    rng = np.random.default_rng(1)
    n = 600
    level = np.where(np.arange(n) % 2, -4.0, -2.0)
    hour = np.where(np.arange(N_INSTANTS) % PER_DAY < 6, -0.5, 0.5)
    happens = np.zeros((n, N_INSTANTS), bool)
    for instant in range(N_INSTANTS):
        again = 1.5 * happens[:, instant - 1] if instant else 0
        happens[:, instant] = rng.random(n) < expit(level + hour[instant] + again)
    return happens[happens.any(axis=1)], (np.arange(n) % 2)[happens.any(axis=1)]


@pytest.fixture(scope="module")
def learned(planted: tuple[np.ndarray, np.ndarray]) -> when.ActivityLevels:
    happens, slow = planted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(when, "N_LEVELS", (2,))
        return fit_activity_levels(replace(windows_of(happens), cluster=slow), 2, np.random.default_rng(0))


def test_planted_log_odds_are_found(learned):
    # The day of the second Wednesday; six hours after an event and two hours after one, in the morning and evening.
    quiet, again = (np.searchsorted(SINCE_FROM_H, hours, side="right") - 1 for hours in (8, 2))
    log_odds = learned.log_odds[:, :PER_DAY, :, 1]
    fast, slow = np.argsort(-learned.log_odds[:, 0, NONE_YET_LATER, 0])
    # 300 windows x 168 instants; a cell of the high level (odds .1) has an error near 1 / sqrt(300 x 168 x .1 / 24),
    # and effects are shared by many cells, so 0.35 is more than five standard errors.
    assert np.abs(log_odds[fast, 6:, again] - log_odds[fast, 6:, quiet] - 1.5).mean() < 0.35
    assert np.abs(log_odds[fast, 6:, quiet].mean() - log_odds[fast, :6, quiet].mean() - 1.0) < 0.35
    none = learned.log_odds[:, : 7 * PER_DAY, NONE_YET_LATER, 0].mean(axis=1)
    assert np.abs(none[fast] + 2) < 0.35
    assert np.abs(none[slow] + 4) < 0.35


@pytest.mark.slow
def test_held_out_users_decide_how_many_levels_there_are(planted, monkeypatch):
    monkeypatch.setattr(when, "N_LEVELS", (1, 2))
    happens, slow = planted
    one_level = np.random.default_rng(2).random(happens.shape) < 0.05
    for times, n_levels in ((happens, 2), (one_level, 1)):
        levels = fit_activity_levels(replace(windows_of(times), cluster=slow), 2, np.random.default_rng(0))
        assert levels.of_window.shape == (len(times), n_levels)


def test_shares_of_levels_are_those_of_all_windows_and_not_of_windows_with_an_event(learned, planted):
    slow = planted[1]
    fast = int(np.argmax(learned.log_odds[:, 0, NONE_YET_LATER, 0]))
    # Cluster 1 is slow. It is shrunk to all windows by ten windows.
    n_slow = slow.sum()
    assert learned.share[1, fast] < 20 / n_slow
    assert learned.of_window[slow == 0, fast].mean() > 0.95
    assert learned.share.sum(axis=1) == pytest.approx([1, 1])


def observed_of(windows: ObservedWindows, cluster: np.ndarray) -> when._Observed:
    cells = TimeCells.of(windows)
    # A difference of values in single precision would be rounding noise.
    cells = cells._replace(instants=cells.instants.astype(float), events=cells.events.astype(float))
    return when._Observed.of(replace(windows, weight=windows.weights(), cluster=cluster), cells, 2)


def test_the_log_posterior_is_that_of_its_formula(planted):
    """As a planted error, windows without events are forgotten."""
    happens, cluster = planted
    rng = np.random.default_rng(3)
    # With such rare events, two thirds of the windows of the low level have none.
    start = when._Effects.start(np.array([-6.0, -3.0]))
    step = when._Step.of(observed_of(windows_of(happens), cluster), rng.dirichlet([1, 1], len(happens)), start)
    # Other effects are 0.
    exists = jax.tree.map(lambda above, below: np.isfinite(above) & np.isfinite(below), step.above, step.below)
    at = jax.tree.map(lambda own: rng.normal(0, 0.1, own.shape) * own, exists)
    unit = jax.tree.map(np.ones_like, at)
    assert sum(own.sum() for own in exists) > 50

    def by_loop(without: np.ndarray) -> float:
        """The log-posterior from its formula, over the codes of `TimeCells`."""
        effects = start._make(one + other for one, other in zip(start, at, strict=True))
        log_odds = effects.log_odds()
        value = sum(float((events * effect).sum()) for events, effect in zip(step.events, effects, strict=True))
        value += (step.instants * np.log(expit(-log_odds))).sum()
        for level, n_windows in enumerate(step.windows):
            value -= n_windows * np.log(max(1 - np.prod(expit(-log_odds[:, level]) ** without), when.TINY))
        for own, above, below in zip(at, step.above, step.below, strict=True):
            precision = np.where(own > 0, above, below)
            value -= (precision[own != 0] * own[own != 0] ** 2).sum() / 2
        return value

    with jax.enable_x64(True):
        found = float(when._log_posterior(at, (step, unit)))
    assert found == pytest.approx(by_loop(step.without), rel=1e-9)
    assert found != pytest.approx(by_loop(np.zeros_like(step.without)), rel=1e-4)


def people(often: list[tuple[int, float]], rng: np.random.Generator) -> ObservedWindows:
    """Three windows of each of some users; `often`: number of users, and how probable an event at an instant is."""
    happens = np.concatenate([rng.random((3 * n, N_INSTANTS)) < probability for n, probability in often])
    happens[~happens.any(axis=1), 5] = True
    windows = windows_of(happens)
    return replace(windows, user=np.arange(len(happens)) // 3)


def test_a_level_has_windows_of_five_users():
    """Sixty people with few events, four with many and one with an event at most instants."""
    windows = people([(60, 0.02), (4, 0.3), (1, 0.9)], np.random.default_rng(0))
    size = np.bincount(windows.window)
    level, typical = when._levels(size, windows.user, 16)
    assert [len(np.unique(windows.user[level == each])) >= 5 for each in range(len(typical))] == [True] * len(typical)
    assert (np.diff(typical) > 0).all()
    # They do not raise the top, which is a window of the second most active user.
    assert typical.max() < np.sort(size)[-4]
    assert when._levels(size[:9], windows.user[:9], 16)[0].tolist() == [0] * 9


@pytest.mark.parametrize("bug", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "planted bug"])
def test_the_clock_of_one_user_is_no_effect_of_a_level(bug, monkeypatch):
    """One user checks in at the first instant of each day, and nobody else does."""
    if bug:
        # By the rule of before, no number of users was needed, and users weighed as much as they did.
        monkeypatch.setattr(when, "STEP_USERS", 1)
        monkeypatch.setattr(when, "bounded_columns", lambda of_user: (of_user, bounded_columns(of_user)[1]))
    windows = people([(60, 0.05)], np.random.default_rng(0))
    happens = np.zeros((windows.n_windows, N_INSTANTS), bool)
    happens[windows.window, windows.instant] = True
    happens[:, ::PER_DAY] = False
    happens[:3] = np.arange(N_INSTANTS) % PER_DAY == 0
    happens[~happens.any(axis=1), 5] = True
    windows = replace(windows_of(happens), user=windows.user)
    levels = fit_activity_levels(replace(windows, weight=windows.weights()), 1, np.random.default_rng(0), 3)
    # Of somebody who had an event at this time of the day before, and the last one a day ago.
    a_day = np.searchsorted(SINCE_FROM_H, 24, side="right") - 1
    assert (expit(levels.log_odds[:, PER_DAY::PER_DAY, a_day, 5]).max() > 0.3) == bug


def test_what_the_rules_take_counts_for_the_next_levels_and_for_all_clusters():
    # User 0 has 50 windows of level 1 in cluster 0. 60 others have one window of level 0 each, 10 of them in cluster 0;
    # ten others have one window of level 1 each, in cluster 1.
    user = np.append(np.zeros(50, int), np.arange(1, 71))
    cluster = np.append(np.zeros(60, int), np.ones(60, int))
    happens = np.zeros((120, N_INSTANTS), bool)
    happens[:, 0] = True
    of_window = np.zeros((120, 2))
    of_window[:50, 1] = of_window[50:110, 0] = of_window[110:, 1] = 1
    observed = observed_of(replace(windows_of(happens), user=user), cluster)._replace(weight=np.ones(120))
    # In level 1, user 0 weighs one window, and 7 of 11 users count. In level 0, 56 of 60 users count; half of the other
    # 4 windows are of level 1. All others are of level 0.
    total = np.array([120 - 9, 9])
    counts = np.array([[10 * 56 / 60, 0], [50 * 56 / 60, 10 * 7 / 11]])
    # User 0 is alone in level 1 of cluster 0.
    of_cluster = counts.sum(axis=1) + np.array([7 / 11, 0])
    counts += of_cluster[:, None] / 63 * (total - counts.sum(axis=0))
    counts += when.LEVEL_MASS * total / 120
    assert when._shares(observed, of_window) == pytest.approx(counts / counts.sum(axis=1, keepdims=True))
