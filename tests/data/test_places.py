"""The table of places: what is accepted, what is refused and how."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from tests.support import minutes, to_traces


def places(ids, **columns) -> PlaceTable:
    n = len(ids)
    return PlaceTable.from_frame(
        pd.DataFrame({"place": ids, "latitude": np.arange(n) + 35.0, "longitude": np.arange(n) + 139.0, **columns})
    )


def problems_of(frame: pd.DataFrame) -> list[str]:
    with pytest.raises(InputError) as error:
        PlaceTable.from_frame(frame)
    return [str(problem) for problem in error.value.problems]


def test_places_keep_their_order_and_ids():
    found = places(["z", "y", "x"], category=["bar", None, "gym"])
    assert found.ids.tolist() == ["z", "y", "x"]
    assert found.category.tolist() == ["bar", "", "gym"]
    assert found.index_of(["x", "nowhere", "z"]).tolist() == [2, -1, 0]
    assert found.bounding_box() == (35.0, 37.0, 139.0, 141.0)


def test_every_problem_of_a_place_table_at_once():
    frame = pd.DataFrame({"place": ["a", "a", None], "latitude": [139.7, "x", 3], "longitude": [35.6, 200, 3]})
    assert problems_of(frame) == [
        "expected latitude as a number; found others (1 row), first: row 1.",
        "expected latitude from -90 to 90 degrees; found others (1 row), first: row 0. "
        "Latitude and longitude are probably swapped",
        "expected longitude from -180 to 180 degrees; found others (1 row), first: row 1.",
        "expected every place once; found repeated place ids (1 row), first: a.",
        "expected an id for every place; found missing ids (1 row).",
    ]
    assert problems_of(frame.rename(columns={"latitude": "lat"})) == [
        "expected columns place, latitude, longitude; found columns place, lat, longitude. Missing: latitude"
    ]
    assert problems_of(frame.iloc[:0]) == ["expected at least one place; found an empty table."]


def test_positions_are_kilometres_north_and_east_of_the_middle():
    degree_km = 6371 * np.pi / 180
    found = places([0, 1], latitude=[59.0, 61.0], longitude=[10.0, 12.0]).position_km()
    # One degree from the middle, where a parallel has half the length of the equator.
    assert found == pytest.approx(degree_km * np.array([[-1, -0.5], [1, 0.5]]))


def test_a_region_may_lie_across_the_180th_meridian():
    here, there = (places([0, 1], longitude=longitude) for longitude in ([179.0, -179.0], [10.0, 12.0]))
    assert here.position_km() == pytest.approx(there.position_km())
    assert here.grid_cell(3).tolist() == there.grid_cell(3).tolist() == [0, 8]


def test_a_box_across_the_180th_meridian_is_as_wide_as_its_region():
    found = places([0, 1, 2], latitude=[-17.0, -16, -18], longitude=[179.5, -179.5, -179.0])
    assert found.bounding_box() == (-18.0, -16.0, 179.5, 181.0)
    assert found.unbroken_longitude().tolist() == [179.5, 180.5, 181.0]
    assert found.summary() == "3, latitude -18.00 to -16.00, longitude 179.50 to -179.00"
    # Around the world, and across the other meridian, they are what they were.
    for longitude in ([-150.0, 10.0, 170.0], [-0.5, 0.5, 1.0]):
        assert places([0, 1, 2], longitude=longitude).unbroken_longitude().tolist() == longitude


def test_a_region_west_of_greenwich_is_told_in_its_own_longitudes():
    """Modulo 360, rounding makes this region a little narrower."""
    longitude = [-74.299, -73.7]
    assert np.ptp(np.array(longitude) % 360) < np.ptp(longitude)
    found = places([0, 1], latitude=[40.6, 40.9], longitude=longitude)
    assert found.summary() == "2, latitude 40.60 to 40.90, longitude -74.30 to -73.70"
    assert found.bounding_box()[2:] == (-74.299, -73.7)


@pytest.mark.parametrize(("latitude", "longitude"), [([np.nan, 1], [3.0, 4]), ([np.nan] * 2, [np.nan] * 2)])
def test_what_can_be_saved_can_be_loaded(tmp_path, latitude, longitude):
    table = PlaceTable(np.arange(2), np.array(latitude), np.array(longitude))
    traces = to_traces([(0, 0, 0, 0), (0, 0, 1, 1)], table, minutes(2))
    traces.save(tmp_path / "set")
    loaded = Traces.load(tmp_path / "set").places
    assert np.array_equal(loaded.latitude, latitude, equal_nan=True)
    assert np.array_equal(loaded.longitude, longitude, equal_nan=True)


def test_what_could_not_be_loaded_is_no_table():
    for latitude, longitude in ((np.inf, 1), (91, 1), (1, -181), (1, np.inf)):
        with pytest.raises(InputError, match="places: expected l"):
            PlaceTable(np.arange(1), np.array([float(latitude)]), np.array([float(longitude)]))


def test_a_place_without_coordinates_leaves_the_others_where_they_are():
    table = PlaceTable(np.arange(3), np.array([35.0, np.nan, 36]), np.array([139.0, 139.5, 140]))
    known = PlaceTable(np.arange(2), table.latitude[[0, 2]], table.longitude[[0, 2]])
    assert table.bounding_box()[:2] == (35.0, 36.0)
    assert np.isnan(table.position_km()[1]).any()
    assert table.position_km()[[0, 2], 0] == pytest.approx(known.position_km()[:, 0])


def test_cells_of_a_grid_begin_in_the_south_west():
    found = places(range(5), latitude=[0.0, 0.0, 0.05, 0.1, 0.099], longitude=[0.0, 0.1, 0.05, 0.1, 0.0])
    assert found.grid_cell(4).tolist() == [0, 3, 2 * 4 + 2, 15, 12]
    assert found.grid_cell(1).tolist() == [0] * 5


@pytest.mark.parametrize("latitude", [[35.0] * 3, [35.0, 35.1, 35.2]])
def test_places_at_one_point_or_on_a_line_have_cells(latitude):
    found = places(range(3), latitude=latitude, longitude=[139.0] * 3)
    assert found.grid_cell(3).tolist() == ([0, 0, 0] if latitude[0] == latitude[2] else [0, 3, 6])
    assert found.position_km()[:, 1] == pytest.approx(0)
