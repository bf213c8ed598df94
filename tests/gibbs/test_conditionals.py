"""Closed forms against loops, sequential updating and densities, in double precision."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.conditionals import (
    FactorPrior,
    HyperPrior,
    NormalWishart,
    cell_statistics,
    dense_gram,
    hyper_conditional,
    row_conditional,
    with_row,
)

pytestmark = pytest.mark.usefixtures("float64")
RANK = 3
# Nothing here is at its default, so that no term of the formulas vanishes.
HYPER = HyperPrior(mean=0.7, mean_strength=1.5, scale=0.4, degrees_of_freedom=5.5)


def factor(n_rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.3, 1.2, (n_rows, RANK))


def sequential_posterior(rows: np.ndarray, hyper: HyperPrior) -> tuple[np.ndarray, float, np.ndarray, float]:
    """Normal-Wishart posterior by taking in one row after another, without any sum over rows."""
    mean, strength = np.full(RANK, hyper.mean), hyper.mean_strength
    inverse_scale, degrees = np.eye(RANK) / hyper.scale, hyper.degrees_of_freedom or RANK
    for row in rows:
        inverse_scale = inverse_scale + strength / (strength + 1) * np.outer(row - mean, row - mean)
        mean = (strength * mean + row) / (strength + 1)
        strength, degrees = strength + 1, degrees + 1
    return mean, strength, inverse_scale, degrees


@pytest.mark.parametrize("n_rows", [1, 2, 30])
@pytest.mark.parametrize("hyper", [HYPER, HyperPrior()], ids=["general", "published"])
def test_hyper_conditional_is_the_sequential_posterior(n_rows, hyper):
    rows = factor(n_rows)
    posterior = hyper_conditional(jnp.asarray(rows), hyper)
    for ours, expected in zip(posterior, sequential_posterior(rows, hyper), strict=True):
        assert ours.dtype == jnp.float64
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


def log_density(mean: np.ndarray, precision: np.ndarray, of: NormalWishart) -> float:
    wishart = stats.wishart(float(of.degrees_of_freedom), np.linalg.inv(of.inverse_scale_matrix))
    normal = stats.multivariate_normal(np.asarray(of.mean), np.linalg.inv(precision) / float(of.mean_strength))
    return wishart.logpdf(precision) + normal.logpdf(mean)


def departure_from_bayes(posterior: NormalWishart, rows: np.ndarray) -> float:
    """How far log(likelihood x prior) - log(posterior) is from a constant of mean and precision."""
    prior = NormalWishart(
        np.full(RANK, HYPER.mean), HYPER.mean_strength, np.eye(RANK) / HYPER.scale, HYPER.degrees_of_freedom
    )
    differences = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        mean = rng.normal(size=RANK)
        precision = stats.wishart(RANK + 2, np.eye(RANK)).rvs(random_state=seed)
        covariance = np.linalg.inv(precision)
        likelihood = sum(stats.multivariate_normal(mean, covariance).logpdf(row) for row in rows)
        differences.append(likelihood + log_density(mean, precision, prior) - log_density(mean, precision, posterior))
    return float(np.ptp(differences))


def test_hyper_conditional_obeys_bayes_rule():
    rows = factor(5)
    assert departure_from_bayes(hyper_conditional(jnp.asarray(rows), HYPER), rows) < 1e-8


def test_row_conditional_is_a_loop_over_cells():
    rng = np.random.default_rng(3)
    design, value, weight = rng.normal(size=(7, RANK)), rng.poisson(2.0, 7) * 1.0, rng.random(7)
    root = rng.normal(size=(RANK, RANK))
    prior_mean, prior_precision, alpha = rng.normal(size=RANK), root @ root.T, 3.7

    precision, linear = prior_precision.copy(), prior_precision @ prior_mean
    for d, r, w in zip(design, value, weight, strict=True):
        precision += alpha * w * np.outer(d, d)
        linear = linear + alpha * r * d
    weighted, divided = design * np.sqrt(weight)[:, None], value / np.sqrt(weight)
    cells = with_row(*cell_statistics(jnp.asarray(weighted), jnp.asarray(divided)))
    ours = row_conditional(FactorPrior(jnp.asarray(prior_mean), jnp.asarray(prior_precision)), cells, alpha)
    np.testing.assert_allclose(ours[:-1], precision, rtol=1e-10)
    np.testing.assert_allclose(ours[-1], linear, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_dense_gram_is_a_loop_over_all_pairs(weighted):
    rng = np.random.default_rng(4)
    left, right, weight = rng.normal(size=(4, RANK)), rng.normal(size=(5, RANK)), rng.random(4)
    expected = np.zeros((RANK, RANK))
    for i in range(4):
        for j in range(5):
            d = left[i] * right[j]
            expected += (weight[i] if weighted else 1) * np.outer(d, d)
    ours = dense_gram(jnp.asarray(left), jnp.asarray(right), jnp.asarray(weight) if weighted else None)
    np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["mean_strength", "scale", "degrees_of_freedom"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_hyper_prior_must_be_positive(name, value):
    with pytest.raises(InputError, match=name):
        HyperPrior(**{name: value})
