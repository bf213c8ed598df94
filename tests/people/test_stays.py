"""How long people stay at other places: dwell times by a loop, and a regression that recovers what was planted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.bins import DWELL_FROM
from ppmtf_jax.people.counts import Transitions
from ppmtf_jax.people.stays import (
    CLASS_USERS,
    N_CLASSES,
    _OtherSteps,
    _regression,
    dwell_times,
    fit_stays,
)
from tests.people.towns import CHOICE, clusters_of, commuters

BY_DWELL = np.array([0.5, -0.5, 0.0, 1.0, -1.0, 0.3])
BY_CLASS = np.array([-1.0, 0.0, 1.2])


def test_dwell_times_are_those_of_a_loop():
    windows = commuters(n_users=10, n_periods=2, present=0.8).cut_into_periods()
    expected, key = [], None
    for user, trace, instant, place in zip(windows.user, windows.trace, windows.instant, windows.place, strict=True):
        goes_on = key == (user, trace, instant - 1, place)
        expected.append(expected[-1] + 1 if goes_on else 1)
        key = (user, trace, instant, place)
    assert dwell_times(windows).tolist() == expected
    assert max(expected) > 2


@pytest.fixture(scope="module")
def steps():
    """Steps with known log-odds: user, offset, whether they stay, bin of dwell time, class."""
    rng = np.random.default_rng(0)
    n = 30_000
    offset = rng.choice(OFFSETS, n)
    dwell, of_class = rng.integers(len(DWELL_FROM), size=n), rng.integers(N_CLASSES, size=n)
    stays = rng.random(n) < expit(offset + BY_DWELL[dwell] + BY_CLASS[of_class])
    return np.arange(n), offset, stays.astype(float), dwell, of_class


OFFSETS = np.array([-1.0, 0.0, 0.5])


def regression(user, offset, stays, dwell, of_class) -> tuple[np.ndarray, np.ndarray]:
    """The regression on steps from place 0; the slot gives the offset."""
    slot, zero = np.searchsorted(OFFSETS, offset), np.zeros(len(user), int)
    steps = Transitions(user, slot, zero, 1 - stays.astype(int), n_slots=3, n_places=1)
    of_user = np.zeros(int(user.max()) + 1, int)
    of_user[user] = of_class
    return _regression(Blocks([(slice(None), _OtherSteps(steps, dwell))]), OFFSETS[:, None], of_user)


def test_the_regression_finds_planted_odds(steps):
    """The sum of a dwell and a class is known to 5 standard errors; the prior moves 9 parameters by less than one.

    A cell of dwell and class has n / 18 = 1667 steps, with at least p (1 - p) = 0.1: the standard error of the log-odds
    of a cell alone is at most 1 / sqrt(167) = 0.08, and that of the additive fit is smaller.
    """
    by_dwell, by_class = regression(*steps)
    found = by_dwell[:, None] + by_class
    assert np.abs(found - (BY_DWELL[:, None] + BY_CLASS)).max() < 5 * 0.08
    # The twin: dwell times one bin too long.
    user, offset, stays, dwell, of_class = steps
    by_dwell, by_class = regression(user, offset, stays, (dwell + 1) % len(DWELL_FROM), of_class)
    assert np.abs(by_dwell[:, None] + by_class - (BY_DWELL[:, None] + BY_CLASS)).max() > 5 * 0.08


def test_a_user_with_many_steps_weighs_no_more_than_the_second(steps):
    """All other users have one step: a user with 10,000 stays moves the odds by about as much as one more step."""
    user, offset, stays, dwell, of_class = (each[:3000] for each in steps)
    before = np.concatenate(regression(user, offset, stays, dwell, of_class))
    more = 10_000
    columns = zip((user, offset, stays, dwell, of_class), (3000, 0, 1, 1, 1), strict=True)
    after = np.concatenate(regression(*(np.append(column, np.full(more, value)) for column, value in columns)))
    assert np.abs(after - before).max() < 0.05
    # About 1 / (3000 / 18 * 0.1) = 0.06 is the most that a step can do; unbounded, the odds would rise by several.


def process_of(traces: Traces, of_user: np.ndarray, *, everywhere: bool) -> dict[str, np.ndarray]:
    """The process if all events are at other places, or none."""
    windows = traces.blocks.map(lambda block: (block, np.full(block.n_events, everywhere)))
    return fit_stays(windows, traces.time_grid, of_user, CHOICE.moves)[1]


def test_classes_are_thirds_of_the_users_who_are_at_other_places():
    traces = commuters(n_users=90)
    process = process_of(traces, clusters_of(traces), everywhere=True)
    np.testing.assert_allclose(process["class_share"].sum(axis=1), 1)
    # Mobility may be equal for some users: the thirds are those of distinct values.
    assert (process["class_share"] > 0.5 / (45 + CLASS_USERS)).all()
    assert process["stay_by_class"][0] < process["stay_by_class"][-1]


def test_without_steps_at_other_places_there_is_nothing_to_learn():
    traces = commuters(n_users=10)
    process = process_of(traces, np.zeros(10, int), everywhere=False)
    assert (process["stay_by_dwell"] == 0).all()
    assert (process["stay_by_class"] == 0).all()
    np.testing.assert_allclose(process["class_share"].sum(axis=1), 1)
    assert np.isfinite(process["stay"]).all()
