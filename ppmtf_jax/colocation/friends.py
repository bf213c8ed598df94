"""The graph of friendships, noisy numbers of it under node differential privacy, and random graphs of these numbers.

Sections 4.2 and 4.4 of the co-location paper (Narita et al., "Synthesizing Privacy-Preserving Location Traces Including
Co-locations") and, for degrees, the projection by edge addition of Day, Li and Lyu, "Publishing graph degree
distribution with node differential privacy" (SIGMOD 2016).

**Neighbours** are two graphs over the same n users that differ in any number of friendships of one user: in one graph
they may have no friends, and in the other all users as friends. The number of users, n, is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from scipy.optimize import isotonic_regression

from ppmtf_jax.data.runs import rank_in_group, run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any, row_problems
from ppmtf_jax.noise.mechanisms import NoiseSource, SecureNoise
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.streams import Stage, UserStreams, numpy_stream


@dataclass(frozen=True, eq=False)
class FriendGraph:
    """Distinct friendships among users, stored without a matrix.

    Build it with `of`, `from_pairs` or a random model.

    Parameters
    ----------
    user_ids : array, shape (users,)
        Distinct ids. A user may have no friends and no events.
    pairs : int32 array, shape (pairs, 2)
        Pairs of user indices, smaller index first; distinct and sorted.

    Examples
    --------
    >>> graph = FriendGraph.from_pairs(np.array(["ann", "bob", "eve"]), np.array([[1, 0], [1, 2], [0, 1]]))
    >>> graph.pairs.tolist(), graph.degrees().tolist()
    ([[0, 1], [1, 2]], [1, 2, 1])
    """

    user_ids: np.ndarray
    pairs: np.ndarray

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_pairs(self) -> int:
        return len(self.pairs)

    @property
    def n_possible_pairs(self) -> int:
        """Number of pairs of users, friends or not."""
        return self.n_users * (self.n_users - 1) // 2

    @classmethod
    def of(cls, traces: Traces) -> FriendGraph:
        """The friendships of the users of some traces; `InputError` if none are known."""
        if traces.friendships is None:
            way_out = "Give a table of friendships with columns user, friend to Traces.from_frame"
            raise InputError("traces", [Problem("friendships of the users", "none known", way_out=way_out)])
        return cls.from_pairs(traces.user_ids, traces.friendships)

    @classmethod
    def from_pairs(cls, user_ids: np.ndarray, pairs: np.ndarray) -> FriendGraph:
        """Build a graph from pairs of user indices in any order; a pair that is given several times counts once.

        Raises `InputError`: user ids are repeated, an index belongs to no user, or a user is their own friend.
        """
        pairs = np.asarray(pairs)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.issubdtype(pairs.dtype, np.integer):
            found = f"{pairs.dtype} array of shape {pairs.shape}"
            raise InputError("friendships", [Problem("pairs of user indices, shape (pairs, 2)", found)])
        unknown = ((pairs < 0) | (pairs >= len(user_ids))).any(axis=1)
        own = pairs[:, 0] == pairs[:, 1]
        repeated = pd.Index(user_ids).duplicated()
        problems = row_problems(repeated, "every user once", "repeated user ids", values=np.asarray(user_ids))
        for wrong, expected in ((unknown, f"users 0 to {len(user_ids) - 1}"), (own, "friends of somebody else")):
            if wrong.any():
                examples = first_examples([tuple(pair) for pair in pairs[wrong].tolist()])
                problems.append(Problem(expected, "others", int(wrong.sum()), examples))
        raise_any("friendships", problems)
        ordered = np.sort(pairs.astype(np.int64), axis=1)
        # Sorting one number per pair is many times faster than sorting rows.
        number = sorted_distinct(ordered[:, 0] * len(user_ids) + ordered[:, 1])
        return cls(user_ids, np.stack(np.divmod(number, max(len(user_ids), 1)), axis=1).astype(np.int32))

    def degrees(self) -> np.ndarray:
        """Number of friends of each user, shape (users,)."""
        return np.bincount(self.pairs.ravel(), minlength=self.n_users)

    def index_of(self, ids: np.ndarray) -> np.ndarray:
        """Indices of some user ids; `InputError` if one of them is not a user of the graph."""
        index = pd.Index(self.user_ids).get_indexer(pd.Index(ids))
        way_out = "Give the graph of all users, whether they have friends or not"
        expected = "users of the friendship graph"
        raise_any("traces", row_problems(index < 0, expected, values=np.asarray(ids), way_out=way_out))
        return index

    def select_pairs(self, keep: np.ndarray) -> FriendGraph:
        """The same users with some of the friendships: `keep` has one boolean for each pair."""
        return FriendGraph(self.user_ids, self.pairs[keep])


def sorted_distinct(numbers: np.ndarray) -> np.ndarray:
    """The same as `np.unique` for whole numbers, many times faster for millions of them (NumPy 2.4)."""
    # A stable sort is fast if the numbers are almost sorted.
    ordered = np.sort(numbers, kind="stable")
    return ordered[run_begins(ordered)]


def greedy_b_matching(pairs: Int[np.ndarray, "pair 2"], n_nodes: int, most: int) -> Bool[np.ndarray, " pair"]:
    """Mask of the taken pairs: read in order, a pair is taken if both nodes have fewer than `most` pairs so far.

    Several pairs may join the same two nodes.

    Notes
    -----
    The privacy proofs use this lemma. Read the same pairs twice in the same order, the second time without the pairs of
    one node u. Let d(w) be the final number of pairs of node w in the first reading minus that in the second reading.
    Then

        the sum over w != u of |d(w)| is at most the number of pairs that u has, hence at most `most`;
        the total number of taken pairs is at least as large with u as without u, and larger by at most `most`.

    Proof. Follow both readings pair by pair, and let S be the sum of |d(w)| over w != u so far. A pair of u that is
    taken increases S by at most 1, through its other node. A pair (v, w) without u that is taken in both readings or in
    neither does not change S. If it is taken only in the first reading, one of its nodes, say v, already had `most`
    pairs in the second reading, but fewer in the first. So d(v) < 0 increases by 1 and |d(v)| decreases by 1, while
    |d(w)| increases by at most 1, and S does not increase. If it is taken only in the second reading, the same holds
    with the signs exchanged. So S is at most the number of u's pairs. The sum of the nodes' numbers of pairs is twice
    the number of taken pairs. So the numbers of taken pairs differ by half of the number of u's pairs plus half of the
    sum of d(w), and this sum lies between minus and plus the number of u's pairs. QED

    There is no such bound on *which* pairs are taken: one change can cause the next along a chain of pairs.

    The result is computed in rounds. A pair is certainly taken if, at both nodes, there are fewer earlier undecided
    pairs than free places. There are few rounds, unless the pairs form a long path in the order of reading, where each
    pair depends on the previous one.
    """
    taken = np.zeros(len(pairs), bool)
    room = np.full(n_nodes, most)
    undecided = np.arange(len(pairs))
    while len(undecided):
        nodes = pairs[undecided]
        n_earlier = rank_in_group(nodes.ravel()).reshape(-1, 2)
        certain = (n_earlier < room[nodes]).all(axis=1)
        taken[undecided[certain]] = True
        np.subtract.at(room, nodes[certain].ravel(), 1)
        undecided = undecided[~certain & (room[nodes] > 0).all(axis=1)]
    return taken


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
    Mechanism: discrete Laplace noise of scale (n - 1) / epsilon on the number of friendships. The noisy number is cut
    to the possible range and divided by n (n - 1) / 2. This is noise of scale 2 / (n epsilon) on p, as published, in
    steps of one friendship: there are no low bits that could reveal the answer.

    Sensitivity of the number of friendships: n - 1, and so that of p is 2/n. Proof: without this user the two graphs
    are the same. So the difference of their numbers of friendships is that of this user's numbers of friends, which are
    both from 0 to n - 1. The bound is reached if they have no friend in one graph, and all users as friends in the
    other.

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


def noisy_degree_distribution(
    graph: FriendGraph, max_friends: int, epsilon: float, noise: NoiseSource | None = None, *, seed: int
) -> Float[np.ndarray, " degree"]:
    """Share of the users who have 0, 1, ... `max_friends` friends, under epsilon-node differential privacy.

    `max_friends`: a user with more friends loses some of them (`limit_friends`). The noise is proportional to it.
    `noise`: as in `noisy_friendship_probability`. `seed`: of the order in which friendships are read, and not of the
    noise; the privacy holds for every seed. Raises `InputError`: `max_friends` is below 1, or epsilon would give no
    protection.

    Notes
    -----
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
    degrees = limit_friends(graph, max_friends, seed=seed).degrees()
    at_most = np.cumsum(np.bincount(degrees, minlength=max_friends + 1))[:-1]
    noisy = (noise or SecureNoise()).add_laplace(graph.n_users - at_most, 2 * max_friends, epsilon)
    falling = np.clip(isotonic_regression(noisy.astype(np.float64), increasing=False).x, 0, graph.n_users)
    return -np.diff(falling, prepend=graph.n_users, append=0) / graph.n_users


