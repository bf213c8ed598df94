"""Clusters of users who are at like places at like hours, by expectation-maximization (EM) over their visits.

A user's visit to place b in slot s comes from cluster k with probability w_k theta_k(s, b): w her weights of the
clusters, theta_k(s, .) the cluster's distribution over places. EM finds both; then each user goes to one cluster.

No sum depends on how the work is split. What sums over a user's visits goes through them in order, and so does what
sums over the visits of a place; dense products are of one shape and one thread. So users, places and columns are shared
among threads, and users among processes, and every bit stays as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from threadpoolctl import ThreadpoolController

from ppmtf_jax.bridge.contributions import PLACE_USERS, bounded, told
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import Visits, slot_kernel
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.devices import gather_rows, of_first_process, own_share
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads

# Users on whom EM runs, and those of them on whom k-means does: more change nothing that can be told from the seed.
EM_USERS, KMEANS_USERS = 20_000, 4_000
# What k-means tells users apart by: visits to so many regions, in so many parts of the slots.
N_REGIONS, N_PARTS = 256, 4
# Of a user's weights at the start, what is not her k-means cluster's.
START_SPREAD = 0.3
# Visits that a user's weights begin with, for each cluster on average, so that no cluster is out of her reach.
PRIOR_VISITS = 0.1
CLASSIFICATION_ROUNDS = 3
# In total variation from the population, in each slot; twenty rounds come as near in most data.
RAKING_TOLERANCE, MAX_RAKING_ROUNDS = 1e-5, 100
# Weights of the Gaussian that are smaller are zero: tiny ones would be denormal numbers, which are slow.
SMALLEST_WEIGHT = 1e-12
# Fixed, so that results do not depend on the number of threads.
ENTRIES_AT_A_TIME, COLUMNS_AT_A_TIME = 8192, 128


class ClusterSmoothing(NamedTuple):
    """How visits become clusters.

    Attributes
    ----------
    n_clusters : int
        With which EM starts; the end has fewer where some would have too few users.
    blur_km : float
        A visit tells of places around with Gaussian weights of this standard deviation; with 0 of its own place only.
    population_mass : float
        Visits of a place in a slot that each cluster begins with, shared among clusters as all visits are; positive.
    slot_bandwidth : float
        See `slot_kernel`.
    """

    n_clusters: int
    blur_km: float
    population_mass: float
    slot_bandwidth: float


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of users.

    Parameters
    ----------
    of_user : int32 array, shape (users,)
        The cluster of each user.
    share : float64 array, shape (clusters,)
        Share of the users in each; positive.
    visits : float32 array, shape (clusters, slots, places)
        The distribution over places of each cluster in each slot; positive.
    """

    of_user: Int[np.ndarray, " user"]
    share: Float[np.ndarray, " cluster"]
    visits: Float[np.ndarray, "cluster slot place"]


