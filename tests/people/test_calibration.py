"""Calibrated people are where they should be, go back as often and stay as often as users; and small parts by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from ppmtf_jax.people import calibration
from ppmtf_jax.people.bins import DWELL_FROM, HOME, OTHER, SECOND
from ppmtf_jax.people.calibration import (
    KEPT,
    MIN_PEOPLE,
    _common_odds,
    _expect,
    _Kernel,
    _Times,
    presence,
    share_of_seen_returns,
    simulated_clusters,
)
from ppmtf_jax.people.clusters import population_and_clusters
from ppmtf_jax.people.counts import VisitCounts
from ppmtf_jax.people.fit import fit_people
from ppmtf_jax.people.returns import share_of_returns
from ppmtf_jax.people.space import space_of
from tests.people.person_processes import random_process
from tests.people.towns import CHOICE, PERIOD, clusters_of, commuters, wanderers

N_SIMULATED = 4000


@pytest.fixture(scope="module")
def traces():
    return wanderers()


@pytest.fixture(scope="module")
def plain(traces):
    """People without anchors."""
    return fit_people(traces, clusters_of(traces), CHOICE, anchors=False, seed=0)


def simulated(model, n_instants: int = PERIOD) -> np.ndarray:
    """Traces of many people of cluster 0, then of as many of cluster 1."""
    keys = jax.random.split(jax.random.key(5), 2 * N_SIMULATED)
    users = jnp.repeat(jnp.arange(2), N_SIMULATED)
    return np.asarray(_simulated(model, keys, users, n_instants))


@partial(jax.jit, static_argnames="n_instants")
def _simulated(model, keys: jax.Array, users: jax.Array, n_instants: int) -> jax.Array:
    return jax.vmap(lambda key, user: model.sample_trace(key, user, n_instants))(keys, users)


@pytest.fixture(scope="module")
def places(plain) -> np.ndarray:
    return simulated(plain)


def variation(traces, places: np.ndarray) -> float:
    """Greatest total variation over instants and clusters between simulated people and where they should be."""
    visits, space = VisitCounts.of(traces), space_of(traces.places)
    smoothing = CHOICE.population, CHOICE.clusters
    wanted = population_and_clusters(visits, clusters_of(traces), *smoothing, space, traces.time_grid)[1].visits
    found = [
        [np.bincount(column, minlength=traces.n_places) / N_SIMULATED for column in part.T]
        for part in np.split(places, 2)
    ]
    return np.abs(found - wanted[:, traces.time_grid.slot_of_instant[:PERIOD]]).sum(axis=2).max() / 2


def test_people_are_where_they_should_be(traces, plain, places):
    """Two samples of 4,000 differ by about sqrt(30 places / (2 pi 4000)) = .035; the rest is the simulation's noise."""
    found = variation(traces, places)
    # The bug: pulls that are the same at all times.
    flat = replace(plain, pull=jnp.broadcast_to(plain.pull.mean(axis=0), plain.pull.shape))
    assert found < min(0.15, 0.6 * variation(traces, simulated(flat)))


def test_people_go_back_and_stay_as_often_as_users(traces, plain, places):
    """The strength was found with 800 people, who have some 3,000 moves: standard error .003, five of it."""
    everywhere, weight = np.ones(places.shape, bool), np.ones(len(places))
    wanted = share_of_returns(traces.cut_into_periods().blocks)
    assert share_of_seen_returns(places, everywhere, weight) == pytest.approx(wanted, abs=0.015)
    never = simulated(replace(plain, strength=jnp.float32(1e6)))
    assert abs(share_of_seen_returns(never, everywhere, weight) - wanted) > 0.02
    real = traces.place.reshape(-1, PERIOD)
    assert (places[:, 1:] == places[:, :-1]).mean() == pytest.approx((real[:, 1:] == real[:, :-1]).mean(), abs=0.04)


def test_what_the_last_round_leaves_is_told(plain):
    """The share of returns, and distances: 800 people make about 2,800 moves, in up to 17 bins of distance.

    By chance, the total variation of the distances is about sqrt(2 / pi) / 2 x sqrt(17 / 2,800) = 0.031; twice that.
    """
    returns, distances = np.asarray(plain.residual)
    assert 0 < returns < 5 * 0.5 / np.sqrt(2800)
    assert 0 < distances < 2 * 0.031


def test_the_common_odds_give_the_wanted_share():
    log_odds, weight = jnp.array([-2.0, 0.0, 3.0]), jnp.array([1.0, 2.0, 1.0])
    odds = float(_common_odds(log_odds, weight, jnp.array(0.7)))
    assert (np.array(weight) @ expit(np.array(log_odds) + odds)) / 4 == pytest.approx(0.7, abs=1e-5)
    assert _common_odds(log_odds, 0 * weight, jnp.array(0.7)) == 0


def test_presence_is_that_of_random_windows():
    traces = commuters(n_users=5, n_periods=2, present=0.6)
    windows = traces.cut_into_periods()
    real = set()
    for window in range(windows.trace_of_event().max() + 1):
        row = np.zeros(PERIOD, bool)
        row[windows.instant[windows.trace_of_event() == window] % PERIOD] = True
        real.add(row.tobytes())
    found = presence(traces, 1, 200, np.random.default_rng(0))
    assert {row.tobytes() for row in found} == real


