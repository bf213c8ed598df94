"""Times written as text, read by their shape.

The shape of a text is the text with a 9 in place of every digit. A column of millions of texts has only a few shapes,
and all texts of a shape are read in the same way: nothing is guessed row by row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.datasets.tables import row_examples
from ppmtf_jax.errors import Message, Problem, Setting

ROWS_AT_A_TIME = 2**20
HOUR_S, MINUTE_S = 3_600, 60
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


class Shapes:
    """A column of any values as texts: all bytes, where each text begins, and the number of its shape in `shapes`.

    The number is -1 where a value is missing.
    """

    def __init__(self, column: pd.Series):
        text = pa.array(column.astype("str"), type=pa.large_string(), from_pandas=True)
        text = text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text
        valid, offsets, content = text.buffers()
        self.data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
        is_digit = (self.data - ord("0")) < 10  # uint8 wraps: bytes below "0" become large
        buffers = [valid, offsets, pa.py_buffer(np.where(is_digit, np.uint8(ord("9")), self.data))]
        like = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(text), buffers, offset=text.offset)
        encoded = like.dictionary_encode()
        self.start = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text)]
        self.code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        self.shapes: list[bytes] = encoded.dictionary.to_pylist()

    def counts(self) -> np.ndarray:
        """Number of rows of each shape."""
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


class Written(NamedTuple):
    """Times by the clock of the writer, and the offset of this clock from UTC in seconds; arrays of shape (rows,).

    `wall` is datetime64[s], not-a-time where a value is no time; `offset_s` is float32, NaN where no offset is known.
    `problems` concern the whole column, the `way_out` values that are no times. `dates_only`: no value has a time of
    day. `is_count`: numbers were read as counts since 1970.
    """

    wall: np.ndarray
    offset_s: np.ndarray
    dates_only: bool = False
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    way_out: str = ""
    is_count: bool = False


def read_time_texts(column: pd.Series, shapes: Shapes, day_first: bool | None = None) -> Written:
    """Read every text that is a time; by default the whole column tells whether days or months come first."""
    matches = {k: match for k, shape in enumerate(shapes.shapes) if (match := _match(shape)) is not None}
    problems = []
    if day_first is None:
        day_first, problems = _is_day_first(column, shapes, matches)
    wall, offset_s = np.full(len(shapes.code), "NaT", "datetime64[s]"), np.full(len(shapes.code), np.nan, np.float32)
    layouts, has_clock = set(), False
    for shape, match in matches.items():
        fields = match.groupdict()
        if "first" in fields:
            layouts.add(fields["mark"].decode().join(["%d", "%m", "%Y"] if day_first else ["%m", "%d", "%Y"]))
        for rows in shapes.rows(shape):
            wall[rows], offset_s[rows] = _values(shapes, match, rows, day_first)
            has_clock |= fields.get("H") is not None and not np.isnat(wall[rows]).all()
    notes = [f"dates are read as {layout}" for layout in sorted(layouts)]
    way_out = Message(
        "Write times as 2012-04-03T18:00:00, 2012-04-03T18:00:00-04:00 or in seconds since 1970, or tell how they are "
        "written, such as ",
        Setting("time_format", "%d.%m.%Y %H:%M"),
    )
    dates_only = not has_clock and not np.isnat(wall).all()
    return Written(wall, offset_s, dates_only, problems, notes, way_out)


def _match(shape: bytes) -> re.Match[bytes] | None:
    """What the parts of a shape mean; None if it is not the shape of a time."""
    for pattern in _WHOLE if len(shape) <= 80 else ():
        match = pattern.fullmatch(shape)
        if match is None:
            continue
        fields = match.groupdict()
        # A number without minutes is an hour only after T, as in ISO 8601, or with am or pm.
        is_hour_alone = fields.get("H") is not None and fields.get("M") is None and fields.get("half") is None
        if not is_hour_alone or shape[match.start("H") - 1 : match.start("H")].lower() == b"t":
            return match
    return None


def _is_day_first(
    column: pd.Series, shapes: Shapes, matches: Mapping[int, re.Match[bytes]]
) -> tuple[bool, list[Problem]]:
    """Whether the day comes before the month in dates such as 13/4/2012; a problem if the column does not tell.

    Texts that are no date in either order are not counted.
    """
    n_rows, example = {"day": 0, "month": 0, "either": 0}, {}
    for shape, match in matches.items():
        for rows in shapes.rows(shape) if "first" in match.groupdict() else ():
            first, second = (shapes.number(rows, match.span(name)) for name in ("first", "second"))
            kinds = {
                "day": (first > 12) & (first <= 31) & (second <= 12),
                "month": (second > 12) & (second <= 31) & (first <= 12),
                "either": (first <= 12) & (second <= 12),
            }
            for name, kind in kinds.items():
                n_rows[name] += int(kind.sum())
                if kind.any():
                    example.setdefault(name, int(rows[kind.argmax()]))
    n_day_first, n_month_first, n_either = n_rows.values()
    way_out = Message(
        "Tell which comes first: ", Setting("time_format", "day-first"), " or ", Setting("time_format", "month-first")
    )
    examples, problems = row_examples(column, np.array(list(example.values()), np.int64)), []
    if n_day_first and n_month_first:
        found = f"{n_day_first:,} with the day first and {n_month_first:,} with the month first"
        problems = [Problem("dates all in one order", found, examples=examples, way_out=way_out)]
    elif n_either and not n_day_first and not n_month_first:
        expected, found = "dates that tell day and month apart", "none after the 12th of a month"
        problems = [Problem(expected, found, n_either, examples, way_out)]
    return n_day_first > 0, problems


def _values(shapes: Shapes, match: re.Match[bytes], rows: np.ndarray, day_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """Wall-clock times and offsets of rows of one shape."""
    fields = {name: text for name, text in match.groupdict().items() if text is not None}

    def number(name: str) -> np.ndarray:
        return shapes.number(rows, match.span(name) if name in fields else (0, 0))

    day, month = number("d"), number("m")
    if "first" in fields:
        first, second = number("first"), number("second")
        day, month = (first, second) if day_first else (second, first)
    elif "month" in fields:
        month = np.full(len(rows), MONTHS.index(fields["month"].decode().lower()[:3]) + 1)
    hour, minute, second = number("H"), number("M"), number("S")
    good = (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 60)
    if "half" in fields:
        good &= (hour >= 1) & (hour <= 12)
        hour = hour % 12 + 12 * (fields["half"].lower() == b"p")
    of_month = (number("Y") - 1970).astype("datetime64[Y]").astype("datetime64[M]") + np.where(good, month - 1, 0)
    date = of_month.astype("datetime64[D]") + np.where(good, day - 1, 0)
    good &= date.astype("datetime64[M]") == of_month
    offset_s = number("oh") * HOUR_S + number("om") * MINUTE_S
    good &= (offset_s <= 14 * HOUR_S) & (number("om") < 60)
    if fields.get("sign", b"+") != b"+":
        offset_s = -offset_s
    wall = date.astype("datetime64[s]") + (hour * HOUR_S + minute * MINUTE_S + second)
    has_offset = "sign" in fields or "zero" in fields
    return np.where(good, wall, np.datetime64("NaT")), offset_s if has_offset else np.full(len(rows), np.nan)
