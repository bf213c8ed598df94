"""From raw check-ins to `Traces`: which places there are, and which instant and slot a time belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import PlaceTable, coordinate_problems
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid, zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, first_examples

CHECKIN_COLUMNS = ("user", "latitude", "longitude", "local_time", "utc_time")
MAX_INSTANTS = 10_000_000
Number = int | float


def _is_count(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value > 0)


@dataclass(frozen=True)
class GridPlaces:
    """The cells of a regular grid over a bounding box; what lies outside is dropped.

    Cell `row * n_columns + column` has row 0 in the south and column 0 in the west. A place is a cell, its coordinates
    are those of the cell's centre. Points on the northern and eastern edge belong to the last row and column.

    Parameters
    ----------
    south, north, west, east : float
        The box, degrees. A box across the 180th meridian is not possible.
    n_rows, n_columns : int

    Raises
    ------
    InputError
        The box is empty or not on the globe, or there is no row or column.

    Examples
    --------
    >>> grid = GridPlaces(35.65, 35.75, 139.68, 139.80, n_rows=20, n_columns=20)
    >>> grid.place_of([35.652, 35.75, 36.0], [139.687, 139.80, 139.7]).tolist()
    [1, 399, -1]
    """

    south: Number
    north: Number
    west: Number
    east: Number
    n_rows: int
    n_columns: int

    def __post_init__(self) -> None:
        problems = []
        if not -90 <= self.south < self.north <= 90:
            problems.append(Problem("-90 <= south < north <= 90 degrees", f"south {self.south}, north {self.north}"))
        if not -180 <= self.west < self.east <= 180:
            problems.append(Problem("-180 <= west < east <= 180 degrees", f"west {self.west}, east {self.east}"))
        if not (_is_count(self.n_rows) and _is_count(self.n_columns)):
            found = f"{self.n_rows!r} rows, {self.n_columns!r} columns"
            problems.append(Problem("at least one row and one column, in whole numbers", found))
        if problems:
            raise InputError("grid of places", problems)

    def place_of(self, latitude: object, longitude: object) -> np.ndarray:
        """Cell of each point, -1 outside the box, int64 array of shape (points,)."""
        latitude, longitude = np.asarray(latitude, np.float64), np.asarray(longitude, np.float64)
        row = _bin(latitude, self.south, self.north, self.n_rows)
        column = _bin(longitude, self.west, self.east, self.n_columns)
        return np.where((row >= 0) & (column >= 0), row * self.n_columns + column, -1)

    def table(self) -> PlaceTable:
        """All cells, also those that nobody visits."""
        row, column = np.divmod(np.arange(self.n_rows * self.n_columns, dtype=np.int64), self.n_columns)
        latitude = self.south + (row + 0.5) * (self.north - self.south) / self.n_rows
        longitude = self.west + (column + 0.5) * (self.east - self.west) / self.n_columns
        return PlaceTable(row * self.n_columns + column, latitude, longitude)


@dataclass(frozen=True)
class MostVisited:
    """The places with the most check-ins, most visited first; equals in the order of their ids.

    The coordinates of a place are the medians over its check-ins, its category the most frequent one.

    Parameters
    ----------
    n_places : int
        How many; where the data has fewer, all of them.

    Raises
    ------
    InputError
        `n_places` is not a positive whole number.
    """

    n_places: int

    def __post_init__(self) -> None:
        if not _is_count(self.n_places):
            raise InputError("most visited places", [Problem("a positive whole number of places", repr(self.n_places))])


@dataclass(frozen=True)
class Discretization:
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
    max_gap_s : float, optional
        A new trace begins where more than these seconds of true time lie between consecutive events of a user. Only
        consecutive instants of one trace make a transition, so this bounds the time that a transition can span.

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
    >>> settings = Discretization(MostVisited(100), step_s=3600, slot_of_instant=weekday_and_quarter)
    >>> settings.time_grid(np.datetime64("2024-01-01"), np.datetime64("2024-01-07T12:00"), "UTC").n_slots
    8
    """

    places: GridPlaces | MostVisited = MostVisited(1000)
    step_s: int = 3600
    slot_s: int | None = 7200
    slot_of_instant: Callable[[np.ndarray], np.ndarray] | Sequence[int] | None = None
    max_gap_s: Number | None = None

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.places, (GridPlaces, MostVisited)):
            problems.append(Problem("places as GridPlaces or MostVisited", repr(self.places)))
        if not _is_count(self.step_s) or DAY_S % self.step_s:
            problems.append(Problem("a step in whole seconds that divides a day", f"{self.step_s!r} s"))
        elif self.slot_of_instant is None and not self._slots_fit():
            expected = f"slots in whole seconds that divide a day and are multiples of the step of {self.step_s} s"
            problems.append(Problem(expected, f"{self.slot_s!r} s"))
        if self.max_gap_s is not None and not self.max_gap_s > 0:
            problems.append(Problem("a largest gap of more than 0 s, or None", f"{self.max_gap_s!r}"))
        if problems:
            raise InputError("discretization", problems)
        if self.slot_of_instant is not None and not callable(self.slot_of_instant):
            # A tuple keeps the settings hashable and comparable.
            object.__setattr__(self, "slot_of_instant", tuple(np.asarray(self.slot_of_instant).tolist()))

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
            return TimeGrid(start, self.step_s, self._mapped_slots(times), time_zone)
        if self.slot_s is None:
            return TimeGrid.each_instant(start, self.step_s, n_instants, time_zone)
        return TimeGrid.cyclic(start, self.step_s, n_instants, slot_s=self.slot_s, time_zone=time_zone)

    def _slots_fit(self) -> bool:
        if self.slot_s is None:
            return True
        return _is_count(self.slot_s) and DAY_S % self.slot_s == 0 and self.slot_s % self.step_s == 0

    def _mapped_slots(self, times: np.ndarray) -> np.ndarray:
        if callable(self.slot_of_instant):
            slots = np.asarray(self.slot_of_instant(times))
        else:
            slots = np.resize(np.asarray(self.slot_of_instant), len(times))
        if slots.shape != times.shape or not np.issubdtype(slots.dtype, np.integer):
            expected = f"slot_of_instant to give {len(times)} whole numbers, one for each instant"
            raise InputError("time grid", [Problem(expected, f"{slots.dtype} array of shape {slots.shape}")])
        return np.unique(slots, return_inverse=True)[1]


