"""A person and the places that they visited so far: of observed traces in NumPy, of a synthetic person in JAX."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.data.runs import joined_ranges, rank_in_group, rank_in_run, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.bins import HOME, HOURS_A_DAY, OTHER, SECOND
from ppmtf_jax.trace_models.base import ABSENT


def is_first_visit(window: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Bool[np.ndarray, " event"]:
    """Whether an event is the first one of its window at its place; the windows need not be sorted.

    Examples
    --------
    >>> is_first_visit(np.array([0, 0, 0, 1]), np.array([5, 3, 5, 5])).tolist()
    [True, True, False, True]
    """
    return rank_in_group(window.astype(np.int64) * (int(place.max(initial=0)) + 1) + place) == 0


class VisitedBefore(NamedTuple):
    """Places with earlier events of the same window: one row for each event and place, sorted by event and place.

    A *pair* is an event and an earlier event of its window; `row` is the row of each pair.
    """

    event: Int[np.ndarray, " row"]
    place: Int[np.ndarray, " row"]
    count: Int[np.ndarray, " row"]  # number of earlier events at the place
    row: Int[np.ndarray, " pair"]
    later: Int[np.ndarray, " pair"]
    earlier: Int[np.ndarray, " pair"]

    @classmethod
    def of(cls, window: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> VisitedBefore:
        """Look back from each event; events are sorted by window and time.

        Examples
        --------
        >>> seen = VisitedBefore.of(np.zeros(4, int), np.array([5, 3, 5, 3]))
        >>> seen.event.tolist(), seen.place.tolist(), seen.count.tolist()
        ([1, 2, 2, 3, 3], [5, 3, 5, 3, 5], [1, 1, 1, 1, 2])
        """
        event, n_earlier = np.arange(len(window)), rank_in_run(window)
        later, earlier = np.repeat(event, n_earlier), joined_ranges(event - n_earlier, n_earlier)
        n_places = int(place.max(initial=0)) + 1
        code, row = np.unique(later * n_places + place[earlier], return_inverse=True)
        return cls(*np.divmod(code, n_places), np.bincount(row, minlength=len(code)), row, later, earlier)


def entry_of(
    place: Int[Array, ""], visited: Int[Array, " remembered"], n_visited: Int[Array, ""]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Entry of a place among the visited places (the first free one if it is not there), and whether it is new.

    Places are in the order of the first visits. If a new place finds no free entry, the entry is past the end.
    """
    known = visited == place
    is_new = ~known.any()
    return jnp.where(is_new, n_visited, jnp.argmax(known)).astype(jnp.int32), is_new


class PersonState(NamedTuple):
    """A synthetic person at an instant of their trace; a place that does not exist (yet) is `ABSENT`.

    `before`: the last place that was not the current place. `dwell`: number of instants at the current place so far.
    `visited`: distinct other places, in the order of the first arrivals. `arrivals`: number of arrivals at each.
    """

    cluster: Int[Array, ""]
    mobility: Int[Array, ""]
    has_second: Int[Array, ""]
    role: Int[Array, ""]
    place: Int[Array, ""]
    before: Int[Array, ""]
    dwell: Int[Array, ""]
    home: Int[Array, ""]
    second: Int[Array, ""]
    visited: Int[Array, " remembered"]
    arrivals: Int[Array, " remembered"]

    @classmethod
    def unborn(
        cls, cluster: Int[Array, ""], mobility: Int[Array, ""], has_second: Int[Array, ""], most: int
    ) -> PersonState:
        """A person before their first instant, who can remember `most` places."""
        nowhere, nothing = jnp.int32(ABSENT), jnp.zeros(most, jnp.int32)
        where = jnp.int32(OTHER), nowhere, nowhere, jnp.int32(0), nowhere, nowhere
        return cls(cluster, mobility, has_second, *where, visited=nothing + ABSENT, arrivals=nothing)

    def arrived(self, role: Int[Array, ""], place: Int[Array, ""]) -> PersonState:
        """The person one instant later, at a given place, which belongs to a given role."""
        moved = place != self.place
        number = entry_of(place, self.visited, jnp.sum(self.visited != ABSENT))[0]
        arrives = (jnp.arange(len(self.visited)) == number) & moved & (role == OTHER)
        return self._replace(
            role=role,
            place=place,
            before=jnp.where(moved, self.place, self.before),
            dwell=jnp.where(moved, 1, self.dwell + 1),
            home=jnp.where(role == HOME, place, self.home),
            second=jnp.where(role == SECOND, place, self.second),
            visited=jnp.where(arrives, place, self.visited),
            arrivals=self.arrivals + arrives,
        )


class Memory(NamedTuple):
    """The places where a person checked in so far, in the order of their first events there."""

    place: Int[Array, " remembered"]  # index of the place; unused entries have the number of places
    n_events: Int[Array, " remembered"]
    # Numbers of events by hour of the day; as floats, since to convert them in each step took a fifth of its time.
    at_hour: Float[Array, "remembered 24"]
    latest: Int[Array, " remembered"]  # instant of the latest event there
    n_visited: Int[Array, ""]
    # Indices of the last place, and of the place before the last place (-1 if there is none).
    last: Int[Array, ""]
    previous: Int[Array, ""]
    instant: Int[Array, ""]  # of the last event

    @classmethod
    def empty(cls, size: int, n_places: int) -> Memory:
        """The memory before the first event, with room for some places."""
        zero, zeros = jnp.int32(0), jnp.zeros(size, jnp.int32)
        at_hour = jnp.zeros((size, HOURS_A_DAY), jnp.float32)
        return cls(zeros + n_places, zeros, at_hour, zeros, zero, zero - 1, zero - 1, zero)

    @property
    def is_last(self) -> Bool[Array, " remembered"]:
        """Whether a place is the last place."""
        return jnp.arange(len(self.place)) == self.last

    def after(self, place: Int[Array, ""], instant: Int[Array, ""], hour: Int[Array, ""]) -> Memory:
        """The memory after one more event; a new place needs a free entry."""
        at, is_new = entry_of(place, self.place, self.n_visited)
        return Memory(
            self.place.at[at].set(place),
            self.n_events.at[at].add(1),
            self.at_hour.at[at, hour].add(1),
            self.latest.at[at].set(instant),
            self.n_visited + is_new,
            at,
            jnp.where(at == self.last, self.previous, self.last),
            instant,
        )


