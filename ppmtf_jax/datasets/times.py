"""Times of tables of check-ins: from the values of a column to wall-clock times and true times, in seconds."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.datasets.checks import put_right_rollover, rounded_times
from ppmtf_jax.datasets.database import database
from ppmtf_jax.datasets.rows import Rows
from ppmtf_jax.datasets.table_files import parts_of
from ppmtf_jax.datasets.time_texts import NO_TIME, TimeTexts
from ppmtf_jax.errors import Message, Problem, Setting

# 1980 and 2100, in seconds since 1970. Years, dates such as 20240131 and times such as 20240131180000 lie outside, and
# so does a count that is read in a wrong unit.
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 315_532_800, 4_102_444_800
EPOCH_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
# Numbers in a second unit are a problem if more than this share of the rows has it.
MIN_SHARE_OF_UNIT = 0.1
# Words that are accepted in place of a format.
DAY_ORDERS = {"day-first": True, "month-first": False}
COUNTS = ("unix", "gps")
GPS_EPOCH_S = int(np.datetime64("1980-01-06", "s").astype(np.int64))
LEAP_SECONDS = """1981-07 1982-07 1983-07 1985-07 1988-01 1990-01 1991-01 1992-07 1993-07 1994-07 1996-01 1997-07
 1999-01 2006-01 2009-01 2012-07 2015-07 2017-01"""


FORMATS_OF_TIMES = Message(
    "Write times as 2012-04-03T18:00:00, 2012-04-03T18:00:00-04:00 or in seconds since 1970, or tell how they are "
    "written, such as ",
    Setting("time_format", "%d.%m.%Y %H:%M"),
)


class Times(NamedTuple):
    """Local wall-clock and true times in seconds since 1970: as SQL of the columns of `raw`, or as arrays.

    They are missing where a value is no time. `problems` concern the whole column, `unparsed` the rows without a
    readable time. `dates_only`: no row has a time of day. `is_count`: numbers were read as counts since 1970.
    """

    local: Any
    utc: Any
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    unparsed: tuple[Problem, ...] = ()
    dates_only: bool = False
    is_count: bool = False


def parse_times(
    column: pd.Series, time_zone: str | None, *, times_in: str | None = None, time_format: str | None = None
) -> Times:
    """Local wall-clock and true times of a column; see `read_checkins` for the texts and numbers that are times.

    Parameters
    ----------
    time_zone : str or None
        Zone of the local times. None: the zone `times_in`; without `times_in`, UTC, and all times need an offset.
    times_in : str, optional
        Zone of the times without an offset. Default: `time_zone`.
    time_format : str, optional
        A format of `datetime.strptime`, or day-first, month-first, unix or gps. By default inferred from the column.

    Returns
    -------
    Times
        Arrays of datetime64[s], shape (rows,), not-a-time where a value is no time.

    Examples
    --------
    >>> times = parse_times(pd.Series(["3/4/2012 6:00 PM", "13/4/2012 6:30 PM"]), "America/New_York", times_in="UTC")
    >>> times.local.astype(str).tolist()
    ['2012-04-03T14:00:00', '2012-04-13T14:30:00']
    """
    with database() as connection:
        reader = TimeReader(time_format)
        frame = column.infer_objects().to_frame("time")
        rows = Rows(connection, parts_of(frame, {"time": "time"}, (), False, "times"), more=reader.add)
        times = reader.times(rows, time_zone, times_in)
        found = connection.sql(f"SELECT {times.local} AS local, {times.utc} AS utc FROM raw ORDER BY row").fetchnumpy()
    arrays = {name: _as_times(np.ma.filled(np.ma.asarray(value, np.float64), np.nan)) for name, value in found.items()}
    return times._replace(**arrays)


class TimeReader:
    """Reads the column `time` piece by piece, and then tells what the times of the whole column mean."""

    def __init__(self, time_format: str | None):
        self.time_format, self.texts = time_format, TimeTexts()
        self.is_number = self.is_by_format = False
        self.fault: list[Problem] = []

    def add(self, row: np.ndarray, table: pa.Table) -> dict[str, pa.Array | None]:
        """The columns of `raw` that a piece gives in place of the time: wall, offset_s, swapped, number and no_time."""
        is_null = table["time"].is_null().combine_chunks() if table["time"].null_count else None
        return self._columns(row, table) | ({} if is_null is None else {"no_time": is_null})

    def _columns(self, row: np.ndarray, table: pa.Table) -> dict[str, pa.Array | None]:
        is_by_shape = self.time_format is None or self.time_format in DAY_ORDERS
        plain = self.texts.add_plain(table["time"]) if is_by_shape else None
        if plain is not None:
            return {**plain, "time": None}
        column = table["time"].to_pandas()
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            zoned, utc = column.dt.tz is not None, pd.DatetimeIndex(column)
            utc = utc.tz_convert("UTC").tz_localize(None) if zoned else utc
            wall = utc.as_unit("s").to_numpy("datetime64[s]")
            found = {"wall": wall, "offset_s": np.full(len(wall), 0 if zoned else np.nan, np.float32)}
        else:
            is_bool = pa.types.is_boolean(table["time"].type)
            self.is_number = self.time_format in COUNTS or (pd.api.types.is_numeric_dtype(column.dtype) and not is_bool)
            if self.is_number:
                number = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
                found = {"wall": np.full(len(number), "NaT", "datetime64[s]"), "number": number}
            elif not is_by_shape:
                self.is_by_format = True
                found = self._by_format(column)
            else:
                found = self.texts.add(row, column.astype("str"))
        return {name: _as_column(value) for name, value in found.items()} | {"time": None}

    def times(self, rows: Rows, time_zone: str | None, times_in: str | None) -> Times:
        """What the times mean; to be called after all pieces were read."""
        zones = dict.fromkeys(zone for zone in (time_zone, times_in) if zone is not None)
        problems = [problem for zone in zones for problem in zone_problems(zone)] + self.fault
        notes, way_out, is_count = [], FORMATS_OF_TIMES, False
        wall, offset_s = "wall", "offset_s" if "offset_s" in rows.columns else "NULL"
        texts, dates_only = self.texts, False
        if self.is_by_format:
            directives = _directives(self.time_format)
            dates_only = not directives & set("HIcXTR")
            way_out = Message("They are read as ", Setting("time_format", self.time_format))
        elif self.is_number or texts.are_counts:
            is_count = self.time_format != "gps"
            wall, more, notes, way_out = _from_counts(rows, is_gps=not is_count)
            problems, offset_s = problems + more, "0"
        elif texts.n_texts:
            day_first = DAY_ORDERS.get(self.time_format or "", texts.day_first)
            if self.time_format is None:
                problems += texts.problem_of_order(
                    lambda first: rows.examples(f"row IN ({', '.join(map(str, first))})", "time")
                )
            order = ["%d", "%m", "%Y"] if day_first else ["%m", "%d", "%Y"]
            notes = [f"dates are read as {layout}" for layout in sorted(mark.join(order) for mark in texts.marks)]
            dates_only = not texts.has_clock[day_first]
            if "swapped" in rows.columns and not day_first:
                wall = f"CASE WHEN swapped IS NULL THEN wall ELSE nullif(swapped, {NO_TIME.astype(int)}) END"
        if "user" in rows.columns:
            wall, found = put_right_rollover(rows, wall)
            notes = [*notes, *found]
        known = f"({wall}) IS NOT NULL"
        naive, absolute = f"{known} AND {offset_s} IS NULL", f"{known} AND {offset_s} IS NOT NULL"
        first, last, n_naive, n_absolute, n_not_midnight = rows.one(
            f"SELECT min({wall}), max({wall}), count(*) FILTER ({naive}), count(*) FILTER ({absolute}), "
            f"count(*) FILTER (({wall}) % {DAY_S} <> 0) FROM raw"
        )
        if not zones:
            zone = Setting("time_zone", "Europe/Paris")
            more = Message("Name the zone of the clock that wrote them, such as ", zone)
            problems += rows.problem(naive, "a time zone, for times without an offset", "none", more, "time")
        if n_naive and n_absolute:
            counts = f"{n_naive} without and {n_absolute} with one"
            problems.append(Problem("times all with an offset or all without", counts))
        elif times_in is not None:
            expected = Message("times without an offset, which ", Setting("times_in", times_in), " is for")
            more = "Leave it out: these times tell their offset, or count from 1970 in UTC"
            problems += rows.problem(absolute, expected, "times with one", more, "time")
        utc = f"({wall}) - coalesce({offset_s}, 0)"
        local, clock = wall, times_in or time_zone or "UTC"
        if not problems and n_naive:
            utc, more_notes = _true_times(rows, wall, clock, first, last)
            notes += more_notes
        if not problems and first is not None and (not n_naive or time_zone not in (None, clock)):
            local = _local_times(f"({utc})", time_zone or "UTC", first, last)
        # If several different times are all at midnight, dates were stored as times.
        dates_only = first is not None and (dates_only or (not n_not_midnight and first < last))
        given = "NOT coalesce(no_time, false)" if "no_time" in rows.columns else "true"
        unparsed = rows.problem(
            f"NOT ({known}) AND {given}", "times that can be parsed", way_out=way_out, values="time"
        )
        return Times(local, utc, tuple(problems), tuple(notes), tuple(unparsed), dates_only, is_count)

    def _by_format(self, column: pd.Series) -> dict[str, np.ndarray]:
        text, how = column.astype("str").str.strip(), self.time_format or ""
        has_offset, directives = "%z" in how, _directives(how)
        wall, fault = np.full(len(text), "NaT", "datetime64[s]"), ""
        if not directives:
            fault = "it has no directive such as %d"
        elif "Z" in directives:
            fault = "%Z does not tell the offset; use %z"
        elif "I" in directives and "p" not in directives:
            fault = "%I needs %p, which tells AM from PM"
        else:
            try:
                parsed = pd.DatetimeIndex(pd.to_datetime(text, format=how, utc=has_offset, errors="coerce"))
                wall = (parsed.tz_localize(None) if has_offset else parsed).as_unit("s").to_numpy("datetime64[s]")
            except (ValueError, TypeError) as error:
                fault = str(error)
        words = ", ".join((*DAY_ORDERS, *COUNTS))
        expected = Message(Setting("time_format"), f" as of strptime, such as '%d.%m.%Y %H:%M', or one of {words}")
        self.fault = [Problem(expected, f"{how!r}: {fault}")] if fault else self.fault
        return {"wall": wall, "offset_s": np.full(len(text), 0 if has_offset else np.nan, np.float32)}


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


def _directives(time_format: str | None) -> set[str]:
    return set(re.findall(r"%-?([A-Za-z])", time_format or ""))


def _as_column(values: np.ndarray) -> pa.Array:
    """Whole seconds, or numbers, for the database."""
    if values.dtype.kind == "M":
        return pa.array(values.astype(np.int64), mask=np.isnat(values))
    return pa.array(values, pa.float64() if values.dtype == np.float64 else pa.int32(), from_pandas=True)


def _as_times(seconds: np.ndarray) -> np.ndarray:
    known = np.isfinite(seconds)
    return np.where(
        known, np.where(known, seconds, 0).astype(np.int64).astype("datetime64[s]"), np.datetime64("NaT", "s")
    )


def _from_counts(rows: Rows, is_gps: bool) -> tuple[str, list[Problem], list[str], str]:
    """SQL of counts since 1970, in the unit that puts most of them between 1980 and 2100; or of seconds of GPS time.

    Also problems, notes, and the way out for other numbers.
    """
    number, units = "number" if "number" in rows.columns else "NULL::DOUBLE", EPOCH_UNITS
    if is_gps:
        # GPS time counts seconds from 6 January 1980, including leap seconds.
        leaps = np.array(LEAP_SECONDS.split(), "datetime64[s]").astype(np.int64) - GPS_EPOCH_S
        later = " - ".join(f"(number >= {leap + k})::INTEGER" for k, leap in enumerate(leaps.tolist(), 1))
        number, units = f"({number} + {GPS_EPOCH_S} - {later})", {"seconds": 1}
    fits = {
        unit: f"{number} BETWEEN {EARLIEST_EPOCH_S * per_s} AND {LATEST_EPOCH_S * per_s}"
        for unit, per_s in units.items()
    }
    n_rows, *n_of = rows.one(
        f"SELECT count(*), {', '.join(f'count(*) FILTER ({fit})' for fit in fits.values())} FROM raw"
    )
    counts = dict(zip(units, n_of, strict=True))
    unit, *others = sorted(counts, key=lambda name: -counts[name])
    good, problems = [unit], []
    notes = ["times are seconds of GPS time" if is_gps else f"times are {unit} since 1970"]
    if others and counts[others[0]] > MIN_SHARE_OF_UNIT * n_rows:
        found = f"{counts[unit]:,} in {unit} and {counts[others[0]]:,} in {others[0]}"
        way_out = "Divide the larger numbers, or read the rows of each unit alone"
        problems = [Problem("numbers since 1970 in one unit", found, way_out=way_out)]
        good = list(units)
    if not is_gps:
        notes += rounded_times(rows, f"CASE WHEN {fits[unit]} THEN CAST(floor({number} / {units[unit]}) AS BIGINT) END")
    cases = " ".join(f"WHEN {fits[name]} THEN CAST(floor({number} / {units[name]}) AS BIGINT)" for name in good)
    way_out = f"Numbers are {unit} since 1970, from 1980 to 2100; write dates as 2012-04-03, and weekdays as dates"
    return f"CASE {cases} END", problems, notes, way_out


def _changes(time_zone: str, first_s: int, last_s: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Offset of a zone from UTC in seconds at a time, and its changes until another: true time, offset before, after.

    True times are exact; clocks do not change twice on a day.
    """
    low, high = (np.datetime64(date, "s").astype(np.int64) for date in ("0001-01-05", "9999-12-25"))
    day = np.arange(max(first_s - 2 * DAY_S, low), min(last_s + 3 * DAY_S, high), DAY_S)

    def offset_s(utc_s: np.ndarray) -> np.ndarray:
        utc = pd.DatetimeIndex(utc_s.astype("datetime64[s]"))
        return local_times(utc, time_zone).astype(np.int64) - utc_s

    offsets = offset_s(day)
    at = np.flatnonzero(np.diff(offsets))
    before, after = day[at], day[at + 1]
    while len(at) and (after - before > 1).any():
        middle = (before + after) // 2
        is_before = offset_s(middle) == offsets[at]
        before, after = np.where(is_before, middle, before), np.where(is_before, after, middle)
    changes = zip(after.tolist(), offsets[at].tolist(), offsets[at + 1].tolist(), strict=True)
    return int(offsets[0]), list(changes)


