"""Metrics of events with gaps, and of days, against loops; and for which synthetic traces they are."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest

from ppmtf_jax import EvaluationSettings, evaluate
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics import moves, times
from ppmtf_jax.evaluation.registry import METRICS
from tests import support
from tests.evaluation import window_loops as loops

TIMES = ["events_w1", "event_gap_tv", "day_events_tv"]
JUMPS = ["jump_1h_tv", "jump_6h_tv", "jump_24h_tv", "jump_later_tv"]
SPARSE = loops.random_traces(0, keep=0.2)
N_INSTANTS = 9 * loops.N_A_DAY
WINDOWS = Windows.of(SPARSE, N_INSTANTS)


def first_bin(edges: np.ndarray, value: float) -> int:
    return max([number for number, first in enumerate(edges) if first <= value], default=-1)


def test_gaps_and_stays_are_those_of_a_loop() -> None:
    gaps, stays = [], []
    for user, events in loops.by_window(WINDOWS):
        for (phase, place), (next_phase, next_place) in pairwise(events):
            gaps.append((user, first_bin(times.GAP_HOURS, (next_phase - phase) * loops.STEP_H)))
            stays.append((user, place == next_place))
    for function, expected in ((times.gap_bins, gaps), (moves.stays_any_gap, stays)):
        assert list(zip(*(column.tolist() for column in function(WINDOWS)), strict=True)) == expected


def test_jumps_are_those_of_a_loop_in_classes_of_hours() -> None:
    position_km = loops.PLACES.position_km()
    n_jumps = 0
    for above_h, at_most_h, *_ in moves.JUMP_HOURS.values():
        expected = [
            (user, 1 + first_bin(moves.JUMP_KM, float(np.linalg.norm(position_km[place] - position_km[next_place]))))
            for user, events in loops.by_window(WINDOWS)
            for (phase, place), (next_phase, next_place) in pairwise(events)
            if place != next_place and above_h < (next_phase - phase) * loops.STEP_H <= at_most_h
        ]
        found = moves.jump_bins(WINDOWS, above_h, at_most_h)
        assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
        n_jumps += len(expected)
    assert n_jumps == sum(place != next_place for _, events in loops.by_window(WINDOWS)
                          for (_, place), (_, next_place) in pairwise(events))  # fmt: skip


def test_events_of_windows_and_of_days_are_those_of_a_loop() -> None:
    windows = [(user, len(events)) for user, events in loops.by_window(WINDOWS)]
    assert list(zip(*(column.tolist() for column in times.n_events(WINDOWS)), strict=True)) == windows
    days = []
    for user, events in loops.by_window(WINDOWS):
        of_day = np.bincount([phase // loops.N_A_DAY for phase, _ in events])
        days += [(user, int(n)) for n in of_day if n]
    assert list(zip(*(column.tolist() for column in times.day_events(WINDOWS)), strict=True)) == days


def values(traces: Traces, test: Traces) -> dict[str, list[float]]:
    evaluation = evaluate(traces, test, test, EvaluationSettings(attacks=False))
    return {name: [evaluation.value(name, column) for column in evaluation.columns] for name in evaluation.metrics}


@pytest.fixture(scope="module")
def test_users() -> Traces:
    return loops.random_traces(1, keep=0.2, first=50)


def test_times_are_measured_only_of_traces_with_gaps_of_their_own(test_users: Traces) -> None:
    complete = loops.random_traces(2, keep=1.0)
    assert not set(TIMES) & set(values(complete, test_users))
    found = values(SPARSE, test_users)
    assert all(math.isfinite(found[name][0]) and found[name][1] == 0 for name in TIMES)
    # Uniform traces have the times of the synthetic ones.
    assert all(math.isnan(found[name][2]) for name in TIMES)
    both = evaluate({"a": complete, "b": SPARSE}, test_users, test_users, EvaluationSettings(attacks=False))
    assert [math.isnan(both.value("events_w1", column)) for column in ("a", "b", "training")] == [True, False, False]


def test_windows_of_one_event_count_as_windows(test_users: Traces) -> None:
    alone = support.to_traces([(user, 0, 5, 0) for user in range(20)], loops.PLACES, loops.grid_of(9))
    comparison = Comparison(alone, test_users, test_users, N_INSTANTS)
    mean = np.mean([len(events) for _, events in loops.by_window(Windows.of(test_users, N_INSTANTS))])
    assert METRICS["events_w1"].measure(comparison, METRICS["events_w1"].settings())[0] == pytest.approx(mean - 1)
    assert math.isnan(METRICS["event_gap_tv"].measure(comparison, METRICS["event_gap_tv"].settings())[0])


def test_jumps_by_gap_are_for_sparse_events(test_users: Traces) -> None:
    dense = loops.random_traces(2, keep=0.9)
    for test, expected in ((test_users, True), (dense, False)):
        comparison = Comparison(SPARSE, test, test, N_INSTANTS)
        assert [METRICS[name].applies(comparison) for name in JUMPS] == [expected] * 4


def test_who_fills_gaps_by_staying_is_found_out(test_users: Traces) -> None:
    """Random check-ins and the same ones with a second event at the same place one instant later."""
    honest = loops.random_traces(3, keep=0.2)
    events = set(zip(honest.user.tolist(), honest.instant.tolist(), honest.place.tolist(), strict=True))
    taken = {(user, instant) for user, instant, _ in events}
    again = {(u, i + 1, p) for u, i, p in events if i + 1 < N_INSTANTS and (u, i + 1) not in taken}
    doubled = support.to_traces([(u, 0, i, p) for u, i, p in sorted(events | again)], loops.PLACES, loops.grid_of(9))
    good, bad = values(honest, test_users), values(doubled, test_users)
    assert abs(good["stay_any_gap_difference"][0]) < 0.05 < 0.3 < bad["stay_any_gap_difference"][0]
    for name in ("events_w1", "event_gap_tv"):
        assert bad[name][0] > 2 * good[name][0], name


# Days


@pytest.fixture(scope="module")
def month() -> Windows:
    return Windows.of(loops.random_traces(0, n_users=150, keep=0.8), 3 * loops.N_A_DAY)


def test_motifs_are_those_of_a_loop(month: Windows) -> None:
    """Numbers of motifs are equal exactly where the loop's motifs are."""
    expected = [(user, loops.motif(day)) for user, events in loops.by_window(month) for day in loops.days_of(events)]
    found = times.daily_motifs(month)
    assert found.user.tolist() == [user for user, _ in expected]
    pairs = set(zip(found.value.tolist(), (motif for _, motif in expected), strict=True))
    assert len({number for number, _ in pairs}) == len({motif for _, motif in pairs}) == len(pairs) > 20
    assert {len(motif) == 1 for _, motif in pairs} == {True, False}


