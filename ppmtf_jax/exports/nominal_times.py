"""Moments of the instants of a time grid, for programs that know of calendars and time zones."""

from __future__ import annotations

from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import TimeGrid


def wall_clock(grid: TimeGrid, instants: np.ndarray) -> np.ndarray:
    """What the clocks show at some instants.

    Returns
    -------
    datetime64[ms] array, of the shape of `instants`

    Examples
    --------
    >>> grid = TimeGrid.each_instant("2024-01-01T09:00:00", 3600, 3, "Asia/Tokyo")
    >>> wall_clock(grid, np.array([2])).tolist()
    [datetime.datetime(2024, 1, 1, 11, 0)]
    """
    start = np.datetime64(grid.start).astype("datetime64[ms]")
    return start + 1000 * grid.step_s * np.asarray(instants, np.int64)


def zoned_times(local: np.ndarray, time_zone: str) -> pd.DatetimeIndex:
    """Wall-clock times as moments of a time zone.

    What clocks show twice when summer time ends is the first of the two. A nominal day may have times that clocks skip
    when summer time begins. Between the times around them there is no moment for these, so then all times get one
    offset, that of the first: what the clocks show, and the order, stay as they are.

    Parameters
    ----------
    local : datetime64 array, shape (times,)

    Examples
    --------
    >>> hours = np.array(["2024-03-10T01", "2024-03-10T03"], "datetime64[ms]")
    >>> [str(time) for time in zoned_times(hours, "America/New_York")]
    ['2024-03-10 01:00:00-05:00', '2024-03-10 03:00:00-04:00']
    >>> skipped = np.array(["2024-03-10T01", "2024-03-10T02", "2024-03-10T03"], "datetime64[ms]")
    >>> [str(time) for time in zoned_times(skipped, "America/New_York")]
    ['2024-03-10 01:00:00-05:00', '2024-03-10 02:00:00-05:00', '2024-03-10 03:00:00-05:00']
    """
    distinct, index = np.unique(local, return_inverse=True)
    times, zone = pd.DatetimeIndex(distinct), ZoneInfo(time_zone)
    zoned = _localized(times, zone)
    if zoned.hasnans:
        zoned = times.tz_localize(timezone(zone.utcoffset(times[0].to_pydatetime()) or timedelta()))
    return zoned.take(index)


def clocks_skip(local: np.ndarray, time_zone: str) -> bool:
    """Whether some of these times are never shown by the clocks of a zone.

    Examples
    --------
    >>> clocks_skip(np.array(["2024-03-10T02:30"], "datetime64[ms]"), "America/New_York")
    True
    """
    return bool(_localized(pd.DatetimeIndex(np.unique(local)), ZoneInfo(time_zone)).hasnans)


def _localized(times: pd.DatetimeIndex, zone: ZoneInfo) -> pd.DatetimeIndex:
    first_of_two = np.ones(len(times), bool)
    return times.tz_localize(zone, ambiguous=first_of_two, nonexistent="NaT")


def iso_texts(times: pd.Series) -> np.ndarray:
    """Zoned times as ISO 8601 with their offset, such as 2024-01-01T09:00:00+09:00.

    Returns
    -------
    array of str, shape (times,)
    """
    code, distinct = pd.factorize(times)
    texts = np.array([time.isoformat() for time in pd.DatetimeIndex(distinct)], object)
    return texts[code]
