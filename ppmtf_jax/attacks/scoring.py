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

from ppmtf_jax.data.traces import Traces

FLOOR = 1e-8
"""Probability of a transition that a user, or the population, was never seen to make (App. D)."""
PRODUCTS_AT_A_TIME = 2**23


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


def attacked_traces(released: Traces, pool_traces: bool = False) -> AttackedTraces:
    """Count the transitions of each released trace; with `pool_traces`, of all traces of a user as one.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> attacked = attacked_traces(toy_city(n_users=3, seed=0).traces, pool_traces=True)
    >>> attacked.user.tolist(), attacked.number.tolist()
    ([0, 1, 2], [0, 0, 0])
    """
    user, number = released.trace_table()
    unit = released.trace_of_event()
    if pool_traces:
        user, number = np.arange(released.n_users), np.zeros(released.n_users, int)
        unit = released.user
    row, pair, count = count_pairs(released, unit)
    pairs, column = np.unique(pair, return_inverse=True)
    counts = sparse.csr_array((count.astype(np.float64), (row, column)), shape=(len(user), len(pairs)))
    return AttackedTraces(user, number, pairs, counts)


def count_pairs(traces: Traces, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often each unit, such as a user or a trace, makes each transition.

    Parameters
    ----------
    traces : Traces
    unit : int array, shape (events,)
        Index of the unit that each event belongs to; a trace is in one unit.

    Returns
    -------
    unit, pair, count : int64 arrays, shape (distinct transitions of the units,)
        Sorted by unit and pair: place times places plus next place.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=3, seed=0).traces
    >>> _, _, count = count_pairs(traces, traces.user)
    >>> int(count.sum()) == len(traces.transitions().event)
    True
    """
    steps = traces.transitions()
    n_pairs = traces.n_places**2
    pair = steps.place.astype(np.int64) * traces.n_places + steps.next_place
    code, count = np.unique(unit[steps.event].astype(np.int64) * n_pairs + pair, return_counts=True)
    return code // n_pairs, code % n_pairs, count


def products_in_blocks(counts: sparse.csr_array, values: sparse.csr_array) -> Iterator[tuple[slice, sparse.csr_array]]:
    """`counts @ values` (traces x users), some traces at a time, so that a block stays in memory.

    Yields
    ------
    rows, product
        Which traces, and their rows of the product.

    Examples
    --------
    >>> counts, values = sparse.csr_array([[1.0, 2.0], [0.0, 1.0]]), sparse.csr_array([[1.0], [3.0]])
    >>> [(rows, product.toarray().tolist()) for rows, product in products_in_blocks(counts, values)]
    [(slice(0, 2, None), [[7.0], [3.0]])]
    """
    work = sparse.csr_array((np.ones_like(counts.data), counts.indices, counts.indptr), counts.shape) @ np.diff(
        values.indptr
    )
    block_of_row = (np.cumsum(work) // PRODUCTS_AT_A_TIME).astype(np.int64)
    edges = np.flatnonzero(np.diff(block_of_row, prepend=-1, append=np.iinfo(np.int64).max))
    for first, last in pairwise(edges):
        rows = slice(int(first), int(last))
        yield rows, counts[rows] @ values
