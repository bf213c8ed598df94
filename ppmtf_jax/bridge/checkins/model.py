"""Trace model of check-ins: its law, with the sampler and the likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.bridge.checkins.law import MAX_DAYS, CheckinLaw
from ppmtf_jax.bridge.checkins.likelihood import log_windows
from ppmtf_jax.bridge.checkins.sampling import sample_window
from ppmtf_jax.bridge.clusters import cluster_sentences
from ppmtf_jax.bridge.contributions import CHECKIN_RULES, MOVE_RULE, RULES
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import TimeGrid

DAYS_A_WEEK = 7
SHARE_TOLERANCE = 1e-4
"""Maximum difference between a sum of shares and one, due to single precision."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CheckinBridge(CheckinLaw):
    """Traces of people who check in now and then; see `CheckinLaw` for the arrays."""

    padded: ClassVar[tuple[str, ...]] = ("clusters",)
    rules: ClassVar[tuple[str, ...]] = (*(rule for rule in RULES if rule != MOVE_RULE), *CHECKIN_RULES)
    kind_found: ClassVar[dict[str, str]] = {"gaps": "as-observed"}

    @classmethod
    def grid_of_trace(cls, grid: TimeGrid) -> TimeGrid:
        """At most `MAX_DAYS` whole days from midnight on; see `TimeGrid.whole_days`."""
        return grid.whole_days(MAX_DAYS)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> CheckinBridge:
        """The model with these arrays; raises ValueError if the arrays do not fit each other."""
        for name, n_known in (("cluster", len(arrays["visits"])), ("cell", len(arrays["distance_bin"]))):
            if arrays[name].max() >= n_known:
                raise ValueError(f"{name} beyond the last")
        # Otherwise a person may have no place to go to, or no pace, type or range.
        for name in ("visits", "near_last", "near_own"):
            if arrays[name].min() <= 0:
                raise ValueError(f"numbers in {name} that are not positive")
        for name in ("pace_share", "type_share", "range_share", "reference"):
            if np.abs(arrays[name].sum(axis=-1) - 1).max() > SHARE_TOLERANCE:
                raise ValueError(f"shares in {name} that do not sum to one")
        n_instants, week = len(arrays["slot_of_instant"]), DAYS_A_WEEK * int(arrays["per_day"])
        if arrays["log_odds"].shape[1] != min(n_instants, week):
            raise ValueError("log_odds of other times than those of a week")
        return super().from_arrays(arrays)

    @property
    def n_paces(self) -> int:
        """Number of classes of pace."""
        return self.pace_share.shape[1]

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
        """As in `PersonModel`, but all classes are computed together, since they share most of the work."""
        classes, column = np.unique(own_class, return_inverse=True)
        return self.log_traces(places, classes, progress=progress)[np.arange(len(places)), column]

    def summary(self) -> list[str]:
        days = counted(len(self.slot_of_instant) // self.per_day, "day")
        why = "as the settings say"
        if self.facts is not None:
            events, share, steps = np.asarray(self.facts).tolist()
            why = (
                f"since the training traces are sparse: {events:.2g} events on a day with events ({100 * share:.2g} % "
                f"of its instants), and {100 * steps:.2g} % of the events follow an event at the instant before "
                "(the first event of each trace is not counted)"
            )
        calibrated = []
        if self.residual is not None:
            stays, returns, distances = 100 * np.asarray(self.residual)
            calibrated.append(
                f"After calibration, the shares of stays and of returns are {stays:.2g} and {returns:.2g} percentage "
                f"points from where they should be (mean over gaps), and {distances:.2g} % of the moves are over other "
                "distances than they should be"
            )
        return [
            *cluster_sentences(np.asarray(self.n_present)),
            *calibrated,
            f"A trace has the check-ins of a synthetic person in {days}, with gaps, {why}. It does not tell where she "
            "is between two check-ins",
        ]
