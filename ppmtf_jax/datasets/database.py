"""The database in which tables of any size are imported: it streams, uses all cores and spills to disk.

`Rows` has the rows of some files or tables there. Texts stay texts, so that "007" is an id; coordinates become numbers.
"""

from __future__ import annotations

import bisect
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, quoted
from ppmtf_jax.runtime.files import removed_if_stopped
from ppmtf_jax.runtime.memory import available_bytes
from ppmtf_jax.runtime.progress import tell

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

    from ppmtf_jax.datasets.parts import Part
else:
    Connection = Any
FOLDER_START, OLD_S = "ppmtf-import-", 60
# Beyond this memory DuckDB writes to disk; Arrow, NumPy and the result need as much again.
MOST_BYTES, SHARE = 1_000_000_000, 4
COORDINATES = ("latitude", "longitude", "end_latitude", "end_longitude")
# The row of the end of a trip is that of its start plus `END_ROWS`.
END_ROWS = 2**40
IS_BEGINNING = f"row < {END_ROWS}"


@contextmanager
def database() -> Iterator[Connection]:
    """An empty database in a temporary folder, which also takes what does not fit into the memory.

    The folder is removed at the end. It is made where `tempfile` makes its files, so the variable TMPDIR moves it. If
    a process is killed, an import that begins at least `OLD_S` seconds later removes its folder.
    """
    # Imported late: beside JAX, DuckDB 2.0.0 complains of leaks at the end of a program, even of one without a table.
    import duckdb
    from filelock import lock_descriptor

    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{FOLDER_START}*/lock"):
        with suppress(OSError):
            lock = os.open(left, os.O_RDWR)
            is_free = lock_descriptor(lock, blocking=False)
            os.close(lock)
            # A new folder may not be locked yet.
            if is_free and time.time() - left.stat().st_mtime > OLD_S:
                shutil.rmtree(left.parent)
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_START, dir=place))
    most = min(MOST_BYTES, (available_bytes() or SHARE * MOST_BYTES) // SHARE)
    # An import of secrets needs nothing from the network.
    settings = {
        "temp_directory": str(folder),
        "autoinstall_known_extensions": False,
        "memory_limit": f"{most >> 20}MiB",
    }
    with removed_if_stopped(folder):
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        lock_descriptor(lock, blocking=True)
        try:
            with duckdb.connect(config=settings) as connection:
                # In a file, tables are compressed, which takes longer than to read a text file. What the memory does
                # not hold goes to the folder.
                where = f"SET VARIABLE import_folder = {text(str(folder))}"
                connection.execute(f"ATTACH ':memory:' AS import; USE import; {where}")
                # In `python -c` and in notebooks, DuckDB would print its own progress to standard output. In a notebook
                # without ipywidgets it prints nothing, and refuses the setting.
                with suppress(duckdb.InvalidInputException):
                    connection.execute("SET enable_progress_bar = false")
                yield connection
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            way_out = "Set the variable TMPDIR to a folder on a disk with more room"
            problem = Problem("memory and disk for the rows", str(error), way_out=way_out)
            raise InputError("import", [problem]) from error
        finally:
            os.close(lock)


def floored(value: str, step: int) -> str:
    """SQL of a whole number divided by a step and rounded down, also below 0."""
    return f"CAST(floor(({value}) / {step}) AS BIGINT)"


def number(value: float | int) -> str:
    """SQL of a number; a bare decimal number would not be a floating-point one."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def text(value: str) -> str:
    """SQL of a text."""
    return "'" + value.replace("'", "''") + "'"


def columns_of(connection: Connection, query: str) -> list[Any]:
    """The columns that a query gives, as arrays."""
    return list(connection.sql(query).fetchnumpy().values())


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
            part.put(connection, self.starts[-1])
            self.starts.append(self.one("SELECT count(*) FROM source")[0])
            tell(f"importing: {self.starts[-1]:,} rows read")
        connection.unregister("part")
        self.look("SELECT coalesce(position, rowid) AS row, * EXCLUDE (position) FROM source")
        # Problems of rows that could not be split into fields; what was found out; whether all files are texts.
        self.problems = [problem for part in parts for problem in part.problems]
        self.are_texts = all(part.is_text for part in parts)
        tell("importing: choosing places and events")

    def look(self, query: str) -> None:
        """Let the view `raw` be a query of `source`."""
        self.connection.execute(f"CREATE OR REPLACE VIEW raw AS {query}")
        self.columns = {name: kind for name, kind, *_ in self.connection.execute("DESCRIBE raw").fetchall()}

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
        rows = [row for (row,) in self.connection.execute(query).fetchall()]
        names = [self.name_of(row) for row in rows]
        if not values:
            return tuple(names)
        found = self.values(values, rows)
        shown = [quoted(found[row], is_position=values in COORDINATES) for row in rows]
        shown = ["nothing" if pd.isna(found[row]) else each for row, each in zip(rows, shown, strict=True)]
        return tuple(f"{value} ({name})" for value, name in zip(shown, names, strict=True))

    def name_of(self, row: int) -> str:
        """The line of a row in its file, or its label in a DataFrame."""
        number = bisect.bisect_right(self.starts, row % END_ROWS) - 1
        part, position = self.parts[number], row % END_ROWS - self.starts[number]
        of_file = f" of {part.file.rsplit('/', 1)[-1]}" if len(self.parts) > 1 else ""
        label = position + 1 if part.labels is None else part.labels[position]
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
