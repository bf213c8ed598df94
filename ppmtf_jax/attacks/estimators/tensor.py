"""Transition matrices of users by tensor factorization: users share factors of common moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, Estimator, EstimatorSettings
from ppmtf_jax.attacks.pairwise_factorization import Factors, Penalty, fit_factors, start_fit
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
        Weight of the squared factors.
    n_sweeps : int
        Sweeps over all factors.
    """

    rank: Count = 16
    # With alpha 0, a user without transitions would keep the random start.
    alpha: Positive = 1e-3
    n_sweeps: Count = 40


@dataclass(frozen=True, eq=False)
class FactorizedCounts:
    """Transition counts predicted by factors, equation (13).

    For a user without transitions, the user's factors are 0, so the moves common to all users are predicted. For a
    place that nobody left, the row is predicted from the next places of each user. A row of zeros becomes uniform.

    `objective` has a value for each sweep; `group` (of each place) and `beta` are None without groups.
    """

    factors: Factors = field(repr=False)
    objective: np.ndarray = field(repr=False)
    group: np.ndarray | None = field(default=None, repr=False)
    beta: float | None = None

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


def fit_counts(
    train: Traces, settings: TensorFactorizationSettings, penalty: Penalty, seed: int, beta: float | None = None
) -> FactorizedCounts:
    """Factorize the transition counts of the training traces."""
    transitions, start = start_fit(train.transitions(), train.user_ids, train.n_places, settings.rank, seed)
    factors, objective = fit_factors(start, transitions, penalty, settings.n_sweeps)
    group = None if penalty.group is None else np.asarray(penalty.group)
    return FactorizedCounts(factors, objective, group, beta)


def _estimate(train: Traces, settings: TensorFactorizationSettings, seed: int, progress: bool) -> FactorizedCounts:
    with spinner("tensor factorization", show=progress):
        return fit_counts(train, settings, Penalty(user_ridge=settings.alpha, place_ridge=settings.alpha), seed)


ESTIMATORS.register(Estimator("tf", "Tensor factorization", TensorFactorizationSettings, _estimate))
