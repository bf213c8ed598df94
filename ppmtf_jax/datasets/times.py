"""Times of tables of check-ins: from the values of a column to wall-clock times and true times."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.datasets.tables import row_problems
from ppmtf_jax.datasets.time_texts import NUMBER, Shapes, Written, read_time_texts
from ppmtf_jax.errors import Message, Problem, Setting

# 1980 and 2100, in seconds since 1970. Years, dates such as 20240131 and times such as 20240131180000 lie outside, and
# so does a count that is read in a wrong unit.
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 315_532_800, 4_102_444_800
EPOCH_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
# Numbers in a second unit are a problem if more than this share of the rows has it.
MIN_SHARE_OF_UNIT = 0.1
# Dates and times in digits alone.
COMPACT = (b"99999999", b"99999999999999")
# Words that are accepted in place of a format.
DAY_ORDERS = {"day-first": True, "month-first": False}
COUNTS = ("unix", "gps")
GPS_EPOCH_S = int(np.datetime64("1980-01-06", "s").astype(np.int64))
LEAP_SECONDS = """1981-07 1982-07 1983-07 1985-07 1988-01 1990-01 1991-01 1992-07 1993-07 1994-07 1996-01 1997-07
 1999-01 2006-01 2009-01 2012-07 2015-07 2017-01"""


class Times(NamedTuple):
    """Parsed times, shape (rows,): naive datetime64[s], not-a-time where they could not be parsed.

    `problems` concern the whole column, `unparsed` the rows without a readable time. `dates_only`: no row has a time of
    day. `is_count`: numbers were read as counts since 1970.
    """

    local: np.ndarray
    utc: np.ndarray
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
        A format of `datetime.strptime`, or day-first, month-first, unix or gps. Default: inferred from the whole
        column.

    Examples
    --------
    >>> times = parse_times(pd.Series(["3/4/2012 6:00 PM", "13/4/2012 6:30 PM"]), "America/New_York", times_in="UTC")
    >>> times.local.astype(str).tolist()
    ['2012-04-03T14:00:00', '2012-04-13T14:30:00']
    """
    zones = dict.fromkeys(zone for zone in (time_zone, times_in) if zone is not None)
    problems = [problem for zone in zones for problem in zone_problems(zone)]
    column = column.infer_objects()
    written = _written(column, time_format)
    wall, offset_s, known = written.wall, written.offset_s, ~np.isnat(written.wall)
    problems += written.problems
    naive, absolute = known & np.isnan(offset_s), known & ~np.isnan(offset_s)
    if not zones:
        way_out = Message("Name the zone of the clock that wrote them, such as ", Setting("time_zone", "Europe/Paris"))
        problems += row_problems(column, naive, "a time zone, for times without an offset", "none", way_out)
    if naive.any() and absolute.any():
        counts = f"{int(naive.sum())} without and {int(absolute.sum())} with one"
        problems.append(Problem("times all with an offset or all without", counts))
    elif times_in is not None:
        expected = Message("times without an offset, which ", Setting("times_in", times_in), " is for")
        way_out = "Leave it out: these times tell their offset, or count from 1970 in UTC"
        problems += row_problems(column, absolute, expected, "times with one", way_out)
    utc = wall - np.nan_to_num(offset_s).astype("timedelta64[s]")
    local, notes, clock = wall, list(written.notes), times_in or time_zone or "UTC"
    if not problems and naive.any():
        utc, change_notes = _true_times(pd.DatetimeIndex(wall), clock)
        notes += change_notes
    if not problems and (not naive.any() or time_zone not in (None, clock)):
        local = local_times(pd.DatetimeIndex(utc), time_zone or "UTC")
    # If several different times are all at midnight, dates were stored as times.
    seconds = wall[known].astype(np.int64)
    at_midnight = bool(len(seconds)) and not (seconds % DAY_S).any() and bool(seconds.min() < seconds.max())
    unparsed = row_problems(column, ~known, "times that can be parsed", way_out=written.way_out)
    dates_only = written.dates_only or at_midnight
    return Times(local, utc, tuple(problems), tuple(notes), tuple(unparsed), dates_only, written.is_count)


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


def _written(column: pd.Series, time_format: str | None) -> Written:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        zoned, utc = column.dt.tz is not None, pd.DatetimeIndex(column)
        utc = utc.tz_convert("UTC").tz_localize(None) if zoned else utc
        wall = utc.as_unit("s").to_numpy("datetime64[s]")
        return Written(wall, np.full(len(wall), 0 if zoned else np.nan, np.float32))
    is_numeric = pd.api.types.is_numeric_dtype(column.dtype)
    is_number = is_numeric and not pd.api.types.is_bool_dtype(column.dtype)
    if time_format is not None and time_format not in (*DAY_ORDERS, *COUNTS) and not is_number:
        return _by_format(column, time_format)
    if not is_number and time_format not in COUNTS:
        shapes = Shapes(column)
        counts = shapes.counts()
        counted = [bool(NUMBER.fullmatch(shape)) and shape.strip() not in COMPACT for shape in shapes.shapes]
        if not len(counts) or counts[np.array(counted)].sum() <= counts.sum() / 2:
            return read_time_texts(column, shapes, DAY_ORDERS.get(time_format or ""))
    texts = column if is_numeric else column.astype("str")
    number = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return _from_counts(number, is_gps=time_format == "gps")


