"""How far single precision moves the sampler's conditionals: float32 against float64 on the same numbers, by size.

    python benchmarks/precision.py --csv benchmarks/precision.csv

Each deviation is divided by a scale:

- `matrix`: the deviation of an entry (i, j) of the row precision, or of the hyper-prior's inverse scale matrix, divided
  by the root of the product of the diagonal entries (i, i) and (j, j);
- `mean`: the deviation of a conditional mean, in standard deviations of this conditional (Mahalanobis distance),
  because a draw adds noise of this size.

Both are the largest over all rows, entries and repeats. `noise` is the scatter of a draw on the scale of `matrix`:
sqrt(2 / degrees of freedom) for the hyper-prior, and nothing for a row, whose precision is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import Row, command_line, record

from ppmtf_jax.gibbs.conditionals import (
    FactorPrior,
    HyperPrior,
    cell_statistics,
    dense_gram,
    hyper_conditional,
    row_conditional,
    with_row,
)
from ppmtf_jax.gibbs.linear_algebra import sample_gaussians

RANKS = (2, 16, 32, 64)
ALPHA = 200.0
REPEATS = 4
# Of weighted zeros: 1,000 zeros' worth of weight among a user's 1,000 x 12 visit cells.
N_SLOTS, ZERO_WEIGHT = 12, 1000 / 12_000


def factor(rng: np.random.Generator, n_rows: int, rank: int) -> np.ndarray:
    """Similar rows, as in fitted factors: their mean and their spread are of the same size."""
    return rng.normal(rng.normal(0.3, 0.1, rank), 0.3, (n_rows, rank)).astype(np.float32)


def both(compute: Any, *arrays: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results of `compute` in float32 and in float64."""
    found = []
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            result = jax.jit(compute)(*(jnp.asarray(array, dtype) for array in arrays))
            found.append([np.asarray(leaf, np.float64) for leaf in result])
    return found[0], found[1]


def matrix_deviation(single: np.ndarray, double: np.ndarray) -> float:
    root = np.sqrt(np.diagonal(double))
    return float((np.abs(single - double) / np.outer(root, root)).max())


def mean_deviation(single: np.ndarray, double: np.ndarray, precision: np.ndarray) -> float:
    """Deviation in standard deviations of a Gaussian with this precision."""
    off = single - double
    return float(np.sqrt(off @ precision @ off))


def hyper(rng: np.random.Generator, n_rows: int, rank: int) -> tuple[float, float]:
    def compute(rows):
        posterior = hyper_conditional(rows, HyperPrior())
        return posterior.inverse_scale_matrix, posterior.mean

    (matrix, mean), (exact, exact_mean) = both(compute, factor(rng, n_rows, rank))
    # The mean given the expected precision, nu times the inverse, at its strength.
    precision = (n_rows + 2) * (n_rows + rank) * np.linalg.inv(exact)
    return matrix_deviation(matrix, exact), mean_deviation(mean, exact_mean, precision)


def row(rng: np.random.Generator, n_cells: int, rank: int) -> tuple[float, float]:
    """A row that observes `n_cells` cells; one in twenty is positive."""
    design = factor(rng, n_cells, rank) * factor(rng, n_cells, rank)
    value = np.where(rng.random(n_cells) < 0.05, rng.integers(1, 11, n_cells), 0).astype(np.float32)

    def compute(design, value):
        return solved(with_row(*cell_statistics(design, value)))

    return deviations(*both(compute, design, value))


def row_with_weighted_zeros(rng: np.random.Generator, n_users: int, rank: int) -> tuple[float, float]:
    """A place, whose zeros are all users' at all slots, and a twentieth of the users visited it."""
    users, slots = factor(rng, n_users, rank), factor(rng, N_SLOTS, rank)
    design = users[: n_users // 20 + 1] * slots[rng.integers(0, N_SLOTS, n_users // 20 + 1)]
    value = rng.integers(1, 11, len(design)).astype(np.float32)

    def compute(users, slots, design, value):
        root = jnp.sqrt(1 - jnp.asarray(ZERO_WEIGHT, value.dtype))
        gram, moment = cell_statistics(design * root, value / root)
        dense = dense_gram(users, slots, jnp.full(len(users), ZERO_WEIGHT, users.dtype))
        return solved(with_row(gram + dense, moment))

    return deviations(*both(compute, users, slots, design, value))


def solved(statistics: jax.Array) -> tuple[Any, Any]:
    """Precision and mean of the row's conditional; without noise a draw is the mean."""
    rank, dtype = statistics.shape[-1], statistics.dtype
    conditional = row_conditional(FactorPrior(jnp.zeros(rank, dtype), jnp.eye(rank, dtype=dtype)), statistics, ALPHA)
    return conditional[:-1], sample_gaussians(conditional[..., None], jnp.zeros((rank, 1), dtype))[:, 0]


def deviations(single: list[np.ndarray], double: list[np.ndarray]) -> tuple[float, float]:
    return matrix_deviation(single[0], double[0]), mean_deviation(single[1], double[1], double[0])


CASES = {
    "hyper-prior, by rows": (hyper, (10, 1_000, 20_000, 200_000)),
    "row, by cells": (row, (20, 200, 2_000, 20_000, 200_000)),
    "row with weighted zeros, by users": (row_with_weighted_zeros, (500, 20_000, 200_000)),
}


def table() -> Iterator[Row]:
    for number, (name, (measure, sizes)) in enumerate(CASES.items()):
        for size in sizes:
            for rank in RANKS:
                found = [measure(np.random.default_rng((number, size, rank, i)), size, rank) for i in range(REPEATS)]
                matrix, mean = np.max(found, axis=0)
                noise = f"{np.sqrt(2 / (size + rank)):.1e}" if measure is hyper else ""
                yield {
                    "conditional": name,
                    "size": size,
                    "rank": rank,
                    "matrix": f"{matrix:.1e}",
                    "mean": f"{mean:.1e}",
                    "noise": noise,
                }


def main() -> None:
    record(table(), command_line(__doc__).parse_args().csv)


if __name__ == "__main__":
    main()
