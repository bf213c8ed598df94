"""Completions of people who remember against all completions there are, by the process in plain Python."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

from ppmtf_jax.people import completion
from ppmtf_jax.people.completion import MORE, PARTICLES, complete_traces
from ppmtf_jax.people.model import RememberingBridge
from tests.people.oracle import N_INSTANTS, Oracle, anchored_process, traces_of_anchored
from tests.people.person_processes import random_arrays, random_process, with_zeros

# A process that does not exclude visited places is 0.28 away, more than twice the tolerance.
N_DRAWS = 1000
GAPS = [(-1, 2, -1, -1, 1), (1, -1, -1, 1, -1), (0, -1, 2, -1, 0)]


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly():
    """One compilation with all optimization takes 10 s."""
    options: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    whole: Any = completion._complete
    names = ("n_particles", "most_probable")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            completion, "_complete", jax.jit(whole.__wrapped__, static_argnames=names, compiler_options=options)
        )
        yield


@pytest.fixture(scope="module")
def process() -> RememberingBridge:
    return anchored_process()


def drawn(process: RememberingBridge, known: tuple[int, ...], n_draws: int = N_DRAWS) -> np.ndarray:
    keys, rows = jax.random.split(jax.random.key(3), n_draws), np.tile(known, (n_draws, 1))
    places, impossible_at = complete_traces(keys, process, np.zeros(n_draws, int), rows)
    assert (impossible_at == -1).all()
    return places


def excess(known: tuple[int, ...], places: np.ndarray, traces: dict[tuple[int, ...], float]) -> float:
    """Total variation between completions and the exact distribution, minus what the draws alone are expected to have.

    The share of an outcome of probability p in n draws has the mean deviation sqrt(2 p (1 - p) / (pi n)) at most.
    """
    agreeing = {
        trace: p for trace, p in traces.items() if all(k in (-1, place) for k, place in zip(known, trace, strict=True))
    }
    probability = np.array(list(agreeing.values())) / sum(agreeing.values())
    number = Counter(map(tuple, places.tolist()))
    assert number.keys() <= agreeing.keys()
    share = np.array([number[trace] for trace in agreeing]) / len(places)
    noise = np.sqrt(2 / np.pi * probability * (1 - probability) / len(places)).sum() / 2
    return float(np.abs(share - probability).sum() / 2 - noise)


def tolerance(n_draws: int = N_DRAWS) -> float:
    """What the excess of draws of the process stays below.

    The total variation of n draws is a mean of n bounded terms: it exceeds its mean by 5 / (2 sqrt(n)) with probability
    below exp(-12) (McDiarmid). The particles themselves add an error of about 1 / particles.
    """
    return 2.5 / np.sqrt(n_draws) + 1 / PARTICLES


@pytest.mark.parametrize("known", [*(pytest.param(gaps, marks=pytest.mark.slow) for gaps in GAPS[:2]), GAPS[2]])
def test_completions_are_as_frequent_as_the_process_says(process, known):
    places = drawn(process, known)
    assert excess(known, places, traces_of_anchored()) < tolerance()
    if known == GAPS[2]:
        assert excess(known, places, traces_of_anchored("visited places not excluded")) > 2 * tolerance()


@pytest.mark.slow
def test_without_weights_completions_are_wrong(process, monkeypatch):
    """One particle alone has no weight: its places are those of the estimates."""
    monkeypatch.setattr(completion, "PARTICLES", 1)
    places = {known: drawn(process, known, 3000) for known in GAPS[1:]}
    assert min(excess(known, each, traces_of_anchored()) for known, each in places.items()) > 2 * tolerance(3000)


@pytest.mark.slow
@pytest.mark.parametrize("known", GAPS)
def test_without_anchors(known):
    process = random_process(period=3, anchors=False, seed=2)
    assert excess(known, drawn(process, known), Oracle(process, 0).traces(N_INSTANTS)) < tolerance()


@pytest.mark.slow
def test_where_people_often_cannot_go_anywhere():
    """Most particles come to an end before a known event; then more particles are drawn."""
    process = RememberingBridge.from_arrays(with_zeros(random_arrays(period=3, seed=1)))
    assert MORE > 1
    traces = Oracle(process, 0).traces(N_INSTANTS)
    for known in GAPS[1:]:
        assert excess(known, drawn(process, known), traces) < tolerance()


def test_a_completion_depends_on_its_own_key_alone(process):
    keys, known = jax.random.split(jax.random.key(0), 70), np.tile(GAPS, (24, 1))[:70]
    users = np.arange(70) % 5
    places = complete_traces(keys, process, users, known).places
    assert ((known == -1) | (known == places)).all()
    some = np.random.default_rng(0).permutation(70)[:9]
    np.testing.assert_array_equal(complete_traces(keys[some], process, users[some], known[some]).places, places[some])


def test_whole_and_empty_traces(process):
    whole = (0, 1, 1, 2, 0)
    assert drawn(process, whole, 3).tolist() == [list(whole)] * 3
    assert set(drawn(process, (-1,) * N_INSTANTS, 20).ravel().tolist()) <= set(range(4))
    assert drawn(process, whole, 0).shape == (0, N_INSTANTS)


def test_an_impossible_event_is_told(monkeypatch):
    monkeypatch.setattr(completion, "MORE", 1)  # for the program that is compiled already
    arrays = random_arrays(period=3, seed=1)
    # Nobody is ever at place 3.
    for name in ("first_other", "pull", "home", "second", "home_pull", "second_pull"):
        arrays[name][..., 3] = 0
    process, known = RememberingBridge.from_arrays(arrays), np.array([(0, -1, -1, 3, -1), (0, -1, -1, 1, -1)])
    places, impossible_at = complete_traces(jax.random.split(jax.random.key(0), 2), process, np.zeros(2, int), known)
    assert impossible_at.tolist() == [3, -1]
    assert (places[0] == -1).all()
