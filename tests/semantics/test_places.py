"""Seed traces are cut as they should be; similarity against assignments and loops; planted clusters are found."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError
from ppmtf_jax.semantics import places as similarity
from ppmtf_jax.semantics.places import (
    FLOOR,
    SMOOTHING,
    SeedTraces,
    VisitProfiles,
    _sums,
    cluster_places,
    criterion,
    modularity,
    most_modular_clusters,
    place_similarity,
)
from tests.support import places_in_line, to_traces

PERIOD = 3
GRID = TimeGrid("2024-01-01T00:00:00", 60, np.tile(np.arange(PERIOD), 3)[:-1], period=PERIOD)
"""Two whole periods, and two instants of a third."""
FOUR_PLACES = places_in_line(4)


def events(user: int, trace: int, first: int, places: list[int]) -> list[tuple[int, int, int, int]]:
    return [(user, trace, first + i, place) for i, place in enumerate(places)]


# User 0 has two periods and a part of the third, user 1 the second period, user 2 two traces of the first.
ROWS = [
    *events(0, 0, 0, [0, 1, 0, 2, 2, 2, 3, 3]),
    *events(1, 0, 3, [1, 1, 2]),
    *events(2, 0, 0, [0, 0, 0]),
    *events(2, 5, 0, [0, 0, 1]),
]
SEEDS = {0: [[0, 1, 0], [2, 2, 2]], 1: [[1, 1, 2]], 2: [[0, 0, 0], [0, 0, 1]]}


def test_each_whole_period_of_a_user_is_a_seed():
    seeds = SeedTraces.of(to_traces(ROWS, FOUR_PLACES, GRID))
    assert seeds.user.tolist() == [0, 0, 1, 2, 2]
    assert seeds.place.tolist() == [place for user in SEEDS.values() for place in user]
    assert seeds.seeds_per_user.tolist() == [2, 1, 2]


def test_visits_and_transitions_are_those_of_a_loop():
    seeds = SeedTraces.of(to_traces(ROWS, FOUR_PLACES, GRID))
    visits, transitions = np.zeros((3, 4)), np.zeros((4, 4), int)
    for user, traces in SEEDS.items():
        for trace in traces:
            for place, following in zip(trace, trace[1:] + trace[:1], strict=True):
                visits[user, place] += 1 / len(traces)
                transitions[place, following] += 1
    np.testing.assert_allclose(seeds.visits(), visits)
    np.testing.assert_array_equal(seeds.transitions(), transitions)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_missing_events_are_refused_and_completion_is_offered(missing):
    rows = [row for row in ROWS if row[:3] != (1, 0, 3 + missing)]
    message = (
        r"each of the 3 instants of a period; found 1 periods with missing events; users, first: 1\..*complete them"
    )
    with pytest.raises(InputError, match=message):
        SeedTraces.of(to_traces(rows, FOUR_PLACES, GRID))


def test_a_user_with_a_part_of_a_period_that_the_grid_cuts_off_is_refused():
    with pytest.raises(InputError, match=r"a whole period of 3 instants of every user; .*first: 9"):
        SeedTraces.of(to_traces([*ROWS, *events(9, 0, 6, [1, 1])], FOUR_PLACES, GRID))


USERS, INSTANTS, PLACES = 12, 7, 9


def random_seeds(seed: int = 0, n_places: int = PLACES, n_users: int = USERS) -> SeedTraces:
    """Users with one to three seeds, some at one place all day and some at many; the last place is nobody's."""
    rng = np.random.default_rng(seed)
    user = np.sort(np.append(np.arange(n_users), rng.integers(n_users, size=n_users)))
    reach = rng.integers(1, n_places, size=n_users)[user]
    return SeedTraces(user, rng.integers(0, reach[:, None], (len(user), INSTANTS)), n_users, n_places)


def shares(seeds: SeedTraces) -> np.ndarray:
    """Visit distributions, by their definition."""
    return (seeds.visits() + SMOOTHING) / (INSTANTS + SMOOTHING * seeds.n_places)


