"""Clusters of users who are at similar places at similar hours: k-means, then EM, then hard assignment.

EM fits a mixture: a user's visit to place b in slot s comes from cluster k with probability w_k theta_k(s, b). w_k is
the user's weight of cluster k, and theta_k(s, .) is the distribution of cluster k over places in slot s.

No result depends on the number of threads. Each sum adds its terms in a fixed order, in one thread, and blocks have a
fixed size. So threads share rows and columns, and workers share users, without changing a single bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people.counts import PopulationSmoothing, VisitCounts, population, slot_kernel, users_in_slot
from ppmtf_jax.people.fitting import rake
from ppmtf_jax.people.space import Space, indicator
from ppmtf_jax.people.user_bounds import PLACE_USERS, Rows, bounded_totals, time_blocks, used_share
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, one_thread

# Maximum numbers of users for k-means and for EM: additional users change the clusters less than another seed does.
KMEANS_USERS, EM_USERS = 4_000, 20_000
CLASSIFICATION_ROUNDS = 3
# Features of k-means: regions, and parts of the slots. Smaller Gaussian weights become 0: denormal numbers are slow.
N_REGIONS, N_PARTS = 256, 4
MIN_WEIGHT = 1e-12
# Part of a user's initial weight that is divided equally among all clusters; the user's k-means cluster gets the rest.
START_SPREAD = 0.3
# Pseudo-visits per cluster in a user's weights, so that no cluster gets weight 0.
PRIOR_VISITS = 0.1
ENTRIES_AT_A_TIME, COLUMNS_AT_A_TIME = 8192, 128


class ClusterSmoothing(NamedTuple):
    """Parameters of the clustering of users by their visits."""

    n_clusters: int  # clusters at the start of EM; clusters with too few users are dissolved afterwards
    blur_km: float  # standard deviation of the Gaussian that spreads a visit over nearby places; 0 for no blur
    population_mass: float  # pseudo-visits per place and slot, divided among clusters like all visits; positive
    slot_bandwidth: float  # see `slot_kernel`


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of users; `visits` are their positive distributions over places in each slot."""

    of_user: Int[np.ndarray, " user"]
    share: Float[np.ndarray, " cluster"]
    visits: Float[np.ndarray, "cluster slot place"]


def fit_clusters(visits: VisitCounts, smoother: ClusterSmoother, **options: Any) -> Clusters:
    """Find clusters (see `find_clusters`), and compute their distributions from their users."""
    of_user = find_clusters(visits, visits.of_users, smoother, n_users=visits.n_users, **options)
    return clusters_of_users(visits, smoother, of_user)