@dataclass(frozen=True)
class ImportReport:
    """What became of the rows of a data set; `print` it.

    Parameters
    ----------
    subject : str
        What was read.
    n_rows, n_users_read : int
        Rows and users before anything was left out.
    n_duplicates, n_outside_box, n_other_places, n_same_instant : int
        Rows left out: repeated entirely, outside the grid of places, not at one of the most visited places, at an
        instant that already has an event of the user.
    n_users, n_places, n_traces, n_events, n_transitions : int
        What there is now; transitions are between consecutive instants of one trace.
    first_time, last_time : str
        Local wall-clock times of the first and the last event.
    quietest_hour : int
        Hour of the day with the fewest events. People sleep: where this is in the daytime, the times are probably in
        another zone than assumed.
    notes : tuple of str
        What else the reader has to say.
    """

    subject: str
    n_rows: int
    n_users_read: int
    n_duplicates: int
    n_outside_box: int
    n_other_places: int
    n_same_instant: int
    n_users: int
    n_places: int
    n_traces: int
    n_events: int
    n_transitions: int
    first_time: str
    last_time: str
    quietest_hour: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [("rows read", self.n_rows), ("users read", self.n_users_read)]
        left_out = [
            ("left out: repeated rows", self.n_duplicates),
            ("left out: outside the grid", self.n_outside_box),
            ("left out: other places", self.n_other_places),
            ("left out: same instant", self.n_same_instant),
        ]
        lines += [line for line in left_out if line[1]]
        lines += [("events", self.n_events), ("transitions", self.n_transitions), ("users", self.n_users)]
        lines += [("traces", self.n_traces), ("places", self.n_places)]
        width = max(len(name) for name, _ in lines)
        text = [f"  {name:<{width}}  {count:>12,}" for name, count in lines]
        span = f"  from {self.first_time} to {self.last_time}, fewest events at {self.quietest_hour:02d} h"
        return "\n".join([self.subject, *text, span, *(f"  {note}" for note in self.notes)])


