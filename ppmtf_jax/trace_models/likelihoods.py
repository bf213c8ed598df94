"""Exact likelihoods of traces under any `ScoredTraceModel`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.runtime.devices import round_up
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ScoredTraceModel

# Maximum number of users whose cache is computed together: matrix products are faster for many users.
USERS_AT_A_TIME = 128
# Number of moves that are scored together: intermediate arrays fit the cache of a core.
CHUNK = 512
# Number of traces that a thread processes at a time, all of users whose cache was computed together.
TRACES_AT_A_TIME = 32 * USERS_AT_A_TIME
# Smaller blocks of traces are padded to this size.
MIN_TRACES = 128


def representatives(model: ScoredTraceModel, n_users: int) -> Int[np.ndarray, " user"]:
    """For each user the first user of the same class (`ScoredTraceModel.user_classes`), who represents the class."""
    _, first, number = np.unique(model.user_classes(n_users), return_index=True, return_inverse=True)
    return first[number]


def step_log_probabilities(
    model: ScoredTraceModel, users: np.ndarray, places: np.ndarray, *, progress: bool = False
) -> Any:
    """Log-probability of each event of complete traces, each trace under its own user; shapes (traces, instants).

    The sum over instants is the log-likelihood of the trace. Fewer distinct users take less time: give the
    `representatives` of the users.
    """
    distinct, number = np.unique(users, return_inverse=True)
    order = np.argsort(number, kind="stable")
    tile = number[order] // USERS_AT_A_TIME
    of_tiles = np.split(order, np.flatnonzero(np.diff(tile)) + 1)
    blocks = [block for of_tile in of_tiles for block in _parts(of_tile, TRACES_AT_A_TIME)]
    # All blocks have one size, and all small sets of traces have the same size, so that few programs are compiled.
    size = padded_size(max(map(len, blocks)), least=MIN_TRACES)
    local_copy = on_each_device(model)

    def of_block(block: np.ndarray) -> Any:
        padded = np.resize(block, size)
        first = number[block[0]] // USERS_AT_A_TIME * USERS_AT_A_TIME
        # The number of users is always the same, so that the last digits of a row sum do not depend on it.
        ids = np.resize(distinct[first : first + USERS_AT_A_TIME], USERS_AT_A_TIME)
        which = number[padded] - first
        steps = _own_steps(local_copy(), jnp.asarray(ids), jnp.asarray(which), jnp.asarray(places[padded]))
        return jax.tree.map(lambda each: np.asarray(each)[: len(block)], steps)

    computed = []
    with progress_bar("likelihoods of the traces", len(users), show=progress) as advance:
        for block, steps in zip(blocks, map_in_threads(of_block, blocks), strict=True):
            computed.append(steps)
            advance(len(block))
    back = np.argsort(order)
    return jax.tree.map(lambda *parts: np.concatenate(parts)[back], *computed)


class Moves(NamedTuple):
    """Distinct moves of some traces, or of each batch of traces."""

    instant: Int[np.ndarray, "*batch step"]
    place: Int[np.ndarray, "*batch step"]
    next_place: Int[np.ndarray, "*batch step"]


class Steps(NamedTuple):
    """The distinct first places and stays (sorted by place) of all traces, and the distinct moves of each batch."""

    first_place: np.ndarray
    stay_instant: np.ndarray
    stay_place: np.ndarray
    moves: Moves


def distinct_steps(
    model: ScoredTraceModel, places: Int[np.ndarray, "trace instant"], batch: int
) -> tuple[Steps, Int[np.ndarray, "trace instant"]]:
    """The distinct steps of complete traces, padded to one of few sizes, and the index of each event's step.

    Traces share most of their stays, but few of their moves. So there is one list of stays, and a list of moves for
    each `batch` traces. The index counts first places, then stays, then the moves of the batch. Few sizes mean few
    compiled programs.
    """
    n_places, n_instants = int(places.max()) + 1, places.shape[1]
    # Each class of instants (phase) is represented by its first instant.
    _, representative, phase = np.unique(model.instant_classes(n_instants)[1:], return_index=True, return_inverse=True)
    instant = (representative + 1)[phase]
    before, after = places[:, :-1].astype(np.int64), places[:, 1:]
    stays, number = before == after, np.arange(len(places))[:, None] // batch
    rows, n_rows, distinct = np.empty(places.shape, np.int32), 0, []
    for of_rows, which, keys in (
        (rows[:, :1], slice(None), places[:, :1]),
        (rows[:, 1:], stays, before * n_instants + instant),
    ):
        found, row = np.unique(keys[which], return_inverse=True)
        of_rows[which] = n_rows + row.reshape(of_rows[which].shape)
        n_rows += padded_size(len(found))
        distinct.append(np.pad(found, (0, padded_size(len(found)) - len(found)), mode="edge") if len(found) else found)
    shape = (int(number[-1, 0]) + 1, n_instants, n_places, n_places)
    found, row = np.unique(np.ravel_multi_index((number, instant, before, after), shape)[~stays], return_inverse=True)
    of_batch, *columns = np.unravel_index(found, shape)
    begin = np.searchsorted(of_batch, np.arange(shape[0] + 1))
    at = np.arange(len(found)) - begin[of_batch]
    rows[:, 1:][~stays] = n_rows + at[row]
    moves = Moves(*np.zeros((3, shape[0], padded_size(int(np.diff(begin).max()))), np.int32))
    for column, values in zip(moves, columns, strict=True):
        column[of_batch, at] = values
    stay_place, stay_instant = np.divmod(distinct[1], n_instants)
    return Steps(distinct[0].astype(np.int32), stay_instant.astype(np.int32), stay_place.astype(np.int32), moves), rows


def table_rows(steps: Steps) -> int:
    """Number of rows of a table of steps: a row for each first place, stay and move of one batch."""
    return len(steps.first_place) + len(steps.stay_place) + steps.moves.place.shape[-1]


def empty_step_table(model: ScoredTraceModel, n_users: int, steps: Steps) -> Float[Array, "row user"]:
    """An empty table of `table_rows` rows.

    Its rows are overwritten again and again, because allocating a large table takes longer than filling it.
    """
    first = jax.eval_shape(
        lambda users: _log_firsts(model, model.user_cache(users), steps), jnp.zeros(n_users, jnp.int32)
    )
    return jnp.zeros((table_rows(steps), n_users), first.dtype)


def firsts_and_stays(model: ScoredTraceModel, cache: Any, steps: Steps) -> Float[Array, "row user"]:
    """Log-probabilities of all first places and then of all stays under the users of the cache."""
    of_both = _log_firsts(model, cache, steps), model.log_stays(cache, steps.stay_instant, steps.stay_place)
    return jnp.concatenate(of_both)


def write_moves(
    model: ScoredTraceModel, cache: Any, moves: Moves, table: Float[Array, "row user"]
) -> Float[Array, "row user"]:
    """Write the log-probabilities of the moves of one batch at the end of the table."""
    n_moves = len(moves.place)
    if not n_moves:
        return table
    # Moves are computed in chunks, so that intermediate arrays stay in the cache; writing each chunk in place saves a
    # copy.
    chunk = CHUNK if n_moves % CHUNK == 0 else n_moves

    def write(number: Array, table: Array) -> Array:
        of_chunk = (jax.lax.dynamic_slice_in_dim(column, number * chunk, chunk) for column in moves)
        rows = model.log_moves(cache, *of_chunk)
        return jax.lax.dynamic_update_slice_in_dim(table, rows, len(table) - n_moves + number * chunk, 0)

    # Padded steps are stays, and come last. Chunks that contain only padded steps are not computed.
    n_chunks = -(-jnp.sum(moves.place != moves.next_place) // chunk)
    return jax.lax.fori_loop(0, n_chunks, write, table)


def _log_firsts(model: ScoredTraceModel, cache: Any, steps: Steps) -> Float[Array, "step user"]:
    return jax.vmap(jax.vmap(model.log_first, (-1, None)), (None, 0))(cache, steps.first_place)


def sum_of_rows(table: Float[Array, "row user"], rows: Int[Array, "trace instant"]) -> Float[Array, "trace user"]:
    """Log-likelihood of traces from the table of their steps, summed in the order of time."""
    total = table[rows[:, 0]]
    for instant in range(1, rows.shape[1]):
        total = total + table[rows[:, instant]]
    return total


@jax.jit
def _own_steps(
    model: ScoredTraceModel,
    users: Int[Array, " user"],
    which: Int[Array, " trace"],
    places: Int[Array, "trace instant"],
) -> Float[Array, "trace instant"]:
    cache = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), model.user_cache(users))
    return model.log_own_steps(cache, which, places)


def padded_size(size: int, least: int = 16) -> int:
    """Round up to 0, `least`, or 2^n or 3 * 2^n above it: few sizes, and at most 1.5 times the needed size."""
    return round_up(max(size, least), steps=2) if size else 0


def _parts(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive parts of `rows`; all but the last have the same size."""
    return np.split(rows, range(size, len(rows), size))
