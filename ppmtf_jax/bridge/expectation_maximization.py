"""EM for a mixture: a user's visit to place b in slot s comes from cluster k with probability w_k theta_k(s, b).

w_k is the user's weight of cluster k, and theta_k(s, .) is the distribution of cluster k over places in slot s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge import products
from ppmtf_jax.bridge.kmeans import space_kernel
from ppmtf_jax.bridge.products import dense_product, indicator, row_begins, sparse_product
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import VisitCounts, slot_kernel
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.runtime.threads import map_in_threads

# Part of a user's initial weight that is divided equally among all clusters; her k-means cluster gets the rest.
START_SPREAD = 0.3
# Pseudo-visits per cluster in a user's weights, so that no cluster gets weight 0.
PRIOR_VISITS = 0.1


class ClusterSmoothing(NamedTuple):
    """Parameters of the clustering of users by their visits."""

    n_clusters: int  # clusters at the start of EM; clusters with too few users are dissolved afterwards
    blur_km: float  # standard deviation of the Gaussian that spreads a visit over nearby places; 0 for no blur
    population_mass: float  # pseudo-visits per place and slot, divided among clusters like all visits; positive
    slot_bandwidth: float  # see `slot_kernel`


class ClusterSmoother:
    """Distributions over places from the counts of clusters, smoothed and shrunk to the population.

    theta_k(s, b) ~ p(s, b) (c_k(s, b) / pi_k + t) / (c(s, b) + t), with c_k the smoothed counts of cluster k, c their
    sum over clusters, pi_k its share of all counts, p the population and t the population mass. Counts are smoothed
    over slots (see `slot_kernel`) and over space, with weight 1 at distance 0. If a cell of space has several places,
    each of them gets the smoothed sum of the cell.
    """

    def __init__(
        self,
        population: Float[np.ndarray, "slot place"],
        space: Space,
        smoothing: ClusterSmoothing,
        time_grid: TimeGrid,
    ):
        self.population = population.astype(np.float32)
        self.mass = np.float32(smoothing.population_mass)
        self.time_grid = time_grid
        self.slot_weights = slot_kernel(time_grid, smoothing.slot_bandwidth).astype(np.float32)
        self.cell = space.cell
        self.space_weights = space_kernel(space, smoothing.blur_km) if smoothing.blur_km > 0 else None

    def theta(
        self, counts: Float[np.ndarray, "slot_place cluster"]
    ) -> tuple[Float[np.ndarray, "slot_place cluster"], Float[np.ndarray, " cluster"]]:
        """Each cluster's distribution over places for these counts, and its share of all counts."""
        shape = (*self.population.shape, counts.shape[1])
        over_slots = (self.slot_weights @ counts.reshape(shape[0], -1)).reshape(shape)
        smooth = self._over_space(over_slots)
        share = counts.sum(axis=0, dtype=np.float64)
        # If each place has only one user, no count is used, and the sum is 0.
        share /= max(share.sum(), np.finfo(np.float64).tiny)
        # Dividing by the bounded share keeps the numbers of a vanishing cluster finite; normalizing cancels the factor.
        own = smooth / np.maximum(share, np.finfo(np.float32).tiny).astype(np.float32)
        lift = (own + self.mass) / (smooth.sum(axis=2, keepdims=True) + self.mass)
        if lift.shape[1] < shape[1]:
            lift = lift[:, self.cell]
        theta = self.population[:, :, None] * lift
        theta /= theta.sum(axis=1, keepdims=True)
        return theta.reshape(counts.shape), share

    def _over_space(self, counts: Float[np.ndarray, "slot place cluster"]) -> Float[np.ndarray, "slot cell cluster"]:
        if self.space_weights is None:
            return counts
        n_slots, n_places, n_clusters = counts.shape
        n_cells = len(self.space_weights)
        if n_cells < n_places:
            members = indicator(self.cell, n_cells).T
            counts = np.stack([members @ of_slot for of_slot in counts])
        by_cell = counts.transpose(1, 0, 2).reshape(n_cells, n_slots * n_clusters)
        return dense_product(self.space_weights, by_cell).reshape(n_cells, n_slots, n_clusters).transpose(1, 0, 2)


def expectation_maximization(
    visits: VisitCounts,
    smoother: ClusterSmoother,
    start: Int[np.ndarray, " user"],
    n_clusters: int,
    n_sweeps: int,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Float[np.ndarray, "slot_place cluster"], Float[np.ndarray, " cluster"]]:
    """Distributions and shares of clusters after `n_sweeps` sweeps of EM that start from the clusters `start`."""
    weight = np.full((visits.n_users, n_clusters), START_SPREAD / n_clusters, np.float32)
    weight[np.arange(visits.n_users), start] += 1 - START_SPREAD
    entries = Entries(visits)
    theta, share = smoother.theta(entries.sums_of_places(visits.count, weight))
    for _ in range(n_sweeps):
        of_users, of_places = entries.expected_counts(weight, theta)
        weight = of_users + (PRIOR_VISITS * n_clusters * share).astype(np.float32)
        weight /= weight.sum(axis=1, keepdims=True)
        theta, share = smoother.theta(of_places)
        advance(1)
    return theta, share


class Entries:
    """Visit counts as a sparse matrix, sorted by user and sorted by slot and place."""

    def __init__(self, visits: VisitCounts):
        self.visits = visits
        self.column = visits.cell.astype(np.int32)
        self.by_place = np.argsort(self.column, kind="stable")
        self.user_begin = row_begins(visits.user, visits.n_users)
        self.place_begin = row_begins(self.column[self.by_place], visits.n_slots * visits.n_places)
        self.user_by_place = visits.user[self.by_place]

    def expected_counts(
        self, weight: Float[np.ndarray, "user cluster"], theta: Float[np.ndarray, "slot_place cluster"]
    ) -> tuple[Float[np.ndarray, "user cluster"], Float[np.ndarray, "slot_place cluster"]]:
        """E step: expected counts of each user, and of each place in each slot, by cluster.

        Let x be the count of an entry and z = sum_k w_k theta_k. The part of cluster k is x w_k theta_k / z. So a
        user's counts are w times the sums of x / z weighted by theta, and a place's counts are theta times the sums
        weighted by w. The responsibilities of single entries are never stored.
        """

        def ratios(block: slice) -> Float[np.ndarray, " entry"]:
            mixture = np.einsum("ek,ek->e", weight[self.visits.user[block]], theta[self.column[block]])
            return self.visits.count[block] / mixture

        size = products.ENTRIES_AT_A_TIME
        blocks = [slice(first, first + size) for first in range(0, len(self.column), size)]
        ratio = np.concatenate([np.zeros(0, np.float32), *map_in_threads(ratios, blocks)])
        of_users = weight * sparse_product(ratio, self.column, self.user_begin, theta)
        return of_users, theta * self.sums_of_places(ratio, weight)

    def sums_of_places(
        self, value: Float[np.ndarray, " entry"], weight: Float[np.ndarray, "user cluster"]
    ) -> Float[np.ndarray, "slot_place cluster"]:
        """For each place in each slot, the sum over its entries of a value times the user's weights."""
        return sparse_product(value[self.by_place], self.user_by_place, self.place_begin, weight)
