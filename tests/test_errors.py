"""Errors come back from other processes as they were raised."""

from __future__ import annotations

import pickle

import pytest

from ppmtf_jax.errors import InputError, NumericalError, Problem


@pytest.mark.parametrize("problems", [["one"], [Problem("a", "b", 2, ("x",), "Do c"), "two"]])
def test_a_bad_input_is_pickled_with_its_problems(problems):
    error = InputError("traces.csv", problems)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.subject, again.problems) == (InputError, "traces.csv", tuple(problems))
    assert str(again) == str(error)


def test_a_numerical_error_is_pickled_with_its_message():
    assert str(pickle.loads(pickle.dumps(NumericalError("after sweep 3")))) == "after sweep 3"
