"""Greedy b-matching: pairs are read in order, each taken if neither of its nodes has b pairs already."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.data.runs import rank_in_group


def greedy_b_matching(pairs: Int[np.ndarray, "pair 2"], n_nodes: int, most: int) -> Bool[np.ndarray, " pair"]:
    """Which pairs are taken, when read in the order given, each if both of its nodes have fewer than `most` so far.

    Several pairs may join the same two nodes.

    Notes
    -----
    The privacy proofs rest on this lemma. Read the same pairs twice, in the same order, but the second time without
    those of one node u. Let d(w) be how many more pairs a node w has at the end the first time than the second. Then

        the sum over w != u of |d(w)| is at most the number of pairs that u has, hence at most `most`;
        the number of pairs taken in all is as large or larger with u, by at most `most`.

    Proof. Follow both readings pair by pair, and the sum S of |d(w)| so far. A pair of u that is taken adds at most 1
    to S, that of its other node. A pair (v, w) without u that is taken both times or neither changes nothing. One that
    is taken only the first time was refused the second, since one of its nodes, say v, had `most` pairs there and fewer
    here: d(v) < 0 goes up by 1 and |d(v)| down by 1, while |d(w)| goes up by at most 1, so S does not grow. The same
    holds for one taken only the second time, with the signs exchanged. So S is at most the number of u's pairs. The
    nodes have twice as many pairs as there are: the difference of the numbers taken is half of u's pairs plus half of
    the sum of d(w), which is between minus and plus the number of u's pairs. QED

    *Which* pairs are taken may change without any such bound: along a chain one pair gives way to the next.

    The result is computed in rounds: a pair is certain to be taken if, at both nodes, fewer undecided pairs come before
    it than there is room for. There are few rounds unless pairs are read along a long path, on which each step depends
    on the one before.

    Examples
    --------
    The second pair finds node 1 taken; so node 2 is free for the third.

    >>> greedy_b_matching(np.array([[0, 1], [1, 2], [2, 3]]), 4, most=1).tolist()
    [True, False, True]
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
