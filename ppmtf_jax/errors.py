"""The errors of this library: `InputError` for what a user can mend, `NumericalError` for a computation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

N_EXAMPLES = 5


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
        text = f"expected {self.expected}; found {self.found}"
        if self.n_rows:
            text += f" ({self.n_rows} row{'s' if self.n_rows > 1 else ''})"
        if self.examples:
            text += f", first: {', '.join(self.examples)}"
        return text + (f". {self.way_out}" if self.way_out else ".")


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
        lines = [str(problem) for problem in self.problems]
        if len(lines) == 1:
            super().__init__(f"{subject}: {lines[0]}")
        else:
            super().__init__(f"{subject}: {len(lines)} problems\n" + "\n".join(f"  - {line}" for line in lines))

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Problem | str, ...]]]:
        """Pickle the parts and not the message, so that the error comes back from another process."""
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
