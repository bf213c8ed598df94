"""Fit of the whole model to people of a known process; the trace model, and so its likelihood, has tests of its own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.people import checkin_calibration as calibration
from ppmtf_jax.people import checkin_new_places, fitting, returns
from ppmtf_jax.people import event_times as when
from ppmtf_jax.people.bins import DistanceBins
from ppmtf_jax.people.checkin_calibration import Moments, simulate_places
from ppmtf_jax.people.checkin_likelihood import log_windows
from ppmtf_jax.people.fit import first_visits, fit_checkins
from ppmtf_jax.people.windows import History, ObservedWindows
from tests.people.checkin_worlds import N_PLACES, N_WINDOWS, PLACES, WINDOW, clusters_of, process, traces_of, windows_of

N_USERS = 60
# Fields of the process that are parameters of returns as they are.
SAME_IN_BOTH = (
    *("strength", "strength_of_type", "last", "last_of_type", "last_match", "match", "recency", "previous"),
    "distance",
)


def double(array) -> jax.Array:
    return jnp.asarray(np.asarray(array, np.float64))


@pytest.fixture(scope="module")
def true():
    return process(N_USERS)


@pytest.fixture(scope="module")
def places(true):
    return windows_of(true, N_USERS)


@pytest.fixture(scope="module")
def windows(places):
    return ObservedWindows.of(traces_of(places), WINDOW)


@pytest.fixture(scope="module")
def uncalibrated(true, places):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "N_REPEATS", ())
        return fit_checkins(traces_of(places), clusters_of(true), seed=0)


def test_the_likelihood_that_is_maximized_is_that_of_the_trace_model(true, places, windows):
    cluster = np.asarray(true.cluster)[windows.user]
    distances = DistanceBins(np.asarray(true.distance_bin), np.asarray(true.cell))
    n_levels, weight = len(true.type_share), np.ones(windows.n_windows)
    cells = when.TimeCells.of(windows)
    # The log-odds of the process depend only on the level and the time of the day.
    hour = np.arange(when.N_CODES) // (when.N_SINCE * when.N_HABITS) % when.HOURS_A_DAY
    log_odds = np.asarray(true.log_odds, np.float64)[:, hour // 6, 0, 0].T
    times = when._Odds(log_odds, np.logaddexp(0, log_odds), np.ones(n_levels)).log_likelihoods(cells)
    history = History.of(windows)
    with jax.enable_x64(True):
        urn = returns._Urn.start(n_levels)._replace(
            by_rate=jnp.array(1.0),
            logit_discount=-np.log(
                (returns.MAX_DISCOUNT - returns.MIN_DISCOUNT) / (float(true.discount) - returns.MIN_DISCOUNT) - 1
            ),
            type_logits=jnp.log(double(true.type_share)),
            **{name: double(getattr(true, name)) for name in SAME_IN_BOTH},
        )
        of_level, log_types = [], jax.jit(returns._log_types)
        for level in np.eye(n_levels):
            level = np.tile(level, (windows.n_windows, 1))
            events = returns._Events.of(history, weight, level, distances)
            log_types_of = np.asarray(log_types(urn, events)[0])[: windows.n_windows]
            of_level.append(np.logaddexp.reduce(log_types_of, axis=1))
        new = history.where(history.is_new)
        slot = np.asarray(true.slot_of_instant)
        visits = np.asarray(true.visits, np.float64)
        arrivals = checkin_new_places._Arrivals.of(history, replace(windows, cluster=cluster), visits, distances)
        reference = np.asarray(true.reference, np.float64)
        near_last, near_own = (jnp.log(double(each)) for each in (true.near_last, true.near_own))
        factors = checkin_new_places._Factors.start()._replace(near_last=near_last, near_own=near_own)
        # Ranges of the process have shares of their own for each reference.
        of_range, log_ranges = [], jax.jit(checkin_new_places._log_ranges)
        for each in reference:
            logits = jnp.log(each[:, 1:] / each[:, :1])
            one = factors._replace(reference=logits, own_of_range=jnp.zeros(1), range_logits=jnp.zeros(1))
            of_range.append(np.asarray(log_ranges(one, arrivals))[: windows.n_windows, 0])
    where_new = np.bincount(
        new.window, np.log(visits[cluster[new.window], slot[new.instant], new.place]), windows.n_windows
    )
    first = np.flatnonzero(~windows.is_later)
    at_first = visits[cluster, slot[windows.instant[first]]] * np.exp(np.asarray(true.first_rate, np.float64))
    log_first = np.log(at_first[np.arange(len(first)), windows.place[first]] / at_first.sum(axis=1))
    level_share = np.log(np.asarray(true.level_share, np.float64))[cluster]
    log_any = np.asarray(true.log_first_event(WINDOW.n_instants)[1], np.float64)
    found = np.logaddexp.reduce(level_share + times + np.stack(of_level, axis=1), axis=1)
    found += np.logaddexp.reduce(np.stack(of_range, axis=1) + np.log(np.asarray(true.range_share)), axis=1)
    found += where_new + log_first - np.logaddexp.reduce(level_share + log_any, axis=1)
    wanted = log_windows(true, places, np.arange(2))[np.arange(len(places)), cluster]
    # The process is stored in float32, with errors of 1e-7 an event and instant.
    np.testing.assert_allclose(found, wanted, atol=2e-3)


def test_what_is_appended_has_no_weight(true, windows, monkeypatch):
    """Rows are appended so that data of similar size share a program; as a planted error, they have a weight."""
    history, weight = History.of(windows), np.linspace(0.5, 1, windows.n_windows)
    distances = DistanceBins(np.asarray(true.distance_bin), np.asarray(true.cell))
    windows = replace(windows, weight=weight, cluster=np.asarray(true.cluster)[windows.user])
    level = np.tile([0.3, 0.7], (windows.n_windows, 1))
    visits = np.asarray(true.visits, np.float64)

    def both() -> tuple:
        return (
            returns._Events.of(history, weight, level, distances),
            checkin_new_places._Arrivals.of(history, windows, visits, distances),
        )

    appended = both()
    for module in (fitting, returns, checkin_new_places):
        monkeypatch.setattr(module, "padding", lambda n: 0)
    with jax.enable_x64(True):
        starts = returns._Urn.start(2), checkin_new_places._Factors.start()
        posteriors = returns._log_of_checkins, checkin_new_places._log_posterior
        for posterior, start, padded, data in zip(posteriors, starts, appended, both(), strict=True):
            compute = jax.jit(jax.value_and_grad(posterior))
            assert len(padded.last_row) > len(data.last_row)
            counted = padded.history._replace(part=np.ones_like(padded.history.part))
            wrong = padded._replace(weight=np.where(padded.weight == 0, 1, padded.weight), history=counted)
            (value, gradient), (same, same_gradient), (other, _) = (compute(start, x) for x in (data, padded, wrong))
            assert float(same) == pytest.approx(float(value), rel=1e-10)
            assert float(other) != pytest.approx(float(value), rel=1e-6)
            for one, two in zip(gradient, same_gradient, strict=True):
                np.testing.assert_allclose(two, one, rtol=1e-7, atol=1e-9)


def test_first_visits_are_those_of_each_window(places):
    traces = traces_of(places)
    shown = first_visits(traces)
    rows = places.reshape(-1, WINDOW.n_instants)
    wanted = sum(len(np.unique(row[row >= 0])) for row in rows)
    assert shown.n_events == wanted < traces.n_events
    for name in ("user", "place"):
        assert (np.unique(getattr(shown, name)) == np.unique(getattr(traces, name))).all()
    # In each window, every kept event is at a place without an earlier event.
    window = shown.instant // WINDOW.n_instants
    for user, number, instant, place in zip(shown.user, window, shown.instant, shown.place, strict=True):
        row = rows[user * N_WINDOWS + number]
        assert np.flatnonzero(row == place)[0] == instant % WINDOW.n_instants


def test_calibration_counts_stays_returns_and_distances(windows, true):
    found = Moments.of(windows, true)
    history = History.of(windows)
    stays = history.place == history.last_place
    # In each number, no user weighs more than the second heaviest one, and u users weigh (u - 4) / u. Most users have
    # such events after gaps of a bin, but in the bins of the shortest and the longest gaps about 15 of them.
    assert (found.events <= np.bincount(history.gap, minlength=9)).all()
    assert found.events.sum() > 0.9 * len(stays)
    np.testing.assert_allclose(found.stays.sum(), stays.sum(), rtol=0.1)
    np.testing.assert_allclose(found.returns.sum(), (~stays & ~history.is_new).sum(), rtol=4 / 15)
    assert found.moves.sum() == pytest.approx((~stays).sum(), rel=4 / 15)


def test_calibration_takes_a_planted_error_away(windows, true):
    """Stays are made much less likely; after all rounds, simulated people stay as often as the observed."""
    wrong = replace(true, last=true.last - 1.5)
    windows = replace(windows, weight=windows.weights(), cluster=np.asarray(true.cluster)[windows.user])
    level = np.tile([0.5, 0.5], (windows.n_windows, 1))

    def share(model) -> float:
        found = simulate_places(model, windows, level, jax.random.key(9))
        assert (found.instant == windows.instant).all()
        assert ((found.place >= 0) & (found.place < N_PLACES)).all()
        moments = Moments.of(replace(found, weight=np.ones(windows.n_windows)), model)
        return moments.stays.sum() / moments.events.sum()

    observed = Moments.of(windows, true)
    wanted = observed.stays.sum() / observed.events.sum()
    right = calibration.calibrate(wrong, windows, level, jax.random.key(0))
    # About 2,500 events, of which 0.7 are stays: a difference has a standard error of 0.013.
    # What is left is told: of the planted error, some points in the first share.
    assert np.asarray(right.residual).shape == (3,)
    assert float(right.residual[0]) < 0.1
    assert share(wrong) < wanted - 0.13
    assert abs(share(right) - wanted) < 5 * 0.013


@pytest.mark.slow
def test_new_people_of_the_process_are_nearly_as_probable_as_under_the_process(true, uncalibrated):
    """The log-likelihood of as many new windows falls by about half of the number of parameters."""
    fresh = windows_of(true, N_USERS, seed=1)
    cluster = np.repeat(np.asarray(true.cluster), N_WINDOWS)

    def total(model) -> float:
        return log_windows(model, fresh, np.arange(2))[np.arange(len(fresh)), cluster].sum()

    lost = total(true) - total(uncalibrated)
    # At most about 150 parameters matter here; 150 / 2 + 5 sqrt(150 / 2) = 118.
    assert -10 < lost < 118
    # The same fit without the gaps of returns, as a planted error.
    forgotten = replace(uncalibrated, last=uncalibrated.last * 0 - 3.0)
    assert total(true) - total(forgotten) > 118


ODD = ("one event a window", "one user", "one place")


@pytest.mark.parametrize(
    "rows", [ODD, *(pytest.param((each,), marks=pytest.mark.slow) for each in ODD)], ids=lambda rows: ", ".join(rows)
)
def test_fits_odd_traces(monkeypatch: pytest.MonkeyPatch, places, rows):
    monkeypatch.setattr(calibration, "N_REPEATS", (1,))
    odd = places.copy()
    if "one event a window" in rows:
        odd[np.cumsum(odd >= 0, axis=1) > 1] = -1
    if "one user" in rows:
        odd = odd[:N_WINDOWS]
    if "one place" in rows:
        odd[odd >= 0] = 0
    traces = traces_of(odd)
    clusters = clusters_of(process(traces.n_users))
    if "one user" in rows:
        clusters = replace(clusters, share=np.ones(1), visits=clusters.visits[:1])
    model = fit_checkins(traces, clusters, seed=0)
    assert all(np.isfinite(np.asarray(array)).all() for array in model.to_arrays().values())
    drawn = jax.vmap(lambda key: model.sample_trace(key, jnp.int32(0), WINDOW.n_instants))(
        jax.random.split(jax.random.key(0), 8)
    )
    assert (np.asarray(drawn) >= 0).any(axis=1).all()
    assert len(PLACES) == model.n_places
