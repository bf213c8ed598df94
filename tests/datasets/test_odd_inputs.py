"""Odd inputs: what is read, or what the error expects and counts."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.synthesis import fit
from tests.support import every_place

HEADER = "user,time,latitude,longitude,place\n"
NOTED = "user,time,latitude,longitude,place,note\n"
ROW = "{},2024-03-{:02d}T{:02d}:00:00,{},{},{}\n"
ROME = {"time_zone": "Europe/Rome"}
Write = Callable[[Path], Any]


def rows(n: int = 6, latitude: object = 52.52, longitude: object = 13.4, place: str = "a", user: str = "u1") -> str:
    return "".join(ROW.format(user, 1 + k // 24, k % 24, latitude, longitude, place) for k in range(n))


def file(content: str | bytes, name: str = "table.csv") -> Write:
    def write(folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder / name

    return write


def files(**contents: str) -> Write:
    def write(folder: Path) -> Path:
        (folder / "parts").mkdir()
        for name, content in contents.items():
            file(content, f"{name}.csv")(folder / "parts")
        return folder / "parts"

    return write


def frame(n: int = 3, **columns: object) -> pd.DataFrame:
    """A user at one place, an hour apart."""
    times = [f"2024-03-13T{8 + k:02d}:00:00" for k in range(n)]
    return pd.DataFrame({"user": "u1", "time": times, "latitude": 52.52, "longitude": 13.4, "place": "a", **columns})


def csv(n: int = 3, **columns: object) -> Write:
    return file(frame(n, **columns).to_csv(index=False))


def timed(*times: object, **names: str) -> Write:
    return file(frame(len(times)).assign(time=times).rename(columns=names).to_csv(index=False))


def named(**names: str) -> Write:
    return file(frame().rename(columns=names).to_csv(index=False))


def zipped(members: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def excel(folder: Path) -> Path:
    """A spreadsheet with the name of a CSV, with dates as dates, a padded id and a second sheet."""
    table = frame(user=["007", "007 ", "008"])
    with pd.ExcelWriter(folder / "book.xlsx") as book:
        table.assign(time=pd.to_datetime(table["time"])).to_excel(book, sheet_name="one", index=False)
        table.to_excel(book, sheet_name="two", index=False)
    return (folder / "book.xlsx").rename(folder / "table.csv")


def geo(crs: int, kind: str) -> Write:
    def write(folder: Path) -> Any:
        geopandas = pytest.importorskip("geopandas")
        table = frame().drop(columns=["latitude", "longitude"])
        points = geopandas.GeoDataFrame(table, geometry=geopandas.points_from_xy([13.4] * 3, [52.52] * 3), crs=4326)
        points = points.to_crs(crs)
        if kind == "frame":
            return points
        points.to_parquet(folder / "points.parquet")
        return folder / "points.parquet"

    return write


TRIPS = """ride_id,who,started_at,ended_at,start_lat,start_lng,end_lat,end_lng
1,ann,2024-03-13 08:00,2024-03-13 09:05,52.52,13.40,52.53,13.45
2,ann,2024-03-13 17:30,2024-03-13 18:10,52.53,13.45,52.52,13.40
"""
TOWERS = "tower_id,lat,lon\n17,52.52,13.40\n18,52.53,13.45\n"
CALLS = "user,time,tower_id\nann,2024-03-13 08:00,17\nann,2024-03-13 09:00,18\nben,2024-03-13 09:00,17\n"
QUOTED = HEADER + rows(700) + 'u1,2024-03-30T08:00:00,52.52,13.4,"a\n' + rows(677)
GRID = {"grid": (52.5, 52.6, 13.3, 13.5, 2, 2), "min_users_per_place": 1, "discretization": None}
HALF_MS = [1_710_000_000 + 3600 * k for k in range(5)] + [1_710_000_000_000 + 3_600_000 * k for k in range(5, 10)]
# 2024-03-13T07:59:59 in Berlin is 06:59:59 UTC; GPS counts from 1980-01-06 and has had 18 leap seconds since.
GPS_S = [pd.Timestamp(f"2024-03-13T0{h}:59:59").timestamp() - 315_964_800 + 18 for h in (6, 7)]

# What is read: a note; or users, hours of the events, and a note; perhaps options.
READ: dict[str, tuple[Any, ...]] = {
    "blanks around ids": (csv(user=["u01", "u01 ", " u01"]), (["u01"], [8, 9, 10], "blanks around")),
    "blanks around numbers": (csv(user=["7", "7 ", " 8"]), ([7, 8], [8, 9, 10], "blanks around")),
    "blanks in a DataFrame": (lambda _: frame(user=["a", "a ", "b"]), (["a", "b"], [8, 9, 10], "blanks")),
    "two columns for users": (csv(device_id="d"), "taken for user; not taken, but possible: 'device_id'"),
    "two columns for latitudes": (csv(lat=1), "not taken, but possible: 'lat'"),
    "two columns for times": (csv(timestamp="x"), "not taken, but possible: 'timestamp'"),
    "GPS seconds": (timed(*GPS_S), (["u1"], [7, 8], "GPS time"), {"time_format": "gps"}),
    "days first, told": (
        timed("04.03.2024 07:00", "05.03.2024 08:00"),
        (["u1"], [7, 24 + 8], "%d.%m.%Y"),
        {"time_format": "day-first"},
    ),
    "AM and PM with days first, told": (
        timed("04/03/2024 07:00 AM", "04/03/2024 7:00 p.m."),
        (["u1"], [7, 19], "%d/%m/%Y"),
        {"time_format": "day-first"},
    ),
    "a folder": (files(one=HEADER + rows(2), two=HEADER + rows(3, user="u2")), (["u1", "u2"], [0, 0, 1, 1, 2], "")),
    "JSON lines": (file("\n" + frame().to_json(orient="records", lines=True)), ""),
    "a JSON list": (file(frame().to_json(orient="records", indent=1)), ""),
    "nested JSON": (
        file('{"user": {"id": 7}, "time": "2024-03-13T08:00", "lat": 52.52, "lon": 13.4, "place": "a"}'),
        ([7], [8], "'user.id' is taken for user"),
    ),
    "Excel called CSV": (excel, (["007", "008"], [8, 9, 10], "the first of 2 sheets is read: 'one'")),
    "GeoParquet": (geo(3857, "file"), ""),
    "a GeoDataFrame": (geo(25833, "frame"), ""),
    "a grid that reaches the pole": (csv(latitude=89.99), "", GRID | {"grid": (80, 90, -180, 180), "cell_m": 50000}),
    "trips": (file(TRIPS), (["ann"], [8, 9, 17, 18], "is a trip"), {"columns": {"user": "who"}} | GRID),
    "towers": (
        file(CALLS),
        (["ann", "ben"], [8, 9, 9], "'tower_id' is taken for place"),
        {"stations": file(TOWERS, "towers.csv")},
    ),
    "a city near 0, 0": (csv(latitude=0.34, longitude=6.73), "", {"time_zone": "Africa/Sao_Tome"}),
    "ships where radians would be": (csv(latitude=1.2, longitude=2.5), "", {"time_zone": "Africa/Accra"}),
    "a simulated city of small coordinates": (csv(latitude=0.2, longitude=0.5), ""),
    "blanks inside ids": (
        csv(user=["New York", "New  York", "NewYork"]),
        (["New  York", "New York", "NewYork"], [8, 9, 10], ""),
    ),
    "a wrong position in each place": (
        csv(10, latitude=[52.52] * 8 + [0, 0], place=list("ababababab")),
        (["u1"], [*range(8, 18)], "2 of 2 places have check-ins more than 2 km"),
    ),
    "places that are regions, with a table of their coordinates": (
        csv(latitude=[51, 53, 55], place="17"),
        "",
        {"stations": file(TOWERS, "towers.csv")},
    ),
    "German": (
        named(user="Benutzer", time="Zeit", latitude="Breitengrad", longitude="Längengrad", place="Ort"),
        "'Zeit' is taken for time",
    ),
    "French": (named(user="Utilisateur", time="Heure", place="Lieu"), "'Lieu'"),
    "Spanish": (
        named(user="usuario", time="fecha", latitude="latitud", longitude="longitud", place="lugar"),
        "'fecha' is taken for time",
    ),
    "Italian": (named(user="utente", time="data_ora", latitude="latitudine"), "'data_ora'"),
    "Portuguese": (named(user="Usuário", time="Horário", place="local"), "'Horário'"),
    "Japanese": (
        named(user="ユーザーID", time="日時", latitude="緯度", longitude="経度", place="場所"),
        "'緯度' is taken for latitude",
    ),
}

# What the error expects and counts; perhaps options.
REFUSED: dict[str, tuple[Any, ...]] = {
    "rows after a text of two lines": (
        file(NOTED + 'u1,2024-03-13T08:00:00,52.52,13.4,a,"two\nlines"\nu1,noon,52.52,13.4,a,\n'),
        "'noon' (row 4)",
    ),
    "a quote in the middle that is not closed": (file(QUOTED), "begins in row 702 and does not end"),
    "a quote in the second row that is not closed": (
        file(HEADER + 'u1,2024-03-30T08:00:00,52.52,13.4,"a\n' + rows(9)),
        "begins in row 2 and does not end",
    ),
    "coordinates of Berlin swapped": (csv(latitude=13.4, longitude=52.52), "(3 rows). Latitude and longitude"),
    "coordinates of Rome swapped": (
        csv(latitude=12.5, longitude=41.9),
        "near Europe/Rome; found their middle 4,333 km away, 1 if swapped",
        ROME,
    ),
    "radians": (csv(latitude=0.9167, longitude=0.2339), "in degrees; found numbers of radians"),
    "radians by the clocks of UTC": (csv(latitude=0.9167, longitude=0.2339), "Convert radians", {"time_zone": "UTC"}),
    "a place at two points": (csv(2, latitude=[51.52, 53.52]), "1 of 1 places of several check-ins scattered"),
    "radians that are swapped": (csv(latitude=0.2339, longitude=0.9167), "Africa/Accra"),
    "places that are regions": (csv(3, latitude=[51, 53, 55]), "stations='regions.csv', or use the cells"),
    "a column of GPS times": (timed(*GPS_S, time="gps_time"), "which may be GPS time. Tell which it is"),
    "seconds and milliseconds": (timed(*HALF_MS), "found 5 in seconds and 5 in milliseconds"),
    "dates with dots": (timed("04.03.2024 07:00"), "(row 2). Tell which comes first: time_format='day-first'"),
    "the advice on days and months": (timed("04/03/2024 07:00 AM"), "or time_format='month-first'"),
    "a format without directives": (timed("1"), "'iso': it has no directive", {"time_format": "iso"}),
    "a format of 12 hours without AM": (timed("1"), "%I needs %p", {"time_format": "%d %I:%M"}),
    "a format that does not exist": (timed("1"), "day-first, month-first, unix, gps; found", {"time_format": "%Q"}),
    "an empty file": (file(""), "a table with a header and rows; found an empty file"),
    "an empty archive": (file(zipped({}), "a.zip"), "one file in the archive; found an empty archive"),
    "an empty folder": (files(), "a folder of files; found a folder without files"),
    "JSON that is cut off": (
        file(frame().to_json(orient="records", lines=True)[:-9]),
        "one JSON object on each line, or a list of objects; found",
    ),
    "a broken spreadsheet": (
        file(zipped({"[Content_Types].xml": ""})),
        "a readable CSV, TSV, JSON, Excel or Parquet file",
    ),
    "an end without coordinates": (
        file(TRIPS),
        "Missing: x",
        {"columns": {"user": "who", "end_time": "ended_at", "end_latitude": "x"}},
    ),
    "calls at an unknown tower": (
        file(CALLS + "ben,2024-03-13 10:00,19\n"),
        "a station for every place, in",
        {"stations": file(TOWERS, "towers.csv")},
    ),
    "a tower that is there twice": (
        file(CALLS),
        "each place once; found several rows (1 row), first: '17'",
        {"stations": file(TOWERS + "17,52,13\n", "towers.csv")},
    ),
    "absurdly small cells": (
        csv(),
        "at most 10,000,000 cells; found 111,195 x 67,692. Choose larger cells",
        GRID | {"grid": (52, 53, 13, 14), "cell_m": 1},
    ),
    "settings and a discretization": (
        csv(),
        "either a discretization or its settings; found also step_s",
        {"step_s": 60},
    ),
}


def read(folder: Path, write: Write, options: dict[str, Any]):
    options = {key: value(folder) if callable(value) else value for key, value in options.items()}
    return read_checkins(write(folder), **({"discretization": every_place(), "time_zone": "Europe/Berlin"} | options))


@pytest.mark.parametrize("case", READ)
def test_what_is_read(tmp_path, case):
    write, expected, *options = READ[case]
    users, hours, note = (["u1"], [8, 9, 10], expected) if isinstance(expected, str) else expected
    traces, report = read(tmp_path, write, *(options or [{}]))
    assert traces.user_ids.tolist() == users
    assert sorted(traces.instant.tolist()) == hours
    assert note in " ".join(report.notes)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_error_expects_and_counts(tmp_path, case):
    write, message, *options = REFUSED[case]
    with pytest.raises(InputError) as error:
        read(tmp_path, write, *(options or [{}]))
    assert message in str(error.value)


def test_fit_on_a_data_frame():
    utc = pd.date_range("2024-03-13T08:00", periods=9, freq="h", tz="UTC")
    table = pd.concat([frame(9, user=user).assign(time=utc) for user in "abcdef"])
    with pytest.warns(UserWarning, match=r"read a table of check-ins(.|\n)*events +54"):
        model = fit(table, "sgd", n_copied=1, seed=0)
    assert model.n_users == 6
    with pytest.raises(InputError, match="a time zone, for times without an offset"):
        fit(frame(), "sgd")


def test_without_the_optional_library_the_error_tells_how_to_get_it(tmp_path, monkeypatch):
    for name in ("python_calamine", "openpyxl"):
        monkeypatch.setitem(sys.modules, name, None)
    path = file(zipped({"[Content_Types].xml": ""}))(tmp_path)
    with pytest.raises(InputError, match=r"python-calamine or openpyxl, which reads.*ppmtf_jax\[interop\]"):
        read_checkins(path)
