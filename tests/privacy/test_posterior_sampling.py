"""Budgets of Appendix G against brute force over neighbours."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.posterior_sampling import CellBounds, epsilon_of_location, epsilon_of_user


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
