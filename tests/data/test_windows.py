"""Windows of one period, and thinning complete ones to the events of real ones, against plain loops."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.errors import InputError
from tests import support

PERIOD, N_PERIODS, N_PLACES = 4, 3, 5
PLACES = support.places_in_line(N_PLACES)


def grid_of(n_instants: int, *, period: int = PERIOD, step_s: int = 3600) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", step_s, np.arange(n_instants) % period, period=min(period, n_instants))


def to_traces(rows: list[support.Row], n_instants: int = PERIOD * N_PERIODS) -> Traces:
    return support.to_traces(rows, PLACES, grid_of(n_instants))


def loop_windows(traces: Traces) -> list[tuple[int, list[tuple[int, int]]]]:
    """User, and phase and place of the events, of each window."""
    found = defaultdict(list)
    columns = (traces.user, traces.trace, traces.instant, traces.place)
    for user, trace, instant, place in zip(*(column.tolist() for column in columns), strict=True):
        found[user, trace, instant // PERIOD].append((instant % PERIOD, place))
    return [(user, events) for (user, _, _), events in sorted(found.items())]


def as_loops(windows: Windows) -> list[tuple[int, list[tuple[int, int]]]]:
    found = [(user, []) for user in windows.user.tolist()]
    for window, phase, place in zip(windows.window, windows.phase, windows.place, strict=True):
        found[window][1].append((int(phase), int(place)))
    return found


event_rows = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 1), st.integers(0, PERIOD * N_PERIODS - 1), st.integers(0, N_PLACES - 1)
    ),
    min_size=1,
    max_size=60,
    unique_by=lambda row: row[:3],
)


@settings(max_examples=20)
@given(event_rows)
def test_windows_are_those_of_a_loop(rows: list[support.Row]) -> None:
    traces = to_traces(rows)
    windows, expected = Windows.of(traces), loop_windows(traces)
    assert as_loops(windows) == expected
    assert windows.events_per_window().tolist() == [len(events) for _, events in expected]
    assert as_loops(windows.with_events(2)) == [window for window in expected if len(window[1]) >= 2]
    steps = [
        (place, next_place)
        for _, events in expected
        for (phase, place), (next_phase, next_place) in pairwise(events)
        if next_phase == phase + 1
    ]
    assert list(zip(*(column.tolist() for column in windows.steps()), strict=True)) == steps
    visits = [
        (number, place, [each for _, each in events].count(place))
        for number, (_, events) in enumerate(expected)
        for place in sorted({place for _, place in events})
    ]
    assert list(zip(*(column.tolist() for column in windows.visits()), strict=True)) == visits


@settings(max_examples=20)
@given(event_rows, event_rows, st.randoms(use_true_random=False))
def test_thinning_is_that_of_a_loop(rows: list[support.Row], real_rows: list[support.Row], random) -> None:
    """Of any set by any other, complete or not, with a window drawn several times or never."""
    traces, real = to_traces(rows), to_traces(real_rows)
    windows, real_windows = Windows.of(traces), Windows.of(real)
    drawn = np.array([random.randrange(real_windows.n_windows) for _ in range(windows.n_windows)])
    patterns = [{phase for phase, _ in events} for _, events in loop_windows(real)]
    expected = [
        (user, [event for event in events if event[0] in patterns[number]])
        for (user, events), number in zip(loop_windows(traces), drawn, strict=True)
    ]
    assert as_loops(windows.thinned(real_windows, drawn)) == [window for window in expected if window[1]]


def test_complete_windows_get_the_phases_of_those_drawn() -> None:
    complete = to_traces([(user, 0, instant, user) for user in range(3) for instant in range(PERIOD)], PERIOD)
    # User 0 at phases 1 and 2 of one day and 0 of the next, user 1 at phase 3.
    real = to_traces([(0, 0, 1, 4), (0, 0, 2, 4), (0, 0, 4, 4), (1, 0, 11, 4)])
    thinned = Windows.of(complete).thinned(Windows.of(real), np.array([2, 0, 0]))
    assert as_loops(thinned) == [(0, [(3, 0)]), (1, [(1, 1), (2, 1)]), (2, [(1, 2), (2, 2)])]


def test_a_break_of_a_trace_and_of_the_period_ends_a_window() -> None:
    rows = [(0, 0, 0, 1), (0, 1, 1, 1), (0, 1, 3, 2), (0, 1, 4, 2)]
    windows = Windows.of(to_traces(rows))
    assert windows.window.tolist() == [0, 1, 1, 2]
    # Instants 3 and 4 are consecutive, but of two periods.
    assert windows.steps()[0].tolist() == []


def test_all_windows_can_be_left_out() -> None:
    alone = Windows.of(to_traces([(0, 0, 0, 1), (1, 0, 5, 1)])).with_events(2)
    assert (alone.n_windows, alone.is_step().tolist(), alone.visits().count.tolist()) == (0, [], [])


def test_periods_that_differ_are_refused() -> None:
    hours, quarters = (
        Windows.of(support.random_traces(0, range(2), PLACES, grid)) for grid in (grid_of(4), grid_of(4, step_s=900))
    )
    three = Windows.of(support.random_traces(0, range(2), PLACES, grid_of(6, period=3)))
    for other in (quarters, three):
        assert not same_period(hours.time_grid, other.time_grid)
        with pytest.raises(InputError, match="windows of the same length, in the same slots"):
            hours.thinned(other, np.zeros(2, int))


@pytest.mark.parametrize("drawn", [np.array([0]), np.array([0, 2]), np.array([-1, 0])])
def test_drawn_windows_that_do_not_exist_are_refused(drawn: np.ndarray) -> None:
    windows = Windows.of(support.random_traces(0, range(2), PLACES, grid_of(4)))
    with pytest.raises(InputError, match="a number from 0 to 1 for each of 2 windows"):
        windows.thinned(windows, drawn)
