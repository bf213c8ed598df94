"""Probabilities of traces of people who remember against the process in plain Python."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from ppmtf_jax.errors import InputError
from ppmtf_jax.people import likelihood
from ppmtf_jax.people.likelihood import held_out, log_traces
from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.trace_models.base import ABSENT
from tests.people.oracle import Oracle
from tests.people.person_processes import random_arrays, random_process, with_zeros

BOTH = np.arange(2)
PROCESSES = {
    "anchors": random_process(n_places=3, period=3, seed=1),
    "cells": random_process(n_places=4, period=2, n_days=2, n_cells=2, seed=2),
    "no anchors": random_process(n_places=4, period=3, n_days=2, anchors=False, seed=3),
    "no place left": RememberingBridge.from_arrays(with_zeros(random_arrays(n_places=3, period=3, seed=4))),
    "one place": random_process(n_places=1, period=2, seed=5),
}


def every_trace(n_places: int, n_instants: int) -> np.ndarray:
    return np.array(list(product(range(n_places), repeat=n_instants)))


@pytest.fixture(scope="module")
def large() -> tuple[RememberingBridge, np.ndarray]:
    """A process of 30 places, and traces that go to and fro between a few of them."""
    rng = np.random.default_rng(0)
    own = rng.integers(30, size=(12, 5))
    process = random_process(n_places=30, period=6, n_days=1, n_cells=7, seed=6)
    return process, np.take_along_axis(own, rng.integers(5, size=(12, 9)), axis=1)


@pytest.mark.parametrize("name", PROCESSES)
def test_all_traces_have_the_exact_probabilities_which_sum_to_one(name: str) -> None:
    process = PROCESSES[name]
    n_instants = 4 if process.n_places == 4 else 5
    traces = every_trace(process.n_places, n_instants)
    found = np.exp(log_traces(process, traces, BOTH))
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-12)
    for cluster in BOTH:
        oracle = Oracle(process, cluster).traces(n_instants)
        np.testing.assert_allclose(found[:, cluster], [oracle.get(tuple(x), 0) for x in traces.tolist()], atol=1e-14)


@pytest.mark.parametrize("bug", ["discount forgotten", "visited places not excluded", "home at a visited place"])
def test_a_planted_bug_changes_probabilities(bug: str) -> None:
    process = PROCESSES["anchors"]
    traces = every_trace(3, 4)
    oracle = Oracle(process, 0, bug).traces(4)
    found = np.exp(log_traces(process, traces, BOTH)[:, 0])
    assert np.abs(found - [oracle.get(tuple(x), 0) for x in traces.tolist()]).sum() > 0.01


def test_few_remembered_places() -> None:
    process, traces = replace(PROCESSES["no anchors"], remembered=2), every_trace(4, 5)
    oracle = Oracle(process, 1, most_remembered=2).traces(5)
    found = np.exp(log_traces(process, traces, BOTH)[:, 1])
    np.testing.assert_allclose(found, [oracle.get(tuple(x), 0) for x in traces.tolist()], atol=1e-14)


@pytest.mark.parametrize("anchors", [True, False])
def test_a_trace_with_more_places_than_a_person_has_costs_nothing(
    anchors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = replace(random_process(n_places=6, period=3, anchors=anchors, seed=8), remembered=2)
    most = 2 + 2 * anchors
    assert process.most_places == most
    traces = np.array([np.resize(np.arange(most), 5), np.resize(np.arange(most + 1), 5)])
    expected = [Oracle(process, 1, most_remembered=2).probability(tuple(trace)) for trace in traces.tolist()]
    assert expected[0] > expected[1] == 0
    exact = likelihood._Exact.log_traces

    def of_possible(process: likelihood._Exact, places: np.ndarray) -> np.ndarray:
        assert len(np.unique(places)) == most
        return exact(process, places)

    monkeypatch.setattr(likelihood._Exact, "log_traces", of_possible)
    for part in (traces, traces[1:]):
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(
                log_traces(process, part, BOTH)[:, 1], np.log(expected[-len(part) :]), rtol=1e-12
            )


def test_traces_of_a_larger_city(large: tuple[RememberingBridge, np.ndarray]) -> None:
    process, traces = large
    found = log_traces(process, traces, np.array([1]))[:, 0]
    expected = [Oracle(process, 1).probability(tuple(trace)) for trace in traces.tolist()]
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-12)


def test_blocks_of_traces_and_of_persons_change_nothing(
    large: tuple[RememberingBridge, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    process, traces = large
    expected = log_traces(process, traces, BOTH)
    monkeypatch.setattr(likelihood, "EVENTS_AT_A_TIME", 40)
    monkeypatch.setattr(likelihood, "NUMBERS_AT_A_TIME", 100)
    np.testing.assert_array_equal(log_traces(process, traces, BOTH), expected)
    assert log_traces(process, traces[:0], BOTH).shape == (0, 2)


def test_sums_over_all_places_have_the_same_bits_alone_and_among_others() -> None:
    """Several processes share the traces, and find what one process does; a matrix product rounds by its shape."""
    process = random_process(n_places=97, period=2, seed=6)
    exact = likelihood._Exact(process, process.exact(), np.array([0]))
    time, place = np.zeros(97, int), np.arange(97)
    alone = [exact.to_all(time[:1], place[i : i + 1])[0] for i in place]
    np.testing.assert_array_equal(exact.to_all(time, place), alone)


class TestGaps:
    @pytest.mark.parametrize("present", [[0, 1, 1, 0, 1, 1], [1, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0]])
    @pytest.mark.parametrize("name", ["anchors", "no place left", "no anchors"])
    def test_probabilities_of_all_traces_with_the_same_gaps_sum_to_one(self, name: str, present: list[int]) -> None:
        process = PROCESSES[name]
        some = every_trace(process.n_places, sum(present))
        traces = np.full((len(some), len(present)), ABSENT)
        traces[:, np.flatnonzero(present)] = some
        np.testing.assert_allclose(np.exp(log_traces(process, traces, BOTH)).sum(axis=0), 1, atol=1e-12)

    def test_a_place_after_a_gap_in_a_process_without_moves(self) -> None:
        """Nobody ever leaves: after a gap everybody is where they were."""
        arrays = random_arrays(n_places=3, period=3, anchors=False, seed=7)
        arrays["stay_at_time"] = np.full(3, 200, np.float32)
        process = RememberingBridge.from_arrays(arrays)
        first = process.first_other[0] / process.first_other[0].sum()
        found = log_traces(process, np.array([[2, ABSENT, ABSENT, 2], [2, ABSENT, ABSENT, 1]]), np.array([0]))[:, 0]
        assert found[0] == pytest.approx(np.log(first[2]), abs=1e-6)
        assert found[1] < -100

    def test_a_trace_without_events_is_certain(self) -> None:
        np.testing.assert_allclose(log_traces(PROCESSES["anchors"], np.full((2, 4), ABSENT), BOTH), 0, atol=1e-12)


class TestHeldOut:
    def test_the_cluster_of_a_user_is_unknown_and_the_same_in_all_their_traces(self) -> None:
        process = PROCESSES["anchors"]
        traces = np.array([[0, 1, 1], [2, 2, 0], [1, ABSENT, 2]])
        by_cluster = log_traces(process, traces, BOTH)
        share = np.log(np.asarray(process.n_present) / np.asarray(process.n_present).sum())
        expected = logsumexp(share + by_cluster[0] + by_cluster[2]), logsumexp(share + by_cluster[1])
        np.testing.assert_allclose(held_out(process, traces, np.array([0, 1, 0])), expected)

    def test_a_cluster_without_users_does_not_count(self) -> None:
        arrays = random_arrays(n_places=3, period=3, seed=1) | {"n_present": np.array([0, 4], np.int32)}
        process = RememberingBridge.from_arrays(arrays)
        traces = np.array([[0, 1, 1]])
        np.testing.assert_allclose(
            held_out(process, traces, np.array([0])), log_traces(process, traces, np.array([1]))[0]
        )


@pytest.mark.parametrize(("least_left", "is_exact"), [(likelihood.MIN_LEFT, True), (0, False)])
def test_a_visited_place_has_nearly_all_weight(
    monkeypatch: pytest.MonkeyPatch, least_left: float, is_exact: bool
) -> None:
    """The difference of two large sums would lose the few weights of the places that are left."""
    monkeypatch.setattr(likelihood, "MIN_LEFT", least_left)
    arrays = random_arrays(n_places=3, period=3, seed=8)
    for name in ("pull", "home", "second", "home_pull", "second_pull"):
        arrays[name][..., 0] *= 1e10
    process, traces = RememberingBridge.from_arrays(arrays), every_trace(3, 4)
    oracle = Oracle(process, 0).traces(4)
    relative = np.exp(log_traces(process, traces, BOTH)[:, 0]) / [oracle[tuple(x)] for x in traces.tolist()] - 1
    assert (np.abs(relative).max() < 1e-11) == is_exact


def test_each_trace_under_its_own_cluster(large: tuple[RememberingBridge, np.ndarray]) -> None:
    process, traces = large
    clusters, rows = np.arange(12) % 2, np.arange(12)
    expected = log_traces(process, traces, BOTH)[rows, clusters]
    np.testing.assert_allclose(log_traces(process, traces, clusters, own=True)[:, 0], expected, rtol=1e-12)


def test_places_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="places from 0 to 2"):
        log_traces(PROCESSES["anchors"], np.array([[0, 3]]), BOTH)