def _from_counts(number: np.ndarray, is_gps: bool) -> Written:
    """Read counts since 1970, in the unit that puts most of them between 1980 and 2100; or seconds of GPS time."""
    units = {"seconds": 1} if is_gps else EPOCH_UNITS
    if is_gps:
        # GPS time counts seconds from 6 January 1980, including leap seconds.
        leaps = np.array(LEAP_SECONDS.split(), "datetime64[s]").astype(np.int64) - GPS_EPOCH_S
        leaps += np.arange(1, len(leaps) + 1)
        number = number + GPS_EPOCH_S - np.searchsorted(leaps, number, side="right")
    fits = {
        unit: (number >= EARLIEST_EPOCH_S * per_s) & (number <= LATEST_EPOCH_S * per_s) for unit, per_s in units.items()
    }
    counts = {unit: int(each.sum()) for unit, each in fits.items()}
    unit, *others = sorted(counts, key=lambda name: -counts[name])
    good, problems = fits[unit], []
    notes = ["times are seconds of GPS time" if is_gps else f"times are {unit} since 1970"]
    if others and counts[others[0]] > MIN_SHARE_OF_UNIT * len(number):
        found = f"{counts[unit]:,} in {unit} and {counts[others[0]]:,} in {others[0]}"
        way_out = "Divide the larger numbers, or read the rows of each unit alone"
        problems = [Problem("numbers since 1970 in one unit", found, way_out=way_out)]
        good = np.any(list(fits.values()), axis=0)
    per_s = np.select(list(fits.values()), list(units.values()), 1)
    wall = np.floor(np.where(good, number, 0) / per_s).astype(np.int64).astype("datetime64[s]")
    wall[~good] = np.datetime64("NaT")
    way_out = f"Numbers are {unit} since 1970, from 1980 to 2100; write dates as 2012-04-03"
    offset_s = np.zeros(len(number), np.float32)
    return Written(wall, offset_s, problems=problems, notes=notes, way_out=way_out, is_count=not is_gps)


def _by_format(column: pd.Series, time_format: str) -> Written:
    text = column.astype("str").str.strip()
    n, has_offset = len(text), "%z" in time_format
    directives = set(re.findall(r"%-?([A-Za-z])", time_format))
    wall, fault = np.full(n, "NaT", "datetime64[s]"), ""
    if not directives:
        fault = "it has no directive such as %d"
    elif "Z" in directives:
        fault = "%Z does not tell the offset; use %z"
    elif "I" in directives and "p" not in directives:
        fault = "%I needs %p, which tells AM from PM"
    else:
        try:
            parsed = pd.DatetimeIndex(pd.to_datetime(text, format=time_format, utc=has_offset, errors="coerce"))
            wall = (parsed.tz_localize(None) if has_offset else parsed).as_unit("s").to_numpy("datetime64[s]")
        except (ValueError, TypeError) as error:
            fault = str(error)
    words = ", ".join((*DAY_ORDERS, *COUNTS))
    expected = Message(Setting("time_format"), f" as of strptime, such as '%d.%m.%Y %H:%M', or one of {words}")
    problems = [Problem(expected, f"{time_format!r}: {fault}")] if fault else []
    way_out = Message("They are read as ", Setting("time_format", time_format))
    offset_s = np.full(n, 0 if has_offset else np.nan, np.float32)
    return Written(wall, offset_s, not directives & set("HIcXTR"), problems, way_out=way_out)


def _true_times(wall: pd.DatetimeIndex, time_zone: str) -> tuple[np.ndarray, list[str]]:
    """UTC of wall-clock times, and notes on those that do not exist or exist twice."""
    earlier = wall.tz_localize(time_zone, ambiguous=np.ones(len(wall), bool), nonexistent="NaT")
    later = wall.tz_localize(time_zone, ambiguous=np.zeros(len(wall), bool), nonexistent="NaT")
    known, absent = np.asarray(wall.notna()), np.asarray(wall.notna()) & np.asarray(earlier.isna())
    n_twice = int((known & ~absent & np.asarray(earlier != later)).sum())
    notes = []
    if absent.any():
        earlier = wall.tz_localize(time_zone, ambiguous=np.ones(len(wall), bool), nonexistent="shift_forward")
        notes.append(f"times that do not exist (summer time begins), kept as written: {int(absent.sum()):,}")
    if n_twice:
        notes.append(f"times that exist twice (summer time ends), taken as the first: {n_twice:,}")
    return earlier.tz_convert("UTC").tz_localize(None).to_numpy("datetime64[s]"), notes
