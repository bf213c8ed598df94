"""Single precision is enough for the conditionals: what rounding changes stays within bounds derived beforehand.

With unit roundoff u, a sum of n products, in whatever order, is off by at most gamma(n) = n u / (1 - n u) of the sum of
the products' magnitudes (Higham 2002, section 3.1; n a little more for what is rounded before and after). A scatter
about a mean that is off by e, |e| <= gamma(n) mean|x|, is S + n e e^T exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.gibbs.conditionals import (
    FactorPrior,
    HyperPrior,
    cell_statistics,
    hyper_conditional,
    row_conditional,
    with_row,
)

N, RANK = 1000, 4
ALPHA = 200.0
# Rows are a hundred times as far from zero as from each other: a scatter that is a difference would be lost.
HYPER = HyperPrior(mean=100.0)


def gamma(n: int) -> float:
    unit = n * 2.0**-24
    return unit / (1 - unit)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(HYPER.mean, 1, (N, RANK)).astype(np.float32)


def inverse_scale_matrix(rows: np.ndarray, dtype: str) -> np.ndarray:
    with jax.enable_x64(dtype == "float64"):
        return np.asarray(hyper_conditional(jnp.asarray(rows, dtype), HYPER).inverse_scale_matrix, np.float64)


def uncentred(rows: np.ndarray) -> np.ndarray:
    """The same matrix from uncentred sums, as one pass over the rows would have it, in single precision."""
    x = jnp.asarray(rows)
    mean = x.mean(axis=0)
    shift, strength = HYPER.mean - mean, HYPER.mean_strength * N / (HYPER.mean_strength + N)
    scatter = x.T @ x - N * jnp.outer(mean, mean)
    return np.asarray(jnp.eye(RANK) / HYPER.scale + scatter + strength * jnp.outer(shift, shift), np.float64)


def largest_share_of_bound(found: np.ndarray, rows: np.ndarray) -> float:
    """Over all entries of the matrix, the largest error as a share of what rounding may do."""
    x = rows.astype(np.float64)
    strength = HYPER.mean_strength * N / (HYPER.mean_strength + N)
    shift, off = np.abs(HYPER.mean - x.mean(axis=0)), gamma(N + 1) * np.abs(x).mean(axis=0)
    spread = x.std(axis=0) * np.sqrt(N)
    summed = np.outer(spread, spread) + strength * np.outer(shift, shift) + np.eye(RANK) / HYPER.scale
    shifted = np.outer(shift, off) + np.outer(off, shift)
    bound = gamma(N + 8) * summed + (N + strength) * np.outer(off, off) + strength * shifted
    return float((np.abs(found - inverse_scale_matrix(x, "float64")) / bound).max())


def test_hyper_conditional(rows):
    assert largest_share_of_bound(inverse_scale_matrix(rows, "float32"), rows) <= 1


def test_a_scatter_that_is_a_difference_is_caught(rows):
    assert largest_share_of_bound(uncentred(rows), rows) > 1


def row_precision(design: np.ndarray, weight: np.ndarray, dtype: str) -> np.ndarray:
    with jax.enable_x64(dtype == "float64"):
        d, w = jnp.asarray(design, dtype), jnp.asarray(weight, dtype)
        prior = FactorPrior(jnp.zeros(RANK, dtype), jnp.eye(RANK, dtype=dtype))
        cells = with_row(*cell_statistics(d * jnp.sqrt(w)[:, None], jnp.zeros(len(d), dtype)))
        return np.asarray(row_conditional(prior, cells, ALPHA)[:-1], np.float64)


@pytest.mark.parametrize(("rounded_to", "within"), [("float32", True), ("bfloat16", False)])
def test_row_precision(rounded_to, within):
    """Products in bfloat16, which accelerators take where they are let, are caught."""
    rng = np.random.default_rng(1)
    # What a float32 is rounded to once before the products does not count among their roundings.
    design = np.abs(rng.normal(0.5, 0.5, (N, RANK))).astype(np.float32)
    weight = rng.random(N).astype(np.float32)
    seen = np.asarray(jnp.asarray(design, rounded_to), np.float32)
    magnitudes = np.einsum("n,ni,nj->ij", weight, np.abs(design), np.abs(design), dtype=np.float64)
    bound = gamma(N + 6) * (np.eye(RANK) + ALPHA * magnitudes)
    error = np.abs(row_precision(seen, weight, "float32") - row_precision(design, weight, "float64"))
    assert (error <= bound).all() == within
