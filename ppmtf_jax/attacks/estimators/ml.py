"""Transition matrices of users by maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, Estimator, EstimatorSettings
from ppmtf_jax.attacks.scoring import count_pairs
from ppmtf_jax.data.traces import Traces


@dataclass(frozen=True, eq=False)
class UserTransitions:
    """The transition matrix of each user, positive entries only.

    `user` and `pair` are those of `count_pairs`.
    """

    user: np.ndarray
    pair: np.ndarray
    probability: np.ndarray
    n_users: int

    def at_pairs(self, pairs: np.ndarray) -> tuple[np.ndarray, UserTransitions]:
        """Select the entries at the given sorted pairs; also give the index of each entry in `pairs`."""
        row = np.searchsorted(pairs, self.pair)
        found = np.zeros(len(row), bool)
        inside = row < len(pairs)
        found[inside] = pairs[row[inside]] == self.pair[inside]
        kept = UserTransitions(self.user[found], self.pair[found], self.probability[found], self.n_users)
        return row[found], kept


def ml_transitions(traces: Traces) -> UserTransitions:
    """Transition matrix of each user by maximum likelihood: counts over row sums."""
    user, pair, count = count_pairs(traces, traces.user)
    row = user.astype(np.int64) * traces.n_places + pair // traces.n_places
    _, row = np.unique(row, return_inverse=True)
    total = np.bincount(row, weights=count)
    return UserTransitions(user, pair, count / total[row], traces.n_users)


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """How often each user made each transition, as `count_pairs` gives it."""

    user: np.ndarray
    pair: np.ndarray
    count: np.ndarray
    n_users: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces) -> TransitionCounts:
        """Count the transitions of traces."""
        return cls(*count_pairs(traces, traces.user), traces.n_users, traces.n_places)

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """See `PredictedCounts`; the row of a place that a user never left is 0."""
        first, stop = np.searchsorted(self.user, users), np.searchsorted(self.user, users, side="right")
        n_entries = stop - first
        row = np.repeat(np.arange(len(users)), n_entries)
        entry = np.arange(n_entries.sum()) + np.repeat(first - np.cumsum(n_entries) + n_entries, n_entries)
        dense = np.zeros((len(users), self.n_places**2), np.float32)
        dense[row, self.pair[entry]] = self.count[entry]
        return jnp.asarray(dense.reshape(len(users), self.n_places, self.n_places))


def _estimate(train: Traces, settings: EstimatorSettings, seed: int, progress: bool) -> TransitionCounts:
    return TransitionCounts.of(train)


ESTIMATORS.register(Estimator("ml", "Maximum likelihood", EstimatorSettings, _estimate))
