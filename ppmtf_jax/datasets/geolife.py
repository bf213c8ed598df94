"""The GPS trajectories of Geolife, mostly in Beijing: a folder of PLT files, or an archive of it."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as arrow
from pyarrow import csv as arrow_csv

from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import FixTableSettings, importer, reader_settings
from ppmtf_jax.datasets.clocks import local_times
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.stays import StayPoints
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.to_traces import MakesTraces, discretize
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem, quoted, quoted_error, raise_any

TIME_ZONE = "Asia/Shanghai"
BEIJING = (39.7, 40.2, 116.1, 116.7, 16, 16)
"""South, north, west, east, rows, columns."""
FIELDS = ("latitude", "longitude", "zero", "altitude", "days", "date", "time")
FIRST_LINE = b"Geolife trajectory"
N_HEADER_LINES = 6
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
TIME_LENGTH = len("2008-10-23 02:53:04")
PLT_NAME = re.compile(r"(?:.*/)?[^/]*/Trajectory/[^/.][^/]*\.(?i:plt)", re.DOTALL)
BYTES_AT_A_TIME = 2**23
UNREADABLE = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, zipfile.BadZipFile)


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
    fixes, notes = _read_fixes(_plt_files(Path(folder_or_archive)), subject)
    table = pd.DataFrame(
        fixes | {"local_time": local_times(pd.DatetimeIndex(fixes["utc_time"]), options["time_zone"])},
        copy=False,  # there may be tens of millions
    )
    return discretize(table, subject=subject, findings=Findings(notes=notes), **options)


DATA_SETS.register(
    DataSet(
        "geolife",
        "GPS trajectories of Geolife, mostly in Beijing.",
        GeolifeSettings,
        importer(read_geolife),
        'geolife "Geolife Trajectories 1.3.zip" --step 600',
    )
)


class _PltFile(NamedTuple):
    name: str
    user: str
    content: bytes


def _plt_files(path: Path) -> Iterator[_PltFile]:
    """Each PLT file below a folder or in an archive, one at a time."""
    if not path.exists():
        raise InputError(str(path), [Problem("a folder or an archive to read", "no such file")])
    try:
        for name, content in _members(path):
            user, _, file = name.split("/")[-3:]
            yield _PltFile(f"{user}/{file}", user, content)
    except UNREADABLE as error:
        if isinstance(error, InputError):
            raise
        expected = "a folder with PLT files, or a tar or zip archive of it"
        raise InputError(str(path), [Problem(expected, quoted_error(error))]) from None


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the PLT files; archives made on a Mac have a hidden file beside each."""
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


def _batches(files: Iterable[_PltFile]) -> Iterator[list[_PltFile]]:
    """Files to parse together: they are small, and parsing each of them alone would be slow."""
    batch, n_bytes = [], 0
    for file in files:
        batch.append(file)
        n_bytes += len(file.content)
        if n_bytes > BYTES_AT_A_TIME:
            yield batch
            batch, n_bytes = [], 0
    yield batch


def _read_fixes(files: Iterable[_PltFile], subject: str) -> tuple[dict[str, Any], list[str]]:
    """User, latitude, longitude and utc_time of all fixes on the globe, and a note on those that are not.

    An `InputError` tells of files without a header, of lines that are no fixes, and that there are no fixes.
    """
    names: list[str] = []
    users: list[str] = []
    headless: list[str] = []
    damaged, parts = [], []
    for batch in _batches(files):
        contents = []
        for file in batch:
            *header, lines = file.content.split(b"\n", N_HEADER_LINES)
            is_headed = len(header) == N_HEADER_LINES and header[0].removeprefix(BOM_UTF8).startswith(FIRST_LINE)
            if not is_headed:
                headless.append(file.name)
            contents.append(lines.rstrip() + b"\n" if is_headed and lines.strip() else b"")
        content, n_lines = b"".join(contents), [each.count(b"\n") for each in contents]
        file_of = np.repeat(np.arange(len(names), len(names) + len(batch), dtype=np.int32), n_lines)
        names += [file.name for file in batch]
        users += [file.user for file in batch]
        fixes = _parse(content, len(file_of))
        if fixes is None:
            fixes, text = _parse_with_damage(content)
            is_fix = np.isfinite(fixes[0])
            number = rank_in_run(file_of) + 1 + N_HEADER_LINES
            damaged.append(pd.DataFrame({"file": file_of, "number": number, "text": text})[~is_fix & (text != "")])
            file_of, *fixes = (column[is_fix] for column in (file_of, *fixes))
        parts.append((file_of, *fixes))
    file, latitude, longitude, seconds = (np.concatenate(column) for column in zip(*parts, strict=True))
    problems = _problems(names, headless, pd.concat(damaged) if damaged else None)
    if not names:
        problems = [Problem("files <user>/Trajectory/<start>.plt in a folder or an archive", "none")]
    elif not problems and not len(file):
        problems = [Problem("at least one fix", f"none in {len(names)} files")]
    raise_any(subject, problems)
    nowhere, notes = (np.abs(latitude) > 90) | (np.abs(longitude) > 180), []
    if nowhere.any():
        lost, n_lost = np.unique(file[nowhere], return_counts=True)
        where = ", ".join(f"{n} in {names[k]}" for k, n in list(zip(lost, n_lost, strict=True))[:N_EXAMPLES])
        more = ", ..." if len(lost) > N_EXAMPLES else ""
        notes = [f"fixes left out that are nowhere on the globe: {nowhere.sum():,} ({where}{more})"]
        file, latitude, longitude, seconds = (column[~nowhere] for column in (file, latitude, longitude, seconds))
    user_of_file, user_ids = pd.factorize(np.array(users, object))
    user = pd.Categorical.from_codes(user_of_file[file], pd.Index(user_ids))
    utc = seconds.view("datetime64[s]")
    return {"user": user, "latitude": latitude, "longitude": longitude, "utc_time": utc}, notes


