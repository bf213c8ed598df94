"""Noise: seconds for a million noisy numbers, and the error of category sums with Privelet and with Laplace noise.

    python benchmarks/noise.py seconds --csv benchmarks/noise_seconds.csv
    python benchmarks/noise.py sums --csv benchmarks/noise_sums.csv

`seconds` draws noise for a million counts, a million floats, and the Privelet coefficients of 1,000 instants by 1,000
places.

`sums` has counts like the co-locations of a day: 24 instants and 100 places in four categories and twelve
sub-categories (Narita et al. 2022, table 2). Most counts are 0, and most of the others are at few places. The error is
measured on the sum of each category at each instant, once for the noisy counts as they are, and once for noisy counts
that are cut off at 0, which biases the sums. The noise of `sums` has a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from common import Row, command_line, machine, measured, record

from ppmtf_jax.noise.accountant import float_below
from ppmtf_jax.noise.privelet import Hierarchy, noisy_counts
from ppmtf_jax.noise.seeded import SeededNoise
from ppmtf_jax.noise.source import NoiseSource, SecureNoise

MILLION = 1_000_000
SENSITIVITY, EPSILONS, N_RUNS = 5, (0.01, 0.1, 0.5, 1.0, 2.5, 5.0), 1000
# Places of each sub-category of each category: travel, shop, arts, professional.
N_PLACES = {"travel": (50, 5, 5, 10, 5), "shop": (5, 3, 3, 4), "arts": (5,), "professional": (3, 2)}
# Root, categories, sub-categories, places.
FAVOURING_CATEGORIES = [1, 4, 1, 1]


def seconds() -> Iterator[Row]:
    places = Hierarchy.of_paths([(i % 10, i % 100) for i in range(1000)])
    # Loads OpenDP.
    SecureNoise().add_laplace(0, 1, 1.0)
    for noise in (SecureNoise(), SeededNoise(0)):
        cases: dict[str, Callable[[NoiseSource], Any]] = {
            "counts, scale 1": lambda noise: noise.add_laplace(np.zeros(MILLION, int), 1, 1.0),
            "counts, scale 1000": lambda noise: noise.add_laplace(np.zeros(MILLION, int), 1, 0.001),
            "floats, scale 1": lambda noise: noise.add_laplace(np.zeros(MILLION), 1, 1.0),
            "Privelet, 1000 x 1000": lambda noise: noisy_counts(np.zeros((1000, 1000), int), places, 1, 1.0, noise),
        }
        for name, draw in cases.items():
            took = measured(draw, noise)[1]
            yield {"noise": "OpenDP" if noise.is_private else "seeded", "what": name, **took, "load": machine()["load"]}


def sums() -> Iterator[Row]:
    paths = [
        (category, number) for category, sizes in N_PLACES.items() for number, n in enumerate(sizes) for _ in range(n)
    ]
    tree = Hierarchy.of_paths(paths)
    categories = np.flatnonzero(tree.depth == 1)
    popularity = 1 / np.arange(1, len(paths) + 1)
    rng = np.random.default_rng(0)
    counts = rng.poisson(40 * popularity / popularity.sum(), (24, len(paths)))
    noise = SeededNoise(0)
    for epsilon in EPSILONS:
        draws = {
            "Laplace": lambda epsilon=epsilon: noise.add_laplace(counts, SENSITIVITY, epsilon),
            "Privelet": lambda epsilon=epsilon: noisy_counts(counts, tree, SENSITIVITY, epsilon, noise),
            "Privelet, more for categories": lambda epsilon=epsilon: weighted_counts(
                counts, tree, SENSITIVITY, epsilon, noise, FAVOURING_CATEGORIES
            ),
        }
        for name, draw in draws.items():
            noisy = np.stack([draw() for _ in range(N_RUNS)])
            row = {"epsilon": epsilon, "mechanism": name}
            for column, used in (("as they come", noisy), ("cut off at 0", np.maximum(noisy, 0))):
                error = (tree.sums(used) - tree.sums(counts).astype(float))[..., categories]
                row |= {f"{column}: mae": f"{np.abs(error).mean():.4g}", f"{column}: mse": f"{(error**2).mean():.4g}"}
            yield row


def weighted_counts(
    counts: np.ndarray, tree: Hierarchy, sensitivity: int, epsilon: float, noise: NoiseSource, weights: Sequence[int]
) -> np.ndarray:
    """Privelet whose levels share epsilon by weights, from the root on; `noisy_counts` gives them equal shares.

    More for the level of the categories makes their sums better, and single places worse. No leaf has coefficients
    above it whose shares are more than epsilon in all.
    """
    total = np.where(tree.coefficient_sensitivity > 0, np.array(weights)[tree.depth], 0)
    for node in range(1, len(total)):
        total[node] += total[tree.parent[node]]
    noisy = tree.transform(counts.astype(np.int64))
    for nodes in tree.alike():
        share = float_below(Fraction(epsilon) * weights[tree.depth[nodes[0]]] / int(total[-tree.n_leaves :].max()))
        own = int(tree.coefficient_sensitivity[nodes[0]] * sensitivity)
        noisy[..., nodes] = noise.add_laplace(noisy[..., nodes], own, share)
    return tree.inverse(tree.subtract_means(noisy))


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("what", choices=["seconds", "sums"])
    arguments = parser.parse_args()
    record(seconds() if arguments.what == "seconds" else sums(), arguments.csv)


if __name__ == "__main__":
    main()
