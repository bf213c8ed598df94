"""Stays among fixes, against a plain loop and by hand."""

from __future__ import annotations

import tarfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretize import SpacedTraces
from ppmtf_jax.datasets.geolife import BEIJING, read_geolife
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.datasets.stays import StayPoints, begun_instants, find_stay_points
from ppmtf_jax.errors import InputError
from tests.support import every_place

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())
read_geolife = partial(read_geolife, discretization=every_place(GridPlaces(*BEIJING)))

START = np.datetime64("2024-01-01T00:00:00")
# 100 m to the north, on a globe of 6371 km
NORTH_100_M = np.degrees(0.1 / 6371)
GRID = GridPlaces(34, 36, 139, 141, 2, 2)


def fixes(rows: list[tuple], columns: str = "user minute north") -> pd.DataFrame:
    """A table of (user, minute, hundreds of metres to the north), all on one meridian."""
    frame = pd.DataFrame(rows, columns=columns.split())
    minute, north = frame.pop("minute"), frame.pop("north")
    frame["utc_time"] = START + (minute.to_numpy() * 60).astype("timedelta64[s]")
    return frame.assign(latitude=35 + north * NORTH_100_M, longitude=139.5)


def minutes(times: pd.Series) -> list[float]:
    return ((times.to_numpy("datetime64[s]") - START).astype(int) / 60).tolist()


def plain_stays(
    table: pd.DataFrame,
    settings: StayPoints,
    *,
    jumps: bool = False,
    counts_next: bool = False,
    drops_at_gaps: bool = False,
    positions_once: bool = False,
) -> list[tuple]:
    """User, arrival, departure, latitude and longitude of stays, fix by fix; with rules of trackintel if wanted.

    These are told in the docstring of `find_stay_points`, in the order of the arguments.
    """
    found = []
    for user, rows in table.sort_values("utc_time", kind="stable").groupby("user"):
        second = (rows["utc_time"].to_numpy("datetime64[s]") - START).astype(int)
        north, east = np.radians(rows["latitude"].to_numpy()), np.radians(rows["longitude"].to_numpy())
        i = 0
        for end in [*(np.flatnonzero(np.diff(second) > settings.max_gap_s) + 1).tolist(), len(rows)]:
            while i < end:
                j = i + first_outside(north[i:end], east[i:end], settings.distance_m)
                if j == end < len(rows) and drops_at_gaps:
                    i = end
                    continue
                departure = second[j] if counts_next and j < end else second[j - 1]
                if departure - second[i] >= settings.duration_s:
                    positions = np.stack([north[i:j], east[i:j]], axis=1)
                    positions = np.unique(positions, axis=0) if positions_once else positions
                    found.append((user, second[i], departure, *np.degrees(positions.mean(axis=0))))
                    i = j
                else:
                    i = j if jumps else i + 1
    return found


def first_outside(north: np.ndarray, east: np.ndarray, distance_m: float, n_at_once: int = 64) -> int:
    """Index of the first fix further away from the first, by the haversine; the number of fixes if none is."""
    for begin in range(0, len(north), n_at_once):
        rows = slice(begin, begin + n_at_once)
        half = np.sin((north[rows] - north[0]) / 2) ** 2
        half += np.cos(north[rows]) * np.cos(north[0]) * np.sin((east[rows] - east[0]) / 2) ** 2
        outside = 2 * 6_371_000 * np.arcsin(np.sqrt(half)) > distance_m
        if outside.any():
            return begin + int(outside.argmax())
    return len(north)


def as_tuples(stays: pd.DataFrame) -> list[tuple]:
    """What `find_stay_points` gives, in the order and units of `plain_stays`."""
    times = [(stays[name].to_numpy("datetime64[s]") - START).astype(int) for name in ("arrival", "departure")]
    return sorted(zip(stays["user"], *times, stays["latitude"], stays["longitude"], strict=True))


def assert_same_stays(found: list[tuple], expected: list[tuple]) -> None:
    """The same users and times; places to a tenth of a metre."""
    assert [stay[:3] for stay in found] == [stay[:3] for stay in expected]
    places = [np.array([stay[3:] for stay in each]).reshape(-1, 2) for each in (found, expected)]
    np.testing.assert_allclose(*places, atol=1e-6, rtol=0)