def _problems(names: list[str], headless: list[str], damaged: pd.DataFrame | None) -> list[Problem]:
    """Files without a header, and lines that are no fixes: text, file and number of each."""
    problems = []
    if headless:
        expected = f"{N_HEADER_LINES} header lines in every PLT file, the first '{FIRST_LINE.decode()}'"
        others = f"others in {len(headless)} of {len(names)} files"
        problems.append(Problem(expected, others, examples=tuple(headless[:N_EXAMPLES])))
    if damaged is not None and len(damaged):
        by_file = damaged.groupby("file").agg(n=("text", "size"), number=("number", "first"), text=("text", "first"))
        worst = by_file.sort_values("n", ascending=False, kind="stable")[:N_EXAMPLES].itertuples()
        examples = tuple(
            f"{names[k]} has {n} (line {number} {quoted(text, is_position=True)})" for k, n, number, text in worst
        )
        expected = "fixes of 7 fields: latitude, longitude, 0, altitude, days, date, time as 02:53:04"
        way_out = "Take these lines out, or get the files again"
        problems.append(Problem(expected, f"others in {len(by_file)} files", len(damaged), examples, way_out))
    return problems


def _parse(content: bytes, n_lines: int) -> tuple[np.ndarray, ...] | None:
    """Latitude, longitude and seconds since 1970 of lines of fixes; None if one line is not a fix."""
    if not n_lines:
        return np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
    types = {"latitude": pa.float64(), "longitude": pa.float64(), "date": pa.string(), "time": pa.string()}
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            arrow_csv.ReadOptions(column_names=FIELDS, encoding="latin-1", block_size=2 * BYTES_AT_A_TIME),
            arrow_csv.ParseOptions(quote_char=False),
            arrow_csv.ConvertOptions(column_types=types, include_columns=list(types)),
        )
        time = arrow.call_function("binary_join_element_wise", [table["date"], table["time"], " "])
        is_whole = (arrow.call_function("binary_length", [time]).to_numpy() == TIME_LENGTH).all()
        seconds = time.cast(pa.timestamp("s")).to_numpy().astype(np.int64)
    except pa.ArrowInvalid:
        return None
    latitude, longitude = (table[name].to_numpy() for name in ("latitude", "longitude"))
    good = len(table) == n_lines and is_whole and np.isfinite(latitude).all() and np.isfinite(longitude).all()
    return (latitude, longitude, seconds) if good else None


def _parse_with_damage(content: bytes) -> tuple[tuple[np.ndarray, ...], pd.Series]:
    """Like `_parse`, for lines of any kind; also returns the lines.

    The latitude of a line that is not a fix is NaN.
    """
    line = pd.Series(content.decode("latin-1").split("\n")[:-1], dtype=object).str.strip()
    whole = (line.str.count(",") == len(FIELDS) - 1).to_numpy(bool)
    fields = line.where(whole, "," * (len(FIELDS) - 1)).str.split(",", expand=True).set_axis(FIELDS, axis=1)
    latitude, longitude = (pd.to_numeric(fields[name], errors="coerce").to_numpy(np.float64) for name in FIELDS[:2])
    time = fields["date"] + " " + fields["time"]
    parsed = pd.to_datetime(time.where(time.str.len() == TIME_LENGTH), format=TIME_FORMAT, errors="coerce")
    is_fix = whole & np.isfinite(latitude) & np.isfinite(longitude) & parsed.notna().to_numpy()
    seconds = parsed.to_numpy("datetime64[s]").astype(np.int64)
    return (np.where(is_fix, latitude, np.nan), longitude, seconds), line
