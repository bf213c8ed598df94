"""Traces and populations for maps and for other libraries.

A layer is a table of points in time: the events of traces (`trace_layer`), or the number of events at each place in
each hour (`population_layer`). `write_layer` writes a layer as GeoJSON, GeoParquet, CSV, OGC Moving Features JSON or
trips of kepler.gl without further libraries. The conversions `to_geodataframe`, `to_trackintel`, `to_movingpandas`,
`from_trackintel` and `from_movingpandas` need the extra `interop`; `read_checkins` reads the tables of the last two.

Each format is a file of this folder that registers itself.
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
