"""Tables of points in time for maps: the events of traces, or the number of events at each place in each hour.

Times are nominal. Traces have a grid of instants, and a synthetic trace covers the whole grid, such as a day. The table
has the times of the grid's instants, in the grid's time zone. So all synthetic traces are on the same days, and only
the hour, and in traces of several days perhaps the day of the week, has a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta, timezone
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd

from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.streams import Stage, numpy_stream

ROWS_AT_A_TIME = 2**18
# Two copies of eight columns.
ROW_BYTES = 2 * 8 * 8


class Piece(NamedTuple):
    """Some rows of a layer: whole traces, if it is a layer of traces."""

    rows: pd.DataFrame
    first: np.ndarray  # first row of each trace
    number: int = 0  # number of the first trace among all traces of the layer


@dataclass(frozen=True, eq=False)
class Layer:
    """A table of points in time; `trace_layer` and `population_layer` build it.

    Parameters
    ----------
    pieces : function without arguments that returns an iterator of Piece
        Makes the rows, about `ROWS_AT_A_TIME` of them at a time. They have the columns time (with zone), latitude,
        longitude (degrees, WGS 84), and others: the properties of the points.
    about : dict
        What the table is and what its times mean; values as in JSON.
    n_rows, n_traces : int
        Number of rows, and of traces; a population has no traces.
    step_s : int
        Seconds that a row stands for.
    """

    pieces: Callable[[], Iterator[Piece]]
    about: dict[str, Any]
    n_rows: int
    n_traces: int
    step_s: int

    @cached_property
    def rows(self) -> pd.DataFrame:
        """All rows in one table; `InputError` if they would not fit into memory."""
        require_memory("layer", self.n_rows * ROW_BYTES, "Take a sample of the traces, or write them to a file")
        return pd.concat([piece.rows for piece in self.pieces()], ignore_index=True)


def trace_layer(traces: Traces, n_traces: int | None = None, *, seed: int = 0) -> Layer:
    """Every event of all traces, or of `n_traces` traces drawn at random by `seed`, in the order of the traces.

    Stored traces (`open_traces`) are read in blocks of users: once here, and once each time that the layer is written.
    Of a sample, only the users are loaded. The columns are time, latitude, longitude, user, trace, place and, if known,
    category. Raises `InputError`: the number is less than 1, or a place with events has no coordinates.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> layer = trace_layer(toy_city(n_users=5, n_days=1, seed=0).traces, 2)
    >>> layer.n_traces, list(layer.rows)
    (2, ['time', 'latitude', 'longitude', 'user', 'trace', 'place', 'category'])
    """
    if n_traces is not None and n_traces < 1:
        raise InputError("sample", [Problem("a number of traces of at least 1", repr(n_traces))])
    n_all, some = None, traces
    if n_traces is not None:
        user, _ = traces.trace_table()
        n_all = len(user)
        if n_traces < n_all:
            chosen = numpy_stream(seed, Stage.EXPORT).choice(n_all, n_traces, replace=False)
            users = np.unique(user[chosen])
            of_users = np.flatnonzero(np.isin(user, users))
            some = traces.select_users(users).select_traces(np.isin(of_users, chosen))
    grid, places = some.time_grid, some.places

    def count(block: Traces) -> tuple[np.ndarray, ...]:
        at_instant = np.bincount(block.instant, minlength=grid.n_instants)
        return np.array(len(block.trace_table()[0])), at_instant, np.bincount(block.place, minlength=len(places))

    n_found, at_instant, at_place = some.blocks.map(count).total()
    _check_coordinates(places, np.flatnonzero(at_place))
    instants = np.flatnonzero(at_instant)
    local = wall_clock(grid, instants)
    times = zoned_times(local, grid.time_zone)

    def pieces() -> Iterator[Piece]:
        number = 0
        for block in some.blocks:
            begins = np.append(np.flatnonzero(run_begins(block.user, block.trace)), block.n_events)
            for own in _cuts(begins):
                events = slice(begins[own.start], begins[own.stop])
                rows = event_rows(block, events)
                rows.insert(0, "time", times.take(np.searchsorted(instants, block.instant[events])))
                yield Piece(rows, begins[own] - events.start, number + own.start)
            number += len(begins) - 1

    about = _about("traces", grid, local)
    about |= {"traces": int(n_found), "traces_in_all": int(n_found) if n_all is None else n_all}
    return Layer(pieces, about, int(at_place.sum()), int(n_found), grid.step_s)


def _cuts(begins: np.ndarray) -> Iterator[slice]:
    """Cut traces into groups of about `ROWS_AT_A_TIME` rows; `begins`: first row of each trace, and number of rows."""
    rows = np.arange(0, begins[-1], ROWS_AT_A_TIME)
    cuts = np.unique(np.append(np.searchsorted(begins, rows), len(begins) - 1))
    return (slice(first, stop) for first, stop in pairwise(cuts.tolist()))


def event_rows(traces: Traces, events: slice = slice(None)) -> pd.DataFrame:
    """Some events, by default all: columns latitude, longitude, user, trace, place and, if known, category."""
    rows = _place_rows(traces.places, traces.place[events])
    rows.insert(2, "user", traces.user_ids[traces.user[events]])
    rows.insert(3, "trace", traces.trace[events])
    return rows


def _place_rows(places: PlaceTable, place: np.ndarray) -> pd.DataFrame:
    """Coordinates, id and, if known, category of each place index."""
    _check_coordinates(places, place)
    columns = {"latitude": places.latitude[place], "longitude": places.longitude[place], "place": places.ids[place]}
    return pd.DataFrame(columns if places.category is None else columns | {"category": places.category[place]})


def population_layer(sets: Mapping[str, Traces]) -> Layer:
    """Number of events at each place in each hour of a period, in one trace set or in several side by side.

    All traces and all periods are counted together: the hour from 9:00 has the events of all days. A step longer than
    an hour has one row, at the beginning of the step. A place without events in an hour has no row.

    The sets have the same places in the same order, and time grids of the same period and clock times. The columns are
    time (the beginning of the hour in the first period of the first set), latitude, longitude, place, category if
    known, and for each set its number of events and their share of the set's events in the hour (NaN if it has none).
    For two sets there is also the difference: the first share minus the second. Raises `InputError`: places or grids
    differ, or a place with events has no coordinates.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=5, n_days=2, seed=0).traces
    >>> rows = population_layer({"synthetic": traces, "real": traces}).rows
    >>> list(rows)[-5:]
    ['synthetic_events', 'synthetic_share', 'real_events', 'real_share', 'difference']
    >>> bool(np.isclose(rows.groupby("time")["real_share"].sum(), 1).all()), rows["time"].nunique()
    (True, 24)
    """
    check_same_places(**sets)
    _check_same_clocks(sets)
    first = next(iter(sets.values()))
    grid, places = first.time_grid.one_period(), first.places
    hours, hour = np.unique(wall_clock(grid, np.arange(grid.n_instants)).astype("datetime64[h]"), return_inverse=True)

    def count_events(block: Traces) -> np.ndarray:
        cell = hour[block.instant % grid.period] * len(places) + block.place
        return np.bincount(cell, minlength=len(hours) * len(places))

    counts = pd.DataFrame({name: each.blocks.map(count_events).total() for name, each in sets.items()})
    counts = counts.loc[counts.any(axis=1)]
    hour_of_cell, place = np.divmod(counts.index.to_numpy(), len(places))
    local = hours.astype("datetime64[ms]")[hour_of_cell]
    rows = _place_rows(places, place)
    rows.insert(0, "time", zoned_times(local, grid.time_zone))
    for name in sets:
        count = counts[name].to_numpy()
        total = np.bincount(hour_of_cell, weights=count)[hour_of_cell]
        rows[f"{name}_events"] = count
        rows[f"{name}_share"] = np.divide(count, total, out=np.full(len(count), np.nan), where=total > 0)
    if len(sets) == 2:
        one, other = sets
        rows["difference"] = rows[f"{one}_share"] - rows[f"{other}_share"]
    about = _about("population", grid, local) | {"sets": list(sets)}
    cuts = list(_cuts(np.arange(len(rows) + 1)))
    none = np.zeros(0, np.int64)
    return Layer(lambda: (Piece(rows[each], none) for each in cuts), about, len(rows), 0, max(3600, grid.step_s))


def _about(content: str, grid: TimeGrid, local: np.ndarray) -> dict[str, Any]:
    skipped = clocks_skip(local, grid.time_zone)
    return {
        "made_by": f"ppmtf_jax {version('ppmtf_jax')}",
        "content": content,
        "time": "nominal: the times of the time grid's instants, by the clocks of its time zone"
        + (", all with the offset of the first, since these clocks skip some of the times" if skipped else ""),
        "time_zone": grid.time_zone,
        "step_s": grid.step_s,
    }


def _check_coordinates(places: PlaceTable, place: np.ndarray) -> None:
    known = np.isfinite(places.latitude) & np.isfinite(places.longitude)
    if known[place].all():
        return
    used = np.unique(place)
    known = known[used]
    examples = first_examples(places.ids[used[~known]].tolist())
    way_out = (
        "Give them some in the place table, or leave their events out: traces.select_events("
        "np.isfinite(traces.places.latitude + traces.places.longitude)[traces.place])"
    )
    found = f"{int((~known).sum())} of {len(used)} without"
    raise InputError("places", [Problem("coordinates of all places where somebody is", found, 0, examples, way_out)])


def _check_same_clocks(sets: Mapping[str, Traces]) -> None:
    """The instants of a period must have the same clock times; otherwise different hours would be compared."""
    told = {name: _clock(traces.time_grid) for name, traces in sets.items()}
    if len(set(told.values())) > 1:
        found = "; ".join(f"{name}: {clock}" for name, clock in told.items())
        way_out = "Take the trace set that the synthetic traces were learned from, or one imported like it"
        raise InputError("trace sets", [Problem("periods of the same clocks", found, way_out=way_out)])


def _clock(grid: TimeGrid) -> str:
    # The day of the week has a meaning only if a period has several days.
    form = "%A %H:%M:%S" if grid.period * grid.step_s > DAY_S else "%H:%M:%S"
    start = grid.time_of(0).strftime(form)
    return f"{grid.period} instants of {grid.step_s} s from {start} in {grid.time_zone}"


# Calendar times of instants


def wall_clock(grid: TimeGrid, instants: np.ndarray) -> np.ndarray:
    """Local clock times of instants, datetime64[ms] without a zone."""
    start = np.datetime64(grid.start).astype("datetime64[ms]")
    return start + 1000 * grid.step_s * np.asarray(instants, np.int64)


def zoned_times(local: np.ndarray, time_zone: str) -> pd.DatetimeIndex:
    """Local clock times (datetime64) as times of a time zone.

    A time that occurs twice when summer time ends is the first of the two. A nominal day may have times that do not
    exist, because clocks skip them when summer time begins. Then all times get the offset of the first time, so that
    clock times and their order stay unchanged.

    Examples
    --------
    >>> skipped = np.array(["2024-03-10T01", "2024-03-10T02", "2024-03-10T03"], "datetime64[ms]")
    >>> [str(time) for time in zoned_times(skipped, "America/New_York")]
    ['2024-03-10 01:00:00-05:00', '2024-03-10 02:00:00-05:00', '2024-03-10 03:00:00-05:00']
    """
    distinct, index = np.unique(local, return_inverse=True)
    zoned, zone = _localized(distinct, time_zone), ZoneInfo(time_zone)
    if zoned.hasnans:
        times = pd.DatetimeIndex(distinct)
        zoned = times.tz_localize(timezone(zone.utcoffset(times[0].to_pydatetime()) or timedelta()))
    return zoned.take(index)


def clocks_skip(local: np.ndarray, time_zone: str) -> bool:
    """Whether some of these local times do not exist in a zone."""
    return bool(_localized(np.unique(local), time_zone).hasnans)


def _localized(local: np.ndarray, time_zone: str) -> pd.DatetimeIndex:
    first_of_two = np.ones(len(local), bool)
    return pd.DatetimeIndex(local).tz_localize(ZoneInfo(time_zone), ambiguous=first_of_two, nonexistent="NaT")


def iso_texts(times: pd.Series) -> np.ndarray:
    """Zoned times as ISO 8601 with their offset, such as 2024-01-01T09:00:00+09:00."""
    code, distinct = pd.factorize(times)
    return np.array([time.isoformat() for time in pd.DatetimeIndex(distinct)], object)[code]
