"""Small tables as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ppmtf_jax.datasets.database import database
from ppmtf_jax.datasets.ids import tidy_ids
from ppmtf_jax.datasets.parts import COORDINATES
from ppmtf_jax.datasets.read import Rows, Source, parts_of
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
