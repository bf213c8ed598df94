"""Traces as trajectories of MovingPandas, and check-ins from such trajectories."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.exports.geodataframe import degrees_of, load_library, with_points
from ppmtf_jax.exports.layers import event_rows
from ppmtf_jax.exports.nominal_times import wall_clock

if TYPE_CHECKING:
    import movingpandas


def to_movingpandas(traces: Traces) -> movingpandas.TrajectoryCollection:
    """One trajectory for each trace, with a point for each event.

    All traces are loaded, because MovingPandas has all trajectories in memory.

    Times are local clock times without a zone, because MovingPandas does not keep zones; they are nominal, see
    `layers`. Trajectories are straight between events, also over gaps: `ObservationGapSplitter` of MovingPandas cuts
    them there. Trajectory ids are 0, 1, ... in the order of the traces, and object ids are the users' ids. The columns
    are user, trace, place and, if known, category. Raises `InputError`: MovingPandas is not installed, a place has no
    coordinates, a trace has only one event, or the traces do not fit into memory.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> trajectories = to_movingpandas(toy_city(n_users=5, seed=0).traces)  # doctest: +SKIP
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
