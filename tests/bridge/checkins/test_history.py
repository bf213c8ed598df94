import numpy as np
import pytest

from ppmtf_jax.bridge.checkins import history as module
from ppmtf_jax.bridge.checkins.history import History
from ppmtf_jax.bridge.checkins.law import GAP_FROM_H
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.data.time_grid import TimeGrid

# Half hours, so that hours are rounded down.
GRID = TimeGrid.cyclic("2024-01-01", 1800, 28 * 48, slot_s=3600)


def random_windows(seed: int = 0, n: int = 6) -> ObservedWindows:
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 12, n)
    instant = np.concatenate([np.sort(rng.choice(200, each, replace=False)) for each in size])
    window = np.repeat(np.arange(n), size)
    return ObservedWindows(np.arange(n), window, instant, rng.integers(0, 4, len(window)), GRID)


def by_loop(windows: ObservedWindows) -> list[tuple]:
    """(event, place, events there, shares of hours, log hours since, is last, is previous, is next), in words."""
    rows, number = [], 0
    for window in range(windows.n_windows):
        own = windows.window == window
        times, places = windows.instant[own].tolist(), windows.place[own].tolist()
        for at in range(1, len(times)):
            before = places[:at]
            runs = [place for n, place in enumerate(before) if n == 0 or place != before[n - 1]]
            previous = runs[-2] if len(runs) > 1 else None
            for place in sorted(set(before)):
                when = [t for t, p in zip(times[:at], before, strict=True) if p == place]
                apart = [abs(t % 48 // 2 - times[at] % 48 // 2) for t in when]
                apart = [min(hours, 24 - hours) for hours in apart]
                match = [
                    np.mean([test(a) for a in apart]) for test in (lambda a: a <= 2, lambda a: a == 0, lambda a: a >= 6)
                ]
                hours = np.log(max((times[at] - when[-1]) / 2, 1))
                rows.append(
                    (
                        number,
                        place,
                        len(when),
                        match,
                        hours,
                        place == before[-1],
                        place == previous,
                        place == places[at],
                    )
                )
            number += 1
    return rows


def test_visited_places_are_those_of_a_loop():
    windows = random_windows()
    visited, wanted = History.of(windows).visited, by_loop(windows)
    for column, values in zip(visited, zip(*wanted, strict=True), strict=True):
        np.testing.assert_allclose(column, np.array(values), atol=1e-12)


def test_events_know_their_gap_and_whether_they_are_new():
    windows = ObservedWindows(np.array([0]), np.zeros(4, int), np.array([0, 1, 8, 110]), np.array([0, 1, 0, 2]), GRID)
    history = History.of(windows)
    # Half an hour, three and a half hours, 51 hours.
    assert GAP_FROM_H[history.gap].tolist() == [0, 3, 49]
    assert history.is_new.tolist() == [True, False, True]
    assert history.n_visited.tolist() == [1, 2, 2]
    assert history.last_place.tolist() == [0, 1, 0]


def test_events_after_the_most_remembered_places_are_left_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    windows = ObservedWindows(np.array([0]), np.zeros(5, int), np.arange(5), np.array([0, 1, 2, 3, 0]), GRID)
    history = History.of(windows)
    assert history.place.tolist() == [1, 2]
    assert history.visited.event.tolist() == [0, 1, 1]


def test_windows_with_one_event_have_no_history():
    windows = ObservedWindows(np.arange(2), np.arange(2), np.array([3, 4]), np.array([0, 1]), GRID)
    history = History.of(windows)
    assert len(history.place) == len(history.visited.place) == 0
