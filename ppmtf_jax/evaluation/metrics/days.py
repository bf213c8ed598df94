"""Days: the order in which people visit the places of a day, and whether a day ends where it began.

A day lasts 24 hours from the beginning of a period; a period of less than 24 hours is one day. Days with fewer than two
events do not count.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
from jaxtyping import Int

from ppmtf_jax.data.runs import rank_in_run, run_begins
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Windows
from ppmtf_jax.evaluation.distributions import variation_of_samples
from ppmtf_jax.evaluation.metrics.windows import Sample, mean_difference, window_metric

MAX_NODES = 5
MOST_PLACES = 9
# A network of at most MAX_NODES places is a number with a bit for each ordered pair of places.
N_BITS = MAX_NODES**2


@window_metric(
    "closed_day_difference",
    "Closed days",
    "Share of days whose last event is at the place of the first one: synthetic users minus test users.",
    mean_difference,
    unit="share of days, -1 to 1",
    plain="How many days end where they began",
    section="persons",
    uses=("commuting",),
    one_period=True,
)
def ends_where_it_began(windows: Windows) -> Sample:
    """For each day, whether its last event is at the place of its first one."""
    days = windows.days().with_events(MIN_WINDOW_EVENTS)
    first = np.flatnonzero(run_begins(days.window))
    last = np.append(first, len(days.window))[1:] - 1
    return Sample(days.user, days.place[first] == days.place[last])


@window_metric(
    "daily_motif_tv",
    "Daily motifs",
    "Total variation between the distributions of synthetic and of test users' daily motifs: the network of moves "
    f"between the places of a day, or the number of places if it is above {MAX_NODES}.",
    variation_of_samples,
    plain="In which order people visit the places of a day",
    section="persons",
    uses=("days",),
    one_period=True,
)
def daily_motifs(windows: Windows) -> Sample:
    """Number of the motif of each day: the network of the moves between its places (Schneider et al. 2013).

    Two days have the same motif if one network becomes the other when its places are renamed. The directions of moves
    count, but not how often a move is made. Days with more than five places differ only by the number of places; nine
    or more places count as nine.
    """
    days = windows.days().with_events(MIN_WINDOW_EVENTS)
    runs = days.runs
    n_places, node = _nodes(runs.window, runs.place)
    is_small = n_places <= MAX_NODES
    move = np.flatnonzero(runs.is_move() & is_small[runs.window])
    network = np.zeros(days.n_windows, np.int64)
    np.bitwise_or.at(network, runs.window[move], 1 << (node[move - 1] * MAX_NODES + node[move]))
    motif = np.minimum(n_places, MOST_PLACES) << N_BITS
    for n_nodes in range(2, MAX_NODES + 1):
        of_size = n_places == n_nodes
        different, which = np.unique(network[of_size], return_inverse=True)
        motif[of_size] += canonical(different, n_nodes)[which]
    return Sample(days.user, motif)


def canonical(network: Int[np.ndarray, " network"], n_nodes: int) -> Int[np.ndarray, " network"]:
    """For each network, the smallest of the numbers that it gets when its nodes are renamed in all ways.

    Bit a * 5 + b of a network says whether a move leads from node a to node b.

    Examples
    --------
    A move from node 0 to node 1, and a move from node 1 to node 0, are the same network.

    >>> canonical(np.array([1 << 1, 1 << 5]), 2).tolist()
    [2, 2]
    """
    pairs, names = (np.array([*permutations(range(n_nodes), size)]) for size in (2, n_nodes))
    has_move = network[:, None] >> (pairs @ [MAX_NODES, 1]) & 1
    renamed = np.left_shift(1, names[:, pairs] @ [MAX_NODES, 1])
    return (has_move @ renamed.T).min(axis=1)


def _nodes(window: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of places of each window, and for each row, the rank of its place by first visit in its window."""
    order = np.lexsort((place, window))
    begins = run_begins(window[order], place[order])
    # `lexsort` is stable, so the first row of a place in a window comes first.
    number, first = np.empty(len(order), np.int64), np.sort(order[begins])
    number[order] = np.searchsorted(first, order[begins])[np.cumsum(begins) - 1]
    return np.bincount(window[first]), rank_in_run(window[first])[number]
