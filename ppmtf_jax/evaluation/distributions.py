"""Distributions, a row each: from counts, and distances between them, averaged over the rows; and those of samples."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.stats import wasserstein_distance


def counts_to_shares(counts: np.ndarray) -> np.ndarray:
    """Counts over their sum along the last axis; NaN where that is 0.

    Examples
    --------
    >>> counts_to_shares(np.array([[1, 3], [0, 0]])).tolist()
    [[0.25, 0.75], [nan, nan]]
    """
    total = counts.sum(axis=-1, keepdims=True).astype(float)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def total_variation(distribution: np.ndarray, other: np.ndarray) -> float:
    """Half the L1 distance of rows, averaged.

    Parameters
    ----------
    distribution, other : float arrays, shape (rows, outcomes)

    Examples
    --------
    >>> total_variation(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]]))
    0.5
    """
    return float(np.abs(distribution - other).sum(axis=1).mean() / 2)


def earth_movers_distance(distribution: np.ndarray, other: np.ndarray) -> float:
    """Earth mover's distance of rows over ordered bins, averaged: the sum of the differences of cumulative shares.

    Parameters
    ----------
    distribution, other : float arrays, shape (rows, bins)

    Returns
    -------
    float
        In bins.

    Examples
    --------
    >>> earth_movers_distance(np.array([[1.0, 0.0, 0.0]]), np.array([[0.0, 0.0, 1.0]]))
    2.0
    """
    return float(np.abs(np.cumsum(distribution - other, axis=1)).sum(axis=1).mean())


def variation_of_samples(sample: np.ndarray, other: np.ndarray) -> float:
    """Total variation between the distributions of two samples of whole numbers; NaN where one is empty.

    Examples
    --------
    >>> variation_of_samples(np.array([3, 3, 7, 9]), np.array([7, 3]))
    0.25
    """
    if not (len(sample) and len(other)):
        return float("nan")
    value = np.unique(np.concatenate([sample, other]), return_inverse=True)[1]
    shares = (np.bincount(each, minlength=value.max() + 1) / len(each) for each in np.split(value, [len(sample)]))
    return float(np.abs(np.subtract(*shares)).sum() / 2)


def wasserstein(sample: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance between the distributions of two samples, in their unit; NaN where one is empty.

    Examples
    --------
    >>> wasserstein(np.array([0.0, 2.0]), np.array([5.0]))
    4.0
    """
    return float(wasserstein_distance(sample, other)) if len(sample) and len(other) else float("nan")


def row_shares(counts: sparse.csr_array) -> sparse.csr_array:
    """Counts over the sums of their rows; a row without counts stays empty.

    Examples
    --------
    >>> row_shares(sparse.csr_array([[1, 3], [0, 0]])).toarray().tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    return sparse.csr_array(sparse.diags_array(1 / np.maximum(counts.sum(axis=1), 1)) @ counts)


def row_variation(shares: sparse.csr_array, other: sparse.csr_array) -> np.ndarray:
    """Total variation between the rows of two matrices of the same shape: 1 where a row of `shares` is empty.

    Parameters
    ----------
    shares, other : sparse arrays, shape (rows, outcomes)
        As `row_shares` gives them. No row of `other` that matters is empty: there the result says nothing.

    Returns
    -------
    float array, shape (rows,)

    Examples
    --------
    >>> expected = row_shares(sparse.csr_array([[1, 3], [1, 1]]))
    >>> row_variation(row_shares(sparse.csr_array([[2, 2], [0, 0]])), expected).tolist()
    [0.25, 1.0]
    """
    distance = np.asarray(abs(shares - other).sum(axis=1)) / 2
    return np.where(shares.sum(axis=1) > 0, distance, 1.0)


def row_variation_from(probability: np.ndarray | float, other: sparse.csr_array) -> np.ndarray:
    """Total variation between the rows of a matrix and distributions that nobody needs to write out.

    Parameters
    ----------
    probability : float, or float array, shape (stored cells of `other`,)
        Of each cell of `other` that is stored, in its order.
    other : sparse array, shape (rows, outcomes)

    Returns
    -------
    float array, shape (rows,)

    Examples
    --------
    Of the uniform distribution over four outcomes:

    >>> row_variation_from(1 / 4, row_shares(sparse.csr_array([[1, 1, 0, 0], [1, 1, 1, 1]]))).tolist()
    [0.5, 0.0]
    """
    n_stored = np.diff(other.indptr)
    row = np.repeat(np.arange(len(n_stored)), n_stored)
    common = np.bincount(row, np.minimum(probability, other.data), minlength=len(n_stored))
    return np.maximum(1 - common, 0)
