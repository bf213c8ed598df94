"""The GPS trajectories of Geolife, mostly in Beijing: a folder of PLT files, or an archive of it."""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute as arrow
from pyarrow import csv as arrow_csv

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import FixTableSettings, importer, reader_settings
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.stay_points import StayPoints
from ppmtf_jax.datasets.times import local_times
from ppmtf_jax.datasets.to_traces import MakesTraces, discretize
from ppmtf_jax.errors import N_EXAMPLES, InputError, Problem

TIME_ZONE = "Asia/Shanghai"
BEIJING = (39.7, 40.2, 116.1, 116.7, 16, 16)
"""South, north, west, east, rows, columns."""
FIELDS = ("latitude", "longitude", "zero", "altitude", "days", "date", "time")
FIRST_LINE = b"Geolife trajectory"
N_HEADER_LINES = 6
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
TIME_LENGTH = len("2008-10-23 02:53:04")
# Files are small, and parsing each of them alone would be slow.
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
        Whose clocks the slots follow. Default: Asia/Shanghai, Beijing's.
    drop_bad_rows : bool
        Leave out fixes years away from all others, of receivers whose clock was not set, in place of an error.
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
    unless `max_gap_s` divides it.

    Parameters
    ----------
    folder_or_archive : path
        Folder somewhere below which the files are, or a tar (plain, gzipped or the like) or zip archive of it.
    settings : GeolifeSettings
        All settings as one object.
    discretization : Discretization or SpacedTraces
        How fixes become events, in place of the settings grid, step_s and so on. With `GridPlaces`, since fixes have no
        place ids. Fixes outside of the box, such as trips abroad and errors of the receiver, are left out and counted.
    stay_points : StayPoints
        Take the stays among a user's fixes as check-ins, in place of all fixes.
    **named
        Settings by name, see `GeolifeSettings`: `time_zone`, `drop_bad_rows`, `grid`, `step_s` and others.

    Returns
    -------
    (Traces, ImportReport)
        User ids are the names of their folders, such as "007". The report notes fixes that are nowhere on the globe.

    Raises
    ------
    InputError
        There is no PLT file, or some cannot be read; lines that are no fixes, counted by file.

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
    subject, fixes = str(folder_or_archive), _Fixes.of(_plt_files(Path(folder_or_archive)))
    problems = fixes.problems()
    if not fixes.n_files:
        problems = [Problem("files <user>/Trajectory/<start>.plt in a folder or an archive", "none")]
    elif not problems and not sum(len(part[0]) for part in fixes.parts):
        problems = [Problem("at least one fix", f"none in {fixes.n_files} files")]
    if problems:
        raise InputError(subject, problems)
    user, latitude, longitude, seconds = (np.concatenate(column) for column in zip(*fixes.parts, strict=True))
    utc = seconds.view("datetime64[s]")
    table = pd.DataFrame(
        {
            "user": pd.Categorical.from_codes(user, pd.Index(list(fixes.users))),
            "latitude": latitude,
            "longitude": longitude,
            "local_time": local_times(pd.DatetimeIndex(utc), options["time_zone"]),
            "utc_time": utc,
        },
        copy=False,  # there may be tens of millions
    )
    return discretize(table, subject=subject, findings=Findings(notes=fixes.notes()), **options)


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
        members = _in_folder(path) if path.is_dir() else _in_zip(path) if zipfile.is_zipfile(path) else _in_tar(path)
        for name, content in members:
            user, _, file = name.split("/")[-3:]
            yield _PltFile(f"{user}/{file}", user, content)
    except UNREADABLE as error:
        if isinstance(error, InputError):
            raise
        expected = "a folder with PLT files, or a tar or zip archive of it"
        raise InputError(str(path), [Problem(expected, str(error) or type(error).__name__)]) from error


def _is_plt(name: str) -> bool:
    """Whether a file is <user>/Trajectory/<start>.plt; archives made on a Mac have a hidden one beside each."""
    parts = name.split("/")[-3:]
    in_place = len(parts) == 3 and parts[1] == "Trajectory"
    return in_place and parts[2].lower().endswith(".plt") and not parts[2].startswith(".")


def _in_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.absolute().rglob("*")):
        if _is_plt(file.as_posix()) and file.is_file():
            yield file.as_posix(), file.read_bytes()


def _in_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            stream = archive.extractfile(member) if _is_plt(member.name) else None
            if stream is not None:
                yield member.name, stream.read()


