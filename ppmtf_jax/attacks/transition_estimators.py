"""What an attacker learns of each user: sparse transition matrices, and fast sums of them over traces.

Both attacks score a trace for a user by adding one number for each transition of the trace. Most users never made most
of the transitions, and for those the number does not depend on the user. So the scores of all traces and users are a
baseline for each trace plus a sparse product (traces x pairs) @ (pairs x users), where a pair is a place and the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.traces import Traces

FLOOR = 1e-8
"""Probability of a transition that a user, or the population, was never seen to make (App. D)."""

PRODUCTS_AT_A_TIME = 2**23


@dataclass(frozen=True, eq=False)
class UserTransitions:
    """The transition matrix of each user, positive entries only.

    Parameters
    ----------
    user : int array, shape (entries,)
    pair : int64 array, shape (entries,)
        Place times places plus next place.
    probability : float64 array, shape (entries,)
        Of the next place given the place, in (0, 1].
    n_users : int
    """

    user: np.ndarray
    pair: np.ndarray
    probability: np.ndarray
    n_users: int

    def at_pairs(self, pairs: np.ndarray) -> tuple[np.ndarray, UserTransitions]:
        """The entries at the given sorted pairs: the row of each in `pairs`, and the entries."""
        row = np.searchsorted(pairs, self.pair)
        found = np.zeros(len(row), bool)
        inside = row < len(pairs)
        found[inside] = pairs[row[inside]] == self.pair[inside]
        kept = UserTransitions(self.user[found], self.pair[found], self.probability[found], self.n_users)
        return row[found], kept


@dataclass(frozen=True, eq=False)
class AttackedTraces:
    """How often each attacked trace makes each transition.

    Parameters
    ----------
    user, number : int arrays, shape (traces,)
        Index of the user the trace was made from, and its number among that user's.
    pairs : int64 array, shape (pairs,)
        The distinct pairs, sorted.
    counts : sparse float64 matrix, shape (traces, pairs)
    """

    user: np.ndarray
    number: np.ndarray
    pairs: np.ndarray
    counts: sparse.csr_array


def has_transitions(traces: Traces) -> bool:
    """Whether any two events are at consecutive instants of a trace."""
    return bool(traces.is_step().any())


def ml_transitions(traces: Traces) -> UserTransitions:
    """Transition matrix of each user by maximum likelihood: counts over row sums.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> estimates = ml_transitions(toy_city(n_users=3, seed=0).traces)
    >>> estimates.n_users, float(estimates.probability.max()) <= 1
    (3, True)
    """
    user, pair, count = _count_pairs(traces, traces.user)
    row = user.astype(np.int64) * traces.n_places + pair // traces.n_places
    _, row = np.unique(row, return_inverse=True)
    total = np.bincount(row, weights=count)
    return UserTransitions(user, pair, count / total[row], traces.n_users)


def attacked_traces(released: Traces, *, pool_traces: bool = False) -> AttackedTraces:
    """Count the transitions of each released trace; with `pool_traces`, of all traces of a user as one."""
    user, number = released.trace_table()
    unit = released.trace_of_event()
    if pool_traces:
        user, number = np.arange(released.n_users), np.zeros(released.n_users, int)
        unit = released.user
    row, pair, count = _count_pairs(released, unit)
    pairs, column = np.unique(pair, return_inverse=True)
    counts = sparse.csr_array((count.astype(np.float64), (row, column)), shape=(len(user), len(pairs)))
    return AttackedTraces(user, number, pairs, counts)


def products_in_blocks(counts: sparse.csr_array, values: sparse.csr_array) -> Iterator[tuple[slice, sparse.csr_array]]:
    """`counts @ values` (traces x users), some traces at a time, so that a block stays in memory.

    Yields
    ------
    rows, product
        Which traces, and their rows of the product.
    """
    work = sparse.csr_array((np.ones_like(counts.data), counts.indices, counts.indptr), counts.shape) @ np.diff(
        values.indptr
    )
    block_of_row = (np.cumsum(work) // PRODUCTS_AT_A_TIME).astype(np.int64)
    edges = np.flatnonzero(np.diff(block_of_row, prepend=-1, append=np.iinfo(np.int64).max))
    for first, last in pairwise(edges):
        rows = slice(int(first), int(last))
        yield rows, counts[rows] @ values


def check_same_places(**trace_sets: Traces) -> None:
    """All trace sets must have the same places in the same order.

    Raises
    ------
    InputError
        Naming the sets that differ from the first.
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
    if problems:
        raise InputError("trace sets", problems)


def training_user_of(released: Traces, train: Traces) -> np.ndarray:
    """Index among the training users of each user of the released set, shape (users,).

    Raises
    ------
    InputError
        Released users who are not training users: nobody could say what a correct guess is.
    """
    index = _index_of_users(released, train)
    if (index < 0).any():
        examples = first_examples(released.user_ids[index < 0].tolist())
        way_out = "Give the training set that the synthetic traces were made from"
        raise InputError("synthetic traces", [Problem("users of the training set", "others", 0, examples, way_out)])
    return index


def check_disjoint_users(train: Traces, test: Traces) -> None:
    """Membership is defined only if nobody is both a training and a test user.

    Raises
    ------
    InputError
        Naming the first users that are in both.
    """
    shared = _index_of_users(test, train) >= 0
    if shared.any():
        examples = first_examples(test.user_ids[shared].tolist())
        way_out = "Split by users, or leave the attacks out"
        found = f"{int(shared.sum())} of {test.n_users} test users in the training set"
        raise InputError("test traces", [Problem("test users who are not training users", found, 0, examples, way_out)])


def _index_of_users(traces: Traces, among: Traces) -> np.ndarray:
    position = {user: index for index, user in enumerate(among.user_ids.tolist())}
    return np.array([position.get(user, -1) for user in traces.user_ids.tolist()], np.int64)


def _count_pairs(traces: Traces, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct (unit, pair of places) of the transitions, sorted, and how often each occurs."""
    after = np.flatnonzero(traces.is_step())
    n_pairs = traces.n_places**2
    pair = traces.place[after - 1].astype(np.int64) * traces.n_places + traces.place[after]
    code, count = np.unique(unit[after].astype(np.int64) * n_pairs + pair, return_counts=True)
    return code // n_pairs, code % n_pairs, count
