"""Rows of tables in a database, in which everything about them is computed; and small tables as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.datasets.codes import Codes
from ppmtf_jax.datasets.database import Connection, database
from ppmtf_jax.datasets.table_files import COORDINATES, Part, Source, parts_of
from ppmtf_jax.datasets.text_files import ReadAgain
from ppmtf_jax.errors import N_EXAMPLES, Problem
from ppmtf_jax.runtime.progress import tell

ID_COLUMNS = ("user", "place", "end_place", "category", "trace", "friend")
# The positions of the rows of a file begin this many rows after those of the file before. The end of a trip is at the
# position of its start plus `END_ROWS`.
FILE_ROWS, END_ROWS = 2**40, 2**39
ROWS_AT_A_TIME = 2**20

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
Prepare = Callable[[Part, np.ndarray, pa.Table], tuple[np.ndarray, pa.Table]]


class Columns(NamedTuple):
    """A table, problems of rows that are not in it, notes on it, and the names of its columns in the source.

    The index of the frame is the row number in the file (the header is row 1), or the index of the given table.
    """

    frame: pd.DataFrame
    problems: list[Problem]
    notes: list[str]
    names: dict[str, str]


class Rows:
    """The rows of some parts, as the table `raw` of a database; its column `row` has their order.

    Ids are codes; `ids` gives their values, without blanks around them. Values that are not what a column needs are
    missing; `problem` looks them up in the source.

    Parameters
    ----------
    prepare : function, optional
        Changes each piece before it is stored.
    more : function, optional
        Gives further columns of a piece.
    """

    def __init__(
        self,
        connection: Connection,
        parts: Sequence[Part],
        prepare: Prepare = lambda _, row, table: (row, table),
        more: Callable[[np.ndarray, pa.Table], dict[str, Any]] = lambda *_: {},
    ):
        self.connection, self.parts, self.prepare = connection, parts, prepare
        connection.execute("CREATE OR REPLACE TABLE raw (row BIGINT)")
        self.columns, self.codes, self.n_stored = {"row"}, dict[str, Codes](), 0
        for piece in _ahead(_in_batches(self._stored_columns(more))):
            self._add(piece)
            self.n_stored += len(piece)
            tell(f"importing: {self.n_stored:,} rows read")
        tell("importing: choosing places and events")

    @property
    def problems(self) -> list[Problem]:
        """Problems of rows that could not be split into fields."""
        return [problem for part in self.parts for problem in part.problems]

    @property
    def notes(self) -> list[str]:
        """What was found out about the files."""
        return list(dict.fromkeys(note for part in self.parts for note in part.notes))

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
        positions = [row for (row,) in self.connection.execute(query).fetchall()]
        names = [self.name_of(position) for position in positions]
        if not values:
            return tuple(names)
        found = self.values(values, positions)
        texts = [_written(found[position], values) for position in positions]
        return tuple(f"{text} ({name})" for text, name in zip(texts, names, strict=True))

    def name_of(self, position: int) -> str:
        """The line of a row in its file, or its label in a DataFrame."""
        file, position = divmod(position, FILE_ROWS)
        part = self.parts[file]
        of_file = f" of {part.file}" if len(self.parts) > 1 else ""
        return f"row {part.label(position % END_ROWS)}{of_file}"

    def ids(self, name: str) -> pa.Array:
        """The value of each code in a column of ids, as whole numbers if text files write all of them so."""
        return self.codes[name].values(as_numbers=all(part.is_text for part in self.parts))

    def tidy_ids(self) -> list[str]:
        """Set ids that consist of blanks alone to missing; return a note if there were blanks around ids."""
        padded, n_same = [name for name, codes in self.codes.items() if codes.padded], 0
        for name in padded:
            codes = self.codes[name]
            n_same += codes.n_written - len(codes)
            if "" in codes.padded:
                self.connection.execute(f"UPDATE raw SET {name} = NULL WHERE {name} = {codes.padded['']}")
                n_same -= codes.n_blank - 1
        same = f", and {n_same:,} of the values are then the same as others" if n_same else ""
        return [f"blanks around the values of {' and '.join(padded)} are left out{same}"] if padded else []

    def _pieces(self) -> Iterator[tuple[np.ndarray, pa.Table]]:
        for number, part in enumerate(self.parts):
            for row, table in part.pieces():
                row, table = self.prepare(part, row, table)
                yield row + number * FILE_ROWS, table

    def _stored_columns(self, more: Callable[[np.ndarray, pa.Table], dict[str, Any]]) -> Iterator[pa.Table]:
        for row, table in _ahead(self._pieces()):
            columns = {name: _numbers(table[name]) for name in COORDINATES if name in table.column_names}
            columns |= {"row": row} | more(row, table)
            for name in [name for name in table.column_names if name not in columns]:
                column = table[name]
                columns[name] = self.codes.setdefault(name, Codes()).add(column) if name in ID_COLUMNS else column
            yield pa.table({name: column for name, column in columns.items() if column is not None})

    def _add(self, piece: pa.Table) -> None:
        self.connection.register("piece", piece)
        for name in [name for name in piece.column_names if name not in self.columns]:
            kind = self.one(f'SELECT any_value(column_type) FROM (DESCRIBE SELECT "{name}" FROM piece)')[0]
            self.connection.execute(f'ALTER TABLE raw ADD COLUMN "{name}" {kind}')
            self.columns.add(name)
        self.connection.execute("INSERT INTO raw BY NAME SELECT * FROM piece")
        self.connection.unregister("piece")

    def values(self, name: str, positions: Sequence[int]) -> dict[int, Any]:
        """Values of a column of the source at some rows, which is read again up to the last of them."""
        found: dict[int, Any] = {}
        for part in self.parts:
            part.as_written = True
        for row, table in self._pieces():
            at = np.flatnonzero(np.isin(row, positions))
            found |= dict(zip(row[at].tolist(), table[name].take(at).to_pandas().tolist(), strict=True))
            if len(found) == len(positions):
                break
        for part in self.parts:
            part.as_written = False
        return found


def _in_batches(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join pieces into batches of about `ROWS_AT_A_TIME` rows; the database compresses only large batches."""
    batch: list[pa.Table] = []
    for piece in pieces:
        batch.append(piece)
        if sum(map(len, batch)) >= ROWS_AT_A_TIME:
            yield pa.concat_tables(batch, promote_options="permissive")
            batch = []
    if batch:
        yield pa.concat_tables(batch, promote_options="permissive")


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items; a thread makes the next one while the caller works with this one."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, items, None)
            yield item


