"""The check-in bridge draws windows with their exact probabilities, and refuses arrays that do not fit each other."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.bridge.checkins import law as law_module
from ppmtf_jax.bridge.checkins.law import bins_of_instants, distance_bins, hour_of_instants
from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.trace_models.base import ABSENT, Sizes, array_problems
from tests.bridge.checkins.laws import random_arrays
from tests.bridge.checkins.test_likelihood import every_window
from tests.support import places_in_line
from tests.trace_models.agreement import FALSE_ALARM, chi_square_ratio

ARRAYS = random_arrays(3, per_day=2, n_days=3)
N_DRAWS = 50_000


def drawn(arrays, user: int, n_draws: int, n_instants: int) -> np.ndarray:
    law = CheckinBridge.from_arrays(arrays)
    sample = jax.jit(lambda law, key: law.sample_trace(key, jnp.int32(user), n_instants))
    return np.asarray(jax.vmap(sample, (None, 0))(law, jax.random.split(jax.random.key(0), n_draws)))


@pytest.fixture(scope="module")
def counted() -> np.ndarray:
    """Index in `every_window` of windows that are drawn for the second user."""
    windows = drawn(ARRAYS, 1, N_DRAWS, 6)
    return (windows + 1) @ 4 ** np.arange(5, -1, -1)


def disagreement(counted: np.ndarray, arrays) -> float:
    log = CheckinBridge.from_arrays(arrays).log_traces(every_window(3, 6), np.array([1]))
    return chi_square_ratio(counted, np.exp(log[:, 0]), FALSE_ALARM)


def test_windows_are_drawn_with_their_probabilities(counted):
    assert disagreement(counted, ARRAYS) < 1


CHANGES = {
    "discount": lambda array: array * 0,
    "last_match": lambda array: -2 * array,
    "match": lambda array: array * 0,
    "last_of_type": lambda array: array[::-1],
    "previous": lambda array: array * 0,
    "place_rate": lambda array: array * 0,
    "reference": lambda array: array[..., ::-1],
    "near_last": lambda array: array**0,
    "near_own": lambda array: array**0,
    "first_rate": lambda array: array * 0,
    # Habits are forgotten.
    "log_odds": lambda array: np.repeat(array[..., :1], array.shape[-1], axis=-1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_draws_notice_every_part_of_the_law(counted, name):
    assert disagreement(counted, ARRAYS | {name: CHANGES[name](ARRAYS[name])}) > 1


def test_all_users_of_a_cluster_have_one_law():
    users = ARRAYS | {"cluster": np.array([1, 0, 1, 1], np.int32)}
    assert CheckinBridge.from_arrays(users).user_classes(3).tolist() == [1, 0, 1]


def test_a_person_remembers_so_many_places(monkeypatch):
    # She checks in at every instant, at a new place if she can. No other test has arrays of these shapes, for which
    # programs would be compiled already.
    monkeypatch.setattr(law_module, "MAX_REMEMBERED", 3)
    arrays = random_arrays(5, per_day=2, n_days=4)
    arrays["log_odds"] = np.full_like(arrays["log_odds"], 30)
    arrays["strength"] = np.full_like(arrays["strength"], 25)
    windows = drawn(arrays, 0, 20, 8)
    assert (windows != ABSENT).all()
    for window in windows:
        assert len(np.unique(window[:3])) == len(np.unique(window)) == 3
    more = np.array([[0, 1, 2, 2, 2, 3, 3, 3], [0, 1, 2, 2, 2, 0, 0, 0]], np.int32)
    log = CheckinBridge.from_arrays(arrays).log_traces(more, np.arange(2))
    assert np.isneginf(log[0]).all()
    assert np.isfinite(log[1]).all()


def test_one_place():
    windows = drawn(random_arrays(1, per_day=2, n_days=3), 0, 50, 6)
    assert set(np.unique(windows)) == {ABSENT, 0}
    assert (windows == 0).any(axis=1).all()


# Arrays


def test_arrays_survive():
    law = CheckinBridge.from_arrays(ARRAYS)
    arrays = law.to_arrays()
    assert not array_problems(arrays, CheckinBridge.stored_arrays(Sizes(2, 3, 2, 6)), Sizes(2, 3, 2, 6))
    assert CheckinBridge.from_arrays(arrays).per_day == 2
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_a_model_folder_keeps_the_law(tmp_path, monkeypatch):
    bridge = replace(SYNTHESIZERS["bridge"], other_models=(CheckinBridge,))
    monkeypatch.setitem(SYNTHESIZERS._entries, "bridge", bridge)
    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 43_200, 6, slot_s=43_200)
    law = CheckinBridge.from_arrays(ARRAYS)
    FittedModel("bridge", {}, 0, np.arange(2), places_in_line(3), grid, law).save(tmp_path / "model")
    loaded = FittedModel.load(tmp_path / "model").trace_model
    assert isinstance(loaded, CheckinBridge)
    for name, array in law.to_arrays().items():
        np.testing.assert_array_equal(loaded.to_arrays()[name], array)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cluster", lambda array: array + 1, "cluster beyond"),
        ("cell", lambda array: array + 1, "cell beyond"),
        ("visits", lambda array: array * 0, "visits that are not positive"),
        ("near_own", lambda array: array * 0, "near_own that are not positive"),
        ("pace_share", lambda array: array / 2, "pace_share that do not sum"),
        ("log_odds", lambda array: array[:, :4], "times"),
    ],
)
def test_arrays_must_fit_each_other(name, change, message):
    with pytest.raises(ValueError, match=message):
        CheckinBridge.from_arrays(ARRAYS | {name: change(ARRAYS[name])})


def test_the_summary_tells_what_a_trace_is():
    lines = CheckinBridge.from_arrays(ARRAYS).summary()
    assert "the smallest has 1 user, the largest 2" in lines[0]
    assert lines[1].endswith("k = 1")
    assert "in 3 days, with gaps, as the settings say" in lines[2]
    facts = np.array([1.3, 0.054, 0.07], np.float32)
    told = CheckinBridge.from_arrays(ARRAYS | {"facts": facts}).summary()[2]
    assert "1.3 events on a day with events (5.4 % of its instants), and 7 % of the events follow" in told


# Bins and the grid


@pytest.mark.parametrize("per_day", [96, 24, 12, 1])
def test_bins_are_those_of_hours(per_day):
    hours = np.arange(200) * 24 / per_day
    for edges in (law_module.SINCE_FROM_H, law_module.GAP_FROM_H):
        expected = [int(sum(edges <= hour)) - 1 for hour in hours]
        assert bins_of_instants(edges, per_day, 200).tolist() == expected
        law = CheckinBridge.from_arrays(random_arrays(1, per_day, 1))
        if edges is law_module.GAP_FROM_H:
            assert [int(law.gap_bin(jnp.int32(gap))) for gap in (0, 1, 30, 199)] == [
                expected[g] for g in (0, 1, 30, 199)
            ]
    assert hour_of_instants(per_day, 2 * per_day).tolist() == [int(hour) % 24 for hour in hours[: 2 * per_day]]


def test_unknown_distances_are_all_equal():
    km = np.array([[0, 0.1, 0.25], [0.1, 0, 1000], [np.nan, 1000, 0]])
    assert distance_bins(km).tolist() == [[0, 0, 1], [0, 0, 13], [0, 13, 0]]


def test_a_trace_has_four_weeks_at_most():
    hours = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, 100 * 24, slot_s=3600)
    grid = CheckinBridge.grid_of_trace(hours)
    assert (grid.start, grid.n_instants, grid.period) == ("2024-01-02T00:00:00", 28 * 24, 24)
