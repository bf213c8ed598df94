"""GeoParquet 1.1: a point for each row, as a small file with typed columns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from ppmtf_jax.exports.layers import Layer
from ppmtf_jax.exports.registry import EXPORT_FORMATS, ExportFormat

# Little-endian, a point.
WKB_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
# No coordinate reference system means longitude and latitude on WGS 84.
GEO = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"]}},
}


def write_geoparquet(layer: Layer, path: Path) -> None:
    """Write the rows with a column of points; what the layer is about is in the metadata of the file, as "about".

    References
    ----------
    .. [1] GeoParquet specification, version 1.1.0.

    Examples
    --------
    >>> import tempfile
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.exports.layers import trace_layer
    >>> file = Path(tempfile.mkdtemp()) / "traces.parquet"
    >>> write_geoparquet(trace_layer(toy_city(n_users=5, seed=0).traces), file)
    >>> parquet.read_schema(file).names
    ['time', 'latitude', 'longitude', 'user', 'trace', 'place', 'category', 'geometry']
    """
    rows = layer.rows
    table = pa.Table.from_pandas(rows, preserve_index=False)
    table = table.append_column("geometry", _points(rows["longitude"], rows["latitude"]))
    metadata = {"geo": json.dumps(GEO), "about": json.dumps(layer.about)}
    table = table.replace_schema_metadata(metadata)
    with path.open("wb") as stream, parquet.ParquetWriter(stream, table.schema) as writer:
        writer.write_table(table)


def _points(longitude: pd.Series, latitude: pd.Series) -> pa.Array:
    """As well-known binary."""
    points = np.empty(len(longitude), WKB_POINT)
    points["order"], points["type"], points["x"], points["y"] = 1, 1, longitude, latitude
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(points.itemsize), len(points), [None, pa.py_buffer(points)])
    return fixed.cast(pa.binary())


EXPORT_FORMATS.register(
    ExportFormat(
        "geoparquet",
        "GeoParquet points with times, for QGIS, GeoPandas and DuckDB.",
        (".parquet", ".geoparquet"),
        write_geoparquet,
    )
)
