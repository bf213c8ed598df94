"""From raw check-ins to `Traces`: at which place, at which instant, in which slot, of which trace each is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from annotated_types import Gt

from ppmtf_jax.data.time_grid import DAY_S, TimeGrid, zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import (
    backward_problems,
    bad_rows,
    clocks_and_sun,
    degrees,
    id_problems,
    scattered_places,
    twice_the_same,
    without_bad_rows,
)
from ppmtf_jax.datasets.places import (
    MIN_USERS_PER_PLACE,
    MOST,
    Assigned,
    GridPlaces,
    MostVisited,
    Number,
    OtherPlaces,
    assign_places,
    off_grid_problems,
)
from ppmtf_jax.datasets.report import ImportReport, counts_of, least_users
from ppmtf_jax.datasets.shared_places import keep_shared_places
from ppmtf_jax.datasets.stay_points import StayPoints, stays_as_checkins
from ppmtf_jax.datasets.tables import codes_of
from ppmtf_jax.errors import InputError, Problem, missing_columns
from ppmtf_jax.settings import Count, Settings

CHECKIN_COLUMNS = ("user", "latitude", "longitude", "local_time", "utc_time")
MAX_INSTANTS = 10_000_000
SHORTER_STEPS_S = (1800, 1200, 900, 600, 300, 120, 60, 30, 10, 1)


class Rows(NamedTuple):
    """Check-ins as arrays of one length: indices of user, trace and place, wall-clock and true time in seconds."""

    user: np.ndarray
    trace: np.ndarray
    place: np.ndarray
    local: np.ndarray
    utc: np.ndarray

    def at(self, index: np.ndarray) -> Rows:
        """Some of them, by index or mask."""
        return Rows(*(column[index] for column in self))


class Events(NamedTuple):
    """Check-ins that became events, with the number of the trace of each among its user's, and its instant."""

    rows: Rows
    trace: np.ndarray
    instant: np.ndarray
    time_grid: TimeGrid
    n_same_instant: int
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

    def events_of(self, rows: Rows, time_zone: str) -> Events:
        """The events among check-ins at places, in any order."""
        ...


