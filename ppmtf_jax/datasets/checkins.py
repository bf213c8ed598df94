"""A general table of check-ins or GPS fixes: CSV, TSV or Parquet, each plain or gzipped, or a DataFrame."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet as arrow_parquet

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.discretize import Discretization, ImportReport, discretize, row_examples
from ppmtf_jax.errors import InputError, Problem, first_examples

NEEDED_COLUMNS = ("user", "time", "latitude", "longitude")
OPTIONAL_COLUMNS = ("place", "category", "trace")
ID_COLUMNS = ("user", "place", "category", "trace", "friend")
DEFAULT_DISCRETIZATION = Discretization()
# Seconds since 1970 of 1980 and 2100: years, dates such as 20240131 and milliseconds lie outside.
EARLIEST_EPOCH_S, LATEST_EPOCH_S = 315_532_800, 4_102_444_800
_OFFSET = r"\d:\d\d.*(?:Z|z|[+-]\d\d(?::?\d\d)?)\s*$"
_PLAIN_INTEGER = r"0|-?[1-9]\d{0,17}"
_UNREADABLE = (OSError, ValueError, EOFError, zlib.error)

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | pd.DataFrame


def read_checkins(
    source: Source,
    columns: Mapping[str, str | int] | None = None,
    *,
    time_zone: str | None = None,
    discretization: Discretization = DEFAULT_DISCRETIZATION,
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
    discretization : Discretization
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
    >>> from ppmtf_jax.datasets.discretize import GridPlaces
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
    subject = "check-ins" if isinstance(source, pd.DataFrame) else ", ".join(map(str, _paths(source)))
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


@dataclass(frozen=True, eq=False)
class Times:
    """Parsed times, shape (rows,): naive datetime64[s], not-a-time where they could not be parsed."""

    local: np.ndarray
    utc: np.ndarray
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def parse_times(column: pd.Series, time_zone: str | None) -> Times:
    """Local wall-clock and true times of a column of ISO times, epoch seconds or timestamps; see `read_checkins`."""
    problems = [] if time_zone is None else zone_problems(time_zone)
    column = column.infer_objects()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        has_offset = np.full(len(column), column.dt.tz is not None)
        parsed = pd.DatetimeIndex(column)
        parsed = parsed.tz_convert("UTC") if parsed.tz is not None else parsed.tz_localize("UTC")
        way_out = ""
    elif _is_epoch(column):
        parsed, has_offset, way_out = _parse_epoch(column)
    else:
        # In pandas 3 text is of the type `str`; an object column may hold anything.
        text = column.astype("str")
        has_offset = text.str.contains(_OFFSET, regex=True).fillna(False).to_numpy(bool)
        parsed = pd.DatetimeIndex(pd.to_datetime(text.str.strip(), format="ISO8601", utc=True, errors="coerce"))
        way_out = "Write times as 2012-04-03T18:00:00, 2012-04-03T18:00:00-04:00 or in seconds since 1970"
    parsed = parsed.as_unit("s").tz_localize(None)
    bad = np.asarray(parsed.isna())
    if bad.any():
        rows = np.flatnonzero(bad)
        examples = row_examples(column, rows)
        problems.append(Problem("times that can be parsed", "others", len(rows), examples, way_out))
    naive = ~bad & ~has_offset
    if naive.any() and time_zone is None:
        expected, examples = "a time zone, for times without an offset", row_examples(column, np.flatnonzero(naive))
        way_out = "Name the zone, such as time_zone='Europe/Paris'"
        problems.append(Problem(expected, "none", int(naive.sum()), examples, way_out))
    if naive.any() and (has_offset & ~bad).any():
        counts = f"{int(naive.sum())} without and {int((has_offset & ~bad).sum())} with one"
        problems.append(Problem("times all with an offset or all without", counts))
    if problems:
        return Times(parsed.to_numpy("datetime64[s]"), parsed.to_numpy("datetime64[s]"), tuple(problems))
    if naive.any():
        return _from_wall_clock(parsed, time_zone)
    return Times(local_times(parsed, time_zone or "UTC"), parsed.to_numpy("datetime64[s]"))


def local_times(utc: pd.DatetimeIndex, time_zone: str) -> np.ndarray:
    """Wall-clock times in a zone of naive UTC times, datetime64[s] of shape (times,)."""
    return utc.tz_localize("UTC").tz_convert(time_zone).tz_localize(None).to_numpy("datetime64[s]")


def read_columns(
    source: Source,
    columns: Mapping[str, str | int],
    *,
    optional: bool = False,
    quote_char: str | bool = '"',
    subject: str,
) -> tuple[pd.DataFrame, list[Problem]]:
    """Read the given columns under their names here; ids as categories, numbers where all values are numbers.

    Parameters
    ----------
    source : path, list of paths, or DataFrame
    columns : mapping
        Name or position in the source of each column.
    optional : bool
        Whether the columns place, category and trace may be absent.
    quote_char : str or False
        What encloses texts with commas in them; False: nothing does.
    subject : str
        What errors call the data.

    Returns
    -------
    (DataFrame, list of Problem)
        The table without rows that have too few or too many fields, which are the problems.

    Raises
    ------
    InputError
        A file cannot be read, or columns are missing.
    """
    if isinstance(source, pd.DataFrame):
        present = _present_columns(subject, list(source.columns), columns, optional)
        return pd.DataFrame({name: source[column].array for name, column in present.items()}), []
    tables, problems = [], []
    for path in _paths(source):
        try:
            table, found = _read_file(path, columns, optional, quote_char)
        except _UNREADABLE as error:
            raise error if isinstance(error, InputError) else _unreadable(path, error) from error
        tables.append(table)
        problems += found
    names = {frozenset(table.column_names) for table in tables}
    if len(names) > 1:
        some = ", ".join(sorted(frozenset.union(*names) - frozenset.intersection(*names)))
        raise InputError(subject, [Problem("the same columns in all files", f"{some} in some of them only")])
    try:
        table = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    except pa.ArrowException as error:
        raise InputError(subject, [Problem("columns of the same types in all files", str(error))]) from error
    frame = table.to_pandas(self_destruct=True)
    for name in ID_COLUMNS:
        if name in frame and isinstance(frame[name].dtype, pd.CategoricalDtype):
            frame[name] = _integer_ids(frame[name])
    return frame, problems


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


def _present_columns(
    subject: str, found: Sequence[str], columns: Mapping[str, str | int], optional: bool
) -> dict[str, str]:
    """The name in the file of each column that it has; an `InputError` where needed ones are missing."""
    present, missing = {}, []
    for name, column in columns.items():
        if isinstance(column, int) and 0 <= column < len(found):
            present[name] = found[column]
        elif column in found:
            present[name] = column
        elif not (optional and name in OPTIONAL_COLUMNS):
            missing.append(str(column))
    positions = [column for column in columns.values() if isinstance(column, int)]
    if missing and positions:
        raise InputError(subject, [Problem(f"at least {max(positions) + 1} columns", f"{len(found) or 'none'}")])
    if missing:
        expected = f"columns {', '.join(str(column) for name, column in columns.items() if name in NEEDED_COLUMNS)}"
        found_text = f"columns {', '.join(map(str, found))}" if found else "no columns"
        way_out = f"Missing: {', '.join(missing)}. Tell which column is which with `columns`"
        raise InputError(subject, [Problem(expected, found_text, way_out=way_out)])
    return present


def _paths(source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    if isinstance(source, (str, os.PathLike)):
        return [Path(source)]
    paths = [Path(path) for path in source]
    if not paths:
        raise InputError("check-ins", [Problem("at least one file", "none")])
    return paths


def _unreadable(path: Path, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(str(path), [Problem("a file to read", "no such file")])
    return InputError(str(path), [Problem("a readable CSV, TSV or Parquet file, plain or gzipped", str(error))])


def _read_file(
    path: Path, columns: Mapping[str, str | int], optional: bool, quote_char: str | bool
) -> tuple[pa.Table, list[Problem]]:
    with path.open("rb") as stream:
        is_gzip = stream.read(2) == b"\x1f\x8b"
    with gzip.open(path) if is_gzip else path.open("rb") as stream:
        first_line = stream.readline(1 << 16)
        if first_line.startswith(b"PAR1"):
            stream.seek(0)
            return _read_parquet(path, io.BytesIO(stream.read()) if is_gzip else stream, columns, optional), []
    if b"\0" in first_line:
        raise ValueError("binary content")
    try:
        return _read_text(path, is_gzip, first_line, "utf-8", columns, optional, quote_char)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" not in str(error):
            raise
        return _read_text(path, is_gzip, first_line, "latin-1", columns, optional, quote_char)


def _read_parquet(path: Path, stream: io.BufferedIOBase, columns: Mapping[str, str | int], optional: bool) -> pa.Table:
    file = arrow_parquet.ParquetFile(stream)
    present = _present_columns(str(path), file.schema_arrow.names, columns, optional)
    table = file.read(columns=list(dict.fromkeys(present.values())))
    arrays = {name: table.column(column) for name, column in present.items()}
    for name, array in arrays.items():
        if pa.types.is_dictionary(array.type):
            # Only ids from text files are dictionaries: in Parquet the text "7" is meant as a text.
            arrays[name] = array.cast(array.type.value_type)
    return pa.table(arrays)


def _read_text(
    path: Path,
    is_gzip: bool,
    first_line: bytes,
    encoding: str,
    columns: Mapping[str, str | int],
    optional: bool,
    quote_char: str | bool,
) -> tuple[pa.Table, list[Problem]]:
    """Everything is read as text first: only then can all that is no number be listed, and "007" stay what it is."""
    delimiter = "\t" if b"\t" in first_line else ","
    header = not any(isinstance(column, int) for column in columns.values())
    found = _fields(first_line.decode(encoding, "replace"), delimiter, quote_char)
    if not header:
        found = [f"f{position}" for position in range(len(found))]
    present = _present_columns(str(path), found, columns, optional)
    invalid = []

    def note_invalid(row: arrow_csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    text, ids = pa.string(), pa.dictionary(pa.int32(), pa.string())
    with pa.input_stream(path, compression="gzip" if is_gzip else None) as stream:
        table = arrow_csv.read_csv(
            stream,
            arrow_csv.ReadOptions(encoding=encoding, autogenerate_column_names=not header),
            arrow_csv.ParseOptions(delimiter=delimiter, quote_char=quote_char, invalid_row_handler=note_invalid),
            arrow_csv.ConvertOptions(
                column_types={column: ids if name in ID_COLUMNS else text for name, column in present.items()},
                include_columns=list(dict.fromkeys(present.values())),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    arrays = {name: table.column(column) for name, column in present.items()}
    for name in ("latitude", "longitude"):
        if name in arrays:
            arrays[name] = _as_numbers(arrays[name])
    problems = []
    if invalid:
        examples = first_examples([repr(row.text) for row in invalid[:5]])
        problems.append(Problem(f"{len(found)} fields in every row of {path.name}", "others", len(invalid), examples))
    return pa.table(arrays), problems


def _fields(line: str, delimiter: str, quote_char: str | bool) -> list[str]:
    """The fields of a header line."""
    if not line.strip():
        return []
    quoting = csv.QUOTE_MINIMAL if quote_char else csv.QUOTE_NONE
    return next(csv.reader([line.removeprefix("\ufeff").rstrip("\r\n")], delimiter=delimiter, quoting=quoting))


def _as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as numbers, or left as they are where some are none: then the check lists those."""
    try:
        return column.cast(pa.float64())
    except pa.ArrowInvalid:
        return column


