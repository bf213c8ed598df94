"""To the tables of GeoPandas, trackintel and MovingPandas and back to traces; and where a library is missing."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.exports import to_geodataframe
from ppmtf_jax.exports.layers import population_layer, trace_layer
from ppmtf_jax.exports.libraries import (
    from_movingpandas,
    from_trackintel,
    load_library,
    to_movingpandas,
    to_trackintel,
)
from tests.exports.examples import GRID, PLACES, ROWS, by_hand, events
from tests.support import every_place, to_traces

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())
geopandas = pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
pytest.importorskip("shapely", reason="needs MovingPandas (extra interop)")
ANY_PLACE = every_place(MostVisited(1000))


def test_points_are_where_places_are():
    layer = trace_layer(by_hand())
    table = to_geodataframe(layer)
    assert table.crs.to_epsg() == 4326
    assert table.geometry.x.tolist() == [PLACES.longitude[place] for *_, place in ROWS]
    assert table.attrs["about"] == layer.about
    assert "geometry" not in layer.rows
    assert len(to_geodataframe(population_layer({"real": by_hand()}))) == 6


@pytest.mark.parametrize(
    ("library", "convert"),
    [("geopandas", lambda: to_geodataframe(trace_layer(by_hand()))), ("trackintel", lambda: to_trackintel(by_hand())),
     ("movingpandas", lambda: to_movingpandas(by_hand().select_traces(np.array([True, False, True]))))],
)  # fmt: skip
def test_a_missing_library_is_told_with_the_way_to_get_it(monkeypatch, library, convert):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{library}: .*pip install 'ppmtf_jax\[interop\]'"):
        convert()


# trackintel


@pytest.fixture(scope="module")
def trackintel():
    """It is not imported when tests are collected, since every worker would wait 2 s for it."""
    return pytest.importorskip("trackintel", reason="needs trackintel (extra interop)")


def hour(h: int) -> pd.Timestamp:
    return pd.Timestamp("2024-01-01", tz="Pacific/Fiji") + pd.Timedelta(hours=h)


def staypoints(rows: list[tuple], **more: object) -> object:
    """A table of (user, first hour, last hour, longitude) of trackintel."""
    import trackintel  # not when tests are collected, because every worker would wait 2 s for it

    user, begin, end, x = zip(*rows, strict=True)
    table = {"user_id": user, "started_at": [hour(h) for h in begin], "finished_at": [hour(h) for h in end], **more}
    return trackintel.Staypoints(
        geopandas.GeoDataFrame(table, geometry=geopandas.points_from_xy(x, [1.0] * len(x)), crs=4326)
    )


def test_a_run_of_events_at_a_place_is_a_staypoint(trackintel):
    traces = by_hand().select_traces(np.array([True, False, True]))
    made = to_trackintel(traces)
    trackintel.Staypoints.validate(made)
    assert made["user_id"].tolist() == [1, 1, 7, 7, 7]
    assert made["location_id"].tolist() == ["a", "b", "c", "d", "c"]
    assert made["started_at"].tolist() == [hour(h) for h in (22, 25, 22, 23, 24)]
    assert made["finished_at"].tolist() == [hour(h) for h in (24, 26, 23, 24, 25)]
    assert made.geometry.x.tolist() == [179, 179.5, 179.5, -179.5, 179.5]
    assert made.crs.to_epsg() == 4326


def test_nobody_is_at_two_places_at_once(trackintel):
    made = to_trackintel(by_hand())
    assert made["user_id"].unique().tolist() == ["1 trace 0", "1 trace 2", "7 trace 0"]
    assert made["user"].unique().tolist() == [1, 7]
    # Traces that follow each other are of one user.
    one_after_the_other = to_traces([(1, 0, 0, 0), (1, 1, 1, 1)], PLACES, GRID)
    assert to_trackintel(one_after_the_other)["user_id"].tolist() == [1, 1]


def test_there_and_back_over_summer_time(trackintel):
    """At the change to winter time an hour comes twice: the first is meant, and the grid has room for one alone."""
    grid = TimeGrid.each_instant("2024-11-03T00:00:00", 3600, 24, "America/New_York")
    new_york = PlaceTable(np.arange(2), np.array([40.7, 40.8]), np.array([-74.0, -73.9]))
    traces = to_traces([(1, 0, i, i % 2) for i in range(24)], new_york, grid)
    checkins = from_trackintel(to_trackintel(traces))
    back, _ = read_checkins(checkins, time_zone="America/New_York", discretization=ANY_PLACE)
    assert events(back) == events(traces)


def test_staypoints_of_others_become_a_check_in_a_step(trackintel):
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


def test_position_fixes_are_check_ins(trackintel):
    points = geopandas.points_from_xy([5.0, 6], [1.0, 2])
    fixes = geopandas.GeoDataFrame({"user_id": [3, 3], "tracked_at": [hour(2), hour(1)]}, geometry=points, crs=4326)
    checkins = from_trackintel(trackintel.Positionfixes(fixes))
    assert checkins.to_dict("list") == {
        "user": [3, 3], "time": [hour(1), hour(2)], "latitude": [2, 1], "longitude": [6, 5],
    }  # fmt: skip
    other = trackintel.Positionfixes(fixes.to_crs(3857))
    np.testing.assert_allclose(from_trackintel(other)["longitude"], [6, 5])


def test_odd_tables_are_refused(trackintel):
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


# MovingPandas


@pytest.fixture(scope="module")
def movingpandas():
    try:
        return load_library("movingpandas")
    except InputError:
        pytest.skip("needs MovingPandas (extra interop)")


def long_traces() -> Traces:
    return by_hand().select_traces(np.array([True, False, True]))


def test_a_trace_is_a_trajectory(movingpandas):
    made = to_movingpandas(long_traces())
    assert isinstance(made, movingpandas.TrajectoryCollection)
    assert [(each.id, each.obj_id, each.size()) for each in made.trajectories] == [(0, 1, 3), (1, 7, 3)]
    first = made.trajectories[0].df
    # By the clocks of the grid's zone.
    assert first.index.tolist() == [pd.Timestamp("2024-01-01") + pd.Timedelta(hours=h) for h in (22, 23, 25)]
    assert first["place"].tolist() == ["a", "a", "b"]
    # From 179.5 to -179.5 degrees and back at 17 degrees south; a globe is within 0.6 percent of the ellipsoid.
    there_km = np.radians(1) * 6371 * np.cos(np.radians(17))
    assert made.trajectories[1].get_length(units="km") == pytest.approx(2 * there_km, 6e-3)


def test_traces_of_one_event_are_refused_with_a_way_out(movingpandas):
    traces = by_hand()
    with pytest.raises(InputError, match=r"in each trace; found 1 of one event, first: trace 2 of 1\.") as error:
        to_movingpandas(traces)
    mask = str(error.value).partition("select_traces(")[2].removesuffix(")")
    assert len(to_movingpandas(traces.select_traces(eval(mask)))) == 2


# Made without our help.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_trajectories_of_others(movingpandas):
    times = pd.to_datetime(["2024-01-01T08:00", "2024-01-01T09:30"])
    points = geopandas.points_from_xy([5.0, 6.0], [1.0, 1.0], crs=4326).to_crs(3857)
    one = movingpandas.Trajectory(geopandas.GeoDataFrame(geometry=points, index=times), "bus 7")
    checkins = from_movingpandas(one)
    assert checkins["user"].tolist() == checkins["trace"].tolist() == ["bus 7"] * 2
    np.testing.assert_allclose(checkins["longitude"], [5, 6])
    grid = every_place(GridPlaces(0, 2, 4, 7, 2, 3))
    traces, _ = read_checkins(checkins, time_zone="Europe/Vienna", discretization=grid)
    assert (traces.instant.tolist(), traces.user_ids.tolist()) == ([8, 9], ["bus 7"])
    with pytest.raises(InputError, match="at least one trajectory; found none"):
        from_movingpandas(movingpandas.TrajectoryCollection([]))


@pytest.mark.parametrize("library", ["trackintel", "movingpandas"])
@pytest.mark.parametrize("traces_of", ["hand", "city"])
def test_there_and_back(request, library, traces_of):
    request.getfixturevalue(library)
    # MovingPandas takes no trace of one event.
    known = {"trackintel": by_hand, "movingpandas": long_traces}[library]
    traces = known() if traces_of == "hand" else toy_city(n_users=10, n_days=2, seed=0).traces
    if library == "trackintel":
        checkins = from_trackintel(to_trackintel(traces))
    else:
        checkins = from_movingpandas(to_movingpandas(traces))
    again, _ = read_checkins(checkins, time_zone=traces.time_grid.time_zone, discretization=ANY_PLACE)
    assert events(again) == events(traces)
    # Traces stay apart, in their order.
    assert np.bincount(again.trace_of_event()).tolist() == np.bincount(traces.trace_of_event()).tolist()
