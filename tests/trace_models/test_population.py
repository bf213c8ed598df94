"""The population's transition matrix, and that noise covers one user's part in it."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.tensors import SparseCounts, Trimming, count_tensors
from ppmtf_jax.synthesizers.systems import ppmtf
from ppmtf_jax.synthesizers.systems.ppmtf import population_transitions, require_memory_for_population
from ppmtf_jax.trace_models import population
from ppmtf_jax.trace_models.population import (
    stationary_distribution,
)
from tests.machine import with_gigabytes

TRIMMING = Trimming(max_transitions=3, max_count=2)


def test_counts_of_all_users_are_smoothed_by_one_step_for_each_place():
    columns = np.array([[0, 0, 1, 2], [1, 0, 1, 1], [1, 1, 2, 3]], np.int32)
    user, place, after, count = columns.T
    matrix = population_transitions(SparseCounts(user, place, after, count, (2, 3, 3), np.arange(2)))
    counts = np.array([[0, 3, 0], [0, 0, 3], [0, 0, 0]])
    share = (np.array([0, 3, 3]) + 1) / (6 + 3)
    expected = np.stack([(row + share) / (row.sum() + 1) for row in counts])
    np.testing.assert_allclose(matrix, expected, rtol=1e-12)


@pytest.fixture(scope="module")
def traces():
    return toy_city(n_users=12, n_places=8, n_days=2, seed=0).traces


@pytest.fixture
def noise(monkeypatch) -> list[tuple[np.ndarray, int, float]]:
    """What noise was asked for: values, sensitivity, epsilon. It gives the same noisy values whatever it gets."""
    asked: list[tuple[np.ndarray, int, float]] = []

    def add_laplace(values, sensitivity, epsilon):
        asked.append((values, sensitivity, epsilon))
        return np.random.default_rng(0).integers(-100, 500, values.shape)

    monkeypatch.setattr(ppmtf, "add_laplace", add_laplace)
    return asked


def test_one_user_less_changes_what_noise_is_added_to_by_no_more_than_it_covers(traces, noise):
    """Brute force over every user left out of the traces; and the matrix is made of noisy values alone."""

    def noisy_matrix(some: Traces) -> np.ndarray:
        return population_transitions(count_tensors(some, TRIMMING, seed=0).transitions, TRIMMING, epsilon=0.5)

    whole = noisy_matrix(traces)
    ((counts, sensitivity, epsilon),) = noise
    assert (sensitivity, epsilon) == (3 * 2, 0.5)
    changes = []
    for user in range(traces.n_users):
        without = noisy_matrix(traces.select_users(np.delete(np.arange(traces.n_users), user)))
        np.testing.assert_array_equal(without, whole)
        changes.append(np.abs(noise[-1][0] - counts).sum())
        assert noise[-1][1:] == (sensitivity, epsilon)
    assert 0 < max(changes) <= sensitivity
    # Twin: without trimming a user's part exceeds it.
    free = count_tensors(traces, Trimming(None, None, None), seed=0).transitions
    assert np.bincount(free.user, free.count).max() > sensitivity


def test_what_is_no_larger_than_noise_is_not_kept(traces, monkeypatch):
    transitions = count_tensors(traces, TRIMMING, seed=0).transitions
    exact = population_transitions(transitions)
    np.testing.assert_allclose(population_transitions(transitions, TRIMMING, epsilon=1e4), exact, rtol=1e-12)
    largest = 6 / 0.5 * np.log(100 * 64)
    monkeypatch.setattr(ppmtf, "add_laplace", lambda values, *_: np.full_like(values, int(largest)))
    np.testing.assert_allclose(population_transitions(transitions, TRIMMING, epsilon=0.5), 1 / 8, rtol=1e-12)


def test_a_population_that_does_not_fit_is_refused(monkeypatch):
    with_gigabytes(monkeypatch, 3)
    require_memory_for_population(10_000, private=False)
    with pytest.raises(InputError, match=r"population.* 9\.0 GB .*Set proposal_mix=0"):
        require_memory_for_population(10_000, private=True)


@pytest.mark.parametrize("n_left", [0, 3, 30])
def test_iterations_and_elimination_give_the_same_stationary_distribution(monkeypatch, n_left):
    """Chains with a floor. People left only the first `n_left` places; the second chain hardly ever leaves place 0."""
    rng = np.random.default_rng(0)
    chains = np.full((2, 40, 40), 1 / 40)
    for place in range(n_left):
        chains[:, place] = rng.multinomial(3, rng.dirichlet(np.full(40, 0.1)), size=2) / 3
    chains[1, 0] = np.eye(40)[0]
    chains = np.maximum(chains, 1e-8)
    chains /= chains.sum(axis=-1, keepdims=True)
    exact = stationary_distribution(chains)
    monkeypatch.setattr(population, "ITERATED_PLACES", 40)
    np.testing.assert_allclose(stationary_distribution(chains), exact, rtol=1e-7)
    # Where iterations fail, elimination takes over.
    monkeypatch.setattr("scipy.sparse.linalg.gmres", lambda *_, **__: (np.ones(40), 1))
    np.testing.assert_array_equal(stationary_distribution(chains[:1])[0], exact[0])
