"""Transition matrices of users by maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import sparse

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, Estimator, EstimatorSettings
from ppmtf_jax.attacks.scoring import count_pairs
from ppmtf_jax.data.traces import Traces


def ml_transitions(traces: Traces, over_gaps: bool = False) -> sparse.csr_array:
    """Transition matrix of each user by maximum likelihood, counts over row sums, as a row of `count_pairs`."""
    transitions = count_pairs(traces, traces.user, traces.n_users, over_gaps)
    user, pair = transitions.tocoo().coords
    _, row = np.unique(user.astype(np.int64) * traces.n_places + pair // traces.n_places, return_inverse=True)
    transitions.data /= np.bincount(row, weights=transitions.data)[row]
    return transitions


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """How often each user made each transition, as `count_pairs` gives it."""

    counts: sparse.csr_array
    n_places: int

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """See `PredictedCounts`; if a user has no transition from a place, the row of this place is 0."""
        return jnp.asarray(self.counts[users].toarray().reshape(len(users), self.n_places, self.n_places))


def _estimate(train: Traces, settings: EstimatorSettings, seed: int, progress: bool) -> TransitionCounts:
    return TransitionCounts(count_pairs(train, train.user, train.n_users).astype(np.float32), train.n_places)


ESTIMATORS.register(Estimator("ml", "Maximum likelihood", EstimatorSettings, _estimate))