def _integer_ids(column: pd.Series) -> pd.Series:
    """Ids from a text file as integers if every one is written as a plain integer."""
    categories = column.cat.categories
    if len(categories) and categories.str.fullmatch(_PLAIN_INTEGER).all():
        return column.cat.rename_categories(categories.astype("int64"))
    return column


def _is_epoch(column: pd.Series) -> bool:
    """Whether the column holds numbers; the first value decides."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return not pd.api.types.is_bool_dtype(column.dtype)
    first = column.first_valid_index()
    return first is not None and bool(pd.notna(pd.to_numeric(str(column[first]), errors="coerce")))


def _parse_epoch(column: pd.Series) -> tuple[pd.DatetimeIndex, np.ndarray, str]:
    seconds = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    plausible = (seconds >= EARLIEST_EPOCH_S) & (seconds <= LATEST_EPOCH_S)
    values = np.where(plausible, np.floor(np.where(plausible, seconds, 0)), 0).astype(np.int64).astype("datetime64[s]")
    values[~plausible] = np.datetime64("NaT")
    way_out = "Epoch times are in seconds, from 1980 to 2100; divide milliseconds by 1000, write dates as 2012-04-03"
    return pd.DatetimeIndex(values).tz_localize("UTC"), np.ones(len(column), bool), way_out


def _from_wall_clock(wall: pd.DatetimeIndex, time_zone: str) -> Times:
    earlier = wall.tz_localize(time_zone, ambiguous=np.ones(len(wall), bool), nonexistent="NaT")
    later = wall.tz_localize(time_zone, ambiguous=np.zeros(len(wall), bool), nonexistent="NaT")
    absent = np.asarray(earlier.isna())
    n_twice = int((~absent & np.asarray(earlier != later)).sum())
    notes = []
    if absent.any():
        earlier = wall.tz_localize(time_zone, ambiguous=np.ones(len(wall), bool), nonexistent="shift_forward")
        notes.append(f"times that do not exist (summer time begins), kept as written: {int(absent.sum()):,}")
    if n_twice:
        notes.append(f"times that exist twice (summer time ends), taken as the first: {n_twice:,}")
    utc = earlier.tz_convert("UTC").tz_localize(None).to_numpy("datetime64[s]")
    return Times(wall.to_numpy("datetime64[s]"), utc, notes=tuple(notes))
