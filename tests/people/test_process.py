"""The sampler of people who remember against the process in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.people.process import for_those
from tests.people.oracle import N_INSTANTS, Oracle, anchored_process, traces_of_anchored
from tests.people.person_processes import random_arrays, random_process, with_zeros

# So many that the weakest planted bug, a forgotten discount, deviates by 18 standard deviations.
N_TRACES = 30_000
# A visited place that is not excluded deviates by 270 standard deviations of these.
FEWER = 20_000


def sampled(process: RememberingBridge, n_instants: int = N_INSTANTS, n_traces: int = N_TRACES) -> np.ndarray:
    """Traces of user 0."""
    numbers = jnp.arange(n_traces).reshape(-1, min(n_traces, 1000))
    keys = jax.vmap(jax.vmap(partial(jax.random.fold_in, jax.random.key(0))))(numbers)
    return np.asarray(_sampled(process, keys, n_instants)).reshape(n_traces, n_instants)


@partial(jax.jit, static_argnames="n_instants")
def _sampled(process: RememberingBridge, keys: jax.Array, n_instants: int) -> jax.Array:
    return jax.lax.map(jax.vmap(lambda key: process.sample_trace(key, jnp.int32(0), n_instants)), keys)


def deviation(traces: np.ndarray, probability: dict[tuple[int, ...], float]) -> float:
    """Pearson's chi-square of the traces against exact probabilities, in its own standard deviations.

    For n draws from m outcomes of probabilities p, the statistic has the mean m - 1 and the variance
    2 (m - 1) + (sum of 1 / p - m^2 - 2 m + 2) / n. It is infinite if a trace has the probability 0.
    """
    number = Counter(map(tuple, traces.tolist()))
    possible = {trace: p for trace, p in probability.items() if p > 0}
    if number.keys() - possible.keys():
        return np.inf
    n, m, p = len(traces), len(possible), np.array(list(possible.values()))
    found = np.array([number[trace] for trace in possible])
    variance = 2 * (m - 1) + (np.sum(1 / p) - m**2 - 2 * m + 2) / n
    return float((np.sum((found - n * p) ** 2 / (n * p)) - (m - 1)) / np.sqrt(variance))


@pytest.fixture(scope="module")
def anchored() -> tuple[RememberingBridge, np.ndarray]:
    process = anchored_process()
    return process, sampled(process)


class TestFrequencies:
    def test_traces_are_as_frequent_as_the_process_says(self, anchored: tuple[RememberingBridge, np.ndarray]) -> None:
        assert abs(deviation(anchored[1], traces_of_anchored())) < 5

    @pytest.mark.parametrize("bug", ["discount forgotten", "visited places not excluded", "home at a visited place"])
    def test_a_planted_bug_is_found(self, anchored: tuple[RememberingBridge, np.ndarray], bug: str) -> None:
        assert deviation(anchored[1], traces_of_anchored(bug)) > 15

    def test_who_cannot_go_anywhere_stays(self) -> None:
        process = RememberingBridge.from_arrays(with_zeros(random_arrays(period=3, seed=1)))
        assert abs(deviation(sampled(process, n_traces=FEWER), Oracle(process, 0).traces(N_INSTANTS))) < 5

    def test_who_remembers_as_many_places_as_they_can_goes_to_no_new_place(self) -> None:
        process = replace(random_process(period=2, n_days=2, anchors=False, seed=3), remembered=2)
        traces = sampled(process, n_traces=FEWER)
        assert abs(deviation(traces, Oracle(process, 0, most_remembered=2).traces(N_INSTANTS))) < 5
        assert max(len(set(trace)) for trace in traces.tolist()) == 2


class TestTraces:
    def test_a_longer_trace_begins_with_the_shorter_one(self, anchored: tuple[RememberingBridge, np.ndarray]) -> None:
        longer = sampled(anchored[0], n_instants=8, n_traces=50)
        np.testing.assert_array_equal(longer[:, :N_INSTANTS], anchored[1][:50])


class TestForThose:
    @staticmethod
    def doubled(process: Any, number: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return process + 2 * number, row * number

    @pytest.mark.parametrize("n_people", [1, 5, 20])
    def test_equals_a_choice_after_computing_for_all(self, n_people: int) -> None:
        rng = np.random.default_rng(n_people)
        number, needed = jnp.asarray(rng.integers(9, size=n_people)), jnp.asarray(rng.random(n_people) < 0.6)
        row = jnp.arange(3)

        def one(needed: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
            others = jnp.int32(-1), jnp.full(3, -2)
            return for_those(needed, others, self.doubled, jnp.int32(7), number, row)

        found = jax.jit(jax.vmap(one))(needed, number)
        np.testing.assert_array_equal(found[0], np.where(needed, 7 + 2 * number, -1))
        np.testing.assert_array_equal(found[1], np.where(needed[:, None], row * number[:, None], -2))

    def test_one_person_alone(self) -> None:
        found = [for_those(jnp.array(x), (0, jnp.zeros(2)), self.doubled, 7, 3, jnp.ones(2)) for x in (True, False)]
        assert [int(number) for number, _ in found] == [13, 0]
