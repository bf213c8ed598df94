"""Draws against the closed-form moments of their distributions.

All tests compare the mean of independent draws with its expectation, in standard errors. Five of them are a false alarm
in 1.7 million (normal approximation); the seeds are fixed.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.gibbs.conditionals import HyperPrior, NormalWishart, hyper_conditional, with_row
from ppmtf_jax.gibbs.draws import NOISE_ROWS, row_noise, sample_factor_prior, sample_rows

N_DRAWS = 10_000
RANK = 3
draw_priors = jax.jit(jax.vmap(sample_factor_prior, (0, None)))


@jax.jit
@partial(jax.vmap, in_axes=(0, None))
def draw_rows(key: jax.Array, conditional: jax.Array) -> jax.Array:
    (noise,) = row_noise(key[None], [jnp.arange(len(conditional))], RANK, conditional.dtype)
    return sample_rows(conditional, noise)


def largest_z(draws: np.ndarray, expected: np.ndarray) -> float:
    """Largest distance of a mean of draws (first axis) from its expectation, in standard errors."""
    draws = np.asarray(draws, np.float64)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return float((np.abs(draws.mean(axis=0) - expected) / error).max())


@pytest.fixture(scope="module")
def posterior():
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(0.5, 1, (6, RANK)) @ rng.normal(size=(RANK, RANK)), jnp.float32)
    return jax.jit(hyper_conditional, static_argnums=1)(
        rows, HyperPrior(mean=-0.4, mean_strength=1.5, degrees_of_freedom=RANK + 4.0)
    )


def prior_z(posterior: NormalWishart, expected: NormalWishart) -> float:
    """Draws from `posterior` against the moments of `expected`."""
    keys = jax.random.split(jax.random.key(1), N_DRAWS)
    mean, precision = (np.asarray(x, np.float64) for x in draw_priors(keys, posterior)[0])
    centre, inverse_scale = (np.asarray(x, np.float64) for x in (expected.mean, expected.inverse_scale_matrix))
    strength, degrees = float(expected.mean_strength), float(expected.degrees_of_freedom)
    scale = np.linalg.inv(inverse_scale)
    deviation = mean - centre
    outer = deviation[:, :, None] * deviation[:, None, :]
    # A Wishart matrix has variance of entries nu (W_ij^2 + W_ii W_jj).
    variance = degrees * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))
    square = np.square(precision - degrees * scale)
    # mu - m given Lambda has covariance (beta Lambda)^-1, and E[Lambda^-1] = W^-1 / (nu - rank - 1).
    return max(
        largest_z(precision, degrees * scale),
        largest_z(square, variance),
        largest_z(mean, centre),
        largest_z(outer, inverse_scale / (strength * (degrees - RANK - 1))),
        largest_z(np.einsum("nij,njk->nik", precision, outer), np.eye(RANK) / strength),
    )


def test_the_log_determinant_is_that_of_the_precision(posterior):
    prior, log_determinant = draw_priors(jax.random.split(jax.random.key(5), 100), posterior)
    precision = np.asarray(prior.precision, np.float64)
    # Single precision: an entry is off by some 1e-6 of the largest one, and the determinant by that over the condition.
    error = 1e-5 * np.linalg.cond(precision)
    assert (np.abs(log_determinant - np.linalg.slogdet(precision)[1]) < error).all()
    assert error.max() < 0.1


def test_moments_of_mean_and_precision(posterior):
    assert prior_z(posterior, posterior) < 5


@pytest.mark.parametrize("bug", ["degrees of freedom", "scale for inverse", "strength", "mean"])
def test_planted_bugs_in_mean_and_precision_are_caught(posterior, bug):
    bad = {
        "degrees of freedom": posterior._replace(degrees_of_freedom=posterior.degrees_of_freedom - 1),
        "scale for inverse": posterior._replace(inverse_scale_matrix=np.linalg.inv(posterior.inverse_scale_matrix)),
        "strength": posterior._replace(mean_strength=posterior.mean_strength + 1),
        "mean": posterior._replace(mean=posterior.mean * 1.08),
    }[bug]
    assert prior_z(bad, posterior) > 5


@pytest.fixture(scope="module")
def conditional():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, RANK, RANK))
    precision = root @ root.transpose(0, 2, 1) + np.eye(RANK)
    return with_row(jnp.asarray(precision, jnp.float32), jnp.asarray(rng.normal(0, 2, (4, RANK)), jnp.float32))


def rows_z(conditional: jax.Array, expected: jax.Array) -> float:
    rows = np.asarray(draw_rows(jax.random.split(jax.random.key(3), N_DRAWS), conditional), np.float64)
    expected = np.asarray(expected, np.float64)
    precision, linear = expected[:, :-1], expected[:, -1]
    covariance = np.zeros((4, RANK, 4, RANK))
    for n in range(4):
        covariance[n, :, n, :] = np.linalg.inv(precision[n])
    mean = np.linalg.solve(precision, linear[..., None])[..., 0]
    deviation = rows - mean
    # Rows are independent of each other: all covariances between them are zero.
    return max(
        largest_z(rows, mean),
        largest_z(np.einsum("dni,dmj->dnimj", deviation, deviation), covariance),
    )


def test_moments_of_rows(conditional):
    assert rows_z(conditional, conditional) < 5


@pytest.mark.parametrize("bug", ["covariance for precision", "linear term"])
def test_planted_bugs_in_rows_are_caught(conditional, bug):
    precision, linear = conditional[:, :-1], conditional[:, -1]
    bad = {
        "covariance for precision": with_row(jnp.linalg.inv(precision), linear),
        "linear term": with_row(precision, linear * 0.9),
    }[bug]
    assert rows_z(bad, conditional) > 5


def test_a_row_does_not_depend_on_how_many_there_are(conditional):
    draw = jax.jit(sample_rows)
    noise = jnp.ones((4, RANK))
    np.testing.assert_array_equal(draw(conditional[:2], noise[:2]), draw(conditional, noise)[:2])


def test_the_noise_of_a_row_depends_on_its_key_and_its_number_alone():
    """Also where the rows are more than one batch, and the last batch is not full."""
    keys, n_rows = jax.random.split(jax.random.key(4)), NOISE_ROWS + 3
    noise = jax.jit(row_noise, static_argnums=(2, 3))
    first, second = noise(keys, [jnp.arange(n_rows), jnp.arange(5)], RANK, np.dtype("float32"))
    assert (first.shape, second.shape) == ((n_rows, RANK), (5, RANK))
    # As JAX draws it for one row.
    for key, own in zip(keys, (first, second), strict=True):
        for row in (0, len(own) - 1):
            expected = jax.random.normal(jax.random.fold_in(key, row), (RANK,), jnp.float32)
            np.testing.assert_array_equal(own[row], expected)
    some = jnp.array([[n_rows - 1, 0], [NOISE_ROWS, 5]])
    (again,) = noise(keys[:1], [some], RANK, np.dtype("float32"))
    np.testing.assert_array_equal(again, first[some])
    assert len(np.unique(np.concatenate([first, second]), axis=0)) == n_rows + 5
