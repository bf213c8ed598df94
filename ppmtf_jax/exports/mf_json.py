"""OGC Moving Features JSON: a moving point for each trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.exports.json_texts import joined, json_arrays, json_objects, json_texts, write_collection
from ppmtf_jax.exports.layers import Layer, Piece
from ppmtf_jax.exports.registry import export_format

CRS = {"type": "Name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
TRS = {"type": "Name", "properties": {"name": "urn:ogc:data:time:iso8601"}}


@export_format(
    "mf-json",
    "OGC Moving Features JSON, for MovingPandas, MobilityDB and others.",
    (".mfjson", ".json"),
    of_traces_alone=True,
)
def write_mf_json(layer: Layer, path: Path) -> None:
    """Write a moving point for each trace, defined at its events and not between them ("Discrete").

    Times are in UTC, because some readers do not accept a change of the offset within a trace. Places are a temporal
    property. The property trajectory is the number of the trace in the file, from 0.

    References
    ----------
    .. [1] OGC Moving Features Encoding Extension - JSON (19-045r3), MF-JSON Prism.
    """
    write_collection(layer, path, _features, crs=CRS, trs=TRS)


def _features(piece: Piece) -> pa.Array:
    rows, first = piece.rows, piece.first
    times = json_arrays(json_texts(rows["time"].dt.tz_convert("UTC")), first)
    position = joined("[", json_texts(rows["longitude"]), ",", json_texts(rows["latitude"]), "]")
    names = json_arrays(json_texts(rows["place"].astype(str)), first)
    numbers = pd.Series(piece.number + np.arange(len(first)))
    who = {"trajectory": numbers, "user": rows["user"].iloc[first], "trace": rows["trace"].iloc[first]}
    return joined(
        '{"type":"Feature","properties":', json_objects({name: json_texts(each) for name, each in who.items()}),
        ',"temporalGeometry":{"type":"MovingPoint","datetimes":', times,
        ',"coordinates":', json_arrays(position, first), ',"interpolation":"Discrete"}',
        ',"temporalProperties":[{"datetimes":', times,
        ',"place":{"type":"Text","values":', names, ',"interpolation":"Discrete"}}]}',
    )  # fmt: skip
