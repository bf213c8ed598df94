"""Rows of tables in a database, in which everything about them is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as arrow

from ppmtf_jax.datasets.codes import Codes, is_text
from ppmtf_jax.datasets.database import Connection
from ppmtf_jax.datasets.table_files import COORDINATES, Part
from ppmtf_jax.datasets.text_files import UNKNOWN_WORDS, ReadAgain
from ppmtf_jax.errors import N_EXAMPLES, Problem, quoted
from ppmtf_jax.runtime.progress import tell

ID_COLUMNS = ("user", "place", "end_place", "category", "trace", "friend")
# The positions of the rows of a file begin this many rows after those of the file before. The end of a trip is at the
# position of its start plus `END_ROWS`.
FILE_ROWS, END_ROWS = 2**40, 2**39
IS_BEGINNING = f"row % {FILE_ROWS} < {END_ROWS}"
ROWS_AT_A_TIME = 2**20

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")
Prepare = Callable[[Part, np.ndarray, pa.Table], tuple[np.ndarray, pa.Table]]


class Rows:
    """The rows of some parts, as the table `raw` of a database; its column `row` has their order.

    Ids are codes; `ids` gives their values, without blanks around them. Values that are not what a column needs are
    missing, or not-a-number where a coordinate is expected; `problem` looks them up in the source.

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
        self.columns, self.codes, self.n_stored, self.is_recoded = {"row"}, dict[str, Codes](), 0, False
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
        return list(dict.fromkeys(note for part in self.parts for note in (*part.found, *part.notes)))

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
        return f"row {quoted(str(part.label(position % END_ROWS)))[1:-1]}{of_file}"

    def ids(self, name: str) -> pa.Array:
        """The value of each code in a column of ids, as whole numbers if text files write all of them so."""
        return self.codes[name].values(as_numbers=all(part.is_text for part in self.parts))

    def recode(self, name: str, same_as: Mapping[int, int | None]) -> None:
        """Give the rows with some codes of a column another code, or none."""
        if not same_as:
            return
        self.is_recoded = True
        changes = pd.DataFrame({"old": list(same_as), "new": pd.array(list(same_as.values()), "Int32")})
        self.connection.register("changes", changes)
        self.connection.execute(f"UPDATE raw SET {name} = changes.new FROM changes WHERE raw.{name} = changes.old")
        self.connection.unregister("changes")

    def _pieces(self) -> Iterator[tuple[np.ndarray, pa.Table]]:
        for number, part in enumerate(self.parts):
            for row, table in part.pieces():
                table = table if part.is_text else _known(table)
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


def _written(value: Any, name: str) -> str:
    """A value in a message."""
    return "nothing" if pd.isna(value) else quoted(value, is_position=name in COORDINATES)


def _known(table: pa.Table) -> pa.Table:
    """A table in which texts that stand for nothing, and numbers that are none, are missing."""
    for k, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if is_text(column.type):
            unknown = arrow.call_function("is_in", [column], arrow.SetLookupOptions(pa.array(["", *UNKNOWN_WORDS])))
        elif pa.types.is_floating(column.type):
            unknown = arrow.call_function("is_nan", [column])
        else:
            continue
        if arrow.call_function("any", [unknown]).as_py():
            nothing = pa.scalar(None, column.type)
            table = table.set_column(k, name, arrow.call_function("if_else", [unknown, nothing, column]))
    return table


def _numbers(column: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Numbers, missing where there is no value, and not-a-number where a value is none."""
    if pa.types.is_float64(column.type):
        return column
    numbers = pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return pa.array(numbers, mask=column.is_null().to_numpy())
