"""Friendships are pairs of users, each once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.colocation.examples import GRID, PLACES
from tests.support import random_traces


def traces_with_friends(friends: pd.DataFrame) -> Traces:
    frame = pd.DataFrame({"user": ["ann", "bob", "eve"], "instant": 0, "place": 0})
    return Traces.from_frame(frame, PLACES, GRID, friends)


def test_a_friendship_that_one_lists_is_one_and_so_is_one_that_both_list():
    friends = pd.DataFrame({"user": ["bob", "ann", "eve", "eve"], "friend": ["ann", "bob", "bob", "eve"]})
    graph = FriendGraph.of(traces_with_friends(friends))
    assert graph.pairs.tolist() == [[0, 1], [1, 2]]
    assert (graph.n_users, graph.n_pairs, graph.n_possible_pairs) == (3, 2, 3)
    assert graph.degrees().tolist() == [1, 2, 1]


def test_users_without_friends():
    graph = FriendGraph.of(traces_with_friends(pd.DataFrame({"user": [], "friend": []})))
    assert graph.pairs.shape == (0, 2)
    assert graph.degrees().tolist() == [0, 0, 0]


def test_friendships_must_be_known():
    with pytest.raises(InputError, match="friendships of the users; found none known"):
        FriendGraph.of(random_traces(0, range(3), PLACES, GRID))


def test_friends_that_are_no_users_are_refused_by_traces():
    with pytest.raises(InputError, match=r"friends who are users.*\('ann', 'zoe'\)"):
        traces_with_friends(pd.DataFrame({"user": ["ann"], "friend": ["zoe"]}))


def test_pairs_of_traces_that_were_not_validated_are():
    planted = np.array([[0, 0], [1, 2], [0, 3], [-1, 2]])
    traces = replace(traces_with_friends(pd.DataFrame({"user": [], "friend": []})), friendships=planted)
    with pytest.raises(InputError) as caught:
        FriendGraph.of(traces)
    assert [str(problem) for problem in caught.value.problems] == [
        "expected users 0 to 2; found others (2 rows), first: (0, 3), (-1, 2).",
        "expected friends of somebody else; found others (1 row), first: (0, 0).",
    ]


@pytest.mark.parametrize("pairs", [np.zeros((2, 3), int), np.zeros(2, int), np.zeros((2, 2))])
def test_what_are_no_pairs_is_refused(pairs):
    with pytest.raises(InputError, match="pairs of user indices"):
        FriendGraph.from_pairs(np.arange(3), pairs)


def test_users_given_twice_are_refused():
    with pytest.raises(InputError, match=r"every user once; found repeated user ids \(1 row\), first: b\."):
        FriendGraph.from_pairs(np.array(["a", "b", "b"], object), np.array([[0, 1]]))


def test_ids_of_other_types_are_other_users():
    graph = FriendGraph.from_pairs(np.array([3, 5, 7]), np.array([[0, 1]]))
    assert graph.index_of(np.array([7, 3])).tolist() == [2, 0]
    with pytest.raises(InputError, match="users of the friendship graph; found others"):
        graph.index_of(np.array(["3"], object))
