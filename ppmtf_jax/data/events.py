"""Tables of events, checked and encoded in pieces, so that only one piece is in memory as a table.

Users are numbered as they appear and renumbered in the order of their ids at the end. Events in order, as those of our
own files, are not sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, first_examples

EVENT_COLUMNS = ("user", "trace", "instant", "place")
# Events of a piece: as a table it takes about 200 MB.
PIECE_EVENTS = 2**20
INT32 = np.iinfo(np.int32)


class EncodedEvents(NamedTuple):
    """Events sorted by (user, trace, instant), all distinct, as int32 arrays; ids of the users, sorted."""

    user: np.ndarray
    trace: np.ndarray
    instant: np.ndarray
    place: np.ndarray
    user_ids: pd.Index


def read_events(
    pieces: Iterable[pd.DataFrame],
    n_events: int,
    place_index: Callable[[object], np.ndarray],
    n_instants: int,
    *,
    subject: str,
) -> tuple[EncodedEvents, list[Problem]]:
    """Check and encode tables with columns user, instant, place and, optionally, trace (else 0).

    Parameters
    ----------
    pieces : iterable of DataFrame
        In the order of the rows.
    n_events : int
        Number of rows of all pieces.
    place_index : function of place ids
        Gives the index of each, -1 for an unknown one.
    n_instants : int
        Of the time grid.
    subject : str
        What errors call the data.

    Returns
    -------
    (EncodedEvents, list of Problem)
        The problems are values out of range and repeated events. The caller raises them, perhaps with others; the
        events are then of no use.

    Raises
    ------
    InputError
        Listing every problem of single values: wrong types, missing values, unknown places.
    """
    collected = _Collected(n_events, place_index, n_instants)
    for piece in pieces:
        collected.add(piece)
    problems = collected.problems_of_values()
    if problems:
        raise InputError(subject, problems)
    events = collected.events()
    return events, collected.problems_of_ranges() + _repeated(events)


def in_pieces(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """A table in pieces of at most `PIECE_EVENTS` rows, without copying it."""
    for first in range(0, len(frame), PIECE_EVENTS):
        yield frame.iloc[first : first + PIECE_EVENTS]


@dataclass
class _Finding:
    """One kind of problem over all pieces: how many rows, and the first offenders."""

    expected: str
    found: str
    n_rows: int = 0
    examples: list[object] = field(default_factory=list)

    def add(self, bad: np.ndarray, examples: Callable[[], Sequence[object]]) -> None:
        """Count the bad rows of a piece; `examples` gives texts for the message."""
        n_bad = int(np.count_nonzero(bad))
        if n_bad:
            self.n_rows += n_bad
            self.examples = (self.examples + list(examples()))[:N_EXAMPLES]

    def problem(self) -> Problem:
        return Problem(self.expected, self.found, self.n_rows, first_examples(self.examples))


class _Collected:
    """Checked and encoded rows so far, in arrays of full length."""

    def __init__(self, n_events: int, place_index: Callable[[object], np.ndarray], n_instants: int):
        self.place_index, self.n_instants = place_index, n_instants
        self.columns = {name: np.empty(n_events, np.int32) for name in EVENT_COLUMNS}
        self.n_read = self.n_kept = 0
        self.user_ids = pd.Index([])
        self.id_types: dict[str, object] = {}
        self.not_whole = {name: _Finding(f"whole numbers in '{name}'", "others") for name in ("trace", "instant")}
        self.missing = {
            name: _Finding(f"a {name} for every event", f"missing values in '{name}'") for name in ("user", "place")
        }
        self.unknown = _Finding("places of the place table", "unknown places")
        self.outside = _Finding(f"instants 0 to {n_instants - 1} of the time grid", "others")
        self.odd = _Finding("trace numbers from 0 to 2**31 - 1", "others")

    def problems_of_values(self) -> list[Problem]:
        of_ids = []
        if len(self.id_types) > 1:
            examples = tuple(f"{value!r} ({kind})" for kind, value in self.id_types.items())
            of_ids.append(Problem("user ids of one type", "several", examples=examples))
        before, after = self.not_whole.values(), [*self.missing.values(), self.unknown]
        return _problems(before) + of_ids + _problems(after)

    def problems_of_ranges(self) -> list[Problem]:
        return _problems([self.outside, self.odd])

    def add(self, piece: pd.DataFrame) -> None:
        if "trace" not in piece:
            piece = piece.assign(trace=0)
        for name, finding in self.not_whole.items():
            number = pd.to_numeric(piece[name], errors="coerce").to_numpy(np.float64)
            bad = ~np.isfinite(number) | (number != np.floor(number))
            finding.add(bad, lambda name=name, bad=bad: piece.loc[bad, name].tolist())
        self.id_types |= _types(piece["user"])
        for name, finding in self.missing.items():
            bad = piece[name].isna().to_numpy()
            finding.add(bad, lambda bad=bad: [f"row {self.n_read + row}" for row in np.flatnonzero(bad)[:N_EXAMPLES]])
        place = self._encoded_places(piece["place"])
        self.n_read += len(piece)
        # Problems of single values are raised in the end: then rows are only searched for more of them.
        if not self.problems_of_values():
            self._keep(piece, place)

    def _encoded_places(self, column: pd.Series) -> np.ndarray:
        code, ids = pd.factorize(column)
        index = np.append(self.place_index(ids), -1)  # a missing id has code -1
        place = index[code]
        unknown = (place < 0) & (code >= 0)
        self.unknown.add(unknown, lambda: [i for i in ids[index[:-1] < 0] if i not in self.unknown.examples])
        return place

    def _keep(self, piece: pd.DataFrame, place: np.ndarray) -> None:
        instant, trace = (piece[name].to_numpy(np.int64) for name in ("instant", "trace"))
        outside = (instant < 0) | (instant >= self.n_instants)
        self.outside.add(outside, lambda: instant[outside].tolist())
        odd = (trace < 0) | (trace > INT32.max)
        self.odd.add(odd, lambda: trace[odd].tolist())
        user = self._encoded_users(piece["user"])
        if outside.any() or odd.any():  # values beyond int32 are reported, but cannot be kept
            fits = np.logical_and.reduce([(i >= INT32.min) & (i <= INT32.max) for i in (trace, instant)])
            user, trace, instant, place = (index[fits] for index in (user, trace, instant, place))
        rows = slice(self.n_kept, self.n_kept + len(user))
        for column, index in zip(self.columns.values(), (user, trace, instant, place), strict=True):
            column[rows] = index
        self.n_kept = rows.stop

    def _encoded_users(self, column: pd.Series) -> np.ndarray:
        code, ids = pd.factorize(column)
        new = ids[self.user_ids.get_indexer(ids) < 0]
        # Appended to an empty index of another type, ids would lose their type.
        self.user_ids = self.user_ids.append(new) if len(self.user_ids) else new
        return self.user_ids.get_indexer(ids)[code]

    def events(self) -> EncodedEvents:
        """The rows kept, in order."""
        user, trace, instant, place = (column[: self.n_kept] for column in self.columns.values())
        return in_order(user, trace, instant, place, self.user_ids)


def in_order(
    user: np.ndarray, trace: np.ndarray, instant: np.ndarray, place: np.ndarray, user_ids: pd.Index
) -> EncodedEvents:
    """Events of users who are given by index into ids in any order, without repeated ids; `user` is overwritten."""
    rank, user_ids = pd.factorize(user_ids, sort=True)
    if (rank[1:] < rank[:-1]).any():
        _rename(user, rank.astype(np.int32))
    if not _in_order(user, trace, instant):
        order = np.lexsort((instant, trace, user))
        user, trace, instant, place = (index[order] for index in (user, trace, instant, place))
    return EncodedEvents(user, trace, instant, place, user_ids)


def _problems(findings: Iterable[_Finding]) -> list[Problem]:
    return [finding.problem() for finding in findings if finding.n_rows]


def _types(ids: pd.Series) -> dict[str, object]:
    """Types of ids with an example each. Ids of several types could neither be sorted nor saved."""
    if ids.dtype != object:
        return {}
    return {type(value).__name__: value for value in ids if not pd.isna(value)}


def _rename(index: np.ndarray, new: np.ndarray) -> None:
    """Replace `index` by `new[index]` without a full copy."""
    for part in _parts(len(index)):
        index[part] = new[index[part]]


def _in_order(user: np.ndarray, trace: np.ndarray, instant: np.ndarray) -> bool:
    """Whether events are sorted."""
    for part in _parts(len(user) - 1):
        before, after = part, slice(part.start + 1, part.stop + 1)
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


def _parts(n: int) -> Iterator[slice]:
    for first in range(0, n, PIECE_EVENTS):
        yield slice(first, min(first + PIECE_EVENTS, n))
