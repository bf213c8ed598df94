"""Instants and events of windows, counted by what the odds of an event depend on: hour, weekday, `since` and habit."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import csr_array, vstack

from ppmtf_jax.bridge.checkins.law import HOURS_A_DAY, N_HABITS, N_SINCE, hour_of_instants, since_and_habit
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.runtime.devices import round_up

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
        """Count in blocks of windows, so that no table of all windows x instants is made, except of booleans."""
        n_windows, n_instants = windows.n_windows, windows.grid.n_instants
        happens = np.zeros((n_windows, n_instants), bool)
        happens[windows.window, windows.instant] = True
        size = min(round_up(n_windows, steps=4), max(1, INSTANTS_AT_A_TIME // n_instants))
        hours, per_day = hour_of_week(windows.grid), DAY_S // windows.grid.step_s

        def codes(happens: Bool[np.ndarray, "window instant"]) -> Int[np.ndarray, "window instant"]:
            # Blocks have few different sizes, so that few programs are compiled.
            padded = happens[np.resize(np.arange(len(happens)), size)]
            return np.asarray(_codes(padded, hours, per_day))[: len(happens)]

        instants, events = [], []
        for first in range(0, n_windows, size):
            own = happens[first : first + size]
            code = codes(own)
            instants.append(_counts(np.arange(len(own))[:, None], code, len(own)))
            events.append(_counts(np.nonzero(own)[0], code[own], len(own)))
        without = np.bincount(codes(np.zeros((1, n_instants), bool))[0], minlength=N_CODES).astype(np.float64)
        both = (csr_array(vstack(parts, format="csr")) for parts in (instants, events))
        return cls(*both, without=without)


@partial(jax.jit, static_argnames="per_day")
def _codes(
    happens: Bool[Array, "window instant"], hour_of_week: Int[Array, " instant"], per_day: int
) -> Int[Array, "window instant"]:
    """Code of each instant of each window, see `TimeCells`."""
    since, habit = jax.vmap(partial(since_and_habit, per_day=per_day))(happens)
    return (hour_of_week * N_SINCE + since) * N_HABITS + habit


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
