"""A general table of check-ins or GPS fixes: CSV, TSV or Parquet, each plain or gzipped, or a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, import_checkins
from ppmtf_jax.datasets.discretization import Discretization, MakesTraces, discretize
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet, Imported
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.tables import OPTIONAL_COLUMNS, Source, paths_of, read_columns
from ppmtf_jax.datasets.times import parse_times
from ppmtf_jax.errors import InputError, Problem

NEEDED_COLUMNS = ("user", "time", "latitude", "longitude")
DEFAULT_DISCRETIZATION = Discretization()


def read_checkins(
    source: Source,
    columns: Mapping[str, str | int] | None = None,
    *,
    time_zone: str | None = None,
    discretization: MakesTraces = DEFAULT_DISCRETIZATION,
) -> tuple[Traces, ImportReport]:
    """Read a table of check-ins or GPS fixes, in any order of its rows.

    Parameters
    ----------
    source : path, list of paths, or DataFrame
        CSV (commas) or TSV (TABs), UTF-8 or else Latin-1, or Parquet; each plain or gzipped. Content decides, not the
        name of the file.
    columns : mapping
        Name in the file of user, time, latitude, longitude (degrees) and, where there are, place, category, trace.
        Whole numbers are positions from 0 in files without a header line. Default: the same names as here.
    time_zone : str
        IANA name of the zone whose wall clock the instants follow. Needed where times have no offset: they are taken
        as its wall-clock times. Times with an offset, and epoch seconds, are converted to it; without it, to UTC.
    discretization : Discretization or SpacedTraces
        Without a place column it must have `GridPlaces`.

    Returns
    -------
    (Traces, ImportReport)
        User and place ids keep their values, as integers where all of them are written as plain integers ("007" is
        not). With a trace column, the traces are numbered anew from 0 for each user.

    Raises
    ------
    InputError
        Listing every problem of the table at once. Rows are counted from 1, without the header.

    Notes
    -----
    Times are ISO 8601 ("2012-04-03T18:00:00", "2012-04-03 18:00", with "Z" or "-04:00" or nothing) or seconds since
    1970-01-01 UTC. Fractions of a second are cut off. Wall-clock times that exist twice when summer time ends are taken
    as the first of the two; those that do not exist when it begins stay at the instant they name and count, for
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
    ...     discretization=Discretization(grid),
    ... )
    >>> traces.instant.tolist(), traces.user_ids.tolist(), report.n_transitions
    ([8, 9, 9], [7, 8], 1)
    """
    subject = "check-ins" if isinstance(source, pd.DataFrame) else ", ".join(map(str, paths_of(source)))
    table, problems = read_columns(source, _checked_columns(columns), optional=columns is None, subject=subject)
    times = parse_times(table.pop("time"), time_zone)
    table["local_time"], table["utc_time"] = times.local, times.utc
    return discretize(
        table,
        discretization,
        time_zone=time_zone or "UTC",
        subject=subject,
        problems=[*problems, *times.problems],
        notes=times.notes,
    )


@dataclass(frozen=True)
class CheckinsSettings(CheckinTableSettings):
    """Import of a general table of check-ins.

    Parameters
    ----------
    path : Path
        CSV, TSV or Parquet file, plain or gzipped.
    columns : mapping, optional
        Which column is user, time, latitude, longitude and, where there are, place, category, trace: a name, or a
        number from 0 in a file without a header. By default columns of these names.
    time_zone : str, optional
        Whose clocks the slots follow, such as Asia/Tokyo. Needed where times have no offset; otherwise by default UTC.
    """

    columns: dict | None = None


def _import(settings: CheckinsSettings, seed: int, progress: bool) -> Imported:
    def read() -> tuple[Traces, ImportReport]:
        formatting = {"time_zone": settings.time_zone, "discretization": settings.discretization()}
        return read_checkins(settings.path, settings.columns, **formatting)

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


def _checked_columns(columns: Mapping[str, str | int] | None) -> Mapping[str, str | int]:
    known = (*NEEDED_COLUMNS, *OPTIONAL_COLUMNS)
    if columns is None:
        return {name: name for name in known}
    unknown = [name for name in columns if name not in known]
    missing = [name for name in NEEDED_COLUMNS if name not in columns]
    problems = []
    if unknown:
        expected = f"a mapping from {', '.join(NEEDED_COLUMNS)} and perhaps {', '.join(OPTIONAL_COLUMNS)}"
        problems.append(Problem(expected, f"also {', '.join(map(repr, unknown))}"))
    if missing:
        problems.append(Problem(f"the columns of {', '.join(NEEDED_COLUMNS)}", f"none for {', '.join(missing)}"))
    if len({type(column) for column in columns.values()}) > 1:
        problems.append(Problem("all columns by name or all by position", f"{dict(columns)}"))
    if problems:
        raise InputError("columns", problems)
    return columns
