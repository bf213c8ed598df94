"""Files and tables of many kinds in pieces: text, JSON, Parquet or spreadsheets, and tables in memory."""

from __future__ import annotations

import codecs
import importlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_integer_dtype
from pyarrow import parquet as arrow_parquet

from ppmtf_jax.datasets.column_names import choose_columns
from ppmtf_jax.datasets.text_files import (
    HEAD_BYTES,
    NAMES_OF_DELIMITERS,
    UNREADABLE,
    Files,
    ReadAgain,
    TextFile,
    blocks,
    continued_lines,
    encoding_of,
    is_spreadsheet,
    look_at,
    opened,
    parse,
    paths_of,
)
from ppmtf_jax.errors import N_EXAMPLES, Finding, InputError, Problem, quoted, quoted_error, raise_any

COORDINATES = ("latitude", "longitude", "end_latitude", "end_longitude")
DECIMAL_COMMA = r"[+-]?\d+(,\d*)?"
PARQUET_START = b"PAR1"
PIECE_ROWS = 2**18
# The positions of rows, from 0 in each file, and their wanted columns.
Piece = tuple[np.ndarray, pa.Table]


@runtime_checkable
class ArrowTable(Protocol):
    """A table that PyArrow can take without a copy, such as one of Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class InterchangeTable(Protocol):
    """A table of the DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


Source = Files | pd.DataFrame | ArrowTable | InterchangeTable


@dataclass
class Part:
    """One file or table, whose pieces can be read as often as needed.

    `names` and `types` are those of the columns in the source; `label` gives the name of the row at a position: its
    line in a file, or its label in a DataFrame. `notes` and `problems` are complete when all pieces were read.
    """

    names: dict[str, str]
    types: dict[str, pa.DataType]
    pieces: Callable[[], Iterator[Piece]]
    label: Callable[[int], object] = lambda position: position + 1
    found: list[str] = field(default_factory=list)  # notes before anything is read
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    mixed: dict[str, Problem] = field(default_factory=dict)  # of columns with values of several types
    is_text: bool = False
    as_written: bool = False  # coordinates of a text file as texts
    file: str = ""


class _Wanted(NamedTuple):
    """The columns to read."""

    columns: Mapping[str, str | int]
    find: Sequence[str]
    quote_char: str | bool

    @property
    def has_header(self) -> bool:
        return not any(isinstance(column, int) for column in self.columns.values())

    def positions(self, names: Sequence[object], subject: str) -> tuple[dict[str, int], dict[str, str], list[str]]:
        """Position and name of each column, and notes on those found by their common names."""
        numbered = {name: column for name, column in self.columns.items() if isinstance(column, int)}
        if numbered:
            first, last = min(numbered.values()), max(numbered.values())
            if not 0 <= first <= last < len(names):
                raise InputError(subject, [Problem(f"at least {last + 1} columns", f"{len(names) or 'none'}")])
            return numbered, {}, []
        position, notes, problems = choose_columns(names, self.columns, self.find)
        raise_any(subject, problems)
        return position, {role: str(names[k]) for role, k in position.items()}, notes


