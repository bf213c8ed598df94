"""A general table of check-ins, GPS fixes or trips: a file, several files, a folder, or a table in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pandas.api.types import is_numeric_dtype

from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import Findings
from ppmtf_jax.datasets.columns import END_COLUMNS, NEEDED_COLUMNS, OPTIONAL_COLUMNS, UNITS_S, plain
from ppmtf_jax.datasets.database import END_ROWS, database
from ppmtf_jax.datasets.ids import code_rows, read_columns, tidy_ids
from ppmtf_jax.datasets.parts import Part, Rows
from ppmtf_jax.datasets.places import PLACE_COLUMNS
from ppmtf_jax.datasets.read import Source, parts_of
from ppmtf_jax.datasets.registry import FixTableSettings, data_set, reader_settings
from ppmtf_jax.datasets.stays import StayPoints
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.text_files import paths_of
from ppmtf_jax.datasets.times import parse_times, read_times, read_walls
from ppmtf_jax.datasets.to_traces import MakesTraces, to_traces
from ppmtf_jax.errors import InputError, Message, Problem, Setting, quoted, raise_any

# One column may give both a place and its category, or both a user and their only trace.
COUNT = "SELECT count(*) FROM clocked"
MAY_SHARE = ({"place", "category"}, {"user", "trace"})
# SQL of the id of a row's station: 7.0 of one table is 7 of the other.
STATION_ID = r"regexp_replace(nfc_normalize(trim(CAST(rows.place AS VARCHAR))), '^(\d+)\.0+$', '\1')"
STARTS = "start|pickup|origin|from|pulocation"
TIME_OF_DAY = r"\s*\d{1,2}(?::\d\d|\s*[ap]\.?m|h)"


@dataclass(frozen=True)
class CheckinsSettings(FixTableSettings):
    """Import of a general table of check-ins.

    Parameters
    ----------
    path : Path
        CSV or the like, JSON, Excel or Parquet, plain, gzipped or zipped; or a folder of such files.
    columns : mapping, optional
        Which column is user, time, latitude, longitude and, if present, place, category, trace, date, or the end_time,
        end_latitude, end_longitude, end_place of trips: a name, or a number from 0 in a file without a header. By
        default, columns are found by common names.
    time_zone : str, optional
        Time zone whose clocks slots follow, such as Asia/Tokyo. Needed if times have no offset; else UTC by default.
    times_in : str, optional
        Time zone of the times without an offset, such as UTC, if it is another zone.
    time_format : str, optional
        How times are written, such as "%d/%m/%Y %H:%M", or day-first, month-first, unix or gps. By default, it is
        inferred from the whole column.
    stations : Path, optional
        Table of places with their latitude and longitude, for check-ins that name only a place, such as a cell tower.
    """

    columns: dict | None = None
    times_in: str | None = None
    time_format: str | None = None
    stations: Path | None = None

    def _own_problems(self) -> list[Problem]:
        return super()._own_problems() + ([] if self.times_in is None else zone_problems(self.times_in))


@data_set(
    "checkins",
    CheckinsSettings,
    "Any table of check-ins, GPS fixes or trips.",
    "checkins my.csv --columns user=uid,time=when,latitude=lat,longitude=lon --time-zone Europe/Berlin",
)
def read_checkins(
    source: Source,
    columns: Mapping[str, str | int] | None = None,
    settings: CheckinsSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    stay_points: StayPoints | None = None,
    stations: Source | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read a table of check-ins, GPS fixes or trips, in any order of its rows.

    Parameters
    ----------
    source : path, list of paths, or table
        Text whose fields are separated by commas, semicolons, TABs or pipes, in UTF-8, UTF-16 or else Latin-1; JSON (a
        list of objects, or one on each line); a spreadsheet; or Parquet and GeoParquet. Each file is plain, gzipped or
        the only file in a zip archive; the content decides, not the name. All files of a folder are read. Or a table of
        pandas, GeoPandas, Polars or PyArrow.
    columns : mapping
        Name in the source of user, time, latitude, longitude (degrees) and, if present, place, category, trace,
        and date (where the day is apart from the time). Whole numbers are positions from 0 in files without a header
        line. Columns that are not named are found by their common names, such as "lat", "venue_id" or "Breitengrad",
        and the report says which column was taken for what. With end_time and end_latitude, end_longitude (or
        end_place), each row is a trip, whose start and end are two check-ins. With end_time alone, or a duration whose
        name says its unit (duration_min), each row is a visit: a check-in at every instant from time to end_time.
    settings : CheckinsSettings
        All settings as one object.
    discretization : Discretization or SpacedTraces
        How check-ins become events, in place of the settings n_places, grid, step_s and so on.
    stay_points : StayPoints
        Rows are GPS fixes: take the stays among them as check-ins.
    stations : path or table
        Places with their latitude, longitude and perhaps category, for check-ins that only name a place.
    **named
        Settings by name, see `CheckinsSettings`: `time_zone`, `times_in`, `time_format`, `drop_bad_rows`, `n_places`,
        `grid`, `step_s` and others. Times without an offset are taken as wall-clock times of `time_zone`, or of
        `times_in`; times with an offset, and counts since 1970, are converted to `time_zone`, by default UTC.

    Returns
    -------
    (Traces, ImportReport)
        User and place ids keep their values, without blanks around them. If a text file writes all ids of a column as
        plain integers ("007" is not one), they become integers. With a trace column, the traces are renumbered from 0
        for each user.

    Raises `InputError`, which lists every problem of the table at once. Rows are numbered as in the file, where the
    header is row 1; rows of a DataFrame are named by its index.

    Notes
    -----
    Times are ISO 8601 ("2012-04-03T18:00:00", "2012-04-03 18:00", with "Z" or "-04:00" or nothing), dates such as
    "13.4.2012" or "April 13, 2012" with a time of 24 or 12 hours, or a count of seconds, milliseconds, microseconds or
    nanoseconds since 1970-01-01 UTC. The other rows tell whether "3/4/2012" is in March or April; if no row tells it,
    an error asks for `time_format`. Fractions of a second are cut off. Wall-clock times that exist twice when summer
    time ends are taken as the first of the two. Wall-clock times that do not exist when summer time begins are kept as
    written, and their true time is the moment of the change. The report counts both.

    Some published tables write local times with an offset of +00:00, which is wrong; leave `time_zone` out for them.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {
    ...         "who": [7, 7, 8],
    ...         "when": ["2012-04-03T12:10:00Z", "2012-04-03T13:20:00Z", "2012-04-03T13:20:00Z"],
    ...         "lat": [40.71, 40.75, 40.71],
    ...         "lon": [-74.00, -73.99, -74.00],
    ...     }
    ... )
    >>> traces, report = read_checkins(
    ...     table,
    ...     {"user": "who", "time": "when"},
    ...     time_zone="America/New_York",
    ...     grid=(40.5, 40.9, -74.3, -73.7, 10, 10),
    ...     min_users_per_place=1,
    ... )
    >>> traces.instant.tolist(), traces.user_ids.tolist(), report.n_transitions
    ([8, 9, 9], [7, 8], 1)
    """
    is_file = isinstance(source, (str, os.PathLike, Sequence)) and not isinstance(source, pd.DataFrame)
    subject = ", ".join(map(str, paths_of(source))) if is_file else "check-ins"
    if columns is not None and settings is None:
        named = {"columns": dict(columns), **named}
    settings, options = reader_settings(CheckinsSettings, subject, settings, named, discretization, stay_points)
    stations = settings.stations if stations is None else stations
    told, find = _checked_columns(settings.columns if columns is None else columns, stations is not None)
    parts = parts_of(source, told, find, '"', subject)
    places = None if stations is None else _stations(stations, parts[0])
    with database() as connection:
        rows = Rows(connection, parts)
        first, found, are_visits = _look(rows, told, places)
        ids = tidy_ids(rows)
        notes, skipped, problems = [*rows.notes, *ids.notes, *found], [*rows.problems], [*ids.problems]
        walls = read_walls(rows, settings.time_format)
        code_rows(rows, ids, walls.columns, walls.table)
        if stations is not None:
            expected = f"a station for every place, in {_name(stations)}"
            skipped += rows.problem("has_no_station", expected, "none", values="place", table="clocked")
            connection.execute("DELETE FROM clocked WHERE has_no_station")
        times_in, name = settings.times_in, parts[0].names.get("time", "")
        # The name of a column may say that its times without an offset are in UTC.
        is_utc = times_in is None and re.search("utc|gmt", name, re.IGNORECASE) and not is_numeric_dtype(first.dtype)
        if is_utc and not parse_times(first, "UTC", times_in="UTC").problems:
            times_in, notes = "UTC", [*notes, f"times of column {name!r} are taken as UTC, as its name says"]
        times = read_times(rows, walls, settings.time_zone, times_in)
        options["time_zone"] = settings.time_zone or times_in or "UTC"
        problems += times.problems
        resolution_s = options["discretization"].resolution_s
        if times.dates_only and resolution_s < DAY_S:
            way_out = Message(
                "Name the column of the time of day beside that of the date, such as ",
                Setting("columns", {"date": "day", "time": "clock"}),
                "; or count in days, with ",
                Setting("step_s", DAY_S),
                " and ",
                Setting("slot_s", DAY_S),
            )
            expected, (n_rows,) = f"times of day, for instants {resolution_s} s apart", rows.one(COUNT)
            problems.append(Problem(expected, "dates alone, or midnight everywhere", n_rows, way_out=way_out))
        # GPS time looks like counts since 1970 that are ten years too small.
        if times.is_count and settings.time_format is None and re.search("gps", name, re.IGNORECASE):
            gps, unix = (Setting("time_format", word) for word in ("gps", "unix"))
            way_out = Message("Tell which it is: ", gps, " counts from 6 January 1980, ", unix, " from 1970")
            found = f"numbers in the column {name!r}, which may be GPS time"
            problems.append(Problem("times since 1970", found, way_out=way_out))
        findings = Findings(problems, [*notes, *times.notes], skipped, times.unparsed)
        return to_traces(rows, subject=subject, findings=findings, are_visits=are_visits, **options)


