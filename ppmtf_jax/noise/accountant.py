"""The privacy budget: what is spent of it, on what, and a refusal to spend more.

Spending under one neighbour relation adds up (sequential composition, Dwork and Roth 2014, theorem 3.16): of adaptively
chosen mechanisms that are (epsilon_i, delta_i)-differentially private, all together are so with the sums. Losses under
different relations, such as "a user's trace" and "a user's friendships", do not: neither bounds what the two together
tell of somebody who is in both. So each relation has a budget and a ledger of its own, and nothing is added across
them. To bound both together, state a relation that covers both ("a user: her trace and her friendships") and spend both
under it.

**Exact sums.** Numbers are taken as they are written: 0.1 is a tenth, and 0.1 + 0.2 fills a budget of 0.3. The float
0.1 is a little more than a tenth; so `Accountant.spend` returns the largest float that is no more than what it wrote
down, and a mechanism that takes that one spends no more than the ledger says.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.noise.laplace import NoiseSource, SecureNoise, Values

Number = int | float | str | Decimal | Fraction
"""An amount of epsilon or delta; text may be a decimal or a fraction, "0.25" or "1/3"."""

NOT_PRIVATE = "NOT PRIVATE: the noise comes from a seed, for experiments. The losses below protect nobody."


class Loss(NamedTuple):
    """An amount of epsilon and delta, exact."""

    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class Budget:
    """How much may be spent under one neighbour relation.

    Parameters
    ----------
    epsilon : number
        Above 0.
    delta : number
        From 0 to below 1.

    Raises
    ------
    InputError
        It is no such number.

    Examples
    --------
    >>> Budget("1/3").loss
    Loss(epsilon=Fraction(1, 3), delta=Fraction(0, 1))
    """

    epsilon: Number
    delta: Number = 0

    def __post_init__(self) -> None:
        _exact_loss("privacy budget", self.epsilon, self.delta)

    @property
    def loss(self) -> Loss:
        """The whole budget, exact."""
        return _exact_loss("privacy budget", self.epsilon, self.delta)


class Spending(NamedTuple):
    """One line of a ledger.

    Attributes
    ----------
    mechanism : str
        What was released, and by which mechanism.
    relation : str
        Which two data sets it makes alike.
    loss : Loss
        What it cost.
    sensitivity : int or float, optional
        What the noise was scaled to.
    """

    mechanism: str
    relation: str
    loss: Loss
    sensitivity: int | float | None


class Accountant:
    """Keeps budgets and ledgers, one for each neighbour relation, and hands out the noise.

    Parameters
    ----------
    budgets : mapping of str to Budget
        By neighbour relation, in words, such as "traces: one user's trace more or less".
    noise : NoiseSource
        `SecureNoise` unless this is an experiment with `SeededNoise`, of which the ledger then says that it is not
        private.
    record : function of a Spending, optional
        Is told every line before its noise is drawn: to keep it, whatever becomes of the work.

    Examples
    --------
    >>> import numpy as np
    >>> accountant = Accountant({"one user's trace": Budget(0.3)})
    >>> noisy = accountant.add_laplace(np.zeros(4, int), 1, 0.1, "visits", "one user's trace")
    >>> epsilon = accountant.spend("moves", "one user's trace", 0.2, sensitivity=3)
    >>> noisy = accountant.noise.add_laplace(np.zeros(4, int), 3, epsilon)
    >>> accountant.remaining("one user's trace")
    Loss(epsilon=Fraction(0, 1), delta=Fraction(0, 1))
    >>> accountant.spend("stays", "one user's trace", 0.001)
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: privacy budget: expected ...
    """

    def __init__(
        self,
        budgets: Mapping[str, Budget],
        noise: NoiseSource | None = None,
        record: Callable[[Spending], None] = lambda _: None,
    ):
        if not budgets:
            raise InputError("privacy budget", [Problem("a budget for at least one neighbour relation", "none")])
        self.budgets = dict(budgets)
        self.noise = noise or SecureNoise()
        self._record = record
        self._spendings: list[Spending] = []

    @property
    def spendings(self) -> tuple[Spending, ...]:
        """Every line of all ledgers, in the order in which they were written."""
        return tuple(self._spendings)

    def spend(
        self,
        mechanism: str,
        relation: str,
        epsilon: Number,
        delta: Number = 0,
        *,
        sensitivity: int | float | None = None,
    ) -> float:
        """Write a loss into the ledger of a relation; to be called before the noise is drawn.

        Returns
        -------
        float
            The epsilon for the mechanism: the largest float that is no more than what was written down.

        Raises
        ------
        InputError
            The relation has no budget, the loss is none, or more than is left. Then nothing is spent.
        """
        self._check_relation(relation)
        loss = _exact_loss(mechanism, epsilon, delta)
        left = self.remaining(relation)
        problems: list[Problem | str] = []
        for name, wanted, available in zip(Loss._fields, loss, left, strict=True):
            if wanted > available:
                expected = f"at most the {name} of {_text(available)} that is left under {relation!r}"
                way_out = f"Nothing was spent on {mechanism!r}. Spend less: a larger budget is a weaker promise"
                problems.append(Problem(expected, _text(wanted), way_out=way_out))
        if problems:
            raise InputError("privacy budget", problems)
        spending = Spending(mechanism, relation, loss, sensitivity)
        self._record(spending)
        self._spendings.append(spending)
        return float_below(loss.epsilon)

    def add_laplace(
        self, values: Values, sensitivity: int | float, epsilon: Number, mechanism: str, relation: str
    ) -> Values:
        """Spend epsilon, then add Laplace noise as `ppmtf_jax.noise.laplace.add_laplace` does.

        What is refused there has cost its epsilon nevertheless: a refusal may depend on the values, and tell of them.
        """
        to_spend = self.spend(mechanism, relation, epsilon, sensitivity=sensitivity)
        return self.noise.add_laplace(values, sensitivity, to_spend)

    def spent(self, relation: str) -> Loss:
        """The sum of what was spent under a relation; `InputError` where it has no budget."""
        self._check_relation(relation)
        own = [spending.loss for spending in self._spendings if spending.relation == relation]
        return Loss(sum((loss.epsilon for loss in own), Fraction()), sum((loss.delta for loss in own), Fraction()))

    def remaining(self, relation: str) -> Loss:
        """What is left under a relation; parts of it, such as a third, are exact."""
        spent, budget = self.spent(relation), self.budgets[relation].loss
        return Loss(budget.epsilon - spent.epsilon, budget.delta - spent.delta)

    def ledger(self) -> dict[str, Any]:
        """The ledgers, ready for JSON.

        What no decimal of 17 digits says exactly is rounded up: what is stated is never less than what was spent.
        """
        return {
            "private": self.noise.is_private,
            "relations": [
                {
                    "relation": relation,
                    "budget": stated(budget.loss),
                    "spent": stated(self.spent(relation)),
                    "mechanisms": [
                        {"mechanism": each.mechanism, "sensitivity": each.sensitivity, **stated(each.loss)}
                        for each in self._spendings
                        if each.relation == relation
                    ],
                }
                for relation, budget in self.budgets.items()
            ],
        }

    def __str__(self) -> str:
        lines = [] if self.noise.is_private else [NOT_PRIVATE]
        for relation in self.budgets:
            lines.append(f"Neighbours: {relation}")
            own = [each for each in self._spendings if each.relation == relation]
            rows = [(each.mechanism, each.loss, each.sensitivity) for each in own]
            rows += [("spent", self.spent(relation), None), ("left", self.remaining(relation), None)]
            width = max(len(name) for name, _, _ in rows)
            for name, loss, sensitivity in rows:
                line = f"  {name:{width}}  epsilon {_text(loss.epsilon)}, delta {_text(loss.delta)}"
                lines.append(line + ("" if sensitivity is None else f", sensitivity {sensitivity:g}"))
        if len(self.budgets) > 1:
            lines.append("Each relation stands alone: losses under different relations do not add up to one guarantee.")
        return "\n".join(lines)

    def _check_relation(self, relation: str) -> None:
        if relation not in self.budgets:
            known = ", ".join(map(repr, self.budgets))
            way_out = "Losses under different relations do not add up: give this one a budget of its own"
            raise InputError("privacy budget", [Problem(f"a relation among {known}", repr(relation), way_out=way_out)])


def float_below(amount: Fraction) -> float:
    """The largest float that is no more than an exact amount.

    Examples
    --------
    >>> float_below(Fraction(1, 10)) < 0.1, float_below(Fraction(1, 2))
    (True, 0.5)
    """
    nearest = float(amount)
    return nearest if Fraction(nearest) <= amount else math.nextafter(nearest, -math.inf)


def _exact_loss(subject: str, epsilon: Number, delta: Number) -> Loss:
    """The numbers as they are written, checked to be a loss."""
    exact = _exact(epsilon), _exact(delta)
    problems: list[Problem | str] = []
    # The smallest and the largest float: a mechanism takes floats.
    if exact[0] is None or not math.ulp(0.0) <= exact[0] <= Fraction(sys.float_info.max):
        problems.append(Problem("a positive, finite epsilon", repr(epsilon)))
    if exact[1] is None or not 0 <= exact[1] < 1:
        problems.append(Problem("a delta from 0 to below 1", repr(delta)))
    if problems:
        raise InputError(subject, problems)
    return Loss(*exact)  # pyright: ignore[reportArgumentType]


def _exact(number: Number) -> Fraction | None:
    """A number as it is written in decimals, or none for what is no finite number."""
    try:
        return Fraction(str(number).strip())
    except (ValueError, ZeroDivisionError):
        return None


def stated(loss: Loss) -> dict[str, float]:
    """A loss as floats that, as they are written, are no less."""
    return {"epsilon": _stated_amount(loss.epsilon), "delta": _stated_amount(loss.delta)}


def _stated_amount(amount: Fraction) -> float:
    """The nearest float that, as it is written, is no less."""
    nearest = float(amount)
    return nearest if Fraction(repr(nearest)) >= amount else math.nextafter(nearest, math.inf)


def _text(amount: Fraction) -> str:
    """Exactly: a decimal where there is one, else a fraction."""
    twos_and_fives = amount.denominator
    for prime in (2, 5):
        while twos_and_fives % prime == 0:
            twos_and_fives //= prime
    if twos_and_fives > 1:
        return str(amount)
    with localcontext(prec=2000):
        return f"{(Decimal(amount.numerator) / Decimal(amount.denominator)).normalize():f}"
