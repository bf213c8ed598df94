"""Runs of equal values in sorted columns: where each begins, and numbers within them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int, Shaped


def run_begins(*columns: Shaped[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Whether a row differs from the row before it in any column; the first row always begins a run.

    Examples
    --------
    >>> run_begins(np.array([0, 0, 0, 1]), np.array([5, 5, 7, 7])).tolist()
    [True, False, True, True]
    """
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def rank_in_run(column: Shaped[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """0, 1, ... within each run of equal values.

    Examples
    --------
    >>> rank_in_run(np.array([4, 4, 9, 9, 9])).tolist()
    [0, 1, 0, 1, 2]
    """
    first = np.flatnonzero(run_begins(column))
    return np.arange(len(column)) - np.repeat(first, np.diff(first, append=len(column)))


def joined_ranges(first: Int[np.ndarray, " range"], length: Int[np.ndarray, " range"]) -> Int[np.ndarray, " number"]:
    """The numbers of several ranges, one range after the other.

    Examples
    --------
    >>> joined_ranges(np.array([5, 0]), np.array([3, 2])).tolist()
    [5, 6, 7, 0, 1]
    """
    return np.arange(length.sum()) + np.repeat(first - np.cumsum(length) + length, length)
