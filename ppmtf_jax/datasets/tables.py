"""Reading columns of tables: text, JSON, Parquet or spreadsheets, plain or compressed, or tables in memory."""

from __future__ import annotations

import codecs
import importlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet as arrow_parquet

from ppmtf_jax.datasets.column_names import choose_columns
from ppmtf_jax.datasets.text_files import (
    HEAD_BYTES,
    NAMES_OF_DELIMITERS,
    UNREADABLE,
    TextFile,
    encoding_of,
    is_spreadsheet,
    look_at,
    opened,
    parse,
)
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, first_examples

ID_COLUMNS = ("user", "place", "end_place", "category", "trace", "friend")
COORDINATES = ("latitude", "longitude", "end_latitude", "end_longitude")
PLAIN_INTEGER = r"0|-?[1-9]\d{0,17}"
DECIMAL_COMMA = r"\s*[+-]?\d+(,\d*)?\s*"
# Names of the levels of an index of rows of several files.
ROW_OF_FILE = ["row", "file"]
PARQUET_START = b"PAR1"


@runtime_checkable
class ArrowTable(Protocol):
    """A table that PyArrow can take without a copy, such as one of Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class InterchangeTable(Protocol):
    """A table of the DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


Number = int | float
Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Source = Files | pd.DataFrame | ArrowTable | InterchangeTable


class Columns(NamedTuple):
    """A table, problems of rows that are not in it, notes on it, and the names of its columns in the source.

    The index of the frame is the row number in the file (the header is row 1), or the index of the given table.
    """

    frame: pd.DataFrame
    problems: list[Problem]
    notes: list[str]
    names: dict[str, str]


class _Part(NamedTuple):
    """One file or table: its columns, and the number of each row."""

    table: pa.Table
    row: np.ndarray | pd.RangeIndex
    names: dict[str, str]
    problems: list[Problem]
    notes: list[str]


class _Wanted(NamedTuple):
    """The arguments of `read_columns`."""

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
        if problems:
            raise InputError(subject, problems)
        return position, {role: str(names[k]) for role, k in position.items()}, notes


def read_columns(
    source: Source,
    columns: Mapping[str, str | int],
    *,
    find: Sequence[str] = (),
    quote_char: str | bool = '"',
    subject: str,
) -> Columns:
    """Read columns and rename them; ids become categories, and columns with numbers only become numbers.

    Parameters
    ----------
    source : path of a file or folder, list of paths, or table
        All files of a folder are read.
    columns : mapping
        For each new name of a column, its name or position in the source.
    find : sequence of str
        Further columns to find by their common names; see `column_names`.
    quote_char : str or False
        What encloses texts that contain delimiters; False: nothing does.
    subject : str
        What errors call the data.

    Raises
    ------
    InputError
        A file cannot be read, or columns are missing.

    Examples
    --------
    >>> table = pd.DataFrame({"uid": [7], "fid": [8], "since": [2009]})
    >>> read_columns(table, {"user": "uid", "friend": "fid"}, subject="friends").frame.to_dict("list")
    {'user': [7], 'friend': [8]}
    """
    wanted = _Wanted(columns, find, quote_char)
    if isinstance(source, pd.DataFrame):
        source = _with_coordinates(source)
        positions, names, notes = wanted.positions(list(source.columns), subject)
        arrays = {name: source.iloc[:, position].array for name, position in positions.items()}
        frame = pd.DataFrame(arrays, index=source.index)
        return Columns(frame, [], notes + _tidy_ids(frame), names)
    if not isinstance(source, (str, os.PathLike, Sequence)):
        table = _arrow_table(source, subject)
        return _joined([_from_arrow(table.column_names, table.select, wanted, subject)], [""], subject)
    paths = paths_of(source)
    parts = []
    for path in paths:
        try:
            parts.append(_read_file(path, wanted))
        except UNREADABLE as error:
            raise error if isinstance(error, InputError) else _unreadable(path, error) from error
    return _joined(parts, [path.name for path in paths], subject)


