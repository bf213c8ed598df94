"""Edges of bins and limits that all parts of the process of people share."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

HOME, SECOND, OTHER = 0, 1, 2
"""Roles of a place for a person. *Other places* are all places but the person's home and second place."""
DWELL_FROM = np.array([1, 2, 3, 5, 9, 17])
"""Lower edges of the bins of dwell time: numbers of instants at the place so far."""
MAX_REMEMBERED = 64
"""Number of other places that people remember; whoever has so many goes to no new place."""
MAX_CHECKIN_PLACES = 128
"""The same for people who check in now and then."""
MAX_ATTRACTION = 4.0
"""Bound of log(weight of going to a place from here / share of people at this place), for returns."""
MAX_DAYS = 28
"""Maximum number of days of a window of check-ins."""

# Every bin begins at its edge and ends before the next edge. Some bins stay empty where the step of the grid is long.
SINCE_FROM_H = np.array([0, 0.5, 1, 2, 3, 4, 7, 13, 19, 23, 26, 31, 47, 50, 71, 74, 121])
"""Edges, in hours, of the bins of the time since the last event, for the time of the next event."""
NONE_YET, NONE_YET_LATER = len(SINCE_FROM_H), len(SINCE_FROM_H) + 1
"""Bins of the time since the last event if there is no event yet: on the first day, and on later days."""
N_SINCE = len(SINCE_FROM_H) + 2
N_HABITS = 7
"""Number of bins of habits; see `habit_bin`."""
GAP_FROM_H = np.array([0, 1, 2, 3, 4, 7, 13, 25, 49])
"""Edges, in hours, of the bins of the gap between an event and the one before, for the place of the event."""
GAP_CLASS = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3], np.int32)
"""Coarser bins of gaps: class of each bin of `GAP_FROM_H`."""
N_GAPS, N_GAP_CLASSES = len(GAP_FROM_H), 4
DISTANCE_FROM_KM = np.array([0, 0.25, 0.4, 0.63, 1, 1.6, 2.5, 4, 7, 12, 20, 32, 80, 200])
"""Edges in km of the bins of distance."""
DISTANCE_CLASS = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4], np.int32)
"""Coarser bins of distance: class of each bin of `DISTANCE_FROM_KM`."""
N_DISTANCES, N_DISTANCE_CLASSES = len(DISTANCE_FROM_KM), 5
ANYWHERE, NEAR_LAST, NEAR_OWN = 0, 1, 2
"""Components of a new place: it is anywhere, near the last place, or near an own place."""
HOURS_A_DAY, DAYS_A_WEEK = 24, 7
SAME_TIME_H, OTHER_TIME_H = 2, 6
"""Two events match if their hours of the day are at most 2 apart, and they do not match if at least 6 apart."""


class DistanceBins(NamedTuple):
    """Bins of `DISTANCE_FROM_KM` between places."""

    distance_bin: Int[np.ndarray, "cell cell"]
    cell: Int[np.ndarray, " place"]

    @classmethod
    def of(cls, km: Float[np.ndarray, "cell cell"], cell: Int[np.ndarray, " place"]) -> DistanceBins:
        """Bins of the distances between cells; all unknown distances have bin 0."""
        return cls((np.searchsorted(DISTANCE_FROM_KM, np.nan_to_num(km), side="right") - 1).astype(np.int8), cell)

    def between(self, place: Int[np.ndarray, " row"], other: Int[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
        return self.distance_bin[self.cell[place], self.cell[other]].astype(np.int64)


def bins_of_instants(from_h: Shaped[np.ndarray, " bin"], per_day: int, n_instants: int) -> Int[np.ndarray, " instants"]:
    """Bins of the durations 0, 1, ..., n_instants - 1, in instants; the edges `from_h` are in hours.

    Examples
    --------
    >>> bins_of_instants(np.array([0, 1, 3]), per_day=48, n_instants=8).tolist()  # steps of half an hour
    [0, 0, 1, 1, 1, 1, 2, 2]
    """
    bins = np.searchsorted(from_h * per_day / HOURS_A_DAY, np.arange(n_instants), side="right") - 1
    return bins.astype(np.int32)


def hour_of_instants(per_day: int, n_instants: int) -> Int[np.ndarray, " instant"]:
    """Hour of the day, rounded down, of each instant of a window that begins at midnight."""
    return (np.arange(n_instants) % per_day * HOURS_A_DAY // per_day).astype(np.int32)


def habit_bin(
    near: Int[Array | np.ndarray, "*shape"], before: Int[Array | np.ndarray, "*shape"]
) -> Int[Array | np.ndarray, "*shape"]:
    """Bin of the share near / before.

    `before`: number of all earlier events. `near`: number of those that are on earlier days and within an hour of this
    time of the day. The hours of the day are rounded down, and 23 is one hour from 0. If `before` is at most two, the
    bin is 0 without near events, and 6 with any. Otherwise the bin is 1 without near events, and 2 to 5 for shares
    up to 0.15, 0.3, 0.5, 1.

    Examples
    --------
    >>> habit_bin(np.array([0, 1, 0, 1, 3]), np.array([0, 2, 3, 10, 3])).tolist()
    [0, 6, 1, 2, 5]
    """
    # Products of whole numbers are exact, so that all programs agree at the edges.
    share_bin = 1 + (near > 0) + (20 * near > 3 * before) + (10 * near > 3 * before) + (2 * near > before)
    few = before <= 2
    return few * (N_HABITS - 1) * (near > 0) + (1 - few) * share_bin


def near_hour(at_hour: Int[Array, "*days 24"]) -> Int[Array, "*days 24"]:
    """Numbers of events within an hour of each hour of the day, given the numbers at each hour."""
    return at_hour + jnp.roll(at_hour, 1, axis=-1) + jnp.roll(at_hour, -1, axis=-1)
