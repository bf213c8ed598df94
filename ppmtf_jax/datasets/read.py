"""Files and tables of many kinds as parts of an import: text, JSON, Parquet, spreadsheets, tables in memory."""

from __future__ import annotations

import codecs
import importlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_integer_dtype
from pyarrow import parquet as arrow_parquet

from ppmtf_jax.datasets.columns import choose_columns
from ppmtf_jax.datasets.database import COORDINATES
from ppmtf_jax.datasets.parts import Part, TextTable, Wanted, readable
from ppmtf_jax.datasets.text_files import HEAD_BYTES, Files, encoding_of, is_spreadsheet, opened, paths_of
from ppmtf_jax.errors import N_EXAMPLES, Finding, InputError, Problem, quoted

PARQUET_START, BATCH_ROWS = b"PAR1", 2**18


@runtime_checkable
class ArrowTable(Protocol):
    """A table that PyArrow can take without a copy, such as one of Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class InterchangeTable(Protocol):
    """A table of the DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


Source = Files | pd.DataFrame | ArrowTable | InterchangeTable


def parts_of(
    source: Source, columns: Mapping[str, str | int], find: Sequence[str], quote_char: str | bool, subject: str
) -> list[Part]:
    """The files or the table of a source; see `read_columns`."""
    wanted = Wanted(columns, find, quote_char)
    if isinstance(source, pd.DataFrame):
        return [_of_frame(_with_coordinates(source), wanted, subject)]
    if not isinstance(source, (str, os.PathLike, Sequence)):
        return [_of_arrow(_arrow_table(source, subject), wanted, subject)]
    parts, paths = [], paths_of(source)
    empty = [path for path in paths if path.is_file() and not path.stat().st_size] if len(paths) > 1 else []
    for path in [path for path in paths if path not in empty] or paths[:1]:
        with readable(path):
            parts.append(_of_file(path, wanted))
        parts[-1].file = path.as_posix()
    if empty:
        names = ", ".join(path.name for path in empty[:N_EXAMPLES])
        note = f"{len(empty):,} of {len(paths):,} files are empty: {names}"
        parts[0].notes.append(Finding(note, code="empty-files", n_rows=0))
    names = {frozenset(part.types) for part in parts}
    if len(names) > 1:
        some = ", ".join(sorted(frozenset.union(*names) - frozenset.intersection(*names)))
        raise InputError(subject, [Problem("the same columns in all files", f"{some} in some of them only")])
    try:
        common = pa.unify_schemas([pa.schema(part.types) for part in parts], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(subject, [Problem("columns of the same types in all files", str(error))]) from error
    for part in parts:
        part.types.update(zip(common.names, common.types, strict=True))
    return parts


# Tables in memory


def _with_coordinates(frame: pd.DataFrame) -> pd.DataFrame:
    """A GeoDataFrame as a table with the latitude and longitude of its points; other tables as they are."""
    if not type(frame).__module__.startswith("geopandas") or not hasattr(frame, "to_crs"):
        return frame
    import shapely

    points = frame.geometry if frame.crs is None else frame.geometry.to_crs(4326)  # type: ignore[operator]
    # Geometries that are not points get no coordinates, so that their rows are listed with the other bad rows.
    degrees = {"latitude": shapely.get_y(points.array), "longitude": shapely.get_x(points.array)}
    return pd.DataFrame(frame.drop(columns=points.name)).assign(**degrees)


def _arrow_table(source: object, subject: str) -> pa.Table:
    try:
        if isinstance(source, ArrowTable):
            return pa.table(source)
        if isinstance(source, InterchangeTable):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(source)
    except (pa.ArrowException, TypeError, ValueError):
        pass
    expected = "the path of a file, a list of paths, or a table of pandas, Polars or PyArrow"
    raise InputError(subject, [Problem(expected, type(source).__name__)])


def _numbered(table: pa.Table) -> pa.Table:
    """The table with the column `position`."""
    return table.append_column("position", pa.array(np.arange(len(table))))


def _of_frame(frame: pd.DataFrame, wanted: Wanted, subject: str) -> Part:
    positions, called, notes = wanted.positions(list(frame.columns), subject)
    found = {name: _as_arrow(frame.iloc[:, position], name) for name, position in positions.items()}
    table = pa.table({name: array for name, (array, _) in found.items()})
    mixed = {name: problem for name, (_, problem) in found.items() if problem is not None}
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    return Part(called, types, notes, lambda: _numbered(table), frame.index, mixed=mixed)


def _as_arrow(column: pd.Series, name: str) -> tuple[pa.Array | pa.ChunkedArray, Problem | None]:
    """A column of a DataFrame; values of several types become texts, which is a problem of ids."""
    try:
        array = pa.array(column, from_pandas=True)
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        if not pa.types.is_nested(array.type) and not isinstance(array.type, pa.BaseExtensionType):
            return array, None
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    kinds = {type(value).__name__: value for value in column.dropna()}
    examples = ", ".join(f"{quoted(value, is_position=name in COORDINATES)} ({kind})" for kind, value in kinds.items())
    problem = Problem(f"ids of one type in '{name}'", f"several: {examples}")
    if len(kinds) == 1:
        problem = Problem(f"texts or numbers in '{name}'", f"values such as a {next(iter(kinds))}")
    texts = [None if value is None or value is pd.NA or value != value else str(value) for value in column.tolist()]
    return pa.array(texts, pa.string()), problem


def _of_arrow(table: pa.Table, wanted: Wanted, subject: str) -> Part:
    used, part = _columns_of(table.schema, wanted, subject)
    columns = pa.table({name: table.column(used[name]).cast(kind) for name, kind in part.types.items()})
    part.rows = lambda: _numbered(columns)
    return part


def _columns_of(schema: pa.Schema, wanted: Wanted, subject: str) -> tuple[dict[str, str], Part]:
    """The column of each role, and a part whose types are without dictionaries and views."""
    positions, called, notes = wanted.positions(schema.names, subject)
    repeated = [schema.names[k] for k in positions.values() if schema.names.count(schema.names[k]) > 1]
    if repeated:
        raise InputError(subject, [Problem(f"one column {repeated[0]!r}", "several of that name")])
    types = {}
    for name, position in positions.items():
        kind = schema.types[position]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        types[name] = pa.string() if kind in (pa.string_view(), pa.large_string()) else kind
    return {name: schema.names[position] for name, position in positions.items()}, Part(called, types, notes)


# Files


def _of_file(path: Path, wanted: Wanted) -> Part:
    if is_spreadsheet(path):
        return _of_spreadsheet(path, wanted)
    with opened(path) as stream:
        head = stream.read(HEAD_BYTES)
    if head.startswith(PARQUET_START):
        return _of_parquet(path, wanted)
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith((b"{", b"[")):
        return _of_json(path, encoding_of(head), wanted)
    return TextTable(path, head, wanted)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    with opened(path) as stream:
        source = stream if stream.seekable() else io.BytesIO(stream.read())
        # A buffer would keep the bytes of all row groups that were read.
        yield arrow_parquet.ParquetFile(source, pre_buffer=False)


def _of_parquet(path: Path, wanted: Wanted) -> Part:
    with _parquet_file(path) as file:
        schema = file.schema_arrow
    has_degrees = "latitude" in wanted.columns or choose_columns(schema.names, {}, ["latitude"])[0]
    if b"geo" in (schema.metadata or {}) and not has_degrees:
        geopandas = _optional(path, "a GeoParquet file", ["geopandas"])[1]
        with opened(path) as stream:
            frame = geopandas.read_parquet(io.BytesIO(stream.read()))
        return _of_frame(_with_coordinates(frame).reset_index(drop=True), wanted, str(path))
    used, part = _columns_of(schema, wanted, str(path))

    def batches(schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        at = 0
        with _parquet_file(path) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(used.values()))):
                columns = [batch.column(used[name]).cast(kind) for name, kind in part.types.items()]
                numbers = pa.array(np.arange(at, at + len(batch)))
                yield pa.RecordBatch.from_arrays([*columns, numbers], schema=schema)
                at += len(batch)

    def rows() -> pa.RecordBatchReader:
        schema = pa.schema({**part.types, "position": pa.int64()})
        return pa.RecordBatchReader.from_batches(schema, batches(schema))

    part.rows = rows
    return part


