"""The Gowalla check-ins in the formats of SNAP, with friendships."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, importer, reader_settings
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.tables import read_columns, whole_numbers
from ppmtf_jax.datasets.times import parse_times
from ppmtf_jax.datasets.to_traces import MakesTraces, discretize
from ppmtf_jax.errors import Message, Problem, Setting

CHECKIN_COLUMNS = {"user": 0, "time": 1, "latitude": 2, "longitude": 3, "place": 4}
EDGE_COLUMNS = {"user": 0, "friend": 1}


@dataclass(frozen=True)
class GowallaSettings(CheckinTableSettings):
    """Import of Gowalla check-ins, perhaps with friendships.

    Parameters
    ----------
    path : Path
        File loc-gowalla_totalCheckins.txt or a cut of it, plain or gzipped.
    edges : Path, optional
        File of friendships, loc-gowalla_edges.txt.
    time_zone : str, optional
        The city's time zone, such as America/Chicago. Needed: the data is of the whole world, in UTC.
    """

    edges: Path | None = None

    def _own_problems(self) -> list[Problem]:
        problems = super()._own_problems()
        if self.time_zone is not None:
            return problems
        zone = Setting("time_zone", "America/Chicago")
        way_out = Message("Name the city's zone, such as ", zone, ": its clocks make the hours of the day")
        return [*problems, Problem("a time zone, since Gowalla is world-wide and in UTC", "none", way_out=way_out)]


def read_gowalla(
    checkins_file: str | os.PathLike[str],
    edges_file: str | os.PathLike[str] | None = None,
    settings: GowallaSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read loc-gowalla_totalCheckins.txt, or a city cut out of it, and perhaps loc-gowalla_edges.txt.

    Rows that repeat another row entirely are dropped, and so are friendships with a user who has no event left. The
    report counts both. Raises `InputError`, which lists every problem of both files.

    Parameters
    ----------
    checkins_file : path
        TABs between user, UTC time such as 2010-10-12T00:21:28Z, latitude, longitude and location id, no header; plain
        or gzipped.
    edges_file : path, optional
        TABs between user and friend, no header; plain or gzipped.
    settings, discretization
        As for `read_checkins`.
    **named
        Settings by name, see `GowallaSettings`: `time_zone`, which is needed, `drop_bad_rows`, `n_places` and others.
        The data covers the world and has UTC times. Instants follow the clocks of the zone, and the report counts the
        check-ins that are far from it.

    References
    ----------
    .. [1] Cho, Myers, Leskovec: Friendship and Mobility: User Movement in Location-Based Social Networks, KDD 2011.

    Examples
    --------
    >>> traces, report = read_gowalla(
    ...     "loc-gowalla_totalCheckins.txt.gz", "loc-gowalla_edges.txt.gz", time_zone="America/Chicago"
    ... )  # doctest: +SKIP
    """
    settings, options = reader_settings(GowallaSettings, checkins_file, settings, named, discretization)
    subject, edges_file, edges = str(checkins_file), edges_file or settings.edges, None
    table, skipped, notes, _ = read_columns(checkins_file, CHECKIN_COLUMNS, quote_char=False, subject=subject)
    problems = _user_problems(table, checkins_file)
    if edges_file is not None:
        edges, bad_edges, *_ = read_columns(edges_file, EDGE_COLUMNS, quote_char=False, subject=str(edges_file))
        problems += bad_edges + _user_problems(edges, edges_file)
    times = parse_times(table.pop("time"), options["time_zone"])
    table["local_time"], table["utc_time"] = times.local, times.utc
    findings = Findings([*problems, *times.problems], notes, skipped, times.unparsed)
    return discretize(table, friendships=edges, subject=subject, findings=findings, drop_repeated=True, **options)


DATA_SETS.register(
    DataSet(
        "gowalla",
        "Gowalla check-ins in SNAP's format, with friendships where the edges are given.",
        GowallaSettings,
        importer(read_gowalla),
        "gowalla checkins.txt --edges edges.txt --time-zone Europe/Oslo",
    )
)


def _user_problems(table: pd.DataFrame, file: str | os.PathLike[str]) -> list[Problem]:
    """A problem if user ids are not whole numbers: the file has a header line, or is not from SNAP."""
    problems, way_out = [], "Remove a header line, if the file has one"
    for name in [name for name in EDGE_COLUMNS if name in table]:
        expected = f"whole numbers in the column '{name}' of {Path(file).name}"
        problems += whole_numbers(table[name], expected, way_out=way_out)[1]
    return problems
