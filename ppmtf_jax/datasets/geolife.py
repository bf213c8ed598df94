"""The GPS trajectories of Geolife, mostly in Beijing: a folder of PLT files, or an archive of it."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import Findings
from ppmtf_jax.datasets.database import database
from ppmtf_jax.datasets.registry import FixTableSettings, data_set, reader_settings
from ppmtf_jax.datasets.stays import StayPoints
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.times import local_times
from ppmtf_jax.datasets.to_traces import MakesTraces, discretize
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, quoted, quoted_error, raise_any

TIME_ZONE = "Asia/Shanghai"
BEIJING = (39.7, 40.2, 116.1, 116.7, 16, 16)
"""South, north, west, east, rows, columns."""
FIRST_LINE, N_HEADER_LINES = b"Geolife trajectory", 6
PLT_NAME = re.compile(r"(?:.*/)?[^/]*/Trajectory/[^/.][^/]*\.(?i:plt)", re.DOTALL)
# Files are small, so that it would be slow to parse each of them alone.
BYTES_AT_A_TIME = 2**23
UNREADABLE = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, zipfile.BadZipFile)
# The fixes of the table `plt`, which has the lines after the header of each file; `damaged` is a line that is no fix.
# Leap seconds, 60 and 61, are those of the next minute, and blanks around a line are gone by then.
FIXES = f"""
    WITH numbered AS (SELECT file, string_split(content, chr(10)) AS lines FROM plt),
    lines AS (SELECT file, generate_subscripts(lines, 1) AS number, unnest(lines) AS line FROM numbered),
    fields AS (SELECT *, string_split(line, ',') AS f FROM lines WHERE line <> ''),
    parsed AS (
        SELECT *, f[6] || ' ' || f[7] AS time, TRY_CAST(f[1] AS DOUBLE) AS latitude,
            TRY_CAST(f[2] AS DOUBLE) AS longitude,
            epoch(TRY_CAST(time[:17] || '00' AS TIMESTAMP))::BIGINT AS minute_s, TRY_CAST(time[18:] AS BIGINT) AS second
        FROM fields
    )
    SELECT file, number + {N_HEADER_LINES} AS number, latitude, longitude, minute_s + second AS utc_s,
        CASE WHEN NOT coalesce(
            len(f) = 7 AND isfinite(latitude) AND isfinite(longitude)
            AND NOT contains(f[1] || f[2], '_') AND NOT contains(f[1] || f[2], '+-')
            AND time GLOB '{"-".join(["[0-9]" * 4, "[0-9]" * 2, "[0-9]" * 2])} {":".join(["[0-9]" * 2] * 3)}'
            AND time[12:13] < '24' AND second < 62 AND utc_s IS NOT NULL, false
        ) THEN line END AS damaged
    FROM parsed
