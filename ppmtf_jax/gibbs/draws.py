"""Draws from the conditionals of `conditionals`. None of them calls LAPACK (see `linear_algebra`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ppmtf_jax.gibbs.conditionals import FactorPrior, GaussianPrecisionForm, NormalWishart
from ppmtf_jax.gibbs.linear_algebra import back_substitute, cholesky_and_solve, sample_gaussians


def sample_factor_prior(key: Key[Array, ""], posterior: NormalWishart) -> FactorPrior:
    """One draw of (mean, precision) from a normal-Wishart, by Bartlett's decomposition.

    With inverse_scale_matrix = L L^T and T the Bartlett factor, precision = M M^T for M = L^-T T, and the mean's
    deviation is L T^-T noise / sqrt(mean_strength), whose covariance is (mean_strength M M^T)^-1. So one Cholesky does.
    """
    chi_key, normal_key, mean_key = jax.random.split(key, 3)
    rank = posterior.mean.shape[0]
    dtype = posterior.mean.dtype
    degrees = posterior.degrees_of_freedom - jnp.arange(rank, dtype=dtype)
    diagonal = jnp.sqrt(2 * jax.random.gamma(chi_key, degrees / 2, dtype=dtype))
    bartlett = jnp.tril(jax.random.normal(normal_key, (rank, rank), dtype), -1) + jnp.diag(diagonal)
    noise = jax.random.normal(mean_key, (rank, 1), dtype) / jnp.sqrt(posterior.mean_strength)

    unused = jnp.zeros((rank, 1), dtype)
    upper = cholesky_and_solve(posterior.inverse_scale_matrix[..., None], unused)[0][..., 0]
    # The columns of a matrix are a batch of right-hand sides for the same triangle.
    root = back_substitute(upper[..., None], bartlett)
    deviation = upper.T @ back_substitute(bartlett.T[..., None], noise)
    return FactorPrior(posterior.mean + deviation[:, 0], root @ root.T)


def sample_rows(key: Key[Array, ""], conditional: GaussianPrecisionForm) -> Float[Array, "row rank"]:
    """One draw of every row of a factor; `conditional` has a leading row axis.

    Each row has its own key, folded in by its index, so that a draw does not depend on how rows are batched.
    """
    n_rows, rank = conditional.linear.shape
    dtype = conditional.linear.dtype
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n_rows))
    noise = jax.vmap(lambda row_key: jax.random.normal(row_key, (rank,), dtype))(keys)
    return sample_gaussians(jnp.transpose(conditional.precision, (1, 2, 0)), conditional.linear.T, noise.T).T
