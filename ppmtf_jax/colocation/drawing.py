"""Meetings of synthetic friends, drawn one after the other so that nobody is at two places at once.

Step 3 of section 4.4 of the co-location paper (see `friends`), computed only from noisy counts: this module does not
use the data and has no privacy cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy.random import Generator

from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.trace_models.completion import ABSENT

# Minimum number of proposals at a time. If fewer than this share are new, all remaining codes are shuffled instead.
MIN_PROPOSALS = 1024
STALE_SHARE = 0.2
# Bytes per instant: for each pair, whether it was tried and whether it met; for each user, their place, a copy, and
# their earliest proposal. And, once all that is left is shuffled, for each pair at an instant (measured).
PAIR_BYTES, USER_BYTES, SHUFFLED_BYTES = 2, 16, 140
WAY_OUT = "Take fewer friendships or instants"


@dataclass(frozen=True, eq=False)
class MeetingProbabilities:
    """Probabilities of the instants at which friends meet, and of places given the instant: R' of section 4.4."""

    instant: Float[np.ndarray, " instant"]
    place: Float[np.ndarray, "instant place"]

    @classmethod
    def of_counts(cls, counts: Float[np.ndarray, "instant place"]) -> MeetingProbabilities:
        """Instants get probability in proportion to sums of noisy counts, places to projected counts.

        The projected counts are the nearest (least squares) non-negative counts with the same sum at each instant. So
        noise at places where nobody meets is removed. If an instant's sum is <= 0, all places are equally probable.
        """
        total = np.maximum(counts.sum(axis=1), 0)
        nearest = _nearest_not_negative(counts, total)
        return cls(_shares(total[None])[0], _shares(nearest))

    @classmethod
    def as_published(cls, counts: Float[np.ndarray, "instant place"]) -> MeetingProbabilities:
        """From noisy counts as in section 4.4: equally probable instants; counts are shifted to be non-negative.

        All counts of an instant are shifted by the same number, such that a negative smallest count becomes 0.
        """
        n_instants = len(counts)
        shifted = counts - np.minimum(counts.min(axis=1, keepdims=True), 0)
        return cls(np.full(n_instants, 1 / n_instants), _shares(shifted))


class Drawn(NamedTuple):
    """Distinct drawn meetings, sorted by pair (row of the graph's `pairs`) and instant; and places of users, or -1."""

    pair: Int[np.ndarray, " colocation"]
    instant: Int[np.ndarray, " colocation"]
    known: Int[np.ndarray, "user instant"]


def no_meetings(n_users: int, n_instants: int) -> Drawn:
    """No meetings at all."""
    none = np.zeros(0, np.int64)
    return Drawn(none, none, np.full((n_users, n_instants), ABSENT, np.int32))


