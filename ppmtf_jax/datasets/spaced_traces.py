"""Traces of places that are far apart in time, whatever the time of day: what re-identification is tried on.

Sections VI-A and VII-A of Murakami et al., "Group Sparsity Tensor Factorization for Re-identification of Open Mobility
Traces" (TIFS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretization import Events, Rows
from ppmtf_jax.datasets.places import GridPlaces, MostVisited, Number, OtherPlaces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Count, Settings


@dataclass(frozen=True)
class SpacedTraces(Settings, subject="spaced traces"):
    """Check-ins become traces by their order: the k-th place of a trace is at instant k.

    Of a user's check-ins at the places, the first is kept, and then each that is more than `min_gap_s` after the last
    one kept. Traces are of users with at least `n_traces` times `trace_length` of them: so many traces of so many
    places each, or, where `max_gap_s` is given, all they have, cut where they are further apart. Where a table tells
    traces, they do not count. Instants number the places of a trace and are no times: the time grid has a slot for
    each, and its start and step are nominal.

    Parameters
    ----------
    places : GridPlaces or MostVisited
    n_traces, trace_length : int
        Traces per user, and places per trace.
    min_gap_s : int
        Seconds of true time, more than which lie between two places.
    max_gap_s : float, optional
        Seconds of true time, after more than which a new trace begins; traces of one place are left out.

    Raises
    ------
    InputError
        Listing every setting that is impossible.

    Examples
    --------
    >>> import pandas as pd
    >>> from ppmtf_jax.datasets.checkins import read_checkins
    >>> hours = ["00:00", "00:20", "00:31", "01:40", "02:30"]
    >>> table = pd.DataFrame({"user": "ann", "time": [f"2024-01-01T{each}Z" for each in hours], "place": [*"abcde"]})
    >>> spaced = SpacedTraces(MostVisited(5), n_traces=2, trace_length=2)
    >>> traces, report = read_checkins(table.assign(latitude=35.6, longitude=139.7), discretization=spaced)
    >>> traces.to_frame()[["trace", "instant", "place"]].to_numpy().tolist()
    [[0, 0, 'a'], [0, 1, 'c'], [1, 0, 'd'], [1, 1, 'e']]
    """

    places: GridPlaces | MostVisited
    n_traces: Count = 10
    trace_length: Count = 10
    min_gap_s: Count = 1800
    max_gap_s: Number | None = None

    def problems(self) -> list[Problem | str]:
        """A largest gap that is below the smallest."""
        if self.max_gap_s is None or self.max_gap_s > self.min_gap_s:
            return []
        return [Problem(f"max_gap_s above min_gap_s, {self.min_gap_s} s", repr(self.max_gap_s))]

    # As published: attacks are tried on the data as they are.
    min_users_per_place: ClassVar[int] = 1
    other_places: ClassVar[OtherPlaces] = "drop"

    @property
    def resolution_s(self) -> int:
        return self.min_gap_s

    def events_of(self, rows: Rows, time_zone: str) -> Events:
        """The events among check-ins at places, in any order.

        Raises
        ------
        InputError
            Nobody has enough of them.
        """
        spaced = rows.at(np.lexsort((rows.utc, rows.user)))
        spaced = spaced.at(is_spaced(spaced.user, spaced.utc, self.min_gap_s))
        needed, had = self.n_traces * self.trace_length, np.bincount(spaced.user)
        if had.max() < needed:
            expected = f"at least one user with {needed} check-ins more than {self.min_gap_s} s apart"
            way_out = "Ask for fewer or shorter traces, or choose a larger box or more places"
            raise InputError("spaced traces", [Problem(expected, f"at most {had.max()}", way_out=way_out)])
        enough = spaced.at(had[spaced.user] >= needed)
        events = self._first_of(enough, needed) if self.max_gap_s is None else self._cut_by_gaps(enough)
        n_users, n_left_out = len(np.unique(enough.user)), int(np.count_nonzero((had > 0) & (had < needed)))
        n_close, n_few = len(rows.user) - len(spaced.user), len(spaced.user) - len(enough.user)
        why = "beyond them" if self.max_gap_s is None else "alone in a trace"
        notes = [
            f"check-ins left out: {n_close:,} within {self.min_gap_s} s of the last one kept, "
            f"{n_few:,} of {n_left_out:,} users with less than {needed}, "
            f"{len(enough.user) - len(events[0].user):,} of the {n_users:,} others {why}",
            "instants number the places of a trace, they are no times",
        ]
        kept, trace, instant = events
        first_day = str(rows.local.min().astype("datetime64[D]"))
        n_instants = int(instant.max(initial=0)) + 1
        grid = TimeGrid.each_instant(f"{first_day}T00:00:00", int(self.min_gap_s), n_instants, time_zone)
        return Events(kept, trace, instant, grid, 0, notes=notes)

    def _first_of(self, rows: Rows, needed: int) -> tuple[Rows, np.ndarray, np.ndarray]:
        number = _number_in_group(rows.user)
        first = number < needed
        return rows.at(first), *np.divmod(number[first], self.trace_length)

    def _cut_by_gaps(self, rows: Rows) -> tuple[Rows, np.ndarray, np.ndarray]:
        far = np.diff(rows.utc) > self.max_gap_s
        group = np.cumsum(np.concatenate([[True], far | (np.diff(rows.user) != 0)])) - 1
        together = np.bincount(group)[group] > 1
        rows, group = rows.at(together), group[together]
        first = np.flatnonzero(np.diff(group, prepend=-1))
        trace = _number_in_group(rows.user[first])
        return rows, np.repeat(trace, np.diff(first, append=len(group))), _number_in_group(group)


def is_spaced(user: np.ndarray, utc: np.ndarray, min_gap_s: Number) -> np.ndarray:
    """Which events are kept if each user's first is, and then each more than a gap after the last one kept.

    Parameters
    ----------
    user : int array, shape (events,)
        Sorted.
    utc : int array, shape (events,)
        Seconds, sorted for each user.
    min_gap_s : float

    Returns
    -------
    bool array, shape (events,)

    Examples
    --------
    >>> is_spaced(np.array([0, 0, 0, 0, 1]), np.array([0, 20, 31, 61, 0]), 30).tolist()
    [True, False, True, False, True]
    """
    n = len(user)
    kept = np.zeros(n + 1, bool)
    kept[:n] = np.diff(user, prepend=-1) != 0
    # One clock for all: whoever comes next begins after the gap from the last event of the one before.
    since = utc - utc.min(initial=0)
    clock = user.astype(np.int64) * (int(since.max(initial=0)) + int(np.ceil(min_gap_s)) + 1) + since
    following = np.searchsorted(clock, clock + min_gap_s, side="right")
    same_user = user[np.minimum(following, n - 1)] == user if n else np.zeros(0, bool)
    following = np.append(np.where((following < n) & same_user, following, n), n)
    # After round r the first 2^r of each user are known; the jumps are then as long.
    while (following[:n] < n).any():
        kept[following[kept]] = True
        following = following[following]
    return kept[:n]


def split_traces(traces: Traces, share: float) -> tuple[Traces, Traces]:
    """The first traces of each user, at least one, and her other traces.

    Parameters
    ----------
    traces : Traces
    share : float
        Of the number of each user's traces, rounded up.

    Raises
    ------
    InputError
        The share is not above 0 and below 1, or leaves no trace on the other side.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> city = toy_city(n_users=3, n_days=1, seed=0).traces
    >>> split_traces(city, 0.1)
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: split: expected users with at least 2 traces; found at most 1.
    """
    if not 0 < share < 1:
        raise InputError("split", [Problem("a share above 0 and below 1", repr(share))])
    user, _ = traces.trace_table()
    n_first = np.maximum(1, np.ceil(share * np.bincount(user) - 1e-9))
    is_first = _number_in_group(user) < n_first[user]
    if is_first.all():
        at_least = int(np.floor(1 / (1 - share))) + 1 if share > 0.5 else 2
        found = f"at most {np.bincount(user).max()}"
        raise InputError("split", [Problem(f"users with at least {at_least} traces", found)])
    return traces.select_traces(is_first), traces.select_traces(~is_first)


def _number_in_group(group: np.ndarray) -> np.ndarray:
    """0, 1, ... within each run of equal numbers."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(first, np.diff(first, append=len(group)))
