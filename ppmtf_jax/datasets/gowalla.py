"""The Gowalla check-ins in the formats of SNAP, with friendships."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, importer
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.discretization import Discretization, MakesTraces
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.tables import read_columns
from ppmtf_jax.datasets.times import parse_times
from ppmtf_jax.datasets.to_traces import discretize
from ppmtf_jax.errors import Message, Problem, Setting, first_examples

CHECKIN_COLUMNS = {"user": 0, "time": 1, "latitude": 2, "longitude": 3, "place": 4}
EDGE_COLUMNS = {"user": 0, "friend": 1}
DEFAULT_DISCRETIZATION = Discretization()


def read_gowalla(
    checkins_file: str | os.PathLike[str],
    edges_file: str | os.PathLike[str] | None = None,
    *,
    time_zone: str,
    discretization: MakesTraces = DEFAULT_DISCRETIZATION,
    drop_bad_rows: bool = False,
) -> tuple[Traces, ImportReport]:
    """Read loc-gowalla_totalCheckins.txt, or a city cut out of it, and perhaps loc-gowalla_edges.txt.

    Rows that repeat another row entirely are dropped, and so are friendships with a user who has no event left. The
    report counts both.

    Parameters
    ----------
    checkins_file : path
        TABs between user, UTC time such as 2010-10-12T00:21:28Z, latitude, longitude and location id, no header; plain
        or gzipped.
    edges_file : path, optional
        TABs between user and friend, no header; plain or gzipped.
    time_zone : str
        IANA name of the city's zone. The data covers the world and has UTC times; instants follow the clocks of this
        zone. The report counts the check-ins that are far from it.
    discretization : Discretization or SpacedTraces
        Default: the 1,000 most visited locations of at least five users, instants of one hour, slots of two hours.
    drop_bad_rows : bool
        Leave out bad rows and list them in the report, instead of raising an error.

    Raises
    ------
    InputError
        Listing every problem of both files at once.

    References
    ----------
    .. [1] Cho, Myers, Leskovec: Friendship and Mobility: User Movement in Location-Based Social Networks, KDD 2011.

    Examples
    --------
    >>> traces, report = read_gowalla(
    ...     "loc-gowalla_totalCheckins.txt.gz", "loc-gowalla_edges.txt.gz", time_zone="America/Chicago"
    ... )  # doctest: +SKIP
    """
    subject = str(checkins_file)
    table, skipped, notes, _ = read_columns(checkins_file, CHECKIN_COLUMNS, quote_char=False, subject=subject)
    problems = _user_problems(table, checkins_file)
    edges = None
    if edges_file is not None:
        edges, bad_edges, *_ = read_columns(edges_file, EDGE_COLUMNS, quote_char=False, subject=str(edges_file))
        problems += bad_edges + _user_problems(edges, edges_file)
    times = parse_times(table.pop("time"), time_zone)
    table["local_time"], table["utc_time"] = times.local, times.utc
    return discretize(
        table,
        discretization,
        time_zone=time_zone,
        friendships=edges,
        subject=subject,
        findings=Findings([*problems, *times.problems], notes, skipped, times.unparsed),
        drop_repeated=True,
        drop_bad_rows=drop_bad_rows,
    )


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


DATA_SETS.register(
    DataSet(
        "gowalla",
        "Gowalla check-ins in SNAP's format, with friendships where the edges are given.",
        GowallaSettings,
        importer(lambda settings: read_gowalla(settings.path, settings.edges, **settings.options())),
        "gowalla checkins.txt --edges edges.txt --time-zone Europe/Oslo",
    )
)


def _user_problems(table: pd.DataFrame, file: str | os.PathLike[str]) -> list[Problem]:
    """User ids that are no whole numbers: from a header line, or not a file of SNAP."""
    problems = []
    for column in [name for name in EDGE_COLUMNS if name in table and len(table)]:
        bad = pd.to_numeric(table[column].astype(object), errors="coerce").isna()
        if bad.any():
            examples = first_examples(table.loc[bad, column].tolist())
            expected = f"whole numbers in the column '{column}' of {Path(file).name}"
            way_out = "Remove a header line, if the file has one"
            problems.append(Problem(expected, "others", int(bad.sum()), examples, way_out))
    return problems
