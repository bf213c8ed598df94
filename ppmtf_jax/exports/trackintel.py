"""Traces as staypoints of trackintel, and check-ins from its staypoints and position fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.stays import begun_instants
from ppmtf_jax.errors import Problem, missing_columns, raise_any, row_problems
from ppmtf_jax.exports.geodataframe import degrees_of, load_library, with_points
from ppmtf_jax.exports.layers import event_rows
from ppmtf_jax.exports.nominal_times import wall_clock, zoned_times

if TYPE_CHECKING:
    import geopandas
    import trackintel

STEP_S = 3600


def to_trackintel(traces: Traces) -> trackintel.Staypoints:
    """Traces as staypoints, one for each run of events at a place; it ends when the last instant of the run ends.

    All traces are loaded, because trackintel has all staypoints in memory.

    Staypoints fit better than position fixes, because an event says where a user stayed during a step. trackintel
    derives locations, home and work, and entropy from staypoints; its search for stays would find nothing in fixes that
    are hours apart. Times are nominal, see `layers`.

    The columns are user_id, started_at, finished_at, location_id (the place), geom, user and trace. If traces of a user
    overlap in time, as several synthetic traces of one day do, each trace is a user of trackintel with an id such as
    "7 trace 0", because nobody can be at two places. Raises `InputError`: trackintel is not installed, a place has no
    coordinates, or the traces do not fit into memory.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> staypoints = to_trackintel(toy_city(n_users=5, seed=0).traces)  # doctest: +SKIP
    >>> staypoints.generate_locations(epsilon=200)  # doctest: +SKIP
    """
    library, traces = load_library("trackintel"), traces.in_memory()
    goes_on = traces.is_step()
    goes_on[1:] &= traces.place[1:] == traces.place[:-1]
    first = np.flatnonzero(~goes_on)
    last = np.append(first[1:], traces.n_events) - 1
    grid = traces.time_grid
    rows = event_rows(traces).iloc[first].reset_index(drop=True).rename(columns={"place": "location_id"})
    times = zoned_times(wall_clock(grid, traces.instant), grid.time_zone)
    new = {
        "user_id": _movers(traces)[first],
        "started_at": times[first],
        "finished_at": times[last] + pd.Timedelta(seconds=grid.step_s),
    }
    kept = ["location_id", "user", "trace", "latitude", "longitude"]
    table = pd.concat([pd.DataFrame(new), rows[kept]], axis=1)
    points = with_points(table, "geom").drop(columns=["latitude", "longitude"])
    points.index.name = "id"
    return library.Staypoints(points)


def from_trackintel(table: geopandas.GeoDataFrame, *, step_s: int = STEP_S) -> pd.DataFrame:
    """Staypoints or position fixes of trackintel as a table of check-ins, for `read_checkins`.

    Any GeoDataFrame of points with the same columns will do. Coordinates of another reference system are converted to
    WGS 84. `step_s` is the step of the discretization that follows, in local time: a staypoint gives a check-in when it
    starts and at every instant that begins before it finishes. A position fix gives one check-in. The columns of the
    result are user, time (with zone), latitude, longitude and, if the table has them, place (its location_id) and
    trace. Raises `InputError`: the table has neither staypoints nor position fixes, a staypoint finishes before it
    starts, or the step is not positive.

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
    raise_any("trackintel table", problems)
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
    # The rows of a trace must be in the order of time.
    return checkins.sort_values(["user", "trace", "time"] if ours else ["user", "time"], ignore_index=True)


def _movers(traces: Traces) -> np.ndarray:
    """The trackintel user of each event: its user, or its trace if traces of a user overlap; shape (events,)."""
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
    """Check-ins of staypoints: one for each instant that a staypoint covers, and at least one."""
    duration_s = (finished - checkins["time"]).dt.total_seconds().to_numpy()
    bad = ~(duration_s >= 0)  # also a missing time
    raise_any("trackintel table", row_problems(bad, "staypoints that finish after they start"))
    clock = checkins["time"].dt.tz_localize(None) if checkins["time"].dt.tz is not None else checkins["time"]
    # In whole seconds; a stay that ends when an instant begins does not cover that instant.
    start_s = clock.to_numpy("datetime64[s]").astype(np.int64)
    stay, later_s = begun_instants(start_s, np.ceil(duration_s).astype(np.int64) - 1, step_s)
    repeated = checkins.loc[stay].reset_index(drop=True)
    repeated["time"] += pd.to_timedelta(later_s, unit="s")
    return repeated
