"""Clusters of users: each step against plain loops, planted clusters, and that none is ever too small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people import clusters as module
from ppmtf_jax.people import fitting, user_bounds
from ppmtf_jax.people.clusters import (
    PRIOR_VISITS,
    START_SPREAD,
    Clusters,
    ClusterSmoother,
    ClusterSmoothing,
    Entries,
    assign,
    clusters_of_users,
    expectation_maximization,
    fit_clusters,
    log_likelihoods,
    starting_clusters,
)
from ppmtf_jax.people.counts import VisitCounts, slot_kernel
from ppmtf_jax.people.fitting import rake
from ppmtf_jax.people.space import Space
from ppmtf_jax.runtime import threads
from tests.support import minutes

SMOOTHING = ClusterSmoothing(n_clusters=4, blur_km=1.5, population_mass=2.0, slot_bandwidth=0.8)


def in_line(n_places: int, n_cells: int | None = None) -> Space:
    """Places a kilometre apart, neighbours in one cell where there are more places than cells."""
    cell = np.arange(n_places) * (n_cells or n_places) // n_places
    centre = np.bincount(cell, np.arange(n_places)) / np.bincount(cell)
    km = np.abs(centre[:, None] - centre).astype(np.float32)
    return Space(cell.astype(np.int32), km)


def visits_of(user: np.ndarray, slot: np.ndarray, place: np.ndarray, shape: tuple[int, int, int]) -> VisitCounts:
    """Of single events."""
    table = np.zeros(shape, np.float32)
    np.add.at(table, (user, slot, place), 1)
    at = np.nonzero(table)
    return VisitCounts(*(index.astype(np.int32) for index in at), table[at], *shape)


def random_visits(seed: int, shape: tuple[int, int, int] = (30, 3, 8), n_events: int = 300) -> VisitCounts:
    """Events anywhere; the last place and, where there are several users, the last of them have none."""
    rng = np.random.default_rng(seed)
    most = (max(shape[0] - 1, 1), shape[1], max(shape[2] - 1, 1))
    return visits_of(*(rng.integers(n, size=n_events) for n in most), shape)


def planted_visits(
    n_users: int, n_clusters: int, shape: tuple[int, int], n_events: int = 24
) -> tuple[VisitCounts, np.ndarray]:
    """Users of equal clusters, four fifths of whose visits in each slot are at three places of their cluster."""
    rng = np.random.default_rng(7)
    n_slots, n_places = shape
    cluster = rng.permutation(n_users) % n_clusters
    own = rng.integers(n_places, size=(n_clusters, n_slots, 3))
    user = np.repeat(np.arange(n_users), 24)
    slot = rng.integers(n_slots, size=len(user))
    at_own = own[cluster[user], slot, rng.integers(3, size=len(user))]
    place = np.where(rng.random(len(user)) < 0.8, at_own, rng.integers(n_places, size=len(user)))
    return visits_of(user, slot, place, (n_users, *shape)), cluster


def total(visits: VisitCounts) -> np.ndarray:
    """Sum over users, shape (slots, places)."""
    table = np.zeros((visits.n_slots, visits.n_places))
    np.add.at(table, (visits.slot, visits.place), visits.count)
    return table


def shares(visits: VisitCounts, mass: float = 1) -> np.ndarray:
    """A population that is positive everywhere."""
    counts = total(visits) + mass
    return counts / counts.sum(axis=1, keepdims=True)


def fitted(
    visits: VisitCounts,
    smoothing: ClusterSmoothing = SMOOTHING,
    *,
    min_users: int = 3,
    seed: int = 0,
    n_sweeps: int = 8,
) -> Clusters:
    """Clusters of visits at places in line."""
    space, grid, rng = in_line(visits.n_places), minutes(visits.n_slots), np.random.default_rng(seed)
    options = {"min_users": min_users, "random": rng, "n_sweeps": n_sweeps}
    return fit_clusters(visits, ClusterSmoother(shares(visits), space, smoothing, grid), **options)


# One step against plain loops


def theta_by_loop(
    counts: np.ndarray, population: np.ndarray, space: Space, smoothing: ClusterSmoothing, grid: TimeGrid
) -> np.ndarray:
    """From counts (slots, places, clusters), in double precision."""
    n_slots, n_places, n_clusters = counts.shape
    over_slots, smooth, theta = (
        slot_kernel(grid, smoothing.slot_bandwidth),
        np.zeros(counts.shape),
        np.zeros(counts.shape),
    )
    for s in range(n_slots):
        for r in range(n_slots):
            for a in range(n_places):
                for b in range(n_places):
                    apart = float(space.km[space.cell[a], space.cell[b]])
                    near = np.exp(-0.5 * (apart / smoothing.blur_km) ** 2) if smoothing.blur_km else float(a == b)
                    smooth[s, a] += over_slots[s, r] * near * counts[r, b]
    share = counts.sum(axis=(0, 1)) / counts.sum()
    mass = smoothing.population_mass
    for s in range(n_slots):
        for b in range(n_places):
            for k in range(n_clusters):
                theta[s, b, k] = population[s, b] * (smooth[s, b, k] + mass * share[k]) / (smooth[s, b].sum() + mass)
    return theta / theta.sum(axis=1, keepdims=True)


def sweep_by_loop(visits: VisitCounts, weight: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected counts of users (users, clusters) and of places (slots, places, clusters)."""
    of_users, of_places = np.zeros(weight.shape), np.zeros(theta.shape)
    for n, s, b, count in zip(visits.user, visits.slot, visits.place, visits.count, strict=True):
        share = weight[n] * theta[s, b]
        of_users[n] += count * share / share.sum()
        of_places[s, b] += count * share / share.sum()
    return of_users, of_places


