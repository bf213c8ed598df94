"""Gravity: flows between places from the population and a function of distance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.contributions import STEP_USERS, Rows, bounded_totals, used_share
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.data.blocks import Blocks

N_BINS = 24
QUANTILES = np.append(np.arange(1, 12) / 12, [0.94, 0.96, 0.98, 0.99])
"""Upper edges of the bins of `distance_bins`, as quantiles; rare long distances have several bins."""
# Rounds of proportional fitting; further rounds change the factors of distance by less than a thousandth.
N_ROUNDS = 30


class Gravity(NamedTuple):
    """Dependence of the flow between two places on their distance."""

    bin: Int[np.ndarray, "cell cell"]  # bin of distance
    factor: Float[np.ndarray, " bin"]
    attraction: Float[np.ndarray, "slot place"]  # normalizing sum over all other places b of p(s, b) f(a, b)

    @property
    def between(self) -> Float[np.ndarray, "cell cell"]:
        """The factor of each pair of cells."""
        return self.factor[self.bin]


def fit_gravity(
    moves: Transitions | Blocks[Transitions], population: Float[np.ndarray, "slot place"], space: Space
) -> Gravity:
    """Fit g_s(b | a) ~ p(s, b) f(km(a, b)) for b not a; f is constant in bins with equal numbers of moves.

    Proportional fitting of f: if people leave each place as often as in the data, the expected number of moves in each
    bin of distance is that of the data plus one half.
    """

    def rows(own: Transitions) -> tuple[Rows, Rows]:
        between = own.cells(space)
        of_distances = Rows(own.user, np.zeros_like(between), between, space.km.shape)
        return of_distances, Rows(own.user, own.place, own.place, population.shape[1:])

    (of_pairs, _), (of_places, _) = bounded_totals(moves.map(rows))
    edges = _quantiles(space.km.ravel(), of_pairs.ravel(), np.arange(1, N_BINS) / N_BINS)
    which = np.searchsorted(edges, space.km)
    n_used = int(which.max()) + 1
    covered = covered_distances(moves, which, space)
    n_cells = len(space.km)
    leaving = np.bincount(space.cell, of_places, n_cells)
    shares = population.mean(axis=0)
    mass = np.bincount(space.cell, shares, n_cells)
    # Share of a cell's people who are at a person's own place, on average over the cell's people.
    own = np.bincount(space.cell, shares**2, n_cells) / np.maximum(mass, 1e-300) ** 2
    factor = np.ones(n_used)
    for _ in range(N_ROUNDS if of_pairs.any() else 0):
        flow = factor[which] * mass
        np.fill_diagonal(flow, np.diag(flow) * (1 - own))
        flow *= (leaving / np.maximum(flow.sum(axis=1), 1e-300))[:, None]
        expected = np.bincount(which.ravel(), flow.ravel(), n_used)
        # The factor of a bin without pairs of places does not change.
        factor *= np.divide(covered, expected, out=np.ones(n_used), where=expected > 1e-9)
        factor /= factor.mean()
    between = factor[which]
    in_cell = np.stack([np.bincount(space.cell, row, n_cells) for row in population])
    of_all = (in_cell @ between.T)[:, space.cell]
    of_others = of_all - population * np.diag(between)[space.cell]
    # If there is only one place, `of_others` is only rounding error.
    return Gravity(which, factor, np.where(of_others > 1e-9 * of_all, of_others, 0))


def covered_distances(
    moves: Transitions | Blocks[Transitions], bins: Int[np.ndarray, "cell cell"], space: Space
) -> Float[np.ndarray, " bin"]:
    """Bounded number of moves in each bin of distance between cells, of enough users, plus one half."""
    n_bins = int(bins.max()) + 1

    def rows(own: Transitions) -> list[Rows]:
        bin_of_move = bins.ravel()[own.cells(space)]
        return [Rows(own.user, bin_of_move, bin_of_move, (n_bins,))]

    ((total, groups),) = bounded_totals(moves.map(rows))
    return total * used_share(groups.users_of(n_bins), STEP_USERS) + 0.5


def distance_bins(n_pairs: Int[np.ndarray, "cell cell"], space: Space) -> Int[np.ndarray, "cell cell"]:
    """Bin of distance of each pair of cells: 0, 1, ... from near to far; the quantiles are those of the given pairs.

    `n_pairs`: how many pairs of places lie in each pair of cells.
    """
    bins = np.searchsorted(_quantiles(space.km.ravel(), n_pairs.ravel(), QUANTILES), space.km)
    return np.unique(bins, return_inverse=True)[1].reshape(bins.shape)


def _quantiles(value: np.ndarray, weight: np.ndarray, quantile: np.ndarray) -> np.ndarray:
    """Distinct quantiles of weighted values (none if all weights are 0); a value equal to one is in the lower bin."""
    value, weight = value[weight > 0], weight[weight > 0]
    order = np.argsort(value, kind="stable")
    reached = np.cumsum(weight[order])
    if not len(value):
        return np.zeros(0)
    return np.unique(value[order][np.searchsorted(reached, quantile * reached[-1])])
