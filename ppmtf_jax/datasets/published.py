"""Published check-ins: Foursquare (TSMC2014, and LBSN2Vec of WWW 2019) and Gowalla.

Each reader takes the settings of its data set as one object or by name, and `discretization` as `read_checkins` does.
It raises `InputError`, which lists every problem of its files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import io
from scipy.io.matlab import MatReadError

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checks import Findings
from ppmtf_jax.datasets.discretize import Discretization
from ppmtf_jax.datasets.ids import read_columns, whole_numbers
from ppmtf_jax.datasets.places import GridPlaces
from ppmtf_jax.datasets.registry import CheckinTableSettings, data_set, reader_settings
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.times import local_times, parse_times
from ppmtf_jax.datasets.to_traces import MakesTraces, discretize
from ppmtf_jax.errors import (
    InputError,
    Message,
    Problem,
    Setting,
    first_examples,
    quoted_error,
    raise_any,
    row_problems,
)
from ppmtf_jax.runtime.files import PathLike

NEW_YORK = "America/New_York"

# Foursquare, TSMC2014

FOURSQUARE_COLUMNS = {"user": 0, "place": 1, "category": 3, "latitude": 4, "longitude": 5, "offset": 6, "time": 7}


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

    time_zone: str | None = NEW_YORK


@data_set(
    "foursquare",
    FoursquareSettings,
    "Foursquare check-ins of New York or Tokyo, of the TSMC2014 release (eight columns).",
    "foursquare dataset_TSMC2014_NYC.txt",
)
def read_foursquare(
    file_or_folder: PathLike,
    settings: FoursquareSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read a file of the TSMC2014 release: dataset_TSMC2014_NYC.txt or dataset_TSMC2014_TKY.txt.

    The file, plain or gzipped, perhaps in a folder, has TABs between eight columns and no header: user, venue, category
    id, category name (both may be missing), latitude, longitude, offset from UTC in minutes, UTC time such as "Tue Apr
    03 18:00:00 +0000 2012". Local time is UTC plus the offset; most offsets must be those of `time_zone`. Published
    files are Latin-1 or UTF-8; the reader recognizes both.

    References
    ----------
    .. [1] Yang, Zhang, Zheng, Yu: Modeling User Activity Preference by Leveraging User Spatial Temporal Characteristics
       in LBSNs, IEEE Trans. SMC: Systems 45(1), 2015.

    Examples
    --------
    >>> traces, report = read_foursquare("dataset_TSMC2014_NYC.txt")  # doctest: +SKIP
    """
    settings, options = reader_settings(FoursquareSettings, file_or_folder, settings, named, discretization)
    path, time_zone = Path(file_or_folder), options["time_zone"]
    if path.is_dir():
        files = sorted(file for file in path.glob("dataset_TSMC2014_*.txt*") if "readme" not in file.name.lower())
        if len(files) != 1:
            expected, found = "one file dataset_TSMC2014_<city>.txt or .txt.gz", ", ".join(file.name for file in files)
            raise InputError(str(path), [Problem(expected, found or "none", way_out="Name the file itself")])
        path = files[0]
    table, skipped, notes, _ = read_columns(path, FOURSQUARE_COLUMNS, quote_char=False, subject=str(path))
    minutes, no_offset = whole_numbers(table.pop("offset"), "offsets from UTC in minutes, -840 to 840", -840, 840)
    times = parse_times(table.pop("time"), "UTC")
    local = times.utc + pd.to_timedelta(minutes, unit="m").to_numpy("timedelta64[s]")
    table["local_time"], table["utc_time"] = local, times.utc
    problems, known = [*times.problems], ~np.isnat(local)
    # The release itself has a few odd offsets.
    differs = local[known] != local_times(pd.DatetimeIndex(times.utc[known]), time_zone)
    if differs.sum() > 0.5 * len(differs):
        offsets = np.unique((local - times.utc)[known][differs].astype(np.int64) // 60)
        found = f"offsets of {', '.join(first_examples(offsets.tolist()))} minutes"
        way_out = Message("Name the city's zone, such as ", Setting("time_zone", "Asia/Tokyo"))
        problems.append(Problem(f"offsets of {time_zone}", found, int(differs.sum()), way_out=way_out))
    findings = Findings(problems, notes, skipped, [*no_offset, *times.unparsed])
    return discretize(table, subject=str(path), findings=findings, **options)


# Gowalla, of SNAP

GOWALLA_COLUMNS = {"user": 0, "time": 1, "latitude": 2, "longitude": 3, "place": 4}
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


@data_set(
    "gowalla",
    GowallaSettings,
    "Gowalla check-ins in SNAP's format, with friendships where the edges are given.",
    "gowalla checkins.txt --edges edges.txt --time-zone Europe/Oslo",
)
def read_gowalla(
    checkins_file: PathLike,
    edges_file: PathLike | None = None,
    settings: GowallaSettings | None = None,
    *,
    discretization: MakesTraces | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read loc-gowalla_totalCheckins.txt, or a city cut out of it, and perhaps loc-gowalla_edges.txt.

    The files, plain or gzipped, have TABs and no header: user, UTC time such as 2010-10-12T00:21:28Z, latitude,
    longitude and location id; user and friend. Instants follow the clocks of `time_zone`, and the report counts the
    check-ins that are far from it, the rows that repeat another row entirely, and the friendships with a user who has
    no event left; both are dropped.

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
    table, skipped, notes, _ = read_columns(checkins_file, GOWALLA_COLUMNS, quote_char=False, subject=subject)
    problems = user_problems(checkins_file, table["user"])
    if edges_file is not None:
        edges, bad_edges, *_ = read_columns(edges_file, EDGE_COLUMNS, quote_char=False, subject=str(edges_file))
        problems += bad_edges + user_problems(edges_file, edges["user"]) + user_problems(edges_file, edges["friend"])
    times = parse_times(table.pop("time"), options["time_zone"])
    table["local_time"], table["utc_time"] = times.local, times.utc
    findings = Findings([*problems, *times.problems], notes, skipped, times.unparsed)
    return discretize(table, friendships=edges, subject=subject, findings=findings, drop_repeated=True, **options)


def user_problems(file: PathLike, column: pd.Series) -> list[Problem]:
    """A problem if user ids are not whole numbers: the file has a header line, or is not from SNAP."""
    expected = f"whole numbers in the column '{column.name}' of {Path(file).name}"
    return whole_numbers(column, expected, way_out="Remove a header line, if the file has one")[1]


# LBSN2Vec: a city's MATLAB file

# Monday of the week in which the check-ins begin.
FIRST_MONDAY = np.datetime64("2012-04-02T00:00:00", "s")
HOUR_S, HOURS_OF_WEEK = 3600, 168
CITY_FIELDS = ("selected_checkins", "selected_venue_IDs", "selected_users_IDs")


@dataclass(frozen=True)
class Lbsn2vecSettings(CheckinTableSettings):
    """Import of a city of LBSN2Vec, with friendships.

    Parameters
    ----------
    path : Path
        File dataset_connected_<city>.mat, with friendships and without coordinates.
    time_zone : str, optional
        The city's time zone, such as Asia/Jakarta, for the time grid. Default: UTC.
    graph : "old" or "new"
        Friendships before the check-ins (old) or after them (new).
    category_names : Path, optional
        Table of category_index and category_name.
    """

    time_zone: str | None = "UTC"
    graph: Literal["old", "new"] = "new"
    category_names: Path | None = None


@data_set(
    "lbsn2vec",
    Lbsn2vecSettings,
    "Foursquare check-ins of a city with friendships, of LBSN2Vec (WWW 2019): hours of the week, no coordinates.",
    "lbsn2vec dataset_connected_Jakarta.mat --time-zone Asia/Jakarta",
)
def read_lbsn2vec(
    city_file: PathLike,
    settings: Lbsn2vecSettings | None = None,
    *,
    category_names_file: PathLike | None = None,
    discretization: Discretization | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read dataset_connected_<city>.mat: check-ins by hour of the week, and friendships.

    The file, MATLAB 5, has selected_checkins (user, hour of the week from 1, which is Monday 0 to 1 o'clock local time,
    venue index, category index), friendship_old, friendship_new, selected_users_IDs, selected_venue_IDs. It does not
    list venue ids in the order of the venue indices; the sorted ids have this order. A category without a name in the
    table `category_names_file` (or the setting `category_names`) is called by its index. User ids are the file's
    user_index, place ids Foursquare's. The coordinates of the places are not known (NaN). The step has to be whole
    hours, and places cannot be on a grid. The zone is only the name of the time grid's zone, because hours are local.

    Notes
    -----
    All weeks are mapped to the week of 2 April 2012. A new trace of a user begins if the hour decreases from one row to
    the next: rows are roughly in the order of time, so the next row is of a later week. If the hour does not decrease,
    the next row may also be of a later week, but the file does not tell. In New York, where weeks were reconstructed,
    30 % of the changes of week are of this kind. Two friends at one venue in the same hour of different weeks count as
    a co-location.

    References
    ----------
    .. [1] Yang, Qu, Yang, Cudre-Mauroux: Revisiting User Mobility and Social Relationships in LBSNs: A Hypergraph
       Embedding Approach, WWW 2019.

    Examples
    --------
    >>> traces, report = read_lbsn2vec("dataset_connected_Jakarta.mat", time_zone="Asia/Jakarta")  # doctest: +SKIP
    """
    settings, options = reader_settings(Lbsn2vecSettings, city_file, settings, named, discretization)
    subject = str(city_file)
    problems = _step_problems(options["discretization"])
    if isinstance(options["discretization"].places, GridPlaces):
        expected = "the most visited places, for a file without coordinates"
        problems.append(Problem(expected, "a grid, which needs coordinates"))
    raise_any(subject, problems)
    checkins, friendships, venue_ids = _read_city(city_file, f"friendship_{settings.graph}")
    user, hour, venue, category = checkins.T
    index, number = np.unique(venue, return_inverse=True)
    if len(index) != len(venue_ids):
        raise InputError(subject, [Problem("an id of each venue", f"{len(venue_ids)} ids for {len(index)} venues")])
    # A user's next week begins where the hour of the week goes back from one row to the next.
    week = (pd.Series(hour).groupby(user).diff() < 0).groupby(user).cumsum().to_numpy(np.int64)
    table = pd.DataFrame({"user": user, "place": np.sort(venue_ids)[number], "trace": week})
    table["category"] = _named(pd.Series(category), category_names_file or settings.category_names)
    # Check-ins have a position while they are read.
    table = table.assign(latitude=0.0, longitude=0.0, local_time=_time_of(hour), utc_time=_time_of(hour, week))
    notes = [
        "all weeks are put into one: the data has the hour of the week alone",
        "no coordinates: they are not known, and what needs distances says nothing",
    ]
    # Rows of one trace have to be together, and stay in the order of the file.
    table = table.sort_values(["user", "trace"], kind="stable", ignore_index=True)
    friends = pd.DataFrame(friendships, columns=["user", "friend"])
    traces, report = discretize(table, friendships=friends, subject=subject, findings=Findings(notes=notes), **options)
    unknown = np.full(traces.n_places, np.nan)
    return replace(traces, places=replace(traces.places, latitude=unknown, longitude=unknown)), report


def _read_city(file: PathLike, graph: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check-ins (user, hour, venue, category) and pairs of users, checked, and the ids of the venues."""
    try:
        with Path(file).open("rb") as stream:
            fields = io.loadmat(stream)
    except FileNotFoundError as error:
        raise InputError(str(file), [Problem("a file to read", "no such file")]) from error
    except (OSError, ValueError, TypeError, IndexError, NotImplementedError, MatReadError) as error:
        expected, way_out = "a MATLAB 5 file, dataset_connected_<city>.mat", "Tables are read by `checkins`"
        raise InputError(str(file), [Problem(expected, quoted_error(error), way_out=way_out)]) from None
    missing = [name for name in (*CITY_FIELDS, graph) if name not in fields]
    if missing:
        raise InputError(str(file), [Problem(f"arrays named {', '.join(missing)}", "none")])
    problems, tables = [], []
    for name, n_columns in (("selected_checkins", 4), (graph, 2)):
        values = np.asarray(fields[name])
        if values.ndim != 2 or values.shape[1] != n_columns or values.dtype.kind not in "iu":
            found = f"{values.dtype} of shape {values.shape}"
            problems.append(Problem(f"{name} as whole numbers in {n_columns} columns", found))
            values = np.zeros((0, n_columns))
        tables.append(values.astype(np.int64))
    checkins, friendships = tables
    n_users = np.size(fields["selected_users_IDs"])
    for values, high, what in (
        (checkins[:, 0], n_users, "users of check-ins"),
        (checkins[:, 1], HOURS_OF_WEEK, "hours of the week"),
        (friendships, n_users, f"users of {graph}"),
    ):
        wrong = (values < 1) | (values > high)
        problems += row_problems(wrong, f"{what} from 1 to {high}", values=values)
    raise_any(str(file), problems)
    ids = [str(np.squeeze(each)) for each in np.ravel(fields["selected_venue_IDs"]).tolist()]
    return checkins, friendships, np.array(ids, object)


def _time_of(hour: np.ndarray, week: np.ndarray | int = 0) -> np.ndarray:
    """Local time of an hour of the week, counted from 1, datetime64[s]."""
    hours = HOURS_OF_WEEK * np.asarray(week, np.int64) + np.asarray(hour, np.int64) - 1
    return FIRST_MONDAY + (hours * HOUR_S).astype("timedelta64[s]")


def _named(category: pd.Series, names_file: PathLike | None) -> pd.Series:
    """The name of each category, or its index as a text where it has none."""
    index = category.astype("str")
    if names_file is None:
        return index
    columns = {"category": "category_index", "name": "category_name"}
    names, problems, *_ = read_columns(names_file, columns, subject=str(names_file))
    raise_any(str(names_file), problems)
    name_of = dict(zip(names["category"].astype("str")[::-1], names["name"].astype(object)[::-1], strict=True))
    return index.map(name_of).fillna(index)


def _step_problems(discretization: Discretization) -> list[Problem]:
    step_s = discretization.step_s
    return [Problem("a step of whole hours, as the data has", f"{step_s} s")] if step_s % HOUR_S else []
