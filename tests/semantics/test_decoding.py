"""Semantic seeds against loops over instants, decoding against enumeration of all allowed traces."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.semantics.decoding import SemanticClasses, aggregate_transitions, decode, semantic_seed

KEY = jax.random.key(3)
# Compiled once for all tests.
DRAW_SEEDS = jax.jit(jax.vmap(semantic_seed, (0, None, None, None, None)))
DECODE = jax.jit(decode)
DECODE_MANY = jax.jit(jax.vmap(decode, (0, 0, None, None, None)))
N_DRAWS = 2000  # where draws are counted: one number, so that they share a program
FALSE_ALARM = 1e-6


def random_chain(n_places: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.full(n_places, 0.5), n_places) + 1e-6
    return transition.astype(np.float32), rng.dirichlet(np.ones(n_places)).astype(np.float32)


# How everybody moves


def test_aggregate_transitions_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    # A degree of latitude is 111.19 km: all places on one meridian, the first two less than a kilometre apart.
    latitude = np.array([35, 35.004, 35.05, 35.3])
    places = PlaceTable(np.arange(4), latitude, np.full(4, 139.0))
    count = rng.integers(0, 5, (4, 4))
    found = aggregate_transitions(count, places)
    for place in range(4):
        distance_km = 6371 * np.radians(np.abs(latitude - latitude[place]))
        near = [max(1.0, km) ** -2 for km in distance_km]
        for following in range(4):
            seen = (count[place, following] + 1 / 4) / (count[place].sum() + 1)
            assert found[place, following] == pytest.approx(seen / 2 + near[following] / sum(near) / 2, rel=1e-6)
    assert near[0] < near[-1] == 1


# Semantic seeds


def allowed_by_loop(seed: list[int], cluster: np.ndarray, merge_prob: float, published: bool) -> np.ndarray:
    """All places of each cluster kept, those of the lowest numbers joined, none removed."""
    n, own = len(seed), [int(cluster[place]) for place in seed]
    watched = seed if published else own
    members = {number: np.flatnonzero(cluster == number) for number in own}
    allowed = np.array([cluster == number for number in own])
    for now in range(n):
        change = next((t for t in range(now + 1, n) if watched[t] != watched[now]), None)
        if change is None or own[change] == own[now]:
            continue
        distance, stay = change - now, 0
        while change + stay + 1 < n and seed[change + stay + 1] == seed[change]:
            stay += 1
        for number in (own[now], own[change]):
            n_joining = int(np.floor(merge_prob ** (distance**2) * len(members[number]) + 1e-9))
            for t in range(now, change + min(distance, stay) + 1):
                allowed[t, members[number][:n_joining]] = True
    return allowed


def drawn(classes, seed, remove_true_prob=0.0, published=True, n=1):
    keys = jax.random.split(KEY, n)
    probability = jnp.asarray(remove_true_prob, jnp.float32)
    return np.asarray(DRAW_SEEDS(keys, jnp.asarray(seed), classes, probability, jnp.asarray(published)))


@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize(("merge_prob", "n_instants"), [(0.75, 1), (0.0, 12), (0.75, 12), (1.0, 12)])
def test_places_join_as_in_a_loop(merge_prob, n_instants, published):
    """As published the same places, and otherwise as many of each cluster."""
    rng = np.random.default_rng(0)
    cluster = rng.permutation(np.repeat(np.arange(4), [1, 2, 4, 6]))
    classes = SemanticClasses.of(cluster, 0.0, merge_prob, n_instants)
    of_cluster = cluster[:, None] == np.arange(4)
    joined = 0
    for _ in range(10):
        # Stays of one to three instants.
        seed = np.repeat(rng.integers(13, size=n_instants), rng.integers(1, 4, size=n_instants))[:n_instants].tolist()
        found = drawn(classes, seed, published=published)[0]
        expected = allowed_by_loop(seed, cluster, merge_prob, published)
        np.testing.assert_array_equal(found @ of_cluster, expected @ of_cluster)
        assert not published or (found == expected).all()
        joined += (expected & (cluster != cluster[seed][:, None])).sum()
    assert (joined > 0) == (merge_prob > 0 and n_instants > 1)


def places_in(allowed: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(row).tolist()) for row in allowed]


def test_an_example_of_joining():
    """Two places to a cluster, of which one joins at the instant before a change, and after it where the seed stays."""
    classes = SemanticClasses.of(np.array([0, 0, 1, 1, 2, 2]), 0.25, 0.75, 5)
    expected = [{0, 1, 2}, {0, 2, 3}, {0, 2, 3}, {2, 3, 4}, {2, 4, 5}]
    assert places_in(drawn(classes, [1, 3, 3, 3, 4])[0]) == expected


def test_as_published_a_change_of_place_within_a_cluster_hides_the_next_change_of_cluster():
    """One of two places joins up to two instants away: .9 x 2 and .9^4 x 2 = 1.3, and none three away: .9^9 x 2 = .8.

    The seed goes from place 0 to place 1 of its cluster, and then to place 2, where it stays. As published, the first
    instant sees the change from 0 to 1 alone; else it sees that from 1 to 2, two instants away.
    """
    seed, classes = [0, 1, 2, 2, 2], SemanticClasses.of(np.array([0, 0, 1, 1]), 0.0, 0.9, 5)
    assert places_in(drawn(classes, seed)[0]) == [{0, 1}, {0, 1, 2}, {0, 2, 3}, {0, 2, 3}, {2, 3}]
    # One place of each cluster joins at all five instants, drawn at random.
    assert drawn(classes, seed, published=False)[0].sum(axis=1).tolist() == [3, 3, 3, 3, 3]


@pytest.mark.parametrize(("size", "n_kept"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 6)])
def test_random_places_of_a_cluster_are_removed_where_three_stay(size, n_kept):
    cluster = np.repeat([0, 1, 2], [size, 3, 9 - size])  # always as many places and clusters, for one program
    allowed = drawn(SemanticClasses.of(cluster, 0.25, 0.75, 3), [0, 0, 0], n=N_DRAWS)[..., :size]
    assert (allowed.sum(axis=2) == n_kept).all()
    # The same places at all instants.
    assert (allowed == allowed[:, :1]).all()
    share, p = allowed[:, 0].mean(axis=0), n_kept / size
    assert np.abs(share - p).max() <= 5.5 * np.sqrt(p * (1 - p) / N_DRAWS)


def test_random_places_join():
    cluster = np.repeat([0, 1], [4, 4])
    classes = SemanticClasses.of(cluster, 0.0, 0.75, 2)
    allowed = drawn(classes, [0, 4], published=False, n=N_DRAWS)
    joined = allowed[:, 0, 4:]
    assert (joined.sum(axis=1) == 3).all()
    assert np.abs(joined.mean(axis=0) - 3 / 4).max() < 5.5 * np.sqrt(3 / 16 / N_DRAWS)
    assert (drawn(classes, [0, 4], n=N_DRAWS)[:, 0, 4:] == [1, 1, 1, 0]).all()


def test_true_places_are_removed_instant_by_instant():
    cluster, seed, probability, n = np.repeat([0, 1], [3, 2]), [0, 0, 1, 3], 0.3, N_DRAWS
    classes = SemanticClasses.of(cluster, 0.25, 0.0, 4)
    own = drawn(classes, seed, probability, n=n)[:, np.arange(4), seed]
    assert np.abs(own.mean(axis=0) - 0.7).max() < 5.5 * np.sqrt(0.21 / n)
    both = (own[:, 0] & own[:, 1]).mean()
    assert abs(both - 0.49) < 5.5 * np.sqrt(0.25 / n)
    assert not drawn(classes, seed, 1.0, n=n)[:, np.arange(4), seed].any()
    assert drawn(classes, seed, 0.0, n=n)[:, np.arange(4), seed].all()


def test_where_no_place_is_left_all_are_allowed():
    classes = SemanticClasses.of(np.array([0, 1, 1, 2, 2, 2]), 0.25, 0.0, 5)
    allowed = drawn(classes, [0, 1, 1, 1, 1], 1.0)[0]
    assert places_in(allowed) == [{0, 1, 2, 3, 4, 5}, {2}, {2}, {2}, {2}]


# Decoding


def most_probable(allowed, transition, first) -> tuple[int, ...]:
    every = np.array(list(product(*[np.flatnonzero(row) for row in allowed])))
    log_probability = np.log(first[every[:, 0]]) + np.log(transition[every[:, :-1], every[:, 1:]]).sum(axis=1)
    return tuple(every[log_probability.argmax()].tolist())


def decoded(key, allowed, transition, first, randomization=1.0):
    numbers = (jnp.asarray(each) for each in (allowed, transition, first, np.float32(randomization)))
    return np.asarray(DECODE(key, *numbers))


@pytest.mark.parametrize(("n_places", "sizes"), [(4, (2, 3, 1, 4)), (40, (3, 40, 2, 5)), (150, (2, 20, 3, 130, 1))])
@pytest.mark.parametrize("seed", range(2))
def test_without_randomness_it_is_the_most_probable_trace(n_places, sizes, seed):
    """Steps of all widths of the trellis."""
    transition, first = random_chain(n_places, seed)
    rng = np.random.default_rng(seed)
    allowed = np.zeros((len(sizes), n_places), bool)
    for row, size in zip(allowed, sizes, strict=True):
        row[rng.permutation(n_places)[:size]] = True
    assert tuple(decoded(KEY, allowed, transition, first)) == most_probable(allowed, transition, first)


def test_long_traces_neither_vanish_nor_overflow():
    transition, first = random_chain(6)
    trace = decoded(KEY, np.ones((3000, 6), bool), transition, first, 4.0)
    assert set(trace.tolist()) <= set(range(6))
    assert len(set(trace[-50:].tolist())) > 1


def by_simulation(transition, first, n, *, randomize_first=True) -> np.ndarray:
    """How often each pair of places is best of two instants with random factors from 1 to 4."""
    rng = np.random.default_rng(1)
    n_places = len(first)
    start = first * rng.uniform(1, 4 if randomize_first else 1, (n, n_places))
    weight = start[..., None] * transition * rng.uniform(1, 4, (n, n_places, n_places))
    return np.bincount(weight.reshape(n, -1).argmax(axis=1), minlength=n_places**2)


def chi_square_p(count: np.ndarray, other: np.ndarray) -> float:
    seen = count + other > 10
    return stats.chi2_contingency(np.stack([count, other])[:, seen]).pvalue


def test_random_factors_are_of_each_edge_and_of_the_start():
    n = 10_000
    transition = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]], np.float32)
    first = np.array([0.3, 0.4, 0.3], np.float32)
    keys = jax.random.split(KEY, n)
    arguments = (jnp.ones((2, 3), bool), jnp.asarray(transition), jnp.asarray(first), jnp.float32(4))
    traces = np.asarray(jax.jit(jax.vmap(decode, (0, None, None, None, None)))(keys, *arguments))
    count = np.bincount(3 * traces[:, 0] + traces[:, 1], minlength=9)
    assert chi_square_p(count, by_simulation(transition, first, 10 * n)) > FALSE_ALARM
    assert chi_square_p(count, by_simulation(transition, first, 10 * n, randomize_first=False)) < FALSE_ALARM


def test_many_at_once_are_as_one_by_one():
    # Of as many places and instants as above, for one program.
    transition, first = random_chain(40)
    allowed = np.random.default_rng(0).random((5, 4, 40)) < 0.3
    allowed[2, 3] = True
    keys = jax.random.split(KEY, 5)
    together = DECODE_MANY(keys, jnp.asarray(allowed), transition, first, jnp.float32(4))
    for key, each, trace in zip(keys, allowed, np.asarray(together), strict=True):
        np.testing.assert_array_equal(decoded(key, each, transition, first, 4.0), trace)
        assert each[np.arange(4), trace].all()
