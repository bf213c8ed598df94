"""Windows of one period and of several, their runs and days, and thinning to events of others, against plain loops."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.data.runs import stable_order
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, is_complete, same_period
from ppmtf_jax.errors import InputError
from tests import support

PERIOD, N_PERIODS, N_PLACES = 4, 3, 5
PLACES = support.places_in_line(N_PLACES)


def grid_of(n_instants: int, *, period: int = PERIOD, step_s: int = 3600) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", step_s, np.arange(n_instants) % period, period=min(period, n_instants))


def to_traces(rows: list[support.Row], n_instants: int = PERIOD * N_PERIODS) -> Traces:
    return support.to_traces(rows, PLACES, grid_of(n_instants))


def loop_windows(traces: Traces, length: int = PERIOD) -> list[tuple[int, list[tuple[int, int]]]]:
    """User, and phase and place of the events, of each window."""
    found = defaultdict(list)
    columns = (traces.user, traces.trace, traces.instant, traces.place)
    for user, trace, instant, place in zip(*(column.tolist() for column in columns), strict=True):
        found[user, trace, instant // length].append((instant % length, place))
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


@settings(max_examples=20)
@given(event_rows)
def test_windows_of_several_periods_are_those_of_a_loop(rows: list[support.Row]) -> None:
    """Of two of three periods: the third period is not in any window."""
    # One user has an event in the window of two periods.
    rows = [*rows, (9, 0, 0, 0)]
    traces, kept = to_traces(rows), to_traces([row for row in rows if row[2] < 2 * PERIOD])
    windows = Windows.of(traces, 2 * PERIOD)
    users = traces.user_ids[windows.user].tolist()
    expected = [(kept.user_ids[user], events) for user, events in loop_windows(kept, 2 * PERIOD)]
    assert [(user, events) for user, (_, events) in zip(users, as_loops(windows), strict=True)] == expected
    assert windows.time_grid == grid_of(2 * PERIOD)
    assert as_loops(Windows.of(traces, PERIOD * N_PERIODS)) == loop_windows(traces, PERIOD * N_PERIODS)


@settings(max_examples=20)
@given(event_rows)
def test_runs_are_those_of_a_loop(rows: list[support.Row]) -> None:
    windows = Windows.of(to_traces(rows), PERIOD * N_PERIODS)
    expected, moves, earlier, before = [], [], [], []
    for number, (_, events) in enumerate(as_loops(windows)):
        last: dict[int, int] = {}
        for position, (place, run) in enumerate(groupby(events, key=lambda event: event[1])):
            phases = [phase for phase, _ in run]
            moves.append(position > 0)
            earlier.append(last.get(place, -1))
            before.append(expected[-2][1] if position > 1 else -1)
            last[place] = len(expected)
            expected.append((number, place, phases[0], phases[-1]))
    runs = windows.runs
    columns = runs.window, runs.place, windows.phase[runs.first], windows.phase[runs.last]
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert runs.is_move().tolist() == moves
    assert runs.earlier().tolist() == earlier
    assert runs.place_before(2).tolist() == before


@pytest.mark.parametrize(("step_h", "n_a_day"), [(6, 4), (3, 8), (48, 1), (7, 3)])
def test_days_are_those_of_a_loop(step_h: int, n_a_day: int) -> None:
    """Of windows of 10 instants, from ten o'clock on: a day lasts 24 hours, or as many steps as fit into them."""
    grid = TimeGrid("2024-01-01T10:00:00", step_h * 3600, np.tile(np.arange(5), 4), period=5)
    traces = support.random_traces(0, range(5), PLACES, grid, keep=0.5)
    windows = Windows.of(traces, 10)
    found = defaultdict(list)
    for number, (user, events) in enumerate(as_loops(windows)):
        for phase, place in events:
            found[number, phase // n_a_day, user].append((phase % n_a_day, place))
    days = windows.days()
    assert as_loops(days) == [(user, events) for (_, _, user), events in found.items()]
    assert days.time_grid.n_instants == n_a_day


def test_a_window_of_less_than_a_day_is_a_day() -> None:
    windows = Windows.of(support.random_traces(0, range(3), PLACES, grid_of(8), keep=0.7))
    assert as_loops(windows.days()) == as_loops(windows)


def test_thinning_to_windows_of_another_length_is_refused() -> None:
    traces = support.random_traces(0, range(2), PLACES, grid_of(8))
    days, longer = Windows.of(traces), Windows.of(traces, 8)
    with pytest.raises(InputError, match="windows of 4 and of 8 instants"):
        days.thinned(longer, np.zeros(4, int))


def test_one_missing_event_makes_traces_incomplete() -> None:
    complete = support.random_traces(0, range(3), PLACES, grid_of(8), n_traces=2)
    assert is_complete(complete)
    assert not is_complete(complete.select_events(np.arange(complete.n_events) != 5))
    # A user without a trace is missing nothing.
    assert is_complete(replace(complete, user_ids=np.arange(4)))


@pytest.mark.parametrize("n_rows", [0, 1, 2, 1000])
@pytest.mark.parametrize(
    "spans", [((0, 1),), ((-5, 5), (0, 3)), ((0, 9), (-(2**31), 2**31 - 1)), ((-(2**62), 2**62), (0, 4)), ((7, 8),) * 9]
)
def test_the_order_is_that_of_lexsort(n_rows, spans):
    """Also where a row does not fit into one number, and where many rows are equal."""
    columns = [np.random.default_rng(0).integers(*span, n_rows, endpoint=True) for span in spans]
    columns = [column.astype(np.int32) if np.abs(column).max(initial=0) < 2**31 else column for column in columns]
    assert stable_order(*columns).tolist() == np.lexsort(columns[::-1]).tolist()
