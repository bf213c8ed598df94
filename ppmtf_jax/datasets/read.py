"""Files and tables of many kinds as a relation of a database: text, JSON, Parquet, spreadsheets, tables in memory.

`Rows` puts the wanted columns into the table `source`, in the order of the rows; everything about them is computed
there. Texts stay texts, so that "007" is an id; coordinates become numbers.
"""

from __future__ import annotations

import bisect
import codecs
import contextlib
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
from ppmtf_jax.datasets.database import Connection
from ppmtf_jax.datasets.parts import COORDINATES, Part, Wanted, readable
from ppmtf_jax.datasets.text_files import HEAD_BYTES, Files, encoding_of, is_spreadsheet, look_at, opened, paths_of
from ppmtf_jax.datasets.text_tables import TextTable
from ppmtf_jax.errors import N_EXAMPLES, Finding, InputError, Problem, quoted
from ppmtf_jax.runtime.progress import tell

PARQUET_START = b"PAR1"
BATCH_ROWS = 2**18
# The row of the end of a trip is that of its start plus `END_ROWS`.
END_ROWS = 2**40
IS_BEGINNING = f"row < {END_ROWS}"


@runtime_checkable
class ArrowTable(Protocol):
    """A table that PyArrow can take without a copy, such as one of Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class InterchangeTable(Protocol):
    """A table of the DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


Source = Files | pd.DataFrame | ArrowTable | InterchangeTable


class Rows:
    """The rows of some parts: the table `source` of a database, and the view `raw` of it.

    `raw` has the order of the rows as the column `row`; a reader may replace it by a view with more rows.
    """

    def __init__(self, connection: Connection, parts: Sequence[Part]):
        self.connection, self.parts, self.starts = connection, parts, [0]
        connection.register("part", pa.schema(parts[0].types).empty_table())
        columns = [f'NULL::DOUBLE AS "{name}"' for name in parts[0].types if name in COORDINATES]
        replaced = f"* REPLACE ({', '.join(columns)})" if columns else "*"
        connection.execute(f"CREATE OR REPLACE TABLE source AS SELECT NULL::BIGINT AS position, {replaced} FROM part")
        for part in parts:
            with readable(Path(part.file)) if part.file else contextlib.nullcontext():
                part.put(connection)
            self.starts.append(self.one("SELECT count(*) FROM source")[0])
            tell(f"importing: {self.starts[-1]:,} rows read")
        connection.unregister("part")
        self.look("SELECT coalesce(position, rowid) AS row, * EXCLUDE (position) FROM source")
        tell("importing: choosing places and events")

    def look(self, query: str) -> None:
        """Let the view `raw` be a query of `source`."""
        self.connection.execute(f"CREATE OR REPLACE VIEW raw AS {query}")
        self.columns = {name: kind for name, kind, *_ in self.connection.execute("DESCRIBE raw").fetchall()}

    @property
    def problems(self) -> list[Problem]:
        """Problems of rows that could not be split into fields."""
        return [problem for part in self.parts for problem in part.problems]

    @property
    def notes(self) -> list[str]:
        """What was found out about the files."""
        return list(dict.fromkeys(note for part in self.parts for note in part.notes))

    @property
    def are_texts(self) -> bool:
        """Whether all rows come from text files."""
        return all(part.is_text for part in self.parts)

    def one(self, query: str) -> tuple:
        """The only row that a query gives."""
        return self.connection.execute(query).fetchall()[0]

    def problem(
        self, where: str, expected: str, found: str = "others", way_out: str = "", values: str = "", table: str = "raw"
    ) -> list[Problem]:
        """A problem with the rows for which a condition holds, if there are any; its examples are as in `examples`."""
        (n_rows,) = self.one(f"SELECT count(*) FROM {table} WHERE {where}")
        if not n_rows:
            return []
        return [Problem(expected, found, n_rows, self.examples(where, values, table), way_out)]

    def examples(self, where: str, values: str = "", table: str = "raw") -> tuple[str, ...]:
        """Names of the first rows for which a condition holds, with their `values` in a column of the source."""
        query = f"SELECT row FROM {table} WHERE {where} ORDER BY row LIMIT {N_EXAMPLES}"
        rows = [row for (row,) in self.connection.execute(query).fetchall()]
        names = [self.name_of(row) for row in rows]
        if not values:
            return tuple(names)
        found = self.values(values, rows)
        return tuple(
            f"{'nothing' if pd.isna(value) else quoted(value, is_position=values in COORDINATES)} ({name})"
            for value, name in zip((found[row] for row in rows), names, strict=True)
        )

    def name_of(self, row: int) -> str:
        """The line of a row in its file, or its label in a DataFrame."""
        number = bisect.bisect_right(self.starts, row % END_ROWS) - 1
        part = self.parts[number]
        of_file = f" of {part.file.rsplit('/', 1)[-1]}" if len(self.parts) > 1 else ""
        labels, position = part.labels, row % END_ROWS - self.starts[number]
        label = position + 1 if labels is None else labels[position]
        return f"row {quoted(str(label))[1:-1]}{of_file}"

    def values(self, name: str, rows: Sequence[int]) -> dict[int, Any]:
        """Values of a column at some rows, coordinates as they are written."""
        listed = ", ".join(map(str, (-1, *rows)))
        if name not in COORDINATES or name not in self.parts[0].types:
            found = self.connection.sql(f'SELECT row, "{name}" FROM raw WHERE row IN ({listed})').df()
            return dict(zip(found["row"].tolist(), found[name].tolist(), strict=True))
        of_source = {}
        for own in [own for own in (name, f"end_{name}") if own in self.parts[0].types]:
            for part, start in zip(self.parts, self.starts, strict=False):
                row = f"{END_ROWS * (own != name) + start} + coalesce(position, row_number() OVER () - 1)"
                query = f'SELECT {row} AS row, "{own}" FROM ({part.relation(self.connection)})'
                of_source |= dict(self.connection.execute(f"FROM ({query}) WHERE row IN ({listed})").fetchall())
        return of_source


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


