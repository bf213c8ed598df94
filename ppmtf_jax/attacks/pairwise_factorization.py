"""Pairwise interaction factorization of users' transition counts, by alternating non-negative least squares.

The model (13) of Murakami et al., "Group Sparsity Tensor Factorization for Re-identification of Open Mobility Traces"
(TIFS 2017), fitted to the rows (user, place) that have a transition: the tensor is never held, nor are its rows. All
that an update needs of the tensor are products of the counts with a factor and, since the model is bilinear, the
`rank` x `rank` Gram matrices of factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.traces import Traces, Transitions
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.streams import Stage, UserStreams, numpy_stream

NEWTON_STEPS = 12
"""For the norm of a group of places with different curvatures; it converges quadratically, from below."""
MIN_PADDED = 64
# What a fit holds for each row and each count: products with a factor, gathered and summed, and indices.
ARRAYS_OF_A_ROW = 6


class Factors(NamedTuple):
    """The six matrices of (13), in the order in which a sweep updates them; rows are users or places.

    Attributes
    ----------
    place_a, next_place_a : float arrays, shape (places, rank)
        U^(a) and V^(a): how everybody moves.
    user_b : float array, shape (users, rank)
        U^(b).
    next_place_b : float array, shape (places, rank)
        V^(b): where each user goes.
    user_c : float array, shape (users, rank)
        U^(c).
    place_c : float array, shape (places, rank)
        V^(c): where each user is.
    """

    place_a: Float[Array, "place rank"]
    next_place_a: Float[Array, "place rank"]
    user_b: Float[Array, "user rank"]
    next_place_b: Float[Array, "place rank"]
    user_c: Float[Array, "user rank"]
    place_c: Float[Array, "place rank"]


class SparseTransitions(NamedTuple):
    """Transition counts of users, and the rows of the tensor that have one: the set D of (15).

    Both lists are padded, with indices beyond the last user and place and counts of 0.

    Attributes
    ----------
    row_user, row_place : int32 arrays, shape (rows,)
    row_total : float array, shape (rows,)
        Sum of the counts of the row.
    user, place, next_place : int32 arrays, shape (counts,)
    count : float array, shape (counts,)
    """

    row_user: Int[Array, " row"]
    row_place: Int[Array, " row"]
    row_total: Float[Array, " row"]
    user: Int[Array, " count"]
    place: Int[Array, " count"]
    next_place: Int[Array, " count"]
    count: Float[Array, " count"]

    @classmethod
    def of(cls, traces: Traces) -> SparseTransitions:
        """Those of traces.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> traces = toy_city(n_users=3, seed=0).traces
        >>> transitions = SparseTransitions.of(traces)
        >>> float(transitions.count.sum()) == float(transitions.row_total.sum()) == len(traces.transitions().event)
        True
        """
        return cls.of_steps(traces.transitions(), traces.n_users, traces.n_places)

    @classmethod
    def of_steps(cls, steps: Transitions, n_users: int, n_places: int) -> SparseTransitions:
        """Those of some transitions."""
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
    """What is added to the squared error: ridges, and norms of groups of places.

    Attributes
    ----------
    user_ridge : float
        alpha, of U^(b) and U^(c).
    place_ridge : float
        alpha of the four other matrices; 0 where they have group norms.
    group_norm : float
        beta, above 0, of the L1,2 norms (16) of the four matrices of places.
    group : int array, shape (places,), or None
        The group of each place; None where there are no group norms.
    """

    user_ridge: float | Array
    place_ridge: float | Array = 0.0
    group_norm: float | Array = 0.0
    group: Int[Array, " place"] | None = None


def fit_factors(
    start: Factors, transitions: SparseTransitions, penalty: Penalty, n_sweeps: int
) -> tuple[Factors, Float[Array, " sweep"]]:
    """Minimize (15) or (18) by sweeps over the columns of the six matrices.

    Each column of a user matrix is minimized exactly, and so is each group's part of a column of a place matrix, while
    all else is kept: the objective never increases. Update order is that of (19)-(24).

    Parameters
    ----------
    start : Factors
        Non-negative.
    transitions : SparseTransitions
    penalty : Penalty
    n_sweeps : int

    Returns
    -------
    Factors
    float array, shape (n_sweeps,)
        The objective after each sweep.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_places=20, seed=0).traces
    >>> transitions = SparseTransitions.of(traces)
    >>> start = start_factors(transitions, traces.user_ids, traces.n_places, 4, seed=0)
    >>> _, objectives = fit_factors(start, transitions, Penalty(1e-3, 1e-3), n_sweeps=3)
    >>> bool(objectives[0] > objectives[1] > objectives[2])
    True
    """
    # Graphics processors would otherwise round to 10 bits, and Gram matrices are subtracted from each other.
    with jax.default_matmul_precision("highest"):
        return _fit(start, transitions, penalty, n_sweeps)


@partial(jax.jit, static_argnames="n_sweeps")
def _fit(
    start: Factors, transitions: SparseTransitions, penalty: Penalty, n_sweeps: int
) -> tuple[Factors, Float[Array, " sweep"]]:
    def sweep(factors: Factors, _: None) -> tuple[Factors, Array]:
        for update in UPDATES:
            factors = update(factors, transitions, penalty)
        return factors, objective(factors, transitions, penalty)

    return jax.lax.scan(sweep, start, length=n_sweeps)


def start_factors(transitions: SparseTransitions, user_ids: np.ndarray, n_places: int, rank: int, seed: int) -> Factors:
    """Random factors whose predicted counts are, on average over the rows in D, the observed ones.

    Uniform in [0, 1), as in section VI-A, times one number. Without it counts near rank/4 are predicted for each of the
    three terms where most are 0, and the first updates, which have to take that away, leave several of the six
    matrices at 0, from where they never return.

    A user's start depends on the seed and her id alone but for that number, and a place's on its index.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_places=20, seed=0).traces
    >>> start = start_factors(SparseTransitions.of(traces), traces.user_ids, 20, 4, seed=0)
    >>> start.user_b.shape, start.place_c.shape
    ((5, 4), (20, 4))
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


