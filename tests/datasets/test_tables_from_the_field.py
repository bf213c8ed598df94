"""Tables of the kinds that people have: what is read, and which findings say so; or the code of the refusal.

Each kind is made here with names and values of its own, from one base table that is read right. The folder of files
has other tables of these kinds.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.errors import Finding, InputError, Problem
from tests.support import every_place

ZONE = {"time_zone": "Europe/Rome"}
GRID = {"grid": (41.5, 42.5, 12.0, 13.0, 10, 10)}
N_USERS, N_DAYS, HOURS = 12, 5, (8, 10, 13, 16, 20)
N_ROWS = N_USERS * N_DAYS * len(HOURS)
FLATS = 41.80 + 0.02 * np.arange(4)


def base() -> pd.DataFrame:
    """Twelve people of Rome, who are at one of four flats at 8 and 20 h, else at one of two offices."""
    user, day, hour = (column.ravel() for column in np.meshgrid(range(N_USERS), range(N_DAYS), HOURS, indexing="ij"))
    is_home = (hour == 8) | (hour == 20)
    place = np.where(is_home, user % 4, 4 + user % 2)
    latitude = np.where(is_home, FLATS[user % 4], 41.90 + 0.03 * (user % 2))
    time = np.datetime64("2023-05-08T00:15:00") + day.astype("timedelta64[D]") + hour.astype("timedelta64[h]")
    table = {"who": [f"p{u:02d}" for u in user], "when": time, "lat": latitude, "lon": 12.4 + latitude - 41.8}
    return pd.DataFrame(table | {"spot": [f"s{p}" for p in place]})


def codes(report: ImportReport) -> dict[str, int]:
    return {note.code: note.n_rows for note in report.notes if isinstance(note, Finding)}


def codes_of(error: InputError) -> list[str]:
    return [problem.code for problem in error.problems if isinstance(problem, Problem)]


def every(n: int, value: object) -> Callable[[pd.Series], pd.Series]:
    """A column in which every n-th value, but not the first, is another."""
    return lambda column: column.astype(object).mask(np.arange(len(column)) % n == n - 1, value)


def with_column(name: str, change: Callable[[pd.Series], Any]) -> Callable[[], pd.DataFrame]:
    return lambda: base().assign(**{name: lambda table: change(table[name])})


def at(n: int, latitude: object, longitude: object) -> Callable[[], pd.DataFrame]:
    """Every n-th row at a position."""
    return lambda: base().assign(
        lat=lambda table: every(n, latitude)(table["lat"]), lon=lambda table: every(n, longitude)(table["lon"])
    )


def early(share: float, weeks: int, user: str = "") -> Callable[[], pd.DataFrame]:
    """A share of the rows, or those of one user, some weeks early."""

    def make() -> pd.DataFrame:
        table = base()
        is_early = (table["who"] == user) if user else np.arange(N_ROWS) % round(1 / share) == 0
        return table.assign(when=table["when"] - pd.Timedelta(weeks=weeks) * is_early.astype(int))

    return make


def visits(begin: str, end: str, **columns: Any) -> pd.DataFrame:
    """Each person at a flat from 19:30 to 7:30 of the next day, and at an office from 9:10 to 17:50."""
    rows = []
    for user in range(N_USERS):
        for day in range(4):
            date = pd.Timestamp("2023-05-08") + pd.Timedelta(days=day)
            flat, office = (f"f{user % 4}", FLATS[user % 4]), (f"o{user % 2}", 41.90 + 0.03 * (user % 2))
            stays = ((9, 10, 17, 50, office), (19, 30, 31, 30, flat))
            for h, m, until_h, until_m, (place, latitude) in stays:
                first = date + pd.Timedelta(hours=h, minutes=m)
                last = date + pd.Timedelta(hours=until_h, minutes=until_m)
                rows.append((f"p{user:02d}", first, last, place, latitude, 12.4))
    return pd.DataFrame(rows, columns=["who", begin, end, "place_id", "lat", "lon"]).assign(**columns)


def minutes(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(duration_min=(table.pop("left") - table["time"]).dt.total_seconds() / 60)


NAMES = ["Caffè Nero", unicodedata.normalize("NFD", "Caffè Nero")]
# From 9:10 to 17:50, hours 9 to 17; from 19:30 to 7:30, hours 19 to 7: on each of four days.
N_PRESENCES = N_USERS * 4 * (9 + 13)

# Codes of findings with their counts; or users, places, events, what rows lack, and these codes; perhaps options.
Expected = tuple[int, int, int, dict[str, int], dict[str, int]]
N_SIXTH = N_ROWS // 6
VISITS = 12, 6, N_PRESENCES, {}, {"visits": N_USERS * 8}
READ: dict[str, tuple[Any, ...]] = {
    "nothing odd": (base, {}),
    **{
        f"{word!r} as a user": (with_column("who", every(6, word)), (12, 6, 250, {"user": N_SIXTH}, {}))
        for word in ("NULL", "nan", "None", "\\N", "<NA>", "N/A", "", "NaN")
    },
    "NULL with a blank": (with_column("who", every(6, "NULL ")), (12, 6, 250, {"user": N_SIXTH}, {"blanks": 0})),
    "'NULL' as a place": (with_column("spot", every(6, "NULL")), (12, 6, 250, {"place": N_SIXTH}, {})),
    "'NULL' as a place on a grid": (with_column("spot", every(6, "NULL")), (12, 100, N_ROWS, {}, {}), GRID),
    "'NULL' as a time": (
        with_column("when", lambda times: every(6, "NULL")(times.astype(str))),
        (12, 6, 250, {"time": N_SIXTH}, {}),
    ),
    "'NULL' as a position": (at(6, "NULL", "NULL"), (12, 6, 250, {"position": N_SIXTH}, {})),
    **{
        f"{point} as a position": (at(6, *point), (12, 6, 250, {"position": N_SIXTH}, {}))
        for point in ((0, 0), (91, 181), (-1, -1), (999, 999), (9999, 9999), (-999, -999), (-99999, -99999), (500, 500))
    },
    "91 beside a longitude": (with_column("lat", every(6, 91.0)), (12, 6, 250, {"position": N_SIXTH}, {})),
    "a position, user and place unknown": (
        lambda: at(6, 0, 0)().assign(who=lambda t: every(6, "")(t["who"]), spot=lambda t: every(3, "None")(t["spot"])),
        (12, 6, 200, {"position": N_SIXTH, "place": N_SIXTH}, {}),
    ),
    "ids with decimals": (
        with_column("spot", lambda ids: 2000 + ids.str[1:].astype(int).astype(float)),
        {"decimal-ids": 6},
    ),
    "ids with and without decimals": (
        with_column("spot", lambda ids: [f"200{p[1:]}.0" if k % 2 else f"200{p[1:]}" for k, p in enumerate(ids)]),
        {"decimal-ids": 6},
    ),
    "round ids as R writes them": (
        with_column("who", lambda ids: ["1e+05" if u == "p00" else f"1000{u[1:]}" for u in ids]),
        {"decimal-ids": 1},
    ),
    "codes with an e": (with_column("who", lambda ids: "9e" + ids.str[1:]), {}),
    "long ids": (with_column("who", lambda ids: 906000000000000001 + 7 * ids.str[1:].astype(int)), {}),
    "long ids of a spreadsheet": (
        with_column("who", lambda ids: 906000000000000000 + 1000 * ids.str[1:].astype(int)),
        {"rounded-ids": 12},
    ),
    "two Unicode forms": (
        with_column(
            "spot", lambda ids: ids.mask(ids == "s0", NAMES[0]).mask((ids == "s0") & (ids.index % 2 == 1), NAMES[1])
        ),
        {"unicode-forms": 1},
    ),
    "1,024 weeks early, some rows": (early(0.02, 1024), {"gps-rollover": 6}),
    "1,024 weeks early, a receiver": (early(0, 1024, "p03"), {"gps-rollover": 25}),
    "2,048 weeks early": (early(0.08, 2048), {"gps-rollover": 25}),
    "1,000 weeks early": (early(0.08, 1000), {"years-between": 25}),
    "counts of seven digits": (
        with_column("when", lambda times: [f"{t.timestamp() + k % 977:.6e}" for k, t in enumerate(times)]),
        {"rounded-times": N_ROWS},
    ),
    "counts of minutes": (with_column("when", lambda times: times.to_numpy("datetime64[s]").astype(int)), {}),
    "an id of two places": (
        lambda: base().assign(lat=lambda t: t["lat"] + 0.1 * ((t["spot"] == "s0") & (t.index % 3 == 0))),
        {"places-apart": 10},
    ),
    **{
        f"visits from {begin} to {end}": (lambda begin=begin, end=end: visits(begin, end), VISITS)
        for (begin, end) in (
            ("arrival_time", "departure_time"),
            ("started_at", "finished_at"),
            ("check_in", "check_out"),
            ("begin", "end"),
            ("start", "end"),
        )
    },
    "visits with a duration": (lambda: minutes(visits("time", "left")), VISITS),
    **{
        f"visits with {name}": (
            lambda name=name, unit=unit: minutes(visits("time", "left")).assign(
                **{name: lambda t: t.pop("duration_min") * 60 / unit}
            ),
            VISITS,
        )
        for (name, unit) in (("duration_s", 1), ("dwell_seconds", 1), ("StayHours", 3600), ("visit_duration_m", 60))
    },
    "a duration without a unit": (
        lambda: minutes(visits("time", "left")).rename(columns={"duration_min": "duration"}),
        (12, 6, N_USERS * 8, {}, {}),
    ),
    "visits that are told": (lambda: visits("came", "went"), VISITS, {"columns": {"time": "came", "end_time": "went"}}),
    "visits without a user": (
        lambda: visits("begin", "end").assign(who=lambda t: t["who"].replace("p00", "NULL")),
        (11, 6, N_PRESENCES * 11 // 12, {"user": 8}, {"visits": N_USERS * 8 - 8}),
    ),
    "visits that go on": (
        lambda: visits("begin", "end").assign(end=lambda t: t["end"].where(t["who"] != "p00")),
        (12, 6, N_PRESENCES * 11 // 12 + 8, {}, {"visits": N_USERS * 8}),
    ),
    "trips whose end has half a position": (
        lambda: visits("started_at", "ended_at", end_lat=41.8),
        (12, 6, N_USERS * 8, {}, {}),
    ),
    "trips whose end has no position": (
        lambda: visits("started_at", "ended_at").rename(columns={"lat": "start_lat", "lon": "start_lng"}),
        (12, 6, N_USERS * 8, {}, {}),
    ),
}

SCIENTIFIC = with_column("who", lambda ids: [f"9.06{u[1:]}E+17" for u in ids])
REFUSED: dict[str, tuple[Callable[[], pd.DataFrame], str]] = {
    "ids in scientific notation": (SCIENTIFIC, "lost-digits"),
    "few digits in scientific notation": (
        with_column("who", lambda ids: [f"1.{u[1:]}E+05" for u in ids]),
        "lost-digits",
    ),
    "with a decimal comma": (with_column("who", lambda ids: [f"9,06{u[1:]}e+17" for u in ids]), "lost-digits"),
    "a place in scientific notation": (with_column("spot", every(50, "1.2E+15")), "lost-digits"),
    "visits the other way round": (
        lambda: visits("begin", "end").rename(columns={"begin": "end", "end": "begin"}),
        "backward-visits",
    ),
    "most users unknown": (with_column("who", lambda ids: ids.where(ids < "p04", "None")), "few-rows"),
}


@pytest.mark.parametrize("form", ["csv", "parquet", "frame"])
@pytest.mark.parametrize("case", READ)
def test_what_is_read(tmp_path, case, form):
    make, expected, *options = READ[case]
    expected = (12, 6, N_ROWS, {}, expected) if isinstance(expected, dict) else expected
    n_users, n_places, n_events, n_without, found = expected
    traces, report = read_checkins(
        _source(make(), form, tmp_path), **ZONE, **({"min_users_per_place": 1} | dict(*options))
    )
    assert (traces.n_users, traces.n_places, traces.n_events) == (n_users, n_places, n_events)
    assert dict(report.n_without) == n_without
    if form != "csv":  # numbers with decimals are numbers there
        found = {code: n for code, n in found.items() if code != "decimal-ids"} if "with decimals" in case else found
    assert codes(report) == found


@pytest.mark.parametrize("form", ["csv", "frame"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path, case, form):
    make, code = REFUSED[case]
    with pytest.raises(InputError) as error:
        read_checkins(_source(make(), form, tmp_path), **ZONE, discretization=every_place())
    assert code in codes_of(error.value)


def test_numbers_that_cannot_hold_all_digits_are_refused(tmp_path):
    table = base().assign(who=lambda t: 9.06e17 + t["who"].str[1:].astype(int))
    for source in (table, _source(table, "parquet", tmp_path), table.astype({"who": "float32"})):
        with pytest.raises(InputError) as error:
            read_checkins(source, **ZONE, discretization=every_place())
        assert codes_of(error.value) == ["lost-digits"]


def test_visits_with_odd_ends_are_told():
    table = visits("begin", "end")
    table.loc[0, "end"] = table.loc[0, "begin"] - pd.Timedelta(hours=2)
    table.loc[1, "end"] += pd.Timedelta(days=40)
    table.loc[2:3, "end"] = pd.NaT
    _, report = read_checkins(table, **ZONE, min_users_per_place=1)
    (note,) = [note for note in report.notes if getattr(note, "code", "") == "visits"]
    assert [int(part.split()[0]) for part in note.split("; ")[1:]] == [2, 1, 1]


def test_spreadsheets_hold_fifteen_digits(tmp_path):
    table = base().rename(columns={"when": "time", "spot": "place"})
    for first, has_lost in ((906_000_000_000_000_000, True), (906_000_000, False)):
        table.assign(who=first + table["who"].str[1:].astype(int)).to_excel(tmp_path / "table.xlsx", index=False)
        if has_lost:
            with pytest.raises(InputError) as error:
                read_checkins(tmp_path / "table.xlsx", **ZONE, min_users_per_place=1)
            assert codes_of(error.value) == ["lost-digits"]
        else:
            traces, report = read_checkins(tmp_path / "table.xlsx", **ZONE, min_users_per_place=1)
            assert (traces.user_ids[:2].tolist(), codes(report)) == ([first, first + 1], {})


def test_stations_are_found_by_ids_with_and_without_decimals(tmp_path):
    table = base().assign(antenna_id=lambda t: 2000.0 + t["spot"].str[1:].astype(int))
    towers = table.groupby("antenna_id")[["lat", "lon"]].first().reset_index().astype({"antenna_id": int})
    towers.to_csv(tmp_path / "towers.csv", index=False)
    calls = _source(table[["who", "when", "antenna_id"]], "csv", tmp_path)
    traces, _ = read_checkins(calls, **ZONE, stations=tmp_path / "towers.csv", min_users_per_place=1)
    assert (traces.n_users, traces.places.ids.tolist()) == (12, [2004, 2005, 2000, 2001, 2002, 2003])


def test_a_city_at_zero_has_no_unknown_positions():
    """A simulated city may have a corner at 0, 0; then other rows are near it."""
    table = base().assign(lat=lambda t: t["lat"] - t["lat"].min(), lon=lambda t: 3 * (t["lon"] - t["lon"].min()))
    _, report = read_checkins(table, time_zone="Africa/Accra", min_users_per_place=1)
    assert report.n_without == {}


def test_an_empty_file_among_others_is_named(tmp_path):
    for name in ("a.csv", "c.csv"):
        base().to_csv(tmp_path / name, index=False)
    (tmp_path / "b.csv").touch()
    columns = {"user": "who", "time": "when", "place": "spot"}
    _, report = read_checkins(tmp_path, columns, **ZONE, min_users_per_place=1)
    assert (report.n_rows, codes(report)) == (2 * N_ROWS, {"empty-files": 0})
    with pytest.raises(InputError, match="an empty file"):
        read_checkins([tmp_path / "b.csv", tmp_path / "b.csv"], columns)


# The folder of files

LEFT_OUT_USERS = (24, 8, 1920, {"user": 192}, {})
FOLDER: dict[str, tuple[dict[str, Any], Expected | str]] = {
    "base.csv": ({}, (24, 8, 1920, {}, {})),
    "c01_cdr_float_ids.csv": ({"stations": "c01_towers.csv"}, (24, 8, 1920, {}, {"decimal-ids": 8})),
    "c03_recycled_station.csv": ({}, (24, 8, 1920, {}, {"places-apart": 72})),
    "c16_ais.csv": ({"grid": (52.4, 52.7, 13.2, 13.6, 10, 10)}, (24, 5, 1920, {"position": 20}, {})),
    "c23d_half_merged_sci.csv": ({}, "lost-digits"),
    "c28_brightkite.txt": (
        {"columns": {"user": 0, "time": 1, "latitude": 2, "longitude": 3, "place": 4}},
        (24, 8, 1920, {"position": 20}, {}),
    ),
    "c36_epoch_sci6.csv": ({}, (24, 8, 1920, {}, {"rounded-times": 1920})),
    "c48_gps_rollover.csv": ({}, (24, 8, 1920, {}, {"gps-rollover": 30})),
    "c72_visits.csv": ({}, (24, 8, 472, {}, {"visits": 472})),
    "c78_unicode_places.csv": ({}, (24, 8, 1920, {}, {"blanks": 0})),
    "c83_user_NULL.csv": ({}, LEFT_OUT_USERS),
    "c83_user_nan.csv": ({}, LEFT_OUT_USERS),
    "c88_two_devices.csv": ({}, (24, 8, 2000, {}, {})),
    "c21_tdrive": (
        {"columns": {"user": 0, "time": 1, "latitude": 3, "longitude": 2}, "grid": (52.4, 52.7, 13.2, 13.6, 10, 10)},
        (24, 5, 1920, {}, {"empty-files": 0}),
    ),
    **dict.fromkeys(
        [
            "c04_positionfixes_wkt.csv",
            "c06_Timeline.json",
            "c07b_e7.csv",
            "c10_track.gpx",
            "c12_trajgan.csv",
            "c13.dyna",
            "c26_geohash.csv",
            "c29_points.geojson",
            "c31_porto.csv",
            "c61_split_time.csv",
            "c70_citibike_new.csv",
            "c74_latlon_one_column.csv",
        ],
        ({}, "missing-columns"),
    ),
}


@pytest.mark.parametrize("name", FOLDER)
def test_files_of_the_folder(data_folder, name):
    folder = data_folder("tables-from-the-field")
    given, expected = FOLDER[name]
    options: dict[str, Any] = {key: folder / value if key == "stations" else value for key, value in given.items()}
    if isinstance(expected, str):
        with pytest.raises(InputError) as error:
            read_checkins(folder / name, time_zone="Europe/Berlin", **options)
        assert codes_of(error.value) == [expected]
        assert not [digits for digits in ("52.5", "13.4", "525", "134") if digits in str(error.value)]
        return
    traces, report = read_checkins(folder / name, time_zone="Europe/Berlin", **options)
    assert (traces.n_users, traces.n_places, report.n_rows, report.n_without, codes(report)) == expected


def _source(table: pd.DataFrame, form: str, folder: Any) -> Any:
    names = {"spot": "place"} | ({"when": "time"} if "when" in table else {})
    table = table.rename(columns=names)
    if form == "frame":
        return table
    if form == "csv":
        table.to_csv(folder / "table.csv", index=False)
    else:
        # A column of several types is none in Parquet.
        texts = {str(name): table[name].astype(str) for name in table if table[name].dtype == object}
        table.assign(**texts).to_parquet(folder / "table.parquet")
    return folder / f"table.{form}"