def noisy_level_counts(
    graph: FriendGraph,
    level: Int[np.ndarray, " pair"],
    max_level: int,
    max_friends: int,
    epsilon: float,
    noise: NoiseSource | None = None,
    *,
    seed: int,
) -> Float[np.ndarray, " level"]:
    """Number of friendships of level 0, 1, ... `max_level` or more, under epsilon-node differential privacy.

    `level`: a whole number for each friendship, such as how often the friends meet. It must depend on nothing but the
    data of these two users. `max_friends`, `noise`, `seed`: as in `noisy_degree_distribution`. Each number counts at
    most max_friends friendships of a user, which leaves out more of the lower levels if users have more friends.

    Notes
    -----
    Mechanism: for each l, the friendships of level l or more are cut by `limit_friends` and counted. Discrete Laplace
    noise of scale (max_level + 1) max_friends / epsilon is added; then the nearest non-increasing numbers of at least 0
    are taken.

    Sensitivity: (max_level + 1) max_friends in L1, also if the events of the user differ. Proof: the friendships
    without the user u have the same levels, because these depend on nothing of u. So for each l, the graphs of the
    friendships of level l or more differ only in friendships of u, and the order in which they are read does not depend
    on u either. By the lemma of `greedy_b_matching`, both numbers lie between that without u and that plus max_friends.
    There are max_level + 1 numbers. QED The bound is reached if u has max_friends friends of the highest level who have
    no others.
    """
    at_least = (graph.select_pairs(level >= least) for least in range(max_level + 1))
    counts = np.array([limit_friends(each, max_friends, seed=seed).n_pairs for each in at_least])
    noisy = (noise or SecureNoise()).add_laplace(counts, (max_level + 1) * max_friends, epsilon)
    return np.maximum(isotonic_regression(noisy.astype(np.float64), increasing=False).x, 0)


