"""Longest run of places of a window that also occurs in a training window, by a suffix array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.windows import Windows


def longest_copied_runs(windows: Windows, train: Windows, *, over_gaps: bool = False) -> Int[np.ndarray, " window"]:
    """Length of the longest run of each window that also occurs in a training window, possibly at other instants.

    A run is a sequence of events at consecutive instants of a window, with `over_gaps` at any instants. It is copied if
    a training window has the same sequence of places. Long stays at a popular place match by chance; so compare with
    the lengths for held-out users' traces. Both sets of windows have the same places.
    """
    n_own = len(windows.window)
    # 1. Sort the runs that begin at each event of both sets, as in a suffix array.
    goes_on = [~run_begins(each.window) if over_gaps else each.is_step() for each in (windows, train)]
    runs = _Runs.of(np.concatenate([windows.place, train.place]), np.concatenate(goes_on))
    is_train = np.arange(len(runs.left)) >= n_own
    order = np.argsort(runs.ranks[-1], kind="stable")
    # 2. The longest match of a run is with the nearest training run before or after it in this order.
    longest = np.zeros(len(order), np.int64)
    for sequence in (order, order[::-1]):
        last = np.maximum.accumulate(np.where(is_train[sequence], np.arange(len(sequence)), -1))
        event, match = sequence[last >= 0], sequence[last[last >= 0]]
        longest[event] = np.maximum(longest[event], runs.common_length(event, match))
    # 3. Take the longest match over the events of each window.
    found = np.zeros(windows.n_windows, np.int64)
    np.maximum.at(found, windows.window, longest[:n_own])
    return found


class _Runs(NamedTuple):
    """The runs that begin at each event, sorted by prefix doubling.

    Entry k of `ranks` is the rank, in lexicographic order, of the next 2^k events, or of fewer events if the run ends
    earlier. `left` is the number of events from this one to the end of its run.
    """

    ranks: list[Int[np.ndarray, " event"]]
    left: Int[np.ndarray, " event"]

    @classmethod
    def of(cls, place: Int[np.ndarray, " event"], is_step: Bool[np.ndarray, " event"]) -> _Runs:
        end = np.append(np.flatnonzero(~is_step)[1:], len(place))
        left = np.repeat(end, np.diff(end, prepend=0)) - np.arange(len(place))
        ranks = [place.astype(np.int64)]
        while (length := 2 ** (len(ranks) - 1)) < left.max():
            # The end of a run sorts before every place.
            after = np.append(ranks[-1][length:], np.full(length, -1))[: len(place)]
            pair = ranks[-1] * (len(place) + ranks[0].max() + 2) + np.where(left > length, after, -1) + 1
            ranks.append(np.unique(pair, return_inverse=True)[1])
        return cls(ranks, left)

    def common_length(self, event: Int[np.ndarray, " pair"], other: Int[np.ndarray, " pair"]) -> np.ndarray:
        """Length of the common prefix of the runs that begin at two events."""
        most = np.minimum(self.left[event], self.left[other])
        common = np.zeros(len(event), np.int64)
        for power in range(len(self.ranks) - 1, -1, -1):
            rank, inside = self.ranks[power], common < most
            # Read nothing beyond the end of a run.
            offset = np.where(inside, common, 0)
            common += inside * (rank[event + offset] == rank[other + offset]) * 2**power
        return np.minimum(common, most)
