"""Traces by hand that tests of exports share."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from tests.support import Row, to_traces

# b and c are at the same spot; c and d are on either side of the 180th meridian.
PLACES = PlaceTable(
    np.array(["a", "b", "c", "d"], object),
    np.array([-17.5, -17.0, -17.0, -17.0]),
    np.array([179.0, 179.5, 179.5, -179.5]),
    np.array(["home", 'the "old" café', None, "home"], object),
)
GRID = TimeGrid.each_instant("2024-01-01T22:00:00", 3600, 5, "Pacific/Fiji")
ROWS: list[Row] = [
    (1, 0, 0, 0), (1, 0, 1, 0), (1, 0, 3, 1),  # a gap at instant 2
    (1, 2, 1, 3),  # a trace of one event, and trace 1 is missing
    (7, 0, 0, 2), (7, 0, 1, 3), (7, 0, 2, 2),
]  # fmt: skip


def by_hand() -> Traces:
    return to_traces(ROWS, PLACES, GRID)


def events(traces: Traces) -> list[tuple]:
    """User, place and wall-clock time of every event."""
    frame = traces.to_frame()
    times = [traces.time_grid.time_of(instant) for instant in frame["instant"]]
    return sorted(zip(frame["user"], frame["place"], times, strict=True))
