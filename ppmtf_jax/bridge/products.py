"""Matrix products whose results do not depend on the number of threads.

Each sum adds its terms in a fixed order, in one thread, and blocks have a fixed size. So threads can share rows and
columns, and processes can share users, without changing a single bit of the result.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.runtime.threads import map_in_threads

ENTRIES_AT_A_TIME, COLUMNS_AT_A_TIME = 8192, 128


def row_begins(row: Int[np.ndarray, " entry"], n_rows: int) -> Int[np.ndarray, " begin"]:
    """Index of each row's first entry among the sorted entries; and, at the end, the number of entries."""
    return np.searchsorted(row, np.arange(n_rows + 1)).astype(np.int32)


def sparse_product(
    value: Float[np.ndarray, " entry"],
    column: Int[np.ndarray, " entry"],
    begin: Int[np.ndarray, " begin"],
    dense: Float[np.ndarray, "column cluster"],
) -> Float[np.ndarray, "row cluster"]:
    """Sparse matrix (in the format of `scipy.sparse.csr_array`) times a dense matrix; threads share the rows."""

    def sums(rows: tuple[int, int]) -> Float[np.ndarray, "some cluster"]:
        own = begin[rows[0] : rows[1] + 1]
        entries = slice(own[0], own[-1])
        shape = (len(own) - 1, len(dense))
        return sparse.csr_array((value[entries], column[entries], own - own[0]), shape=shape) @ dense

    edges = np.searchsorted(begin, np.arange(0, begin[-1], ENTRIES_AT_A_TIME))
    return np.concatenate(list(map_in_threads(sums, pairwise(np.unique([0, *edges, len(begin) - 1]).tolist()))))


def dense_product(
    matrix: Float[np.ndarray, "row column"], wide: Float[np.ndarray, "column many"]
) -> Float[np.ndarray, "row many"]:
    """Matrix times a wide matrix; threads share the columns."""
    blocks = [slice(first, first + COLUMNS_AT_A_TIME) for first in range(0, wide.shape[1], COLUMNS_AT_A_TIME)]
    return np.concatenate(list(map_in_threads(lambda block: matrix @ wide[:, block], blocks)), axis=1)


def indicator(group: Int[np.ndarray, " member"], n_groups: int) -> sparse.csr_array:
    """Matrix of members x groups with 1 where a member belongs to a group."""
    n = len(group)
    return sparse.csr_array((np.ones(n, np.float32), (np.arange(n), group)), shape=(n, n_groups))
