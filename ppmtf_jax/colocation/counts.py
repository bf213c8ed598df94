"""Co-locations of friends: all of them, or with limits on the data of one user.

Section 4.3 of the co-location paper (see `friends`). A co-location is a pair of friends who are at one place at one
instant; it counts once, even if it occurs in two traces of a user. `find_colocations` finds all of them,
`greedy_colocations` has the published limit, and `bounded_colocations` one that bounds what a user changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy import sparse

from ppmtf_jax.colocation.friends import FriendGraph, greedy_b_matching, sorted_distinct
from ppmtf_jax.data.events import counts_per_user
from ppmtf_jax.data.runs import joined_ranges, least_of_each
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, UserStreams

# Number of events that are looked up at a time, to limit memory.
EVENTS_AT_A_TIME = 2**21
# Bytes in each stage (measured upper bounds): per event while events are sorted, per event after sorting, and per event
# while events are drawn; per pair of friends; per looked-up event; per found meeting.
EVENT_BYTES, KEPT_EVENT_BYTES, DRAWN_EVENT_BYTES, PAIR_BYTES, LOOKUP_BYTES = 50, 24, 80, 40, 60
MEETING_BYTES = 95
WAY_OUT = "Take fewer users, or fewer days"


@dataclass(frozen=True)
class ColocationLimits(Settings, subject="limits of co-locations"):
    """Limits on the data of one user that are counted.

    Parameters
    ----------
    max_events : int
        Maximum number of events of a user that are counted (c); they are chosen at random.
    max_friends : int
        Maximum number of friends with whom a user is counted at one place and instant (D).
    """

    max_events: Count = 10
    max_friends: Count = 1

    @property
    def sensitivity(self) -> int:
        """Maximum change of the counts, in L1, by one user with all their events and friendships."""
        return self.max_events * self.max_friends


@dataclass(frozen=True, eq=False)
class Colocations:
    """Friends who are at one place at one instant, sorted by instant, place and pair (row of the graph's `pairs`)."""

    pair: Int[np.ndarray, " colocation"]
    instant: Int[np.ndarray, " colocation"]
    place: Int[np.ndarray, " colocation"]
    n_instants: int
    n_places: int

    def __len__(self) -> int:
        return len(self.pair)

    def counts(self, period: int | None = None) -> sparse.csr_array:
        """Number of co-locations at each instant and place: matrix Q, sparse, shape (instants, places).

        With a period, counts are summed over all periods, shape (period, places); their L1 sensitivity is not larger.
        """
        period = period or self.n_instants
        ones, cell = np.ones(len(self), np.int64), (self.instant % period, self.place)
        return sparse.csr_array(sparse.coo_array((ones, cell), shape=(period, self.n_places)))


def find_colocations(traces: Traces, graph: FriendGraph) -> Colocations:
    """All co-locations of friends: Q* of section 5.2.

    For each pair of friends, the events of the friend with fewer events are looked up among the other friend's events.
    So crowded places cost no more than other places, except for their meetings.

    `traces`: those of some or all users of the graph. Raises `InputError`: a user of the traces is not in the graph;
    several traces were synthesized for a user, so that their place is ambiguous; or memory is too small.
    """
    presence = _Presence.of(traces, graph)
    return presence.colocations(presence.meetings(graph))


def greedy_colocations(traces: Traces, graph: FriendGraph, max_colocations: int) -> Colocations:
    """Co-locations as in section 4.3: read in order of time, each counts if both users have fewer than c so far.

    Use only their number *in all*. It changes by at most c if one user with their events and friendships is added or
    removed: `greedy_b_matching` proves it, because the order of reading (instant, place, users) does not depend on
    them. **The counts by place and instant change by more than c**: without this user, their friends have room for
    other co-locations, which leaves room for their friends, and so on along a chain. Noise for c does not protect them
    there.

    Raises `InputError`: the limit is below 1, or as in `find_colocations`.
    """
    if max_colocations < 1:
        raise InputError("co-locations", [Problem("max_colocations of at least 1", repr(max_colocations))])
    presence = _Presence.of(traces, graph)
    meetings = presence.meetings(graph)
    keep = greedy_b_matching(graph.pairs[meetings.pair], graph.n_users, max_colocations)
    return presence.colocations(meetings.select(keep))


def bounded_colocations(
    traces: Traces, graph: FriendGraph, limits: ColocationLimits = ColocationLimits(), *, seed: int
) -> Colocations:
    """Co-locations whose counts one user with all their events and friendships changes by at most c x D.

    First each user's events are cut to c distinct ones, drawn from their own stream. Then, separately for each place
    and instant, the pairs of friends who are there are read in the order of users. A pair counts if both friends have
    so far been counted with fewer than D friends there.

    `limits`: c and D. `seed`: decides which events count. The privacy holds for every seed, even if the seed is known.
    Raises `InputError`: as in `find_colocations`.

    Notes
    -----
    Neighbours: two pairs of traces and graph over the same users, places and time grid, all public. In one of them, one
    user u has no events, or no friends, or neither; in the other the events and friends of u are arbitrary. All other
    data are the same. So noise protects the events and the friendships of u together. If other facts about the graph
    are published, such as a friendship probability, their budgets are added.

    Sensitivity of `counts`: c x D in L1. Proof: which events of a user count is a function of the seed, the user's id
    and own events (`UserStreams`). So the events of all others are the same in both data sets. At a place and instant
    where no event of u counts, the pairs of friends are the same too, and so are the counted pairs. There are at most c
    other places and instants. At each of these, the pairs without u are the same and in the same order. By the lemma of
    `greedy_b_matching`, the number of counted pairs is larger with u by at most D. QED The bound is reached if D
    friends are with u at each of c events, and no two of these friends are friends of each other.

    If one user's events and friendships are *replaced* by others, the counts change by at most 2 c x D: the user is
    removed, and then added. If only the friendships are replaced, they change by at most c x D, because at each of c
    places and instants both counts lie between the count without u and that count plus D.

    The limit D applies to friends at the same place and instant, not to the friends of a user in the graph. If
    friendships of the graph were removed instead, adding or removing one friendship could change others along a chain
    through the whole graph. Here a chain stays at one place and instant, where only the number of pairs is counted.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.noise.mechanisms import add_laplace
    >>> traces = toy_city(n_users=30, seed=0).traces
    >>> limits = ColocationLimits(max_events=5, max_friends=2)
    >>> counts = bounded_colocations(traces, FriendGraph.of(traces), limits, seed=0).counts()
    >>> noisy = add_laplace(counts.toarray(), limits.sensitivity, epsilon=1.0)  # user-level differential privacy
    >>> noisy.shape == counts.shape
    True
    """
    streams = UserStreams.of(seed, Stage.TRIMMED_EVENTS, graph.user_ids)
    presence = _Presence.of(traces, graph).trimmed(limits.max_events, streams)
    meetings = presence.meetings(graph)
    # Nodes are events (user, place, instant): both events of a pair are at the same place and instant.
    keep = greedy_b_matching(meetings.events, len(presence.user), limits.max_friends)
    return presence.colocations(meetings.select(keep))


class _Meetings(NamedTuple):
    """Pairs of friends at one place and instant: the pair's index in the graph, and the events of both friends."""

    pair: np.ndarray
    events: np.ndarray

    def select(self, keep: np.ndarray) -> _Meetings:
        """Select meetings by a mask or by indices."""
        return _Meetings(self.pair[keep], self.events[keep])


@dataclass(frozen=True, eq=False)
class _Presence:
    """Distinct events, sorted by user of the graph and cell (instant * n_places + place)."""

    user: np.ndarray
    cell: np.ndarray
    n_users: int
    n_instants: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces, graph: FriendGraph) -> _Presence:
        if traces.origin is not None and len(traces.trace_table()[0]) > traces.n_users:
            way_out = "Choose one of each user with select_traces"
            problem = Problem("one synthetic trace of each user", "several", way_out=way_out)
            raise InputError("traces", [problem])
        looking_up = KEPT_EVENT_BYTES * traces.n_events + PAIR_BYTES * graph.n_pairs + LOOKUP_BYTES * EVENTS_AT_A_TIME
        require_memory("co-locations", max(EVENT_BYTES * traces.n_events, looking_up), WAY_OUT)
        user = graph.index_of(traces.user_ids)[traces.user]
        n_instants, n_places = traces.time_grid.n_instants, traces.n_places
        cell = traces.instant.astype(np.int64) * n_places + traces.place
        code = sorted_distinct(user * (n_instants * n_places) + cell)
        user, cell = np.divmod(code, n_instants * n_places)
        return cls(user, cell, graph.n_users, n_instants, n_places)

    def trimmed(self, max_events: int, streams: UserStreams) -> _Presence:
        """At most `max_events` events of each user: those with the smallest random numbers in their own stream."""
        require_memory("co-locations", DRAWN_EVENT_BYTES * len(self.user), WAY_OUT)
        drawn = streams.at(self.user, np.stack(np.divmod(self.cell, self.n_places), axis=1))
        kept = np.sort(least_of_each(self.user, drawn, max_events))
        return _Presence(self.user[kept], self.cell[kept], self.n_users, self.n_instants, self.n_places)

    def meetings(self, graph: FriendGraph) -> _Meetings:
        """All pairs of friends who are at one place and instant."""
        n_events = counts_per_user(self.user, self.n_users)
        begin = np.cumsum(n_events) - n_events
        n_cells = self.n_instants * self.n_places
        code = self.user * n_cells + self.cell
        fewer = n_events[graph.pairs].argmin(axis=1)
        one, other = np.take_along_axis(graph.pairs, np.stack([fewer, 1 - fewer], axis=1), axis=1).T
        n_met, pairs, events = 0, [np.zeros(0, np.int64)], [np.zeros((0, 2), np.int64)]
        for block in _blocks(n_events[one]):
            length = n_events[one[block]]
            row, event = np.repeat(np.arange(len(length)), length), joined_ranges(begin[one[block]], length)
            wanted = other[block][row].astype(np.int64) * n_cells + self.cell[event]
            at = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
            met = code[at] == wanted
            pairs.append(block.start + row[met])
            events.append(np.stack([event[met], at[met]], axis=1))
            # The number of meetings is not known beforehand.
            n_met += int(met.sum())
            require_memory("co-locations", MEETING_BYTES * n_met, WAY_OUT)
        found = _Meetings(np.concatenate(pairs), np.concatenate(events))
        return found.select(np.lexsort((found.pair, self.cell[found.events[:, 0]])))

    def colocations(self, meetings: _Meetings) -> Colocations:
        instant, place = np.divmod(self.cell[meetings.events[:, 0]], self.n_places)
        return Colocations(meetings.pair, instant, place, self.n_instants, self.n_places)


def _blocks(length: np.ndarray) -> Iterator[slice]:
    """Blocks of consecutive ranges with given lengths: each has at most `EVENTS_AT_A_TIME` numbers, or one range."""
    total, first = np.cumsum(length), 0
    while first < len(length):
        before = total[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(total, before + EVENTS_AT_A_TIME, side="right")))
        yield slice(first, stop)
        first = stop
