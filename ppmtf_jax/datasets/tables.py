"""Reading columns of tables: text with fields, or Parquet, each plain or compressed, or tables in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv

from ppmtf_jax.datasets.column_names import choose_columns
from ppmtf_jax.datasets.text_files import (
    NAMES_OF_DELIMITERS,
    UNREADABLE,
    TextLayout,
    encoding_of_all,
    look_at,
    opened,
    opened_parquet,
)
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, first_examples

ID_COLUMNS = ("user", "place", "category", "trace", "friend")
PLAIN_INTEGER = r"0|-?[1-9]\d{0,17}"
DECIMAL_COMMA = r"\s*[+-]?\d+(,\d*)?\s*"
# Names of the levels of an index of rows of several files.
ROW_OF_FILE = ["row", "file"]


@runtime_checkable
class ArrowTable(Protocol):
    """A table that others can read without a copy, as of PyArrow and Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@runtime_checkable
class InterchangeTable(Protocol):
    """A table of the DataFrame interchange protocol."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any: ...


Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Source = Files | pd.DataFrame | ArrowTable | InterchangeTable


class Columns(NamedTuple):
    """What was read.

    Attributes
    ----------
    frame : DataFrame
        Its index has the number of each row in the file, the header counted, or what it was in the table given.
    problems : list of Problem
        Of rows that have too few or too many fields, which are not in the frame.
    notes : list of str
        What was found and not told by the caller.
    names : dict of str to str
        What the source calls each column, where it has names.
    """

    frame: pd.DataFrame
    problems: list[Problem]
    notes: list[str]
    names: dict[str, str]


def read_columns(
    source: Source,
    columns: Mapping[str, str | int],
    *,
    find: Sequence[str] = (),
    quote_char: str | bool = '"',
    subject: str,
) -> Columns:
    """Read the given columns under their names here; ids as categories, numbers where all values are numbers.

    Parameters
    ----------
    source : path, list of paths, or table
    columns : mapping
        Name or position in the source of each column.
    find : sequence of str
        Columns to look for besides, by the names that they commonly have; see `column_names`.
    quote_char : str or False
        What encloses texts with commas in them; False: nothing does.
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
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, columns, find, subject)
    if not isinstance(source, (str, os.PathLike, Sequence)):
        table = _arrow_table(source, subject)
        part = _from_arrow(table.column_names, table.select, columns, find, subject)
        return _joined([part], [""], subject)
    paths = paths_of(source)
    parts = []
    for path in paths:
        try:
            parts.append(_read_file(path, columns, find, quote_char))
        except UNREADABLE as error:
            raise error if isinstance(error, InputError) else _unreadable(path, error) from error
    return _joined(parts, [path.name for path in paths], subject)


def paths_of(source: Files) -> list[Path]:
    """The files of a source, at least one."""
    if isinstance(source, (str, os.PathLike)):
        return [Path(source)]
    paths = [Path(path) for path in source]
    if not paths:
        raise InputError("check-ins", [Problem("at least one file", "none")])
    return paths


