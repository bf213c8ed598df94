"""Probabilities of windows: their sum, agreement with loops, and with a brute-force sum over users' clusters."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ppmtf_jax.bridge.checkins.model import CheckinBridge
from tests.bridge.checkins.laws import BUGS, probability_by_loop, random_arrays, random_windows


def every_window(n_places: int, n_instants: int) -> np.ndarray:
    return np.array(list(product(range(-1, n_places), repeat=n_instants)), np.int32)


# Three days of two instants, and a whole week and a day of hours; places share cells.
SHORT = random_arrays(3, per_day=2, n_days=3)
LONG = random_arrays(12, per_day=24, n_days=8, n_cells=5)


@pytest.mark.parametrize("arrays", [SHORT, random_arrays(1, per_day=2, n_days=3)], ids=["three places", "one place"])
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
def test_every_part_of_the_law_is_noticed(long_windows, log_of_long, bug):
    assert np.abs(log_of_long[:5] - loop(LONG, long_windows[:5], bug=bug)).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("per_day", "n_days"), [(96, 2), (12, 16), (1, 40)])
def test_steps_of_any_length(per_day, n_days):
    arrays = random_arrays(12, per_day, n_days, n_cells=7)
    windows = random_windows(arrays, 4, 30, np.random.default_rng(2))
    log = CheckinBridge.from_arrays(arrays).log_traces(windows, np.array([1, 0]))
    np.testing.assert_allclose(log, loop(arrays, windows), rtol=1e-12)


def test_nothing_to_score():
    assert CheckinBridge.from_arrays(SHORT).log_traces(np.zeros((0, 6), np.int32), np.arange(2)).shape == (0, 2)


def test_windows_do_not_depend_on_others(long_windows, log_of_long):
    law = CheckinBridge.from_arrays(LONG)
    np.testing.assert_array_equal(law.log_traces(long_windows[[7]], np.array([1, 0])), log_of_long[[7]])