def find_clusters(
    visits: VisitCounts | Blocks[VisitCounts],
    of_users: Callable[[Int[np.ndarray, " user"]], VisitCounts],
    smoother: ClusterSmoother,
    *,
    n_users: int,
    min_users: int,
    random: np.random.Generator,
    n_sweeps: int = 20,
    progress: bool = False,
) -> Int[np.ndarray, " user"]:
    """Find clusters of at least `min_users` users by the places that users visit in each slot.

    EM starts from k-means and runs on at most 20,000 random users. Then every user is assigned to their likeliest
    cluster, and clusters with too few users are dissolved (see `assign`). Three times, the distributions are computed
    from the assigned users, and users are assigned again. If there are fewer than twice `min_users` users, all are one
    cluster. `of_users`: gives the visits of some users.
    """
    n_clusters = max(1, min(smoother.smoothing.n_clusters, n_users // min_users, KMEANS_USERS))

    def assigned(theta: np.ndarray, share: np.ndarray) -> Int[np.ndarray, " user"]:
        best = visits.map(lambda own: _scores(own, theta, share).argmax(axis=1).astype(np.int32)).joined()
        return assign(best, lambda users: _scores(of_users(users), theta, share), len(share), min_users)

    with one_thread(), progress_bar("clusters", n_sweeps, show=progress, waits_for="k-means") as advance:
        chosen = np.arange(n_users)
        if n_users > EM_USERS:
            chosen = np.sort(random.choice(n_users, EM_USERS, replace=False))
        some = of_users(chosen)
        start = starting_clusters(some, smoother.space, smoother.smoothing.blur_km, n_clusters, random)
        theta, share = expectation_maximization(some, smoother, start, n_clusters, n_sweeps, advance)
        of_user = assigned(theta, share)
        for _ in range(CLASSIFICATION_ROUNDS):
            theta = smoother.theta(counts_of_clusters(visits, of_user))[0]
            of_user = assigned(theta, _shares(of_user))
    return of_user


def clusters_of_users(
    visits: VisitCounts | Blocks[VisitCounts], smoother: ClusterSmoother, of_user: Int[np.ndarray, " user"]
) -> Clusters:
    """Compute smoothed and raked distributions of given clusters, which are numbered 0, 1, ... without gaps.

    Counts follow the rules of `user_bounds`: they are bounded, and of enough users. Otherwise a place with one
    visitor would reveal that visitor's cluster. `rake` adjusts the distributions to the population.
    """
    n_clusters, grid = int(of_user.max()) + 1, smoother.time_grid

    def rows(own: VisitCounts, cluster: Int[np.ndarray, " user"]) -> list[Rows]:
        cell, shape = own.cell * n_clusters + cluster[own.user], (own.n_slots, own.n_places, n_clusters)
        return [Rows(own.user, own.in_time_block(grid), cell, shape, own.count)]

    with one_thread():
        ((counts, groups),) = bounded_totals(visits.map(rows, of_user))
        counts *= used_share(users_in_slot(groups, time_blocks(grid), counts.shape[1]), PLACE_USERS)[..., None]
        theta, share = smoother.theta(counts.reshape(-1, n_clusters).astype(np.float32))[0], _shares(of_user)
        raked = rake(theta.T.reshape(-1, *smoother.population.shape), share, smoother.population)
    return Clusters(of_user, share, raked)


def population_and_clusters(
    visits: VisitCounts | Blocks[VisitCounts],
    of_user: Int[np.ndarray, " user"],
    of_population: PopulationSmoothing,
    smoothing: ClusterSmoothing,
    space: Space,
    time_grid: TimeGrid,
) -> tuple[Float[np.ndarray, "slot place"], Clusters]:
    """The recipe: from counts of visits to the smoothed population, and to the distributions of given clusters."""
    shares = population(visits, of_population, time_grid)
    return shares, clusters_of_users(visits, ClusterSmoother(shares, space, smoothing, time_grid), of_user)


def cluster_sentences(n_present: Int[np.ndarray, " cluster"]) -> list[str]:
    """Sentences about the numbers of users with events in the clusters, for the summary of a model."""
    sizes = np.sort(n_present)
    least = int(sizes[0])
    users = f"the smallest has {counted(least, 'user')}, the largest {sizes[-1]:,}"
    if len(sizes) == 1:
        users = f"all {counted(least, 'user')}"
    return [
        f"{counted(len(sizes), 'cluster')} of users who are at similar places at similar hours: {users}",
        f"With all users as verifiers, every trace passes the privacy test up to k = {least}",
    ]


def log_likelihoods(visits: VisitCounts, clusters: Clusters) -> Float[np.ndarray, "user cluster"]:
    """Log-probability of each user's visits in each cluster, given their slots."""
    return _sums_of_users(visits, np.ascontiguousarray(np.log(clusters.visits).reshape(len(clusters.share), -1).T))


def assign(
    best: Int[np.ndarray, " user"],
    scores_of: Callable[[Int[np.ndarray, " some"]], Float[np.ndarray, "some cluster"]],
    n_clusters: int,
    min_users: int,
) -> Int[np.ndarray, " user"]:
    """Best-scoring cluster of each user, such that every cluster has at least `min_users` users; renumbered.

    As long as a cluster is too small, the smallest cluster is dissolved, and its users go to their best remaining
    clusters. `best`: best of all clusters for each user. `scores_of`: scores of some users; only those whose best
    cluster is too small are needed, because other clusters are never dissolved.
    """
    size = np.bincount(best, minlength=n_clusters)
    users = np.flatnonzero(size[best] < min_users)
    scores = scores_of(users) if len(users) else np.zeros((0, n_clusters))
    own, left = best[users], np.ones(n_clusters, bool)
    while left.sum() > 1:
        smallest = np.where(left, size, len(best) + 1).argmin()
        if size[smallest] >= min_users:
            break
        left[smallest] = False
        moving = np.flatnonzero(own == smallest)
        own[moving] = np.where(left, scores[moving], -np.inf).argmax(axis=1)
        size += np.bincount(own[moving], minlength=n_clusters)
    of_user = best.copy()
    of_user[users] = own
    return np.unique(of_user, return_inverse=True)[1].astype(np.int32)


def counts_of_clusters(
    visits: VisitCounts | Blocks[VisitCounts], of_user: Int[np.ndarray, " user"]
) -> Float[np.ndarray, "slot_place cluster"]:
    """Sum of the counts of each cluster's users."""
    n_clusters = int(of_user.max()) + 1

    def counts(own: VisitCounts, cluster: Int[np.ndarray, " user"]) -> Float[np.ndarray, "slot_place cluster"]:
        n_columns = own.n_slots * own.n_places
        code = own.cell * n_clusters + cluster[own.user]
        return np.bincount(code, own.count, minlength=n_columns * n_clusters).reshape(n_columns, n_clusters)

    return visits.map(counts, of_user).total().astype(np.float32)


def _shares(of_user: Int[np.ndarray, " user"]) -> Float[np.ndarray, " cluster"]:
    return np.bincount(of_user) / len(of_user)


def _scores(
    visits: VisitCounts, theta: Float[np.ndarray, "slot_place cluster"], share: Float[np.ndarray, " cluster"]
) -> Float[np.ndarray, "user cluster"]:
    """Log of the joint probability of each cluster and each user's visits."""
    log_share = np.log(np.maximum(share, np.finfo(np.float32).tiny)).astype(np.float32)
    return _sums_of_users(visits, np.log(theta)) + log_share


def _sums_of_users(
    visits: VisitCounts, value: Float[np.ndarray, "slot_place cluster"]
) -> Float[np.ndarray, "user cluster"]:
    return sparse_product(visits.count, visits.cell.astype(np.int32), row_begins(visits.user, visits.n_users), value)


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
        self.space, self.smoothing, self.time_grid = space, smoothing, time_grid
        self.slot_weights = slot_kernel(time_grid, smoothing.slot_bandwidth).astype(np.float32)
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
        mass = np.float32(self.smoothing.population_mass)
        ratio = (own + mass) / (smooth.sum(axis=2, keepdims=True) + mass)
        if ratio.shape[1] < shape[1]:
            ratio = ratio[:, self.space.cell]
        theta = self.population[:, :, None] * ratio
        theta /= theta.sum(axis=1, keepdims=True)
        return theta.reshape(counts.shape), share

    def _over_space(self, counts: Float[np.ndarray, "slot place cluster"]) -> Float[np.ndarray, "slot cell cluster"]:
        if self.space_weights is None:
            return counts
        n_slots, n_places, n_clusters = counts.shape
        n_cells = len(self.space_weights)
        if n_cells < n_places:
            members = indicator(self.space.cell, n_cells).T
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

        size = ENTRIES_AT_A_TIME
        blocks = [slice(first, first + size) for first in range(0, len(self.column), size)]
        ratio = np.concatenate([np.zeros(0, np.float32), *map_in_threads(ratios, blocks)])
        of_users = weight * sparse_product(ratio, self.column, self.user_begin, theta)
        return of_users, theta * self.sums_of_places(ratio, weight)

    def sums_of_places(
        self, value: Float[np.ndarray, " entry"], weight: Float[np.ndarray, "user cluster"]
    ) -> Float[np.ndarray, "slot_place cluster"]:
        """For each place in each slot, the sum over its entries of a value times the user's weights."""
        return sparse_product(value[self.by_place], self.user_by_place, self.place_begin, weight)


def starting_clusters(
    visits: VisitCounts, space: Space, blur_km: float, n_clusters: int, random: np.random.Generator
) -> Int[np.ndarray, " user"]:
    """Cluster of each user by k-means.

    Features are square roots of the blurred shares of a user's visits in 256 regions, for each quarter of the slots.
    """
    # This import takes seconds.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    features = _features(visits, space, blur_km)
    some = np.arange(visits.n_users)
    if visits.n_users > KMEANS_USERS:
        some = np.sort(random.choice(visits.n_users, KMEANS_USERS, replace=False))
    means = KMeans(n_clusters, n_init=2, max_iter=30, random_state=int(random.integers(2**31)))
    with one_thread(), warnings.catch_warnings():
        # If there are fewer distinct users than clusters, some clusters stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(means.fit(features[some]).predict(features))


def _features(visits: VisitCounts, space: Space, blur_km: float) -> Float[np.ndarray, "user feature"]:
    n_cells = len(space.km)
    cell = space.cell[visits.place]
    region = _regions(np.bincount(cell, visits.count, n_cells), space.km)
    blur = indicator(region, int(region.max()) + 1).toarray()
    if blur_km > 0:
        kernel = space_kernel(space, blur_km)
        blur = kernel / kernel.sum(axis=1, keepdims=True) @ blur
    part = visits.slot * N_PARTS // visits.n_slots
    features = []
    for number in range(N_PARTS):
        own = part == number
        entries = (visits.count[own], (visits.user[own], cell[own]))
        counts = sparse.csr_array(entries, shape=(visits.n_users, n_cells)) @ blur
        # A user without visits in this part gets equal shares of all regions.
        counts += np.float32(1e-9)
        features.append(np.sqrt(counts / counts.sum(axis=1, keepdims=True)))
    return np.concatenate(features, axis=1)


def _regions(count: Float[np.ndarray, " cell"], km: Float[np.ndarray, "cell cell"]) -> Int[np.ndarray, " cell"]:
    """For each cell, the nearest of the most visited cells; among equally near ones, the least visited."""
    centres = np.argsort(-count, kind="stable")[:N_REGIONS]
    region = len(centres) - 1 - km[:, centres[::-1]].argmin(axis=1)
    region[centres] = np.arange(len(centres))
    return region


def space_kernel(space: Space, blur_km: float) -> Float[np.ndarray, "cell cell"]:
    """Gaussian weights between cells, 1 on the diagonal."""
    weights = np.exp(-0.5 * (space.km.astype(np.float32) / np.float32(blur_km)) ** 2)
    weights[weights < MIN_WEIGHT] = 0
    # In an empty region, places of one cell may be far apart; the cell still keeps its own visits.
    np.fill_diagonal(weights, 1)
    return weights


def row_begins(row: Int[np.ndarray, " entry"], n_rows: int) -> Int[np.ndarray, " begin"]:
    """Index of each row's first entry among the sorted entries; and, at the end, the number of entries."""
    return np.searchsorted(row, np.arange(n_rows + 1)).astype(np.int32)


def sparse_product(
    value: Float[np.ndarray, " entry"],
    column: Int[np.ndarray, " entry"],
    begin: Int[np.ndarray, " begin"],
    dense: Float[np.ndarray, "column cluster"],
) -> Float[np.ndarray, "row cluster"]:
    """Sparse matrix (in the format of `scipy.sparse.csr_array`) times a dense matrix; threads share the rows."""

    def sums(rows: tuple[int, int]) -> Float[np.ndarray, "some cluster"]:
        own = begin[rows[0] : rows[1] + 1]
        entries = slice(own[0], own[-1])
        shape = (len(own) - 1, len(dense))
        return sparse.csr_array((value[entries], column[entries], own - own[0]), shape=shape) @ dense

    edges = np.searchsorted(begin, np.arange(0, begin[-1], ENTRIES_AT_A_TIME))
    return np.concatenate(list(map_in_threads(sums, pairwise(np.unique([0, *edges, len(begin) - 1]).tolist()))))


def dense_product(
    matrix: Float[np.ndarray, "row column"], wide: Float[np.ndarray, "column many"]
) -> Float[np.ndarray, "row many"]:
    """Matrix times a wide matrix; threads share the columns."""
    blocks = [slice(first, first + COLUMNS_AT_A_TIME) for first in range(0, wide.shape[1], COLUMNS_AT_A_TIME)]
    return np.concatenate(list(map_in_threads(lambda block: matrix @ wide[:, block], blocks)), axis=1)
