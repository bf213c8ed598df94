"""Groups of places between which people move: Algorithm 2 of Murakami et al. (TIFS 2017)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from scipy import sparse
from scipy.spatial import KDTree

from ppmtf_jax.attacks.markov_clustering import markov_clusters
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem

ADJACENCY_WEIGHT = 0.01
"""Of the edge of two adjacent places (section VI-A)."""
N_NEIGHBOURS = 8
LEAST_FILLED = 0.1
"""Share of the cells of a regular lattice that have a place: coordinates of which fewer do are taken for scattered."""
OFF_CELL = 0.1
"""Distance of a place from the middle of its cell, in cells."""


def place_groups(
    traces: Traces, *, adjacency_weight: float = ADJACENCY_WEIGHT, inflation: float = 2.0
) -> Int[np.ndarray, " place"]:
    """Group the places by Markov clustering of the transitions of all users.

    Parameters
    ----------
    traces : Traces
        Training traces.
    adjacency_weight : float
        Of adjacent places, see `adjacent_places`, beside the number of transitions; with 0 coordinates do not matter.
    inflation : float
        Of `markov_clusters`.

    Returns
    -------
    int64 array, shape (places,)
        The group of each place, numbered from 0.

    Raises
    ------
    InputError
        Coordinates do not tell what is adjacent, or a setting is impossible.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> place_groups(toy_city(n_users=50, n_places=20, seed=0).traces).shape
    (20,)
    """
    steps = traces.transitions()
    adjacent = adjacency_term(traces.places, adjacency_weight)
    return groups_of_moves(steps.place, steps.next_place, adjacent, inflation)


def groups_of_moves(
    place: Int[np.ndarray, " move"],
    next_place: Int[np.ndarray, " move"],
    adjacency: sparse.csr_array,
    inflation: float = 2.0,
) -> Int[np.ndarray, " place"]:
    """Group the places from a list of moves and what `adjacency_term` gives: steps 2 and 3 of Algorithm 2."""
    moves = sparse.csr_array((np.ones(len(place)), (place, next_place)), adjacency.shape)
    return markov_clusters(sparse.csr_array(moves + moves.T + adjacency), inflation)


def adjacency_term(places: PlaceTable, weight: float) -> sparse.csr_array:
    """The weights epsilon of Algorithm 2: `weight` where two places are adjacent, else 0."""
    if not 0 <= weight < np.inf:
        raise InputError("groups of places", [Problem("adjacency_weight of at least 0", repr(weight))])
    if not weight:
        return sparse.csr_array((len(places), len(places)))
    return sparse.csr_array(weight * adjacent_places(places))


def adjacent_places(places: PlaceTable) -> sparse.csr_array:
    """Which places are adjacent: the eight around a cell of a regular lattice, or else the eight nearest.

    Coordinates are a lattice where rows and columns are evenly spaced and no cell has two places; cells may be empty,
    up to nine in ten. Elsewhere places are adjacent if one is among the eight nearest of the other.

    Returns
    -------
    sparse float64 array, shape (places, places)
        Symmetric, 1 where adjacent; the diagonal is 0.

    Raises
    ------
    InputError
        Coordinates are missing, or the same for all places.

    Examples
    --------
    A lattice of 3 x 3: corners have three neighbours, the middle has all the others.

    >>> latitude, longitude = np.divmod(np.arange(9), 3)
    >>> adjacent_places(PlaceTable(np.arange(9), latitude / 100, longitude / 100)).sum(axis=0).tolist()
    [3.0, 5.0, 3.0, 5.0, 8.0, 5.0, 3.0, 5.0, 3.0]
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
        # A place is its own nearest one, unless others are at the same point.
        itself = neighbour == np.arange(n_places)[:, None]
        itself[~itself.any(axis=1), -1] = True
        near = neighbour[~itself].reshape(n_places, -1)
        pair = np.stack([np.repeat(np.arange(n_places), near.shape[1]), near.ravel()])
    one_way = sparse.csr_array((np.ones(pair.shape[1]), tuple(pair)), (n_places, n_places))
    return sparse.csr_array(one_way.maximum(one_way.T))


def _lattice_cells(position: np.ndarray) -> Int[np.ndarray, "place 2"] | None:
    """Row and column of each place in a regular lattice; None where places are scattered."""
    cells = [_evenly_spaced(along) for along in position.T]
    evenly_spaced = [cell for cell in cells if cell is not None]
    if len(evenly_spaced) < len(cells):
        return None
    cell = np.stack(evenly_spaced, axis=1)
    n_cells = np.prod(cell.max(axis=0) + 1)
    is_lattice = len(np.unique(cell, axis=0)) == len(cell) and LEAST_FILLED * n_cells <= len(cell)
    return cell if is_lattice else None


def _evenly_spaced(along: np.ndarray) -> Int[np.ndarray, " place"] | None:
    """Numbers of evenly spaced values from the least on; None where they are not."""
    extent = np.ptp(along)
    if not extent:
        return np.zeros(len(along), int)
    gap = np.diff(np.sort(along))
    # Far less than a cell, but more than coordinates are rounded to.
    between = gap[gap > extent / (10 * len(along))]
    step = extent / np.round(extent / np.median(between))
    number = (along - along.min()) / step
    return np.round(number).astype(int) if np.abs(number - np.round(number)).max() < OFF_CELL else None
