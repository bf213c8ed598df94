"""Friendship probability and degrees: what noise is asked for, and brute force over all graphs of a few users."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.colocation.friends import (
    FriendGraph,
    degree_counts,
    friendship_probability,
    limit_friends,
    noisy_degree_distribution,
    noisy_friendship_probability,
)
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.mechanisms import SeededNoise
from tests.colocation.examples import random_friends
from tests.noise.sources import Recorded

N_USERS = 4
ALL_PAIRS = np.array(list(combinations(range(N_USERS), 2)))
STAR = FriendGraph.from_pairs(np.arange(5), np.array([[0, 1], [0, 2], [0, 3], [0, 4]]))


def largest_change(of_graph) -> float:
    """Largest L1 change of what is told of a graph of 4 users, over all graphs and all other friendships of a user."""
    told = {
        friends: np.atleast_1d(of_graph(FriendGraph.from_pairs(np.arange(N_USERS), ALL_PAIRS[np.array(friends)])))
        for friends in product([False, True], repeat=len(ALL_PAIRS))
    }
    largest = 0.0
    for user in range(N_USERS):
        own = (user == ALL_PAIRS).any(axis=1)
        by_others: dict[tuple[bool, ...], list[np.ndarray]] = {}
        for friends, values in told.items():
            by_others.setdefault(tuple(np.array(friends)[~own].tolist()), []).append(values)
        groups = np.array(list(by_others.values()), float)
        largest = max(largest, np.abs(groups[:, :, None] - groups[:, None, :]).sum(axis=-1).max())
    return largest


def test_one_user_changes_the_probability_by_2_over_n_at_most():
    assert largest_change(friendship_probability) == pytest.approx(2 / N_USERS)


@pytest.mark.parametrize(("max_friends", "seed"), [(1, 0), (2, 1)])
def test_one_user_changes_the_degrees_by_what_noise_covers(max_friends, seed):
    noise = Recorded()
    noisy_degree_distribution(STAR, max_friends, 0.5, noise, seed=seed)
    ((_, sensitivity, epsilon),) = noise.asked
    assert (sensitivity, epsilon) == (2 * max_friends, 0.5)
    assert largest_change(lambda g: degree_counts(limit_friends(g, max_friends, seed=seed), max_friends)) == sensitivity


def test_planted_degrees_that_are_only_cut_change_by_more():
    """Counting nobody with more than two friends bounds one user's degree, but not what she does to the others."""
    assert largest_change(lambda g: degree_counts(g, 2)) == 2 + 3 > 2 * 2


def test_noise_is_on_the_number_of_friendships():
    graph, noise = random_friends(0, n_users=20), Recorded()
    told = noisy_friendship_probability(graph, 0.5, noise)
    assert told == friendship_probability(graph) == graph.n_pairs / (20 * 19 / 2)
    # Noise of scale 19 / epsilon on the number, divided by 20 * 19 / 2, is of scale 2 / (20 epsilon).
    assert noise.asked == [([graph.n_pairs], 19, 0.5)]


@pytest.mark.parametrize(("noisy", "expected"), [(-7, 0.0), (3, 0.3), (12, 1.0)])
def test_the_probability_is_cut_to_what_is_possible(noisy, expected):
    assert noisy_friendship_probability(STAR, 1.0, Recorded(np.array([noisy]))) == expected


def test_seeded_noise_repeats_and_secure_noise_does_not():
    graph = random_friends(1, n_users=100)
    for of_graph in (
        lambda noise: noisy_friendship_probability(graph, 0.1, noise),
        lambda noise: noisy_degree_distribution(graph, 99, 0.1, noise, seed=0).tolist(),
    ):
        assert of_graph(SeededNoise(1)) == of_graph(SeededNoise(1)) != of_graph(SeededNoise(2))
        # Of 200 draws of noise of a scale of 990 and more, some differ.
        assert any(of_graph(None) != of_graph(None) for _ in range(100))


