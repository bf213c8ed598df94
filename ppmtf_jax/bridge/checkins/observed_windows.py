"""Windows of calendar days that are cut from traces, and the weight of one user in them; whether traces are sparse.

Traces are sparse if most instants of a person's active days were not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.bridge.contributions import CHECKIN_WINDOWS, bounded
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem

SPARSE_SHARE, SPARSE_STEPS = 0.2, 0.3
"""Traces are sparse if `Sparsity.share` and `Sparsity.steps` are below these bounds."""


@dataclass(frozen=True, eq=False)
class ObservedWindows:
    """Windows with at least one event; events are sorted by window and instant; instant 0 begins the window."""

    user: Int[np.ndarray, " window"]
    window: Int[np.ndarray, " event"]
    instant: Int[np.ndarray, " event"]
    place: Int[np.ndarray, " event"]
    grid: TimeGrid  # of one window

    @classmethod
    def of(cls, traces: Traces, grid: TimeGrid) -> ObservedWindows:
        """Cut each trace into windows as long as `grid`, one after the other, from the first midnight on.

        Events before the first midnight are left out, and so are events of the last days that do not fill a window.
        Windows of whole weeks all begin on the same day of the week. If the slots of one window differ from those of
        another, this is an `InputError`.
        """
        begin, length = traces.time_grid.first_midnight(), grid.n_instants
        end = begin + (traces.time_grid.n_instants - begin) // length * length
        slots = traces.time_grid.slot_of_instant[begin:end].reshape(-1, length)
        if (slots != slots[0]).any():
            found = traces.time_grid.summary()["slots"]
            problem = Problem(f"slots that repeat after {length} instants, the length of a window", found)
            raise InputError("check-ins", [problem])
        used = (traces.instant >= begin) & (traces.instant < end)
        number, instant = np.divmod(traces.instant[used] - begin, length)
        begins = run_begins(traces.user[used], traces.trace[used], number)
        return cls(traces.user[used][begins], np.cumsum(begins) - 1, instant, traces.place[used], grid)

    @classmethod
    def of_some(
        cls, traces: Traces, grid: TimeGrid, random: np.random.Generator, *, most_instants: int, most_pairs: int
    ) -> ObservedWindows:
        """The windows of random users, as in `of`: as many users as the two upper bounds allow, but at least one.

        `most_instants`: number of instants of all windows. `most_pairs`: number of pairs of an event and an earlier
        event of the same window. The traces are read in blocks of users.

        Raises
        ------
        InputError
            As in `of`, or no window has an event.
        """

        def count(block: Traces) -> Int[np.ndarray, "user 2"]:
            windows = cls.of(block, grid)
            size = np.bincount(windows.window, minlength=windows.n_windows)
            pairs = np.bincount(windows.user, size * (size - 1) // 2, block.n_users)
            return np.stack([np.bincount(windows.user, minlength=block.n_users), pairs.astype(int)], axis=1)

        counts = traces.blocks.map(count).joined()
        with_windows = np.flatnonzero(counts[:, 0])
        if not len(with_windows):
            raise InputError("check-ins", [Problem("events in the whole days of the grid", "none")])
        order = random.permutation(int(with_windows[-1]) + 1)
        n_windows, n_pairs = counts[order].T
        fits = (np.cumsum(n_windows) * grid.n_instants <= most_instants) & (np.cumsum(n_pairs) <= most_pairs)
        # At least one user who has a window.
        fits |= order == order[n_windows > 0][0]
        users = np.sort(order[fits])
        windows = cls.of(traces.select_users(users), grid)
        return replace(windows, user=users[windows.user])

    @property
    def n_windows(self) -> int:
        return len(self.user)

    @property
    def user_of_event(self) -> Int[np.ndarray, " event"]:
        """User of each event."""
        return self.user[self.window]

    @property
    def is_later(self) -> Bool[np.ndarray, " event"]:
        """Whether an event is not the first event of its window."""
        return ~run_begins(self.window)

    def weights(self) -> Float[np.ndarray, " window"]:
        """Weight of each window, such that the weight of one user is bounded.

        All windows of a user have the same weight. The sum of these weights is at most `CHECKIN_WINDOWS`. The events of
        a user weigh at most as much as those of the user who has the second most. With only one user, only the first
        bound holds.
        """
        n_users = int(self.user.max(initial=-1)) + 1
        windows = np.bincount(self.user, minlength=n_users)
        weight = np.minimum(1, CHECKIN_WINDOWS / np.maximum(windows, 1))[self.user]
        users = self.user_of_event
        if len(np.unique(users)) < 2:
            return weight
        of_event = bounded(users, np.zeros(len(users), np.int64), 1, weight[self.window])[0]
        # All events of a window have the same weight.
        return of_event[run_begins(self.window)]


class Sparsity(NamedTuple):
    """Facts about traces; an active user-day is a day with an event in a trace of a user."""

    events_a_day: float  # events of an active user-day
    share: float  # share of the instants of active user-days that have an event
    steps: float  # of the events after the first of each trace, the share one instant after the event before

    @classmethod
    def of(cls, traces: Traces) -> Sparsity:
        """Count; the instants of a day are the instants that the time grid has on this day.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> facts = Sparsity.of(toy_city(n_users=20, missing=0.75, seed=0).traces)
        >>> round(facts.share, 1), facts.is_sparse
        (0.3, False)
        """
        day = traces.time_grid.day()

        def count(block: Traces) -> Int[np.ndarray, "4"]:
            of_event, gaps = day[block.instant], block.gaps()
            days = of_event[run_begins(block.user, block.trace, of_event)]
            return np.array([len(days), np.bincount(day)[days].sum(), (gaps == 1).sum(), len(gaps)])

        n_days, n_instants, n_steps, n_gaps = traces.blocks.map(count).total().tolist()
        return cls(traces.n_events / n_days, traces.n_events / n_instants, n_steps / max(n_gaps, 1))

    @property
    def is_sparse(self) -> bool:
        """Whether few instants of active days have events, and events seldom follow each other at successive instants.

        GPS recordings also cover only a small part of the day, but without gaps, so they are not sparse.
        """
        return self.share < SPARSE_SHARE and self.steps < SPARSE_STEPS
