"""Windows: traces cut into spans of equal length, so that real ones with gaps and synthetic ones can be compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import Runs, joined_ranges, run_begins
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid, without_gaps
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem, raise_any

MIN_WINDOW_EVENTS = 2
"""Metrics and attacks leave out windows with fewer events."""
NO_WINDOWS = f"no window of {MIN_WINDOW_EVENTS} events in one of the sets, or time grids with different periods"


class Visits(NamedTuple):
    """How often each window is at each of its places, in the order of (window, place)."""

    window: np.ndarray
    place: np.ndarray
    count: np.ndarray


@dataclass(frozen=True, eq=False)
class Windows:
    """Where users were within spans of equal length, such as a day: each trace is cut where a span of its grid begins.

    Real traces last for months with most instants missing; most synthetic traces are complete. Their windows can be
    compared after `thinned` reduces each synthetic window to the instants of a real window.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, n_days=3, missing=0.0, seed=0).traces)
    >>> windows.n_windows, windows.events_per_window().tolist()[:3]
    (15, [24, 24, 24])
    """

    window: np.ndarray  # number of the window, sorted, each at least once; shape (events,)
    phase: np.ndarray  # instant within the span, rising within a window; shape (events,)
    place: np.ndarray  # index of the place; shape (events,)
    user: np.ndarray  # index of the user; shape (windows,)
    places: PlaceTable
    time_grid: TimeGrid  # of one span

    @property
    def n_windows(self) -> int:
        return len(self.user)

    @classmethod
    def of(cls, traces: Traces, n_instants: int | None = None) -> Windows:
        """The windows of traces: events of one user, one trace number and one span of the grid.

        A span has `n_instants` instants, by default one period of the grid. The first span begins at instant 0. A span
        that is longer than a period counts only if the grid has all of its instants.
        """
        grid = traces.time_grid
        length = grid.period if n_instants is None else n_instants
        piece, phase, first = traces.periods(length)
        windows = cls(piece, phase, traces.place, traces.user[first], traces.places, _first_instants(grid, length))
        if length <= grid.period or grid.n_instants % length == 0:
            return windows
        return windows.select(traces.instant[first] // length < grid.n_instants // length)

    @cached_property
    def runs(self) -> Runs:
        """Runs of consecutive events at one place, gaps ignored, in the order of the events."""
        return Runs.of(self.window, self.place)

    def arrivals(self) -> Windows:
        """The windows with the first event of each of their `runs` alone."""
        return self.select_events(run_begins(self.window, self.place))

    def days(self) -> Windows:
        """The windows cut into days: 24 hours from the beginning of the window, the last one maybe shorter.

        A window of less than a day is a day.
        """
        n_instants = min(max(DAY_S // self.time_grid.step_s, 1), self.time_grid.n_instants)
        number, phase = np.divmod(self.phase, n_instants)
        begins = run_begins(self.window, number)
        kept = {"phase": phase, "user": self.user[self.window[begins]]}
        grid = _first_instants(self.time_grid, n_instants)
        return replace(self, window=np.cumsum(begins, dtype=np.int32) - 1, time_grid=grid, **kept)

    def events_per_window(self) -> np.ndarray:
        """How many events each window has, shape (windows,)."""
        return np.bincount(self.window, minlength=self.n_windows)

    def with_events(self, n_events: int) -> Windows:
        """The windows with at least `n_events` events."""
        return self.select(self.events_per_window() >= n_events)

    def select(self, keep: np.ndarray) -> Windows:
        """Some of the windows: `keep` has one boolean for each."""
        return self.select_events(keep[self.window])

    def is_step(self) -> np.ndarray:
        """For each event, whether the event before it is of the same window and the instant before, shape (events,)."""
        return ~run_begins(self.window) & (np.diff(self.phase, prepend=0) == 1)

    def steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Place and next place of each pair of events at consecutive instants of a window, each of shape (steps,)."""
        later = np.flatnonzero(self.is_step())
        return self.place[later - 1], self.place[later]

    def visits(self) -> Visits:
        """How often each window is at each of its places."""
        n_places = len(self.places)
        pair, count = np.unique(self.window.astype(np.int64) * n_places + self.place, return_counts=True)
        return Visits(*np.divmod(pair, n_places), count)

    def thinned(self, real: Windows, drawn: np.ndarray) -> Windows:
        """Reduce each window to the phases of a real window; windows without an event are left out.

        `drawn` (shape (windows,)): the window of `real` for each of these windows. Raises `InputError`: the windows
        differ in length or in the slots of a period, or `drawn` does not name a window of `real` for each window.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> complete, real = (Windows.of(toy_city(5, n_days=1, missing=share).traces) for share in (0.0, 0.9))
        >>> thinned = complete.thinned(real, np.zeros(5, int))
        >>> bool((thinned.events_per_window() == real.events_per_window()[0]).all())
        True
        """
        self._check_drawn(real, drawn)
        n_events = real.events_per_window()
        first, n_wanted = (np.cumsum(n_events) - n_events)[drawn], n_events[drawn]
        # The events of the drawn windows, one window after the other.
        event = joined_ranges(first, n_wanted)
        length = self.time_grid.n_instants
        wanted = np.repeat(np.arange(len(drawn)) * length, n_wanted) + real.phase[event]
        instant = self.window.astype(np.int64) * length + self.phase
        return self.select_events(np.isin(instant, wanted, assume_unique=True))

    def select_events(self, keep: np.ndarray) -> Windows:
        """Some of the events: `keep` has one boolean for each; windows without an event are left out."""
        window = self.window[keep]
        is_left = np.bincount(window, minlength=self.n_windows) > 0
        number = np.cumsum(is_left, dtype=np.int32) - 1
        kept = {"phase": self.phase[keep], "place": self.place[keep], "user": self.user[is_left]}
        return replace(self, window=number[window], **kept)

    def _check_drawn(self, real: Windows, drawn: np.ndarray) -> None:
        problems = []
        grid, other = self.time_grid, real.time_grid
        if grid.n_instants != other.n_instants or not same_period(grid, other):
            found = f"windows of {grid.n_instants} and of {other.n_instants} instants, or other slots"
            problems.append(Problem("windows of the same length, in the same slots of a period", found))
        if drawn.shape != self.user.shape or not ((drawn >= 0) & (drawn < real.n_windows)).all():
            expected = f"a number from 0 to {real.n_windows - 1} for each of {self.n_windows} windows"
            problems.append(Problem(expected, f"{drawn.shape[0]} numbers" if drawn.ndim == 1 else repr(drawn.shape)))
        raise_any("windows to thin", problems)


def is_complete(traces: Traces) -> bool:
    """Whether every trace has an event at every instant of the grid.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> [is_complete(toy_city(5, n_days=1, missing=share).traces) for share in (0.0, 0.5)]
    [True, False]
    """
    return traces.n_events == len(traces.trace_table()[0]) * traces.time_grid.n_instants


def same_period(grid: TimeGrid, other: TimeGrid) -> bool:
    """Whether periods of two grids have equally many instants, equally long and in the same slots.

    Examples
    --------
    >>> days, hours = (TimeGrid.cyclic("2024-01-01T00:00:00", 3600, n, slot_s=7200) for n in (72, 24))
    >>> same_period(days, hours), same_period(days, TimeGrid.cyclic("2024-01-01T01:00:00", 3600, 24, slot_s=7200))
    (True, False)
    """
    periods = (each.slot_of_instant[: each.period] for each in (grid, other))
    return grid.step_s == other.step_s and np.array_equal(*periods)


def _first_instants(grid: TimeGrid, n_instants: int) -> TimeGrid:
    """The first instants of a grid, with slots numbered anew if a slot is missing there."""
    slots = without_gaps(grid.slot_of_instant[:n_instants])
    return replace(grid, slot_of_instant=slots, period=min(grid.period, n_instants))
