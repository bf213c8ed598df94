"""The registry of estimators of users' transition matrices, the function that runs them, and maximum likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import sparse

from ppmtf_jax.attacks.scoring import FLOOR, count_pairs
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.registry import Registry
from ppmtf_jax.runtime.threads import in_single_precision
from ppmtf_jax.settings import Settings, Share, chosen_settings


@runtime_checkable
class PredictedCounts(Protocol):
    """Estimated transition counts of the training users, in their order; only proportions within a row matter.

    No array of size users x places^2 is stored: matrices are computed for some users at a time.
    """

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """Non-negative matrices of some users, given by index."""
        ...


@dataclass(frozen=True)
class EstimatorSettings(Settings, subject="estimator settings"):
    """Settings that every estimator has.

    Parameters
    ----------
    floor : float
        Lower bound of every transition probability, applied before each row is normalized again.
    """

    floor: Share = FLOOR


Estimate = Callable[[Traces, Any, int, bool], PredictedCounts]


@dataclass(frozen=True)
class Estimator:
    """An entry of the registry of estimators.

    `estimate` computes `PredictedCounts` from training traces, settings, a seed, and whether to show progress.
    `settings` is `EstimatorSettings` or a subclass; every setting has a default. `title` is for tables and curves.
    """

    name: str
    title: str
    settings: type[EstimatorSettings]
    estimate: Estimate


ESTIMATORS: Registry[Estimator] = Registry("estimator", "ppmtf_jax.attacks.estimators", first=("ml", "tf", "gstf"))


def estimator(name: str, title: str, settings: type[EstimatorSettings]) -> Callable[[Estimate], Estimate]:
    """Register a function as an estimator; see `Estimator`."""

    def register(estimate: Estimate) -> Estimate:
        ESTIMATORS.register(Estimator(name, title, settings, estimate))
        return estimate

    return register


@dataclass(frozen=True, eq=False)
class TransitionMatrices:
    """An attacker's transition matrix of each target user."""

    counts: PredictedCounts = field(repr=False)
    floor: float
    user_ids: np.ndarray = field(repr=False)
    places: PlaceTable = field(repr=False)
    estimator: str

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """Row-stochastic matrices of some users, every entry positive."""
        return to_probabilities(self.counts.of_users(users), self.floor)


@in_single_precision
def estimate_transitions(
    train: Traces,
    estimator: str = "ml",
    settings: EstimatorSettings | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
    **named_settings: Any,
) -> TransitionMatrices:
    """Learn a transition matrix of each user in the training traces.

    `train`: the target users' traces that the attacker knows. `estimator`: a name in `ESTIMATORS`. Settings are given
    as an object or by name. Raises `InputError`: the estimator or a setting is unknown, or there is no transition.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> matrices = estimate_transitions(toy_city(n_users=5, n_places=20, seed=0).traces, floor=1e-3)
    >>> matrices.of_users(np.array([0, 3])).shape
    (2, 20, 20)
    """
    entry = ESTIMATORS[estimator]
    chosen = chosen_settings(entry.settings, settings, named_settings, estimator)
    if not train.has_transitions():
        way_out = "Take longer traces, or a coarser time grid: two events at consecutive instants are a transition"
        raise InputError("training traces", [Problem("at least one transition", "none", way_out=way_out)])
    counts = entry.estimate(train, chosen, seed, progress)
    return TransitionMatrices(counts, chosen.floor, train.user_ids, train.places, estimator)


def to_probabilities(counts: Float[Array, "*row place"], floor: float | Float[Array, ""]) -> Float[Array, "*row place"]:
    """Normalize rows, raise small entries to the floor, and normalize again; a row of zeros becomes uniform."""
    total = counts.sum(axis=-1, keepdims=True)
    uniform = 1 / counts.shape[-1]
    share = jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), uniform)
    raised = jnp.maximum(share, floor)
    return raised / raised.sum(axis=-1, keepdims=True)


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """How often each user made each transition, as `count_pairs` gives it."""

    counts: sparse.csr_array
    n_places: int

    def of_users(self, users: Int[np.ndarray, " user"]) -> Float[Array, "user place next_place"]:
        """See `PredictedCounts`; if a user has no transition from a place, the row of this place is 0."""
        return jnp.asarray(self.counts[users].toarray().reshape(len(users), self.n_places, self.n_places))


@estimator("ml", "Maximum likelihood", EstimatorSettings)
def _estimate(train: Traces, settings: EstimatorSettings, seed: int, progress: bool) -> TransitionCounts:
    return TransitionCounts(count_pairs(train, train.user, train.n_users).astype(np.float32), train.n_places)
