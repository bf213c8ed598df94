"""Instants and events of windows, counted by what the odds of an event depend on: hour, weekday, `since` and habit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, vstack

from ppmtf_jax.bridge.checkins.law import (
    HOURS_A_DAY,
    N_HABITS,
    N_SINCE,
    NONE_YET,
    NONE_YET_LATER,
    SINCE_FROM_H,
    bins_of_instants,
    habit_bin,
    hour_of_instants,
)
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid

DAYS_A_WEEK = 7
INSTANTS_AT_A_TIME = 2**20
N_CODES = DAYS_A_WEEK * HOURS_A_DAY * N_SINCE * N_HABITS


class TimeCells(NamedTuple):
    """Numbers of instants and of events, by ((weekday * 24 + hour) * N_SINCE + since) * N_HABITS + habit: the code.

    They are in single precision, since products with them take most of the time of a fit.
    """

    instants: csr_array  # (window, code)
    events: csr_array  # (window, code)
    without: Float[np.ndarray, " code"]  # instants of a window without events

    @classmethod
    def of(cls, windows: ObservedWindows) -> TimeCells:
        """Count in blocks of windows, so that no table of all windows x instants is made."""
        instants, events = [], []
        at_a_time = max(1, INSTANTS_AT_A_TIME // windows.grid.n_instants)
        begin = np.searchsorted(windows.window, np.arange(windows.n_windows + 1))
        for first in range(0, windows.n_windows, at_a_time):
            last = min(first + at_a_time, windows.n_windows)
            own = slice(begin[first], begin[last])
            row = windows.window[own] - first
            code = _codes(row, windows.instant[own], last - first, windows.grid)
            instants.append(_counts(np.arange(last - first)[:, None], code, last - first))
            events.append(_counts(row, code[row, windows.instant[own]], last - first))
        nothing = np.zeros(0, np.int64)
        without = np.bincount(_codes(nothing, nothing, 1, windows.grid)[0], minlength=N_CODES).astype(np.float64)
        both = (csr_array(vstack(parts, format="csr")) for parts in (instants, events))
        return cls(*both, without=without)


def _codes(
    window: Int[np.ndarray, " event"], instant: Int[np.ndarray, " event"], n_windows: int, grid: TimeGrid
) -> Int[np.ndarray, "window instant"]:
    """Code of each instant of each window, see `TimeCells`."""
    n_instants, per_day = grid.n_instants, DAY_S // grid.step_s
    happens = np.zeros((n_windows, n_instants), bool)
    happens[window, instant] = True
    at = np.arange(n_instants)
    last = np.maximum.accumulate(np.where(happens, at, -1), axis=1)
    last = np.concatenate([np.full((n_windows, 1), -1), last[:, :-1]], axis=1)
    none_yet = np.where(at < per_day, NONE_YET, NONE_YET_LATER)
    since = np.where(last < 0, none_yet, bins_of_instants(SINCE_FROM_H, per_day, n_instants + 1)[at - last])
    before = np.cumsum(happens, axis=1) - happens
    near = _near_on_days_before(window, instant, n_windows, grid)[
        :, at // per_day, hour_of_instants(per_day, n_instants)
    ]
    return (hour_of_week(grid) * N_SINCE + since) * N_HABITS + np.asarray(habit_bin(near, before))


def _near_on_days_before(
    window: Int[np.ndarray, " event"], instant: Int[np.ndarray, " event"], n_windows: int, grid: TimeGrid
) -> Int[np.ndarray, "window day hour"]:
    """Number of events on earlier days at this hour, the hour before and the hour after."""
    per_day = DAY_S // grid.step_s
    n_days = grid.n_instants // per_day
    happens = np.zeros((n_windows, n_days, HOURS_A_DAY), np.int32)
    np.add.at(happens, (window, instant // per_day, hour_of_instants(per_day, grid.n_instants)[instant]), 1)
    earlier = np.cumsum(happens, axis=1) - happens
    return earlier + np.roll(earlier, 1, axis=2) + np.roll(earlier, -1, axis=2)


def hour_of_week(grid: TimeGrid) -> Int[np.ndarray, " instant"]:
    """Weekday x 24 + hour of the day of each instant of a window; Monday is 0."""
    per_day = DAY_S // grid.step_s
    weekday = (np.arange(grid.n_instants) // per_day + grid.time_of(0).weekday()) % DAYS_A_WEEK
    return weekday * HOURS_A_DAY + hour_of_instants(per_day, grid.n_instants)


def _counts(row: Int[np.ndarray, "..."], code: Int[np.ndarray, "..."], n_rows: int) -> csr_array:
    """Sparse table of the numbers of entries of each row and code."""
    which, count = np.unique(row * N_CODES + code, return_counts=True)
    of_row, of_code = np.divmod(which, N_CODES)
    begin = np.searchsorted(of_row, np.arange(n_rows + 1))
    # Also indices of 32 bits, because products with the table take as long as reading it.
    parts = count.astype(np.float32), of_code.astype(np.int32), begin.astype(np.int32)
    return csr_array(parts, shape=(n_rows, N_CODES))
