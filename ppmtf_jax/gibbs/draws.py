"""Draws from the conditional distributions of `conditionals`, without LAPACK (see `linear_algebra`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.gibbs.conditionals import FactorPrior, GaussianPrecisionForm, NormalWishart
from ppmtf_jax.gibbs.linear_algebra import back_substitute, cholesky_and_solve, rows_at_a_time, sample_gaussians


def sample_factor_prior(key: Key[Array, ""], posterior: NormalWishart) -> FactorPrior:
    """One draw of (mean, precision) from a normal-Wishart, by Bartlett's decomposition.

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

    unused = jnp.zeros((rank, 1), dtype)
    lower = cholesky_and_solve(posterior.inverse_scale_matrix[..., None], unused)[0][..., 0]
    # The columns of a matrix are a batch of right-hand sides for the same triangular matrix.
    root = back_substitute(lower[..., None], bartlett)
    deviation = lower @ back_substitute(bartlett[..., None], shift)
    return FactorPrior(posterior.mean + deviation[:, 0], root @ root.T)


def sample_rows(
    key: Key[Array, ""], conditional: GaussianPrecisionForm, rows: Int[Array, " row"] | None = None
) -> Float[Array, "row rank"]:
    """One draw of every row of a factor; `conditional` has a leading row axis.

    The index of each row, `rows` (by default 0, 1, ...), is folded into its key, so that a draw does not depend on the
    batches.
    """
    n_rows, rank = conditional.linear.shape
    dtype = conditional.linear.dtype
    rows = jnp.arange(n_rows) if rows is None else rows
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    noise = jax.vmap(lambda row_key: jax.random.normal(row_key, (rank,), dtype))(keys)

    def sample_batch(batch: tuple[GaussianPrecisionForm, Array]) -> Array:
        (precision, linear), noise = batch
        return sample_gaussians(jnp.transpose(precision, (1, 2, 0)), linear.T, noise.T).T

    size = rows_at_a_time()
    if n_rows <= size:
        return sample_batch((conditional, noise))
    n_more = -n_rows % size

    def batched(x: Array) -> Array:
        # Pad with copies of the first rows, because padding with zeros would give singular precisions.
        return jnp.concatenate([x, x[:n_more]]).reshape(-1, size, *x.shape[1:])

    drawn = jax.lax.map(sample_batch, jax.tree.map(batched, (conditional, noise)))
    return drawn.reshape(-1, rank)[:n_rows]
