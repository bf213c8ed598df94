"""Metrics of one period on traces known by heart, planted synthesizers, and what is undefined."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.measurement import Comparison, Interpretation, caveat_if
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation.distributions import variation_of_samples
from ppmtf_jax.evaluation.metrics import moves
from ppmtf_jax.evaluation.metrics.moves import FlowSettings, JumpSettings
from ppmtf_jax.evaluation.metrics.windows import ONE_POINT
from ppmtf_jax.evaluation.registry import METRICS
from tests import support
from tests.support import codes

# Places 0 to 3, so many kilometres north of the first one.
NORTH_KM = np.array([0.0, 1.5, 3.8, 10.0])
PLACES = PlaceTable(np.arange(4), NORTH_KM / (6371 * np.pi / 180), np.zeros(4))
PERIOD = 4
NAMES = [
    "stay_difference",
    "jump_tv",
    "od_tv",
    "row_tv",
    "distinct_w1",
    "radius_w1_km",
    "move_interval_w1_h",
]


def grid_of(n_instants: int, *, step_s: int = 1800) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", step_s, np.arange(n_instants) % PERIOD, period=PERIOD)


def days_of(*days: list[int | None]) -> Traces:
    """A user for each day, by their places."""
    rows = [(u, 0, i, place) for u, day in enumerate(days) for i, place in enumerate(day) if place is not None]
    return support.to_traces(rows, PLACES, grid_of(PERIOD))


def measured(traces: Traces, test: Traces, train: Traces | None = None, *, synthetic: bool = True) -> dict[str, float]:
    comparison = Comparison(traces, train or test, test, PERIOD, pool_traces=not synthetic)
    return {name: METRICS[name].measure(comparison, METRICS[name].settings())[0] for name in NAMES}


def reading(name: str, train: Traces, test: Traces) -> Interpretation:
    return METRICS[name].reading(Comparison(train, train, test, PERIOD, pool_traces=True), METRICS[name].settings())[0]


# Steps: 0-0, 0-1, 1-1; 2-3, 3-3, 3-3. Moves: 0-1 of 1.5 km and 2-3 of 6.2 km.
TEST = days_of([0, 0, 1, 1], [2, 3, 3, 3])
# Steps: 0-0, 0-0, 0-0; 0-2, 2-2, 2-0. Moves: 0-2 and 2-0, both of 3.8 km.
OTHER = days_of([0, 0, 0, 0], [0, 2, 2, 0])


def test_numbers_of_traces_known_by_heart() -> None:
    found = measured(OTHER, TEST)
    assert found["stay_difference"] == pytest.approx(4 / 6 - 4 / 6)
    # No length in common.
    assert found["jump_tv"] == 1
    assert found["distinct_w1"] == pytest.approx(abs((1 + 2) / 2 - (2 + 2) / 2))
    # Of four events two each at two places, and three and one: half the distance, and sqrt(3) / 4 of it.
    assert found["radius_w1_km"] == pytest.approx(
        ((1.5 / 2 - 0) + abs((10 - 3.8) * math.sqrt(3) / 4 - 3.8 / 2)) / 2, rel=1e-3
    )
    # Half-hours, in order: 1, 1, 2, 4 against 1, 2, 2, 3.
    assert found["move_interval_w1_h"] == pytest.approx(0.5 * (0 + 1 + 0 + 1) / 4)
    # From 0 half go to 1, against a quarter to 2; from 2 all go to 3, against half to 0; the others nobody leaves.
    rows = [(abs(1 / 2 - 3 / 4) + 1 / 2 + 1 / 4) / 2, 1, 1, 1]
    assert found["row_tv"] == pytest.approx(np.average(rows, weights=[2, 1, 1, 2]))


def test_flows_are_those_of_cells() -> None:
    # Kilometres 0, 1.5, 3.8, 10 of 10 in 8 cells: cells 0, 1, 3, 7 (of one column).
    assert (PLACES.grid_cell(8) // 8).tolist() == [0, 1, 3, 7]
    to_second = days_of([0, 1, None, None], [0, 1, None, None], [0, 2, None, None])
    windows = Windows.of(to_second), Windows.of(days_of([0, 1, None, None], [0, 3, 3, None]))
    # In 2 cells 0, 1 and 2 are one.
    for n_cells, expected in ((8, 1 - 1 / 2), (2, 1 / 2), (1, 0)):
        flows = (moves.cell_flows(each, n_cells).value for each in windows)
        assert variation_of_samples(*flows) == pytest.approx(expected)


def test_jump_lengths_are_in_bins_of_kilometres() -> None:
    windows = Windows.of(days_of([0, 1, 2, 3]))
    assert moves.jump_lengths_km(windows).value == pytest.approx([1.5, 2.3, 6.2], rel=1e-6)
    assert moves.jump_length_bins(windows, 1.0).value.tolist() == [1, 2, 6]
    assert moves.jump_length_bins(windows, 2.5).value.tolist() == [0, 0, 2]


def test_time_between_moves_is_as_far_as_it_is_seen() -> None:
    """Half-hours; an event without a neighbour tells nothing, and a gap ends what is seen."""
    windows = Windows.of(days_of([0, 0, 1, 1], [0, 0, None, 0], [0, 1, 0, 0], [3, 3, 3, 3]))
    assert moves.move_intervals_h(windows).value.tolist() == [1, 1, 1, 0.5, 0.5, 1, 2]


def test_a_set_is_no_distance_from_itself() -> None:
    traces = toy_city(n_users=50, n_days=2, seed=0).traces
    comparison = Comparison(traces, traces, traces, 24, pool_traces=True)
    for name in NAMES:
        assert METRICS[name].measure(comparison, METRICS[name].settings()) == [0], name


def test_gaps_and_hours_alone_are_no_difference() -> None:
    """Days of which each test user shows some hours, against all of these days complete."""
    complete = toy_city(n_users=3000, n_places=10, n_days=1, missing=0.0, seed=0).traces
    shown = toy_city(n_users=3000, n_places=10, n_days=1, missing=0.7, seed=0).traces
    found = {name: {} for name in NAMES}
    for synthetic in (True, False):
        comparison = Comparison(complete, shown, shown, 24, pool_traces=not synthetic)
        for name in NAMES:
            found[name][synthetic] = METRICS[name].measure(comparison, METRICS[name].settings())[0]
    # Two samples of 2,991 windows, 6,390 steps (0.82 stay) and 1,125 moves in some 15 bins of lengths. Within 5
    # standard errors, the number of places having a standard deviation of 0.86; total variation at most twice its
    # expectation.
    assert abs(found["stay_difference"][True]) < 5 * math.sqrt(2 * 0.82 * 0.18 / 6390)
    assert found["distinct_w1"][True] < 5 * 0.86 * math.sqrt(2 / 2991)
    assert found["jump_tv"][True] < 2 * math.sqrt(15 / (math.pi * 1125))
    # Real sets are not thinned: whoever forgets to thin sees a difference where there is none.
    assert found["distinct_w1"][False] > 10 * 0.86 * math.sqrt(2 / 2991)
    assert found["move_interval_w1_h"][True] < found["move_interval_w1_h"][False] / 20


def test_a_synthesizer_that_stays_is_found_out() -> None:
    """Every trace remains where it begins with probability 0.9 a step: what the published metrics do not show."""
    test = toy_city(n_users=300, n_days=1, missing=0.5, seed=1).traces
    honest = toy_city(n_users=300, n_days=1, missing=0.0, seed=2).traces
    moves = np.random.default_rng(0).random((300, 24)) < 0.1
    moves[:, 0] = True
    place = honest.place.reshape(300, 24)
    last = np.maximum.accumulate(np.where(moves, np.arange(24), 0), axis=1)
    stays = replace(honest, place=np.take_along_axis(place, last, axis=1).ravel())
    good, bad = (measured(traces, test) for traces in (honest, stays))
    assert abs(good["stay_difference"]) < 0.05 < bad["stay_difference"]
    for name in ("distinct_w1", "move_interval_w1_h"):
        assert bad[name] > 2 * good[name], name


# What is undefined, or says little


def test_nobody_moves() -> None:
    still = days_of([0, 0, 0, 0], [1, 1, 1, 1])
    for found in (measured(still, TEST), measured(TEST, still)):
        assert [name for name, value in found.items() if math.isnan(value)] == ["jump_tv", "od_tv"]
    assert measured(still, TEST)["stay_difference"] == pytest.approx(1 - 4 / 6)
    assert measured(still, TEST)["move_interval_w1_h"] > 0


def test_no_two_events_at_consecutive_instants() -> None:
    gaps = days_of([0, None, 1, None], [1, None, 1, None])
    found = measured(TEST, gaps)
    defined = {name: value for name, value in found.items() if not math.isnan(value)}
    assert list(defined) == ["distinct_w1", "radius_w1_km"]
    # There is no floor, and so no caveat of it.
    assert codes(reading("row_tv", gaps, gaps)) == ["few_values"]
    alone = days_of([0, None, None, None], [None, 1, None, None])
    for found in (measured(alone, TEST, synthetic=False), measured(TEST, alone)):
        assert all(math.isnan(value) for value in found.values())


def test_synthetic_traces_with_gaps_of_their_own_are_compared_as_they_are() -> None:
    test = days_of([None, None, 0, 1], [None, 0, 1, 2])
    with_gaps = days_of([0, 1, None, None], [0, 1, 2, 3])
    # Thinned to the instants of a test window, the first trace would have no window.
    assert measured(with_gaps, test)["distinct_w1"] == measured(with_gaps, test, synthetic=False)["distinct_w1"] == 0.5


def test_grids_whose_periods_differ_leave_all_undefined() -> None:
    quarters = support.random_traces(0, range(3), PLACES, grid_of(PERIOD, step_s=900))
    assert all(math.isnan(value) for value in measured(quarters, TEST).values())
    longer = support.random_traces(0, range(3), PLACES, grid_of(3 * PERIOD))
    assert not any(math.isnan(value) for value in measured(longer, TEST).values())


@pytest.mark.parametrize("name", ["jump_tv", "od_tv", "radius_w1_km"])
def test_places_at_one_point_are_told(name: str) -> None:
    point = replace(TEST, places=PlaceTable(np.arange(4), np.full(4, 35.1), np.full(4, 139.3)))
    assert reading(name, point, point).caveats[-1:] == caveat_if(True, "one_point", ONE_POINT)
    # Two test users have few values, but are not at one point.
    assert codes(reading(name, TEST, TEST)) == ["few_values"]
    assert measured(point, point)[name] == 0


def test_rows_that_even_real_people_do_not_share_are_told() -> None:
    """Each user has places of their own, so two groups of users have no row in common."""
    apart = [PlaceTable(np.arange(40), np.linspace(35, 36, 40), np.full(40, 139.0))] * 2
    rows = [[(u, 0, i, (2 * (u + first) + i % 2) % 40) for u in range(10) for i in range(4)] for first in (0, 10)]
    own = [support.to_traces(each, places, grid_of(PERIOD)) for each, places in zip(rows, apart, strict=True)]
    assert codes(reading("row_tv", *own)) == ["sparse_rows"]
    crowd = days_of(*[[0, 0, 1, 1], [2, 3, 3, 3]] * 8)
    assert codes(reading("row_tv", crowd, crowd)) == []


def test_settings_are_used_and_told() -> None:
    jumps, flows = METRICS["jump_tv"], METRICS["od_tv"]
    assert "bins of 2.5 km" in jumps.described(JumpSettings(2.5))[0].meaning
    assert "grid of 3 x 3" in flows.described(FlowSettings(3))[0].meaning
    comparison = Comparison(OTHER, TEST, TEST, PERIOD)
    assert jumps.measure(comparison, JumpSettings(100.0)) == flows.measure(comparison, FlowSettings(1)) == [0]
