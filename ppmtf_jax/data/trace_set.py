"""The trace-set folder, written and read in pieces.

A trace set is a folder with `traces.parquet` (user, trace, instant, place), `places.parquet` (place, latitude,
longitude, category), `time_grid.json` and, where there are friends, `friendships.parquet` (user, friend). Ids keep the
user's own values. `traces.parquet` is a file, or a folder of files such as `part-00000.parquet`, which many programs
write and read as one table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from ppmtf_jax.data.events import EVENT_COLUMNS, PIECE_EVENTS, pieces_of
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.files import PathLike, write_text
from ppmtf_jax.runtime.folders import Marker, read_marker
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, fingerprint

TRACES_FILE, PLACES_FILE, GRID_FILE = "traces.parquet", "places.parquet", "time_grid.json"
FRIENDS_FILE = "friendships.parquet"
TRACE_SET, SYNTHETIC = "trace set", "synthetic traces"
OF_NOBODY = "of_nobody"
"""Key in the marker of a folder: whether the users were invented."""
# At least this: a number, or the position of a text.
BYTES_A_VALUE = 8
EVENT_BYTES = len(EVENT_COLUMNS) * np.dtype(np.int32).itemsize


class Origin(NamedTuple):
    """The model and the seed that made synthetic traces: a part of what is secret."""

    model: str  # checksum of the model
    seed: int
    seeds_given: bool  # whether a person chose the seed of the model or that of the draw
    training: str = ""  # digest of the training traces; empty where they are not known
    dated: bool = False  # whether a person chose the date of the traces; otherwise it is that of the training traces

    def __repr__(self) -> str:
        """Shows only what is not secret."""
        return f"Origin(seeds_given={self.seeds_given})"

    @property
    def draw(self) -> str:
        """Fingerprint of the seed, which differs between the traces of different seeds."""
        return fingerprint(self.seed, Stage.SYNTHESIS)


def write_about(folder: Path, places: PlaceTable, time_grid: TimeGrid, friendships: pd.DataFrame | None = None) -> None:
    """Write all files of a trace set but the events."""
    write_table(folder / PLACES_FILE, places.to_frame())
    write_text(folder / GRID_FILE, time_grid.to_json())
    if friendships is not None:
        write_table(folder / FRIENDS_FILE, friendships)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write the columns of a table as Parquet, without index or metadata."""
    plain = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata(None)
    with path.open("wb") as stream, parquet.ParquetWriter(stream, plain.schema) as writer:
        writer.write_table(plain)


def write_events(path: Path, events: Mapping[str, np.ndarray], users: np.ndarray, places: PlaceTable) -> None:
    """Write row groups, so that neither writing nor reading holds the whole table in memory; `users` are ids."""
    user_ids, place_ids = pa.array(users), pa.array(places.ids)
    types = (user_ids.type, pa.int32(), pa.int32(), place_ids.type)
    schema = pa.schema(zip(EVENT_COLUMNS, types, strict=True))
    # Arrow cannot open a file whose name is not in the encoding of the locale; Python can.
    with path.open("wb") as stream, parquet.ParquetWriter(stream, schema) as writer:
        for rows in pieces_of(len(events["user"])):
            user, trace, instant, place = (pa.array(events[name][rows]) for name in EVENT_COLUMNS)
            columns = [user_ids.take(user), trace, instant, place_ids.take(place)]
            writer.write_table(pa.table(columns, names=EVENT_COLUMNS))


class EventTable(NamedTuple):
    """A table of events to read in pieces, with its places, time grid and friendships."""

    places: PlaceTable
    time_grid: TimeGrid
    friendships: pd.DataFrame | None
    columns: Collection[object]  # of the table of events
    n_events: int
    pieces: Iterator[pd.DataFrame]


def open_trace_set(folder: PathLike, *, with_friends: bool = True, progress: bool = False) -> EventTable:
    """Open a trace-set folder; missing or unreadable files are an `InputError`, also while events are read.

    `with_friends`: read the friendships, if there are any. `progress`: show a progress bar while the pieces are read.
    """
    folder = Path(folder)
    needed = (TRACES_FILE, PLACES_FILE, GRID_FILE)
    if not folder.is_dir():
        found = "a file" if folder.is_file() else "no such folder"
        way_out = f"Convert it first: `ppmtf import checkins {folder} --out data`" if folder.is_file() else ""
        raise InputError(str(folder), [Problem("a trace-set folder", found, way_out=way_out)])
    absent = [
        name for name in needed if not (trace_files(folder) if name == TRACES_FILE else (folder / name).is_file())
    ]
    if absent:
        found = ", ".join(sorted(p.name for p in folder.iterdir())[:10]) or "an empty folder"
        way_out = "Make one with `ppmtf import`"
        raise InputError(str(folder), [Problem(f"a trace set with {', '.join(needed)}", found, way_out=way_out)])
    friends_file = folder / FRIENDS_FILE
    friends = read_parquet(friends_file) if with_friends and friends_file.is_file() else None
    places = PlaceTable.from_frame(read_parquet(folder / PLACES_FILE), may_lack_coordinates=True)
    time_grid = TimeGrid.load(folder / GRID_FILE)
    files = trace_files(folder)
    columns, n_events = _columns_and_rows(files)

    def pieces() -> Iterator[pd.DataFrame]:
        named = [name for name in EVENT_COLUMNS if name in columns]
        with progress_bar("reading", n_events, show=progress) as advance:
            for path in files:
                with opened(path) as file:
                    for batch in file.iter_batches(PIECE_EVENTS, columns=named):
                        yield batch.to_pandas(ignore_metadata=True)
                        advance(len(batch))

    return EventTable(places, time_grid, friends, columns, n_events, pieces())


