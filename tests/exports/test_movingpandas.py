"""To trajectories of MovingPandas and back to traces."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.exports.geodataframe import load_library
from ppmtf_jax.exports.movingpandas import from_movingpandas, to_movingpandas
from tests.exports.examples import by_hand, events
from tests.support import every_place

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())

geopandas = pytest.importorskip("geopandas", reason="needs GeoPandas (extra interop)")
pytest.importorskip("shapely", reason="needs MovingPandas (extra interop)")


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


@pytest.mark.parametrize("traces_of", ["hand", "city"])
def test_there_and_back(movingpandas, traces_of):
    traces = long_traces() if traces_of == "hand" else toy_city(n_users=10, n_days=2, seed=0).traces
    checkins = from_movingpandas(to_movingpandas(traces))
    any_place = every_place(MostVisited(1000))
    back, _ = read_checkins(checkins, time_zone=traces.time_grid.time_zone, discretization=any_place)
    assert events(back) == events(traces)
    assert back.trace_of_event().tolist() == traces.trace_of_event().tolist()


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