@settings(max_examples=20)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 90), st.integers(-3, 3)), min_size=1, max_size=40),
    distance_m=st.sampled_from([50, 150, 250]),
    duration_s=st.sampled_from([60, 600, 1800]),
    max_gap_s=st.sampled_from([300, 43_200]),
)
def test_agrees_with_a_plain_loop(rows, distance_m, duration_s, max_gap_s):
    table, what = fixes(rows), StayPoints(distance_m, duration_s, max_gap_s)
    assert_same_stays(as_tuples(find_stay_points(table, what)), plain_stays(table, what))


def test_a_stay_may_last_just_as_long_as_is_asked_for():
    assert len(find_stay_points(fixes([(1, 0, 0), (1, 20, 0), (1, 21, 50)]), StayPoints(200, 1200))) == 1


def test_a_gap_in_the_recording_is_no_stay():
    assert not len(find_stay_points(fixes([(1, 0, 0), (1, 600, 50), (1, 601, 100)])))
    stays = find_stay_points(fixes([(1, 0, 0)]).iloc[:0])
    assert (len(stays), stays.columns.tolist()) == (0, ["user", "latitude", "longitude", "arrival", "departure"])
    # Somebody who is found where they were has stayed, if it is not too long ago.
    assert len(find_stay_points(fixes([(1, 0, 0), (1, 720, 0), (1, 721, 100)]))) == 1
    assert len(find_stay_points(fixes([(1, 0, 0), (1, 721, 0), (1, 722, 100)]))) == 0


def test_no_stay_goes_beyond_a_trace():
    rows = [(1, "a", 0, 0), (1, "a", 15, 0), (1, "b", 30, 0), (1, "b", 55, 0)]
    stays = find_stay_points(fixes(rows, "user trace minute north"))
    assert (stays["trace"].tolist(), minutes(stays["arrival"])) == (["b"], [30])


def test_stays_across_the_180th_meridian():
    table = fixes([(1, 0, 0), (1, 30, 0)]).assign(longitude=[179.9999, -179.9997])
    assert find_stay_points(table)["longitude"].tolist() == pytest.approx([-179.9999])


def test_a_stay_is_a_check_in_at_each_step_that_it_lasts():
    table = fixes([(1, 5, 0), (1, 150, 0), (1, 151, 90), (2, 0, 0)]).rename(columns={"utc_time": "time"})
    how = {"time_zone": "Asia/Tokyo", "times_in": "UTC", "stay_points": StayPoints()}
    traces, report = read_checkins(table, discretization=every_place(GRID), **how)
    # From 00:05 to 02:30 UTC: at 09, 10 and 11 h in Tokyo.
    assert traces.instant.tolist() == [9, 10, 11]
    assert report.notes == ("4 fixes became 1 stays of 1200 s within 200 m at least",)
    assert (report.n_rows, report.n_users_read, report.n_users) == (4, 2, 1)
    with pytest.raises(InputError, match="a grid, since stay points have no place ids"):
        read_checkins(table.assign(place="a"), discretization=every_place(MostVisited(3)), **how)
    with pytest.raises(InputError, match="a stay of 9000 s within 200 m; found none in 4 fixes"):
        read_checkins(table, discretization=every_place(GRID), **(how | {"stay_points": StayPoints(200, 9000)}))


def instants_of_stay(first: str, last: str, time_zone: str, east: float = 13.5, **times) -> list[int]:
    """Instants of somebody who stays at one point between two times, UTC."""
    table = pd.DataFrame({"user": 1, "time": [f"{first}Z", f"{last}Z"], "latitude": 50.0, "longitude": east})
    how = {"time_zone": time_zone, "stay_points": StayPoints()}
    traces, report = read_checkins(table, discretization=every_place(GridPlaces(49, 51, 10, 90, 1, 1), **times), **how)
    assert report.n_same_instant == 0
    return traces.instant.tolist()


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("08:50", "09:40", [8, 9]),
        ("08:00", "08:59", [8]),
        # The last fix is in the instant that begins with it.
        ("08:50", "10:00", [8, 9, 10]),
        ("08:50", "12:05", [8, 9, 10, 11, 12]),
    ],
)
def test_a_stay_has_every_instant_that_it_covers(first, last, expected):
    assert instants_of_stay(f"2024-01-01T{first}", f"2024-01-01T{last}", "UTC") == expected