def fit_clusters(
    visits: Visits,
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
    """Find clusters of at least `min_users` users by what they visit when.

    EM starts from k-means (see `starting_clusters`). Then each user goes to her likeliest cluster, the smallest cluster
    is dissolved until none is too small, and those left are made anew of their users; and so for three rounds. In the
    end the clusters' distributions are adjusted until, by the shares of users, they add up to the population: `rake`.

    Of more than 20,000 users, EM runs on that many at random; all of them take part in the rounds after it.

    Parameters
    ----------
    visits : Visits
    population : float array, shape (slots, places)
        Share of the people at each place in each slot, positive, as `population` makes it.
    space : Space
    smoothing : ClusterSmoothing
    time_grid : TimeGrid
        Of the visits.
    min_users : int
        Users fewer than twice as many are one cluster.
    random : np.random.Generator
        The same in every process. Two calls with generators in the same state give the same.
    n_sweeps : int
        Of EM.
    progress : bool
        Show a bar on a terminal.

    Raises
    ------
    InputError
        Fewer than one cluster, user or sweep is asked for, a smoothing is negative or its mass not positive, or the
        population is zero somewhere.

    Examples
    --------
    Five users commute to place 1, five stay at place 0:

    >>> grid = TimeGrid.each_instant("2024-01-01T08:00:00", 3600, 2)
    >>> user, slot = np.divmod(np.arange(20, dtype=np.int32), 2)
    >>> place = np.where((user < 5) & (slot == 1), 1, 0).astype(np.int32)
    >>> one = np.ones(20, np.float32)
    >>> visits = Visits(user, slot, place, one, n_users=10, n_slots=2, n_places=3)
    >>> population = visits.total() + 1
    >>> population /= population.sum(axis=1, keepdims=True)
    >>> space = Space(cell=np.arange(3, dtype=np.int32), km=np.zeros((3, 3), np.float32))
    >>> smoothing = ClusterSmoothing(n_clusters=2, blur_km=0.0, population_mass=0.1, slot_bandwidth=0.0)
    >>> random = np.random.default_rng(0)
    >>> clusters = fit_clusters(visits, population, space, smoothing, time_grid=grid, min_users=4, random=random)
    >>> len(set(clusters.of_user[:5])), len(set(clusters.of_user[5:])), clusters.share.tolist()
    (1, 1, [0.5, 0.5])
    """
    _require_valid(population, smoothing, min_users, n_sweeps)
    n_clusters = max(1, min(smoothing.n_clusters, visits.n_users // min_users, KMEANS_USERS))
    profiles = Profiles(population, space, smoothing, time_grid)
    # Products in several threads would round otherwise with another number of them.
    with _one_thread(), progress_bar("clusters", n_sweeps, show=progress, waits_for="k-means") as advance:
        seen = _some_users(visits, EM_USERS, random)
        start = starting_clusters(seen, space, smoothing.blur_km, n_clusters, random)
        theta, share = expectation_maximization(seen, profiles, start, n_clusters, n_sweeps, advance)
        of_user = assign(_scores(visits, theta, share), min_users)
        for _ in range(CLASSIFICATION_ROUNDS):
            theta = profiles.theta(counts_of_clusters(visits, of_user))[0]
            of_user = assign(_scores(visits, theta, shares_of_users(of_user)), min_users)
    # Processors of several kinds may round in several ways.
    return clusters_of_users(visits, profiles, of_first_process(of_user))


@cache
def _thread_pools() -> ThreadpoolController:
    """The libraries whose threads are limited: to find them takes longer than many a small clustering."""
    # Only those are found that are imported already.
    import sklearn.cluster  # noqa: F401

    return ThreadpoolController()


def _one_thread() -> AbstractContextManager:
    return _thread_pools().limit(limits=1)


def clusters_of_users(visits: Visits, profiles: Profiles, of_user: Int[np.ndarray, " user"]) -> Clusters:
    """Given clusters, numbered 0, 1, ... without gaps, with their distributions: smoothed, and raked.

    Visits of all users tell of clusters as far as `contributions` has it: else one who is alone at a place would show.
    """
    with _one_thread():
        counts = counts_of_clusters(_told(visits, profiles.time_grid), of_user)
        theta, share = profiles.theta(counts)[0], shares_of_users(of_user)
        raked = rake(theta.T.reshape(-1, *profiles.population.shape), share, profiles.population)
    return Clusters(of_user, share, of_first_process(raked))


def log_likelihoods(visits: Visits, clusters: Clusters) -> Float[np.ndarray, "user cluster"]:
    """Log-probability of each user's visits in each cluster, their slots given, in single precision.

    Processes share the users; to be called in each of them.

    Examples
    --------
    >>> one, count = np.zeros(1, np.int32), np.full(1, 2, np.float32)
    >>> clusters = Clusters(one, np.ones(1), np.full((1, 1, 4), 0.25, np.float32))
    >>> np.exp(log_likelihoods(Visits(one, one, one, count, 1, 1, 4), clusters)).round(4)
    array([[0.0625]], dtype=float32)
    """
    log_theta = np.log(clusters.visits).reshape(len(clusters.share), -1).T
    return _sums_of_users(visits, np.ascontiguousarray(log_theta))


class Profiles:
    """How the counts of clusters become their distributions over places: smoothed, and drawn to the population.

    theta_k(s, b) ~ p(s, b) (c_k(s, b) / pi_k + t) / (c(s, b) + t), with c_k the smoothed counts of cluster k, c their
    sum over clusters, pi_k its share of all counts, p the population and t the population mass. Counts are smoothed
    over slots (see `slot_kernel`) and over space, with weight 1 at distance 0. Where several places share a cell of
    space, smoothing over space adds the counts of a cell up, and all its places have the blurred sum for their counts.
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
        self.space_weights = _space_kernel(space, smoothing.blur_km) if smoothing.blur_km > 0 else None

    def theta(
        self, counts: Float[np.ndarray, "slot_place cluster"]
    ) -> tuple[Float[np.ndarray, "slot_place cluster"], Float[np.ndarray, " cluster"]]:
        """The distributions over places of clusters with these counts, and each cluster's share of all counts."""
        shape = (*self.population.shape, counts.shape[1])
        smooth = self._over_space(self._over_slots(counts.reshape(shape)))
        share = counts.sum(axis=0, dtype=np.float64)
        # Where every place is one user's, no count is told.
        share /= max(share.sum(), np.finfo(np.float64).tiny)
        # Divided by the share, which each distribution's sum takes out again, a cluster that fades away stays finite.
        own = smooth / np.maximum(share, np.finfo(np.float32).tiny).astype(np.float32)
        lift = (own + self.mass) / (smooth.sum(axis=2, keepdims=True) + self.mass)
        if lift.shape[1] < shape[1]:
            lift = lift[:, self.cell]
        theta = self.population[:, :, None] * lift
        theta /= theta.sum(axis=1, keepdims=True)
        return theta.reshape(counts.shape), share

    def _over_slots(self, counts: Float[np.ndarray, "slot place cluster"]) -> Float[np.ndarray, "slot place cluster"]:
        return (self.slot_weights @ counts.reshape(len(counts), -1)).reshape(counts.shape)

    def _over_space(self, counts: Float[np.ndarray, "slot place cluster"]) -> Float[np.ndarray, "slot cell cluster"]:
        if self.space_weights is None:
            return counts
        n_slots, n_places, n_clusters = counts.shape
        n_cells = len(self.space_weights)
        if n_cells < n_places:
            members = _indicator(self.cell, n_cells).T
            counts = np.stack([members @ of_slot for of_slot in counts])
        by_cell = counts.transpose(1, 0, 2).reshape(n_cells, n_slots * n_clusters)
        return _product(self.space_weights, by_cell).reshape(n_cells, n_slots, n_clusters).transpose(1, 0, 2)


def starting_clusters(
    visits: Visits, space: Space, blur_km: float, n_clusters: int, random: np.random.Generator
) -> Int[np.ndarray, " user"]:
    """Clusters by k-means on square roots of the shares of a user's visits, blurred, in each quarter of the slots.

    The shares are of 256 regions, one around each of the most visited cells. Of more than 4,000 users, that many at
    random make the centres.
    """
    # Seconds to import.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    features = _features(visits, space, blur_km)
    some = np.arange(visits.n_users)
    if visits.n_users > KMEANS_USERS:
        some = np.sort(random.choice(visits.n_users, KMEANS_USERS, replace=False))
    means = KMeans(n_clusters, n_init=2, max_iter=30, random_state=int(random.integers(2**31)))
    with _one_thread(), warnings.catch_warnings():
        # Users who are alike may make fewer clusters than were asked for: the others come out empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(means.fit(features[some]).predict(features))


def expectation_maximization(
    visits: Visits,
    profiles: Profiles,
    start: Int[np.ndarray, " user"],
    n_clusters: int,
    n_sweeps: int,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[Float[np.ndarray, "slot_place cluster"], Float[np.ndarray, " cluster"]]:
    """Distributions over places, and shares of all visits, of clusters after some sweeps of EM from given clusters."""
    weight = np.full((visits.n_users, n_clusters), START_SPREAD / n_clusters, np.float32)
    weight[np.arange(visits.n_users), start] += 1 - START_SPREAD
    entries = Entries(visits)
    theta, share = profiles.theta(entries.sums_of_places(visits.count, weight))
    for _ in range(n_sweeps):
        of_users, of_places = entries.expected_counts(weight, theta)
        weight = of_users + (PRIOR_VISITS * n_clusters * share).astype(np.float32)
        weight /= weight.sum(axis=1, keepdims=True)
        theta, share = profiles.theta(of_places)
        advance(1)
    return theta, share


class Entries:
    """The entries of a table of visits by user, as they are, and by place within slot, for sums over either."""

    def __init__(self, visits: Visits):
        self.visits = visits
        self.column = visits.cell.astype(np.int32)
        self.by_place = np.argsort(self.column, kind="stable")
        self.user_begin = _begins(visits.user, visits.n_users)
        self.place_begin = _begins(self.column[self.by_place], visits.n_slots * visits.n_places)
        self.user_by_place = visits.user[self.by_place]

    def expected_counts(
        self, weight: Float[np.ndarray, "user cluster"], theta: Float[np.ndarray, "slot_place cluster"]
    ) -> tuple[Float[np.ndarray, "user cluster"], Float[np.ndarray, "slot_place cluster"]]:
        """Counts of each user, and of each place in each slot, that come from each cluster, as far as can be told.

        With count x of an entry and z = sum_k w_k theta_k, what comes from cluster k is x w_k theta_k / z. So all is in
        the ratios x / z: their sums weighted by theta, times w, are the users', and those weighted by w, times theta,
        the places'. The responsibilities of the clusters for an entry are never stored.
        """

        def ratios(block: slice) -> Float[np.ndarray, " entry"]:
            mixture = np.einsum("ek,ek->e", weight[self.visits.user[block]], theta[self.column[block]])
            return self.visits.count[block] / mixture

        n_entries = len(self.column)
        blocks = [slice(first, first + ENTRIES_AT_A_TIME) for first in range(0, n_entries, ENTRIES_AT_A_TIME)]
        ratio = np.concatenate([np.zeros(0, np.float32), *map_in_threads(ratios, blocks)])
        of_users = weight * _row_sums(ratio, self.column, self.user_begin, theta)
        return of_users, theta * self.sums_of_places(ratio, weight)

    def sums_of_places(
        self, value: Float[np.ndarray, " entry"], weight: Float[np.ndarray, "user cluster"]
    ) -> Float[np.ndarray, "slot_place cluster"]:
        """Sum over the entries of each place in each slot of a value times the user's weights."""
        return _row_sums(value[self.by_place], self.user_by_place, self.place_begin, weight)


def assign(scores: Float[np.ndarray, "user cluster"], min_users: int) -> Int[np.ndarray, " user"]:
    """The cluster of the highest score for each user, where every cluster has at least `min_users` of them.

    The smallest cluster is dissolved, its users going to their best clusters among the rest, until none is too small;
    the clusters left are numbered anew. Fewer users than twice `min_users` are one cluster.

    Examples
    --------
    >>> assign(np.log([[0.8, 0.2, 0.1], [0.7, 0.4, 0.1], [0.1, 0.5, 0.9], [0.2, 0.9, 0.8], [0.1, 0.9, 0.8]]), 2)
    array([0, 0, 1, 1, 1], dtype=int32)
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


def counts_of_clusters(visits: Visits, of_user: Int[np.ndarray, " user"]) -> Float[np.ndarray, "slot_place cluster"]:
    """The counts of the users of each cluster together."""
    n_clusters, n_columns = int(of_user.max()) + 1, visits.n_slots * visits.n_places
    code = visits.cell * n_clusters + of_user[visits.user]
    counts = np.bincount(code, visits.count, minlength=n_columns * n_clusters)
    return counts.reshape(n_columns, n_clusters).astype(np.float32)


def _told(visits: Visits, time_grid: TimeGrid) -> Visits:
    """With counts as far as they may be told."""
    group = visits.in_stretch(time_grid)
    count, users = bounded(visits.user, group, int(group.max(initial=0)) + 1, visits.count)
    return replace(visits, count=(count * told(users, PLACE_USERS)[group]).astype(np.float32))


def shares_of_users(of_user: Int[np.ndarray, " user"]) -> Float[np.ndarray, " cluster"]:
    """Share of the users in each cluster."""
    return np.bincount(of_user) / len(of_user)


def rake(
    visits: Float[np.ndarray, "cluster slot place"],
    share: Float[np.ndarray, " cluster"],
    population: Float[np.ndarray, "slot place"],
) -> Float[np.ndarray, "cluster slot place"]:
    """Adjust distributions so that sum_k share_k theta_k is the population, to 1e-5 in total variation in each slot.

    Iterative proportional fitting: in turns places are scaled to the population and clusters to 1, at most 100 times.

    Examples
    --------
    >>> visits = np.array([[[0.9, 0.1]], [[0.2, 0.8]]], np.float32)
    >>> share = np.array([0.5, 0.5])
    >>> raked = rake(visits, share, np.array([[0.7, 0.3]]))
    >>> np.tensordot(share, raked, 1).round(4), raked.sum(axis=2).round(6).tolist()
    (array([[0.7, 0.3]]), [[1.0], [1.0]])
    """

    def rake_slot(slot: int) -> Float[np.ndarray, "cluster place"]:
        theta = visits[:, slot].astype(np.float64)
        for _ in range(MAX_RAKING_ROUNDS):
            mixture = share @ theta
            if np.abs(mixture - population[slot]).sum() / 2 < RAKING_TOLERANCE:
                break
            theta *= population[slot] / mixture
            theta /= theta.sum(axis=1, keepdims=True)
        return theta.astype(np.float32)

    return np.stack(list(map_in_threads(rake_slot, range(visits.shape[1]))), axis=1)


def _require_valid(
    population: Float[np.ndarray, "slot place"], smoothing: ClusterSmoothing, min_users: int, n_sweeps: int
) -> None:
    counts = {"n_clusters": smoothing.n_clusters, "min_users": min_users, "n_sweeps": n_sweeps}
    wrong = [Problem(f"{name} of at least 1", str(value)) for name, value in counts.items() if value < 1]
    for name in ("blur_km", "slot_bandwidth"):
        value = getattr(smoothing, name)
        if not (value >= 0 and np.isfinite(value)):
            wrong.append(Problem(f"{name} of at least 0", str(value)))
    if not (smoothing.population_mass > 0 and np.isfinite(smoothing.population_mass)):
        wrong.append(Problem("a positive population_mass", str(smoothing.population_mass)))
    if not (population > np.finfo(np.float32).tiny).all():
        wrong.append(Problem("a population that is positive everywhere", f"{population.min():.3g}"))
    if wrong:
        raise InputError("clusters", wrong)


def _some_users(visits: Visits, n_users: int, random: np.random.Generator) -> Visits:
    if visits.n_users <= n_users:
        return visits
    return visits.of_users(np.sort(random.choice(visits.n_users, n_users, replace=False)))


def _space_kernel(space: Space, blur_km: float) -> Float[np.ndarray, "cell cell"]:
    weights = np.exp(-0.5 * (space.km.astype(np.float32) / np.float32(blur_km)) ** 2)
    weights[weights < SMALLEST_WEIGHT] = 0
    # Places of one cell may be far apart where no others are near: it tells of itself all the same.
    np.fill_diagonal(weights, 1)
    return weights


def _features(visits: Visits, space: Space, blur_km: float) -> Float[np.ndarray, "user feature"]:
    """What k-means compares."""
    n_cells = len(space.km)
    cell = space.cell[visits.place]
    region = _regions(np.bincount(cell, visits.count, n_cells), space.km)
    blur = _indicator(region, int(region.max()) + 1).toarray()
    if blur_km > 0:
        kernel = _space_kernel(space, blur_km)
        blur = kernel / kernel.sum(axis=1, keepdims=True) @ blur
    part = visits.slot * N_PARTS // visits.n_slots
    features = []
    for number in range(N_PARTS):
        own = part == number
        entries = (visits.count[own], (visits.user[own], cell[own]))
        counts = sparse.csr_array(entries, shape=(visits.n_users, n_cells)) @ blur
        # Who was nowhere in a part of the slots was everywhere alike.
        counts += np.float32(1e-9)
        features.append(np.sqrt(counts / counts.sum(axis=1, keepdims=True)))
    return np.concatenate(features, axis=1)


def _regions(count: Float[np.ndarray, " cell"], km: Float[np.ndarray, "cell cell"]) -> Int[np.ndarray, " cell"]:
    """The most visited cells, and around each those to which it is the nearest of them.

    Where all are as near the rest goes with the least visited of those.
    """
    centres = np.argsort(-count, kind="stable")[:N_REGIONS]
    region = len(centres) - 1 - km[:, centres[::-1]].argmin(axis=1)
    region[centres] = np.arange(len(centres))
    return region


def _scores(
    visits: Visits, theta: Float[np.ndarray, "slot_place cluster"], share: Float[np.ndarray, " cluster"]
) -> Float[np.ndarray, "user cluster"]:
    """Log-probability of each user's visits and each cluster."""
    log_share = np.log(np.maximum(share, np.finfo(np.float32).tiny)).astype(np.float32)
    return _sums_of_users(visits, np.log(theta)) + log_share


def _sums_of_users(visits: Visits, value: Float[np.ndarray, "slot_place cluster"]) -> Float[np.ndarray, "user cluster"]:
    """Sum over each user's visits of count times value; processes share the users."""
    own = own_share(visits.n_users)
    begin = _begins(visits.user, visits.n_users)[own.start : own.stop + 1]
    entries = slice(begin[0], begin[-1])
    sums = _row_sums(visits.count[entries], visits.cell[entries].astype(np.int32), begin - begin[0], value)
    return gather_rows(sums, visits.n_users)


def _begins(row: Int[np.ndarray, " entry"], n_rows: int) -> Int[np.ndarray, " begin"]:
    """Where in sorted entries each row begins, and the last ends."""
    return np.searchsorted(row, np.arange(n_rows + 1)).astype(np.int32)


def _row_sums(
    value: Float[np.ndarray, " entry"],
    column: Int[np.ndarray, " entry"],
    begin: Int[np.ndarray, " begin"],
    dense: Float[np.ndarray, "column cluster"],
) -> Float[np.ndarray, "row cluster"]:
    """A sparse matrix times a dense one, rows shared among threads."""

    def sums(rows: tuple[int, int]) -> Float[np.ndarray, "some cluster"]:
        own = begin[rows[0] : rows[1] + 1]
        entries = slice(own[0], own[-1])
        shape = (len(own) - 1, len(dense))
        return sparse.csr_array((value[entries], column[entries], own - own[0]), shape=shape) @ dense

    edges = np.searchsorted(begin, np.arange(0, begin[-1], ENTRIES_AT_A_TIME))
    return np.concatenate(list(map_in_threads(sums, pairwise(np.unique([0, *edges, len(begin) - 1]).tolist()))))


def _product(
    matrix: Float[np.ndarray, "row column"], dense: Float[np.ndarray, "column many"]
) -> Float[np.ndarray, "row many"]:
    """A matrix times a wide one, columns shared among threads."""
    blocks = [slice(first, first + COLUMNS_AT_A_TIME) for first in range(0, dense.shape[1], COLUMNS_AT_A_TIME)]
    return np.concatenate(list(map_in_threads(lambda block: matrix @ dense[:, block], blocks)), axis=1)


def _indicator(group: Int[np.ndarray, " member"], n_groups: int) -> sparse.csr_array:
    """1 where a member is of a group."""
    n = len(group)
    return sparse.csr_array((np.ones(n, np.float32), (np.arange(n), group)), shape=(n, n_groups))
