"""Co-locations of friends: who met whom where and when, all of them or cut so that one user matters only so much.

Section 4.3 of the co-location paper (Narita et al., "Synthesizing Privacy-Preserving Location Traces Including
Co-locations"). A co-location is a pair of friends who are at one place at one instant; how often two traces of a user
say so does not matter. Three ways to take them:

    find_colocations     all of them: Q* of section 5.2
    greedy_colocations   as published: at most c of each user. One user can change the counts by more than c, without
                         any bound that does not grow with the data; noise for c does not protect her
    bounded_colocations  at most c events of each user, at each with at most D friends: one user changes the counts by
                         at most c x D, which is proved
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ppmtf_jax.colocation.b_matching import greedy_b_matching
from ppmtf_jax.colocation.friend_graph import FriendGraph, sorted_distinct
from ppmtf_jax.data.traces import Traces, counts_per_user
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, UserStreams

# Events looked up at once: bounds the memory.
EVENTS_AT_A_TIME = 2**21
# Of each event its user and cell, together and apart, sorted and not; what is kept of them; and the same once more with
# a number, while some are drawn. Of each pair who looks up whom; of each event that is looked up, where it is found.
EVENT_BYTES, KEPT_EVENT_BYTES, DRAWN_EVENT_BYTES, PAIR_BYTES, LOOKUP_BYTES = 50, 24, 80, 40, 60
# Of each meeting its pair and events, in parts, together and sorted, and while some are chosen.
MEETING_BYTES = 95
WAY_OUT = "Take fewer users, or fewer days"


@dataclass(frozen=True)
class ColocationLimits(Settings, subject="limits of co-locations"):
    """How much of a user is counted.

    Parameters
    ----------
    max_events : int
        Most events of a user that count, c; which ones is random.
    max_friends : int
        Most friends with whom a user counts at one place and instant, D.

    Raises
    ------
    InputError
        One of them is below 1.

    Examples
    --------
    >>> ColocationLimits(max_events=10, max_friends=2).sensitivity
    20
    """

    max_events: Count = 10
    max_friends: Count = 1

    @property
    def sensitivity(self) -> int:
        """By how much one user with all her events and friendships changes the counts at most, L1."""
        return self.max_events * self.max_friends


@dataclass(frozen=True, eq=False)
class Colocations:
    """Friends who are at one place at one instant, sorted by instant, place and pair.

    Parameters
    ----------
    pair : int64 array, shape (co-locations,)
        Row of the friendship graph's `pairs`.
    instant, place : int64 arrays, shape (co-locations,)
    n_instants, n_places : int
    """

    pair: np.ndarray
    instant: np.ndarray
    place: np.ndarray
    n_instants: int
    n_places: int

    def __len__(self) -> int:
        return len(self.pair)

    def counts(self) -> sparse.csr_array:
        """How many there are at each instant and place: matrix Q, sparse, shape (instants, places)."""
        return _count(self.instant, self.place, (self.n_instants, self.n_places))

    def counts_in_period(self, period: int) -> sparse.csr_array:
        """The same with instants that are whole periods apart taken together, shape (period, places).

        Whoever changes `counts` by some number, in L1, changes these by no more.
        """
        return _count(self.instant % period, self.place, (period, self.n_places))


def find_colocations(traces: Traces, graph: FriendGraph) -> Colocations:
    """All co-locations of friends.

    Events are grouped by user, place and instant once; then each pair of friends looks up the events of the one who has
    fewer in those of the other. So crowded places cost no more than others, but for the meetings that are there.

    Parameters
    ----------
    traces : Traces
        Of some or all users of the graph.
    graph : FriendGraph

    Raises
    ------
    InputError
        A user of the traces is not in the graph; traces were synthesized more than once for some users, so that there
        is more than one answer to who was where; or the memory would not suffice.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=30, seed=0).traces
    >>> counts = find_colocations(traces, FriendGraph.of(traces)).counts()
    >>> counts.shape == (traces.time_grid.n_instants, traces.n_places), bool(counts.sum() > 0)
    (True, True)
    """
    presence = _Presence.of(traces, graph)
    return presence.colocations(presence.meetings(graph))


def greedy_colocations(traces: Traces, graph: FriendGraph, max_colocations: int) -> Colocations:
    """Co-locations as section 4.3 takes them: read in order of time, each if both users have fewer than c so far.

    For reproduction. **This does not bound by c what one user changes**: without her, her friends have room for other
    co-locations, their friends have room in turn, and so on along a chain. Noise for c does not protect her.

    Raises
    ------
    InputError
        The limit is below 1, or what `find_colocations` refuses.

    Notes
    -----
    How many there are *in all* does change by at most c when one user with her events and friendships comes or goes:
    `greedy_b_matching` proves it, since the order of reading (instant, place, users) does not depend on her. So the
    number of co-locations, without where and when they are, can be published with noise of that scale.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=30, seed=0).traces
    >>> graph = FriendGraph.of(traces)
    >>> trimmed = greedy_colocations(traces, graph, max_colocations=3)
    >>> int(np.bincount(graph.pairs[trimmed.pair].ravel()).max())
    3
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
    """Co-locations of which one user with all her events and friendships changes the counts by c x D at most.

    First each user's events are cut to c distinct ones, drawn from her own stream. Then, at each place and instant by
    itself, friends who are there are read in the order of users, and a pair counts if both have been counted with fewer
    than D friends there. With D as large as the most friends, all of them count.

    Parameters
    ----------
    traces : Traces
    graph : FriendGraph
    limits : ColocationLimits
        c and D.
    seed : int
        Of which events count. Privacy holds for every seed, whoever knows it.

    Raises
    ------
    InputError
        What `find_colocations` refuses.

    Notes
    -----
    Neighbours: two pairs of traces and graph over the same users, places and time grid, all public, where one user has
    no event or no friend in one of them, or both, and any in the other; all else is the same. So noise protects her
    friendships with her events. What is told of the graph besides, such as a friendship probability, adds its budget.

    Sensitivity of `counts`: c x D in L1. Proof: which events of a user count is a function of the seed, her id and her
    own events (`UserStreams`). So the events of all others are the same in both, and at a place and instant where no
    event of hers counts, so are the pairs of friends that are there and what is taken of them. There are at most c
    others. At each of these, the pairs without her are the same and in the same order, and the lemma of
    `greedy_b_matching` says that the number taken is larger with her by at most D. QED It is reached: at each
    of c events D friends are with her, no two of whom are friends.

    If one user's events and friendships are *replaced* by others, the counts change by at most 2 c x D, which is to
    remove and to add her; by c x D if only her friendships are, since at each of c places and instants both numbers
    lie between the number without her and D more.

    The limit of D is on friends who are at the same place at the same instant, and not on the friends of a user in
    general: in the cut graph, a friendship of hers that comes or goes makes others go or come along a chain. Here a
    chain ends at the place and instant where it begins, and there only the number of pairs is told.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=30, seed=0).traces
    >>> limits = ColocationLimits(max_events=5, max_friends=2)
    >>> counts = bounded_colocations(traces, FriendGraph.of(traces), limits, seed=0).counts()

    Under user-level differential privacy, for whatever is made of them:

    >>> from ppmtf_jax.noise.laplace import add_laplace
    >>> noisy = add_laplace(counts.toarray(), limits.sensitivity, epsilon=1.0)
    >>> noisy.shape == counts.shape
    True
    """
    streams = UserStreams.of(seed, Stage.TRIMMED_EVENTS, graph.user_ids)
    presence = _Presence.of(traces, graph).trimmed(limits.max_events, streams)
    meetings = presence.meetings(graph)
    # An event is a user at a place and instant, so that no two events of a pair are at different ones.
    keep = greedy_b_matching(meetings.events, len(presence.user), limits.max_friends)
    return presence.colocations(meetings.select(keep))


