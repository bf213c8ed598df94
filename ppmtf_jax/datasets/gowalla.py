"""The Gowalla check-ins in the formats of SNAP, with friendships."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, import_checkins
from ppmtf_jax.datasets.discretization import Discretization, MakesTraces, discretize
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet, Imported
from ppmtf_jax.datasets.report import ImportReport
from ppmtf_jax.datasets.tables import read_columns
from ppmtf_jax.datasets.times import parse_times
from ppmtf_jax.errors import Problem, first_examples

CHECKIN_COLUMNS = {"user": 0, "time": 1, "latitude": 2, "longitude": 3, "place": 4}
EDGE_COLUMNS = {"user": 0, "friend": 1}
TIME_ZONE = "America/New_York"
DEFAULT_DISCRETIZATION = Discretization()


def read_gowalla(
    checkins_file: str | os.PathLike[str],
    edges_file: str | os.PathLike[str] | None = None,
    *,
    time_zone: str = TIME_ZONE,
    discretization: MakesTraces = DEFAULT_DISCRETIZATION,
) -> tuple[Traces, ImportReport]:
    """Read loc-gowalla_totalCheckins.txt, or a city cut out of it, and perhaps loc-gowalla_edges.txt.

    Rows that repeat another one entirely are dropped. Friendships with somebody who has no event left are dropped,
    and both counted in the report.

    Parameters
    ----------
    checkins_file : path
        TABs between user, UTC time such as 2010-10-12T00:21:28Z, latitude, longitude and location id, no header; plain
        or gzipped.
    edges_file : path, optional
        TABs between user and friend, no header, usually each friendship in both directions; plain or gzipped.
    time_zone : str
        IANA name of the city's zone: the data has UTC times only, and the instants follow its wall clock.
    discretization : Discretization or SpacedTraces
        Default: the 1,000 most visited locations, instants of one hour, twelve slots of two hours.

    Returns
    -------
    (Traces, ImportReport)

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
    table, problems = read_columns(checkins_file, CHECKIN_COLUMNS, quote_char=False, subject=str(checkins_file))
    problems += _user_problems(table, checkins_file)
    edges = None
    if edges_file is not None:
        edges, edge_problems = read_columns(edges_file, EDGE_COLUMNS, quote_char=False, subject=str(edges_file))
        problems += edge_problems + _user_problems(edges, edges_file)
    times = parse_times(table.pop("time"), time_zone)
    table["local_time"], table["utc_time"] = times.local, times.utc
    return discretize(
        table,
        discretization,
        time_zone=time_zone,
        friendships=edges,
        subject=str(checkins_file),
        problems=[*problems, *times.problems],
        drop_repeated=True,
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
        The city's time zone, such as America/Chicago. Default: America/New_York.
    """

    edges: Path | None = None


def _import(settings: GowallaSettings, seed: int, progress: bool) -> Imported:
    def read() -> tuple[Traces, ImportReport]:
        zone = settings.time_zone or TIME_ZONE
        return read_gowalla(settings.path, settings.edges, time_zone=zone, discretization=settings.discretization())

    return import_checkins(read, settings, seed, progress)


DATA_SETS.register(
    DataSet(
        "gowalla",
        "Gowalla check-ins in SNAP's format, with friendships where the edges are given.",
        GowallaSettings,
        _import,
        "gowalla checkins.txt --edges edges.txt --time-zone Europe/Oslo",
    )
)


def _user_problems(table: pd.DataFrame, file: str | os.PathLike[str]) -> list[Problem]:
    """Users who are no whole numbers: a header line, or not a file of SNAP's."""
    problems = []
    for column in ("user", "friend"):
        if column in table and len(table):
            bad = pd.to_numeric(table[column].astype(object), errors="coerce").isna()
            if bad.any():
                examples = first_examples(table.loc[bad, column].tolist())
                expected = f"whole numbers in the column '{column}' of {Path(file).name}"
                way_out = "Remove a header line, if that is it"
                problems.append(Problem(expected, "others", int(bad.sum()), examples, way_out))
    return problems
