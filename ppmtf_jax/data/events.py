"""Tables of events, checked and encoded in pieces, so that only one piece is in memory as a table.

Users are numbered in the order of appearance, and at the end in the order of their ids. Events that are already in
order, such as those of our own files, are not sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.errors import N_EXAMPLES, Problem, first_examples, raise_any

EVENT_COLUMNS = ("user", "trace", "instant", "place")
# Events of a piece: as a table it takes about 200 MB.
PIECE_EVENTS = 2**20
INT32_MAX = np.iinfo(np.int32).max


class EncodedEvents(NamedTuple):
    """Events sorted by (user, trace, instant), all distinct, as int32 arrays; ids of the users, sorted."""

    user: np.ndarray
    trace: np.ndarray
    instant: np.ndarray
    place: np.ndarray
    user_ids: pd.Index


def pieces_of(n_events: int) -> Iterator[slice]:
    """The rows of each piece of at most `PIECE_EVENTS` events."""
    for first in range(0, n_events, PIECE_EVENTS):
        yield slice(first, min(first + PIECE_EVENTS, n_events))


def read_events(
    pieces: Iterable[pd.DataFrame],
    n_events: int,
    place_index: Callable[[object], np.ndarray],
    n_instants: int,
    *,
    subject: str,
) -> tuple[EncodedEvents, list[Problem]]:
    """Check and encode tables with columns user, instant, place and, optionally, trace (else 0), in the order of rows.

    `place_index` gives the index of place ids, -1 for an unknown one. Problems of single values (wrong types, missing
    values, unknown places) are raised together; values out of range and repeated events are returned, and the caller
    raises them with other problems, because the events are then useless.
    """
    reader = _Reader(n_events, place_index, n_instants)
    for piece in pieces:
        reader.add(piece)
    raise_any(subject, reader.problems_of_values())
    user, trace, instant, place = reader.columns[:, : reader.n_kept]
    events = in_order(user, trace, instant, place, reader.user_ids)
    return events, [*reader.out_of_range.values(), *_repeated(events)]


class _Reader:
    """Checked and encoded rows so far, in arrays of full length."""

    def __init__(self, n_events: int, place_index: Callable[[object], np.ndarray], n_instants: int):
        self.place_index, self.n_instants = place_index, n_instants
        self.columns = np.empty((len(EVENT_COLUMNS), n_events), np.int32)
        self.n_read = self.n_kept = 0
        self.user_ids = pd.Index([])
        self.id_types: dict[str, object] = {}  # with an example each
        # By what was expected, over all pieces.
        self.wrong_values: dict[str, Problem] = {}
        self.out_of_range: dict[str, Problem] = {}

    def problems_of_values(self) -> list[Problem]:
        if len(self.id_types) < 2:
            return list(self.wrong_values.values())
        # Ids of several types could neither be sorted nor saved.
        examples = tuple(f"{value!r} ({kind})" for kind, value in self.id_types.items())
        return [*self.wrong_values.values(), Problem("user ids of one type", "several", examples=examples)]

    def add(self, piece: pd.DataFrame) -> None:
        if "trace" not in piece:
            piece = piece.assign(trace=0)
        for name in ("trace", "instant"):
            number = pd.to_numeric(piece[name], errors="coerce").to_numpy(np.float64)
            bad = ~np.isfinite(number) | (number != np.floor(number))
            _note(self.wrong_values, f"whole numbers in '{name}'", "others", bad, piece[name][bad])
        for name in ("user", "place"):
            bad = piece[name].isna().to_numpy()
            rows = [f"row {self.n_read + row}" for row in np.flatnonzero(bad)[:N_EXAMPLES]]
            _note(self.wrong_values, f"a {name} for every event", f"missing values in '{name}'", bad, rows)
        if piece["user"].dtype == object:
            self.id_types |= {type(value).__name__: value for value in piece["user"].dropna()}
        code, ids = pd.factorize(piece["place"])
        index = np.append(self.place_index(ids), -1)  # a missing id has code -1
        place, unknown = index[code], ids[index[:-1] < 0]
        is_unknown = (place < 0) & (code >= 0)
        _note(self.wrong_values, "places of the place table", "unknown places", is_unknown, unknown)
        self.n_read += len(piece)
        # Problems of single values are raised at the end. After the first problem, rows are only checked, not kept.
        if not self.problems_of_values():
            self._keep(piece, place)

    def _keep(self, piece: pd.DataFrame, place: np.ndarray) -> None:
        instant, trace = (piece[name].to_numpy(np.int64) for name in ("instant", "trace"))
        outside, odd = (instant < 0) | (instant >= self.n_instants), (trace < 0) | (trace > INT32_MAX)
        expected = f"instants 0 to {self.n_instants - 1} of the time grid"
        _note(self.out_of_range, expected, "others", outside, instant[outside])
        _note(self.out_of_range, "trace numbers from 0 to 2**31 - 1", "others", odd, trace[odd])
        code, ids = pd.factorize(piece["user"])
        new = ids[self.user_ids.get_indexer(ids) < 0]
        # Ids that are appended to an empty index of another type would lose their type.
        self.user_ids = self.user_ids.append(new) if len(self.user_ids) else new
        columns = (self.user_ids.get_indexer(ids)[code], trace, instant, place)
        if (bad := outside | odd).any():  # some do not fit into 32 bits
            columns = [column[~bad] for column in columns]
        stop = self.n_kept + len(columns[0])
        for kept, column in zip(self.columns, columns, strict=True):
            kept[self.n_kept : stop] = column
        self.n_kept = stop


def _note(problems: dict[str, Problem], expected: str, found: str, bad: np.ndarray, examples: Iterable[object]) -> None:
    """Count the bad rows of a piece, and keep the first different examples over all pieces."""
    if n_bad := int(np.count_nonzero(bad)):
        before = problems.get(expected, Problem(expected, found))
        different = dict.fromkeys([*before.examples, *map(str, islice(examples, N_EXAMPLES))])
        problems[expected] = replace(before, n_rows=before.n_rows + n_bad, examples=first_examples([*different]))


def in_order(
    user: np.ndarray, trace: np.ndarray, instant: np.ndarray, place: np.ndarray, user_ids: pd.Index
) -> EncodedEvents:
    """Sort events and ids; `user` has indices into the distinct, unsorted `user_ids`, and is overwritten."""
    rank, user_ids = pd.factorize(user_ids, sort=True)
    if (rank[1:] < rank[:-1]).any():
        for rows in pieces_of(len(user)):  # without a full copy
            user[rows] = rank[user[rows]]
    if not _is_in_order(user, trace, instant):
        order = np.lexsort((instant, trace, user))
        user, trace, instant, place = (index[order] for index in (user, trace, instant, place))
    return EncodedEvents(user, trace, instant, place, user_ids)


def _is_in_order(user: np.ndarray, trace: np.ndarray, instant: np.ndarray) -> bool:
    for before in pieces_of(len(user) - 1):
        after = slice(before.start + 1, before.stop + 1)
        later = instant[after] >= instant[before]
        for index in (trace, user):
            later = (index[after] > index[before]) | ((index[after] == index[before]) & later)
        if not later.all():
            return False
    return True


def _repeated(events: EncodedEvents) -> list[Problem]:
    keys = (events.user, events.trace, events.instant)
    again = np.ones(max(len(events.user) - 1, 0), bool)
    for index in keys:
        again &= index[1:] == index[:-1]
    if not again.any():
        return []
    which = np.flatnonzero(again)[:N_EXAMPLES] + 1
    examples = tuple(f"({events.user_ids[events.user[i]]}, {events.trace[i]}, {events.instant[i]})" for i in which)
    way_out = "Keep one event per instant, or give them different trace numbers"
    expected = "each (user, trace, instant) once"
    return [Problem(expected, "repeated ones", int(np.count_nonzero(again)), examples, way_out)]