# Bytes per pair: its number, and both users, sorted and unsorted.
PAIR_BYTES = 40
NO_USER = Problem("at least one user", "none")


def sample_erdos_renyi(n_users: int, probability: float, *, seed: int) -> FriendGraph:
    """Draw a graph in which any two users are friends with the same probability, independently.

    The Erdos-Renyi model of section 4.4 of the co-location paper. The users' ids are 0, 1, ... Raises `InputError`:
    there is no user, the probability is impossible, or so many friendships do not fit into memory.

    Notes
    -----
    All pairs are numbered. The gap from one pair of friends to the next has a geometric distribution (Batagelj and
    Brandes 2005), so the cost is proportional to the number of friendships.
    """
    _check_probability(n_users, probability)
    n_possible = n_users * (n_users - 1) // 2
    number = _bernoulli_successes(n_possible, probability, numpy_stream(seed, Stage.FRIENDSHIPS))
    # Pairs (0, 1), (0, 2), (1, 2), (0, 3), ...: the pairs with the same larger user begin at a triangular number.
    begin = np.arange(n_users, dtype=np.int64) * (np.arange(n_users, dtype=np.int64) - 1) // 2
    larger = np.searchsorted(begin, number, side="right") - 1
    return FriendGraph.from_pairs(np.arange(n_users), np.stack([number - begin[larger], larger], axis=1))


