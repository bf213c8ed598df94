"""Transition matrices of users by maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