def _in_zip(path: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if _is_plt(name):
                yield name, archive.read(name)


@dataclass
class _Fixes:
    """What was read so far, in parts (user, latitude, longitude, seconds), and what was wrong with it."""

    n_files: int = 0
    users: dict[str, int] = field(default_factory=dict)
    parts: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    headless: list[str] = field(default_factory=list)
    damaged: dict[str, tuple[int, str]] = field(default_factory=dict)
    nowhere: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[_PltFile]) -> _Fixes:
        found, waiting, n_bytes = cls(), [], 0
        for file in files:
            found.n_files += 1
            header, lines = _split_header(file.content)
            if not header.startswith(FIRST_LINE):
                found.headless.append(file.name)
                continue
            waiting.append(file._replace(content=lines))
            n_bytes += len(lines)
            if n_bytes > BYTES_AT_A_TIME:
                found.add(waiting)
                waiting, n_bytes = [], 0
        found.add(waiting)
        return found

    def add(self, files: list[_PltFile]) -> None:
        """Parse some files together."""
        n_lines = np.array([file.content.count(b"\n") for file in files], np.int64)
        content = b"".join(file.content for file in files)
        fixes = _parse(content, int(n_lines.sum()))
        file_of = np.repeat(np.arange(len(files)), n_lines)
        if fixes is None:
            fixes, is_fix, is_blank = _parse_with_damage(content)
            self._note_damage(files, file_of, ~is_fix & ~is_blank, content)
            fixes, file_of = tuple(column[is_fix] for column in fixes), file_of[is_fix]
        latitude, longitude, utc_s = fixes
        nowhere = (np.abs(latitude) > 90) | (np.abs(longitude) > 180)
        for file, n in zip(*np.unique(file_of[nowhere], return_counts=True), strict=True):
            self.nowhere[files[file].name] = int(n)
        code = np.array([self.users.setdefault(file.user, len(self.users)) for file in files], np.int32)
        self.parts.append(tuple(column[~nowhere] for column in (code[file_of], latitude, longitude, utc_s)))

    def _note_damage(self, files: list[_PltFile], file_of: np.ndarray, bad: np.ndarray, content: bytes) -> None:
        lines = content.split(b"\n")
        first_of_file = np.searchsorted(file_of, np.arange(len(files)))
        for file in np.unique(file_of[bad]).tolist():
            rows = np.flatnonzero(bad & (file_of == file))
            number = rows[0] - first_of_file[file] + 1 + N_HEADER_LINES
            text = lines[rows[0]].decode("latin-1").strip()[:80]
            self.damaged[files[file].name] = len(rows), f"line {number} {text!r}"

    def problems(self) -> list[Problem]:
        """Files without a header, and lines that are no fixes."""
        problems = []
        if self.headless:
            expected = f"{N_HEADER_LINES} header lines in every PLT file, the first '{FIRST_LINE.decode()}'"
            others = f"others in {len(self.headless)} of {self.n_files} files"
            problems.append(Problem(expected, others, examples=tuple(self.headless[:N_EXAMPLES])))
        if self.damaged:
            worst = sorted(self.damaged.items(), key=lambda item: -item[1][0])[:N_EXAMPLES]
            examples = tuple(f"{name} has {n} ({example})" for name, (n, example) in worst)
            expected = "fixes of 7 fields: latitude, longitude, 0, altitude, days, date, time as 02:53:04"
            others, n_lines = f"others in {len(self.damaged)} files", sum(n for n, _ in self.damaged.values())
            way_out = "Take these lines out, or get the files again"
            problems.append(Problem(expected, others, n_lines, examples, way_out))
        return problems

    def notes(self) -> list[str]:
        """A note on fixes that are nowhere on the globe."""
        if not self.nowhere:
            return []
        where = ", ".join(f"{n} in {name}" for name, n in list(self.nowhere.items())[:N_EXAMPLES])
        more = ", ..." if len(self.nowhere) > N_EXAMPLES else ""
        return [f"fixes left out that are nowhere on the globe: {sum(self.nowhere.values()):,} ({where}{more})"]


def _split_header(content: bytes) -> tuple[bytes, bytes]:
    """The header of a PLT file, empty where it is too short, and the other lines, each with an end."""
    *header, rest = content.split(b"\n", N_HEADER_LINES)
    if len(header) < N_HEADER_LINES:
        return b"", b""
    rest = rest.rstrip()
    return header[0].removeprefix(b"\xef\xbb\xbf"), rest + b"\n" if rest else b""


def _parse(content: bytes, n_lines: int) -> tuple[np.ndarray, ...] | None:
    """Latitude, longitude and seconds since 1970 of lines that all are fixes; None where one is not."""
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


def _parse_with_damage(content: bytes) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """As `_parse` of lines that may be anything; which of them are fixes, and which are blank."""
    line = pd.Series(content.decode("latin-1").split("\n")[:-1], dtype=object).str.strip()
    whole = (line.str.count(",") == len(FIELDS) - 1).to_numpy(bool)
    fields = line.where(whole, "," * (len(FIELDS) - 1)).str.split(",", expand=True).set_axis(FIELDS, axis=1)
    latitude, longitude = (pd.to_numeric(fields[name], errors="coerce").to_numpy(np.float64) for name in FIELDS[:2])
    time = fields["date"] + " " + fields["time"]
    parsed = pd.to_datetime(time.where(time.str.len() == TIME_LENGTH), format=TIME_FORMAT, errors="coerce")
    is_fix = whole & np.isfinite(latitude) & np.isfinite(longitude) & parsed.notna().to_numpy()
    seconds = parsed.to_numpy("datetime64[s]").astype(np.int64)
    return (latitude, longitude, seconds), is_fix, (line == "").to_numpy(bool)
