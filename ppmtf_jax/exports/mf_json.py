"""OGC Moving Features JSON: a moving point for each trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa

from ppmtf_jax.exports.json_texts import first_rows, joined, json_arrays, json_objects, json_texts, write_collection
from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat

CRS = {"type": "Name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
TRS = {"type": "Name", "properties": {"name": "urn:ogc:data:time:iso8601"}}


def write_mf_json(layer: Layer, path: Path) -> None:
    """Write a moving point for each trace, known at its events and not between them ("Discrete").

    Times are in UTC, for readers that take no change of the offset within a trace. Places are a temporal property. The
    property trajectory tells traces apart: the number of each in the file, from 0.

    References
    ----------
    .. [1] OGC Moving Features Encoding Extension - JSON (19-045r3), MF-JSON Prism.

    Examples
    --------
    >>> import json, tempfile
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.exports.layers import trace_layer
    >>> file = Path(tempfile.mkdtemp()) / "traces.mfjson"
    >>> write_mf_json(trace_layer(toy_city(n_users=5, seed=0).traces), file)
    >>> moving = json.loads(file.read_text(encoding="utf-8"))["features"][0]["temporalGeometry"]
    >>> moving["type"], moving["datetimes"][0], moving["interpolation"]
    ('MovingPoint', '2024-03-04T01:00:00+00:00', 'Discrete')
    """
    write_collection(path, {"crs": CRS, "trs": TRS, "about": layer.about}, _features(layer))


def _features(layer: Layer) -> Iterator[pa.Array]:
    n_before = 0
    for piece in layer.in_pieces():
        rows, first = piece.rows, first_rows(piece)
        times = json_arrays(json_texts(rows["time"].dt.tz_convert("UTC")), first)
        position = joined("[", json_texts(rows["longitude"]), ",", json_texts(rows["latitude"]), "]")
        names = json_arrays(json_texts(rows["place"].astype(str)), first)
        who = {name: json_texts(rows[name].iloc[first]) for name in ("user", "trace")}
        number = json_texts(pd.Series(range(n_before, n_before + len(first))))
        n_before += len(first)
        yield joined(
            '{"type":"Feature","properties":', json_objects({"trajectory": number, **who}),
            ',"temporalGeometry":{"type":"MovingPoint","datetimes":', times,
            ',"coordinates":', json_arrays(position, first), ',"interpolation":"Discrete"}',
            ',"temporalProperties":[{"datetimes":', times,
            ',"place":{"type":"Text","values":', names, ',"interpolation":"Discrete"}}]}',
        )  # fmt: skip


EXPORT_FORMATS.register(
    ExportFormat(
        "mf-json",
        "OGC Moving Features JSON, for MovingPandas, MobilityDB and others.",
        (".mfjson", ".json"),
        write_mf_json,
        of_traces_alone=True,
    )
)
