"""Check-ins become events: places, instants, slots, traces."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.datasets.checks import Findings
from ppmtf_jax.datasets.discretize import Discretization
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.to_traces import discretize
from ppmtf_jax.errors import InputError, Problem
from tests.support import every_place

BOX = GridPlaces(35.65, 35.75, 139.68, 139.80, n_rows=20, n_columns=20)


def checkins(rows: list[tuple], columns: str = "user time place", offset_h: int = 9) -> pd.DataFrame:
    """A table of (user, local time, place) in a zone without summer time, everything at one point."""
    frame = pd.DataFrame(rows, columns=columns.split())
    local = pd.to_datetime(frame.pop("time"))
    frame["local_time"], frame["utc_time"] = local, local - pd.Timedelta(hours=offset_h)
    for name, value in (("latitude", 35.7), ("longitude", 139.7)):
        if name not in frame:
            frame[name] = value
    return frame


def run(frame: pd.DataFrame, discretization: Discretization, **options):
    return discretize(frame, discretization, time_zone="Asia/Tokyo", **options)


def events(traces) -> list[tuple]:
    return list(traces.to_frame().itertuples(index=False, name=None))


# Places


def test_most_visited_places_come_by_visits_then_by_id():
    rows = [(1, f"2024-01-01T{hour:02d}:00", place) for hour, place in enumerate("ccbbadde")]
    traces, report = run(checkins(rows), every_place(MostVisited(4)))
    # b, c and d have two visits each; a comes before e among those with one.
    assert traces.places.ids.tolist() == ["b", "c", "d", "a"]
    assert report.n_other_places == 1


def test_a_place_has_the_median_coordinates_and_the_most_frequent_category():
    rows = [
        (1, "2024-01-01T08:00", "p", 35.1, "bar"),
        (1, "2024-01-01T09:00", "p", 35.2, "inn"),
        (1, "2024-01-01T10:00", "p", 35.9, "inn"),
        (1, "2024-01-01T11:00", "q", 35.5, "zoo"),
        (1, "2024-01-01T12:00", "q", 35.5, "gym"),
        (1, "2024-01-01T13:00", "r", 35.5, None),
    ]
    traces, _ = run(checkins(rows, "user time place latitude category"), every_place(MostVisited(9)))
    assert traces.places.latitude.tolist() == [35.2, 35.5, 35.5]
    # Equally frequent: the first in alphabetical order. Nothing known: an empty text.
    assert traces.places.category.tolist() == ["inn", "gym", ""]


def test_categories_that_no_row_has_are_no_places():
    frame = checkins([(1, "2024-01-01T08:00", "b")])
    frame["place"] = pd.Categorical(["b"], categories=["a", "b", "c"])
    frame["user"] = pd.Categorical([7], categories=[5, 7])
    traces, report = run(frame, every_place(MostVisited(10)))
    assert (traces.places.ids.tolist(), traces.user_ids.tolist(), report.n_users_read) == (["b"], [7], 1)


# Instants and slots


def test_times_are_rounded_down_and_counted_from_midnight_of_the_first_day():
    rows = [(1, "2024-01-02T00:00:00", "a"), (1, "2024-01-02T00:59:59", "a"), (1, "2024-01-03T23:59:59", "a")]
    traces, report = run(checkins(rows), every_place(MostVisited(1), step_s=1200, slot_s=3600))
    assert traces.instant.tolist() == [0, 2, 2 * 72 - 1]
    assert (traces.time_grid.start, traces.time_grid.n_instants) == ("2024-01-02T00:00:00", 2 * 72)
    assert (report.first_time, report.last_time) == ("2024-01-02T00:00:00", "2024-01-03T23:59:59")


def test_a_sequence_of_slots_is_repeated():
    rows = [(1, "2024-01-01T00:00", "a"), (1, "2024-01-02T00:00", "a")]
    night_and_day = [0] * 7 + [5] * 15 + [0] * 2
    settings = every_place(MostVisited(1), slot_of_instant=night_and_day)
    grid = run(checkins(rows), settings)[0].time_grid
    assert grid.slot_of_instant.tolist() == ([0] * 7 + [1] * 15 + [0] * 2) * 2
    assert settings == every_place(MostVisited(1), slot_of_instant=tuple(night_and_day))


def test_a_function_gets_the_local_times_of_the_instants():
    def is_weekend(times: np.ndarray) -> np.ndarray:
        return (~np.is_busday(times.astype("datetime64[D]"))).astype(int)

    rows = [(1, "2024-01-05T12:00", "a"), (1, "2024-01-06T12:00", "a")]  # a Friday and a Saturday
    traces, _ = run(checkins(rows), every_place(MostVisited(1), step_s=43_200, slot_of_instant=is_weekend))
    assert traces.time_grid.slot_of_instant.tolist() == [0, 0, 1, 1]
    assert traces.slot.tolist() == [0, 1]


def test_the_period_of_each_kind_of_slots():
    rows = [(1, "2024-01-01T00:00", "a"), (1, "2024-01-03T00:00", "a")]  # three days
    by_hour = {"slot_of_instant": lambda times: times.astype("datetime64[h]").astype(int) % 12}
    periods = [
        (every_place(MostVisited(1)), 24),
        (every_place(MostVisited(1), slot_s=86_400), 24),
        (every_place(MostVisited(1), slot_s=None), 72),
        # Twelve hours repeat too, but the sequence is what was given.
        (every_place(MostVisited(1), slot_of_instant=[0, 1] * 12), 24),
        (every_place(MostVisited(1), slot_of_instant=[0] * 30 + [1] * 18), 48),
        (every_place(MostVisited(1), slot_of_instant=range(100)), 72),
        (every_place(MostVisited(1), **by_hour), 72),
        (every_place(MostVisited(1), **by_hour, period_s=86_400), 24),
        (every_place(MostVisited(1), **by_hour, period_s=7 * 86_400), 72),
    ]
    assert [run(checkins(rows), settings)[0].time_grid.period for settings, _ in periods] == [n for _, n in periods]


@pytest.mark.parametrize(
    ("slots", "period", "message"),
    [
        (lambda _: [0, 1], {}, "48 whole numbers, one for each instant"),
        (lambda times: np.zeros(len(times)), {}, "48 whole numbers, one for each instant"),
        (
            lambda times: times.astype("datetime64[D]").astype(int),
            {"period_s": 86_400},
            "repeat after the period of 24 instants; found slot 0 at",
        ),
    ],
)
def test_functions_that_give_no_slots_are_refused(slots, period, message):
    rows = [(1, "2024-01-01T00:00", "a"), (1, "2024-01-02T00:00", "a")]
    with pytest.raises(InputError, match=message):
        run(checkins(rows), every_place(MostVisited(1), slot_of_instant=slots, **period))


# Traces and transitions


def test_the_first_of_several_events_at_an_instant_is_kept():
    rows = [(1, "2024-01-01T08:50", "b"), (1, "2024-01-01T08:10", "a"), (2, "2024-01-01T08:40", "b")]
    traces, report = run(checkins(rows), every_place(MostVisited(2)))
    assert events(traces) == [(1, 0, 8, "a"), (2, 0, 8, "b")]
    assert report.n_same_instant == 1


def test_a_gap_begins_a_new_trace():
    rows = [
        (1, "2024-01-01T08:00", "a"),
        (1, "2024-01-01T09:00", "a"),  # 3600 s later: not more than the gap
        (1, "2024-01-01T10:01", "a"),  # 3660 s later
        (2, "2024-01-01T11:00", "a"),
    ]
    traces, report = run(checkins(rows), every_place(MostVisited(1), max_gap_s=3600))
    assert traces.trace.tolist() == [0, 0, 1, 0]
    assert (report.n_transitions, report.n_traces) == (1, 3)
    # Without it, all consecutive instants count.
    assert run(checkins(rows), every_place(MostVisited(1)))[1].n_transitions == 2


def test_given_traces_are_numbered_in_the_order_of_their_times():
    rows = [
        (1, "late", "2024-01-01T12:00", "a"),
        (1, "late", "2024-01-01T13:00", "a"),
        (1, "early", "2024-01-01T08:00", "b"),
        (1, "early", "2024-01-01T08:30", "a"),
        (2, "late", "2024-01-01T13:00", "a"),
    ]
    traces, _ = run(checkins(rows, "user trace time place"), every_place(MostVisited(2)))
    assert events(traces) == [(1, 0, 8, "b"), (1, 1, 12, "a"), (1, 1, 13, "a"), (2, 0, 13, "a")]


@st.composite
def random_checkins(draw):
    row = st.tuples(st.integers(0, 2), st.integers(0, 4000), st.sampled_from("abc"))
    rows = draw(st.lists(row, min_size=1, max_size=25, unique_by=lambda r: (r[0], r[1])))
    start = datetime(2024, 1, 1)
    return [(user, start + timedelta(minutes=minute), place) for user, minute, place in rows]


@pytest.mark.parametrize("repeats", ["first", "count"])
@settings(max_examples=12)
@given(rows=random_checkins(), max_gap_s=st.sampled_from([None, 1800.0, 3600.0, 7200.0]), n_places=st.integers(1, 3))
def test_agrees_with_a_plain_loop(repeats, rows, max_gap_s, n_places):
    visits = {place: sum(row[2] == place for row in rows) for place in "abc"}
    chosen = sorted((p for p in visits if visits[p]), key=lambda place: (-visits[place], place))[:n_places]
    kept = sorted(row for row in rows if row[2] in chosen)
    start = min(time for _, time, _ in kept).replace(hour=0, minute=0)
    expected, last, number = [], {}, {}
    for user, time, place in kept:
        instant = int((time - start).total_seconds() // 3600)
        is_repeat = user in last and last[user][0] == instant
        if is_repeat and repeats == "first":
            continue
        is_late = user in last and max_gap_s is not None and (time - last[user][1]).total_seconds() > max_gap_s
        if is_repeat or is_late:
            number[user] += 1
        number.setdefault(user, 0)
        last[user] = (instant, time)
        expected.append((user, number[user], instant, place))

    traces, report = run(checkins(rows), every_place(MostVisited(n_places), max_gap_s=max_gap_s, repeats=repeats))
    assert events(traces) == expected
    present = {event[:3] for event in expected}
    assert report.n_transitions == sum((user, trace, instant - 1) in present for user, trace, instant in present)
    assert report.n_rows == report.n_events + report.n_other_places + report.n_same_instant


# Friendships and the report


# Bad settings and bad tables


@pytest.mark.parametrize(
    ("settings", "messages"),
    [
        ({"step_s": 7000}, ["a step in whole seconds that divides a day; found 7000 s"]),
        ({"slot_s": 1800}, ["multiples of the step of 3600 s; found 1800 s"]),
        ({"period_s": 86_400}, ["period_s only where slot_of_instant is a function; found 86400 s"]),
        ({"period_s": 5000, "slot_of_instant": len}, ["a multiple of the step of 3600 s; found 5000 s"]),
        ({"step_s": 0, "max_gap_s": -1.0}, ["step_s as a whole number of at least 1", "max_gap_s as a number above 0"]),
    ],
)
def test_impossible_settings(settings, messages):
    with pytest.raises(InputError) as error:
        every_place(**settings)
    assert len(error.value.problems) == len(messages)
    assert all(message in str(error.value) for message in messages)


def test_every_problem_of_a_table_is_listed_at_once():
    frame = checkins(
        [(1, "2024-01-01T08:00", "a", 139.7), (1, "2024-01-01T09:00", "a", 35.7)], "user time place latitude"
    )
    frame["longitude"] = [35.7, 200.0]
    known = Problem("something", "something else")
    with pytest.raises(InputError) as error:
        run(frame, every_place(), subject="table", findings=Findings([known]))
    assert str(error.value).splitlines()[0] == "table: 3 problems"
    assert error.value.problems[0] == known
    found = [problem.found for problem in error.value.problems]
    assert found == ["something else", "others", "others"]
    assert "latitude from -90 to 90 degrees; found others (1 row), first: row 0" in str(error.value)


def test_rows_that_lack_something_are_left_out_and_counted():
    every = [("ann", "2024-01-01T08:00", "a"), (None, "2024-01-01T09:00", "a"), ("ann", None, "a")]
    every += [("ann", "2024-01-01T10:00", None), ("ben", "2024-01-01T10:00", "a")]
    frame = checkins([*every, *(("ben", f"2024-01-01T1{k}:00", "a") for k in range(1, 6))], "user time place")
    traces, report = run(frame, every_place())
    assert (traces.n_events, report.n_rows, report.n_bad_rows) == (7, 10, 0)
    assert report.n_without == {"user": 1, "place": 1, "time": 1}
    assert list(report.left_out()) == ["no user", "no place", "no time"]
    # On a grid, no place is needed.
    assert run(frame, every_place(BOX))[1].n_without == {"user": 1, "time": 1}


def test_most_rows_that_lack_something_are_a_table_misread():
    with pytest.raises(InputError) as error:
        run(checkins([(None, "2024-01-01T09:00", "a")] * 2 + [("ann", "2024-01-01T09:00", "a")]), every_place())
    (problem,) = error.value.problems
    assert (problem.code, problem.found) == ("few-rows", "2 of 3, 2 without a user")


@pytest.mark.parametrize(
    ("frame", "discretization", "message"),
    [
        (pd.DataFrame({"user": [1]}), every_place(), "Missing: latitude, longitude, local_time, utc_time"),
        (checkins([(1, "2024-01-01", "a")]).iloc[:0], every_place(), "at least one check-in; found none"),
        (checkins([(1, "2024-01-01")], "user time"), every_place(), "choose a grid"),
        (checkins([(1, "2024-01-01", "a"), ("x", "2024-01-01", "a")]), every_place(), "several: 1 (int), 'x' (str)"),
        (checkins([(1, "2024-01-01", 36.7)], "user time latitude"), every_place(BOX), "Choose a box"),
        (
            checkins([(1, "2024-01-01", 40.7, -74.0)], "user time longitude latitude"),
            every_place(GridPlaces(40, 41, -75, -73, 2, 2)),
            "probably swapped",
        ),
        (
            checkins([(1, "1066-01-01", "a"), (1, "2024-01-01", "a")]),
            every_place(step_s=60),
            "at most 10,000,000 instants",
        ),
    ],
)
def test_bad_tables(frame, discretization, message):
    with pytest.raises(InputError) as error:
        run(frame, discretization)
    assert message in str(error.value)


def test_most_rows_would_be_in_the_box_if_they_were_swapped():
    rows = [(1, "2024-01-01T08:00", -74.0, 40.5)] * 3 + [(1, "2024-01-01T09:00", 40.5, -74.0)]
    box = every_place(GridPlaces(40, 41, -75, -73, 2, 2))
    with pytest.raises(
        InputError,
        match=r"within the bounding box; found 1 within; .* km from that of the box \(3 rows\).*probably swapped",
    ):
        run(checkins(rows, "user time latitude longitude"), box)


def test_rows_of_other_zones_are_told():
    rows = [(1, f"2024-01-01T{hour:02d}:00", "a", 139.0) for hour in range(8)] + [(1, "2024-01-01T09:00", "b", -74.0)]
    _, report = run(checkins(rows, "user time place longitude"), every_place(MostVisited(2)))
    assert report.notes == (
        "1 of 9 check-ins are where the sun is over 4 h off the clocks of Asia/Tokyo: they are in other time zones, "
        "where night falls in other slots",
    )


def test_places_that_are_scattered_are_told_and_refused_where_most_are():
    rows = [(1, f"2024-01-01T{hour:02d}:00", "abc"[hour % 3], 35.0) for hour in range(12)]
    table = checkins([*rows, (1, "2024-01-01T20:00", "a", 37.0)], "user time place latitude")
    _, report = run(table, every_place(MostVisited(3)))
    (note,) = report.notes
    # 2 degrees of latitude are 2 * pi / 180 * 6371 km.
    assert (note.code, note.n_rows, "up to 222 km" in note) == ("places-apart", 1, True)
    moving = table.assign(latitude=np.arange(13) * 5.0)
    with pytest.raises(InputError, match=r"3 of 3 places of several check-ins scattered further .*column of places"):
        run(moving, every_place(MostVisited(3)))


@pytest.mark.parametrize(("year", "n_stray"), [("1900", 1), ("2018", 0), ("2099", 1)])
def test_a_few_rows_years_away_are_left_out_only_if_that_is_asked_for(year, n_stray):
    rows = [(1, f"2024-01-0{1 + hour % 2}T{hour:02d}:00", "a") for hour in range(24)] + [
        (1, f"{year}-01-01T08:00", "a")
    ]
    discretization = every_place(MostVisited(1), step_s=43_200, slot_s=43_200)
    if year == "2018":  # six years are more than five, but half of the rows are no few
        rows += [(1, f"2018-01-01T{hour:02d}:30", "a") for hour in range(24)]
    if n_stray:
        with pytest.raises(InputError, match=r"\(row 24\)\. Correct them"):
            run(checkins(rows), discretization)
    _, report = run(checkins(rows), discretization, drop_bad_rows=True)
    assert report.n_bad_rows == n_stray


def test_time_going_backwards_within_a_given_trace():
    rows = [
        (1, 0, "2024-01-01T09:00", "a"),
        (2, 0, "2024-01-01T07:00", "a"),
        (1, 0, "2024-01-01T08:00", "a"),
        (1, 1, "2024-01-01T06:00", "a"),
    ]
    with pytest.raises(InputError) as error:
        run(checkins(rows, "user trace time place"), every_place())
    (problem,) = error.value.problems
    assert problem.n_rows == 1
    assert problem.examples == ("row 2 (user 1, trace 0): 2024-01-01T08:00:00 after 2024-01-01T09:00:00",)


# Weeks


@pytest.mark.parametrize("step_s", [900, 3600, 7200])
@pytest.mark.parametrize("first", ["2024-01-03T07:30", "2024-01-06T23:59"])
def test_slots_of_a_week_are_those_of_weekdays_and_weekends(first, step_s):
    """A Wednesday, and a Saturday; the grid begins at midnight of that day."""
    settings = Discretization(step_s=step_s, slot_s=7200, period="week")
    grid = settings.time_grid(np.datetime64(first), np.datetime64("2024-01-20T12:00"), "Asia/Tokyo")
    assert grid.period == 7 * 86_400 // step_s
    assert grid.start == f"{first[:10]}T00:00:00"
    for instant in range(0, grid.n_instants, 5):
        time = grid.time_of(instant)
        slot = time.hour // 2 + 12 * (time.weekday() >= 5)
        assert grid.slot_of_instant[instant] == slot
    assert grid.n_slots == 24
    assert Discretization(step_s=step_s).time_grid(np.datetime64(first), np.datetime64(first), "UTC").n_slots == 12


def test_a_week_is_for_slots_of_a_day():
    for other in ({"slot_s": None}, {"slot_of_instant": [0, 1]}):
        with pytest.raises(InputError, match="slots of slot_s for a period of a week; found other slots"):
            Discretization(period="week", **other)


@pytest.mark.parametrize(("day_types", "n_types"), [("wwwweew", 2), ("abcdefg", 7), ("aaaaaaa", 1), ("MMMMFSS", 3)])
def test_days_of_one_type_share_their_slots(day_types, n_types):
    settings = Discretization(slot_s=21_600, period="week", day_types=day_types)
    grid = settings.time_grid(np.datetime64("2024-01-03"), np.datetime64("2024-01-20"), "UTC")
    of_slot = {}
    for instant in range(grid.n_instants):
        time = grid.time_of(instant)
        meant = day_types[time.weekday()], time.hour // 6
        assert of_slot.setdefault(int(grid.slot_of_instant[instant]), meant) == meant
    assert len(set(of_slot.values())) == len(of_slot) == grid.n_slots == 4 * n_types
    assert grid.period == 168


def test_day_types_that_are_impossible():
    with pytest.raises(InputError, match="day_types only with period"):
        Discretization(day_types="wwwweew")
    with pytest.raises(InputError, match="7 letters as day_types"):
        Discretization(period="week", day_types="we")
    with pytest.raises(InputError, match="day types as 7 letters"):
        TimeGrid.weekly("2024-01-01T00:00:00", 3600, 24, slot_s=3600, day_types="we")
