"""How far places are from each other, exactly for few places and by cells of near ones for many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.places import PlaceTable

MAX_CELLS = 1024


class Space(NamedTuple):
    """Distances between cells of places; up to `MAX_CELLS` places each is a cell of its own.

    A table of places x places for 10,000 places would take 400 MB and hours of arithmetic; one of cells takes 4 MB.

    Attributes
    ----------
    cell : int32 array, shape (places,)
    km : float32 array, shape (cells, cells)
        Between the centres of cells, and within one the mean over pairs of its places.
    """

    cell: Int[np.ndarray, " place"]
    km: Float[np.ndarray, "cell cell"]

    @property
    def is_exact(self) -> bool:
        """Whether every place is a cell of its own."""
        return len(self.km) == len(self.cell)

    @property
    def has_distances(self) -> bool:
        """Whether not all places are at one point."""
        # Less than a millimetre is rounding.
        return bool(self.km.max() > 1e-6)


def space_of(places: PlaceTable, max_cells: int = MAX_CELLS) -> Space:
    """Group places to at most so many cells, and measure.

    Places are halved at the median of the longer side again and again, so that cells hold equally many.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> places = toy_city(n_users=5, n_places=50, seed=0).traces.places
    >>> space_of(places).is_exact, len(space_of(places, max_cells=20).km)
    (True, 16)
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
    # Of two points around a centre the root mean square distance is sqrt(2) times that from the centre.
    spread = np.bincount(cell, ((position - centre[cell]) ** 2).sum(axis=1)) / size
    np.fill_diagonal(km, np.sqrt(2 * spread))
    return Space(cell, km)


def _distances(position: Float[np.ndarray, "point 2"]) -> Float[np.ndarray, "point point"]:
    apart = position[:, None] - position
    return np.hypot(apart[..., 0], apart[..., 1]).astype(np.float32)


def _halved(cell: Int[np.ndarray, " place"], position: Float[np.ndarray, "place 2"]) -> Int[np.ndarray, " place"]:
    """Every cell cut in two of equal size, across its longer side."""
    n_cells = int(cell.max()) + 1
    low, high = np.full((n_cells, 2), np.inf), np.full((n_cells, 2), -np.inf)
    np.minimum.at(low, cell, position)
    np.maximum.at(high, cell, position)
    along = np.argmax(high - low, axis=1)[cell]
    order = np.lexsort((position[np.arange(len(cell)), along], cell))
    size = np.bincount(cell)
    rank = np.empty(len(cell), np.int64)
    rank[order] = np.arange(len(cell)) - np.repeat(np.cumsum(size) - size, size)
    return (2 * cell + (rank >= size[cell] / 2)).astype(np.int32)