@dataclass(frozen=True)
class Discretization(Settings, subject="discretization"):
    """How check-ins become events: at which place, at which instant, in which slot, of which trace.

    Times are local wall-clock times rounded down to the step, counted from midnight of the first day; the grid covers
    whole days. Of several check-ins of a user at the same instant (and in the same trace) the first is kept.

    Wall-clock time is on purpose: the slot "08-10 h" is the morning all year round. At the change to summer time an
    hour of instants stays empty, so that check-ins before and after it are no transition; at the change back two hours
    of true time fall on the same instants, and the first check-in at each is kept.

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
        Seconds after which the function's slots repeat, a multiple of the step: what one synthetic trace covers. None:
        the whole grid is one period. Slots of `slot_s` repeat every day, a sequence after its end.
    max_gap_s : float, optional
        A new trace begins where more than these seconds of true time lie between consecutive events of a user. Only
        consecutive instants of one trace make a transition, so this bounds the time that a transition can span.
    min_users_per_place : int
        Places, or cells of a grid, with events of fewer users are not kept: what happens at a place that one person
        alone visits tells of her, whatever is synthesized. 1 keeps all. Readers count all users; see
        `keep_shared_places` for training users.
    other_places : "drop" or "nearest"
        Whether check-ins at places that are not kept, of few users or not among the most visited, are left out or
        moved to the nearest place that is kept. What is outside of a grid is left out.

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
        """The grid of whole days from `first` to `last`, both local wall-clock times.

        Raises
        ------
        InputError
            The days make too many instants, or the map from instants to slots does not fit.
        """
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

    def events_of(self, rows: Rows, time_zone: str) -> Events:
        """The first check-in of each trace at each instant."""
        grid = self.time_grid(rows.local.min(), rows.local.max(), time_zone)
        first, group, instant = _first_of_instants(rows, grid)
        trace = _trace_numbers(first.user, group, first.utc, self.max_gap_s)
        n_same = len(rows.user) - len(instant)
        return Events(first, trace, instant, grid, n_same, self._step_for_most(rows, n_same))

    def _step_for_most(self, rows: Rows, n_same_instant: int) -> int | None:
        """The longest step at which most check-ins keep an instant of their own; None where that is so, or cannot be.

        As the others it divides a day and fits the slots.
        """
        n_most = MOST * len(rows.user)
        if len(rows.user) - n_same_instant >= n_most:
            return None
        group = _time_order(rows.user, rows.trace, rows.utc)
        local = (rows.local - np.datetime64(0, "s")).astype(np.int64)[group[0]]
        for step_s in SHORTER_STEPS_S:
            if step_s < self.step_s and self.step_s % step_s == 0:
                pairs = pd.DataFrame({"group": group[1], "instant": local // step_s})
                if (~pairs.duplicated()).sum() >= n_most:
                    return step_s
        return None

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
        """Instants after which the slots of the map repeat, None where nothing is known of that."""
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


def discretize(
    checkins: pd.DataFrame,
    discretization: MakesTraces,
    *,
    time_zone: str,
    friendships: pd.DataFrame | None = None,
    subject: str = "check-ins",
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    drop_repeated: bool = False,
    skipped: Sequence[Problem] = (),
    untimed: Sequence[Problem] = (),
    drop_bad_rows: bool = False,
    stay_points: StayPoints | None = None,
) -> tuple[Traces, ImportReport]:
    """Turn a table of raw check-ins, in any order, into traces.

    Parameters
    ----------
    checkins : DataFrame
        Columns user, latitude, longitude (degrees), local_time (naive datetime64, wall clock), utc_time (naive
        datetime64, for order and gaps) and, optionally, place (needed for `MostVisited`), category, and trace (rows
        of one trace are together and in time order; numbered anew from 0 for each user).
    discretization : Discretization or SpacedTraces
    time_zone : str
        IANA name of the zone of local_time.
    friendships : DataFrame, optional
        Columns user, friend. Pairs in which somebody has no event left are dropped and counted in the report's notes.
    subject : str
        What errors and the report call the data.
    problems : sequence of Problem
        Found by the reader already, raised together with those found here.
    notes : sequence of str
        Put into the report.
    drop_repeated : bool
        Whether to drop rows that repeat another one entirely before visits are counted.
    skipped : sequence of Problem
        Of rows that the reader could not take apart, which are not in the table.
    untimed : sequence of Problem
        What the reader knows of rows of the table that have no time.
    drop_bad_rows : bool
        Whether to leave out rows that are no check-ins, with a note on each kind, in place of an error.
    stay_points : StayPoints, optional
        Rows are fixes of a receiver: take the stays among them, each as a check-in at every step that it lasts (for
        `SpacedTraces` one at the arrival).

    Returns
    -------
    (Traces, ImportReport)

    Raises
    ------
    InputError
        Listing every problem of the table at once: no rows, missing ids or times, bad coordinates, no place column,
        time going backwards within a trace, a few times years away from all others; columns that seem mixed up; or
        nothing left after filtering.

    Examples
    --------
    >>> hours = pd.to_datetime(["2024-01-01T08:10", "2024-01-01T09:50", "2024-01-01T09:55"])
    >>> checkins = pd.DataFrame(
    ...     {
    ...         "user": "ann",
    ...         "place": ["home", "work", "cafe"],
    ...         "latitude": [35.6, 35.7, 35.7],
    ...         "longitude": 139.7,
    ...         "local_time": hours,
    ...         "utc_time": hours - pd.Timedelta(hours=9),
    ...     }
    ... )
    >>> all_places = Discretization(MostVisited(10), min_users_per_place=1)
    >>> traces, report = discretize(checkins, all_places, time_zone="Asia/Tokyo")
    >>> traces.to_frame()["instant"].tolist(), report.n_transitions, report.n_same_instant
    ([8, 9], 1, 1)
    """
    problems = list(dict.fromkeys([*problems, *zone_problems(time_zone)]))
    column_problems = _column_problems(checkins)
    if column_problems:
        raise InputError(subject, [*skipped, *problems, *column_problems])
    n_rows, n_bad = len(checkins) + sum(problem.n_rows for problem in skipped), 0
    bad = bad_rows(checkins, untimed)
    found = [*skipped, *problems, *(each.problem for each in bad)]
    if drop_bad_rows:
        checkins, n_bad, bad_notes = without_bad_rows(checkins, bad, skipped, subject)
        notes, found = [*notes, *bad_notes], problems
    found += _table_problems(checkins, discretization, rows_are_good=not found)
    if stay_points is not None and isinstance(discretization.places, MostVisited):
        way_out = "Choose a grid (GridPlaces)"
        found.append(Problem("a grid, since stay points have no place ids", "most visited places", way_out=way_out))
    if found:
        raise InputError(subject, found)
    n_users_read = len(codes_of(checkins["user"])[1])
    if stay_points is not None:
        repeat_s = discretization.step_s if isinstance(discretization, Discretization) else None
        checkins, stay_note = stays_as_checkins(checkins, stay_points, time_zone, repeat_s, subject)
        notes = [*notes, stay_note]
    n_good = len(checkins)
    if drop_repeated:
        checkins = checkins.drop_duplicates(ignore_index=True)
    user, user_ids = codes_of(checkins["user"])
    min_users, others = discretization.min_users_per_place, discretization.other_places
    assigned = assign_places(checkins, discretization.places, min_users, others)
    place, places = assigned.place, assigned.places
    suspicions = _suspicions(checkins, discretization.places, assigned, time_zone, subject)
    rows = _kept_rows(checkins, user, place)
    events = discretization.events_of(rows, time_zone)
    frame = pd.DataFrame(
        {
            "user": user_ids[events.rows.user],
            "trace": events.trace,
            "instant": events.instant,
            "place": places.ids[events.rows.place],
        }
    )
    friends, friend_notes = _known_friends(friendships, frame["user"])
    traces = Traces.from_frame(frame, places, events.time_grid, friends, subject=subject)
    on_grid = isinstance(discretization.places, GridPlaces)
    n_before = traces.n_events
    # Of several at one instant the first alone is kept, so that a place may have lost users.
    (traces,) = keep_shared_places(traces, min_users=min_users, other_places=others, keep_table=on_grid)
    out = place < 0
    report = ImportReport(
        subject=subject,
        n_rows=n_rows,
        n_users_read=n_users_read,
        n_bad_rows=n_bad,
        n_duplicates=n_good - len(checkins),
        n_outside_box=int(assigned.outside.sum()),
        n_few_users=int((assigned.few & out).sum()) + n_before - traces.n_events,
        n_other_places=int((assigned.beyond & out).sum()),
        n_same_instant=events.n_same_instant,
        n_moved=int((assigned.moved_km > 0).sum()),
        **counts_of([traces]),
        least_users=least_users(traces),
        first_time=str(rows.local.min()),
        last_time=str(rows.local.max()),
        quietest_hour=_quietest_hour(events.rows.local),
        time_zone=time_zone,
        min_users_per_place=min_users,
        other_places=others,
        on_grid=on_grid,
        n_places_for_most=assigned.n_for_most,
        step_for_most_s=events.step_for_most_s,
        notes=(*notes, *suspicions, *events.notes, *_moves(assigned), *friend_notes),
    )
    return traces, report


def _moves(assigned: Assigned) -> list[str]:
    """A note on how far check-ins were moved."""
    km = assigned.moved_km[assigned.moved_km > 0]
    if not len(km):
        return []
    middle, most = np.median(km), km.max()
    return [f"half of those moved to the nearest place went {middle:.2g} km or more, the farthest {most:.2g} km"]


def _kept_rows(checkins: pd.DataFrame, user: np.ndarray, place: np.ndarray) -> Rows:
    """The check-ins at places that are kept; true times are in seconds."""
    trace = codes_of(checkins["trace"])[0] if "trace" in checkins else np.zeros(len(user), np.int32)
    local, utc = (checkins[name].to_numpy("datetime64[s]") for name in ("local_time", "utc_time"))
    return Rows(user, trace, place, local, utc.astype(np.int64)).at(place >= 0)


def _first_of_instants(rows: Rows, grid: TimeGrid) -> tuple[Rows, np.ndarray, np.ndarray]:
    """The first check-in of a trace at each instant, in the order of time, with the number of its trace and instant."""
    instant = (rows.local - np.datetime64(grid.start)).astype(np.int64) // grid.step_s
    order, group = _time_order(rows.user, rows.trace, rows.utc)
    first = ~pd.Series(group * grid.n_instants + instant[order]).duplicated().to_numpy()
    return rows.at(order[first]), group[first], instant[order[first]]


def _quietest_hour(local: np.ndarray) -> int:
    return int(np.bincount(local.astype("datetime64[h]").astype(np.int64) % 24, minlength=24).argmin())


def _column_problems(checkins: pd.DataFrame) -> list[Problem]:
    """What makes it impossible to say anything of rows."""
    missing = missing_columns(checkins.columns, CHECKIN_COLUMNS)
    return missing if missing or len(checkins) else [Problem("at least one check-in", "none")]


def _table_problems(checkins: pd.DataFrame, discretization: MakesTraces, rows_are_good: bool) -> list[Problem]:
    """Problems of whole columns."""
    problems = []
    if isinstance(discretization.places, MostVisited) and "place" not in checkins:
        expected = "a place for every check-in, to find the most visited"
        way_out = "Name the column of the places, or choose a grid (GridPlaces)"
        problems.append(Problem(expected, "no place column", way_out=way_out))
    for column in ("user", "place", "trace"):
        if column in checkins:
            problems += id_problems(checkins[column])
    if rows_are_good and not problems:
        problems += twice_the_same(checkins)
        problems += backward_problems(checkins) if "trace" in checkins else []
    return problems


def _suspicions(
    checkins: pd.DataFrame, choice: GridPlaces | MostVisited, assigned: Assigned, time_zone: str, subject: str
) -> list[str]:
    """Notes on what looks odd; an `InputError` where it looks wrong."""
    if isinstance(choice, GridPlaces):
        problems = off_grid_problems(checkins, choice, ~assigned.outside)
        if problems:
            raise InputError(subject, problems)
    own = (assigned.place >= 0) & ~(assigned.few | assigned.beyond)
    which = slice(None) if own.all() else own
    latitude, longitude = (column[which] for column in degrees(checkins))
    local, utc = (checkins[name].to_numpy("datetime64[s]")[which] for name in ("local_time", "utc_time"))
    problems, notes = clocks_and_sun(latitude, longitude, local, utc.astype(np.int64), time_zone)
    if isinstance(choice, MostVisited):
        of_places = scattered_places(latitude, longitude, assigned.place[which], assigned.places)
        problems, notes = [*problems, *of_places[0]], [*notes, *of_places[1]]
    if problems:
        raise InputError(subject, problems)
    return notes


def _time_order(user: np.ndarray, trace: np.ndarray, utc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order by user, trace (the earlier first) and true time; and the number of each ordered row's (user, trace)."""
    order = np.lexsort((utc, trace, user))
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(user[order]) != 0) | (np.diff(trace[order]) != 0)
    group = np.cumsum(begins) - 1
    first = order[begins]
    # Groups are numbered anew so that a user's traces follow each other in time.
    rank = np.empty(len(first), np.int64)
    rank[np.lexsort((utc[first], user[first]))] = np.arange(len(first))
    group = rank[group]
    again = np.argsort(group, kind="stable")
    return order[again], group[again]


def _trace_numbers(user: np.ndarray, group: np.ndarray, utc: np.ndarray, max_gap_s: Number | None) -> np.ndarray:
    """Number of the trace of each row among its user's, from 0; rows are in the order of `_time_order`."""
    begins = np.zeros(len(user), bool)
    begins[1:] = np.diff(group) != 0
    if max_gap_s is not None:
        begins[1:] |= np.diff(utc) > max_gap_s
    number = np.cumsum(begins)
    new_user = np.ones(len(user), bool)
    new_user[1:] = np.diff(user) != 0
    return number - number[np.maximum.accumulate(np.where(new_user, np.arange(len(user)), 0))]


def _known_friends(friendships: pd.DataFrame | None, users: pd.Series) -> tuple[pd.DataFrame | None, list[str]]:
    """The friendships among users with events, and a note on those left out."""
    if friendships is None:
        return None, []
    known = friendships["user"].isin(users) & friendships["friend"].isin(users)
    n_left_out = int((~known).sum())
    note = f"{n_left_out:,} of {len(known):,} friendship rows left out: somebody has no event"
    return friendships[known], [note] if n_left_out else []
