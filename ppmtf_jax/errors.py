"""The errors of this library: `InputError` for what a user can mend, `NumericalError` for a computation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

N_EXAMPLES = 5


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


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input: what was expected and found, in how many rows, and what to do about it.

    Parameters
    ----------
    n_rows : int
        0 if the problem is not about rows.
    examples : tuple of str
        The first wrong values.
    """

    expected: str
    found: str
    n_rows: int = 0
    examples: tuple[str, ...] = ()
    way_out: str = ""

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
    found_text = f"columns {', '.join(map(str, found))}" if found else "no columns"
    return [Problem(f"columns {', '.join(needed)}", found_text, way_out=way_out)]
