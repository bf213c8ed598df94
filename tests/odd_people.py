"""A town, single odd people who are planted in it, and plain statistics of traces in which one of them may show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces

HOURS, N_PLACES = 24, 24
# The town is a line of places, 600 m apart. Nobody lives at the last ones, but some people visit them.
PLACES = PlaceTable(
    np.arange(N_PLACES),
    np.full(N_PLACES, 35.0),
    139 + np.arange(N_PLACES) * 0.0066,
    np.array([("home", "work", "shop", "park")[number % 4] for number in range(N_PLACES - 2)] + ["chapel", "chapel"]),
)
ODD, FAR = N_PLACES - 1, N_PLACES - 2
ODD_HOUR, ODD_GAP_H = 3, 5
SUNDAY = 6


def grid_of(n_days: int) -> TimeGrid:
    """Hours from a Monday on; slots of two hours repeat every day."""
    return TimeGrid.cyclic("2024-01-01", 3600, HOURS * n_days, slot_s=7200)


def traces_of(places: np.ndarray) -> Traces:
    """Traces of a table of users and instants, with -1 where there is no event."""
    user, instant = np.nonzero(places >= 0)
    ids, grid = np.arange(len(places)), grid_of(places.shape[1] // HOURS)
    return Traces.from_indices(user, np.zeros(len(user), int), instant, places[user, instant], ids, PLACES, grid)


def residents(n_users: int, n_days: int, seed: int) -> np.ndarray:
    """Where people are at each hour: at home at night, at work or about by day, rarely at a far place."""
    rng = np.random.default_rng(seed)
    home, work = rng.integers(FAR - 6, size=n_users), rng.integers(FAR - 6, size=n_users)
    hour = np.arange(HOURS * n_days) % HOURS
    places = np.repeat(home[:, None], len(hour), axis=1)
    at_work = (hour >= 9) & (hour < 16) & (rng.random((n_users, 1)) < 0.8)
    places = np.where(at_work, work[:, None], places)
    begins = (hour >= 10) & (hour < 22) & (rng.random(places.shape) < 0.15)
    about = rng.integers(N_PLACES, size=places.shape)
    # Who goes out is there for one to three hours.
    for length in range(rng.integers(1, 4)):
        there = np.roll(begins, length, axis=1) & (hour >= 10)
        places = np.where(there, np.roll(about, length, axis=1), places)
    return places


def check_ins(n_users: int, n_days: int, seed: int) -> np.ndarray:
    """Residents who check in now and then by day and in the evening; some do so ten times as often as others."""
    rng = np.random.default_rng(seed)
    places, hour = residents(n_users, n_days, seed), np.arange(HOURS * n_days) % HOURS
    often = np.minimum(rng.lognormal(-4.2, 0.8, n_users), 0.12)[:, None]
    by_hour = np.where((hour >= 8) & (hour < 24), 1.0, 0.05)
    return np.where(rng.random(places.shape) < often * by_hour, places, -1)


Person = Callable[[int, np.random.Generator], np.ndarray]


def _always(place: int) -> Person:
    return lambda n, random: np.full(n, place)


def _at(hours: list[int], n_places: int = 6, day: int | None = None) -> Person:
    """Check-ins at fixed hours of each day, or of one day of the week, at ordinary places."""

    def person(n: int, random: np.random.Generator) -> np.ndarray:
        instant = np.arange(n)
        happens = np.isin(instant % HOURS, hours) & ((day is None) | (instant // HOURS % 7 == day))
        return np.where(happens, random.integers(n_places, size=n), -1)

    return person


def _every(gap: int, cycle: list[int]) -> Person:
    """An event every few hours, at the places of a cycle one after the other."""

    def person(n: int, random: np.random.Generator) -> np.ndarray:
        instant = np.arange(n)
        return np.where(instant % gap == 0, np.array(cycle)[instant // gap % len(cycle)], -1)

    return person


def _nights(place: int) -> Person:
    """An ordinary day, and each night at a place where others are by day."""

    def person(n: int, random: np.random.Generator) -> np.ndarray:
        hour = np.arange(n) % HOURS
        return np.where((hour < 6) | (hour > 21), place, np.where(hour % 3 == 0, random.integers(6, size=n), 7))

    return person


DENSE: dict[str, Person] = {
    "place": _always(ODD),
    "home": _nights(FAR),
    "direction": _every(1, [0, 13, 2, 11]),
    "return": _every(1, [3, 4]),
    "length": lambda n, random: np.where(np.arange(n) < n // 8, 5, -1),
    "category": _every(1, [FAR, FAR, FAR, ODD, ODD, ODD]),
}
SPARSE: dict[str, Person] = {
    "clock": _at([ODD_HOUR]),
    "three hours": _at([1, 5, 13]),
    "pace": _every(1, [0, 1, 2, 3, 4, 5]),
    "gap": _every(ODD_GAP_H, [0, 1, 2, 3]),
    "return": _every(7, [3, 4]),
    "direction": _every(9, [0, 13, 2, 11]),
    "weekday": _at(list(range(8, 20)), day=SUNDAY),
    "place": lambda n, random: np.where(np.arange(n) % HOURS == 12, ODD, -1),
}


def with_odd(places: np.ndarray, person: Person, seed: int) -> np.ndarray:
    """The table with one more user."""
    return np.vstack([places, person(places.shape[1], np.random.default_rng(seed))])


def statistics(traces: Traces) -> dict[str, float]:
    """What somebody may count in a release: totals per trace, and the greatest numbers of any trace."""
    trace, instant, place = traces.trace_of_event(), traces.instant, traces.place
    n_traces, hour, day = int(trace.max()) + 1, instant % HOURS, instant // HOURS % 7
    found: dict[str, float] = {}

    def count(name: str, which: np.ndarray, at_least: tuple[int, ...] = ()) -> None:
        """Events for which `which` is true: mean number per trace, tenth largest number, and traces with many."""
        of_trace = np.bincount(trace[which], minlength=n_traces)
        found[name] = of_trace.mean()
        found[f"{name}, most"] = float(of_trace.max())
        found[f"{name}, tenth"] = float(np.sort(of_trace)[-min(10, n_traces)])
        for number in at_least:
            found[f"{name}, {number} or more"] = float((of_trace >= number).mean())

    events = np.ones(len(trace), bool)
    count("events", events, (40, 80))
    count("at the odd place", place == ODD, (4, 10))
    count("at the odd place at night", (place == ODD) & (hour < 6), (3,))
    count("at the far place at night", (place == FAR) & ((hour < 6) | (hour > 21)), (3,))
    count("at chapels", place >= FAR)
    count("at 3", hour == ODD_HOUR, (5, 10))
    count("at 1, 5 and 13", np.isin(hour, [1, 5, 13]), (12, 20))
    count("on Sundays", day == SUNDAY, (8, 20))
    same = np.append(False, trace[1:] == trace[:-1])
    gap, before = np.diff(instant, prepend=0), np.roll(place, 1)
    twice = same & np.append(False, same[:-1])
    for hours in (1, ODD_GAP_H, 7, 9, 24):
        count(f"gaps of {hours} h", same & (gap == hours), (10,))
    count("stays", same & (place == before))
    count("to and fro", twice & (place == np.roll(place, 2)) & (place != before), (6,))
    count("between 3 and 4", same & (place + before == 7) & (np.abs(place - before) == 1), (4, 8))
    for a, b in ((0, 13), (13, 2), (2, 11)):
        count(f"from {a} to {b}", same & (before == a) & (place == b), (3,))
    return found
