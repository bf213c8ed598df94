"""The graph of friendships, stored as pairs of users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any, row_problems


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
        """The friendships of the users of some traces.

        `Traces` has already removed repeated friendships and users who list themselves. Raises `InputError`: the traces
        have no table of friendships, or were built without validation and have impossible pairs.
        """
        if traces.friendships is None:
            way_out = "Give a table of friendships with columns user, friend to Traces.from_frame"
            raise InputError("traces", [Problem("friendships of the users", "none known", way_out=way_out)])
        return cls.from_pairs(traces.user_ids, traces.friendships)

    @classmethod
    def from_pairs(cls, user_ids: np.ndarray, pairs: np.ndarray) -> FriendGraph:
        """Build a graph from pairs of user indices in any order; a pair that is given several times counts once.

        Raises `InputError`: user ids are repeated, an index belongs to no user, or a user is her own friend (one error
        lists all of these); or the pairs are not an integer array with two columns.
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
