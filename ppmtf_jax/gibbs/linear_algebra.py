"""Factorizations of many small matrices, written in array operations.

On a CPU, XLA calls LAPACK for Cholesky factors and triangular solves. Two simultaneous calls can wait for each other
for ever on a shared thread pool (observed at rank 32 on two cores). These routines never call LAPACK: they loop over
the columns and process all matrices of the batch at once. The batch is the last axis, so that memory is contiguous.

In each step, a loop first stores the column or the number that the step before computed, and then computes the next one
from all stored ones. In the other order, XLA would copy all stored ones in every step.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

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
