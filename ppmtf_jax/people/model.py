"""Trace models of the bridge whose traces have memory: what is stored, sampled, scored and told in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.people.bins import DAYS_A_WEEK, HOME, MAX_DAYS, OTHER, SECOND
from ppmtf_jax.people.checkin_likelihood import log_windows
from ppmtf_jax.people.checkin_process import CheckinProcess, sample_window
from ppmtf_jax.people.clusters import cluster_sentences
from ppmtf_jax.people.likelihood import log_traces
from ppmtf_jax.people.process import PersonProcess, sample_life
from ppmtf_jax.people.selection import Memory, memory_sentence
from ppmtf_jax.people.user_bounds import CHECKIN_RULES, MOVE_RULE, PEOPLE_RULES, RULES
from ppmtf_jax.trace_models.base import ABSENT

SHARE_TOLERANCE = 1e-4
"""Maximum difference between a sum of shares and one, due to single precision."""
Process = TypeVar("Process", bound="RememberingBridge")
ANCHORS = ("home", "second", "home_pull", "second_pull", "anchor_between")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class RememberingBridge(PersonProcess):
    """Traces of synthetic people who remember where they were; see `PersonProcess` for the arrays."""

    goes_on: ClassVar[bool] = True
    completed_as: ClassVar = "person"
    padded: ClassVar[tuple[str, ...]] = ("clusters", "moves")
    rules: ClassVar[tuple[str, ...]] = (*RULES, *PEOPLE_RULES)
    n_levels: ClassVar[None] = None

    @classmethod
    def from_arrays(cls: type[Process], arrays: dict[str, np.ndarray]) -> Process:
        for name, known in (("cluster", "n_present"), ("slot_of_phase", "stay")):
            if arrays[name].max(initial=0) >= len(arrays[known]):
                raise ValueError(f"{name} beyond the last")
        longest = cls.longest_of(arrays)
        times, phases = len(arrays["stay_at_time"]), len(arrays["slot_of_phase"])
        if times == 0 or times % phases:
            raise ValueError(f"{times} times, which are not whole periods of {phases} instants")
        roles = arrays["role_first"].sum(axis=(0, 1)) > 0
        first = {OTHER: "first_other"}
        if present := [name for name in ANCHORS if name in arrays]:
            if len(present) < len(ANCHORS):
                raise ValueError(f"of the arrays of anchors only {', '.join(present)}")
            first |= {HOME: "home", SECOND: "second"}
        elif roles[[HOME, SECOND]].any() or arrays["role_next"][..., OTHER, :OTHER].any():
            raise ValueError("people at home or at a second place, but no arrays of anchors")
        for role, name in first.items():
            if roles[role] and not arrays[name].any(axis=1).all():
                raise ValueError(f"clusters without any place in {name!r}")
        remembered = {name: int(arrays[name]) for name in ("remembered",) if name in arrays}
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()} | remembered, longest=longest)

    @property
    def memory(self) -> Memory:
        """What people remember."""
        return "places" if self.home is None else "anchors"

    @property
    def kind_found(self) -> dict[str, str]:
        """The settings of the bridge that lead to this kind of model."""
        return {"memory": self.memory, "gaps": "none"}

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        return sample_life(self, key, self.cluster[user], n_instants)

    def log_traces(
        self, places: Int[np.ndarray, "trace instant"], classes: Int[np.ndarray, " class"], *, progress: bool = False
    ) -> Float[np.ndarray, "trace class"]:
        """Exact log-probability of each complete trace; for traces with gaps, see `likelihood.log_traces`."""
        if has_gaps := int((places == ABSENT).any(axis=1).sum()):
            raise InputError("traces", [Problem("complete traces", f"{has_gaps:,} traces with gaps")])
        return log_traces(self, places, classes, progress=progress)

    def log_own_class(
        self, places: Int[np.ndarray, "trace instant"], own_class: Int[np.ndarray, " trace"], *, progress: bool = False
    ) -> Float[np.ndarray, " trace"]:
        return log_traces(self, places, own_class, own=True, progress=progress)[:, 0]

    def summary(self) -> list[str]:
        lines = cluster_sentences(np.asarray(self.n_present))
        lines.append(memory_sentence(self.memory, self.memory_gain))
        if self.home is not None:
            share = 100 * float(np.average(np.asarray(self.second_share), weights=np.maximum(self.n_present, 1)))
            lines.append(f"{share:.0f} % of the people have a second place")
        if self.residual is not None:
            returns, distances = 100 * np.asarray(self.residual)
            lines.append(
                f"After calibration, the share of returns is {returns:.2g} percentage points from where it should be, "
                f"and {distances:.2g} % of the moves are over other distances than they should be"
            )
        return lines


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CheckinBridge(CheckinProcess):
    """Traces of people who check in now and then; see `CheckinProcess` for the arrays."""

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
        # Otherwise a person may have no place to go to, or no level, type or range.
        for name in ("visits", "near_last", "near_own"):
            if arrays[name].min() <= 0:
                raise ValueError(f"numbers in {name} that are not positive")
        for name in ("level_share", "type_share", "range_share", "reference"):
            if np.abs(arrays[name].sum(axis=-1) - 1).max() > SHARE_TOLERANCE:
                raise ValueError(f"shares in {name} that do not sum to one")
        n_instants, week = len(arrays["slot_of_instant"]), DAYS_A_WEEK * int(arrays["per_day"])
        if arrays["log_odds"].shape[1] != min(n_instants, week):
            raise ValueError("log_odds of other times than those of a week")
        return super().from_arrays(arrays)

    @property
    def n_levels(self) -> int:
        """Number of activity levels."""
        return self.level_share.shape[1]

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
            f"A trace has the check-ins of a synthetic person in {days}, with gaps, {why}. It does not tell where the "
            "person is between two check-ins",
        ]
