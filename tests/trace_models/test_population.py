"""The population's transition matrix, and that noise covers one user's part in it."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.tensors import SparseCounts, Trimming, count_tensors
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.synthesizers import population
from ppmtf_jax.trace_models.population import population_transitions

TRIMMING = Trimming(max_transitions=3, max_count=2)


def test_counts_of_all_users_are_smoothed_by_one_step_for_each_place():
    columns = np.array([[0, 0, 1, 2], [1, 0, 1, 1], [1, 1, 2, 3]], np.int32)
    user, place, after, count = columns.T
    matrix = population_transitions(SparseCounts(user, place, after, count, (2, 3, 3)))
    counts = np.array([[0, 3, 0], [0, 0, 3], [0, 0, 0]])
    share = (np.array([0, 3, 3]) + 1) / (6 + 3)
    expected = np.stack([(row + share) / (row.sum() + 1) for row in counts])
    np.testing.assert_allclose(matrix, expected, rtol=1e-12)


@pytest.fixture(scope="module")
def traces():
    return toy_city(n_users=12, n_places=8, n_days=2, seed=0).traces


def total(transitions: SparseCounts) -> np.ndarray:
    counts = np.zeros(transitions.shape[1:], int)
    np.add.at(counts, (transitions.place, transitions.other), transitions.count)
    return counts


def test_one_user_more_changes_the_counts_by_no_more_than_the_sensitivity(traces, monkeypatch):
    """Brute force over every user left out. Which cells the others keep is random and independent of who is there."""
    monkeypatch.setattr(population, "add_laplace", lambda values, *noise: asked.append(noise) or values)
    asked: list = []
    transitions = count_tensors(traces, TRIMMING, seed=0).transitions
    population_transitions(transitions, TRIMMING, epsilon=0.5)
    ((sensitivity, epsilon),) = asked
    assert (sensitivity, epsilon) == (3 * 2, 0.5)
    whole, changes = total(transitions), []
    for user in range(traces.n_users):
        keep = transitions.user != user
        columns = (transitions.user, transitions.place, transitions.other, transitions.count)
        without = SparseCounts(*(column[keep] for column in columns), transitions.shape)
        changes.append(np.abs(whole - total(without)).sum())
    assert 0 < max(changes) <= sensitivity
    # Twin: without trimming a user's part exceeds it.
    free = count_tensors(traces, Trimming(None, None, None)).transitions
    assert np.bincount(free.user, free.count).max() > sensitivity


def test_what_is_no_larger_than_noise_is_not_kept(traces, monkeypatch):
    transitions = count_tensors(traces, TRIMMING, seed=0).transitions
    exact = population_transitions(transitions)
    np.testing.assert_allclose(population_transitions(transitions, TRIMMING, epsilon=1e4), exact, rtol=1e-12)
    largest = 6 / 0.5 * np.log(100 * 64)
    monkeypatch.setattr(population, "add_laplace", lambda values, *_: np.full_like(values, int(largest)))
    np.testing.assert_allclose(population_transitions(transitions, TRIMMING, epsilon=0.5), 1 / 8, rtol=1e-12)
