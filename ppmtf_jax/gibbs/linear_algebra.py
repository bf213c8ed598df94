"""Factorizations of many small matrices, written in array operations.

XLA on CPU hands Cholesky and triangular solves to LAPACK; two such calls that it runs at the same time can wait for
each other on one thread pool for ever (seen at rank 32 on two cores). These routines never call LAPACK. They loop over
the rank and treat all rows of the batch at once. The batch comes last, so that every operation runs over contiguous
memory.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def sample_gaussians(
    precision: Float[Array, "rank rank batch"], linear: Float[Array, "rank batch"], noise: Float[Array, "rank batch"]
) -> Float[Array, "rank batch"]:
    """Draws of Gaussians in precision form: mean `precision^-1 linear`, covariance `precision^-1`.

    With precision = L L^T the draw is L^-T (L^-1 linear + noise), noise standard normal. An indefinite precision gives
    NaN.
    """
    upper, forward = cholesky_and_solve(precision, linear)
    return back_substitute(upper, forward + noise)


def cholesky_and_solve(
    matrix: Float[Array, "rank rank batch"], right: Float[Array, "rank batch"]
) -> tuple[Float[Array, "rank rank batch"], Float[Array, "rank batch"]]:
    """Transposed Cholesky factor L^T of each matrix L L^T, and L^-1 right, in one right-looking pass.

    Row k of the result is column k of L; what lies below the diagonal is zero.
    """
    rows = jnp.arange(matrix.shape[0])[:, None]

    def eliminate(k, carry):
        rest, right = carry
        column, value = rest[k], right[k]
        pivot = lax.rsqrt(column[k])
        column = jnp.where(rows >= k, column * pivot, 0)
        solved = value * pivot
        below = jnp.where(rows > k, column, 0)
        # Row k is final and will not be read again as a part of the rest: it can hold the factor.
        return (rest - below[:, None] * below).at[k].set(column), (right - below * solved).at[k].set(solved)

    return lax.fori_loop(0, matrix.shape[0], eliminate, (matrix, right))


def back_substitute(
    upper: Float[Array, "rank rank #batch"], right: Float[Array, "rank batch"]
) -> Float[Array, "rank batch"]:
    """upper^-1 right for upper triangular matrices."""
    rank = upper.shape[0]

    def substitute(step, solved):
        k = rank - 1 - step
        # Entries of `solved` above k still hold zeros, so the whole row can be used.
        return solved.at[k].set((right[k] - jnp.sum(upper[k] * solved, axis=0)) / upper[k, k])

    return lax.fori_loop(0, rank, substitute, jnp.zeros_like(right))
