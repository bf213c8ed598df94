"""Transition matrices of users by tensor factorization: users share factors of common moves.

Pairwise interaction factorization of transition counts, by alternating non-negative least squares.
The model (13) of Murakami et al., "Group Sparsity Tensor Factorization for Re-identification of Open Mobility Traces"
(TIFS 2017), is fitted to the rows (user, place) that have a transition. Neither the tensor nor its rows are stored. An
update needs only products of the counts with a factor and, as the model is bilinear, `rank` x `rank` Gram matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.attacks.estimators.base import EstimatorSettings, estimator
from ppmtf_jax.attacks.estimators.group_norms import NEWTON_STEPS, group_minimizer, norms_of_groups
from ppmtf_jax.data.runs import Transitions
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import Count, Positive
from ppmtf_jax.streams import Stage, UserStreams, numpy_stream

MIN_PADDED = 64
# For each row and count, a fit holds products with a factor, gathered and summed, and indices.
ARRAYS_OF_A_ROW = 6


class Factors(NamedTuple):
    """The six matrices of (13), in update order: (a) how everybody moves, (b) where users go, (c) where users are."""

    place_a: Float[Array, "place rank"]
    next_place_a: Float[Array, "place rank"]
    user_b: Float[Array, "user rank"]
    next_place_b: Float[Array, "place rank"]
    user_c: Float[Array, "user rank"]
    place_c: Float[Array, "place rank"]


class SparseTransitions(NamedTuple):
    """Transition counts of users, and the rows of the tensor that have a transition: the set D of (15).

    Both lists are padded, with indices beyond the last user and place and counts of 0. `row_total`: sum of a row.
    """

    row_user: Int[Array, " row"]
    row_place: Int[Array, " row"]
    row_total: Float[Array, " row"]
    user: Int[Array, " count"]
    place: Int[Array, " count"]
    next_place: Int[Array, " count"]
    count: Float[Array, " count"]

    @classmethod
    def of_steps(cls, steps: Transitions, n_users: int, n_places: int) -> SparseTransitions:
        """Count transitions."""
        row = steps.user.astype(np.int64) * n_places + steps.place
        code, count = np.unique(row * n_places + steps.next_place, return_counts=True)
        row, next_place = np.divmod(code, n_places)
        user, place = np.divmod(row, n_places)
        row, row_of_count = np.unique(row, return_inverse=True)
        rows = (*np.divmod(row, n_places), np.bincount(row_of_count, weights=count))
        counts = (user, place, next_place, count)
        padded = [_padded(x, fill) for x, fill in zip(rows, (n_users, n_places, 0), strict=True)]
        padded += [_padded(x, fill) for x, fill in zip(counts, (n_users, n_places, n_places, 0), strict=True)]
        kinds = [np.int32, np.int32, float, np.int32, np.int32, np.int32, float]
        return cls(*(jnp.asarray(x.astype(kind)) for x, kind in zip(padded, kinds, strict=True)))


class Penalty(NamedTuple):
    """Penalty beside the squared error: ridges, or norms of groups of places.

    `user_ridge` is alpha for the matrices of users (b, c), `place_ridge` is alpha for the four matrices of places.
    `group_norm` is beta, above 0, the weight of the L1,q norms (16) of the matrices of places; `place_ridge` is then 0.
    `group` is the group of each place. `q` is above 1, and may be infinite; None is 2, which is faster.
    """

    user_ridge: float | Array
    place_ridge: float | Array = 0.0
    group_norm: float | Array = 0.0
    group: Int[Array, " place"] | None = None
    q: float | Array | None = None


def fit_factors(
    start: Factors, transitions: SparseTransitions, penalty: Penalty, n_sweeps: int
) -> tuple[Factors, Float[np.ndarray, " sweep"]]:
    """Minimize (15) or (18) by sweeps over the columns of the six matrices, in the order of (19)-(24).

    Each update minimizes the objective exactly over one column of a user matrix, or over one group's part of a column
    of a place matrix, with all other entries fixed. So the objective never increases. `start` has no negative entries.
    Returns the factors, and the objective after each sweep.
    """
    factors, objectives = start, []
    # GPUs would otherwise round to 10 bits, and Gram matrices are subtracted from each other.
    with jax.default_matmul_precision("highest"):
        # A loop in Python, so that fits with any number of sweeps share a program.
        for _ in range(n_sweeps):
            factors, value = _sweep(factors, transitions, penalty)
            objectives.append(value)
    return factors, np.array(objectives)


@jax.jit
def _sweep(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> tuple[Factors, Float[Array, ""]]:
    for update in UPDATES:
        factors = update(factors, transitions, penalty)
    return factors, objective(factors, transitions, penalty)


def start_fit(
    steps: Transitions, user_ids: np.ndarray, n_places: int, rank: int, seed: int, n_fits: int = 1
) -> tuple[SparseTransitions, Factors]:
    """Count transitions and draw the factors from which a fit starts.

    Raises `InputError` if memory is too small for `n_fits` simultaneous fits.
    """
    transitions = SparseTransitions.of_steps(steps, len(user_ids), n_places)
    n_rows = len(transitions.row_user) + len(transitions.user) + len(user_ids) + 4 * n_places
    needed = n_fits * ARRAYS_OF_A_ROW * 4 * rank * n_rows
    require_memory("tensor factorization", needed, "Take fewer users or a smaller rank")
    return transitions, start_factors(transitions, user_ids, n_places, rank, seed)


def start_factors(transitions: SparseTransitions, user_ids: np.ndarray, n_places: int, rank: int, seed: int) -> Factors:
    """Random factors whose mean predicted count over the rows in D equals the mean observed count.

    Entries are uniform in [0, 1), as in section VI-A, times a common factor. Without this factor, each of the three
    terms would predict counts near rank / 4, while most counts are 0. Then the first updates would set several of the
    six matrices to 0 for ever. Apart from the common factor, a user's start depends only on the seed and the user id,
    and a place's start only on the seed and its index.
    """
    place_a, next_place_a, next_place_b, place_c = np.moveaxis(
        numpy_stream(seed, Stage.FIT).random((n_places, 4, rank)), 1, 0
    )
    streams = UserStreams.of(seed, Stage.FIT, user_ids)
    user_b, user_c = np.split(streams.numbers(np.arange(len(user_ids)), 0, 2 * rank), 2, axis=1)
    is_row = np.asarray(transitions.row_total) > 0
    user, place = (np.asarray(index)[is_row] for index in (transitions.row_user, transitions.row_place))
    predicted = place_a[place] @ next_place_a.sum(axis=0) + user_b[user] @ next_place_b.sum(axis=0)
    predicted += n_places * np.einsum("rk, rk -> r", user_c[user], place_c[place])
    scale = np.sqrt(float(transitions.row_total.sum()) / predicted.sum())
    parts = (place_a, next_place_a, user_b, next_place_b, user_c, place_c)
    return Factors(*(jnp.asarray(scale * part, dtype=float) for part in parts))


def objective(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Float[Array, ""]:
    """The squared error over D, plus the penalty: (15) or (18)."""
    at_rows = jnp.concatenate(
        [_at(factors.place_a, transitions.row_place), _at(factors.user_b, transitions.row_user)], axis=1
    )
    at_next = jnp.concatenate([factors.next_place_a, factors.next_place_b], axis=1)
    constant = _constant(factors, transitions)
    sums = at_rows @ at_next.sum(axis=0)
    of_squares = jnp.einsum("rk, kl, rl -> ", at_rows, at_next.T @ at_next, at_rows)
    of_squares += jnp.sum(2 * constant * sums + len(at_next) * constant**2)
    by_count = (_at(factors.place_a, transitions.place) * _at(factors.next_place_a, transitions.next_place)).sum(1)
    by_count += (_at(factors.user_b, transitions.user) * _at(factors.next_place_b, transitions.next_place)).sum(1)
    by_count += (_at(factors.user_c, transitions.user) * _at(factors.place_c, transitions.place)).sum(1)
    error = jnp.sum(transitions.count**2) - 2 * transitions.count @ by_count + of_squares
    squares = [jnp.sum(factor**2) for factor in factors]
    ridge = penalty.user_ridge * (squares[2] + squares[4])
    ridge += penalty.place_ridge * (squares[0] + squares[1] + squares[3] + squares[5])
    if penalty.group is None:
        return error + ridge
    of_places = jnp.stack([factors.place_a, factors.next_place_a, factors.next_place_b, factors.place_c], axis=1)
    if penalty.q is not None:
        norms = norms_of_groups(of_places, penalty.group, penalty.q)
    else:
        norms = jnp.sqrt(jax.ops.segment_sum(of_places**2, penalty.group, len(at_next)))
    return error + ridge + penalty.group_norm * norms.sum()


def _ridge_minimizer(gradient: Array, curvature: Array, ridge: float | Array) -> Array:
    whole = curvature + ridge
    return jnp.where(whole > 0, jnp.maximum(gradient, 0) / jnp.where(whole > 0, whole, 1), 0)


def _minimizer(name: str, penalty: Penalty, n_steps: int = NEWTON_STEPS) -> Callable[[Array, Array], Array]:
    """Minimizer of a column of a matrix, from its gradient and curvature."""
    if name.startswith("user"):
        return partial(_ridge_minimizer, ridge=penalty.user_ridge)
    if penalty.group is None:
        return partial(_ridge_minimizer, ridge=penalty.place_ridge)
    of_penalty = {"group_norm": penalty.group_norm, "group": penalty.group, "q": penalty.q}
    return partial(group_minimizer, **of_penalty, n_steps=n_steps)


def _columns(
    factor: Array, linear: Array, weight: Array, gram: Array, minimizer: Callable[[Array, Array], Array]
) -> Array:
    """Minimize the sum over rows x of weight (x gram x) - 2 linear x, one column after the other."""

    def column(k: int | Array, factor: Array) -> Array:
        others = factor @ gram[:, k] - factor[:, k] * gram[k, k]
        return factor.at[:, k].set(minimizer(linear[:, k] - weight * others, weight * gram[k, k]))

    return jax.lax.fori_loop(0, factor.shape[1], column, factor)


class _Term(NamedTuple):
    """Term (a) or (b) of (13): factors of places or users, of next places, and the index of the former."""

    factor: Array
    next_place: Array
    row: Int[Array, " row"]
    count: Int[Array, " count"]


def _terms(factors: Factors, transitions: SparseTransitions, which: str) -> tuple[_Term, _Term]:
    """The term named by `which`, and the other term."""
    a = _Term(factors.place_a, factors.next_place_a, transitions.row_place, transitions.place)
    b = _Term(factors.user_b, factors.next_place_b, transitions.row_user, transitions.user)
    return (a, b) if which == "a" else (b, a)


def _update_factor(name: str, factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    """Update U^(a) or U^(b): the factor of places or users in the first two terms."""
    own, other = _terms(factors, transitions, name[-1])
    n = len(own.factor)
    taken = _at(other.factor @ (other.next_place.T @ own.next_place), other.row)
    taken += _constant(factors, transitions)[:, None] * own.next_place.sum(axis=0)
    linear = _sum_of_counts(transitions, own.next_place, transitions.next_place, own.count, n)
    linear -= jax.ops.segment_sum(taken, own.row, n)
    weight = jax.ops.segment_sum(jnp.ones(len(own.row), own.factor.dtype), own.row, n)
    gram = own.next_place.T @ own.next_place
    return factors._replace(**{name: _columns(own.factor, linear, weight, gram, _minimizer(name, penalty))})


def _update_next_place(name: str, factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    """Update V^(a) or V^(b): the factor of next places in the first two terms."""
    own, other = _terms(factors, transitions, name[-1])
    n = len(own.next_place)
    rows = _at(own.factor, own.row)
    linear = _sum_of_counts(transitions, own.factor, own.count, transitions.next_place, n)
    linear -= other.next_place @ (_at(other.factor, other.row).T @ rows) + _constant(factors, transitions) @ rows
    # All places of a group have the same curvature, so Newton's method is not needed.
    minimizer = _minimizer(name, penalty, n_steps=0)
    return factors._replace(**{name: _columns(own.next_place, linear, jnp.ones(n), rows.T @ rows, minimizer)})


def _update_constant(name: str, factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    """Update U^(c) or V^(c), column by column: the factors of the third term, the same for all next places."""
    sides = (factors.user_c, transitions.row_user), (factors.place_c, transitions.row_place)
    (own, index), (partners, partner_index) = sides if name == "user_c" else sides[::-1]
    other, n_places, minimizer = _at(partners, partner_index), len(factors.place_c), _minimizer(name, penalty)
    of_factor = partial(jax.ops.segment_sum, segment_ids=index, num_segments=len(own))
    curvature = n_places * of_factor(other**2)
    # Counts minus predicted counts, summed over next places.
    by_place = _at(factors.place_a @ factors.next_place_a.sum(axis=0), transitions.row_place)
    by_user = _at(factors.user_b @ factors.next_place_b.sum(axis=0), transitions.row_user)
    residual = transitions.row_total - by_place - by_user - n_places * _constant(factors, transitions)

    def column(k: int | Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, residual = state
        old, partner = factor[:, k], other[:, k]
        new = minimizer(of_factor(partner * residual) + curvature[:, k] * old, curvature[:, k])
        return factor.at[:, k].set(new), residual - n_places * partner * _at(new - old, index)

    updated, _ = jax.lax.fori_loop(0, own.shape[1], column, (own, residual))
    return factors._replace(**{name: updated})


UPDATES = (
    partial(_update_factor, "place_a"),
    partial(_update_next_place, "next_place_a"),
    partial(_update_factor, "user_b"),
    partial(_update_next_place, "next_place_b"),
    partial(_update_constant, "user_c"),
    partial(_update_constant, "place_c"),
)
"""Functions that update one matrix each, in the order of (19)-(24)."""


def _at(factor: Float[Array, "row *rank"], index: Int[Array, " at"]) -> Float[Array, "at *rank"]:
    """Rows of a factor; zeros for padded indices."""
    return factor.at[index].get(mode="fill", fill_value=0)


def _sum_of_counts(
    transitions: SparseTransitions, factor: Array, source: Array, target: Array, n_targets: int
) -> Float[Array, "target rank"]:
    """Sum count times row of a factor over all counts, grouped by `target`."""
    return jax.ops.segment_sum(transitions.count[:, None] * _at(factor, source), target, n_targets)


def _constant(factors: Factors, transitions: SparseTransitions) -> Float[Array, " row"]:
    """The third term of (13) for each row."""
    users, places = _at(factors.user_c, transitions.row_user), _at(factors.place_c, transitions.row_place)
    return jnp.sum(users * places, axis=1)


def _padded(values: np.ndarray, fill: int) -> np.ndarray:
    """Pad to a power of two, so that few programs are compiled."""
    size = max(MIN_PADDED, 1 << (len(values) - 1).bit_length())
    return np.pad(values, (0, size - len(values)), constant_values=fill)


# The estimator


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


@estimator("tf", "Tensor factorization", TensorFactorizationSettings)
def _estimate(train: Traces, settings: TensorFactorizationSettings, seed: int, progress: bool) -> FactorizedCounts:
    with spinner("tensor factorization", show=progress):
        return fit_counts(train, settings, Penalty(user_ridge=settings.alpha, place_ridge=settings.alpha), seed)
