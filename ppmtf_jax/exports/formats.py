"""The file formats of layers: GeoJSON, GeoParquet, CSV, OGC Moving Features JSON, and trips of kepler.gl."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as arrow
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from ppmtf_jax.exports.layers import Layer, Piece, iso_texts
from ppmtf_jax.exports.registry import export_format

# A spreadsheet takes a text with such a beginning for a formula. The last four are wide forms of Japanese keyboards.
RUNS = "^[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
# Well-known binary: byte order (1 is little-endian), geometry type (1 is a point), coordinates.
WKB_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
# Without a coordinate reference system, coordinates are longitude and latitude on WGS 84.
GEO = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"]}},
}
CRS = {"type": "Name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}
TRS = {"type": "Name", "properties": {"name": "urn:ogc:data:time:iso8601"}}


@export_format(
    "csv",
    "A table with times and coordinates, for kepler.gl, QGIS and everything else.",
    (".csv",),
    # The whole line of names, because a CSV has no `about`, and other files begin as this line does.
    mark=rb"\Atime,latitude,longitude,(user,trace,place|place,(category,)?[^,\n]+_events,)",
)
def write_csv(layer: Layer, path: Path) -> None:
    """Write a line of column names and the rows; a CSV has no place for `layer.about`.

    Times are ISO 8601 with the offset of their zone. A text that a spreadsheet would run as a formula (it begins with =
    + - @, a TAB or a line break) gets an apostrophe before it, which prevents that.
    """
    # Arrow writes many times as fast as pandas, but puts all column names in quotation marks.
    how = arrow_csv.WriteOptions(include_header=False, quoting_style="needed")
    with path.open("wb") as stream:
        for piece in layer.pieces():
            if not stream.tell():
                names = io.StringIO(newline="")
                csv.writer(names, lineterminator="\n").writerow(_harmless(pa.array(list(piece.rows))).to_pylist())
                stream.write(names.getvalue().encode())
            rows = piece.rows.assign(time=iso_texts(piece.rows["time"]))
            table = pa.Table.from_pandas(rows, preserve_index=False)
            arrow_csv.write_csv(pa.table([_harmless(each) for each in table], table.column_names), stream, how)


def _harmless(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column without texts that a spreadsheet would run; numbers and times stay unchanged."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    marked = arrow.binary_join_element_wise(pa.scalar("'", column.type), column, pa.scalar("", column.type))  # type: ignore[attr-defined]
    return arrow.if_else(arrow.match_substring_regex(column, RUNS), marked, column)  # type: ignore[attr-defined]


@export_format(
    "geoparquet",
    "GeoParquet points with times, for QGIS, GeoPandas and DuckDB.",
    (".parquet", ".geoparquet"),
)
def write_geoparquet(layer: Layer, path: Path) -> None:
    """Write the rows with a column of points; the metadata of the file have `layer.about` as "about".

    GeoPandas writes the same columns, but takes 15 times as long.
    """
    metadata = {"geo": json.dumps(GEO), "about": json.dumps(layer.about)}
    tables = map(_table, layer.pieces())
    first = next(tables)
    # The type of a column without values is not known; only texts can be missing.
    kinds = [each.with_type(pa.string()) if pa.types.is_null(each.type) else each for each in first.schema]
    schema = pa.schema(kinds, metadata)
    with path.open("wb") as stream, parquet.ParquetWriter(stream, schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table.cast(schema))


def _table(piece: Piece) -> pa.Table:
    rows = piece.rows
    points = np.empty(len(rows), WKB_POINT)
    points["order"], points["type"], points["x"], points["y"] = 1, 1, rows["longitude"], rows["latitude"]
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(points.itemsize), len(points), [None, pa.py_buffer(points)])
    table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    return table.append_column("geometry", fixed.cast(pa.binary()))


# JSON. Its texts are made for whole columns, without a Python step for each row.


@export_format(
    "geojson",
    "GeoJSON points with times, for kepler.gl, QGIS and most others.",
    (".geojson",),
)
def write_geojson(layer: Layer, path: Path) -> None:
    """Write a feature collection of points, with `layer.about` as its member "about".

    The property time has the offset of its zone; the time controls of kepler.gl and QGIS use it.
    """

    def features(piece: Piece) -> pa.Array:
        texts = {name: _json_texts(piece.rows[name]) for name in piece.rows}
        longitude, latitude = texts.pop("longitude"), texts.pop("latitude")
        point = ('{"type":"Feature","geometry":{"type":"Point","coordinates":[', longitude, ",", latitude, "]}")
        return _joined(*point, ',"properties":', _json_objects(texts), "}")

    _write_collection(layer, path, features)


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

    def features(piece: Piece) -> pa.Array:
        rows, first = piece.rows, piece.first
        times = _json_arrays(_json_texts(rows["time"].dt.tz_convert("UTC")), first)
        position = _joined("[", _json_texts(rows["longitude"]), ",", _json_texts(rows["latitude"]), "]")
        names = _json_arrays(_json_texts(rows["place"].astype(str)), first)
        numbers = pd.Series(piece.number + np.arange(len(first)))
        who = {"trajectory": numbers, "user": rows["user"].iloc[first], "trace": rows["trace"].iloc[first]}
        return _joined(
            '{"type":"Feature","properties":', _json_objects({name: _json_texts(each) for name, each in who.items()}),
            ',"temporalGeometry":{"type":"MovingPoint","datetimes":', times,
            ',"coordinates":', _json_arrays(position, first), ',"interpolation":"Discrete"}',
            ',"temporalProperties":[{"datetimes":', times,
            ',"place":{"type":"Text","values":', names, ',"interpolation":"Discrete"}}]}',
        )  # fmt: skip

    _write_collection(layer, path, features, crs=CRS, trs=TRS)


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

    def features(piece: Piece) -> pa.Array:
        rows, first = piece.rows, piece.first
        last = np.append(first[1:], len(rows)) - 1
        # Each trace ends with its last row again, one step later.
        again = np.sort(np.concatenate([np.arange(len(rows)), last]))
        is_end = np.diff(again, prepend=-1) == 0
        second = rows["time"].to_numpy("datetime64[s]").astype(np.int64)[again] + layer.step_s * is_end
        east, north = _unwrapped(rows["longitude"].to_numpy(), first), rows["latitude"].to_numpy()
        longitude, latitude, time = (_json_texts(pd.Series(column)) for column in (east[again], north[again], second))
        points = _joined("[", longitude, ",", latitude, ",0,", time, "]")
        lines = _json_arrays(points, first + np.arange(len(first)))
        who = _json_objects({name: _json_texts(rows[name].iloc[first]) for name in ("user", "trace")})
        return _joined(
            '{"type":"Feature","geometry":{"type":"LineString","coordinates":', lines, '},"properties":', who, "}"
        )

    _write_collection(layer, path, features)


def _unwrapped(longitude: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Longitudes of traces without jumps of 360 degrees; the first longitude of each trace is unchanged."""
    turns = -np.round(np.diff(longitude, prepend=longitude[:1]) / 360)
    turns[first] = 0
    turns = np.cumsum(turns)
    return longitude + 360 * (turns - np.repeat(turns[first], np.diff(first, append=len(longitude))))


