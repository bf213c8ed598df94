"""Metrics against plain loops on tiny data, their bounds, and what is undefined."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.data.measurement import Comparison, Interpretation
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.evaluation.metrics.moves import TransitionSettings, transition_matrix
from ppmtf_jax.evaluation.metrics.persons import visit_fractions
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.evaluation.registry import METRICS
from tests import support
from tests.evaluation.single_metrics import tm_emd, tp_tv, tp_tv_top50, vf_tv
from tests.support import codes

N_PLACES = 6
LATITUDE = np.array([35.0, 35.1, 35.35, 35.6, 35.9, 36.0])
LONGITUDE = np.array([139.4, 139.0, 139.9, 140.0, 139.2, 139.7])
PLACES = PlaceTable(np.arange(N_PLACES), LATITUDE, LONGITUDE)


def grid_of(n_periods: int) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.array([0, 0, 1, 2], np.int32), n_periods))


def to_traces(rows: list[tuple[int, int, int, int]], n_periods: int = 1) -> Traces:
    return support.to_traces(rows, PLACES, grid_of(n_periods))


def random_traces(seed: int, users: range, *, n_periods: int = 1, n_traces: int = 1, n_visited: int = 4) -> Traces:
    """Traces with events missing; places from `n_visited` on are never visited."""
    grid = grid_of(n_periods)
    return support.random_traces(seed, users, PLACES, grid, n_traces=n_traces, keep=0.75, n_visited=n_visited)


# Loops over Python dictionaries, straight from the definitions.


def events_of(traces: Traces) -> list[tuple[int, int, int, int]]:
    columns = (traces.user, traces.trace, traces.instant, traces.place)
    return [tuple(int(value) for value in row) for row in zip(*columns, strict=True)]


def loop_population(traces: Traces) -> list[list[float]]:
    slot_of = traces.time_grid.slot_of_instant
    count = Counter((int(slot_of[i]), p) for _, _, i, p in events_of(traces))
    rows = []
    for slot in range(traces.time_grid.n_slots):
        total = sum(n for (s, _), n in count.items() if s == slot)
        rows.append([count[slot, p] / total if total else 1 / N_PLACES for p in range(N_PLACES)])
    return rows


def loop_tp_tv(a: list[list[float]], b: list[list[float]], n_top: int = N_PLACES) -> float:
    distances = []
    for p, q in zip(a, b, strict=True):
        top = sorted(range(N_PLACES), key=lambda place: (-q[place], place))[:n_top]
        distances.append(sum(abs(p[place] - q[place]) for place in top) / 2)
    return sum(distances) / len(distances)


def loop_matrix(traces: Traces) -> list[list[float]]:
    at = {(u, t, i): p for u, t, i, p in events_of(traces)}
    count = Counter((p, at[u, t, i + 1]) for (u, t, i), p in at.items() if (u, t, i + 1) in at)
    matrix = []
    for a in range(N_PLACES):
        total = sum(count[a, b] for b in range(N_PLACES))
        matrix.append([count[a, b] / total if total else float(a == b) for b in range(N_PLACES)])
    return matrix


def loop_emd(a: list[list[float]], b: list[list[float]], coordinate: np.ndarray, n_bins: int) -> float:
    low, high = min(coordinate), max(coordinate)
    which = [min(int((value - low) / (high - low) * n_bins), n_bins - 1) for value in coordinate]
    distances = []
    for p, q in zip(a, b, strict=True):
        moved, distance = 0.0, 0.0
        for bin_number in range(n_bins):
            moved += sum(p[place] - q[place] for place in range(N_PLACES) if which[place] == bin_number)
            distance += abs(moved)
        distances.append(distance)
    return sum(distances) / len(distances)


def loop_fractions(traces: Traces, n_bins: int, of_users: bool) -> dict[int, Counter[int]]:
    """Number of traces, or of users, by bin, for each place that has a histogram."""
    by_trace = defaultdict(list)
    for u, t, _, p in events_of(traces):
        by_trace[u, 0 if of_users else t].append(p)
    histogram: dict[int, Counter[int]] = defaultdict(Counter)
    for visited in by_trace.values():
        for place, n in Counter(visited).items():
            if len(visited) >= 5 and n < len(visited):
                # The bin whose upper edge is the first at or above the fraction.
                histogram[place][min(b for b in range(n_bins) if n * n_bins <= (b + 1) * len(visited))] += 1
    return histogram


def loop_vf_tv(released: dict, train: dict, test: dict, n_bins: int) -> float:
    distances = []
    for place in set(train) & set(test):
        p = released.get(place, Counter({0: 1}))
        q = test[place]
        distances.append(sum(abs(p[b] / p.total() - q[b] / q.total()) for b in range(n_bins)) / 2)
    return sum(distances) / len(distances)


@pytest.mark.parametrize("seed", range(2))
def test_every_metric_equals_that_of_loops(seed: int) -> None:
    train = random_traces(seed, range(5), n_periods=3)
    test = random_traces(10 + seed, range(5, 9), n_traces=2, n_periods=3)
    # All five are visited, the test users know four only.
    other = random_traces(20 + seed, range(5), n_periods=2, n_visited=5)
    assert np.allclose(population_by_slot(other), loop_population(other), rtol=0, atol=1e-15)
    assert np.allclose(transition_matrix(other).toarray(), loop_matrix(other), rtol=0, atol=1e-15)
    p, q = loop_population(other), loop_population(test)
    assert tp_tv(other, test) == pytest.approx(loop_tp_tv(p, q), abs=1e-12)
    assert tp_tv_top50(other, test, n_top=2) == pytest.approx(loop_tp_tv(p, q, 2), abs=1e-12)
    expected = [loop_emd(loop_matrix(other), loop_matrix(test), axis, 7) for axis in (LATITUDE, LONGITUDE)]
    assert tm_emd(other, test, n_bins=7) == pytest.approx(expected, abs=1e-12)
    for n_bins in (4, 5):
        real = (loop_fractions(each, n_bins, True) for each in (train, test))
        expected = loop_vf_tv(loop_fractions(other, n_bins, False), *real, n_bins)
        assert vf_tv(other, train, test, n_bins=n_bins, published=True) == pytest.approx(expected, abs=1e-12)


def test_fractions_on_the_edge_of_a_bin() -> None:
    """Bins are open below and closed above: 1 of 6, 2 of 6 and 3 of 6 events are bins 0, 1 and 2 of 6."""
    places = [0, 1, 1, 2, 2, 2]
    traces = to_traces([(0, 0, i, p) for i, p in enumerate(places)], 2)
    histogram = visit_fractions(Windows.of(traces), 6, published=True)
    assert [np.flatnonzero(row).tolist() for row in histogram] == [[0], [1], [2], [], [], []]


def test_shares_of_places_weigh_as_many_windows_as_both_real_sets_have_of_them() -> None:
    """Two training and three test windows know place 0 and place 1; place 2 is of the test users alone."""
    grid = TimeGrid("2024-01-01T00:00:00", 3600, np.zeros(4, np.int32))

    def days(*rows: list[int]) -> Traces:
        return support.to_traces([(u, 0, i, p) for u, row in enumerate(rows) for i, p in enumerate(row)], PLACES, grid)

    train, test = days(*[[0, 0, 0, 1]] * 2), days(*[[0, 0, 1, 1]] * 3, [2, 2, 2, 2])
    assert visit_fractions(Windows.of(test), 4)[:3].tolist() == [[0, 3, 0, 0], [0, 3, 0, 0], [0, 0, 0, 1]]
    assert vf_tv(days([0, 0, 1, 1]), train, test) == 0
    # Never at place 1.
    assert vf_tv(days([0, 0, 3, 3]), train, test) == pytest.approx((2 * 0 + 2 * 1) / 4)
    pairs = days([0, 1], [1, 0])
    real = Comparison(pairs, pairs, pairs, 4, pool_traces=True)
    (reading,) = METRICS["vf_tv"].reading(real, METRICS["vf_tv"].settings())
    assert codes(reading) == ["coarse_shares"]


def test_a_slot_without_events_counts_as_uniform() -> None:
    still = to_traces([(0, 0, 0, 2)])
    assert population_by_slot(still).tolist() == [[0, 0, 1, 0, 0, 0]] + 2 * [[1 / 6] * 6]
    assert tp_tv(still, to_traces([(0, 0, 1, 2)])) == 0


def test_the_box_can_be_given_and_places_outside_are_in_its_outermost_bins() -> None:
    move = to_traces([(0, 0, 0, 0), (0, 0, 1, 5)])
    stay = to_traces([(0, 0, 0, 0), (0, 0, 1, 0)])
    # Latitude 35 to 36 is from bin 0 to bin 9 of 10; only one row of six differs.
    assert tm_emd(move, stay, n_bins=10)[0] == pytest.approx(9 / 6)
    assert tm_emd(move, stay, n_bins=10, box=(34.0, 36.5, 139.0, 140.0))[0] == pytest.approx((8 - 4) / 6)
    assert tm_emd(move, stay, n_bins=10, box=(35.5, 35.6, 139.0, 140.0))[0] == pytest.approx(9 / 6)
    for box, message in (((36.0, 35.0, 139.0, 140.0), "south < north"), ((35.0, 36.0, 139.0), "south, north, west")):
        with pytest.raises(InputError, match=message):
            TransitionSettings(box=box)
    # Places on one line are in one bin.
    line = replace(move.places, latitude=np.full(N_PLACES, 35.5))
    y, x = tm_emd(replace(move, places=line), replace(stay, places=line))
    assert (y, x > 0) == (0, True)


event_rows = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 7), st.integers(0, N_PLACES - 1)),
    min_size=1,
    max_size=60,
    unique_by=lambda row: row[:3],
)


@given(event_rows, event_rows)
@settings(max_examples=15)
def test_a_set_is_no_distance_from_itself_and_all_distances_are_bounded(a: list, b: list) -> None:
    first, second = to_traces(a, 2), to_traces(b, 2)
    assert tp_tv(first, first) == tp_tv_top50(first, first) == 0
    assert tm_emd(first, first) == (0, 0) or not first.has_transitions()
    assert vf_tv(first, first, first) == 0 or math.isnan(vf_tv(first, first, first))
    # Equal up to the order in which rounding errors add up.
    assert tp_tv_top50(first, second, n_top=3) <= tp_tv(first, second) + 1e-12
    assert tp_tv(first, second) <= 1 + 1e-12
    assert tp_tv(first, second) == pytest.approx(tp_tv(second, first), abs=1e-12)
    for distance in tm_emd(first, second):
        assert math.isnan(distance) or 0 <= distance <= 19 + 1e-12
    variation = vf_tv(first, second, second)
    assert math.isnan(variation) or 0 <= variation <= 1 + 1e-12


def test_uniform_is_what_uniform_distributions_give() -> None:
    train, test = random_traces(0, range(5), n_periods=3), random_traces(1, range(5, 9), n_traces=2, n_periods=3)
    synthetic = random_traces(2, range(5), n_traces=3)
    evaluation = evaluate(synthetic, train, test, EvaluationSettings(settings={"tm_emd": {"n_bins": 7}}))
    flat = [[1 / N_PLACES] * N_PLACES]
    expected = loop_tp_tv(flat * 3, loop_population(test))
    assert evaluation.value("tp_tv", "uniform") == pytest.approx(expected)
    for axis, coordinate in (("y", LATITUDE), ("x", LONGITUDE)):
        expected = loop_emd(flat * N_PLACES, loop_matrix(test), coordinate, 7)
        assert evaluation.value(f"tm_emd_{axis}", "uniform") == pytest.approx(expected)


# How the numbers are to be read on some data


def readings(synthetic: Traces, train: Traces, test: Traces) -> dict[str, Interpretation]:
    rows = evaluate(synthetic, train, test, EvaluationSettings(attacks=False)).rows
    return {row.quantity.name: row.reading for row in rows}


def walk(user: int, instants: range, trace: int = 0) -> list[tuple[int, int, int, int]]:
    """From place to place, each at one instant."""
    return [(user, trace, i, i % N_PLACES) for i in instants]


def test_visit_fractions_are_of_windows_as_long_as_a_synthetic_trace() -> None:
    """Two days of six instants at two places each: whoever pooled the days would see four places."""
    grid = TimeGrid("2024-01-01T00:00:00", 3600, np.zeros(12, np.int32), period=6)
    rows = [(user, 0, i, 2 * (i // 6) + i % 2) for user in range(4) for i in range(12)]
    real = support.to_traces(rows, PLACES, grid)
    days = [(user, 0, i % 6, place) for user, _, i, place in rows if i // 6 == user % 2]
    synthetic = support.to_traces(days, PLACES, grid.one_period())
    assert vf_tv(synthetic, real, real) == 0
    assert visit_fractions(Windows.of(real, 12), 6)[0].tolist() == [0, 4, 0, 0, 0, 0]
    assert visit_fractions(Windows.of(real, 6), 6)[0].tolist() == [0, 0, 4, 0, 0, 0]


@pytest.mark.parametrize(("n_left", "said"), [(5, ""), (4, "33 %"), (1, "83 %")])
def test_transitions_have_a_caveat_where_many_places_are_never_left(n_left: int, said: str) -> None:
    synthetic = random_traces(0, range(3))
    test = to_traces([(10 + place, 0, i, (place + i) % N_PLACES) for place in range(n_left) for i in range(2)])
    found = readings(synthetic, synthetic, test)
    for name in ("tm_emd_y", "tm_emd_x"):
        told = [each.text for each in found[name].caveats if each.code == "places_never_left"]
        assert [said in each for each in told] == [True] * bool(said)


def test_transitions_are_held_against_never_moving() -> None:
    train, test = random_traces(0, range(3)), random_traces(1, range(3, 6))
    still = to_traces([(0, 0, 0, 0)])
    found = readings(train, train, test)
    expected = tm_emd(still, test)
    assert tuple(found[f"tm_emd_{axis}"].references["never moving"] for axis in "yx") == pytest.approx(expected)
    # Where nobody moves the number is undefined, and so is what to hold it against.
    undefined = readings(train, train, still)["tm_emd_y"]
    assert undefined == Interpretation()


def test_population_has_a_caveat_where_many_slots_are_empty() -> None:
    train, full = random_traces(0, range(3)), random_traces(1, range(3, 6))
    # Of three slots, that of instant 2 has no event.
    sparse = to_traces([(3, 0, i, 0) for i in (0, 1, 3)])
    for name in ("tp_tv", "tp_tv_top50"):
        assert "empty_slots" not in codes(readings(train, train, full)[name])
        reading = readings(train, train, sparse)[name]
        assert codes(reading)[-1] == "empty_slots"
        assert reading.caveats[-1].text.startswith("33 %")
