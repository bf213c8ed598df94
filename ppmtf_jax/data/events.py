"""Tables of events, checked and encoded in pieces, so that only one piece is in memory as a table.

Users are numbered in the order of appearance, and at the end in the order of their ids. Events that are already in
order, such as those of our own files, are not sorted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, first_examples, missing_columns, raise_any

EVENT_COLUMNS = ("user", "trace", "instant", "place")
# Events of a piece: as a table it takes about 200 MB.
PIECE_EVENTS = 2**20
INT32_MAX = np.iinfo(np.int32).max


class Events(NamedTuple):
    """Events sorted by (user, trace, instant), all distinct, as int32 arrays; users and places are indices."""

    user: np.ndarray
    trace: np.ndarray
    instant: np.ndarray
    place: np.ndarray

    def at(self, rows: Any) -> Events:
        """Some of the events."""
        return Events(*(column[rows] for column in self))


def pieces_of(n_events: int) -> Iterator[slice]:
    """The rows of each piece of at most `PIECE_EVENTS` events."""
    for first in range(0, n_events, PIECE_EVENTS):
        yield slice(first, min(first + PIECE_EVENTS, n_events))


def read_events(
    pieces: Iterable[pd.DataFrame],
    n_events: int,
    place_index: Callable[[object], np.ndarray],
    n_instants: int,
    subject: str,
) -> tuple[Events, pd.Index, list[Problem]]:
    """Check and encode tables with columns user, instant, place and, optionally, trace (else 0), in the order of rows.

    `place_index` gives the index of place ids, -1 for an unknown one. Returns the events, the ids of the users, sorted,
    and problems. Problems of single values (wrong types, missing values, unknown places) are raised together; values
    out of range and repeated events are returned, and the caller raises them with other problems, because the events
    are then useless.
    """
    reader = _Reader(n_events, place_index, n_instants)
    for piece in pieces:
        reader.add(piece)
    raise_any(subject, reader.problems_of_values())
    events, ids = sorted_events(Events(*reader.columns[:, : reader.n_kept]), reader.user_ids)
    return events, ids, [*reader.out_of_range.values(), *_repeated(events, ids)]


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


def sorted_events(events: Events, user_ids: pd.Index) -> tuple[Events, pd.Index]:
    """Sort events and ids; `events.user` has indices into the distinct, unsorted `user_ids`, and is overwritten."""
    user, trace, instant, _ = events
    rank, user_ids = pd.factorize(user_ids, sort=True)
    if (rank[1:] < rank[:-1]).any():
        for rows in pieces_of(len(user)):  # without a full copy
            user[rows] = rank[user[rows]]
    pieces = (Events(*(column[rows.start : rows.stop + 1] for column in events)) for rows in pieces_of(len(user) - 1))
    if all(map(in_order, pieces)):
        return events, user_ids
    return events.at(np.lexsort((instant, trace, user))), user_ids


def in_order(events: Events, *, distinct: bool = False) -> bool:
    """Whether events are sorted by (user, trace, instant), and, if asked, all different."""
    user, trace, instant, _ = map(np.diff, events)
    later = (user > 0) | ((user == 0) & ((trace > 0) | ((trace == 0) & (instant >= int(distinct)))))
    return bool(later.all())


def _repeated(events: Events, user_ids: pd.Index) -> list[Problem]:
    again = np.flatnonzero(~run_begins(*events[:3]))
    if not len(again):
        return []
    keys = zip(*(column[again[:N_EXAMPLES]] for column in events[:3]), strict=True)
    examples = tuple(f"({user_ids[user]}, {trace}, {instant})" for user, trace, instant in keys)
    way_out = "Keep one event per instant, or give them different trace numbers"
    return [Problem("each (user, trace, instant) once", "repeated ones", len(again), examples, way_out)]


def friend_indices(friendships: pd.DataFrame, user_ids: np.ndarray) -> tuple[np.ndarray, list[Problem]]:
    """Pairs of friends as in `Traces`, from a table with columns user and friend; and its problems."""
    missing = missing_columns(friendships.columns, ("user", "friend"))
    if missing:
        return np.zeros((0, 2), np.int32), missing
    index = pd.Index(user_ids)
    pairs = np.stack([index.get_indexer(friendships[c]) for c in ("user", "friend")], axis=1).reshape(-1, 2)
    unknown = (pairs < 0).any(1)
    problems = []
    if unknown.any():
        strangers = friendships[["user", "friend"]].to_numpy()[unknown].tolist()
        examples = first_examples([tuple(pair) for pair in strangers])
        problems.append(Problem("friends who are users with events", "others", int(unknown.sum()), examples))
    first, second = np.sort(pairs[~unknown & (pairs[:, 0] != pairs[:, 1])], axis=1).T
    # Much faster than `np.unique` of rows.
    code = np.sort(first * len(user_ids) + second)
    pairs = np.divmod(code[run_begins(code)], len(user_ids))
    return np.stack(pairs, axis=1).astype(np.int32), problems


def counts_per_user(user: np.ndarray, n_users: int) -> np.ndarray:
    """How often each user occurs in the sorted array `user`, shape (users,)."""
    # `bincount` would copy to int64.
    return np.diff(np.searchsorted(user, np.arange(n_users + 1, dtype=np.int32)))


def chosen_users(indices: np.ndarray, n_users: int) -> np.ndarray:
    """Whether each user is chosen, shape (users,), from their indices or from one boolean per user."""
    indices = np.asarray(indices)
    if indices.dtype == bool:
        fits = indices.shape == (n_users,)
    else:
        is_list = indices.ndim == 1 and np.issubdtype(indices.dtype, np.integer)
        fits = is_list and not ((indices < 0) | (indices >= n_users)).any()
    if not fits:
        expected = f"indices from 0 to {n_users - 1}, or {n_users} booleans, one a user"
        raise InputError("users to keep", [Problem(expected, f"{indices.dtype} array of shape {indices.shape}")])
    chosen = np.zeros(n_users, bool)
    chosen[indices] = True
    if not chosen.any():
        raise InputError("users to keep", [Problem("at least one user to keep", "none")])
    return chosen


def checked_mask(keep: np.ndarray, n: int, what: str) -> np.ndarray:
    """The booleans `keep`, one for each of `n` traces or events (`what`); anything else is an `InputError`."""
    keep = np.asarray(keep)
    if keep.dtype != bool or keep.shape != (n,):
        found = f"{keep.dtype} array of shape {keep.shape}"
        way_out = f"Make a mask of indices with np.isin(np.arange(n_{what}), indices)"
        one_each = f"{n} booleans, one {'an' if what == 'events' else 'a'} {what[:-1]}"
        raise InputError(f"{what} to keep", [Problem(one_each, found, way_out=way_out)])
    return keep


def renumbered(chosen: np.ndarray, pairs: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """New number of each chosen user, and the friendships among them; `chosen`: a boolean for each user."""
    number = np.cumsum(chosen, dtype=np.int32) - np.int32(1)
    return number, None if pairs is None else number[pairs[chosen[pairs].all(axis=1)]]
