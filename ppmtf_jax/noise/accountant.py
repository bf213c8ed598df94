"""A privacy budget and its ledger of mechanisms and their losses; spending more than the budget is refused.

Losses under one neighbour relation add up (sequential composition, Dwork and Roth 2014, theorem 3.16): adaptively
chosen mechanisms that are (epsilon_i, delta_i)-differentially private are together differentially private with the
sums. Losses under different relations, such as "a user's trace" and "a user's friendships", do not add up: neither loss
bounds what both mechanisms together reveal about a person with both kinds of data. So an accountant has exactly one
relation. For a common bound, state one relation that covers both ("a user: their trace and their friendships").

**Zero-concentrated differential privacy** (zCDP, Bun and Steinke 2016) is for Gaussian noise: a mechanism is rho-zCDP
if, for every order a > 1, the Renyi divergence of order a between its outputs for two neighbours is at most rho a. The
losses add up too. A rho-zCDP mechanism is also (epsilon, delta)-differentially private with

    delta = min over a > 1 of exp((a - 1) (a rho - epsilon)) / (a - 1) (1 - 1/a)^a

(Canonne, Kamath and Steinke 2020, proposition 7).

**Exact sums.** An amount is the exact number as written: 0.1 is one tenth, and 0.1 + 0.2 uses exactly a budget of 0.3.
The float 0.1 is slightly more than one tenth. So `Accountant.spend` returns the largest float that is not above the
amount in the ledger, and a mechanism that uses this float spends no more than the ledger says.
"""

from __future__ import annotations

import json
import math
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import fminbound

from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.noise.mechanisms import NoiseSource, SecureNoise, Values
from ppmtf_jax.runtime.files import PathLike, append_text, read_own
from ppmtf_jax.streams import Seed

Number = int | float | str | Decimal | Fraction
"""An amount of epsilon or delta; text may be a decimal or a fraction, "0.25" or "1/3"."""


class Loss(NamedTuple):
    """Exact amounts of epsilon and delta."""

    epsilon: Fraction
    delta: Fraction

    def __add__(self, other: tuple[Any, ...]) -> Loss:
        return Loss(self.epsilon + other[0], self.delta + other[1])


NO_LOSS = Loss(Fraction(), Fraction())


class Rho(NamedTuple):
    """Exact amount of rho, the loss of zero-concentrated differential privacy."""

    rho: Fraction


Amounts = TypeVar("Amounts", Loss, Rho)


class Spending(NamedTuple):
    """One line of a ledger: a mechanism, its neighbour relation, and its loss."""

    mechanism: str
    relation: str
    loss: Loss | Rho
    sensitivity: int | float | None


class Ledger(Generic[Amounts]):
    """Budget and ledger of one neighbour relation: the base of accountants, which differ in what a loss is.

    Raises `InputError`: epsilon or delta is out of range.

    Parameters
    ----------
    relation : str
        The neighbour relation in words, such as "one user's trace is added or removed".
    budget : Loss or Rho
        What all mechanisms together may cost. Accountants take it as epsilon, above 0, and delta, below 1 and, for
        zCDP, above 0.
    noise : NoiseSource
        `SecureNoise` except in experiments. With `SeededNoise` the ledger says that it is not private.
    record : function of a Spending, optional
        Receives every line before its noise is drawn, so that the loss is recorded even if the run fails.
    """

    def __init__(self, relation: str, budget: Amounts, noise: NoiseSource | None, record: Callable[[Spending], None]):
        self.relation, self.budget = relation, budget
        self.noise = noise or SecureNoise()
        self._record = record
        self.spendings: list[Spending] = []  # the lines of the ledger, in the order in which they were written

    @property
    def spent(self) -> Amounts:
        """The sum of all losses."""
        nothing = (Fraction(),) * len(self.budget)
        return self.budget._make(map(sum, zip(nothing, *(line.loss for line in self.spendings), strict=True)))

    @property
    def remaining(self) -> Amounts:
        """The remaining budget, as exact fractions: a third of it can be spent exactly."""
        return self.budget._make(budget - spent for budget, spent in zip(self.budget, self.spent, strict=True))

    def _write(self, mechanism: str, loss: Amounts, sensitivity: int | float | None) -> None:
        """Write a line; refuse a loss that is larger than the remaining budget."""
        problems: list[Problem | str] = []
        for name, wanted, left in zip(loss._fields, loss, self.remaining, strict=True):
            if wanted > left:
                # If both amounts are the same float, show them exactly.
                same = float(wanted) == float(left)
                found, most = (str(each) if same else repr(float(each)) for each in (wanted, left))
                expected = f"at most the {name} of {most} that is left under {self.relation!r}"
                way_out = f"Nothing was spent on {mechanism!r}. Spend less: a larger budget is a weaker promise"
                problems.append(Problem(expected, found, way_out=way_out))
        raise_any("privacy budget", problems)
        spending = Spending(mechanism, self.relation, loss, sensitivity)
        self._record(spending)
        self.spendings.append(spending)

    def ledger(self) -> dict[str, Any]:
        """The ledger, ready for JSON; a float in it is never less than the exact amount."""
        lines = [
            {"mechanism": each.mechanism, "sensitivity": each.sensitivity, **stated(each.loss)}
            for each in self.spendings
        ]
        own = {"relation": self.relation, "budget": self._total(self.budget), "spent": self._total(self.spent)}
        return {"private": self.noise.is_private, "relations": [own | {"mechanisms": lines}]}

    def _total(self, loss: Amounts) -> dict[str, float]:
        """What the ledger says about a sum of losses."""
        return stated(loss)


