"""A privacy budget and its ledger of mechanisms and their losses; spending more than the budget is refused.

Losses under one neighbour relation add up (sequential composition, Dwork and Roth 2014, theorem 3.16): adaptively
chosen mechanisms that are (epsilon_i, delta_i)-differentially private are together differentially private with the
sums. Losses under different relations, such as "a user's trace" and "a user's friendships", do not add up: neither loss
bounds what both mechanisms together reveal about a person with both kinds of data. So an accountant has exactly one
relation. For a common bound, state one relation that covers both ("a user: her trace and her friendships").

**Exact sums.** An amount is the exact number as written: 0.1 is one tenth, and 0.1 + 0.2 uses exactly a budget of 0.3.
The float 0.1 is slightly more than one tenth. So `Accountant.spend` returns the largest float that is not above the
amount in the ledger, and a mechanism that uses this float spends no more than the ledger says.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.noise.laplace import Values
from ppmtf_jax.noise.source import NoiseSource, SecureNoise

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
    """Exact amount of rho, the loss of zero-concentrated differential privacy, see `zcdp`."""

    rho: Fraction


Amounts = TypeVar("Amounts", Loss, Rho)


class Spending(NamedTuple):
    """One line of a ledger: a mechanism, its neighbour relation, and its loss."""

    mechanism: str
    relation: str
    loss: Loss | Rho
    sensitivity: int | float | None


class Ledger(Generic[Amounts]):
    """Budget and ledger of one neighbour relation: the base of accountants, which differ in what a loss is."""

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
    """Budget and ledger of one neighbour relation, and the source of its noise.

    Raises `InputError`: epsilon or delta is out of range.

    Parameters
    ----------
    relation : str
        The neighbour relation in words, such as "one user's trace is added or removed".
    epsilon, delta : number
        The budget: epsilon above 0; delta at least 0 and below 1.
    noise : NoiseSource
        `SecureNoise` except in experiments. With `SeededNoise` the ledger says that it is not private.
    record : function of a Spending, optional
        Receives every line before its noise is drawn, so that the loss is recorded even if the run fails.

    Examples
    --------
    >>> import numpy as np
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
        """Spend epsilon, then add Laplace noise as `ppmtf_jax.noise.laplace.add_laplace` does.

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
