"""Drawing traces from any trace model."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ppmtf_jax.runtime.devices import round_up
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ROUNDED, Index, OneKey, TraceModel

# Traces are drawn for tiles of this many users, so that products have one shape and traces do not depend on the batch.
TILE = 64


@partial(jax.jit, static_argnames="n_instants")
def sample_tiles(
    key: OneKey, model: TraceModel, tiles: Int[Array, "tile user"], numbers: Int[Array, " tile"], n_instants: int
) -> Int[Array, "tile user instant"]:
    """Draw one trace of each user of some tiles, tile by tile; `numbers` are the trace numbers of the tiles."""

    def sample_tile(tile: tuple[Array, Array]) -> Array:
        users, number = tile

        return jax.vmap(lambda user: model.draw_trace(key, user, number, n_instants))(users)

    return jax.lax.map(sample_tile, (tiles, numbers))


def sample_traces(
    key: OneKey,
    model: TraceModel,
    traces_of_user: Int[np.ndarray, " user"],
    n_instants: int,
    *,
    batch_users: int,
    users: slice = slice(None),
    progress: bool = False,
) -> Int[np.ndarray, "trace instant"]:
    """Draw traces: the places of `traces_of_user[n]` traces of each user n, in the order of users and trace numbers.

    A trace depends only on the key, its user and its number. `batch_users` is the number of users that are processed at
    a time. `users`: draw only the traces of these users.
    """
    n_users, (begin, stop, _) = len(traces_of_user), users.indices(len(traces_of_user))
    of_some = traces_of_user[begin:stop]
    n_traces = int(of_some.sum())
    user = np.repeat(np.arange(begin, stop), of_some)
    first = np.cumsum(of_some) - of_some
    number = np.arange(n_traces) - first[user - begin]
    # A whole tile is always drawn, even if only some of its users are needed, because rounding can depend on a user's
    # position in the tile.
    tile_and_number = user // TILE * (1 + int(number.max())) + number
    order = np.argsort(tile_and_number, kind="stable")
    draw_of_trace = np.cumsum(np.diff(tile_and_number[order], prepend=-1) != 0) - 1
    n_draws = 1 + int(draw_of_trace[-1])
    # All batches have the same size, so that only one program is compiled.
    n_tiles = -(-len(of_some) // TILE)
    n_batches = -(-len(of_some) // batch_users)
    batch = -(-n_tiles // n_batches)
    place = np.empty((len(user), n_instants), np.int32)
    local_copy = on_each_device(model.rounded())

    def draw(begin: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(*np.searchsorted(draw_of_trace, [begin, begin + batch]))
        wanted, drawn_as = order[rows], draw_of_trace[rows] - begin
        # The last batch is padded with copies of its last tile.
        last = np.searchsorted(drawn_as, np.minimum(np.arange(batch), drawn_as[-1]))
        tiles = user[wanted[last]] // TILE
        users = np.minimum(tiles[:, None] * TILE + np.arange(TILE), n_users - 1)
        drawn = sample_tiles(
            key, local_copy(), jnp.asarray(users), jnp.asarray(number[wanted[last]], jnp.int32), n_instants
        )
        return wanted, np.asarray(drawn)[drawn_as, user[wanted] % TILE]

    with progress_bar("synthesizing", len(user), show=progress) as advance:
        for wanted, drawn in map_in_threads(draw, range(0, n_draws, batch)):
            place[wanted] = drawn
            advance(len(wanted))
    return place


def sample_index(uniform: Float[Array, ""], weight: Float[Array, " place"]) -> Index:
    """Draw an index with probability proportional to `weight`, from one uniform number.

    The search has two levels of about sqrt(places) each (sums of blocks, then the chosen block), so that no cumulative
    sum of the whole row is needed.
    """
    n = weight.shape[0]
    width = max(1, int(np.ceil(np.sqrt(n))))
    n_blocks = -(-n // width)
    blocks = jnp.pad(weight, (0, n_blocks * width - n)).reshape(n_blocks, width)
    ends = jnp.cumsum(blocks.sum(axis=1))
    target = uniform * ends[-1]
    block = jnp.minimum(jnp.sum(ends <= target), n_blocks - 1)
    before = jnp.where(block > 0, ends[block - 1], 0)
    within = jnp.cumsum(blocks[block])
    # A compiler may fuse the product and the difference, which can round a number at the boundary to below it.
    rest = jnp.maximum(target - before, 0)
    # If rounding moves the target past the end, take the last place of positive weight.
    last = width - 1 - jnp.argmax(blocks[block][::-1] > 0)
    return (block * width + jnp.minimum(jnp.sum(within <= rest), last)).astype(jnp.int32)


def longest_row(begin: Int[np.ndarray, " row1"], n_entries: int) -> int:
    """At least the number of entries of any row, rounded up so that similar models share programs."""
    return min(round_up(max(1, int(np.diff(begin).max())), ROUNDED), n_entries)


def find_in_row(column: Int[Array, " entry"], begin: Index, end: Index, wanted: Index) -> tuple[Index, Bool[Array, ""]]:
    """The first entry in [begin, end) whose column is at least `wanted`, and whether its column equals `wanted`.

    If there is no such entry, the index of any existing entry is returned.

    Examples
    --------
    >>> column = jnp.array([1, 4, 7, 0, 9])
    >>> [int(x) for x in find_in_row(column, jnp.array(0), jnp.array(3), jnp.array(4))]
    [1, 1]
    """

    def halve(_: Index, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) // 2
        below = (low < high) & (column[middle] < wanted)
        return jnp.where(below, middle + 1, low), jnp.where(below, high, jnp.minimum(middle, high))

    at = lax.fori_loop(0, len(column).bit_length(), halve, (begin, end))[0]
    last = jnp.minimum(at, len(column) - 1)
    return last, (at < end) & (column[last] == wanted)
