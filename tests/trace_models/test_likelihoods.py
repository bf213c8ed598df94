"""Likelihoods of traces, written once for every model."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import synthesize
from ppmtf_jax.trace_models import likelihoods
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from tests.trace_models.examples import (
    INSTANTS,
    PLACES,
    USERS,
    ChainOfEach,
    fitted,
    random_chains,
    random_class_model,
    random_training,
)
from tests.trace_models.pairs import pairwise_log_likelihood


@pytest.fixture(scope="module")
def train() -> Traces:
    return random_training()


@pytest.fixture(scope="module")
def chains() -> FittedModel:
    return fitted("ppmtf", random_chains())


def test_likelihoods_of_all_pairs_are_those_of_each_trace(chains):
    model, synthetic = chains.trace_model, synthesize(chains, traces_per_user=1, seed=2)
    places = synthetic.place.reshape(USERS, INSTANTS)
    pairs = pairwise_log_likelihood(model, np.arange(USERS), places[:8])
    assert pairs.shape == (8, USERS)
    for trace in range(8):
        own = step_log_probabilities(model, np.arange(USERS), np.repeat(places[trace : trace + 1], USERS, axis=0))
        np.testing.assert_allclose(pairs[trace], own.sum(axis=1), rtol=1e-5)


def test_likelihoods_do_not_depend_on_order_and_batch(chains):
    places = synthesize(chains, traces_per_user=2, seed=2).place.reshape(-1, INSTANTS)
    users = np.repeat(np.arange(USERS), 2)
    expected = step_log_probabilities(chains.trace_model, users, places)
    shuffled = np.random.default_rng(0).permutation(len(users))
    ours = step_log_probabilities(chains.trace_model, users[shuffled], places[shuffled])
    np.testing.assert_allclose(ours, expected[shuffled], rtol=1e-6)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("n_classes", [1, 2, USERS - 1, 10 * USERS])
@pytest.mark.parametrize("traces_at_a_time", [7, 4096])
def test_one_user_of_each_class_is_asked_for_all(n_classes, traces_at_a_time, monkeypatch):
    """Others cannot answer, and the size of blocks changes nothing."""
    monkeypatch.setattr(likelihoods, "TRACES_AT_A_TIME", traces_at_a_time)
    monkeypatch.setattr(likelihoods, "USERS_AT_A_TIME", 16)  # several tiles of users
    rng = np.random.default_rng(n_classes)
    class_of_user = rng.permutation(np.arange(USERS) % n_classes)
    model = random_class_model(rng, class_of_user, PLACES)
    users, places = rng.integers(USERS, size=40), rng.integers(PLACES, size=(40, INSTANTS))
    each = ChainOfEach(model.first[:, class_of_user], model.next[..., class_of_user])
    ours = step_log_probabilities(model, likelihoods.representatives(model, USERS)[users], places)
    np.testing.assert_allclose(ours, step_log_probabilities(each, users, places), rtol=1e-14)
    expected = np.log(np.asarray(each.next)[places[:, :-1], places[:, 1:], users[:, None]])
    np.testing.assert_allclose(ours[:, 1:], expected, rtol=1e-12)