def mixed_up(space: Space) -> Space:
    """Places whose cells are in no order."""
    return Space(np.random.default_rng(5).permutation(space.cell), space.km)


@pytest.mark.parametrize(
    ("space", "blur_km"),
    [(in_line(8), 0.0), (in_line(8), 1.5), (mixed_up(in_line(8, 3)), 1.5)],
    ids=["no blur", "a cell each", "shared cells"],
)
def test_two_sweeps_of_em_are_those_of_plain_loops(space, blur_km):
    """The second sweep sees the weights, with their prior, that the first one made."""
    visits, grid, smoothing = random_visits(0), minutes(3), SMOOTHING._replace(blur_km=blur_km)
    population, start = shares(visits), np.random.default_rng(1).integers(4, size=30)
    smoother = ClusterSmoother(population, space, smoothing, grid)
    found, found_share = expectation_maximization(visits, smoother, start, 4, 2)
    weight = START_SPREAD / 4 + (1 - START_SPREAD) * np.eye(4)[start]
    counts = np.zeros((3, 8, 4))
    np.add.at(counts, (visits.slot, visits.place), visits.count[:, None] * weight[visits.user])
    for _ in range(2):
        theta = theta_by_loop(counts, population, space, smoothing, grid)
        share = counts.sum(axis=(0, 1)) / counts.sum()
        of_users, counts = sweep_by_loop(visits, weight, theta)
        weight = of_users + PRIOR_VISITS * 4 * share
        weight /= weight.sum(axis=1, keepdims=True)
    theta = theta_by_loop(counts, population, space, smoothing, grid)
    # Single precision, sums of some hundred terms.
    np.testing.assert_allclose(found, theta.reshape(24, 4), rtol=2e-4)
    np.testing.assert_allclose(found_share, of_users.sum(axis=0) / of_users.sum(), rtol=1e-5)


def test_log_likelihoods_are_those_of_a_loop():
    visits = random_visits(0)
    clusters = fitted(visits)
    expected = np.zeros((30, len(clusters.share)))
    for n, s, b, count in zip(visits.user, visits.slot, visits.place, visits.count, strict=True):
        expected[n] += count * np.log(clusters.visits[:, s, b].astype(float))
    found = log_likelihoods(visits, clusters)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not found[29].any(), "a user without visits"


def test_a_cell_whose_places_are_far_apart_tells_of_itself():
    """Places of one cell, 80 km from each other and from all others: no weight of the Gaussian is left."""
    far = Space(np.array([0, 0, 1], np.int32), np.array([[80, 60], [60, 0]], np.float32))
    visits, smoothing = random_visits(0, (30, 3, 3)), SMOOTHING._replace(blur_km=1.0)
    smoother = ClusterSmoother(shares(visits), far, smoothing, minutes(3))
    found = fit_clusters(visits, smoother, min_users=3, random=np.random.default_rng(0))
    assert np.isfinite(found.visits).all()
    # What is told of the cell reaches its places: their shares differ between clusters that differ.
    counts = np.array([[9, 0], [0, 0], [0, 9]] * 3, np.float32)
    theta = ClusterSmoother(np.full((3, 3), 1 / 3), far, smoothing, minutes(3)).theta(counts)[0].reshape(3, 3, 2)
    assert (theta[:, :2, 0] > 1.5 * theta[:, :2, 1]).all()


# What it finds


