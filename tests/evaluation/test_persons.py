"""Metrics of memory against loops, on planted synthesizers, and what is undefined or left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation.metrics import persons, times
from ppmtf_jax.evaluation.metrics.persons import entropies, lempel_ziv_entropy
from ppmtf_jax.evaluation.metrics.windows import Sample, mean_difference
from ppmtf_jax.evaluation.registry import METRICS
from tests import support
from tests.evaluation import window_loops as loops

PERSONS = [
    *("return_difference", "straight_back_difference", "return_time_tv"),
    *("distinct_w1", "top_place_w1", "second_place_w1", "main_places_w1_km"),
    *("daily_motif_tv", "closed_day_difference", "night_homes_difference", "entropy_difference"),
    "stay_any_gap_difference",
]
CHECKINS = ["jump_1h_tv", "jump_6h_tv", "jump_24h_tv", "jump_later_tv", "events_w1", "event_gap_tv", "day_events_tv"]
# Three windows of three days for each user.
TRACES = loops.random_traces(0)
WINDOWS = Windows.of(TRACES, 3 * loops.N_A_DAY).with_events(2)


def assert_sample(found: Sample, expected: list[tuple[int, list[Any]]]) -> None:
    """`expected`: the values of each window, with its user."""
    assert found.user.tolist() == [user for user, values in expected for _ in values]
    assert found.value.tolist() == pytest.approx([value for _, values in expected for value in values])


def by_loop(windows: Windows, function: Callable[[list], list]) -> list[tuple[int, list]]:
    return [(user, function(events)) for user, events in loops.by_window(windows)]


def test_values_of_windows_are_those_of_a_loop() -> None:
    enough, many = WINDOWS.with_events(5), WINDOWS.with_events(10)
    assert many.n_windows > 30
    by_definition: list[tuple[Callable[..., Sample], Windows, Callable[[list], list]]] = [
        (persons.returns, WINDOWS, loops.returns),
        (persons.straight_back, WINDOWS, loops.straight_back),
        (persons.return_time_bins, WINDOWS, lambda events: [loops_bin(each) for each in loops.return_hours(events)]),
        (persons.distinct, WINDOWS, lambda events: [len({place for _, place in events})]),
        (partial(persons.share_of_rank, rank=0), enough, lambda events: loops.shares(events)[:1]),
        (partial(persons.share_of_rank, rank=1), enough, lambda events: loops.shares(events)[1:2]),
        (entropies, many, lambda events: [loops.entropy([place for _, place in events])]),
    ]
    for sample, windows, loop in by_definition:
        assert_sample(sample(windows), by_loop(windows, loop))


def loops_bin(hours: float) -> int:
    return max(number for number, first in enumerate(persons.RETURN_HOURS) if first <= hours)


def test_distances_of_the_main_places_are_those_of_a_loop() -> None:
    """In windows without ties, which the loop and the table order in different ways."""
    position_km = loops.PLACES.position_km()

    def distance_km(events: list) -> list[float]:
        count = np.bincount([place for _, place in events], minlength=loops.N_PLACES)
        top, second = np.argsort(-count, kind="stable")[:2]
        return [float(np.linalg.norm(position_km[top] - position_km[second]))] if count[second] > 1 else []

    assert_sample(persons.main_distance_km(WINDOWS), by_loop(WINDOWS, distance_km))
    # Places without coordinates have no distances.
    is_known = np.arange(loops.N_PLACES) < 2
    unknown = {axis: np.where(is_known, getattr(loops.PLACES, axis), np.nan) for axis in ("latitude", "longitude")}
    found = persons.main_distance_km(replace(WINDOWS, places=replace(loops.PLACES, **unknown)))
    assert 0 < len(found.value) < len(persons.main_distance_km(WINDOWS).value)
    assert np.ptp(found.value) == 0


@pytest.mark.parametrize("first_h", [0, 9])
def test_homes_of_nights_are_those_of_a_loop(first_h: int) -> None:
    """Of windows of nine days, a week and a part, which need not begin at midnight."""
    grid = loops.grid_of(9, start=f"2024-01-01T{first_h:02}:00:00")
    windows = Windows.of(replace(loops.random_traces(1, keep=0.3), time_grid=grid), 9 * loops.N_A_DAY)
    expected = by_loop(windows, lambda events: loops.night_homes(events, first_h))
    assert {len(values) for _, values in expected} == {1, 2}
    assert_sample(times.night_homes(windows), expected)


# Entropy


def test_entropy_does_not_depend_on_the_other_windows_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    found = entropies(WINDOWS)
    monkeypatch.setattr("ppmtf_jax.evaluation.metrics.persons.BLOCK", 7)
    assert np.array_equal(entropies(WINDOWS).value, found.value)


def test_only_so_many_windows_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = dict(zip(*entropies(WINDOWS), strict=True))
    monkeypatch.setattr("ppmtf_jax.evaluation.metrics.persons.MAX_PAIRS", 5 * 24**2)
    some = entropies(WINDOWS)
    assert 0 < len(some.value) <= 5 * 24**2 // int(WINDOWS.events_per_window().max()) ** 2
    assert set(some.user.tolist()) <= set(everything)


def test_entropy_of_independent_draws_is_theirs() -> None:
    """Fair coins have one bit; the estimate comes near it slowly, from above."""
    coins = np.random.default_rng(0).integers(2, size=(20, 1000))
    assert lempel_ziv_entropy(coins, np.full(20, 1000)).mean() == pytest.approx(1, abs=0.15)


# Metrics


def measured(traces: Traces, test: Traces, n_instants: int, *, train: Traces | None = None) -> dict[str, float]:
    comparison = Comparison(traces, train or test, test, n_instants)
    metrics = [METRICS[name] for name in (*PERSONS, *CHECKINS)]
    wanted = [each for each in metrics if each.applies is None or each.applies(comparison)]
    return {each.name: float(each.measure(comparison, each.settings())[0]) for each in wanted}


def floors(train: Traces, test: Traces, n_instants: int, names: list[str]) -> dict[str, float]:
    real = Comparison(train, train, test, n_instants, pool_traces=True)
    return {name: METRICS[name].reading(real, METRICS[name].settings())[0].references["floor"] for name in names}


@pytest.fixture(scope="module")
def city() -> tuple[Traces, Traces]:
    """Weeks of two groups of people, of whom not all is seen."""
    return week(missing=0.3).split_users(0.5, seed=0)


def week(missing: float) -> Traces:
    return replace(toy_city(n_users=400, n_places=60, n_days=7, missing=missing, seed=0).traces, friendships=None)


def test_a_set_is_no_distance_from_itself() -> None:
    for n_days in (1, 3):
        comparison = Comparison(TRACES, TRACES, TRACES, n_days * loops.N_A_DAY, pool_traces=True)
        for name in (*PERSONS, *CHECKINS):
            (value,) = METRICS[name].measure(comparison, METRICS[name].settings())
            assert value == 0 or math.isnan(value), name


def test_a_chain_without_memory_is_found_out(city: tuple[Traces, Traces]) -> None:
    """Each week of the chain has the moves of the people, one after the other, but none of its own past."""
    train, test = city
    people = week(missing=0.0).select_users(train.user_ids)
    place = people.place.reshape(200, 168)
    rng = np.random.default_rng(0)
    chain = np.empty_like(place)
    chain[:, 0] = place[:, 0]
    for hour in range(167):
        for user in range(200):
            # Somebody else who is at the same place at this hour, or anybody.
            here = np.flatnonzero(place[:, hour] == chain[user, hour])
            chain[user, hour + 1] = place[rng.choice(here) if len(here) else rng.integers(200), hour + 1]
    without = replace(people, place=chain.ravel())
    good, bad = (measured(traces, test, 168) for traces in (people, without))
    assert abs(bad["return_difference"]) > 0.1
    for name in good:
        if name not in ("stay_any_gap_difference", "return_difference"):
            assert abs(bad[name]) > 2 * abs(good[name]), name
    assert bad["night_homes_difference"] > 1
    assert bad["entropy_difference"] > 0.5
    assert abs(bad["stay_any_gap_difference"]) < 0.05


def test_training_is_about_as_far_as_the_floor(city: tuple[Traces, Traces]) -> None:
    train, test = city
    real = Comparison(train, train, test, 168, pool_traces=True)
    names = [name for name in (*PERSONS, "events_w1", "event_gap_tv") if name != "row_tv"]
    values = {name: METRICS[name].measure(real, METRICS[name].settings())[0] for name in names}
    for name, floor in floors(train, test, 168, names).items():
        assert floor > 0, name
        assert abs(values[name]) < 4 * floor, name


def test_the_floor_is_that_of_random_groups() -> None:
    """Half of the users always go back, the others never: two groups of n differ by the share of such users."""
    n = 40
    rows = [(user, 0, i, [0, 1, 0, 2 - 2 * (user % 2)][i]) for user in range(4 * n) for i in range(4)]
    everybody = support.to_traces(rows, loops.PLACES, loops.grid_of(1))
    train, test = everybody.split_users(0.5, seed=0)
    # Returns: 1 of 3 moves, or 2 of 3 where the last place is a third one less.
    found = floors(train, test, 8, ["return_difference"])["return_difference"]
    is_back = np.array([[0, 1, user % 2 == 1] for user in range(4 * n)])
    rng = np.random.default_rng(1)
    draws = []
    for _ in range(2000):
        order = rng.permutation(4 * n)
        draws.append(abs(is_back[order[: 2 * n]].mean() - is_back[order[2 * n :]].mean()))
    # The mean of ten such distances, within five standard errors.
    assert abs(found - np.mean(draws)) < 5 * np.std(draws) / math.sqrt(10)


def test_of_many_windows_only_some_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    test = loops.random_traces(1, first=50)
    everything = measured(TRACES, test, 3 * loops.N_A_DAY)["return_difference"]
    monkeypatch.setattr("ppmtf_jax.evaluation.metrics.windows.MAX_WINDOWS", 60)
    some = measured(TRACES, test, 3 * loops.N_A_DAY)["return_difference"]
    # Of 90 windows with some 800 moves in each set.
    assert 0 < abs(some - everything) < 5 * math.sqrt(2 * 0.25 / 800)


def test_traces_shorter_than_the_windows_have_no_number_but_of_days() -> None:
    day = loops.random_traces(3, n_days=1, keep=1.0)
    found = measured(day, TRACES, 3 * loops.N_A_DAY)
    defined = [name for name, value in found.items() if not math.isnan(value)]
    assert defined == ["daily_motif_tv", "closed_day_difference"]
    # A night belongs to windows of several days.
    assert "night_homes_difference" not in measured(TRACES, TRACES, loops.N_A_DAY)


def test_windows_are_no_longer_than_the_real_traces() -> None:
    """A week against three days: windows of three days, two of each week."""
    week = loops.random_traces(4, n_days=7)
    days_3 = loops.random_traces(5, n_days=3)
    expected = Windows.of(week, 3 * loops.N_A_DAY).with_events(2)
    found = measured(week, days_3, 7 * loops.N_A_DAY)["return_difference"]
    test = Windows.of(days_3, 3 * loops.N_A_DAY).with_events(2)
    assert found == pytest.approx(mean_difference(persons.returns(expected).value, persons.returns(test).value))


def test_complete_traces_are_thinned_to_windows_of_several_days() -> None:
    """Test users are seen at one instant a day, and there each trace is at a place of its own."""
    n_days = 3
    rows = [(user, 0, day * loops.N_A_DAY + 2, day) for user in range(4) for day in range(n_days)]
    test = support.to_traces(rows, loops.PLACES, loops.grid_of(n_days))
    complete = support.to_traces(
        [(0, 0, i, 6 if i % loops.N_A_DAY != 2 else i // loops.N_A_DAY) for i in range(n_days * loops.N_A_DAY)],
        loops.PLACES,
        loops.grid_of(n_days),
    )
    found = measured(complete, test, n_days * loops.N_A_DAY)
    assert found["return_difference"] == found["distinct_w1"] == 0
    with_a_gap = complete.select_events(np.arange(complete.n_events) > 0)
    found = measured(with_a_gap, test, n_days * loops.N_A_DAY)
    # As it is: six moves, of which the places 6 are returns but for the first, which is where it begins.
    assert found["return_difference"] == pytest.approx(3 / 6)
    assert found["distinct_w1"] == 4 - 3


# Odd input


def test_one_place_and_one_user() -> None:
    place = PlaceTable(np.array([7]), np.array([35.0]), np.array([139.0]))
    traces = support.random_traces(0, range(1), place, loops.grid_of(3))
    found = measured(traces, traces, 3 * loops.N_A_DAY)
    no_moves = {"return_difference", "straight_back_difference", "return_time_tv", "main_places_w1_km"}
    assert {name for name, value in found.items() if math.isnan(value)} == no_moves
    assert {value for value in found.values() if not math.isnan(value)} == {0}
    for name in found:
        METRICS[name].reading(Comparison(traces, traces, traces, 3 * loops.N_A_DAY), METRICS[name].settings())


def test_quarters_of_an_hour_have_the_hours_of_hours() -> None:
    """The same week in steps of 15 minutes and of an hour, seen at full hours."""
    hours = replace(toy_city(n_users=10, n_places=20, n_days=2, missing=0.3, seed=0).traces, friendships=None)
    grid = TimeGrid.cyclic(hours.time_grid.start, 900, 48 * 4, slot_s=7200)
    quarters = replace(hours, instant=hours.instant * 4, time_grid=grid)
    for function in (persons.return_time_bins, times.night_homes, times.daily_motifs, times.ends_where_it_began):
        first, second = (function(Windows.of(each, each.time_grid.n_instants)) for each in (hours, quarters))
        assert np.array_equal(first.value, second.value)


@pytest.mark.parametrize(
    ("name", "keep", "codes"),
    [
        ("return_difference", 0.25, ["little_memory"]),
        ("return_time_tv", 0.25, ["few_values", "little_memory"]),
        ("main_places_w1_km", 1.0, ["one_point"]),
    ],
)
def test_what_says_little_is_told(name: str, keep: float, codes: list[str]) -> None:
    traces = support.random_traces(0, range(40), loops.PLACES, loops.grid_of(1), keep=keep)
    if "one_point" in codes:
        traces = replace(traces, places=PlaceTable(np.arange(7), np.full(7, 35.1), np.full(7, 139.3)))
    real = Comparison(traces, traces, traces, loops.N_A_DAY, pool_traces=True)
    (reading,) = METRICS[name].reading(real, METRICS[name].settings())
    assert support.codes(reading) == codes
