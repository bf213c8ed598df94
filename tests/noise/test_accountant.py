"""A budget is kept exactly, what goes over it is refused, and rho, epsilon and delta are converted by tight bounds."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from opendp.combinators import make_zCDP_to_approxDP
from opendp.domains import atom_domain
from opendp.measurements import make_gaussian
from opendp.metrics import absolute_distance
from opendp.mod import enable_features
from scipy.stats import norm

from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import (
    NO_LOSS,
    Accountant,
    Loss,
    Rho,
    ZCDPAccountant,
    epsilon_of,
    float_below,
    rho_of,
    stated,
)
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise
from tests.noise.sources import Recorded

TRACES = "one user's trace"


def test_a_tenth_and_two_tenths_fill_three_tenths():
    accountant = Accountant(TRACES, 0.3)
    assert 0.1 + 0.2 > 0.3
    accountant.spend("visits", 0.1)
    accountant.spend("moves", 0.2)
    assert accountant.spent == Loss(Fraction(3, 10), Fraction(0))
    assert accountant.remaining == NO_LOSS
    with pytest.raises(InputError, match=r"at most the epsilon of 0\.0 that is left"):
        accountant.spend("stays", 1e-300)


@pytest.mark.parametrize("n", [3, 49])
@pytest.mark.parametrize("epsilon", [1, 0.1, "0.3", Decimal("2.5"), Fraction(1, 3)])
def test_equal_parts_fill_a_budget_and_their_floats_do_not_exceed_it(n, epsilon):
    accountant = Accountant(TRACES, epsilon)
    part = accountant.remaining.epsilon / n
    drawn = [accountant.spend(f"part {number}", part) for number in range(n)]
    assert accountant.remaining.epsilon == 0
    # What mechanisms really take, in exact arithmetic.
    assert sum(map(Fraction, drawn)) <= accountant.budget.epsilon
    assert min(drawn) >= np.nextafter(float(part), 0)


@pytest.mark.parametrize("amount", [Fraction(1, 10), Fraction(1, 3), Fraction(1, 2), Fraction(7), Fraction(10**30, 7)])
def test_float_below(amount):
    below = float_below(amount)
    assert Fraction(below) <= amount < Fraction(float(np.nextafter(below, np.inf)))


def test_what_goes_over_is_refused_and_nothing_is_spent():
    accountant = Accountant(TRACES, 1, 1e-6)
    accountant.spend("visits", 0.75)
    before = accountant.ledger()
    with pytest.raises(
        InputError, match=r"epsilon of 0\.25 that is left under .*; found 0\.26\. Nothing was spent on 'm"
    ):
        accountant.spend("moves", 0.26)
    with pytest.raises(InputError, match=r"2 problems[^!]*delta of 1e-06 that is left"):
        accountant.spend("moves", 0.26, 1e-5)
    with pytest.raises(InputError, match=r"delta of 1e-06 .* found 1\.0000000000000002e-06"):
        accountant.spend("moves", 0.25, 1.0000000000000002e-06)
    assert accountant.ledger() == before
    accountant.spend("moves", 0.25, 1e-6)


@pytest.mark.parametrize(
    "epsilon", [0, 0.0, -1, float("inf"), float("nan"), "all", "1/0", "", True, 1e-323 / 4, "1e400"]
)
def test_no_epsilon_is_refused(epsilon):
    accountant = Accountant(TRACES, 1)
    with pytest.raises(InputError, match="positive, finite epsilon"):
        accountant.spend("visits", epsilon)
    with pytest.raises(InputError, match="positive, finite epsilon"):
        Accountant(TRACES, epsilon)
    assert accountant.spendings == []


@pytest.mark.parametrize("delta", [-1e-9, 1, 2, float("nan")])
def test_no_delta_is_refused(delta):
    with pytest.raises(InputError, match="delta from 0 to below 1"):
        Accountant(TRACES, 1, delta)


def test_the_ledger_states_no_less_than_was_spent():
    accountant = Accountant(TRACES, "1/3", 1e-6)
    accountant.spend("visits", 0.1, 1e-7, sensitivity=5)
    accountant.spend("moves", 0.2)
    assert json.loads(json.dumps(accountant.ledger())) == {
        "private": True,
        "relations": [
            {
                "relation": TRACES,
                "budget": {"epsilon": np.nextafter(1 / 3, 1), "delta": 1e-6},
                "spent": {"epsilon": 0.3, "delta": 1e-7},
                "mechanisms": [
                    {"mechanism": "visits", "sensitivity": 5, "epsilon": 0.1, "delta": 1e-7},
                    {"mechanism": "moves", "sensitivity": None, "epsilon": 0.2, "delta": 0},
                ],
            },
        ],
    }


def test_a_ledger_says_that_seeded_noise_is_not_private():
    accountant = Accountant(TRACES, 1, noise=SeededNoise(0))
    accountant.add_laplace(np.zeros(3, int), 1, 0.5, "visits")
    assert accountant.ledger()["private"] is False


def test_noise_is_spent_and_recorded_before_it_is_drawn():
    recorded = []

    class Recording(SecureNoise):
        calls = 0

        def add_laplace(self, values, sensitivity, epsilon):
            self.calls += 1
            assert accountant.spent.epsilon == recorded[0].loss.epsilon == Fraction(1, 10)
            assert Fraction(epsilon) <= Fraction(1, 10)
            return super().add_laplace(values, sensitivity, epsilon)

    noise = Recording()
    accountant = Accountant(TRACES, 0.1, noise=noise, record=recorded.append)
    assert accountant.add_laplace(np.zeros(3, int), 1, 0.1, "visits").shape == (3,)
    with pytest.raises(InputError):
        accountant.add_laplace(np.zeros(3, int), 1, 0.1, "visits")
    assert noise.calls == len(recorded) == 1


USER = "one user's traces"
PROMISES = [(epsilon, delta) for epsilon in (0.01, 0.5, 1.0, 2.0, 8.0, 50.0) for delta in (1e-12, 1e-6, 1e-2)]


def log_delta(rho: float, epsilon: float) -> float:
    """The bound of Canonne, Kamath and Steinke, as they write it, at the best of many orders."""
    order = 1 + np.geomspace(1e-6, 1e6, 200_000)
    log_bounds = (order - 1) * (order * rho - epsilon) - np.log(order - 1) + order * np.log1p(-1 / order)
    return float(log_bounds.min())


def gaussian_delta(rho: float, epsilon: float) -> float:
    """The exact delta of a Gaussian mechanism that is rho-zCDP (Balle and Wang 2018, theorem 8)."""
    change = math.sqrt(2 * rho)
    tails = norm.logcdf([change / 2 - epsilon / change, -change / 2 - epsilon / change])
    return float(np.exp(tails[0]) - np.exp(epsilon + tails[1]))


def exact_epsilon(rho: float, delta: float) -> Decimal:
    """The smallest epsilon by the same bound, in 50 digits."""
    with localcontext() as context:
        context.prec = 50

        def at(log_order: Decimal) -> Decimal:
            above_one = log_order.exp()
            own = (Decimal(delta).ln() + (1 + above_one).ln()) / above_one + (1 + 1 / above_one).ln()
            return (1 + above_one) * Decimal(rho) - own

        step = Decimal(1)
        best = min(map(Decimal, range(-35, 65)), key=at)
        while step > Decimal("1e-12"):
            step /= 2
            best = min((best - step, best, best + step), key=at)
        return at(best)


def discrete_gaussian_delta(shift: int, scale: float, epsilon: float) -> float:
    """The exact delta at this epsilon of a discrete Gaussian number that moves by `shift`."""
    values = np.arange(-int(40 * scale) - shift, int(40 * scale) + shift + 1)
    here, there = (np.exp(-(((values - moved) / scale) ** 2) / 2) for moved in (0, shift))
    return float(np.maximum(here / here.sum() - math.exp(epsilon) * there / there.sum(), 0).sum())


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_rho_keeps_the_promise_and_is_the_largest(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert log_delta(rho, epsilon) == pytest.approx(math.log(delta), abs=1e-6)
    assert log_delta(rho * 1.001, epsilon) > math.log(delta)
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-8)


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_the_bound_lies_between_the_exact_delta_and_the_older_bound(epsilon, delta):
    rho = rho_of(epsilon, delta)
    assert gaussian_delta(rho, epsilon) < delta
    # Bun and Steinke 2016, proposition 1.3: epsilon = rho + 2 sqrt(rho log(1 / delta)).
    assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) > epsilon


@pytest.mark.parametrize("epsilon", [1e-9, 0.001, 1.0, 50.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.5, 0.999, 1 - 1e-12])
def test_rounding_errors_never_break_the_promise(epsilon, delta):
    """Also where the formula loses digits: a delta next to 1, and a small epsilon."""
    assert exact_epsilon(rho_of(epsilon, delta), delta) <= Decimal(epsilon)


@pytest.mark.parametrize(("shift", "scale"), [(1, 0.4), (1, 1.0), (3, 2.0), (10, 45.0)])
@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-2])
def test_discrete_noise_keeps_the_promise(shift, scale, delta):
    """The exact delta of discrete noise of small and large scale; noise divided by sqrt(2) is a twin that breaks it."""
    epsilon = epsilon_of((shift / scale) ** 2 / 2, delta)
    assert discrete_gaussian_delta(shift, scale, epsilon) < delta
    if scale >= 1:  # the noise of a smaller scale is nearly always 0
        assert discrete_gaussian_delta(shift, scale / math.sqrt(2), epsilon) > delta


@pytest.mark.parametrize("rho", [1e-9, 1e-3, 0.0243, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 1e-2])
def test_the_bound_is_that_of_opendp(rho, delta):
    enable_features("contrib")
    noise = make_gaussian(atom_domain(T="f64", nan=False), absolute_distance(T="f64"), scale=1.0)
    expected = make_zCDP_to_approxDP(noise).map(math.sqrt(2 * rho)).epsilon(delta)
    assert epsilon_of(rho, delta) == pytest.approx(expected, rel=1e-8)


def test_conversions_round_against_the_promise():
    """Rounding errors are far below the margin of 1e-10."""
    assert all(epsilon_of(rho_of(epsilon, delta) * (1 + 1e-9), delta) > epsilon for epsilon, delta in PROMISES)
    assert all(epsilon_of(rho_of(epsilon, delta) * (1 - 1e-9), delta) < epsilon for epsilon, delta in PROMISES)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 0.1), (-1.0, 0.1), (math.inf, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0), (1.0, 2.0)],
)
def test_no_promise_is_refused(epsilon, delta):
    with pytest.raises(InputError, match=r"above 0 and below 1|positive, finite epsilon"):
        rho_of(epsilon, delta)


@pytest.mark.parametrize(("rho", "delta"), [(-0.1, 0.1), (math.inf, 0.1), (math.nan, 0.1), (0.1, 0.0), (0.1, 1.0)])
def test_no_rho_is_refused(rho, delta):
    with pytest.raises(InputError, match=r"zero-concentrated"):
        epsilon_of(rho, delta)
    assert epsilon_of(0.0, 0.1) == 0


def test_thirds_fill_a_budget_and_nothing_more_is_spent():
    noise = Recorded(is_private=True)
    recorded = []
    accountant = ZCDPAccountant(USER, 1, 1e-6, noise, recorded.append)
    third = accountant.budget.rho / 3
    for name in ("places", "times", "stays"):
        accountant.add_gaussian(np.zeros(2, int), 5, third, name)
    assert accountant.remaining == Rho(Fraction())
    assert recorded == accountant.spendings
    assert sum(Fraction(draw.epsilon) for draw in noise.asked) <= accountant.budget.rho
    for more in (Fraction(1, 10**30), third):
        with pytest.raises(InputError, match=r"at most the rho of .* that is left"):
            accountant.add_gaussian(np.zeros(2, int), 5, more, "moves")
    assert len(noise.asked) == len(recorded) == 3
    for none in (Fraction(), Fraction(-1)):
        with pytest.raises(InputError, match="positive rho"):
            accountant.add_gaussian(np.zeros(2, int), 5, none, "moves")


def test_the_ledger_states_the_promise_and_what_was_spent():
    accountant = ZCDPAccountant(USER, "1/2", 1e-6)
    assert accountant.budget.rho == Fraction(rho_of(0.5, 1e-6))
    rho = stated(accountant.budget)["rho"]
    half = accountant.budget.rho / 2
    accountant.add_gaussian(np.zeros(2, int), 5, half, "places")
    (own,) = json.loads(json.dumps(accountant.ledger()))["relations"]
    assert own["budget"] == {"epsilon": 0.5, "delta": 1e-6, "rho": rho}
    # What was spent costs less epsilon at the same delta: about 1 / sqrt(2).
    assert own["spent"] == {"epsilon": epsilon_of(stated(Rho(half))["rho"], 1e-6), "delta": 1e-6, **stated(Rho(half))}
    assert 0.3 < own["spent"]["epsilon"] < 0.36
    assert own["mechanisms"] == [{"mechanism": "places", "sensitivity": 5, **stated(Rho(half))}]
    accountant.add_gaussian(np.zeros(2, int), 5, half, "times")
    assert accountant.ledger()["relations"][0]["spent"] == own["budget"]


def test_a_ledger_of_rho_says_that_seeded_noise_is_not_private():
    assert ZCDPAccountant(USER, 1, 1e-6).ledger()["private"] is True
    assert ZCDPAccountant(USER, 1, 1e-6, SeededNoise(0)).ledger()["private"] is False


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (1, 0), (1, 1), ("all", 1e-6)])
def test_no_budget_is_refused(epsilon, delta):
    with pytest.raises(InputError):
        ZCDPAccountant(USER, epsilon, delta)