def require_memory_to_fit(
    transitions: SparseTransitions, n_users: int, n_places: int, rank: int, n_fits: int = 1
) -> None:
    """Refuse fits at the same time for which memory would not do.

    Raises
    ------
    InputError
        Saying what they need and what there is.
    """
    n_rows = len(transitions.row_user) + len(transitions.user) + n_users + 4 * n_places
    needed = n_fits * ARRAYS_OF_A_ROW * 4 * rank * n_rows
    require_memory("tensor factorization", needed, "Take fewer users or a smaller rank")


def objective(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Float[Array, ""]:
    """The squared error over D, plus the penalty: (15) or (18)."""
    at_rows, at_next = (
        _pairs_of_rows(factors, transitions),
        jnp.concatenate([factors.next_place_a, factors.next_place_b], axis=1),
    )
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
    norms = jnp.sqrt(jax.ops.segment_sum(of_places**2, penalty.group, len(at_next)))
    return error + ridge + penalty.group_norm * norms.sum()


def group_minimizer(
    gradient: Float[Array, " place"],
    curvature: Float[Array, " place"],
    group_norm: float | Array,
    group: Int[Array, " place"],
    n_steps: int = NEWTON_STEPS,
) -> Float[Array, " place"]:
    r"""The v >= 0 that minimizes, in each group, sum c_i v_i^2 - 2 g_i v_i + beta ||v||.

    Parameters
    ----------
    gradient, curvature : float arrays, shape (places,)
        g and c >= 0; g is not above 0 where c is 0.
    group_norm : float
        beta, above 0.
    group : int array, shape (places,)
        Below the number of places.
    n_steps : int
        Of Newton's method; none are needed where all curvatures of a group are equal.

    Notes
    -----
    With g+ = max(g, 0) and b = beta / 2: the slope at v = 0 in a direction d >= 0, ||d|| = 1, is 2 (b - g.d), the least
    of which is 2 (b - ||g+||). So v = 0 where ||g+|| <= b. Otherwise v is 0 where g_i <= 0, and elsewhere
    c_i v_i - g_i + b v_i / t = 0 with t = ||v||, that is v_i = t g_i / (c_i t + b), where t solves f(t) = 1 with

        f(t) = sum (g_i / (c_i t + b))^2.

    The problem is convex, so the one solution of these conditions is the minimum; it is what the Fenchel dual gives.

    f falls from (||g+|| / b)^2 > 1 to 0, so t is unique. h = 1 / sqrt(f) rises, and it is concave: h'' has the sign of
    3 f'^2 - 2 f f'', which Cauchy-Schwarz makes not positive, since with q_i = c_i t + b and p_i = g_i / q_i
    f' = -2 sum c_i p_i^2 / q_i and f'' = 6 sum c_i^2 p_i^2 / q_i^2. So Newton's method for h(t) = 1 rises to the
    solution from any t below it, as 0 is, and max(0, ||g+/c|| - b / min c), the solution where all c_i are equal.

    Examples
    --------
    Soft thresholding of (3, 4) / 2, whose norm is 2.5, by beta / (2 c) = 0.5:

    >>> found = group_minimizer(jnp.array([3.0, 4.0]), jnp.array([2.0, 2.0]), 2.0, jnp.array([0, 0]))
    >>> bool(jnp.allclose(found, jnp.array([3.0, 4.0]) / 2 * (2.5 - 0.5) / 2.5))
    True
    """
    half = group_norm / 2
    of_group = partial(jax.ops.segment_sum, segment_ids=group, num_segments=len(group))
    # A partner that shrank to almost nothing has a square of nothing, but a product with the counts.
    gain = jnp.where(curvature > jnp.sqrt(jnp.finfo(curvature.dtype).tiny), jnp.maximum(gradient, 0), 0)
    gain = jnp.where(of_group(gain**2)[group] > half**2, gain, 0)
    alone = jnp.where(gain > 0, gain / jnp.where(gain > 0, curvature, 1), 0)
    least = jax.ops.segment_min(jnp.where(gain > 0, curvature, jnp.inf), group, len(group))
    start = jnp.maximum(0, jnp.sqrt(of_group(alone**2)) - half / least)

    def newton(_: int | Array, norm: Array) -> Array:
        slope = curvature * norm[group] + half
        squares = (gain / slope) ** 2
        total, change = of_group(squares), of_group(curvature * squares / slope)
        step = total * (jnp.sqrt(total) - 1) / jnp.where(change > 0, change, 1)
        return jnp.maximum(0, norm + step)

    norm = jax.lax.fori_loop(0, n_steps, newton, start)[group]
    return norm * gain / (curvature * norm + half)


def _ridge_minimizer(gradient: Array, curvature: Array, ridge: float | Array) -> Array:
    whole = curvature + ridge
    return jnp.where(whole > 0, jnp.maximum(gradient, 0) / jnp.where(whole > 0, whole, 1), 0)


def _place_minimizer(penalty: Penalty, n_steps: int) -> Callable[[Array, Array], Array]:
    if penalty.group is None:
        return partial(_ridge_minimizer, ridge=penalty.place_ridge)
    return partial(group_minimizer, group_norm=penalty.group_norm, group=penalty.group, n_steps=n_steps)


def _columns(
    factor: Array, linear: Array, weight: Array, gram: Array, minimizer: Callable[[Array, Array], Array]
) -> Array:
    """Minimize column after column of the sum over rows x of weight (x gram x) - 2 linear x."""

    def column(k: int | Array, factor: Array) -> Array:
        others = factor @ gram[:, k] - factor[:, k] * gram[k, k]
        return factor.at[:, k].set(minimizer(linear[:, k] - weight * others, weight * gram[k, k]))

    return jax.lax.fori_loop(0, factor.shape[1], column, factor)


def _update_place_a(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    place_a, next_a, user_b, next_b, *_ = factors
    n_places = len(place_a)
    taken = _at(user_b @ (next_b.T @ next_a), transitions.row_user)
    taken += _constant(factors, transitions)[:, None] * next_a.sum(axis=0)
    linear = _sum_of_counts(transitions, next_a, transitions.next_place, transitions.place, n_places)
    linear -= jax.ops.segment_sum(taken, transitions.row_place, n_places)
    weight = _n_rows(transitions.row_place, n_places, place_a.dtype)
    minimizer = _place_minimizer(penalty, NEWTON_STEPS)
    return factors._replace(place_a=_columns(place_a, linear, weight, next_a.T @ next_a, minimizer))


def _update_next_place_a(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    place_a, next_a, user_b, next_b, *_ = factors
    rows = _at(place_a, transitions.row_place)
    linear = _sum_of_counts(transitions, place_a, transitions.place, transitions.next_place, len(next_a))
    linear -= next_b @ (_at(user_b, transitions.row_user).T @ rows) + _constant(factors, transitions) @ rows
    minimizer = _place_minimizer(penalty, 0)
    return factors._replace(next_place_a=_columns(next_a, linear, jnp.ones(len(next_a)), rows.T @ rows, minimizer))


def _update_user_b(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    place_a, next_a, user_b, next_b, *_ = factors
    n_users = len(user_b)
    taken = _at(place_a @ (next_a.T @ next_b), transitions.row_place)
    taken += _constant(factors, transitions)[:, None] * next_b.sum(axis=0)
    linear = _sum_of_counts(transitions, next_b, transitions.next_place, transitions.user, n_users)
    linear -= jax.ops.segment_sum(taken, transitions.row_user, n_users)
    weight = _n_rows(transitions.row_user, n_users, user_b.dtype)
    minimizer = partial(_ridge_minimizer, ridge=penalty.user_ridge)
    return factors._replace(user_b=_columns(user_b, linear, weight, next_b.T @ next_b, minimizer))


def _update_next_place_b(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    place_a, next_a, user_b, next_b, *_ = factors
    rows = _at(user_b, transitions.row_user)
    linear = _sum_of_counts(transitions, user_b, transitions.user, transitions.next_place, len(next_b))
    linear -= next_a @ (_at(place_a, transitions.row_place).T @ rows) + _constant(factors, transitions) @ rows
    minimizer = _place_minimizer(penalty, 0)
    return factors._replace(next_place_b=_columns(next_b, linear, jnp.ones(len(next_b)), rows.T @ rows, minimizer))


def _update_user_c(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    minimizer = partial(_ridge_minimizer, ridge=penalty.user_ridge)
    rows = (factors.user_c, transitions.row_user, _at(factors.place_c, transitions.row_place))
    return factors._replace(user_c=_constant_columns(*rows, _residual(factors, transitions), factors, minimizer))


def _update_place_c(factors: Factors, transitions: SparseTransitions, penalty: Penalty) -> Factors:
    minimizer = _place_minimizer(penalty, NEWTON_STEPS)
    rows = (factors.place_c, transitions.row_place, _at(factors.user_c, transitions.row_user))
    return factors._replace(place_c=_constant_columns(*rows, _residual(factors, transitions), factors, minimizer))


UPDATES = (
    _update_place_a,
    _update_next_place_a,
    _update_user_b,
    _update_next_place_b,
    _update_user_c,
    _update_place_c,
)
"""Of one matrix each, in the order of (19)-(24)."""


def _constant_columns(
    factor: Array,
    index: Int[Array, " row"],
    other: Float[Array, "row rank"],
    residual: Float[Array, " row"],
    factors: Factors,
    minimizer: Callable[[Array, Array], Array],
) -> Array:
    """Minimize column after column of a factor of the third term, which is the same for all next places.

    `index` is the row of the factor that belongs to each row of the tensor, `other` its partner's, `residual` the sum
    over next places of what the model leaves.
    """
    n_places = len(factors.place_c)
    of_factor = partial(jax.ops.segment_sum, segment_ids=index, num_segments=len(factor))
    curvature = n_places * of_factor(other**2)

    def column(k: int | Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, residual = state
        old, partner = factor[:, k], other[:, k]
        new = minimizer(of_factor(partner * residual) + curvature[:, k] * old, curvature[:, k])
        return factor.at[:, k].set(new), residual - n_places * partner * _at(new - old, index)

    return jax.lax.fori_loop(0, factor.shape[1], column, (factor, residual))[0]


def _at(factor: Float[Array, "row *rank"], index: Int[Array, " at"]) -> Float[Array, "at *rank"]:
    """Rows of a factor; zeros for what pads."""
    return factor.at[index].get(mode="fill", fill_value=0)


def _sum_of_counts(
    transitions: SparseTransitions, factor: Array, source: Array, target: Array, n_targets: int
) -> Float[Array, "target rank"]:
    """Sum over all counts of count times row of a factor, by another index."""
    return jax.ops.segment_sum(transitions.count[:, None] * _at(factor, source), target, n_targets)


def _n_rows(index: Int[Array, " row"], n: int, dtype: np.dtype) -> Float[Array, " index"]:
    return jax.ops.segment_sum(jnp.ones(len(index), dtype), index, n)


def _constant(factors: Factors, transitions: SparseTransitions) -> Float[Array, " row"]:
    """The third term of (13) of each row."""
    users, places = _at(factors.user_c, transitions.row_user), _at(factors.place_c, transitions.row_place)
    return jnp.sum(users * places, axis=1)


def _pairs_of_rows(factors: Factors, transitions: SparseTransitions) -> Float[Array, "row both"]:
    """What multiplies the two factors of next places in each row."""
    parts = [_at(factors.place_a, transitions.row_place), _at(factors.user_b, transitions.row_user)]
    return jnp.concatenate(parts, axis=1)


def _residual(factors: Factors, transitions: SparseTransitions) -> Float[Array, " row"]:
    """Counts minus predicted counts, summed over next places."""
    by_place = _at(factors.place_a @ factors.next_place_a.sum(axis=0), transitions.row_place)
    by_user = _at(factors.user_b @ factors.next_place_b.sum(axis=0), transitions.row_user)
    constant = len(factors.place_c) * _constant(factors, transitions)
    return transitions.row_total - by_place - by_user - constant


def _padded(values: np.ndarray, fill: int) -> np.ndarray:
    """Up to a power of two, so that few programs are compiled."""
    size = max(MIN_PADDED, 1 << (len(values) - 1).bit_length())
    return np.pad(values, (0, size - len(values)), constant_values=fill)