def paths_of(source: Files) -> list[Path]:
    """The files of a source, at least one; for a folder, all files that are not hidden."""
    given = [Path(source)] if isinstance(source, (str, os.PathLike)) else [Path(path) for path in source]
    if not given:
        raise InputError("check-ins", [Problem("at least one file", "none")])
    paths = []
    for path in given:
        inside = [path]
        if path.is_dir():
            inside = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "_")))
        if not inside:
            raise InputError(str(path), [Problem("a file, or a folder of files", "a folder without files")])
        paths += inside
    return paths


def codes_of(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Code of each value (-1 where missing) and the distinct values, integers as such and others as objects."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        if not np.bincount(column.cat.codes + 1, minlength=len(column.cat.categories) + 1)[1:].all():
            # Categories without rows, left over from filtering, are neither users nor places.
            column = column.cat.remove_unused_categories()
        codes, values = column.cat.codes.to_numpy(), pd.Series(column.cat.categories)
    else:
        codes, distinct = pd.factorize(column)
        values = pd.Series(distinct)
    if not pd.api.types.is_integer_dtype(values.dtype):
        return codes.astype(np.int32), values.to_numpy(object)
    is_large = bool(len(values)) and values.max() > np.iinfo(np.int64).max
    return codes.astype(np.int32), values.to_numpy(np.uint64 if is_large else np.int64)


def row_problems(
    column: pd.Series, bad: np.ndarray, expected: str, found: str = "others", way_out: str = ""
) -> list[Problem]:
    """A problem with the first few values of bad rows (bool array), if there are any."""
    rows = np.flatnonzero(bad)
    return [Problem(expected, found, len(rows), row_examples(column, rows), way_out)] if len(rows) else []


def row_examples(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """The first few values of some rows, with the name of each row; see `row_names`."""
    values = column.iloc[rows[:N_EXAMPLES]].tolist()
    texts = ["nothing" if pd.isna(value) else repr(value) for value in values]
    return tuple(f"{text} ({name})" for text, name in zip(texts, row_names(column, rows), strict=True))


def whole_numbers(
    column: pd.Series, expected: str, low: Number = -np.inf, high: Number = np.inf, way_out: str = ""
) -> tuple[np.ndarray, list[Problem]]:
    """A column as floats, NaN where a value is no whole number from `low` to `high`; and the problem of these rows."""
    value = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)
    bad = ~((value >= low) & (value <= high) & (value % 1 == 0))
    return np.where(bad, np.nan, value), row_problems(column, bad, expected, way_out=way_out)


def row_names(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """Names of the first few of some rows: the line in the file, or the label in a DataFrame."""
    labels = column.index[rows[:N_EXAMPLES]].tolist()
    if column.index.names == ROW_OF_FILE:
        return tuple(f"row {row} of {file}" for row, file in labels)
    return tuple(f"row {label}" for label in labels)


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


def _from_arrow(names: Sequence[str], read: Callable[[list[str]], pa.Table], wanted: _Wanted, subject: str) -> _Part:
    """The wanted columns; `read` gets names of columns and returns a table of these columns."""
    positions, called, notes = wanted.positions(names, subject)
    repeated = [names[position] for position in positions.values() if list(names).count(names[position]) > 1]
    if repeated:
        raise InputError(subject, [Problem(f"one column {repeated[0]!r}", "several of that name")])
    table = read(list(dict.fromkeys(names[position] for position in positions.values())))
    arrays = {}
    for name, position in positions.items():
        array = table.column(names[position])
        # Dictionaries mark ids from text files, where "7" is read as a number. In these tables, "7" is meant as a text.
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        is_view = kind in (pa.string_view(), pa.binary_view())
        arrays[name] = array.cast(pa.large_string() if is_view else kind)
    return _Part(pa.table(arrays), pd.RangeIndex(1, len(table) + 1), called, [], notes)


def _joined(parts: list[_Part], files: list[str], subject: str) -> Columns:
    names = {frozenset(part.table.column_names) for part in parts}
    if len(names) > 1:
        some = ", ".join(sorted(frozenset.union(*names) - frozenset.intersection(*names)))
        raise InputError(subject, [Problem("the same columns in all files", f"{some} in some of them only")])
    tables = [part.table for part in parts]
    for name in COORDINATES:
        if {pa.string(), pa.float64()} <= {table[name].type for table in tables if name in table.column_names}:
            # Texts, so that the check of coordinates lists the values that are not numbers.
            at = tables[0].column_names.index(name)
            tables = [table.set_column(at, name, table[name].cast(pa.string())) for table in tables]
    try:
        table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    except pa.ArrowException as error:
        raise InputError(subject, [Problem("columns of the same types in all files", str(error))]) from error
    problems = [problem for part in parts for problem in part.problems]
    notes = list(dict.fromkeys(note for part in parts for note in part.notes))
    index = pd.Index(parts[0].row)
    if len(parts) > 1:
        file = np.repeat(np.array(files, object), [len(part.row) for part in parts])
        index = pd.MultiIndex.from_arrays([np.concatenate([part.row for part in parts]), file], names=ROW_OF_FILE)
    called = parts[0].names
    del parts, tables
    frame = table.to_pandas(self_destruct=True)
    frame.index = index
    return Columns(frame, problems, notes + _tidy_ids(frame), called)


def _tidy_ids(frame: pd.DataFrame) -> list[str]:
    """Remove blanks around ids, and note which columns had them; plain integers of text files become integers."""
    padded, n_same = [], 0
    for name in ID_COLUMNS:
        is_text_file = name in frame and isinstance(frame[name].dtype, pd.CategoricalDtype)
        if name not in frame or not (is_text_file or pd.api.types.is_string_dtype(frame[name])):
            continue
        codes, values = codes_of(frame[name])
        if not all(isinstance(value, str) for value in values):
            continue
        ids = pd.Series(values, dtype="str")
        stripped = ids.str.strip()
        if (stripped != ids).any():
            padded.append(name)
            renamed, ids = pd.factorize(stripped.where(stripped != "", None))
            n_same += int((renamed >= 0).sum()) - len(ids)
            codes = np.append(renamed, -1)[codes].astype(np.int32)
        if is_text_file and len(ids) and pd.Series(ids).str.fullmatch(PLAIN_INTEGER).all():
            ids = np.asarray(ids).astype(np.int64)
        frame[name] = pd.Categorical.from_codes(codes, pd.Index(ids))
    same = f", and {n_same:,} of the values are then the same as others" if n_same else ""
    return [f"blanks around the values of {' and '.join(padded)} are left out{same}"] if padded else []


# Files


def _read_file(path: Path, wanted: _Wanted) -> _Part:
    if is_spreadsheet(path):
        return _read_spreadsheet(path, wanted)
    with opened(path) as stream:
        head = stream.read(HEAD_BYTES)
        if head.startswith(PARQUET_START):
            if not stream.seekable():
                stream = io.BytesIO(head + stream.read())
            return _read_parquet(path, stream, wanted)
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith((b"{", b"[")):
        return _read_json(path, encoding_of(head), wanted)
    text = look_at(path, head, wanted.quote_char)
    try:
        return _read_text(text, wanted)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        if text.encoding != "utf-8" or "utf" not in str(error).lower():
            raise
        return _read_text(text._replace(encoding="latin-1"), wanted)


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(str(path), [Problem("a file to read", "no such file")])
    expected = "a readable CSV, TSV, JSON, Excel or Parquet file, plain, gzipped or zipped"
    return InputError(str(path), [Problem(expected, str(error) or type(error).__name__)])


def _read_parquet(path: Path, stream: Any, wanted: _Wanted) -> _Part:
    stream.seek(0)
    parquet = arrow_parquet.ParquetFile(stream)
    schema = parquet.schema_arrow
    has_degrees = "latitude" in wanted.columns or choose_columns(schema.names, {}, ["latitude"])[0]
    if b"geo" in (schema.metadata or {}) and not has_degrees:
        geopandas = _optional(path, "a GeoParquet file", ["geopandas"])[1]
        stream.seek(0)
        return _from_pandas(path, _with_coordinates(geopandas.read_parquet(stream)), wanted)
    return _from_arrow(schema.names, lambda used: parquet.read(columns=used), wanted, str(path))


def _read_spreadsheet(path: Path, wanted: _Wanted) -> _Part:
    engine, module = _optional(path, "a spreadsheet", ["python_calamine", "openpyxl"])
    reader = {"header": 0 if wanted.has_header else None, "engine": engine.removeprefix("python_")}
    try:
        sheets = pd.read_excel(path, sheet_name=None, dtype=object, **reader)
    except (getattr(module, "CalamineError", KeyError), KeyError) as error:
        raise _unreadable(path, error) from error
    name, sheet = next(iter(sheets.items()))
    part = _from_pandas(path, sheet.convert_dtypes(), wanted)
    notes = part.notes + ([f"the first of {len(sheets)} sheets is read: {name!r}"] if len(sheets) > 1 else [])
    return part._replace(row=pd.RangeIndex(1 + wanted.has_header, 1 + wanted.has_header + len(sheet)), notes=notes)


def _read_json(path: Path, encoding: str, wanted: _Wanted) -> _Part:
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
        row = range(1, len(records) + 1)
    if not all(isinstance(record, dict) for record in records):
        raise InputError(str(path), [Problem("a list of JSON objects, one for each row", "other values")])
    frame = pd.json_normalize(records).convert_dtypes()
    return _from_pandas(path, frame, wanted)._replace(row=np.array(row, np.int64))


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


def _from_pandas(path: Path, frame: pd.DataFrame, wanted: _Wanted) -> _Part:
    names = [str(name) for name in frame.columns]

    def read(used: list[str]) -> pa.Table:
        chosen = frame.iloc[:, [names.index(name) for name in used]].set_axis(used, axis=1)
        try:
            return pa.Table.from_pandas(chosen, preserve_index=False)
        except pa.ArrowException as error:
            raise InputError(str(path), [Problem("values of one type in each column", str(error))]) from error

    return _from_arrow(names, read, wanted, str(path))


def _read_text(text: TextFile, wanted: _Wanted) -> _Part:
    """Read all values as text first, so that errors can list values that are not numbers, and "007" stays a text."""
    positions, names, notes = wanted.positions(text.first_fields, str(text.path))
    ids = pa.dictionary(pa.int32(), pa.string())
    types = {k: ids if name in ID_COLUMNS else pa.string() for name, k in positions.items()}
    table, row, invalid = parse(text, types, text.n_blank + wanted.has_header)
    problems = []
    if invalid:
        expected = f"{len(text.first_fields)} fields in every row of {text.path.name}"
        examples = first_examples([f"{each.text!r} (row {each.number})" for each in invalid[:N_EXAMPLES]])
        problems.append(Problem(expected, "others", len(invalid), examples))
    if len(table) and all(column.null_count for column in table.columns):
        is_blank = np.logical_and.reduce([column.is_null().to_numpy() for column in table.columns])
        table, row = table.filter(pa.array(~is_blank)), np.asarray(row)[~is_blank]
    arrays = {name: table.column(f"f{position}") for name, position in positions.items()}
    commas = []
    for name in [name for name in COORDINATES if name in arrays]:
        try:
            arrays[name] = arrays[name].cast(pa.float64())
        except pa.ArrowInvalid:
            values = arrays[name].to_pandas().astype("str")
            # If some values are not numbers, all stay texts, so that the check of coordinates lists the wrong ones.
            if values.dropna().str.fullmatch(DECIMAL_COMMA).all():
                arrays[name] = pa.chunked_array([pa.array(values.str.replace(",", "."))]).cast(pa.float64())
                commas.append(name)
    if commas:
        notes.append(f"{' and '.join(commas)} with decimal commas")
    if text.delimiter not in "\t,":
        notes.append(f"fields are separated by {NAMES_OF_DELIMITERS[text.delimiter]}")
    if text.encoding != "utf-8":
        notes.append("the text is UTF-16" if "16" in text.encoding else "the text is Latin-1, since it is not UTF-8")
    return _Part(pa.table(arrays), row, names, problems, notes)
