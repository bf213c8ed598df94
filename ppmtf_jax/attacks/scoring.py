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


def has_transitions(traces: Traces) -> bool:
    """Whether any two events are at consecutive instants of a trace."""
    return bool(traces.is_step().any())


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


def _count_pairs(traces: Traces, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct (unit, pair of places) of the transitions, sorted, and how often each occurs."""
    after = np.flatnonzero(traces.is_step())
    n_pairs = traces.n_places**2
    pair = traces.place[after - 1].astype(np.int64) * traces.n_places + traces.place[after]
    code, count = np.unique(unit[after].astype(np.int64) * n_pairs + pair, return_counts=True)
    return code // n_pairs, code % n_pairs, count
