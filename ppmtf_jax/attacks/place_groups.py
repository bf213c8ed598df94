"""Groups of places that people move between: Algorithm 2 of Murakami et al. (TIFS 2017), by Markov clustering.

Markov clustering (MCL) finds groups of a graph's nodes that a random walk seldom leaves: van Dongen, "Graph Clustering
by Flow Simulation", Utrecht 2000.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int
from scipy import sparse
from scipy.spatial import KDTree

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.errors import InputError, Problem

ADJACENCY_WEIGHT = 0.01
"""Weight of the edge between two adjacent places (section VI-A)."""
N_NEIGHBOURS = 8
MIN_FILLED = 0.1
"""If a smaller share of the lattice cells contains a place, the coordinates count as scattered."""
OFF_CELL = 0.1
"""Maximum distance of a place from the centre of its lattice cell, in cells."""
PRUNED_BELOW = 1e-4
"""After an expansion, probabilities below this value become 0, except the greatest of each column."""
CONVERGED_BELOW = 1e-6
"""Iterations stop when every entry changes by less than this."""
MAX_ITERATIONS = 1000


def groups_of_moves(
    place: Int[np.ndarray, " move"],
    next_place: Int[np.ndarray, " move"],
    places: PlaceTable,
    adjacency_weight: float = ADJACENCY_WEIGHT,
    inflation: float = 2.0,
) -> Int[np.ndarray, " place"]:
    """Cluster the places by moves of all users and by adjacency: Algorithm 2, whose epsilon is `adjacency_weight`.

    Raises `InputError` if the weight is not 0 and `adjacent_places` needs coordinates that are missing.
    """
    moves = sparse.csr_array((np.ones(len(place)), (place, next_place)), (len(places), len(places)))
    weights = moves + moves.T
    if adjacency_weight:
        weights = weights + adjacency_weight * adjacent_places(places)
    return markov_clusters(weights, inflation)


def adjacent_places(places: PlaceTable) -> sparse.csr_array:
    """Symmetric matrix with 1 where two places are adjacent; the diagonal is 0.

    If the coordinates are a regular lattice, the eight cells around a place are adjacent. A lattice has evenly spaced
    rows and columns and no cell with two places; up to nine in ten cells may be empty. Otherwise two places are
    adjacent if one is among the eight nearest of the other. Raises `InputError`: coordinates are missing or all alike.
    """
    n_places = len(places)
    if n_places == 1:
        return sparse.csr_array((1, 1))
    position = places.position_km()
    if not np.isfinite(position).all() or not np.ptp(position, axis=0).any():
        way_out = "Give coordinates, or take an adjacency_weight of 0"
        found = "the same for all" if np.isfinite(position).all() else "missing ones"
        raise InputError("adjacent places", [Problem("coordinates of the places", found, way_out=way_out)])
    cell = _lattice_cells(position)
    if cell is not None:
        near = KDTree(cell).query_pairs(1.0, p=np.inf, output_type="ndarray")
        pair = near.T
    else:
        neighbour = np.asarray(KDTree(position).query(position, min(n_places, N_NEIGHBOURS + 1))[1])
        # The nearest place is the place itself, unless other places are at the same point.
        itself = neighbour == np.arange(n_places)[:, None]
        itself[~itself.any(axis=1), -1] = True
        near = neighbour[~itself].reshape(n_places, -1)
        pair = np.stack([np.repeat(np.arange(n_places), near.shape[1]), near.ravel()])
    one_way = sparse.csr_array((np.ones(pair.shape[1]), tuple(pair)), (n_places, n_places))
    return sparse.csr_array(one_way.maximum(one_way.T))


def _lattice_cells(position: np.ndarray) -> Int[np.ndarray, "place 2"] | None:
    """Row and column of each place in a regular lattice; None if places are scattered."""
    cells = [_evenly_spaced(along) for along in position.T]
    evenly_spaced = [cell for cell in cells if cell is not None]
    if len(evenly_spaced) < len(cells):
        return None
    cell = np.stack(evenly_spaced, axis=1)
    n_cells = np.prod(cell.max(axis=0) + 1)
    is_lattice = len(np.unique(cell, axis=0)) == len(cell) and MIN_FILLED * n_cells <= len(cell)
    return cell if is_lattice else None


def _evenly_spaced(along: np.ndarray) -> Int[np.ndarray, " place"] | None:
    """Positions 0, 1, ... of evenly spaced values, from the smallest value on; None if they are not evenly spaced."""
    extent = np.ptp(along)
    if not extent:
        return np.zeros(len(along), int)
    gap = np.diff(np.sort(along))
    # This threshold is far below the size of a cell, but above the rounding of coordinates.
    between = gap[gap > extent / (10 * len(along))]
    step = extent / np.round(extent / np.median(between))
    number = (along - along.min()) / step
    return np.round(number).astype(int) if np.abs(number - np.round(number)).max() < OFF_CELL else None


def markov_clusters(weights: sparse.sparray, inflation: float = 2.0) -> Int[np.ndarray, " node"]:
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
