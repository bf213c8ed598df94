"""Trips of kepler.gl: GeoJSON lines whose points have the time as a fourth number, so that traces move on the map."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.exports.json_texts import joined, json_arrays, json_objects, json_texts, write_collection
from ppmtf_jax.exports.layers import Layer, Piece
from ppmtf_jax.exports.registry import export_format


@export_format(
    "kepler-trips",
    "GeoJSON lines with times, which the trip layer of kepler.gl lets move.",
    (".geojson",),
    of_traces_alone=True,
)
def write_kepler_trips(layer: Layer, path: Path) -> None:
    """Write a line for each trace, of points [longitude, latitude, 0, seconds since 1970-01-01 UTC].

    A line is straight between events, also over gaps. It ends one step after its last event begins, so that a trace of
    one event is a line too. Longitudes continue beyond 180 degrees if a trace crosses that meridian; otherwise the line
    would go round the globe. See the user guide of kepler.gl on the trip layer.
    """
    write_collection(layer, path, partial(_features, step_s=layer.step_s))


def _features(piece: Piece, step_s: int) -> pa.Array:
    rows, first = piece.rows, piece.first
    last = np.append(first[1:], len(rows)) - 1
    # Each trace ends with its last row again, one step later.
    again = np.sort(np.concatenate([np.arange(len(rows)), last]))
    is_end = np.diff(again, prepend=-1) == 0
    second = rows["time"].to_numpy("datetime64[s]").astype(np.int64)[again] + step_s * is_end
    east, north = _unwrapped(rows["longitude"].to_numpy(), first), rows["latitude"].to_numpy()
    longitude, latitude, time = (json_texts(pd.Series(column)) for column in (east[again], north[again], second))
    points = joined("[", longitude, ",", latitude, ",0,", time, "]")
    lines = json_arrays(points, first + np.arange(len(first)))
    who = json_objects({name: json_texts(rows[name].iloc[first]) for name in ("user", "trace")})
    return joined(
        '{"type":"Feature","geometry":{"type":"LineString","coordinates":', lines, '},"properties":', who, "}"
    )


def _unwrapped(longitude: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Longitudes of traces without jumps of 360 degrees; the first longitude of each trace is unchanged."""
    turns = -np.round(np.diff(longitude, prepend=longitude[:1]) / 360)
    turns[first] = 0
    turns = np.cumsum(turns)
    return longitude + 360 * (turns - np.repeat(turns[first], np.diff(first, append=len(longitude))))
