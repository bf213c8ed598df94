"""Drawing traces from a trace model, written once for all of them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.trace_models.base import TraceModel

# Users are generated in tiles of this size whatever the batch, so that the products have one shape and the traces do
# not depend on how users are batched.
TILE = 64


@partial(jax.jit, static_argnames="n_instants")
def sample_tiles(
    key: Key[Array, ""],
    model: TraceModel,
    tiles: Int[Array, "tile user"],
    number: int | Int[Array, ""],
    n_instants: int,
) -> Int[Array, "tile user instant"]:
    """Draw one trace, of the given number, of each user of some tiles, one tile after the other."""

    def sample_trace(user: Array) -> Array:
        own_key = jax.random.fold_in(jax.random.fold_in(key, user), number)
        return model.sample_trace(own_key, user, n_instants)

    return jax.lax.map(jax.vmap(sample_trace), tiles)


def sample_index(uniform: Float[Array, ""], weight: Float[Array, " place"]) -> Int[Array, ""]:
    """Draw an index with probability proportional to `weight` from one uniform number.

    Two levels of about sqrt(places) each: the sums of blocks, then the chosen block, so that no cumulative sum of the
    whole row is formed.
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
    # A compiler may fuse product and difference, and round what was just at the boundary to below it.
    rest = jnp.maximum(target - before, 0)
    # Where rounding carries the target past the end, the last place of positive weight is meant.
    last = width - 1 - jnp.argmax(blocks[block][::-1] > 0)
    return (block * width + jnp.minimum(jnp.sum(within <= rest), last)).astype(jnp.int32)
