"""Transition matrices of users by group sparsity tensor factorization: the places of a group become 0 together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Gt, Lt
from jaxtyping import Array, Float, Int
from scipy import sparse

from ppmtf_jax.attacks.estimators.base import estimator
from ppmtf_jax.attacks.estimators.tensor import (
    FactorizedCounts,
    Factors,
    Penalty,
    SparseTransitions,
    TensorFactorizationSettings,
    fit_counts,
    fit_factors,
    start_fit,
)
from ppmtf_jax.attacks.place_groups import ADJACENCY_WEIGHT, groups_of_moves
from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import Transitions, rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import progress_bar, spinner
from ppmtf_jax.runtime.threads import map_in_threads, n_threads, one_thread
from ppmtf_jax.settings import Positive
from ppmtf_jax.streams import Stage, UserStreams, numpy_stream

BETAS = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
"""Candidates for cross-validation; with 0.01 the results are the same as without groups."""
N_FOLDS = 5
MAX_SWEEPS = 10
"""Maximum number of sweeps in cross-validation: more sweeps hardly change the chosen beta."""


@dataclass(frozen=True)
class GroupSparseSettings(TensorFactorizationSettings):
    """Settings of group sparsity tensor factorization.

    Section VI-A prints beta as "10-24", which may mean 10^-24 or 10^-2.4. A good beta depends on the scale of counts.

    Parameters
    ----------
    beta : float or "cross-validated"
        Weight of the group norms; by default chosen from the training traces, see `cross_validate_beta`. If beta is
        large, all factors become 0 and all matrices become uniform.
    q : float
        The group norms are L1,q norms (16), with q above 1; it may be infinite. 2 is that of the experiments, and the
        fastest by far.
    groups : "mcl", "shuffled", "one" or "singletons"
        Groups of places: "mcl" finds them by Markov clustering. The others are controls: random places in groups of the
        same sizes, all places in one group, and each place in its own group.
    adjacency_weight : float
        Weight of the edge between adjacent places in the clustered graph, added to the number of transitions.
    inflation : float
        Inflation parameter of Markov clustering.
    """

    beta: Positive | Literal["cross-validated"] = "cross-validated"
    q: Annotated[float, Gt(1)] = 2.0
    groups: Literal["mcl", "shuffled", "one", "singletons"] = "mcl"
    adjacency_weight: Annotated[float, Ge(0), Lt(np.inf)] = ADJACENCY_WEIGHT
    inflation: Annotated[float, Gt(1), Lt(np.inf)] = 2.0

    def penalty(self, beta: float, group: Int[Array, " place"]) -> Penalty:
        """The penalty of (18)."""
        q = None if self.q == 2 else jnp.asarray(self.q, float)
        return Penalty(user_ridge=self.alpha, group_norm=beta, group=group, q=q)


def cross_validate_beta(
    train: Traces,
    settings: GroupSparseSettings | None = None,
    *,
    betas: Sequence[float] = BETAS,
    n_folds: int = N_FOLDS,
    seed: int = 0,
    progress: bool = False,
) -> Float[np.ndarray, "beta fold"]:
    """How well held-out transitions of the training traces identify their user (AUC), for each beta.

    Each user's transitions, in order of time, are cut into as many runs as there are folds; a fold holds out one run of
    each user with at least two transitions. Groups and factors are learned without the held-out runs. Each run is
    scored as in the attack, by log P(run | user) - log P(run | the others), for its own user and for all others.
    Probabilities below the floor are raised to the floor, and rows are not normalized again.

    The beta of `settings` is ignored. There are at most as many folds as a user has transitions. Raises `InputError`:
    wrong `betas` or `n_folds`, fewer than two users or no user with two transitions, or too little memory.
    """
    settings = settings or GroupSparseSettings()
    settings = replace(settings, n_sweeps=min(settings.n_sweeps, MAX_SWEEPS))
    steps = train.transitions()
    problems: list[Problem | str] = []
    if not betas or not all(0 < beta < np.inf for beta in betas):
        problems.append(Problem("at least one beta, all above 0", repr(betas)))
    if n_folds < 2:
        problems.append(Problem("n_folds of at least 2", repr(n_folds)))
    most = int(np.bincount(steps.user, minlength=1).max())
    if train.n_users < 2 or most < 2:
        found = f"{train.n_users} users with at most {most}"
        problems.append(Problem("at least 2 users, one with 2 transitions", found, way_out="Give beta a number"))
    raise_any("cross-validation of beta", problems)
    n_folds = min(n_folds, most)
    fold = _folds(steps, train.user_ids, n_folds, seed)
    n_scored = len(steps.user) // n_folds * train.n_users
    require_memory("cross-validation of beta", 6 * 8 * n_scored, "Give beta a number")
    scores = []
    with one_thread(), progress_bar("cross-validation", n_folds * len(betas), show=progress) as advance:
        for held_out in (fold == number for number in range(n_folds)):
            kept, left_out = (Transitions(*(column[mask] for column in steps)) for mask in (~held_out, held_out))
            group = jnp.asarray(_groups(kept, train.places, settings, seed))
            given = start_fit(kept, train.user_ids, train.n_places, settings.rank, seed, n_fits=n_threads() + 1)
            score = partial(_score, *given, group, left_out, settings)
            for found in map_in_threads(score, betas):
                scores.append(found)
                advance(1)
    return np.reshape(scores, (n_folds, len(betas))).T


@estimator("gstf", "Group sparsity tensor factorization", GroupSparseSettings)
def _estimate(train: Traces, settings: GroupSparseSettings, seed: int, progress: bool) -> FactorizedCounts:
    beta = settings.beta
    if beta == "cross-validated":
        auc = cross_validate_beta(train, settings, seed=seed, progress=progress)
        beta = BETAS[auc.mean(axis=1).argmax()]  # the smallest one if there are ties
    with spinner("tensor factorization", show=progress):
        group = _groups(train.transitions(), train.places, settings, seed)
        return fit_counts(train, settings, settings.penalty(beta, jnp.asarray(group)), seed, beta)


def _groups(
    steps: Transitions, places: PlaceTable, settings: GroupSparseSettings, seed: int
) -> Int[np.ndarray, " place"]:
    n_places = len(places)
    if settings.groups == "one":
        return np.zeros(n_places, np.int64)
    if settings.groups == "singletons":
        return np.arange(n_places)
    group = groups_of_moves(steps.place, steps.next_place, places, settings.adjacency_weight, settings.inflation)
    return numpy_stream(seed, Stage.FIT, 1).permutation(group) if settings.groups == "shuffled" else group


def _folds(steps: Transitions, user_ids: np.ndarray, n_folds: int, seed: int) -> Int[np.ndarray, " transition"]:
    """Fold in which each transition is held out, -1 if it never is; the fold of a user's first run is random."""
    n_steps = np.bincount(steps.user, minlength=len(user_ids))
    drawn = UserStreams.of(seed, Stage.TUNING, user_ids).numbers(np.arange(len(user_ids)), 0, 1)[:, 0]
    first = (n_folds * drawn).astype(np.int64)[steps.user]
    run = rank_in_run(steps.user) * n_folds // n_steps[steps.user]
    return np.where(n_steps[steps.user] > 1, (first + run) % n_folds, -1)


