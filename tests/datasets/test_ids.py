"""Codes of ids, whatever the values are."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from ppmtf_jax.datasets.database import database
from ppmtf_jax.datasets.ids import read_columns, tidy_ids, values_of
from ppmtf_jax.datasets.parts import Rows
from ppmtf_jax.datasets.read import parts_of

RNG = np.random.default_rng(0)
NUMBERS = RNG.integers(-50, 900, 300)
COLUMNS = {
    "numbers": pa.array(NUMBERS),
    "numbers in texts": pa.array(NUMBERS.astype(str)),
    "numbers that grow": pa.array(np.arange(300) * 7),
    "numbers that shrink": pa.array(-np.arange(300) * 7),
    "numbers far apart": pa.array(NUMBERS * 10**14),
    "unsigned numbers": pa.array(NUMBERS.astype(np.uint64)),
    "texts": pa.array([f"é{number}" for number in NUMBERS]),
    "a text after numbers": pa.array([*NUMBERS[:299].astype(str), "x"]),
    "missing values": pa.array([None if number % 3 else number for number in NUMBERS.tolist()]),
    "only missing values": pa.nulls(300, pa.string()),
    "decimal numbers": pa.array(NUMBERS / 4),
    "Booleans": pa.array(NUMBERS > 0),
}


def coded(column: pa.Array) -> tuple[pa.Table, np.ndarray]:
    """The value and the code of each row, and the values by code."""
    with database() as connection:
        rows = Rows(connection, parts_of(pa.table({"user": column}), {"user": "user"}, (), False, "ids"))
        tidy_ids(rows)
        query = "SELECT value, code FROM raw LEFT JOIN user_ids ON written = user ORDER BY row"
        return connection.sql(query).to_arrow_table(), values_of(rows, "user")


@pytest.mark.parametrize("name", COLUMNS)
def test_each_value_has_a_code_and_each_code_its_value(name):
    column = COLUMNS[name]
    table, values = coded(column)
    present = sorted({value for value in column.to_pylist() if value is not None})
    assert values.tolist() == present
    assert table["value"].to_pylist() == column.to_pylist()
    codes = [None if value is None else present.index(value) for value in column.to_pylist()]
    assert table["code"].to_pylist() == codes


@pytest.mark.parametrize(
    ("texts", "are_numbers"),
    [
        (["7", "-12", "0"], True),
        (["7", None, " 12 "], True),
        (["7", "  "], True),
        (["7", "007"], False),
        (["7", "-0"], True),  # as of decimals: 7.0 is 7
        (["7", "0x174876E800"], False),
        (["7", "+5"], True),
        (["7", "1_000"], False),
        (["7", "٣"], False),
        (["7", str(10**18 - 1)], True),
        (["7", str(10**18)], False),
        (["7", "9" * 30], False),
        ([None], False),
    ],
)
def test_which_texts_are_numbers(tmp_path, texts, are_numbers):
    for each in (texts, texts[::-1]):
        (tmp_path / "ids.csv").write_text("user;x\n" + "".join(f"{text or ''};1\n" for text in each), "utf-8")
        users = read_columns(tmp_path / "ids.csv", {"user": "user", "x": "x"}, subject="ids").frame["user"].dropna()
        assert {isinstance(user, str) for user in users} == (set() if texts == [None] else {not are_numbers})


def test_blanks_around_texts_are_no_part_of_them():
    table, values = coded(pa.array(["a", " b", "b ", "b", "a\u3000", "  ", "", "c\u00a0"]))
    assert values.tolist() == ["a", "b", "c"]
    assert table["code"].to_pylist() == [0, 1, 1, 1, 0, None, None, 2]


def test_values_that_are_not_a_number_are_missing():
    table, values = coded(pa.array([math.nan, 1.0, math.nan]))
    assert (table["code"].to_pylist(), values.tolist()) == ([None, 0, None], [1])
