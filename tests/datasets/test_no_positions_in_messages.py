"""No message has a position of a person, whatever is wrong with a file whose only content is positions."""

from __future__ import annotations

import gzip
import json
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.geolife import read_geolife
from ppmtf_jax.datasets.published import read_gowalla, read_lbsn2vec
from ppmtf_jax.errors import InputError
from tests.commands import call
from tests.support import every_place

# Digits of the positions: no line, count or example has them.
LATITUDES, LONGITUDES = ("47.2837", "47.2841", "-47.2863"), ("84.7391", "84.7363", "-84.7319")
SECRETS = ("2837", "2841", "2863", "7391", "7363", "7319", "47.2", "84.7", "47,2", "84,7", "8247", "1.479")
PAIRS = list(zip(LATITUDES, LONGITUDES, strict=True))


def lines(form: str, end: str = "\n") -> str:
    return end.join(form.format(*pair) for pair in PAIRS) + "\n"


GPX = '<?xml version="1.0"?><gpx><trk><trkseg>' + lines('<trkpt lat="{0}" lon="{1}"/>', "") + "</trkseg></trk></gpx>"
OWNTRACKS = lines('2024-03-04T07:28:00Z\t*  \t{{"_type":"location","lat":{0},"lon":{1},"tst":1709537280}}')
HEADED = "user,time,lat,lon,place\n"
RECORDS = [{"lat": float(n), "lon": float(e)} for n, e in PAIRS]

FILES = {
    "GPX of one line": GPX,
    "GPX of a line that does not end": GPX * 3000,
    "OwnTracks": OWNTRACKS,
    "OwnTracks of one record": OWNTRACKS.split("\n", 1)[0],
    "no header": lines("{0},{1}"),
    "no header, one column": lines("{0}"),
    "no header, semicolons and commas": lines("{0};{1}").replace(".", ","),
    "pairs in one column": HEADED + lines('u,2024-03-04 07:28,"{0},{1}",,a'),
    "too few fields": HEADED + lines("{0},{1}"),
    "too many fields": HEADED + lines("u,2024-03-04 07:28,{0},{1},a,{0},{1}"),
    "positions as users and times": HEADED + lines("{0},{1},1,1,a"),
    "positions as users, times and places": HEADED + lines("{1},{0},{0},{1},{0}"),
    "coordinates with letters": HEADED + lines("u,2024-03-04 07:28,{0}N,{1}E,a"),
    "degrees and minutes": HEADED + lines("u,2024-03-04 07:28,{0}°,{1}°,a"),
    "points": HEADED + lines("u,2024-03-04 07:28,POINT ({1} {0}),POINT ({1} {0}),a"),
    "swapped": HEADED + lines("u,2024-03-04 07:28,{1},{0},a") + "u,2024-03-04 07:28,147.2837,84.7391,a\n",
    "micro-degrees": HEADED + lines("u,2024-03-04 07:28,{0},{1},a").replace(".2", "2").replace(".7", "7"),
    "bad dates": HEADED + lines("u,2024-13-04 {0} {1},{0},{1},a"),
    "years away": HEADED + 200 * lines("u,2024-03-04 07:28,{0},{1},a") + "u,1904-03-04 07:28,47.2837,84.7391,a\n",
    "a quote that is open": HEADED + lines('u,2024-03-04 07:28,{0},{1},"a'),
    "JSON that is cut off": json.dumps(RECORDS)[:-9],
    "JSON lines": lines('{{"position": [{0}, {1}]}}'),
    "JSON with positions as names": json.dumps([dict(PAIRS)]),
    "JSON of several types": json.dumps([{"user": "u", "time": [float(n), e], "lat": n, "lon": e} for n, e in PAIRS]),
    "GeoJSON": json.dumps({"type": "FeatureCollection", "features": [{"coordinates": RECORDS}]}),
    "a list of pairs": json.dumps(PAIRS),
    "scattered places": HEADED + lines("u,2024-03-04 07:28,{0},{1},a") * 3,
    "broken gzip": gzip.compress(GPX.encode())[:-9],
    "NULs": GPX.encode() + b"\0\1\2",
}
COLUMNS = [
    None,
    {"user": 0, "time": 1, "latitude": 2, "longitude": 3, "place": 4},
    {"user": 0, "time": 1, "latitude": 0, "longitude": 1},
    {"user": "47.2837", "time": "lat", "latitude": "user", "longitude": "time"},
]
OPTIONS = [
    {},
    {"drop_bad_rows": True},
    {"grid": (10, 11, 10, 11, 2, 2)},
    {"time_zone": "Asia/Tokyo", "columns": COLUMNS[1]},
    {"columns": COLUMNS[2]},
    {"time_zone": "Pacific/Auckland", "time_format": "%Y %f"},
]