def loaded(load: Callable[[], Loaded]) -> Loaded:
    """What `load` returns; it is called again if a file turns out to be written in another way than it seemed."""
    while True:
        try:
            return load()
        except ReadAgain:
            continue


def read_columns(
    source: Source,
    columns: Mapping[str, str | int],
    *,
    find: Sequence[str] = (),
    quote_char: str | bool = '"',
    subject: str,
) -> Columns:
    """Read columns and rename them; ids and columns with numbers only become numbers.

    Raises `InputError`: a file cannot be read, or columns are missing.

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

    Examples
    --------
    >>> table = pd.DataFrame({"uid": [7], "fid": [8], "since": [2009]})
    >>> read_columns(table, {"user": "uid", "friend": "fid"}, subject="friends").frame.to_dict("list")
    {'user': [7], 'friend': [8]}
    """
    parts = parts_of(source, columns, find, quote_char, subject)
    with database() as connection:
        rows = loaded(lambda: Rows(connection, parts))
        notes = rows.notes + rows.tidy_ids()
        wanted = ", ".join(f'"{name}"' for name in ("row", *parts[0].types))
        table = connection.sql(f"SELECT {wanted} FROM raw ORDER BY row").to_arrow_table()
    for name in rows.codes:
        table = table.set_column(table.column_names.index(name), name, rows.ids(name).take(table[name]))
    frame = table.to_pandas(integer_object_nulls=True)
    for name in [name for name in COORDINATES if name in frame and frame[name].isna().any()]:
        missing = frame["row"][frame[name].isna()].tolist()
        if (texts := pd.Series(rows.values(name, missing), dtype=object).dropna()).size:
            # The check of coordinates then lists these texts.
            frame[name] = frame[name].astype(object).mask(frame["row"].isin(texts.index), frame["row"].map(texts))
    if len(parts) == 1:
        frame.index = pd.Index([parts[0].label(position) for position in frame.pop("row").tolist()])
    else:
        frame.index = pd.Index([rows.name_of(position).removeprefix("row ") for position in frame.pop("row").tolist()])
    return Columns(frame, rows.problems, notes, parts[0].names)


def _written(value: Any, name: str) -> str:
    """A value in a message; a number of a text file without quotes."""
    if pd.isna(value):
        return "nothing"
    try:
        return repr(float(value) if name in COORDINATES else value)
    except ValueError:
        return repr(value)


def _numbers(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Numbers, missing where a value is none."""
    if pa.types.is_float64(column.type):
        return column
    return pa.array(pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan))


def _row_examples(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """The first few values of some rows, with the line in the file of each, or its label in a DataFrame."""
    values = column.iloc[rows[:N_EXAMPLES]].tolist()
    texts = ["nothing" if pd.isna(value) else repr(value) for value in values]
    labels = column.index[rows[:N_EXAMPLES]].tolist()
    return tuple(f"{text} (row {label})" for text, label in zip(texts, labels, strict=True))


def whole_numbers(
    column: pd.Series, expected: str, low: int | float = -np.inf, high: int | float = np.inf, way_out: str = ""
) -> tuple[np.ndarray, list[Problem]]:
    """A column as floats, NaN where a value is no whole number from `low` to `high`; and the problem of these rows."""
    value = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)
    bad = ~((value >= low) & (value <= high) & (value % 1 == 0))
    rows = np.flatnonzero(bad)
    problems = [Problem(expected, "others", len(rows), _row_examples(column, rows), way_out)] if len(rows) else []
    return np.where(bad, np.nan, value), problems