def _checked_columns(
    columns: Mapping[str, str | int] | None, has_stations: bool
) -> tuple[Mapping[str, str | int], Sequence[str]]:
    """The columns that the caller names, and the roles of the columns to find by common names."""
    needed = ("user", "time", "place") if has_stations else NEEDED_COLUMNS
    ends = [name for name in END_COLUMNS if not has_stations or name not in ("end_latitude", "end_longitude")]
    optional = (*(name for name in OPTIONAL_COLUMNS if name not in needed), *ends)
    known = (*needed, *optional)
    if not columns:
        return {}, known
    unknown = [name for name in columns if name not in known]
    missing = [name for name in needed if name not in columns]
    by_position = [isinstance(column, int) for column in columns.values()]
    problems = []
    if unknown:
        expected = f"a mapping from {', '.join(needed)} and perhaps {', '.join(optional)}"
        problems.append(Problem(expected, f"also {', '.join(map(repr, unknown))}"))
    if missing and any(by_position):
        problems.append(Problem(f"the columns of {', '.join(needed)}", f"none for {', '.join(missing)}"))
    if any(by_position) and not all(by_position):
        problems.append(Problem("all columns by name or all by position", f"{dict(columns)}"))
    for column in dict.fromkeys(columns.values()):
        shared = [name for name, other in columns.items() if other == column]
        if len(shared) > 1 and set(shared) not in MAY_SHARE:
            problems.append(Problem("different columns", f"{column!r} for {' and '.join(shared)}"))
    raise_any("columns", problems)
    return columns, [name for name in known if name not in columns] if missing else []


