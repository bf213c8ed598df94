"""The Foursquare check-ins of New York and Tokyo (TSMC2014)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, importer, reader_settings
from ppmtf_jax.datasets.clocks import local_times
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.tables import read_columns, whole_numbers
from ppmtf_jax.datasets.times import parse_times
from ppmtf_jax.datasets.to_traces import MakesTraces, discretize
from ppmtf_jax.errors import InputError, Message, Problem, Setting, first_examples

COLUMNS = {"user": 0, "place": 1, "category": 3, "latitude": 4, "longitude": 5, "offset": 6, "time": 7}
TIME_ZONE = "America/New_York"


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


def read_foursquare(
    file_or_folder: str | os.PathLike[str],
    settings: FoursquareSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read a file of the TSMC2014 release: dataset_TSMC2014_NYC.txt or dataset_TSMC2014_TKY.txt.

    The file has TABs between eight columns and no header: user, venue, category id, category name (both may be
    missing), latitude, longitude, offset from UTC in minutes, UTC time such as "Tue Apr 03 18:00:00 +0000 2012". Local
    time is UTC plus the offset. Published files are Latin-1 or UTF-8; the reader recognizes both. Raises `InputError`,
    which lists every problem of the file; also where most offsets are not those of `time_zone`.

    Parameters
    ----------
    file_or_folder : path
        The file, plain or gzipped, or a folder that holds one of them.
    settings, discretization
        As for `read_checkins`.
    **named
        Settings by name, see `FoursquareSettings`: `time_zone`, `drop_bad_rows`, `n_places`, `step_s` and others.

    References
    ----------
    .. [1] Yang, Zhang, Zheng, Yu: Modeling User Activity Preference by Leveraging User Spatial Temporal Characteristics
       in LBSNs, IEEE Trans. SMC: Systems 45(1), 2015.

    Examples
    --------
    >>> traces, report = read_foursquare("dataset_TSMC2014_NYC.txt")  # doctest: +SKIP
    >>> print(report)  # doctest: +SKIP
    """
    settings, options = reader_settings(FoursquareSettings, file_or_folder, settings, named, discretization)
    path = _find_file(Path(file_or_folder))
    table, skipped, notes, _ = read_columns(path, COLUMNS, quote_char=False, subject=str(path))
    minutes, no_offset = whole_numbers(table.pop("offset"), "offsets from UTC in minutes, -840 to 840", -840, 840)
    times = parse_times(table.pop("time"), "UTC")
    offset = pd.to_timedelta(minutes, unit="m").to_numpy("timedelta64[s]")
    table["local_time"], table["utc_time"] = times.utc + offset, times.utc
    problems = [*times.problems, *_zone_mismatch(table["local_time"].to_numpy(), times.utc, options["time_zone"])]
    findings = Findings(problems, notes, skipped, [*no_offset, *times.unparsed])
    return discretize(table, subject=str(path), findings=findings, **options)


DATA_SETS.register(
    DataSet(
        "foursquare",
        "Foursquare check-ins of New York or Tokyo, of the TSMC2014 release (eight columns).",
        FoursquareSettings,
        importer(read_foursquare),
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


def _zone_mismatch(local: np.ndarray, utc: np.ndarray, time_zone: str) -> list[Problem]:
    """A problem if most offsets differ from those of the zone; the release itself has a few odd offsets."""
    known = ~np.isnat(local)
    local, utc = local[known], utc[known]
    differs = local != local_times(pd.DatetimeIndex(utc), time_zone)
    if not len(differs) or differs.mean() <= 0.5:
        return []
    offsets = np.unique((local - utc)[differs].astype(np.int64) // 60)
    found = f"offsets of {', '.join(first_examples(offsets.tolist()))} minutes"
    way_out = Message("Name the city's zone, such as ", Setting("time_zone", "Asia/Tokyo"))
    return [Problem(f"offsets of {time_zone}", found, int(differs.sum()), way_out=way_out)]
