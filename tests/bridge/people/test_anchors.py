"""Homes and second places: found as by counting, told only of enough users, and as far from each other as users'."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ppmtf_jax.bridge.attraction import distance_bins
from ppmtf_jax.bridge.people.anchors import MAX_SECOND, NOWHERE, Anchors, anchor_distribution, couple, pair_anchors
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.visits import VisitCounts
from tests.bridge.examples import place_table
from tests.bridge.people.towns import CHOICE, N_PLACES, at_one_point, clusters_of, commuters


@pytest.fixture(scope="module")
def traces():
    return commuters(n_periods=2, present=0.9)


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
    layer = anchors.layer(traces.user, traces.place)
    home, second = traces.place == anchors.home[traces.user], traces.place == anchors.second[traces.user]
    np.testing.assert_array_equal(layer, np.select([home, second], [HOME, SECOND], ELSEWHERE))


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
    """A further user adds at most one to the homes of a place, whatever she did; all else is spread as visits."""
    visited = np.full(4, 0.25)
    for place in range(4):
        n_before = np.array([10, 5, 0, 1])
        n_after = n_before + np.eye(4, dtype=int)[place]
        before, after = (homes_of(n.tolist(), visited=visited) * n.sum() for n in (n_before, n_after))
        assert np.abs(after - before).sum() <= 1 + 1e-4
        assert (after - before >= -1e-4).all()


def joint_of(pairs, cell: np.ndarray) -> np.ndarray:
    """Probability of each pair of home and second place in each cluster, as a table."""
    between = pairs.between[cell][:, cell] * (1 - np.eye(len(cell)))
    joint = pairs.home_pull[:, :, None] * between * pairs.second_pull[:, None]
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
    assert (pairs.home_pull > 1e-6).all()
    assert (pairs.second_pull > 1e-6).all()
    joint = joint_of(pairs, np.arange(3))[0]
    np.testing.assert_allclose(joint.sum(axis=1), home[0], rtol=1e-5)
    # As near as possible: 90 % of the possible 1 %, and the others as drawn among the places that are not the home.
    assert joint.sum(axis=0)[0] == pytest.approx(MAX_SECOND * 0.01, rel=1e-5)
    assert np.abs(joint.sum(axis=0) - second[0]).sum() / 2 < 0.01


def test_two_places_have_one_pair_each_way():
    """Whatever is wanted of the second places, they are where the home is not."""
    home, second = np.array([[0.9, 0.1]]), np.array([[0.8, 0.2]])
    joint = joint_of(couple(home, second, np.ones(1), np.ones(1), np.zeros((2, 2), int), np.arange(2)), np.arange(2))[0]
    np.testing.assert_allclose(joint, [[0, 0.9], [0.1, 0]], atol=1e-6)
