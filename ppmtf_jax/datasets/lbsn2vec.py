"""The Foursquare check-ins with friendships of LBSN2Vec (WWW 2019): a city's MATLAB file, or New York with dates.

In a MATLAB file, the only time of a check-in is its hour of the week, and there are no coordinates. So its traces lie
in one nominal week of 168 hours. The derived table of New York has weeks and coordinates.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import io
from scipy.io.matlab import MatReadError

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkin_import import CheckinTableSettings, importer, reader_settings
from ppmtf_jax.datasets.coded_checkins import Findings
from ppmtf_jax.datasets.discretize import Discretization
from ppmtf_jax.datasets.places import GridPlaces
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.summary import ImportReport
from ppmtf_jax.datasets.tables import read_columns, whole_numbers
from ppmtf_jax.datasets.times import parse_times
from ppmtf_jax.datasets.to_traces import discretize
from ppmtf_jax.errors import InputError, Problem, quoted_error, raise_any, row_problems

# Monday of the week in which the check-ins begin.
FIRST_MONDAY = np.datetime64("2012-04-02T00:00:00", "s")
HOUR_S, HOURS_OF_WEEK = 3600, 168
CITY_FIELDS = ("selected_checkins", "selected_venue_IDs", "selected_users_IDs")
TABLE_COLUMNS = ("user", "venue_id", "category_index", "lat", "lon", "hour_of_week", "week", "week_verified")
NEW_YORK = "America/New_York"

PathLike = str | os.PathLike[str]


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


@dataclass(frozen=True)
class Lbsn2vecTableSettings(CheckinTableSettings):
    """Import of the derived table of New York, perhaps with friendships.

    Parameters
    ----------
    path : Path
        File nyc_checkins.csv, plain or gzipped.
    friendships : Path, optional
        File nyc_friendship_new.csv or nyc_friendship_old.csv.
    verified_only : bool
        Leave out check-ins whose week is a guess.
    time_zone : str, optional
        The city's time zone. Default: America/New_York.
    category_names : Path, optional
        Table of category_index and category_name.
    """

    time_zone: str | None = NEW_YORK
    friendships: Path | None = None
    verified_only: bool = False
    category_names: Path | None = None


def read_lbsn2vec(
    city_file: PathLike,
    settings: Lbsn2vecSettings | None = None,
    *,
    category_names_file: PathLike | None = None,
    discretization: Discretization | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read dataset_connected_<city>.mat: check-ins by hour of the week, and friendships.

    Raises `InputError`, which lists every problem of the file.

    Parameters
    ----------
    city_file : path
        MATLAB 5: selected_checkins (user, hour of the week from 1, which is Monday 0 to 1 o'clock local time, venue
        index, category index), friendship_old, friendship_new, selected_users_IDs, selected_venue_IDs.
    category_names_file : path, optional
        The same as the setting `category_names`. A category without a name is called by its index.
    settings, discretization
        As for `read_checkins`. The step has to be whole hours, and places cannot be on a grid. Slots come round every
        day, so that a synthetic trace is a day.
    **named
        Settings by name, see `Lbsn2vecSettings`: `graph`, `time_zone`, `drop_bad_rows`, `n_places` and others. The zone
        is only the name of the time grid's zone, because the hours are already local.

    Returns
    -------
    (Traces, ImportReport)
        User ids are the file's user_index, place ids Foursquare's. The coordinates of the places are not known (NaN).

    Notes
    -----
    Time. All weeks are mapped to the week of 2 April 2012. A new trace of a user begins if the hour decreases from one
    row to the next: rows are roughly in the order of time, so the next row is of a later week. If the hour does not
    decrease, the next row may also be of a later week, but the file does not tell. In New York, where weeks were
    reconstructed, 30 % of the changes of week are of this kind. Two friends at one venue in the same hour of different
    weeks count as a co-location.

    Venues. The file does not list venue ids in the order of the venue indices; the sorted ids have this order.

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
    problems = _step_problems(options["discretization"].step_s)
    if isinstance(options["discretization"].places, GridPlaces):
        expected = "the most visited places, for a file without coordinates"
        problems.append(Problem(expected, "a grid, which needs coordinates"))
    raise_any(subject, problems)
    checkins, friendships, venue_ids = _read_city(city_file, f"friendship_{settings.graph}")
    user, hour, venue, category = checkins.T
    index, number = np.unique(venue, return_inverse=True)
    if len(index) != len(venue_ids):
        found = f"{len(venue_ids)} ids for {len(index)} venues"
        raise InputError(subject, [Problem("an id of each venue", found)])
    # A user's next week begins where the hour of the week goes back from one row to the next.
    week = (pd.Series(hour).groupby(user).diff() < 0).groupby(user).cumsum().to_numpy(np.int64)
    table = pd.DataFrame(
        {
            "user": user,
            "place": np.sort(venue_ids)[number],
            "category": _named(pd.Series(category), category_names_file or settings.category_names),
            "latitude": 0.0,
            "longitude": 0.0,
            "trace": week,
            "local_time": _time_of(hour),
            "utc_time": _time_of(hour, week),
        }
    )
    notes = [
        "all weeks are put into one: the data has the hour of the week alone",
        "no coordinates: they are not known, and what needs distances says nothing",
    ]
    # Rows of one trace have to be together, and stay in the order of the file.
    table = table.sort_values(["user", "trace"], kind="stable", ignore_index=True)
    friends = pd.DataFrame(friendships, columns=["user", "friend"])
    traces, report = discretize(table, friendships=friends, subject=subject, findings=Findings(notes=notes), **options)
    # Check-ins have a position while they are read.
    unknown = np.full(traces.n_places, np.nan)
    places = replace(traces.places, latitude=unknown, longitude=unknown)
    return replace(traces, places=places), report


def read_lbsn2vec_table(
    checkins_file: PathLike,
    friendships_file: PathLike | None = None,
    settings: Lbsn2vecTableSettings | None = None,
    *,
    category_names_file: PathLike | None = None,
    discretization: Discretization | None = None,
    **named: Any,
) -> tuple[Traces, ImportReport]:
    """Read the derived table of New York: check-ins with weeks and coordinates, and perhaps friendships.

    Check-ins at venues without coordinates are left out and counted. Raises `InputError`, which lists every problem.

    Parameters
    ----------
    checkins_file : path
        Table with a header: user, venue_id, category_index, lat, lon, hour_of_week, week (0 begins on 2 April 2012),
        week_verified; plain or gzipped.
    friendships_file : path, optional
        Table with columns user, friend: friendships before the check-ins (old) or after them (new).
    settings, category_names_file, discretization
        As for `read_lbsn2vec`; places on a grid are possible.
    **named
        Settings by name, see `Lbsn2vecTableSettings`: `verified_only`, `time_zone`, `drop_bad_rows`, `n_places` and
        others. A check-in with an unverified week has the right hour of the week, but a guessed week.

    Returns
    -------
    (Traces, ImportReport)
        User ids are the user_index of the city's MATLAB file.

    Examples
    --------
    >>> traces, report = read_lbsn2vec_table(
    ...     "nyc_checkins.csv.gz", "nyc_friendship_new.csv.gz", verified_only=True
    ... )  # doctest: +SKIP
    """
    settings, options = reader_settings(Lbsn2vecTableSettings, checkins_file, settings, named, discretization)
    subject, friendships_file = str(checkins_file), friendships_file or settings.friendships
    raw, problems, *_ = read_columns(checkins_file, {name: name for name in TABLE_COLUMNS}, subject=subject)
    friends = None
    if friendships_file is not None:
        names = {"user": "user", "friend": "friend"}
        friends, friend_problems, *_ = read_columns(friendships_file, names, subject=str(friendships_file))
        problems += friend_problems
    numbers = {}
    for name, low, high in (("hour_of_week", 1, HOURS_OF_WEEK), ("week", 0, 1000), ("week_verified", 0, 1)):
        expected = f"{name} in whole numbers from {low} to {high}"
        numbers[name], found = whole_numbers(raw.pop(name), expected, low, high)
        problems += found
    problems += _step_problems(options["discretization"].step_s)
    raise_any(subject, problems)
    table = raw.rename(
        columns={"venue_id": "place", "category_index": "category", "lat": "latitude", "lon": "longitude"}
    )
    table["category"] = _named(table["category"], category_names_file or settings.category_names)
    times = parse_times(pd.Series(_time_of(numbers["hour_of_week"], numbers["week"])), options["time_zone"])
    table["local_time"], table["utc_time"] = times.local, times.utc
    located = table[["latitude", "longitude"]].notna().all(axis=1).to_numpy()
    verified = numbers["week_verified"] == 1
    keep = located & (verified | (not settings.verified_only))
    what = "left out" if settings.verified_only else "kept"
    notes = [
        f"{(~located).sum():,} check-ins left out: their venues have no coordinates",
        f"{(located & ~verified).sum():,} check-ins {what}: their week is a guess, but their hour of the week is known",
        *times.notes,
    ]
    if not keep.any():
        raise InputError(subject, [Problem("at least one check-in that is kept", "none, " + "; ".join(notes))])
    table, findings = table[keep].reset_index(drop=True), Findings(times.problems, notes)
    traces, report = discretize(table, friendships=friends, subject=subject, findings=findings, **options)
    return traces, replace(report, n_rows=len(raw))


DATA_SETS.register(
    DataSet(
        "lbsn2vec",
        "Foursquare check-ins of a city with friendships, of LBSN2Vec (WWW 2019): hours of the week, no coordinates.",
        Lbsn2vecSettings,
        importer(read_lbsn2vec),
        "lbsn2vec dataset_connected_Jakarta.mat --time-zone Asia/Jakarta",
    )
)
DATA_SETS.register(
    DataSet(
        "lbsn2vec-table",
        "Foursquare check-ins of New York with friendships, of LBSN2Vec, with weeks and coordinates reconstructed.",
        Lbsn2vecTableSettings,
        importer(read_lbsn2vec_table),
        "lbsn2vec-table nyc_checkins.csv.gz --friendships nyc_friendship_new.csv.gz",
    )
)


def _read_city(file: PathLike, graph: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check-ins (user, hour, venue, category) and pairs of users, checked, and the ids of the venues."""
    try:
        with Path(file).open("rb") as stream:
            fields = io.loadmat(stream)
    except FileNotFoundError as error:
        raise InputError(str(file), [Problem("a file to read", "no such file")]) from error
    except (OSError, ValueError, TypeError, IndexError, NotImplementedError, MatReadError) as error:
        expected, way_out = "a MATLAB 5 file, dataset_connected_<city>.mat", "Tables are read by `lbsn2vec-table`"
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


def _step_problems(step_s: int) -> list[Problem]:
    return [Problem("a step of whole hours, as the data has", f"{step_s} s")] if step_s % HOUR_S else []
