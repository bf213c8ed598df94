"""Friendship probability and degree distribution under node differential privacy.

Section 4.2 of the co-location paper (Narita et al., "Synthesizing Privacy-Preserving Location Traces Including
Co-locations") and, for degrees, the projection by edge addition of Day, Li and Lyu, "Publishing graph degree
distribution with node differential privacy" (SIGMOD 2016).

Neighbours are two graphs over the same n users that differ in any number of friendships of one user: in one graph she
may have no friends, and in the other all users as friends. The number of users, n, is public. If n is not public, the
noise of the paper protects less than the paper claims: its scale, 2 / (n epsilon), reveals n.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from ppmtf_jax.colocation.b_matching import greedy_b_matching
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.noise.source import NoiseSource, SecureNoise
from ppmtf_jax.streams import Stage, UserStreams


def friendship_probability(graph: FriendGraph) -> float:
    """Share of all pairs of users who are friends: p of section 4.2; 0 if there is one user.

    Examples
    --------
    Figure 1 of the paper: of the 10 pairs of 5 users, 4 are friends.

    >>> graph = FriendGraph.from_pairs(np.arange(1, 6), np.array([[0, 2], [0, 4], [1, 2], [3, 4]]))
    >>> friendship_probability(graph)
    0.4
    """
    return graph.n_pairs / max(graph.n_possible_pairs, 1)


def noisy_friendship_probability(graph: FriendGraph, epsilon: float, noise: NoiseSource | None = None) -> float:
    """Friendship probability under epsilon-node differential privacy, in [0, 1]: p' of section 4.2.

    The default noise is `SecureNoise`; with other noise the result is not private. Raises `InputError` if epsilon would
    give no protection.

    Notes
    -----
    Neighbours: two graphs over the same n users that differ in the friendships of one user; n is public.

    Mechanism: discrete Laplace noise of scale (n - 1) / epsilon on the number of friendships. The noisy number is cut
    to the possible range and divided by n (n - 1) / 2. This is noise of scale 2 / (n epsilon) on p, as published, in
    steps of one friendship: there are no low bits that could reveal the answer.

    Sensitivity of the number of friendships: n - 1, and so that of p is 2/n. Proof: without this user the two graphs
    are the same. So the difference of their numbers of friendships is that of her numbers of friends, which are both
    from 0 to n - 1. The bound is reached if she has no friend in one graph, and all users as friends in the other.

    In the paper, the user is also removed from n. Then p changes by at most 2/n as well, where n is the larger number
    of users, but noise of scale 2 / (n epsilon) differs between the graphs: the ratio of their densities has no bound.
    """
    source = noise or SecureNoise()
    noisy = source.add_laplace(np.array([graph.n_pairs]), max(graph.n_users - 1, 1), epsilon)
    return int(np.clip(noisy[0], 0, graph.n_possible_pairs)) / max(graph.n_possible_pairs, 1)


def limit_friends(graph: FriendGraph, max_friends: int, *, seed: int) -> FriendGraph:
    """Limit every user to `max_friends` friends: add a friendship if both users still have fewer friends.

    Friendships are read in a random order. The position of a friendship in this order depends on the seed, its two
    users and the list of users, but not on other friendships. So the lemma of `greedy_b_matching` on degrees holds.
    """
    if max_friends < 1:
        raise InputError("friendships", [Problem("max_friends of at least 1", repr(max_friends))])
    if not graph.n_pairs or graph.degrees().max() <= max_friends:
        return graph
    streams = UserStreams.of(seed, Stage.LIMITED_FRIENDSHIPS, graph.user_ids)
    order = np.argsort(streams.at(graph.pairs[:, 0], graph.pairs[:, 1:]), kind="stable")
    keep = np.empty(graph.n_pairs, bool)
    keep[order] = greedy_b_matching(graph.pairs[order], graph.n_users, max_friends)
    return graph.select_pairs(keep)


def degree_counts(graph: FriendGraph, max_friends: int) -> np.ndarray:
    """Number of users who have at least 1, 2, ... `max_friends` friends, shape (max_friends,)."""
    at_most = np.cumsum(np.bincount(np.minimum(graph.degrees(), max_friends), minlength=max_friends + 1))
    return graph.n_users - at_most[:-1]


def noisy_degree_distribution(
    graph: FriendGraph, max_friends: int, epsilon: float, noise: NoiseSource | None = None, *, seed: int
) -> Float[np.ndarray, " degree"]:
    """Share of the users who have 0, 1, ... `max_friends` friends, under epsilon-node differential privacy.

    `max_friends`: a user with more friends loses some of them (`limit_friends`). The noise is proportional to it.
    `noise`: by default `SecureNoise`; with other noise the result is not private. `seed`: seed of the order in which
    friendships are read, and not of the noise. The privacy holds for every seed. Raises `InputError`: `max_friends` is
    below 1, or epsilon would give no protection.

    Notes
    -----
    Neighbours: two graphs over the same n users that differ in the friendships of one user; n is public.

    Mechanism: discrete Laplace noise of scale 2 max_friends / epsilon on the numbers of users who have at least 1, 2,
    ... max_friends friends; then the nearest non-increasing numbers between n and 0 (isotonic regression).

    Sensitivity: 2 max_friends in L1. Proof: a user with d more friends is counted in d more numbers. So the numbers of
    two graphs differ, in L1, by at most the sum of the absolute differences of the degrees. Let u be the user whose
    friendships differ, and follow the readings of both graphs in parallel, as in the proof of `greedy_b_matching`: a
    friendship without u never increases the sum of the other users' differences. A friendship of u increases it by at
    most 1, and only if it is taken in only one graph. Let a be the number of u's friendships that are taken only in the
    first graph, and b the number of those taken only in the second. Then the others' differences add up to at most
    a + b, and u's own is |a - b|. Together that is at most 2 max(a, b), and u has at most max_friends friends in each
    graph. QED The bound is reached if u has no friend in one graph and max_friends in the other.
    """
    counts = degree_counts(limit_friends(graph, max_friends, seed=seed), max_friends)
    noisy = (noise or SecureNoise()).add_laplace(counts, 2 * max_friends, epsilon)
    falling = np.clip(isotonic_regression(noisy.astype(np.float64), increasing=False).x, 0, graph.n_users)
    return -np.diff(falling, prepend=graph.n_users, append=0) / graph.n_users
