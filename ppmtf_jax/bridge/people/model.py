"""Trace model of the remembering bridge: the law, its sampler and its exact probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.bridge.clusters import cluster_sentences
from ppmtf_jax.bridge.contributions import PEOPLE_RULES, RULES
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND, PersonLaw
from ppmtf_jax.bridge.people.likelihood import log_own_cluster, log_traces
from ppmtf_jax.bridge.people.steps import PersonState, advance, begin
from ppmtf_jax.bridge.selection import Memory, memory_sentence
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.trace_models.base import ABSENT

Law = TypeVar("Law", bound="RememberingBridge")
ANCHORS = ("home", "second", "home_pull", "second_pull", "anchor_between")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class RememberingBridge(PersonLaw):
    """Traces of synthetic people who remember where they were; see `PersonLaw` for the arrays."""

    goes_on: ClassVar[bool] = True
    completed_as: ClassVar = "person"
    padded: ClassVar[tuple[str, ...]] = ("clusters", "moves")
    rules: ClassVar[tuple[str, ...]] = (*RULES, *PEOPLE_RULES)
    n_paces: ClassVar[None] = None

    @classmethod
    def from_arrays(cls: type[Law], arrays: dict[str, np.ndarray]) -> Law:
        for name, known in (("cluster", "n_present"), ("slot_of_phase", "stay")):
            if arrays[name].max(initial=0) >= len(arrays[known]):
                raise ValueError(f"{name} beyond the last")
        longest = cls.longest_of(arrays)
        times, phases = len(arrays["stay_at_time"]), len(arrays["slot_of_phase"])
        if times == 0 or times % phases:
            raise ValueError(f"{times} times, which are not whole periods of {phases} instants")
        layers = arrays["layer_first"].sum(axis=(0, 1)) > 0
        first = {ELSEWHERE: "first_elsewhere"}
        if present := [name for name in ANCHORS if name in arrays]:
            if len(present) < len(ANCHORS):
                raise ValueError(f"of the arrays of anchors only {', '.join(present)}")
            first |= {HOME: "home", SECOND: "second"}
        elif layers[[HOME, SECOND]].any() or arrays["layer_next"][..., ELSEWHERE, :ELSEWHERE].any():
            raise ValueError("people at home or at a second place, but no arrays of anchors")
        for layer, name in first.items():
            if layers[layer] and not arrays[name].any(axis=1).all():
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
        return self.sample_person(key, begin(self, key, self.cluster[user]), n_instants)

    def sample_person(self, key: Key[Array, ""], first: PersonState, n_instants: int) -> Int[Array, " instant"]:
        """Draw the places of a person, int32; `first`: how she begins."""

        def step(state: PersonState, instant: Array) -> tuple[PersonState, Array]:
            following = advance(self, key, state, instant)
            return following, following.place

        rest = jax.lax.scan(step, first, jnp.arange(1, n_instants))[1]
        return jnp.concatenate([first.place[None], rest])

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
        return log_own_cluster(self, places, own_class, progress=progress)

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
