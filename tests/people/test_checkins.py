"""Check-ins: windows are drawn with their exact probabilities, which agree with loops; arrays must fit each other."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people import bins
from ppmtf_jax.people.bins import GAP_FROM_H, SINCE_FROM_H, DistanceBins, bins_of_instants, hour_of_instants
from ppmtf_jax.people.model import CheckinBridge
from ppmtf_jax.trace_models.base import ABSENT, Sizes, array_problems
from tests.people.checkin_processes import BUGS, probability_by_loop, random_arrays, random_windows
from tests.trace_models.agreement import FALSE_ALARM, chi_square_ratio


def every_window(n_places: int, n_instants: int) -> np.ndarray:
    return np.array(list(product(range(-1, n_places), repeat=n_instants)), np.int32)


# Three days of two instants, and a whole week and a day of hours; places share cells.
ARRAYS = random_arrays(3, per_day=2, n_days=3)
LONG = random_arrays(12, per_day=24, n_days=8, n_cells=5)


@pytest.mark.parametrize("arrays", [ARRAYS, random_arrays(1, per_day=2, n_days=3)], ids=["three places", "one place"])
def test_probabilities_sum_to_one(arrays):
    windows = every_window(len(arrays["cell"]), 6)
    log = CheckinBridge.from_arrays(arrays).log_traces(windows, np.arange(2))
    assert log.dtype == np.float64
    np.testing.assert_allclose(np.exp(log).sum(axis=0), 1, rtol=0, atol=1e-12)
    # A window without events cannot be; all others can.
    assert np.isneginf(log[0]).all()
    assert np.isfinite(log[1:]).all()


def loop(arrays, windows, **options) -> np.ndarray:
    return np.log([[probability_by_loop(arrays, window, k, **options) for k in (1, 0)] for window in windows.tolist()])


@pytest.fixture(scope="module")
def long_windows() -> np.ndarray:
    return random_windows(LONG, 12, 15, np.random.default_rng(1))


@pytest.fixture(scope="module")
def log_of_long(long_windows) -> np.ndarray:
    return CheckinBridge.from_arrays(LONG).log_traces(long_windows, np.array([1, 0]))


def test_probabilities_are_those_of_loops(long_windows, log_of_long):
    np.testing.assert_allclose(log_of_long, loop(LONG, long_windows), rtol=1e-12)


@pytest.mark.parametrize("bug", BUGS)
def test_every_part_of_the_process_is_noticed(long_windows, log_of_long, bug):
    assert np.abs(log_of_long[:5] - loop(LONG, long_windows[:5], bug=bug)).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("per_day", "n_days"), [(96, 2), (12, 16), (1, 40)])
def test_steps_of_any_length(per_day, n_days):
    arrays = random_arrays(12, per_day, n_days, n_cells=7)
    windows = random_windows(arrays, 4, 30, np.random.default_rng(2))
    log = CheckinBridge.from_arrays(arrays).log_traces(windows, np.array([1, 0]))
    np.testing.assert_allclose(log, loop(arrays, windows), rtol=1e-12)


def test_windows_do_not_depend_on_others(long_windows, log_of_long):
    process = CheckinBridge.from_arrays(LONG)
    np.testing.assert_array_equal(process.log_traces(long_windows[[7]], np.array([1, 0])), log_of_long[[7]])


N_DRAWS = 50_000


def drawn(arrays, user: int, n_draws: int, n_instants: int) -> np.ndarray:
    process = CheckinBridge.from_arrays(arrays)
    sample = jax.jit(lambda process, key: process.sample_trace(key, jnp.int32(user), n_instants))
    return np.asarray(jax.vmap(sample, (None, 0))(process, jax.random.split(jax.random.key(0), n_draws)))


@pytest.fixture(scope="module")
def counted() -> np.ndarray:
    """Index in `every_window` of windows that are drawn for the second user."""
    windows = drawn(ARRAYS, 1, N_DRAWS, 6)
    return (windows + 1) @ 4 ** np.arange(5, -1, -1)


def disagreement(counted: np.ndarray, arrays) -> float:
    log = CheckinBridge.from_arrays(arrays).log_traces(every_window(3, 6), np.array([1]))
    return chi_square_ratio(counted, np.exp(log[:, 0]), FALSE_ALARM)


def test_windows_are_drawn_with_their_probabilities(counted):
    assert disagreement(counted, ARRAYS) < 1


CHANGES = {
    "discount": lambda array: array * 0,
    "last_match": lambda array: -2 * array,
    "match": lambda array: array * 0,
    "last_of_type": lambda array: array[::-1],
    "previous": lambda array: array * 0,
    "place_rate": lambda array: array * 0,
    "reference": lambda array: array[..., ::-1],
    "near_last": lambda array: array**0,
    "near_own": lambda array: array**0,
    "first_rate": lambda array: array * 0,
    # Habits are forgotten.
    "log_odds": lambda array: np.repeat(array[..., :1], array.shape[-1], axis=-1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_draws_notice_every_part_of_the_process(counted, name):
    assert disagreement(counted, ARRAYS | {name: CHANGES[name](ARRAYS[name])}) > 1


def test_a_person_remembers_so_many_places(monkeypatch):
    # They check in at every instant, at a new place if they can. No other test has arrays of these shapes, for which
    # programs would be compiled already.
    monkeypatch.setattr(bins, "MAX_CHECKIN_PLACES", 3)
    arrays = random_arrays(5, per_day=2, n_days=4)
    arrays["log_odds"] = np.full_like(arrays["log_odds"], 30)
    arrays["strength"] = np.full_like(arrays["strength"], 25)
    windows = drawn(arrays, 0, 20, 8)
    assert (windows != ABSENT).all()
    for window in windows:
        assert len(np.unique(window[:3])) == len(np.unique(window)) == 3
    more = np.array([[0, 1, 2, 2, 2, 3, 3, 3], [0, 1, 2, 2, 2, 0, 0, 0]], np.int32)
    log = CheckinBridge.from_arrays(arrays).log_traces(more, np.arange(2))
    assert np.isneginf(log[0]).all()
    assert np.isfinite(log[1]).all()


def test_arrays_survive():
    process = CheckinBridge.from_arrays(ARRAYS)
    arrays = process.to_arrays()
    assert not array_problems(arrays, CheckinBridge.stored_arrays(Sizes(2, 3, 2, 6)), Sizes(2, 3, 2, 6))
    assert CheckinBridge.from_arrays(arrays).per_day == 2
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cluster", lambda array: array + 1, "cluster beyond"),
        ("cell", lambda array: array + 1, "cell beyond"),
        ("visits", lambda array: array * 0, "visits that are not positive"),
        ("near_own", lambda array: array * 0, "near_own that are not positive"),
        ("level_share", lambda array: array / 2, "level_share that do not sum"),
        ("log_odds", lambda array: array[:, :4], "times"),
    ],
)
def test_arrays_must_fit_each_other(name, change, message):
    with pytest.raises(ValueError, match=message):
        CheckinBridge.from_arrays(ARRAYS | {name: change(ARRAYS[name])})


def test_the_summary_tells_how_sparse_the_traces_were():
    facts = np.array([1.3, 0.054, 0.07], np.float32)
    told = CheckinBridge.from_arrays(ARRAYS | {"facts": facts}).summary()[2]
    assert all(each in told for each in ("3 days", "1.3 events", "5.4 %", "7 %"))


@pytest.mark.parametrize("per_day", [96, 24, 12, 1])
def test_bins_are_those_of_hours(per_day):
    hours = np.arange(200) * 24 / per_day
    for edges in (SINCE_FROM_H, GAP_FROM_H):
        expected = [int(sum(edges <= hour)) - 1 for hour in hours]
        assert bins_of_instants(edges, per_day, 200).tolist() == expected
        process = CheckinBridge.from_arrays(random_arrays(1, per_day, 1))
        if edges is GAP_FROM_H:
            assert [int(process.gap_bin(jnp.int32(gap))) for gap in (0, 1, 30, 199)] == [
                expected[g] for g in (0, 1, 30, 199)
            ]
    assert hour_of_instants(per_day, 2 * per_day).tolist() == [int(hour) % 24 for hour in hours[: 2 * per_day]]


def test_unknown_distances_are_all_equal():
    km = np.array([[0, 0.1, 0.25], [0.1, 0, 1000], [np.nan, 1000, 0]])
    assert DistanceBins.of(km, np.arange(3)).distance_bin.tolist() == [[0, 0, 1], [0, 0, 13], [0, 13, 0]]


def test_a_trace_has_four_weeks_at_most():
    hours = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, 100 * 24, slot_s=3600)
    grid = CheckinBridge.grid_of_trace(hours)
    assert (grid.start, grid.n_instants, grid.period) == ("2024-01-02T00:00:00", 28 * 24, 24)
