"""Clusters of places: planted ones are found, and none is better by one move."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.semantics.places import cluster_places, criterion

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
    ours = criterion(jnp.asarray(similarity), jnp.asarray(cluster), len(SIZES))
    assert float(ours) == pytest.approx(by_loop(similarity, cluster), rel=1e-5)


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
