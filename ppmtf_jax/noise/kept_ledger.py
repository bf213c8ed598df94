"""A ledger on disk: every loss is written before its noise is drawn, and stays even if the run fails.

A failed run has already revealed what it drew, and a repeated run draws again. So the losses of all earlier runs count,
finished or not, and later runs append to the same file. The file is secret because it holds the seeds of the runs.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.noise.accountant import NO_LOSS, Loss, Spending
from ppmtf_jax.runtime.files import PathLike, append_text, read_own
from ppmtf_jax.streams import Seed


class EarlierRuns(NamedTuple):
    """Losses of earlier runs."""

    n: int  # number of runs that drew noise
    loss: Loss  # the sum over these runs
    bounded: bool  # whether the sum bounds what the runs reveal about a user, under the relation of this run


NO_RUNS = EarlierRuns(0, NO_LOSS, bounded=True)


class KeptLedger:
    """One run's access to the ledger file; all runs that write the same output share this file.

    Raises `InputError`: the file is not a ledger, belongs to another user, or cannot be written.

    Parameters
    ----------
    path : path
        The ledger file; it is created when the first line is written.
    bounded : bool
        Whether the sum of this run's losses bounds what the run reveals.

    Examples
    --------
    >>> import tempfile
    >>> from ppmtf_jax.noise.accountant import Accountant
    >>> path = Path(tempfile.mkdtemp()) / "friends.ledger.jsonl"
    >>> for _ in range(2):
    ...     kept = KeptLedger(path, Seed(0, given=True), bounded=True)
    ...     noisy = Accountant("a user", 1, record=kept.add).add_laplace(7, 1, 0.1, "visits")
    >>> kept.earlier("a user")
    EarlierRuns(n=1, loss=Loss(epsilon=Fraction(1, 10), delta=Fraction(0, 1)), bounded=True)
    """

    def __init__(self, path: PathLike, seed: Seed, *, bounded: bool):
        self.path, self.run, self.seed, self.bounded = Path(path), uuid.uuid4().hex, seed, bounded
        self._has_begun = False
        list(self._lines())

    def add(self, spending: Spending) -> None:
        """Write a line; it is on the disk when this returns."""
        if not self._has_begun:
            began = datetime.now().astimezone().isoformat(timespec="seconds")
            self._write({"began": began, "seed": self.seed.value, "seed_given": self.seed.given})
            self._has_begun = True
        loss = {name: str(amount) for name, amount in spending.loss._asdict().items()}
        self._write({"bounded": self.bounded, **spending._asdict(), "loss": loss})

    def earlier(self, relation: str) -> EarlierRuns:
        """Losses of all other runs so far; some of these runs may not be finished."""
        lines = [line for line in self._lines() if line["run"] != self.run and "loss" in line]
        return EarlierRuns(
            len({line["run"] for line in lines}),
            sum((_loss_of(line) for line in lines), NO_LOSS),
            all(line["bounded"] and line["relation"] == relation for line in lines),
        )

    def _write(self, content: dict[str, Any]) -> None:
        append_text(self.path, json.dumps({"run": self.run, **content}) + "\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        text = read_own(self.path).decode(errors="replace") if os.path.lexists(self.path) else ""
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                content = json.loads(line)
                _ = content["run"], _loss_of(content) if "loss" in content else NO_LOSS
            except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
                way_out = "The file says what was spent: look at it, and choose another name for the output"
                problem = Problem("a ledger with a line for each loss", f"line {number}: {error}", way_out=way_out)
                raise InputError(str(self.path), [problem]) from error
            yield content


def _loss_of(line: dict[str, Any]) -> Loss:
    return Loss(*(Fraction(line["loss"][name]) for name in Loss._fields))
