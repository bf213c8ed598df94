"""Times written as text, read by their shape.

The shape of a text is the text with a 9 in place of every digit. A column of millions of texts has only a few shapes,
and all texts of a shape are read in the same way: nothing is guessed row by row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as arrow

from ppmtf_jax.datasets.codes import is_text
from ppmtf_jax.errors import Message, Problem, Setting

ROWS_AT_A_TIME = 2**20
HOUR_S, MINUTE_S = 3_600, 60
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# Dates and times in digits alone.
COMPACT = (b"99999999", b"99999999999999")
# End and zone of plain times, by their length.
PLAIN = {19: ("", None), 20: ("Z", "UTC")}
# Stands for a date that is none if its month comes first.
NO_TIME = np.datetime64(-(2**40), "s")
NUMBER = re.compile(rb"\s*[+-]?9+(?:\.9*)?(?:e[+-]?99?)?\s*")

_SPACE = rb"(?:\s|\xc2\xa0|\xe2\x80\xaf)"
_MONTH = (
    rb"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    rb"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = rb"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+"
_CLOCK = (rb"(?P<H>99?)(?::(?P<M>99)(?::(?P<S>99)(?:[.,]9+)?)?)?", rb"(?P<H>99)(?P<M>99)(?:(?P<S>99)(?:[.,]9+)?)?")
_AM_PM = rb"(?:" + _SPACE + rb"*(?P<half>[ap])\.?m\.?)?"
_OFFSET = (
    rb"(?:\s?(?:(?:utc|gmt)?(?P<sign>[+-]|\xe2\x88\x92)(?P<oh>99?)(?::?(?P<om>99))?(?:\s[a-z]{3,5})?|"
    rb"(?P<zero>z|utc|gmt)))?"
)
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


class TimeTexts:
    """What the texts of a column say, piece by piece: which shapes are times, and whether days or months come first."""

    def __init__(self) -> None:
        self.n_texts = self.n_counts = 0
        self.n_of_order = {"day": 0, "month": 0, "either": 0}
        self.first_of_order: dict[str, int] = {}
        self.marks: set[str] = set()
        # Whether a time of day was read, if days or else months come first.
        self.has_clock = {True: False, False: False}

    def add_plain(self, column: pa.ChunkedArray) -> dict[str, pa.Array] | None:
        """What `add` gives if all texts are as 2012-04-03T18:00:00, or all as 2012-04-03T18:00:00Z; otherwise None.

        Arrow reads these at once. The length leaves out the other forms that it reads.
        """
        if not is_text(column.type):
            return None
        lengths = arrow.call_function("min_max", [arrow.call_function("binary_length", [column])])
        shortest, longest = lengths["min"].as_py(), lengths["max"].as_py()
        if shortest not in PLAIN or shortest != longest:
            return None
        end, zone = PLAIN[shortest]
        has_end = arrow.call_function("ends_with", [column], arrow.MatchSubstringOptions(end))
        try:
            wall = column.cast(pa.timestamp("s", zone)).cast(pa.int64()).combine_chunks()
        except pa.ArrowInvalid:
            return None
        if not arrow.call_function("all", [has_end]).as_py():
            return None
        self.n_texts += len(column) - column.null_count
        self.has_clock = {True: True, False: True}
        is_naive = np.full(len(column), True) if zone is None else column.is_null().to_numpy()
        return {"wall": wall, "offset_s": pa.array(np.zeros(len(column), np.int32), mask=is_naive)}

    def add(self, row: np.ndarray, column: pd.Series) -> dict[str, np.ndarray]:
        """Wall-clock times and offsets, and numbers, of some texts.

        `wall` has the times if days come first; `swapped` those of dates that are written in the order of either day or
        month: `NO_TIME` where it is none. `number` has the texts that are numbers.
        """
        shapes, n = Shapes(column), len(column)
        counts = shapes.counts()
        wall, offset_s = np.full(n, "NaT", "datetime64[s]"), np.full(n, np.nan, np.float32)
        found = {"wall": wall, "offset_s": offset_s}
        self.n_texts += int(counts.sum())
        for shape, text in enumerate(shapes.shapes):
            if NUMBER.fullmatch(text):
                self.n_counts += int(counts[shape]) * (text.strip() not in COMPACT)
                number = found.setdefault("number", np.full(n, np.nan))
                for rows in shapes.rows(shape):
                    number[rows] = pd.to_numeric(column.iloc[rows], errors="coerce")
            match = _match(text)
            if match is None:
                continue
            fields = match.groupdict()
            has_order = "first" in fields
            if has_order:
                self.marks.add(fields["mark"].decode())
                swapped = found.setdefault("swapped", np.full(n, "NaT", "datetime64[s]"))
            for rows in shapes.rows(shape):
                wall[rows], offset_s[rows] = _values(shapes, match, rows, True)
                month_first = wall[rows]
                if has_order:
                    self._note_order(row, shapes, match, rows)
                    month_first = _values(shapes, match, rows, False)[0]
                    swapped[rows] = np.where(np.isnat(month_first), NO_TIME, month_first)
                if fields.get("H") is not None:
                    self.has_clock[True] |= not np.isnat(wall[rows]).all()
                    self.has_clock[False] |= not np.isnat(month_first).all()
        return found

    @property
    def are_counts(self) -> bool:
        """Whether most texts are counts since 1970."""
        return self.n_counts > self.n_texts / 2

    @property
    def day_first(self) -> bool:
        """Whether the day comes before the month in dates such as 13/4/2012."""
        return self.n_of_order["day"] > 0

    def problem_of_order(self, examples: Callable[[Sequence[int]], tuple[str, ...]]) -> list[Problem]:
        """A problem if the column does not tell whether days come first; `examples` names rows with their values."""
        n_day_first, n_month_first, n_either = self.n_of_order.values()
        day, month = (Setting("time_format", word) for word in ("day-first", "month-first"))
        way_out = Message("Tell which comes first: ", day, " or ", month)
        first = list(self.first_of_order.values())
        if n_day_first and n_month_first:
            found = f"{n_day_first:,} with the day first and {n_month_first:,} with the month first"
            return [Problem("dates all in one order", found, examples=examples(first), way_out=way_out)]
        if n_either and not n_day_first and not n_month_first:
            expected, found = "dates that tell day and month apart", "none after the 12th of a month"
            return [Problem(expected, found, n_either, examples(first), way_out)]
        return []

    def _note_order(self, row: np.ndarray, shapes: Shapes, match: re.Match[bytes], rows: np.ndarray) -> None:
        """Count the dates by their order; texts that are no date in either order are not counted."""
        first, second = (shapes.number(rows, match.span(name)) for name in ("first", "second"))
        kinds = {
            "day": (first > 12) & (first <= 31) & (second <= 12),
            "month": (second > 12) & (second <= 31) & (first <= 12),
            "either": (first <= 12) & (second <= 12),
        }
        for name, kind in kinds.items():
            self.n_of_order[name] += int(kind.sum())
            if kind.any():
                self.first_of_order.setdefault(name, int(row[rows[kind.argmax()]]))


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
    return np.where(good, wall, np.datetime64("NaT", "s")), offset_s if has_offset else np.full(len(rows), np.nan)
