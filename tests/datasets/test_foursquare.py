"""The TSMC2014 format: Latin-1, no header, UTC and an offset."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from ppmtf_jax.datasets.published import read_foursquare
from ppmtf_jax.errors import InputError
from tests.support import every_place

# Tables made by hand have few users.
read_foursquare = partial(read_foursquare, discretization=every_place())

HAND_MADE = Path(__file__).parents[1] / "samples" / "foursquare"
ROW = "1\tv1\tc\tBar\t40.7\t-74.0\t-300\tTue Jan 03 18:00:00 +0000 2012\n"


def test_hand_made_file():
    # The folder has a readme too, which is no data.
    traces, report = read_foursquare(HAND_MADE)
    assert list(traces.to_frame().itertuples(index=False, name=None)) == [
        (7, 0, 8, "v1"),
        (7, 0, 9, "v2"),
        (12, 0, 23, "v1"),
        (12, 0, 24, "v3"),
    ]
    assert traces.places.ids.tolist() == ["v1", "v2", "v3"]
    assert traces.places.category.tolist() == ["Café", 'Bar "Bob\'s"', "Park"]
    assert traces.places.latitude.tolist() == [40.70, 40.75, 40.80]
    assert (traces.time_grid.start, traces.time_grid.time_zone) == ("2012-04-03T00:00:00", "America/New_York")
    assert (traces.time_grid.n_instants, traces.time_grid.n_slots) == (48, 12)
    assert (report.n_rows, report.n_same_instant, report.n_events, report.n_transitions) == (5, 1, 4, 2)


def test_utf_8_and_latin_1_read_the_same(tmp_path):
    file = HAND_MADE / "dataset_TSMC2014_NYC.txt"
    (tmp_path / file.name).write_text(file.read_text("latin-1"), encoding="utf-8")
    assert read_foursquare(tmp_path)[0].places.category.tolist() == read_foursquare(file)[0].places.category.tolist()


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (ROW.replace("-300", "540"), ["found offsets of 540 minutes (1 row). Name the city's zone"]),
        (
            ROW + ROW.replace("-300", "x").replace("Tue Jan", "Die Jan").replace("40.7", "-740"),
            [
                "offsets from UTC in minutes, -840 to 840",
                "first: 'Die Jan 03 18:00:00 +0000 2012' (row 2)",
                "latitude from -90 to 90 degrees; found others (1 row), first: row 2.",
            ],
        ),
        (
            "userId\tvenueId\ta\tb\tlat\tlon\toffset\ttime\n" + ROW,
            ["first: 'time' (row 1)", "first: 'lat' (row 1)", "first: 'lon' (row 1)"],
        ),
        (ROW.replace("-300\t", ""), ["at least 8 columns; found 7"]),
        (ROW + "1\tv1\n", ["8 fields in every row", "2 (row 2)"]),
        (ROW.replace("1\tv1", "\t"), ["bad rows to be a few; found 1 of 1, 1 without a user"]),
    ],
)
def test_bad_files(tmp_path, text, messages):
    path = tmp_path / "dataset_TSMC2014_NYC.txt"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_foursquare(path)
    assert all(message in str(error.value) for message in messages)


def test_the_tokyo_file_needs_its_zone(tmp_path):
    path = tmp_path / "dataset_TSMC2014_TKY.txt"
    path.write_text(ROW.replace("-300", "540"))
    traces, _ = read_foursquare(path, time_zone="Asia/Tokyo")
    assert traces.instant.tolist() == [3]  # 18:00 UTC is 03:00 of the next day


def test_folders_without_one_file(tmp_path):
    with pytest.raises(InputError, match="found none"):
        read_foursquare(tmp_path)
    for city in ("NYC", "TKY"):
        shutil.copy(HAND_MADE / "dataset_TSMC2014_NYC.txt", tmp_path / f"dataset_TSMC2014_{city}.txt")
    with pytest.raises(InputError, match=r"NYC\.txt, dataset_TSMC2014_TKY\.txt\. Name the file itself"):
        read_foursquare(tmp_path)


def test_new_york(foursquare_nyc):
    traces, report = read_foursquare(foursquare_nyc)
    # Counted with the standard library: rows at the 1,000 venues, local hours with a check-in, and pairs of them.
    assert (report.n_rows, report.n_users_read) == (147_938, 1_083)
    assert (report.n_other_places, report.n_same_instant) == (147_938 - 73_620, 73_620 - 61_681)
    assert (report.n_events, report.n_transitions, report.n_users) == (61_681, 5_587, 1_078)
    assert (report.first_time, report.last_time) == ("2012-04-03T14:00:00", "2013-02-15T21:27:00")
    assert traces.places.ids[0] == "42911d00f964a520f5231fe3"  # Penn Station, 1,147 check-ins
    assert (traces.n_places, traces.time_grid.n_slots, traces.time_grid.one_period().n_instants) == (1000, 12, 24)
    # 3 April 2012 to 15 February 2013: 319 days
    assert traces.time_grid.n_instants == 319 * 24
    assert report.quietest_hour in range(2, 6)
    assert "Café" in traces.places.category
