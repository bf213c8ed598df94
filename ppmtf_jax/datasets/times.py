"""Times of tables of check-ins: from what a file holds to wall-clock times and true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.datasets.tables import row_examples
from ppmtf_jax.errors import Problem

# Seconds since 1970 of 1980 and 2100: years, dates such as 20240131 and milliseconds lie outside.
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 315_532_800, 4_102_444_800
OFFSET = r"\d:\d\d.*(?:Z|z|[+-]\d\d(?::?\d\d)?)\s*$"


@dataclass(frozen=True, eq=False)
class Times:
    """Parsed times, shape (rows,): naive datetime64[s], not-a-time where they could not be parsed."""

    local: np.ndarray
    utc: np.ndarray
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def parse_times(column: pd.Series, time_zone: str | None) -> Times:
    """Local wall-clock and true times of a column of ISO times, epoch seconds or timestamps; see `read_checkins`.

    Parameters
    ----------
    column : Series, shape (rows,)
    time_zone : str or None
        IANA name of the zone whose wall clock is wanted; None: UTC, and times without an offset are a problem.

    Returns
    -------
    Times

    Examples
    --------
    >>> times = parse_times(pd.Series(["2012-04-03T18:00:00Z"]), "America/New_York")
    >>> str(times.local[0]), str(times.utc[0])
    ('2012-04-03T14:00:00', '2012-04-03T18:00:00')
    """
    problems = [] if time_zone is None else zone_problems(time_zone)
    column = column.infer_objects()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        has_offset = np.full(len(column), column.dt.tz is not None)
        parsed = pd.DatetimeIndex(column)
        parsed = parsed.tz_convert("UTC") if parsed.tz is not None else parsed.tz_localize("UTC")
        way_out = ""
    elif _is_epoch(column):
        parsed, has_offset, way_out = _parse_epoch(column)
    else:
        # In pandas 3 text is of the type `str`; an object column may hold anything.
        text = column.astype("str")
        has_offset = text.str.contains(OFFSET, regex=True).fillna(False).to_numpy(bool)
        parsed = pd.DatetimeIndex(pd.to_datetime(text.str.strip(), format="ISO8601", utc=True, errors="coerce"))
        way_out = "Write times as 2012-04-03T18:00:00, 2012-04-03T18:00:00-04:00 or in seconds since 1970"
    parsed = parsed.as_unit("s").tz_localize(None)
    bad = np.asarray(parsed.isna())
    if bad.any():
        rows = np.flatnonzero(bad)
        examples = row_examples(column, rows)
        problems.append(Problem("times that can be parsed", "others", len(rows), examples, way_out))
    naive = ~bad & ~has_offset
    if naive.any() and time_zone is None:
        expected, examples = "a time zone, for times without an offset", row_examples(column, np.flatnonzero(naive))
        way_out = "Name the zone, such as time_zone='Europe/Paris'"
        problems.append(Problem(expected, "none", int(naive.sum()), examples, way_out))
    if naive.any() and (has_offset & ~bad).any():
        counts = f"{int(naive.sum())} without and {int((has_offset & ~bad).sum())} with one"
        problems.append(Problem("times all with an offset or all without", counts))
    if problems:
        return Times(parsed.to_numpy("datetime64[s]"), parsed.to_numpy("datetime64[s]"), tuple(problems))
    if naive.any():
        return _from_wall_clock(parsed, time_zone)
    return Times(local_times(parsed, time_zone or "UTC"), parsed.to_numpy("datetime64[s]"))


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


def _is_epoch(column: pd.Series) -> bool:
    """Whether the column holds numbers; the first value decides."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return not pd.api.types.is_bool_dtype(column.dtype)
    first = column.first_valid_index()
    return first is not None and bool(pd.notna(pd.to_numeric(str(column[first]), errors="coerce")))


def _parse_epoch(column: pd.Series) -> tuple[pd.DatetimeIndex, np.ndarray, str]:
    seconds = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    plausible = (seconds >= EARLIEST_EPOCH_S) & (seconds <= LATEST_EPOCH_S)
    values = np.where(plausible, np.floor(np.where(plausible, seconds, 0)), 0).astype(np.int64).astype("datetime64[s]")
    values[~plausible] = np.datetime64("NaT")
    way_out = "Epoch times are in seconds, from 1980 to 2100; divide milliseconds by 1000, write dates as 2012-04-03"
    return pd.DatetimeIndex(values).tz_localize("UTC"), np.ones(len(column), bool), way_out


def _from_wall_clock(wall: pd.DatetimeIndex, time_zone: str) -> Times:
    earlier = wall.tz_localize(time_zone, ambiguous=np.ones(len(wall), bool), nonexistent="NaT")
    later = wall.tz_localize(time_zone, ambiguous=np.zeros(len(wall), bool), nonexistent="NaT")
    absent = np.asarray(earlier.isna())
    n_twice = int((~absent & np.asarray(earlier != later)).sum())
    notes = []
    if absent.any():
        earlier = wall.tz_localize(time_zone, ambiguous=np.ones(len(wall), bool), nonexistent="shift_forward")
        notes.append(f"times that do not exist (summer time begins), kept as written: {int(absent.sum()):,}")
    if n_twice:
        notes.append(f"times that exist twice (summer time ends), taken as the first: {n_twice:,}")
    utc = earlier.tz_convert("UTC").tz_localize(None).to_numpy("datetime64[s]")
    return Times(wall.to_numpy("datetime64[s]"), utc, notes=tuple(notes))
