"""The search of renamings against all permutations of few places, and a renaming that is known."""

from __future__ import annotations

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.semantics.seed_traces import SeedTraces
from ppmtf_jax.semantics.similarity import Profiles, best_mapping
from ppmtf_jax.semantics.transition_similarity import MobilityProfile, similarity_by, transition_similarity

N_STEPS = 2000


def random_seeds(n_places: int, n_instants: int = 12) -> SeedTraces:
    rng = np.random.default_rng(n_places)
    return SeedTraces(np.array([0, 0, 1]), rng.integers(n_places, size=(3, n_instants)), 2, n_places)


def by_loop(own: MobilityProfile, other: MobilityProfile, mapping) -> float:
    places = range(len(mapping))
    return sum(
        own.visit[a] * min(own.transition[a, b], other.transition[mapping[a], mapping[b]])
        for a in places
        for b in places
    )


def test_profiles_are_those_of_a_loop():
    seeds = random_seeds(4)
    count = np.full((4, 4), 0.01 / 4)
    for trace in seeds.place[:2].tolist():
        for place, following in zip(trace, trace[1:] + trace[:1], strict=True):
            count[place, following] += 1
    found = MobilityProfile.of(seeds, 0)
    np.testing.assert_allclose(found.transition, count / count.sum(axis=1, keepdims=True))
    visits = np.bincount(seeds.place[:2].ravel(), minlength=4) / 2
    np.testing.assert_allclose(found.visit, (visits + 0.01) / (12 + 4 * 0.01))


@pytest.mark.parametrize("n_places", [1, 3, 6])
def test_the_best_of_all_permutations_is_found(n_places):
    seeds = random_seeds(n_places)
    own, other = (MobilityProfile.of(seeds, user) for user in (0, 1))
    best = max(by_loop(own, other, mapping) for mapping in permutations(range(n_places)))
    found = transition_similarity(seeds, 0, 1, jax.random.key(0), n_steps=N_STEPS)
    assert found.similarity == pytest.approx(best, rel=1e-5)
    assert by_loop(own, other, found.mapping) == pytest.approx(best, rel=1e-5)
    # Visits alone do not tell it.
    start = best_mapping(Profiles.of(seeds), 0, 1)
    assert n_places < 6 or by_loop(own, other, start) < best - 0.05
    ours = jax.jit(similarity_by)(
        *(jnp.asarray(array) for array in (own.visit, own.transition, other.transition, start))
    )
    assert float(ours) == pytest.approx(by_loop(own, other, start), rel=1e-5)


def test_a_user_who_does_the_same_elsewhere_is_found_out():
    """Ten places, each visited equally often, in an order that visits do not tell."""
    rng = np.random.default_rng(0)
    trace, renamed = rng.permutation(10), rng.permutation(10)
    seeds = SeedTraces(np.arange(2), np.stack([trace, renamed[trace]]), 2, 10)
    found = transition_similarity(seeds, 0, 1, jax.random.key(1), n_steps=20_000)
    assert found.similarity == pytest.approx(1, rel=1e-5)
    assert sorted(found.mapping.tolist()) == list(range(10))
