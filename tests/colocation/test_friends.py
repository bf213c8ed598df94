"""Graphs of friends: what one user changes, by brute force, and random graphs distributed as their model says."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ppmtf_jax.colocation.friends import (
    FriendGraph,
    friendship_probability,
    greedy_b_matching,
    limit_friends,
    noisy_degree_distribution,
    noisy_friendship_probability,
    noisy_level_counts,
    sample_barabasi_albert,
    sample_configuration_graph,
    sample_erdos_renyi,
)
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.colocation.examples import GRID, PLACES, random_friends
from tests.machine import with_gigabytes
from tests.noise.sources import Recorded
from tests.support import random_traces


def traces_with_friends(friends: pd.DataFrame) -> Traces:
    frame = pd.DataFrame({"user": ["ann", "bob", "eve"], "instant": 0, "place": 0})
    return Traces.from_frame(frame, PLACES, GRID, friends)


def test_a_friendship_that_one_lists_is_one_and_so_is_one_that_both_list():
    friends = pd.DataFrame({"user": ["bob", "ann", "eve", "eve"], "friend": ["ann", "bob", "bob", "eve"]})
    graph = FriendGraph.of(traces_with_friends(friends))
    assert graph.pairs.tolist() == [[0, 1], [1, 2]]
    assert (graph.n_users, graph.n_pairs, graph.n_possible_pairs) == (3, 2, 3)
    assert graph.degrees().tolist() == [1, 2, 1]


def test_friendships_must_be_known():
    with pytest.raises(InputError, match="friendships of the users; found none known"):
        FriendGraph.of(random_traces(0, range(3), PLACES, GRID))


def test_pairs_of_traces_that_were_not_validated_are():
    planted = np.array([[0, 0], [1, 2], [0, 3], [-1, 2]])
    traces = replace(traces_with_friends(pd.DataFrame({"user": [], "friend": []})), friendships=planted)
    with pytest.raises(InputError) as caught:
        FriendGraph.of(traces)
    assert [str(problem) for problem in caught.value.problems] == [
        "expected users 0 to 2; found others (2 rows), first: (0, 3), (-1, 2).",
        "expected friends of somebody else; found others (1 row), first: (0, 0).",
    ]


@pytest.mark.parametrize("pairs", [np.zeros((2, 3), int), np.zeros(2, int), np.zeros((2, 2))])
def test_what_are_no_pairs_is_refused(pairs):
    with pytest.raises(InputError, match="pairs of user indices"):
        FriendGraph.from_pairs(np.arange(3), pairs)


def test_users_given_twice_are_refused():
    with pytest.raises(InputError, match=r"every user once; found repeated user ids \(1 row\), first: b\."):
        FriendGraph.from_pairs(np.array(["a", "b", "b"], object), np.array([[0, 1]]))


def test_ids_of_other_types_are_other_users():
    graph = FriendGraph.from_pairs(np.array([3, 5, 7]), np.array([[0, 1]]))
    assert graph.index_of(np.array([7, 3])).tolist() == [2, 0]
    with pytest.raises(InputError, match="users of the friendship graph; found others"):
        graph.index_of(np.array(["3"], object))


N_NODES = 6
LISTS = st.lists(
    st.tuples(st.integers(0, N_NODES - 1), st.integers(0, N_NODES - 1)).filter(lambda pair: pair[0] != pair[1]),
    max_size=25,
)


def read_one_by_one(pairs: np.ndarray, most: int) -> list[bool]:
    number, taken = dict.fromkeys(range(N_NODES), 0), []
    for one, other in pairs.tolist():
        taken.append(number[one] < most and number[other] < most)
        if taken[-1]:
            number[one] += 1
            number[other] += 1
    return taken


@given(LISTS, st.integers(1, 4))
def test_rounds_take_what_reading_takes(pairs, most):
    array = np.array(pairs, int).reshape(-1, 2)
    assert greedy_b_matching(array, N_NODES, most).tolist() == read_one_by_one(array, most)


@given(LISTS, st.integers(1, 4), st.integers(0, N_NODES - 1))
def test_the_pairs_of_one_node_change_degrees_and_number_by_no_more_than_the_lemma_says(pairs, most, node):
    array = np.array(pairs, int).reshape(-1, 2)
    others = array[(array != node).all(axis=1)]
    taken, without = (each[greedy_b_matching(each, N_NODES, most)] for each in (array, others))
    degree, degree_without = (np.bincount(each.ravel(), minlength=N_NODES) for each in (taken, without))
    assert np.abs(np.delete(degree - degree_without, node)).sum() <= degree[node] <= most
    assert 0 <= len(taken) - len(without) <= degree[node]


def test_many_pairs_in_a_random_order():
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 20_000, (100_000, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    taken = greedy_b_matching(pairs, 20_000, 5)
    degree = np.bincount(pairs[taken].ravel(), minlength=20_000)
    assert degree.max() == 5
    # Every pair that was not taken has a node without room.
    assert (degree[pairs[~taken]].max(axis=1) == 5).all()


N_FEW = 4
ALL_PAIRS = np.array(list(combinations(range(N_FEW), 2)))
STAR = FriendGraph.from_pairs(np.arange(5), np.array([[0, 1], [0, 2], [0, 3], [0, 4]]))


def largest_change(of_graph) -> float:
    """Largest L1 change of what is told of a graph of 4 users, over all graphs and all other friendships of a user."""
    told = {
        friends: np.atleast_1d(of_graph(FriendGraph.from_pairs(np.arange(N_FEW), ALL_PAIRS[np.array(friends)])))
        for friends in product([False, True], repeat=len(ALL_PAIRS))
    }
    largest = 0.0
    for user in range(N_FEW):
        own = (user == ALL_PAIRS).any(axis=1)
        by_others: dict[tuple[bool, ...], list[np.ndarray]] = {}
        for friends, values in told.items():
            by_others.setdefault(tuple(np.array(friends)[~own].tolist()), []).append(values)
        groups = np.array(list(by_others.values()), float)
        largest = max(largest, np.abs(groups[:, :, None] - groups[:, None, :]).sum(axis=-1).max())
    return largest


def counted(mechanism, *given, seed: int) -> np.ndarray:
    """The numbers to which a mechanism adds noise."""
    noise = Recorded()
    mechanism(*given, 1.0, noise, seed=seed)
    return noise.asked[0].values


def test_one_user_changes_the_probability_by_2_over_n_at_most():
    assert largest_change(friendship_probability) == pytest.approx(2 / N_FEW)


@pytest.mark.parametrize(("max_friends", "seed"), [(1, 0), (2, 1)])
def test_one_user_changes_the_degrees_by_what_noise_covers(max_friends, seed):
    noise = Recorded()
    noisy_degree_distribution(STAR, max_friends, 0.5, noise, seed=seed)
    ((_, sensitivity, epsilon),) = noise.asked
    assert (sensitivity, epsilon) == (2 * max_friends, 0.5)
    assert largest_change(lambda g: counted(noisy_degree_distribution, g, max_friends, seed=seed)) == sensitivity


def test_planted_degrees_that_are_only_cut_change_by_more():
    """Counting nobody with more than two friends bounds one user's degree, but not what they do to the others."""
    assert largest_change(lambda g: np.array([(g.degrees() >= k).sum() for k in (1, 2)])) == 2 + 3 > 2 * 2


