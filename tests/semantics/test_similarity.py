"""Similarity of users against assignment problems solved exactly, and of places against a loop over pairs of users."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from ppmtf_jax.semantics import places as similarity
from ppmtf_jax.semantics.places import FLOOR, SMOOTHING, SeedTraces, VisitProfiles, place_similarity

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
    found = place_similarity(profiles)
    np.testing.assert_allclose(found, np.maximum(expected, FLOOR), rtol=1e-9)
    # A place that nobody visits is like itself alone, but for users who fill all others.
    assert (expected[-1, :-1] == 0).any()


def test_one_user_makes_places_like_themselves_alone():
    seeds = random_seeds(n_users=1)
    found = place_similarity(VisitProfiles.of(seeds))
    np.testing.assert_allclose(found, np.diag(2 * shares(seeds)[0]) + FLOOR * (1 - np.eye(PLACES)))


def test_one_place():
    profiles = VisitProfiles.of(SeedTraces(np.arange(2), np.zeros((2, 3), int), 2, 1))
    np.testing.assert_allclose(profiles.similarity(np.arange(2)), 1)
    np.testing.assert_allclose(place_similarity(profiles), [[2 * 3]])
