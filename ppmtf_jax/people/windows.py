"""Observed check-ins: windows of calendar days, what precedes each event, and whether traces are sparse.

Traces are sparse if most instants of a person's active days were not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_array, vstack

from ppmtf_jax.data.runs import Runs, run_begins
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.people import bins
from ppmtf_jax.people.fitting import pad
from ppmtf_jax.people.person import VisitedBefore
from ppmtf_jax.people.user_bounds import CHECKIN_WINDOWS, STEP_USERS, bounded, used_share
from ppmtf_jax.runtime.devices import round_up

SPARSE_SHARE, SPARSE_STEPS = 0.2, 0.3
"""Traces are sparse if `Sparsity.share` and `Sparsity.steps` are below these bounds."""
TINY = 1e-12
INSTANTS_AT_A_TIME = 2**20
N_CODES = bins.DAYS_A_WEEK * bins.HOURS_A_DAY * bins.N_SINCE * bins.N_HABITS


@dataclass(frozen=True, eq=False)
class ObservedWindows:
    """Windows with at least one event; events are sorted by window and instant; instant 0 begins the window."""

    user: Int[np.ndarray, " window"]
    window: Int[np.ndarray, " event"]
    instant: Int[np.ndarray, " event"]
    place: Int[np.ndarray, " event"]
    grid: TimeGrid  # of one window
    # How much each window weighs, and the cluster of its user; 1 and 0 unless they are set.
    weight: Float[np.ndarray, " window"] = field(default=None)  # type: ignore[assignment]
    cluster: Int[np.ndarray, " window"] = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for name, value in (("weight", 1.0), ("cluster", 0)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.full(len(self.user), value))

    @classmethod
    def of(cls, traces: Traces, grid: TimeGrid) -> ObservedWindows:
        """Cut each trace into windows as long as `grid`, one after the other, from the first midnight on.

        Events before the first midnight are left out, and so are events of the last days that do not fill a window.
        Windows of whole weeks all begin on the same day of the week. If the slots of one window differ from those of
        another, this is an `InputError`.
        """
        begin, length = traces.time_grid.first_midnight(), grid.n_instants
        end = begin + (traces.time_grid.n_instants - begin) // length * length
        slots = traces.time_grid.slot_of_instant[begin:end].reshape(-1, length)
        if (slots != slots[0]).any():
            found = traces.time_grid.summary()["slots"]
            problem = Problem(f"slots that repeat after {length} instants, the length of a window", found)
            raise InputError("check-ins", [problem])
        used = (traces.instant >= begin) & (traces.instant < end)
        number, instant = np.divmod(traces.instant[used] - begin, length)
        begins = run_begins(traces.user[used], traces.trace[used], number)
        return cls(traces.user[used][begins], np.cumsum(begins) - 1, instant, traces.place[used], grid)

    @classmethod
    def of_some(
        cls, traces: Traces, grid: TimeGrid, random: np.random.Generator, *, most_instants: int, most_pairs: int
    ) -> ObservedWindows:
        """The windows of random users, as in `of`: as many users as the two upper bounds allow, but at least one.

        `most_instants`: number of instants of all windows. `most_pairs`: number of pairs of an event and an earlier
        event of the same window. The traces are read in blocks of users.

        Raises
        ------
        InputError
            As in `of`, or no window has an event.
        """

        def count(block: Traces) -> Int[np.ndarray, "user 2"]:
            windows = cls.of(block, grid)
            size = np.bincount(windows.window, minlength=windows.n_windows)
            pairs = np.bincount(windows.user, size * (size - 1) // 2, block.n_users)
            return np.stack([np.bincount(windows.user, minlength=block.n_users), pairs.astype(int)], axis=1)

        counts = traces.blocks.map(count).joined()
        with_windows = np.flatnonzero(counts[:, 0])
        if not len(with_windows):
            raise InputError("check-ins", [Problem("events in the whole days of the grid", "none")])
        order = random.permutation(int(with_windows[-1]) + 1)
        n_windows, n_pairs = counts[order].T
        fits = (np.cumsum(n_windows) * grid.n_instants <= most_instants) & (np.cumsum(n_pairs) <= most_pairs)
        # At least one user who has a window.
        fits |= order == order[n_windows > 0][0]
        users = np.sort(order[fits])
        windows = cls.of(traces.select_users(users), grid)
        return replace(windows, user=users[windows.user])

    @property
    def n_windows(self) -> int:
        return len(self.user)

    @property
    def user_of_event(self) -> Int[np.ndarray, " event"]:
        """User of each event."""
        return self.user[self.window]

    @property
    def is_later(self) -> Bool[np.ndarray, " event"]:
        """Whether an event is not the first event of its window."""
        return ~run_begins(self.window)

    def weights(self) -> Float[np.ndarray, " window"]:
        """Weight of each window, such that the weight of one user is bounded.

        All windows of a user have the same weight. The sum of these weights is at most `CHECKIN_WINDOWS`. The events of
        a user weigh at most as much as those of the user who has the second most. With only one user, only the first
        bound holds.
        """
        n_users = int(self.user.max(initial=-1)) + 1
        windows = np.bincount(self.user, minlength=n_users)
        weight = np.minimum(1, CHECKIN_WINDOWS / np.maximum(windows, 1))[self.user]
        users = self.user_of_event
        if len(np.unique(users)) < 2:
            return weight
        of_event = bounded(users, np.zeros(len(users), np.int64), 1, weight[self.window])[0]
        # All events of a window have the same weight.
        return of_event[run_begins(self.window)]


class Sparsity(NamedTuple):
    """Facts about traces; an active user-day is a day with an event in a trace of a user."""

    events_a_day: float  # events of an active user-day
    share: float  # share of the instants of active user-days that have an event
    steps: float  # of the events after the first of each trace, the share one instant after the event before

    @classmethod
    def of(cls, traces: Traces) -> Sparsity:
        """Count; the instants of a day are the instants that the time grid has on this day.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> facts = Sparsity.of(toy_city(n_users=20, missing=0.75, seed=0).traces)
        >>> round(facts.share, 1), facts.is_sparse
        (0.3, False)
        """
        day = traces.time_grid.day()

        def count(block: Traces) -> Int[np.ndarray, "4"]:
            of_event, gaps = day[block.instant], block.gaps()
            days = of_event[run_begins(block.user, block.trace, of_event)]
            return np.array([len(days), np.bincount(day)[days].sum(), (gaps == 1).sum(), len(gaps)])

        n_days, n_instants, n_steps, n_gaps = traces.blocks.map(count).total().tolist()
        return cls(traces.n_events / n_days, traces.n_events / n_instants, n_steps / max(n_gaps, 1))

    @property
    def is_sparse(self) -> bool:
        """Whether few instants of active days have events, and events seldom follow each other at successive instants.

        GPS recordings also cover only a small part of the day, but without gaps, so they are not sparse.
        """
        return self.share < SPARSE_SHARE and self.steps < SPARSE_STEPS


class Visited(NamedTuple):
    """Places with earlier events of the window, one row for each event and place; rows are sorted by event."""

    event: Int[np.ndarray, " row"]  # index among the events of `History`
    place: Int[np.ndarray, " row"]
    n_events: Int[np.ndarray, " row"]
    # Of the earlier events there, the shares near in the time of day, at the same hour, and far in the time of day.
    match: Float[np.ndarray, "row 3"]
    log_hours: Float[np.ndarray, " row"]  # since the last event there; at least 0
    is_last: Bool[np.ndarray, " row"]  # whether this is the last place: the place of the event before
    is_previous: Bool[np.ndarray, " row"]  # whether this is the place just before the last place
    is_next: Bool[np.ndarray, " row"]  # whether the event itself is there


class History(NamedTuple):
    """All events except the first of each window, and the places visited before each event.

    Events with `MAX_CHECKIN_PLACES` or more places visited before them are left out.
    """

    window: Int[np.ndarray, " event"]
    instant: Int[np.ndarray, " event"]
    place: Int[np.ndarray, " event"]
    last_place: Int[np.ndarray, " event"]
    gap: Int[np.ndarray, " event"]  # bin of `GAP_FROM_H`
    n_visited: Int[np.ndarray, " event"]
    is_new: Bool[np.ndarray, " event"]
    part: Float[np.ndarray, " event"]  # part of the weight of its window with which an event counts, see `bounded`
    visited: Visited

    @classmethod
    def of(cls, windows: ObservedWindows) -> History:
        """Look back from each event to all earlier events of its window."""
        window, instant, place, grid = windows.window, windows.instant, windows.place, windows.grid
        later, per_day = np.flatnonzero(windows.is_later), DAY_S // grid.step_s
        last, n = later - 1, len(later)
        gap = bins.bins_of_instants(bins.GAP_FROM_H, per_day, grid.n_instants)[instant[later] - instant[last]]
        seen = VisitedBefore.of(window, place)
        of_row = np.searchsorted(later, seen.event)
        hour = bins.hour_of_instants(per_day, grid.n_instants)[instant]
        apart = np.abs(hour[seen.earlier] - hour[seen.later])
        apart = np.minimum(apart, bins.HOURS_A_DAY - apart)
        close = (apart <= bins.SAME_TIME_H, apart == 0, apart >= bins.OTHER_TIME_H)
        match = np.stack([np.bincount(seen.row, each, len(of_row)) / seen.count for each in close], axis=1)
        last_there = np.zeros(len(of_row), np.int64)
        np.maximum.at(last_there, seen.row, instant[seen.earlier])
        hours = (instant[seen.event] - last_there) * bins.HOURS_A_DAY / per_day
        run = np.cumsum(run_begins(window, place)) - 1
        previous = Runs.of(window, place).place_before(1)[run[last]]
        is_last, is_previous, is_next = (seen.place == x[of_row] for x in (place[last], previous, place[later]))
        log_hours = np.log(np.maximum(hours, 1))
        visited = Visited(of_row, seen.place, seen.count, match, log_hours, is_last, is_previous, is_next)
        n_visited, is_new = np.bincount(of_row, minlength=n), np.bincount(of_row, is_next, n) == 0
        places = place[later], place[last]
        history = cls(window[later], instant[later], *places, gap, n_visited, is_new, np.ones(n), visited)
        return history.where(n_visited < bins.MAX_CHECKIN_PLACES)

    def bounded(self, windows: ObservedWindows, distances: bins.DistanceBins) -> History:
        """Events count in part: no user weighs more than the second heaviest user, and u users weigh (u - 4) / u.

        Both rules hold among the events of one kind (stay, return, new place) after gaps of one bin, and among those
        over distances of one bin (or class, for returns) after gaps of one class.
        """
        kind = np.where(self.is_new, 2, self.place != self.last_place)
        distance = distances.between(self.last_place, self.place)
        # Returns depend only on the class of the distance.
        distance = np.where(self.is_new, distance, bins.DISTANCE_CLASS[distance])
        n_bins = bins.N_DISTANCES
        over_distance = (kind * bins.N_GAP_CLASSES + bins.GAP_CLASS[self.gap]) * n_bins + distance
        own, part = windows.weight[self.window], self.part
        for group in (kind * bins.N_GAPS + self.gap, over_distance):
            used, users = bounded(windows.user[self.window], group, 3 * bins.N_GAP_CLASSES * n_bins, own)
            part = np.minimum(part, used / np.maximum(own, TINY) * used_share(users, STEP_USERS)[group])
        return self._replace(part=part)

    def where(self, keep: Bool[np.ndarray, " event"]) -> History:
        """The events for which `keep` is true, and their visited places."""
        visited = Visited._make(column[keep[self.visited.event]] for column in self.visited)
        visited = visited._replace(event=(np.cumsum(keep) - 1)[visited.event])
        return History._make([*(column[keep] for column in self[:-1]), visited])

    def padded(self, n_windows: int) -> History:
        """Append events at new places, in a window after the others; see `fitting.padding`."""
        visited = pad(self.visited, dict.fromkeys(Visited._fields, 0) | {"event": len(self.gap), "n_events": 1})
        of_event = dict.fromkeys(self._fields[:-1], 0) | {"window": n_windows, "n_visited": 1, "is_new": True}
        return pad(self, of_event)._replace(visited=visited)


def since_and_habit(
    happens: Bool[Array, " instant"], per_day: int
) -> tuple[Int[Array, " instant"], Int[Array, " instant"]]:
    """Bins of the time since the last event and of the habit, at each instant of a window with these events."""
    n_instants = len(happens)
    instants = jnp.arange(n_instants)
    last = jnp.append(-1, lax.cummax(jnp.where(happens, instants, -1))[:-1])
    none_yet = jnp.where(instants < per_day, bins.NONE_YET, bins.NONE_YET_LATER)
    since = jnp.asarray(bins.bins_of_instants(bins.SINCE_FROM_H, per_day, n_instants))
    since = jnp.where(last < 0, none_yet, since[instants - last])
    day, hour = instants // per_day, bins.hour_of_instants(per_day, n_instants)
    at_hour = jnp.zeros((-(-n_instants // per_day), bins.HOURS_A_DAY), jnp.int32).at[day, hour].add(happens)
    on_days_before = jnp.cumsum(at_hour, axis=0) - at_hour
    habit = bins.habit_bin(bins.near_hour(on_days_before)[day, hour], jnp.cumsum(happens) - happens)
    return since, jnp.asarray(habit)


class TimeCells(NamedTuple):
    """Numbers of instants and of events, by ((weekday * 24 + hour) * N_SINCE + since) * N_HABITS + habit: the code.

    They are in single precision, since products with them take most of the time of a fit.
    """

    instants: csr_array  # (window, code)
    events: csr_array  # (window, code)
    without: Float[np.ndarray, " code"]  # instants of a window without events

    @classmethod
    def of(cls, windows: ObservedWindows) -> TimeCells:
        """Count in blocks of windows, so that no table of all windows x instants is made, except of booleans."""
        n_windows, n_instants = windows.n_windows, windows.grid.n_instants
        happens = np.zeros((n_windows, n_instants), bool)
        happens[windows.window, windows.instant] = True
        size = min(round_up(n_windows, steps=4), max(1, INSTANTS_AT_A_TIME // n_instants))
        hours, per_day = hour_of_week(windows.grid), DAY_S // windows.grid.step_s

        def codes(happens: Bool[np.ndarray, "window instant"]) -> Int[np.ndarray, "window instant"]:
            # Blocks have few different sizes, so that few programs are compiled.
            padded = happens[np.resize(np.arange(len(happens)), size)]
            return np.asarray(_codes(padded, hours, per_day))[: len(happens)]

        def counts(row: np.ndarray, code: np.ndarray, n_rows: int) -> csr_array:
            # Also indices of 32 bits, because products with the table take as long as reading it.
            table = csr_array((np.ones(len(row), np.float32), (row, code)), shape=(n_rows, N_CODES))
            return csr_array((table.data, table.indices.astype(np.int32), table.indptr.astype(np.int32)), table.shape)

        both = []
        for first in range(0, n_windows, size):
            own = happens[first : first + size]
            code, n = codes(own), len(own)
            every = np.repeat(np.arange(n), n_instants)
            both.append((counts(every, code.ravel(), n), counts(np.nonzero(own)[0], code[own], n)))
        without = np.bincount(codes(np.zeros((1, n_instants), bool))[0], minlength=N_CODES).astype(np.float64)
        return cls(*(csr_array(vstack(parts, format="csr")) for parts in zip(*both, strict=True)), without=without)


@partial(jax.jit, static_argnames="per_day")
def _codes(
    happens: Bool[Array, "window instant"], hour_of_week: Int[Array, " instant"], per_day: int
) -> Int[Array, "window instant"]:
    since, habit = jax.vmap(partial(since_and_habit, per_day=per_day))(happens)
    return (hour_of_week * bins.N_SINCE + since) * bins.N_HABITS + habit


def hour_of_week(grid: TimeGrid) -> Int[np.ndarray, " instant"]:
    """Weekday x 24 + hour of the day of each instant of a window; Monday is 0."""
    per_day = DAY_S // grid.step_s
    weekday = (np.arange(grid.n_instants) // per_day + grid.time_of(0).weekday()) % bins.DAYS_A_WEEK
    return weekday * bins.HOURS_A_DAY + bins.hour_of_instants(per_day, grid.n_instants)