def table_of(traces: Traces) -> tuple[Int[np.ndarray, "trace instant"], Int[np.ndarray, " trace"]]:
    """Places of traces cut into periods, `ABSENT` where there is no event; and the user of each trace."""
    periods = traces.periods()
    places = np.full((len(periods.first), traces.time_grid.period), ABSENT, np.int32)
    places[periods.piece, periods.phase] = traces.place
    return places, traces.user[periods.first]


def number_of_places(places: Int[np.ndarray, "trace instant"]) -> Int[np.ndarray, " trace"]:
    """Number of distinct places of each trace."""
    return (np.diff(np.sort(places, axis=1), axis=1, prepend=ABSENT) != 0).sum(axis=1)


class Steps(NamedTuple):
    """Steps from each event to the next one, sorted by trace; all traces have the same number of distinct places.

    The *number* of a place counts the distinct places of a trace in the order of their first events: 0, 1, ...
    """

    trace: Int[np.ndarray, " step"]
    start: Int[np.ndarray, " step"]  # instant
    end: Int[np.ndarray, " step"]
    arrived: Int[np.ndarray, " step"]  # first instant of the current run of events at the place where the step starts
    place: Int[np.ndarray, " step"]  # where the step starts
    number: Int[np.ndarray, " step"]  # number of `place`
    following: Int[np.ndarray, " step"]  # number of the place where the step ends
    before: Int[np.ndarray, " step"]  # number of the place visited just before `place`, or `ABSENT`
    known: Int[np.ndarray, " step"]  # number of distinct places so far
    arrivals: Int[np.ndarray, "step number"]  # number of runs of events at each place that began so far

    @classmethod
    def of(
        cls, places: Int[np.ndarray, "trace instant"]
    ) -> tuple[Int[np.ndarray, "trace number"], Int[np.ndarray, " trace"], Steps]:
        """Place of each number, first instant and steps of traces; each trace has at least one event."""
        trace, instant = np.nonzero(places != ABSENT)
        place = places[trace, instant].astype(np.int64)
        begins, arrives = run_begins(trace), run_begins(trace, place)
        of_run, at = trace[arrives], place[arrives]
        _, first, inverse = np.unique(of_run * (at.max() + 1) + at, return_index=True, return_inverse=True)
        distinct = at[np.sort(first)].reshape(len(places), -1)
        n_before = distinct.shape[1] * of_run
        n_new = np.cumsum(np.isin(np.arange(len(at)), first))
        number = n_new[first[inverse]] - 1 - n_before
        visits = number[:, None] == np.arange(distinct.shape[1])
        arrivals, is_first = np.cumsum(visits, axis=0), run_begins(of_run)
        arrivals -= (arrivals - visits)[is_first][of_run]
        before = np.where(is_first, ABSENT, np.roll(number, 1))
        start, run = np.flatnonzero(~begins[1:]), np.cumsum(arrives) - 1
        here, following = run[start], run[start + 1]
        steps = cls(
            trace[start],
            instant[start],
            instant[start + 1],
            instant[arrives][here],
            place[start],
            number[here],
            number[following],
            before[here],
            (n_new - n_before)[here],
            arrivals[here],
        )
        return distinct, instant[begins], steps

    def select(self, chosen: Bool[np.ndarray, " step"]) -> Steps:
        """The chosen steps."""
        return Steps(*(column[chosen] for column in self))

    @property
    def stays(self) -> Bool[np.ndarray, " step"]:
        """Whether the step ends at the same place."""
        return self.number == self.following


class Persons(NamedTuple):
    """All persons who may have made a trace with a given number of distinct places.

    `home`, `second`: number of the home and of the second place in the trace (see `Steps`), `ABSENT` if the trace does
    not have this place. `role`: role of each person at the place of each number.
    """

    home: Int[np.ndarray, " person"]
    second: Int[np.ndarray, " person"]
    has_second: Int[np.ndarray, " person"]
    role: Int[np.ndarray, "person number"]

    @classmethod
    def of(cls, n_distinct: int, *, anchors: bool) -> Persons:
        """All persons; without anchors, nobody has a home or second place."""
        numbers = np.arange(ABSENT, n_distinct if anchors else 0)
        home, second, has_second = (x.ravel() for x in np.meshgrid(numbers, numbers, [0, 1], indexing="ij"))
        exists = ((home != second) | (home == ABSENT)) & ((second == ABSENT) | (has_second == 1))
        home, second, has_second, number = home[exists], second[exists], has_second[exists], np.arange(n_distinct)
        role = np.where(number == home[:, None], HOME, np.where(number == second[:, None], SECOND, OTHER))
        return cls(home, second, has_second, role)

    @property
    def anchors(self) -> tuple[Int[np.ndarray, " person"], Int[np.ndarray, " person"]]:
        return self.home, self.second

    @property
    def is_other(self) -> Bool[np.ndarray, "person number"]:
        return self.role == OTHER

    def roles_of(self, steps: Steps) -> tuple[Int[np.ndarray, "step person"], Int[np.ndarray, "step person"]]:
        """Roles before and after each step."""
        return self.role.T[steps.number], self.role.T[steps.following]
