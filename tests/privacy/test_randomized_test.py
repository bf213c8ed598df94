"""Theorem 1 of Bindschaedler et al. 2017 against the mechanism itself, all of whose outcomes are added up."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.randomized_test import budgets_of_one_trace

N_TRACES = 40


def outcomes(p: np.ndarray, k: int, eta: float, noise_epsilon: float, n_verifiers: int | None = None) -> np.ndarray:
    """Probability of each trace, and at last of nothing, of one input user drawn by lot and the randomized test.

    Parameters
    ----------
    p : (users, traces)
        Probability that a user's model makes a trace.
    n_verifiers : int, optional
        Drawn at random from all users; all subsets are added up.
    """
    noise = stats.dlaplace(noise_epsilon)
    n_users = len(p)
    subsets = list(itertools.combinations(range(n_users), n_verifiers or n_users))
    with np.errstate(divide="ignore"):
        bins = np.floor(-np.log(p) / eta)
    released = np.zeros(p.shape[1])
    for subset in subsets:
        asked = np.isin(np.arange(n_users), subset)
        for user in range(n_users):
            others = asked & (np.arange(n_users) != user)
            plausible = 1 + (bins[others] == bins[user]).sum(axis=0)
            released += p[user] * noise.cdf(plausible - k) / (n_users * len(subsets))
    return np.append(released, 1 - released.sum())


def excess(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The least delta for which the pair holds: over the set of outcomes that is worst."""
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def some_users(seed: int, n_users: int) -> np.ndarray:
    """Traces that many make alike, some that few make, and some that one alone makes."""
    rng = np.random.default_rng(seed)
    shared = rng.dirichlet(np.full(N_TRACES, 0.3)) + 1e-4
    own = rng.dirichlet(np.full(N_TRACES, 0.1), n_users)
    p = 0.6 * shared / shared.sum() + 0.4 * own
    # Nobody but the last makes the last traces; she makes little else.
    p[:-1, -5:] = 0
    p[-1, :-10] *= 1e-3
    return p / p.sum(axis=1, keepdims=True)


CASES = [(3, 1.0, 0.5), (4, 0.3, 1.0), (6, 2.0, 2.0), (5, 0.05, 0.2)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("n_verifiers", [None, 4])
def test_every_pair_holds_for_one_trace_with_and_without_a_user(case, n_verifiers):
    k, eta, noise_epsilon = case
    for seed in range(3):
        p = some_users(seed, 7)
        with_her, without = (outcomes(users, k, eta, noise_epsilon, n_verifiers)[:-1] for users in (p, p[:-1]))
        for _, epsilon, delta in zip(*budgets_of_one_trace(k, eta, noise_epsilon), strict=True):
            assert max(excess(with_her, without, epsilon), excess(without, with_her, epsilon)) <= delta


def test_the_noise_alone_is_not_what_it_costs():
    """Thirty users alike, and one in their bin who makes a trace of theirs fifteen times as often."""
    k, eta, noise_epsilon = 25, 3.0, 0.3
    p = np.array([[0.06, 0.94]] * 30 + [[0.94, 0.06]])
    with_her, without = (outcomes(users, k, eta, noise_epsilon)[:-1] for users in (p, p[:-1]))
    budgets = budgets_of_one_trace(k, eta, noise_epsilon)
    assert excess(with_her, without, budgets.epsilon[0]) <= budgets.delta[0]
    # Planted: an epsilon without log(1 + e^eta / t).
    assert excess(with_her, without, noise_epsilon) > budgets.delta[0]


def test_seeing_that_nothing_was_released_costs_as_much_as_being_drawn():
    """A user whose traces nobody else makes is never released; that shows whenever she is drawn."""
    k, eta, noise_epsilon = 4, 0.5, 6.0
    p = np.array([[1.0, 0.0]] * 8 + [[0.0, 1.0]])
    with_her, without = (outcomes(users, k, eta, noise_epsilon) for users in (p, p[:-1]))
    for _, epsilon, delta in zip(*budgets_of_one_trace(k, eta, noise_epsilon), strict=True):
        assert 0 < excess(with_her[:-1], without[:-1], epsilon) <= delta
        assert excess(with_her, without, epsilon) <= delta + 1 / 9
    assert excess(with_her, without, budgets_of_one_trace(k, eta, noise_epsilon).epsilon[0]) > 1 / 9 - 1e-3


def test_the_arithmetic():
    budgets = budgets_of_one_trace(k=4, eta=math.log(3), noise_epsilon=0.5)
    assert budgets.t.tolist() == [1, 2, 3]
    np.testing.assert_allclose(budgets.epsilon, [0.5 + math.log(1 + 3 / t) for t in (1, 2, 3)], rtol=1e-12)
    np.testing.assert_allclose(budgets.delta, [math.exp(-0.5 * (4 - t)) for t in (1, 2, 3)], rtol=1e-12)
    assert budgets_of_one_trace(1, 1.0, 1.0).t.shape == (0,)


def test_numbers_at_the_edge_of_what_can_be_written():
    wide = budgets_of_one_trace(k=5, eta=1e6, noise_epsilon=1.0)
    np.testing.assert_allclose(wide.epsilon, 1e6 + 1 - np.log([1, 2, 3, 4]), rtol=1e-12)
    assert (budgets_of_one_trace(k=10_000, eta=1.0, noise_epsilon=1.0).delta > 0).all()


@pytest.mark.parametrize("wrong", [(0, 1.0, 1.0), (5, 0.0, 1.0), (5, math.inf, 1.0), (5, 1.0, math.nan)])
def test_no_parameters_of_a_test(wrong):
    with pytest.raises(InputError, match="randomized test"):
        budgets_of_one_trace(*wrong)