def _look(
    rows: Rows, told: Mapping[str, str | int], stations: pd.DataFrame | None
) -> tuple[pd.Series, list[str], bool]:
    """Let `raw` have the two ends of a trip or visit as two rows, coordinates of stations, and times with their dates.

    The table's first time (if any), notes, and whether rows are visits.
    """
    types, called, notes = rows.parts[0].types, rows.parts[0].names, list[str]()
    ends = _ends(types, told, stations is not None)
    has_end = any(name in types for name in END_COLUMNS if name != "end_time")
    # Positions may be those of the starts of trips, as their names say.
    named_start = any(re.match(STARTS, plain(called.get(name, ""))) for name in ("latitude", "place"))
    are_visits = not (ends or has_end or named_start) and not {"end_time", "duration"}.isdisjoint(types)
    if ends:
        notes = ["each row is a trip: its start and its end are two check-ins"]
    elif are_visits and "end_time" in types:
        ends = {"end_time": "time"}
    elif any(name in types for name in (*END_COLUMNS, "duration")):
        for part in rows.parts:
            part.notes = [note for note in part.notes if " is taken for end_" not in note]
        ignored = ", ".join(quoted(called.get(name, name)) for name in (*END_COLUMNS, "duration") if name in types)
        notes = [] if are_visits else [f"not used, since the position of the end is not known: {ignored}"]
    first = rows.connection.sql("SELECT time FROM source WHERE time IS NOT NULL LIMIT 1").df()["time"]
    has_date = "date" not in types or not first.astype("str").str.match(TIME_OF_DAY, case=False).all()
    if has_date and "date" in types:
        notes.append(f"column {called.get('date', 'date')!r} is not used: the times have a date")
    if ends:
        try:
            both = [pa.schema({"time": types[name]}) for name in ("time", "end_time")]
            pa.unify_schemas(both, promote_options="permissive")
        except pa.ArrowException:
            kinds = f"{types['time']} and {types['end_time']}"
            raise InputError("columns", [Problem("beginnings and ends of one type", kinds)]) from None
    beginnings = {name: f'"{name}"' for name in types if name not in (*END_COLUMNS, "duration", "date")}
    finishes = beginnings | {own: f'"{name}"' for name, own in ends.items()}
    if not has_date:
        date = "strftime(date, '%Y-%m-%d')" if pa.types.is_timestamp(types["date"]) else "trim(CAST(date AS VARCHAR))"
        for columns in (beginnings, finishes):
            columns["time"] = f"{date} || ' ' || trim(CAST({columns['time']} AS VARCHAR))"
    if are_visits and "duration" in types:
        beginnings["duration_s"] = _seconds(called.get("duration", ""))
    query = " UNION ALL BY NAME ".join(
        f"SELECT coalesce(position, rowid) + {first_row} AS row, "
        + ", ".join(f'{value} AS "{name}"' for name, value in columns.items())
        + " FROM source"
        for first_row, columns in [(0, beginnings), *([(END_ROWS, finishes)] if ends else [])]
    )
    if stations is not None:
        names = [name for name in PLACE_COLUMNS[1:] if name in stations]
        rows.connection.register("found_stations", stations[[*PLACE_COLUMNS[:1], *names]])
        rows.connection.execute("CREATE OR REPLACE TABLE stations AS SELECT * FROM found_stations")
        columns = [name for name in (*beginnings, "row") if name not in names] + [f"stations.{name}" for name in names]
        of_rows = ", ".join(f"rows.{name}" if "." not in name else name for name in columns)
        query = (
            f"SELECT {of_rows}, stations.place IS NULL AND rows.place IS NOT NULL AS has_no_station "
            f"FROM ({query}) AS rows LEFT JOIN stations ON stations.place = {STATION_ID}"
        )
    rows.look(query)
    return first, notes, are_visits


