"""Random windows, and their statistics by plain loops."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise, permutations

import numpy as np

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from tests import support

N_PLACES = 7
PLACES = support.places_in_line(N_PLACES)
STEP_H, N_A_DAY = 3, 8
HOURS_A_DAY = 24
Event = tuple[int, int]
"""Phase, place."""


def grid_of(n_days: int, *, start: str = "2024-01-01T00:00:00") -> TimeGrid:
    """Steps of three hours, a period of a day."""
    return TimeGrid(start, STEP_H * 3600, np.tile(np.arange(N_A_DAY), n_days), period=N_A_DAY)


def random_traces(
    seed: int, n_users: int = 30, n_days: int = 9, *, keep: float = 0.6, first: int = 0, n_visited: int = N_PLACES
) -> Traces:
    users = range(first, first + n_users)
    return support.random_traces(seed, users, PLACES, grid_of(n_days), keep=keep, n_visited=n_visited)


def by_window(windows: Windows) -> list[tuple[int, list[Event]]]:
    """User, and the events in order, of each window."""
    found: list[tuple[int, list[Event]]] = [(int(user), []) for user in windows.user]
    for window, phase, place in zip(windows.window, windows.phase, windows.place, strict=True):
        found[window][1].append((int(phase), int(place)))
    return found


def visits_of(events: list[Event]) -> list[int]:
    """Places one after the other, without repetitions."""
    return [place for place, _ in groupby(place for _, place in events)]


def returns(events: list[Event]) -> list[bool]:
    places = visits_of(events)
    return [place in places[:number] for number, place in enumerate(places)][1:]


def straight_back(events: list[Event]) -> list[bool]:
    places = visits_of(events)
    return [number >= 2 and place == places[number - 2] for number, place in enumerate(places)][1:]


def return_hours(events: list[Event]) -> list[int]:
    """Hours since the last event at the place, of each event at a place that was left since."""
    last: dict[int, int] = {}
    found, before = [], None
    for phase, place in events:
        if place != before and place in last:
            found.append((phase - last[place]) * STEP_H)
        last[place], before = phase, place
    return found


def shares(events: list[Event]) -> list[float]:
    """Shares of the events by place, the greatest first, with a 0 at the end."""
    return [count / len(events) for _, count in Counter(place for _, place in events).most_common()] + [0.0]


def night_homes(events: list[Event], first_h: int) -> list[int]:
    """Number of homes of each week with an event at night; the window begins at this hour of a day."""
    nights: dict[tuple[int, int], list[int]] = {}
    for phase, place in events:
        hour = first_h + phase * STEP_H
        if hour % HOURS_A_DAY < 6:
            nights.setdefault((phase * STEP_H // (7 * HOURS_A_DAY), hour // HOURS_A_DAY), []).append(place)
    homes: dict[int, set[int]] = {}
    for (week, _), places in nights.items():
        # `max` takes the first of several.
        homes.setdefault(week, set()).add(max(places, key=places.count))
    return [len(each) for _, each in sorted(homes.items())]


def days_of(events: list[Event]) -> list[list[Event]]:
    """The events of each day with at least two events."""
    days = [list(day) for _, day in groupby(events, key=lambda event: event[0] // N_A_DAY)]
    return [day for day in days if len(day) >= 2]


def motif(events: list[Event]) -> tuple:
    """The same for two days if and only if they have the same motif."""
    places = visits_of(events)
    names = {place: number for number, place in enumerate(dict.fromkeys(places))}
    if len(names) > 5:
        return (min(len(names), 9),)
    edges = {(names[a], names[b]) for a, b in pairwise(places)}
    renamed = (sorted((name[a], name[b]) for a, b in edges) for name in permutations(range(len(names))))
    return (len(names), *min(renamed))


def entropy(places: list[int]) -> float:
    """Lempel-Ziv entropy by comparing all parts of the sequence."""
    n, total = len(places), 0
    for event in range(n):
        past = places[:event]
        length = 0
        while event + length < n and any(
            past[first : first + length + 1] == places[event : event + length + 1] for first in range(event)
        ):
            length += 1
        total += length + 1
    return n * np.log2(n) / total
