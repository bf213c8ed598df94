"""A general table of check-ins or GPS fixes: text with fields or Parquet, plain or compressed, or a table in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ppmtf_jax.data.time_grid import DAY_S, zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import FixTableSettings, import_checkins
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.column_names import NEEDED_COLUMNS, OPTIONAL_COLUMNS
from ppmtf_jax.datasets.discretization import Discretization, MakesTraces
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet, Imported
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.stay_points import StayPoints
from ppmtf_jax.datasets.tables import Source, paths_of, read_columns
from ppmtf_jax.datasets.times import Times, parse_times
from ppmtf_jax.datasets.to_traces import discretize
from ppmtf_jax.errors import InputError, Problem

DEFAULT_DISCRETIZATION = Discretization()
# A label may well stand for a place, and a trace for its user.
MAY_SHARE = ({"place", "category"}, {"user", "trace"})
TIME_OF_DAY = r"\s*\d{1,2}(?::\d\d|\s*[ap]\.?m|h)"


def read_checkins(
    source: Source,
    columns: Mapping[str, str | int] | None = None,
    *,
    time_zone: str | None = None,
    times_in: str | None = None,
    time_format: str | None = None,
    discretization: MakesTraces = DEFAULT_DISCRETIZATION,
    drop_bad_rows: bool = False,
    stay_points: StayPoints | None = None,
) -> tuple[Traces, ImportReport]:
    """Read a table of check-ins or GPS fixes, in any order of its rows.

    Parameters
    ----------
    source : path, list of paths, or table
        Text whose fields are separated by commas, semicolons, TABs or pipes, in UTF-8, UTF-16 or else Latin-1; or
        Parquet. Each plain, gzipped or alone in a zip archive; content decides, not the name of the file. Or a table of
        pandas, Polars or PyArrow.
    columns : mapping
        Name in the file of user, time, latitude, longitude (degrees) and, where there are, place, category, trace, and
        date (where the day is apart from the time). Whole numbers are positions from 0 in files without a header line.
        Needed ones that are not told, and without a mapping all, are found by their common names, such as "lat" or
        "venue_id", and the report says which column was taken for what.
    time_zone : str
        IANA name of the zone whose wall clock the instants follow. Needed where times have no offset: they are taken
        as its wall-clock times. Times with an offset, and epoch times, are converted to it; without it, to UTC.
    times_in : str
        IANA name of the zone by whose clock times without an offset are written, where it is another: "UTC" converts
        them from UTC to `time_zone`. By default UTC where the name of the column says so, as "utc_time".
    time_format : str
        How times are written, as of `datetime.strptime`. Default: what the whole column can mean.
    discretization : Discretization or SpacedTraces
        Without a place column it must have `GridPlaces`.
    drop_bad_rows : bool
        Leave out rows that are no check-ins, and say in the report which, in place of an error.
    stay_points : StayPoints, optional
        Rows are fixes of a receiver: take the stays among them as check-ins.

    Returns
    -------
    (Traces, ImportReport)
        User and place ids keep their values, as integers where all of them are written as plain integers ("007" is
        not). With a trace column, the traces are numbered anew from 0 for each user.

    Raises
    ------
    InputError
        Listing every problem of the table at once. Rows are counted as in the file, the header being row 1; those of a
        DataFrame go by its index.

    Notes
    -----
    Times are ISO 8601 ("2012-04-03T18:00:00", "2012-04-03 18:00", with "Z" or "-04:00" or nothing), dates such as
    "13.4.2012" or "April 13, 2012" with a time of 24 or 12 hours, or a count of seconds, milliseconds, microseconds or
    nanoseconds since 1970-01-01 UTC. Whether "3/4/2012" is in March or April is told by the other rows; where none
    does, it is asked. Fractions of a second are cut off. Wall-clock times that exist twice when summer time ends are
    taken as the first of the two; those that do not exist when it begins stay at the instant they name and count, for
    the order and for gaps, as the moment of the change. The report says how many there were.

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
    >>> from ppmtf_jax.datasets.places import GridPlaces
    >>> grid = GridPlaces(40.5, 40.9, -74.3, -73.7, n_rows=10, n_columns=10)
    >>> traces, report = read_checkins(
    ...     table,
    ...     {"user": "who", "time": "when", "latitude": "lat", "longitude": "lon"},
    ...     time_zone="America/New_York",
    ...     discretization=Discretization(grid, min_users_per_place=1),
    ... )
    >>> traces.instant.tolist(), traces.user_ids.tolist(), report.n_transitions
    ([8, 9, 9], [7, 8], 1)
    """
    is_file = isinstance(source, (str, os.PathLike, Sequence)) and not isinstance(source, pd.DataFrame)
    subject = ", ".join(map(str, paths_of(source))) if is_file else "check-ins"
    named, find = _checked_columns(columns)
    table, skipped, notes, names = read_columns(source, named, find=find, subject=subject)
    written = _with_date(table, names, notes)
    if times_in is None and _is_utc_by_name(written, names.get("time", "")):
        times_in, notes = "UTC", [*notes, f"times of column {names['time']!r} are taken as UTC, as its name says"]
    times = parse_times(written, time_zone, times_in=times_in, time_format=time_format)
    table["local_time"], table["utc_time"] = times.local, times.utc
    return discretize(
        table,
        discretization,
        time_zone=time_zone or times_in or "UTC",
        subject=subject,
        findings=Findings(
            [*times.problems, *_date_problems(times, discretization)], [*notes, *times.notes], skipped, times.unparsed
        ),
        drop_bad_rows=drop_bad_rows,
        stay_points=stay_points,
    )


@dataclass(frozen=True)
class CheckinsSettings(FixTableSettings):
    """Import of a general table of check-ins.

    Parameters
    ----------
    path : Path
        CSV or the like, or Parquet, plain, gzipped or zipped.
    columns : mapping, optional
        Which column is user, time, latitude, longitude and, where there are, place, category, trace, date: a name, or
        a number from 0 in a file without a header. By default found by common names.
    time_zone : str, optional
        Whose clocks the slots follow, such as Asia/Tokyo. Needed where times have no offset; otherwise by default UTC.
    times_in : str, optional
        Zone by whose clock times without an offset are written, such as UTC, where it is another.
    time_format : str, optional
        How times are written, such as "%d/%m/%Y %H:%M". By default found from the whole column.
    """

    columns: dict | None = None
    times_in: str | None = None
    time_format: str | None = None

    def _own_problems(self) -> list[Problem]:
        return super()._own_problems() + ([] if self.times_in is None else zone_problems(self.times_in))


def _import(settings: CheckinsSettings, seed: int, progress: bool) -> Imported:
    def read() -> tuple[Traces, ImportReport]:
        return read_checkins(
            settings.path,
            settings.columns,
            time_zone=settings.time_zone,
            times_in=settings.times_in,
            time_format=settings.time_format,
            discretization=settings.discretization(),
            drop_bad_rows=settings.drop_bad_rows,
            stay_points=settings.stay_points(),
        )

    return import_checkins(read, settings, seed, progress)


DATA_SETS.register(
    DataSet(
        "checkins",
        "Any table of check-ins or GPS fixes.",
        CheckinsSettings,
        _import,
        "checkins my.csv --columns user=uid,time=when,latitude=lat,longitude=lon --time-zone Europe/Berlin",
    )
)


def _checked_columns(columns: Mapping[str, str | int] | None) -> tuple[Mapping[str, str | int], Sequence[str]]:
    """The columns that the caller names, and those to look for."""
    known = (*NEEDED_COLUMNS, *OPTIONAL_COLUMNS)
    if not columns:
        return {}, known
    unknown = [name for name in columns if name not in known]
    missing = [name for name in NEEDED_COLUMNS if name not in columns]
    by_position = [isinstance(column, int) for column in columns.values()]
    problems = []
    if unknown:
        expected = f"a mapping from {', '.join(NEEDED_COLUMNS)} and perhaps {', '.join(OPTIONAL_COLUMNS)}"
        problems.append(Problem(expected, f"also {', '.join(map(repr, unknown))}"))
    if missing and any(by_position):
        problems.append(Problem(f"the columns of {', '.join(NEEDED_COLUMNS)}", f"none for {', '.join(missing)}"))
    if any(by_position) and not all(by_position):
        problems.append(Problem("all columns by name or all by position", f"{dict(columns)}"))
    for column in dict.fromkeys(columns.values()):
        shared = [name for name, other in columns.items() if other == column]
        if len(shared) > 1 and set(shared) not in MAY_SHARE:
            problems.append(Problem("another column for each", f"{column!r} for {' and '.join(shared)}"))
    if problems:
        raise InputError("columns", problems)
    return columns, [name for name in known if name not in columns] if missing else []


def _with_date(table: pd.DataFrame, names: Mapping[str, str], notes: list[str]) -> pd.Series:
    """The column of times, with the day of the column date before it where the times have none."""
    time = table.pop("time")
    if "date" not in table:
        return time
    date, text = table.pop("date"), time.astype("str")
    first = text.dropna().iloc[:1]
    if not first.str.match(TIME_OF_DAY, case=False).all():
        notes.append(f"column {names.get('date', 'date')!r} is not used: the times have a date")
        return time
    if pd.api.types.is_datetime64_any_dtype(date.dtype):
        date = date.dt.strftime("%Y-%m-%d")
    return date.astype("str").str.strip() + " " + text.str.strip()


def _is_utc_by_name(time: pd.Series, name: str) -> bool:
    """Whether the name of a column of times without an offset says that they are UTC."""
    if not re.search("utc|gmt", name, re.IGNORECASE) or pd.api.types.is_numeric_dtype(time.dtype):
        return False
    return not parse_times(time.dropna().iloc[:1], "UTC", times_in="UTC").problems


def _date_problems(times: Times, discretization: MakesTraces) -> list[Problem]:
    if not times.dates_only or discretization.resolution_s >= DAY_S:
        return []
    expected = f"times of day, for instants {discretization.resolution_s} s apart"
    way_out = (
        "Name the column of the time of day beside that of the date, such as columns={'date': 'day', 'time': 'clock'}; "
        f"or count in days, with step_s={DAY_S} and slot_s={DAY_S}"
    )
    return [Problem(expected, "dates alone, or midnight everywhere", len(times.local), way_out=way_out)]
