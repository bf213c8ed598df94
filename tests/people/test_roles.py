"""Homes and second places: found as by counting, told only of enough users, and as far from each other as users'."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.people.attraction import distance_bins
from ppmtf_jax.people.bins import HOME, OTHER, SECOND
from ppmtf_jax.people.counts import VisitCounts
from ppmtf_jax.people.roles import (
    MAX_SECOND,
    NOWHERE,
    PRIOR_EVENTS,
    SECOND_USERS,
    Anchors,
    anchor_distribution,
    couple,
    fit_roles,
    pair_anchors,
)
from ppmtf_jax.people.space import space_of
from tests.people.examples import place_table
from tests.people.towns import CHOICE, N_PLACES, PERIOD, at_one_point, clusters_of, commuters


@pytest.fixture(scope="module")
def traces():
    return commuters(n_users=400, n_periods=2, present=0.9)


@pytest.fixture(scope="module")
def anchors(traces):
    return Anchors.of(VisitCounts.of(traces))


def test_anchors_are_the_most_visited_places(traces, anchors):
    for user in range(traces.n_users):
        places = traces.place[traces.user == user].tolist()
        ranked = sorted(Counter(places).items(), key=lambda item: (-item[1], item[0]))
        home, second = [*ranked, (NOWHERE, 0)][:2]
        assert anchors.home[user] == (home[0] if home[1] >= 2 else NOWHERE)
        assert anchors.second[user] == (second[0] if second[1] >= max(2, 0.08 * len(places)) else NOWHERE)
    role = anchors.role(traces.user, traces.place)
    home, second = traces.place == anchors.home[traces.user], traces.place == anchors.second[traces.user]
    np.testing.assert_array_equal(role, np.select([home, second], [HOME, SECOND], OTHER))


def test_one_event_is_no_anchor():
    visits = VisitCounts.of(commuters(n_users=3))
    once = VisitCounts(
        np.arange(2), np.zeros(2, int), np.array([1, 2]), np.array([1, 2.0]), n_users=2, n_slots=1, n_places=3
    )
    assert Anchors.of(once).home.tolist() == [NOWHERE, 2]
    assert (Anchors.of(visits).home >= 0).all()


def homes_of(n_at_place: list[int], *, visited: np.ndarray) -> np.ndarray:
    """Distribution of the homes of one cluster."""
    home = np.repeat(np.arange(len(n_at_place)), n_at_place)
    space = space_of(place_table(len(visited)))
    return anchor_distribution(home, np.zeros(len(home), int), visited, space, CHOICE)[0]


def test_the_home_of_a_single_user_is_no_home():
    """Of u users u - 1 count; what is left out is spread as visits are."""
    visited = np.array([0.5, 0.3, 0.19, 0.01])
    expected = np.array([9, 4, 0, 0]) + 3 * visited
    np.testing.assert_allclose(homes_of([10, 5, 0, 1], visited=visited), expected / 16, rtol=1e-5)
    # A bug that counts every home would tell it.
    assert expected[3] / 16 < 0.5 / 16


def test_a_user_more_changes_the_homes_by_what_is_stated():
    """A further user adds at most one to the homes of a place, whatever they did; all else is spread as visits."""
    visited = np.full(4, 0.25)
    for place in range(4):
        n_before = np.array([10, 5, 0, 1])
        n_after = n_before + np.eye(4, dtype=int)[place]
        before, after = (homes_of(n.tolist(), visited=visited) * n.sum() for n in (n_before, n_after))
        assert np.abs(after - before).sum() <= 1 + 1e-4
        assert (after - before >= -1e-4).all()


def joint_of(pairs, cell: np.ndarray) -> np.ndarray:
    """Probability of each pair of home and second place in each cluster, as a table."""
    between = pairs["anchor_between"][cell][:, cell] * (1 - np.eye(len(cell)))
    joint = pairs["home_pull"][:, :, None] * between * pairs["second_pull"][:, None]
    return joint / joint.sum(axis=(1, 2), keepdims=True)


@pytest.mark.parametrize("max_cells", [1024, 4])
def test_pairs_have_the_distributions_and_distances_of_users(traces, anchors, max_cells):
    space, of_user = space_of(traces.places, max_cells), clusters_of(traces)
    visited = np.full(N_PLACES, 1 / N_PLACES)
    home, second = (anchor_distribution(place, of_user, visited, space, CHOICE) for place in anchors)
    pairs = pair_anchors(anchors, of_user, home, second, space)
    joint = joint_of(pairs, space.cell)
    assert np.abs(joint.sum(axis=1) - second).sum(axis=1).max() < 1e-5
    assert np.abs(joint.sum(axis=2) - home).sum(axis=1).max() < 0.01
    who = np.flatnonzero(anchors.second != NOWHERE)
    n_pairs = np.zeros(space.km.shape, int)
    np.add.at(n_pairs, (space.cell[anchors.home[who]], space.cell[anchors.second[who]]), 1)
    bins = distance_bins(n_pairs, space)[space.cell][:, space.cell]
    users = np.bincount(bins[anchors.home[who], anchors.second[who]], minlength=bins.max() + 1)
    wanted = np.maximum(users - 4, 0) + 0.5
    share = np.bincount(of_user[who]) / len(who)

    def error(joint: np.ndarray) -> float:
        found = np.bincount(bins.ravel(), np.tensordot(share, joint, 1).ravel(), len(wanted))
        return np.abs(found - wanted / wanted.sum()).sum() / 2

    # Without factors of distance, homes and second places would be independent.
    independent = home[:, :, None] * second[:, None] * (1 - np.eye(N_PLACES))
    assert error(joint) < min(0.02, 0.5 * error(independent / independent.sum(axis=(1, 2), keepdims=True)))


def test_at_one_point_all_pairs_are_as_far():
    anchors = Anchors(np.array([0, 1, 0]), np.array([1, 0, 2]))
    space, uniform = space_of(at_one_point(3)), np.full((1, 3), 1 / 3)
    joint = joint_of(pair_anchors(anchors, np.zeros(3, int), uniform, uniform, space), space.cell)
    np.testing.assert_allclose(joint[0], (1 - np.eye(3)) / 6, rtol=1e-5)


def test_second_places_stay_possible_where_nearly_everybody_has_one_home():
    """99 % live at place 0, so at most 1 % can have their second place there; wanted are 1.5 %.

    Scalings that go for 1.5 % take the pull of every other place to 0: then nobody of place 0 has a second place.
    """
    home, second = np.array([[0.99, 0.006, 0.004]]), np.array([[0.015, 0.6, 0.385]])
    same = np.zeros((3, 3), int)
    pairs = couple(home, second, np.ones(1), np.ones(1), same, np.arange(3))
    assert (pairs["home_pull"] > 1e-6).all()
    assert (pairs["second_pull"] > 1e-6).all()
    joint = joint_of(pairs, np.arange(3))[0]
    np.testing.assert_allclose(joint.sum(axis=1), home[0], rtol=1e-5)
    # As near as possible: 90 % of the possible 1 %, and the others as drawn among the places that are not the home.
    assert joint.sum(axis=0)[0] == pytest.approx(MAX_SECOND * 0.01, rel=1e-5)
    assert np.abs(joint.sum(axis=0) - second[0]).sum() / 2 < 0.01


@pytest.fixture(scope="module")
def roles(traces, anchors):
    return fit_roles(traces, anchors, clusters_of(traces))


def test_a_step_leads_to_the_roles_of_the_next_instant(roles):
    before = np.roll(roles.at, 1, axis=2)
    np.testing.assert_allclose(np.einsum("hkti,hktij->hktj", before, roles.next), roles.at, atol=1e-3)
    np.testing.assert_allclose(roles.next.sum(axis=-1), 1, rtol=1e-6)
    assert (roles.at[0, :, :, SECOND] == 0).all()


def test_people_are_in_each_role_as_users_are(traces, anchors, roles):
    """The counts of a cluster weigh as many events; the rest is the prior's."""
    role, has_second = anchors.role(traces.user, traces.place), anchors.second[traces.user] != NOWHERE
    cluster, phase = clusters_of(traces)[traces.user], traces.instant % PERIOD
    for kind in (0, 1):
        for k in (0, 1):
            for time in range(PERIOD):
                chosen = role[(has_second == kind) & (cluster == k) & (phase == time)]
                share = np.bincount(chosen, minlength=3) / len(chosen)
                most = PRIOR_EVENTS / (PRIOR_EVENTS + len(chosen))
                assert np.abs(roles.at[kind, k, time] - share).sum() / 2 <= most


