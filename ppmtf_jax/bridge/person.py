"""The places that somebody visited so far: of all observed traces at once in NumPy, of a synthetic person in JAX."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from ppmtf_jax.data.runs import joined_ranges, rank_in_group, rank_in_run


def is_first_visit(window: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Bool[np.ndarray, " event"]:
    """Whether an event is the first one of its window at its place; the windows need not be sorted.

    Examples
    --------
    >>> is_first_visit(np.array([0, 0, 0, 1]), np.array([5, 3, 5, 5])).tolist()
    [True, True, False, True]
    """
    return rank_in_group(window.astype(np.int64) * (int(place.max(initial=0)) + 1) + place) == 0


class VisitedBefore(NamedTuple):
    """Places with earlier events of the same window: one row for each event and place, sorted by event and place.

    A *pair* is an event and an earlier event of its window; `row` is the row of each pair.
    """

    event: Int[np.ndarray, " row"]
    place: Int[np.ndarray, " row"]
    count: Int[np.ndarray, " row"]  # number of earlier events at the place
    row: Int[np.ndarray, " pair"]
    later: Int[np.ndarray, " pair"]
    earlier: Int[np.ndarray, " pair"]

    @classmethod
    def of(cls, window: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> VisitedBefore:
        """Look back from each event; events are sorted by window and time.

        Examples
        --------
        >>> seen = VisitedBefore.of(np.zeros(4, int), np.array([5, 3, 5, 3]))
        >>> seen.event.tolist(), seen.place.tolist(), seen.count.tolist()
        ([1, 2, 2, 3, 3], [5, 3, 5, 3, 5], [1, 1, 1, 1, 2])
        """
        event, n_earlier = np.arange(len(window)), rank_in_run(window)
        later, earlier = np.repeat(event, n_earlier), joined_ranges(event - n_earlier, n_earlier)
        n_places = int(place.max(initial=0)) + 1
        code, row = np.unique(later * n_places + place[earlier], return_inverse=True)
        return cls(*np.divmod(code, n_places), np.bincount(row, minlength=len(code)), row, later, earlier)


def entry_of(
    place: Int[Array, ""], visited: Int[Array, " remembered"], n_visited: Int[Array, ""]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """Entry of a place among the visited places (the first free one if it is not there), and whether it is new.

    Places are in the order of the first visits. If a new place finds no free entry, the entry is past the end.
    """
    known = visited == place
    is_new = ~known.any()
    return jnp.where(is_new, n_visited, jnp.argmax(known)).astype(jnp.int32), is_new
