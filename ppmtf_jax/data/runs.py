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
    """Rank of each row within its run of equal values: 0, 1, and so on.

    Examples
    --------
    >>> rank_in_run(np.array([4, 4, 9, 9, 9])).tolist()
    [0, 1, 0, 1, 2]
    """
    first = np.flatnonzero(run_begins(column))
    return np.arange(len(column)) - np.repeat(first, np.diff(first, append=len(column)))


def rank_in_group(column: Shaped[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """How many earlier rows have the same value; unlike `rank_in_run`, equal values need not be neighbours.

    Examples
    --------
    >>> rank_in_group(np.array([4, 9, 4, 4, 9])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(column, kind="stable")
    rank = np.empty(len(column), np.int64)
    rank[order] = rank_in_run(column[order])
    return rank


def least_of_each(
    group: Shaped[np.ndarray, " row"], number: Shaped[np.ndarray, " row"], most: int
) -> Int[np.ndarray, " kept"]:
    """Indices of the `most` rows of each group that have the smallest numbers; the groups are sorted.

    Examples
    --------
    >>> least_of_each(np.array([4, 4, 4, 9]), np.array([0.3, 0.1, 0.2, 0.5]), most=2).tolist()
    [1, 2, 3]
    """
    return np.lexsort((number, group))[rank_in_run(group) < most]


def joined_ranges(first: Int[np.ndarray, " range"], length: Int[np.ndarray, " range"]) -> Int[np.ndarray, " number"]:
    """The numbers of several ranges, one range after the other.

    Examples
    --------
    >>> joined_ranges(np.array([5, 0]), np.array([3, 2])).tolist()
    [5, 6, 7, 0, 1]
    """
    return np.arange(length.sum()) + np.repeat(first - np.cumsum(length) + length, length)
