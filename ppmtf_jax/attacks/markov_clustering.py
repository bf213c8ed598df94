"""Markov clustering (MCL): groups of a graph's nodes that a random walk seldom leaves.

Van Dongen, "Graph Clustering by Flow Simulation", Utrecht 2000.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse

from ppmtf_jax.errors import InputError, Problem

Sparse = sparse.csr_array | sparse.csc_array | sparse.coo_array

PRUNED_BELOW = 1e-4
"""After an expansion, probabilities below this value become 0, except the greatest of each column."""
CONVERGED_BELOW = 1e-6
"""Iterations stop when every entry changes by less than this."""
MAX_ITERATIONS = 1000


def markov_clusters(weights: Sparse, inflation: float = 2.0) -> Int[np.ndarray, " node"]:
    """Partition the nodes of an undirected graph, given by its symmetric matrix of weights, by Markov clustering.

    The loop of a node gets the weight of its heaviest edge, or 1 if it has no edge; loops in `weights` are ignored.
    Nodes whose walks end in the same attractors form one cluster. If a node's walk ends in several systems of
    attractors, it belongs to the first one. Clusters are numbered in the order of their first nodes. A larger
    `inflation`, above 1, gives smaller clusters. Raises `InputError` if the walk does not converge.
    """
    weights = sparse.csc_array(weights, dtype=np.float64)
    edges = weights - sparse.diags_array(weights.diagonal())
    heaviest = edges.max(axis=0).toarray().ravel()
    flow = _stochastic(edges + sparse.diags_array(np.where(heaviest > 0, heaviest, 1.0)))
    for _ in range(MAX_ITERATIONS):
        # Expansion: the square spreads the walk. Inflation: the power sharpens it.
        inflated = _stochastic(_pruned(flow @ flow).power(inflation))
        difference: Any = abs(inflated - flow)
        change = difference.max()
        flow = inflated
        if change < CONVERGED_BELOW:
            return _clusters(flow)
    found = f"changes of {change:.2g} after {MAX_ITERATIONS} iterations"
    way_out = "Choose a slightly different inflation"
    raise InputError("Markov clustering", [Problem(f"changes below {CONVERGED_BELOW:g}", found, way_out=way_out)])


def _stochastic(flow: Any) -> sparse.csc_array:
    return sparse.csc_array(flow / flow.sum(axis=0))


def _pruned(flow: Any) -> sparse.csc_array:
    column = np.repeat(np.arange(flow.shape[1]), np.diff(flow.indptr))
    greatest = np.maximum.reduceat(flow.data, flow.indptr[:-1])
    flow.data[flow.data < np.minimum(PRUNED_BELOW, greatest)[column]] = 0
    flow.eliminate_zeros()
    return flow


def _clusters(flow: Any) -> Int[np.ndarray, " node"]:
    """Read the clusters from the limit matrix: the mass of each column is spread over systems of attractors."""
    n_nodes = flow.shape[0]
    is_attractor = flow.diagonal() > CONVERGED_BELOW
    ends = flow.tocoo()
    # Attractors that reach each other are one system.
    inside = is_attractor[ends.row] & is_attractor[ends.col]
    links = sparse.coo_array((np.ones(inside.sum()), (ends.row[inside], ends.col[inside])), (n_nodes, n_nodes))
    _, system = sparse.csgraph.connected_components(links, directed=False)
    cluster = np.full(n_nodes, n_nodes)
    ended = is_attractor[ends.row]
    np.minimum.at(cluster, ends.col[ended], system[ends.row[ended]])
    _, first, renumbered = np.unique(cluster, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[renumbered]
