"""Times written as text, read by their shape.

A text's shape is the text with 9 for every digit. A column of millions has a handful of shapes, and what one text of a
shape means, all of them mean: nothing is guessed row by row, and no row is looked at alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

ROWS_AT_A_TIME = 2**20
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
NUMBER = re.compile(rb"\s*[+-]?9+(?:\.9*)?(?:e[+-]?99?)?\s*")

_SPACE = rb"(?:\s|\xc2\xa0|\xe2\x80\xaf)"
_MONTH = (
    rb"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    rb"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = rb"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+"
_CLOCK = (
    rb"(?P<H>99?)(?::(?P<M>99)(?::(?P<S>99)(?:[.,]9+)?)?)?",
    rb"(?P<H>99)(?P<M>99)(?:(?P<S>99)(?:[.,]9+)?)?",
)
_AM_PM = rb"(?:" + _SPACE + rb"*(?P<half>[ap])\.?m\.?)?"
_OFFSET = rb"(?:\s?(?:(?:utc|gmt)?(?P<sign>[+-]|\xe2\x88\x92)(?P<oh>99?)(?::?(?P<om>99))?|(?P<zero>z|utc|gmt)))?"
_DATES = (
    rb"(?P<Y>9999)(?P<mark>[-/.])(?P<m>99?)(?P=mark)(?P<d>99?)",
    rb"(?P<Y>9999)(?P<m>99)(?P<d>99)",
    rb"(?P<first>99?)(?P<mark>[-/.])(?P<second>99?)(?P=mark)(?P<Y>9999)",
    rb"(?P<d>99?)[- /]" + _MONTH + rb"[- /,]\s?(?P<Y>9999)",
    _MONTH + rb" (?P<d>99?),? (?P<Y>9999)",
)
_WHOLE = [
    re.compile(
        rb"\s*(?:" + _WEEKDAY + rb")?" + date + rb"(?:(?:t|,?\s+|\s+at\s+)" + clock + _AM_PM + _OFFSET + rb")?\s*",
        re.IGNORECASE,
    )
    for date in _DATES
    for clock in _CLOCK
] + [
    re.compile(rb"\s*(?P<Y>9999)(?P<m>99)(?P<d>99)(?P<H>99)(?P<M>99)(?P<S>99)\s*"),
    re.compile(rb"\s*" + _WEEKDAY + _MONTH + rb"\s+(?P<d>99?) " + _CLOCK[0] + _OFFSET + rb" (?P<Y>9999)\s*", re.I),
]


class Shapes(NamedTuple):
    """A column of texts: all bytes, where each text begins, the number of its shape (-1: missing), and the shapes."""

    data: np.ndarray
    start: np.ndarray
    code: np.ndarray
    shapes: list[bytes]

    @classmethod
    def of(cls, column: pd.Series) -> Shapes:
        """The shapes of a column of any values, as text."""
        text = pa.array(column.astype("str"), type=pa.large_string(), from_pandas=True)
        text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
        valid, offsets, content = text.buffers()
        data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
        is_digit = (data - ord("0")) < 10  # uint8 wraps: bytes below "0" become large
        blank = pa.py_buffer(np.where(is_digit, np.uint8(ord("9")), data))
        like = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(text), [valid, offsets, blank], offset=text.offset
        )
        encoded = like.dictionary_encode()
        start = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text)]
        code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(data, start, code, encoded.dictionary.to_pylist())

    def counts(self) -> np.ndarray:
        """Rows of each shape."""
        return np.bincount(self.code[self.code >= 0], minlength=len(self.shapes))

    def rows(self, shape: int) -> Iterator[np.ndarray]:
        """The rows of a shape, in parts, to bound the memory of the arrays that are computed from them."""
        found = np.flatnonzero(self.code == shape)
        for begin in range(0, len(found), ROWS_AT_A_TIME):
            yield found[begin : begin + ROWS_AT_A_TIME]

    def number(self, rows: np.ndarray, span: tuple[int, int]) -> np.ndarray:
        """The digits within a span of the texts as numbers; 0 for an empty span."""
        value, start = np.zeros(len(rows), np.int64), self.start[rows]
        for position in range(*span):
            value = value * 10 + (self.data[start + position] - ord("0"))
        return value


class DayOrder(NamedTuple):
    """How many dates such as 03/04/2012 only one order can mean, or both; and an example row of each kind."""

    n_day_first: int = 0
    n_month_first: int = 0
    n_either: int = 0
    rows: tuple[int, ...] = ()

    @property
    def is_known(self) -> bool:
        return not self.n_either or (self.n_day_first > 0) != (self.n_month_first > 0)

    @property
    def is_mixed(self) -> bool:
        return self.n_day_first > 0 and self.n_month_first > 0


class TextTimes(NamedTuple):
    """Times by the clock of the writer (datetime64[s]), and their offsets from UTC (int32, 0 where none is written).

    Arrays have the shape (rows,); `wall` is not-a-time where the text is no time. `layouts` are those of dates whose
    order of day and month was found, such as "%d/%m/%Y".
    """

    wall: np.ndarray
    offset_s: np.ndarray
    has_offset: np.ndarray
    has_clock: np.ndarray
    day_order: DayOrder
    layouts: list[str]


def read_time_texts(shapes: Shapes, day_first: bool | None = None) -> TextTimes:
    """Read every text that is a time; by default the whole column tells whether days or months come first."""
    matches = {k: match for k, shape in enumerate(shapes.shapes) if (match := _match(shape)) is not None}
    order = _day_order(shapes, matches) if day_first is None else DayOrder(n_day_first=int(day_first))
    day_first = order.n_day_first > 0
    n = len(shapes.code)
    wall, offset_s = np.full(n, "NaT", "datetime64[s]"), np.zeros(n, np.int32)
    has_offset, has_clock = np.zeros(n, bool), np.zeros(n, bool)
    layouts = set()
    for shape, match in matches.items():
        fields = match.groupdict()
        if "first" in fields:
            layouts.add(fields["mark"].decode().join(["%d", "%m", "%Y"] if day_first else ["%m", "%d", "%Y"]))
        for rows in shapes.rows(shape):
            wall[rows], offset_s[rows] = _values(shapes, match, rows, day_first)
            has_clock[rows] = fields.get("H") is not None
            has_offset[rows] = fields.get("zero") is not None or fields.get("sign") is not None
    return TextTimes(wall, offset_s, has_offset, has_clock, order, sorted(layouts))


def _match(shape: bytes) -> re.Match[bytes] | None:
    if len(shape) > 80:
        return None
    for pattern in _WHOLE:
        match = pattern.fullmatch(shape)
        # An hour alone is one only after T, as in ISO 8601, or with am or pm.
        if match is not None and _hour_is_clear(match):
            return match
    return None


def _hour_is_clear(match: re.Match[bytes]) -> bool:
    fields = match.groupdict()
    if fields.get("H") is None or fields.get("M") is not None or fields.get("half") is not None:
        return True
    return match.string[match.start("H") - 1 : match.start("H")].lower() == b"t"


def _day_order(shapes: Shapes, matches: dict[int, re.Match[bytes]]) -> DayOrder:
    """Count over the whole column; texts that are no date in either order are not counted."""
    n_day_first = n_month_first = n_either = 0
    example: dict[str, int] = {}
    for shape, match in matches.items():
        if "first" not in match.groupdict():
            continue
        for rows in shapes.rows(shape):
            first, second = (shapes.number(rows, match.span(name)) for name in ("first", "second"))
            day_first = (first > 12) & (first <= 31) & (second <= 12)
            month_first = (second > 12) & (second <= 31) & (first <= 12)
            either = (first <= 12) & (second <= 12)
            n_day_first += int(day_first.sum())
            n_month_first += int(month_first.sum())
            n_either += int(either.sum())
            for name, kind in (("day", day_first), ("month", month_first), ("either", either)):
                if kind.any():
                    example.setdefault(name, int(rows[kind.argmax()]))
    return DayOrder(n_day_first, n_month_first, n_either, tuple(example.values()))


def _values(shapes: Shapes, match: re.Match[bytes], rows: np.ndarray, day_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """Wall-clock times and offsets of rows of one shape."""
    fields = match.groupdict()

    def number(name: str) -> np.ndarray:
        return shapes.number(rows, match.span(name) if fields.get(name) is not None else (0, 0))

    day_field, month_field = ("first", "second") if day_first else ("second", "first")
    if "first" in fields:
        day, month = number(day_field), number(month_field)
    else:
        day = number("d")
        named = fields.get("month")
        month = number("m") if named is None else np.full(len(rows), MONTHS.index(named.decode().lower()[:3]) + 1)
    hour, minute, second = number("H"), number("M"), number("S")
    good = (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    if fields.get("half") is not None:
        good &= (hour >= 1) & (hour <= 12)
        hour = hour % 12 + 12 * (fields["half"].lower() == b"p")
    of_month = (number("Y") - 1970).astype("datetime64[Y]").astype("datetime64[M]") + np.where(good, month - 1, 0)
    date = of_month.astype("datetime64[D]") + np.where(good, day - 1, 0)
    good &= date.astype("datetime64[M]") == of_month
    offset_s = number("oh") * HOUR_S + number("om") * MINUTE_S
    good &= (offset_s <= 14 * HOUR_S) & (number("om") < 60)
    if fields.get("sign") not in (None, b"+"):
        offset_s = -offset_s
    wall = date.astype("datetime64[s]") + (hour * HOUR_S + minute * MINUTE_S + second)
    wall[~good] = np.datetime64("NaT")
    return wall, np.where(good, offset_s, 0).astype(np.int32)
