"""The clocks of a time zone: wall-clock times of true times, and the other way round, also where the clocks change."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import DAY_S
from ppmtf_jax.datasets.read import Rows


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


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


def sql_of_local_times(utc: str, time_zone: str, first_s: int, last_s: int) -> str:
    """SQL of wall-clock times in a zone."""
    first, changes = _changes(time_zone, first_s - DAY_S, last_s + DAY_S)
    cases = "".join(f"WHEN {utc} < {change} THEN {before} " for change, before, _ in changes)
    return f"{utc} + CASE {cases}ELSE {changes[-1][2]} END" if changes else f"{utc} + {first}"


def sql_of_true_times(rows: Rows, wall: str, time_zone: str, first_s: int, last_s: int) -> tuple[str, list[str]]:
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
        f"SELECT count(*) FILTER ({' OR '.join(absent)}), count(*) FILTER ({' OR '.join(twice)}) FROM clocked"
    )
    notes = []
    if n_absent:
        notes.append(f"times that do not exist (summer time begins), kept as written: {n_absent:,}")
    if n_twice:
        notes.append(f"times that exist twice (summer time ends), taken as the first: {n_twice:,}")
    return f"CASE {cases}ELSE ({wall}) - {changes[-1][2]} END", notes
