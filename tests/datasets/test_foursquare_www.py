"""Foursquare's check-ins of the world (WWW 2019): a city out of files whose encodings, venues and lines have faults."""

from __future__ import annotations

import gzip
import shutil
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from ppmtf_jax.datasets import foursquare_www
from ppmtf_jax.errors import InputError
from tests.commands import call

WORLD = Path(__file__).parents[1] / "samples" / "foursquare_www"
CHECKINS, VENUES = (WORLD / name for name in foursquare_www.FILES)
read = partial(foursquare_www.read_foursquare_www, min_users_per_place=1)


def events(traces) -> list[tuple]:
    return list(traces.to_frame().itertuples(index=False, name=None))


def refusal(folder: Path, **options) -> str:
    with pytest.raises(InputError) as error:
        read(folder, **options)
    return str(error.value)


@pytest.fixture
def world(tmp_path) -> Path:
    """A copy of the sample, with one more line of check-ins."""
    return shutil.copytree(WORLD, tmp_path / "world")


def test_a_city_by_hand():
    traces, report = read(WORLD, city="new-york")
    january = 273 * 24  # hours from 3 April to 1 January
    assert events(traces) == [
        (3, 0, 23, "bb"),  # 3:59:59 UTC of the next day
        (5, 0, january + 23, "aa"),  # 4:00 UTC, in winter
        (7, 0, 14, "aa"),
        (7, 1, 14, "bb"),
        (7, 2, 14, "aa"),  # the last of the hour goes on to the next
        (7, 2, 15, "cc"),
        (9, 0, january + 23, "bb"),
    ]
    assert traces.time_grid.time_zone == "America/New_York"
    assert (traces.time_grid.start, traces.time_grid.n_slots) == ("2012-04-03T00:00:00", 12)
    # Of three ways to break a category each is repaired; the edges of the box belong to it.
    assert traces.places.ids.tolist() == ["aa", "bb", "cc"]
    assert traces.places.category.tolist() == ["Café"] * 3
    assert traces.places.latitude.tolist() == [40.70, 40.75, 40.50]
    assert (report.n_rows, report.n_same_instant, report.n_transitions) == (7, 0, 1)
    assert report.notes[0].startswith("11 check-ins of the world read; 3 of them, wherever they are, are left out")
    # User 1000 has no check-in in the city.
    assert traces.user_ids[traces.friendships].tolist() == [[3, 7], [3, 9], [7, 9]]
    tokyo, report = read(WORLD, city="tokyo")
    assert (events(tokyo), tokyo.time_grid.time_zone) == ([(9, 0, 3, "dd")], "Asia/Tokyo")
    assert tokyo.places.category.tolist() == ["Women\u2019s Store"]
    assert "4 of 4 friendship rows left out: a user has no event" in report.notes


def test_what_else_can_be_asked_for(world):
    first, report = read(WORLD, city="new-york", repeats="first", graph="old")
    assert [event for event in events(first) if event[0] == 7] == [(7, 0, 14, "aa"), (7, 0, 15, "cc")]
    assert (report.n_same_instant, report.n_transitions) == (2, 1)
    assert first.user_ids[first.friendships].tolist() == [[3, 7]]
    counted, _ = read(WORLD, city="new-york")
    for name in ("raw_POIs.txt", "raw_Checkins_anonymized.txt"):
        (world / f"{name}.gz").write_bytes(gzip.compress((world / name).read_bytes()))
        (world / name).unlink()
    (world / "friendship_after_new.txt").unlink()
    alone, report = read(world, city="new-york")
    assert (events(alone), alone.friendships) == (events(counted), None)
    assert "no friendships: the folder has no friendship_after_new.txt" in report.notes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "5\tbb\tTue Apr 03 18:00:00 +0000 2012\t",
            "minutes, -840 to 840; found others (1 row), first: nothing (row 12)",
        ),
        ("5\tbb\tTue Apr 03 18:00:00 +0000 2012\t-240.5", "whole minutes, -840 to 840; found others (1 row)"),
        ("5\tbb\tTue Apr 03 18:00:00 +0000 2012\t2000", "first: '2000' (row 12)"),
        ("5\tbb\tTue Apr 31 18:00:00 +0000 2012\t-240", "times that can be parsed"),
        ("5\tbb\tTue Apr 03 18:00:00 +0000 2012", "4 fields in every row of raw_Checkins_anonymized.txt"),
    ],
)
def test_bad_lines_are_named_or_left_out(world, line, message):
    whole, _ = read(world, city="new-york")
    with (world / CHECKINS.name).open("a") as file:
        file.write(f"{line}\n")
    assert message in refusal(world, city="new-york")
    assert events(read(world, city="new-york", drop_bad_rows=True)[0]) == events(whole)


