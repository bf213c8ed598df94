"""The Foursquare check-ins of New York and Tokyo (TSMC2014)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, importer
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.discretization import Discretization, MakesTraces
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.tables import read_columns, row_examples
from ppmtf_jax.datasets.times import local_times
from ppmtf_jax.datasets.to_traces import discretize
from ppmtf_jax.errors import InputError, Message, Problem, Setting, first_examples

COLUMNS = {"user": 0, "place": 1, "category": 3, "latitude": 4, "longitude": 5, "offset": 6, "time": 7}
TIME_FORMAT = "%a %b %d %H:%M:%S %z %Y"
TIME_ZONE = "America/New_York"
DEFAULT_DISCRETIZATION = Discretization()


def read_foursquare(
    file_or_folder: str | os.PathLike[str],
    *,
    time_zone: str = TIME_ZONE,
    discretization: MakesTraces = DEFAULT_DISCRETIZATION,
    drop_bad_rows: bool = False,
) -> tuple[Traces, ImportReport]:
    """Read a file of the TSMC2014 release: dataset_TSMC2014_NYC.txt or dataset_TSMC2014_TKY.txt.

    The file has TABs between eight columns and no header: user, venue, category id, category name (both may be
    missing), latitude, longitude, offset from UTC in minutes, UTC time such as "Tue Apr 03 18:00:00 +0000 2012". Local
    time is UTC plus the offset. Published files are Latin-1 or UTF-8; the reader recognizes both.

    Parameters
    ----------
    file_or_folder : path
        The file, plain or gzipped, or a folder that holds one of them.
    time_zone : str
        IANA name of the city's zone, "Asia/Tokyo" for the Tokyo file. It names the zone of the time grid; the times
        themselves follow the offsets.
    discretization : Discretization or SpacedTraces
        Default: the 1,000 most visited venues of at least five users, instants of one hour, slots of two hours.
    drop_bad_rows : bool
        Leave out bad rows and list them in the report, instead of raising an error.

    Raises
    ------
    InputError
        Listing every problem of the file at once; also where most offsets are not those of `time_zone`.

    References
    ----------
    .. [1] Yang, Zhang, Zheng, Yu: Modeling User Activity Preference by Leveraging User Spatial Temporal Characteristics
       in LBSNs, IEEE Trans. SMC: Systems 45(1), 2015.

    Examples
    --------
    >>> traces, report = read_foursquare("dataset_TSMC2014_NYC.txt")  # doctest: +SKIP
    >>> print(report)  # doctest: +SKIP
    """
    path = _find_file(Path(file_or_folder))
    table, skipped, notes, _ = read_columns(path, COLUMNS, quote_char=False, subject=str(path))
    offset, untimed = _offsets(table.pop("offset"))
    utc, untimed_utc = _utc_times(table.pop("time"))
    local = utc + offset
    problems = [] if zone_problems(time_zone) else _zone_mismatch(local, utc, time_zone)
    table["local_time"], table["utc_time"] = local, utc
    return discretize(
        table,
        discretization,
        time_zone=time_zone,
        subject=str(path),
        findings=Findings(problems, notes, skipped, [*untimed, *untimed_utc]),
        drop_bad_rows=drop_bad_rows,
    )


@dataclass(frozen=True)
class FoursquareSettings(CheckinTableSettings):
    """Import of a file of the TSMC2014 release.

    Parameters
    ----------
    path : Path
        File dataset_TSMC2014_NYC.txt or _TKY.txt, plain or gzipped, or the folder it is in.
    time_zone : str, optional
        The city's time zone, Asia/Tokyo for Tokyo. Default: America/New_York.
    """

    time_zone: str | None = TIME_ZONE


DATA_SETS.register(
    DataSet(
        "foursquare",
        "Foursquare check-ins of New York or Tokyo, of the TSMC2014 release (eight columns).",
        FoursquareSettings,
        importer(lambda settings: read_foursquare(settings.path, **settings.options())),
        "foursquare dataset_TSMC2014_NYC.txt",
    )
)


def _find_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = sorted(file for file in path.glob("dataset_TSMC2014_*.txt*") if "readme" not in file.name.lower())
    if len(found) != 1:
        expected, names = "one file dataset_TSMC2014_<city>.txt or .txt.gz", [file.name for file in found]
        raise InputError(str(path), [Problem(expected, ", ".join(names) or "none", way_out="Name the file itself")])
    return found[0]


def _offsets(column: pd.Series) -> tuple[np.ndarray, list[Problem]]:
    """Offsets, not-a-time where there is none."""
    minutes = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    bad = ~((np.abs(minutes) <= 14 * 60) & (minutes % 1 == 0))
    offset = np.where(bad, 0, minutes).astype("timedelta64[m]").astype("timedelta64[s]")
    offset[bad] = np.timedelta64("NaT")
    return offset, _problems_of(column, bad, "offsets from UTC in minutes, -840 to 840")


def _utc_times(column: pd.Series) -> tuple[np.ndarray, list[Problem]]:
    parsed = pd.DatetimeIndex(pd.to_datetime(column, format=TIME_FORMAT, utc=True, errors="coerce"))
    problems = _problems_of(column, np.asarray(parsed.isna()), "UTC times such as 'Tue Apr 03 18:00:00 +0000 2012'")
    return parsed.tz_localize(None).to_numpy("datetime64[s]"), problems


def _problems_of(column: pd.Series, bad: np.ndarray, expected: str) -> list[Problem]:
    if not bad.any():
        return []
    return [Problem(expected, "others", int(bad.sum()), row_examples(column, np.flatnonzero(bad)))]


def _zone_mismatch(local: np.ndarray, utc: np.ndarray, time_zone: str) -> list[Problem]:
    """The release has a few odd offsets; where most differ from the zone's, the zone is wrong."""
    known = ~np.isnat(local)
    local, utc = local[known], utc[known]
    differs = local != local_times(pd.DatetimeIndex(utc), time_zone)
    if not len(differs) or differs.mean() <= 0.5:
        return []
    offsets = np.unique((local - utc)[differs].astype(np.int64) // 60)
    found = f"offsets of {', '.join(first_examples(offsets.tolist()))} minutes"
    way_out = Message("Name the city's zone, such as ", Setting("time_zone", "Asia/Tokyo"))
    return [Problem(f"offsets of {time_zone}", found, int(differs.sum()), way_out=way_out)]