def test_instants_begin_by_the_clock_and_come_once_where_summer_time_ends():
    # In Nepal from 14:35 to 15:05.
    assert instants_of_stay("2024-01-01T08:50", "2024-01-01T09:20", "Asia/Kathmandu", 85.0) == [14, 15]
    long = {"step_s": 7200, "slot_s": 7200}
    # From 00:30 to 05:30 by the clocks, which go back from 3 to 2 h: 6 hours.
    assert instants_of_stay("2024-10-26T22:30", "2024-10-27T04:30", "Europe/Berlin", **long) == [0, 1, 2]
    # From 00:30 to 06:30, and they go forward from 2 to 3 h: 5 hours.
    assert instants_of_stay("2024-03-30T23:30", "2024-03-31T04:30", "Europe/Berlin", **long) == [0, 1, 2, 3]


@settings(max_examples=50)
@given(
    start_s=st.integers(0, 90_000), duration_s=st.integers(0, 200_000), step_s=st.sampled_from([1, 600, 3600, 86_400])
)
def test_covered_instants_are_those_of_a_loop(start_s, duration_s, step_s):
    if step_s == 1:
        duration_s %= 1000
    stay, later_s = begun_instants(np.array([0, start_s]), np.array([0, duration_s]), step_s)
    at = start_s + later_s[stay == 1]
    covered = range(start_s // step_s, (start_s + duration_s) // step_s + 1)
    assert (at // step_s).tolist() == list(covered)
    assert (at[0], at[1:].tolist()) == (start_s, [number * step_s for number in covered][1:])


def test_degrees_of_longitude_are_shorter_in_the_north():
    # At 60 degrees they are half as long: .003 are 6371 km * .003 * pi / 180 / 2 = 167 m, .004 are 222 m.
    for east, n_stays in ((0.003, 1), (0.004, 0)):
        table = fixes([(1, 0, 0), (1, 30, 0)]).assign(latitude=60.0, longitude=[10.0, 10.0 + east])
        assert len(find_stay_points(table, StayPoints(200, 1200))) == n_stays
    north = fixes([(1, 0, 0), (1, 30, 2.2)])
    assert len(find_stay_points(north.assign(latitude=north["latitude"] + 25), StayPoints(200, 1200))) == 0


def test_spaced_traces_take_each_stay_once():
    rows = [(1, 100 * k + 40 * late, 50 * k) for k in range(4) for late in range(2)]
    table = fixes(rows).rename(columns={"utc_time": "time"})
    spaced = SpacedTraces(GRID, n_traces=2, trace_length=2)
    traces, _ = read_checkins(table, time_zone="UTC", discretization=spaced, stay_points=StayPoints())
    assert traces.n_events == 4


@pytest.mark.parametrize(
    "values", [{"distance_m": 0}, {"duration_s": -1}, {"max_gap_s": 0}, {"distance_m": float("nan")}]
)
def test_impossible_stays(values):
    with pytest.raises(InputError, match="as a finite number above 0"):
        StayPoints(**values)


def test_settings_of_stays_and_cells():
    kind = DATA_SETS["geolife"].settings
    assert kind(Path("x")).stay_points() is None
    assert kind(Path("x"), stay_distance_m=100.0).stay_points() == StayPoints(100, 1200)
    assert kind(Path("x"), stay_duration_s=1800.0).stay_points() == StayPoints(200, 1800)
    settings = kind(Path("x"), grid=(39.7, 40.2, 116.1, 116.7), cell_m=500.0)
    assert settings.discretization().places == GridPlaces.of_cells(39.7, 40.2, 116.1, 116.7, 500)
    for values, message in (
        ({"stay_duration_s": 0.0}, "stay_duration_s as a finite number"),
        ({"cell_m": 500.0}, "found 6 values"),
        ({"cell_m": -1.0, "grid": (1, 2, 3, 4)}, "cell_m as a finite number"),
    ):
        with pytest.raises(InputError, match=message):
            kind(Path("x"), **values)


# Beside trackintel

RULES_OF_TRACKINTEL = {"jumps": True, "counts_next": True, "drops_at_gaps": True, "positions_once": True}


def stays_of_trackintel(table: pd.DataFrame, what: StayPoints) -> list[tuple]:
    """What its sliding search gives at the same thresholds, in the order and units of `plain_stays`."""
    geopandas = pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
    trackintel = pytest.importorskip("trackintel", reason="needs trackintel (extra interop)")
    points = geopandas.points_from_xy(table["longitude"], table["latitude"], crs=4326)
    columns = {"user_id": table["user"], "tracked_at": table["utc_time"].dt.tz_localize("UTC")}
    _, found = trackintel.Positionfixes(geopandas.GeoDataFrame(columns, geometry=points)).generate_staypoints(
        method="sliding",
        dist_threshold=what.distance_m,
        time_threshold=what.duration_s / 60,
        gap_threshold=what.max_gap_s / 60,
        include_last=True,
    )
    stays = pd.DataFrame({"user": found["user_id"], "latitude": found.geometry.y, "longitude": found.geometry.x})
    stays["arrival"], stays["departure"] = (found[name].dt.tz_localize(None) for name in ("started_at", "finished_at"))
    return as_tuples(stays)


def walks(n_users: int, n_fixes: int) -> pd.DataFrame:
    """Fixes of people who sometimes stay, sometimes go, and sometimes are not recorded."""
    rng = np.random.default_rng(0)
    gap_s = rng.choice([30, 120, 1500, 5000], (n_users, n_fixes), p=[0.5, 0.4, 0.07, 0.03])
    goes = np.repeat(rng.random((n_users, n_fixes // 10)) < 0.4, 10, axis=1)
    steps_m = rng.normal(0, np.where(goes, 150, 15), (2, n_users, n_fixes))
    latitude, longitude = np.degrees(steps_m.cumsum(axis=2) / 6_371_000)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(n_users), n_fixes),
            "utc_time": START + gap_s.cumsum(axis=1).ravel().astype("timedelta64[s]"),
            # As of a receiver that writes four decimals: positions come again.
            "latitude": 35 + latitude.ravel().round(4),
            "longitude": 139.5 + longitude.ravel().round(4),
        }
    )


def test_each_rule_of_trackintel_would_give_other_stays():
    table, what = walks(n_users=6, n_fixes=100), StayPoints(200, 1200, 3600)
    ours = as_tuples(find_stay_points(table, what))
    assert_same_stays(ours, plain_stays(table, what))
    for rule in RULES_OF_TRACKINTEL:
        with pytest.raises(AssertionError):
            assert_same_stays(ours, plain_stays(table, what, **{rule: True}))


@pytest.mark.slow
def test_four_rules_are_all_that_differs_from_trackintel():
    table, what = walks(n_users=6, n_fixes=300), StayPoints(200, 1200, 3600)
    theirs = stays_of_trackintel(table, what)
    assert_same_stays(theirs, plain_stays(table, what, **RULES_OF_TRACKINTEL))


def geolife_fixes(archive: Path) -> pd.DataFrame:
    """Distinct fixes."""
    parts = []
    with tarfile.open(archive) as files:
        for member in files:
            user = member.name.split("/")[-3:][0]
            if member.name.endswith(".plt"):
                stream = files.extractfile(member)
                assert stream is not None
                fields = pd.read_csv(stream, skiprows=6, header=None, usecols=[0, 1, 5, 6])
                parts.append(fields.set_axis(["latitude", "longitude", "date", "time"], axis=1).assign(user=user))
    table = pd.concat(parts, ignore_index=True)
    table["utc_time"] = pd.to_datetime(table.pop("date") + " " + table.pop("time"))
    return table.drop_duplicates(ignore_index=True)


@pytest.mark.slow
def test_geolife_beside_trackintel(geolife_data):
    """The numbers differ by the four rules alone."""
    table = geolife_fixes(geolife_data / "geolife13_full_4users.tar.gz")
    ours, theirs = as_tuples(find_stay_points(table)), stays_of_trackintel(table, StayPoints())
    assert (len(ours), len(theirs)) == (269, 342)
    assert_same_stays(ours, plain_stays(table, StayPoints()))
    assert_same_stays(theirs, plain_stays(table, StayPoints(), **RULES_OF_TRACKINTEL))