class Accountant(Ledger[Loss]):
    """Ledger of losses of epsilon and delta, and the source of Laplace noise.

    Examples
    --------
    >>> accountant = Accountant("one user's trace", 0.3)
    >>> noisy = accountant.add_laplace(np.zeros(4, int), 1, 0.1, "visits")
    >>> epsilon = accountant.spend("moves", 0.2, sensitivity=3)
    >>> noisy = accountant.noise.add_laplace(np.zeros(4, int), 3, epsilon)
    >>> accountant.spend("stays", 0.001)
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: privacy budget: expected ...
    """

    def __init__(
        self,
        relation: str,
        epsilon: Number,
        delta: Number = 0,
        noise: NoiseSource | None = None,
        record: Callable[[Spending], None] = lambda _: None,
    ):
        super().__init__(relation, exact_loss("privacy budget", epsilon, delta), noise, record)

    def spend(
        self, mechanism: str, epsilon: Number, delta: Number = 0, *, sensitivity: int | float | None = None
    ) -> float:
        """Write a loss into the ledger; call this before the noise is drawn.

        Returns the epsilon for the mechanism: the largest float that is not above the amount in the ledger. Raises
        `InputError`: the loss is out of range, or larger than the remaining budget. Then nothing is spent.
        """
        loss = exact_loss(mechanism, epsilon, delta)
        self._write(mechanism, loss, sensitivity)
        return float_below(loss.epsilon)

    def add_laplace(self, values: Values, sensitivity: int | float, epsilon: Number, mechanism: str) -> Values:
        """Spend epsilon, then add Laplace noise as `noise.mechanisms.add_laplace` does.

        If that function refuses the values, the epsilon is still spent, because a refusal may depend on the values and
        so reveal something about them.
        """
        to_spend = self.spend(mechanism, epsilon, sensitivity=sensitivity)
        return self.noise.add_laplace(values, sensitivity, to_spend)


def float_below(amount: Fraction) -> float:
    """The largest float that is not above an exact amount."""
    nearest = float(amount)
    return nearest if Fraction(nearest) <= amount else math.nextafter(nearest, -math.inf)


def stated(loss: Loss | Rho) -> dict[str, float]:
    """The amounts as the nearest floats whose decimal notation is not below the exact amounts."""
    nearest = {name: float(amount) for name, amount in loss._asdict().items()}
    return {
        name: value if Fraction(repr(value)) >= amount else math.nextafter(value, math.inf)
        for (name, value), amount in zip(nearest.items(), loss, strict=True)
    }


def exact_loss(subject: str, epsilon: Number, delta: Number = 0) -> Loss:
    """Both numbers as written, exactly; raises `InputError` about `subject` if they are not a possible loss."""
    exact = _exact(epsilon), _exact(delta)
    problems: list[Problem | str] = []
    # The smallest and the largest float, because mechanisms need floats.
    if exact[0] is None or not math.ulp(0.0) <= exact[0] <= Fraction(sys.float_info.max):
        problems.append(Problem("a positive, finite epsilon", repr(epsilon)))
    if exact[1] is None or not 0 <= exact[1] < 1:
        problems.append(Problem("a delta from 0 to below 1", repr(delta)))
    raise_any(subject, problems)
    return Loss(*exact)  # pyright: ignore[reportArgumentType]


def _exact(number: Number) -> Fraction | None:
    """The exact value of a number as written; None if it is not a finite number."""
    try:
        return Fraction(str(number).strip())
    except (ValueError, ZeroDivisionError):
        return None


Orders = float | np.ndarray
# The search begins at the best of these orders a; the numbers are log(a - 1).
LOG_ORDERS = np.linspace(-30, 60, 3000)
# Relative margin, larger than the relative rounding errors of the bounds.
ROUNDING = 1e-10