def told(source: object, read=read_checkins, **options: object) -> str:
    """All that an import tells: its report, or the error with its traceback."""
    try:
        _, report = read(source, **({"time_zone": "Europe/Rome"} | options))
    except InputError as error:
        # Without the lines of code, in which the test itself names its positions.
        frames = "".join(traceback.format_exception(error))
        return "\n".join(line for line in frames.splitlines() if not line.startswith("  "))
    return str(report)


def secrets_of(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize("name", FILES)
def test_no_position_is_told(tmp_path, name):
    content = FILES[name]
    path = tmp_path / "file"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for options in OPTIONS:
        text = told(path, **options)
        assert not secrets_of(text), options
        assert len(text) < 6000
    for arguments in ([], ["--drop-bad-rows"], ["--columns", "user=0,time=1,latitude=2,longitude=3"]):
        result = call("import", "checkins", path, "--time-zone", "Asia/Tokyo", "--check", "--quiet", *arguments)
        assert not secrets_of(result.output), arguments


@pytest.mark.parametrize("name", FILES)
def test_other_readers_do_not_tell_positions_either(tmp_path, name):
    content = FILES[name]
    folder = tmp_path / "007" / "Trajectory"
    folder.mkdir(parents=True)
    for path in (folder / "20240304072800.plt", tmp_path / "file"):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    header = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
    (folder / "20240304072900.plt").write_text(header + lines("{0},{1},0,492"))
    for read in (read_geolife, read_gowalla, read_lbsn2vec):
        text = told(tmp_path / ("" if read is read_geolife else "file"), read)
        assert not secrets_of(text), read


def test_tables_in_memory_do_not_tell_positions():
    latitude, longitude = (np.array(values, float) for values in (LATITUDES, LONGITUDES))
    table = pd.DataFrame({"user": "u", "time": pd.Timestamp("2024-03-04T07:28"), "lat": latitude, "lon": longitude})
    pairs = [tuple(pair) for pair in zip(latitude, longitude, strict=True)]
    for odd in (
        table.assign(user=pairs),
        table.assign(time=pairs),
        table.assign(place=pairs),
        table.assign(lat=pairs),
        table.assign(lat=[*LATITUDES[:2], 147.2837]),
        table.assign(lat=table["lon"] + 60),
        table.assign(user=latitude, place=longitude),
        table.set_index(pd.Index(pairs)).assign(lat=200.0),
        table.set_axis([*LATITUDES, "x"], axis=1),
        table.set_axis([*latitude, 0.5], axis=1),
    ):
        assert not secrets_of(told(odd)), odd
        assert not secrets_of(told(odd, grid=(10, 11, 10, 11, 2, 2)))


def test_a_table_of_places_tells_rows_and_no_positions(tmp_path):
    places = Path(tmp_path / "places.csv")
    places.write_text("place,latitude,longitude\n" + lines("a,1{0},{1}"))
    table = pd.DataFrame({"user": ["u"], "time": ["2024-03-04 07:28"], "lat": [47.2], "lon": [84.7], "place": ["a"]})
    assert not secrets_of(told(table, place_table=places))
    assert not secrets_of(told(table.drop(columns=["lat", "lon"]), stations=places, discretization=every_place()))