def _local_times(utc: str, time_zone: str, first_s: int, last_s: int) -> str:
    """SQL of wall-clock times in a zone."""
    first, changes = _changes(time_zone, first_s - DAY_S, last_s + DAY_S)
    cases = "".join(f"WHEN {utc} < {change} THEN {before} " for change, before, _ in changes)
    return f"{utc} + CASE {cases}ELSE {changes[-1][2]} END" if changes else f"{utc} + {first}"


def _true_times(rows: Rows, wall: str, time_zone: str, first_s: int, last_s: int) -> tuple[str, list[str]]:
    """SQL of the UTC of wall-clock times, and notes on those that do not exist or exist twice."""
    first, changes = _changes(time_zone, first_s, last_s)
    cases, absent, twice = "", ["false"], ["false"]
    for change, before, after in changes:
        cases += f"WHEN ({wall}) < {change + before} THEN ({wall}) - {before} "
        if after > before:
            cases += f"WHEN ({wall}) < {change + after} THEN {change} "
        span = f"({wall}) >= {change + min(before, after)} AND ({wall}) < {change + max(before, after)}"
        (absent if after > before else twice).append(span)
    if not changes:
        return f"({wall}) - {first}", []
    n_absent, n_twice = rows.one(
        f"SELECT count(*) FILTER ({' OR '.join(absent)}), count(*) FILTER ({' OR '.join(twice)}) FROM raw"
    )
    notes = []
    if n_absent:
        notes.append(f"times that do not exist (summer time begins), kept as written: {n_absent:,}")
    if n_twice:
        notes.append(f"times that exist twice (summer time ends), taken as the first: {n_twice:,}")
    return f"CASE {cases}ELSE ({wall}) - {changes[-1][2]} END", notes
