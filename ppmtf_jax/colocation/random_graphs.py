"""Random friendship graphs for synthetic users, without a dense matrix."""

from __future__ import annotations

import math

import numpy as np

from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.streams import Stage, numpy_stream

# Bytes per pair: its number, and both users, sorted and unsorted.
PAIR_BYTES = 40


def sample_erdos_renyi(n_users: int, probability: float, *, seed: int) -> FriendGraph:
    """Draw a graph in which any two users are friends with the same probability, independently.

    The Erdos-Renyi model of section 4.4 of the co-location paper. The users' ids are 0, 1, ...

    Raises `InputError`: there is no user, the probability is impossible, or so many friendships do not fit into memory.

    Notes
    -----
    All pairs are numbered. The gap from one pair of friends to the next has a geometric distribution (Batagelj and
    Brandes 2005), so the cost is proportional to the number of friendships.
    """
    problems = _user_problems(n_users)
    if not 0 <= probability <= 1:
        problems.append(Problem("a friendship probability from 0 to 1", repr(probability)))
    raise_any("friendship graph", problems)
    n_possible = n_users * (n_users - 1) // 2
    way_out = "Take fewer users or a lower friendship probability"
    require_memory("friendship graph", int(PAIR_BYTES * probability * n_possible), way_out)
    number = _bernoulli_successes(n_possible, probability, numpy_stream(seed, Stage.FRIENDSHIPS))
    # Pairs (0, 1), (0, 2), (1, 2), (0, 3), ...: the pairs with the same larger user begin at a triangular number.
    begin = np.arange(n_users, dtype=np.int64) * (np.arange(n_users, dtype=np.int64) - 1) // 2
    larger = np.searchsorted(begin, number, side="right") - 1
    return FriendGraph.from_pairs(np.arange(n_users), np.stack([number - begin[larger], larger], axis=1))


def sample_configuration_graph(n_users: int, degree_distribution: np.ndarray, *, seed: int) -> FriendGraph:
    """Draw a graph whose numbers of friends have a given distribution.

    With a long tail, some users have very many friends. This is the erased configuration model: each user draws a
    number of stubs (half-friendships), and all stubs are paired at random. A pair of a user with herself, and a
    repeated pair, are erased. If the distribution is differentially private, such as `noisy_degree_distribution`, so is
    the graph. The users' ids are 0, 1, ...

    `degree_distribution` (shape (degrees,)): probability of 0, 1, ... friends, cut at the number of other users. Raises
    `InputError`: there is no user, or the distribution is impossible.
    """
    problems = _user_problems(n_users)
    shares = np.asarray(degree_distribution, np.float64)
    if shares.ndim != 1 or not (shares >= 0).all() or not math.isclose(shares.sum(), 1, abs_tol=1e-6):
        problems.append(Problem("probabilities of 0, 1, ... friends that add up to 1", f"{degree_distribution!r}"))
    raise_any("friendship graph", problems)
    rng = numpy_stream(seed, Stage.FRIENDSHIPS)
    wanted = np.minimum(rng.choice(len(shares), n_users, p=shares / shares.sum()), n_users - 1)
    wishes = rng.permutation(np.repeat(np.arange(n_users), wanted))
    # If their number is odd, one stub has no partner.
    pairs = wishes[: len(wishes) // 2 * 2].reshape(-1, 2)
    return FriendGraph.from_pairs(np.arange(n_users), pairs[pairs[:, 0] != pairs[:, 1]])


def _user_problems(n_users: int) -> list[Problem]:
    return [] if n_users >= 1 else [Problem("at least one user", repr(n_users))]


def _bernoulli_successes(n_trials: int, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Sorted indices of the successes among `n_trials` independent trials with the same probability."""
    if probability == 0 or n_trials == 0:
        return np.zeros(0, np.int64)
    mean = n_trials * probability
    # One draw of this size almost always covers all trials.
    at_a_time = int(mean + 5 * math.sqrt(mean) + 10)
    parts, last = [], -1
    while last < n_trials:
        # Longer gaps all end after the last trial; they are shortened, so that their sum fits into 64 bits.
        gaps = np.minimum(rng.geometric(probability, at_a_time), n_trials + 1)
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    number = np.concatenate(parts)
    return number[number < n_trials]
