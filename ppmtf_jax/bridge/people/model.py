"""Trace model of the remembering bridge: its law, with the sampler."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.bridge.people.law import PersonLaw
from ppmtf_jax.bridge.people.steps import PersonState, advance, begin


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class RememberingBridge(PersonLaw):
    """Traces of people who remember; see `PersonLaw` for the arrays and `steps` for the sampler."""

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> RememberingBridge:
        longest = max(1, int(np.diff(arrays["move_start"]).max()))
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()}, longest=longest)

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        def step(state: PersonState, instant: Array) -> tuple[PersonState, Array]:
            following = advance(self, key, state, instant)
            return following, following.place

        first = begin(self, key, self.cluster[user])
        rest = jax.lax.scan(step, first, jnp.arange(1, n_instants))[1]
        return jnp.concatenate([first.place[None], rest])

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        """The users' clusters: every trace is equally probable for all users of a cluster."""
        return np.asarray(self.cluster)[:n_users]

    def log_traces(
        self,
        places: Int[np.ndarray, "trace instant"],
        classes: Int[np.ndarray, " class"],
        *,
        progress: bool = False,
    ) -> Float[np.ndarray, "trace class"]:
        raise NotImplementedError
