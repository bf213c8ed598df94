"""The choice of what synthetic people remember, and the score of the chain, against loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.bridge.clusters import Clusters, ClusterSmoothing
from ppmtf_jax.bridge.people.law import MAX_REMEMBERED
from ppmtf_jax.bridge.people.trails import number_of_places, table_of
from ppmtf_jax.bridge.selection import MEMORIES, MIN_USERS, Selection, choose_memory, memory_sentence, remembered
from ppmtf_jax.bridge.user_bounds import CHECKIN_RULES, MOVE_RULE, PEOPLE_RULES, RULES
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.settings import build_settings, parse_assignments
from ppmtf_jax.synthesizers import bridge_model
from ppmtf_jax.synthesizers.bridge_model import ClusterBridge, held_out
from ppmtf_jax.synthesizers.systems.bridge import BridgeSettings, chains_and_clusters, claims
from ppmtf_jax.trace_models.base import ABSENT
from tests.bridge.checkins.test_model import ARRAYS
from tests.bridge.examples import GRID, MOVES, N_PLACES, PERIOD, POPULATION, people, place_table, traces_of
from tests.bridge.people.laws import random_law
from tests.trace_models.agreement import log_rows

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
    choice = choose_memory(
        train, np.zeros(train.n_users, int), gains_of(*per_user), MAX_REMEMBERED, np.random.default_rng(0)
    )
    assert choice.memory == memory
    assert choice.gain[0] == 0
    # 15 held-out users with a spread of half of them up, half of them down: seven up, eight down.
    n_events = choice.gain[2] / choice.gain[1]
    assert n_events == pytest.approx((15 * per_user[2] - 0.5) / (15 * per_user[1] - 0.5))


def test_too_few_users_remember_nothing():
    train = people(MIN_USERS - 1)
    choice = choose_memory(train, np.zeros(train.n_users, int), pytest.fail, MAX_REMEMBERED, np.random.default_rng(0))
    assert choice == ("none", None)
    assert memory_sentence(*choice) == "People remember nothing; nothing else was compared"


def test_traces_are_compared_up_to_the_last_place_that_a_person_can_remember():
    train = people()
    np.testing.assert_array_equal(remembered(train, MAX_REMEMBERED).place, train.place)
    expected = []
    for (user, trace), events in train.to_frame().groupby(["user", "trace"]):
        for n, instant in enumerate(events["instant"]):
            if events["place"].iloc[: n + 1].nunique() <= 2:
                expected.append((user, trace, instant))
    found = remembered(train, 2).to_frame()
    assert 0 < len(found) < train.n_events
    assert list(found[["user", "trace", "instant"]].itertuples(index=False, name=None)) == expected


def test_a_person_with_more_places_than_can_be_remembered_does_not_decide():
    """Under people who remember, her whole trace would be impossible."""
    train, longest = people(), []

    def score(memory, learned, of_learned, held_out):
        longest.append(number_of_places(table_of(held_out)[0]).max())
        return np.full(held_out.n_users, float(MEMORIES.index(memory)))

    choose_memory(train, np.zeros(train.n_users, int), score, 2, np.random.default_rng(0))
    assert longest == [2] * len(MEMORIES)


def test_a_table_of_traces_has_a_row_for_each_period():
    train = people()
    places, user = table_of(train)
    assert places.shape == (2 * train.n_users, PERIOD)
    assert (places != ABSENT).sum() == train.n_events
    row, phase = np.nonzero(places != ABSENT)
    np.testing.assert_array_equal(user[row], train.user)
    np.testing.assert_array_equal(phase, train.instant % PERIOD)
    np.testing.assert_array_equal(places[row, phase], train.place)


class Scored(NamedTuple):
    """A chain of two clusters, traces with gaps, and the transition matrices of each cluster by phase."""

    chain: ClusterBridge
    clusters: Clusters
    traces: Traces
    steps: np.ndarray


@pytest.fixture(scope="module")
def scored() -> Scored:
    train = people()
    of_user = np.arange(train.n_users, dtype=np.int32) % 2
    chain, clusters = chains_and_clusters(train, of_user, Selection(POPULATION, MOVES, CLUSTERS))
    steps = [np.exp(log_rows(chain, jnp.asarray(user), PERIOD, N_PLACES)[1]) for user in (0, 1)]
    first = np.ones((2, 1, N_PLACES, N_PLACES))  # no step leads to the first instant
    return Scored(chain, clusters, people(8, seed=4).cut_into_periods(), np.concatenate([first, np.stack(steps)], 1))


def by_a_loop(scored: Scored, after_gap: Callable[..., float]) -> np.ndarray:
    """Score of each user; `after_gap(cluster, phases of the gap, place before, place, share of the place)`."""
    traces, visits = scored.traces, scored.clusters.visits
    log = np.zeros((traces.n_users, 2))
    for cluster in range(2):
        before, last = (-1, -1), (-1, -1)
        for user, trace, instant, place in zip(traces.user, traces.trace, traces.instant, traces.place, strict=True):
            period, phase = divmod(int(instant), PERIOD)
            share = visits[cluster, GRID.slot_of_instant[instant], place]
            if before != (user, trace, period):
                log[user, cluster] += np.log(share)
            elif last[0] == phase - 1:
                log[user, cluster] += np.log(scored.steps[cluster, phase, last[1], place])
            else:
                log[user, cluster] += np.log(after_gap(cluster, range(last[0] + 1, phase + 1), last[1], place, share))
            before, last = (user, trace, period), (phase, place)
    return logsumexp(log + np.log(scored.clusters.share), axis=1)


@pytest.mark.parametrize("steps_at_a_time", [7, 4096])
def test_the_score_of_a_chain_equals_a_loop(scored, monkeypatch, steps_at_a_time):
    monkeypatch.setattr(bridge_model, "STEPS_AT_A_TIME", steps_at_a_time)

    def stays_or_not(cluster: int, gap: range, last: int, place: int, share: float) -> float:
        stays = np.prod([scored.steps[cluster, phase, last, last] for phase in gap])
        return stays * (last == place) + (1 - stays) * share

    found = held_out(*scored[:3])
    np.testing.assert_allclose(found, by_a_loop(scored, stays_or_not), rtol=1e-5)
    # The planted bug: the score of the cluster's visits alone.
    assert np.abs(found - by_a_loop(scored, lambda *given: given[-1])).max() > 0.1


def drawn_with_gaps(scored: Scored, n_users: int = 200) -> Traces:
    """Traces of the chains, two of each user, of which half of the events are missing."""
    rng, places = np.random.default_rng(2), np.empty((n_users, GRID.n_instants), int)
    for user, instant in np.ndindex(places.shape):
        cluster, phase = user % 2, instant % PERIOD
        start = scored.clusters.visits[cluster, GRID.slot_of_instant[0]]
        law = start if phase == 0 else scored.steps[cluster, phase, places[user, instant - 1]]
        places[user, instant] = rng.choice(N_PLACES, p=law / law.sum())
    return traces_of(places, rng.random(places.shape) < 0.5, place_table()).cut_into_periods()


def test_the_score_after_a_gap_is_between_that_of_visits_alone_and_the_exact_one(scored):
    """The exact probability is an entry of the product of the transition matrices of the gap."""
    scored = scored._replace(traces=drawn_with_gaps(scored))

    def exact(cluster: int, gap: range, last: int, place: int, share: float) -> float:
        del share
        return reduce(np.matmul, scored.steps[cluster, gap.start : gap.stop])[last, place]

    found, right = held_out(*scored[:3]).sum(), by_a_loop(scored, exact).sum()
    alone = by_a_loop(scored, lambda *given: given[-1]).sum()
    assert alone < found < right
    # These people move often, so that the way back to a place in two steps, which the score leaves out, is not rare.
    assert right - found < (right - alone) / 2


def test_a_memory_is_refused_for_traces_with_gaps():
    with pytest.raises(InputError, match=r"memory only with gaps.*found memory = 'places'.*Leave memory out"):
        BridgeSettings(memory="places", gaps="as-observed")


@pytest.mark.parametrize("text", ["memory=none", 'memory="none"', "memory=None"])
def test_no_memory_can_be_asked_for_in_words(text):
    settings = build_settings(BridgeSettings, parse_assignments([text, "n_clusters=none"], "bridge"), "bridge")
    assert settings == BridgeSettings(memory="none")


def test_a_release_states_the_rules_of_the_model_that_made_it():
    of_checkins = (*(rule for rule in RULES if rule != MOVE_RULE), *CHECKIN_RULES)
    assert len(of_checkins) == len(RULES) - 1 + len(CHECKIN_RULES)
    for model, rules in (
        (random_law(), (*RULES, *PEOPLE_RULES)),
        (CheckinBridge.from_arrays(ARRAYS), of_checkins),
    ):
        stated = claims(model, BridgeSettings())
        assert stated.rules == rules
        assert "the smallest has" in stated.not_protected[0]
