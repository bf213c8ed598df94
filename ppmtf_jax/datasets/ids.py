"""Ids of users, places and the like: one value for all ways to write it, and a code for each value.

Small tables with such ids as DataFrames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.datasets.database import COORDINATES, database, text
from ppmtf_jax.datasets.parts import SQL_UNKNOWN, Rows
from ppmtf_jax.datasets.read import Source, parts_of
from ppmtf_jax.errors import N_EXAMPLES, Finding, Problem, quoted, raise_any

ID_NAMES = ("user", "place", "trace")
ID_COLUMNS = ("user", "place", "category", "trace", "friend")
BLANKS = r"^[\s\p{Z}\x{85}]+|[\s\p{Z}\x{85}]+$"
# Text ids become numbers only up to 18 digits, and only if they are written plainly: "007" remains a text.
PLAIN, MAX_DIGITS = r"-?[1-9]\d*|0", 18
# Whole numbers with decimals, and round ones as R writes them, such as 1e+05; larger ones may have lost digits.
DECIMALS, ROUND = r"[+-]?([1-9]\d*|0)([.,]0*)?", r"[+-]?\d([.,]\d+)?[eE]\+(0\d|10)"
# 9.06E+17, 9,06E+17 and 9.06e17: no code of hexadecimal digits is written so.
SCIENTIFIC = r"[+-]?(\d+([.,]\d*)?[eE]\+\d+|\d+[.,]\d+[eE]\d+)"
# From here on, not every whole number is a number of 64, or of 32 bits.
MAX_EXACT = {"DOUBLE": 2**53, "FLOAT": 2**24}
MIN_ROUNDED_IDS = 5


class Ids(NamedTuple):
    """What was found about the columns of ids.

    The table `user_ids` of the database, and so on, has each id as it is `written`, its `value` and the `code` of the
    value: 0, 1, ... in the order of the values. Value and code are missing where an id stands for nothing. Problems are
    of ids that lost digits: several ids have become one, and nothing can tell them apart.
    """

    names: list[str]
    notes: list[Finding]
    problems: list[Problem]


class CheckIns(NamedTuple):
    """Check-ins without bad rows, coded, as the table or view `checkins` of a database.

    It has the columns row, user, place, trace, category, latitude, longitude, local_s (wall-clock time) and utc_s
    (true time). The times are in seconds since 1970. User, place, trace and category are codes in the order of the
    values that `ids` has. A code is -1 where the table has no such column, and where a category is missing. `n_bad` of
    `n_rows` rows were left out, and `n_without` counts others, which lack a position, user, place or time; `notes` has
    what else was found.
    """

    rows: Rows
    ids: dict[str, np.ndarray]
    n_rows: int
    n_bad: int
    n_without: dict[str, int]
    notes: list[Finding]


def code_rows(rows: Rows, ids: Ids, times: str, table: str = "raw") -> None:
    """Make `clocked` of `raw`, or of a table that begins with it: with codes in place of ids, and columns of times."""
    joins = "".join(f" LEFT JOIN {name}_ids ON {name}_ids.written = raw.{name}" for name in ids.names)
    columns = [f"{name}_ids.code AS {name}" for name in ids.names]
    columns += [name for name in ("latitude", "longitude", "duration_s", "has_no_station") if name in rows.columns]
    query = f"SELECT {', '.join(('row', *columns, times))} FROM {table}{joins}"
    rows.connection.execute(f"CREATE OR REPLACE TABLE clocked AS {query}")


def tidy_ids(rows: Rows, *, as_read: bool = False) -> Ids:
    """Make the tables of the ids of all columns of ids in `raw`: ids written in several ways become one.

    `as_read`: they were tidied when they were read, so only blanks and forms of Unicode are looked for.
    """
    names = [name for name in ID_COLUMNS if name in rows.columns]
    notes, problems, padded, n_same = [], [], [], 0
    for name in names:
        is_text = rows.columns[name] == "VARCHAR"
        trimmed = f"regexp_replace(written, {text(BLANKS)}, '', 'g')" if is_text else "written"
        value = f"CASE WHEN trimmed NOT IN ({SQL_UNKNOWN}) THEN nfc_normalize(trimmed) END" if is_text else "trimmed"
        rows.connection.execute(
            f"CREATE OR REPLACE TABLE {name}_values AS SELECT written, trimmed, {value} AS value FROM (SELECT written, "
            f"{trimmed} AS trimmed FROM (SELECT DISTINCT {name} AS written FROM raw WHERE {name} IS NOT NULL))"
        )
        found, problem = _same_values(rows, name) if name != "category" and not as_read else ([], [])
        forms = []
        if is_text:
            is_padded, n_more, n_forms = rows.one(
                "SELECT coalesce(bool_or(written <> trimmed), false), count(DISTINCT CASE trimmed WHEN '' THEN '' ELSE "
                "written END) - count(DISTINCT nfc_normalize(trimmed)), count(DISTINCT CASE WHEN trimmed <> "
                f"nfc_normalize(trimmed) THEN written END) FROM {name}_values"
            )
            padded, n_same = [*padded, *([name] if is_padded else [])], n_same + n_more
            if n_forms:
                note = f"{n_forms:,} values of {name} are written in another Unicode form, and become NFC"
                forms.append(Finding(note, code="unicode-forms", n_rows=n_forms))
        notes, problems = [*notes, *forms, *found], [*problems, *problem]
        _code(rows, name)
    if padded:
        same = f", and {n_same:,} of the values are then the same as others" if n_same else ""
        note = f"blanks around the values of {' and '.join(padded)} are left out{same}"
        notes.insert(0, Finding(note, code="blanks", n_rows=n_same))
    return Ids(names, notes, problems)


def values_of(rows: Rows, name: str) -> np.ndarray:
    """The value of each code of a column of ids: whole numbers, or objects."""
    query = f"SELECT any_value(value) AS value FROM {name}_ids WHERE code IS NOT NULL GROUP BY code ORDER BY code"
    found = rows.connection.sql(query).to_arrow_table()["value"].to_pandas()
    if pd.api.types.is_integer_dtype(found.dtype):
        is_large = bool(len(found)) and found.max() > np.iinfo(np.int64).max
        return found.to_numpy(np.uint64 if is_large else np.int64)
    return found.to_numpy(object)


def keep_used(rows: Rows, name: str, table: str) -> None:
    """Number the codes of a column anew, without those that a table does not have; the table has the new ones then."""
    rows.connection.execute(
        f"CREATE OR REPLACE TABLE used AS SELECT old, CAST(row_number() OVER (ORDER BY old) - 1 AS INTEGER) AS new "
        f"FROM (SELECT DISTINCT {name} AS old FROM {table} WHERE {name} >= 0)"
    )
    ids = f"SELECT written, value, new AS code FROM {name}_ids JOIN used ON code = old"
    rows.connection.execute(f"CREATE OR REPLACE TABLE {name}_ids AS {ids}")
    rows.connection.execute(f"UPDATE {table} SET {name} = new FROM used WHERE {name} = old AND old <> new")


def _same_values(rows: Rows, name: str) -> tuple[list[Finding], list[Problem]]:
    """Write whole numbers with decimals without them, and say which ids lost digits."""
    kind, table = rows.columns[name], f"{name}_values"
    is_text = kind == "VARCHAR"
    if is_text:
        # R writes round numbers so, such as 1e+05, where that is shorter.
        number = "abs(TRY_CAST(replace(value, ',', '.') AS DOUBLE))"
        longer = f"({number} >= 1e11 OR strlen(value) >= strlen(CAST(TRY_CAST({number} AS HUGEINT) AS VARCHAR)))"
        lost = f"(regexp_full_match(value, {text(SCIENTIFIC)}) AND coalesce({longer}, true))"
    elif kind in MAX_EXACT:
        lost = f"(abs(value) >= {MAX_EXACT[kind]})"
    else:
        lost = "false"
    n_lost, n_values, n_plain = rows.one(
        f"SELECT count(DISTINCT value) FILTER ({lost}), count(DISTINCT coalesce(value, trimmed)), "
        f"{_plain(kind)} FROM {table}"
    )
    if n_lost:
        query = (
            f"SELECT value FROM {table} JOIN (SELECT {name}, min(row) AS first FROM raw GROUP BY 1) "
            f"ON written = {name} WHERE {lost} GROUP BY value ORDER BY min(first) LIMIT {N_EXAMPLES}"
        )
        examples = tuple(quoted(value) for (value,) in rows.connection.execute(query).fetchall())
        way_out = (
            "Export the column as text, or as whole numbers: a spreadsheet and columns of decimal numbers keep "
            "15 digits"
        )
        found = f"{n_lost:,} of {n_values:,} values that lost digits, so that several are the same"
        return [], [Problem(f"all digits of the ids in '{name}'", found, 0, examples, way_out, "lost-digits")]
    notes = []
    if not n_plain and (is_text or kind in MAX_EXACT):
        notes = _without_decimals(rows, name, is_text)
    if is_text and rows.one(f"SELECT {_plain(kind)} FROM {table}")[0]:
        kind = "BIGINT"
    is_large = f"abs(CAST(value AS BIGINT)) >= {2**53}" if kind == "BIGINT" else "false"
    n_large, is_short, is_round = rows.one(
        f"SELECT count(DISTINCT value) FILTER ({is_large}), bool_and(CAST(CAST(value AS DOUBLE) AS HUGEINT) = "
        f"CAST(value AS HUGEINT)) FILTER ({is_large}), bool_and(CAST(value AS HUGEINT) % 1000 = 0) FILTER ({is_large}) "
        f"FROM {table}"
        if kind == "BIGINT"
        else "SELECT 0, false, false"
    )
    if n_large >= MIN_ROUNDED_IDS and (is_short or is_round):
        note = (
            f"all {n_large:,} long numbers of {name} are rounded, as a spreadsheet rounds them: several may have "
            "become one. If so, export that column as text"
        )
        notes.append(Finding(note, code="rounded-ids", n_rows=n_large))
    return notes, []


def _plain(kind: str) -> str:
    """SQL of whether all values are whole numbers that are written plainly, and there are some."""
    if kind == "VARCHAR":
        is_plain = f"regexp_full_match(value, {text(PLAIN)}) AND strlen(ltrim(value, '-')) <= {MAX_DIGITS}"
        return f"coalesce(bool_and({is_plain}), false)"
    return "false" if kind in MAX_EXACT else "true"


def _without_decimals(rows: Rows, name: str, is_text: bool) -> list[Finding]:
    """If all values are whole numbers, write them without decimals: 7.0 is 7."""
    table = f"{name}_values"
    if not is_text:
        if rows.one(f"SELECT coalesce(bool_and(value = trunc(value)), false) FROM {table}")[0]:
            columns = "written, trimmed, CAST(value AS BIGINT) AS value"
            rows.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {columns} FROM {table}")
        return []
    either = f"(regexp_full_match(value, {text(DECIMALS)}) OR regexp_full_match(value, {text(ROUND)}))"
    if not rows.one(f"SELECT coalesce(bool_and({either}), false) FROM {table}")[0]:
        return []
    digits = "ltrim(regexp_replace(value, '[.,]0*$', ''), '+')"
    rounded = "CAST(CAST(trunc(TRY_CAST(replace(value, ',', '.') AS DOUBLE)) AS BIGINT) AS VARCHAR)"
    number = f"CASE WHEN contains(lower(value), 'e') THEN {rounded} WHEN {digits} = '-0' THEN '0' ELSE {digits} END"
    (n_changed,) = rows.one(f"SELECT count(DISTINCT value) FILTER (value <> {number}) FROM {table}")
    if not n_changed:
        return []
    rows.connection.execute(f"UPDATE {table} SET value = {number}")
    note = f"{n_changed:,} values of {name} are whole numbers with decimals, such as 7.0: they are read as 7"
    return [Finding(note, code="decimal-ids", n_rows=n_changed)]


def _code(rows: Rows, name: str) -> None:
    """Give each value a code in the order of the values; text files whose ids are all plain numbers have numbers."""
    is_text, value = rows.columns[name] == "VARCHAR", "value"
    if is_text and rows.are_texts and rows.one(f"SELECT {_plain('VARCHAR')} FROM {name}_values")[0]:
        value = "CAST(value AS BIGINT)"
    code = "CASE WHEN value IS NOT NULL THEN CAST(dense_rank() OVER (ORDER BY value) - 1 AS INTEGER) END AS code"
    query = f"SELECT written, value, {code} FROM (SELECT written, {value} AS value FROM {name}_values)"
    rows.connection.execute(f"CREATE OR REPLACE TABLE {name}_ids AS {query}; DROP TABLE {name}_values")


class Columns(NamedTuple):
    """A table, problems of rows that are not in it, notes on it, and the names of its columns in the source.

    The index of the frame is the row number in the file (the header is row 1), or the index of the given table.
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
    """Read columns and rename them; ids and columns with numbers only become numbers.

    Raises `InputError`: a file cannot be read, or columns are missing.

    Parameters
    ----------
    source : path of a file or folder, list of paths, or table
        All files of a folder are read.
    columns : mapping
        For each new name of a column, its name or position in the source.
    find : sequence of str
        Further columns to find by their common names; see `columns`.
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
        rows = Rows(connection, parts)
        ids = tidy_ids(rows)
        raise_any(subject, ids.problems)
        joins = "".join(f" LEFT JOIN {name}_ids ON {name}_ids.written = raw.{name}" for name in ids.names)
        wanted = [f'{name}_ids.value AS "{name}"' if name in ids.names else f'raw."{name}"' for name in parts[0].types]
        query = f"SELECT row, {', '.join(wanted)} FROM raw{joins} ORDER BY row"
        frame = connection.sql(query).to_arrow_table().to_pandas(integer_object_nulls=True)
        texts = {}
        for name in [name for name in COORDINATES if name in frame and frame[name].isna().any()]:
            texts[name] = rows.values(name, frame["row"][frame[name].isna()].tolist())
    for name, found in texts.items():
        if (written := pd.Series(found, dtype=object).dropna()).size:
            # The check of coordinates then lists these texts.
            frame[name] = frame[name].astype(object).mask(frame["row"].isin(written.index), frame["row"].map(written))
    labels = [rows.name_of(row).removeprefix("row ") for row in frame["row"]] if len(parts) > 1 else parts[0].labels
    frame.index = pd.Index(labels if labels is not None else np.arange(1, len(frame) + 1))
    return Columns(frame.drop(columns="row"), rows.problems, [*rows.notes, *ids.notes], parts[0].names)


def whole_numbers(
    column: pd.Series, expected: str, low: int | float = -np.inf, high: int | float = np.inf, way_out: str = ""
) -> tuple[np.ndarray, list[Problem]]:
    """A column as floats, NaN where a value is no whole number from `low` to `high`; and the problem of these rows."""
    value = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)
    bad = ~((value >= low) & (value <= high) & (value % 1 == 0))
    rows = np.flatnonzero(bad)
    shown = column.iloc[rows[:N_EXAMPLES]]
    examples = [f"{'nothing' if pd.isna(each) else quoted(each)} (row {label})" for label, each in shown.items()]
    problems = [Problem(expected, "others", len(rows), tuple(examples), way_out)] if len(rows) else []
    return np.where(bad, np.nan, value), problems