def _of_spreadsheet(path: Path, wanted: Wanted) -> Part:
    engine, module = _optional(path, "a spreadsheet", ["python_calamine", "openpyxl"])
    reader = {"header": 0 if wanted.has_header else None, "engine": engine.removeprefix("python_")}
    try:
        sheets = pd.read_excel(path, sheet_name=None, dtype=object, **reader)
    except (getattr(module, "CalamineError", KeyError), KeyError) as error:
        raise ValueError(str(error)) from error
    name, sheet = next(iter(sheets.items()))
    sheet = sheet.convert_dtypes()
    # All numbers of a spreadsheet are of 64 bits with a decimal mark, however they are shown.
    large = [k for k in sheet if is_integer_dtype(sheet[k].dtype) and (sheet[k].abs() >= 2**53).any()]
    sheet = sheet.astype(dict.fromkeys(large, "Float64")).set_axis(sheet.index + 1 + wanted.has_header)
    part = _of_object_frame(path, sheet, wanted)
    part.notes += [f"the first of {len(sheets)} sheets is read: {name!r}"] if len(sheets) > 1 else []
    return part


def _of_json(path: Path, encoding: str, wanted: Wanted) -> Part:
    """A list of objects, or one object on each line; nested ones give columns such as venue.id."""
    with opened(path) as stream:
        lines = stream.read().decode(encoding).splitlines()
    row = [k for k, line in enumerate(lines, 1) if line.strip()]
    is_list = lines[row[0] - 1].lstrip().startswith("[")
    records = []
    try:
        for each in ["\n".join(lines)] if is_list else [lines[k - 1] for k in row]:
            records.append(json.loads(each))
    except json.JSONDecodeError as error:
        expected, found = "JSON that can be parsed", str(error)
        if not is_list:
            expected = "one JSON object on each line, or a list of objects"
            found = f"{error} (row {row[len(records)]})"
        raise InputError(str(path), [Problem(expected, found)]) from error
    if is_list:
        (records,) = records
        row = list(range(1, len(records) + 1))
    if not all(isinstance(record, dict) for record in records):
        raise InputError(str(path), [Problem("a list of JSON objects, one for each row", "other values")])
    return _of_object_frame(path, pd.json_normalize(records).convert_dtypes().set_axis(row), wanted)


def _of_object_frame(path: Path, frame: pd.DataFrame, wanted: Wanted) -> Part:
    """A part of a frame made of a file; values of several types in a column are an error."""
    part = _of_frame(frame.set_axis([str(name) for name in frame.columns], axis=1), wanted, str(path))
    if part.mixed:
        found = str(next(iter(part.mixed.values())))
        raise InputError(str(path), [Problem("values of one type in each column", found)])
    return part


def _optional(path: Path, what: str, modules: Sequence[str]) -> tuple[str, Any]:
    """The first of some optional libraries that is installed, with its name."""
    for name in modules:
        try:
            return name, importlib.import_module(name)
        except ImportError:
            continue
    libraries = " or ".join(name.replace("_", "-") for name in modules)
    way_out = "Install it with pip install 'ppmtf_jax[interop]', or save the table as CSV"
    raise InputError(str(path), [Problem(f"{libraries}, which reads {what}", "it is not installed", way_out=way_out)])
