"""The general table of check-ins, in every form that it may come in."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.errors import InputError
from tests.support import every_place

# Tables made by hand have few users.
read_checkins = partial(read_checkins, discretization=every_place())

HAND_MADE = Path(__file__).parents[1] / "samples" / "checkins" / "checkins.csv"
COLUMNS = {"user": "who", "time": "when", "latitude": "lat", "longitude": "lon", "place": "where", "category": "what"}
SAME = {name: name for name in ("user", "time", "latitude", "longitude")}
ZONE, NEW_YORK = {"time_zone": "Europe/Paris"}, {"time_zone": "America/New_York"}
HEADER = "user,time,latitude,longitude,place\n"
ROW = "1,2024-01-01T08:00:00Z,40.7,-74.0,a\n"


def write(folder: Path, text: str | bytes, name: str = "checkins.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problems_of(source, **options) -> list[str]:
    with pytest.raises(InputError) as error:
        read_checkins(source, **options)
    return [str(problem) for problem in error.value.problems]


# Values


def test_hand_made_file():
    traces, report = read_checkins(HAND_MADE, COLUMNS, time_zone="Europe/Paris")
    # 23:30 in London is 00:30 of the next day in Paris. Ids with leading zeros stay texts.
    assert list(traces.to_frame().itertuples(index=False, name=None)) == [
        ("007", 0, 8, "Gare, nord"),
        ("007", 0, 9, "Louvre"),
        ("008", 0, 24, "Louvre"),
    ]
    assert traces.places.to_frame().to_dict("list") == {
        "place": ["Louvre", "Gare, nord"],
        "latitude": [48.86, 48.85],
        "longitude": [2.36, 2.35],
        "category": ["museum", "station"],
    }
    assert (traces.time_grid.start, traces.time_grid.time_zone) == ("2024-03-04T00:00:00", "Europe/Paris")
    assert (report.n_rows, report.n_events, report.n_transitions, report.n_users) == (3, 3, 1, 2)


@pytest.mark.parametrize(
    ("written", "ids"),
    [
        (["10", "9"], [9, 10]),
        (["10", "-9"], [-9, 10]),
        (["10", "09"], ["09", "10"]),
        (["10", "9.0"], [9, 10]),
        (["10", "9.5"], ["10", "9.5"]),
        (["10", "99999999999999999999"], ["10", "99999999999999999999"]),
        (["nobody", "Nan"], ["Nan", "nobody"]),
    ],
)
def test_ids_keep_their_values(tmp_path, written, ids):
    text = HEADER + "".join(ROW.replace("1,", f"{user},", 1) for user in written)
    assert read_checkins(write(tmp_path, text))[0].user_ids.tolist() == ids


def test_integer_texts_in_parquet_stay_texts(tmp_path):
    frame = pd.DataFrame(
        {"user": ["7"], "time": [pd.Timestamp("2024-01-01T08:00Z")], "latitude": 51.0, "longitude": 2.0}
    )
    frame.assign(place=[3]).to_parquet(tmp_path / "checkins.parquet")
    traces, _ = read_checkins(tmp_path / "checkins.parquet")
    assert (traces.user_ids.tolist(), traces.places.ids.tolist()) == (["7"], [3])


# Bad input


def test_every_problem_of_a_table_at_once(tmp_path):
    # The header is row 1, and a blank line is a row as well.
    text = HEADER + ROW * 4 + ",yesterday,1,1,a\n\n2,2024-13-01T00:00:00Z,abc,-74,a\n"
    text += "2,yesterday,139.7,35.6,b\n3,,40,-274,b\n3,2024-01-01T08:00:00Z,40,-274,b\n5,6\n"
    assert problems_of(write(tmp_path, text)) == [
        "expected 5 fields in every row of checkins.csv; found others (1 row), first: 2 (row 12).",
        "expected times that can be parsed; found others (3 rows), first: 'yesterday' (row 6), "
        "'2024-13-01T00:00:00Z' (row 8), 'yesterday' (row 9). Write times as 2012-04-03T18:00:00, "
        "2012-04-03T18:00:00-04:00 or in seconds since 1970, or tell how they are written, "
        "such as time_format='%d.%m.%Y %H:%M'",
        "expected latitude as a number; found others (1 row), first: 'abc' (row 8).",
        "expected latitude from -90 to 90 degrees; found others (1 row), first: row 9. "
        "Latitude and longitude are probably swapped",
        "expected longitude from -180 to 180 degrees; found others (1 row), first: row 11.",
    ]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("customer,time,north,longitude\n1,2,3,4\n", {}, "north, longitude. Missing: user, latitude. Tell which"),
        (ROW, {}, "where the file has no header line, by position from 0, such as columns={'user': 0}"),
        (
            (HEADER + ROW).replace("time", "UTC_time").replace("place", "local_time"),
            {},
            "'UTC_time', 'local_time'. Tell",
        ),
        ((HEADER + ROW).replace("place", "User"), {"columns": {"user": "USER"}}, "found 2 columns of that name"),
        (HEADER + ROW, {"columns": {**SAME, "longitude": "latitude"}}, "'latitude' for latitude and longitude"),
        (HEADER, {}, "at least one check-in; found none"),
        (HEADER + ROW.replace(",a", ",a,b"), {}, "5 fields in every row of checkins.csv; found others (1 row)"),
        (ROW, {"columns": {"user": 0, "time": 1, "latitude": 2, "longitude": 9}}, "at least 10 columns; found 5"),
        (HEADER + ROW, {"columns": {**COLUMNS, "lat": "x"}}, "end_longitude, end_place; found also 'lat'"),
        (HEADER + ROW, {"columns": {"user": 0}}, "found none for time, latitude, longitude"),
        (HEADER + ROW, {"columns": {**COLUMNS, "user": 0}}, "all columns by name or all by position"),
        ((HEADER + ROW).replace(",place", "").replace(",a", ""), {}, "or choose a grid with grid"),
        (HEADER + ROW.replace("Z", ""), {}, "a time zone, for times without an offset; found none (1 row)"),
        (HEADER + ROW, {"time_zone": "Mars/Phobos"}, "an IANA time zone such as Asia/Tokyo; found 'Mars/Phobos'"),
        (HEADER + ROW + ROW.replace("Z", ""), {"time_zone": "UTC"}, "found 1 without and 1 with one"),
        (HEADER + ROW.replace("2024-01-01T08:00:00Z", "1704096000"), {"times_in": "UTC"}, "Leave it out: these times"),
        (HEADER + ROW.replace("2024-01-01T08:00:00Z", "17040960"), {}, "first: '17040960' (row 2). Write times as"),
        (HEADER + ROW.replace("2024-01-01T08:00:00Z", "170409600000"), {}, "Numbers are seconds since 1970"),
        (HEADER + ROW.replace("2024-01-01T08:00:00Z", "20240101"), ZONE, "times of day, for instants 3600 s apart"),
        (HEADER + ROW.replace("40.7,-74.0", "139.7,35.6"), {}, "probably swapped"),
        (
            HEADER + "1,2024-01-01T08:00:00Z,40.7,40.7,a\n1,2024-01-01T08:00:00Z,35.6,35.6,b\n",
            {},
            "latitude and longitude; found the same numbers in both",
        ),
        (HEADER + ROW.replace("40.7,-74.0", "-74.0,40.7"), NEW_YORK, "Latitude and longitude are probably swapped, or"),
        (
            HEADER + ROW * 3 + ROW.replace("2024", "1900"),
            {},
            "1900-01-01T08:00:00 (row 5). Correct them, or leave them",
        ),
        ((HEADER + ROW).encode("utf-32"), {}, "found UTF-32"),
        (bytes(range(256)), {}, "found binary content"),
        (
            gzip.compress((HEADER + ROW * 999).encode(), mtime=0)[:40],
            {},
            "a readable CSV, TSV, JSON, Excel or Parquet file",
        ),
        (b"\x1f\x8bno gzip at all", {}, "a readable CSV, TSV, JSON, Excel or Parquet file"),
        (b"PAR1 no Parquet PAR1", {}, "a readable CSV, TSV, JSON, Excel or Parquet file"),
    ],
)
def test_bad_files(tmp_path, text, options, message):
    assert message in " ".join(problems_of(write(tmp_path, text), **options))


def test_paths_that_are_no_files(tmp_path):
    assert problems_of(tmp_path / "absent.csv") == ["expected a file to read; found no such file."]
    assert problems_of([]) == ["expected at least one file; found none."]


def test_files_that_do_not_go_together(tmp_path):
    first = write(tmp_path, HEADER + ROW, "first.csv")
    second = write(tmp_path, (HEADER + ROW).replace(",place", "").replace(",a", ""), "second.csv")
    assert problems_of([first, second]) == ["expected the same columns in all files; found place in some of them only."]


def test_bad_data_frames():
    frame = pd.DataFrame(
        {"user": ["a", 1], "time": ["noon", "2024-01-01T08:00"], "latitude": [1, "x"], "longitude": [1, 2]}
    )
    found = problems_of(frame.assign(place=["p", "q"]))
    assert [text.split(";")[0] for text in found] == [
        "expected a time zone, for times without an offset",
        "expected times that can be parsed",
        "expected latitude as a number",
        "expected ids of one type in 'user'",
    ]


# Real files


def test_foursquare_tokyo_trips(data_folder, tmp_path):
    folder = data_folder("foursquare-tky-sample")
    trips = pd.read_csv(folder / "traj-TKY.csv.gz").merge(pd.read_csv(folder / "poi-TKY.csv.gz"), on="poiID")
    trips.to_parquet(tmp_path / "tky.parquet")
    columns = {"user": "userID", "time": "startTime", "latitude": "poiLat", "longitude": "poiLon", "place": "poiID"}
    settings = every_place(MostVisited(500))
    traces, report = read_checkins(tmp_path / "tky.parquet", columns, time_zone="Asia/Tokyo", discretization=settings)
    # Counted with the standard library: rows at the 500 places, hours of Tokyo with a check-in, and pairs of them.
    assert (report.n_rows, report.n_other_places, report.n_same_instant) == (13_367, 13_367 - 9_125, 9_125 - 6_233)
    assert (report.n_events, report.n_transitions, report.n_users) == (6_233, 1_289, 44)
    assert traces.places.ids[:3].tolist() == [5, 35, 253]
    assert report.quietest_hour in range(1, 6)
    # With the trips as traces, an hour may have one event in each of two trips.
    columns |= {"trace": "trajID", "category": "poiCat"}
    traces, report = read_checkins(tmp_path / "tky.parquet", columns, time_zone="Asia/Tokyo", discretization=settings)
    assert (report.n_events, report.n_transitions, report.n_traces) == (6_248, 1_261, 4_163)
    assert "Transport" in traces.places.category


def test_foursquare_us_sample_on_a_grid_of_new_york(data_folder):
    folder = data_folder("foursquare-tist2015-us-sample")
    table = pd.read_csv(folder / "Foursquare_3_checkins.txt.gz", sep="\t", names=["user", "poi", "time"])
    places = pd.read_csv(folder / "Foursquare_3_poi_coos.txt.gz", sep="\t", names=["poi", "latitude", "longitude"])
    table = table.merge(places, on="poi")
    settings = every_place(GridPlaces(40.4844, 40.9176, -74.2586, -73.7013, n_rows=20, n_columns=20))
    # The file's times are eight hours early; the report shows it.
    _, early = read_checkins(table[::10], time_zone="America/New_York", discretization=settings)
    assert early.quietest_hour in range(18, 23)
    table["time"] += 8 * 3600
    traces, report = read_checkins(table, time_zone="America/New_York", discretization=settings)
    assert (report.n_rows, report.n_users_read, report.n_outside_box) == (185_984, 4_969, 133_193)
    assert (report.n_same_instant, report.n_events) == (185_984 - 133_193 - 49_400, 49_400)
    assert (report.n_transitions, report.n_users) == (2_559, 2_162)
    assert np.bincount(traces.place, minlength=400).argmax() == 229
    assert (report.first_time, report.last_time) == ("2012-04-03T14:00:08", "2013-09-16T19:18:19")
    assert report.quietest_hour in range(2, 6)


def test_local_times_with_a_wrong_offset_are_read_without_a_zone(foursquare_nyc):
    path = foursquare_nyc / "getnext_NYC_val.csv.gz"
    columns = {"user": "user_id", "latitude": "latitude", "longitude": "longitude", "place": "POI_id"}
    wall, _ = read_checkins(path, columns | {"time": "local_time"})
    true, _ = read_checkins(path, columns | {"time": "UTC_time"}, time_zone="America/New_York")
    pd.testing.assert_frame_equal(wall.to_frame(), true.to_frame())
