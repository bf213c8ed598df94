"""Metrics of friends against loops over pairs of users."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import sparse

from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.metrics import (
    category_counts,
    clustering_coefficient,
    degree_distribution,
    meetings_by_category,
    meetings_by_hour,
)
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError
from tests.colocation.examples import random_friends
from tests.support import places_in_line

CATEGORIES = np.array(["bar", "home", "bar", ""], object)
WITH_CATEGORIES = replace(places_in_line(4), category=CATEGORIES)
COUNTS = np.array([[1, 2, 3, 4], [0, 0, 5, 0]])
NO_FRIENDS = FriendGraph(np.arange(3), np.zeros((0, 2), np.int32))


@pytest.mark.parametrize("counts", [COUNTS, sparse.csr_array(COUNTS)], ids=["dense", "sparse"])
def test_counts_of_categories_are_sums_and_a_place_without_one_is_not_lost(counts):
    categories, by_category = category_counts(counts, WITH_CATEGORIES)
    assert categories == ["", "bar", "home"]
    assert by_category.tolist() == [[4, 1 + 3, 2], [0, 0 + 5, 0]]
    assert meetings_by_category(counts, WITH_CATEGORIES) == {"": 4 / 15, "bar": 9 / 15, "home": 2 / 15}


def test_counts_that_do_not_fit_the_places_and_places_without_categories_are_refused():
    with pytest.raises(InputError, match="a category of each place; found none known"):
        category_counts(COUNTS, places_in_line(4))
    for wrong in (COUNTS[:, :3], COUNTS[0]):
        with pytest.raises(InputError, match=r"shape \(instants, 4\)"):
            category_counts(wrong, WITH_CATEGORIES)


def test_hours_of_a_grid_of_two_days_that_begins_in_the_evening():
    grid = TimeGrid.each_instant("2024-01-01T20:00:00", 7200, 24)
    counts = np.zeros((24, 1), int)
    counts[[0, 12, 2, 23], 0] = [1, 2, 3, 4]
    # Instant 0 and, a day later, 12 are at 20:00; 2 is at midnight, 23 at 46 hours after 20:00.
    shares = meetings_by_hour(sparse.csr_array(counts), grid)
    assert {hour: share for hour, share in enumerate(shares.tolist()) if share} == {20: 0.3, 0: 0.3, 18: 0.4}
    with pytest.raises(InputError, match=r"shape \(24, places\)"):
        meetings_by_hour(counts[:23], grid)


@pytest.mark.parametrize("seed", range(2))
def test_clustering_is_that_of_a_loop_over_triples(seed):
    graph = random_friends(seed, n_users=12, probability=0.3)
    friends = {tuple(pair) for pair in graph.pairs.tolist()}
    n_friendships = [sum(pair in friends for pair in combinations(t, 2)) for t in combinations(range(12), 3)]
    closed, open_ = 3 * n_friendships.count(3), n_friendships.count(2)
    assert clustering_coefficient(graph) == pytest.approx(closed / (closed + open_))


def test_clustering_of_graphs_without_triangles():
    star = FriendGraph.from_pairs(np.arange(4), np.array([[0, 1], [0, 2], [0, 3]]))
    assert clustering_coefficient(star) == 0
    assert math.isnan(clustering_coefficient(NO_FRIENDS))


def test_hubs_of_many_friends_cost_no_matrix():
    """Two hubs who are friends and share all of their 50,000 friends: as many triangles."""
    n = 50_000
    others = np.arange(2, n + 2)
    to_hubs = [np.stack([np.full(n, hub), others], axis=1) for hub in (0, 1)]
    graph = FriendGraph.from_pairs(np.arange(n + 2), np.concatenate([*to_hubs, [[0, 1]]]))
    n_paths = 2 * math.comb(n + 1, 2) + n
    assert clustering_coefficient(graph) == pytest.approx(3 * n / n_paths)


def test_degrees():
    graph = FriendGraph.from_pairs(np.arange(5), np.array([[0, 1], [0, 2], [0, 3]]))
    assert degree_distribution(graph).tolist() == [1 / 5, 3 / 5, 0, 1 / 5]
    assert degree_distribution(NO_FRIENDS).tolist() == [1]