def test_people_stay_at_anchors_as_users_do(traces, anchors, roles):
    """Of all steps of the period, within the smoothing over instants; the chain without raised odds is the twin."""
    role, arrival = anchors.role(traces.user, traces.place), np.flatnonzero(traces.is_step())
    stays = (role[arrival] == role[arrival - 1]) & (role[arrival] != OTHER)
    cluster = clusters_of(traces)
    people = np.bincount(cluster) * np.stack([1 - roles.second_share, roles.second_share]) / len(cluster)
    joint = np.roll(roles.at, 1, axis=2)[..., None] * roles.next
    found = np.einsum("hk,hkt->", people, joint[..., HOME, HOME] + joint[..., SECOND, SECOND]) / PERIOD
    assert found == pytest.approx(stays.mean(), abs=0.03)
    independent = np.roll(roles.at, 1, axis=2)[..., None] * roles.at[..., None, :]
    twin = np.einsum("hk,hkt->", people, independent[..., HOME, HOME] + independent[..., SECOND, SECOND]) / PERIOD
    assert abs(twin - stays.mean()) > 0.05


def test_second_places_are_as_frequent_as_in_the_cluster(traces, anchors):
    """With as many users of all clusters as `SECOND_USERS`; here most users of cluster 1 have no second place."""
    cluster = clusters_of(traces)
    second = np.where((cluster == 1) & (np.arange(traces.n_users) % 16 > 3), NOWHERE, anchors.second)
    has_second = second != NOWHERE
    of_cluster = has_second[cluster == 1]
    assert 0 < of_cluster.mean() < has_second.mean() - 0.1
    expected = (of_cluster.sum() + SECOND_USERS * has_second.mean()) / (len(of_cluster) + SECOND_USERS)
    found = fit_roles(traces, Anchors(anchors.home, second), cluster).second_share
    assert found[1] == pytest.approx(expected)


