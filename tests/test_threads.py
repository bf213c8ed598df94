"""Work in threads: the order, the precision and the errors of one thread."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from ppmtf_jax import threads
from ppmtf_jax.threads import map_in_threads


@pytest.fixture(params=[1, 3])
def n_threads(request, monkeypatch):
    monkeypatch.setattr(threads, "n_threads", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("n_threads")
def test_results_come_in_the_order_of_the_items():
    assert list(map_in_threads(str, range(20))) == [str(number) for number in range(20)]
    assert list(map_in_threads(str, [])) == []


@pytest.mark.usefixtures("n_threads")
@pytest.mark.parametrize("double", [False, True])
def test_the_precision_is_that_of_the_caller(double):
    with jax.enable_x64(double):
        (precision,) = set(map_in_threads(lambda _: jnp.zeros(()).dtype.name, range(5)))
    assert precision == ("float64" if double else "float32")


def test_few_items_are_taken_before_their_results_are(n_threads):
    taken = []

    def items():
        for number in range(20):
            taken.append(number)
            yield number

    for result in map_in_threads(lambda x: x, items()):
        assert len(taken) <= result + n_threads + 1


@pytest.mark.usefixtures("n_threads")
def test_an_error_ends_it():
    with pytest.raises(ZeroDivisionError):
        list(map_in_threads(lambda x: 1 / x, [2, 1, 0, 1, 1, 1]))
