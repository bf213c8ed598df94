"""Similarity by transitions: Metropolis-Hastings against all permutations, and the graph against loops."""

from __future__ import annotations

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.semantics import movements
from ppmtf_jax.semantics.movements import Movements, best_mappings, place_similarity_by_moves
from ppmtf_jax.semantics.places import FLOOR, SeedTraces, VisitProfiles

USERS, PLACES, INSTANTS, TIMES = 6, 5, 12, 2
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def seeds() -> SeedTraces:
    """Users who wander among some of their own places; user 0 stays, and user 1 is user 2 under other names."""
    rng = np.random.default_rng(1)
    place = rng.integers(0, rng.integers(2, PLACES + 1, size=(USERS, 1)), (USERS, INSTANTS))
    place[0], place[1] = 3, rng.permutation(PLACES)[place[2]]
    return SeedTraces(np.arange(USERS), place, USERS, PLACES)


def by_loop(seeds: SeedTraces, user: int, other: int, time: int, sigma: list[int]) -> float:
    """(11) of two users in a time period, where place r of the user is place sigma(r) of the other."""
    at = np.array_split(np.arange(INSTANTS), TIMES)[time]
    steps = np.zeros((2, PLACES, PLACES))
    for which, each in enumerate((user, other)):
        for instant in at:
            steps[which, seeds.place[each, instant], seeds.place[each, (instant + 1) % INSTANTS]] += 1
    own, others = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1) for counts in steps)
    leaving = steps[0].sum(axis=1) / steps[0].sum()
    pairs = ((r, s) for r in range(PLACES) for s in range(PLACES))
    return sum(leaving[r] * min(own[r, s], others[sigma[r], sigma[s]]) for r, s in pairs)


def found_and_greatest(seeds: SeedTraces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Similarities that the chain found, those of its mappings by loop, and the greatest of all permutations."""
    profiles = VisitProfiles.of(seeds)
    moves = Movements.of(seeds, profiles, TIMES, PLACES)
    order = np.argsort(profiles.rank, axis=1)  # all places of each user by rank
    found, told, greatest = np.empty((3, USERS, USERS, TIMES))
    for user in range(USERS):
        value, best = best_mappings(KEY, jnp.int32(user), moves, moves)
        for other in range(USERS):
            for time in range(TIMES):
                found[user, other, time] = value[time, other]
                sigma = order[other, np.asarray(best[time, other])[profiles.rank[user]]]
                told[user, other, time] = by_loop(seeds, user, other, time, sigma.tolist())
    for user, other, time in np.ndindex(USERS, USERS, TIMES):
        if (user + other) % 2:  # a half of the pairs, to save time
            every = permutations(range(PLACES))
            greatest[user, other, time] = max(by_loop(seeds, user, other, time, list(each)) for each in every)
    return found, told, greatest


def test_the_chain_finds_the_best_of_all_permutations(seeds, monkeypatch):
    found, told, greatest = found_and_greatest(seeds)
    np.testing.assert_allclose(found, told, atol=1e-5)
    np.testing.assert_allclose(found[np.arange(USERS), np.arange(USERS)], 1, atol=1e-5)
    odd = np.add.outer(np.arange(USERS), np.arange(USERS)) % 2 == 1
    # Chance may miss the best of a few pairs; a chain that is cold or does not move misses a tenth and more.
    assert (found[odd] <= greatest[odd] + 1e-5).all()
    assert (found[odd] > greatest[odd] - 1e-5).mean() > 0.95
    # The chain begins at the best mapping of visits, which is not always that of moves.
    monkeypatch.setattr(movements, "PROPOSALS", -PLACES * movements.PROPOSALS_PER_PLACE)
    moves = Movements.of(seeds, VisitProfiles.of(seeds), TIMES, PLACES)
    start = jax.jit(lambda *given: best_mappings.__wrapped__(*given))(KEY, jnp.int32(2), moves, moves)[0]
    assert (found[2] > np.asarray(start).T + 0.05).any()


def test_similarity_of_places_is_that_of_a_loop(seeds):
    profiles = VisitProfiles.of(seeds)
    moves = Movements.of(seeds, profiles, TIMES, profiles.place.shape[1])
    expected = np.zeros((PLACES, PLACES))
    for user in range(USERS):
        value, best = (np.asarray(each) for each in best_mappings(KEY, jnp.int32(user), moves, moves))
        for other in range(USERS):
            similarity = value[:, other].mean()
            expected += np.eye(PLACES) * profiles.background * similarity
            for time in range(TIMES):
                for rank, image in enumerate(best[time, other]):
                    both = min(moves.leaving[time, user, rank], moves.leaving[time, other, image])
                    expected[profiles.place[user, rank], profiles.place[other, image]] += both * similarity / TIMES
    found = place_similarity_by_moves(seeds, TIMES, KEY)
    np.testing.assert_allclose(found, np.maximum(expected + expected.T, FLOOR), rtol=1e-5)
