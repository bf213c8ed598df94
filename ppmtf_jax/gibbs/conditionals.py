"""Full conditionals of the hierarchical model in closed form; this module draws no random numbers.

Sufficient statistics determine a conjugate posterior; `draws` draws from it. Equation numbers are those of Murakami et
al. 2021 (PPMTF), Appendix H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import multigammaln
from jaxtyping import Array, Float

from ppmtf_jax.settings import Finite, Positive, Settings


@dataclass(frozen=True)
class HyperPrior(Settings, subject="hyper-prior"):
    """Normal-Wishart prior of each factor's mean and precision, eq. (4).

    The published choice is the default: mu_0 = 0, beta_0 = 2, W_0 = identity, nu_0 = rank.

    Parameters
    ----------
    mean : float
        Every entry of mu_0.
    mean_strength : float
        beta_0: the weight of the prior mean, in observations.
    scale : float
        W_0 = scale x identity.
    degrees_of_freedom : float or None
        nu_0, more than rank - 1 (checked by `GibbsSettings`); None means the rank.
    """

    mean: Finite = 0.0
    mean_strength: Positive = 2.0
    scale: Positive = 1.0
    degrees_of_freedom: Positive | None = None


class FactorPrior(NamedTuple):
    """Psi of one factor: mean (rank,) and precision (rank, rank) of its rows."""

    mean: Float[Array, "*chain rank"]
    precision: Float[Array, "*chain rank rank"]


class NormalWishart(NamedTuple):
    """mu ~ N(mean, (mean_strength Lambda)^-1) and Lambda ~ Wishart(inverse_scale_matrix^-1, degrees_of_freedom)."""

    mean: Float[Array, " rank"]
    mean_strength: Float[Array, ""]
    inverse_scale_matrix: Float[Array, "rank rank"]
    degrees_of_freedom: Float[Array, ""]


def with_row(
    matrix: Float[Array, "*batch rank rank"], row: Float[Array, "*batch rank"]
) -> Float[Array, "*batch row rank"]:
    """A matrix with one more row: the form of the statistics of a factor row, and of its conditional.

    For the statistics, the matrix is the sum of w d d^T over the observed cells, with design vectors d, and the last
    row is the sum of r d. For the conditional, a Gaussian, the matrix is the precision, and the last row is precision
    times mean.
    """
    return jnp.concatenate([matrix, row[..., None, :]], axis=-2)


def hyper_conditional(factor: Float[Array, "row rank"], hyper: HyperPrior) -> NormalWishart:
    """Full conditional of a factor's mean and precision given its rows, eqs. (22)-(28).

    Eqs. (25) and (28) add the uncentred scatter to the mean term, which counts the mean twice. The correct
    normal-Wishart posterior uses the scatter about the mean, S = sum_n (a_n - mean)(a_n - mean)^T; only this version
    passes a Geweke test.
    """
    n_rows, rank = factor.shape
    dtype = factor.dtype
    prior_mean = jnp.full(rank, hyper.mean, dtype)
    sample_mean = factor.mean(axis=0)
    centred = factor - sample_mean
    shift = prior_mean - sample_mean
    strength = hyper.mean_strength + n_rows
    inverse_scale_matrix = (
        jnp.eye(rank, dtype=dtype) / hyper.scale
        + centred.T @ centred
        + (hyper.mean_strength * n_rows / strength) * jnp.outer(shift, shift)
    )
    nu = rank if hyper.degrees_of_freedom is None else hyper.degrees_of_freedom
    return NormalWishart(
        (hyper.mean_strength * prior_mean + n_rows * sample_mean) / strength,
        jnp.asarray(strength, dtype),
        inverse_scale_matrix,
        jnp.asarray(nu + n_rows, dtype),
    )


def cell_statistics(
    design: Float[Array, "*tile cell rank"], value: Float[Array, "*tile cell"]
) -> tuple[Float[Array, "*tile rank rank"], Float[Array, "*tile rank"]]:
    """Gram matrix and moment of some observed cells of one row; a padded cell has a design vector of zeros.

    The design vector of a cell is the product of the other two modes' rows. For a cell of weight w, multiply its
    design vector by sqrt(w), and divide its value by sqrt(w).
    """
    # On CPU, the product is twice as fast if the cells are contiguous in memory. The barrier prevents XLA from
    # transposing the design again for each use.
    design = lax.optimization_barrier(jnp.swapaxes(design, -1, -2))
    return jnp.einsum("...zk,...yk->...zy", design, design), jnp.einsum("...k,...zk->...z", value, design)


def dense_gram(
    left: Float[Array, "left rank"], right: Float[Array, "right rank"], left_weight: Float[Array, " left"] | None = None
) -> Float[Array, "rank rank"]:
    """Sum of w d d^T over *all* pairs of rows, d = left_i o right_j: (left^T W left) o (right^T right)."""
    weighted = left if left_weight is None else left * left_weight[:, None]
    return (weighted.T @ left) * (right.T @ right)


def row_conditional(
    prior: FactorPrior, statistics: Float[Array, "*row rank_and_row rank"], noise_precision: float | Float[Array, ""]
) -> Float[Array, "*row rank_and_row rank"]:
    """Full conditional of one factor row, or of each row, given everything else, eqs. (29)-(40): as `with_row`.

    Eqs. (36)-(37) are the result. (Eq. (31) lacks a factor -1/2; the result is right.)
    """
    return with_row(prior.precision, prior.precision @ prior.mean) + noise_precision * statistics


def log_density_of_rows(
    factor: Float[Array, "row rank"], prior: FactorPrior, log_determinant: Float[Array, ""]
) -> Float[Array, ""]:
    """Sum over rows of log N(row | mean, precision^-1), given log |precision|."""
    n_rows, rank = factor.shape
    centred = factor - prior.mean
    distance = jnp.sum((centred @ prior.precision) * centred)
    return 0.5 * (n_rows * (log_determinant - rank * math.log(2 * math.pi)) - distance)


def log_density_of_prior(prior: FactorPrior, hyper: HyperPrior, log_determinant: Float[Array, ""]) -> Float[Array, ""]:
    """Log of the normal-Wishart density, eq. (4), given log |precision|."""
    rank = prior.mean.shape[0]
    nu = rank if hyper.degrees_of_freedom is None else hyper.degrees_of_freedom
    shift = prior.mean - hyper.mean
    normal = 0.5 * (
        rank * math.log(hyper.mean_strength / (2 * math.pi))
        + log_determinant
        - hyper.mean_strength * shift @ prior.precision @ shift
    )
    wishart = 0.5 * (
        (nu - rank - 1) * log_determinant
        - jnp.trace(prior.precision) / hyper.scale
        - nu * rank * math.log(2 * hyper.scale)
    )
    return normal + wishart - multigammaln(nu / 2, rank)
