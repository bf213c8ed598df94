"""Trace model of check-ins: its law, with the sampler and the likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.bridge.checkins.law import MOST_DAYS, CheckinLaw
from ppmtf_jax.bridge.checkins.likelihood import log_windows
from ppmtf_jax.bridge.checkins.sampling import sample_window
from ppmtf_jax.data.time_grid import TimeGrid


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CheckinBridge(CheckinLaw):
    """Traces of people who check in now and then; see `CheckinLaw` for the arrays."""

    @classmethod
    def grid_of_trace(cls, grid: TimeGrid) -> TimeGrid:
        """At most `MOST_DAYS` whole days from midnight on; see `TimeGrid.whole_days`."""
        return grid.whole_days(MOST_DAYS)

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """The users' clusters: every trace is equally probable for all users of a cluster."""
        return np.asarray(self.cluster)[:n_users]

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        return sample_window(self, key, self.cluster[user], n_instants)

    def log_traces(
        self,
        places: Int[np.ndarray, "trace instant"],
        classes: Int[np.ndarray, " class"],
        *,
        progress: bool = False,
    ) -> Float[np.ndarray, "trace class"]:
        return log_windows(self, places, classes, progress=progress)

    def log_own_class(
        self,
        places: Int[np.ndarray, "trace instant"],
        own_class: Int[np.ndarray, " trace"],
        *,
        progress: bool = False,
    ) -> Float[np.ndarray, " trace"]:
        """Computes all classes together, since these share most of the work."""
        classes, column = np.unique(own_class, return_inverse=True)
        return self.log_traces(places, classes, progress=progress)[np.arange(len(places)), column]
