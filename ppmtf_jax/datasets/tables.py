"""Small tables as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.datasets.checks import tidied_ids
from ppmtf_jax.datasets.database import database
from ppmtf_jax.datasets.rows import Rows, loaded
from ppmtf_jax.datasets.table_files import COORDINATES, Source, parts_of
from ppmtf_jax.errors import N_EXAMPLES, Problem, quoted, raise_any


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
        found, lost = tidied_ids(rows)
        raise_any(subject, lost)
        notes = [*rows.notes, *found]
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


def _row_examples(column: pd.Series, rows: np.ndarray) -> tuple[str, ...]:
    """The first few values of some rows, with the line in the file of each, or its label in a DataFrame."""
    values = column.iloc[rows[:N_EXAMPLES]].tolist()
    texts = ["nothing" if pd.isna(value) else quoted(value) for value in values]
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
