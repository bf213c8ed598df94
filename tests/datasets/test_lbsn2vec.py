"""Cities of LBSN2Vec: hours of a nominal week, friendships before and after, and venue ids in another order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import io

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.published import read_lbsn2vec, read_lbsn2vec_table
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.settings import build_settings
from tests.support import every_place

# Tables made by hand have few users.
read_lbsn2vec = partial(read_lbsn2vec, discretization=every_place())
read_lbsn2vec_table = partial(read_lbsn2vec_table, discretization=every_place())

SAMPLES = Path(__file__).parents[1] / "samples" / "lbsn2vec"
CHECKINS, FRIENDS, NAMES = (SAMPLES / f"{name}.csv" for name in ("checkins", "friendships", "category_names"))
HEADER = CHECKINS.read_text().splitlines()[0] + "\n"
ROW = "1,aa,5,40.7,-74,168,0,2012-04-08T23,1\n"
# User, hour of the week from 1, venue index, category index. Hours go back twice for user 1: three weeks.
ROWS = [(1, 167, 30, 5), (2, 167, 30, 5), (1, 168, 10, 6), (1, 1, 30, 5), (1, 1, 20, 7), (3, 24, 20, 7), (1, 1, 30, 5)]
ROWS += [(2, 1, 30, 5), (1, 168, 30, 5), (1, 25, 10, 6)]
# By how often venues 30, 20, 10 are there, as in the published files; their sorted order is that of the indices.
VENUE_IDS = ["zz", "mm", "aa"]
FRIENDSHIPS = {"old": [(1, 2)], "new": [(1, 2), (2, 3), (1, 4)]}


def city_file(folder: Path, rows=ROWS, venue_ids=VENUE_IDS, n_users=4, friendships=FRIENDSHIPS, **other) -> Path:
    ids = np.empty((len(venue_ids), 1), object)
    ids[:, 0] = venue_ids
    fields = {"selected_checkins": np.array(rows, np.int32), "selected_venue_IDs": ids}
    fields["selected_users_IDs"] = np.arange(100, 100 + n_users, dtype=np.int32)[:, None]
    fields |= {f"friendship_{name}": np.array(pairs, np.uint16) for name, pairs in friendships.items()}
    file = folder / "dataset_connected_Nowhere.mat"
    io.savemat(file, {name: value for name, value in (fields | other).items() if value is not None})
    return file


def events(traces) -> list[tuple]:
    return list(traces.to_frame().itertuples(index=False, name=None))


# A city without dates and coordinates


def test_hours_of_a_nominal_week(tmp_path):
    traces, report = read_lbsn2vec(city_file(tmp_path), time_zone="Asia/Jakarta")
    assert events(traces) == [
        (1, 0, 166, "zz"),
        (1, 0, 167, "aa"),
        (1, 1, 0, "zz"),  # of two rows of one hour the first
        (1, 1, 167, "zz"),  # after 1 comes 1 again, and 168: one week, as far as can be told
        (1, 2, 24, "aa"),
        (2, 0, 166, "zz"),
        (2, 1, 0, "zz"),
        (3, 0, 23, "mm"),
    ]
    grid = traces.time_grid
    assert (grid.start, grid.n_instants, grid.period, grid.n_slots) == ("2012-04-02T00:00:00", 7 * 24, 24, 12)
    assert grid.time_zone == "Asia/Jakarta"
    assert (report.n_rows, report.n_same_instant, report.n_users_read) == (len(ROWS), 2, 3)
    # From hour 167 to 168; from the last hour of a week to the first of the next there is a new trace.
    assert report.n_transitions == 1
    assert any("hour of the week alone" in note for note in report.notes)
    assert any("no coordinates" in note for note in report.notes)


def test_venue_ids_are_those_of_the_sorted_indices(tmp_path):
    traces, _ = read_lbsn2vec(city_file(tmp_path))
    # Most visited first: 30 is the last index, so its id is the last of the sorted ones. Read in the file's order, or
    # sorted the other way, "aa" would be first.
    assert traces.places.ids.tolist() == ["zz", "aa", "mm"]
    assert traces.places.category.tolist() == ["5", "6", "7"]
    assert np.isnan([traces.places.latitude, traces.places.longitude]).all()


def test_friendships_of_before_and_after(tmp_path):
    file = city_file(tmp_path)
    traces, report = read_lbsn2vec(file)
    assert traces.user_ids[traces.friendships].tolist() == [[1, 2], [2, 3]]
    assert report.notes[-1] == "1 of 3 friendship rows left out: a user has no event"
    assert read_lbsn2vec(file, graph="old")[0].friendships.tolist() == [[0, 1]]
    # Hour 167 and hour 1, whichever weeks they were in.
    assert len(find_colocations(traces, FriendGraph.of(traces))) == 2


def test_categories_have_names_where_there_are_some(tmp_path):
    traces, _ = read_lbsn2vec(city_file(tmp_path), category_names_file=NAMES)
    assert traces.places.category.tolist() == ["Bar", "6", "Park"]


def test_a_city_is_imported_by_its_name(tmp_path):
    data_set = DATA_SETS["lbsn2vec"]
    values = {
        "path": city_file(tmp_path),
        "graph": "old",
        "category_names": NAMES,
        "train_fraction": 0.5,
        "min_users_per_place": 1,
    }
    found = data_set.read(build_settings(data_set.settings, values, "import"), 0, False)
    assert found.sets["train"].n_users + found.sets["test"].n_users == 3
    assert "Bar" in found.sets["train"].places.category


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"rows": [(1, 0, 30, 5), (9, 169, 20, 7)]}, ["hours of the week from 1 to 168", "first: 0, 169", "users of"]),
        ({"rows": [(1, 5, 30)]}, ["selected_checkins as whole numbers in 4 columns", "shape (1, 3)"]),
        ({"selected_checkins": np.ones((2, 4))}, ["whole numbers in 4 columns; found float64"]),
        ({"venue_ids": ["zz", "mm"]}, ["an id of each venue; found 2 ids for 3 venues"]),
        ({"friendships": {"new": [(1, 9), (0, 2)]}}, ["users of friendship_new from 1 to 4", "first: 9, 0"]),
        ({"friendships": {"old": [(1, 2)]}}, ["arrays named friendship_new"]),
        ({"rows": np.zeros((0, 4)), "venue_ids": []}, ["at least one check-in"]),
    ],
)
def test_bad_cities(tmp_path, changes, messages):
    with pytest.raises(InputError) as error:
        read_lbsn2vec(city_file(tmp_path, **changes))
    assert all(message in str(error.value) for message in messages)


def test_what_is_no_city(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_lbsn2vec(tmp_path / "none.mat")
    with pytest.raises(InputError, match="MATLAB 5 file"):
        read_lbsn2vec(CHECKINS)
    with pytest.raises(InputError, match="MATLAB 5 file"):
        read_lbsn2vec(tmp_path)


def test_what_a_city_cannot_be_read_as(tmp_path):
    discretization = every_place(GridPlaces(40, 41, -75, -73, 2, 2), step_s=1800)
    with pytest.raises(InputError) as error:
        read_lbsn2vec(city_file(tmp_path), discretization=discretization)
    assert [str(problem).split(";")[0] for problem in error.value.problems] == [
        "expected a step of whole hours, as the data has",
        "expected the most visited places, for a file without coordinates",
    ]
    with pytest.raises(InputError, match="graph as 'old' or 'new'; found 'all'"):
        read_lbsn2vec(city_file(tmp_path), graph="all")


# New York with weeks and coordinates


def test_local_times_are_not_taken_for_utc():
    _, report = read_lbsn2vec_table(CHECKINS, FRIENDS)
    assert "other-zones" not in [getattr(note, "code", "") for note in report.notes]


def test_a_city_without_coordinates_can_be_measured(tmp_path):
    traces, _ = read_lbsn2vec(city_file(tmp_path))
    assert not traces.places.position_km().any()
    others = replace(traces, user_ids=10 + traces.user_ids)
    assert evaluate(traces, traces, others, EvaluationSettings(attacks=False))["tm_emd_y"] == 0


def test_weeks_make_dates():
    traces, report = read_lbsn2vec_table(CHECKINS, FRIENDS, category_names_file=NAMES)
    # Hour 168 of week 0 is the last of 8 April, and the first instant of the grid is its midnight.
    assert traces.time_grid.start == "2012-04-08T00:00:00"
    assert events(traces) == [
        (1, 0, 23, "aa"),
        (1, 0, 24, "bb"),
        (2, 0, 24, "aa"),
        (4, 0, 8 * 24 + 23, "bb"),  # 16 April
    ]
    assert (report.n_rows, report.n_same_instant, report.n_transitions) == (6, 1, 1)
    assert report.notes == (
        "1 check-ins left out: their venues have no coordinates",
        "1 check-ins kept: their week is a guess, but their hour of the week is known",
        "1 of 3 friendship rows left out: a user has no event",
    )
    assert traces.places.category.tolist() == ["Bar", "6"]
    assert traces.user_ids[traces.friendships].tolist() == [[1, 2], [2, 4]]


def test_guessed_weeks_are_left_out_on_request():
    traces, report = read_lbsn2vec_table(CHECKINS, verified_only=True)
    assert traces.user_ids.tolist() == [1, 2]
    assert traces.friendships is None
    assert "1 check-ins left out: their week is a guess, but their hour of the week is known" in report.notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + ROW.replace("168", "169"), "hour_of_week in whole numbers from 1 to 168"),
        (HEADER + ROW.replace(",0,2012", ",,2012"), "week in whole numbers from 0 to 1000"),
        (HEADER + ROW.replace("23,1", "23,yes"), "week_verified in whole numbers from 0 to 1"),
        (HEADER + ROW.replace("40.7", "140.7"), "probably swapped"),
        (HEADER + ROW.replace("40.7", ""), "at least one check-in that is kept; found none, 1 check-ins left out"),
        (HEADER.replace("week_verified", "sure") + ROW, "week_verified"),
        (HEADER, "at least one check-in"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    (tmp_path / "checkins.csv").write_text(text)
    with pytest.raises(InputError) as error:
        read_lbsn2vec_table(tmp_path / "checkins.csv")
    assert message in str(error.value)


# The data


@pytest.fixture
def lbsn2vec(data_folder) -> Path:
    return data_folder("foursquare-www2019-lbsn2vec")


def assert_city(traces: Traces, report: ImportReport, n_rows: int, n_users: int, n_pairs: int) -> None:
    """Numbers of the data set's own description."""
    assert (report.n_rows, report.n_users_read, traces.n_users) == (n_rows, n_users, n_users)
    assert traces.time_grid.n_instants == 168
    left_out = int(report.notes[-1].split(" of ")[0].replace(",", ""))
    assert n_pairs - left_out - 1 <= len(traces.friendships) <= n_pairs - left_out
    assert report.quietest_hour in range(2, 6)


@pytest.mark.slow
def test_sao_paulo(lbsn2vec):
    city = read_lbsn2vec(lbsn2vec / "dataset_connected_SaoPaulo.mat", discretization=every_place(MostVisited(10**6)))
    assert_city(*city, 249_839, 3_842, 14_402)


def test_new_york_and_its_table_are_of_the_same_check_ins(lbsn2vec):
    everywhere = every_place(MostVisited(10**6))
    city, city_report = read_lbsn2vec(lbsn2vec / "dataset_connected_NYC.mat", graph="old", discretization=everywhere)
    # One user is listed as a friend of her own.
    assert_city(city, city_report, 105_961, 3_785, 8_723 - 1)
    files = lbsn2vec / "nyc_checkins.csv.gz", lbsn2vec / "nyc_friendship_new.csv.gz"
    table, report = read_lbsn2vec_table(*files, discretization=every_place(MostVisited(100)))
    assert report.n_rows == 105_961
    # All but venues without coordinates, which are few of a hundred.
    assert len(set(table.places.ids) & set(city.places.ids[:100])) >= 98
    assert table.time_grid.start == "2012-04-03T00:00:00"
    assert report.quietest_hour in range(2, 6)
