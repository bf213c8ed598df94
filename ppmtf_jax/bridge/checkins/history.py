"""What precedes an event of a window: the gap since the last event, and the places visited so far."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.bridge.checkins.law import (
    DISTANCE_CLASS,
    DISTANCE_FROM_KM,
    GAP_CLASS,
    GAP_FROM_H,
    HOURS_A_DAY,
    MAX_REMEMBERED,
    N_GAP_CLASSES,
    OTHER_TIME_H,
    SAME_TIME_H,
    bins_of_instants,
    hour_of_instants,
)
from ppmtf_jax.bridge.checkins.observed_windows import ObservedWindows
from ppmtf_jax.bridge.contributions import STEP_USERS, bounded, used_share
from ppmtf_jax.bridge.person import VisitedBefore
from ppmtf_jax.data.runs import Runs, run_begins
from ppmtf_jax.data.time_grid import DAY_S

N_BINS = len(DISTANCE_FROM_KM)
TINY = 1e-12


class Visited(NamedTuple):
    """Places with earlier events of the window, one row for each event and place; rows are sorted by event."""

    event: Int[np.ndarray, " row"]  # index among the events of `History`
    place: Int[np.ndarray, " row"]
    n_events: Int[np.ndarray, " row"]
    # Of the earlier events there, the shares near in the time of day, at the same hour, and far in the time of day.
    match: Float[np.ndarray, "row 3"]
    log_hours: Float[np.ndarray, " row"]  # since the last event there; at least 0
    is_last: Bool[np.ndarray, " row"]  # whether this is the last place: the place of the event before
    is_previous: Bool[np.ndarray, " row"]  # whether this is the place just before the last place
    is_next: Bool[np.ndarray, " row"]  # whether the event itself is there

    def where(self, keep: Bool[np.ndarray, " row"]) -> Visited:
        """The rows for which `keep` is true."""
        return Visited._make(column[keep] for column in self)


class History(NamedTuple):
    """All events except the first of each window, and the places visited before each event.

    Events with `MAX_REMEMBERED` or more places visited before them are left out.
    """

    window: Int[np.ndarray, " event"]
    instant: Int[np.ndarray, " event"]
    place: Int[np.ndarray, " event"]
    last_place: Int[np.ndarray, " event"]
    gap: Int[np.ndarray, " event"]  # bin of `GAP_FROM_H`
    n_visited: Int[np.ndarray, " event"]
    is_new: Bool[np.ndarray, " event"]
    part: Float[np.ndarray, " event"]  # part of the weight of its window with which an event counts, see `bounded`
    visited: Visited

    @classmethod
    def of(cls, windows: ObservedWindows) -> History:
        """Look back from each event to all earlier events of its window."""
        window, instant, place, grid = windows.window, windows.instant, windows.place, windows.grid
        later = np.flatnonzero(windows.is_later)
        per_day, last = DAY_S // grid.step_s, later - 1
        gap = bins_of_instants(GAP_FROM_H, per_day, grid.n_instants)[instant[later] - instant[last]]
        visited = _visited(later, windows)
        n_visited = np.bincount(visited.event, minlength=len(later))
        is_new = np.bincount(visited.event, visited.is_next, len(later)) == 0
        whole = np.ones(len(later))
        history = cls(window[later], instant[later], place[later], place[last], gap, n_visited, is_new, whole, visited)
        return history.where(n_visited < MAX_REMEMBERED)

    def bounded(
        self,
        user: Int[np.ndarray, " window"],
        weight: Float[np.ndarray, " window"],
        distance_bin: Int[np.ndarray, "cell cell"],
        cell: Int[np.ndarray, " place"],
    ) -> History:
        """Events count in part: no user weighs more than the second heaviest user, and u users weigh (u - 4) / u.

        Both rules hold among the events of one kind (stay, return, new place) after gaps of one bin, and among those
        over distances of one bin (or class, for returns) after gaps of one class. `user`, `weight`: of each window.
        """
        kind = np.where(self.is_new, 2, self.place != self.last_place)
        distance = distance_bin[cell[self.last_place], cell[self.place]].astype(np.int64)
        # Returns depend only on the class of the distance.
        distance = np.where(self.is_new, distance, DISTANCE_CLASS[distance])
        over_distance = (kind * N_GAP_CLASSES + GAP_CLASS[self.gap]) * N_BINS + distance
        own, part = weight[self.window], self.part
        for group in (kind * len(GAP_FROM_H) + self.gap, over_distance):
            used, users = bounded(user[self.window], group, 3 * N_GAP_CLASSES * N_BINS, own)
            part = np.minimum(part, used / np.maximum(own, TINY) * used_share(users, STEP_USERS)[group])
        return self._replace(part=part)

    def where(self, keep: Bool[np.ndarray, " event"]) -> History:
        """The events for which `keep` is true, and their visited places."""
        visited = self.visited.where(keep[self.visited.event])
        visited = visited._replace(event=(np.cumsum(keep) - 1)[visited.event])
        return History._make([*(column[keep] for column in self[:-1]), visited])


def _visited(later: Int[np.ndarray, " later"], windows: ObservedWindows) -> Visited:
    """The places visited before each of the events `later`, which are all events but the first of each window."""
    instant, place, grid = windows.instant, windows.place, windows.grid
    seen = VisitedBefore.of(windows.window, place)
    of_row = np.searchsorted(later, seen.event)
    per_day = DAY_S // grid.step_s
    hour = hour_of_instants(per_day, grid.n_instants)[instant]
    apart = np.abs(hour[seen.earlier] - hour[seen.later])
    apart = np.minimum(apart, HOURS_A_DAY - apart)
    close = (apart <= SAME_TIME_H, apart == 0, apart >= OTHER_TIME_H)
    match = np.stack([np.bincount(seen.row, each, len(of_row)) / seen.count for each in close], axis=1)
    last_there = np.zeros(len(of_row), np.int64)
    np.maximum.at(last_there, seen.row, instant[seen.earlier])
    hours = (instant[seen.event] - last_there) * HOURS_A_DAY / per_day
    run = np.cumsum(run_begins(windows.window, place)) - 1
    previous = Runs.of(windows.window, place).place_before(1)[run[later - 1]]
    others = place[later - 1], previous, place[later]
    is_last, is_previous, is_next = (seen.place == each[of_row] for each in others)
    return Visited(of_row, seen.place, seen.count, match, np.log(np.maximum(hours, 1)), is_last, is_previous, is_next)