def _of_frame(frame: pd.DataFrame, wanted: Wanted, subject: str) -> Part:
    positions, called, notes = wanted.positions(list(frame.columns), subject)
    arrays, mixed = {}, {}
    for name, position in positions.items():
        arrays[name], problem = as_arrow(frame.iloc[:, position], name)
        mixed |= {} if problem is None else {name: problem}
    table = pa.table(arrays)
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    return Part(called, types, table, frame.index, notes, mixed=mixed)


def as_arrow(column: pd.Series, name: str) -> tuple[pa.Array | pa.ChunkedArray, Problem | None]:
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
    used, called, types, notes = _columns_of(table.schema, wanted, subject)
    columns = {name: table.column(used[name]).cast(kind) for name, kind in types.items()}
    return Part(called, types, pa.table(columns), notes=notes)


def _columns_of(
    schema: pa.Schema, wanted: Wanted, subject: str
) -> tuple[dict[str, str], dict[str, str], dict[str, pa.DataType], list[str]]:
    """The column of each role, its name, its type without dictionaries and views, and notes."""
    positions, called, notes = wanted.positions(schema.names, subject)
    repeated = [schema.names[k] for k in positions.values() if schema.names.count(schema.names[k]) > 1]
    if repeated:
        raise InputError(subject, [Problem(f"one column {repeated[0]!r}", "several of that name")])
    types = {}
    for name, position in positions.items():
        kind = schema.types[position]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        types[name] = pa.string() if kind in (pa.string_view(), pa.large_string()) else kind
    return {name: schema.names[position] for name, position in positions.items()}, called, types, notes


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
    return TextTable(look_at(path, head, wanted.quote_char), wanted)


class _ParquetTable(Part):
    """A Parquet file, which is read by row groups."""

    def __init__(self, path: Path, schema: pa.Schema, wanted: Wanted):
        self.path = path
        self.used, called, types, notes = _columns_of(schema, wanted, str(path))
        super().__init__(called, types, notes=notes)

    def relation(self, connection: Connection) -> str:
        """As of `Part`."""
        schema = pa.schema({**self.types, "position": pa.int64()})
        connection.register("part", pa.RecordBatchReader.from_batches(schema, self._batches(schema)))
        return self._known("part")

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        at = 0
        with parquet_file(self.path) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(dict.fromkeys(self.used.values()))):
                columns = [batch.column(self.used[name]).cast(kind) for name, kind in self.types.items()]
                numbers = pa.array(np.arange(at, at + len(batch)))
                yield pa.RecordBatch.from_arrays([*columns, numbers], schema=schema)
                at += len(batch)


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """An open Parquet file, which does not keep what was read."""
    with opened(path) as stream:
        source = stream if stream.seekable() else io.BytesIO(stream.read())
        # A buffer would keep the bytes of all row groups that were read.
        yield arrow_parquet.ParquetFile(source, pre_buffer=False)


def _of_parquet(path: Path, wanted: Wanted) -> Part:
    with parquet_file(path) as file:
        schema = file.schema_arrow
    has_degrees = "latitude" in wanted.columns or choose_columns(schema.names, {}, ["latitude"])[0]
    if b"geo" in (schema.metadata or {}) and not has_degrees:
        geopandas = _optional(path, "a GeoParquet file", ["geopandas"])[1]
        with opened(path) as stream:
            frame = geopandas.read_parquet(io.BytesIO(stream.read()))
        return _of_frame(_with_coordinates(frame).reset_index(drop=True), wanted, str(path))
    return _ParquetTable(path, schema, wanted)


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
        lines = stream.read().decode(encoding).removeprefix("\ufeff").splitlines()
    row = [k for k, line in enumerate(lines, 1) if line.strip()]
    is_list = lines[row[0] - 1].lstrip().startswith("[")
    texts = ["\n".join(lines)] if is_list else [lines[k - 1] for k in row]
    records = []
    try:
        for each in texts:
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