def parts_of(
    source: Source, columns: Mapping[str, str | int], find: Sequence[str], quote_char: str | bool, subject: str
) -> list[Part]:
    """The files or the table of a source; see `read_columns`."""
    wanted = _Wanted(columns, find, quote_char)
    if isinstance(source, pd.DataFrame):
        return [_of_frame(_with_coordinates(source), wanted, subject)]
    if not isinstance(source, (str, os.PathLike, Sequence)):
        table = _arrow_table(source, subject)
        return [_of_arrow(table.schema, lambda used: iter([table.select(used)]), wanted, subject)]
    parts, paths = [], paths_of(source)
    empty = [path for path in paths if path.is_file() and not path.stat().st_size] if len(paths) > 1 else []
    for path in [path for path in paths if path not in empty] or paths[:1]:
        with readable(path):
            parts.append(_of_file(path, wanted))
        parts[-1].file = path.name
    if empty:
        names = ", ".join(path.name for path in empty[:N_EXAMPLES])
        text = f"{len(empty):,} of {len(paths):,} files are empty: {names}"
        parts[0].found.append(Finding(text, code="empty-files", n_rows=0))
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


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors of a file that cannot be read into an `InputError`."""
    try:
        yield
    except (InputError, ReadAgain):
        raise
    except FileNotFoundError as error:
        raise InputError(str(path), [Problem("a file to read", "no such file")]) from error
    except UNREADABLE as error:
        expected = "a readable CSV, TSV, JSON, Excel or Parquet file, plain, gzipped or zipped"
        # Errors of parsers quote what they parsed.
        raise InputError(str(path), [Problem(expected, quoted_error(error))]) from None


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


def _of_frame(frame: pd.DataFrame, wanted: _Wanted, subject: str) -> Part:
    positions, called, notes = wanted.positions(list(frame.columns), subject)
    arrays, mixed = {}, {}
    for name, position in positions.items():
        arrays[name], problem = as_arrow(frame.iloc[:, position], name)
        mixed |= {} if problem is None else {name: problem}
    table = pa.table(arrays)
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    return Part(called, types, lambda: _cut(iter([table])), frame.index.__getitem__, found=notes, mixed=mixed)


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


def _of_arrow(
    schema: pa.Schema, read: Callable[[list[str]], Iterator[pa.Table]], wanted: _Wanted, subject: str
) -> Part:
    """A part of Arrow tables; `read` gets names of columns and gives tables of these columns."""
    positions, called, notes = wanted.positions(schema.names, subject)
    repeated = [schema.names[k] for k in positions.values() if schema.names.count(schema.names[k]) > 1]
    if repeated:
        raise InputError(subject, [Problem(f"one column {repeated[0]!r}", "several of that name")])
    types = {}
    for name, position in positions.items():
        kind = schema.types[position]
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        types[name] = pa.string() if kind in (pa.string_view(), pa.large_string()) else kind
    used = {name: schema.names[position] for name, position in positions.items()}

    def tables() -> Iterator[pa.Table]:
        for table in read(list(dict.fromkeys(used.values()))):
            yield pa.table({name: table.column(used[name]).cast(kind) for name, kind in types.items()})

    return Part(called, types, lambda: _cut(tables()), found=notes)


def _cut(tables: Iterator[pa.Table]) -> Iterator[Piece]:
    """Pieces of at most `PIECE_ROWS` rows."""
    first = 0
    for table in tables:
        for begin in range(0, max(len(table), 1), PIECE_ROWS):
            piece = table.slice(begin, PIECE_ROWS)
            yield first + np.arange(len(piece)), piece
            first += len(piece)


# Files


def _of_file(path: Path, wanted: _Wanted) -> Part:
    if is_spreadsheet(path):
        return _of_spreadsheet(path, wanted)
    with opened(path) as stream:
        head = stream.read(HEAD_BYTES)
        if head.startswith(PARQUET_START):
            return _of_parquet(path, wanted)
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith((b"{", b"[")):
        return _of_json(path, encoding_of(head), wanted)
    return _TextTable(look_at(path, head, wanted.quote_char), wanted)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    with opened(path) as stream:
        source = stream if stream.seekable() else io.BytesIO(stream.read())
        # A buffer would keep the bytes of all row groups that were read.
        yield arrow_parquet.ParquetFile(source, pre_buffer=False)


def _of_parquet(path: Path, wanted: _Wanted) -> Part:
    with _parquet_file(path) as file:
        schema = file.schema_arrow
    has_degrees = "latitude" in wanted.columns or choose_columns(schema.names, {}, ["latitude"])[0]
    if b"geo" in (schema.metadata or {}) and not has_degrees:
        geopandas = _optional(path, "a GeoParquet file", ["geopandas"])[1]
        with opened(path) as stream:
            frame = geopandas.read_parquet(io.BytesIO(stream.read()))
        return _of_frame(_with_coordinates(frame).reset_index(drop=True), wanted, str(path))

    def read(used: list[str]) -> Iterator[pa.Table]:
        yield schema.empty_table()
        with readable(path), _parquet_file(path) as file:
            for batch in file.iter_batches(PIECE_ROWS, columns=used):
                yield pa.Table.from_batches([batch])

    return _of_arrow(schema, read, wanted, str(path))


def _of_spreadsheet(path: Path, wanted: _Wanted) -> Part:
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
    part = _of_object_frame(path, sheet.astype(dict.fromkeys(large, "Float64")), wanted)
    part.notes += [f"the first of {len(sheets)} sheets is read: {name!r}"] if len(sheets) > 1 else []
    part.label = lambda position: position + 1 + wanted.has_header
    return part


def _of_json(path: Path, encoding: str, wanted: _Wanted) -> Part:
    """A list of objects, or one object on each line; nested ones give columns such as venue.id."""
    with opened(path) as stream:
        lines = stream.read().decode(encoding).removeprefix("\ufeff").splitlines()
    row = [k for k, line in enumerate(lines, 1) if line.strip()]
    is_list = lines[row[0] - 1].lstrip().startswith("[")
    texts = ["\n".join(lines)] if is_list else [lines[k - 1] for k in row]
    records = []
    try:
        for text in texts:
            records.append(json.loads(text))
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
    part = _of_object_frame(path, pd.json_normalize(records).convert_dtypes(), wanted)
    part.label = row.__getitem__
    return part


def _of_object_frame(path: Path, frame: pd.DataFrame, wanted: _Wanted) -> Part:
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


class _TextTable(Part):
    """A text file. Ids and times are read as texts, so that "007" stays a text and errors can list wrong values."""

    def __init__(self, text: TextFile, wanted: _Wanted):
        self.text, self.wanted = text, wanted
        self.positions, names, found = wanted.positions(text.first_fields, str(text.path))
        types = {name: pa.float64() if name in COORDINATES else pa.string() for name in self.positions}
        super().__init__(names, types, self.read, self.line_of, found, is_text=True)
        self.n_skipped = text.n_blank + wanted.has_header
        self.continued: np.ndarray | None = None
        self.may_have_commas = True

    def line_of(self, position: int) -> int:
        """The line at which the row at a position begins."""
        line = self.n_skipped + 1 + position
        if self.continued is None:
            return line
        before = self.continued - np.arange(len(self.continued))  # lines that begin a row, before each that does not
        return line + int(np.searchsorted(before, line, side="right"))

    def read(self) -> Iterator[Piece]:
        """The pieces; `ReadAgain` where a later row shows that the file is written in another way."""
        with readable(self.text.path):
            try:
                yield from self._pieces()
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                if self.text.encoding != "utf-8" or "utf" not in str(error).lower():
                    raise
                self.text = self.text._replace(encoding="latin-1")
                raise ReadAgain from error

    def _pieces(self) -> Iterator[Piece]:
        text, first, invalid, n_invalid, n_skipped = self.text, 0, [], 0, self.n_skipped
        commas, others = set(), set()  # columns of coordinates with decimal commas, and with other values
        texts = [name for name in self.positions if self.as_written or name not in COORDINATES]
        types = dict.fromkeys(self.positions.values(), pa.float64())
        types |= {self.positions[name]: pa.string() for name in texts}
        for block, n_lines in blocks(text, self.continued):
            try:
                table, bad = parse(block, text, types, n_skipped, newlines_in_values=self.continued is not None)
            except pa.ArrowInvalid as error:
                if "conversion error" not in str(error):
                    raise
                # Some coordinates are not plain numbers.
                types = dict.fromkeys(types, pa.string())
                table, bad = parse(block, text, types, n_skipped, newlines_in_values=self.continued is not None)
            n_rows = len(table) + len(bad)
            if self.continued is None and text.quote_char and n_rows < n_lines - n_skipped:
                # Some row has several lines: its text contains line breaks, or a quote is not closed.
                self.continued = continued_lines(text)
                raise ReadAgain
            index = [each.number - 1 - n_skipped for each in bad]
            fields = [each.actual_columns for each in bad]
            invalid += [(first + k, n) for k, n in zip(index, fields, strict=True)][: N_EXAMPLES - len(invalid)]
            n_invalid += len(bad)
            row = first + (np.delete(np.arange(n_rows), index) if bad else np.arange(n_rows))
            first, n_skipped = first + n_rows, 0
            arrays = {name: table.column(f"f{position}") for name, position in self.positions.items()}
            if len(table) and all(column.null_count for column in arrays.values()):
                is_blank = np.logical_and.reduce([column.is_null().to_numpy() for column in arrays.values()])
                arrays = {name: column.filter(pa.array(~is_blank)) for name, column in arrays.items()}
                row = row[~is_blank]
            for name in [name for name in COORDINATES if name in arrays and not self.as_written]:
                arrays[name] = self._degrees(name, arrays[name], commas, others)
            yield row, pa.table(arrays)
        if self.as_written:
            return
        if self.may_have_commas and commas & others:
            self.may_have_commas = False
            raise ReadAgain
        self.problems, self.notes = [], []
        if n_invalid:
            expected = f"{len(text.first_fields)} fields in every row of {text.path.name}"
            examples = tuple(f"{n} (row {self.line_of(position)})" for position, n in invalid)
            self.problems.append(Problem(expected, "others", n_invalid, examples))
        if commas and self.may_have_commas:
            ordered = [name for name in COORDINATES if name in commas]
            self.notes.append(f"{' and '.join(ordered)} with decimal commas")
        if text.delimiter not in "\t,":
            self.notes.append(f"fields are separated by {NAMES_OF_DELIMITERS[text.delimiter]}")
        if text.encoding != "utf-8":
            is_wide = "16" in text.encoding
            self.notes.append("the text is UTF-16" if is_wide else "the text is Latin-1, since it is not UTF-8")

    def _degrees(self, name: str, column: pa.ChunkedArray, commas: set[str], others: set[str]) -> pa.ChunkedArray:
        """Numbers, not-a-number where a text is none; decimal commas are read if all values may have one."""
        try:
            numbers = column.cast(pa.float64())
        except pa.ArrowInvalid:
            texts = column.to_pandas().astype("str").str.strip()
            if texts.str.contains(",", regex=False).any():
                commas.add(name)
            if self.may_have_commas and texts.dropna().str.fullmatch(DECIMAL_COMMA).all():
                return pa.chunked_array([pa.array(texts.str.removeprefix("+").str.replace(",", "."))]).cast(
                    pa.float64()
                )
            others.add(name)
            degrees = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64, na_value=np.nan)
            return pa.chunked_array([pa.array(degrees, mask=texts.isna().to_numpy())])
        if name not in others and (np.nan_to_num(numbers.to_numpy()) % 1 != 0).any():
            others.add(name)
        return numbers
