"""One file or table of an import: which columns are wanted, and how the database reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ppmtf_jax.datasets.columns import choose_columns
from ppmtf_jax.datasets.database import Connection, text
from ppmtf_jax.datasets.text_files import UNREADABLE
from ppmtf_jax.errors import InputError, Problem, quoted_error, raise_any

COORDINATES = ("latitude", "longitude", "end_latitude", "end_longitude")
# What programs write where a value is not known: R, Python, databases, spreadsheets.
UNKNOWN_WORDS = ("NULL", "null", "<null>", "(null)", "nan", "NaN", "NAN", "NaT", "None", "\\N", "<NA>", "NA", "N/A")
UNKNOWN_WORDS += ("n/a", "#N/A", "nil", "undefined", "0000-00-00", "0000-00-00 00:00:00")


@dataclass
class Part:
    """One file or table, which can be read as often as needed.

    `names` and `types` are those of the columns in the source; `label` has the name of each row: its line in a file,
    or its label in a DataFrame. `notes` and `problems` are complete when the rows were read.
    """

    names: dict[str, str]
    types: dict[str, pa.DataType]
    table: pa.Table | None = None
    label: Any = None
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    mixed: dict[str, Problem] = field(default_factory=dict)  # of columns with values of several types
    file: str = ""
    is_text = False

    def relation(self, connection: Connection) -> str:
        """SQL of the wanted columns; texts that stand for nothing are missing.

        Its column `position` numbers the rows from 0, or is missing where they come in their order. The database does
        not keep the order of Arrow tables, which it reads in several threads.
        """
        table: Any = self.table
        connection.register("part", table.append_column("position", pa.array(np.arange(len(table)))))
        return self._known("part")

    def put(self, connection: Connection) -> None:
        """Add the rows to the table `source`."""
        (n_before,) = connection.execute("SELECT count(*) FROM source").fetchall()[0]
        columns = [f"position + {n_before} AS position"]
        for name in [name for name in self.types if name in COORDINATES]:
            columns.append(f'{_number(name, self.types[name], self.is_text)} AS "{name}"')
        query = f"SELECT * REPLACE ({', '.join(columns)}) FROM ({self.relation(connection)})"
        connection.execute(f"INSERT INTO source BY NAME {query}")

    @property
    def labels(self) -> Any:
        """The name of each row; None where it is its number from 1."""
        return self.label

    def _known(self, name: str) -> str:
        words = ", ".join(map(text, ("", *UNKNOWN_WORDS)))
        columns = []
        for column, kind in self.types.items():
            value = f'"{column}"'
            if is_text(kind):
                value = f"CASE WHEN {value} NOT IN ({words}) THEN {value} END"
            elif pa.types.is_floating(kind):
                value = f"CASE WHEN NOT isnan({value}) THEN {value} END"
            columns.append(f'{value} AS "{column}"')
        return f"SELECT position, {', '.join(columns)} FROM {name}"


class Wanted(NamedTuple):
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


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _number(name: str, kind: pa.DataType, is_text: bool) -> str:
    """SQL of a column as numbers: missing where there is no value, not-a-number where a value is no number."""
    if not is_text and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return f'CAST("{name}" AS DOUBLE)'
    value = f'"{name}"' if is_text else f'CAST("{name}" AS VARCHAR)'
    # To the database, 1_0 is 10.
    cast = f"CASE WHEN NOT contains({value}, '_') THEN TRY_CAST({value} AS DOUBLE) END"
    return f"coalesce({cast}, CASE WHEN {value} IS NOT NULL THEN 'nan'::DOUBLE END)"


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors of a file that cannot be read into an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(str(path), [Problem("a file to read", "no such file")]) from error
    except (*UNREADABLE, *parser_errors()) as error:
        expected = "a readable CSV, TSV, JSON, Excel or Parquet file, plain, gzipped or zipped"
        # Errors of parsers quote what they parsed.
        raise InputError(str(path), [Problem(expected, quoted_error(error))]) from None


def parser_errors() -> tuple[type[Exception], ...]:
    """What the database raises where it cannot read a file."""
    import duckdb  # late, as in `database`

    return duckdb.InvalidInputException, duckdb.IOException, duckdb.ConversionException, duckdb.InternalException
