"""GeoJSON (RFC 7946): a point for each row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from ppmtf_jax.exports.json_texts import joined, json_objects, json_texts, write_collection
from ppmtf_jax.exports.layers import Layer, Piece
from ppmtf_jax.exports.registry import export_format


@export_format(
    "geojson",
    "GeoJSON points with times, for kepler.gl, QGIS and most others.",
    (".geojson",),
)
def write_geojson(layer: Layer, path: Path) -> None:
    """Write a feature collection of points, with `layer.about` as its member "about".

    The property time has the offset of its zone; the time controls of kepler.gl and QGIS use it.
    """
    write_collection(layer, path, _features)


def _features(piece: Piece) -> pa.Array:
    texts = {name: json_texts(piece.rows[name]) for name in piece.rows}
    longitude, latitude = texts.pop("longitude"), texts.pop("latitude")
    point = ('{"type":"Feature","geometry":{"type":"Point","coordinates":[', longitude, ",", latitude, "]}")
    return joined(*point, ',"properties":', json_objects(texts), "}")
