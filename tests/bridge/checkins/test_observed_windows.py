import numpy as np
import pytest

from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.contributions import CHECKIN_WINDOWS
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError
from tests.support import places_in_line, to_traces

# The first midnight is at instant 2; then come three windows of four weeks, and a day that fills none.
GRID = TimeGrid.cyclic("2024-01-02T12:00:00", 6 * 3600, 2 + 3 * 112 + 4, slot_s=12 * 3600)
WINDOW = GRID.whole_days(28)


def test_windows_follow_each_other_from_the_first_midnight_on():
    rows = [(0, 0, 1, 0), (0, 0, 2, 1), (0, 0, 113, 2), (0, 0, 114, 0), (1, 0, 5, 1), (1, 1, 6, 1), (1, 1, 340, 2)]
    windows = ObservedWindows.of(to_traces(rows, places_in_line(3), GRID), WINDOW)
    found = zip(windows.user_of_event, windows.window, windows.instant, windows.place, strict=True)
    # Instant 1 is before the first midnight, instant 340 in the last day; traces of one user are apart.
    assert [tuple(map(int, row)) for row in found] == [
        (0, 0, 0, 1),
        (0, 0, 111, 2),
        (0, 1, 0, 0),
        (1, 2, 3, 1),
        (1, 3, 4, 1),
    ]
    assert windows.is_later.tolist() == [False, True, False, False, False]


def test_no_user_weighs_more_than_the_limits():
    grid = TimeGrid.cyclic("2024-01-01", 86_400, 28 * 30, slot_s=86_400)
    rng = np.random.default_rng(0)
    # User 0 has 30 windows, user 1 has few windows with events every day, and the others have few events.
    rows = [(0, 0, 28 * number, 0) for number in range(30)]
    rows += [(1, 0, instant, 0) for instant in range(56)]
    rows += [(user, 0, int(day), 0) for user in range(2, 6) for day in rng.choice(28 * 30, 6, replace=False)]
    windows = ObservedWindows.of(to_traces(rows, places_in_line(1), grid), grid.whole_days(28))
    weight = windows.weights()
    of_window = np.bincount(windows.user, weight)
    of_event = np.bincount(windows.user_of_event, weight[windows.window])
    assert of_window[0] == pytest.approx(CHECKIN_WINDOWS)
    # Without the limit, user 1 would have 56 events; user 0 has the second most.
    assert of_event[1] == pytest.approx(of_event[0])
    assert (weight[windows.user >= 2] == 1).all()


def test_a_user_alone_is_learned_from():
    windows = ObservedWindows.of(to_traces([(0, 0, 5, 0)], places_in_line(1), GRID), WINDOW)
    assert windows.weights().tolist() == [1]


@pytest.mark.parametrize("n_users_of_block", [8192, 2])
def test_as_many_random_users_as_the_bounds_allow(n_users_of_block, monkeypatch):
    """Users have 1, 0, 6, 0 and 1 pairs of events of a window; each window has 112 instants."""
    monkeypatch.setattr("ppmtf_jax.data.traces.BLOCK_USERS", n_users_of_block)
    events = {0: [2, 3, 200], 1: [5], 2: [50, 51, 52, 53], 3: [9], 4: [8, 9]}
    rows = [(user, 0, at, at % 3) for user, all_at in events.items() for at in all_at]
    traces = to_traces(rows, places_in_line(3), GRID)

    def some(most_instants: int, most_pairs: int, random: np.random.Generator) -> ObservedWindows:
        return ObservedWindows.of_some(traces, WINDOW, random, most_instants=most_instants, most_pairs=most_pairs)

    windows, whole = some(10**4, 10**4, np.random.default_rng(0)), ObservedWindows.of(traces, WINDOW)
    for name in ("user", "window", "instant", "place"):
        np.testing.assert_array_equal(getattr(windows, name), getattr(whole, name))
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(5)
        n_instants = np.cumsum(112 * np.array([2, 1, 1, 1, 1])[order])
        n_pairs = np.cumsum(np.array([1, 0, 6, 0, 1])[order])
        wanted = order[((n_instants <= 336) & (n_pairs <= 4)) | (np.arange(5) == 0)]
        assert sorted(set(some(336, 4, np.random.default_rng(seed)).user)) == sorted(wanted)


@pytest.mark.parametrize("rows", [[(0, 0, 1, 0)], [(0, 0, 339, 0)]])
def test_refuses_traces_without_events_in_whole_windows(rows):
    traces, random = to_traces(rows, places_in_line(1), GRID), np.random.default_rng(0)
    with pytest.raises(InputError, match="events in the whole days"):
        ObservedWindows.of_some(traces, WINDOW, random, most_instants=10**4, most_pairs=10**4)


def test_refuses_slots_that_differ_between_windows():
    grid = TimeGrid.each_instant("2024-01-01", 86_400, 56)
    with pytest.raises(InputError, match="slots that repeat after 28 instants"):
        ObservedWindows.of(to_traces([(0, 0, 1, 0)], places_in_line(1), grid), grid.whole_days(28))
