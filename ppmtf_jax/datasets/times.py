"""Times of tables of check-ins: from what a file holds to wall-clock times and true ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.datasets.tables import row_examples
from ppmtf_jax.datasets.time_texts import NUMBER, DayOrder, Shapes, TextTimes, read_time_texts
from ppmtf_jax.errors import Problem

# Seconds since 1970 of 1980 and 2100: years, dates such as 20240131 and times such as 20240131180000 lie outside,
# and so do those of one unit in another.
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 315_532_800, 4_102_444_800
EPOCH_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
# Dates and times in digits alone.
COMPACT = (b"99999999", b"99999999999999")


@dataclass(frozen=True, eq=False)
class Times:
    """Parsed times, shape (rows,): naive datetime64[s], not-a-time where they could not be parsed.

    `problems` are those of the column, `unparsed` those of its rows that are no times; `dates_only`: no row has a time
    of day.
    """

    local: np.ndarray
    utc: np.ndarray
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    unparsed: tuple[Problem, ...] = ()
    dates_only: bool = False


class _Written(NamedTuple):
    """Times by the clock of whoever wrote them, and how far that is from UTC where it is known."""

    wall: np.ndarray
    offset_s: np.ndarray
    has_offset: np.ndarray
    dates_only: bool = False
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    way_out: str = ""


def parse_times(
    column: pd.Series, time_zone: str | None, *, times_in: str | None = None, time_format: str | None = None
) -> Times:
    """Local wall-clock and true times of a column; see `read_checkins` for what is a time.

    Parameters
    ----------
    column : Series, shape (rows,)
    time_zone : str or None
        IANA name of the zone whose wall clock is wanted; None: that of `times_in`, or else UTC, and times without an
        offset are a problem.
    times_in : str, optional
        IANA name of the zone by whose clock times without an offset are written. Default: `time_zone`.
    time_format : str, optional
        How texts are written, as of `datetime.strptime`. Default: what the whole column can mean.

    Returns
    -------
    Times

    Examples
    --------
    >>> times = parse_times(pd.Series(["2012-04-03T18:00:00Z"]), "America/New_York")
    >>> str(times.local[0]), str(times.utc[0])
    ('2012-04-03T14:00:00', '2012-04-03T18:00:00')

    Days and months are told apart by the column, as here by the second row:

    >>> times = parse_times(pd.Series(["3/4/2012 6:00 PM", "13/4/2012 6:30 PM"]), "America/New_York", times_in="UTC")
    >>> times.local.astype(str).tolist()
    ['2012-04-03T14:00:00', '2012-04-13T14:30:00']
    """
    zones = dict.fromkeys(zone for zone in (time_zone, times_in) if zone is not None)
    problems = [problem for zone in zones for problem in zone_problems(zone)]
    column = column.infer_objects()
    written = _written(column, time_format)
    unparsed = _unparsed(column, written)
    problems += [*written.problems, *_offset_problems(column, written, time_zone, times_in)]
    utc = written.wall - written.offset_s.astype("timedelta64[s]")
    if problems:
        return Times(written.wall, utc, tuple(problems), written.notes, unparsed, written.dates_only)
    if written.has_offset[~np.isnat(written.wall)].all():
        local, notes = local_times(pd.DatetimeIndex(utc), time_zone or "UTC"), []
    else:
        clock = times_in or time_zone or "UTC"
        utc, notes = _true_times(pd.DatetimeIndex(written.wall), clock)
        same = time_zone is None or time_zone == clock
        local = written.wall if same else local_times(pd.DatetimeIndex(utc), time_zone)
    return Times(local, utc, (), (*written.notes, *notes), unparsed, written.dates_only)


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


def _written(column: pd.Series, time_format: str | None) -> _Written:
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _from_timestamps(column)
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return _from_epoch(pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan))
    if time_format is not None:
        return _by_format(column, time_format)
    shapes = Shapes.of(column)
    counts = shapes.counts()
    is_number = np.array([bool(NUMBER.fullmatch(shape)) and shape.strip() not in COMPACT for shape in shapes.shapes])
    if len(counts) and counts[is_number].sum() > counts.sum() / 2:
        return _from_epoch(pd.to_numeric(column.astype("str"), errors="coerce").to_numpy(np.float64, na_value=np.nan))
    return _from_texts(column, read_time_texts(shapes))


def _from_timestamps(column: pd.Series) -> _Written:
    zoned = column.dt.tz is not None
    utc = pd.DatetimeIndex(column)
    utc = utc.tz_convert("UTC").tz_localize(None) if zoned else utc
    wall = utc.as_unit("s").to_numpy("datetime64[s]")
    n = len(wall)
    return _Written(wall, np.zeros(n, np.int32), np.full(n, zoned), _all_at_midnight(wall))


def _from_epoch(number: np.ndarray) -> _Written:
    """Numbers since 1970, in the unit in which most of them are from 1980 to 2100."""
    ranges = {unit: (EARLIEST_EPOCH_S * per_s, LATEST_EPOCH_S * per_s) for unit, per_s in EPOCH_UNITS.items()}
    fits = {unit: (number >= low) & (number <= high) for unit, (low, high) in ranges.items()}
    unit = max(fits, key=lambda unit: int(fits[unit].sum()))
    good, n = fits[unit], len(number)
    wall = np.floor(np.where(good, number, 0) / EPOCH_UNITS[unit]).astype(np.int64).astype("datetime64[s]")
    wall[~good] = np.datetime64("NaT")
    notes = () if unit == "seconds" else (f"times are {unit} since 1970",)
    way_out = f"Numbers are {unit} since 1970, from 1980 to 2100; write dates as 2012-04-03"
    every = np.ones(n, bool)
    return _Written(wall, np.zeros(n, np.int32), every, _all_at_midnight(wall), notes=notes, way_out=way_out)


def _from_texts(column: pd.Series, times: TextTimes) -> _Written:
    known = ~np.isnat(times.wall)
    dates_only = bool(known.any() and not times.has_clock[known].any()) or _all_at_midnight(times.wall)
    problems = _day_order_problems(column, times.day_order)
    notes = tuple(f"dates are read as {layout}" for layout in times.layouts)
    way_out = (
        "Write times as 2012-04-03T18:00:00, 2012-04-03T18:00:00-04:00 or in seconds since 1970, or tell how they are "
        "written, such as time_format='%d.%m.%Y %H:%M'"
    )
    return _Written(times.wall, times.offset_s, times.has_offset, dates_only, problems, notes, way_out)


def _day_order_problems(column: pd.Series, order: DayOrder) -> tuple[Problem, ...]:
    if not (order.is_mixed or not order.is_known):
        return ()
    way_out = "Tell which comes first, such as time_format='%d/%m/%Y %H:%M' or time_format='%m/%d/%Y %H:%M'"
    examples = row_examples(column, np.array(order.rows))
    if order.is_mixed:
        found = f"{order.n_day_first:,} with the day first and {order.n_month_first:,} with the month first"
        return (Problem("dates all in one order", found, examples=examples, way_out=way_out),)
    expected, found = "dates that tell day and month apart", "none after the 12th of a month"
    return (Problem(expected, found, order.n_either, examples, way_out),)


def _by_format(column: pd.Series, time_format: str) -> _Written:
    text = column.astype("str").str.strip()
    n, has_offset = len(text), "%z" in time_format
    directives = set(re.findall(r"%-?([A-Za-z])", time_format))
    problems = []
    try:
        if not directives or "Z" in directives:
            raise ValueError("no directives such as %d, or %Z, which names no time")
        parsed = pd.DatetimeIndex(pd.to_datetime(text, format=time_format, utc=has_offset, errors="coerce"))
        wall = (parsed.tz_localize(None) if has_offset else parsed).as_unit("s").to_numpy("datetime64[s]")
    except (ValueError, TypeError) as error:
        wall = np.full(n, "NaT", "datetime64[s]")
        problems.append(Problem("time_format as of strptime, such as '%d.%m.%Y %H:%M'", f"{time_format!r}: {error}"))
    dates_only = not directives & set("HIcXTR") or _all_at_midnight(wall)
    way_out = f"They are read as time_format={time_format!r}"
    written = np.zeros(n, np.int32), np.full(n, has_offset)
    return _Written(wall, *written, dates_only, tuple(problems), way_out=way_out)


def _all_at_midnight(wall: np.ndarray) -> bool:
    """Whether several different times are all at midnight, as where dates were stored as times."""
    seconds = wall[~np.isnat(wall)].astype(np.int64)
    return bool(len(seconds)) and not (seconds % DAY_S).any() and bool(seconds.min() < seconds.max())


def _unparsed(column: pd.Series, written: _Written) -> tuple[Problem, ...]:
    rows = np.flatnonzero(np.isnat(written.wall))
    if not len(rows):
        return ()
    examples = row_examples(column, rows)
    return (Problem("times that can be parsed", "others", len(rows), examples, written.way_out),)


def _offset_problems(
    column: pd.Series, written: _Written, time_zone: str | None, times_in: str | None
) -> list[Problem]:
    known = ~np.isnat(written.wall)
    naive, absolute = known & ~written.has_offset, known & written.has_offset
    problems = []
    if naive.any() and time_zone is None and times_in is None:
        expected, examples = "a time zone, for times without an offset", row_examples(column, np.flatnonzero(naive))
        way_out = "Name the zone by whose clock they are, such as time_zone='Europe/Paris'"
        problems.append(Problem(expected, "none", int(naive.sum()), examples, way_out))
    if naive.any() and absolute.any():
        counts = f"{int(naive.sum())} without and {int(absolute.sum())} with one"
        problems.append(Problem("times all with an offset or all without", counts))
    elif absolute.any() and times_in is not None:
        expected = f"times without an offset, which times_in={times_in!r} is for"
        way_out = "Leave it out: these times tell their offset, or count from 1970 in UTC"
        rows = np.flatnonzero(absolute)
        problems.append(Problem(expected, "times with one", len(rows), row_examples(column, rows), way_out))
    return problems


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
