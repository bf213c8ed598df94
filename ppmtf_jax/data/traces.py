"""Traces in memory, validated, and the steps between their events.

Users and places are indices: users in the order of their sorted ids, places in the order of the place table. Files (see
`trace_set`) hold the user's own ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data import trace_set
from ppmtf_jax.data.blocks import BLOCK_USERS, Blocks
from ppmtf_jax.data.description import counted, in_lines, quantiles
from ppmtf_jax.data.events import (
    EVENT_COLUMNS,
    Events,
    checked_mask,
    chosen_users,
    counts_per_user,
    friend_indices,
    pieces_of,
    read_events,
    renumbered,
    sorted_events,
)
from ppmtf_jax.data.places import PlaceTable, id_array
from ppmtf_jax.data.runs import Periods, Transitions, distinct_pairs, run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import EventTable, Origin
from ppmtf_jax.errors import InputError, Problem, missing_columns, raise_any
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import MODEL, SYNTHETIC_TRACES, TRAINING_TRACES, Lineage, Paths, output_folder
from ppmtf_jax.streams import Stage, numpy_stream

NOTHING_KEPT = Problem("at least one event to keep", "none")
NO_EVENT = Problem("at least one event", "an empty table", way_out="Loosen the filters that were applied")


@dataclass(frozen=True, eq=False)
class Traces:
    """Location traces: who was where at which instant.

    An instant without an event is absent. Events are sorted by (user, trace, instant), all distinct. Build traces with
    `from_frame` or `load`; both validate. Traces of `open_traces` stay in their folder: they have no columns of events,
    and are given in `blocks` of users.

    Parameters
    ----------
    user, trace, instant, place : int32 arrays, shape (events,)
        Index of the user, number of the trace among that user's, instant of the grid, index of the place.
    user_ids : array, shape (users,)
        The user's own identifiers, sorted.
    friendships : int32 array, shape (pairs, 2), or None
        User indices, the smaller first, each pair once.
    origin : Origin or None
        Origin of traces that `synthesize` made; None for other traces.
    of_nobody : bool
        Whether the users were invented: then no trace is that of a real user.

    Examples
    --------
    >>> places = PlaceTable.from_frame(
    ...     pd.DataFrame({"place": ["home", "work"], "latitude": [35.6, 35.7], "longitude": [139.7, 139.8]})
    ... )
    >>> grid = TimeGrid.each_instant("2024-01-01T09:00:00", 3600, 3, "Asia/Tokyo")
    >>> frame = pd.DataFrame({"user": [7, 7, 9], "trace": 0, "instant": [0, 1, 2], "place": ["home", "work", "home"]})
    >>> traces = Traces.from_frame(frame, places, grid)
    >>> traces.n_users, traces.n_events, traces.user.tolist(), traces.user_ids.tolist()
    (2, 3, [0, 0, 1], [7, 9])
    >>> traces
    Traces: 3 events of 2 users at 2 places
      time    3 instants of 1 h from 2024-01-01 09:00 to 2024-01-01 11:00, Asia/Tokyo
      slots   3
      places  2, latitude 35.60 to 35.70, longitude 139.70 to 139.80
    """

    user: np.ndarray
    trace: np.ndarray
    instant: np.ndarray
    place: np.ndarray
    user_ids: np.ndarray
    places: PlaceTable
    time_grid: TimeGrid
    friendships: np.ndarray | None = field(default=None)
    origin: Origin | None = field(default=None, repr=False)
    of_nobody: bool = False

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_places(self) -> int:
        return len(self.places)

    @property
    def n_events(self) -> int:
        return len(self.user)

    @property
    def slot(self) -> np.ndarray:
        """Slot of each event, shape (events,)."""
        return self.time_grid.slot_of_instant[self.instant]

    @property
    def has_events(self) -> np.ndarray:
        """Whether each user has an event, shape (users,)."""
        return self._events_per_user() > 0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the events, the places and the time grid; the date does not count.

        Saving and loading, in one file or in several, keep the digest. The date does not count, because a release has
        a nominal date, but the day of the week, the time of day and the time zone count.
        """
        of_present = self if self.has_events.all() else self.select_users(self.has_events)
        of_blocks = of_present.blocks.map(
            lambda own: trace_set.digest_of_events(own.user_ids, [getattr(own, name) for name in EVENT_COLUMNS])
        )
        return trace_set.digest_of_content(self.places, self.time_grid, of_blocks.joined())

    @property
    def lineage(self) -> Lineage:
        """Digests of synthetic traces and of what they were made from; empty for other traces."""
        if self.origin is None:
            return {}
        made_from = {TRAINING_TRACES: self.origin.training} if self.origin.training else {}
        return {**made_from, MODEL: self.origin.model, SYNTHETIC_TRACES: self.digest}

    def users_per_place(self) -> np.ndarray:
        """How many users have an event at each place, shape (places,)."""
        n_places = self.n_places
        return self.blocks.map(lambda block: np.bincount(block.users_and_places()[1], minlength=n_places)).total()

    def in_memory(self) -> Traces:
        """The traces of all users, in memory."""
        return self

    def for_many_passes(self) -> Traces:
        """The same traces; if they are not in memory, they are copied to a temporary file of 16 bytes an event."""
        return self

    @property
    def blocks(self) -> Blocks[Traces]:
        """The traces of `BLOCK_USERS` users after another, with these users' own ids, and without friendships."""

        def cut(users: slice) -> Traces:
            events = slice(*np.searchsorted(self.user, np.array([users.start, users.stop], np.int32)))
            columns = {name: getattr(self, name)[events] for name in EVENT_COLUMNS}
            columns["user"] = columns["user"] - np.int32(users.start)
            return replace(self, **columns, user_ids=self.user_ids[users], friendships=None)

        begins = range(0, max(self.n_users, 1), BLOCK_USERS)
        blocks = [slice(first, min(first + BLOCK_USERS, self.n_users)) for first in begins]
        if len(blocks) == 1:
            return Blocks([(blocks[0], replace(self, friendships=None))])
        return Blocks([(users, users) for users in blocks]).map(cut)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        places: PlaceTable,
        time_grid: TimeGrid,
        friendships: pd.DataFrame | None = None,
        *,
        subject: str = "traces",
    ) -> Traces:
        """Validate a table with columns user, instant, place and, optionally, trace (else 0).

        Raises `InputError`, which lists every problem of the table at once: missing columns, wrong types, unknown
        places, instants outside the grid, a (user, trace, instant) given twice, no event, friends that are not users.
        """
        pieces = (frame.iloc[rows] for rows in pieces_of(len(frame)))
        return cls._of_table(EventTable(places, time_grid, friendships, frame.columns, len(frame), pieces), subject)

    @classmethod
    def _of_table(cls, table: EventTable, subject: str) -> Traces:
        problems = missing_columns(table.columns, ("user", "instant", "place"))
        raise_any(subject, problems or ([] if table.n_events else [NO_EVENT]))
        events, user_ids, problems = read_events(
            table.pieces, table.n_events, table.places.index_of, table.time_grid.n_instants, subject
        )
        return cls._of(events, user_ids, table, problems, subject)

    @classmethod
    def from_indices(
        cls,
        user: np.ndarray,
        trace: np.ndarray,
        instant: np.ndarray,
        place: np.ndarray,
        user_ids: np.ndarray,
        places: PlaceTable,
        time_grid: TimeGrid,
        friendships: pd.DataFrame | None = None,
        *,
        subject: str = "traces",
    ) -> Traces:
        """Events by index, in any order, each (user, trace, instant) once; users without an event are dropped.

        `user_ids` are distinct, in any order.
        """
        if not len(user):
            raise InputError(subject, [NO_EVENT])
        is_present = np.zeros(len(user_ids), bool)
        is_present[user] = True
        number, _ = renumbered(is_present)
        columns = Events(*(np.asarray(column, np.int32) for column in (number[user], trace, instant, place)))
        events, ids = sorted_events(columns, pd.Index(pd.Series(user_ids[is_present])))
        table = EventTable(places, time_grid, friendships, EVENT_COLUMNS, len(user), iter(()))
        return cls._of(events, ids, table, [], subject)

    @classmethod
    def _of(cls, events: Events, ids: pd.Index, table: EventTable, problems: list[Problem], subject: str) -> Traces:
        user_ids, pairs, of_friends = id_array(pd.Series(ids)), None, []
        if table.friendships is not None:
            pairs, of_friends = friend_indices(table.friendships, user_ids)
        raise_any(subject, [*problems, *of_friends])
        return cls(*events, user_ids, table.places, table.time_grid, pairs)

    def __repr__(self) -> str:
        """A few lines that tell nothing about a single user; fast at any size."""
        source = "synthetic, made by a model"
        source += "" if self.of_nobody else " from its users; not for release before the privacy test"
        parts = self.time_grid.summary() | {
            "places": self.places.summary(),
            "friends": "" if self.friendships is None else f"{counted(len(self.friendships), 'pair')} of users",
            "source": "" if self.origin is None else source,
            "users": "invented, none stands for a real one" if self.of_nobody else "",
        }
        users, places = counted(self.n_users, "user"), counted(self.n_places, "place")
        return in_lines(f"Traces: {counted(self.n_events, 'event')} of {users} at {places}", parts)

    def describe(self) -> pd.DataFrame:
        """Counts and quantiles of users, traces, places and events: columns count, sum, mean, min, median and max.

        Events per trace and day are of the local days on which a trace has an event. Each user's places are counted
        once. Users per place are of all places: the minimum is 0 if a place has no event. Steps to the next event of a
        trace are in instants of the time grid. Whether the next event is one step on is 1 or 0 for each event with a
        next event: the sum is the number of transitions, the mean is the share of consecutive events.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> table = toy_city(n_users=10, n_days=2, seed=0).traces.describe()
        >>> table.loc["events per user", ["count", "max"]].astype(int).tolist()
        [10, 44]
        """
        places_of_user = self.blocks.map(lambda own: np.bincount(own.users_and_places()[0], minlength=own.n_users))
        begins_day = run_begins(self.user, self.trace, self.time_grid.day()[self.instant])
        gaps = self.gaps()
        return quantiles(
            {
                "events per user": self._events_per_user(),
                "traces per user": counts_per_user(self.trace_table()[0], self.n_users),
                "events per trace and day": np.diff(np.flatnonzero(begins_day), append=self.n_events),
                "places per user": places_of_user.joined(),
                "users per place": self.users_per_place(),
                "events per slot": np.bincount(self.slot, minlength=self.time_grid.n_slots),
                "steps to the next event": gaps,
                "next event is one step on": gaps == 1,
            }
        )

    def users_and_places(self) -> tuple[np.ndarray, np.ndarray]:
        """The distinct pairs of user and place with an event."""
        return distinct_pairs(self.user, self.place, self.n_users, self.n_places)

    def to_frame(self, *, with_time_and_coordinates: bool = False) -> pd.DataFrame:
        """A table with columns user, trace, instant, place; ids are the user's own.

        `with_time_and_coordinates`: also columns time (local, with its zone, see `TimeGrid.local_times`), latitude and
        longitude (NaN where not known). The date of synthetic traces is nominal, unless `synthesize` was given a start:
        that of the first period of the training data or, in a release, another one of the same day of the week.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> frame = toy_city(n_users=2, n_days=1, seed=0).traces.to_frame(with_time_and_coordinates=True)
        >>> list(frame)
        ['user', 'trace', 'instant', 'place', 'time', 'latitude', 'longitude']
        >>> str(frame["time"][1])
        '2024-03-04 01:00:00+00:00'
        """
        ids = {"user": self.user_ids[self.user], "place": self.places.ids[self.place]}
        columns: dict[str, object] = {name: ids.get(name, getattr(self, name)) for name in EVENT_COLUMNS}
        if with_time_and_coordinates:
            columns["time"] = self.time_grid.local_times()[self.instant]
            columns |= {name: getattr(self.places, name)[self.place] for name in ("latitude", "longitude")}
        return pd.DataFrame(columns)

    def friendship_frame(self) -> pd.DataFrame | None:
        """A table with columns user, friend; None where friendships are not known."""
        if self.friendships is None:
            return None
        return pd.DataFrame(self.user_ids[self.friendships], columns=["user", "friend"])

    def save(self, folder: PathLike, *, overwrite: bool = False, inputs: Paths = ()) -> None:
        """Write a trace-set folder, readable by its owner only; it appears only when it is complete.

        See `folders.output_folder` for what `overwrite` may replace.
        """
        kind, about = self.kind_and_facts()
        with output_folder(folder, kind, about=about, overwrite=overwrite, inputs=inputs) as partial:
            self.write_into(partial)

    def kind_and_facts(self) -> tuple[str, dict[str, Any]]:
        """Kind of the folder of these traces, and what its marker says about them."""
        kind = trace_set.TRACE_SET if self.origin is None else trace_set.SYNTHETIC
        about = {} if self.origin is None else {"origin": self.origin._asdict()}
        return kind, about | ({trace_set.OF_NOBODY: True} if self.of_nobody else {})

    def write_into(self, folder: Path) -> None:
        """Write the files of a trace set into an existing folder."""
        self.write_events_into(folder / trace_set.TRACES_FILE)
        trace_set.write_about(folder, self.places, self.time_grid, self.friendship_frame())

    def write_events_into(self, file: Path) -> None:
        """Write the events into a file."""
        trace_set.write_events(file, {name: getattr(self, name) for name in EVENT_COLUMNS}, self.user_ids, self.places)

    @classmethod
    def load(cls, folder: PathLike, *, progress: bool = False) -> Traces:
        """Read and validate a trace-set folder.

        Raises `InputError`, which names files that are missing, unreadable, inconsistent or changed since synthesis.
        """
        table = trace_set.open_trace_set(folder, progress=progress)
        trace_set.require_memory_to_load(folder, table.n_events)
        traces = cls._of_table(table, str(folder))
        return replace(traces, **trace_set.facts_of_marker(folder))

    def select_users(self, indices: np.ndarray) -> Traces:
        """The traces of some users, in memory, with the friendships among them.

        `indices`: indices of users, or one boolean per user. Raises `InputError`: there is no such user, or none of
        them has an event.
        """
        return self.select_events(np.repeat(chosen_users(indices, self.n_users), self._events_per_user()))

    def select_traces(self, keep: np.ndarray) -> Traces:
        """Some of the traces: `keep` has one boolean for each row of `trace_table`."""
        first = np.flatnonzero(self._begins_trace())
        keep = checked_mask(keep, len(first), "traces")
        return self.select_events(np.repeat(keep, np.diff(first, append=self.n_events)))

    def select_events(self, keep: np.ndarray) -> Traces:
        """Some of the events; `keep` has one boolean for each event, and users without an event are dropped.

        Raises `InputError`: `keep` is something else, such as indices, or no event is kept.
        """
        keep = checked_mask(keep, self.n_events, "events")
        if not keep.any():
            raise InputError("traces", [NOTHING_KEPT])
        present = np.zeros(self.n_users, bool)
        present[self.user[keep]] = True
        number, pairs = renumbered(present, self.friendships)
        columns = {name: getattr(self, name)[keep] for name in EVENT_COLUMNS}
        columns["user"] = number[columns["user"]]
        return replace(self, **columns, user_ids=self.user_ids[present], friendships=pairs)

    def trace_table(self) -> tuple[np.ndarray, np.ndarray]:
        """User index and trace number of each distinct trace, in the order of the events."""
        first = np.flatnonzero(self._begins_trace())
        return self.user[first], self.trace[first]

    def trace_of_event(self) -> np.ndarray:
        """For each event, its row of `trace_table`."""
        return np.cumsum(self._begins_trace(), dtype=np.int32) - 1

    def periods(self, n_instants: int | None = None) -> Periods:
        """Traces cut where a period of the time grid begins, such as midnight, or every `n_instants` instants."""
        number, phase = np.divmod(self.instant, np.int32(self.time_grid.period if n_instants is None else n_instants))
        begins = run_begins(self.user, self.trace, number)
        return Periods(np.cumsum(begins, dtype=np.int32) - 1, phase, np.flatnonzero(begins))

    def cut_into_periods(self, n_periods: int = 1) -> Traces:
        """Cut traces every `n_periods` periods of the time grid, and renumber them for each user.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> traces = toy_city(n_users=2, n_days=3, seed=0).traces
        >>> len(traces.trace_table()[0]), len(traces.cut_into_periods().trace_table()[0])
        (2, 6)
        """
        piece = self.periods(n_periods * self.time_grid.period).piece
        # The last users may have no events.
        first_of_user = np.searchsorted(self.user, np.arange(self.n_users))
        return replace(self, trace=piece - np.append(piece, np.int32(0))[first_of_user][self.user])

    def split_users(self, train_fraction: float, seed: int) -> tuple[Traces, Traces]:
        """Split users at random into training and test users.

        There are `floor(users * (1 - train_fraction))` test users, as in the published experiments.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> train, test = toy_city(n_users=10, seed=0).traces.split_users(0.8, seed=1)
        >>> train.n_users, test.n_users
        (8, 2)
        """
        n_test = int(self.n_users * (1 - train_fraction) + 1e-9) if 0 < train_fraction < 1 else 0
        if not 0 < n_test < self.n_users:
            expected = "a training fraction that leaves users on both sides"
            raise InputError("split", [Problem(expected, f"{train_fraction} of {self.n_users} users")])
        shuffled = numpy_stream(seed, Stage.SPLIT).permutation(self.n_users)
        return self.select_users(shuffled[n_test:]), self.select_users(shuffled[:n_test])

    def gaps(self) -> np.ndarray:
        """Instants from each event to the next one of its trace; the last of each trace has none."""
        return np.diff(self.instant)[~self._begins_trace()[1:]]

    def is_step(self) -> np.ndarray:
        """For each event, whether it is one instant after the event before it in its trace: a transition."""
        step = np.zeros(self.n_events, bool)
        step[1:] = ~self._begins_trace()[1:] & (self.instant[1:] - self.instant[:-1] == 1)
        return step

    def transitions(self, over_gaps: bool = False) -> Transitions:
        """The steps between two events at consecutive instants of a trace, with `over_gaps` also over several instants.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> traces = toy_city(n_users=1, n_days=1, missing=0.0, seed=0).traces.select_events(np.arange(24) != 2)
        >>> [len(traces.transitions(over_gaps).event) for over_gaps in (False, True)]
        [21, 22]
        """
        event = np.flatnonzero(~self._begins_trace() if over_gaps else self.is_step())
        return Transitions(event, self.user[event], self.place[event - 1], self.place[event])

    def has_transitions(self, over_gaps: bool = False) -> bool:
        """Whether any two events are at consecutive instants of a trace; `over_gaps`: whether any trace has two."""
        return bool(~self._begins_trace().all() if over_gaps else self.is_step().any())

    def _begins_trace(self) -> np.ndarray:
        return run_begins(self.user, self.trace)

    def _events_per_user(self) -> np.ndarray:
        return counts_per_user(self.user, self.n_users)
