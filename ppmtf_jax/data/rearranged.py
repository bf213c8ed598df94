"""Some or all traces of a set, in another order and with new users; for sets that do not fit into memory.

The events are in a temporary file, which takes 16 bytes an event. It has no name, so nothing of it is left even if the
program is killed.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from weakref import finalize

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.data.blocks import BLOCK_USERS, Blocks
from ppmtf_jax.data.runs import stable_order
from ppmtf_jax.data.selection import checked_mask, renumbered
from ppmtf_jax.data.stored_traces import PART_USERS, EventRows, StoredTraces
from ppmtf_jax.data.traces import Traces

# Smaller sets stay in memory.
MOST_BYTES_IN_MEMORY = 2**25


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

        self.store = SpooledTemporaryFile(MOST_BYTES_IN_MEMORY)  # noqa: SIM115 - closed when `self` is no longer used
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

    def __iter__(self) -> Iterator[tuple[slice, EventRows]]:
        """The users and the events of each block; the events number the users of their block from 0."""
        for users, rows in self.in_parts():
            for first in range(users.start, users.stop, BLOCK_USERS):
                stop = min(first + BLOCK_USERS, users.stop)
                of_block = slice(*np.searchsorted(rows.user, [first - users.start, stop - users.start]))
                user, *columns = (column[of_block] for column in rows)
                yield slice(first, stop), EventRows(user - np.int32(first - users.start), *columns)

    def in_parts(self) -> Iterator[tuple[slice, EventRows]]:
        """The users and the events of each part; the events number the users of their part from 0."""
        width = len(EventRows._fields) * np.dtype(np.int32).itemsize
        for number in range(self.n_parts):
            content = []
            for begin, stop in self.edges[:, number : number + 2].tolist():
                self.store.seek(begin * width)
                content.append(self.store.read((stop - begin) * width))
            events = np.frombuffer(b"".join(content), np.int32).reshape(-1, len(EventRows._fields))
            # The events of a trace are in order, because they were read together.
            rows = EventRows(*events[stable_order(events[:, 0], events[:, 1])].T.copy())
            first = number * PART_USERS
            yield slice(first, min(first + PART_USERS, self.n_users)), rows._replace(user=rows.user - np.int32(first))


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
    return StoredTraces(*about, rows=Blocks(events), begins=events.begins, name=name)


def select_traces(traces: Traces, keep: Bool[np.ndarray, " trace"]) -> StoredTraces:
    """Some of the traces, read in blocks; `keep` is as in `Traces.select_traces`, and true for at least one trace.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_days=2, seed=0).traces.cut_into_periods()
    >>> select_traces(traces, traces.trace_table()[1] == 1).n_users
    5
    """
    user_of_trace, trace = traces.trace_table()
    keep = checked_mask(keep, len(trace), "traces")
    is_present = np.zeros(traces.n_users, bool)
    is_present[user_of_trace[keep]] = True
    number, friendships = renumbered(is_present, traces.friendships)
    user = np.where(keep, number[user_of_trace], -1)
    return rearranged_traces(traces, user_of_trace, user, trace, traces.user_ids[is_present], friendships)