def motif_of(*places: int) -> int:
    rows = [(0, 0, instant, place) for instant, place in enumerate(places)]
    return int(times.daily_motifs(Windows.of(support.to_traces(rows, loops.PLACES, loops.grid_of(1)))).value[0])


def test_known_days() -> None:
    home_and_back = motif_of(0, 1, 0)
    assert motif_of(3, 5, 3) == motif_of(3, 3, 5, 5, 3, 5, 3) == home_and_back
    # There is no way back in the first; direction counts.
    assert motif_of(0, 1) != home_and_back
    assert motif_of(0, 1, 2, 0) == motif_of(2, 1, 0, 2) == motif_of(1, 2, 0, 1)
    assert motif_of(0, 1, 2, 0) != motif_of(0, 1, 0, 2, 0)
    # Who begins at home and who ends there leave the same network.
    assert motif_of(0, 1, 0, 1) == home_and_back
    assert motif_of(0, 0) == motif_of(6, 6, 6) != motif_of(0, 1)
    # Six places and seven are two motifs, whatever the way.
    assert motif_of(0, 1, 2, 3, 4, 5) == motif_of(5, 4, 3, 2, 1, 0, 1, 0) != motif_of(0, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("n_nodes", [2, 3, 4, 5])
def test_a_renamed_network_is_the_same_and_another_one_is_not(n_nodes: int) -> None:
    rng = np.random.default_rng(0)
    pairs = list(permutations(range(n_nodes), 2))
    number = {pair: 1 << (pair[0] * 5 + pair[1]) for pair in pairs}
    edges = [pair for pair in pairs if rng.random() < 0.5]
    renamed = [sum(number[name[a], name[b]] for a, b in edges) for name in permutations(range(n_nodes))]
    found = times.canonical(np.array(renamed), n_nodes)
    assert set(found.tolist()) == {min(renamed)}
    fewer = sum(number[pair] for pair in edges[1:])
    assert times.canonical(np.array([fewer]), n_nodes)[0] != min(renamed)


def test_days_that_end_where_they_began_are_those_of_a_loop(month: Windows) -> None:
    expected = [
        (user, day[0][1] == day[-1][1]) for user, events in loops.by_window(month) for day in loops.days_of(events)
    ]
    found = times.ends_where_it_began(month)
    assert list(zip(found.user.tolist(), found.value.tolist(), strict=True)) == expected


def test_no_day_with_two_events() -> None:
    alone = Windows.of(support.to_traces([(0, 0, 3, 1), (1, 0, 9, 1)], loops.PLACES, loops.grid_of(2)))
    assert len(times.daily_motifs(alone).value) == len(times.ends_where_it_began(alone).value) == 0
