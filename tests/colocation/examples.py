"""Small data sets of friends, and their meetings told by loops."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.data.traces import Traces
from tests.support import minutes, places_in_line, random_traces

N_USERS, N_INSTANTS, N_PLACES = 6, 4, 3
PLACES, GRID = places_in_line(N_PLACES), minutes(N_INSTANTS)


def random_friends(seed: int, n_users: int = N_USERS, probability: float = 0.5) -> FriendGraph:
    """A graph of users 0, 1, ... in which any two are friends with some probability."""
    pairs = np.array(list(combinations(range(n_users), 2)))
    return FriendGraph.from_pairs(
        np.arange(n_users), pairs[np.random.default_rng(seed).random(len(pairs)) < probability]
    )


def random_data(seed: int, n_visited: int = N_PLACES) -> tuple[Traces, FriendGraph]:
    """Users with gaps, some of them with two traces, and who is whose friend; some users may have no event."""
    traces = random_traces(seed, range(N_USERS), PLACES, GRID, n_traces=1 + seed % 2, keep=0.7, n_visited=n_visited)
    return traces, random_friends(seed)


def without_events(traces: Traces, user_id: int) -> Traces:
    return traces.select_users(np.flatnonzero(traces.user_ids != user_id))


def without_friends(graph: FriendGraph, user: int) -> FriendGraph:
    return graph.select_pairs((graph.pairs != user).all(axis=1))


def meetings_by_loop(traces: Traces, graph: FriendGraph) -> set[tuple[int, int, int]]:
    """Instant, place and pair of every co-location of friends."""
    rows = zip(traces.user_ids[traces.user].tolist(), traces.instant.tolist(), traces.place.tolist(), strict=True)
    present = set(rows)
    return {
        (instant, place, pair)
        for pair, (one, other) in enumerate(graph.pairs.tolist())
        for user, instant, place in present
        if user == one and (other, instant, place) in present
    }