def draw_meetings(
    graph: FriendGraph,
    probabilities: MeetingProbabilities,
    n_colocations: int,
    *,
    allow_fewer: bool = False,
    joining_probability: float = 0.0,
    level: Int[np.ndarray, " pair"] | None = None,
    seed: int,
) -> Drawn:
    """Draw co-locations of random friends at random instants, one after the other.

    Two friends who are both free at the instant meet at a place drawn for it. If one of them is already at a place
    because of another meeting, the other friend joins there; so groups form. At two different places, they do not meet.

    Parameters
    ----------
    n_colocations : int
        Number of distinct combinations of pair and instant to draw. Members of a group who are friends but were not
        drawn as a pair are co-located too, so the total number of co-locations may be larger.
    allow_fewer : bool
        If not all of them are possible, draw as many as possible. By default this is an error.
    joining_probability : float
        Probability that a random friend of one of the two is asked to come along; then, with the same probability, a
        further friend, and so on. A friend who is free joins, and this counts as a co-location.
    level : int array, shape (pairs,), optional
        Two friends are drawn, and friends are asked to come along, in proportion to the level of their friendship. By
        default all levels are equal.

    Notes
    -----
    Raises `InputError`: there is no friendship; the number is below 1 or above the number of combinations of friends
    and possible instants; or not all are possible, because too many friends are already at different places.

    The result is the same as if all proposals were read one by one. It is computed in rounds: each decides those
    proposals whose users have no earlier undecided proposal at the same instant.
    """
    n_instants = len(probabilities.instant)
    weight = np.ones(graph.n_pairs, np.int64) if level is None else level
    n_possible = int((weight > 0).sum()) * int((probabilities.instant > 0).sum())
    if allow_fewer:
        n_colocations = min(n_colocations, n_possible)
    _check(n_colocations, n_possible, joining_probability)
    needed = n_instants * (PAIR_BYTES * graph.n_pairs + USER_BYTES * graph.n_users)
    require_memory("co-locations", needed, WAY_OUT)
    rng = numpy_stream(seed, Stage.COLOCATIONS)
    known = np.full(graph.n_users * n_instants, ABSENT, np.int32)
    met, tried = np.zeros((2, graph.n_pairs * n_instants), bool)
    n_missing, stale = n_colocations, False
    while n_missing:
        if stale:
            require_memory("co-locations", SHUFFLED_BYTES * int((~tried).sum()), WAY_OUT)
            proposed = _in_random_order(~tried, probabilities.instant, weight, rng)
        else:
            proposed = _propose(graph, weight, probabilities.instant, n_missing, joining_probability, rng)
        fresh = pd.unique(proposed[~tried[proposed]])
        places = _draw_places(probabilities.place, fresh % n_instants, rng)
        meets = _settle(known.copy(), _ends(graph, fresh, n_instants), places)
        # Proposals after the last needed one must not leave places in `known`.
        read = np.searchsorted(np.cumsum(meets), n_missing) + 1 if meets.sum() > n_missing else len(fresh)
        fresh, places = fresh[:read], places[:read]
        meets = _settle(known, _ends(graph, fresh, n_instants), places)
        tried[fresh], met[fresh[meets]] = True, True
        n_missing -= int(meets.sum())
        if stale and n_missing and allow_fewer:
            break
        if stale and n_missing:
            expected = "no more co-locations than friends who are not yet elsewhere allow"
            found = f"{n_colocations}, of which {n_colocations - n_missing} could be placed"
            raise InputError("co-locations", [Problem(expected, found, way_out="Ask for fewer")])
        stale = len(fresh) < STALE_SHARE * len(proposed)
    pair, instant = np.divmod(np.flatnonzero(met), n_instants)
    return Drawn(pair, instant, known.reshape(graph.n_users, n_instants))


def _check(n_colocations: int, n_possible: int, joining: float) -> None:
    problems: list[Problem | str] = []
    if not 0 <= joining < 1:
        problems.append(Problem("a joining probability from 0 to below 1", repr(joining)))
    if not n_possible:
        way_out = "Raise the epsilon of friendships, or the number of users"
        problems.append(Problem("at least one friendship among the synthetic users", "none", way_out=way_out))
    elif not 1 <= n_colocations <= n_possible:
        expected = f"from 1 to {n_possible} co-locations, a pair of friends and an instant each"
        problems.append(Problem(expected, repr(n_colocations)))
    raise_any("co-locations", problems)


def _nearest_not_negative(
    counts: Float[np.ndarray, "row place"], total: Float[np.ndarray, " row"]
) -> Float[np.ndarray, "row place"]:
    """The nearest (least squares) non-negative counts with given sums: max(count - t, 0) for some t per row."""
    falling = -np.sort(-counts, axis=1)
    rank = np.arange(1, counts.shape[1] + 1)
    level = (np.cumsum(falling, axis=1) - total[:, None]) / rank
    # Counts above their level come first. The largest count is above its level, or equal to it if the sum is 0.
    last = np.maximum((falling > level).sum(axis=1) - 1, 0)
    return np.maximum(counts - np.take_along_axis(level, last[:, None], axis=1), 0)


def _shares(counts: Float[np.ndarray, "row place"]) -> Float[np.ndarray, "row place"]:
    """Shares of each row; equal shares if the row is 0."""
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1), 1 / counts.shape[1])


