"""Random friendship graphs for synthetic users, without a dense matrix."""

from __future__ import annotations

import math

import numpy as np

from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.streams import Stage, numpy_stream

# Numbers of pairs, and both users of each, sorted and not.
PAIR_BYTES = 40


def sample_erdos_renyi(n_users: int, probability: float, *, seed: int) -> FriendGraph:
    """Draw a graph in which any two of some users are friends with the same probability, independently.

    The Erdos-Renyi model of section 4.4 of the co-location paper. The users' ids are 0, 1, ...

    Raises
    ------
    InputError
        There is no user, the probability is none, or so many friendships would not fit into the memory.

    Notes
    -----
    The gap from one pair of friends to the next, when pairs are numbered, has a geometric distribution (Batagelj and
    Brandes 2005), so the draw costs as much as there are friends.

    Examples
    --------
    >>> graph = sample_erdos_renyi(100_000, 1e-4, seed=0)
    >>> bool(abs(graph.n_pairs / (1e-4 * graph.n_possible_pairs) - 1) < 0.01)
    True
    """
    problems = _user_problems(n_users)
    if not 0 <= probability <= 1:
        problems.append(Problem("a friendship probability from 0 to 1", repr(probability)))
    if problems:
        raise InputError("friendship graph", problems)
    n_possible = n_users * (n_users - 1) // 2
    way_out = "Take fewer users or a lower friendship probability"
    require_memory("friendship graph", int(PAIR_BYTES * probability * n_possible), way_out)
    number = _bernoulli_successes(n_possible, probability, numpy_stream(seed, Stage.FRIENDSHIPS))
    # Pairs (0, 1), (0, 2), (1, 2), (0, 3), ...: those with the same larger user begin at a triangular number.
    begin = np.arange(n_users, dtype=np.int64) * (np.arange(n_users, dtype=np.int64) - 1) // 2
    larger = np.searchsorted(begin, number, side="right") - 1
    return FriendGraph.from_pairs(np.arange(n_users), np.stack([number - begin[larger], larger], axis=1))


def sample_configuration_graph(n_users: int, degree_distribution: np.ndarray, *, seed: int) -> FriendGraph:
    """Draw a graph in which users have as many friends as a distribution says: one with hubs, if that has a long tail.

    The erased configuration model: each user draws how many friends she wants, all wishes are paired at random, and
    who would be her own friend, or somebody's twice, has one friend less. With a distribution under differential
    privacy, such as `noisy_degree_distribution`, so is the graph. The users' ids are 0, 1, ...

    Parameters
    ----------
    n_users : int
    degree_distribution : float array, shape (degrees,)
        Probability of 0, 1, ... friends. Nobody wants more than there are others.
    seed : int

    Raises
    ------
    InputError
        There is no user, or the distribution is none.

    Examples
    --------
    Half of the users want one friend and half want nine:

    >>> wanted = np.array([0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0.5])
    >>> graph = sample_configuration_graph(100_000, wanted, seed=0)
    >>> bool(abs(graph.degrees().mean() - 5) < 0.1), np.bincount(graph.degrees(), minlength=10).argmax() in (1, 9)
    (True, True)
    """
    problems = _user_problems(n_users)
    shares = np.asarray(degree_distribution, np.float64)
    if shares.ndim != 1 or not (shares >= 0).all() or not math.isclose(shares.sum(), 1, abs_tol=1e-6):
        problems.append(Problem("probabilities of 0, 1, ... friends that add up to 1", f"{degree_distribution!r}"))
    if problems:
        raise InputError("friendship graph", problems)
    rng = numpy_stream(seed, Stage.FRIENDSHIPS)
    wanted = np.minimum(rng.choice(len(shares), n_users, p=shares / shares.sum()), n_users - 1)
    wishes = rng.permutation(np.repeat(np.arange(n_users), wanted))
    # Where their number is odd, one stays without a partner.
    pairs = wishes[: len(wishes) // 2 * 2].reshape(-1, 2)
    return FriendGraph.from_pairs(np.arange(n_users), pairs[pairs[:, 0] != pairs[:, 1]])


def _user_problems(n_users: int) -> list[Problem]:
    return [] if n_users >= 1 else [Problem("at least one user", repr(n_users))]


def _bernoulli_successes(n_trials: int, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Which of 0, 1, ... n_trials - 1 succeed, each with the same probability, in order."""
    if probability == 0 or n_trials == 0:
        return np.zeros(0, np.int64)
    mean = n_trials * probability
    # So that one draw nearly always reaches the end.
    at_a_time = int(mean + 5 * math.sqrt(mean) + 10)
    parts, last = [], -1
    while last < n_trials:
        # Longer gaps all end beyond the last trial; cut, their sum stays within 64 bits.
        gaps = np.minimum(rng.geometric(probability, at_a_time), n_trials + 1)
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    number = np.concatenate(parts)
    return number[number < n_trials]
