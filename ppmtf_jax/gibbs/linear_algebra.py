"""Factorizations of many small matrices, written in array operations.

On a CPU, XLA calls LAPACK for Cholesky factors and triangular solves. Two simultaneous calls can wait for each other
for ever on a shared thread pool (observed at rank 32 on two cores). These routines never call LAPACK: they loop over
the rank and process all matrices of the batch at once. The batch is the last axis, so that every operation uses
contiguous memory.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Number of columns that are eliminated in one pass over the rest of a matrix. More columns mean fewer passes but more
# compile time.
PANEL = 2


def sample_gaussians(
    precision: Float[Array, "rank rank batch"], linear: Float[Array, "rank batch"], noise: Float[Array, "rank batch"]
) -> Float[Array, "rank batch"]:
    """Draw from Gaussians with mean `precision^-1 linear` and covariance `precision^-1`.

    With precision = L L^T the draw is L^-T (L^-1 linear + noise) for standard normal noise. An indefinite precision
    gives NaN.
    """
    lower, forward = cholesky_and_solve(precision, linear)
    return back_substitute(lower, forward + noise)


def cholesky_and_solve(
    matrix: Float[Array, "rank rank batch"], right: Float[Array, "rank batch"]
) -> tuple[Float[Array, "rank rank batch"], Float[Array, "rank batch"]]:
    """Cholesky factor L (zero above the diagonal) of each matrix L L^T, and L^-1 right, in one right-looking pass."""
    rank, _, batch = matrix.shape
    padded, n_panels = _pad_to_panels(matrix), -(-rank // PANEL)
    n = n_panels * PANEL
    # The right-hand side is appended as a row of the matrix; the same row of the factor is then L^-1 right.
    rest = jnp.concatenate([padded, jnp.zeros((1, n, batch), matrix.dtype).at[0, :rank].set(right)])

    def eliminate(panel: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, lower = carry
        columns = lax.dynamic_slice_in_dim(rest, panel * PANEL, PANEL, axis=1)
        factor = _factor_panel(columns, lax.dynamic_slice_in_dim(columns, panel * PANEL, PANEL, axis=0))
        # This overwrites rows and columns before the panel with meaningless values, but they are not read again.
        rest = rest - sum(factor[:, None, j] * factor[None, :n, j] for j in range(PANEL))
        return rest, lax.dynamic_update_slice_in_dim(lower, factor, panel * PANEL, axis=1)

    lower = lax.fori_loop(0, n_panels, eliminate, (rest, jnp.zeros_like(rest)))[1]
    below = jnp.tril(jnp.ones((rank, rank), bool))[..., None]
    return jnp.where(below, lower[:rank, :rank], 0), lower[n, :rank]


def _factor_panel(
    columns: Float[Array, "row panel batch"], pivot: Float[Array, "panel panel batch"]
) -> Float[Array, "row panel batch"]:
    """Columns of the Cholesky factor, from the remaining matrix in these columns and in their diagonal block."""
    corner: dict[tuple[int, int], Array] = {}
    for j in range(PANEL):
        for i in range(j, PANEL):
            left = pivot[i, j] - sum(corner[i, m] * corner[j, m] for m in range(j))
            corner[i, j] = lax.rsqrt(left) if i == j else left * corner[j, j]
    # The diagonal holds reciprocals. The barrier prevents XLA from computing these few numbers again for every row.
    corner = dict(zip(corner, lax.optimization_barrier(tuple(corner.values())), strict=True))
    factor: list[Array] = []
    for j in range(PANEL):
        left = columns[:, j] - sum(factor[m] * corner[j, m] for m in range(j))
        factor.append(left * corner[j, j])
    return lax.optimization_barrier(jnp.stack(factor, axis=1))


def back_substitute(
    lower: Float[Array, "rank rank #batch"], right: Float[Array, "rank batch"]
) -> Float[Array, "rank batch"]:
    """L^-T right for lower triangular matrices L."""
    rank = lower.shape[0]
    padded, n_panels = _pad_to_panels(lower), -(-rank // PANEL)
    left = jnp.zeros((n_panels * PANEL, right.shape[1]), right.dtype).at[:rank].set(right)

    def substitute(step: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        left, solved = carry
        first = (n_panels - 1 - step) * PANEL
        rows = lax.dynamic_slice_in_dim(padded, first, PANEL, axis=0)
        corner = lax.dynamic_slice_in_dim(rows, first, PANEL, axis=1)
        own = lax.dynamic_slice_in_dim(left, first, PANEL, axis=0)
        found: dict[int, Array] = {}
        for j in reversed(range(PANEL)):
            found[j] = (own[j] - sum(corner[m, j] * found[m] for m in range(j + 1, PANEL))) / corner[j, j]
        own = lax.optimization_barrier(jnp.stack([found[j] for j in range(PANEL)]))
        left = left - sum(rows[j] * own[j] for j in range(PANEL))
        return left, lax.dynamic_update_slice_in_dim(solved, own, first, axis=0)

    return lax.fori_loop(0, n_panels, substitute, (left, jnp.zeros_like(left)))[1][:rank]


def rows_at_a_time() -> int:
    """Batch size: on a CPU it fits the L2 cache at rank 16; on an accelerator it fills the device."""
    return 128 if jax.default_backend() == "cpu" else 2**14


def _pad_to_panels(matrix: Float[Array, "rank rank batch"]) -> Float[Array, "padded padded batch"]:
    """Append rows and columns of the identity up to a whole number of panels."""
    n_more = -matrix.shape[0] % PANEL
    if not n_more:
        return matrix
    extended = jnp.pad(matrix, ((0, n_more), (0, n_more), (0, 0)))
    return extended + jnp.diag(jnp.arange(len(extended)) >= matrix.shape[0])[..., None].astype(matrix.dtype)
