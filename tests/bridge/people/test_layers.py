"""Chains of layers: people are in each layer as users are, and stay at their anchors as often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.bridge.people.anchors import NOWHERE, Anchors
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.bridge.people.layers import PRIOR_EVENTS, SECOND_USERS, Layers, fit_layers
from ppmtf_jax.bridge.visits import VisitCounts
from tests.bridge.people.towns import PERIOD, clusters_of, commuters


@pytest.fixture(scope="module")
def traces():
    return commuters(n_users=400, n_periods=2)


@pytest.fixture(scope="module")
def anchors(traces):
    return Anchors.of(VisitCounts.of(traces))


@pytest.fixture(scope="module")
def layers(traces, anchors):
    return fit_layers(traces, anchors, clusters_of(traces))


def test_a_step_leads_to_the_layers_of_the_next_instant(layers):
    before = np.roll(layers.at, 1, axis=2)
    np.testing.assert_allclose(np.einsum("hkti,hktij->hktj", before, layers.next), layers.at, atol=1e-3)
    np.testing.assert_allclose(layers.next.sum(axis=-1), 1, rtol=1e-6)
    assert (layers.at[0, :, :, SECOND] == 0).all()


def test_people_are_in_each_layer_as_users_are(traces, anchors, layers):
    """The counts of a cluster weigh as many events; the rest is the prior's."""
    layer, has_second = anchors.layer(traces.user, traces.place), anchors.second[traces.user] != NOWHERE
    cluster, phase = clusters_of(traces)[traces.user], traces.instant % PERIOD
    for kind in (0, 1):
        for k in (0, 1):
            for time in range(PERIOD):
                chosen = layer[(has_second == kind) & (cluster == k) & (phase == time)]
                share = np.bincount(chosen, minlength=3) / len(chosen)
                most = PRIOR_EVENTS / (PRIOR_EVENTS + len(chosen))
                assert np.abs(layers.at[kind, k, time] - share).sum() / 2 <= most


def test_people_stay_at_anchors_as_users_do(traces, anchors, layers):
    """Of all steps of the period, within the smoothing over instants; the chain without raised odds is the twin."""
    layer, arrival = anchors.layer(traces.user, traces.place), np.flatnonzero(traces.is_step())
    stays = (layer[arrival] == layer[arrival - 1]) & (layer[arrival] != ELSEWHERE)
    cluster = clusters_of(traces)
    people = np.bincount(cluster) * np.stack([1 - layers.second_share, layers.second_share]) / len(cluster)
    joint = np.roll(layers.at, 1, axis=2)[..., None] * layers.next
    found = np.einsum("hk,hkt->", people, joint[..., HOME, HOME] + joint[..., SECOND, SECOND]) / PERIOD
    assert found == pytest.approx(stays.mean(), abs=0.03)
    independent = np.roll(layers.at, 1, axis=2)[..., None] * layers.at[..., None, :]
    twin = np.einsum("hk,hkt->", people, independent[..., HOME, HOME] + independent[..., SECOND, SECOND]) / PERIOD
    assert abs(twin - stays.mean()) > 0.05


def test_second_places_are_as_frequent_as_in_the_cluster(traces, anchors, layers):
    has_second = anchors.second != NOWHERE
    of_cluster = has_second[clusters_of(traces) == 1]
    expected = (of_cluster.sum() + SECOND_USERS * has_second.mean()) / (len(of_cluster) + SECOND_USERS)
    assert layers.second_share[1] == pytest.approx(expected)


def test_a_user_with_many_traces_weighs_no_more_than_the_second(traces, anchors, layers, monkeypatch):
    """User 0 repeats her trace a hundred times; others have at most two events in a layer at an instant.

    So she adds at most two to a count, and less than 2 / (20 + 100) to a share of at least 100 events.
    """
    of_user = np.flatnonzero(traces.user == 0)
    repeated = np.concatenate([np.tile(of_user, 100), np.flatnonzero(traces.user != 0)])
    number = np.concatenate([np.repeat(np.arange(100), len(of_user)), traces.trace[traces.user != 0]]).astype(np.int32)
    columns = {name: getattr(traces, name)[repeated] for name in ("user", "instant", "place")}
    many = replace(traces, trace=number, **columns)

    def change() -> float:
        return float(np.abs(fit_layers(many, anchors, clusters_of(traces)).at - layers.at).max())

    assert change() < 2 / 120
    monkeypatch.setattr("ppmtf_jax.bridge.contributions._Weights.bounded", lambda weights, groups: weights.weight)
    assert change() > 0.1


def test_without_anchors_everybody_is_elsewhere():
    layers = Layers.always_elsewhere(2, 3)
    assert (layers.at[..., ELSEWHERE] == 1).all()
    assert (layers.next[..., ELSEWHERE] == 1).all()
    assert layers.next.sum() == 2 * 2 * 3 * 3


def test_people_who_never_leave_home():
    still = commuters(n_users=10)
    still = replace(still, place=np.repeat(still.place[::PERIOD], PERIOD))
    anchors = Anchors.of(VisitCounts.of(still))
    layers = fit_layers(still, anchors, np.zeros(10, int))
    assert (anchors.second == NOWHERE).all()
    assert (layers.second_share == 0).all()
    assert layers.at[0, :, :, HOME].min() > 0.999
