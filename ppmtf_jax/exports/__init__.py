"""Traces and populations for maps and for other libraries.

A layer is a table of points in time: the events of traces (`trace_layer`), or how many people are where at each hour
(`population_layer`). `write_layer` writes it as GeoJSON, GeoParquet, CSV or OGC Moving Features JSON, none of which
needs another library. The extra `interop` installs what the others need: `to_geodataframe`, `to_trackintel` and
`to_movingpandas`, and `from_trackintel` and `from_movingpandas`, whose tables `read_checkins` turns into traces.

A format is a file of this folder that registers itself.
"""

from ppmtf_jax.exports.geodataframe import to_geodataframe
from ppmtf_jax.exports.layers import Layer, population_layer, trace_layer
from ppmtf_jax.exports.movingpandas import from_movingpandas, to_movingpandas
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat, write_layer
from ppmtf_jax.exports.trackintel import from_trackintel, to_trackintel

__all__ = [
    "EXPORT_FORMATS",
    "ExportFormat",
    "Layer",
    "from_movingpandas",
    "from_trackintel",
    "population_layer",
    "to_geodataframe",
    "to_movingpandas",
    "to_trackintel",
    "trace_layer",
    "write_layer",
]
