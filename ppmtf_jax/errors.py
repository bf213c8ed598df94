"""The errors of this library: `InputError` for what a user can mend, `NumericalError` for a computation."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

N_EXAMPLES = 5
MAX_QUOTED, MAX_ERROR, MAX_NAMES = 40, 200, 20
# A number with a decimal mark and at most three digits before it may be a coordinate; dates and clocks are not.
MAY_BE_COORDINATE = re.compile(r"(?<![\d.])(?<!\d[:/])\d{1,3}[.,]\d+(?!\d|\.\d)|°")


@dataclass(frozen=True)
class Setting:
    """A setting in a message, kept as data so that the command line can write it as an option.

    Examples
    --------
    >>> str(Setting("time_zone", "Asia/Tokyo")), str(Setting("cell_m"))
    ("time_zone='Asia/Tokyo'", 'cell_m')
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


class Message(str):
    """A text that keeps the settings that it names as data, so that the command line can write them as options.

    Examples
    --------
    >>> text = Message("Name the zone, such as ", Setting("time_zone", "Asia/Tokyo"))
    >>> print(text, "or", text.spelled(lambda setting: f"--{setting.name} {setting.value}"))
    Name the zone, such as time_zone='Asia/Tokyo' or Name the zone, such as --time_zone Asia/Tokyo
    """

    parts: tuple[str | Setting, ...]

    def __new__(cls, *parts: str | Setting) -> Message:
        inner = [part for each in parts for part in (each.parts if isinstance(each, Message) else (each,))]
        message = super().__new__(cls, "".join(map(str, inner)))
        message.parts = tuple(inner)
        return message

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> Message:
        """Join texts as lines."""
        return cls(*[part for line in lines for part in ("\n", line)][1:])

    def spelled(self, spell: Callable[[Setting], str]) -> str:
        """The text, with every setting written by `spell`."""
        return "".join(part if isinstance(part, str) else spell(part) for part in self.parts)


