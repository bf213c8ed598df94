"""Places of check-ins: the cells of a grid, the most visited ones, those of a table; and places that two sets share."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.checks import Findings, code_checkins
from ppmtf_jax.datasets.database import database
from ppmtf_jax.datasets.places import (
    BEYOND,
    FEW,
    OUTSIDE,
    GivenPlaces,
    GridPlaces,
    MostVisited,
    assign_places,
    keep_shared_places,
)
from ppmtf_jax.datasets.to_traces import rows_of_frame
from ppmtf_jax.errors import InputError
from tests.support import minutes, places_in_line, to_traces

BOX = GridPlaces(35.65, 35.75, 139.68, 139.80, n_rows=20, n_columns=20)


class AssignedRows(NamedTuple):
    """Places, and what became of each check-in, in the order of the rows."""

    places: PlaceTable
    place: np.ndarray
    why: np.ndarray
    moved_km: np.ndarray
    n_for_most: int | None


def assign(checkins: pd.DataFrame, *choice, needs_places: bool = True) -> AssignedRows:
    """Places of check-ins, all at one time."""
    table = checkins.assign(local_time=(time := pd.Timestamp("2024-01-01")), utc_time=time)
    with database() as connection:
        rows = rows_of_frame(connection, table, "check-ins")
        assigned = assign_places(code_checkins(rows, "UTC", "", Findings(), needs_places), *choice)
        source = "coded_places JOIN goes ON goes.code = coded_places.place"
        found = connection.sql(f"SELECT goes.place, why, moved_km FROM {source} ORDER BY row").df()
        (n_placed,) = rows.one("SELECT count(*) FROM placed")
    counts = np.bincount(found["why"][found["place"] < 0], minlength=BEYOND + 1)
    assert (counts.tolist(), n_placed) == (assigned.n_left_out.tolist(), (found["place"] >= 0).sum())
    place, why, moved_km = (found[name].to_numpy() for name in found)
    return AssignedRows(assigned.places, place, why, moved_km, assigned.n_for_most)


def cells_of(grid: GridPlaces, latitude, longitude) -> list[int]:
    """The cell that the database finds for each point."""
    points = pd.DataFrame({"latitude": latitude, "longitude": longitude}, dtype=float).reset_index()
    with database() as connection:
        connection.register("points", points)
        return [cell for (cell,) in connection.sql(f"SELECT {grid.cell()} FROM points ORDER BY index").fetchall()]


def test_cells_are_numbered_from_the_south_west_and_have_their_own_centres():
    table = BOX.table()
    assert len(table) == 20 * 20
    assert cells_of(BOX, table.latitude, table.longitude) == list(range(20 * 20))
    table = GridPlaces(10, 12, 100, 103, n_rows=2, n_columns=3).table()
    assert table.latitude.tolist() == [10.5] * 3 + [11.5] * 3
    assert table.longitude.tolist() == [100.5, 101.5, 102.5] * 2


def test_edges_belong_to_the_box_and_nothing_beyond():
    corners = cells_of(BOX, [35.65, 35.75, 35.75, 35.65], [139.68, 139.80, 139.68, 139.80])
    assert corners == [0, 20 * 20 - 1, 19 * 20, 19]
    beyond = cells_of(BOX, [35.6499, 35.7501, 35.7, 35.7, np.nan], [139.7, 139.7, 139.6799, 139.8001, 139.7])
    assert beyond == [-1] * 5


def test_impossible_grids_list_every_problem():
    with pytest.raises(InputError) as error:
        GridPlaces(41, 40, -200, 0, 1, 2)
    assert len(error.value.problems) == 2
    with pytest.raises(InputError, match="n_places as a whole number of at least 1; found 0"):
        MostVisited(0)


# The 180th meridian

FIJI = [179.98, -179.99, 179.99, -179.98, -179.97]


def test_a_place_on_the_180th_meridian_is_where_its_check_ins_are():
    checkins = pd.DataFrame({"user": 1, "place": "a", "latitude": -17.0, "longitude": FIJI})
    places = assign(checkins, MostVisited(1)).places
    # Eastward from 179.98 they are at 0, .01, .03, .04 and .05 degrees.
    assert places.longitude == pytest.approx([-179.99])
    elsewhere = assign(checkins.assign(longitude=np.array(FIJI) % 360 - 40), MostVisited(1)).places
    assert elsewhere.longitude == pytest.approx([140.01])


def test_a_grid_across_the_180th_meridian():
    grid = GridPlaces(-18, -16, 179, -179, 1, 4)
    assert cells_of(grid, [-17] * 6, [179, 179.6, 180, -180, -179.4, -179]) == [0, 1, 2, 2, 3, 3]
    assert cells_of(grid, [-17] * 3, [178.9, -178.9, 0]) == [-1, -1, -1]
    assert grid.table().longitude.tolist() == [179.25, 179.75, -179.75, -179.25]
    # 2 degrees of longitude are 2 * 111.19 km * cos(17 degrees) = 212.7 km wide.
    assert GridPlaces.of_cells(-18, -16, 179, -179, cell_m=50_000).n_columns == 5
    for west, east in ((179, 179), (10, -100), (-181, 3)):
        with pytest.raises(InputError, match="west"):
            GridPlaces(-18, -16, west, east, 1, 1)


# Places of few users


def some_checkins(n_users_of: dict[str, int]) -> pd.DataFrame:
    """Three check-ins of each user of each place, places .01 degrees of latitude apart, and one more user with none."""
    rows = [
        (user, place, 35 + 0.01 * number)
        for number, (place, n_users) in enumerate(n_users_of.items())
        for user in range(n_users)
        for _ in range(3)
    ]
    return pd.DataFrame(rows, columns=["user", "place", "latitude"]).assign(longitude=139.0)


def test_users_of_a_place_are_counted_and_not_its_check_ins():
    checkins = some_checkins({"home": 1, "bar": 5, "cafe": 4, "park": 6})
    assigned = assign(pd.concat([checkins, *[checkins[:3]] * 9]), MostVisited(10), 5)
    assert assigned.places.ids.tolist() == ["park", "bar"]
    assert ((assigned.why == FEW).sum(), (assigned.why == BEYOND).sum()) == (30 + 12, 0)
    assert (assigned.place >= 0).sum() == 3 * (5 + 6)
    one = assign(checkins, MostVisited(1), 5)
    assert (one.places.ids.tolist(), (one.why == FEW).sum(), (one.why == BEYOND).sum(), one.n_for_most) == (
        ["park"],
        15,
        15,
        2,
    )
    assert assign(checkins, MostVisited(10)).places.ids.tolist() == ["park", "bar", "cafe", "home"]


def test_check_ins_at_other_places_go_to_the_nearest_that_is_kept():
    checkins = some_checkins({"bar": 5, "home": 1, "cafe": 2, "park": 6})
    assigned = assign(checkins, MostVisited(10), 5, "nearest")
    # Home is .01 degrees north of the bar, the cafe .01 degrees south of the park: 1.112 km each.
    assert assigned.places.ids[assigned.place].tolist() == ["bar"] * 18 + ["park"] * 24
    assert assigned.moved_km.tolist() == pytest.approx([0] * 15 + [np.radians(0.01) * 6371] * 9 + [0] * 18)
    assert assigned.places.latitude == pytest.approx([35.03, 35.0])


def test_cells_of_few_users_are_in_the_table_only_if_all_are():
    checkins, box = some_checkins({"bar": 5, "home": 1}), GridPlaces(34.995, 35.025, 138, 140, 3, 1)
    assigned = assign(checkins, box, 5)
    assert (assigned.places.ids.tolist(), assigned.place.tolist()) == ([0], [0] * 15 + [-1] * 3)
    assert ((assigned.why == FEW).sum(), (assigned.why == OUTSIDE).sum()) == (3, 0)
    moved = assign(pd.concat([checkins, checkins[:1].assign(latitude=40.0)]), box, 5, "nearest")
    assert moved.place.tolist() == [0] * 18 + [-1]
    assert assign(checkins, box, 1).places.ids.tolist() == [0, 1, 2]


def test_cells_that_nobody_visits_cost_nothing():
    """Of a million cells, eight are visited: with 1 all are in the table, which may be public."""
    rows = [(user, 35 + 0.1 * cell, 139 + 0.1 * cell) for user in range(6) for cell in range(8)]
    table = pd.DataFrame(rows, columns=["user", "latitude", "longitude"]).assign(time="2024-01-01T08:00")
    table["time"] = [f"2024-01-01T{hour:02d}:00" for hour in range(8)] * 6
    grid = (35, 36, 139, 140, 1000, 1000)
    traces, report = read_checkins(table, time_zone="UTC", grid=grid)
    assert (len(traces.places), report.n_places) == (8, 8)
    every, _ = read_checkins(table, time_zone="UTC", grid=grid, min_users_per_place=1)
    assert len(every.places) == 1_000_000
    assert traces.to_frame().equals(every.to_frame())


def test_no_place_of_enough_users_is_refused():
    for choice in (MostVisited(3), GridPlaces(30, 40, 138, 140, 1, 1)):
        with pytest.raises(InputError, match=r"at least 5 users; found at most 2.*min_users_per_place; 1 keeps all"):
            assign(some_checkins({"bar": 2}), choice, 5)


# A table of places that is given


@pytest.fixture
def table_file(tmp_path) -> Path:
    """Place 12 is never visited; the column of visits is not read."""
    places = {"venue_id": [7, 3, 12], "lat": [35.6, 35.7, 35.8], "lon": 139.7, "category": ["bar", None, "zoo"]}
    pd.DataFrame(places | {"visits": 5}).to_csv(tmp_path / "places.csv", index=False)
    return tmp_path / "places.csv"


def one_each(latitude: list[float], **columns) -> pd.DataFrame:
    """A check-in of one user at each latitude."""
    return pd.DataFrame({"user": 1, "latitude": latitude, "longitude": 139.7} | columns)


def test_given_places_are_all_kept_in_their_order(table_file):
    at = assign(one_each([35.6, 35.7, 35.6], place=["3", "7", "99"]), GivenPlaces(table_file))
    assert at.places.ids.tolist() == [7, 3, 12]
    assert at.places.category.tolist() == ["bar", "", "zoo"]
    # The id counts, whatever the coordinates are.
    assert at.place.tolist() == [1, 0, -1]
    assert at.why.tolist() == [0, 0, BEYOND]


@pytest.mark.parametrize("columns", [{}, {"place": "unknown"}])
def test_other_check_ins_go_to_the_nearest_given_place_if_it_is_near(table_file, columns):
    # The given places are 0.1 degrees apart, which is the furthest that a check-in is moved.
    at = assign(
        one_each([35.61, 35.74, 35.76, 35.89, 35.91], **columns),
        GivenPlaces(table_file),
        1,
        "nearest",
        needs_places=False,
    )
    assert at.place.tolist() == [0, 1, 2, 2, -1]
    assert at.why.tolist() == [0, 0, 0, 0, BEYOND]
    # 6371 km * pi / 180 for each degree.
    np.testing.assert_allclose(at.moved_km, np.array([0.01, 0.04, 0.04, 0.09, 0]) * 6371 * np.pi / 180, rtol=1e-6)


def test_a_user_does_not_change_where_others_are_on_given_places(table_file):
    alone = one_each([35.61, 35.69], place=["a", "b"])
    others = alone.assign(user=2, latitude=[35.79, 35.6])
    options = (GivenPlaces(table_file), 5, "nearest")
    both = assign(pd.concat([alone, others], ignore_index=True), *options)
    np.testing.assert_array_equal(assign(alone, *options).place, both.place[:2])
    # The middle of the check-ins at "a" does depend on everybody.
    most = assign(pd.concat([alone, others], ignore_index=True), MostVisited(2)).places
    assert most.latitude.tolist() != assign(alone, MostVisited(2)).places.latitude.tolist()


def test_what_is_wrong_with_given_places(table_file):
    with pytest.raises(InputError, match=r"check-ins at the places of the table; found none, first: 'x'\. Or move"):
        assign(one_each([35.6], place="x"), GivenPlaces(table_file))
    with pytest.raises(InputError, match=r"nowhere\.csv: expected a file to read"):
        GivenPlaces(Path("nowhere.csv")).table()
    table = pd.read_csv(table_file)
    pd.concat([table, table.assign(lat=np.nan)]).to_csv(table_file, index=False)
    with pytest.raises(InputError, match=r"places\.csv: 2 problems") as error:
        GivenPlaces(table_file).table()
    assert "every place once" in str(error.value)


@pytest.mark.parametrize("grid", [True, False])
def test_the_traces_of_a_user_do_not_depend_on_others_if_the_places_are_public(table_file, grid):
    """Nor do cells or places without visitors go."""
    hours = [f"2024-01-01T{hour:02d}:00Z" for hour in (8, 9)]
    alone = pd.DataFrame(
        {"user": "a", "time": hours, "latitude": [35.61, 35.7], "longitude": 139.7, "place": ["7", "3"]}
    )
    both = pd.concat([alone, alone.assign(user="b", place="3", latitude=35.7)])
    options = {"grid": (35, 36, 139, 140, 4, 4), "min_users_per_place": 1} if grid else {"place_table": table_file}
    one, two = (read_checkins(each, time_zone="UTC", **options)[0] for each in (alone, both))
    assert len(one.places) == len(two.places) == (16 if grid else 3)
    assert one.to_frame().equals(two.select_users(np.array([0])).to_frame())
    train, _ = keep_shared_places(one, two, min_users=1)
    assert train is one


def traces(*visitors: range, first_user: int = 0) -> Traces:
    """Users, given by range, who visit each place once; instants are those of the places."""
    rows = [(first_user + user, 0, at, at) for at, users in enumerate(visitors) for user in users]
    return to_traces(rows, places_in_line(len(visitors)), minutes(10))


TRAIN = traces(range(5), range(1, 5), range(7), range(0))
TEST = traces(range(1), range(6), range(2), range(9), first_user=100)


def test_users_are_counted():
    rows = [(1, 0, 0, 2), (1, 0, 5, 2), (2, 0, 0, 2), (2, 1, 1, 0)]
    assert to_traces(rows, places_in_line(4), minutes(10)).users_per_place().tolist() == [1, 0, 2, 0]


def test_training_users_alone_decide():
    train, test = keep_shared_places(TRAIN, TEST, min_users=5)
    # Places 1 and 3 have 4 and 0 of the training users, and 6 and 9 of the others.
    assert train.places.ids.tolist() == test.places.ids.tolist() == [0, 2]
    assert train.users_per_place().tolist() == [5, 7]
    assert test.users_per_place().tolist() == [1, 2]
    # Whoever was nowhere else is not there any more.
    assert test.user_ids.tolist() == [100, 101]
    assert train.instant.tolist() == [at for user in range(5) for at in (0, 2)] + [2, 2]


def test_events_are_moved_where_that_is_asked_for():
    train, test = keep_shared_places(TRAIN, TEST, min_users=5, other_places="nearest")
    assert (train.n_events, test.n_events) == (TRAIN.n_events, TEST.n_events)
    # Place 1 is as far from 0 as from 2; 3 is next to 2.
    at_3 = test.place[test.instant == 3]
    assert train.places.ids.tolist() == [0, 2]
    assert set(at_3.tolist()) == {1}
    assert train.instant.tolist() == TRAIN.instant.tolist()


def test_one_switches_it_off_and_too_many_are_refused():
    assert keep_shared_places(TRAIN, TEST, min_users=1) == (TRAIN, TEST)
    with pytest.raises(InputError, match="a place of at least 8 users; found at most 7"):
        keep_shared_places(TRAIN, TEST, min_users=8)
    with pytest.raises(InputError, match="at least one event to keep"):
        keep_shared_places(TRAIN, traces(range(0), range(1), range(0), range(0)), min_users=5)
    assert np.array_equal(keep_shared_places(TRAIN, min_users=4)[0].users_per_place(), [5, 4, 7])
