"""Whether trace sets can be compared: the same places and slots, users that are the same or all different."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.places import id_array
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any


def check_same_places(**trace_sets: Any) -> None:
    """Check that traces, or models of traces, have the same places in the same order; errors use the arguments' names.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> check_same_places(train=toy_city(5, n_places=100).traces, test=toy_city(5, n_places=90).traces)
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: trace sets: expected the same place table; ...
    """
    (first_name, first), *others = trace_sets.items()
    problems = []
    for name, traces in others:
        ids, expected = traces.places.ids, first.places.ids
        if len(ids) != len(expected):
            found = f"{len(expected)} in {first_name}, {len(ids)} in {name}"
            problems.append(Problem("the same place table", f"different numbers of places: {found}"))
        elif (differ := np.flatnonzero(ids != expected)).size:
            examples = first_examples([f"{expected[i]} in {first_name}, {ids[i]} in {name}" for i in differ[:5]])
            problems.append(Problem("the same place table", "different ids or another order", len(differ), examples))
    raise_any("trace sets", problems)


def check_comparable(**trace_sets: Traces) -> None:
    """Check that all trace sets have the same places and numbers of slots; their grids may differ in length."""
    check_same_places(**trace_sets)
    n_slots = {name: traces.time_grid.n_slots for name, traces in trace_sets.items()}
    if len(set(n_slots.values())) > 1:
        found = ", ".join(f"{n} in {name}" for name, n in n_slots.items())
        raise InputError("trace sets", [Problem("the same number of slots", found, way_out="Use grids of equal slots")])


def training_user_of(released: Traces, train: Traces) -> np.ndarray:
    """Index among the training users of each user of the released set.

    Raises `InputError`: a released user is not a training user, so no guess of the user is right or wrong.
    """
    index = index_of_ids(released.user_ids, train.user_ids)
    if (index < 0).any():
        examples = first_examples(released.user_ids[index < 0].tolist())
        way_out = "Give the training set that they were made from; read a release with its key (load_with_key)"
        raise InputError("synthetic traces", [Problem("users of the training set", "others", 0, examples, way_out)])
    return index


def ids_of_nobody(
    n_users: int, prefix: str, facts: Iterable[np.ndarray], numbers: np.ndarray | None = None
) -> np.ndarray:
    """Ids of `n_users` synthetic users that no other user has; with `numbers`, only the ids of these users.

    The ids are in the order of the users' numbers, which begin at 0.

    Plain numbers may be ids of real users: a comparison would pair synthetic users with unrelated real users, also if
    somebody trains on a release. So a part of each id is a hash of `facts`: arrays of whole numbers that say something
    about the synthetic traces, such as their places, which are handed out anyway. The hash does not use the ids of real
    users, because the new ids would reveal them.

    Examples
    --------
    >>> ids_of_nobody(11, "released", [np.array([3, 1]), np.array([2])])[[0, 10]].tolist()
    ['released dec280 00', 'released dec280 10']
    """
    hashed = hashlib.sha256()
    for each in facts:
        hashed.update(np.ascontiguousarray(each, np.int32).data)
    tag = hashed.hexdigest()[:6]
    number = pd.Series(np.arange(n_users) if numbers is None else numbers).astype(str)
    return id_array(f"{prefix} {tag} " + number.str.zfill(len(str(n_users - 1))))


def check_disjoint_users(train: Traces, test: Traces) -> None:
    """Check that no user is in both the training and the test set; otherwise membership is not defined."""
    shared = index_of_ids(test.user_ids, train.user_ids) >= 0
    if shared.any():
        examples = first_examples(test.user_ids[shared].tolist())
        way_out = "Split by users, or leave the attacks out"
        found = f"{int(shared.sum())} of {test.n_users} test users in the training set"
        raise InputError("test traces", [Problem("test users who are not training users", found, 0, examples, way_out)])


def index_of_ids(ids: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Index of each id in the distinct ids `among`; -1 for an id that is not there.

    Examples
    --------
    >>> index_of_ids(np.array(["bob", "eve", "bob"]), np.array(["alice", "bob"])).tolist()
    [1, -1, 1]
    """
    return pd.Index(among).get_indexer(pd.Index(ids))


def check_traces(value: object, what: str) -> None:
    """Refuse anything but traces, such as a table of check-ins; the error says how to make traces."""
    if isinstance(value, Traces):
        return
    way_out = "Make them of a table of events with Traces.from_frame, or of check-ins with read_checkins"
    raise InputError(what, [Problem("traces, as a Traces object", type(value).__name__, way_out=way_out)])
