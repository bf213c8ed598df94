"""Traces of places that are far apart in time, whatever the time of day: the data of the re-identification papers.

Sections VI-A and VII-A of Murakami et al., "Group Sparsity Tensor Factorization for Re-identification of Open Mobility
Traces" (TIFS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ppmtf_jax.data.runs import rank_in_run, run_begins, stable_order
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretization import HOUR_S, PlacedVisits, TracedEvents, Visits, trace_numbers
from ppmtf_jax.datasets.places import Number, OtherPlaces, PlaceChoice
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.settings import Count, Settings


@dataclass(frozen=True)
class SpacedTraces(Settings, subject="spaced traces"):
    """Check-ins become traces by their order: the k-th place of a trace is at instant k.

    A user's first check-in at the places is kept, and then each check-in that is more than `min_gap_s` after the last
    kept check-in. Only users with at least `n_traces` times `trace_length` kept check-ins have traces: `n_traces`
    traces of `trace_length` places each, or, with `max_gap_s`, all kept check-ins, cut at longer gaps. A trace column
    of the table is not used. Instants number the places of a trace and are not times: the time grid has a slot for
    each, and its start and step are nominal.

    Parameters
    ----------
    places : GridPlaces, MostVisited or GivenPlaces
    n_traces, trace_length : int
        Traces per user, and places per trace.
    min_gap_s : int
        More than these seconds of true time lie between two places.
    max_gap_s : float, optional
        A new trace begins after more than these seconds of true time; traces of one place are dropped.

    Examples
    --------
    >>> import pandas as pd
    >>> from ppmtf_jax.datasets.checkins import read_checkins
    >>> hours = ["00:00", "00:20", "00:31", "01:40", "02:30"]
    >>> table = pd.DataFrame({"user": "ann", "time": [f"2024-01-01T{each}Z" for each in hours], "place": [*"abcde"]})
    >>> from ppmtf_jax.datasets.places import MostVisited
    >>> spaced = SpacedTraces(MostVisited(5), n_traces=2, trace_length=2)
    >>> traces, report = read_checkins(table.assign(latitude=35.6, longitude=139.7), discretization=spaced)
    >>> traces.to_frame()[["trace", "instant", "place"]].to_numpy().tolist()
    [[0, 0, 'a'], [0, 1, 'c'], [1, 0, 'd'], [1, 1, 'e']]
    """

    places: PlaceChoice
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
        """Seconds within which the order of check-ins does not count."""
        return self.min_gap_s

    def events_of(self, visits: PlacedVisits, time_zone: str) -> TracedEvents:
        """The events among check-ins at places, as of `Discretization`; an error if no user has enough of them."""
        blocks = (block.take(stable_order(block.user, block.utc_s)) for block in visits.blocks)
        blocks = (block.take(is_spaced(block.user, block.utc_s, self.min_gap_s)) for block in blocks)
        spaced = Visits(*(np.concatenate(columns) for columns in zip(*blocks, strict=True)))
        needed, had = self.n_traces * self.trace_length, np.bincount(spaced.user)
        if had.max() < needed:
            expected = f"at least one user with {needed} check-ins more than {self.min_gap_s} s apart"
            way_out = "Ask for fewer or shorter traces, or choose a larger box or more places"
            raise InputError("spaced traces", [Problem(expected, f"at most {had.max()}", way_out=way_out)])
        enough = spaced.take(had[spaced.user] >= needed)
        user = enough.user
        rank = rank_in_run(user)
        if self.max_gap_s is None:
            begins, is_kept, why = rank % self.trace_length == 0, rank < needed, "beyond them"
        else:
            begins = run_begins(user)
            begins[1:] |= np.diff(enough.utc_s) > self.max_gap_s
            is_kept, why = ~(begins & np.append(begins[1:], True)), "alone in a trace"
        kept, begins = enough.take(is_kept), begins[is_kept]
        trace, instant = trace_numbers(kept.user, begins), rank_in_run(np.cumsum(begins))
        n_users, n_left_out = len(np.unique(user)), int(np.count_nonzero((had > 0) & (had < needed)))
        notes = [
            f"check-ins left out: {visits.n_visits - len(spaced.user):,} within {self.min_gap_s} s of the last one kept"
            f", {len(spaced.user) - len(user):,} of {n_left_out:,} users with less than {needed}, "
            f"{len(user) - len(kept.user):,} of the {n_users:,} others {why}",
            "instants number the places of a trace; they are not times",
        ]
        first_day = np.datetime64(visits.first_s, "s").astype("datetime64[D]")
        n_instants = int(instant.max(initial=0)) + 1
        grid = TimeGrid.each_instant(f"{first_day}T00:00:00", int(self.min_gap_s), n_instants, time_zone)
        n_of_hour = np.bincount(kept.local_s // HOUR_S % 24, minlength=24)
        return TracedEvents(kept.user, trace, instant, kept.place, n_of_hour, grid, notes=notes)


def is_spaced(user: np.ndarray, utc: np.ndarray, min_gap_s: Number) -> np.ndarray:
    """Whether each event is the first of its user, or more than `min_gap_s` after the user's last kept event.

    Events are sorted by user and time; `utc` is in seconds.
    """
    n = len(user)
    kept = np.zeros(n + 1, bool)
    kept[:n] = np.diff(user, prepend=-1) != 0
    # One clock for all users: the next user begins more than a gap after the last event of the user before.
    since = utc - utc.min(initial=0)
    clock = user.astype(np.int64) * (int(since.max(initial=0)) + int(np.ceil(min_gap_s)) + 1) + since
    following = np.searchsorted(clock, clock + min_gap_s, side="right")
    same_user = user[np.minimum(following, n - 1)] == user if n else np.zeros(0, bool)
    following = np.append(np.where((following < n) & same_user, following, n), n)
    # After round r, the first 2^r kept events of each user are known, and a jump leads 2^r kept events ahead.
    while (following[:n] < n).any():
        kept[following[kept]] = True
        following = following[following]
    return kept[:n]


def split_traces(traces: Traces, share: float) -> tuple[Traces, Traces]:
    """The first traces of each user, at least one, and the user's other traces.

    `share`: share of each user's traces that come first, rounded up. Raises `InputError`: the share is not above 0 and
    below 1, or leaves no trace on the other side.
    """
    if not 0 < share < 1:
        raise InputError("split", [Problem("a share above 0 and below 1", repr(share))])
    user, _ = traces.trace_table()
    n_first = np.maximum(1, np.ceil(share * np.bincount(user) - 1e-9))
    is_first = rank_in_run(user) < n_first[user]
    if is_first.all():
        at_least = int(np.floor(1 / (1 - share))) + 1 if share > 0.5 else 2
        found = f"at most {np.bincount(user).max()}"
        raise InputError("split", [Problem(f"users with at least {at_least} traces", found)])
    return traces.select_traces(is_first), traces.select_traces(~is_first)
