"""Proved budgets against the mechanisms themselves and brute force over neighbours."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.budgets import CellBounds, budgets_of_one_trace, epsilon_of_location, epsilon_of_user

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
    # Nobody but the last makes the last traces; they make little else.
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
        with_user, without = (outcomes(users, k, eta, noise_epsilon, n_verifiers)[:-1] for users in (p, p[:-1]))
        for _, epsilon, delta in zip(*budgets_of_one_trace(k, eta, noise_epsilon), strict=True):
            assert max(excess(with_user, without, epsilon), excess(without, with_user, epsilon)) <= delta


def test_the_noise_alone_is_not_what_it_costs():
    """Thirty users alike, and one in their bin who makes a trace of theirs fifteen times as often."""
    k, eta, noise_epsilon = 25, 3.0, 0.3
    p = np.array([[0.06, 0.94]] * 30 + [[0.94, 0.06]])
    with_user, without = (outcomes(users, k, eta, noise_epsilon)[:-1] for users in (p, p[:-1]))
    budgets = budgets_of_one_trace(k, eta, noise_epsilon)
    assert excess(with_user, without, budgets.epsilon[0]) <= budgets.delta[0]
    # Planted: an epsilon without log(1 + e^eta / t).
    assert excess(with_user, without, noise_epsilon) > budgets.delta[0]


def test_seeing_that_nothing_was_released_costs_as_much_as_being_drawn():
    """A user whose traces nobody else makes is never released; that shows whenever they are drawn."""
    k, eta, noise_epsilon = 4, 0.5, 6.0
    p = np.array([[1.0, 0.0]] * 8 + [[0.0, 1.0]])
    with_user, without = (outcomes(users, k, eta, noise_epsilon) for users in (p, p[:-1]))
    for _, epsilon, delta in zip(*budgets_of_one_trace(k, eta, noise_epsilon), strict=True):
        assert 0 < excess(with_user[:-1], without[:-1], epsilon) <= delta
        assert excess(with_user, without, epsilon) <= delta + 1 / 9
    assert excess(with_user, without, budgets_of_one_trace(k, eta, noise_epsilon).epsilon[0]) > 1 / 9 - 1e-3


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


@pytest.mark.parametrize(
    ("noise_precision", "epsilon"),
    # Fig. 17, kappa = 0: alpha * (300 + 300) cells * 10^2.
    [(1e-6, 0.06), (0.4, 24_000.0)],
)
def test_budget_of_a_user(noise_precision, epsilon):
    assert epsilon_of_user(noise_precision) == pytest.approx(epsilon, rel=1e-12)


def test_few_zeros_make_the_other_side_of_the_minimum():
    few = CellBounds(max_cells=100, n_zeros=50, max_count=10)
    assert epsilon_of_user(1.0, few, few, kappa=2.0) == pytest.approx(2 * 150 * 12**2)


def test_budget_of_a_location():
    """Of counts up to 10: three pairs of (10 - 1)^2 and 2 * 10 - 3; the paper has 2 * (2 * 10 - 1)."""
    assert epsilon_of_location(0.4) == pytest.approx(0.4 * 3 * (81 + 17), rel=1e-12)
    stated = epsilon_of_location(0.4, zeros_observed=True)
    assert stated == pytest.approx(0.4 * (4 * 10 + 8 * 10 - 6), rel=1e-12)


PLACES, LENGTH = 3, 6


@pytest.fixture(scope="module")
def neighbours() -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Pairs of all traces of six events that differ in one, and counts of transitions and visits of every trace.

    The first five events are in one slot, so that a place is visited several times.
    """
    traces = np.array(list(itertools.product(range(PLACES), repeat=LENGTH)))
    number = np.arange(len(traces))[:, None]
    transitions = np.zeros((len(traces), PLACES, PLACES))
    np.add.at(transitions, (number, traces[:, :-1], traces[:, 1:]), 1)
    visits = np.zeros((len(traces), PLACES, 2))
    np.add.at(visits, (number, traces, np.array([0, 0, 0, 0, 0, 1])), 1)
    pairs = []
    for digit in PLACES ** np.arange(LENGTH):
        place = np.arange(len(traces)) // digit % PLACES
        for other in range(PLACES):
            changed = np.flatnonzero(place != other)
            pairs.append(np.stack([changed, changed + (other - place[changed]) * digit], axis=1))
    return np.concatenate(pairs), [each.reshape(len(traces), -1) for each in (transitions, visits)]


def worst_change(counts, pairs, max_count: int, kappa: float, zeros_observed: bool) -> np.ndarray:
    """Largest change of the sum over observed cells of (r - x)^2, for each pair, over all x within the bounds.

    Each cell's change is quadratic or linear in x. Where it is a square that is added, its largest value is at an end;
    where one is taken away, at its count.
    """
    counts = np.minimum(counts, max_count)
    before, after = counts[pairs[:, 0]], counts[pairs[:, 1]]
    best = np.full(before.shape, -np.inf)
    for x in [-kappa, *range(max_count + 1), max_count + kappa]:
        seen_before, seen_after = (zeros_observed | (each > 0) for each in (before, after))
        best = np.maximum(best, seen_after * (after - x) ** 2 - seen_before * (before - x) ** 2)
    return best.sum(axis=1)


@pytest.mark.parametrize("kappa", [0.0, 0.7])
@pytest.mark.parametrize("max_count", [1, 3, 10])
@pytest.mark.parametrize("zeros_observed", [False, True])
def test_no_pair_of_traces_that_differ_in_a_location_exceeds_the_budget(neighbours, zeros_observed, max_count, kappa):
    """Brute force over all pairs and reconstructions, by the assumption that the bound is stated for.

    G has a factor alpha / 2, and the exponential mechanism a factor 2.
    """
    pairs, tensors = neighbours
    worst = sum(worst_change(counts, pairs, max_count, kappa, zeros_observed) for counts in tensors).max()
    bound = epsilon_of_location(1.0, max_count, max_count, kappa=kappa, zeros_observed=zeros_observed)
    assert worst <= bound + 1e-9
    # No looser than it has to be; with observed zeros the worst pair needs counts that six events do not have.
    if max_count == 10 and not zeros_observed:
        assert worst == pytest.approx(bound)
        assert worst > epsilon_of_location(1.0, kappa=kappa, zeros_observed=True)
    assert worst > bound / 2


@pytest.mark.parametrize(("noise_precision", "kappa"), [(0.0, 0.0), (-1.0, 0.0), (1.0, -0.1), (float("nan"), 0.0)])
def test_impossible_parameters(noise_precision, kappa):
    with pytest.raises(InputError):
        epsilon_of_user(noise_precision, kappa=kappa)


def test_impossible_bounds():
    with pytest.raises(InputError, match="greatest counts of at least 1"):
        epsilon_of_location(1.0, 10, 0)
    with pytest.raises(InputError, match="max_cells"):
        CellBounds(max_cells=0)
