"""Whether traces are sparse: whether most of what people did on their active days was not recorded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.traces import Traces

SPARSE_SHARE, SPARSE_STEPS = 0.2, 0.3
"""Traces are sparse if both shares of `Sparsity` are below these bounds."""


class Sparsity(NamedTuple):
    """Facts about traces; an active user-day is a day of a user with an event."""

    events_a_day: float  # events of an active user-day
    share: float  # share of the instants of active user-days that have an event
    steps: float  # share of events that follow the event before them at the next instant

    @classmethod
    def of(cls, traces: Traces) -> Sparsity:
        """Count; instants are those that the time grid has on the day.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> facts = Sparsity.of(toy_city(n_users=20, missing=0.75, seed=0).traces)
        >>> round(facts.share, 1), facts.is_sparse
        (0.3, False)
        """
        day = traces.time_grid.day()
        days = np.unique(np.stack([traces.user, traces.trace, day[traces.instant]]), axis=1)[2]
        instants = np.bincount(day)[days].sum()
        gaps = traces.gaps()
        steps = (gaps == 1).sum() / max(len(gaps), 1)
        return cls(traces.n_events / len(days), traces.n_events / int(instants), float(steps))

    @property
    def is_sparse(self) -> bool:
        """Whether most of the day is missing, and what is there is no stretch of instants one after the other.

        Recordings of GPS cover a small part of the day too, but without gaps.
        """
        return self.share < SPARSE_SHARE and self.steps < SPARSE_STEPS