def _json_texts(column: pd.Series) -> pa.Array:
    """Each value of a column as JSON; missing ones as null, zoned times as ISO 8601 with their offset."""
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = pd.Series(iso_texts(column))
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
        return pa.array(column.to_numpy(), from_pandas=True).cast(pa.string()).fill_null("null")
    code, distinct = pd.factorize(column)
    texts = np.array([*(json.dumps(value, default=str) for value in distinct.tolist()), "null"], object)
    return pa.array(texts[code], pa.string())


def _joined(*parts: pa.Array | str) -> pa.Array:
    """Concatenate texts row by row; a single text is added to every row."""
    return arrow.binary_join_element_wise(*parts, "")  # type: ignore[attr-defined]


def _json_objects(columns: Mapping[str, pa.Array]) -> pa.Array:
    """A JSON object for each row, from columns of JSON texts."""
    parts: list[pa.Array | str] = []
    for name, texts in columns.items():
        parts += [f"{',' if parts else '{'}{json.dumps(name)}:", texts]
    return _joined(*parts, "}")


def _json_arrays(texts: pa.Array, first: np.ndarray) -> pa.Array:
    """A JSON array for each group of rows; `first` has the first row of each group."""
    groups = pa.ListArray.from_arrays(pa.array(np.append(first, len(texts)), pa.int32()), texts)
    return _joined("[", arrow.binary_join(groups, ","), "]")  # type: ignore[attr-defined]


def _write_collection(layer: Layer, path: Path, features: Callable[[Piece], pa.Array], **members: object) -> None:
    """Write a feature collection: the members and `layer.about`, then the `features` of each piece of the layer."""
    members["about"] = layer.about
    head = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members.items())
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(f'{{"type": "FeatureCollection",\n{head},\n"features": [')
        between = "\n"
        for piece in layer.pieces():
            stream.write(between + ",\n".join(features(piece).to_pylist()))
            between = ",\n"
        stream.write("\n]}\n")
