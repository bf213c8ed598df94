"""Budgets are kept exactly, one for each neighbour relation, and what goes over them is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import Accountant, Budget, Loss, float_below
from ppmtf_jax.noise.laplace import SecureNoise
from ppmtf_jax.noise.seeded import SeededNoise

TRACES, FRIENDS = "one user's trace", "one user's friendships"


def test_a_tenth_and_two_tenths_fill_three_tenths():
    accountant = Accountant({TRACES: Budget(0.3)})
    assert 0.1 + 0.2 > 0.3
    accountant.spend("visits", TRACES, 0.1)
    accountant.spend("moves", TRACES, 0.2)
    assert accountant.spent(TRACES) == Loss(Fraction(3, 10), Fraction(0))
    assert accountant.remaining(TRACES) == Loss(Fraction(0), Fraction(0))
    with pytest.raises(InputError, match="at most the epsilon of 0 that is left"):
        accountant.spend("stays", TRACES, 1e-300)


@pytest.mark.parametrize("n", [3, 7, 10, 49])
@pytest.mark.parametrize("epsilon", [1, 0.1, "0.3", Decimal("2.5"), Fraction(1, 3)])
def test_equal_parts_fill_a_budget_and_their_floats_do_not_exceed_it(n, epsilon):
    accountant = Accountant({TRACES: Budget(epsilon)})
    part = accountant.remaining(TRACES).epsilon / n
    drawn = [accountant.spend(f"part {number}", TRACES, part) for number in range(n)]
    assert accountant.remaining(TRACES).epsilon == 0
    # What mechanisms really take, in exact arithmetic.
    assert sum(map(Fraction, drawn)) <= accountant.budgets[TRACES].loss.epsilon
    assert min(drawn) >= np.nextafter(float(part), 0)


@pytest.mark.parametrize("amount", [Fraction(1, 10), Fraction(1, 3), Fraction(1, 2), Fraction(7), Fraction(10**30, 7)])
def test_float_below(amount):
    below = float_below(amount)
    assert Fraction(below) <= amount < Fraction(float(np.nextafter(below, np.inf)))


def test_what_goes_over_is_refused_and_nothing_is_spent():
    accountant = Accountant({TRACES: Budget(1, 1e-6)})
    accountant.spend("visits", TRACES, 0.75)
    before = accountant.ledger()
    with pytest.raises(
        InputError, match=r"epsilon of 0\.25 that is left under .*; found 0\.26\. Nothing was spent on 'm"
    ):
        accountant.spend("moves", TRACES, 0.26)
    with pytest.raises(InputError, match=r"2 problems[^!]*delta of 0\.000001 that is left"):
        accountant.spend("moves", TRACES, 0.26, 1e-5)
    with pytest.raises(InputError, match="delta"):
        accountant.spend("moves", TRACES, 0.25, 1.0000000000000002e-06)
    assert accountant.ledger() == before
    accountant.spend("moves", TRACES, 0.25, 1e-6)


@pytest.mark.parametrize(
    "epsilon", [0, 0.0, -1, float("inf"), float("nan"), "all", "1/0", "", True, 1e-323 / 4, "1e400"]
)
def test_no_epsilon_is_refused(epsilon):
    accountant = Accountant({TRACES: Budget(1)})
    with pytest.raises(InputError, match="positive, finite epsilon"):
        accountant.spend("visits", TRACES, epsilon)
    with pytest.raises(InputError, match="positive, finite epsilon"):
        Budget(epsilon)
    assert accountant.spendings == ()


@pytest.mark.parametrize("delta", [-1e-9, 1, 2, float("nan")])
def test_no_delta_is_refused(delta):
    with pytest.raises(InputError, match="delta from 0 to below 1"):
        Budget(1, delta)


def test_relations_are_apart():
    accountant = Accountant({TRACES: Budget(1), FRIENDS: Budget(0.5)})
    accountant.spend("visits", TRACES, 1)
    accountant.spend("friendship probability", FRIENDS, 0.5)
    assert accountant.spent(TRACES).epsilon == 1
    assert accountant.spent(FRIENDS).epsilon == Fraction(1, 2)
    with pytest.raises(InputError, match=r"among .*trace.*friendships.*found 'a day'.*budget of its own"):
        accountant.spend("visits", "a day", 0.1)
    with pytest.raises(InputError, match="found 'a day'"):
        accountant.remaining("a day")
    assert "do not add up" in str(accountant)
    with pytest.raises(InputError, match="at least one neighbour relation"):
        Accountant({})


def test_ledger_and_text():
    accountant = Accountant({TRACES: Budget("1/3", 1e-6), FRIENDS: Budget(0.5)})
    accountant.spend("visits", TRACES, 0.1, 1e-7, sensitivity=5)
    accountant.spend("moves", TRACES, 0.2)
    ledger = json.loads(json.dumps(accountant.ledger()))
    assert ledger == {
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
            {
                "relation": FRIENDS,
                "budget": {"epsilon": 0.5, "delta": 0},
                "spent": {"epsilon": 0, "delta": 0},
                "mechanisms": [],
            },
        ],
    }
    assert str(accountant).splitlines() == [
        f"Neighbours: {TRACES}",
        "  visits  epsilon 0.1, delta 0.0000001, sensitivity 5",
        "  moves   epsilon 0.2, delta 0",
        "  spent   epsilon 0.3, delta 0.0000001",
        "  left    epsilon 1/30, delta 0.0000009",
        f"Neighbours: {FRIENDS}",
        "  spent  epsilon 0, delta 0",
        "  left   epsilon 0.5, delta 0",
        "Each relation stands alone: losses under different relations do not add up to one guarantee.",
    ]


def test_a_ledger_says_that_seeded_noise_is_not_private():
    accountant = Accountant({TRACES: Budget(1)}, SeededNoise(0))
    accountant.add_laplace(np.zeros(3, int), 1, 0.5, "visits", TRACES)
    assert accountant.ledger()["private"] is False
    assert str(accountant).startswith("NOT PRIVATE")
    assert "NOT PRIVATE" not in str(Accountant({TRACES: Budget(1)}))


def test_noise_is_spent_before_it_is_drawn():
    class Recording(SecureNoise):
        calls = 0

        def add_laplace(self, values, sensitivity, epsilon):
            self.calls += 1
            assert accountant.spent(TRACES).epsilon == Fraction(1, 10)
            assert Fraction(epsilon) <= Fraction(1, 10)
            return super().add_laplace(values, sensitivity, epsilon)

    noise = Recording()
    accountant = Accountant({TRACES: Budget(0.1)}, noise)
    assert accountant.add_laplace(np.zeros(3, int), 1, 0.1, "visits", TRACES).shape == (3,)
    with pytest.raises(InputError):
        accountant.add_laplace(np.zeros(3, int), 1, 0.1, "visits", TRACES)
    assert noise.calls == 1