def sample_barabasi_albert(n_users: int, probability: float, *, seed: int) -> FriendGraph:
    """Draw a graph by preferential attachment, where a few users have very many friends.

    The model of Barabasi and Albert (Albert and Barabasi, "Statistical mechanics of complex networks", 2002, section
    VII): users arrive one after the other and befriend m users, each with a probability in proportion to the number of
    their friends. About 2 m (m + 1) / k^3 of the users have k friends. The first m + 1 users are all friends. m is such
    that `probability` is the share of the pairs who are friends; if it is not a whole number, each user draws one of
    the two numbers beside it. The users' ids are 0, 1, ..., not in the order of arrival. Raises `InputError`: as
    `sample_erdos_renyi` does.

    Examples
    --------
    >>> bool(sample_barabasi_albert(1000, 0.01, seed=0).degrees().max() > 5 * 0.01 * 1000)
    True
    """
    _check_probability(n_users, probability)
    rng = numpy_stream(seed, Stage.FRIENDSHIPS)
    # m n - m (m + 1) / 2 friendships in all.
    mean = (2 * n_users - 1 - math.sqrt((2 * n_users - 1) ** 2 - 4 * probability * n_users * (n_users - 1))) / 2
    wanted = np.floor(mean + rng.random(n_users)).astype(np.int64)
    # Each user once for each friend: a random entry is a user in proportion to the number of their friends.
    ends, n_ends, n_first = np.empty(2 * (wanted.sum() + wanted.max() ** 2), np.int64), 0, int(wanted.max())
    for user in range(1, n_users):
        friends = set(range(user)) if user <= n_first else set()
        while len(friends) < min(wanted[user], user):
            friends.update(ends[rng.integers(n_ends, size=wanted[user] - len(friends))].tolist())
        ends[n_ends : n_ends + 2 * len(friends)] = [each for friend in friends for each in (friend, user)]
        n_ends += 2 * len(friends)
    return FriendGraph.from_pairs(np.arange(n_users), rng.permutation(n_users)[ends[:n_ends].reshape(-1, 2)])


def sample_configuration_graph(n_users: int, degree_distribution: np.ndarray, *, seed: int) -> FriendGraph:
    """Draw a graph whose numbers of friends have a given distribution.

    This is the erased configuration model: each user draws a number of stubs (half-friendships), and all stubs are
    paired at random. A pair of a user with themselves, and a repeated pair, are erased. The users' ids are 0, 1, ...

    `degree_distribution` (shape (degrees,)): probability of 0, 1, ... friends, cut at the number of other users. Raises
    `InputError`: there is no user, or the distribution is impossible.
    """
    problems = [] if n_users >= 1 else [NO_USER]
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


def _check_probability(n_users: int, probability: float) -> None:
    problems = [] if n_users >= 1 else [NO_USER]
    if not 0 <= probability <= 1:
        problems.append(Problem("a friendship probability from 0 to 1", repr(probability)))
    raise_any("friendship graph", problems)
    way_out = "Take fewer users or a lower friendship probability"
    require_memory("friendship graph", int(PAIR_BYTES * probability * (n_users * (n_users - 1) // 2)), way_out)


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