def _seconds(name: str) -> str:
    """SQL of durations in seconds, from a column whose name says the unit."""
    unit = max((unit for unit in UNITS_S if plain(name).endswith(unit)), key=len, default="s")
    return f"nullif({UNITS_S[unit]} * TRY_CAST(trim(CAST(duration AS VARCHAR)) AS DOUBLE), 'nan'::DOUBLE)"


def _ends(types: Mapping[str, Any], told: Mapping[str, str | int], has_stations: bool) -> dict[str, str]:
    """The columns of the ends of trips, with those of the starts; empty for other tables."""
    ends = [name for name in END_COLUMNS if name in types]
    needed = ["end_time", *([] if has_stations else ["end_latitude", "end_longitude"])]
    needed += ["end_place"] if has_stations or "place" in types else []
    missing = [name for name in needed if name not in ends]
    if missing and any(name in told for name in ends if name != "end_time"):
        raise InputError("columns", [Problem(f"{', '.join(needed)} for the ends of trips", f"no {missing[0]}")])
    return {} if missing else {name: name.removeprefix("end_") for name in ends}


def _stations(source: Source, checkins: Part) -> pd.DataFrame:
    """The table of stations: places as texts, latitude, longitude and perhaps category."""
    name = _name(source)
    stations, problems, *_ = read_columns(source, {}, find=PLACE_COLUMNS, subject=name)
    for columns, what in ((checkins.types, "the check-ins"), (stations, name)):
        if "place" not in columns:
            way_out = "Its name may be place_id, station_id, tower_id or cell_id"
            problems.append(Problem(f"a column of places in {what}", "none", way_out=way_out))
    raise_any(name, problems)
    # 7.0 of one table is 7 of the other.
    texts = stations["place"].astype("str").str.strip().str.normalize("NFC")
    known = texts.str.replace(r"^(\d+)\.0+$", r"\1", regex=True)
    if known.duplicated().any():
        twice = known[known.duplicated()].unique()
        raise InputError(name, [Problem("each place once", "several rows", len(twice), tuple(map(quoted, twice[:5])))])
    return stations.assign(place=known)


def _name(source: Source) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else "stations"
