"""Semantic similarity of users and of places (Bindschaedler and Shokri 2016).

Two users are similar if a renaming of places makes their visits similar. Places that are mapped to each other by this
renaming have a similar meaning: home and home, work and work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.semantics.seed_traces import SeedTraces

# Pseudo-visits of every place, per period.
SMOOTHING = 0.01
# Minimum similarity of two places, so that no similarity is 0.
FLOOR = 1e-8
# Number of entries (user, other user, rank) in memory at a time, with about 100 bytes each.
CELLS_AT_A_TIME = 2**20


class VisitProfiles(NamedTuple):
    """Visit distributions of users, most visited places first."""

    # Visited places by decreasing share (lower index first for ties), then places without visits.
    place: Int[np.ndarray, "user rank"]
    # Visit distribution pi at these places: (visits in a period + 0.01) / (instants + 0.01 places).
    share: Float[np.ndarray, "user rank"]
    # Rank of each place, the inverse of `place`; places without visits have higher ranks than all visited places.
    rank: Int[np.ndarray, "user place"]
    n_visited: Int[np.ndarray, " user"]
    background: float  # share of a place without visits

    @classmethod
    def of(cls, seeds: SeedTraces) -> VisitProfiles:
        """The profiles of users over all their seeds."""
        visits = seeds.visits()
        mass = seeds.place.shape[1] + SMOOTHING * seeds.n_places
        order = np.argsort(-visits, axis=1, kind="stable").astype(np.int32)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(seeds.n_places, dtype=np.int32)[None], axis=1)
        n_visited = np.count_nonzero(visits, axis=1)
        place = order[:, : n_visited.max()]
        share = (np.take_along_axis(visits, place, axis=1) + SMOOTHING) / mass
        return cls(place, share, rank, n_visited, SMOOTHING / mass)

    @property
    def n_places(self) -> int:
        return self.rank.shape[1]

    def similarity(self, users: Int[np.ndarray, " user"]) -> Float[np.ndarray, "user other"]:
        """Semantic similarity (10) of some users to all users, from 0 to 1.

        It is the greatest sum over places r of min(pi_r(u), pi_sigma(r)(v)) over all permutations sigma of the places.
        The published program solves an assignment problem for each pair of users, in O(places^3). But the best sigma
        maps the r-th most visited place of u to the r-th most visited place of v. Proof: min(x, y) is the length of the
        interval of t > 0 with x >= t and y >= t. So the sum is the integral over t of the number of places r with
        pi_r(u) >= t and pi_sigma(r)(v) >= t. For every permutation, this number is at most the smaller of two numbers:
        the number of places with pi(u) >= t, and the number with pi(v) >= t. The sorted permutation reaches this bound
        at every t.

        Examples
        --------
        >>> seeds = SeedTraces(np.arange(2), np.array([[0, 0, 1], [2, 2, 2]]), n_users=2, n_places=3)
        >>> VisitProfiles.of(seeds).similarity(np.arange(2)).round(2)
        array([[1.  , 0.67],
               [0.67, 1.  ]])
        """
        least = np.minimum(self.share[users, None], self.share)
        return least.sum(axis=2) + self.background * (self.n_places - self.share.shape[1])


def place_similarity(profiles: VisitProfiles) -> Float[np.ndarray, "place other"]:
    """Semantic similarity of places: the graph G of the paper, from the best mappings between all pairs of users.

    For each pair of users, and each user with herself, each mapped pair of places gets the smaller of the two shares
    times the users' similarity, in both directions. Many mappings are optimal, since both users visit few places. The
    mapping used here maps the first n visited places of both users by rank, where n is the smaller number of visited
    places. Every other place is mapped to itself. If a place cannot be mapped to itself because it is already mapped on
    the other side, it is mapped to another such place, by rank.

    The matrix is symmetric, and every entry is at least 1e-8.
    """
    n_users, n_places = len(profiles.place), profiles.n_places
    total = np.zeros(n_places**2)
    block = max(1, CELLS_AT_A_TIME // (n_users * profiles.place.shape[1]))
    for first in range(0, n_users, block):
        users = np.arange(first, min(first + block, n_users))
        for place, other, weight in _mapped_pairs(profiles, users):
            total += np.bincount(place * n_places + other, weight, minlength=len(total))
    graph = total.reshape(n_places, n_places)
    return np.maximum(graph + graph.T, FLOOR)


def _mapped_pairs(
    profiles: VisitProfiles, users: Int[np.ndarray, " user"]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Weighted pairs of places, from the mappings between some users and all users with the same or a later index.

    There are too many pairs of unvisited places to list. So first all places are mapped to themselves, and then the
    weights of places with another partner are subtracted.
    """
    similarity = np.where(np.arange(len(profiles.place)) >= users[:, None], profiles.similarity(users), 0)
    similarity = similarity[..., None]
    n_by_rank = np.minimum(profiles.n_visited[users, None], profiles.n_visited)[..., None]
    by_rank = np.arange(profiles.place.shape[1]) < n_by_rank
    place, other = np.broadcast_arrays(profiles.place[users, None], profiles.place)
    # Places that are mapped by rank on one side but not on the other side; both sides have equally many of them.
    everybody = np.arange(len(profiles.place))[:, None]
    place_left = by_rank & (profiles.rank[everybody, place] >= n_by_rank)
    other_left = by_rank & (profiles.rank[users[:, None, None], other] >= n_by_rank)
    of_visited = np.minimum(profiles.share[users, None], profiles.share) * similarity
    of_unvisited = profiles.background * similarity
    every = np.arange(profiles.n_places)
    others_first, places_first = _selected_first(other, other_left), _selected_first(place, place_left)
    n_left_first = np.sort(other_left, axis=2)[..., ::-1]
    pairs = [
        # Every place mapped to itself, except places that are mapped by rank on either side.
        (every, every, np.full(len(every), of_unvisited.sum())),
        (place, place, -(of_unvisited * by_rank)),
        (other, other, -(of_unvisited * other_left)),
        # Visited places mapped by rank, and remaining places of both sides.
        (place, other, of_visited * by_rank),
        (others_first, places_first, of_unvisited * n_left_first),
    ]
    return [(first.ravel(), second.ravel(), weight.ravel()) for first, second, weight in pairs]


def _selected_first(
    place: Int[np.ndarray, "user other rank"], selected: Bool[np.ndarray, "user other rank"]
) -> Int[np.ndarray, "user other rank"]:
    """The selected places in their original order, then the other places."""
    return np.take_along_axis(place, np.argsort(~selected, axis=2, kind="stable"), axis=2)