def test_noise_is_on_the_number_of_friendships():
    graph, noise = random_friends(0, n_users=20), Recorded()
    told = noisy_friendship_probability(graph, 0.5, noise)
    assert told == friendship_probability(graph) == graph.n_pairs / (20 * 19 / 2)
    # Noise of scale 19 / epsilon on the number, divided by 20 * 19 / 2, is of scale 2 / (20 epsilon).
    assert noise.asked == [([graph.n_pairs], 19, 0.5)]


@pytest.mark.parametrize(("noisy", "expected"), [(-7, 0.0), (3, 0.3), (12, 1.0)])
def test_the_probability_is_cut_to_what_is_possible(noisy, expected):
    assert noisy_friendship_probability(STAR, 1.0, Recorded(np.array([noisy]))) == expected


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
    noise = {}
    for n_users in (4, 5):
        graph, source = FriendGraph(np.arange(n_users), np.zeros((0, 2), np.int32)), Recorded()
        noisy_friendship_probability(graph, 0.5, source)
        ((_, sensitivity, epsilon),) = source.asked
        noise[n_users] = stats.laplace(0, sensitivity / epsilon / graph.n_possible_pairs)
    assert noise[4].logpdf(3) - noise[5].logpdf(3) > 0.5
    assert noise[4].logpdf(100) - noise[5].logpdf(100) > 20


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


N_DRAWS, FALSE_ALARM = 500, 1e-6


def pair_z(graphs: list[FriendGraph], probability: float) -> np.ndarray:
    """How far the frequency of each pair is from a probability, in standard errors."""
    n = graphs[0].n_users
    count = np.zeros((n, n))
    for graph in graphs:
        count[tuple(graph.pairs.T)] += 1
    upper = count[np.triu_indices(n, 1)]
    return (upper - N_DRAWS * probability) / np.sqrt(N_DRAWS * probability * (1 - probability))


