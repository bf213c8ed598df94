"""Codes of ids: each value of a column as a small whole number, found while the column is read piece by piece."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as arrow

# Text ids become numbers only up to this number, and only if they are written plainly: "007" remains a text.
MOST_ID = 10**18 - 1
# Whole numbers with decimals, and round ones as R writes them, such as 1e+05; larger ones may have lost digits.
DECIMALS = re.compile(r"[+-]?\d+([.,]0*)?|[+-]?\d([.,]\d+)?[eE]\+(0\d|10)")
# Codes of whole numbers are looked up in an array if the numbers lie within such a span: 4 bytes for each.
MOST_SPAN = 2**27


class Codes:
    """The values of a column of ids, each with a code: 0, 1, ... in the order in which pieces bring new values.

    Blanks around texts are removed, and texts get one Unicode form (NFC). `n_written` counts texts that differ only in
    this as different values. `padded` has the codes of the values that were written with blanks at least once, and
    `n_forms` counts values that were written in another form. While all values are whole numbers, also as texts, and
    lie close enough together, an array has their codes, otherwise a dictionary.
    """

    def __init__(self) -> None:
        self.type = pa.int32()
        self.padded: dict[str, int] = {}
        self.n_forms = 0
        self._other_ways: dict[str, int] = {}
        self._values: list = []
        self._code_of: dict[Any, int] = {}
        self._are_numbers = True  # in the array; otherwise values are in the dictionary
        self._numbers, self._n_numbers = [np.zeros(0, np.int64)], 0
        self._low, self._code_after = 0, np.zeros(0, np.int32)  # codes plus 1 of the numbers from `_low` on

    def __len__(self) -> int:
        return self._n_numbers if self._are_numbers else len(self._values)

    @property
    def n_written(self) -> int:
        """Number of values with the blanks around them."""
        return len(self) if self._are_numbers else len(self._code_of)

    @property
    def n_blank(self) -> int:
        """Number of different texts that consist of blanks alone."""
        return list(self._code_of.values()).count(self.padded.get("", -1))

    def add(self, column: pa.ChunkedArray) -> pa.Array:
        """Codes of the values of a piece, int32; missing where a value is."""
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), pa.int32())
        self.type = column.type
        if self._are_numbers:
            numbers = _whole_numbers(column)
            codes = None if numbers is None else self._of_numbers(numbers)
            if codes is not None:
                return codes
            values = pa.array(np.concatenate(self._numbers))
            self._values = (values.cast(pa.string()) if is_text(self.type) else values).to_pylist()
            self._are_numbers = False
            self._code_of = {value: code for code, value in enumerate(self._values)}
        encoded = column.dictionary_encode().combine_chunks()
        values = encoded.dictionary.to_pylist()
        if pa.types.is_floating(self.type):
            values = [value if value == value else math.nan for value in values]  # equal as keys of a dictionary
        codes = list(map(self._code_of.get, values))
        if None in codes:
            self._learn([value for value, code in zip(values, codes, strict=True) if code is None])
            codes = list(map(self._code_of.get, values))
        codes = np.array(codes, np.int32)
        return pa.array(codes).take(encoded.indices)

    def values(self, as_numbers: bool) -> pa.Array:
        """The value of each code; with `as_numbers`, texts become numbers if all are plain whole numbers."""
        if self._are_numbers:
            values = pa.array(np.concatenate(self._numbers))
            return values if is_text(self.type) and as_numbers and len(values) else values.cast(self.type)
        if not (as_numbers and is_text(self.type)):
            return pa.array(self._values, self.type)
        values = pa.array([value or None for value in self._values], self.type)  # of blanks alone: missing
        numbers = _whole_numbers(pa.chunked_array([values]))
        return values if numbers is None or values.null_count == len(values) else numbers.combine_chunks()

    def distinct(self) -> pa.Array:
        """The value of each code, as the source has it."""
        return self.values(as_numbers=False)

    def without_decimals(self) -> tuple[int, dict[int, int]]:
        """If all values are whole numbers, write them without decimals: 7.0 is 7.

        Returns the number of values that were written otherwise, and the codes of those that then are the same as
        another value, with the code of that one.
        """
        if self._are_numbers or not (is_text(self.type) or pa.types.is_floating(self.type)):
            return 0, {}
        whole, n_changed, code_of, same_as = [], 0, dict[int, int](), dict[int, int]()
        for code, value in enumerate(self._values):
            if not value and value != 0:  # of blanks alone
                whole.append(value)
                continue
            number = _whole_number(value)
            if number is None:
                return 0, {}
            n_changed += str(number) != str(value)
            whole.append(number)
            if code_of.setdefault(number, code) != code:
                same_as[code] = code_of[number]
        if n_changed:
            are_texts = is_text(self.type)
            self._values = [str(value) for value in whole] if are_texts else whole
            self.type = self.type if are_texts else pa.int64()
        return n_changed, same_as

    def _of_numbers(self, column: pa.ChunkedArray) -> pa.Array | None:
        """Codes of whole numbers; None if they are too far apart for an array."""
        known = column.drop_null().to_numpy()
        if not len(known):
            return pa.nulls(len(column), pa.int32())
        stop = self._low + len(self._code_after)
        low, high = int(known.min()), int(known.max()) + 1
        if low < self._low or high > stop:
            if len(self):
                # Room for numbers that grow from piece to piece.
                low, high = min(low, self._low), stop if high <= stop else max(high, stop + len(self._code_after) // 2)
            if high - low > MOST_SPAN:
                return None
            code_after = np.zeros(high - low, np.int32)
            code_after[self._low - low :][: len(self._code_after)] = self._code_after if len(self) else 0
            self._low, self._code_after = low, code_after
        codes = self._code_after[known - self._low]
        if not codes.all():
            new = np.unique(known[codes == 0])
            self._numbers.append(new)
            self._code_after[new - self._low] = self._n_numbers + 1 + np.arange(len(new))
            self._n_numbers += len(new)
            codes = self._code_after[known - self._low]
        if len(codes) == len(column):
            return pa.array(codes - 1)
        with_gaps = np.zeros(len(column), np.int32)
        is_known = column.is_valid().to_numpy()
        with_gaps[is_known] = codes
        return pa.array(with_gaps - 1, mask=~is_known)

    def _learn(self, new: list) -> None:
        bare = new
        if is_text(self.type):
            bare = arrow.call_function("utf8_trim_whitespace", [pa.array(new, self.type)]).to_pylist()
        for written, trimmed in zip(new, bare, strict=True):
            value = trimmed
            if isinstance(value, str) and not unicodedata.is_normalized("NFC", value):
                value, self.n_forms = unicodedata.normalize("NFC", value), self.n_forms + 1
            # Other ways to write the value may come first, or later.
            code = self._other_ways.get(value, len(self._values))
            if written is not value and written != value:
                code = self._other_ways[value] = self._code_of.get(value, code)
                if written != trimmed:
                    self.padded[value] = code
            self._code_of[written] = code
            if code == len(self._values):
                self._values.append(value)


def in_order(values: pa.Array) -> np.ndarray:
    """The codes in the order of their values, texts by their characters."""
    return arrow.call_function("array_sort_indices", [values]).to_numpy().astype(np.int64)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column has texts."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _whole_number(value: str | float) -> int | None:
    """The whole number that a value is; None if it is none, or starts with zeros, which may mean something."""
    if isinstance(value, str):
        if not DECIMALS.fullmatch(value) or re.match(r"[+-]?0\d", value):
            return None
        value = value.replace(",", ".")
        return int(float(value)) if "e" in value.lower() else int(value.split(".")[0])
    return int(value) if float(value).is_integer() else None


def _whole_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """A column of whole numbers, or of texts that are all plain whole numbers, as int64; None for other columns."""
    if not is_text(column.type) and not pa.types.is_integer(column.type):
        return None
    try:
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    bounds = arrow.call_function("min_max", [numbers])
    low, high = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    if is_text(column.type) and (low < -MOST_ID or high > MOST_ID or not _are_plain(column)):
        return None
    return numbers


def _are_plain(column: pa.ChunkedArray) -> bool:
    """Whether texts that Arrow reads as whole numbers are written as Python would write them: no 007, -0 or 0x1F."""
    zero, minus_zero = (
        column.filter(arrow.call_function("starts_with", [column], arrow.MatchSubstringOptions(start)))
        for start in ("0", "-0")
    )
    return not len(minus_zero) and zero.unique().to_pylist() in ([], ["0"])