def test_a_byte_order_mark_is_no_part_of_a_venue(world):
    for name in (VENUES.name, CHECKINS.name, "friendship_after_new.txt"):
        (world / name).write_bytes(b"\xef\xbb\xbf" + (world / name).read_bytes())
    with_marks, without = (read(folder, city="new-york")[0] for folder in (world, WORLD))
    assert events(with_marks) == events(without)
    assert with_marks.friendships.tolist() == without.friendships.tolist()


def test_a_header_an_empty_venue_two_positions_and_no_friendships(world):
    checkins, venues = (world / name for name in foursquare_www.FILES)
    checkins.write_text("5\t\tTue Apr 03 18:00:00 +0000 2012\t-240\n" + CHECKINS.read_text())
    venues.write_bytes(VENUES.read_bytes() + b"\naa\t40.71\t-74.00\tBar\tUS\n")
    (world / "friendship_after_new.txt").write_text("\n")
    traces, report = read(world, city="new-york")
    assert events(traces) == events(read(WORLD, city="new-york")[0])
    assert traces.friendships.shape == (0, 2)
    assert "3 of them, wherever they are, are left out because raw_POIs.txt has no" in " ".join(report.notes)
    assert "and 1 because they name no venue" in " ".join(report.notes)
    assert "venues at several positions, of which one is taken: 1" in report.notes
    checkins.write_text("user\tvenue\ttime\toffset\n" + CHECKINS.read_text())
    assert "found a header line (row 1). Remove it" in refusal(world, city="new-york")


def test_what_is_no_such_folder_and_no_such_city(world):
    assert "a folder with raw_Checkins_anonymized.txt and raw_POIs.txt" in refusal(WORLD.parent, city="tokyo")
    assert "a city, one of istanbul, jakarta, kuala-lumpur, new-york, sao-paulo, tokyo; found none" in refusal(WORLD)
    assert all(repr(city) in refusal(WORLD, city="paris") for city in foursquare_www.CITIES)
    assert "check-ins in the box; found none of 11" in refusal(WORLD, city="jakarta")
    result = call("import", "foursquare-www", WORLD, "--check", "--quiet")
    assert (result.exit_code, "--city tokyo" in result.output) == (1, True)
    few = ("--min-users-per-place", "1", "--train-fraction", "0.5", "--check", "--quiet")
    result = call("import", "foursquare-www", WORLD, "--city", "new-york", *few, "--repeats", "first")
    assert "left out: same instant" in result.output


def test_new_york_is_that_of_the_citys_own_file(data_folder, tmp_path):
    """The files of the world, made of a tenth of New York's table: its hours of the week and most visited venues."""
    folder = data_folder("foursquare-www2019-lbsn2vec")
    table = pd.read_csv(folder / "nyc_checkins.csv.gz").dropna(subset="lat").query("user % 10 == 0")
    local = pd.Timestamp("2012-04-02") + pd.to_timedelta(168 * table["week"] + table["hour_of_week"] - 1, unit="h")
    utc = local.dt.tz_localize("America/New_York", ambiguous=True, nonexistent="shift_forward").dt.tz_convert("UTC")
    minutes = (local - utc.dt.tz_localize(None)) // pd.Timedelta("1min")
    columns = {"user": table["user"], "venue": table["venue_id"], "time": utc.dt.strftime("%a %b %d %X +0000 %Y")}
    venues = table.drop_duplicates("venue_id")[["venue_id", "lat", "lon", "category_index"]].assign(country="US")
    how = {"sep": "\t", "header": False, "index": False}
    pd.DataFrame(columns).assign(minutes=minutes).to_csv(tmp_path / CHECKINS.name, **how)
    venues.to_csv(tmp_path / VENUES.name, **how)
    shutil.copy(folder / "nyc_friendship_new.csv.gz", tmp_path / "friendship_after_new.txt.gz")
    assert "found others (1 row), first: 'user' (row 1). Remove a header line" in refusal(tmp_path, city="new-york")
    (tmp_path / "friendship_after_new.txt.gz").unlink()
    traces, report = read(tmp_path, city="new-york")
    assert report.n_rows == len(table)
    counts = table["venue_id"].value_counts()
    assert (counts[traces.places.ids] >= counts.sort_values(ascending=False).iloc[999]).all()
    kept = table[table["venue_id"].isin(traces.places.ids)]
    hour = traces.instant % 168 + (24 if traces.time_grid.start.startswith("2012-04-03") else 0)
    expected = zip(kept["user"], kept["venue_id"], (kept["hour_of_week"] - 1).astype(int), strict=True)
    found = zip(traces.user_ids[traces.user], traces.places.ids[traces.place], hour % 168, strict=True)
    assert sorted(found) == sorted(expected)
