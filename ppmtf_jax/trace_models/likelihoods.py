"""Exact likelihoods of traces under any `ScoredTraceModel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ScoredTraceModel

# Number of users whose cache is computed together, and of steps that are scored together: intermediate arrays fit the
# cache of a core.
USERS_AT_A_TIME = 64
CHUNK = 512
# Number of traces that a thread processes at a time, all of users whose cache was computed together.
TRACES_AT_A_TIME = 64 * USERS_AT_A_TIME


def representatives(model: ScoredTraceModel, n_users: int) -> Int[np.ndarray, " user"]:
    """For each user the first user of the same class (`ScoredTraceModel.user_classes`), who represents the class."""
    _, first, number = np.unique(model.user_classes(n_users), return_index=True, return_inverse=True)
    return first[number]


def step_log_probabilities(
    model: ScoredTraceModel, users: np.ndarray, places: np.ndarray, *, progress: bool = False
) -> np.ndarray:
    """Log-probability of each event of complete traces, each trace under its own user; shapes (traces, instants).

    The sum over instants is the log-likelihood of the trace.
    """
    distinct, number = np.unique(representatives(model, int(users.max()) + 1)[users], return_inverse=True)
    order = np.argsort(number, kind="stable")
    tile = number[order] // USERS_AT_A_TIME
    of_tiles = np.split(order, np.flatnonzero(np.diff(tile)) + 1)
    blocks = [block for of_tile in of_tiles for block in _parts(of_tile, TRACES_AT_A_TIME)]
    # All blocks have the same size, so that only one program is compiled.
    size = padded_size(max(map(len, blocks)))
    local_copy = on_each_device(model)

    def of_block(block: np.ndarray) -> np.ndarray:
        padded = np.resize(block, size)
        first = number[block[0]] // USERS_AT_A_TIME * USERS_AT_A_TIME
        ids = np.resize(distinct[first : first + USERS_AT_A_TIME], USERS_AT_A_TIME)
        which = number[padded] - first
        steps = _own_steps(local_copy(), jnp.asarray(ids), jnp.asarray(which), jnp.asarray(places[padded]))
        return np.asarray(steps)[: len(block)]

    computed = []
    with progress_bar("likelihoods of the traces", len(users), show=progress) as advance:
        for steps in map_in_threads(of_block, blocks):
            computed.append(steps)
            advance(len(steps))
    return np.concatenate(computed)[np.argsort(order)]


class Steps(NamedTuple):
    """The distinct steps of some traces: first places, stays (sorted by place), moves."""

    first_place: np.ndarray
    stay_instant: np.ndarray
    stay_place: np.ndarray
    move_instant: np.ndarray
    move_place: np.ndarray
    move_next_place: np.ndarray


def distinct_steps(model: ScoredTraceModel, places: np.ndarray) -> tuple[Steps, np.ndarray]:
    """The distinct steps of complete traces, padded to one of few sizes, and the index of each event's step.

    The index counts first places, then stays, then moves. Few sizes mean few compiled programs.
    """
    n_places, n_instants = int(places.max()) + 1, places.shape[1]
    # Each class of instants (phase) is represented by its first instant.
    _, representative, phase = np.unique(model.instant_classes(n_instants)[1:], return_index=True, return_inverse=True)
    instant = (representative + 1)[phase]
    before, after = places[:, :-1].astype(np.int64), places[:, 1:]
    stays = before == after
    rows, n_rows, distinct = np.empty(places.shape, np.int32), 0, []
    for of_rows, which, keys in (
        (rows[:, :1], slice(None), places[:, :1]),
        (rows[:, 1:], stays, before * n_instants + instant),
        (rows[:, 1:], ~stays, (instant * n_places + before) * n_places + after),
    ):
        found, row = np.unique(keys[which], return_inverse=True)
        of_rows[which] = n_rows + row.reshape(of_rows[which].shape)
        n_rows += padded_size(len(found))
        distinct.append(np.pad(found, (0, padded_size(len(found)) - len(found)), mode="edge") if len(found) else found)
    first, stay, move = distinct
    stay_place, stay_instant = np.divmod(stay, n_instants)
    move_instant, place, next_place = np.unravel_index(move, (n_instants, n_places, n_places))
    columns = (first, stay_instant, stay_place, move_instant, place, next_place)
    return Steps(*(column.astype(np.int32) for column in columns)), rows


def log_step_table(
    model: ScoredTraceModel, users: Int[Array, " user"], steps: Steps, table: Float[Array, "row user"]
) -> Float[Array, "row user"]:
    """Log-probability of every step under every user, in the order of `distinct_steps`.

    The result overwrites `table`, which comes from `empty_step_table`, because allocating a large table takes longer
    than filling it.
    """
    cache = model.user_cache(users)
    first = _log_firsts(model, cache, steps)
    stays = model.log_stays(cache, steps.stay_instant, steps.stay_place)
    n_first, n_stays, n_moves = len(first), len(stays), len(steps.move_place)
    table = table.at[:n_first].set(first).at[n_first : n_first + n_stays].set(stays)
    # Moves are computed in chunks, so that intermediate arrays stay in the cache; writing each chunk in place saves a
    # copy.
    chunk = CHUNK if n_moves % CHUNK == 0 else n_moves

    def write(number: Array, table: Array) -> Array:
        begin = number * chunk
        of_chunk = (jax.lax.dynamic_slice_in_dim(column, begin, chunk) for column in steps[3:])
        rows = model.log_moves(cache, *of_chunk).astype(table.dtype)
        return jax.lax.dynamic_update_slice_in_dim(table, rows, n_first + n_stays + begin, 0)

    return jax.lax.fori_loop(0, n_moves // chunk, write, table) if n_moves else table


def empty_step_table(model: ScoredTraceModel, n_users: int, steps: Steps) -> Float[Array, "row user"]:
    """An empty table for `log_step_table`."""
    n_rows = len(steps.first_place) + len(steps.stay_place) + len(steps.move_place)
    first = jax.eval_shape(
        lambda users: _log_firsts(model, model.user_cache(users), steps), jnp.zeros(n_users, jnp.int32)
    )
    return jnp.zeros((n_rows, n_users), first.dtype)


def _log_firsts(model: ScoredTraceModel, cache: Any, steps: Steps) -> Float[Array, "step user"]:
    return jax.vmap(jax.vmap(model.log_first, (-1, None)), (None, 0))(cache, steps.first_place)


def sum_of_rows(table: Float[Array, "row user"], rows: Int[Array, "trace instant"]) -> Float[Array, "trace user"]:
    """Log-likelihood of traces from the table of their steps, summed in the order of time."""
    total = table[rows[:, 0]]
    for instant in range(1, rows.shape[1]):
        total = total + table[rows[:, instant]]
    return total


def pairwise_log_likelihood(
    model: ScoredTraceModel, users: Int[np.ndarray, " user"], places: Int[np.ndarray, "trace instant"]
) -> Float[np.ndarray, "trace user"]:
    """Log-likelihood of each complete trace under each of the users."""
    local_copy = on_each_device((model, *distinct_steps(model, places)))

    def of_block(block: np.ndarray) -> np.ndarray:
        model, steps, rows = local_copy()
        padded = jnp.asarray(np.resize(block, USERS_AT_A_TIME))
        return np.asarray(_log_likelihoods(model, padded, steps, rows))[:, : len(block)]

    return np.concatenate(list(map_in_threads(of_block, _parts(users, USERS_AT_A_TIME))), axis=1)


@jax.jit
def _log_likelihoods(model: ScoredTraceModel, users: Array, steps: Steps, rows: Array) -> Float[Array, "trace user"]:
    table = empty_step_table(model, len(users), steps)
    return sum_of_rows(log_step_table(model, users, steps, table), rows)


@jax.jit
def _own_steps(
    model: ScoredTraceModel,
    users: Int[Array, " user"],
    which: Int[Array, " trace"],
    places: Int[Array, "trace instant"],
) -> Float[Array, "trace instant"]:
    cache = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), model.user_cache(users))
    instants = jnp.arange(1, places.shape[1])

    def one(pair: tuple[Array, Array]) -> Array:
        table, trace = jax.tree.map(lambda leaf: leaf[pair[0]], cache), pair[1]
        rest = jax.vmap(model.log_next, (None, 0, 0, 0))(table, instants, trace[:-1], trace[1:])
        return jnp.concatenate([model.log_first(table, trace[0])[None], rest])

    return jax.lax.map(one, (which, places))


def padded_size(size: int) -> int:
    """Round up to 0, 16, 24, 32, 48, 64, 96, ...: few sizes, and above 16 at most 1.5 times the needed size."""
    if not size:
        return 0
    power = 1 << max(4, (size - 1).bit_length())
    return power * 3 // 4 if size <= power * 3 // 4 and power > 16 else power


def _parts(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive parts of `rows`; all but the last have the same size."""
    return np.split(rows, range(size, len(rows), size))