@pytest.mark.parametrize("probability", [0.05, 0.9])
def test_any_two_are_friends_with_the_probability(probability):
    graphs = [sample_erdos_renyi(7, probability, seed=seed) for seed in range(N_DRAWS)]
    assert np.abs(pair_z(graphs, probability)).max() < 5
    # Planted: the first of all pairs is never drawn.
    assert np.abs(pair_z([graph.select_pairs(graph.pairs.sum(axis=1) > 1) for graph in graphs], probability)).max() > 5
    # Independent: the number of friendships has the variance of a binomial; of chi-square, sqrt(2 / draws).
    n_pairs = np.array([graph.n_pairs for graph in graphs])
    assert abs(n_pairs.var() / (21 * probability * (1 - probability)) - 1) < 5 * np.sqrt(2 / N_DRAWS)


@pytest.mark.parametrize(
    ("n_users", "probability", "n_pairs"), [(1, 0.5, 0), (1, 1.0, 0), (6, 0.0, 0), (6, 1.0, 15), (1_000_000, 1e-18, 0)]
)
def test_no_friends_and_all_friends(n_users, probability, n_pairs):
    graph = sample_erdos_renyi(n_users, probability, seed=0)
    assert (graph.n_users, graph.n_pairs) == (n_users, n_pairs)


@pytest.mark.parametrize(("n_users", "probability"), [(0, 0.5), (5, -0.1), (5, 1.1), (5, np.nan)])
def test_what_is_no_model_is_refused(n_users, probability):
    with pytest.raises(InputError, match="friendship graph"):
        sample_erdos_renyi(n_users, probability, seed=0)


def test_too_many_friendships_are_refused(monkeypatch):
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match="lower friendship probability"):
        sample_erdos_renyi(100_000, 0.5, seed=0)


def test_all_ways_to_pair_four_are_alike():
    """Who all want one friend each are paired in one of three ways."""
    ways = {(0, 1, 2, 3): 0, (0, 2, 1, 3): 1, (0, 3, 1, 2): 2}
    # Somebody who draws themselves loses their wish, here never, since each wants one.
    pairs = [sample_configuration_graph(4, np.array([0.0, 1.0]), seed=seed).pairs for seed in range(N_DRAWS)]
    observed = np.bincount([ways[tuple(each.ravel().tolist())] for each in pairs], minlength=3)
    assert stats.chisquare(observed).pvalue > FALSE_ALARM


def test_degrees_have_the_distribution_that_was_asked_for():
    """A long tail, as of a power law of exponent 2.5: what is erased is little."""
    wanted = np.append(0, np.arange(1, 101.0) ** -2.5)
    wanted /= wanted.sum()
    n_users = 100_000
    graph = sample_configuration_graph(n_users, wanted, seed=0)
    found = np.bincount(graph.degrees(), minlength=101)[:101] / n_users
    # Multinomial: the sum of |found - wanted| is at most the sum of the standard errors, on average; the wishes erased
    # are about half of (mean of d (d - 1) / mean of d)^2, which shift as many users by one.
    standard_errors = np.sqrt(wanted * (1 - wanted) / n_users).sum()
    degree = np.arange(101)
    erased = (wanted @ (degree * (degree - 1)) / (wanted @ degree)) ** 2 / n_users
    assert np.abs(found - wanted).sum() < 2 * standard_errors + 4 * erased
    # Planted: a tail that is cut at 10.
    cut = np.where(degree <= 10, wanted, 0) / wanted[:11].sum()
    assert np.abs(found - cut).sum() > 2 * standard_errors + 4 * erased


def test_wishes_that_cannot_all_be_met():
    assert sample_configuration_graph(3, np.array([1.0]), seed=0).n_pairs == 0
    assert sample_configuration_graph(1, np.array([0.0, 1.0]), seed=0).n_pairs == 0
    # An odd number of wishes; more friends wanted than there are others.
    assert sample_configuration_graph(3, np.array([0.0, 1.0]), seed=0).n_pairs <= 1
    assert sample_configuration_graph(3, np.append(np.zeros(9), 1.0), seed=0).degrees().max() <= 2


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.5, -0.5], [np.nan, 1.0], [], [[1.0]]])
def test_what_is_no_distribution_is_refused(shares):
    with pytest.raises(InputError, match="add up to 1"):
        sample_configuration_graph(5, np.array(shares), seed=0)
    with pytest.raises(InputError, match=r"(?s)at least one user.*add up to 1"):
        sample_configuration_graph(0, np.array(shares), seed=0)


