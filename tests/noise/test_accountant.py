"""A budget is kept exactly, and what goes over it is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import NO_LOSS, Accountant, Loss, float_below
from ppmtf_jax.noise.mechanisms import SecureNoise, SeededNoise

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
