"""Reading columns of tables: CSV, TSV or Parquet, each plain or gzipped, or a DataFrame."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet as arrow_parquet

from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, first_examples, missing_columns

OPTIONAL_COLUMNS = ("place", "category", "trace")
ID_COLUMNS = ("user", "place", "category", "trace", "friend")
PLAIN_INTEGER = r"0|-?[1-9]\d{0,17}"
UNREADABLE = (OSError, ValueError, EOFError, zlib.error)

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | pd.DataFrame


def read_columns(
    source: Source,
    columns: Mapping[str, str | int],
    *,
    optional: bool = False,
    quote_char: str | bool = '"',
    subject: str,
) -> tuple[pd.DataFrame, list[Problem]]:
    """Read the given columns under their names here; ids as categories, numbers where all values are numbers.

    Parameters
    ----------
    source : path, list of paths, or DataFrame
    columns : mapping
        Name or position in the source of each column.
    optional : bool
        Whether the columns place, category and trace may be absent.
    quote_char : str or False
        What encloses texts with commas in them; False: nothing does.
    subject : str
        What errors call the data.

    Returns
    -------
    (DataFrame, list of Problem)
        The table without rows that have too few or too many fields, which are the problems.

    Raises
    ------
    InputError
        A file cannot be read, or columns are missing.

    Examples
    --------
    >>> table = pd.DataFrame({"uid": [7], "fid": [8], "since": [2009]})
    >>> read_columns(table, {"user": "uid", "friend": "fid"}, subject="friends")[0].to_dict("list")
    {'user': [7], 'friend': [8]}
    """
    if isinstance(source, pd.DataFrame):
        present = _present_columns(subject, list(source.columns), columns, optional)
        return pd.DataFrame({name: source[column].array for name, column in present.items()}), []
    tables, problems = [], []
    for path in paths_of(source):
        try:
            table, found = _read_file(path, columns, optional, quote_char)
        except UNREADABLE as error:
            raise error if isinstance(error, InputError) else _unreadable(path, error) from error
        tables.append(table)
        problems += found
    names = {frozenset(table.column_names) for table in tables}
    if len(names) > 1:
        some = ", ".join(sorted(frozenset.union(*names) - frozenset.intersection(*names)))
        raise InputError(subject, [Problem("the same columns in all files", f"{some} in some of them only")])
    try:
        table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    except pa.ArrowException as error:
        raise InputError(subject, [Problem("columns of the same types in all files", str(error))]) from error
    frame = table.to_pandas(self_destruct=True)
    for name in ID_COLUMNS:
        if name in frame and isinstance(frame[name].dtype, pd.CategoricalDtype):
            frame[name] = _integer_ids(frame[name])
    return frame, problems


def paths_of(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files of a source, at least one."""
    if isinstance(source, (str, os.PathLike)):
        return [Path(source)]
    paths = [Path(path) for path in source]
    if not paths:
        raise InputError("check-ins", [Problem("at least one file", "none")])
    return paths


