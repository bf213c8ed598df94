"""Traces as staypoints of trackintel, and check-ins out of its staypoints and position fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.stay_points import begun_instants
from ppmtf_jax.errors import InputError, Problem, missing_columns
from ppmtf_jax.exports.geodataframe import degrees_of, with_points
from ppmtf_jax.exports.layers import event_rows
from ppmtf_jax.exports.libraries import load_library
from ppmtf_jax.exports.nominal_times import wall_clock, zoned_times

if TYPE_CHECKING:
    import geopandas
    import trackintel

STEP_S = 3600


def to_trackintel(traces: Traces) -> trackintel.Staypoints:
    """Traces as staypoints: one for each run of events at a place, from its first instant to the end of its last.

    Staypoints, and no position fixes, since an event says at which place somebody was during a step, and not where
    somebody passed by: what trackintel derives from staypoints (locations, home and work, entropy) can be had at once,
    where its search for stays would find nothing in fixes hours apart. Places are its locations.

    Times are nominal, see `layers`.

    Returns
    -------
    trackintel.Staypoints
        With columns user_id, started_at, finished_at, location_id (the place), geom; and user, trace. Where a user's
        traces are at the same times, as several synthetic ones of one day are, each trace is a user of trackintel, by
        an id such as "7 trace 0": nobody can be at two places.

    Raises
    ------
    InputError
        trackintel is not installed, or a place has no coordinates.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> staypoints = to_trackintel(toy_city(n_users=5, seed=0).traces)  # doctest: +SKIP
    >>> staypoints.generate_locations(epsilon=200)  # doctest: +SKIP
    """
    library = load_library("trackintel")
    goes_on = traces.is_step()
    goes_on[1:] &= traces.place[1:] == traces.place[:-1]
    first = np.flatnonzero(~goes_on)
    last = np.append(first[1:], traces.n_events) - 1
    grid = traces.time_grid
    rows = event_rows(traces).iloc[first].reset_index(drop=True)
    times = zoned_times(wall_clock(grid, traces.instant), grid.time_zone)
    table = pd.DataFrame(
        {
            "user_id": _movers(traces)[first],
            "started_at": times[first],
            "finished_at": times[last] + pd.Timedelta(seconds=grid.step_s),
            "location_id": rows["place"],
            "user": rows["user"],
            "trace": rows["trace"],
            "latitude": rows["latitude"],
            "longitude": rows["longitude"],
        }
    )
    points = with_points(table, "geom").drop(columns=["latitude", "longitude"])
    points.index.name = "id"
    return library.Staypoints(points)


def from_trackintel(table: geopandas.GeoDataFrame, *, step_s: int = STEP_S) -> pd.DataFrame:
    """Staypoints or position fixes of trackintel as a table of check-ins, for `read_checkins`.

    Parameters
    ----------
    table : trackintel.Staypoints or trackintel.Positionfixes
        Or any GeoDataFrame with points and their columns. Of another coordinate reference system than WGS 84 points are
        converted.
    step_s : int
        The step of the discretization that follows: a staypoint is a check-in when it starts, and whenever an instant
        begins before it finishes, by the clocks of the times' zone. Position fixes are one each.

    Returns
    -------
    DataFrame
        Columns user, time (with zone), latitude, longitude and, where the table has them, place (its location_id) and
        trace.

    Raises
    ------
    InputError
        The table has neither staypoints nor position fixes, a staypoint finishes before it starts, or the step is not
        positive.

    Examples
    --------
    >>> from ppmtf_jax import read_checkins
    >>> checkins = from_trackintel(positionfixes)  # doctest: +SKIP
    >>> traces, report = read_checkins(checkins, time_zone="Europe/Zurich")  # doctest: +SKIP
    """
    stays = "started_at" in table
    needed = ("user_id", "started_at", "finished_at") if stays else ("user_id", "tracked_at")
    problems: list[Problem | str] = [*missing_columns(table.columns, needed)]
    if step_s <= 0:
        problems.append(Problem("a positive step_s", repr(step_s)))
    if problems:
        raise InputError("trackintel table", problems)
    latitude, longitude = degrees_of(table, "trackintel table")
    ours = {"user", "trace"} <= set(table.columns)
    columns = {
        "user": table["user" if ours else "user_id"],
        "time": table["started_at" if stays else "tracked_at"],
        "latitude": latitude,
        "longitude": longitude,
    }
    columns |= {"place": table["location_id"]} if "location_id" in table else {}
    columns |= {"trace": table["trace"]} if ours else {}
    checkins = pd.DataFrame(columns).reset_index(drop=True)
    if stays:
        checkins = _repeated(checkins, table["finished_at"].reset_index(drop=True), step_s)
    # Rows of one trace have to be in the order of time.
    return checkins.sort_values(["user", "trace", "time"] if ours else ["user", "time"], ignore_index=True)


def _movers(traces: Traces) -> np.ndarray:
    """Who each event is of: its user, or its trace where traces of one user are at the same times, shape (events,)."""
    user, trace = traces.trace_table()
    of_event = traces.trace_of_event()
    first = np.searchsorted(of_event, np.arange(len(user)))
    last = np.append(first[1:], traces.n_events) - 1
    begins, ends = traces.instant[first], traces.instant[last]
    at_once = (user[1:] == user[:-1]) & (begins[1:] <= ends[:-1])
    if not at_once.any():
        return traces.user_ids[traces.user]
    names = pd.Series(traces.user_ids[user]).astype(str) + " trace " + pd.Series(trace).astype(str)
    return names.to_numpy(object)[of_event]


def _repeated(checkins: pd.DataFrame, finished: pd.Series, step_s: int) -> pd.DataFrame:
    """A check-in for each instant that stays cover, at least one."""
    duration_s = (finished - checkins["time"]).dt.total_seconds().to_numpy()
    bad = ~(duration_s >= 0)  # with a missing time there is none
    if bad.any():
        found = "others"
        raise InputError(
            "trackintel table", [Problem("staypoints that finish after they start", found, int(bad.sum()))]
        )
    clock = checkins["time"].dt.tz_localize(None) if checkins["time"].dt.tz is not None else checkins["time"]
    # Whole seconds; who leaves when an instant begins is not there in it.
    start_s = clock.to_numpy("datetime64[s]").astype(np.int64)
    stay, later_s = begun_instants(start_s, np.ceil(duration_s).astype(np.int64) - 1, step_s)
    repeated = checkins.loc[stay].reset_index(drop=True)
    repeated["time"] += pd.to_timedelta(later_s, unit="s")
    return repeated
