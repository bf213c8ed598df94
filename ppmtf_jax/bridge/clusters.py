"""Clusters of users who are at similar places at similar hours: k-means, then EM, then hard assignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge import kmeans
from ppmtf_jax.bridge.contributions import PLACE_USERS, Rows, bounded_totals, stretches, used_share
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoother, ClusterSmoothing, expectation_maximization
from ppmtf_jax.bridge.kmeans import starting_clusters
from ppmtf_jax.bridge.products import row_begins, sparse_product
from ppmtf_jax.bridge.raking import rake
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import VisitCounts
from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.runtime.devices import of_first_process
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import one_thread

# Maximum number of users for EM: additional users change the clusters less than another seed does.
EM_USERS = 20_000
CLASSIFICATION_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of users; `visits` are their positive distributions over places in each slot."""

    of_user: Int[np.ndarray, " user"]
    share: Float[np.ndarray, " cluster"]
    visits: Float[np.ndarray, "cluster slot place"]


def fit_clusters(
    visits: VisitCounts,
    population: Float[np.ndarray, "slot place"],
    space: Space,
    smoothing: ClusterSmoothing,
    *,
    time_grid: TimeGrid,
    **options: Any,
) -> Clusters:
    """Find clusters (see `find_clusters`), and compute their distributions from their users."""
    smoother = ClusterSmoother(population, space, smoothing, time_grid)
    of_user = find_clusters(visits, visits.of_users, smoother, space, smoothing, n_users=visits.n_users, **options)
    return clusters_of_users(visits, smoother, of_user)


def find_clusters(
    visits: VisitCounts | Blocks[VisitCounts],
    of_users: Callable[[Int[np.ndarray, " user"]], VisitCounts],
    smoother: ClusterSmoother,
    space: Space,
    smoothing: ClusterSmoothing,
    *,
    n_users: int,
    min_users: int,
    random: np.random.Generator,
    n_sweeps: int = 20,
    progress: bool = False,
) -> Int[np.ndarray, " user"]:
    """Find clusters of at least `min_users` users by the places that users visit in each slot.

    EM starts from k-means (see `starting_clusters`) and runs on at most 20,000 random users. Then every user is
    assigned to her likeliest cluster, and clusters with too few users are dissolved (see `assign`). Three times, the
    distributions are computed from the assigned users, and users are assigned again.

    `of_users`: gives the visits of some users. `min_users`: if there are fewer than twice as many users, all users are
    one cluster. `random`: must be in the same state in every process. `n_sweeps`: sweeps of EM.
    """
    n_clusters = max(1, min(smoothing.n_clusters, n_users // min_users, kmeans.MAX_USERS))

    def assigned(theta: np.ndarray, share: np.ndarray) -> Int[np.ndarray, " user"]:
        best = visits.map(lambda own: _scores(own, theta, share).argmax(axis=1).astype(np.int32)).joined()
        found = assign(best, lambda users: _scores(of_users(users), theta, share), len(share), min_users)
        # Processes on different processors may round differently.
        return of_first_process(found)

    with one_thread(), progress_bar("clusters", n_sweeps, show=progress, waits_for="k-means") as advance:
        chosen = np.arange(n_users)
        if n_users > EM_USERS:
            chosen = np.sort(random.choice(n_users, EM_USERS, replace=False))
        some = of_users(chosen)
        start = starting_clusters(some, space, smoothing.blur_km, n_clusters, random)
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

    Counts follow the rules of `contributions`: they are bounded, and of enough users. Otherwise a place with one
    visitor would reveal that visitor's cluster. `rake` adjusts the distributions to the population.
    """
    n_clusters, grid = int(of_user.max()) + 1, smoother.time_grid

    def rows(own: VisitCounts, cluster: Int[np.ndarray, " user"]) -> list[Rows]:
        cell, shape = own.cell * n_clusters + cluster[own.user], (own.n_slots, own.n_places, n_clusters)
        return [Rows(own.user, own.in_stretch(grid), cell, shape, own.count)]

    with one_thread():
        ((counts, groups),) = bounded_totals(visits.map(rows, of_user))
        stretch, n_places = stretches(grid), counts.shape[1]
        used = used_share(groups.users_of((int(stretch.max()) + 1) * n_places), PLACE_USERS)
        counts *= used.reshape(-1, n_places)[stretch][..., None]
        theta, share = smoother.theta(counts.reshape(-1, n_clusters).astype(np.float32))[0], _shares(of_user)
        raked = rake(theta.T.reshape(-1, *smoother.population.shape), share, smoother.population)
    return Clusters(of_user, share, of_first_process(raked))


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
    log_theta = np.log(clusters.visits).reshape(len(clusters.share), -1).T
    return _sums_of_users(visits, np.ascontiguousarray(log_theta))


def assign(
    best: Int[np.ndarray, " user"],
    scores_of: Callable[[Int[np.ndarray, " some"]], Float[np.ndarray, "some cluster"]],
    n_clusters: int,
    min_users: int,
) -> Int[np.ndarray, " user"]:
    """Best-scoring cluster of each user, such that every cluster has at least `min_users` users.

    As long as a cluster is too small, the smallest cluster is dissolved, and its users go to their best remaining
    clusters. Then clusters are renumbered. If there are fewer than twice `min_users` users, all are one cluster.

    `best`: best of all clusters for each user. `scores_of`: scores of some users; only those whose best cluster is too
    small are needed, because other clusters are never dissolved.
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
    """For each user, the sum over her visits of count times value."""
    return sparse_product(visits.count, visits.cell.astype(np.int32), row_begins(visits.user, visits.n_users), value)
