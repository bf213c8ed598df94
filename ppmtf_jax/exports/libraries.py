"""Layers and traces as tables of GeoPandas, trackintel and MovingPandas, and check-ins from the tables of the last two.

All traces are loaded, because these libraries have all in memory. Times are nominal, see `layers`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.stays import begun_instants
from ppmtf_jax.errors import InputError, Problem, first_examples, missing_columns, raise_any, row_problems
from ppmtf_jax.exports.layers import Layer, event_rows, wall_clock, zoned_times

if TYPE_CHECKING:
    import geopandas
    import movingpandas
    import trackintel

WGS_84 = "EPSG:4326"
STEP_S = 3600


def load_library(name: str) -> Any:
    """Import a library of the extra `interop`; the error says how to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unused parts of the library warn of missing libraries
            return importlib.import_module(name)
    except ImportError as error:
        way_out = "Install it with: pip install 'ppmtf_jax[interop]'"
        raise InputError(name, [Problem("the library to be installed", str(error), way_out=way_out)]) from error


def to_geodataframe(layer: Layer) -> geopandas.GeoDataFrame:
    """The rows of a layer with a column of points in WGS 84; `attrs["about"]` has `layer.about`.

    Raises `InputError`: GeoPandas is not installed, or the rows do not fit into memory.

    Examples
    --------
    >>> to_geodataframe(population_layer({"real": traces})).plot("real_share")  # doctest: +SKIP
    """
    table = with_points(layer.rows)
    table.attrs["about"] = layer.about
    return table


def with_points(rows: pd.DataFrame, name: str = "geometry") -> geopandas.GeoDataFrame:
    """Add a column of points to a table with columns latitude and longitude (degrees)."""
    geopandas = load_library("geopandas")
    points = geopandas.points_from_xy(rows["longitude"], rows["latitude"], crs=WGS_84)
    return geopandas.GeoDataFrame(rows.assign(**{name: points}), geometry=name)


def degrees_of(table: geopandas.GeoDataFrame, subject: str) -> tuple[np.ndarray, np.ndarray]:
    """Latitude and longitude of the points of a table in WGS 84; a table without CRS is assumed to be in WGS 84."""
    points = table.geometry
    is_point = ((points.geom_type == "Point") & ~points.is_empty).to_numpy()
    raise_any(subject, row_problems(~is_point, "a point in every row"))
    if points.crs is not None:
        points = points.to_crs(WGS_84)
    return points.y.to_numpy(), points.x.to_numpy()


# trackintel


def to_trackintel(traces: Traces) -> trackintel.Staypoints:
    """Traces as staypoints, one for each run of events at a place; it ends when the last instant of the run ends.

    Staypoints fit better than position fixes, because an event says where a user stayed during a step. trackintel
    derives locations, home and work, and entropy from staypoints; its search for stays would find nothing in fixes that
    are hours apart.

    The columns are user_id, started_at, finished_at, location_id (the place), geom, user and trace. If traces of a user
    overlap in time, as several synthetic traces of one day do, each trace is a user of trackintel with an id such as
    "7 trace 0", because nobody can be at two places. Raises `InputError`: trackintel is not installed, a place has no
    coordinates, or the traces do not fit into memory.

    Examples
    --------
    >>> staypoints = to_trackintel(traces)  # doctest: +SKIP
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


# MovingPandas


def to_movingpandas(traces: Traces) -> movingpandas.TrajectoryCollection:
    """One trajectory for each trace, with a point for each event.

    Times are local clock times without a zone, because MovingPandas does not keep zones. Trajectories are straight
    between events, also over gaps: `ObservationGapSplitter` of MovingPandas cuts them there. Trajectory ids are 0, 1,
    ... in the order of the traces, and object ids are the users' ids. The columns are user, trace, place and, if known,
    category. Raises `InputError`: MovingPandas is not installed, a place has no coordinates, a trace has only one
    event, or the traces do not fit into memory.

    Examples
    --------
    >>> trajectories = to_movingpandas(traces)  # doctest: +SKIP
    >>> trajectories.trajectories[0].get_length(units="km")  # doctest: +SKIP
    """
    library, traces = load_library("movingpandas"), traces.in_memory()
    trace = traces.trace_of_event()
    _check_lengths(traces, np.bincount(trace))
    rows = event_rows(traces).assign(trajectory=trace)
    rows.index = pd.DatetimeIndex(wall_clock(traces.time_grid, traces.instant), name="time")
    points = with_points(rows).drop(columns=["latitude", "longitude"])
    with warnings.catch_warnings():
        # MovingPandas sorts every trajectory in a way that pandas will remove.
        warnings.filterwarnings("ignore", "The inplace keyword", module="movingpandas")
        return library.TrajectoryCollection(points, traj_id_col="trajectory", obj_id_col="user")


def from_movingpandas(trajectories: movingpandas.TrajectoryCollection | movingpandas.Trajectory) -> pd.DataFrame:
    """Trajectories of MovingPandas as a table of check-ins, for `read_checkins`.

    Coordinates of another reference system are converted to WGS 84. The columns are user (the id of the object, or of
    the trajectory if it has no object), time (without zone, as in MovingPandas: give `read_checkins` the zone),
    latitude, longitude, trace (the id of the trajectory) and, if the trajectories have it, place. Raises `InputError`:
    there is no trajectory, or a row is not a point.

    Examples
    --------
    >>> from ppmtf_jax import read_checkins
    >>> checkins = from_movingpandas(trajectories)  # doctest: +SKIP
    >>> traces, report = read_checkins(checkins, time_zone="Europe/Vienna")  # doctest: +SKIP
    """
    each = getattr(trajectories, "trajectories", [trajectories])
    if not each:
        raise InputError("trajectories", [Problem("at least one trajectory", "none")])
    return pd.concat([_checkins_of(trajectory) for trajectory in each], ignore_index=True)


def _checkins_of(trajectory: movingpandas.Trajectory) -> pd.DataFrame:
    table = trajectory.df
    latitude, longitude = degrees_of(table, f"trajectory {trajectory.id}")
    user = trajectory.id if trajectory.obj_id is None else trajectory.obj_id
    columns = {"user": user, "time": table.index, "latitude": latitude, "longitude": longitude, "trace": trajectory.id}
    columns |= {"place": table["place"].to_numpy()} if "place" in table else {}
    return pd.DataFrame(columns)


def _check_lengths(traces: Traces, n_events: np.ndarray) -> None:
    """MovingPandas drops traces of one event without a warning."""
    short = np.flatnonzero(n_events < 2)
    if not len(short):
        return
    user, trace = traces.trace_table()
    examples = first_examples([f"trace {trace[i]} of {traces.user_ids[user[i]]}" for i in short[:5]])
    way_out = "Leave them out: traces.select_traces(np.bincount(traces.trace_of_event()) > 1)"
    found = f"{len(short)} of one event"
    raise InputError("traces", [Problem("at least two events in each trace", found, 0, examples, way_out)])
