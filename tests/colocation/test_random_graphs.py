"""Random graphs have the distribution of their model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.colocation.friends import FriendGraph, sample_configuration_graph, sample_erdos_renyi
from ppmtf_jax.errors import InputError
from tests.machine import with_gigabytes

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
    # Independent: the number of friendships has the variance of a binomial; of a chi-square law, sqrt(2 / draws).
    n_pairs = np.array([graph.n_pairs for graph in graphs])
    assert abs(n_pairs.var() / (21 * probability * (1 - probability)) - 1) < 5 * np.sqrt(2 / N_DRAWS)


@pytest.mark.parametrize(
    ("n_users", "probability", "n_pairs"), [(1, 0.5, 0), (1, 1.0, 0), (6, 0.0, 0), (6, 1.0, 15), (1_000_000, 1e-18, 0)]
)
def test_no_friends_and_all_friends(n_users, probability, n_pairs):
    graph = sample_erdos_renyi(n_users, probability, seed=0)
    assert (graph.n_users, graph.n_pairs) == (n_users, n_pairs)


def test_graphs_repeat_with_the_seed():
    first, again, other = (sample_erdos_renyi(1000, 0.01, seed=seed).pairs for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or (first != other).any()


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
    # Somebody who draws herself loses her wish, here never, since each wants one.
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
