"""Trace sets that cannot be compared are refused, and the error says why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.comparable import (
    check_comparable,
    check_disjoint_users,
    check_same_places,
    ids_of_nobody,
    training_user_of,
)
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, random_traces


def traces_of(*users: int, n_places: int = 4) -> Traces:
    return random_traces(0, users, places_in_line(n_places), minutes(8))


def test_different_places_are_named() -> None:
    first, second = traces_of(1), traces_of(1, n_places=5)
    with pytest.raises(InputError, match="4 in train, 5 in test"):
        check_same_places(train=first, test=second)
    other = Traces.from_frame(first.to_frame().assign(place="x"), _renamed(first.places), first.time_grid)
    with pytest.raises(InputError, match=r"different ids or another order \(4 rows\)"):
        check_same_places(train=first, test=other)


def _renamed(places: PlaceTable) -> PlaceTable:
    return PlaceTable(np.array(["x", "y", "z", "w"], object), places.latitude, places.longitude)


def test_grids_may_differ_in_length_but_not_in_slots() -> None:
    two_days, one_day = (TimeGrid.cyclic("2024-01-01T00:00:00", 3600, n, slot_s=7200) for n in (48, 24))
    long, short = (random_traces(0, [1], places_in_line(4), grid) for grid in (two_days, one_day))
    check_comparable(train=long, synthetic=short)
    hourly = replace(short, time_grid=TimeGrid.each_instant("2024-01-01T00:00:00", 3600, 24))
    with pytest.raises(InputError, match="12 in train, 24 in synthetic"):
        check_comparable(train=long, synthetic=hourly)


def test_users_who_are_not_training_users_are_named() -> None:
    train = traces_of(1, 2)
    assert training_user_of(traces_of(2), train).tolist() == [1]
    with pytest.raises(InputError, match="first: 77"):
        training_user_of(traces_of(2, 77), train)


def test_users_in_both_sets_are_named() -> None:
    train = traces_of(1, 2)
    check_disjoint_users(train, traces_of(3))
    for shared in (1, 2):
        with pytest.raises(InputError, match=f"1 of 2 test users in the training set, first: {shared}"):
            check_disjoint_users(train, traces_of(shared, 3))


def test_ids_of_nobody_are_in_order_and_nobodys() -> None:
    ids = ids_of_nobody(12, "released", np.array([[0, 1], [2, 3]])).tolist()
    assert ids == sorted(set(ids))
    assert len(ids) == 12
    # Whoever trains on a release has users of such ids; those of the next release are others.
    assert not set(ids) & set(ids_of_nobody(12, "released", np.array([[0, 1], [2, 4]])).tolist())
