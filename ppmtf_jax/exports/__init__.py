"""Traces and populations for maps and for other libraries.

A layer is a table of points in time: the events of traces (`trace_layer`), or the number of events at each place in
each hour (`population_layer`). `write_layer` writes a layer as GeoJSON, GeoParquet, CSV, OGC Moving Features JSON or
trips of kepler.gl without further libraries. The conversions `to_geodataframe`, `to_trackintel`, `to_movingpandas`,
`from_trackintel` and `from_movingpandas` need the extra `interop`; `read_checkins` reads the tables of the last two.
"""

from ppmtf_jax.exports.layers import Layer, population_layer, trace_layer
from ppmtf_jax.exports.libraries import (
    from_movingpandas,
    from_trackintel,
    to_geodataframe,
    to_movingpandas,
    to_trackintel,
)
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat, write_layer

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
