"""The heaviest run of places of a window that also occurs in a released window, by a suffix array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.windows import Windows


def heaviest_copied_runs(
    windows: Windows, released: Windows, weight: Float[np.ndarray, " event"]
) -> Float[np.ndarray, " window"]:
    """Greatest weight of a run of each window that also occurs in a released window, at any time; 0 if there is none.

    A run is a sequence of successive events of a window, whatever the gaps between them. It is copied if a released
    window has the same sequence of places. `weight` is that of each event of `windows`, at least 0. Both sets of
    windows have the same places.
    """
    n_own = len(windows.window)
    # 1. Sort the runs that begin at each event of both sets, as in a suffix array.
    goes_on = [~run_begins(each.window) for each in (windows, released)]
    runs = _Runs.of(np.concatenate([windows.place, released.place]), np.concatenate(goes_on))
    is_released = np.arange(len(runs.left)) >= n_own
    order = np.argsort(runs.ranks[-1], kind="stable")
    # 2. The longest match of a run is with the nearest released run before or after it in this order.
    longest = np.zeros(len(order), np.int64)
    for sequence in (order, order[::-1]):
        last = np.maximum.accumulate(np.where(is_released[sequence], np.arange(len(sequence)), -1))
        event, match = sequence[last >= 0], sequence[last[last >= 0]]
        longest[event] = np.maximum(longest[event], runs.common_length(event, match))
    # 3. Take the heaviest of the longest matches of a window's events: a shorter match is never heavier.
    total = np.concatenate([[0.0], np.cumsum(weight)])
    first = np.arange(n_own)
    found = np.zeros(windows.n_windows)
    np.maximum.at(found, windows.window, total[first + longest[:n_own]] - total[first])
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