def _columns_and_rows(files: Sequence[Path]) -> tuple[list[str], int]:
    """The columns of all files, which must be the same, and the number of rows of all files."""
    columns: list[str] = []
    n_rows = 0
    for path in files:
        with opened(path) as file:
            names, n_rows = file.schema_arrow.names, n_rows + file.metadata.num_rows
        columns = columns or names
        if names != columns:
            raise InputError(str(path), [Problem(f"the columns of {files[0].name}", ", ".join(names))])
    return columns, n_rows


def trace_files(folder: Path) -> list[Path]:
    """The files with the events of a trace set, in order; none if there are none."""
    return files_of_table(folder / TRACES_FILE)


def part_file(path: Path, number: int, n_parts: int | None) -> Path:
    """The file of a part of a table: `path` if it is the only part, otherwise a file in a folder of this name."""
    if n_parts == 1:
        return path
    path.mkdir(exist_ok=True)
    return path / f"part-{number:05d}.parquet"


def files_of_table(path: Path) -> list[Path]:
    """The files of a table, which is a file or a folder of files, in order; none if there are none."""
    return sorted(path.glob("[!._]*.parquet")) if path.is_dir() else [path] if path.is_file() else []


def require_memory_to_load(folder: PathLike, n_events: int) -> None:
    """Refuse a trace set whose events do not fit into memory; see `require_memory`."""
    require_memory(str(Path(folder) / TRACES_FILE), n_events * EVENT_BYTES, "Read it on a larger machine")


def count_traces(folder: Path) -> int:
    """Number of traces in a trace-set folder, from the columns user and trace alone; no user is in two files."""
    columns, n_traces = ["user", "trace"], 0
    for path in trace_files(folder):
        with opened(path) as file:
            n_traces += file.read(columns=columns).group_by(columns).aggregate([]).num_rows
    return n_traces


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file, or a folder of them as one table.

    What cannot be read is an `InputError`, as is a table that would not fit into the memory.
    """
    if path.is_dir():
        return pd.concat(map(read_parquet, files_of_table(path)), ignore_index=True)
    with opened(path) as file:
        # A few bytes of Parquet can stand for any number of rows.
        needed = file.metadata.num_rows * file.metadata.num_columns * BYTES_A_VALUE
        require_memory(str(path), needed, "The file may be malicious: use files from a source that you trust")
        return file.read().to_pandas()


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Any]:
    """A Parquet file to read from; what cannot be read, at once or later, is an `InputError`."""
    try:
        # A buffer would keep the bytes of all row groups that were read.
        with path.open("rb") as stream, parquet.ParquetFile(stream, pre_buffer=False, **options) as file:
            yield file
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(str(path), [Problem("a readable Parquet file", str(error))]) from error


def facts_of_marker(folder: PathLike) -> dict[str, Any]:
    """What the marker of a trace-set folder says: the arguments `origin` and `of_nobody` of `Traces`."""
    marker = read_marker(folder)
    if marker is None:
        return {}
    origin = _checked_origin(Path(folder), marker) if marker.kind == SYNTHETIC else None
    return {"origin": origin, "of_nobody": marker.about.get(OF_NOBODY) is True}


def _checked_origin(folder: Path, marker: Marker) -> Origin:
    """The origin in the marker of synthetic traces; refuses traces that changed since."""
    files = {file.relative_to(folder).as_posix() for file in trace_files(folder)}
    if not files <= marker.files.keys() or marker.changed_files(folder):
        way_out = "Synthesize them again: a test of changed traces would say nothing"
        raise InputError(str(folder), [Problem("synthetic traces as they were written", "others", way_out=way_out)])
    try:
        return Origin(**marker.about["origin"])
    except (KeyError, TypeError) as error:
        raise InputError(str(folder), [Problem("a marker with the origin of the traces", str(error))]) from error


def digest_of_events(user_ids: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """SHA-256 of the events of a block of users, as an array of bytes."""
    digest = hashlib.sha256(json.dumps([str(each) for each in user_ids.tolist()]).encode())
    for column in columns:
        digest.update(np.ascontiguousarray(column, np.int32).data)
    return np.frombuffer(digest.digest(), np.uint8)


def digest_of_content(places: PlaceTable, grid: TimeGrid, of_blocks: np.ndarray) -> str:
    """SHA-256 of places, time grid and the digests of all blocks; see `Traces.digest`."""
    start, category = datetime.fromisoformat(grid.start), None if places.category is None else places.category.tolist()
    about = [
        [str(each) for each in places.ids.tolist()],
        [places.latitude.tolist(), places.longitude.tolist(), category],
        [start.weekday(), start.time().isoformat(), grid.time_zone],
        [grid.step_s, grid.period, grid.slot_of_instant.tolist()],
    ]
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(np.ascontiguousarray(of_blocks).data)
    return digest.hexdigest()
