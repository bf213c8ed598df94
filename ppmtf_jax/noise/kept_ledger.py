"""A ledger as a file: every loss is written down before its noise is drawn, and stays, whatever comes of the run.

A run that failed has shown what it drew until then, and one that is repeated draws anew. So what earlier runs spent
counts, finished or not, and a later run adds to it. The file is secret, for it has the seeds of the runs.
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
from ppmtf_jax.noise.accountant import Loss, Spending
from ppmtf_jax.runtime.files import append_text, read_own
from ppmtf_jax.streams import Seed


class EarlierRuns(NamedTuple):
    """What runs before this one spent.

    Attributes
    ----------
    n : int
        Of those that drew something.
    loss : Loss
        The sum over all of them.
    bounded : bool
        Whether the sum bounds what they told of a user, under the relation of this run.
    """

    n: int
    loss: Loss
    bounded: bool


NO_RUNS = EarlierRuns(0, Loss(Fraction(), Fraction()), bounded=True)


class KeptLedger:
    """The ledger of all runs that write one output; this run is one of them.

    Parameters
    ----------
    path : path
        Of the file, which is made with the first line.
    seed : Seed
        Of the run.
    bounded : bool
        Whether what the run will write down bounds what it tells.

    Raises
    ------
    InputError
        The file is no such ledger, is not this user's own, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from ppmtf_jax.noise.accountant import Accountant, Budget
    >>> path = Path(tempfile.mkdtemp()) / "friends.ledger.jsonl"
    >>> for _ in range(2):
    ...     kept = KeptLedger(path, Seed(0, given=True), bounded=True)
    ...     noisy = Accountant({"a user": Budget(1)}, record=kept.add).add_laplace(7, 1, 0.1, "visits", "a user")
    >>> kept.earlier("a user")
    EarlierRuns(n=1, loss=Loss(epsilon=Fraction(1, 10), delta=Fraction(0, 1)), bounded=True)
    """

    def __init__(self, path: str | os.PathLike[str], seed: Seed, *, bounded: bool):
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
        """What other runs have spent until now, of which the last may be going on."""
        lines = [line for line in self._lines() if line["run"] != self.run and "loss" in line]
        spent = [[Fraction(line["loss"][name]) for line in lines] for name in Loss._fields]
        return EarlierRuns(
            len({line["run"] for line in lines}),
            Loss(*(sum(amounts, Fraction()) for amounts in spent)),
            all(line["bounded"] and line["relation"] == relation for line in lines),
        )

    def _write(self, content: dict[str, Any]) -> None:
        append_text(self.path, json.dumps({"run": self.run, **content}) + "\n")

    def _lines(self) -> Iterator[dict[str, Any]]:
        text = read_own(self.path).decode(errors="replace") if os.path.lexists(self.path) else ""
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                content = json.loads(line)
                _ = content["run"], [Fraction(content["loss"][name]) for name in Loss._fields if "loss" in content]
            except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
                way_out = "What it says was spent: look at it, and choose another name for the output"
                problem = Problem("a ledger, a line for each loss", f"line {number}: {error}", way_out=way_out)
                raise InputError(str(self.path), [problem]) from error
            yield content