def codes_of(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Code of each value (-1 where missing) and the distinct values, integers as such and others as objects."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes, values = column.cat.codes.to_numpy(np.int32), pd.Series(column.cat.categories)
        used = np.unique(codes[codes >= 0])
        if len(used) < len(values):
            # Categories that no row has (left over from filtering) are no users or places.
            renamed = np.full(len(values) + 1, -1, np.int32)
            renamed[used] = np.arange(len(used), dtype=np.int32)
            codes, values = renamed[codes], values.iloc[used]
    else:
        codes, distinct = pd.factorize(column)
        values = pd.Series(distinct)
    if not pd.api.types.is_integer_dtype(values.dtype):
        return codes.astype(np.int32), values.to_numpy(object)
    is_large = bool(len(values)) and values.max() > np.iinfo(np.int64).max
    return codes.astype(np.int32), values.to_numpy(np.uint64 if is_large else np.int64)


def row_examples(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """The first few values of some rows, with the name of each row; see `row_names`."""
    values = column.iloc[rows[:N_EXAMPLES]].tolist()
    texts = ["nothing" if pd.isna(value) else repr(value) for value in values]
    return tuple(f"{text} ({name})" for text, name in zip(texts, row_names(column, rows), strict=True))


def row_names(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """What to call the first few of some rows: by their line in the file, or their label in a DataFrame."""
    labels = column.index[rows[:N_EXAMPLES]].tolist()
    if column.index.names == ROW_OF_FILE:
        return tuple(f"row {row} of {file}" for row, file in labels)
    return tuple(f"row {label}" for label in labels)


class _Part(NamedTuple):
    """What one file or table gave: its columns, and the number of each row in it."""

    table: pa.Table
    row: np.ndarray | pd.RangeIndex
    names: dict[str, str]
    problems: list[Problem]
    notes: list[str]


def _positions(
    names: Sequence[object], columns: Mapping[str, str | int], find: Sequence[str], subject: str
) -> tuple[dict[str, int], dict[str, str], list[str]]:
    """Where each column is, what it is called, and which were found by their common names."""
    numbered = {name: column for name, column in columns.items() if isinstance(column, int)}
    if numbered:
        first, last = min(numbered.values()), max(numbered.values())
        if not 0 <= first <= last < len(names):
            raise InputError(subject, [Problem(f"at least {last + 1} columns", f"{len(names) or 'none'}")])
        return numbered, {}, []
    choice = choose_columns(names, columns, find)
    if choice.problems:
        raise InputError(subject, choice.problems)
    notes = [f"column {name!r} is taken for {role}" for role, name in choice.found.items()]
    return choice.position, {role: str(names[k]) for role, k in choice.position.items()}, notes


def _from_frame(source: pd.DataFrame, columns: Mapping[str, str | int], find: Sequence[str], subject: str) -> Columns:
    positions, names, notes = _positions(list(source.columns), columns, find, subject)
    arrays = {name: source.iloc[:, position].array for name, position in positions.items()}
    return Columns(pd.DataFrame(arrays, index=source.index), [], notes, names)


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


def _from_arrow(
    names: Sequence[str],
    read: Callable[[list[str]], pa.Table],
    columns: Mapping[str, str | int],
    find: Sequence[str],
    subject: str,
) -> _Part:
    """From what has columns of some names, and gives a table of those that are asked for."""
    positions, called, notes = _positions(names, columns, find, subject)
    repeated = [names[position] for position in positions.values() if list(names).count(names[position]) > 1]
    if repeated:
        raise InputError(subject, [Problem(f"one column {repeated[0]!r}", "several of that name")])
    table = read(list(dict.fromkeys(names[position] for position in positions.values())))
    arrays = {}
    for name, position in positions.items():
        array = table.column(names[position])
        # Only ids from text files are dictionaries: here the text "7" is meant as a text.
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
    for name in ("latitude", "longitude"):
        if {pa.string(), pa.float64()} <= {table[name].type for table in tables if name in table.column_names}:
            # What is no number in one file is to be listed by its row.
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
    for name in ID_COLUMNS:
        if name in frame and isinstance(frame[name].dtype, pd.CategoricalDtype):
            frame[name] = _integer_ids(frame[name])
    frame.index = index
    return Columns(frame, problems, notes, called)


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(str(path), [Problem("a file to read", "no such file")])
    expected = "a readable CSV, TSV or Parquet file, plain, gzipped or zipped"
    return InputError(str(path), [Problem(expected, str(error) or type(error).__name__)])


def _read_file(path: Path, columns: Mapping[str, str | int], find: Sequence[str], quote_char: str | bool) -> _Part:
    with opened_parquet(path) as parquet:
        if parquet is not None:
            names, read = parquet.schema_arrow.names, lambda used: parquet.read(columns=used)
            return _from_arrow(names, read, columns, find, str(path))
    layout = look_at(path, quote_char)
    try:
        return _read_text(path, layout, columns, find, quote_char)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" not in str(error):
            raise
        return _read_text(path, layout._replace(encoding="latin-1"), columns, find, quote_char)


def _read_text(
    path: Path,
    layout: TextLayout,
    columns: Mapping[str, str | int],
    find: Sequence[str],
    quote_char: str | bool,
) -> _Part:
    """Everything is read as text first: only then can all that is no number be listed, and "007" stay what it is."""
    has_header = not any(isinstance(column, int) for column in columns.values())
    positions, names, notes = _positions(layout.first_fields, columns, find, str(path))
    n_skipped = layout.n_blank + has_header
    invalid: list[arrow_csv.InvalidRow] = []
    try:
        table = _parse(path, layout, positions, n_skipped, quote_char)
    except pa.ArrowInvalid as error:
        if "CSV parse error" not in str(error):
            raise
        layout = layout._replace(encoding=encoding_of_all(path, layout.encoding))
        table = _parse(path, layout, positions, n_skipped, quote_char, invalid)
    row: np.ndarray | pd.RangeIndex = pd.RangeIndex(n_skipped + 1, n_skipped + 1 + len(table) + len(invalid))
    problems = []
    if invalid:
        row = np.setdiff1d(row, [each.number for each in invalid])
        expected = f"{len(layout.first_fields)} fields in every row of {path.name}"
        examples = first_examples([f"{each.text!r} (row {each.number})" for each in invalid[:N_EXAMPLES]])
        problems.append(Problem(expected, "others", len(invalid), examples))
    is_blank = _is_blank(table)
    if is_blank is not None:
        table, row = table.filter(pa.array(~is_blank)), np.asarray(row)[~is_blank]
    arrays = {name: table.column(f"f{position}") for name, position in positions.items()}
    commas = []
    for name in ("latitude", "longitude"):
        if name in arrays:
            arrays[name], has_commas = _as_numbers(arrays[name])
            commas += [name] if has_commas else []
    if commas:
        notes.append(f"{' and '.join(commas)} with decimal commas")
    if layout.delimiter not in "\t,":
        notes.append(f"fields are separated by {NAMES_OF_DELIMITERS[layout.delimiter]}")
    if layout.encoding != "utf-8":
        notes.append("the text is UTF-16" if "16" in layout.encoding else "the text is Latin-1, since it is no UTF-8")
    return _Part(pa.table(arrays), row, names, problems, notes)


def _parse(
    path: Path,
    layout: TextLayout,
    positions: Mapping[str, int],
    n_skipped: int,
    quote_char: str | bool,
    invalid: list[arrow_csv.InvalidRow] | None = None,
) -> pa.Table:
    """The columns as text.

    Rows that have another number of fields than the first line are put into `invalid`, or are an error without it. With
    it, one thread does all: only then it is known where a row is in the file.
    """
    noted = [] if invalid is None else invalid

    def note_invalid(row: arrow_csv.InvalidRow) -> str:
        noted.append(row)
        return "skip"

    text, ids = pa.string(), pa.dictionary(pa.int32(), pa.string())
    types = {f"f{position}": ids if name in ID_COLUMNS else text for name, position in positions.items()}
    with opened(path) as stream:
        return arrow_csv.read_csv(
            stream,
            arrow_csv.ReadOptions(
                encoding=layout.encoding,
                column_names=[f"f{position}" for position in range(len(layout.first_fields))],
                skip_rows=n_skipped,
                use_threads=invalid is None,
            ),
            arrow_csv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char=quote_char,
                # A blank line becomes a row with nothing in it, so that rows can be counted.
                ignore_empty_lines=False,
                invalid_row_handler=None if invalid is None else note_invalid,
            ),
            arrow_csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=True
            ),
        )


def _is_blank(table: pa.Table) -> np.ndarray | None:
    """Which rows have nothing in any column; None where no row has."""
    if not len(table) or not all(column.null_count for column in table.columns):
        return None
    return np.logical_and.reduce([column.is_null().to_numpy() for column in table.columns])


def _as_numbers(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, bool]:
    """Texts as numbers, and whether all have decimal commas; left as they are where some are no numbers.

    The check lists those.
    """
    try:
        return column.cast(pa.float64()), False
    except pa.ArrowInvalid:
        pass
    text = column.to_pandas().astype("str")
    if not text.dropna().str.fullmatch(DECIMAL_COMMA).all():
        return column, False
    return pa.chunked_array([pa.array(text.str.replace(",", "."))]).cast(pa.float64()), True


def _integer_ids(column: pd.Series) -> pd.Series:
    """Ids from a text file as integers if every one is written as a plain integer."""
    categories = column.cat.categories
    if len(categories) and categories.str.fullmatch(PLAIN_INTEGER).all():
        return column.cat.rename_categories(categories.astype("int64"))
    return column
