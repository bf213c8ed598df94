"""Likelihoods of traces, written once for every model."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import synthesize
from ppmtf_jax.trace_models.likelihoods import pairwise_log_likelihood, step_log_probabilities
from tests.trace_models.examples import (
    INSTANTS,
    USERS,
    fitted,
    random_chains,
    random_training,
)


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
