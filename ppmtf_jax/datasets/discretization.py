"""How check-ins become events by the clock: at which instant, in which slot, of which trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from annotated_types import Gt

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.datasets.coded_checkins import CheckIns
from ppmtf_jax.datasets.places import (
    MIN_USERS_PER_PLACE,
    MOST,
    GridPlaces,
    MostVisited,
    Number,
    OtherPlaces,
)
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Count, Settings

MAX_INSTANTS = 10_000_000
SHORTER_STEPS_S = (1800, 1200, 900, 600, 300, 120, 60, 30, 10, 1)


class PlacedCheckIns(NamedTuple):
    """Check-ins at places that are kept: indices of user, trace and place; wall-clock time; true time in seconds."""

    user: np.ndarray
    trace: np.ndarray
    place: np.ndarray
    local: np.ndarray
    utc_s: np.ndarray

    @classmethod
    def of(cls, checkins: CheckIns, place: np.ndarray) -> PlacedCheckIns:
        """Check-ins by the index of their place, without those of index -1."""
        columns = checkins.user.code, checkins.trace.code, place, checkins.local, checkins.utc_s
        return cls(*columns).at(place >= 0)

    def at(self, rows: np.ndarray) -> PlacedCheckIns:
        """Some of the rows, by index or mask."""
        return PlacedCheckIns(*(column[rows] for column in self))


class TracedEvents(NamedTuple):
    """Check-ins that became events, with the number of each event's trace among the user's traces, and its instant."""

    checkins: PlacedCheckIns
    trace: np.ndarray
    instant: np.ndarray
    time_grid: TimeGrid
    n_same_instant: int = 0
    step_for_most_s: int | None = None
    notes: Sequence[str] = ()


@runtime_checkable
class MakesTraces(Protocol):
    """How check-ins become traces: `Discretization`, by the clock, or `SpacedTraces`, by their order."""

    @property
    def places(self) -> GridPlaces | MostVisited: ...

    @property
    def min_users_per_place(self) -> int:
        """Places with fewer users are not kept."""
        ...

    @property
    def other_places(self) -> OtherPlaces:
        """What becomes of check-ins at places that are not kept."""
        ...

    @property
    def resolution_s(self) -> int:
        """Seconds within which the order of check-ins does not count."""
        ...

    def events_of(self, checkins: PlacedCheckIns, time_zone: str) -> TracedEvents:
        """The events among check-ins at places, in any order."""
        ...


@dataclass(frozen=True)
class Discretization(Settings, subject="discretization"):
    """How check-ins become events: at which place, at which instant, in which slot, of which trace.

    Times are local wall-clock times rounded down to the step, counted from midnight of the first day; the grid covers
    whole days. Of several check-ins of a user at the same instant (and in the same trace) the first is kept.

    Wall-clock time is intended: the slot "08-10 h" is the morning all year round. At the change to summer time an hour
    of instants stays empty, so that check-ins before and after it are no transition; at the change back two hours of
    true time fall on the same instants, and the first check-in at each is kept.

    Parameters
    ----------
    places : GridPlaces or MostVisited
    step_s : int
        Seconds from one instant to the next; divides a day.
    slot_s : int or None
        Length in seconds of the slots, which come round every day: 7200 gives the twelve slots 0-2 h to 22-24 h.
        None: each instant is a slot of its own, for data within a fixed window.
    slot_of_instant : function or sequence of int, optional
        Any other map, in place of `slot_s`. A function gets the local times at which the instants begin, a
        datetime64[s] array of shape (instants,), and returns the slot of each. A sequence gives the slots of the first
        instants and is repeated over the rest. Slots are renumbered 0, 1, ... in their order, without gaps.
    period_s : int, optional
        Seconds after which the function's slots repeat, a multiple of the step: the length of a synthetic trace. None:
        the whole grid is one period. Slots of `slot_s` repeat every day, a sequence after its end.
    max_gap_s : float, optional
        A new trace begins where more than these seconds of true time lie between consecutive events of a user. Only
        consecutive instants of one trace make a transition, so this bounds the time that a transition can span.
    min_users_per_place : int
        Places, or cells of a grid, with events of fewer users are not kept: events at a place that only one person
        visits reveal that person, whatever is synthesized. 1 keeps all. Readers count all users; see
        `keep_shared_places` for training users.
    other_places : "drop" or "nearest"
        Whether check-ins at other places (of few users, or not among the most visited) are dropped or moved to the
        nearest place that is kept. Check-ins outside of a grid are dropped.

    Raises
    ------
    InputError
        Listing every setting that is impossible.

    Examples
    --------
    Slots of six hours, different at weekends:

    >>> def weekday_and_quarter(times):
    ...     day = times.astype("datetime64[D]")
    ...     quarter = (times - day).astype(int) // 21_600
    ...     return quarter + 4 * ~np.is_busday(day)
    >>> settings = Discretization(MostVisited(100), slot_of_instant=weekday_and_quarter, period_s=7 * 86_400)
    >>> grid = settings.time_grid(np.datetime64("2024-01-01"), np.datetime64("2024-01-14T12:00"), "UTC")
    >>> grid.n_slots, grid.n_instants, grid.period
    (8, 336, 168)
    """

    places: GridPlaces | MostVisited = MostVisited(1000)
    step_s: Count = 3600
    slot_s: Count | None = 7200
    slot_of_instant: Callable[[np.ndarray], np.ndarray] | Sequence[int] | None = None
    period_s: Count | None = None
    max_gap_s: Annotated[Number, Gt(0)] | None = None
    min_users_per_place: Count = MIN_USERS_PER_PLACE
    other_places: OtherPlaces = "drop"

    def problems(self) -> list[Problem | str]:
        """Steps, slots and periods that do not fit each other or a day."""
        problems: list[Problem | str] = []
        if DAY_S % self.step_s:
            problems.append(Problem("a step in whole seconds that divides a day", f"{self.step_s} s"))
        elif self.slot_of_instant is None and not self._slots_fit():
            expected = f"slots in whole seconds that divide a day and are multiples of the step of {self.step_s} s"
            problems.append(Problem(expected, f"{self.slot_s} s"))
        return problems + self._period_problems()

    @property
    def resolution_s(self) -> int:
        return self.step_s

    def time_grid(self, first: np.datetime64, last: np.datetime64, time_zone: str) -> TimeGrid:
        """The grid of whole days from `first` to `last`, both local wall-clock times."""
        day = first.astype("datetime64[D]")
        n_days = int((last.astype("datetime64[D]") - day).astype(int)) + 1
        n_instants = n_days * (DAY_S // self.step_s)
        if n_instants > MAX_INSTANTS:
            found = f"{n_instants:,} from {first} to {last}"
            way_out = "Check the first and the last time of the data, or choose a longer step"
            raise InputError("time grid", [Problem(f"at most {MAX_INSTANTS:,} instants", found, way_out=way_out)])
        start = f"{day}T00:00:00"
        if self.slot_of_instant is not None:
            times = day.astype("datetime64[s]") + self.step_s * np.arange(n_instants)
            period = min(self._mapped_period() or n_instants, n_instants)
            return TimeGrid(start, self.step_s, self._mapped_slots(times), time_zone, period=period)
        if self.slot_s is None:
            return TimeGrid.each_instant(start, self.step_s, n_instants, time_zone)
        return TimeGrid.cyclic(start, self.step_s, n_instants, slot_s=self.slot_s, time_zone=time_zone)

    def events_of(self, checkins: PlacedCheckIns, time_zone: str) -> TracedEvents:
        """The first check-in of each trace at each instant."""
        grid = self.time_grid(checkins.local.min(), checkins.local.max(), time_zone)
        order, group = _time_order(checkins)
        since_start_s = (checkins.local - np.datetime64(grid.start)).astype(np.int64)[order]
        instant = since_start_s // grid.step_s
        first = _is_first(group, instant)
        kept, n_kept = checkins.at(order[first]), int(first.sum())
        trace = _trace_numbers(kept, group[first], self.max_gap_s)
        step_for_most_s = self._step_for_most(group, since_start_s, n_kept)
        return TracedEvents(kept, trace, instant[first], grid, len(first) - n_kept, step_for_most_s)

    def _step_for_most(self, group: np.ndarray, since_start_s: np.ndarray, n_kept: int) -> int | None:
        """The longest step at which most check-ins have an instant of their own; None if so already, or impossible.

        The step divides a day and the slots.
        """
        n_most = MOST * len(group)
        if n_kept >= n_most:
            return None
        shorter = (step_s for step_s in SHORTER_STEPS_S if step_s < self.step_s and self.step_s % step_s == 0)
        return next((step_s for step_s in shorter if _is_first(group, since_start_s // step_s).sum() >= n_most), None)

    def _slots_fit(self) -> bool:
        if self.slot_s is None:
            return True
        return DAY_S % self.slot_s == 0 and self.slot_s % self.step_s == 0

    def _period_problems(self) -> list[Problem | str]:
        if self.period_s is None:
            return []
        if not callable(self.slot_of_instant):
            return [Problem("period_s only where slot_of_instant is a function", f"{self.period_s!r} s")]
        if self.period_s % self.step_s == 0:
            return []
        expected = f"a period in whole seconds that is a multiple of the step of {self.step_s} s"
        return [Problem(expected, f"{self.period_s} s")]

    def _mapped_period(self) -> int | None:
        """Instants after which the slots of the map repeat; None where that is not known."""
        if isinstance(self.slot_of_instant, Sequence):
            return len(self.slot_of_instant)
        return None if self.period_s is None else self.period_s // self.step_s

    def _mapped_slots(self, times: np.ndarray) -> np.ndarray:
        if callable(self.slot_of_instant):
            slots = np.asarray(self.slot_of_instant(times))
        else:
            slots = np.resize(np.asarray(self.slot_of_instant), len(times))
        if slots.shape != times.shape or not np.issubdtype(slots.dtype, np.integer):
            expected = f"slot_of_instant to give {len(times)} whole numbers, one for each instant"
            raise InputError("time grid", [Problem(expected, f"{slots.dtype} array of shape {slots.shape}")])
        return np.unique(slots, return_inverse=True)[1]


def _is_first(group: np.ndarray, instant: np.ndarray) -> np.ndarray:
    """Whether a row is the first of its group at its instant."""
    return ~pd.Series(group * (instant.max() + 1) + instant).duplicated().to_numpy()


def _time_order(checkins: PlacedCheckIns) -> tuple[np.ndarray, np.ndarray]:
    """Order by user, trace (the earlier first) and true time; and the number of each ordered row's (user, trace)."""
    order = np.lexsort((checkins.utc_s, checkins.trace, checkins.user))
    begins = run_begins(checkins.user[order], checkins.trace[order])
    first = order[begins]
    # Traces are numbered anew so that a user's traces follow each other in time.
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort((checkins.utc_s[first], checkins.user[first]))] = np.arange(len(first))
    group = rank[np.cumsum(begins) - 1]
    again = np.argsort(group, kind="stable")
    return order[again], group[again]


def _trace_numbers(events: PlacedCheckIns, group: np.ndarray, max_gap_s: Number | None) -> np.ndarray:
    """Number of the trace of each event among its user's, from 0; events are in the order of `_time_order`."""
    begins = run_begins(group)
    if max_gap_s is not None:
        begins[1:] |= np.diff(events.utc_s) > max_gap_s
    number = np.cumsum(begins)
    first_of_user = np.flatnonzero(run_begins(events.user))
    return number - np.repeat(number[first_of_user], np.diff(first_of_user, append=len(number)))
