"""Windows of training traces, each as long as a synthetic trace, and the share of returns in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ppmtf_jax.bridge.contributions import Rows, bounded_totals
from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.runs import Runs, run_begins
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


def share_of_returns(windows: Blocks[Traces]) -> float:
    """Share of returns among moves within windows.

    No user weighs more than the second heaviest user, neither in the number of returns nor in that of other moves. Half
    a return and half another move are added, so that the share is above 0 and below 1.
    """

    def rows(own: Traces) -> list[Rows]:
        runs = Runs.of(own.trace_of_event(), own.place)
        user, again = own.user[runs.first][runs.is_move()], runs.earlier()[runs.is_move()] >= 0
        cell = np.zeros(len(user), int)
        return [Rows(user[part], cell[part], cell[part], (1,)) for part in (~again, again)]

    n_other, n_return = (float(each.total[0]) for each in bounded_totals(windows.map(rows)))
    return (n_return + 0.5) / (n_return + n_other + 1)
