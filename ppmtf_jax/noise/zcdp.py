"""Zero-concentrated differential privacy (zCDP): an accountant for Gaussian noise (Bun and Steinke 2016).

A mechanism is rho-zCDP if, for every order a > 1, the Renyi divergence of order a between its outputs for two
neighbours is at most rho a. The losses of adaptively chosen mechanisms add up. A rho-zCDP mechanism is also
(epsilon, delta)-differentially private with

    delta = min over a > 1 of exp((a - 1) (a rho - epsilon)) / (a - 1) (1 - 1/a)^a

(Canonne, Kamath and Steinke 2020, proposition 7).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.optimize import fminbound

from ppmtf_jax.errors import InputError, Problem, raise_any
from ppmtf_jax.noise.accountant import Ledger, Number, Rho, Spending, exact_loss, float_below, stated
from ppmtf_jax.noise.source import NoiseSource

Orders = float | np.ndarray
# The search begins at the best of these orders a; the numbers are log(a - 1).
LOG_ORDERS = np.linspace(-30, 60, 3000)
# Relative margin, larger than the relative rounding errors of the bounds.
ROUNDING = 1e-10
SUBJECT = "zero-concentrated differential privacy"


class ZCDPAccountant(Ledger[Rho]):
    """Budget and ledger of mechanisms with Gaussian noise; the budget is given as epsilon and delta.

    Raises `InputError`: epsilon or delta is out of range.

    Parameters
    ----------
    relation : str
        The neighbour relation in words, such as "one user with all their traces is added or removed".
    epsilon, delta : number
        What all mechanisms together may cost. Both are above 0, and delta is below 1.
    noise : NoiseSource
        `SecureNoise` except in experiments. With `SeededNoise` the ledger says that it is not private.
    record : function of a Spending, optional
        Receives every line before its noise is drawn, so that the loss is recorded even if the run fails.

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
        """Spend rho, then add Gaussian noise as `ppmtf_jax.noise.gaussian.add_gaussian` does.

        If that function refuses the values, rho is still spent, because a refusal may depend on the values and so
        reveal something about them. Raises `InputError`: rho is not positive, or larger than the remaining budget. In
        these two cases nothing is spent.
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
    problems: list[Problem | str] = [] if 0 <= rho < math.inf else [Problem("a finite rho of at least 0", repr(rho))]
    _check(delta, problems)

    def epsilon_at(log_order: Orders) -> Orders:
        order, own = _order(log_order, delta)
        return order * rho - own

    return max(0.0, _minimum(epsilon_at)) * (1 + ROUNDING) if rho else 0.0


def rho_of(epsilon: float, delta: float) -> float:
    """A rho such that rho-zCDP implies (epsilon, delta)-differential privacy; the largest by the formula above.

    `epsilon`: above 0. `delta`: above 0 and below 1. Raises `InputError`: epsilon or delta is out of range.

    Examples
    --------
    >>> round(rho_of(1.0, 1e-6), 5)
    0.02436
    """
    problems: list[Problem | str] = []
    if not 0 < epsilon < math.inf:
        problems.append(Problem("a positive, finite epsilon", repr(epsilon)))
    _check(delta, problems)

    def negative_rho_at(log_order: Orders) -> Orders:
        order, own = _order(log_order, delta)
        return -(epsilon + own) / order

    rho = -_minimum(negative_rho_at) * (1 - ROUNDING)
    if rho <= 0:
        raise InputError(SUBJECT, [Problem("an epsilon that noise can reach", repr(epsilon))])
    return rho


def _check(delta: float, problems: list[Problem | str]) -> None:
    if not 0 < delta < 1:
        problems.append(Problem("a delta above 0 and below 1", repr(delta)))
    raise_any(SUBJECT, problems)


def _order(log_order: Orders, delta: float) -> tuple[Orders, Orders]:
    """The order a = 1 + exp(log_order), and the value of a rho - epsilon for which the formula gives `delta`."""
    above_one = np.exp(log_order)
    return 1 + above_one, (np.log1p(above_one) + math.log(delta)) / above_one + np.log1p(1 / above_one)


def _minimum(function: Callable[[Orders], Orders]) -> float:
    """The minimum over orders; even if the search misses it, the value at any order is a correct bound."""
    best = LOG_ORDERS[np.argmin(function(LOG_ORDERS))]
    step = LOG_ORDERS[1] - LOG_ORDERS[0]
    return float(function(fminbound(function, best - step, best + step, xtol=1e-9)))
