"""Traces of places that are far apart in time, against a loop over the events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretize import SpacedTraces, is_spaced
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.to_traces import discretize
from ppmtf_jax.errors import InputError

DAY_S = 86_400
PLACES = MostVisited(50)


def checkins(*rows: tuple[object, float, object]) -> pd.DataFrame:
    """A table of (user, minutes, place), everything at one point."""
    frame = pd.DataFrame(rows, columns=["user", "minutes", "place"])
    time = pd.Timestamp("2024-01-01T09:00") + pd.to_timedelta(frame.pop("minutes"), unit="min")
    return frame.assign(latitude=35.7, longitude=139.7, local_time=time + pd.Timedelta(hours=9), utc_time=time)


def run(frame: pd.DataFrame, spaced: SpacedTraces):
    return discretize(frame, spaced, time_zone="Asia/Tokyo")


def events(traces: Traces) -> list[tuple]:
    return list(traces.to_frame().itertuples(index=False, name=None))


def kept_by_loop(users: list[int], times: list[int], gap: float) -> list[bool]:
    kept, last = [], {}
    for user, time in zip(users, times, strict=True):
        keep = user not in last or time > last[user] + gap
        kept.append(keep)
        if keep:
            last[user] = time
    return kept


# The rule


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-50, 400)), max_size=60).map(sorted),
    st.sampled_from([0.5, 1, 7, 30, 1000]),
)
def test_what_is_kept_is_what_a_loop_keeps(rows, gap):
    user, time = np.array(rows, np.int64).reshape(-1, 2).T
    assert is_spaced(user, time, gap).tolist() == kept_by_loop(user.tolist(), time.tolist(), gap)


def test_exactly_the_gap_is_too_soon_and_what_was_left_out_does_not_count():
    frame = checkins((1, 0, "a"), (1, 30, "b"), (1, 30.5, "c"), (1, 60, "d"), (1, 61, "e"))
    traces, report = run(frame, SpacedTraces(PLACES, n_traces=1, trace_length=3))
    assert events(traces) == [(1, 0, 0, "a"), (1, 0, 1, "c"), (1, 0, 2, "e")]
    assert report.notes[0].startswith("check-ins left out: 2 within 1800 s of the last one kept, 0 of 0 users")


# Traces


def test_first_places_in_traces_of_one_length():
    frame = checkins(*((7, 31 * step, f"p{step}") for step in range(8)), *((3, 31 * step, "x") for step in range(5)))
    # Neither order nor given traces matter.
    frame = frame.assign(trace=np.arange(len(frame))).sample(frac=1, random_state=0)
    traces, report = run(frame, SpacedTraces(PLACES, n_traces=2, trace_length=3))
    assert events(traces) == [(7, step // 3, step % 3, f"p{step}") for step in range(6)]
    assert (traces.time_grid.n_instants, traces.time_grid.n_slots, traces.time_grid.step_s) == (3, 3, 1800)
    # Of 13 check-ins, 5 are of a user with too few, and 2 beyond the first six.
    assert report.notes[0].endswith("5 of 1 users with less than 6, 2 of the 1 others beyond them")
    assert (report.n_same_instant, report.n_events) == (0, 6)


def test_only_check_ins_at_the_places_count():
    frame = checkins((1, 0, "a"), (1, 20, "b"), (1, 40, "c"), (1, 80, "d")).assign(latitude=[36.5, 35.7, 35.7, 35.7])
    box = GridPlaces(35, 36, 139, 140, 2, 2)
    traces, report = run(frame, SpacedTraces(box, n_traces=1, trace_length=2))
    # The first is outside, so that the second is kept; the third follows it too soon.
    assert [row[2] for row in events(traces)] == [0, 1]
    assert (report.n_outside_box, report.notes[0][:22]) == (1, "check-ins left out: 1 ")


def test_traces_end_where_the_gap_is_long():
    day = 24 * 60
    at = [0, 40, 40 + day, 41 + 2 * day, 100 + 4 * day, 200 + 4 * day, 9 * day]
    frame = checkins(*((1, minute, f"p{n}") for n, minute in enumerate(at)), (2, 0, "x"), (2, 5 * day, "y"))
    traces, report = run(frame, SpacedTraces(PLACES, n_traces=1, trace_length=2, max_gap_s=DAY_S))
    # Exactly a day is within a trace, more is not; p3 and p6 are alone, and so is all of user 2.
    assert events(traces) == [(1, 0, 0, "p0"), (1, 0, 1, "p1"), (1, 0, 2, "p2"), (1, 1, 0, "p4"), (1, 1, 1, "p5")]
    assert report.notes[0].endswith("0 of 0 users with less than 2, 4 of the 2 others alone in a trace")
    assert traces.time_grid.n_instants == 3


def test_nobody_has_enough():
    frame = checkins((1, 0, "a"), (1, 50, "b"), (1, 60, "c"))
    with pytest.raises(InputError, match="one user with 100 check-ins more than 1800 s apart; found at most 2"):
        run(frame, SpacedTraces(PLACES))
    with pytest.raises(InputError, match="at least one event"):
        run(checkins((1, 0, "a"), (1, 3000, "b")), SpacedTraces(PLACES, 1, 2, max_gap_s=DAY_S))


def test_impossible_settings_are_all_told():
    with pytest.raises(InputError) as error:
        SpacedTraces(PLACES, n_traces=0, trace_length=-2, min_gap_s=-1)
    assert [str(problem).split(";")[0] for problem in error.value.problems] == [
        "expected n_traces as a whole number of at least 1",
        "expected trace_length as a whole number of at least 1",
        "expected min_gap_s as a whole number of at least 1",
    ]
    for gap in (1800, float("nan")):
        with pytest.raises(InputError, match="max_gap_s above min_gap_s, 1800 s"):
            SpacedTraces(PLACES, max_gap_s=gap)