@pytest.mark.parametrize("blur_km", [0.0, 1.0])
def test_planted_clusters_are_found(blur_km):
    visits, cluster = planted_visits(400, 5, (4, 40))
    found = fitted(visits, ClusterSmoothing(5, blur_km, 1.0, 0.0), min_users=20)
    assert adjusted_rand_score(cluster, found.of_user) > 0.95
    np.testing.assert_array_equal(found.share, np.bincount(found.of_user) / 400)
    # VisitCounts are likelier under them than under the population, by more than half a nat each.
    likelihood = logsumexp(log_likelihoods(visits, found) + np.log(found.share), axis=1)
    of_population = np.log(shares(visits)[visits.slot, visits.place])
    assert likelihood.sum() > visits.count @ (of_population + 0.5)


def test_em_on_some_users_finds_the_clusters_of_all(monkeypatch):
    visits, cluster = planted_visits(600, 4, (3, 30))
    seen = []

    def entries(some: VisitCounts) -> Entries:
        seen.append(some.n_users)
        return Entries(some)

    monkeypatch.setattr(module, "Entries", entries)
    monkeypatch.setattr(module, "EM_USERS", 200)
    monkeypatch.setattr(module, "KMEANS_USERS", 100)
    found = fitted(visits, ClusterSmoothing(4, 0.0, 1.0, 0.0), min_users=20)
    assert (seen, len(found.of_user)) == ([200], 600)
    assert adjusted_rand_score(cluster, found.of_user) > 0.95


