"""Runs of equal values in sorted columns: where each begins, and numbers within them; runs of events at one place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

MAX_PAIRS = 2**27
"""For fewer pairs of a user and a place than this, an array marks which pairs have an event."""


class Transitions(NamedTuple):
    """Steps from an event to the next event of the same trace, in the order of the events."""

    event: np.ndarray  # index of the later event
    user: np.ndarray
    place: np.ndarray
    next_place: np.ndarray


class Periods(NamedTuple):
    """Traces cut into periods, or other spans: a piece has the events of one trace in one span."""

    piece: np.ndarray  # number of the piece of each event, rising; shape (events,)
    phase: np.ndarray  # instant of each event within its span; shape (events,)
    first: np.ndarray  # first event of each piece; shape (pieces,)


def run_begins(*columns: Shaped[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Whether a row differs from the row before it in any column; the first row always begins a run.

    Examples
    --------
    >>> run_begins(np.array([0, 0, 0, 1]), np.array([5, 5, 7, 7])).tolist()
    [True, False, True, True]
    """
    begins = np.zeros(len(columns[0]), bool)
    begins[:1] = True
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
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


def stable_order(*columns: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """The order that sorts rows by columns of whole numbers, the first column first; equal rows keep their order.

    This is `np.lexsort` of the columns in reverse, but many times faster where a row fits into one number.

    Examples
    --------
    >>> stable_order(np.array([4, 2, 4, 2]), np.array([7, 8, 5, 8])).tolist()
    [1, 3, 2, 0]
    """
    n = len(columns[0])
    if not n:
        return np.zeros(0, np.int64)
    low = [int(column.min()) for column in columns]
    n_bits = [(int(column.max()) - least).bit_length() for column, least in zip(columns, low, strict=True)]
    bits_of_row = n.bit_length()
    if sum(n_bits) + bits_of_row > 63:
        return np.lexsort(columns[::-1])
    packed = np.zeros(n, np.int64)
    for column, least, bits in zip(columns, low, n_bits, strict=True):
        packed = (packed << bits) | (column - np.int64(least))
    packed = (packed << bits_of_row) | np.arange(n)
    packed.sort()
    return packed & ((1 << bits_of_row) - 1)


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


class Runs(NamedTuple):
    """Runs of consecutive events of one window at one place, with or without gaps, in the order of the events."""

    window: Int[np.ndarray, " run"]  # sorted
    place: Int[np.ndarray, " run"]
    first: Int[np.ndarray, " run"]  # index of the first event
    last: Int[np.ndarray, " run"]  # index of the last event

    @classmethod
    def of(cls, window: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Runs:
        """The runs of events, which are sorted by window and time."""
        first = np.flatnonzero(run_begins(window, place))
        return cls(window[first], place[first], first, np.append(first, len(window))[1:] - 1)

    def is_move(self) -> Bool[np.ndarray, " run"]:
        """Whether another run of the same window comes before: then the run begins with a move."""
        return ~run_begins(self.window)

    def place_before(self, n_runs: int) -> Int[np.ndarray, " run"]:
        """Place of the run `n_runs` runs earlier in the window; -1 without such a run."""
        return np.where(rank_in_run(self.window) >= n_runs, np.roll(self.place, n_runs), -1)

    def earlier(self) -> Int[np.ndarray, " run"]:
        """For each run, the latest earlier run of the same window at the same place; -1 if there is none.

        Examples
        --------
        >>> Runs.of(np.zeros(4, int), np.array([5, 3, 5, 3])).earlier().tolist()
        [-1, -1, 0, 1]
        """
        # Stable: the runs of a window at a place stay in the order of time.
        order = np.lexsort((self.place, self.window))
        again = ~run_begins(self.window[order], self.place[order])
        earlier = np.full(len(order), -1)
        earlier[order[again]] = order[np.flatnonzero(again) - 1]
        return earlier


def distinct_pairs(
    user: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"], n_users: int, n_places: int
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """The users and the places of the distinct pairs, in order."""
    pair = user * np.int64(n_places) + place
    if n_users * n_places < MAX_PAIRS:  # much faster than sorting
        is_there = np.zeros(n_users * n_places, bool)
        is_there[pair] = True
        pair = np.flatnonzero(is_there)
    else:
        pair = np.unique(pair)
    return pair // n_places, pair % n_places