def best_mapping(profiles: VisitProfiles, user: int, other: int) -> np.ndarray:
    """The mapping that `place_similarity` describes: for each place of `user` the place of `other`."""
    n = min(profiles.n_visited[user], profiles.n_visited[other])
    places, others = profiles.place[user, :n], profiles.place[other, :n]
    mapping = np.arange(profiles.n_places)
    mapping[places] = others
    mapping[others[~np.isin(others, places)]] = places[~np.isin(places, others)]
    return mapping


@pytest.mark.parametrize("seed", range(2))
def test_similarity_is_that_of_the_best_assignment(seed):
    seeds = random_seeds(seed)
    share = shares(seeds)
    found = VisitProfiles.of(seeds).similarity(np.arange(USERS))
    for user in range(USERS):
        for other in range(USERS):
            gain = np.minimum(share[user, :, None], share[other])
            assert found[user, other] == pytest.approx(
                gain[linear_sum_assignment(gain, maximize=True)].sum(), rel=1e-12
            )
    np.testing.assert_allclose(found.diagonal(), 1)
    # Matching places with themselves, without renaming, is worse.
    assert (found > np.minimum(share[:, None], share).sum(axis=2) + 1e-6).any()


@pytest.mark.parametrize("seed", range(2))
def test_the_mapping_is_a_permutation_that_reaches_the_similarity(seed):
    seeds = random_seeds(seed)
    profiles, share = VisitProfiles.of(seeds), shares(seeds)
    found = profiles.similarity(np.arange(USERS))
    for user in range(USERS):
        np.testing.assert_array_equal(best_mapping(profiles, user, user), np.arange(PLACES))
        for other in range(USERS):
            mapping = best_mapping(profiles, user, other)
            assert sorted(mapping.tolist()) == list(range(PLACES))
            assert np.minimum(share[user], share[other, mapping]).sum() == pytest.approx(found[user, other], rel=1e-12)
            assert (best_mapping(profiles, other, user)[mapping] == np.arange(PLACES)).all()


@pytest.mark.parametrize("cells_at_a_time", [1, 2**20])
def test_similarity_of_places_is_that_of_a_loop_over_pairs_of_users(cells_at_a_time, monkeypatch):
    monkeypatch.setattr(similarity, "CELLS_AT_A_TIME", cells_at_a_time)
    seeds = random_seeds()
    profiles, share = VisitProfiles.of(seeds), shares(seeds)
    of_users = profiles.similarity(np.arange(USERS))
    expected = np.zeros((PLACES, PLACES))
    for user in range(USERS):
        for other in range(user, USERS):
            for place, mapped in enumerate(best_mapping(profiles, user, other)):
                weight = min(share[user, place], share[other, mapped]) * of_users[user, other]
                expected[place, mapped] += weight
                expected[mapped, place] += weight
    found = place_similarity(seeds)
    np.testing.assert_allclose(found, np.maximum(expected, FLOOR), rtol=1e-9)
    # A place that nobody visits is like itself alone, but for users who fill all others.
    assert (expected[-1, :-1] == 0).any()


def test_each_time_period_has_its_own_mappings_and_weighs_as_it_is_long():
    """The graph of two time periods is that of each, but for the similarity of users, which is over both."""
    seeds = random_seeds()
    _, parts = seeds.in_time_periods(2)
    assert [part.place.shape[1] for part in parts] == [4, 3]
    np.testing.assert_array_equal(np.concatenate([part.place for part in parts], axis=1), seeds.place)
    profiles = [VisitProfiles.of(part) for part in parts]
    everybody = np.arange(USERS)
    of_users = (4 * profiles[0].similarity(everybody) + 3 * profiles[1].similarity(everybody)) / 7
    expected = np.zeros((PLACES, PLACES))
    for weight, each in zip((4 / 7, 3 / 7), profiles, strict=True):
        share = np.take_along_axis(np.pad(each.share, [(0, 0), (0, PLACES)], constant_values=each.background),
                                   each.rank, axis=1)  # fmt: skip
        for user in range(USERS):
            for other in range(user, USERS):
                mapping = best_mapping(each, user, other)
                both = np.minimum(share[user], share[other, mapping]) * weight * of_users[user, other]
                np.add.at(expected, (np.arange(PLACES), mapping), both)
    np.testing.assert_allclose(place_similarity(seeds, 2), np.maximum(expected + expected.T, FLOOR), rtol=1e-9)


