"""Greedy b-matching: read pairs in order, and take a pair if both of its nodes have fewer than b pairs so far."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int

from ppmtf_jax.data.runs import rank_in_group


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

    Examples
    --------
    The second pair is refused because node 1 already has a pair; so node 2 is free for the third pair.

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
