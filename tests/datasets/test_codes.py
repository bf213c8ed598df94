"""Codes of ids: whatever the values are, and however a column is cut into pieces."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from ppmtf_jax.datasets.codes import Codes, in_order

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


def coded(column: pa.Array, n_rows: int) -> tuple[Codes, np.ndarray]:
    """Codes of a column that comes in pieces of some rows; -1 where a value is missing."""
    found = Codes()
    pieces = [found.add(pa.chunked_array([column[k : k + n_rows]])) for k in range(0, len(column), n_rows)]
    return found, pa.concat_arrays(pieces).fill_null(-1).to_numpy()


@pytest.mark.parametrize("n_rows", [7, 300])
@pytest.mark.parametrize("name", COLUMNS)
def test_each_value_has_a_code_and_each_code_its_value(name, n_rows):
    column = COLUMNS[name]
    found, code = coded(column, n_rows)
    values = found.values(as_numbers=False)
    assert values.take(pa.array(code, mask=code < 0)).to_pylist() == column.to_pylist()
    present = sorted({value for value in column.to_pylist() if value is not None})
    assert values.take(pa.array(in_order(values))).to_pylist() == present
    assert len(found) == found.n_written == len(present)


@pytest.mark.parametrize(
    ("texts", "are_numbers"),
    [
        (["7", "-12", "0"], True),
        (["7", None, " 12 "], True),
        (["7", "  "], True),
        (["7", "007"], False),
        (["7", "-0"], False),
        (["7", "0x174876E800"], False),
        (["7", "+5"], False),
        (["7", "1_000"], False),
        (["7", "٣"], False),
        (["7", str(10**18 - 1)], True),
        (["7", str(10**18)], False),
        (["7", "9" * 30], False),
        ([None], False),
    ],
)
def test_which_texts_are_numbers(texts, are_numbers):
    for each in (texts, texts[::-1]):
        values = coded(pa.array(each, pa.string()), 1)[0].values(as_numbers=True)
        assert pa.types.is_int64(values.type) == are_numbers
        assert pa.types.is_string(values.type) != are_numbers


def test_blanks_around_texts_are_no_part_of_them():
    found, code = coded(pa.array(["a", " b", "b ", "b", "a\u3000", "  ", "", "c\u00a0"]), 2)
    assert found.values(as_numbers=False).to_pylist() == ["a", "b", "", "c"]
    assert code.tolist() == [0, 1, 1, 1, 0, 2, 2, 3]
    assert (found.n_written, found.n_blank, sorted(found.padded)) == (8, 2, ["", "a", "b", "c"])


def test_values_that_are_not_a_number_are_one_value():
    found, code = coded(pa.array([math.nan, 1.0, math.nan]), 1)
    assert (code.tolist(), len(found)) == ([0, 1, 0], 2)
