"""Discrete time: which slots and periods a grid may have, and that JSON keeps all of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError

DAY_S = 86_400


def problems_of(function, *arguments, **options) -> list[str]:
    with pytest.raises(InputError) as error:
        function(*arguments, **options)
    return [str(problem) for problem in error.value.problems]


# Slots


def test_cyclic_slots_count_from_midnight():
    cyclic = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, 30, slot_s=7200)
    # 21 h is in the slot 20-22 h, 22 and 23 h in the last one.
    assert cyclic.slot_of_instant[:6].tolist() == [10, 11, 11, 0, 0, 1]
    assert cyclic.n_slots == 12
    assert cyclic.one_period().n_instants == 24


def test_slots_that_are_not_reached_are_not_counted():
    morning = TimeGrid.cyclic("2024-01-01T06:00:00", 3600, 4, slot_s=7200)
    assert (morning.slot_of_instant.tolist(), morning.period) == ([0, 0, 1, 1], 4)
    assert morning.slot_labels() == ["06:00", "08:00"]
    weekly = TimeGrid.weekly("2024-01-01T00:00:00", 43_200, 14, slot_s=43_200)
    assert weekly.slot_labels() == ["Mon 00:00", "Mon 12:00", "Sat 00:00", "Sat 12:00"]


def test_instants_have_times():
    half_hours = TimeGrid.each_instant("2024-01-01T09:00:00", 1800, 40)
    assert half_hours.time_of(31).isoformat() == "2024-01-02T00:30:00"
    assert TimeGrid.from_json(half_hours.to_json()) == half_hours
    assert hash(TimeGrid.from_json(half_hours.to_json())) == hash(half_hours)
    assert half_hours != TimeGrid.each_instant("2024-01-01T09:00:00", 3600, 40)


# Periods


def test_without_a_period_the_whole_grid_is_one():
    """The slots of the first half come again, but nobody said that they are a period."""
    grid = TimeGrid("2024-01-01T00:00:00", 3600, np.array([0, 1, 0, 1]))
    assert grid.period == 4
    assert grid.one_period() == grid


def test_a_period_may_hold_repetitions():
    """Day and night alternate twice a day: twelve hours are the shortest that repeat, and not what was meant."""
    half_day = [0] * 6 + [1] * 6
    grid = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(half_day, 4), period=24)
    assert grid.one_period().slot_of_instant.tolist() == half_day * 2
    assert grid != TimeGrid("2024-01-01T00:00:00", 3600, np.tile(half_day, 4), period=12)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(1, 4))
def test_one_period_repeats_to_the_whole(pattern, n_times):
    slots = np.unique(np.tile(pattern, n_times), return_inverse=True)[1]
    whole = TimeGrid("2024-01-01T00:00:00", 60, slots, period=len(pattern))
    period = whole.one_period()
    np.testing.assert_array_equal(np.resize(period.slot_of_instant, len(slots)), slots)
    assert period.n_slots == whole.n_slots
    assert period.n_instants == len(pattern)


@pytest.mark.parametrize("period", [0, -24, 5, True])
def test_periods_within_the_grid(period):
    assert problems_of(TimeGrid, "2024-01-01", 60, np.array([0, 1, 0, 1]), period=period) == [
        f"expected a period of 1 to 4 instants, in whole numbers; found {period!r}."
    ]


@pytest.mark.parametrize(("fourth", "second"), [(0, 1), (2, 1)])
def test_slots_repeat_with_the_period(fourth, second):
    """Whether the slot that differs is an earlier or a later one."""
    found = f"found slot {second} at instant 1, slot {fourth} at instant 3."
    assert problems_of(TimeGrid, "2024-01-01", 60, np.array([0, second, 0, fourth]), period=2) == [
        f"expected slots that repeat after the period of 2 instants; {found}"
    ]


# JSON


@pytest.mark.parametrize("text", ["", "[]", '{"start": "2024-01-01"}'])
def test_bad_json(text):
    assert "JSON with start, step_s, time_zone, slot_of_instant and period" in problems_of(TimeGrid.from_json, text)[0]


@pytest.mark.parametrize("key", ["start", "step_s", "time_zone", "slot_of_instant", "period"])
def test_every_key_is_needed(key):
    content = json.loads(TimeGrid.each_instant("2024-01-01T09:00:00", 600, 6).to_json())
    del content[key]
    assert problems_of(TimeGrid.from_json, json.dumps(content))[0].endswith(f"found KeyError: '{key}'.")
    for value in (None, 0.5, "x", [0.5], [10**12]):
        assert problems_of(TimeGrid.from_json, json.dumps(content | {key: value}))


# What is refused


def test_every_problem_of_a_time_grid_at_once():
    assert problems_of(TimeGrid, "yesterday", 0, np.array([0, 2]), "Mars/Phobos") == [
        "expected a step of a positive whole number of seconds; found 0.",
        "expected start as an ISO date and time; found 'yesterday'.",
        "expected slots numbered 0, 1, ... without gaps; found slots 0, 2.",
        "expected an IANA time zone such as Asia/Tokyo; found 'Mars/Phobos'.",
    ]


@pytest.mark.parametrize("slots", [np.zeros(0, int), np.zeros((2, 2), int), np.zeros(2)])
def test_slots_are_a_row_of_whole_numbers(slots):
    assert "a slot number for each of at least one instant" in problems_of(TimeGrid, "2024-01-01", 60, slots)[0]


@pytest.mark.parametrize(
    ("step_s", "slot_s", "period_s"),
    [(3600, 5000, 86_400), (3600, 7200, 10_000), (3600, 7200, 0)],
)
def test_cyclic_slots_have_to_fit(step_s, slot_s, period_s):
    found = problems_of(TimeGrid.cyclic, "2024-01-01", step_s, 24, slot_s=slot_s, period_s=period_s)
    assert found == [
        "expected a step that divides the slot, and a slot that divides the period; "
        f"found step {step_s} s, slot {slot_s} s, period {period_s} s."
    ]


def test_cyclic_slots_need_a_start():
    assert "start as an ISO date and time" in problems_of(TimeGrid.cyclic, "x", 3600, 24, slot_s=7200)[0]
    assert "a step of" in problems_of(TimeGrid.cyclic, "2024-01-01", 0, 24, slot_s=7200)[0]
    assert "without an offset" in problems_of(TimeGrid, "2024-01-01T00:00:00+09:00", 3600, np.array([0]))[0]


def test_local_times_follow_the_clocks_of_the_zone():
    """The hour from 2 comes twice on 27 October 2024 in Paris: the first is meant, so that it seems to jump by two."""
    grid = TimeGrid.each_instant("20241027T010000", 3600, 4, "Europe/Paris")
    assert [str(each) for each in grid.local_times()] == [
        "2024-10-27 01:00:00+02:00",
        "2024-10-27 02:00:00+02:00",
        "2024-10-27 03:00:00+01:00",
        "2024-10-27 04:00:00+01:00",
    ]
    whole = TimeGrid.each_instant("2024-03-30T00:00:00", 1800, 96, "Europe/Paris")
    wall = [each.replace(tzinfo=None) for each in whole.local_times().to_pydatetime()]
    # The clocks skip 02:00 and 02:30 of the second day.
    assert [i for i in range(96) if wall[i] != whole.time_of(i)] == [48 + 4, 48 + 5]


def test_days_begin_at_local_midnight():
    grid = TimeGrid.each_instant("2024-01-01T22:30:00", 3600, 28)
    assert grid.day().tolist() == [(grid.time_of(i).date() - grid.time_of(0).date()).days for i in range(28)]
    assert grid.day()[[0, 1, 2, 25, 26]].tolist() == [0, 0, 1, 1, 2]


# Whole days


@pytest.mark.parametrize(
    ("n_instants", "n_days"), [(3 + 24, 1), (3 + 6 * 24 + 23, 6), (3 + 13 * 24, 7), (3 + 20 * 24, 14), (900 * 24, 28)]
)
def test_whole_days_are_weeks_where_there_are_weeks(n_instants, n_days):
    grid = TimeGrid.cyclic("2024-01-01T21:00:00", 3600, n_instants, slot_s=7200).whole_days(28)
    assert (grid.start, grid.n_instants, grid.period) == ("2024-01-02T00:00:00", n_days * 24, 24)
    assert grid.slot_of_instant[:24].tolist() == np.repeat(np.arange(12), 2).tolist()


def test_slots_of_other_days_are_left_out():
    week = TimeGrid.cyclic("2024-01-01T12:00:00", 43_200, 9, slot_s=43_200, period_s=7 * DAY_S)
    grid = week.whole_days(2)
    assert (grid.slot_of_instant.tolist(), grid.period) == ([0, 1, 2, 3], 4)


def test_a_day_may_begin_after_midnight():
    grid = TimeGrid.each_instant("2024-01-01T00:10:00", 1800, 60)
    assert (grid.first_midnight(), grid.whole_days(28).n_instants, grid.whole_days(28).start) == (0, 48, grid.start)


@pytest.mark.parametrize(("step_s", "n_instants"), [(25_200, 40), (3600, 23), (7 * DAY_S, 5), (3600, 1)])
def test_a_grid_without_whole_days(step_s, n_instants):
    (problem,) = problems_of(TimeGrid.each_instant("2024-01-01T00:00:00", step_s, n_instants).whole_days, 28)
    assert "a step that divides a day, and a whole day of instants" in problem


@pytest.mark.parametrize(
    ("start", "n_instants", "nominal"),
    [
        ("2024-03-06T09:00:00", 24, "2001-01-01T09:00:00"),
        ("2024-03-06T09:00:00", 25, "2001-01-03T09:00:00"),
        ("2024-03-10T00:00:00", 168, "2001-01-07T00:00:00"),
    ],
)
def test_a_nominal_date_keeps_the_day_of_the_week_of_longer_grids_alone(start, n_instants, nominal):
    grid = TimeGrid.cyclic(start, 3600, n_instants, slot_s=3600)
    assert grid.on_nominal_date() == replace(grid, start=nominal)