# Levels of friendship


def levels_of(friends: tuple[int, ...]) -> tuple[FriendGraph, np.ndarray]:
    """A graph, and the levels of its friendships, from a level of each pair; -1 for no friends."""
    level = np.array(friends)
    return FriendGraph.from_pairs(np.arange(N_FEW), ALL_PAIRS[level >= 0]), level[level >= 0]


def largest_change_of_levels(told) -> float:
    """The same as `largest_change`, of graphs with levels 0 and 1, over other friendships and levels of one user."""
    values = {friends: told(*levels_of(friends)) for friends in product((-1, 0, 1), repeat=len(ALL_PAIRS))}
    own, by_others = (ALL_PAIRS == 0).any(axis=1), {}
    for friends, value in values.items():
        by_others.setdefault(tuple(np.array(friends)[~own].tolist()), []).append(value)
    groups = (np.array(group, float) for group in by_others.values())
    return max(np.abs(group[:, None] - group[None]).sum(axis=-1).max() for group in groups)


@pytest.mark.parametrize("max_friends", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_user_changes_the_levels_by_what_noise_covers(max_friends):
    noise = Recorded()
    noisy_level_counts(STAR, np.arange(4) - 1, 1, max_friends, 0.5, noise, seed=1)
    ((counts, sensitivity, epsilon),) = noise.asked
    assert (counts.tolist(), sensitivity, epsilon) == ([min(3, max_friends), min(2, max_friends)], 2 * max_friends, 0.5)
    change = largest_change_of_levels(lambda g, level: counted(noisy_level_counts, g, level, 1, max_friends, seed=1))
    assert change == sensitivity


def test_planted_levels_of_a_graph_that_is_cut_once_change_by_more():
    """Planted: the graph is cut to one friend of each user first, and the levels of what is left are counted."""

    def cut_once(graph, level):
        number = {tuple(pair): each for pair, each in zip(graph.pairs.tolist(), level.tolist(), strict=True)}
        left = [number[tuple(pair)] for pair in limit_friends(graph, 1, seed=1).pairs.tolist()]
        return [sum(each >= least for each in left) for least in (0, 1)]

    assert largest_change_of_levels(cut_once) > 2


def test_noisy_levels_never_increase():
    graph = random_friends(0, n_users=20)
    noise = Recorded(np.array([9, -4, 8, -90]))
    assert noisy_level_counts(graph, np.ones(graph.n_pairs, int), 3, 20, 1.0, noise, seed=0).tolist() == [9, 2, 2, 0]


# Preferential attachment


def test_a_graph_by_preferential_attachment_has_its_law():
    """Share of users with the smallest number m of friends: 2 / (m + 2) (Bollobas et al. 2001).

    Its standard deviation is at most that of 1 / (2 sqrt(n)) of independent users. Planted: where new users befriend
    anybody alike, 1 / (m + 1) have the smallest number.
    """
    n, m = 4000, 3
    probability = (m * n - m * (m + 1) / 2) / (n * (n - 1) / 2)
    graph = sample_barabasi_albert(n, probability, seed=0)
    assert graph.n_pairs == m * n - m * (m + 1) // 2
    degrees = graph.degrees()
    assert degrees.min() == m
    share, sd = (degrees == m).mean(), 1 / (2 * np.sqrt(n))
    assert abs(share - 2 / (m + 2)) < 5 * sd < abs(1 / (m + 1) - 2 / (m + 2))
    assert degrees.max() > 10 * degrees.mean()
    # The first users to arrive have most friends, and their ids do not say so.
    assert np.argsort(-degrees)[:10].mean() > 100


@pytest.mark.parametrize(("n_users", "probability"), [(1, 0.5), (2, 1.0), (40, 1.0), (40, 0.0), (300, 0.004)])
def test_graphs_by_preferential_attachment_at_the_edges(n_users, probability):
    wanted = probability * n_users * (n_users - 1) / 2
    found = np.array([sample_barabasi_albert(n_users, probability, seed=seed).n_pairs for seed in range(20)])
    # Each user draws one of two numbers, so that the variance of the mean of 20 is at most n / 4 / 20; and one more for
    # the first users, who are all friends.
    assert abs(found.mean() - wanted) <= 5 * np.sqrt(n_users / 80) * (0 < probability < 1) + (0 < probability < 1)
    graph = sample_barabasi_albert(n_users, probability, seed=3)
    assert (graph.n_users, graph.n_pairs) == (n_users, found[3])
    # Nobody but the first m + 1 users has less than the smaller of the two numbers beside m.
    assert graph.degrees().min() >= np.floor(wanted / n_users)
