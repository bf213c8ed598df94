"""Completing partly known traces under any `ScoredTraceModel`.

The most probable completion is found by the Viterbi algorithm. A random completion, drawn from the model's traces given
the known places, is found by forward filtering and backward sampling. Both algorithms go forwards through the instants
and compute the log-probability v_t(b) of the best path to place b (max), or of all paths to b (log-sum-exp),

    v_t(b) = max or logsumexp over a of v_{t-1}(a) + log P_t(b | a),  -inf if another place is known at t,

and then choose places backwards: the place a with the largest v_{t-1}(a) + log P_t(b | a), or a random place with
probability proportional to the exponential of this sum.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.errors import InputError, NumericalError, Problem
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, n_threads, on_each_device
from ppmtf_jax.trace_models.base import ABSENT, ScoredTraceModel
from ppmtf_jax.trace_models.likelihoods import representatives
from ppmtf_jax.trace_models.sampling import sample_index

# Number of traces that a thread processes at a time, and maximum size of its forward pass for one class of users.
TRACES_AT_A_TIME = 1024
FORWARD_NUMBERS = 2**24
# Number of step matrices that a thread has in memory while it computes one: the previous, the new and two others.
MATRICES_AT_A_TIME = 4
FLOAT_BYTES = 4
# Bytes per event: known place, place and peak; then user, trace, instant and place, and their indices.
COMPLETED_EVENT_BYTES = 3 * 4 + 4 * 4 + 3 * 8
SMALL_CONSTANT_BYTES = 200 * 2**20


class Completion(NamedTuple):
    """Traces with a place at every instant."""

    places: np.ndarray  # known places are unchanged; all places of an impossible trace are -1; shape (traces, instants)
    # First instant whose known place is impossible given the earlier ones; -1 for a possible trace; shape (traces,).
    impossible_at: np.ndarray


def most_probable_places(
    model: ScoredTraceModel,
    users: Int[np.ndarray, " trace"],
    known: Int[np.ndarray, "trace instant"],
    n_places: int,
    *,
    progress: bool = False,
) -> Completion:
    """The most probable completion of each trace under its own user; an arbitrary one if there are ties.

    `known`: the known places, -1 where the place is unknown; all or none may be known. Raises `InputError`: a known
    place does not exist, or there is too little memory. Raises `NumericalError`: a log-probability of the model is NaN.

    Notes
    -----
    Time: places^2 operations for each trace and instant, plus places^2 log-probabilities for each class of users
    (`ScoredTraceModel.user_classes`) and each run of instants of one phase (`ScoredTraceModel.instant_classes`).
    Memory: a few matrices of places x places for each thread. Measured on two cores with 400 places and 30 instants:
    0.8 s for 500 traces if users share a chain (also for random completions), 60 ms per user if each has a chain.

    Examples
    --------
    >>> from ppmtf_jax.synthesizers.systems.uniform import Uniform
    >>> places, _ = most_probable_places(Uniform(n_places=5), np.array([0]), np.array([[-1, 3, -1]]), 5)
    >>> places.tolist()
    [[0, 3, 0]]
    """
    return _complete(model, users, known, n_places, None, progress)


def sample_places(
    keys: Key[Array, " trace"],
    model: ScoredTraceModel,
    users: Int[np.ndarray, " trace"],
    known: Int[np.ndarray, "trace instant"],
    n_places: int,
    *,
    progress: bool = False,
) -> Completion:
    """A random completion of each trace, drawn from the chain of its user given the known places.

    Costs and errors are those of `most_probable_places`. Each trace has its own key, so its completion does not depend
    on the other traces, except for the rounding of sums.
    """
    return _complete(model, users, known, n_places, keys, progress)


def bytes_to_complete(n_traces: int, n_instants: int, n_places: int) -> int:
    """Upper bound of the peak memory of completing the traces, in bytes."""
    forward = 2 * max(FORWARD_NUMBERS, n_places * n_instants)
    of_threads = n_threads() * FLOAT_BYTES * (MATRICES_AT_A_TIME * n_places**2 + forward)
    return SMALL_CONSTANT_BYTES + of_threads + COMPLETED_EVENT_BYTES * n_traces * n_instants


def _complete(
    model: ScoredTraceModel,
    users: np.ndarray,
    known: np.ndarray,
    n_places: int,
    keys: Key[Array, " trace"] | None,
    progress: bool,
) -> Completion:
    if known.size and not (known.min() >= ABSENT and known.max() < n_places):
        raise InputError("known places", [Problem(f"places 0 to {n_places - 1}, or {ABSENT}", "others")])
    n_traces, n_instants = known.shape
    places, peaks = np.empty(known.shape, np.int32), np.empty(known.shape, np.float32)
    if not known.size:
        return Completion(places, np.full(n_traces, ABSENT, np.int32))
    way_out = "Take fewer places, or fewer traces at a time"
    require_memory("completion", bytes_to_complete(n_traces, n_instants, n_places), way_out)
    number, asked = _rows_of_one_class(model, users, n_instants * n_places)
    # All blocks have the same size, so that only one program is compiled; there is at least one block per thread if the
    # traces suffice.
    size = max(1, min(TRACES_AT_A_TIME // number.shape[1], -(-len(number) // n_threads())))
    phases = jnp.asarray(model.instant_classes(n_instants), jnp.int32)
    local_copy = on_each_device((model, phases))

    def of_block(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        padded = np.resize(block, size)
        own_keys = None if keys is None else keys[number[padded]]
        model, phases = local_copy()
        user, traces = jnp.asarray(asked[padded], jnp.int32), jnp.asarray(known[number[padded]], jnp.int32)
        made = _complete_rows(model, phases, user, own_keys, traces, n_places)
        return np.asarray(made[0])[: len(block)], np.asarray(made[1])[: len(block)]

    blocks = np.split(np.arange(len(number)), range(size, len(number), size))
    with progress_bar("completing", n_traces, show=progress) as advance:
        for block, (made, peak) in zip(blocks, map_in_threads(of_block, blocks), strict=True):
            # A row may be padded with copies of its own traces.
            places[number[block]], peaks[number[block]] = made, peak
            advance(len(np.unique(number[block])))
    return _checked(places, peaks, known)


def _rows_of_one_class(
    model: ScoredTraceModel, users: np.ndarray, numbers_per_trace: int
) -> tuple[np.ndarray, np.ndarray]:
    """Traces in rows. Each row has one user: all users of its traces have their class and share the step matrices."""
    of_class, class_number = np.unique(representatives(model, int(users.max()) + 1)[users], return_inverse=True)
    mean = -(-len(users) // len(of_class))
    width = max(1, min(mean, TRACES_AT_A_TIME, FORWARD_NUMBERS // numbers_per_trace))
    order = np.argsort(class_number, kind="stable")
    in_class = rank_in_run(class_number[order])
    _, first, row = np.unique(
        class_number[order] * np.int64(len(users)) + in_class // width, return_index=True, return_inverse=True
    )
    number = np.repeat(order[first][:, None], width, axis=1)
    number[row, in_class % width] = order
    return number, of_class[class_number[number[:, 0]]]


def _checked(places: np.ndarray, peaks: np.ndarray, known: np.ndarray) -> Completion:
    impossible = peaks == -np.inf
    if np.isnan(peaks).any():
        n_bad = int(np.isnan(peaks).any(axis=1).sum())
        raise NumericalError(f"the model gives log-probabilities that are not numbers for {n_bad} traces")
    impossible_at = np.where(impossible.any(axis=1), impossible.argmax(axis=1), ABSENT).astype(np.int32)
    places[impossible_at != ABSENT] = ABSENT
    possible = (impossible_at == ABSENT)[:, None]
    if (possible & ((places == ABSENT) | ((known != ABSENT) & (known != places)))).any():
        raise NumericalError("a completion came out impossible: the model's log-probabilities contradict each other")
    return Completion(places, impossible_at)


@partial(jax.jit, static_argnames="n_places")
def _complete_rows(
    model: ScoredTraceModel,
    phases: Int[Array, " instant"],
    users: Int[Array, " row"],
    keys: Key[Array, "row trace"] | None,
    known: Int[Array, "row trace instant"],
    n_places: int,
) -> tuple[Int[Array, "row trace instant"], Float[Array, "row trace instant"]]:
    """Places, and the largest log-probability of the forward pass at each instant, row by row."""
    n_instants = known.shape[2]
    every, instants = jnp.arange(n_places, dtype=jnp.int32), jnp.arange(n_instants)
    gather = _best if keys is None else _total

    def of_row(row: tuple[Array, Array | None, Array]) -> tuple[Array, Array]:
        user, own_keys, traces = row
        cache = model.user_cache(user[None])

        def normalized(values: Array, at_instant: Array) -> tuple[Array, Array]:
            """Values of agreeing places minus their maximum, so that long traces lose no digits, and the maximum."""
            values = jnp.where((at_instant[:, None] == ABSENT) | (at_instant[:, None] == every), values, -jnp.inf)
            return values - _finite_peak(values)[..., None], values.max(axis=-1)

        def advance(state: tuple[Array, Array, Array], step: tuple[Array, Array, Array]) -> tuple[Any, Any]:
            values, matrix, last_phase = state
            instant, phase, at_instant = step
            matrix = lax.cond(phase == last_phase, lambda: matrix, lambda: _step_matrix(model, cache, every, instant))
            values, peak = normalized(gather(values, matrix), at_instant)
            return (values, matrix, phase), (values, peak)

        def choose(instant: Array, log_weights: Array) -> Array:
            """For each trace a place, the one of largest weight or a random one; -1 if none is possible."""
            if own_keys is None:
                chosen = jnp.argmax(log_weights, axis=1)
            else:
                of_instant = jax.vmap(jax.random.fold_in, (0, None))(own_keys, instant)
                uniform = jax.vmap(partial(jax.random.uniform, dtype=log_weights.dtype))(of_instant)
                weights = jnp.exp(log_weights - _finite_peak(log_weights)[:, None])
                chosen = jax.vmap(sample_index)(uniform, weights)
            return jnp.where(log_weights.max(axis=1) > -jnp.inf, chosen, ABSENT).astype(jnp.int32)

        def back(next_places: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            instant, before = step
            columns = lax.map(lambda place: _steps_into(model, cache, every, instant, place), next_places)
            places = choose(instant - 1, before + columns)
            # Places before an impossible end do not matter: the whole trace is marked as impossible.
            return jnp.maximum(places, 0), places

        # Forwards: the best path, or all paths, to each place at each instant.
        of_first = jax.vmap(model.log_first, (None, 0))(jax.tree.map(lambda leaf: leaf[..., 0], cache), every)
        begin, peak = normalized(jnp.broadcast_to(of_first, (len(traces), n_places)), traces[:, 0])
        matrix = jnp.zeros_like(jax.eval_shape(partial(_step_matrix, model, cache, every), jnp.int32(0)))
        steps = (instants[1:], phases[1:], traces.T[1:])
        _, (later, peaks) = lax.scan(advance, (begin, matrix, jnp.int32(-1)), steps)
        values = jnp.concatenate([begin[None], later])
        # Backwards: the last place by its value, then each earlier one by its value and its step to the next place.
        last = choose(jnp.int32(n_instants - 1), values[-1])
        _, earlier = lax.scan(back, jnp.maximum(last, 0), (instants[1:], values[:-1]), reverse=True)
        places = jnp.concatenate([earlier, last[None]])
        return places.T, jnp.concatenate([peak[None], peaks]).T.astype(jnp.float32)

    return lax.map(of_row, (users, keys, known))


def _step_matrix(model: ScoredTraceModel, cache: Any, every: Array, instant: Array) -> Float[Array, "place next_place"]:
    """Log-probabilities of all steps to an instant, for the one user of the cache."""
    instants = jnp.broadcast_to(instant, every.shape)
    # Row by row: the intermediate arrays of a model are larger than the row.
    moves = lax.map(
        lambda place: model.log_moves(cache, instants, jnp.broadcast_to(place, every.shape), every)[:, 0], every
    )
    stays = model.log_stays(cache, instants, every)[:, 0]
    return moves.at[every, every].set(stays.astype(moves.dtype))


def _steps_into(
    model: ScoredTraceModel, cache: Any, every: Array, instant: Array, next_place: Array
) -> Float[Array, " place"]:
    """One column of `_step_matrix`."""
    at, there = jnp.broadcast_to(instant, every.shape), jnp.broadcast_to(next_place, every.shape)
    moves = model.log_moves(cache, at, every, there)[:, 0]
    return moves.at[next_place].set(model.log_stays(cache, instant[None], next_place[None])[0, 0].astype(moves.dtype))


def _best(values: Float[Array, "trace place"], matrix: Float[Array, "place next_place"]) -> Array:
    """Log-probability of the best path to each next place, shape (traces, places)."""

    def compare(best: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
        return jnp.maximum(best, step[0][:, None] + step[1]), None

    return lax.scan(compare, jnp.full_like(values, -jnp.inf), (values.T, matrix))[0]


def _total(values: Float[Array, "trace place"], matrix: Float[Array, "place next_place"]) -> Array:
    """Log-probability of all paths to each next place, -inf if there is none; a matrix product where possible."""
    product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    total = product(jnp.exp(values), jnp.exp(matrix))
    possible = product((values > -jnp.inf).astype(total.dtype), (matrix > -jnp.inf).astype(total.dtype)) > 0
    # The error by underflow is at most the smallest positive number for each place, because no factor is above 1.
    missing = len(matrix) * jnp.finfo(total.dtype).tiny
    lost = possible & (total < missing / jnp.finfo(total.dtype).eps)

    def of_logs() -> Array:
        """The same result without underflow, but many times slower."""
        best = _best(values, matrix)
        peak = jnp.where(best == -jnp.inf, 0, best)

        def add(total: Array, step: tuple[Array, Array]) -> tuple[Array, None]:
            return total + jnp.exp(step[0][:, None] + step[1] - peak), None

        return peak + jnp.log(lax.scan(add, jnp.zeros_like(values), (values.T, matrix))[0])

    return lax.cond(lost.any(), of_logs, lambda: jnp.log(total))


def _finite_peak(values: Float[Array, "*rows place"]) -> Float[Array, "*rows"]:
    """The largest value; 0 if all are -inf, because -inf - -inf is NaN."""
    peak = values.max(axis=-1)
    return jnp.where(peak == -jnp.inf, 0, peak)
