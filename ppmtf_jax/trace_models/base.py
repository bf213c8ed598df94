"""What a synthesizer ends in: for each user a Markov chain over places, inhomogeneous in time."""

from __future__ import annotations

import abc
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key


class TraceModel(abc.ABC):
    """For each user a Markov chain over places, inhomogeneous in time. A JAX pytree; all methods can be vmapped.

    Users, places and instants are indices; instant 0 is that of the first event.
    """

    @abc.abstractmethod
    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        """Draw the place at instant 0."""

    @abc.abstractmethod
    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        """Draw the place at `instant`, given `place` at the instant before."""

    @abc.abstractmethod
    def tables(self, users: Int[Array, " user"]) -> Any:
        """What the log-probabilities of some users need again and again: arrays with the users along the last axis.

        So that what is done for a block of users is done side by side, and moves as one piece of memory.
        """

    @abc.abstractmethod
    def log_first(self, tables: Any, place: Int[Array, ""]) -> Float[Array, ""]:
        """Log-probability of `place` at instant 0, given the tables of one user."""

    @abc.abstractmethod
    def log_next(
        self, tables: Any, instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        """Log-probability of `next_place` at `instant`, given `place` before and the tables of one user."""

    # The rest is for speed: a model that can do better than the default overrides it.

    def phases(self, n_instants: int) -> np.ndarray:
        """A number for each instant; where two have the same, steps at them are equally probable for every user."""
        return np.arange(n_instants)

    def log_moves(
        self,
        tables: Any,
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Float[Array, "step user"]:
        """`log_next` of many steps, each to another place, for all users of the tables."""
        over_users = jax.vmap(self.log_next, (-1, None, None, None))
        return jax.vmap(over_users, (None, 0, 0, 0))(tables, instants, places, next_places)

    def log_stays(
        self, tables: Any, instants: Int[Array, " step"], places: Int[Array, " step"]
    ) -> Float[Array, "step user"]:
        """`log_next` of many steps that stay, sorted by place, for all users of the tables."""
        return self.log_moves(tables, instants, places, places)

    @abc.abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """What a model folder stores."""

    @classmethod
    @abc.abstractmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> TraceModel:
        """The inverse of `to_arrays`."""