"""


@dataclass(frozen=True)
class GeolifeSettings(FixTableSettings):
    """Import of the GPS trajectories of Geolife.

    Parameters
    ----------
    path : Path
        Folder with Data/USER/Trajectory/*.plt, or a tar or zip archive of it.
    n_places : int
        Not for GPS fixes: they have no places but the cells of the grid.
    grid : tuple of six numbers
        South, north, west, east, rows, columns: the cells of a regular grid over this box, in degrees, are the places.
        Default: 39.7,40.2,116.1,116.7,16,16, most of Beijing.
    time_zone : str, optional
        Time zone whose clocks the slots follow. Default: Asia/Shanghai, the zone of Beijing.
    drop_bad_rows : bool
        Leave out fixes years away from all others (the clock of the receiver was not set), instead of an error.
    """

    n_places: int | None = None
    grid: tuple[int | float, ...] | None = BEIJING
    time_zone: str | None = TIME_ZONE
    drop_bad_rows: bool = True

    def _own_problems(self) -> list[Problem]:
        if self.grid is not None and self.n_places is None:
            return super()._own_problems()
        found = "none" if self.grid is None else f"n_places {self.n_places}"
        way_out = "Choose the rows and columns of the grid"
        return [Problem("a grid, since GPS fixes have no place ids", found, way_out=way_out)]


@data_set(
    "geolife",
    GeolifeSettings,
    "GPS trajectories of Geolife, mostly in Beijing.",
    'geolife "Geolife Trajectories 1.3.zip" --step 600',
)
def read_geolife(
    folder_or_archive: str | os.PathLike[str],
    settings: GeolifeSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    stay_points: StayPoints | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read the PLT files of Geolife, Data/<user>/Trajectory/*.plt, of all users together.

    A PLT file has six header lines, then a line for each GPS fix: latitude, longitude, 0, altitude in feet (not read),
    days since 1899-12-30, date, time. Times are GMT. Files are recordings, not trips, so a user's files are one trace
    unless `max_gap_s` divides it. Raises `InputError`: there is no PLT file, or some cannot be read; or there are lines
    that are no fixes, counted by file.

    Parameters
    ----------
    folder_or_archive : path
        Folder somewhere below which the files are, or a tar (plain, gzipped or the like) or zip archive of it.
    settings, discretization, stay_points
        As for `read_checkins`. The places must be `GridPlaces`, because fixes have no place ids. Fixes outside of the
        box, such as trips abroad and errors of the receiver, are left out and counted.
    **named
        Settings by name, see `GeolifeSettings`: `time_zone`, `drop_bad_rows`, `grid`, `step_s` and others.

    Returns
    -------
    (Traces, ImportReport)
        User ids are the names of their folders, such as "007". The report counts fixes that are nowhere on the globe.

    References
    ----------
    .. [1] Zheng, Xie, Ma: GeoLife: A Collaborative Social Networking Service among User, Location and Trajectory, IEEE
       Data Engineering Bulletin 33(2), 2010.

    Examples
    --------
    >>> traces, report = read_geolife("Geolife Trajectories 1.3.zip")  # doctest: +SKIP
    """
    settings, options = reader_settings(
        GeolifeSettings, folder_or_archive, settings, named, discretization, stay_points
    )
    subject = str(folder_or_archive)
    fixes, notes = _read_fixes(Path(folder_or_archive), subject)
    local = local_times(pd.DatetimeIndex(fixes["utc_time"]), options["time_zone"])
    table = pd.DataFrame(fixes | {"local_time": local}, copy=False)  # there may be tens of millions
    return discretize(table, subject=subject, findings=Findings(notes=notes), **options)


def _plt_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each PLT file below a folder or in an archive, one at a time."""
    if not path.exists():
        raise InputError(str(path), [Problem("a folder or an archive to read", "no such file")])
    try:
        if path.is_dir():
            for file in sorted(path.absolute().rglob("*")):
                if PLT_NAME.fullmatch(file.as_posix()) and file.is_file():
                    yield file.as_posix(), file.read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in filter(PLT_NAME.fullmatch, archive.namelist()):
                    yield name, archive.read(name)
        else:
            with tarfile.open(path, "r|*") as archive:
                for member in archive:
                    stream = archive.extractfile(member) if PLT_NAME.fullmatch(member.name) else None
                    if stream is not None:
                        yield member.name, stream.read()
    except UNREADABLE as error:
        expected = "a folder with PLT files, or a tar or zip archive of it"
        raise InputError(str(path), [Problem(expected, quoted_error(error))]) from None


def _read_fixes(path: Path, subject: str) -> tuple[dict[str, Any], list[str]]:
    """User, latitude, longitude and utc_time of all fixes on the globe, and a note on those that are not.

    An `InputError` tells of files without a header, of lines that are no fixes, and that there are no fixes.
    """
    names, headless, contents, notes = list[str](), list[str](), list[str](), list[str]()
    n_bytes, n_batches = 0, 1
    with database() as connection:

        def put() -> None:
            file = pa.array(range(len(names) - len(contents), len(names)), pa.int32())
            connection.register("plt", pa.table({"file": file, "content": pa.array(contents, pa.string())}))
            connection.execute(f"INSERT INTO fixes {FIXES}")
            contents.clear()

        types = "file INTEGER, number BIGINT, latitude DOUBLE, longitude DOUBLE, utc_s BIGINT, damaged VARCHAR"
        connection.execute(f"CREATE TABLE fixes ({types})")
        for name, content in _plt_files(path):
            *header, lines = content.split(b"\n", N_HEADER_LINES)
            names.append("/".join(name.split("/")[-3::2]))
            is_headed = len(header) == N_HEADER_LINES and header[0].removeprefix(BOM_UTF8).startswith(FIRST_LINE)
            headless += [] if is_headed else [names[-1]]
            contents.append("\n".join(map(str.strip, lines.decode("latin-1").split("\n"))) if is_headed else "")
            n_bytes += len(content)
            if n_bytes > BYTES_AT_A_TIME * n_batches:
                n_batches += 1
                put()
        put()
        problems = []
        if headless:
            expected = f"{N_HEADER_LINES} header lines in every PLT file, the first '{FIRST_LINE.decode()}'"
            others = f"others in {len(headless)} of {len(names)} files"
            problems.append(Problem(expected, others, examples=tuple(headless[:N_EXAMPLES])))
        first = "min(number), arg_min(damaged, number) FROM fixes WHERE damaged IS NOT NULL"
        query = f"SELECT file, count(*) AS n, {first} GROUP BY file ORDER BY n DESC, file"
        worst = connection.execute(query).fetchall()
        if worst:
            examples = tuple(
                f"{names[k]} has {n} (line {number} {quoted(text, is_position=True)})"
                for k, n, number, text in worst[:N_EXAMPLES]
            )
            expected = "fixes of 7 fields: latitude, longitude, 0, altitude, days, date, time as 02:53:04"
            found, n_rows = f"others in {len(worst)} files", sum(n for _, n, *_ in worst)
            way_out = "Take these lines out, or get the files again"
            problems.append(Problem(expected, found, n_rows, examples, way_out))
        if not names:
            problems = [Problem("files <user>/Trajectory/<start>.plt in a folder or an archive", "none")]
        elif not problems and not connection.execute("SELECT count(*) FROM fixes").fetchall()[0][0]:
            problems = [Problem("at least one fix", f"none in {len(names)} files")]
        raise_any(subject, problems)
        nowhere = "abs(latitude) > 90 OR abs(longitude) > 180"
        lost = connection.execute(f"SELECT file, count(*) FROM fixes WHERE {nowhere} GROUP BY 1 ORDER BY 1").fetchall()
        if lost:
            where = [f"{n} in {names[k]}" for k, n in lost[:N_EXAMPLES]] + ["..."] * (len(lost) > N_EXAMPLES)
            notes = [f"fixes left out that are nowhere on the globe: {sum(n for _, n in lost):,} ({', '.join(where)})"]
        query = f"SELECT file, latitude, longitude, utc_s FROM fixes WHERE NOT ({nowhere}) ORDER BY file, number"
        fixes = connection.sql(query).fetchnumpy()
    user_of_file, user_ids = pd.factorize(np.array([name.split("/")[0] for name in names], object))
    fixes["user"] = pd.Categorical.from_codes(user_of_file[fixes.pop("file")], pd.Index(user_ids))
    return fixes | {"utc_time": fixes.pop("utc_s").view("datetime64[s]")}, notes
