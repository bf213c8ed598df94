"""The rows of files and tables in the database: which columns are wanted, and how each file is read.

Texts stay texts, so that "007" is an id; coordinates become numbers.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.datasets.columns import choose_columns
from ppmtf_jax.datasets.database import COORDINATES, END_ROWS, Connection, text
from ppmtf_jax.datasets.text_files import DELIMITERS, UNREADABLE, UTF_8, lines_of, look_at, utf8_copy
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, quoted, quoted_error, raise_any
from ppmtf_jax.runtime.progress import tell

# What programs write where a value is not known: R, Python, databases, spreadsheets.
UNKNOWN_WORDS = ("NULL", "null", "<null>", "(null)", "nan", "NaN", "NAN", "NaT", "None", "\\N", "<NA>", "NA", "N/A")
UNKNOWN_WORDS += ("n/a", "#N/A", "nil", "undefined", "0000-00-00", "0000-00-00 00:00:00")
SQL_UNKNOWN = ", ".join(map(text, ("", *UNKNOWN_WORDS)))
DECIMAL_COMMA = r"[+-]?\d+(,\d*)?"


class Wanted(NamedTuple):
    """The columns to read; `quote_char` is as of `TextFile`."""

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


@dataclass
class Part:
    """One file or table, which can be read as often as needed.

    `names` and `types` are those of the columns in the source; `index` has the name of each row: its line in a file,
    or its label in a DataFrame; None where it is its number from 1. `rows` gives an Arrow table, or batches, with the
    columns and `position`. `notes` and `problems` are complete when the rows were read.
    """

    names: dict[str, str]
    types: dict[str, pa.DataType]
    notes: list[str]
    rows: Callable[[], Any] = lambda: None  # set by the reader of each kind of table
    index: Any = None
    problems: list[Problem] = field(default_factory=list)
    mixed: dict[str, Problem] = field(default_factory=dict)  # of columns with values of several types
    file: str = ""
    is_text = False

    @property
    def labels(self) -> Any:
        """The name of each row."""
        return self.index

    def relation(self, connection: Connection) -> str:
        """SQL of the wanted columns; texts that stand for nothing are missing.

        Its column `position` numbers the rows from 0, or is missing where they come in their order. The database does
        not keep the order of Arrow tables, which it reads in several threads.
        """
        connection.register("part", self.rows())
        columns = []
        for name, kind in self.types.items():
            value = f'"{name}"'
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                value = f"CASE WHEN {value} NOT IN ({SQL_UNKNOWN}) THEN {value} END"
            elif pa.types.is_floating(kind):
                value = f"CASE WHEN NOT isnan({value}) THEN {value} END"
            columns.append(f'{value} AS "{name}"')
        return f"SELECT position, {', '.join(columns)} FROM part"

    def put(self, connection: Connection, n_before: int) -> None:
        """Add the rows to the table `source`, which has some already; errors of a file are an `InputError`."""
        if not self.file:
            return self.insert(connection, n_before)
        with readable(Path(self.file)):
            return self.insert(connection, n_before)

    def insert(self, connection: Connection, n_before: int) -> None:
        """Add the rows to the table `source`."""
        columns = [f"position + {n_before} AS position"]
        columns += [f'{self._number(name)} AS "{name}"' for name in self.types if name in COORDINATES]
        query = f"SELECT * REPLACE ({', '.join(columns)}) FROM ({self.relation(connection)})"
        connection.execute(f"INSERT INTO source BY NAME {query}")

    def _number(self, name: str) -> str:
        """SQL of a column as numbers: missing where there is no value, not-a-number where a value is no number."""
        kind = self.types[name]
        if not self.is_text and (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            return f'CAST("{name}" AS DOUBLE)'
        value = f'"{name}"' if self.is_text else f'CAST("{name}" AS VARCHAR)'
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


class TextTable(Part):
    """A text file: the database reads the rows, Python finds out how they are written.

    Ids and times are read as texts, so that "007" stays a text and errors can list wrong values.
    """

    is_text, keeps_all = True, True  # whether `relation` has every row of the file

    def __init__(self, path: Path, head: bytes, wanted: Wanted):
        self.content = look_at(path, head, wanted.quote_char)
        self.positions, names, notes = wanted.positions(self.content.first_fields, str(path))
        types = {name: pa.float64() if name in COORDINATES else pa.string() for name in self.positions}
        super().__init__(names, types, notes)
        self.n_skipped, self.is_rewritten = self.content.n_blank + wanted.has_header, False

    def relation(self, connection: Connection) -> str:
        """As of `Part`, in the order of the rows; a row without any of the wanted values is left out."""
        content, n_fields = self.content, len(self.content.first_fields)
        (folder,) = connection.execute("SELECT getvariable('import_folder')").fetchall()[0]
        path, compression = utf8_copy(content, Path(folder), is_rewritten=self.is_rewritten)
        quote = text('"' if content.quote_char else "")
        options = {
            "auto_detect": "false",
            "header": "false",
            "skip": str(self.n_skipped),
            "delim": text(content.delimiter),
            "quote": quote,
            "escape": quote,
            "compression": text(compression),
            "columns": "{" + ", ".join(f"'f{k}': 'VARCHAR'" for k in range(n_fields)) + "}",
            "nullstr": f"[{SQL_UNKNOWN}]",
            "store_rejects": "true",
            # Otherwise a folder named user=9 would give all rows this user.
            "hive_partitioning": "false",
        }
        how = ", ".join(f"{name} = {value}" for name, value in options.items())
        known = " OR ".join(f"f{position} IS NOT NULL" for position in dict.fromkeys(self.positions.values()))
        # The database looks for quotes that are not closed in the columns alone that a query names.
        others = sorted(set(range(n_fields)) - set(self.positions.values()))
        named = f" AND greatest(0, {', '.join(f'strlen(f{k})' for k in others)}) >= 0" if others else ""
        columns = ", ".join(f'f{position} AS "{name}"' for name, position in self.positions.items())
        rows = f"read_csv({text(str(path))}, {how}) WHERE ({known}){named}"
        return f"SELECT NULL::BIGINT AS position, {columns} FROM {rows}"

    def insert(self, connection: Connection, n_before: int) -> None:
        """As of `Part`; finds out the encoding, whether quotes are as they should be, and decimal commas."""
        faults = self._try(connection, n_before)
        if any(fault.startswith("INVALID") for fault in faults) and self.content.encoding == UTF_8:
            self.content = self.content._replace(encoding="latin-1")
            self.__dict__.pop("lines", None)
            return self.insert(connection, n_before)
        if not self.is_rewritten and "UNQUOTED VALUE" in faults:
            _ = self.lines  # an error if a quote is not closed
            self.is_rewritten = True
            return self.insert(connection, n_before)
        file = self.content
        if faults:
            begins, bad = self.lines
            if bad:
                expected = f"{len(file.first_fields)} fields in every row of {file.path.name}"
                examples = tuple(f"{n} (row {line})" for line, n in bad[:N_EXAMPLES])
                self.problems.append(Problem(expected, "others", len(bad), examples))
            (n_rows,) = connection.execute("SELECT count(*) FROM source").fetchall()[0]
            if self.keeps_all and n_rows - n_before != len(begins):
                raise ValueError("rows that cannot be split into fields")
        if names := self._read_decimal_commas(connection, n_before):
            self.notes.append(f"{' and '.join(names)} with decimal commas")
        if file.delimiter not in "\t,":
            self.notes.append(f"fields are separated by {DELIMITERS[file.delimiter]}")
        if file.encoding != UTF_8:
            is_wide = "16" in file.encoding
            self.notes.append("the text is UTF-16" if is_wide else "the text is Latin-1, since it is not UTF-8")
        return None

    @property
    def labels(self) -> Any:
        """The line at which each row begins."""
        return self.lines[0]

    @cached_property
    def lines(self) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """See `lines_of`."""
        return lines_of(self.content, self.n_skipped, list(self.positions.values()), {"", *UNKNOWN_WORDS})

    def _try(self, connection: Connection, n_before: int) -> set[str]:
        """Add the rows if they can be read so; what is wrong with some of the lines."""
        connection.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans; BEGIN")
        try:
            super().insert(connection, n_before)
            query = "SELECT DISTINCT upper(CAST(error_type AS VARCHAR)) FROM reject_errors"
            faults = {fault for (fault,) in connection.execute(query).fetchall()}
        except parser_errors():
            connection.execute("ROLLBACK")
            if self.is_rewritten:
                raise
            return {"UNQUOTED VALUE"}  # or lines that end in several ways
        except UnicodeDecodeError:  # of the copy
            connection.execute("ROLLBACK")
            return {"INVALID"}
        is_final = not any(fault.startswith("INVALID") or fault == "UNQUOTED VALUE" for fault in faults)
        is_final |= self.is_rewritten and self.content.encoding != UTF_8
        connection.execute("COMMIT" if is_final else "ROLLBACK")
        return faults

    def _read_decimal_commas(self, connection: Connection, n_before: int) -> list[str]:
        """Read columns of coordinates that are no numbers as numbers with commas, if all their values may be that."""
        names = [name for name in COORDINATES if name in self.positions]
        is_none = " OR ".join(["false", *(f"isnan({name})" for name in names)])
        query = f"SELECT count(*) FROM source WHERE rowid >= {n_before} AND ({is_none})"
        if not connection.execute(query).fetchall()[0][0]:
            return []
        checks = [f"bool_or(contains({name}, ','))" for name in names]
        checks += [f"bool_and(regexp_full_match(trim({name}), {text(DECIMAL_COMMA)}))" for name in names]
        relation = self.relation(connection)
        found = connection.execute(f"SELECT {', '.join(checks)} FROM ({relation})").fetchall()[0]
        pairs = zip(names, found, found[len(names) :], strict=False)
        with_commas = {name: all_fit for name, has_comma, all_fit in pairs if has_comma}
        if not with_commas or not all(with_commas.values()):
            return []
        numbers = ", ".join(f"CAST(replace(trim({name}), ',', '.') AS DOUBLE) AS {name}" for name in with_commas)
        changes = ", ".join(f"{name} = new.{name}" for name in with_commas)
        connection.execute(
            f"UPDATE source SET {changes} FROM (SELECT {n_before - 1} + row_number() OVER () AS row, {numbers} "
            f"FROM ({relation})) AS new WHERE source.rowid = new.row"
        )
        return list(with_commas)


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