@pytest.mark.parametrize(("n_regions", "index"), [(256, 1), (1, 0)], ids=["", "one region"])
def test_kmeans_tells_apart_who_visits_when(n_regions, index, monkeypatch):
    """Two kinds of users are at the same two places, but in other halves of the slots."""
    monkeypatch.setattr(module, "N_REGIONS", n_regions)
    cluster = np.arange(60) % 2
    user = np.repeat(np.arange(60), 4)
    slot = np.tile(np.arange(4), 60)
    visits = visits_of(user, slot, 8 * ((slot // 2 + cluster[user]) % 2), (60, 4, 9))
    start = starting_clusters(visits, in_line(9, 4), 0.3, 2, np.random.default_rng(0))
    assert adjusted_rand_score(cluster, start) == pytest.approx(index, abs=0.05)


@pytest.mark.parametrize(("blur_km", "is_found"), [(8.0, True), (0.0, False)], ids=["", "without blur"])
def test_kmeans_sees_that_places_are_near_each_other(blur_km, is_found):
    """Users are at places of their own, half of them in the west and half in the east."""
    user = np.arange(40)
    visits = visits_of(user, 0 * user, user, (40, 1, 40))
    start = starting_clusters(visits, in_line(40), blur_km, 2, np.random.default_rng(0))
    assert (adjusted_rand_score(user // 20, start) > 0.8) == is_found


# What always holds


def holds(visits: VisitCounts, found: Clusters, min_users: int) -> None:
    """Sizes, shares, distributions and the population."""
    size = np.bincount(found.of_user)
    assert len(found.of_user) == visits.n_users
    assert size.min() >= min(min_users, visits.n_users)
    np.testing.assert_array_equal(found.share, size / visits.n_users)
    assert found.visits.shape == (len(size), visits.n_slots, visits.n_places)
    assert np.isfinite(found.visits).all()
    assert (found.visits > 0).all()
    np.testing.assert_allclose(found.visits.sum(axis=2, dtype=float), 1, rtol=1e-5)


@settings(max_examples=20)
@given(
    shape=st.tuples(st.integers(1, 25), st.integers(1, 5), st.integers(1, 6)),
    n_events=st.integers(1, 80),
    min_users=st.integers(1, 12),
    smoothing=st.builds(
        ClusterSmoothing,
        st.integers(1, 30),
        st.sampled_from([0.0, 0.01, 2.0]),
        st.sampled_from([1e-6, 1.0, 1e3]),
        st.sampled_from([0.0, 1.0]),
    ),
    alike=st.booleans(),
    seed=st.integers(0, 3),
)
def test_no_cluster_is_ever_too_small(shape, n_events, min_users, smoothing, alike, seed):
    visits = random_visits(seed, shape, n_events)
    if alike:
        everybody = np.repeat(np.arange(shape[0]), 2)
        visits = visits_of(everybody, 0 * everybody, 0 * everybody, shape)
    found = fitted(visits, smoothing, min_users=min_users, seed=seed, n_sweeps=2)
    holds(visits, found, min_users)
    if shape[0] < 2 * min_users:
        assert len(found.share) == 1


@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 8)),
    min_users=st.integers(1, 12),
    seed=st.integers(0, 10),
)
def test_the_smallest_cluster_goes_first_and_its_users_to_their_best(shape, min_users, seed):
    scores = np.random.default_rng(seed).normal(size=shape).round(1)
    expected, left = scores.argmax(axis=1), list(range(shape[1]))
    while len(left) > 1:
        sizes = [int((expected == k).sum()) for k in left]
        if min(sizes) >= min_users:
            break
        gone = left.pop(int(np.argmin(sizes)))
        for n in np.flatnonzero(expected == gone):
            expected[n] = max(left, key=lambda k: (scores[n, k], -k))
    found = assign(scores.argmax(axis=1), scores.__getitem__, shape[1], min_users)
    np.testing.assert_array_equal(found, np.unique(expected, return_inverse=True)[1])


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_where_only_one_user_was_shows_in_no_cluster(bug, monkeypatch):
    """Two clusters of four users, who are at place 0 and 1; user 0 alone is at place 2 too, user 4 at 3, both at 4."""
    rows = [(user, user // 4, 10) for user in range(8)] + [(0, 2, 5), (4, 3, 5), (0, 4, 5), (4, 4, 5), (5, 4, 5)]
    user, place, count = np.array(rows, np.int32).T
    visits = VisitCounts(user, np.zeros_like(user), place, count.astype(np.float32), n_users=8, n_slots=1, n_places=5)
    population = np.full((1, 5), 0.2)
    nowhere = Space(np.arange(5, dtype=np.int32), np.zeros((5, 5), np.float32))
    smoother = ClusterSmoother(population, nowhere, ClusterSmoothing(2, 0.0, 0.5, 0.0), minutes(1))
    if bug:
        monkeypatch.setattr(user_bounds._Weights, "bounded", lambda weights, groups: weights.weight)
        monkeypatch.setattr(module, "used_share", lambda users, least: np.ones(users.shape))
    found = clusters_of_users(visits, smoother, np.arange(8) // 4).visits[:, 0]
    # Raking scales places for all clusters alike, so it keeps ratios of ratios.
    told = found[0, 2] / found[0, 3] / (found[1, 2] / found[1, 3])
    assert (told == pytest.approx(1)) != bug
    # Of three users at place 4, two are in the second cluster.
    assert found[0, 4] < found[1, 4]


def test_raked_clusters_add_up_to_the_population():
    visits, _ = planted_visits(300, 4, (3, 30))
    population = shares(visits)
    rng = np.random.default_rng(0)
    theta = rng.dirichlet(np.full(30, 0.3), size=(4, 3)).astype(np.float32) + np.float32(1e-4)
    share = np.array([0.1, 0.2, 0.3, 0.4])

    def off(distributions: np.ndarray) -> float:
        return float(np.abs(np.tensordot(share, distributions.astype(float), 1) - population).sum(axis=1).max()) / 2

    raked = rake(theta, share, population)
    np.testing.assert_allclose(raked.sum(axis=2), 1, rtol=1e-5)
    # Single precision rounds each share by at most a part in 2**24.
    assert off(raked) < fitting.RAKED + 2**-24 < 0.1 < off(theta)
    # Odds between clusters and places stay as they were: nothing else is changed.
    odds = np.log(raked.astype(float) / theta)
    np.testing.assert_allclose(odds - odds[:, :, :1] - odds[:1] + odds[:1, :, :1], 0, atol=1e-4)
    found = fitted(visits)
    assert np.abs(np.tensordot(found.share, found.visits.astype(float), 1) - population).sum(axis=1).max() / 2 < 2e-5


# The same whatever works on it


def same(one: Clusters, other: Clusters) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("of_user", "share", "visits"))


@pytest.fixture
def small_pieces(monkeypatch) -> VisitCounts:
    """VisitCounts that are worked on in many pieces."""
    monkeypatch.setattr(module, "ENTRIES_AT_A_TIME", 50)
    monkeypatch.setattr(module, "COLUMNS_AT_A_TIME", 3)
    return planted_visits(60, 4, (3, 12))[0]


def test_clusters_do_not_depend_on_threads_and_pieces(small_pieces, monkeypatch):
    found = []
    for n_threads, n_entries in ((1, 50), (3, 50), (2, 7), (2, 10**6)):
        monkeypatch.setattr(threads, "n_threads", lambda n_threads=n_threads: n_threads)
        monkeypatch.setattr(module, "ENTRIES_AT_A_TIME", n_entries)
        found.append(fitted(small_pieces))
    assert all(same(found[0], other) for other in found[1:])
    assert not same(found[0], fitted(small_pieces, seed=1)), "the generator makes no difference"
