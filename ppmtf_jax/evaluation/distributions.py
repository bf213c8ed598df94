"""Distributions, a row each: from counts, and distances between them, averaged over the rows."""

from __future__ import annotations

import numpy as np


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