def test_a_user_with_many_traces_weighs_no_more_than_the_second(traces, anchors, roles, monkeypatch):
    """User 0 repeats their trace a hundred times; others have at most two events in a role at an instant.

    So they add at most two to a count, and less than 2 / (20 + 100) to a share of at least 100 events.
    """
    of_user = np.flatnonzero(traces.user == 0)
    repeated = np.concatenate([np.tile(of_user, 100), np.flatnonzero(traces.user != 0)])
    number = np.concatenate([np.repeat(np.arange(100), len(of_user)), traces.trace[traces.user != 0]]).astype(np.int32)
    columns = {name: getattr(traces, name)[repeated] for name in ("user", "instant", "place")}
    many = replace(traces, trace=number, **columns)

    def change() -> float:
        return float(np.abs(fit_roles(many, anchors, clusters_of(traces)).at - roles.at).max())

    assert change() < 2 / 120
    monkeypatch.setattr("ppmtf_jax.people.user_bounds._Weights.bounded", lambda weights, groups: weights.weight)
    assert change() > 0.1


def test_people_who_never_leave_home():
    still = commuters(n_users=10)
    still = replace(still, place=np.repeat(still.place[::PERIOD], PERIOD))
    anchors = Anchors.of(VisitCounts.of(still))
    roles = fit_roles(still, anchors, np.zeros(10, int))
    assert (anchors.second == NOWHERE).all()
    assert (roles.second_share == 0).all()
    assert roles.at[0, :, :, HOME].min() > 0.999