def discretize(
    checkins: pd.DataFrame,
    discretization: Discretization,
    *,
    time_zone: str,
    friendships: pd.DataFrame | None = None,
    subject: str = "check-ins",
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
    drop_repeated: bool = False,
) -> tuple[Traces, ImportReport]:
    """Turn a table of raw check-ins, in any order, into traces.

    Parameters
    ----------
    checkins : DataFrame
        Columns user, latitude, longitude (degrees), local_time (naive datetime64, wall clock), utc_time (naive
        datetime64, for order and gaps) and, optionally, place (needed for `MostVisited`), category, and trace (rows
        of one trace are together and in time order; numbered anew from 0 for each user).
    discretization : Discretization
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

    Returns
    -------
    (Traces, ImportReport)

    Raises
    ------
    InputError
        Listing every problem of the table at once: no rows, missing ids or times, bad coordinates, no place column,
        time going backwards within a trace; or nothing left after filtering.

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
    >>> traces, report = discretize(checkins, Discretization(MostVisited(10)), time_zone="Asia/Tokyo")
    >>> traces.to_frame()["instant"].tolist(), report.n_transitions, report.n_same_instant
    ([8, 9], 1, 1)
    """
    found = [*problems, *zone_problems(time_zone), *_checkin_problems(checkins, discretization, bool(problems))]
    if found:
        # The reader and this function may have found the same.
        raise InputError(subject, dict.fromkeys(found))
    n_rows = len(checkins)
    if drop_repeated:
        checkins = checkins.drop_duplicates(ignore_index=True)
    user, user_ids = codes_of(checkins["user"])
    place, places = _assign_places(checkins, discretization.places)
    kept = place >= 0
    on_grid = isinstance(discretization.places, GridPlaces)
    if on_grid and not kept.any():
        raise InputError(subject, [_nothing_left(checkins, discretization.places)])

    utc = checkins["utc_time"].to_numpy("datetime64[s]").astype(np.int64)[kept]
    local = checkins["local_time"].to_numpy("datetime64[s]")[kept]
    user, place = user[kept], place[kept]
    trace = codes_of(checkins["trace"])[0][kept] if "trace" in checkins else np.zeros(len(user), np.int32)
    first, last = local.min(), local.max()
    grid = discretization.time_grid(first, last, time_zone)
    instant = (local - np.datetime64(grid.start)).astype(np.int64) // grid.step_s

    order, group = _time_order(user, trace, utc)
    repeated = pd.Series(group * grid.n_instants + instant[order]).duplicated().to_numpy()
    order, group = order[~repeated], group[~repeated]
    user, place, instant, local = user[order], place[order], instant[order], local[order]
    frame = pd.DataFrame(
        {
            "user": user_ids[user],
            "trace": _trace_numbers(user, group, utc[order], discretization.max_gap_s),
            "instant": instant,
            "place": places.ids[place],
        }
    )
    friends, friend_notes = _known_friends(friendships, frame["user"])
    traces = Traces.from_frame(frame, places, grid, friends, subject=subject)
    n_dropped = int((~kept).sum())
    report = ImportReport(
        subject=subject,
        n_rows=n_rows,
        n_users_read=len(user_ids),
        n_duplicates=n_rows - len(checkins),
        n_outside_box=n_dropped if on_grid else 0,
        n_other_places=0 if on_grid else n_dropped,
        n_same_instant=int(repeated.sum()),
        n_users=traces.n_users,
        n_places=traces.n_places,
        n_traces=len(traces.trace_table()[0]),
        n_events=traces.n_events,
        n_transitions=int(traces.is_step().sum()),
        first_time=str(first),
        last_time=str(last),
        quietest_hour=int(np.bincount(local.astype("datetime64[h]").astype(np.int64) % 24, minlength=24).argmin()),
        notes=(*notes, *friend_notes),
    )
    return traces, report


