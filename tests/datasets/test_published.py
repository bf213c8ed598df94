"""Published check-ins: TSMC2014 (UTC and an offset), SNAP (UTC, friends twice), LBSN2Vec (hours of a nominal week)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import io

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets import published
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from tests.support import every_place

# Tables made by hand have few users.
read_foursquare, read_gowalla, read_lbsn2vec = (
    partial(read, discretization=every_place())
    for read in (
        published.read_foursquare,
        published.read_gowalla,
        published.read_lbsn2vec,
    )
)
SAMPLES = Path(__file__).parents[1] / "samples"
NEW_YORK = {"time_zone": "America/New_York"}


def events(traces: Traces) -> list[tuple]:
    return list(traces.to_frame().itertuples(index=False, name=None))


def refusal(read: Callable[..., Any], *files: object, **options: Any) -> str:
    with pytest.raises(InputError) as error:
        read(*files, **options)
    return str(error.value)


# TSMC2014

NYC = SAMPLES / "foursquare" / "dataset_TSMC2014_NYC.txt"
TSMC = "1\tv1\tc\tBar\t40.7\t-74.0\t-300\tTue Jan 03 18:00:00 +0000 2012\n"


def test_foursquare_by_hand(tmp_path):
    # The folder has a readme too, which is no data.
    traces, report = read_foursquare(NYC.parent)
    assert events(traces) == [(7, 0, 8, "v1"), (7, 0, 9, "v2"), (12, 0, 23, "v1"), (12, 0, 24, "v3")]
    assert traces.places.ids.tolist() == ["v1", "v2", "v3"]
    assert traces.places.category.tolist() == ["Café", 'Bar "Bob\'s"', "Park"]
    assert traces.places.latitude.tolist() == [40.70, 40.75, 40.80]
    assert (traces.time_grid.start, traces.time_grid.time_zone) == ("2012-04-03T00:00:00", "America/New_York")
    assert (report.n_rows, report.n_same_instant, report.n_events, report.n_transitions) == (5, 1, 4, 2)
    (tmp_path / NYC.name).write_text(NYC.read_text("latin-1"), encoding="utf-8")
    assert read_foursquare(tmp_path)[0].digest == traces.digest


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (TSMC.replace("-300", "540"), ["found offsets of 540 minutes (1 row). Name the city's zone"]),
        (
            TSMC + TSMC.replace("-300", "x").replace("Tue Jan", "Die Jan").replace("40.7", "-740"),
            [
                "offsets from UTC in minutes",
                "'Die Jan 03 18:00:00 +0000 2012' (row 2)",
                "90 degrees; found others (1 row)",
            ],
        ),
        ("userId\tvenueId\ta\tb\tlat\tlon\toffset\ttime\n" + TSMC, ["'time' (row 1)", "'lat' (row 1)"]),
        (TSMC.replace("-300\t", ""), ["at least 8 columns; found 7"]),
        (TSMC + "1\tv1\n", ["8 fields in every row", "2 (row 2)"]),
        (TSMC.replace("1\tv1", "\t"), ["bad rows to be a few; found 1 of 1, 1 without a user"]),
    ],
)
def test_bad_files_of_foursquare(tmp_path, text, messages):
    (tmp_path / NYC.name).write_text(text)
    found = refusal(read_foursquare, tmp_path / NYC.name)
    assert all(message in found for message in messages)


def test_tokyo_and_folders_without_one_file(tmp_path):
    assert "found none" in refusal(read_foursquare, tmp_path)
    (tmp_path / "dataset_TSMC2014_TKY.txt").write_text(TSMC.replace("-300", "540"))
    # 18:00 UTC is 03:00 of the next day.
    assert read_foursquare(tmp_path, time_zone="Asia/Tokyo")[0].instant.tolist() == [3]
    shutil.copy(NYC, tmp_path)
    assert "NYC.txt, dataset_TSMC2014_TKY.txt. Name the file itself" in refusal(read_foursquare, tmp_path)


def test_foursquare_of_new_york(foursquare_nyc):
    traces, report = read_foursquare(foursquare_nyc)
    # Counted with the standard library: rows at the 1,000 venues, local hours with a check-in, and pairs of them.
    assert (report.n_rows, report.n_users_read) == (147_938, 1_083)
    assert (report.n_other_places, report.n_same_instant) == (147_938 - 73_620, 73_620 - 61_681)
    assert (report.n_events, report.n_transitions, report.n_users) == (61_681, 5_587, 1_078)
    assert (report.first_time, report.last_time) == ("2012-04-03T14:00:00", "2013-02-15T21:27:00")
    assert traces.places.ids[0] == "42911d00f964a520f5231fe3"  # Penn Station, 1,147 check-ins
    # 3 April 2012 to 15 February 2013: 319 days
    assert (traces.n_places, traces.time_grid.n_slots, traces.time_grid.n_instants) == (1000, 12, 319 * 24)
    assert report.quietest_hour in range(2, 6)
    assert "Café" in traces.places.category


# SNAP

SNAP_CHECKINS, SNAP_EDGES = (SAMPLES / "gowalla" / f"loc-gowalla_{name}.txt" for name in ("totalCheckins", "edges"))
SNAP = "0\t2010-10-12T00:21:28Z\t40.64\t-73.78\t23261\n"


def test_gowalla_by_hand_over_both_changes_of_summer_time():
    two, one = (every_place(MostVisited(n)) for n in (2, 1))
    traces, report = read_gowalla(SNAP_CHECKINS, SNAP_EDGES, **NEW_YORK, discretization=two)
    # 7 November is 17 + 30 + 31 + 30 + 31 + 31 + 30 + 31 + 7 = 238 days after 14 March.
    november = 238 * 24
    assert events(traces) == [
        (0, 0, 1, 200),
        (0, 0, 3, 100),  # 40 minutes later, but 2 o'clock did not exist
        (3, 0, november, 100),
        (3, 0, november + 1, 200),  # the first of the two hours that are called 1 o'clock
    ]
    assert (traces.places.ids.tolist(), traces.friendships.tolist()) == ([100, 200], [[0, 1]])
    assert (report.n_rows, report.n_duplicates, report.n_other_places, report.n_same_instant) == (7, 1, 1, 1)
    assert (report.n_events, report.n_transitions, report.n_users) == (7 - 3, 1, 2)
    assert report.notes == ("3 of 5 friendship rows left out: a user has no event",)
    # Repeated rows are no visits: place 200 has three rows, two of which are the same; 100 has three different ones.
    traces, _ = read_gowalla(SNAP_CHECKINS, **NEW_YORK, discretization=one)
    assert (traces.places.ids.tolist(), traces.friendships) == ([100], None)


@pytest.mark.parametrize(
    ("checkins", "edges", "messages"),
    [
        (SNAP, "uid\tfid\n0\t1\n", ["'user' of edges.txt", "'uid' (row 1). Remove a header line", "column 'friend'"]),
        ("user\ttime\tlat\tlon\tid\n" + SNAP, None, ["column 'user' of checkins.txt", "first: 'time' (row 1)"]),
        (SNAP.replace("40.64", "140.64"), "0\n", ["at least 2 columns; found 1"]),
        (SNAP.replace("40.64", "140.64"), "0\t1\n", ["probably swapped"]),
        (SNAP, "", ["found an empty file"]),
        (SNAP + "1\t2\n", "0\t1\n2\n", ["5 fields in every row of checkins.txt", "2 fields in every row of edges.txt"]),
    ],
)
def test_bad_files_of_gowalla(tmp_path, checkins, edges, messages):
    (tmp_path / "checkins.txt").write_text(checkins)
    files = [tmp_path / "checkins.txt"]
    if edges is not None:
        files.append(tmp_path / "edges.txt")
        files[1].write_text(edges)
    found = refusal(read_gowalla, *files, **NEW_YORK)
    assert all(message in found for message in messages)


def test_gowalla_of_new_york(gowalla_nyc):
    files = [gowalla_nyc / f"loc-gowalla_{name}_NYC.txt.gz" for name in ("totalCheckins", "edges")]
    traces, report = read_gowalla(*files, **NEW_YORK)
    # Counted with the standard library.
    assert (report.n_rows, report.n_duplicates, report.n_users_read) == (138_957, 6, 7_115)
    assert (report.n_other_places, report.n_same_instant) == (138_951 - 57_246, 57_246 - 44_613)
    assert (report.n_events, report.n_transitions, report.n_users) == (44_613, 4_644, 5_969)
    assert (traces.places.ids[:3].tolist(), len(traces.friendships)) == ([12505, 23261, 11844], 12_180)
    assert report.notes == ("5,682 of 30,042 friendship rows left out: a user has no event",)
    assert (report.first_time, report.last_time) == ("2009-04-23T18:37:00", "2010-10-22T14:57:31")


# LBSN2Vec

NAMES = SAMPLES / "lbsn2vec" / "category_names.csv"
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


def test_a_city_by_hand(tmp_path):
    file = city_file(tmp_path)
    traces, report = read_lbsn2vec(file, time_zone="Asia/Jakarta")
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
    assert (grid.start, grid.n_instants, grid.period, grid.time_zone) == (
        "2012-04-02T00:00:00",
        168,
        24,
        "Asia/Jakarta",
    )
    assert (report.n_rows, report.n_same_instant, report.n_users_read) == (len(ROWS), 2, 3)
    # From hour 167 to 168; from the last hour of a week to the first of the next there is a new trace.
    assert report.n_transitions == 1
    # Most visited first: 30 is the last index, so its id is the last of the sorted ones. Read in the file's order, or
    # sorted the other way, "aa" would be first.
    assert traces.places.ids.tolist() == ["zz", "aa", "mm"]
    assert traces.places.category.tolist() == ["5", "6", "7"]
    assert np.isnan([traces.places.latitude, traces.places.longitude]).all()
    assert traces.user_ids[traces.friendships].tolist() == [[1, 2], [2, 3]]
    assert report.notes[-1] == "1 of 3 friendship rows left out: a user has no event"
    # Hour 167 and hour 1, whichever weeks they were in.
    assert len(find_colocations(traces, FriendGraph.of(traces))) == 2
    old, _ = read_lbsn2vec(file, graph="old", category_names_file=NAMES)
    assert (old.friendships.tolist(), old.places.category.tolist()) == ([[0, 1]], ["Bar", "6", "Park"])
    # It has no distances, and can be measured all the same.
    assert not traces.places.position_km().any()
    others = replace(traces, user_ids=10 + traces.user_ids)
    assert evaluate(traces, traces, others, EvaluationSettings(attacks=False))["tm_emd_y"] == 0


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
    found = refusal(read_lbsn2vec, city_file(tmp_path, **changes))
    assert all(message in found for message in messages)


def test_what_is_no_city_and_what_it_cannot_be_read_as(tmp_path):
    assert "no such file" in refusal(read_lbsn2vec, tmp_path / "none.mat")
    for path in (NAMES, tmp_path):
        assert "MATLAB 5 file" in refusal(read_lbsn2vec, path)
    grid = every_place(GridPlaces(40, 41, -75, -73, 2, 2), step_s=1800)
    found = refusal(read_lbsn2vec, city_file(tmp_path), discretization=grid)
    assert "a step of whole hours" in found
    assert "the most visited places, for a file without coordinates" in found
    assert "graph as 'old' or 'new'; found 'all'" in refusal(read_lbsn2vec, city_file(tmp_path), graph="all")


def test_the_published_new_york(data_folder):
    folder = data_folder("foursquare-www2019-lbsn2vec")
    everywhere = every_place(MostVisited(10**6))
    city, report = read_lbsn2vec(folder / "dataset_connected_NYC.mat", graph="old", discretization=everywhere)
    # Numbers of the data set's own description; one user is listed as a friend of their own.
    assert (report.n_rows, report.n_users_read, city.n_users, city.time_grid.n_instants) == (105_961, 3_785, 3_785, 168)
    n_left_out = int(report.notes[-1].split(" of ")[0].replace(",", ""))
    assert 8_723 - 2 - n_left_out <= len(city.friendships) <= 8_723 - 1 - n_left_out
    assert report.quietest_hour in range(2, 6)