def _score(
    transitions: SparseTransitions,
    start: Factors,
    group: Int[Array, " place"],
    left_out: Transitions,
    settings: GroupSparseSettings,
    beta: float,
) -> float:
    """AUC of the runs that were left out, for one beta."""
    penalty = settings.penalty(beta, group)
    return _auc_of_runs(fit_factors(start, transitions, penalty, settings.n_sweeps)[0], left_out, settings.floor)


def _auc_of_runs(factors: Factors, steps: Transitions, floor: float) -> float:
    """AUC of the log-likelihood ratios of runs: their own users against all other users."""
    share = np.maximum(_shares(factors, steps.place, steps.next_place), floor)
    n_users = share.shape[1]
    ratio = np.log(share) - np.log((share.sum(axis=1, keepdims=True) - share) / (n_users - 1))
    users, run = np.unique(steps.user, return_inverse=True)
    by_run = sparse.csr_array((np.ones(len(run)), (run, np.arange(len(run))))) @ ratio
    own = users[:, None] == np.arange(n_users)
    return Roc.of(by_run[own], by_run[~own]).auc


def _shares(
    factors: Factors, place: Int[np.ndarray, " step"], next_place: Int[np.ndarray, " step"]
) -> Float[np.ndarray, "step user"]:
    """Predicted probability of each step for each user."""
    place_a, next_a, user_b, next_b, user_c, place_c = (np.asarray(factor, np.float64) for factor in factors)
    constant = place_c[place] @ user_c.T
    count = (place_a[place] * next_a[next_place]).sum(axis=1, keepdims=True) + next_b[next_place] @ user_b.T + constant
    total = (place_a @ next_a.sum(axis=0))[place, None] + user_b @ next_b.sum(axis=0) + len(place_a) * constant
    return np.where(total > 0, count / np.where(total > 0, total, 1), 1 / len(place_a))