class ZCDPAccountant(Ledger[Rho]):
    """Ledger of losses of rho, and the source of Gaussian noise; the budget is given as epsilon and delta.

    Examples
    --------
    >>> accountant = ZCDPAccountant("one user's traces", epsilon=1, delta=1e-6)
    >>> half = accountant.budget.rho / 2
    >>> noisy = accountant.add_gaussian(np.zeros(4, int), 1, half, "visits")
    >>> {name: round(amount, 4) for name, amount in accountant.ledger()["relations"][0]["spent"].items()}
    {'epsilon': 0.6905, 'delta': 0.0, 'rho': 0.0122}
    """

    def __init__(
        self,
        relation: str,
        epsilon: Number,
        delta: Number,
        noise: NoiseSource | None = None,
        record: Callable[[Spending], None] = lambda _: None,
    ):
        self.promised = exact_loss("privacy budget", epsilon, delta)
        rho = rho_of(*map(float_below, self.promised))
        super().__init__(relation, Rho(Fraction(rho)), noise, record)

    def add_gaussian(self, values: np.ndarray, sensitivity: int, rho: Fraction, mechanism: str) -> np.ndarray:
        """Spend rho, then add Gaussian noise as `noise.mechanisms.add_gaussian` does.

        If that function refuses the values, rho is still spent, as in `Accountant.add_laplace`. Raises `InputError`:
        rho is not positive, or larger than the remaining budget. In these two cases nothing is spent.
        """
        if rho <= 0:
            raise InputError(mechanism, [Problem("a positive rho", str(rho))])
        self._write(mechanism, Rho(rho), sensitivity)
        return self.noise.add_gaussian(values, sensitivity, float_below(rho))

    def _total(self, loss: Rho) -> dict[str, float]:
        """Epsilon, delta and rho. Delta is the promised one; for a part of the budget, epsilon follows from rho."""
        if loss == self.budget:
            return stated(self.promised) | stated(loss)
        epsilon = epsilon_of(stated(loss)["rho"], float_below(self.promised.delta))
        return stated(self.promised) | {"epsilon": epsilon} | stated(loss)


def epsilon_of(rho: float, delta: float) -> float:
    """An epsilon such that rho-zCDP implies (epsilon, delta)-differential privacy; the smallest by the formula above.

    `rho`: at least 0. `delta`: above 0 and below 1. Raises `InputError`: rho or delta is out of range.

    Examples
    --------
    >>> round(epsilon_of(0.5, 1e-6), 4)
    5.2215
    """
    _check("a finite rho of at least 0", 0 <= rho < math.inf, rho, delta)
    least = _minimum(lambda order, own: order * rho - own, delta)
    return max(0.0, least) * (1 + ROUNDING) if rho else 0.0


def rho_of(epsilon: float, delta: float) -> float:
    """A rho such that rho-zCDP implies (epsilon, delta)-differential privacy; the largest by the formula above.

    `epsilon`: above 0. `delta`: above 0 and below 1. Raises `InputError`: epsilon or delta is out of range.

    Examples
    --------
    >>> round(rho_of(1.0, 1e-6), 5)
    0.02436
    """
    _check("a positive, finite epsilon", 0 < epsilon < math.inf, epsilon, delta)
    rho = -_minimum(lambda order, own: -(epsilon + own) / order, delta) * (1 - ROUNDING)
    if rho <= 0:
        problem = Problem("an epsilon that noise can reach", repr(epsilon))
        raise InputError("zero-concentrated differential privacy", [problem])
    return rho


def _check(expected: str, possible: bool, found: float, delta: float) -> None:
    problems = [] if possible else [Problem(expected, repr(found))]
    if not 0 < delta < 1:
        problems.append(Problem("a delta above 0 and below 1", repr(delta)))
    raise_any("zero-concentrated differential privacy", problems)


def _minimum(bound: Callable[[Orders, Orders], Orders], delta: float) -> float:
    """The minimum of a bound over orders a; even if the search misses it, the value at any order is a correct bound.

    `bound`: function of a and of the value of a rho - epsilon for which the formula gives `delta`.
    """

    def at(log_order: Orders) -> Orders:
        above_one = np.exp(log_order)
        own = (np.log1p(above_one) + math.log(delta)) / above_one + np.log1p(1 / above_one)
        return bound(1 + above_one, own)

    best, step = LOG_ORDERS[np.argmin(at(LOG_ORDERS))], LOG_ORDERS[1] - LOG_ORDERS[0]
    return float(at(fminbound(at, best - step, best + step, xtol=1e-9)))


class EarlierRuns(NamedTuple):
    """Losses of earlier runs."""

    n: int  # number of runs that drew noise
    loss: Loss  # the sum over these runs
    bounded: bool  # whether the sum bounds what the runs reveal about a user, under the relation of this run


NO_RUNS = EarlierRuns(0, NO_LOSS, bounded=True)


class KeptLedger:
    """A ledger on disk: every loss is written before its noise is drawn, and stays even if the run fails.

    A failed run has already revealed what it drew, and a repeated run draws again. So the losses of all earlier runs
    count, finished or not: all runs that write the same output append to the same file. The file is secret because it
    holds the seeds of the runs. Raises `InputError`: it is not a ledger, belongs to another user, or cannot be written.

    Parameters
    ----------
    path : path
        The ledger file; it is created when the first line is written.
    bounded : bool
        Whether the sum of this run's losses bounds what the run reveals.

    Examples
    --------
    >>> import tempfile
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
