"""To staypoints of trackintel and back to traces."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.exports.trackintel import from_trackintel, to_trackintel
from tests.exports.examples import GRID, PLACES, by_hand, events
from tests.support import every_place, to_traces

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())

geopandas = pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
ANY_PLACE = every_place(MostVisited(1000))


@pytest.fixture(scope="module", autouse=True)
def _needs_trackintel() -> None:
    """It is not imported when tests are collected, since every worker would wait 2 s for it."""
    pytest.importorskip("trackintel", reason="needs trackintel (extra interop)")


def hour(h: int) -> pd.Timestamp:
    return pd.Timestamp("2024-01-01", tz="Pacific/Fiji") + pd.Timedelta(hours=h)


def staypoints(rows: list[tuple], **more: object) -> object:
    """A table of (user, first hour, last hour, longitude) of trackintel."""
    import trackintel

    user, begin, end, x = zip(*rows, strict=True)
    table = {"user_id": user, "started_at": [hour(h) for h in begin], "finished_at": [hour(h) for h in end], **more}
    return trackintel.Staypoints(
        geopandas.GeoDataFrame(table, geometry=geopandas.points_from_xy(x, [1.0] * len(x)), crs=4326)
    )


def test_a_run_of_events_at_a_place_is_a_staypoint():
    import trackintel

    traces = by_hand().select_traces(np.array([True, False, True]))
    made = to_trackintel(traces)
    trackintel.Staypoints.validate(made)
    assert made["user_id"].tolist() == [1, 1, 7, 7, 7]
    assert made["location_id"].tolist() == ["a", "b", "c", "d", "c"]
    assert made["started_at"].tolist() == [hour(h) for h in (22, 25, 22, 23, 24)]
    assert made["finished_at"].tolist() == [hour(h) for h in (24, 26, 23, 24, 25)]
    assert made.geometry.x.tolist() == [179, 179.5, 179.5, -179.5, 179.5]
    assert made.crs.to_epsg() == 4326


def test_nobody_is_at_two_places_at_once():
    made = to_trackintel(by_hand())
    assert made["user_id"].unique().tolist() == ["1 trace 0", "1 trace 2", "7 trace 0"]
    assert made["user"].unique().tolist() == [1, 7]
    # Traces that follow each other are of one user.
    one_after_the_other = to_traces([(1, 0, 0, 0), (1, 1, 1, 1)], PLACES, GRID)
    assert to_trackintel(one_after_the_other)["user_id"].tolist() == [1, 1]


@pytest.mark.parametrize("traces_of", ["hand", "city"])
def test_there_and_back(traces_of):
    traces = by_hand() if traces_of == "hand" else toy_city(n_users=10, n_days=2, seed=0).traces
    zone = traces.time_grid.time_zone
    back, _ = read_checkins(from_trackintel(to_trackintel(traces)), time_zone=zone, discretization=ANY_PLACE)
    assert events(back) == events(traces)
    # Traces stay apart, in their order.
    count = np.bincount(traces.trace_of_event())
    assert np.bincount(back.trace_of_event()).tolist() == count.tolist()


def test_there_and_back_over_summer_time():
    """At the change to winter time an hour comes twice: the first is meant, and the grid has room for one alone."""
    grid = TimeGrid.each_instant("2024-11-03T00:00:00", 3600, 24, "America/New_York")
    new_york = PlaceTable(np.arange(2), np.array([40.7, 40.8]), np.array([-74.0, -73.9]))
    traces = to_traces([(1, 0, i, i % 2) for i in range(24)], new_york, grid)
    checkins = from_trackintel(to_trackintel(traces))
    back, _ = read_checkins(checkins, time_zone="America/New_York", discretization=ANY_PLACE)
    assert events(back) == events(traces)


def test_staypoints_of_others_become_a_check_in_a_step():
    table = staypoints([("ann", 8, 10.5, 5.0), ("ann", 11, 11, 6.0), ("bob", 9, 10, 5.0)])
    checkins = from_trackintel(table)
    assert checkins["user"].tolist() == ["ann"] * 4 + ["bob"]
    assert checkins["time"].tolist() == [hour(h) for h in (8, 9, 10, 11, 9)]
    assert checkins["longitude"].tolist() == [5, 5, 5, 6, 5]
    assert list(checkins) == ["user", "time", "latitude", "longitude"]
    assert len(from_trackintel(table, step_s=1800)) == 5 + 1 + 2
    grid = every_place(GridPlaces(0, 2, 4, 7, 2, 3))
    traces, _ = read_checkins(checkins, time_zone="Pacific/Fiji", discretization=grid)
    assert traces.instant.tolist() == [8, 9, 10, 11, 9]


def test_a_staypoint_has_every_instant_that_it_covers():
    # From 8:50 to 9:40, and to 10:00, when an instant begins that is not covered any more.
    table = staypoints([("ann", 8 + 50 / 60, 9 + 40 / 60, 5.0), ("bob", 8 + 50 / 60, 10, 5.0)])
    expected = [8 + 50 / 60, 9]
    assert from_trackintel(table)["time"].tolist() == [hour(each) for each in 2 * expected]


def test_position_fixes_are_check_ins():
    import trackintel

    points = geopandas.points_from_xy([5.0, 6], [1.0, 2])
    fixes = geopandas.GeoDataFrame({"user_id": [3, 3], "tracked_at": [hour(2), hour(1)]}, geometry=points, crs=4326)
    checkins = from_trackintel(trackintel.Positionfixes(fixes))
    assert checkins.to_dict("list") == {
        "user": [3, 3], "time": [hour(1), hour(2)], "latitude": [2, 1], "longitude": [6, 5],
    }  # fmt: skip
    other = trackintel.Positionfixes(fixes.to_crs(3857))
    np.testing.assert_allclose(from_trackintel(other)["longitude"], [6, 5])


def test_places_of_trackintel_become_places():
    table = staypoints([("ann", 8, 9, 5.0), ("ann", 9, 10, 5.001)], location_id=[4, 4])
    traces, _ = read_checkins(from_trackintel(table), time_zone="Pacific/Fiji", discretization=ANY_PLACE)
    assert traces.places.ids.tolist() == [4]


def test_odd_tables_are_refused():
    table = staypoints([("ann", 8, 9, 5.0)])
    for odd, message in (
        (table.drop(columns="user_id"), "Missing: user_id"),
        (table.drop(columns="started_at"), "Missing: tracked_at"),
        (table.assign(finished_at=hour(7)), r"finish after they start; found others \(1 row\)"),
        (
            table.assign(finished_at=pd.DatetimeIndex([pd.NaT], tz="Pacific/Fiji")),
            r"finish after they start; found others \(1 row\)",
        ),
        (table.set_geometry(table.envelope.boundary), r"a point in every row; found others \(1 row\)"),
    ):
        with pytest.raises(InputError, match=message):
            from_trackintel(odd)
    with pytest.raises(InputError, match="a positive step_s; found 0"):
        from_trackintel(table, step_s=0)