def bytes_to_look_up(n_events: int, n_pairs: int) -> int:
    """Estimate of the peak of looking up the co-locations of so many friends, but for those found, bytes.

    Examples
    --------
    >>> bytes_to_look_up(n_events=1000, n_pairs=10**6) > bytes_to_look_up(n_events=1000, n_pairs=10)
    True
    """
    looking = KEPT_EVENT_BYTES * n_events + PAIR_BYTES * n_pairs + LOOKUP_BYTES * EVENTS_AT_A_TIME
    return max(EVENT_BYTES * n_events, looking)


class _Meetings(NamedTuple):
    """Pairs of friends at one place and instant: the pair of the graph, and the event of each of the two."""

    pair: np.ndarray
    events: np.ndarray

    def select(self, keep: np.ndarray) -> _Meetings:
        """Those of a mask or of indices."""
        return _Meetings(self.pair[keep], self.events[keep])


@dataclass(frozen=True, eq=False)
class _Presence:
    """Who was where when, each once: sorted by user of the graph and cell, which is instant times places plus place."""

    user: np.ndarray
    cell: np.ndarray
    n_users: int
    n_instants: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces, graph: FriendGraph) -> _Presence:
        if traces.origin is not None and len(traces.trace_table()[0]) > traces.n_users:
            way_out = "Choose one of each user with select_traces"
            problem = Problem("one trace of each user where they were synthesized", "several", way_out=way_out)
            raise InputError("traces", [problem])
        require_memory("co-locations", bytes_to_look_up(traces.n_events, graph.n_pairs), WAY_OUT)
        user = graph.index_of(traces.user_ids)[traces.user]
        n_instants, n_places = traces.time_grid.n_instants, traces.n_places
        cell = traces.instant.astype(np.int64) * n_places + traces.place
        code = sorted_distinct(user * (n_instants * n_places) + cell)
        user, cell = np.divmod(code, n_instants * n_places)
        return cls(user, cell, graph.n_users, n_instants, n_places)

    def trimmed(self, max_events: int, streams: UserStreams) -> _Presence:
        """At most so many events of each user: those with the least numbers in her own stream."""
        require_memory("co-locations", DRAWN_EVENT_BYTES * len(self.user), WAY_OUT)
        drawn = streams.at(self.user, np.stack(np.divmod(self.cell, self.n_places), axis=1))
        order = np.lexsort((drawn, self.user))
        # Users are in order already: this only shuffles the events of each.
        number = np.arange(len(order)) - np.searchsorted(self.user, self.user)
        kept = np.sort(order[number < max_events])
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
            row, event = _ranges(begin[one[block]], n_events[one[block]])
            wanted = other[block][row].astype(np.int64) * n_cells + self.cell[event]
            at = np.minimum(np.searchsorted(code, wanted), len(code) - 1)
            met = code[at] == wanted
            pairs.append(block.start + row[met])
            events.append(np.stack([event[met], at[met]], axis=1))
            # How many meetings there will be, nobody knows before.
            n_met += int(met.sum())
            require_memory("co-locations", MEETING_BYTES * n_met, WAY_OUT)
        found = _Meetings(np.concatenate(pairs), np.concatenate(events))
        return found.select(np.lexsort((found.pair, self.cell[found.events[:, 0]])))

    def colocations(self, meetings: _Meetings) -> Colocations:
        instant, place = np.divmod(self.cell[meetings.events[:, 0]], self.n_places)
        return Colocations(meetings.pair, instant, place, self.n_instants, self.n_places)


def _blocks(length: np.ndarray) -> Iterator[slice]:
    """Consecutive ranges, given by their lengths, in blocks of `EVENTS_AT_A_TIME` numbers at most, or of one range."""
    total, first = np.cumsum(length), 0
    while first < len(length):
        before = total[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(total, before + EVENTS_AT_A_TIME, side="right")))
        yield slice(first, stop)
        first = stop


def _ranges(begin: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers begin, begin + 1, ... of each of some ranges, after the number of the range."""
    row = np.repeat(np.arange(len(length)), length)
    return row, np.arange(len(row)) - (np.cumsum(length) - length)[row] + begin[row]


def _count(instant: np.ndarray, place: np.ndarray, shape: tuple[int, int]) -> sparse.csr_array:
    ones = np.ones(len(instant), np.int64)
    return sparse.csr_array(sparse.coo_array((ones, (instant, place)), shape=shape))