def codes_of(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Code of each value (-1 where missing) and the distinct values: integers as int64, others as objects."""
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
    is_integer = pd.api.types.is_integer_dtype(values.dtype)
    return codes.astype(np.int32), values.to_numpy(np.int64 if is_integer else object)


def row_examples(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """The first few values of some rows, with their row counted from 1."""
    values = column.iloc[rows[:N_EXAMPLES]].tolist()
    texts = ["nothing" if pd.isna(value) else repr(value) for value in values]
    return tuple(f"{text} (row {row + 1})" for text, row in zip(texts, rows[:N_EXAMPLES].tolist(), strict=True))


def _present_columns(
    subject: str, found: Sequence[str], columns: Mapping[str, str | int], optional: bool
) -> dict[str, str]:
    """The name in the file of each column that it has; an `InputError` where needed ones are missing."""
    positions = {name: column for name, column in columns.items() if isinstance(column, int)}
    if positions:
        first, last = min(positions.values()), max(positions.values())
        if not 0 <= first <= last < len(found):
            raise InputError(subject, [Problem(f"at least {last + 1} columns", f"{len(found) or 'none'}")])
        return {name: found[position] for name, position in positions.items()}
    names = {name: str(column) for name, column in columns.items()}
    needed = [column for name, column in names.items() if not (optional and name in OPTIONAL_COLUMNS)]
    for problem in missing_columns(found, needed):
        way_out = f"{problem.way_out}. Tell which column is which with `columns`"
        raise InputError(subject, [replace(problem, way_out=way_out)])
    return {name: column for name, column in names.items() if column in found}


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(str(path), [Problem("a file to read", "no such file")])
    return InputError(str(path), [Problem("a readable CSV, TSV or Parquet file, plain or gzipped", str(error))])


def _read_file(
    path: Path, columns: Mapping[str, str | int], optional: bool, quote_char: str | bool
) -> tuple[pa.Table, list[Problem]]:
    with path.open("rb") as stream:
        is_gzip = stream.read(2) == b"\x1f\x8b"
    with gzip.open(path) if is_gzip else path.open("rb") as stream:
        first_line = stream.readline(1 << 16)
        if first_line.startswith(b"PAR1"):
            stream.seek(0)
            return _read_parquet(path, io.BytesIO(stream.read()) if is_gzip else stream, columns, optional), []
    if b"\0" in first_line:
        raise ValueError("binary content")
    try:
        return _read_text(path, is_gzip, first_line, "utf-8", columns, optional, quote_char)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" not in str(error):
            raise
        return _read_text(path, is_gzip, first_line, "latin-1", columns, optional, quote_char)


def _read_parquet(path: Path, stream: io.BufferedIOBase, columns: Mapping[str, str | int], optional: bool) -> pa.Table:
    file = arrow_parquet.ParquetFile(stream)
    present = _present_columns(str(path), file.schema_arrow.names, columns, optional)
    table = file.read(columns=list(dict.fromkeys(present.values())))
    arrays = {name: table.column(column) for name, column in present.items()}
    for name, array in arrays.items():
        if pa.types.is_dictionary(array.type):
            # Only ids from text files are dictionaries: in Parquet the text "7" is meant as a text.
            arrays[name] = array.cast(array.type.value_type)
    return pa.table(arrays)


def _read_text(
    path: Path,
    is_gzip: bool,
    first_line: bytes,
    encoding: str,
    columns: Mapping[str, str | int],
    optional: bool,
    quote_char: str | bool,
) -> tuple[pa.Table, list[Problem]]:
    """Everything is read as text first: only then can all that is no number be listed, and "007" stay what it is."""
    delimiter = "\t" if b"\t" in first_line else ","
    header = not any(isinstance(column, int) for column in columns.values())
    found = _fields(first_line.decode(encoding, "replace"), delimiter, quote_char)
    if not header:
        found = [f"f{position}" for position in range(len(found))]
    present = _present_columns(str(path), found, columns, optional)
    invalid = []

    def note_invalid(row: arrow_csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    text, ids = pa.string(), pa.dictionary(pa.int32(), pa.string())
    with pa.input_stream(path, compression="gzip" if is_gzip else None) as stream:
        table = arrow_csv.read_csv(
            stream,
            arrow_csv.ReadOptions(encoding=encoding, autogenerate_column_names=not header),
            arrow_csv.ParseOptions(delimiter=delimiter, quote_char=quote_char, invalid_row_handler=note_invalid),
            arrow_csv.ConvertOptions(
                column_types={column: ids if name in ID_COLUMNS else text for name, column in present.items()},
                include_columns=list(dict.fromkeys(present.values())),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    arrays = {name: table.column(column) for name, column in present.items()}
    for name in ("latitude", "longitude"):
        if name in arrays:
            arrays[name] = _as_numbers(arrays[name])
    problems = []
    if invalid:
        examples = first_examples([repr(row.text) for row in invalid[:5]])
        problems.append(Problem(f"{len(found)} fields in every row of {path.name}", "others", len(invalid), examples))
    return pa.table(arrays), problems


def _fields(line: str, delimiter: str, quote_char: str | bool) -> list[str]:
    """The fields of a header line."""
    if not line.strip():
        return []
    quoting = csv.QUOTE_MINIMAL if quote_char else csv.QUOTE_NONE
    return next(csv.reader([line.removeprefix("\ufeff").rstrip("\r\n")], delimiter=delimiter, quoting=quoting))


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as numbers, or left as they are where some are none: then the check lists those."""
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        return column


def _integer_ids(column: pd.Series) -> pd.Series:
    """Ids from a text file as integers if every one is written as a plain integer."""
    categories = column.cat.categories
    if len(categories) and categories.str.fullmatch(PLAIN_INTEGER).all():
        return column.cat.rename_categories(categories.astype("int64"))
    return column
