"""Distances between places: exact for few places; for many places, between cells of neighbouring places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.errors import InputError, Message, Problem

MAX_CELLS = 1024
MAX_PLACES = 250_000
"""Maximum number of places of a fit. Time and memory grow in proportion to the places, visited or not."""


class Space(NamedTuple):
    """Distances between cells of places; with up to `MAX_CELLS` places, each place is a cell.

    For 10,000 places, a table of places x places would need 400 MB and hours of arithmetic, one of cells 4 MB.
    """

    cell: Int[np.ndarray, " place"]
    # Distances between the centres of cells; on the diagonal, the root mean square distance within a cell.
    km: Float[np.ndarray, "cell cell"]

    @property
    def is_exact(self) -> bool:
        """Whether each place is a cell."""
        return len(self.km) == len(self.cell)

    @property
    def has_distances(self) -> bool:
        """Whether places differ in position by more than rounding (a millimetre)."""
        return bool(self.km.max() > 1e-6)


def space_of(places: PlaceTable, max_cells: int = MAX_CELLS) -> Space:
    """Group places into at most `max_cells` cells with equal numbers of places, and measure distances.

    Cells are halved repeatedly at the median of their longer side.
    """
    position = places.position_km()
    if len(places) <= max_cells:
        return Space(np.arange(len(places), dtype=np.int32), _distances(position))
    cell = np.zeros(len(places), np.int32)
    while 2 * (int(cell.max()) + 1) <= max_cells:
        cell = _halved(cell, position)
    size = np.bincount(cell)
    centre = np.stack([np.bincount(cell, axis) / size for axis in position.T], axis=1)
    km = _distances(centre)
    # The root mean square distance between two points of a cell is sqrt(2) times that between a point and the centre.
    spread = np.bincount(cell, ((position - centre[cell]) ** 2).sum(axis=1)) / size
    np.fill_diagonal(km, np.sqrt(2 * spread))
    return Space(cell, km)


def indicator(group: Int[np.ndarray, " member"], n_groups: int) -> sparse.csr_array:
    """Matrix of members x groups with 1 where a member belongs to a group."""
    n = len(group)
    return sparse.csr_array((np.ones(n, np.float32), (np.arange(n), group)), shape=(n, n_groups))


def _distances(position: Float[np.ndarray, "point 2"]) -> Float[np.ndarray, "point point"]:
    apart = position[:, None] - position
    return np.hypot(apart[..., 0], apart[..., 1]).astype(np.float32)


def _halved(cell: Int[np.ndarray, " place"], position: Float[np.ndarray, "place 2"]) -> Int[np.ndarray, " place"]:
    """Cut each cell into two cells with equal numbers of places, across its longer side."""
    n_cells = int(cell.max()) + 1
    low, high = np.full((n_cells, 2), np.inf), np.full((n_cells, 2), -np.inf)
    np.minimum.at(low, cell, position)
    np.maximum.at(high, cell, position)
    along = np.argmax(high - low, axis=1)[cell]
    order = np.lexsort((position[np.arange(len(cell)), along], cell))
    rank = np.empty(len(cell), np.int64)
    rank[order] = rank_in_run(cell[order])
    return (2 * cell + (rank >= np.bincount(cell)[cell] / 2)).astype(np.int32)


def require_few_places(n_places: int, needed: int, place_s: float, way_out: str) -> None:
    """Refuse more than `MAX_PLACES` places; the error says how many bytes (`needed`) and hours a fit would take."""
    if n_places > MAX_PLACES:
        found = f"{n_places:,}, which need about {needed / 1e9:.0f} GB and {n_places * place_s / 3600:.1f} hours"
        way_out = Message("Take larger cells, or a smaller box", way_out)
        raise InputError("fit", [Problem(f"at most {MAX_PLACES:,} places, visited or not", found, way_out=way_out)])
