"""The two errors that this library raises on purpose.

`InputError` is for what a user can cause and mend: it lists every problem found at once, each with what was
expected, what was found, how many rows are concerned, the first offenders and the way out. `NumericalError` is for a
computation that left the finite numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

N_EXAMPLES = 5


@dataclass(frozen=True)
class Setting:
    """A setting that a message names, as data: the command line writes it as an option.

    Examples
    --------
    >>> str(Setting("time_zone", "Asia/Tokyo")), str(Setting("cell_m"))
    ("time_zone='Asia/Tokyo'", 'cell_m')
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


# A text of a message, or its parts where some of them are settings.
Text = str | tuple[str | Setting, ...]


def spelled(text: Text, spell: Callable[[Setting], str] = str) -> str:
    """A text, with every setting in it written by `spell`."""
    return text if isinstance(text, str) else "".join(p if isinstance(p, str) else spell(p) for p in text)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input.

    Parameters
    ----------
    expected, found : str, or tuple of str and Setting
        What should have been there, and what was.
    n_rows : int
        How many rows are concerned; 0 where the problem is not one of rows.
    examples : tuple of str
        The first offenders.
    way_out : str, or tuple of str and Setting
        What the user can do about it.
    """

    expected: Text
    found: Text
    n_rows: int = 0
    examples: tuple[str, ...] = ()
    way_out: Text = ""

    def __str__(self) -> str:
        return self.told()

    def told(self, spell: Callable[[Setting], str] = str) -> str:
        """The problem as a text, with every setting written by `spell`."""
        text = f"expected {spelled(self.expected, spell)}; found {spelled(self.found, spell)}"
        if self.n_rows:
            text += f" ({self.n_rows} row{'s' if self.n_rows > 1 else ''})"
        if self.examples:
            text += f", first: {', '.join(self.examples)}"
        return text + (f". {spelled(self.way_out, spell)}" if self.way_out else ".")


class PpmtfError(Exception):
    """Base of all errors that this library raises on purpose."""


class InputError(PpmtfError, ValueError):
    """Bad input, with every problem of it listed.

    Examples
    --------
    >>> raise InputError("traces.csv", [Problem("column 'user'", "columns 'uid', 'place'")])
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: traces.csv: expected column 'user'; found columns 'uid', 'place'.
    """

    def __init__(self, subject: str, problems: Iterable[Problem | str]):
        self.subject = subject
        self.problems = tuple(problems)
        super().__init__(self.told())

    def told(self, spell: Callable[[Setting], str] = str) -> str:
        """The whole message, with every setting written by `spell`."""
        lines = [each.told(spell) if isinstance(each, Problem) else each for each in self.problems]
        if len(lines) == 1:
            return f"{self.subject}: {lines[0]}"
        return f"{self.subject}: {len(lines)} problems\n" + "\n".join(f"  - {line}" for line in lines)

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Problem | str, ...]]]:
        """Pickled by its parts, not by its message, so that it comes back from another process."""
        return type(self), (self.subject, self.problems)


class NumericalError(PpmtfError, ArithmeticError):
    """A computation left the finite numbers; the message says where and what to try."""


def first_examples(values: Sequence[object]) -> tuple[str, ...]:
    """The first few of `values` as text, for `Problem.examples`."""
    return tuple(str(value) for value in list(values)[:N_EXAMPLES])


def missing_columns(found: Collection[object], needed: Sequence[str]) -> list[Problem]:
    """A problem where some of the needed columns are not there."""
    found = list(found)  # an index of pandas has no truth value
    missing = [name for name in needed if name not in found]
    if not missing:
        return []
    way_out = f"Missing: {', '.join(missing)}"
    found_text = f"columns {', '.join(map(str, found))}" if found else "no columns"
    return [Problem(f"columns {', '.join(needed)}", found_text, way_out=way_out)]
