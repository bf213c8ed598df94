"""Places are kept by how many training users have events there, and both sets keep the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import keep_shared_places
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, to_traces


def traces(*visitors: range, first_user: int = 0) -> Traces:
    """Users, given by range, who visit each place once; instants are those of the places."""
    rows = [(first_user + user, 0, at, at) for at, users in enumerate(visitors) for user in users]
    return to_traces(rows, places_in_line(len(visitors)), minutes(10))


TRAIN = traces(range(5), range(1, 5), range(7), range(0))
TEST = traces(range(1), range(6), range(2), range(9), first_user=100)


def test_users_are_counted():
    rows = [(1, 0, 0, 2), (1, 0, 5, 2), (2, 0, 0, 2), (2, 1, 1, 0)]
    assert to_traces(rows, places_in_line(4), minutes(10)).users_per_place().tolist() == [1, 0, 2, 0]


def test_training_users_alone_decide():
    train, test = keep_shared_places(TRAIN, TEST, min_users=5)
    # Places 1 and 3 have 4 and 0 of the training users, and 6 and 9 of the others.
    assert train.places.ids.tolist() == test.places.ids.tolist() == [0, 2]
    assert train.users_per_place().tolist() == [5, 7]
    assert test.users_per_place().tolist() == [1, 2]
    # Whoever was nowhere else is not there any more.
    assert test.user_ids.tolist() == [100, 101]
    assert train.instant.tolist() == [at for user in range(5) for at in (0, 2)] + [2, 2]


def test_events_are_moved_where_that_is_asked_for():
    train, test = keep_shared_places(TRAIN, TEST, min_users=5, other_places="nearest")
    assert (train.n_events, test.n_events) == (TRAIN.n_events, TEST.n_events)
    # Place 1 is as far from 0 as from 2; 3 is next to 2.
    at_3 = test.place[test.instant == 3]
    assert train.places.ids.tolist() == [0, 2]
    assert set(at_3.tolist()) == {1}
    assert train.instant.tolist() == TRAIN.instant.tolist()


def test_one_switches_it_off_and_too_many_are_refused():
    assert keep_shared_places(TRAIN, TEST, min_users=1) == (TRAIN, TEST)
    with pytest.raises(InputError, match="a place of at least 8 users; found at most 7"):
        keep_shared_places(TRAIN, TEST, min_users=8)
    with pytest.raises(InputError, match="at least one event to keep"):
        keep_shared_places(TRAIN, traces(range(0), range(1), range(0), range(0)), min_users=5)
    assert np.array_equal(keep_shared_places(TRAIN, min_users=4)[0].users_per_place(), [5, 4, 7])
