"""Whether traces are sparse, which means that most instants of a person's active days were not recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces, TraceSet

SPARSE_SHARE, SPARSE_STEPS = 0.2, 0.3
"""Traces are sparse if `Sparsity.share` and `Sparsity.steps` are below these bounds."""


class Sparsity(NamedTuple):
    """Facts about traces; an active user-day is a day with an event in a trace of a user."""

    events_a_day: float  # events of an active user-day
    share: float  # share of the instants of active user-days that have an event
    steps: float  # of the events after the first of each trace, the share one instant after the event before

    @classmethod
    def of(cls, traces: TraceSet) -> Sparsity:
        """Count; the instants of a day are the instants that the time grid has on this day.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> facts = Sparsity.of(toy_city(n_users=20, missing=0.75, seed=0).traces)
        >>> round(facts.share, 1), facts.is_sparse
        (0.3, False)
        """
        day = traces.time_grid.day()

        def count(block: Traces) -> Int[np.ndarray, "4"]:
            of_event, gaps = day[block.instant], block.gaps()
            days = of_event[run_begins(block.user, block.trace, of_event)]
            return np.array([len(days), np.bincount(day)[days].sum(), (gaps == 1).sum(), len(gaps)])

        n_days, n_instants, n_steps, n_gaps = traces.blocks.map(count).total().tolist()
        return cls(traces.n_events / n_days, traces.n_events / n_instants, n_steps / max(n_gaps, 1))

    @property
    def is_sparse(self) -> bool:
        """Whether few instants of active days have events, and events seldom follow each other at successive instants.

        GPS recordings also cover only a small part of the day, but without gaps, so they are not sparse.
        """
        return self.share < SPARSE_SHARE and self.steps < SPARSE_STEPS
