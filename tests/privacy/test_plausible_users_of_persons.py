"""The test of traces of persons against a double loop over traces and users."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.errors import NumericalError
from ppmtf_jax.people.model import CheckinBridge
from ppmtf_jax.privacy import plausible_users as tested
from ppmtf_jax.privacy.plausible_deniability import choose_verifiers, plausible_deniability_test
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.people.checkin_processes import random_arrays
from tests.privacy.examples import brute_force_count
from tests.trace_models.examples import PLACES, USERS, random_training
from tests.trace_models.persons import HomeLovers, log_probability_by_loop, random_persons, registered_persons

N_CLUSTERS = 3
SIZES = [24, 23, 23]


@pytest.fixture(scope="module", autouse=True)
def registered():
    with registered_persons():
        yield


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return fit(random_training(), "persons", seed=0)


@pytest.fixture(scope="module")
def synthetic(model):
    return synthesize(model, traces_per_user=2, seed=1)


@pytest.fixture(scope="module")
def likelihoods(model, synthetic) -> np.ndarray:
    """Of every trace under every user, shape (traces, users)."""
    rows = complete_places(model, synthetic)[1].tolist()
    of_clusters = [[log_probability_by_loop(model.trace_model, row, k) for k in range(N_CLUSTERS)] for row in rows]
    return np.array(of_clusters)[:, np.arange(USERS) % N_CLUSTERS]


INPUT_USERS = np.repeat(np.arange(USERS), 2)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[int, list[int]]]:
    """Numbers of traces and classes whose probabilities were computed."""
    calls = []
    log_traces = HomeLovers.log_traces

    def noted(self, places, classes, *, progress=False):
        calls.append((len(places), classes.tolist()))
        return log_traces(self, places, classes, progress=progress)

    monkeypatch.setattr(HomeLovers, "log_traces", noted)
    return calls


@pytest.mark.parametrize("eta", [0.05, 1.0])
def test_counts_are_those_of_a_double_loop(monkeypatch, model, synthetic, likelihoods, eta):
    monkeypatch.setattr(tested, "NUMBERS_AT_A_TIME", 100)
    result = plausible_deniability_test(model, synthetic, k=3, eta=eta, count_all=True)
    np.testing.assert_allclose(
        result.log_likelihood, likelihoods[np.arange(2 * USERS), INPUT_USERS], rtol=1e-6, atol=1e-6
    )
    expected = brute_force_count(likelihoods, INPUT_USERS, set(range(USERS)), eta)
    np.testing.assert_array_equal(result.plausible_users, expected)
    assert len(set(expected)) > 2
    assert (result.table["verifiers"] == USERS).all()


def test_only_the_own_class_is_computed_if_it_is_enough(model, synthetic, likelihoods, asked):
    result = plausible_deniability_test(model, synthetic, k=23)
    assert result.passed.all()
    assert (result.plausible_users == 23).all()
    assert (result.table["verifiers"] == 0).all()
    assert sorted(classes for _, classes in asked) == [[0], [1], [2]]
    assert sum(n_traces for n_traces, _ in asked) == 2 * USERS
    asked.clear()
    # The first class alone has 24 users; traces of the others need more.
    result = plausible_deniability_test(model, synthetic, k=24)
    assert asked[N_CLUSTERS:] == [(2 * sum(SIZES[1:]), [0, 1, 2])]
    whole = np.array(brute_force_count(likelihoods, INPUT_USERS, set(range(USERS)), 1.0))
    np.testing.assert_array_equal(result.passed, whole >= 24)
    assert 0 < result.passed.mean() < 1


@pytest.mark.parametrize("n_verifiers", [4, 30])
def test_a_subset_of_verifiers_and_always_the_input_user_once(model, synthetic, likelihoods, n_verifiers):
    verifiers = set(choose_verifiers(USERS, n_verifiers, 3).tolist())
    result = plausible_deniability_test(model, synthetic, k=2, n_verifiers=n_verifiers, seed=3, count_all=True)
    expected = brute_force_count(likelihoods, INPUT_USERS, verifiers, 1.0)
    np.testing.assert_array_equal(result.plausible_users, expected)


def test_the_bins_are_those_of_double_precision(model, synthetic, likelihoods):
    """At this eta, single precision puts many probabilities into another bin."""
    eta = 1e-6
    result = plausible_deniability_test(model, synthetic, eta=eta, count_all=True)
    double = model.trace_model.log_traces(complete_places(model, synthetic)[1], np.arange(N_CLUSTERS))
    own = double[np.arange(2 * USERS), INPUT_USERS % N_CLUSTERS]
    same = np.floor(-double / eta) == np.floor(-own / eta)[:, None]
    np.testing.assert_array_equal(result.plausible_users, same @ SIZES)


def test_traces_that_the_model_never_makes_are_errors(model, synthetic):
    never = replace(model, trace_model=replace(model.trace_model, home=jnp.zeros_like(model.trace_model.home)))
    with pytest.raises(NumericalError, match="impossible under their own input user"):
        plausible_deniability_test(never, never.claim(synthetic))
    nowhere = model.trace_model.home.at[0].set(jnp.nan)
    broken = replace(model, trace_model=replace(model.trace_model, home=nowhere))
    with pytest.raises(NumericalError, match=r"\d+ traces are impossible|not numbers"):
        plausible_deniability_test(broken, broken.claim(synthetic), count_all=True)


def test_one_class_alone_is_never_compared(asked):
    persons = random_persons(n_clusters=1)
    model = replace(fit(random_training(), "persons", seed=0), trace_model=persons)
    result = plausible_deniability_test(model, synthesize(model, seed=1), count_all=True)
    assert (result.plausible_users == USERS).all()
    assert asked == [(USERS, [0])]


@pytest.mark.parametrize("model", [random_persons(), CheckinBridge.from_arrays(random_arrays(3, per_day=2, n_days=3))])
def test_the_likelihood_under_the_own_class_is_that_among_all(model):
    n_places, n_instants = (PLACES, 3) if isinstance(model, HomeLovers) else (3, 6)
    places = np.random.default_rng(0).integers(-1, n_places, (40, n_instants)).astype(np.int32)
    places[:, 0] = 0
    classes = np.unique(model.user_classes(USERS))
    own_class = np.random.default_rng(1).choice(classes, 40)
    expected = model.log_traces(places, classes)[np.arange(40), own_class]
    np.testing.assert_allclose(model.log_own_class(places, own_class), expected, rtol=1e-12)
