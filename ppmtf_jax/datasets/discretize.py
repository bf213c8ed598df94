"""How check-ins become events: by the clock, or by their order.

By their order, places are far apart in time, whatever the time of day: the data of the re-identification papers.
Sections VI-A and VII-A of Murakami et al., "Group Sparsity Tensor Factorization for Re-identification of Open Mobility
Traces" (TIFS 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from annotated_types import Gt

from ppmtf_jax.data.places import MIN_USERS_PER_PLACE
from ppmtf_jax.data.runs import rank_in_run, run_begins, stable_order
from ppmtf_jax.data.time_grid import DAY_S, DAY_TYPES, N_WEEKDAYS, TimeGrid
from ppmtf_jax.datasets.places import MOST, MostVisited, Number, OtherPlaces, PlaceChoice
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.devices import n_cores
from ppmtf_jax.runtime.threads import in_order
from ppmtf_jax.settings import Count, Settings

MAX_INSTANTS = 10_000_000
HOUR_S = 3600
Period = Literal["day", "week"]
Repeats = Literal["first", "count"]
SHORTER_STEPS_S = (1800, 1200, 900, 600, 300, 120, 60, 30, 10, 1)


class Visits(NamedTuple):
    """Check-ins at places, of whole users in order; arrays of shape (rows,), times in seconds since 1970."""

    user: np.ndarray
    trace: np.ndarray
    place: np.ndarray
    local_s: np.ndarray
    utc_s: np.ndarray

    def take(self, rows: np.ndarray) -> Visits:
        """Some of the rows."""
        return Visits(*(column[rows] for column in self))


class PlacedVisits(NamedTuple):
    """All check-ins at places, in blocks of whole users, each read once; those of a user in the order of the rows."""

    blocks: Iterator[Visits]
    n_visits: int
    first_s: int
    last_s: int


class TracedEvents(NamedTuple):
    """Check-ins that became events, with the number of each event's trace among the user's traces, and its instant.

    The first four are int32 arrays, shape (events,); `n_of_hour` counts the events in each hour of the day.
    """

    user: np.ndarray
    trace: np.ndarray
    instant: np.ndarray
    place: np.ndarray
    n_of_hour: np.ndarray
    time_grid: TimeGrid
    n_same_instant: int = 0
    step_for_most_s: int | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Discretization(Settings, subject="discretization"):
    """How check-ins become events: at which place, at which instant, in which slot, of which trace.

    Times are local wall-clock times rounded down to the step, counted from midnight of the first day; the grid covers
    whole days. When summer time begins, an hour of instants stays empty, so check-ins before and after this hour form
    no transition. When it ends, two hours of true time fall on the same instants.

    Parameters
    ----------
    places : GridPlaces, MostVisited or GivenPlaces
    step_s : int
        Seconds from one instant to the next; divides a day.
    slot_s : int or None
        Length in seconds of the slots, which repeat every day: 7200 gives the twelve slots 0-2 h to 22-24 h.
        None: each instant is a slot of its own, for data within a fixed window.
    period : "day" or "week"
        What a synthetic trace covers: a day, or a week from the weekday of the first day of the data.
    day_types : str
        Only with period "week": a letter for each day from Monday to Sunday. Days with the same letter share their
        slots. By default, Saturday and Sunday share slots that the other days do not have. "wwwweew" is for a weekend
        of Friday and Saturday.
    slot_of_instant : function or sequence of int, optional
        Any other map, in place of `slot_s`. A function gets the local times at which the instants begin, a
        datetime64[s] array of shape (instants,), and returns the slot of each. A sequence gives the slots of the first
        instants and is repeated over the rest. Slots are renumbered 0, 1, ... in their order, without gaps.
    period_s : int, optional
        Seconds after which the function's slots repeat, a multiple of the step; a synthetic trace lasts one period.
        None: the whole grid is one period. Slots of a sequence repeat after its length.
    max_gap_s : float, optional
        A new trace begins where more than these seconds of true time lie between consecutive events of a user. Only
        consecutive instants of one trace make a transition, so this bounds the time that a transition can span.
    repeats : "first" or "count"
        Of several check-ins of a user at the same instant (and in the same trace), the first is kept; or all are, as
        the published programs count them. A new trace then begins at each of the others, because a trace has one event
        at an instant: all are visits, and the last one of an instant makes the transition to the next instant.
    min_users_per_place : int
        Places, or cells of a grid, with events of fewer users are not kept: events at a place that only one person
        visits reveal that person, whatever is synthesized. 1 keeps all. Readers count all users; see
        `keep_shared_places` for training users. Given places are always kept.
    other_places : "drop" or "nearest"
        Whether check-ins at other places (of few users, or not among the most visited) are dropped or moved to the
        nearest place that is kept. Check-ins outside of a grid, or far from all given places, are always dropped.

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

    places: PlaceChoice = MostVisited(1000)
    step_s: Count = 3600
    slot_s: Count | None = 7200
    period: Period = "day"
    day_types: str = DAY_TYPES
    slot_of_instant: Callable[[np.ndarray], np.ndarray] | Sequence[int] | None = None
    period_s: Count | None = None
    max_gap_s: Annotated[Number, Gt(0)] | None = None
    repeats: Repeats = "first"
    min_users_per_place: Count = MIN_USERS_PER_PLACE
    other_places: OtherPlaces = "drop"

    def problems(self) -> list[Problem | str]:
        """Steps, slots and periods that do not fit each other or a day."""
        problems: list[Problem | str] = []
        slot_s = DAY_S if self.slot_s is None or self.slot_of_instant is not None else self.slot_s
        if DAY_S % self.step_s:
            problems.append(Problem("a step in whole seconds that divides a day", f"{self.step_s} s"))
        elif DAY_S % slot_s or slot_s % self.step_s:
            expected = f"slots in whole seconds that divide a day and are multiples of the step of {self.step_s} s"
            problems.append(Problem(expected, f"{self.slot_s} s"))
        if self.period == "week" and (self.slot_s is None or self.slot_of_instant is not None):
            way_out = "For other weeks, give slot_of_instant and period_s"
            problems.append(Problem("slots of slot_s for a period of a week", "other slots", 0, (), way_out))
        if self.day_types != DAY_TYPES and self.period != "week":
            problems.append(Problem('day_types only with period = "week"', f"period = {self.period!r}"))
        elif len(self.day_types) != N_WEEKDAYS:
            expected = f"{N_WEEKDAYS} letters as day_types, from Monday to Sunday, such as {DAY_TYPES}"
            problems.append(Problem(expected, repr(self.day_types)))
        if self.period_s is not None and not callable(self.slot_of_instant):
            problems.append(Problem("period_s only where slot_of_instant is a function", f"{self.period_s!r} s"))
        elif self.period_s is not None and self.period_s % self.step_s:
            expected = f"a period in whole seconds that is a multiple of the step of {self.step_s} s"
            problems.append(Problem(expected, f"{self.period_s} s"))
        return problems

    @property
    def resolution_s(self) -> int:
        """Seconds within which the order of check-ins does not count."""
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
        slot_of_instant, step_s = self.slot_of_instant, self.step_s
        if slot_of_instant is None and self.slot_s is None:
            return TimeGrid.each_instant(start, step_s, n_instants, time_zone)
        if slot_of_instant is None:
            given: dict[str, Any] = {"slot_s": self.slot_s, "time_zone": time_zone}
            if self.period == "week":
                return TimeGrid.weekly(start, step_s, n_instants, day_types=self.day_types, **given)
            return TimeGrid.cyclic(start, step_s, n_instants, **given)
        if callable(slot_of_instant):
            slots = np.asarray(slot_of_instant(day.astype("datetime64[s]") + step_s * np.arange(n_instants)))
            period = n_instants if self.period_s is None else self.period_s // step_s
        else:
            slots, period = np.resize(np.asarray(slot_of_instant), n_instants), len(slot_of_instant)
        if slots.shape != (n_instants,) or not np.issubdtype(slots.dtype, np.integer):
            expected = f"slot_of_instant to give {n_instants} whole numbers, one for each instant"
            raise InputError("time grid", [Problem(expected, f"{slots.dtype} array of shape {slots.shape}")])
        slots = np.unique(slots, return_inverse=True)[1]
        return TimeGrid(start, step_s, slots, time_zone, period=min(period, n_instants))

    def events_of(self, visits: PlacedVisits, time_zone: str) -> TracedEvents:
        """The check-ins of each trace at each instant: the first, or all."""
        first, last = (np.datetime64(seconds, "s") for seconds in (visits.first_s, visits.last_s))
        grid = self.time_grid(first, last, time_zone)
        start_s = int(np.datetime64(grid.start, "s").astype(np.int64))
        shorter = [step_s for step_s in SHORTER_STEPS_S if step_s < self.step_s and self.step_s % step_s == 0]
        events, hours, counts = zip(
            *in_order(partial(self._events, start_s, shorter), visits.blocks, n_cores()), strict=True
        )
        user, trace, instant, place = (np.concatenate(columns) for columns in zip(*events, strict=True))
        n_of_hour, n_instants = sum(hours), sum(counts)
        n_most, enough = MOST * visits.n_visits, None
        if len(user) < n_most:
            # The longest step that divides a day and the slots, and gives most check-ins their own instant.
            enough = next((step_s for step_s, n in zip(shorter, n_instants, strict=True) if n >= n_most), None)
        return TracedEvents(user, trace, instant, place, n_of_hour, grid, visits.n_visits - len(user), enough)

    def _events(
        self, start_s: int, shorter: Sequence[int], block: Visits
    ) -> tuple[Sequence[np.ndarray], np.ndarray, np.ndarray]:
        """User, trace, instant and place of the events of a block; their number by hour, and with shorter steps."""
        instant = (block.local_s - start_s) // self.step_s
        order = stable_order(block.user, block.trace, instant, block.utc_s - instant * self.step_s)
        block, instant = block.take(order), instant[order]
        is_first = run_begins(block.user, block.trace, instant)
        is_alone = is_first & np.append(is_first[1:], True)
        others = block.take(~is_alone)
        others = others.take(stable_order(others.user, others.trace, others.local_s))
        steps = [run_begins(others.user, others.trace, others.local_s // step_s) for step_s in shorter]
        of_shorter = is_alone.sum() + np.array([begins.sum() for begins in steps], np.int64)
        is_kept = is_first | (self.repeats == "count")
        kept, instant = block.take(is_kept), instant[is_kept]
        if self.max_gap_s is not None and self.repeats == "first":
            # Where summer time ends, true times are not in the order of the instants.
            order = stable_order(kept.user, kept.trace, kept.utc_s)
            kept, instant = kept.take(order), instant[order]
        begins = run_begins(kept.user, kept.trace) | ((self.repeats == "count") & ~is_first)[is_kept]
        if self.max_gap_s is not None:
            begins[1:] |= np.diff(kept.utc_s) > self.max_gap_s
        of_hour = np.bincount(kept.local_s // HOUR_S % 24, minlength=24)
        events = (kept.user, trace_numbers(kept.user, begins), instant, kept.place)
        return [column.astype(np.int32, copy=False) for column in events], of_hour, of_shorter


def trace_numbers(user: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Number of each event's trace among the user's, from 0; `begins` says which events begin a trace."""
    return rank_in_run(user[begins])[np.cumsum(begins) - 1]


@dataclass(frozen=True)
class SpacedTraces(Settings, subject="spaced traces"):
    """Check-ins become traces by their order: the k-th place of a trace is at instant k.

    A user's first check-in at the places is kept, and then each check-in that is more than `min_gap_s` after the last
    kept check-in. Only users with at least `n_traces` times `trace_length` kept check-ins have traces: `n_traces`
    traces of `trace_length` places each, or, with `max_gap_s`, all kept check-ins, cut at longer gaps. A trace column
    of the table is not used. Instants number the places of a trace and are not times: the time grid has a slot for
    each, and its start and step are nominal.

    Parameters
    ----------
    places : GridPlaces, MostVisited or GivenPlaces
    n_traces, trace_length : int
        Traces per user, and places per trace.
    min_gap_s : int
        More than these seconds of true time lie between two places.
    max_gap_s : float, optional
        A new trace begins after more than these seconds of true time; traces of one place are dropped.

    Examples
    --------
    >>> import pandas as pd
    >>> from ppmtf_jax.datasets.checkins import read_checkins
    >>> hours = ["00:00", "00:20", "00:31", "01:40", "02:30"]
    >>> table = pd.DataFrame({"user": "ann", "time": [f"2024-01-01T{each}Z" for each in hours], "place": [*"abcde"]})
    >>> spaced = SpacedTraces(MostVisited(5), n_traces=2, trace_length=2)
    >>> traces, report = read_checkins(table.assign(latitude=35.6, longitude=139.7), discretization=spaced)
    >>> traces.to_frame()[["trace", "instant", "place"]].to_numpy().tolist()
    [[0, 0, 'a'], [0, 1, 'c'], [1, 0, 'd'], [1, 1, 'e']]
    """

    places: PlaceChoice
    n_traces: Count = 10
    trace_length: Count = 10
    min_gap_s: Count = 1800
    max_gap_s: Number | None = None

    def problems(self) -> list[Problem | str]:
        """A largest gap that is below the smallest."""
        if self.max_gap_s is None or self.max_gap_s > self.min_gap_s:
            return []
        return [Problem(f"max_gap_s above min_gap_s, {self.min_gap_s} s", repr(self.max_gap_s))]

    # As published: attacks are tried on the data as they are.
    min_users_per_place: ClassVar[int] = 1
    other_places: ClassVar[OtherPlaces] = "drop"

    @property
    def resolution_s(self) -> int:
        """Seconds within which the order of check-ins does not count."""
        return self.min_gap_s

    def events_of(self, visits: PlacedVisits, time_zone: str) -> TracedEvents:
        """The events among check-ins at places, as of `Discretization`; an error if no user has enough of them."""
        blocks = (block.take(stable_order(block.user, block.utc_s)) for block in visits.blocks)
        blocks = (block.take(is_spaced(block.user, block.utc_s, self.min_gap_s)) for block in blocks)
        spaced = Visits(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
        needed, had = self.n_traces * self.trace_length, np.bincount(spaced.user)
        if had.max() < needed:
            expected = f"at least one user with {needed} check-ins more than {self.min_gap_s} s apart"
            way_out = "Ask for fewer or shorter traces, or choose a larger box or more places"
            raise InputError("spaced traces", [Problem(expected, f"at most {had.max()}", way_out=way_out)])
        enough = spaced.take(had[spaced.user] >= needed)
        user = enough.user
        rank = rank_in_run(user)
        if self.max_gap_s is None:
            begins, is_kept, why = rank % self.trace_length == 0, rank < needed, "beyond them"
        else:
            begins = run_begins(user)
            begins[1:] |= np.diff(enough.utc_s) > self.max_gap_s
            is_kept, why = ~(begins & np.append(begins[1:], True)), "alone in a trace"
        kept, begins = enough.take(is_kept), begins[is_kept]
        trace, instant = trace_numbers(kept.user, begins), rank_in_run(np.cumsum(begins))
        n_users, n_left_out = len(np.unique(user)), int(np.count_nonzero((had > 0) & (had < needed)))
        notes = [
            f"check-ins left out: {visits.n_visits - len(spaced.user):,} within {self.min_gap_s} s of the last one kept"
            f", {len(spaced.user) - len(user):,} of {n_left_out:,} users with less than {needed}, "
            f"{len(user) - len(kept.user):,} of the {n_users:,} others {why}",
            "instants number the places of a trace; they are not times",
        ]
        first_day = np.datetime64(visits.first_s, "s").astype("datetime64[D]")
        n_instants = int(instant.max(initial=0)) + 1
        grid = TimeGrid.each_instant(f"{first_day}T00:00:00", int(self.min_gap_s), n_instants, time_zone)
        n_of_hour = np.bincount(kept.local_s // HOUR_S % 24, minlength=24)
        return TracedEvents(kept.user, trace, instant, kept.place, n_of_hour, grid, notes=notes)


def is_spaced(user: np.ndarray, utc: np.ndarray, min_gap_s: Number) -> np.ndarray:
    """Whether each event is the first of its user, or more than `min_gap_s` after the user's last kept event.

    Events are sorted by user and time; `utc` is in seconds.
    """
    n = len(user)
    kept = np.zeros(n + 1, bool)
    kept[:n] = np.diff(user, prepend=-1) != 0
    # One clock for all users: the next user begins more than a gap after the last event of the user before.
    since = utc - utc.min(initial=0)
    clock = user.astype(np.int64) * (int(since.max(initial=0)) + int(np.ceil(min_gap_s)) + 1) + since
    following = np.searchsorted(clock, clock + min_gap_s, side="right")
    same_user = user[np.minimum(following, n - 1)] == user if n else np.zeros(0, bool)
    following = np.append(np.where((following < n) & same_user, following, n), n)
    # After round r, the first 2^r kept events of each user are known, and a jump leads 2^r kept events ahead.
    while (following[:n] < n).any():
        kept[following[kept]] = True
        following = following[following]
    return kept[:n]
