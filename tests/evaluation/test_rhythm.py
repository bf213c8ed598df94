"""Metrics of events with gaps against loops, and for which synthetic traces they are."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from ppmtf_jax import EvaluationSettings, evaluate
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics import rhythm
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
            gaps.append((user, first_bin(rhythm.GAP_HOURS, (next_phase - phase) * loops.STEP_H)))
            stays.append((user, place == next_place))
    for function, expected in ((rhythm.gap_bins, gaps), (rhythm.stays, stays)):
        assert list(zip(*(column.tolist() for column in function(WINDOWS)), strict=True)) == expected


def test_jumps_are_those_of_a_loop_in_classes_of_hours() -> None:
    position_km = loops.PLACES.position_km()
    n_jumps = 0
    for above_h, at_most_h, *_ in rhythm.JUMP_HOURS.values():
        expected = [
            (user, 1 + first_bin(rhythm.JUMP_KM, float(np.linalg.norm(position_km[place] - position_km[next_place]))))
            for user, events in loops.by_window(WINDOWS)
            for (phase, place), (next_phase, next_place) in pairwise(events)
            if place != next_place and above_h < (next_phase - phase) * loops.STEP_H <= at_most_h
        ]
        found = rhythm.jump_bins(WINDOWS, above_h, at_most_h)
        assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
        n_jumps += len(expected)
    assert n_jumps == sum(place != next_place for _, events in loops.by_window(WINDOWS)
                          for (_, place), (_, next_place) in pairwise(events))  # fmt: skip


def test_events_of_windows_and_of_days_are_those_of_a_loop() -> None:
    windows = [(user, len(events)) for user, events in loops.by_window(WINDOWS)]
    assert list(zip(*(column.tolist() for column in rhythm.n_events(WINDOWS)), strict=True)) == windows
    days = []
    for user, events in loops.by_window(WINDOWS):
        of_day = np.bincount([phase // loops.N_A_DAY for phase, _ in events])
        days += [(user, int(n)) for n in of_day if n]
    assert list(zip(*(column.tolist() for column in rhythm.day_events(WINDOWS)), strict=True)) == days


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
