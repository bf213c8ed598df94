"""Shares from counts, and distances between distributions; each row of an array is one distribution."""

from __future__ import annotations

import math

import numpy as np
import scipy  # loads `scipy.stats`, which takes half a second, when it is first used
from scipy import sparse


def counts_to_shares(counts: np.ndarray) -> np.ndarray:
    """Divide counts by their sum along the last axis; NaN where the sum is 0."""
    total = counts.sum(axis=-1, keepdims=True).astype(float)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def variation(distribution: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Total variation, half the L1 distance, along the last axis."""
    return np.asarray(np.abs(distribution - other).sum(axis=-1) / 2)


def total_variation(distribution: np.ndarray, other: np.ndarray) -> float:
    """Mean total variation between corresponding rows of two arrays, shape (rows, outcomes)."""
    return float(np.abs(distribution - other).sum(axis=1).mean() / 2)


def variation_of_counts(counts: np.ndarray, other: np.ndarray) -> float:
    """Total variation between the shares of two arrays of counts; NaN where one of them has no counts."""
    return total_variation(counts_to_shares(counts[None]), counts_to_shares(other[None]))


def variation_of_samples(sample: np.ndarray, other: np.ndarray) -> float:
    """Total variation between the distributions of two samples of whole numbers; NaN where one is empty."""
    if not (len(sample) and len(other)):
        return math.nan
    value = np.concatenate([sample, other])
    if value.min() < 0 or value.max() >= len(value):
        # Sorting is slow, so small numbers are counted as they are.
        value = np.unique(value, return_inverse=True)[1]
    shares = (np.bincount(each, minlength=value.max() + 1) / len(each) for each in np.split(value, [len(sample)]))
    return float(variation(*shares))


def earth_movers_distance(distribution: np.ndarray, other: np.ndarray) -> float:
    """Mean earth mover's distance between rows over ordered bins, in bins: the L1 distance of cumulative shares."""
    return float(np.abs(np.cumsum(distribution - other, axis=1)).sum(axis=1).mean())


def wasserstein(sample: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance between the distributions of two samples, in their unit; NaN where one is empty."""
    return float(scipy.stats.wasserstein_distance(sample, other)) if len(sample) and len(other) else math.nan


def pair_counts(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    """Sparse matrix that counts how often each pair (row, column) occurs."""
    # `tocsr` sums the entries of the same cell.
    return sparse.coo_array((np.ones(len(row)), (row, column)), shape=shape).tocsr()


def row_shares(counts: sparse.csr_array) -> sparse.csr_array:
    """Divide each row of counts by its sum; a row without counts stays empty, and stored cells keep their order."""
    total = np.repeat(np.maximum(counts.sum(axis=1), 1), np.diff(counts.indptr))
    return sparse.csr_array((counts.data / total, counts.indices, counts.indptr), counts.shape)


def row_variation(shares: sparse.csr_array, other: sparse.csr_array) -> np.ndarray:
    """Total variation between corresponding rows of `row_shares`, shape (rows,); 1 for an empty row of `shares`.

    The result of an empty row of `other` is meaningless; callers give it the weight 0.
    """
    distance = np.asarray(abs(shares - other).sum(axis=1)) / 2
    return np.where(shares.sum(axis=1) > 0, distance, 1.0)


def row_variation_from(probability: np.ndarray | float, other: sparse.csr_array) -> np.ndarray:
    """Total variation between rows of `other` and dense distributions, given at the cells of `other`, shape (rows,).

    `probability`: dense probability of each stored cell, in the order of `other.data`, or one number for all cells.
    """
    n_stored = np.diff(other.indptr)
    row = np.repeat(np.arange(len(n_stored)), n_stored)
    common = np.bincount(row, np.minimum(probability, other.data), minlength=len(n_stored))
    return np.maximum(1 - common, 0)


def mean_errors(difference: np.ndarray, n: int | None = None, rest: float = 0.0) -> list[float]:
    """Mean absolute and mean squared error over `n` cells: those given, and others that all have the error `rest`."""
    more = 0 if n is None else n - difference.size
    return [(power(difference).sum() + more * power(rest)) / (difference.size + more) for power in (np.abs, np.square)]


def weighted_mean(value: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean; NaN if all weights are 0."""
    return float(value @ weight / weight.sum()) if weight.sum() else math.nan