class Finding(Message):
    """A note on a table, with a code and the number of rows that it concerns, so that nobody needs to read its words.

    Examples
    --------
    >>> note = Finding("3 rows without a user are left out", code="no-user", n_rows=3)
    >>> note.code, note.n_rows
    ('no-user', 3)
    """

    code: str
    n_rows: int

    def __new__(cls, *parts: str | Setting, code: str = "", n_rows: int = 0) -> Finding:
        finding: Any = super().__new__(cls, *parts)
        finding.code, finding.n_rows = code, n_rows
        return finding


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input: what was expected and found, in how many rows, and what to do about it.

    Parameters
    ----------
    n_rows : int
        0 if the problem is not about rows.
    examples : tuple of str
        The first wrong values, see `quoted`.
    code : str
        A name of the kind of problem, for programs.
    """

    expected: str
    found: str
    n_rows: int = 0
    examples: tuple[str, ...] = ()
    way_out: str = ""
    code: str = ""

    def __str__(self) -> str:
        return str.__str__(self.message())

    def message(self) -> Message:
        """The problem as a text."""
        text = Message("expected ", self.expected, "; found ", self.found)
        if self.n_rows:
            text = Message(text, f" ({self.n_rows} row{'s' if self.n_rows > 1 else ''})")
        if self.examples:
            text = Message(text, f", first: {', '.join(self.examples)}")
        return Message(text, ". ", self.way_out) if self.way_out else Message(text, ".")


class PpmtfError(Exception):
    """Base of all errors that this library raises on purpose."""


class InputError(PpmtfError, ValueError):
    """Wrong input; the message lists all problems.

    Examples
    --------
    >>> raise InputError("traces.csv", [Problem("column 'user'", "columns 'uid', 'place'")])
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: traces.csv: expected column 'user'; found columns 'uid', 'place'.
    """

    def __init__(self, subject: str, problems: Iterable[Problem | str]):
        self.subject = subject
        self.problems = tuple(problems)
        super().__init__(str(self.message()))

    def message(self) -> Message:
        """The whole text, which names all problems."""
        lines = [each.message() if isinstance(each, Problem) else each for each in self.problems]
        if len(lines) == 1:
            return Message(f"{self.subject}: ", *lines)
        head = f"{self.subject}: {len(lines)} problems"
        return Message.of_lines([head, *(Message("  - ", line) for line in lines)])

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Problem | str, ...]]]:
        """Pickle the parts and not the message, so that the error comes back from another process."""
        return type(self), (self.subject, self.problems)


def raise_any(subject: str, problems: Iterable[Problem | str]) -> None:
    """Raise an `InputError` that lists the problems, if there are any."""
    if listed := tuple(problems):
        raise InputError(subject, listed)


@contextmanager
def collecting(problems: list[Problem | str], prefix: str = "") -> Iterator[None]:
    """If the block raises an `InputError`, its problems are added to a list; with a prefix, as texts."""
    try:
        yield
    except InputError as error:
        problems += [f"{prefix}{problem}" if prefix else problem for problem in error.problems]


class NumericalError(PpmtfError, ArithmeticError):
    """A computation gave infinite or undefined numbers; the message says where and what to try."""


def quoted(value: object, *, is_position: bool = False, at_most: int = MAX_QUOTED) -> str:
    """A value or a name of a table as a message shows it: short, and without the digits of what may be a position.

    Every message that shows content of a table takes it from here, since messages are copied into reports of errors.

    Parameters
    ----------
    is_position : bool
        Whether the value comes from a column of coordinates; else its form decides.
    at_most : int
        Longer texts are cut off after this number of characters.

    Examples
    --------
    >>> quoted("user 7"), quoted("52.51,13.41"), quoted("2024-03-04 24:49:00"), quoted(52.5)
    ("'user 7'", "'##.##,##.##'", "'2024-03-04 24:49:00'", '##.#')
    >>> quoted("52 31 N", is_position=True), len(quoted("x" * 1000))
    ("'## ## N'", 45)
    """
    text = str(value)
    if is_position or MAY_BE_COORDINATE.search(text):
        text = re.sub(r"\d", "#", text)
    text = text if len(text) <= at_most else f"{text[:at_most]}..."
    return repr(text) if isinstance(value, str) else text


def quoted_error(error: Exception) -> str:
    """The text of another library's error, which may quote what it could not read, without longer numbers."""
    text = re.sub(r"\d[\d.,]{2,}", "#", str(error))
    return quoted(text, at_most=MAX_ERROR)[1:-1] or type(error).__name__


def quoted_names(names: Iterable[object]) -> str:
    """Names of columns as a message shows them; a file without a header has values where names should be.

    Examples
    --------
    >>> quoted_names(["user", "lat"]), quoted_names(["u1", "52.5", "525300000"])
    ('user, lat', 'u1, ##.#, #########')
    """
    texts = [str(name) for name in names]
    no_names = [len(text) > (MAX_QUOTED if re.search("[^\\W\\d_]", text) else 2) for text in texts[:MAX_NAMES]]
    shown = [quoted(text, is_position=is_none)[1:-1] for text, is_none in zip(texts, no_names, strict=False)]
    return ", ".join(shown) + (f" and {len(texts) - MAX_NAMES:,} others" if len(texts) > MAX_NAMES else "")


def first_examples(values: Sequence[object]) -> tuple[str, ...]:
    """The first few of `values` as text, for `Problem.examples`."""
    return tuple(str(value) for value in list(values)[:N_EXAMPLES])


def row_problems(
    bad: Any, expected: str, found: str = "others", *, values: Any = None, way_out: str = ""
) -> list[Problem]:
    """A problem if some rows are bad (bool array); the examples are their `values`, an array."""
    n_bad = int(bad.sum())
    examples = () if values is None else first_examples(values[bad].tolist())
    return [Problem(expected, found, n_bad, examples, way_out)] if n_bad else []


def missing_columns(found: Collection[object], needed: Sequence[str]) -> list[Problem]:
    """A problem if some of the needed columns are missing."""
    found = list(found)  # an index of pandas has no truth value
    missing = [name for name in needed if name not in found]
    if not missing:
        return []
    way_out = f"Missing: {', '.join(missing)}"
    found_text = f"columns {quoted_names(found)}" if found else "no columns"
    return [Problem(f"columns {', '.join(needed)}", found_text, way_out=way_out)]
