"""Uniform: every event at a uniformly drawn place, as lower reference for utility."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.base import Index, OneKey, ScoredTraceModel, StoredArray, stored

TITLE = "Every event at a uniformly drawn place, independent of the training data"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Uniform(ScoredTraceModel):
    """Independent uniform places, the same for every user."""

    n_places: int = stored(lambda n: StoredArray((), "int", n.places, n.places), static=True)

    def sample_first(self, key: OneKey, user: Index) -> Index:
        return jax.random.randint(key, (), 0, self.n_places)

    def sample_next(self, key: OneKey, user: Index, instant: Index, place: Index) -> Index:
        return self.sample_first(key, user)

    def user_cache(self, users: Int[Array, " user"]) -> Float[Array, " user"]:
        """Log-probability of every place."""
        return jnp.full(users.shape, -jnp.log(float(self.n_places)))

    def user_classes(self, n_users: int) -> Int[np.ndarray, " user"]:
        return np.zeros(n_users, int)

    def log_first(self, cache: Float[Array, ""], place: Index) -> Float[Array, ""]:
        return cache

    def log_next(self, cache: Float[Array, ""], instant: Index, place: Index, next_place: Index) -> Float[Array, ""]:
        return cache


@dataclass(frozen=True)
class UniformSettings(Settings):
    """Uniform has no settings."""


def fit_trace_model(train: Traces, *_: object) -> Uniform:
    """The uniform model over the places of `train`."""
    return Uniform(train.n_places)


SYNTHESIZERS.register(Synthesizer("uniform", TITLE, UniformSettings, fit_trace_model, Uniform))