def test_noise_of_the_probability_has_the_published_scale():
    """Mean of |noise| of scale b is b; of 300, its standard error is b / sqrt(300)."""
    graph = random_friends(1, n_users=100)
    noisy = np.array([noisy_friendship_probability(graph, 1.0) for _ in range(300)])
    error = noisy - friendship_probability(graph)
    # Whole friendships: the low bits of the answer tell nothing.
    assert (noisy == np.rint(noisy * graph.n_possible_pairs) / graph.n_possible_pairs).all()
    scale, standard_error = 2 / 100, 2 / 100 / np.sqrt(300)
    assert abs(np.abs(error).mean() - scale) < 5 * standard_error
    # Planted: the scale for edges, of which one changes p by 2 / (n (n - 1)).
    assert abs(np.abs(error).mean() - scale / 99) > 5 * standard_error


def test_published_noise_costs_more_than_epsilon_where_the_number_of_users_is_no_public_number():
    """Five users without a friend, or four: the noise of four is wider, and so far out, any epsilon is not enough."""
    five, four = stats.laplace(0, 2 / (5 * 0.5)), stats.laplace(0, 2 / (4 * 0.5))
    assert four.logpdf(3) - five.logpdf(3) > 0.5
    assert four.logpdf(100) - five.logpdf(100) > 20


@pytest.mark.parametrize("n_users", [1, 2])
def test_hardly_any_users(n_users):
    graph = random_friends(0, n_users, 1.0) if n_users > 1 else FriendGraph(np.arange(1), np.zeros((0, 2), np.int32))
    assert friendship_probability(graph) == n_users - 1
    assert 0 <= noisy_friendship_probability(graph, 1.0) <= n_users - 1


@pytest.mark.parametrize("epsilon", [0.0, np.nan])
def test_what_would_be_no_protection_is_refused(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        noisy_friendship_probability(STAR, epsilon)
    with pytest.raises(InputError, match="epsilon"):
        noisy_degree_distribution(STAR, 2, epsilon, seed=0)


def test_nobody_has_more_friends_than_may_be_and_no_friendship_is_dropped_without_need():
    graph = random_friends(3, n_users=30)
    limited = limit_friends(graph, 4, seed=0)
    degrees = limited.degrees()
    kept = {tuple(pair) for pair in limited.pairs.tolist()}
    dropped = [pair for pair in graph.pairs.tolist() if tuple(pair) not in kept]
    assert kept < {tuple(pair) for pair in graph.pairs.tolist()}
    assert degrees.max() == 4
    assert all(max(degrees[one], degrees[other]) == 4 for one, other in dropped)
    assert limit_friends(graph, 30, seed=0) is graph


def test_which_friends_are_kept_is_random_and_repeats_with_the_seed():
    kept = [tuple(limit_friends(STAR, 1, seed=seed).pairs[0].tolist()) for seed in range(40)]
    # Some one of four is never kept with a probability of at most 4 (3/4)^40 < 1e-4.
    assert set(kept) == {(0, 1), (0, 2), (0, 3), (0, 4)}
    assert kept == [tuple(limit_friends(STAR, 1, seed=seed).pairs[0].tolist()) for seed in range(40)]


def test_at_least_one_friend():
    with pytest.raises(InputError, match="max_friends of at least 1"):
        limit_friends(STAR, 0, seed=0)


def test_degree_distribution_without_noise_is_that_of_the_graph():
    graph, noise = random_friends(2, n_users=40, probability=0.1), Recorded()
    expected = np.bincount(graph.degrees(), minlength=21) / 40
    np.testing.assert_allclose(noisy_degree_distribution(graph, 20, 1.0, noise, seed=0), expected, atol=1e-12)
    assert noise.asked[0][0].tolist() == [(graph.degrees() >= k).sum() for k in range(1, 21)]


def test_noise_never_makes_a_distribution_something_else():
    for epsilon in (0.01, 1.0):
        shares = noisy_degree_distribution(random_friends(2, 40), 30, epsilon, seed=0)
        assert (shares >= 0).all()
        assert shares.sum() == pytest.approx(1)
