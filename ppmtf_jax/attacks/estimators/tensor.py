"""Transition matrices of users by tensor factorization: users share what is common to their moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, Estimator, EstimatorSettings
from ppmtf_jax.attacks.pairwise_factorization import (
    Factors,
    Penalty,
    SparseTransitions,
    fit_factors,
    require_memory_to_fit,
    start_factors,
)
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import Count, Positive


@dataclass(frozen=True)
class TensorFactorizationSettings(EstimatorSettings):
    """Settings of tensor factorization, of section VI-A.

    Parameters
    ----------
    rank : int
        Columns of each factor (K).
    alpha : float
        Weight of the squares of the factors.
    n_sweeps : int
        Over all factors.
    """

    rank: Count = 16
    alpha: Positive = 1e-3
    n_sweeps: Count = 40


@dataclass(frozen=True, eq=False)
class FactorizedCounts:
    """Transition counts that factors predict, by (13).

    A user without transitions has rows of 0 in both of her factors: the moves that are common to all are predicted. Of
    a place that nobody left in the training traces, where each user goes is. A row where all is 0 is uniform once it is
    scaled.

    Parameters
    ----------
    factors : Factors
    objective : float array, shape (sweeps,)
        What was minimized, after each sweep.
    group : int array, shape (places,), or None
        Of each place, where there are groups.
    beta : float or None
        Weight of the norms of groups.

    Examples
    --------
    >>> from ppmtf_jax.attacks.estimators.base import estimate_transitions
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> counts = estimate_transitions(toy_city(n_users=5, n_places=20, seed=0).traces, "tf", rank=4).counts
    >>> counts.of_users(np.array([0, 3])).shape, counts.factors.user_b.shape
    ((2, 20, 20), (5, 4))
    """

    factors: Factors = field(repr=False)
    objective: np.ndarray = field(repr=False)
    group: np.ndarray | None = field(default=None, repr=False)
    beta: float | None = None

    @property
    def n_users(self) -> int:
        return len(self.factors.user_b)

    @property
    def n_places(self) -> int:
        return len(self.factors.place_a)

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """See `PredictedCounts`."""
        return _predicted(self.factors, jnp.asarray(users))


@jax.jit
def _predicted(factors: Factors, users: Array) -> Array:
    with jax.default_matmul_precision("highest"):
        common = factors.place_a @ factors.next_place_a.T
        by_next = factors.user_b[users] @ factors.next_place_b.T
        by_place = factors.user_c[users] @ factors.place_c.T
    return common + by_next[:, None, :] + by_place[:, :, None]


def _estimate(train: Traces, settings: TensorFactorizationSettings, seed: int, progress: bool) -> FactorizedCounts:
    transitions = SparseTransitions.of(train)
    require_memory_to_fit(transitions, train.n_users, train.n_places, settings.rank)
    with spinner("tensor factorization", show=progress):
        start = start_factors(transitions, train.user_ids, train.n_places, settings.rank, seed)
        penalty = Penalty(user_ridge=settings.alpha, place_ridge=settings.alpha)
        factors, objective = fit_factors(start, transitions, penalty, settings.n_sweeps)
        return FactorizedCounts(factors, np.asarray(objective))


ESTIMATORS.register(Estimator("tf", "Tensor factorization", TensorFactorizationSettings, _estimate))
