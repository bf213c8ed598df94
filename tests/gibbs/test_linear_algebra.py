"""The hand-written factorizations against LAPACK's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_triangular

from ppmtf_jax.gibbs.draws import back_substitute, cholesky, sample_gaussians

pytestmark = pytest.mark.usefixtures("float64")
BATCH = 5


def positive_definite(rank: int, seed: int = 0) -> np.ndarray:
    """Matrices of condition numbers from about 1 to 1e6, shape (batch, rank, rank)."""
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(BATCH, rank, rank)))[0]
    eigenvalues = 10.0 ** rng.uniform(-3, 3, (BATCH, rank, 1))
    return rotation.transpose(0, 2, 1) @ (eigenvalues * rotation)


@pytest.mark.parametrize("rank", [1, 5, 18, 70])
def test_factor_and_solutions_equal_lapack(rank):
    rng = np.random.default_rng(1)
    matrix = positive_definite(rank)
    right, noise = rng.normal(size=(2, BATCH, rank))
    lower = np.linalg.cholesky(matrix)
    stacked = np.concatenate([matrix, right[:, None]], axis=1)
    last = jnp.asarray(stacked.transpose(1, 2, 0))

    factor = jax.jit(cholesky)(last)
    factor, forward = factor[:-1], factor[-1]
    assert factor.dtype == jnp.float64
    np.testing.assert_allclose(factor, lower.transpose(1, 2, 0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(np.triu(np.asarray(factor)[..., 0], 1), 0)
    np.testing.assert_allclose(jax.jit(cholesky)(last[:-1]), factor, rtol=1e-9, atol=1e-12)
    expected = [solve_triangular(low, r, lower=True) for low, r in zip(lower, right, strict=True)]
    np.testing.assert_allclose(np.asarray(forward).T, expected, rtol=1e-8, atol=1e-10)

    back = jax.jit(back_substitute)(jnp.asarray(lower.transpose(1, 2, 0)), jnp.asarray(right.T))
    expected = [solve_triangular(low.T, r) for low, r in zip(lower, right, strict=True)]
    np.testing.assert_allclose(np.asarray(back).T, expected, rtol=1e-8, atol=1e-10)

    draw = jax.jit(sample_gaussians)(last, jnp.asarray(noise.T))
    expected = [
        np.linalg.solve(m, r) + solve_triangular(low.T, z)
        for m, low, r, z in zip(matrix, lower, right, noise, strict=True)
    ]
    np.testing.assert_allclose(np.asarray(draw).T, expected, rtol=1e-6, atol=1e-8)


def test_one_triangle_serves_many_right_hand_sides():
    lower = np.linalg.cholesky(positive_definite(4)[0])
    right = np.random.default_rng(2).normal(size=(4, 3))
    solved = back_substitute(jnp.asarray(lower)[..., None], jnp.asarray(right))
    np.testing.assert_allclose(solved, solve_triangular(lower.T, right), rtol=1e-9)


def test_an_indefinite_matrix_gives_nan_and_spares_the_others():
    matrix = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]])], axis=-1)
    with_ones = np.concatenate([matrix, np.ones((1, 2, 2))])
    draw = jax.jit(sample_gaussians)(jnp.asarray(with_ones), jnp.zeros((2, 2)))
    np.testing.assert_array_equal(np.isfinite(draw).all(axis=0), [True, False])
    np.testing.assert_allclose(draw[:, 0], 1)
