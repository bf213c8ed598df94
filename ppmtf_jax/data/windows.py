"""Windows: traces cut into periods, so that real ones with gaps and complete synthetic ones can be compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import joined_ranges, run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem


class Visits(NamedTuple):
    """How often each window is at each of its places, in the order of (window, place)."""

    window: np.ndarray
    place: np.ndarray
    count: np.ndarray


@dataclass(frozen=True, eq=False)
class Windows:
    """Where users were within one period, such as a day: each trace is cut where a period of its grid begins.

    Real traces last for months with most instants missing, synthetic traces are complete and last one period. Their
    windows can be compared after `thinned` reduces each synthetic window to the instants of a real window.

    Examples
    --------
    Two days of four instants; a user with events at instants 1, 2 and 5.

    >>> import pandas as pd
    >>> places = PlaceTable.from_frame(
    ...     pd.DataFrame({"place": ["home", "work"], "latitude": [35.6, 35.7], "longitude": [139.7, 139.8]})
    ... )
    >>> grid = TimeGrid.cyclic("2024-01-01T00:00:00", 21_600, 8, slot_s=21_600)
    >>> frame = pd.DataFrame({"user": 7, "instant": [1, 2, 5], "place": ["home", "work", "home"]})
    >>> windows = Windows.of(Traces.from_frame(frame, places, grid))
    >>> windows.n_windows, windows.window.tolist(), windows.phase.tolist()
    (2, [0, 0, 1], [1, 2, 1])
    """

    window: np.ndarray  # number of the window, sorted, each at least once; shape (events,)
    phase: np.ndarray  # instant within the period, rising within a window; shape (events,)
    place: np.ndarray  # index of the place; shape (events,)
    user: np.ndarray  # index of the user; shape (windows,)
    places: PlaceTable
    time_grid: TimeGrid  # of one period

    @property
    def n_windows(self) -> int:
        return len(self.user)

    @classmethod
    def of(cls, traces: Traces) -> Windows:
        """The windows of traces: events of one user, one trace number and one period of the grid."""
        piece, phase, first = traces.periods()
        return cls(piece, phase, traces.place, traces.user[first], traces.places, traces.time_grid.one_period())

    def events_per_window(self) -> np.ndarray:
        """How many events each window has, shape (windows,)."""
        return np.bincount(self.window, minlength=self.n_windows)

    def with_events(self, n_events: int) -> Windows:
        """The windows with at least `n_events` events."""
        return self.select(self.events_per_window() >= n_events)

    def select(self, keep: np.ndarray) -> Windows:
        """Some of the windows: `keep` has one boolean for each."""
        return self._select(keep[self.window])

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

        `drawn` (shape (windows,)): the window of `real` for each of these windows. Raises `InputError`: the periods of
        the grids differ, or `drawn` does not name a window of `real` for each window.

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
        period = self.time_grid.n_instants
        wanted = np.repeat(np.arange(len(drawn)) * period, n_wanted) + real.phase[event]
        instant = self.window.astype(np.int64) * period + self.phase
        return self._select(np.isin(instant, wanted, assume_unique=True))

    def _select(self, keep: np.ndarray) -> Windows:
        window = self.window[keep]
        is_left = np.bincount(window, minlength=self.n_windows) > 0
        number = np.cumsum(is_left, dtype=np.int32) - 1
        kept = {"phase": self.phase[keep], "place": self.place[keep], "user": self.user[is_left]}
        return replace(self, window=number[window], **kept)

    def _check_drawn(self, real: Windows, drawn: np.ndarray) -> None:
        problems = []
        if not same_period(self.time_grid, real.time_grid):
            found = f"periods of {self.time_grid.n_instants} and of {real.time_grid.n_instants} instants"
            problems.append(Problem("grids whose periods have the same instants and slots", f"{found}, or other slots"))
        if drawn.shape != self.user.shape or not ((drawn >= 0) & (drawn < real.n_windows)).all():
            expected = f"a number from 0 to {real.n_windows - 1} for each of {self.n_windows} windows"
            problems.append(Problem(expected, f"{drawn.shape[0]} numbers" if drawn.ndim == 1 else repr(drawn.shape)))
        if problems:
            raise InputError("windows to thin", problems)


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
