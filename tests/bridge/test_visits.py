"""Counts and the smoothed population against sums written out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.bridge.counts import PopulationSmoothing, VisitCounts, population, slot_kernel
from ppmtf_jax.bridge.selection import random_folds
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from tests.bridge.examples import place_table

GRID = TimeGrid("2024-01-01T00:00:00", 3600, np.array([0, 1, 0, 1]), period=2)


@pytest.fixture(scope="module")
def traces():
    """User 0 is at place 0 three times and at 1 once, user 1 at place 1 twice; place 2 is empty."""
    rows = [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 1), (1, 0, 1), (1, 1, 1)]
    return Traces.from_frame(pd.DataFrame(rows, columns=["user", "instant", "place"]), place_table(3), GRID)


def test_counts_by_user_slot_and_place(traces):
    visits = VisitCounts.of(traces)
    cells = set(zip(visits.user, visits.slot, visits.place, visits.count, strict=True))
    assert cells == {(0, 0, 0, 2), (0, 1, 0, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1)}
    second = visits.of_users(np.array([1]))
    assert (second.n_users, second.user.tolist(), second.count.tolist()) == (1, [0, 0], [1, 1])


def test_tempered_counts_weigh_a_regular_less(traces):
    visits = VisitCounts.of(traces)
    weight = visits.tempered(0.5)
    # Users' events at a place, 3, 1 and 2, weigh sqrt(3), 1 and sqrt(2).
    expected = {(0, 0, 0): 2 / 3 * np.sqrt(3), (0, 1, 0): np.sqrt(3) / 3, (0, 1, 1): 1}
    expected |= {(1, 0, 1): np.sqrt(2) / 2, (1, 1, 1): np.sqrt(2) / 2}
    for user, slot, place, found in zip(visits.user, visits.slot, visits.place, weight, strict=True):
        assert found == pytest.approx(expected[user, slot, place])
    np.testing.assert_array_equal(visits.tempered(1.0), visits.count)


def test_population_is_the_formula(traces):
    smoothing = PopulationSmoothing(1.0, 2, 0.0, 0.5, 0.3)
    shares = population(VisitCounts.of(traces), smoothing, GRID)
    # Of place 0, where one user was, nothing is told. At place 1 user 0 was once, and user 1, who was twice, weighs as
    # much as she: half of an event in each slot. Both slots are within two hours. Of two users' counts half is told.
    told = np.array([[0, 0.5, 0], [0, 1.5, 0]]) / 2
    anywhere = told.sum(axis=0) + 0.3 / 3
    expected = told + 0.5 * 3 * anywhere / anywhere.sum()
    np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True))


def test_slots_are_near_each_other_across_the_end_only_where_they_come_round():
    once = TimeGrid.each_instant("2024-01-01T00:00:00", 3600, 4)
    around = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.arange(4), 2), period=4)
    assert slot_kernel(once, 1.0)[0, 3] == pytest.approx(np.exp(-9 / 2))
    assert slot_kernel(around, 1.0)[0, 3] == pytest.approx(np.exp(-1 / 2))
    np.testing.assert_array_equal(slot_kernel(once, 0.0), np.eye(4))


def test_folds_share_out_all_users():
    folds = [own for _, own in random_folds(10, 4, np.random.default_rng(0))]
    assert sorted(np.concatenate(folds).tolist()) == list(range(10))
    assert {len(fold) for fold in folds} == {2, 3}
    assert [len(own) for _, own in random_folds(3, 10, np.random.default_rng(0))] == [1, 1, 1]
