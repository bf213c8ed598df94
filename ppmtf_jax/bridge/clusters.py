"""Clusters of users who are at similar places at similar hours: k-means, then EM, then hard assignment."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge import kmeans
from ppmtf_jax.bridge.contributions import PLACE_USERS, bounded, used_share
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoother, ClusterSmoothing, expectation_maximization
from ppmtf_jax.bridge.kmeans import starting_clusters
from ppmtf_jax.bridge.products import one_thread, row_begins, sparse_product
from ppmtf_jax.bridge.raking import rake
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import VisitCounts
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.runtime.devices import gather_rows, of_first_process, own_share
from ppmtf_jax.runtime.progress import progress_bar

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
    min_users: int,
    random: np.random.Generator,
    n_sweeps: int = 20,
    progress: bool = False,
) -> Clusters:
    """Find clusters of at least `min_users` users by the places that users visit in each slot.

    EM starts from k-means (see `starting_clusters`) and runs on at most 20,000 random users. Then every user is
    assigned to her likeliest cluster, and clusters with too few users are dissolved (see `assign`). Three times, the
    distributions are computed from the assigned users, and users are assigned again. Finally `rake` adjusts the
    distributions to the population.

    `population`: positive shares, computed by the function `population`. `min_users`: if there are fewer than twice as
    many users, all users are one cluster. `random`: must be in the same state in every process. `n_sweeps`: sweeps of
    EM.
    """
    n_clusters = max(1, min(smoothing.n_clusters, visits.n_users // min_users, kmeans.MAX_USERS))
    smoother = ClusterSmoother(population, space, smoothing, time_grid)
    with one_thread(), progress_bar("clusters", n_sweeps, show=progress, waits_for="k-means") as advance:
        some = visits
        if visits.n_users > EM_USERS:
            some = visits.of_users(np.sort(random.choice(visits.n_users, EM_USERS, replace=False)))
        start = starting_clusters(some, space, smoothing.blur_km, n_clusters, random)
        theta, share = expectation_maximization(some, smoother, start, n_clusters, n_sweeps, advance)
        of_user = assign(_scores(visits, theta, share), min_users)
        for _ in range(CLASSIFICATION_ROUNDS):
            theta = smoother.theta(counts_of_clusters(visits, of_user))[0]
            of_user = assign(_scores(visits, theta, _shares(of_user)), min_users)
    # Processes on different processors may round differently.
    return clusters_of_users(visits, smoother, of_first_process(of_user))


def clusters_of_users(visits: VisitCounts, smoother: ClusterSmoother, of_user: Int[np.ndarray, " user"]) -> Clusters:
    """Compute smoothed and raked distributions of given clusters, which are numbered 0, 1, ... without gaps.

    Counts follow the rules of `contributions`; otherwise a place with one visitor would reveal that visitor's cluster.
    """
    with one_thread():
        counts = counts_of_clusters(_by_the_rules(visits, smoother.time_grid), of_user)
        theta, share = smoother.theta(counts)[0], _shares(of_user)
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
    """Log-probability of each user's visits in each cluster, given their slots; every process must call this."""
    log_theta = np.log(clusters.visits).reshape(len(clusters.share), -1).T
    return _sums_of_users(visits, np.ascontiguousarray(log_theta))


def assign(scores: Float[np.ndarray, "user cluster"], min_users: int) -> Int[np.ndarray, " user"]:
    """Best-scoring cluster of each user, such that every cluster has at least `min_users` users.

    As long as a cluster is too small, the smallest cluster is dissolved, and its users go to their best remaining
    clusters. Then clusters are renumbered. If there are fewer than twice `min_users` users, all are one cluster.
    """
    n_users, n_clusters = scores.shape
    of_user = scores.argmax(axis=1)
    left = np.ones(n_clusters, bool)
    while left.sum() > 1:
        size = np.bincount(of_user, minlength=n_clusters)
        smallest = np.where(left, size, n_users + 1).argmin()
        if size[smallest] >= min_users:
            break
        left[smallest] = False
        moving = np.flatnonzero(of_user == smallest)
        of_user[moving] = np.where(left, scores[moving], -np.inf).argmax(axis=1)
    return np.unique(of_user, return_inverse=True)[1].astype(np.int32)


def counts_of_clusters(
    visits: VisitCounts, of_user: Int[np.ndarray, " user"]
) -> Float[np.ndarray, "slot_place cluster"]:
    """Sum of the counts of each cluster's users."""
    n_clusters, n_columns = int(of_user.max()) + 1, visits.n_slots * visits.n_places
    code = visits.cell * n_clusters + of_user[visits.user]
    counts = np.bincount(code, visits.count, minlength=n_columns * n_clusters)
    return counts.reshape(n_columns, n_clusters).astype(np.float32)


def _by_the_rules(visits: VisitCounts, time_grid: TimeGrid) -> VisitCounts:
    """The visits, with counts under the rules of `contributions`: bounded, and of enough users."""
    group = visits.in_stretch(time_grid)
    count, users = bounded(visits.user, group, int(group.max(initial=0)) + 1, visits.count)
    return replace(visits, count=(count * used_share(users, PLACE_USERS)[group]).astype(np.float32))


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
    """For each user, the sum over her visits of count times value; processes share the users."""
    own = own_share(visits.n_users)
    begin = row_begins(visits.user, visits.n_users)[own.start : own.stop + 1]
    entries = slice(begin[0], begin[-1])
    sums = sparse_product(visits.count[entries], visits.cell[entries].astype(np.int32), begin - begin[0], value)
    return gather_rows(sums, visits.n_users)