def test_returns_of_people_who_are_seen_at_times():
    """Of 1, 2, 1, 3 with a gap at the second instant: a stay and a move, without a return."""
    places = np.array([[1, 2, 1, 3], [4, 5, 4, 5]])
    seen = np.array([[True, False, True, True], [True, True, True, True]])
    # The second person has weight 2: two returns in three moves. Half of the mean weight is added.
    assert share_of_seen_returns(places, seen, np.array([1.0, 2.0])) == pytest.approx((4 + 0.75) / (1 + 6 + 1.5))


def flows(process, crowd, into, scaling, returning: float, target) -> np.ndarray:
    """People at other places after a step in slot 0, person by person; as the arrays of `_expect`."""
    double = {name: np.asarray(value, np.float64) for name, value in process.to_arrays().items()}
    near = double["between"][np.ix_(process.cell, process.cell)]
    weight = double["leaving"][0][:, None] * near * double["arriving"][0]
    begin = np.asarray(process.move_start)
    for place in range(process.n_places):
        moves = slice(begin[place], begin[place + 1])
        weight[place, process.next_place[moves]] += double["seen"][0, moves]
    np.fill_diagonal(weight, 0)
    after = np.zeros(crowd.shape)
    for group, cluster, place in np.ndindex(crowd.shape[0], *crowd.shape[2:]):
        own = crowd[:, :, cluster].sum()
        share = double["class_share"][cluster, group]
        going = weight[place] * scaling[cluster]
        at_anchor = into[cluster, HOME] * double["home"][cluster, place]
        at_anchor += into[cluster, SECOND] * double["second"][cluster, place]
        moves = [share * at_anchor]
        for dwell in range(crowd.shape[1]):
            people = into[cluster, OTHER] * crowd[group, dwell, cluster, place] / own
            stay = expit(double["stay"][0, place] + double["stay_by_class"][group] + double["stay_by_dwell"][dwell])
            all_ways = stay * scaling[cluster, place] + (1 - stay) * going.sum()
            stays = people * stay * scaling[cluster, place] / all_ways
            moves.append(people - stays)
            after[group, dwell, cluster, place] += stays * KEPT[dwell]
            after[group, min(dwell + 1, len(KEPT) - 1), cluster, place] += stays * (1 - KEPT[dwell])
        new = (1 - returning) * going / going.sum() + returning * target[cluster]
        after[group, 0, cluster] += sum(moves) * new
    return after


def test_expected_people_are_those_of_all_flows_and_have_the_target_distribution(monkeypatch):
    monkeypatch.setattr(calibration, "TOLERANCE", 1e-6)
    monkeypatch.setattr(calibration, "MAX_SCALINGS", 500)
    process, rng = random_process(n_places=5, seed=3), np.random.default_rng(1)
    crowd = rng.random((2, len(DWELL_FROM), 2, 5)).astype(np.float32)
    target = (1 + rng.random((2, 5)).astype(np.float32)) / 10
    target /= target.sum(axis=1, keepdims=True)
    into = np.array([[0.2, 0.1, 0.5], [0.3, 0.2, 0.1]], np.float32)
    ones = jnp.ones(target.shape)
    old = _Times(ones, 0 * ones, jnp.zeros(()), ones)
    kernel = _Kernel(
        process, jnp.array(0), jnp.asarray(np.append(np.repeat(np.arange(5), np.diff(process.move_start)), 4))
    )
    given = (
        process,
        kernel,
        jnp.asarray(target),
        jnp.array(0),
        old,
        jnp.array(0.3),
        jnp.asarray(crowd),
        jnp.asarray(into),
    )
    after, scaling, going = (np.asarray(each, np.float64) for each in _expect(*given))
    np.testing.assert_allclose(after, flows(process, crowd, into, scaling, 0.3, target), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(after.sum(axis=(0, 1)), into.sum(axis=1)[:, None] * target, rtol=1e-4)
    np.testing.assert_allclose(going, kernel.from_next(jnp.asarray(scaling, jnp.float32)), rtol=1e-5)
    # The bug: returns are forgotten.
    assert np.abs(after - flows(process, crowd, into, scaling, 0.0, target)).max() > 1e-3


@pytest.mark.parametrize(("n_clusters", "n_rounded"), [(1, 1), (13, 16), (16, 16), (49, 64), (161, 192)])
def test_each_cluster_has_equally_many_simulated_people_and_their_total_depends_only_on_the_rounded_number(
    n_clusters: int, n_rounded: int
) -> None:
    found = np.bincount(simulated_clusters(n_clusters, n_rounded, 8000), minlength=n_rounded)
    assert len(set(found[:n_clusters].tolist())) == 1
    assert found.sum() == len(simulated_clusters(n_rounded, n_rounded, 8000))
    # The rest.
    assert found[n_clusters:].sum() < n_clusters
    assert found[0] >= MIN_PEOPLE