def test_one_user_makes_places_like_themselves_alone():
    seeds = random_seeds(n_users=1)
    found = place_similarity(seeds)
    np.testing.assert_allclose(found, np.diag(2 * shares(seeds)[0]) + FLOOR * (1 - np.eye(PLACES)))


SIZES = (2, 3, 3, 4, 5, 7)


def planted(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Similarity of places in clusters of several sizes, in random order, and the clusters."""
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    same = cluster[:, None] == cluster
    similarity = rng.uniform(0.5, 1.5, same.shape) * np.where(same, 1, 0.02)
    return similarity + similarity.T, cluster


def by_loop(similarity: np.ndarray, cluster: np.ndarray) -> float:
    total = 0.0
    for number in np.unique(cluster):
        places = np.flatnonzero(cluster == number)
        total += len(places) ** 2 * similarity[places].sum() / similarity[np.ix_(places, places)].sum()
    return total


@pytest.mark.parametrize("seed", range(2))
def test_planted_clusters_are_found(seed):
    similarity, cluster = planted(seed)
    found = cluster_places(similarity, len(SIZES), jax.random.key(seed))
    np.testing.assert_array_equal(found[:, None] == found, cluster[:, None] == cluster)


def test_the_criterion_is_that_of_a_loop():
    similarity, cluster = planted(0)
    ours = criterion(*_sums(jnp.asarray(similarity), jnp.asarray(cluster), len(SIZES)))
    assert float(ours.sum()) == pytest.approx(by_loop(similarity, cluster), rel=1e-5)


def test_no_single_move_is_better():
    rng = np.random.default_rng(0)
    n_places, n_clusters = sum(SIZES), len(SIZES)  # as in the planted clusters, for one program
    similarity = rng.gamma(0.3, size=(n_places, n_places))
    similarity += similarity.T + 1e-3
    found = cluster_places(similarity, n_clusters, jax.random.key(1))
    value = by_loop(similarity, found)
    for place in range(n_places):
        for other in range(n_clusters):
            moved = np.where(np.arange(n_places) == place, other, found)
            assert len(np.unique(moved)) < n_clusters or by_loop(similarity, moved) > value * (1 - 2e-6)


def test_modularity_is_that_of_a_loop():
    similarity, cluster = planted(0)
    value, pairs = 0.0, similarity - np.diag(similarity.diagonal())
    for place, other in np.ndindex(pairs.shape):
        if cluster[place] == cluster[other]:
            by_chance = pairs[place].sum() * pairs[other].sum() / pairs.sum()
            value += (pairs[place, other] - by_chance) / pairs.sum()
    assert modularity(similarity, cluster) == pytest.approx(value)


@pytest.mark.slow
def test_modularity_finds_the_planted_number_of_clusters():
    """1, 2, 3, 4, 6, 8 and 12 are tried, and six clusters are planted."""
    similarity, cluster = planted(0)
    found = most_modular_clusters(similarity, jax.random.key(0))
    np.testing.assert_array_equal(found[:, None] == found, cluster[:, None] == cluster)


@pytest.mark.parametrize("n_clusters", [1, 24])
def test_every_cluster_is_used(n_clusters):
    similarity, _ = planted(0)
    found = cluster_places(similarity, n_clusters, jax.random.key(0))
    assert sorted(set(found.tolist())) == list(range(n_clusters))


def test_places_without_similarity_do_not_spoil_the_sums():
    """Places that nobody visits beside some that everybody does: the ratio of their similarities is 1e12."""
    similarity = np.full((8, 8), 1e-8) + np.diag([1e4, 1e4, 1e4, 1e4, 1e-8, 1e-8, 1e-8, 1e-8])
    similarity[:4, :4] += 1e3
    found = cluster_places(similarity, 2, jax.random.key(0))
    assert np.isfinite(by_loop(similarity, found))
    assert sorted(set(found.tolist())) == [0, 1]


@pytest.mark.parametrize("n_clusters", [0, 25])
def test_impossible_numbers_are_refused(n_clusters):
    with pytest.raises(InputError, match="n_clusters from 1 to 24, the number of places"):
        cluster_places(planted(0)[0], n_clusters, jax.random.key(0))
