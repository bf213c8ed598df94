"""The instants of a time grid as calendar times with a time zone."""

from __future__ import annotations

from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import TimeGrid


def wall_clock(grid: TimeGrid, instants: np.ndarray) -> np.ndarray:
    """Local clock times of instants, datetime64[ms] without a zone."""
    start = np.datetime64(grid.start).astype("datetime64[ms]")
    return start + 1000 * grid.step_s * np.asarray(instants, np.int64)


def zoned_times(local: np.ndarray, time_zone: str) -> pd.DatetimeIndex:
    """Local clock times (datetime64) as times of a time zone.

    A time that occurs twice when summer time ends is the first of the two. A nominal day may have times that do not
    exist, because clocks skip them when summer time begins. Then all times get the offset of the first time, so that
    clock times and their order stay unchanged.

    Examples
    --------
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
    """Whether some of these local times do not exist in a zone."""
    return bool(_localized(pd.DatetimeIndex(np.unique(local)), ZoneInfo(time_zone)).hasnans)


def _localized(times: pd.DatetimeIndex, zone: ZoneInfo) -> pd.DatetimeIndex:
    first_of_two = np.ones(len(times), bool)
    return times.tz_localize(zone, ambiguous=first_of_two, nonexistent="NaT")


def iso_texts(times: pd.Series) -> np.ndarray:
    """Zoned times as ISO 8601 with their offset, such as 2024-01-01T09:00:00+09:00."""
    code, distinct = pd.factorize(times)
    texts = np.array([time.isoformat() for time in pd.DatetimeIndex(distinct)], object)
    return texts[code]