def _propose(
    graph: FriendGraph, level: np.ndarray, of_instant: np.ndarray, n: int, joining: float, rng: Generator
) -> Int[np.ndarray, " proposal"]:
    """Random pairs at instants, coded as pair * n_instants + instant, each followed by its additional pairs."""
    n_first, of_pair = max(n, MIN_PROPOSALS), level / level.sum() if np.ptp(level) else None
    pair, instant = rng.choice(graph.n_pairs, n_first, p=of_pair), rng.choice(len(of_instant), n_first, p=of_instant)
    n_asked = rng.geometric(1 - joining, n_first) - 1
    # Pairs sorted by user; each pair occurs for both of its users.
    user_of, pair_of = graph.pairs.ravel(), np.repeat(np.arange(graph.n_pairs), 2)
    order = np.argsort(user_of, kind="stable")
    host = graph.pairs[np.repeat(pair, n_asked), rng.integers(2, size=n_asked.sum())]
    # A host has a pair of a level above 0: the one that was drawn.
    up_to = np.append(0, np.cumsum(level[pair_of[order]]))
    ends = np.cumsum(graph.degrees())
    before, total = up_to[ends - graph.degrees()][host], np.diff(up_to[ends], prepend=0)[host]
    asked = pair_of[order[np.searchsorted(up_to, before + rng.integers(total), side="right") - 1]]
    followed_by = np.concatenate([pair, asked])
    after = np.argsort(np.concatenate([np.arange(n_first), np.repeat(np.arange(n_first), n_asked)]), kind="stable")
    return followed_by[after] * len(of_instant) + np.concatenate([instant, np.repeat(instant, n_asked)])[after]


def _in_random_order(
    open_: Bool[np.ndarray, " code"], of_instant: np.ndarray, level: np.ndarray, rng: Generator
) -> Int[np.ndarray, " proposal"]:
    """All open codes, in random order: as if drawn without replacement with the probabilities of pairs and instants."""
    code = np.flatnonzero(open_)
    weight = of_instant[code % len(of_instant)] * level[code // len(of_instant)]
    code, weight = code[weight > 0], weight[weight > 0]
    return code[np.argsort(rng.exponential(size=len(code)) / weight)]


def _ends(graph: FriendGraph, codes: Int[np.ndarray, " proposal"], n_instants: int) -> Int[np.ndarray, "proposal 2"]:
    """Both users of each proposal at its instant, coded as user * n_instants + instant."""
    pair, instant = np.divmod(codes, n_instants)
    return graph.pairs[pair].astype(np.int64) * n_instants + instant[:, None]


def _draw_places(
    of_place: Float[np.ndarray, "instant place"], instant: Int[np.ndarray, " proposal"], rng: Generator
) -> Int[np.ndarray, " proposal"]:
    """Draw a place for each proposal with the probabilities of its instant."""
    upto = np.cumsum(of_place, axis=1)
    # Rows are concatenated, each of length 1. Draws are slightly below 1, so that no sum reaches the next row.
    ends = upto / upto[:, -1:] + np.arange(len(of_place))[:, None]
    wanted = instant + rng.random(len(instant)) * (1 - 2.0**-30)
    return np.searchsorted(ends.ravel(), wanted, side="right") - instant * of_place.shape[1]


def _settle(
    known: Int[np.ndarray, " event"], ends: Int[np.ndarray, "proposal 2"], places: Int[np.ndarray, " proposal"]
) -> Bool[np.ndarray, " proposal"]:
    """Whether both users of each proposal meet, in the order of proposals; write their places into `known`."""
    met = np.zeros(len(ends), bool)
    earliest = np.zeros(len(known), np.int64)
    undecided = np.arange(len(ends))
    while len(undecided):
        events = ends[undecided]
        earliest[events] = len(ends)
        np.minimum.at(earliest, events, undecided[:, None])
        ready = (earliest[events] == undecided[:, None]).all(axis=1)
        now = undecided[ready]
        one, other = known[ends[now]].T
        there = np.where(one != ABSENT, one, np.where(other != ABSENT, other, places[now]))
        met[now] = (one == ABSENT) | (other == ABSENT) | (one == other)
        known[ends[now[met[now]]]] = there[met[now], None]
        undecided = undecided[~ready]
    return met