def codes_of(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Code of each value (-1 where missing) and the distinct values: integers as int64, others as objects."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, values = column.cat.codes.to_numpy(np.int32), pd.Series(column.cat.categories)
        used = np.unique(codes[codes >= 0])
        if len(used) < len(values):
            # Categories that no row has (left over from filtering) are no users or places.
            renamed = np.full(len(values) + 1, -1, np.int32)
            renamed[used] = np.arange(len(used), dtype=np.int32)
            codes, values = renamed[codes], values.iloc[used]
    else:
        codes, distinct = pd.factorize(column)
        values = pd.Series(distinct)
    is_integer = pd.api.types.is_integer_dtype(values.dtype)
    return codes.astype(np.int32), values.to_numpy(np.int64 if is_integer else object)


def row_examples(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """The first few values of some rows, with their row counted from 1."""
    values = column.iloc[rows[:N_EXAMPLES]].tolist()
    texts = ["nothing" if pd.isna(value) else repr(value) for value in values]
    return tuple(f"{text} (row {row + 1})" for text, row in zip(texts, rows[:N_EXAMPLES].tolist(), strict=True))


def _bin(value: np.ndarray, low: Number, high: Number, n_bins: int) -> np.ndarray:
    inside = (value >= low) & (value <= high)
    index = np.floor((np.where(inside, value, low) - low) / (high - low) * n_bins).astype(np.int64)
    return np.where(inside, np.minimum(index, n_bins - 1), -1)


def _checkin_problems(checkins: pd.DataFrame, discretization: Discretization, unparsed_known: bool) -> list[Problem]:
    missing = [name for name in CHECKIN_COLUMNS if name not in checkins]
    if missing:
        found = f"columns {', '.join(map(str, checkins.columns))}"
        return [Problem(f"columns {', '.join(CHECKIN_COLUMNS)}", found, way_out=f"Missing: {', '.join(missing)}")]
    if not len(checkins):
        return [Problem("at least one check-in", "none")]
    problems = []
    if isinstance(discretization.places, MostVisited) and "place" not in checkins:
        expected = "a place for every check-in, to find the most visited"
        way_out = "Name the column of the places, or choose a grid (GridPlaces)"
        problems.append(Problem(expected, "no place column", way_out=way_out))
    for column in ("user", "place", "trace"):
        if column in checkins:
            problems += _id_problems(checkins[column])
    problems += coordinate_problems(checkins["latitude"], checkins["longitude"])
    untimed = checkins["local_time"].isna() | checkins["utc_time"].isna()
    if untimed.any() and not unparsed_known:
        problems.append(Problem("a time for every check-in", "missing times", int(untimed.sum())))
    if not problems and "trace" in checkins:
        problems += _backward_problems(checkins)
    return problems


def _id_problems(column: pd.Series) -> list[Problem]:
    codes, ids = codes_of(column)
    missing = np.flatnonzero(codes < 0)
    problems = []
    if len(missing):
        rows = first_examples([f"row {row + 1}" for row in missing[:N_EXAMPLES]])
        problems.append(Problem(f"a {column.name} for every check-in", "missing ones", len(missing), rows))
    kinds = {type(value).__name__: value for value in ids} if ids.dtype == object else {}
    if len(kinds) > 1:
        examples = tuple(f"{value!r} ({kind})" for kind, value in kinds.items())
        problems.append(Problem(f"ids of one type in '{column.name}'", f"several: {', '.join(examples)}"))
    return problems


def _backward_problems(checkins: pd.DataFrame) -> list[Problem]:
    """Time that decreases from one row of an explicit trace to its next."""
    user, user_ids = codes_of(checkins["user"])
    trace, trace_ids = codes_of(checkins["trace"])
    utc = checkins["utc_time"].to_numpy("datetime64[s]")
    group = user.astype(np.int64) * len(trace_ids) + trace
    order = np.argsort(group, kind="stable")
    back = np.flatnonzero((np.diff(group[order]) == 0) & (np.diff(utc[order]) < np.timedelta64(0, "s")))
    if not len(back):
        return []
    local = checkins["local_time"].to_numpy("datetime64[s]")
    examples = []
    for before, after in zip(order[back[:N_EXAMPLES]], order[back[:N_EXAMPLES] + 1], strict=True):
        who = f"user {user_ids[user[after]]}, trace {trace_ids[trace[after]]}"
        examples.append(f"row {after + 1} ({who}): {local[after]} after {local[before]}")
    expected, found = "times that do not decrease within a trace", "time going backwards"
    way_out = "Sort the rows by user, trace and time; or leave the trace column out, then any order will do"
    return [Problem(expected, found, len(back), tuple(examples), way_out)]


def _assign_places(checkins: pd.DataFrame, choice: GridPlaces | MostVisited) -> tuple[np.ndarray, PlaceTable]:
    """Index of the place of each check-in (-1: left out) and the place table."""
    latitude, longitude = _degrees(checkins)
    if isinstance(choice, GridPlaces):
        return choice.place_of(latitude, longitude), choice.table()
    codes, ids = codes_of(checkins["place"])
    by_id = np.argsort(ids, kind="stable")
    visits = np.bincount(codes, minlength=len(ids))
    chosen = by_id[np.argsort(-visits[by_id], kind="stable")][: choice.n_places]
    index = np.full(len(ids), -1, np.int64)
    index[chosen] = np.arange(len(chosen))
    place = index[codes]
    kept = place >= 0
    median = pd.DataFrame({"latitude": latitude[kept], "longitude": longitude[kept]}).groupby(place[kept]).median()
    category = None
    if "category" in checkins:
        category = _most_frequent_category(checkins["category"][kept], place[kept], len(chosen))
    return place, PlaceTable(ids[chosen], median["latitude"].to_numpy(), median["longitude"].to_numpy(), category)


def _degrees(checkins: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    latitude, longitude = (pd.to_numeric(checkins[name]).to_numpy(np.float64) for name in ("latitude", "longitude"))
    return latitude, longitude


def _most_frequent_category(category: pd.Series, place: np.ndarray, n_places: int) -> np.ndarray:
    """Label of each place; equally frequent ones in alphabetical order, "" where there is none."""
    codes, values = codes_of(category)
    labels = np.append(values.astype(str), "")
    named = labels[codes] != ""
    counts = pd.DataFrame({"place": place[named], "label": labels[codes[named]]}).value_counts().reset_index()
    best = counts.sort_values(["place", "count", "label"], ascending=[True, False, True]).drop_duplicates("place")
    result = np.full(n_places, "", object)
    result[best["place"].to_numpy()] = best["label"].to_numpy(object)
    return result


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


def _nothing_left(checkins: pd.DataFrame, grid: GridPlaces) -> Problem:
    latitude, longitude = _degrees(checkins)
    found = (
        f"latitudes {latitude.min()} to {latitude.max()}, longitudes {longitude.min()} to {longitude.max()}, "
        "so that nothing is left after filtering"
    )
    way_out = "Choose a box that holds the check-ins"
    if (grid.place_of(longitude, latitude) >= 0).any():
        way_out = "Latitude and longitude are probably swapped"
    return Problem("check-ins within the bounding box", found, len(checkins), way_out=way_out)


def _known_friends(friendships: pd.DataFrame | None, users: pd.Series) -> tuple[pd.DataFrame | None, list[str]]:
    """The friendships among users with events, and a note on those left out."""
    if friendships is None:
        return None, []
    known = friendships["user"].isin(users) & friendships["friend"].isin(users)
    n_left_out = int((~known).sum())
    note = f"{n_left_out:,} of {len(known):,} friendship rows left out: somebody has no event"
    return friendships[known], [note] if n_left_out else []
