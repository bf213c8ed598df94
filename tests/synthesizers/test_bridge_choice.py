"""The choice of what synthetic people remember, and the score of the chain, against loops."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.bridge.clusters import Clusters
from ppmtf_jax.bridge.contributions import CHECKIN_RULES, PEOPLE_RULES, RULES
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoothing
from ppmtf_jax.bridge.people.choice import MEMORIES, memory_sentence
from ppmtf_jax.bridge.tuning import BridgeChoice
from ppmtf_jax.errors import InputError
from ppmtf_jax.settings import build_settings, parse_assignments
from ppmtf_jax.synthesizers import bridge_choice
from ppmtf_jax.synthesizers.bridge import BridgeSettings, claims, fit_to_clusters
from ppmtf_jax.synthesizers.bridge_choice import LEAST_USERS, chain_log_likelihood, choose_memory, table_of
from ppmtf_jax.trace_models.base import ABSENT
from tests.bridge.checkins.test_model import ARRAYS
from tests.bridge.examples import GRID, MOVES, N_PLACES, PERIOD, POPULATION, people
from tests.bridge.people.laws import random_law

CLUSTERS = ClusterSmoothing(2, 0.0, 3.0, 1.0)


def gains_of(*per_user: float):
    """A score that gives each held-out user a number for each memory, with a small spread."""

    def score(memory, learned, of_learned, held_out):
        assert not set(learned.user_ids) & set(held_out.user_ids)
        assert len(of_learned) == learned.n_users
        assert held_out.n_users == people().n_users // 4
        spread = np.where(np.arange(held_out.n_users) % 2, 0.5, -0.5) * (memory != "none")
        return np.full(held_out.n_users, per_user[MEMORIES.index(memory)]) + spread

    return score


@pytest.mark.parametrize(
    ("per_user", "memory"),
    [((0, -1, -2), "none"), ((0, 1, 0.99), "places"), ((0, 1, 3), "anchors"), ((0, 0.01, 0.02), "none")],
)
def test_the_simplest_memory_within_one_error_of_the_best_is_chosen(per_user, memory):
    train = people()
    choice = choose_memory(train, np.zeros(train.n_users, int), gains_of(*per_user), np.random.default_rng(0))
    assert choice.memory == memory
    assert choice.gain[0] == 0
    # 15 held-out users with a spread of half of them up, half of them down: seven up, eight down.
    n_events = choice.gain[2] / choice.gain[1]
    assert n_events == pytest.approx((15 * per_user[2] - 0.5) / (15 * per_user[1] - 0.5))


def test_too_few_users_remember_nothing():
    train = people(LEAST_USERS - 1)
    choice = choose_memory(train, np.zeros(train.n_users, int), pytest.fail, np.random.default_rng(0))
    assert choice == ("none", None)
    assert memory_sentence(*choice) == "People remember nothing; nothing else was compared"


def test_a_table_of_traces_has_a_row_for_each_period():
    train = people()
    places, user = table_of(train)
    assert places.shape == (2 * train.n_users, PERIOD)
    assert (places != ABSENT).sum() == train.n_events
    row, phase = np.nonzero(places != ABSENT)
    np.testing.assert_array_equal(user[row], train.user)
    np.testing.assert_array_equal(phase, train.instant % PERIOD)
    np.testing.assert_array_equal(places[row, phase], train.place)


def test_the_score_of_a_chain_equals_a_loop(monkeypatch):
    train = people()
    of_user = np.arange(train.n_users, dtype=np.int32) % 2
    choice = BridgeChoice(POPULATION, MOVES, CLUSTERS, {})
    chain = fit_to_clusters(train, of_user, choice)
    rng = np.random.default_rng(1)
    visits = rng.dirichlet(np.ones(N_PLACES), (2, GRID.n_slots))
    clusters = Clusters(of_user, np.array([0.3, 0.7]), visits)
    traces = people(8, seed=4).cut_into_periods()
    log = np.zeros((traces.n_users, 2))
    log_next = jax.jit(chain.log_next)
    for cluster in range(2):
        cache = chain.user_cache(jnp.asarray([cluster]))[0]
        before, last = None, None
        for user, trace, instant, place in zip(traces.user, traces.trace, traces.instant, traces.place, strict=True):
            phase = instant % PERIOD
            if before == (user, trace, instant - 1):
                log[user, cluster] += float(log_next(cache, phase, last, place))
            else:
                log[user, cluster] += np.log(visits[cluster, GRID.slot_of_instant[instant], place])
            before, last = (user, trace, instant), place
    for steps_at_a_time in (7, 4096):
        monkeypatch.setattr(bridge_choice, "STEPS_AT_A_TIME", steps_at_a_time)
        found = chain_log_likelihood(chain, clusters, traces)
        np.testing.assert_allclose(found, logsumexp(log + np.log([0.3, 0.7]), axis=1), rtol=1e-5)


def test_a_memory_is_refused_for_traces_with_gaps():
    with pytest.raises(InputError, match=r"memory only with gaps.*found memory = 'places'.*Leave memory out"):
        BridgeSettings(memory="places", gaps="as-observed")


@pytest.mark.parametrize("text", ["memory=none", 'memory="none"', "memory=None"])
def test_no_memory_can_be_asked_for_in_words(text):
    settings = build_settings(BridgeSettings, parse_assignments([text, "n_clusters=none"], "bridge"), "bridge")
    assert settings == BridgeSettings(memory="none")


def test_a_release_states_the_rules_of_the_model_that_made_it():
    for model, rules in ((random_law(), PEOPLE_RULES), (CheckinBridge.from_arrays(ARRAYS), CHECKIN_RULES)):
        stated = claims(model, BridgeSettings())
        assert stated.protected == (*RULES, *rules)
        assert "the smallest has" in stated.not_protected[0]
