"""Budgets of Appendix G against brute force over neighbours, and the retry procedure."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.privacy.posterior_sampling import (
    CellBounds,
    NotAPrivacyGuaranteeWarning,
    epsilon_of_location,
    epsilon_of_user,
    sample_until_bounded,
    smallest_kappa,
)


@pytest.mark.parametrize(
    ("noise_precision", "epsilon"),
    # Fig. 17, kappa = 0: alpha * (300 + 300) cells * 10^2.
    [(1e-6, 0.06), (1e-3, 60.0), (0.4, 24_000.0), (200.0, 12e6)],
)
def test_budget_of_a_user(noise_precision, epsilon):
    assert epsilon_of_user(noise_precision) == pytest.approx(epsilon, rel=1e-12)


def test_few_zeros_make_the_other_side_of_the_minimum():
    few = CellBounds(max_cells=100, n_zeros=50, max_count=10)
    assert epsilon_of_user(1.0, few, few, kappa=2.0) == pytest.approx(2 * 150 * 12**2)


@pytest.mark.parametrize(
    ("noise_precision", "epsilon"),
    # alpha * (8 * 10 + 4 * 10 - 6); the paper states that of 0.4.
    [(1e-6, 1.14e-4), (1e-2, 1.14), (0.4, 45.6), (200.0, 22_800.0)],
)
def test_budget_of_a_location(noise_precision, epsilon):
    assert epsilon_of_location(noise_precision) == pytest.approx(epsilon, rel=1e-12)


def visit_cells(trace: tuple[int, ...], n_places: int) -> np.ndarray:
    """Visits by place and instant; every instant is a slot."""
    cells = np.zeros((n_places, len(trace)))
    np.add.at(cells, (np.array(trace), np.arange(len(trace))), 1)
    return cells


def transition_cells(trace: tuple[int, ...], n_places: int) -> np.ndarray:
    cells = np.zeros((n_places, n_places))
    np.add.at(cells, (np.array(trace[:-1]), np.array(trace[1:])), 1)
    return cells


def worst_change(before: np.ndarray, after: np.ndarray, max_count: float, kappa: float) -> float:
    """Largest |sum (r - x)^2 - (r' - x)^2| over all reconstructions x within the bounds: each cell at an end."""
    ends = np.stack([np.full(before.shape, -kappa), np.full(before.shape, max_count + kappa)])
    change = (before - ends) ** 2 - (after - ends) ** 2
    return max(change.max(axis=0).sum(), -change.min(axis=0).sum())


@pytest.mark.parametrize("kappa", [0.0, 0.7])
def test_no_pair_of_traces_that_differ_in_a_location_exceeds_the_budget(kappa):
    n_places, length = 3, 4
    max_count = length - 1  # nothing is cut
    bound = epsilon_of_location(1.0, max_count, max_count, kappa=kappa)
    worst = 0.0
    for trace in itertools.product(range(n_places), repeat=length):
        for instant, place in itertools.product(range(length), range(n_places)):
            other = (*trace[:instant], place, *trace[instant + 1 :])
            change = sum(
                worst_change(count(trace, n_places), count(other, n_places), max_count, kappa)
                for count in (transition_cells, visit_cells)
            )
            # G has a factor alpha/2, and the exponential mechanism a factor 2.
            worst = max(worst, change)
    assert worst <= bound
    # A bound that forgot a cell would be caught: the worst pair comes near.
    assert worst > bound * 0.5


def test_smallest_kappa_is_that_of_the_dense_tensor():
    rng = np.random.default_rng(0)
    user, place, other = (rng.normal(size=(n, 3)).astype(np.float32) for n in (37, 5, 6))
    dense = np.einsum("uz,iz,jz->uij", user, place, other)
    expected = max(0.0, -dense.min(), dense.max() - 2)
    assert smallest_kappa(user, place, other, 2) == pytest.approx(expected, rel=1e-5)
    assert smallest_kappa(np.abs(user) * 0.01, np.abs(place), np.abs(other), 10) == 0.0


def factors_of_size(size: float) -> dict[str, np.ndarray]:
    one = np.ones((1, 1), np.float32)
    return {"user": one * size, "place": one, "next_place": one, "slot": one}


def test_draws_are_repeated_until_one_is_within_the_bounds():
    sizes = [15.0, -3.0, 10.5]
    with pytest.warns(NotAPrivacyGuaranteeWarning, match="not an exact posterior draw"):
        draw = sample_until_bounded(lambda attempt: factors_of_size(sizes[attempt]), 1.0)
    assert draw.n_retries == 2
    assert float(draw.factors["user"][0, 0]) == 10.5


def test_a_bound_that_is_never_met_says_what_would_be_needed():
    with (
        pytest.warns(NotAPrivacyGuaranteeWarning),
        pytest.raises(NumericalError, match=r"no draw of 3 .* kappa = 5"),
    ):
        sample_until_bounded(lambda attempt: factors_of_size(15.0 + attempt), 1.0, max_retries=2)


@pytest.mark.parametrize(("noise_precision", "kappa"), [(0.0, 0.0), (-1.0, 0.0), (1.0, -0.1), (float("nan"), 0.0)])
def test_impossible_parameters(noise_precision, kappa):
    with pytest.raises(InputError):
        epsilon_of_user(noise_precision, kappa=kappa)


def test_impossible_bounds():
    with pytest.raises(InputError, match="max_cells"):
        CellBounds(max_cells=0)
