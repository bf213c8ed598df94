"""Windows, runs and returns against loops over the events."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.bridge.people.windows import share_of_returns, windows_of
from ppmtf_jax.data.runs import Runs
from tests.bridge.people.towns import PERIOD, commuters


@pytest.fixture(scope="module")
def traces():
    return commuters(n_users=12, n_periods=3, present=0.8)


def runs_by_loop(windows) -> list[tuple]:
    """(window, place, place before, the one before that, is a return) of each run, by a loop over the events."""
    found, history = [], []
    window = -1
    for number, place in zip(windows.trace_of_event().tolist(), windows.place.tolist(), strict=True):
        if number != window:
            window, history = number, []
        if not history or history[-1] != place:
            found.append((number, place, *[*history[:-3:-1], -1, -1][:2], place in history))
            history.append(place)
    return found


@pytest.mark.parametrize("n_periods", [1, 2])
def test_runs_are_those_of_a_loop(traces, n_periods):
    windows = windows_of(traces, n_periods)
    runs = Runs.of(windows.trace_of_event(), windows.place)
    columns = runs.window, runs.place, runs.place_before(1), runs.place_before(2), runs.earlier() >= 0
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert found == runs_by_loop(windows)


def test_windows_are_cut_every_two_periods(traces):
    windows = windows_of(traces, 2)
    expected = np.unique(np.stack([traces.user, traces.instant // (2 * PERIOD)]), axis=1)
    found = np.unique(np.stack([windows.user, windows.trace]), axis=1)
    np.testing.assert_array_equal(found, expected)


def test_return_share_counts_no_user_more_than_the_second(traces):
    windows = windows_of(traces, 1)
    moves, returns = np.zeros(traces.n_users), np.zeros(traces.n_users)
    user_of_window = windows.trace_table()[0]
    for window, _, before, _, is_return in runs_by_loop(windows):
        moves[user_of_window[window]] += before >= 0
        returns[user_of_window[window]] += is_return
    n_return, n_other = (np.minimum(n, np.sort(n)[-2]).sum() for n in (returns, moves - returns))
    assert share_of_returns(windows.blocks) == pytest.approx((n_return + 0.5) / (n_return + n_other + 1))
    # Returns are not counted across windows: whole traces have more of them.
    assert share_of_returns(traces.blocks) > share_of_returns(windows.blocks) + 0.1
