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

    Parameters
    ----------
    user : int array, shape (entries,)
    pair : int64 array, shape (entries,)
        Place times places plus next place.
    probability : float64 array, shape (entries,)
        Of the next place given the place, in (0, 1].
    n_users : int
    """

    user: np.ndarray
    pair: np.ndarray
    probability: np.ndarray
    n_users: int

    def at_pairs(self, pairs: np.ndarray) -> tuple[np.ndarray, UserTransitions]:
        """The entries at the given sorted pairs: the row of each in `pairs`, and the entries."""
        row = np.searchsorted(pairs, self.pair)
        found = np.zeros(len(row), bool)
        inside = row < len(pairs)
        found[inside] = pairs[row[inside]] == self.pair[inside]
        kept = UserTransitions(self.user[found], self.pair[found], self.probability[found], self.n_users)
        return row[found], kept


def ml_transitions(traces: Traces) -> UserTransitions:
    """Transition matrix of each user by maximum likelihood: counts over row sums.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> estimates = ml_transitions(toy_city(n_users=3, seed=0).traces)
    >>> estimates.n_users, float(estimates.probability.max()) <= 1
    (3, True)
    """
    user, pair, count = count_pairs(traces, traces.user)
    row = user.astype(np.int64) * traces.n_places + pair // traces.n_places
    _, row = np.unique(row, return_inverse=True)
    total = np.bincount(row, weights=count)
    return UserTransitions(user, pair, count / total[row], traces.n_users)


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """How often each user made each transition, sorted by user.

    Parameters
    ----------
    user, pair, count : int64 arrays, shape (entries,)
        Of `count_pairs`.
    n_users, n_places : int

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=3, n_places=20, seed=0).traces
    >>> counts = TransitionCounts.of(traces).of_users(np.arange(3))
    >>> counts.shape, int(counts.sum()) == len(traces.transitions().event)
    ((3, 20, 20), True)
    """

    user: np.ndarray
    pair: np.ndarray
    count: np.ndarray
    n_users: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces) -> TransitionCounts:
        """Those of traces."""
        return cls(*count_pairs(traces, traces.user), traces.n_users, traces.n_places)

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """See `PredictedCounts`: a place that a user never left is a row of zeros."""
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
