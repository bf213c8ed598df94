"""The domain of private releases: what is public, and the groups of slots and places for which events are counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import same_period
from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.people.space import Space, space_of

N_BLOCKS = 6
"""Number of blocks of slots."""
N_CELLS = (4, 16, 64)
"""Numbers of cells into which places are grouped. A cell has neighbouring places; all cells have equally many."""
N_EDGES = 12
"""Number of edges between bins of distance; the edges are a geometric progression."""
N_TYPES = 5
"""Number of types of people. People of type 0 have no second place. People of types 1 to 4 have one, and visit it most
often in the first, second, third or last quarter of the slots. A table of anchors has a row for the homes of each type,
and after these rows, a row for the second places of each of the types 1 to 4."""


class Grouping(NamedTuple):
    """A table of counts: the row of each slot (or row of anchors, see `N_TYPES`) and the column of each place."""

    row: Int[np.ndarray, " slot"]
    column: Int[np.ndarray, " place"]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        return int(self.row.max()) + 1, int(self.column.max()) + 1

    def cell(self, row: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
        """Cell of the table for each event, with its slot (or row of anchors) and its place."""
        return self.row[row] * self.shape[1] + self.column[place]


@dataclass(frozen=True, eq=False)
class Domain:
    """What is public: the places with coordinates and categories, and the slots of one period.

    Places and time grid may not depend on the events. Places that were chosen because people visit them are not public.
    A time grid that begins or ends with an event is not public either. The order of the places is public too. If a
    place has no coordinates, or all are at one point, the domain has no distances. `time_grid` has one period: what a
    synthetic trace covers. `anchored`: whether people have a home and a second place. Releases about these take a part
    of the budget. It may depend on the events, but only through noisy counts (see `releases.has_dense_users`).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_places=100, n_days=2, seed=0).traces
    >>> domain = Domain.of(traces.places, traces.time_grid)
    >>> {name: grouping.shape for name, grouping in domain.population_tables().items()}
    {'place': (1, 100), 'slot x place': (12, 100), 'block x cell': (6, 16), 'cell': (1, 64), 'slot x category': (12, 8)}
    """

    places: PlaceTable
    time_grid: TimeGrid
    anchored: bool = False

    @classmethod
    def of(cls, places: PlaceTable, time_grid: TimeGrid) -> Domain:
        """The domain of traces at these places, with the slots of one period of this grid."""
        return cls(places, time_grid.one_period())

    @property
    def n_places(self) -> int:
        return len(self.places)

    @property
    def n_slots(self) -> int:
        return self.time_grid.n_slots

    @cached_property
    def space(self) -> Space:
        """Cells of places and distances between them; a single cell if a place has no coordinates."""
        located = np.isfinite(self.places.latitude) & np.isfinite(self.places.longitude)
        if located.all():
            return space_of(self.places)
        return Space(np.zeros(self.n_places, np.int32), np.zeros((1, 1), np.float32))

    @cached_property
    def distance_bin(self) -> Int[np.ndarray, "cell cell"]:
        """Bin of distance of each pair of cells; if there are no distances, all pairs are in one bin.

        The first edge is the 0.2 % quantile of the positive distances or, if larger, a 200th of the largest distance.
        """
        km = self.space.km
        if not self.space.has_distances:
            return np.zeros(km.shape, np.int64)
        first = max(float(np.quantile(km[km > 0], 0.002)), float(km.max()) / 200)
        edges = np.geomspace(first, float(km.max()) * 1.0001, N_EDGES + 1)[:-1]
        return np.searchsorted(edges, km, side="right")

    @cached_property
    def category(self) -> Int[np.ndarray, " place"] | None:
        """Number of each place's category; None if there are fewer than two categories."""
        if self.places.category is None:
            return None
        # A missing category is the empty text, as in a saved table.
        number = np.unique(pd.Series(self.places.category).fillna("").astype(str), return_inverse=True)[1]
        return number if number.max() > 0 else None

    @cached_property
    def cells(self) -> dict[int, Int[np.ndarray, " place"]]:
        """Cell of each place, for each number of cells in `N_CELLS` that is smaller than the number of places."""
        if not self.space.has_distances:
            return {}
        return {n: space_of(self.places, n).cell for n in N_CELLS if n < self.n_places}

    def population_tables(self) -> dict[str, Grouping]:
        """Tables of events that show where people are, by name."""
        slot, place = np.arange(self.n_slots), np.arange(self.n_places)
        all_slots = np.zeros_like(slot)
        blocks = np.unique(slot * N_BLOCKS // self.n_slots, return_inverse=True)[1]
        _, middle, fine = N_CELLS
        tables = {"place": Grouping(all_slots, place), "slot x place": Grouping(slot, place)}
        if middle in self.cells:
            tables["block x cell"] = Grouping(blocks, self.cells[middle])
        if fine in self.cells:
            tables["cell"] = Grouping(all_slots, self.cells[fine])
        if self.category is not None:
            tables["slot x category"] = Grouping(slot, self.category)
        return tables

    def anchor_tables(self) -> dict[str, Grouping]:
        """Tables of anchors, by name; for the rows see `N_TYPES`."""
        if not self.anchored:
            return {}
        anchor, every = np.repeat([0, 1], [N_TYPES, N_TYPES - 1]), np.arange(2 * N_TYPES - 1)
        tables = {"anchor x place": Grouping(anchor, np.arange(self.n_places))}
        if N_CELLS[-1] in self.cells:
            tables["anchor x cell"] = Grouping(anchor, self.cells[N_CELLS[-1]])
        if N_CELLS[1] in self.cells:
            tables["type x middle cell"] = Grouping(every, self.cells[N_CELLS[1]])
        if self.category is not None:
            tables["type x category"] = Grouping(every, self.category)
        return tables

    @property
    def quarter(self) -> Int[np.ndarray, " slot"]:
        """The quarter of the slots, from 0 to 3, that each slot belongs to; see `N_TYPES`."""
        return np.arange(self.n_slots) * (N_TYPES - 1) // self.n_slots

    def check(self, traces: Traces) -> None:
        """Refuse traces with other places or other slots, and traces whose events are not in the order of users.

        A user whose events are not consecutive would be counted as several users.
        """
        problems = []
        if (np.diff(traces.user) < 0).any():
            problems.append(Problem("events in the order of users", "another order", way_out="Use Traces.from_frame"))
        if not np.array_equal(traces.places.ids, self.places.ids):
            problems.append(Problem("the places of the domain, in their order", f"{traces.n_places} places"))
        if not same_period(traces.time_grid, self.time_grid):
            problems.append(Problem("the slots of the domain's period", traces.time_grid.summary()["slots"]))
        raise_any("traces of a domain", problems)
