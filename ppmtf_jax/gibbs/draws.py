"""Draws from the conditional distributions of `conditionals`, and factorizations of many small matrices for them.

On a CPU, XLA calls LAPACK for Cholesky factors and triangular solves. Two simultaneous calls can wait for each other
for ever on a shared thread pool (observed at rank 32 on two cores). These routines never call LAPACK: they loop over
the columns and process all matrices of the batch at once. The batch is the last axis, so that memory is contiguous.

In each step, a loop first stores the column or the number that the step before computed, and then computes the next one
from all stored ones. In the other order, XLA would copy all stored ones in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.gibbs.conditionals import FactorPrior, NormalWishart

# Smaller matrices are padded to this number of columns. In a shorter sum, XLA computes one number at a time.
MIN_COLUMNS = 16
# Longer sums are computed in blocks of this number of columns: otherwise XLA would store parts of them as whole arrays.
MAX_COLUMNS = 64


def sample_gaussians(
    precision_and_linear: Float[Array, "row rank batch"], noise: Float[Array, "rank batch"]
) -> Float[Array, "rank batch"]:
    """Draw from Gaussians with mean `precision^-1 linear` and covariance `precision^-1`.

    The last row of `precision_and_linear` is `linear`; the rows above it are `precision`. With precision = L L^T the
    draw is L^-T (L^-1 linear + noise) for standard normal noise. An indefinite precision gives NaN.
    """
    factor = cholesky(precision_and_linear)
    return back_substitute(factor[:-1], factor[-1] + noise)


def cholesky(matrix: Float[Array, "row rank batch"]) -> Float[Array, "row rank batch"]:
    """Cholesky factor L (zero above the diagonal) of each matrix L L^T, in one left-looking pass.

    A matrix may have more rows than columns: each further row b becomes L^-1 b.
    """
    n_rows, rank = matrix.shape[:2]
    n_columns = max(rank, MIN_COLUMNS)
    index = jnp.arange(max(n_rows, n_columns))[:, None]
    # The columns of the factor replace those of the matrix.
    columns = jnp.pad(matrix, ((0, 0), (0, n_columns - rank), (0, 0)))

    def store_and_compute(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        columns, rest = carry
        column = jnp.where(index[:n_rows] >= j, rest * lax.rsqrt(_at(rest, j)), 0)
        columns = lax.dynamic_update_index_in_dim(columns, column, j, axis=1)
        # Columns after j do not belong to the factor yet.
        row = jnp.where(index[:n_columns] <= j, _at(columns, j + 1), 0)
        return columns, _at(columns, j + 1, axis=1) - _product(columns, row)

    columns, _ = lax.fori_loop(0, rank, store_and_compute, (columns, columns[:, 0]))
    return columns[:, :rank]


def back_substitute(
    lower: Float[Array, "rank rank #batch"], right: Float[Array, "rank batch"]
) -> Float[Array, "rank batch"]:
    """L^-T right for lower triangular matrices L."""
    rank = len(lower)

    def store_and_compute(step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        solved, found = carry
        row = rank - 1 - step
        solved = lax.dynamic_update_index_in_dim(solved, found, row, axis=0)
        before = jnp.maximum(row - 1, 0)
        column = _at(lower, before, axis=1)
        explained = _product(column[None], solved)[0]
        return solved, (_at(right, before) - explained) / _at(column, before)

    start = jnp.zeros_like(right), right[-1] / lower[-1, -1]
    return lax.fori_loop(0, rank, store_and_compute, start)[0]


def _product(
    columns: Float[Array, "row column #batch"], weight: Float[Array, "column batch"]
) -> Float[Array, "row batch"]:
    """Sum of the columns with these weights."""

    def add(begin: int | Array, size: int, total: Array) -> Array:
        own = lax.dynamic_slice_in_dim(columns, begin, size, axis=1)
        of_own = lax.dynamic_slice_in_dim(weight, begin, size)
        return total + sum(own[:, m] * of_own[m] for m in range(size))

    blocks, rest = divmod(len(weight), MAX_COLUMNS)
    total = jnp.zeros((len(columns), weight.shape[1]), weight.dtype)
    if blocks:
        total = lax.fori_loop(0, blocks, lambda block, total: add(block * MAX_COLUMNS, MAX_COLUMNS, total), total)
    return add(blocks * MAX_COLUMNS, rest, total) if rest else total


def _at(array: Float[Array, "..."], index: Array, axis: int = 0) -> Float[Array, "..."]:
    return lax.dynamic_index_in_dim(array, index, axis, keepdims=False)


def rows_at_a_time() -> int:
    """Batch size: on a CPU it fits the L2 cache at rank 16; on an accelerator it fills the device."""
    return 128 if jax.default_backend() == "cpu" else 2**14


# The noise of this many rows is drawn at a time: in smaller batches, starting each of JAX's small loops takes longer
# than the loop; in larger ones, the numbers leave the L2 cache.
NOISE_ROWS = 4096


def sample_factor_prior(key: Key[Array, ""], posterior: NormalWishart) -> tuple[FactorPrior, Float[Array, ""]]:
    """One draw of (mean, precision) from a normal-Wishart, by Bartlett's decomposition, and log |precision|.

    With inverse_scale_matrix = L L^T and T the Bartlett factor, precision = M M^T for M = L^-T T, and the mean's
    deviation is L T^-T noise / sqrt(mean_strength), whose covariance is (mean_strength M M^T)^-1. So one Cholesky
    factorization is enough.
    """
    chi_key, normal_key = jax.random.split(key)
    rank = posterior.mean.shape[0]
    dtype = posterior.mean.dtype
    degrees = posterior.degrees_of_freedom - jnp.arange(rank, dtype=dtype)
    diagonal = jnp.sqrt(2 * jax.random.gamma(chi_key, degrees / 2, dtype=dtype))
    # Drawn as a vector: drawing the same numbers as a matrix takes 2 seconds more to compile.
    noise = jax.random.normal(normal_key, ((rank + 1) * rank,), dtype).reshape(rank + 1, rank)
    bartlett = jnp.tril(noise[:rank], -1) + jnp.diag(diagonal)
    shift = noise[rank, :, None] / jnp.sqrt(posterior.mean_strength)

    lower = cholesky(posterior.inverse_scale_matrix[..., None])[..., 0]
    # The columns of a matrix are a batch of right-hand sides for the same triangular matrix.
    root = back_substitute(lower[..., None], bartlett)
    deviation = lower @ back_substitute(bartlett[..., None], shift)
    log_determinant = 2 * jnp.sum(jnp.log(diagonal) - jnp.log(jnp.diagonal(lower)))
    return FactorPrior(posterior.mean + deviation[:, 0], root @ root.T), log_determinant


def row_noise(
    keys: Key[Array, " factor"], rows: list[Int[Array, "..."]], rank: int, dtype: jnp.dtype
) -> list[Float[Array, "... rank"]]:
    """Standard normal numbers for each row of several factors, given by the indices of their rows.

    The index of each row is folded into the key of its factor, so that its numbers do not depend on the other rows. All
    are drawn together, because each call of JAX's random functions takes a third of a second to compile.
    """

    def of_batch(batch: tuple[Array, Array]) -> Array:
        row_keys = jax.vmap(jax.random.fold_in)(*batch)
        return jax.vmap(lambda row_key: jax.random.normal(row_key, (rank,), dtype))(row_keys)

    own_keys = jnp.concatenate([jnp.broadcast_to(key, own.size) for key, own in zip(keys, rows, strict=True)])
    all_rows = jnp.concatenate([own.ravel() for own in rows])
    drawn = _in_batches(of_batch, (own_keys, all_rows), max(NOISE_ROWS, rows_at_a_time()))
    ends = np.cumsum([own.size for own in rows])[:-1]
    return [own.reshape(*like.shape, rank) for own, like in zip(jnp.split(drawn, ends), rows, strict=True)]


def sample_rows(
    conditional: Float[Array, "row rank_and_row rank"], noise: Float[Array, "row rank"]
) -> Float[Array, "row rank"]:
    """One draw of every row of a factor, from its `row_conditional` and its `row_noise`."""

    def of_batch(batch: tuple[Array, Array]) -> Array:
        conditional, noise = batch
        return sample_gaussians(jnp.transpose(conditional, (1, 2, 0)), noise.T).T

    return _in_batches(of_batch, (conditional, noise), rows_at_a_time())


def _in_batches(function: Callable[[Any], Array], rows: Any, size: int) -> Array:
    """The results of a function of arrays with a leading row axis, computed `size` rows at a time."""
    n_rows = len(jax.tree.leaves(rows)[0])
    if n_rows <= size:
        return function(rows)

    def batched(x: Array) -> Array:
        # Pad with copies of the first rows, because padding with zeros would give singular precisions.
        return jnp.concatenate([x, x[: -n_rows % size]]).reshape(-1, size, *x.shape[1:])

    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n_rows], lax.map(function, jax.tree.map(batched, rows)))
