"""Count tensors that tests make from dense arrays."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.gibbs.tensors import SparseCounts


def sparse(dense: np.ndarray) -> SparseCounts:
    """The positive cells of an array of shape (users, places, others); users are called 0, 1, ..."""
    columns = (*np.nonzero(dense), dense[np.nonzero(dense)])
    return SparseCounts(*(column.astype(np.int32) for column in columns), dense.shape, np.arange(len(dense)))
