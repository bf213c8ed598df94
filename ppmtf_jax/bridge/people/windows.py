"""Windows of training traces, each as long as a synthetic trace, and the runs of events at one place in them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.bridge.contributions import Rows, bounded_totals
from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.traces import Traces


def windows_of(traces: Traces, n_periods: int) -> Traces:
    """Cut the traces every `n_periods` periods of the time grid, and number the windows of each user from 0.

    A synthetic person begins to remember, and to count her time at a place, at the first instant of her trace. So what
    the model learns about memory comes from windows, whose memory also begins at their first instant.
    """
    block = traces.instant // (n_periods * traces.time_grid.period)
    piece = np.cumsum(run_begins(traces.user, traces.trace, block)) - 1
    first_of_user = np.searchsorted(traces.user, np.arange(traces.n_users))
    return replace(traces, trace=(piece - np.append(piece, 0)[first_of_user][traces.user]).astype(np.int32))


class Runs(NamedTuple):
    """Runs of events of one window at one place; a gap between two events at the same place does not end the run."""

    window: Int[np.ndarray, " run"]  # sorted
    event: Int[np.ndarray, " run"]  # index of the run's first event
    place: Int[np.ndarray, " run"]

    @classmethod
    def of(cls, window: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Runs:
        """The runs of events, which are sorted by window and time."""
        event = np.flatnonzero(run_begins(window, place))
        return cls(window[event], event, place[event])

    @property
    def is_move(self) -> Bool[np.ndarray, " run"]:
        """Whether the person came from another place of the window."""
        return ~run_begins(self.window)

    def place_before(self, n_runs: int) -> Int[np.ndarray, " run"]:
        """Place of the run `n_runs` runs earlier in the window; -1 without such a run."""
        before = np.roll(self.place, n_runs)
        return np.where(rank_in_run(self.window) >= n_runs, before, -1)

    def is_return(self) -> Bool[np.ndarray, " run"]:
        """Whether the person was at the place earlier in the window."""
        order = np.lexsort((self.event, self.place, self.window))
        again = np.empty(len(order), bool)
        again[order] = ~run_begins(self.window[order], self.place[order])
        return again


def share_of_returns(windows: Blocks[Traces]) -> float:
    """Share of returns among moves within windows.

    No user weighs more than the second heaviest user, neither in the number of returns nor in that of other moves. Half
    a return and half another move are added, so that the share is above 0 and below 1.
    """

    def rows(own: Traces) -> list[Rows]:
        runs = Runs.of(own.trace_of_event(), own.place)
        user, again = own.user[runs.event][runs.is_move], runs.is_return()[runs.is_move]
        cell = np.zeros(len(user), int)
        return [Rows(user[part], cell[part], cell[part], (1,)) for part in (~again, again)]

    n_other, n_return = (float(each.total[0]) for each in bounded_totals(windows.map(rows)))
    return (n_return + 0.5) / (n_return + n_other + 1)
