"""Semantic similarity of users, and of places: who behaves alike if places are renamed (Bindschaedler and Shokri 2016).

Two users are alike if some renaming of places makes one's visits those of the other; the places that it renames into
each other have a like meaning: home with home, work with work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.semantics.seed_traces import SeedTraces

# Of a place, in a period: what a place has that a user never visits.
SMOOTHING = 0.01
# Similarity of any two places at least, so that none has similarity to nothing.
FLOOR = 1e-8
# Pairs of users and ranks of places at a time: bounds the memory, at about 100 bytes for each.
CELLS_AT_A_TIME = 2**20


class Profiles(NamedTuple):
    """Where users are, their most visited places first.

    Attributes
    ----------
    place : int array, shape (users, ranks)
        The visited places by falling share, the lower index first among equals; then places without visit.
    share : float array, shape (users, ranks)
        Visit distribution pi at these places: (visits in a period + 0.01) / (instants + 0.01 places).
    rank : int array, shape (users, places)
        The inverse of `place`; for places without visit at least the number of visited ones.
    n_visited : int array, shape (users,)
    background : float
        The share of a place without visit.
    """

    place: Int[np.ndarray, "user rank"]
    share: Float[np.ndarray, "user rank"]
    rank: Int[np.ndarray, "user place"]
    n_visited: Int[np.ndarray, " user"]
    background: float

    @classmethod
    def of(cls, seeds: SeedTraces) -> Profiles:
        """The profiles of users, over all their seeds."""
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
        """Semantic similarity (10) of some users to all.

        The greatest sum over places r of min(pi_r(u), pi_sigma(r)(v)) over all permutations sigma of the places.

        The published program solves an assignment problem for each pair of users, in O(places^3). But it is best to
        send the r-th most visited place of u to the r-th most visited of v, whatever the numbers. Proof: min(x, y) is
        the length of the t > 0 that neither x nor y is below. So the sum is the integral over t of the number of places
        r with pi_r(u) >= t and pi_sigma(r)(v) >= t. No permutation makes this number greater than the lesser of the
        number of places with pi(u) >= t and of those with pi(v) >= t; and the sorted one reaches it at every t at once.

        Returns
        -------
        float array, shape (some users, users)
            From 0 to 1; 1 with oneself.

        Examples
        --------
        >>> seeds = SeedTraces(np.arange(2), np.array([[0, 0, 1], [2, 2, 2]]), n_users=2, n_places=3)
        >>> Profiles.of(seeds).similarity(np.arange(2)).round(2)
        array([[1.  , 0.67],
               [0.67, 1.  ]])
        """
        least = np.minimum(self.share[users, None], self.share)
        return least.sum(axis=2) + self.background * (self.n_places - self.share.shape[1])


def place_similarity(profiles: Profiles) -> Float[np.ndarray, "place other"]:
    """Semantic similarity of places: the graph G of the paper, by the mappings between all pairs of users.

    Each pair of users, also that of a user with herself, adds to each pair of places that the best mapping between them
    joins the smaller of the two shares, times the users' similarity; both ways. Many mappings are best, since most
    places are visited by neither. That is taken which joins visited places by rank, as many as the user with fewer has,
    and every other place with itself; where a place's own partner is taken, it is joined to one whose own is taken too,
    by rank.

    Returns
    -------
    float array, shape (places, places)
        Symmetric, at least 1e-8.
    """
    n_users, n_places = len(profiles.place), profiles.n_places
    total = np.zeros(n_places**2)
    block = max(1, CELLS_AT_A_TIME // (n_users * profiles.place.shape[1]))
    for first in range(0, n_users, block):
        users = np.arange(first, min(first + block, n_users))
        for place, other, weight in _joined_places(profiles, users):
            total += np.bincount(place * n_places + other, weight, minlength=len(total))
    graph = total.reshape(n_places, n_places)
    return np.maximum(graph + graph.T, FLOOR)


def best_mapping(profiles: Profiles, user: int, other: int) -> Int[np.ndarray, " place"]:
    """The mapping that `place_similarity` takes: for each place of `user` the place of `other`.

    Examples
    --------
    >>> seeds = SeedTraces(np.arange(2), np.array([[0, 0, 1], [2, 2, 2]]), n_users=2, n_places=4)
    >>> best_mapping(Profiles.of(seeds), 0, 1)
    array([2, 1, 0, 3], dtype=int32)
    """
    n_joined = min(profiles.n_visited[user], profiles.n_visited[other])
    places, others = profiles.place[user, :n_joined], profiles.place[other, :n_joined]
    mapping = np.arange(profiles.n_places, dtype=np.int32)
    mapping[places] = others
    mapping[others[~np.isin(others, places)]] = places[~np.isin(places, others)]
    return mapping


def _joined_places(profiles: Profiles, users: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs of places, with weights, that the mappings between some users and those not before them join."""
    similarity = np.where(np.arange(len(profiles.place)) >= users[:, None], profiles.similarity(users), 0)
    similarity = similarity[..., None]
    n_joined = np.minimum(profiles.n_visited[users, None], profiles.n_visited)[..., None]
    joined = np.arange(profiles.place.shape[1]) < n_joined
    place, other = np.broadcast_arrays(profiles.place[users, None], profiles.place)
    least = np.minimum(profiles.share[users, None], profiles.share)
    # Places whose own partner is taken, on either side: equally many.
    everybody = np.arange(len(profiles.place))[:, None]
    place_left = joined & (profiles.rank[everybody, place] >= n_joined)
    other_left = joined & (profiles.rank[users[:, None, None], other] >= n_joined)
    background = profiles.background * similarity
    # All places are joined with themselves, but for those that are joined with others.
    every = np.arange(profiles.n_places)
    return [
        (every, every, np.full(len(every), background.sum())),
        (place.ravel(), place.ravel(), -(background * joined).ravel()),
        (other.ravel(), other.ravel(), -(background * other_left).ravel()),
        (place.ravel(), other.ravel(), (least * similarity * joined).ravel()),
        (
            _first_to_front(other, other_left).ravel(),
            _first_to_front(place, place_left).ravel(),
            (background * np.sort(other_left, axis=2)[..., ::-1]).ravel(),
        ),
    ]


def _first_to_front(
    place: Int[np.ndarray, "user other rank"], chosen: Bool[np.ndarray, "user other rank"]
) -> Int[np.ndarray, "user other rank"]:
    """The chosen places first, in their order."""
    return np.take_along_axis(place, np.argsort(~chosen, axis=2, kind="stable"), axis=2)
