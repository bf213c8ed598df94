"""Text files as parts of an import: the database reads the rows, Python finds out how they are written."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ppmtf_jax.datasets.database import Connection, text
from ppmtf_jax.datasets.parts import COORDINATES, UNKNOWN_WORDS, Part, Wanted, parser_errors
from ppmtf_jax.datasets.text_files import NAMES_OF_DELIMITERS, TextFile, lines_of, utf8_copy
from ppmtf_jax.errors import N_EXAMPLES, Problem

DECIMAL_COMMA = r"[+-]?\d+(,\d*)?"


class TextTable(Part):
    """A text file. Ids and times are read as texts, so that "007" stays a text and errors can list wrong values."""

    is_text = True

    def __init__(self, file: TextFile, wanted: Wanted):
        self.content, self.has_header = file, wanted.has_header
        self.positions, names, notes = wanted.positions(file.first_fields, str(file.path))
        types = {name: pa.float64() if name in COORDINATES else pa.string() for name in self.positions}
        super().__init__(names, types, notes=notes)
        self.is_rewritten = False

    def relation(self, connection: Connection) -> str:
        """As of `Part`, in the order of the rows; a row without any of the wanted values is left out."""
        content = self.content
        (folder,) = connection.execute("SELECT getvariable('import_folder')").fetchall()[0]
        path, compression = utf8_copy(content, Path(folder), is_rewritten=self.is_rewritten)
        quote = text('"' if content.quote_char else "")
        words = ", ".join(map(text, ("", *UNKNOWN_WORDS)))
        options = {
            "auto_detect": "false",
            "header": "false",
            "skip": str(content.n_blank + self.has_header),
            "delim": text(content.delimiter),
            "quote": quote,
            "escape": quote,
            "compression": text(compression),
            "columns": "{" + ", ".join(f"'f{k}': 'VARCHAR'" for k in range(len(content.first_fields))) + "}",
            "nullstr": f"[{words}]",
            "store_rejects": "true",
            # Otherwise a folder named user=9 would give all rows this user.
            "hive_partitioning": "false",
        }
        how = ", ".join(f"{name} = {value}" for name, value in options.items())
        known = " OR ".join(f"f{position} IS NOT NULL" for position in dict.fromkeys(self.positions.values()))
        # The database looks for quotes that are not closed in the columns alone that a query names.
        others = set(range(len(content.first_fields))) - set(self.positions.values())
        named = f" AND greatest(0, {', '.join(f'strlen(f{k})' for k in sorted(others))}) >= 0" if others else ""
        columns = ", ".join(f'f{position} AS "{name}"' for name, position in self.positions.items())
        rows = f"read_csv({text(str(path))}, {how}) WHERE ({known}){named}"
        return f"SELECT NULL::BIGINT AS position, {columns} FROM {rows}"

    def put(self, connection: Connection) -> None:
        """As of `Part`; finds out the encoding, whether quotes are as they should be, and decimal commas."""
        (n_before,) = connection.execute("SELECT count(*) FROM source").fetchall()[0]
        faults = self._put(connection)
        if any(fault.startswith("INVALID") for fault in faults) and self.content.encoding == "utf-8":
            self.content = self.content._replace(encoding="latin-1")
            self.__dict__.pop("_lines", None)
            return self.put(connection)
        if not self.is_rewritten and "UNQUOTED VALUE" in faults:
            _ = self._lines  # an error if a quote is not closed
            self.is_rewritten = True
            return self.put(connection)
        file = self.content
        if faults and (bad := self._lines[1]):
            expected = f"{len(file.first_fields)} fields in every row of {file.path.name}"
            examples = tuple(f"{n} (row {line})" for line, n in bad[:N_EXAMPLES])
            self.problems.append(Problem(expected, "others", len(bad), examples))
        if faults:
            (n_rows,) = connection.execute("SELECT count(*) FROM source").fetchall()[0]
            if n_rows - n_before != len(self._lines[0]):
                raise ValueError("rows that cannot be split into fields")
        if names := self._read_decimal_commas(connection, n_before):
            self.notes.append(f"{' and '.join(names)} with decimal commas")
        if file.delimiter not in "\t,":
            self.notes.append(f"fields are separated by {NAMES_OF_DELIMITERS[file.delimiter]}")
        if file.encoding != "utf-8":
            is_wide = "16" in file.encoding
            self.notes.append("the text is UTF-16" if is_wide else "the text is Latin-1, since it is not UTF-8")
        return None

    @property
    def labels(self) -> Any:
        """The line at which each row begins."""
        return self._lines[0]

    @cached_property
    def _lines(self) -> tuple[np.ndarray, list[tuple[int, int]]]:
        n_skipped = self.content.n_blank + self.has_header
        return lines_of(self.content, n_skipped, list(self.positions.values()), {"", *UNKNOWN_WORDS})

    def _put(self, connection: Connection) -> set[str]:
        """Add the rows if they can be read so; what is wrong with some of the lines."""
        connection.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans; BEGIN")
        try:
            super().put(connection)
            query = "SELECT DISTINCT upper(CAST(error_type AS VARCHAR)) FROM reject_errors"
            found = connection.execute(query).fetchall()
        except parser_errors():
            connection.execute("ROLLBACK")
            if self.is_rewritten:
                raise
            return {"UNQUOTED VALUE"}  # or lines that end in several ways
        except UnicodeDecodeError:  # of the copy
            connection.execute("ROLLBACK")
            return {"INVALID"}
        faults = {fault for (fault,) in found}
        is_final = not any(fault.startswith("INVALID") or fault == "UNQUOTED VALUE" for fault in faults)
        is_final |= self.is_rewritten and self.content.encoding != "utf-8"
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
