"""Stays among fixes, against a plain loop and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretization import Discretization
from ppmtf_jax.datasets.geolife import read_geolife
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.datasets.spaced_traces import SpacedTraces
from ppmtf_jax.datasets.stay_points import StayPoints, find_stay_points
from ppmtf_jax.errors import InputError

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


def plain_stays(table: pd.DataFrame, distance_m: float, duration_s: float) -> list[tuple]:
    """What the paper says, fix by fix."""
    found = []
    for user, rows in table.sort_values("utc_time", kind="stable").groupby("user"):
        north = (rows["latitude"].to_numpy() - 35) / NORTH_100_M * 100
        second = (rows["utc_time"].to_numpy("datetime64[s]") - START).astype(int)
        i = 0
        while i < len(rows):
            j = i + 1
            while j < len(rows) and abs(north[j] - north[i]) <= distance_m:
                j += 1
            if second[j - 1] - second[i] >= duration_s:
                found.append((user, second[i], second[j - 1], north[i:j].mean()))
                i = j
            else:
                i += 1
    return found


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 90), st.integers(-3, 3)), min_size=1, max_size=40),
    distance_m=st.sampled_from([50, 150, 250]),
    duration_s=st.sampled_from([60, 600, 1800]),
)
def test_agrees_with_a_plain_loop(rows, distance_m, duration_s):
    table = fixes(rows)
    stays = find_stay_points(table, StayPoints(distance_m, duration_s))
    north = (stays["latitude"] - 35) / NORTH_100_M * 100
    found = sorted(zip(stays["user"], minutes(stays["arrival"]), minutes(stays["departure"]), north, strict=True))
    expected = plain_stays(table, distance_m, duration_s)
    assert [stay[0] for stay in found] == [stay[0] for stay in expected]
    np.testing.assert_allclose(
        np.array([stay[1:] for stay in found]).reshape(-1, 3),
        np.array([(a / 60, b / 60, c) for _, a, b, c in expected]).reshape(-1, 3),
        atol=1e-5,
    )


def test_long_stays_are_found_whole():
    table = fixes([(1, minute, 0) for minute in range(1000)] + [(1, 1000 + k, 10 + 3 * k) for k in range(50)])
    stays = find_stay_points(table)
    assert (minutes(stays["arrival"]), minutes(stays["departure"])) == ([0], [999])


def test_a_gap_in_the_recording_is_no_stay():
    assert not len(find_stay_points(fixes([(1, 0, 0), (1, 600, 50), (1, 601, 100)])))
    # Somebody who is found where she was has stayed, if it is not too long ago.
    assert len(find_stay_points(fixes([(1, 0, 0), (1, 720, 0), (1, 721, 100)]))) == 1
    assert len(find_stay_points(fixes([(1, 0, 0), (1, 721, 0), (1, 722, 100)]))) == 0


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_fix_makes_no_stay(n):
    stays = find_stay_points(fixes([(1, 0, 0)]).iloc[:n])
    assert (len(stays), stays.columns.tolist()) == (0, ["user", "latitude", "longitude", "arrival", "departure"])


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
    traces, report = read_checkins(table, discretization=Discretization(GRID), **how)
    # From 00:05 to 02:30 UTC: at 09, 10 and 11 h in Tokyo.
    assert traces.instant.tolist() == [9, 10, 11]
    assert report.notes == ("4 fixes became 1 stays of 1200 s within 200 m at least",)
    assert (report.n_rows, report.n_users_read, report.n_users) == (4, 2, 1)
    with pytest.raises(InputError, match="a grid, since stay points have no place ids"):
        read_checkins(table.assign(place="a"), discretization=Discretization(MostVisited(3)), **how)
    with pytest.raises(InputError, match="a stay of 9000 s within 200 m; found none in 4 fixes"):
        read_checkins(table, discretization=Discretization(GRID), **(how | {"stay_points": StayPoints(200, 9000)}))


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
    with pytest.raises(InputError, match="a positive, finite"):
        StayPoints(**values)


def test_settings_of_stays_and_cells():
    kind = DATA_SETS["geolife"].settings
    assert kind(Path("x")).stay_points() is None
    assert kind(Path("x"), stay_distance_m=100.0).stay_points() == StayPoints(100, 1200)
    assert kind(Path("x"), stay_duration_s=1800.0).stay_points() == StayPoints(200, 1800)
    settings = kind(Path("x"), grid=(39.7, 40.2, 116.1, 116.7), cell_m=500.0)
    assert settings.discretization().places == GridPlaces.of_cells(39.7, 40.2, 116.1, 116.7, 500)
    for values, message in (
        ({"stay_duration_s": 0.0}, "finite duration_s"),
        ({"cell_m": 500.0}, "found 6 values"),
        ({"cell_m": -1.0, "grid": (1, 2, 3, 4)}, "finite cell_m"),
    ):
        with pytest.raises(InputError, match=message):
            kind(Path("x"), **values)


def test_cells_are_squares_of_their_side():
    grid = GridPlaces.of_cells(39.7, 40.2, 116.1, 116.7, cell_m=500)
    table = grid.table()
    a_row_km, a_column_km = (
        np.radians([table.latitude[grid.n_columns] - table.latitude[0], table.longitude[1] - table.longitude[0]]) * 6371
    )
    assert a_row_km == pytest.approx(0.5)
    assert a_column_km * np.cos(np.radians(39.95)) == pytest.approx(0.5)
    assert grid.north >= 40.2 > grid.north - 2 * (grid.north - grid.south) / grid.n_rows


def test_four_users_of_geolife(geolife_data):
    archive = geolife_data / "geolife13_full_4users.tar.gz"
    _, report = read_geolife(archive, stay_points=StayPoints())
    assert any("304,656 fixes became" in note for note in report.notes)
    assert report.n_events > 100
