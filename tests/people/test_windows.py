import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError
from ppmtf_jax.people import bins
from ppmtf_jax.people.bins import GAP_FROM_H
from ppmtf_jax.people.user_bounds import CHECKIN_WINDOWS
from ppmtf_jax.people.windows import History, ObservedWindows, Sparsity
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


# Half hours, so that hours are rounded down.
HALF_HOURS = TimeGrid.cyclic("2024-01-01", 1800, 28 * 48, slot_s=3600)


def random_windows(seed: int = 0, n: int = 6) -> ObservedWindows:
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 12, n)
    instant = np.concatenate([np.sort(rng.choice(200, each, replace=False)) for each in size])
    window = np.repeat(np.arange(n), size)
    return ObservedWindows(np.arange(n), window, instant, rng.integers(0, 4, len(window)), HALF_HOURS)


def test_events_know_their_gap_and_whether_they_are_new():
    windows = ObservedWindows(
        np.array([0]), np.zeros(4, int), np.array([0, 1, 8, 110]), np.array([0, 1, 0, 2]), HALF_HOURS
    )
    history = History.of(windows)
    # Half an hour, three and a half hours, 51 hours.
    assert GAP_FROM_H[history.gap].tolist() == [0, 3, 49]
    assert history.is_new.tolist() == [True, False, True]
    assert history.n_visited.tolist() == [1, 2, 2]
    assert history.last_place.tolist() == [0, 1, 0]


def test_events_after_the_most_remembered_places_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bins, "MAX_CHECKIN_PLACES", 3)
    windows = ObservedWindows(np.array([0]), np.zeros(5, int), np.arange(5), np.array([0, 1, 2, 3, 0]), HALF_HOURS)
    history = History.of(windows)
    assert history.place.tolist() == [1, 2]
    assert history.visited.event.tolist() == [0, 1, 1]


HOURS = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, 3 + 48, slot_s=3600)


def facts(instants: list[int]) -> Sparsity:
    return Sparsity.of(to_traces([(0, 0, instant, 0) for instant in instants], places_in_line(1), HOURS))


def test_facts_count_active_days_with_the_hours_that_the_grid_has():
    # Two events on the first day, which has three hours, and one on the third day.
    found = facts([0, 1, 30])
    assert found.events_a_day == pytest.approx(3 / 2)
    assert found.share == pytest.approx(3 / (3 + 24))
    assert found.steps == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("instants", "is_sparse"),
    [([5, 17, 30], True), (list(range(3, 51)), False), (list(range(3, 7)), False), (list(range(3, 51, 3)), False)],
)
def test_sparse_is_what_covers_little_of_the_day_in_single_instants(instants, is_sparse):
    assert facts(instants).is_sparse == is_sparse
    assert np.isfinite(facts(instants)).all()
