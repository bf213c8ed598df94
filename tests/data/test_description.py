"""Text of a few lines, whatever it is made of."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.data.description import in_lines, quantiles


@pytest.mark.parametrize(("n_parts", "length"), [(0, 1), (1, 5000), (4, 60), (20, 1), (20, 5000)])
def test_text_is_of_ten_lines_and_eighty_columns(n_parts, length):
    parts = {f"part {number}": "word " * length for number in range(n_parts)}
    lines = in_lines("title " * length, parts).splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) < 80
    assert lines[0].startswith("title")
    assert all(not line or line.lstrip().startswith(("title", "word", "part", "...")) for line in lines)


def test_a_word_longer_than_a_line_is_broken():
    assert max(map(len, in_lines("x" * 300, {"name": "y" * 300}).splitlines())) < 80


def test_large_numbers_are_added_up_exactly():
    table = quantiles({"many": np.full(4, 2**31 - 1, np.int32)})
    assert table.loc["many", "sum"] == 4 * (2**31 - 1)
    assert str(table["sum"].dtype) == "Int64"
