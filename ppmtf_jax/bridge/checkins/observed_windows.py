"""Windows of calendar days that are cut from traces, as lists of events; and the weight of one user in them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.bridge.contributions import CHECKIN_WINDOWS, bounded
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem


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
        Windows of whole weeks all begin on the same day of the week.

        Raises
        ------
        InputError
            No event is left, or the slots of one window differ from those of another.
        """
        begin, length = traces.time_grid.first_midnight(), grid.n_instants
        end = begin + (traces.time_grid.n_instants - begin) // length * length
        slots = traces.time_grid.slot_of_instant[begin:end].reshape(-1, length)
        used = (traces.instant >= begin) & (traces.instant < end)
        problems = [] if used.any() else [Problem("events in the whole days of the grid", "none")]
        if (slots != slots[0]).any():
            found = traces.time_grid.summary()["slots"]
            problems.append(Problem(f"slots that repeat after {length} instants, the length of a window", found))
        if problems:
            raise InputError("check-ins", problems)
        number, instant = np.divmod(traces.instant[used] - begin, length)
        begins = run_begins(traces.user[used], traces.trace[used], number)
        return cls(traces.user[used][begins], np.cumsum(begins) - 1, instant, traces.place[used], grid)

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

    def of_users(self, users: Int[np.ndarray, " user"]) -> ObservedWindows:
        """The windows of the given users; users keep their numbers."""
        kept = np.isin(self.user, users)
        number = np.cumsum(kept) - 1
        events = kept[self.window]
        columns = {name: getattr(self, name)[events] for name in ("instant", "place")}
        return replace(self, user=self.user[kept], window=number[self.window[events]], **columns)
