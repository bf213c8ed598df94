"""Traces in a folder, read in blocks of users, and written part by part; for data that do not fit into memory.

The parts of a trace set are its files. No user is in two parts, and the ids of users ascend from part to part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from weakref import finalize

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Int

from ppmtf_jax.data.blocks import BLOCK_USERS, Blocks
from ppmtf_jax.data.events import (
    EVENT_COLUMNS,
    INT32_MAX,
    Events,
    checked_mask,
    chosen_users,
    friend_indices,
    in_order,
    renumbered,
)
from ppmtf_jax.data.places import PlaceTable, id_array
from ppmtf_jax.data.runs import run_begins, stable_order
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.trace_set import (
    EVENT_BYTES,
    TRACES_FILE,
    EventTable,
    Origin,
    facts_of_marker,
    open_trace_set,
    opened,
    part_file,
    require_memory_to_load,
    trace_files,
    write_about,
)
from ppmtf_jax.data.traces import NOTHING_KEPT, Traces
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.runtime.engine import is_remote
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.runtime.folders import Paths, output_folder
from ppmtf_jax.runtime.progress import progress_bar

PART_BLOCKS = 8
PART_USERS = PART_BLOCKS * BLOCK_USERS
"""Number of users in a part of synthetic traces, and in the part of a worker."""
# Smaller sets stay in memory.
MAX_BYTES_IN_MEMORY = 2**25


@dataclass(frozen=True, eq=False, repr=False)
class StoredTraces(Traces):
    """Traces whose events are read in blocks of users, and are never in memory together; see `open_traces`."""

    user: np.ndarray = field(init=False)
    trace: np.ndarray = field(init=False)
    instant: np.ndarray = field(init=False)
    place: np.ndarray = field(init=False)
    events: Blocks[Events] = field(kw_only=True)
    begins: np.ndarray = field(kw_only=True)  # index of the first event of each block, and the number of events
    name: str = field(kw_only=True)  # of the folder, for messages

    def __getattr__(self, name: str) -> Any:
        """Refuse the columns of events, which are not in memory."""
        if name in EVENT_COLUMNS:
            way_out = "Call in_memory(), or take some users by select_users"
            raise InputError(self.name, [Problem("traces in memory", "traces that stay in a folder", way_out=way_out)])
        raise AttributeError(name)

    @property
    def n_events(self) -> int:
        return int(self.begins[-1])

    @property
    def has_events(self) -> np.ndarray:
        return np.ones(self.n_users, bool)

    @property
    def blocks(self) -> Blocks[Traces]:
        return self.events.map(self._made(), self.user_ids)

    def _made(self) -> Callable[..., Traces]:
        """Makes traces from events, user ids and friendships; it has nothing of single users."""
        return partial(_traces_of, (self.places, self.time_grid), (self.origin, self.of_nobody))

    def for_many_passes(self) -> Traces:
        # Other processes cannot read a temporary file without a name.
        return self if is_remote() else replace(self, events=self.events.kept())

    def select_users(self, indices: np.ndarray) -> Traces:
        chosen = chosen_users(indices, self.n_users)
        number, pairs = renumbered(chosen, self.friendships)

        def select(events: Events, keep: np.ndarray, number: np.ndarray) -> Events:
            kept = events.at(keep[events.user])
            return kept._replace(user=number[kept.user])

        # In this process: what a worker finds is traces, and they must not be sent.
        found = list(self.events.map(select, chosen, number).here())
        events = Events(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
        return self._made()(events, self.user_ids[chosen], pairs)

    def select_traces(self, keep: np.ndarray) -> Traces:
        """Some of the traces, read in blocks; `keep` has one boolean for each row of `trace_table`."""
        user_of_trace, trace = self.trace_table()
        keep = checked_mask(keep, len(trace), "traces")
        if not keep.any():
            raise InputError("traces", [NOTHING_KEPT])
        is_present = np.zeros(self.n_users, bool)
        is_present[user_of_trace[keep]] = True
        number, friendships = renumbered(is_present, self.friendships)
        user = np.where(keep, number[user_of_trace], -1)
        return rearranged_traces(self, user_of_trace, user, trace, self.user_ids[is_present], friendships)

    def trace_table(self) -> tuple[np.ndarray, np.ndarray]:
        def of_block(block: Traces, users: range) -> np.ndarray:
            user, trace = block.trace_table()
            return np.stack([np.int32(users.start) + user, trace], axis=1)

        user, trace = self.blocks.map(of_block, range(self.n_users)).joined().T
        return user, trace

    def in_memory(self) -> Traces:
        require_memory_to_load(self.name, self.n_events)
        return self.select_users(np.arange(self.n_users))


def _traces_of(
    of_grid: tuple[PlaceTable, TimeGrid],
    facts: tuple[Origin | None, bool],
    events: Events,
    user_ids: np.ndarray,
    friendships: np.ndarray | None = None,
) -> Traces:
    return Traces(*events, user_ids, *of_grid, friendships, *facts)


def on_places(traces: Traces, places: PlaceTable, subject: str) -> Traces:
    """The same traces with the places of another table; `InputError` about `subject` if an event is elsewhere."""
    number = places.index_of(traces.places.ids).astype(np.int32)
    if isinstance(traces, StoredTraces) and (number >= 0).all():
        events = traces.events.map(lambda events: events._replace(place=number[events.place]))
        return replace(traces, places=places, events=events)
    placed = Traces.from_frame(traces.in_memory().to_frame(), places, traces.time_grid, subject=subject)
    return replace(placed, of_nobody=traces.of_nobody)


@dataclass(frozen=True, eq=False)
class _StoredBlocks:
    """The users and the rows of consecutive blocks, read from the files in each iteration.

    `begins` is the index of the first event of each block, and the end of the last one. Users are numbered from the
    first block on.
    """

    folder: str
    places: PlaceTable
    begins: np.ndarray
    n_users: int
    block_users: int

    def __iter__(self) -> Iterator[tuple[slice, Events]]:
        begins, number = self.begins.tolist(), 0
        left = Events(*[np.zeros(0, np.int32)] * len(EVENT_COLUMNS))
        for events, _ in _read(self.folder, self.places, begins[0], begins[-1]):
            left = Events(*map(np.append, left, events))
            while number < len(begins) - 1 and len(left.user) >= (n := begins[number + 1] - begins[number]):
                block, left = left.at(slice(n)), left.at(slice(n, None))
                first = number * self.block_users
                number += 1
                users = slice(first, min(first + self.block_users, self.n_users))
                yield users, block._replace(user=block.user - block.user[0])

    def parts(self) -> Iterator[tuple[slice, _StoredBlocks]]:
        """The users and the blocks of each part of `PART_BLOCKS` blocks."""
        for first in range(0, len(self.begins) - 1, PART_BLOCKS):
            stop = min((first + PART_BLOCKS) * self.block_users, self.n_users)
            begins = self.begins[first : first + PART_BLOCKS + 1]
            users = slice(first * self.block_users, stop)
            yield users, replace(self, begins=begins, n_users=users.stop - users.start)


class _OutOfOrderError(Exception):
    """Events that cannot be read in blocks of users."""


def _read(folder: PathLike, places: PlaceTable, begin: int, stop: int) -> Iterator[tuple[Events, np.ndarray]]:
    """The events from `begin` to `stop`, numbered over all files, in pieces.

    With each piece come the ids of the users whose first event is in it. Users are numbered in the order of appearance.
    """
    before, n_users, last = 0, 0, None
    for path in trace_files(Path(folder)):
        if before >= stop:
            return
        # Most files store each distinct id of a place only once. Arrow keeps this form, which `_encoded` needs.
        with opened(path, read_dictionary=["place"]) as file:
            for group in range(file.num_row_groups):
                n = file.metadata.row_group(group).num_rows
                first, end = max(begin - before, 0), min(stop - before, n)
                before += n
                if first >= end:
                    continue
                table = file.read_row_group(group, columns=list(EVENT_COLUMNS)).slice(first, end - first)
                trace, instant = (_whole(table[name]) for name in ("trace", "instant"))
                (user, ids), (place, place_ids) = _encoded(table["user"]), _encoded(table["place"])
                begins = run_begins(user)
                begins[0] = last is None or ids[user[0]] != last
                number = np.cumsum(begins, dtype=np.int32) + np.int32(n_users - 1)
                n_users, last = int(number[-1]) + 1, ids[user[-1]]
                place = places.index_of(place_ids).astype(np.int32)[place]
                yield Events(number, trace, instant, place), ids[user[begins]]


def _encoded(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """Index of each value of an Arrow column, and the distinct values."""
    if column.null_count:
        raise _OutOfOrderError
    encoded = column.unify_dictionaries().combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy(), id_array(encoded.dictionary.to_pandas())


def _whole(column: Any) -> np.ndarray:
    """An Arrow column of whole numbers as int32."""
    if column.null_count or not pa.types.is_integer(column.type):
        raise _OutOfOrderError
    values = column.to_numpy()
    if len(values) and (values.min() < 0 or values.max() > INT32_MAX):
        raise _OutOfOrderError
    return values.astype(np.int32, copy=False)


def open_traces(folder: PathLike, *, with_friends: bool = True, progress: bool = False) -> Traces:
    """Check a trace-set folder, without loading all its traces.

    If users, traces or instants are not in ascending order in the files, all traces are loaded and sorted. Without
    `with_friends`, friendships are not read, and users need less memory. Raises `InputError` as `Traces.load` does.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> with TemporaryDirectory() as folder:
    ...     toy_city(n_users=20, seed=0).traces.save(folder + "/city")
    ...     [block.n_users for block in open_traces(folder + "/city").blocks]
    [20]
    """
    table = open_trace_set(folder, with_friends=with_friends)
    try:
        if not (table.n_events and set(EVENT_COLUMNS) <= set(table.columns)):
            raise _OutOfOrderError
        with progress_bar("checking", table.n_events, show=progress) as advance:
            user_ids, begins = _checked(folder, table, advance)
    except _OutOfOrderError:
        return Traces.load(folder, progress=progress)
    pairs, problems = None, []
    if table.friendships is not None:
        pairs, problems = friend_indices(table.friendships, user_ids)
    raise_any(str(folder), problems)
    events = Blocks(_StoredBlocks(os.path.abspath(folder), table.places, begins, len(user_ids), BLOCK_USERS))
    about, facts = (user_ids, table.places, table.time_grid, pairs), facts_of_marker(folder)
    return StoredTraces(*about, **facts, events=events, begins=begins, name=str(folder))


def _checked(folder: PathLike, table: EventTable, advance: Callable[[int], None]) -> tuple[np.ndarray, np.ndarray]:
    """The ids of the users, and `begins`; events that are not in order are an `_OutOfOrderError`."""
    ids, begins, n_events = [], [], 0
    last = Events(*np.full((len(EVENT_COLUMNS), 1), -1, np.int32))
    for events, new_ids in _read(folder, table.places, 0, table.n_events):
        both = Events(*map(np.append, last, events))
        is_known = events.place.min() >= 0 and events.instant.max() < table.time_grid.n_instants
        if not (is_known and in_order(both, distinct=True)):
            raise _OutOfOrderError
        begins.append(n_events + np.flatnonzero(np.diff(both.user)))
        last, n_events = both.at(slice(-1, None)), n_events + len(events.user)
        ids.append(new_ids)
        advance(len(events.user))
    user_ids = np.concatenate(ids)
    try:
        ascend = bool((user_ids[1:] > user_ids[:-1]).all())
    except TypeError as error:
        raise _OutOfOrderError from error
    if not ascend:
        raise _OutOfOrderError
    return user_ids, np.append(np.concatenate(begins)[::BLOCK_USERS], table.n_events)


def save_in_parts(parts: Iterable[Traces], folder: PathLike, *, overwrite: bool = False, inputs: Paths = ()) -> None:
    """Write a trace-set folder, with a file for each part if there are several; it appears only when it is complete.

    The parts have different users, in the order of their ids, and the same places and time grid. Raises `InputError`: a
    part has users whose ids do not come after those of the part before.
    """
    parts = iter(parts)
    first = next(parts)
    kind, about = first.kind_and_facts()
    with output_folder(folder, kind, about=about, overwrite=overwrite, inputs=inputs) as unfinished:
        second = next(parts, None)
        if second is None:
            first.write_into(unfinished)
        else:
            write_parts(unfinished, chain([first, second], parts))


def joined(parts: Iterable[Traces]) -> Traces:
    """The parts of a set, as in `save_in_parts`, as one set in memory, with the friendships within each part."""
    one, *others = parts
    if not others:
        return one
    parts = [one, *others]
    before = np.cumsum([0, *(part.n_users for part in parts)], dtype=np.int32)
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in (*EVENT_COLUMNS, "user_ids")}
    columns["user"] += np.repeat(before[:-1], [part.n_events for part in parts])
    pairs = [n + part.friendships for n, part in zip(before, parts, strict=False) if part.friendships is not None]
    return replace(one, **columns, friendships=np.concatenate(pairs) if pairs else None)


def parts_of_users(table: pd.DataFrame, user: str) -> list[pd.DataFrame]:
    """A table in parts of `PART_USERS` users each; the rows of a user follow each other. `user`: name of a column."""
    first = np.flatnonzero(run_begins(table[user].to_numpy()))[::PART_USERS]
    return [table[begin:end] for begin, end in pairwise([*first.tolist(), len(table)])]


def write_parts(folder: Path, parts: Iterable[Traces], n_parts: int | None = None) -> None:
    """Write the files of a trace set into an existing folder; see `save_in_parts`.

    `n_parts`: the number of parts, if it is known; a single part is written as one file.
    """
    friends, last, part = [], None, None
    for number, part in enumerate(parts):
        if last is not None and not part.user_ids[0] > last:
            problem = Problem(f"users after {last!r} in part {number}", repr(part.user_ids[0]))
            raise InputError("parts", [problem])
        last = part.user_ids[-1]
        part.write_events_into(part_file(folder / TRACES_FILE, number, n_parts))
        if part.friendships is not None:
            friends.append(part.friendship_frame())
    if part is not None:
        write_about(folder, part.places, part.time_grid, pd.concat(friends) if friends else None)


class Rearranged:
    """Chosen traces of a set, with new users and trace numbers, in parts of `PART_USERS` new users.

    Parameters
    ----------
    user_of_trace : int array, shape (traces,)
        The old user of each trace, as in `traces.trace_table`.
    user, trace : int arrays, shape (traces,)
        The new user and the new trace number of each trace; the user is -1 if the trace is not chosen.
    n_users : int
        Number of new users. Each has a trace.
    """

    def __init__(
        self,
        traces: Traces,
        user_of_trace: Int[np.ndarray, " trace"],
        user: Int[np.ndarray, " trace"],
        trace: Int[np.ndarray, " trace"],
        n_users: int,
    ):
        self.n_users, self.n_parts = n_users, -(-n_users // PART_USERS)
        user, trace = (column.astype(np.int32, copy=False) for column in (user, trace))

        def events(block: Traces, users: range) -> np.ndarray:
            row = np.searchsorted(user_of_trace, np.int32(users.start)) + block.trace_of_event()
            columns = user[row], trace[row], block.instant, block.place
            kept = np.stack(columns, axis=1)[columns[0] >= 0]
            # Numbers of 16 bits are sorted in linear time; there are at most 2^31 / PART_USERS parts.
            return kept[np.argsort((kept[:, 0] // PART_USERS).astype(np.uint16), kind="stable")]

        self.store = SpooledTemporaryFile(MAX_BYTES_IN_MEMORY)  # noqa: SIM115 - closed when `self` is no longer used
        finalize(self, self.store.close)
        n_written, edges = 0, []
        of_block = np.zeros(-(-n_users // BLOCK_USERS), np.int64)
        at_place = np.zeros(traces.n_places, np.int64)
        for found in traces.blocks.map(events, range(traces.n_users)).here():
            new_user, *_, place = found.T
            self.store.write(found.tobytes())
            edges.append(n_written + np.searchsorted(new_user // PART_USERS, np.arange(self.n_parts + 1)))
            n_written += len(found)
            of_block += np.bincount(new_user // BLOCK_USERS, minlength=len(of_block))
            at_place += np.bincount(place, minlength=len(at_place))
        self.edges = np.stack(edges)  # for each block: where its events of each part begin
        self.begins = np.concatenate([[0], np.cumsum(of_block)])  # as in `StoredTraces`
        self.at_place = at_place  # number of events at each place

    def __iter__(self) -> Iterator[tuple[slice, Events]]:
        """The users and the events of each block; the events number the users of their block from 0."""
        for users, events in self.in_parts():
            for first in range(users.start, users.stop, BLOCK_USERS):
                stop = min(first + BLOCK_USERS, users.stop)
                block = events.at(slice(*np.searchsorted(events.user, [first - users.start, stop - users.start])))
                yield slice(first, stop), block._replace(user=block.user - np.int32(first - users.start))

    def in_parts(self) -> Iterator[tuple[slice, Events]]:
        """The users and the events of each part; the events number the users of their part from 0."""
        for number in range(self.n_parts):
            content = []
            for begin, stop in self.edges[:, number : number + 2].tolist():
                self.store.seek(begin * EVENT_BYTES)
                content.append(self.store.read((stop - begin) * EVENT_BYTES))
            events = np.frombuffer(b"".join(content), np.int32).reshape(-1, len(EVENT_COLUMNS))
            # The events of a trace are in order, because they were read together.
            columns = Events(*events[stable_order(events[:, 0], events[:, 1])].T.copy())
            first = number * PART_USERS
            users = slice(first, min(first + PART_USERS, self.n_users))
            yield users, columns._replace(user=columns.user - np.int32(first))


def rearranged_traces(
    traces: Traces,
    user_of_trace: Int[np.ndarray, " trace"],
    user: Int[np.ndarray, " trace"],
    trace: Int[np.ndarray, " trace"],
    user_ids: np.ndarray,
    friendships: np.ndarray | None = None,
) -> StoredTraces:
    """The traces of `Rearranged` as a set, read in blocks; `user_ids` are the ids of the new users."""
    events = Rearranged(traces, user_of_trace, user, trace, len(user_ids))
    about = (user_ids, traces.places, traces.time_grid, friendships, traces.origin, traces.of_nobody)
    name = getattr(traces, "name", "traces")
    return StoredTraces(*about, events=Blocks(events), begins=events.begins, name=name)
