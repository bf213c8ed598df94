"""Exact log-probabilities of whole windows under the process of the check-in bridge, in double precision.

With the activity level c, the type z and the range r of a person of cluster k, the probability of a window is

    first[k] sum_c level_share[k, c] times[c] sum_z type_share[c, z] places[z] sum_r range_share[r] new[r, k] / any[k],

where `first` is the probability of the first place, `times` the probability of the instants of the events, and `any`
the probability of at least one event. `places` has one factor for each later event: the probability of the old place to
which they go back, or of going to some new place. `new` is the probability of the new places, given that they are new.
`times` and `places` are the same in all clusters.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int
from scipy import special

from ppmtf_jax.people.bins import GAP_CLASS
from ppmtf_jax.people.checkin_process import CheckinProcess
from ppmtf_jax.people.person import Memory
from ppmtf_jax.people.windows import since_and_habit
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ABSENT

PADDED = 16 * 4 ** np.arange(12)
"""Lengths to which rows of events are padded; with few different lengths, few programs are compiled."""
EVENTS_AT_A_TIME = 4096
"""Approximate sum of the lengths of the rows of a block."""


class _ClassTables(NamedTuple):
    """Distributions of some clusters over places, and sums over all places of distribution x factor.

    The factor of `first` is that of first events. `anywhere` has the factor 1. `near_last` and `near_own` have the
    factors of the distance from each cell.
    """

    visits: Float[Array, "slot place class"]
    first: Float[Array, "slot class"]
    anywhere: Float[Array, "slot class"]
    near_last: Float[Array, "gap_class slot cell class"]
    near_own: Float[Array, "slot cell class"]


class _Arrival(NamedTuple):
    """Events at new places, and what came before: the visited places, in the order of the first visits."""

    place: Int[Array, " arrival"]
    instant: Int[Array, " arrival"]
    gap: Int[Array, " arrival"]  # in instants
    visited: Int[Array, "arrival remembered"]
    n_events: Int[Array, "arrival remembered"]  # 0 at places that were not visited yet
    last: Int[Array, " arrival"]  # index of the last place among the visited places


def log_windows(
    process: CheckinProcess,
    places: Int[np.ndarray, "window instant"],
    classes: Int[np.ndarray, " class"],
    *,
    progress: bool = False,
) -> Float[np.ndarray, "window class"]:
    """Log-probability of each window in each given cluster; `places` is `ABSENT` at instants without an event."""
    n_events = (places != ABSENT).sum(axis=1)
    log = np.full((len(places), len(classes)), -np.inf)
    blocks = _blocks(n_events)
    with jax.enable_x64(True), progress_bar("likelihoods of the traces", len(places), show=progress) as advance:
        local_copy = on_each_device((_doubled(process), _tables(process, classes)))

        def of_block(block: tuple[np.ndarray, int]) -> np.ndarray:
            rows, most = block
            return _log_block(*local_copy(), classes, places[np.resize(rows, _size(most))], most)[: len(rows)]

        for (rows, _), found in zip(blocks, map_in_threads(of_block, blocks), strict=True):
            log[rows] = found
            advance(len(rows))
    return log


def _doubled(process: CheckinProcess) -> CheckinProcess:
    """The process in double precision; shares, rounded to single precision before, are normalized again."""
    arrays = {name: array.astype(np.float64) for name, array in process.to_arrays().items() if array.dtype.kind == "f"}
    # The distributions over places, which need most memory, are in `_ClassTables`.
    del arrays["visits"]
    for name in ("level_share", "type_share", "range_share", "reference"):
        arrays[name] /= arrays[name].sum(axis=-1, keepdims=True)
    return replace(process, **{name: jnp.asarray(array) for name, array in arrays.items()})


def _tables(process: CheckinProcess, classes: Int[np.ndarray, " class"]) -> _ClassTables:
    """Compute the tables; each table of factors takes one product with a matrix of cells x cells."""
    visits = np.ascontiguousarray(np.moveaxis(np.asarray(process.visits)[classes], 0, -1))
    cell, bins = np.asarray(process.cell), np.asarray(process.distance_bin)
    in_cell = np.zeros((len(visits), len(bins), len(classes)))
    for of_cells, of_places in zip(in_cell, visits, strict=True):
        np.add.at(of_cells, cell, of_places)
    sums = [factor.astype(np.float64)[bins] @ in_cell for factor in np.vstack([process.near_last, process.near_own])]
    first = np.exp(np.asarray(process.first_rate, np.float64)) @ visits
    tables = _ClassTables(visits, first, in_cell.sum(axis=1), np.stack(sums[:-1]), sums[-1])
    return jax.tree.map(jnp.asarray, tables)


def _blocks(length: Int[np.ndarray, " row"]) -> list[tuple[np.ndarray, int]]:
    """Blocks of rows of positive length, each with the length to which its rows are padded."""
    filled = PADDED[np.searchsorted(PADDED, length)]
    blocks = []
    for most in np.unique(filled[length > 0]).tolist():
        rows = np.flatnonzero((filled == most) & (length > 0))
        blocks += [(rows[begin : begin + _size(most)], most) for begin in range(0, len(rows), _size(most))]
    return blocks


def _size(most: int) -> int:
    """Number of rows of a block whose rows have the length `most`."""
    return -(-EVENTS_AT_A_TIME // most)


def _log_block(
    process: CheckinProcess,
    tables: _ClassTables,
    classes: Int[np.ndarray, " class"],
    places: Int[np.ndarray, "window instant"],
    most_events: int,
) -> Float[np.ndarray, "window class"]:
    """Log-probabilities of windows with at least one and at most `most_events` events."""
    log, arrivals, is_new = _log_but_new(process, tables, jnp.asarray(classes), jnp.asarray(places), most_events)
    window, event = np.nonzero(np.asarray(is_new))
    arrivals = _Arrival(*(np.asarray(column)[window, event] for column in arrivals))
    log_new = np.zeros((len(places), len(process.range_share), len(classes)))
    for rows, most in _blocks((arrivals.n_events > 0).sum(axis=1)):
        some = _Arrival(*(column[np.resize(rows, _size(most))] for column in arrivals))
        some = some._replace(visited=some.visited[:, :most], n_events=some.n_events[:, :most])
        np.add.at(log_new, window[rows], np.asarray(_log_new(process, tables, some))[: len(rows)])
    of_range = np.asarray(process.range_share)[:, None]
    return np.asarray(log) + np.asarray(special.logsumexp(log_new, axis=1, b=of_range))


@partial(jax.jit, static_argnames="most_events")
def _log_but_new(
    process: CheckinProcess,
    tables: _ClassTables,
    classes: Int[Array, " class"],
    places: Int[Array, "window instant"],
    most_events: int,
) -> tuple[Float[Array, "window class"], _Arrival, Bool[Array, "window event"]]:
    """Log-probabilities without the factor `new`; all events after the first; whether each is at a new place."""
    n_instants = places.shape[1]
    log_any, level_share = process.log_first_event(n_instants)[1], process.level_share[classes]

    def of_window(places: Array) -> tuple[Float[Array, " class"], _Arrival, Array]:
        instants = jnp.flatnonzero(places != ABSENT, size=most_events, fill_value=n_instants).astype(jnp.int32)
        slot, place = process.slot(instants[0]), places[instants[0]]
        log_first = jnp.log(tables.visits[slot, place].astype(level_share.dtype)) - jnp.log(tables.first[slot])
        log_first += process.first_rate[place]
        log_places, arrivals, is_new = _log_returns(process, instants, places)
        log_level = _log_times(process, places != ABSENT) + logsumexp(log_places, axis=1, b=process.type_share)
        log_given = logsumexp(log_level, axis=1, b=level_share) - logsumexp(log_any, axis=1, b=level_share)
        return log_first + log_given, arrivals, is_new

    return jax.vmap(of_window)(places)


def _log_times(process: CheckinProcess, happens: Array) -> Float[Array, " level"]:
    """Log-probability of events at these instants, and at no others, for each level."""
    instants = jnp.arange(len(happens))
    since, habit = since_and_habit(happens, process.per_day)
    log_odds = process.log_odds[:, instants % process.log_odds.shape[1], since, habit]
    return jax.nn.log_sigmoid(jnp.where(happens, log_odds, -log_odds)).sum(axis=1)


def _log_returns(
    process: CheckinProcess, instants: Int[Array, " event"], places: Int[Array, " instant"]
) -> tuple[Float[Array, " type"], _Arrival, Bool[Array, " later"]]:
    """Log-probability `places` of the module's formula, for each type.

    Also returns all events after the first, and whether each of them is at a new place. `instants`: instants of the
    events, padded with the number of instants.
    """
    first = instants[0]
    size = min(process.most_places, len(instants))
    memory = Memory.empty(size, process.n_places).after(places[first], first, process.hour(first))

    def add_event(memory: Memory, instant: Array) -> tuple[Memory, tuple[Array, ...]]:
        place, happens = places[instant], instant < len(places)
        known = memory.place == place
        log_old, log_new = process.log_weights(memory, instant, process.hour(instant))
        log_last = log_old[memory.last] + process.last_of_type
        log_others = logsumexp(jnp.where(memory.is_last, -jnp.inf, log_old))
        total = jnp.logaddexp(jnp.logaddexp(log_others, log_last), log_new)
        log_back = jnp.where(known[memory.last], log_last, log_old[jnp.argmax(known)])
        log_place = jnp.where(known.any(), log_back, log_new) - total
        before = (place, instant, instant - memory.instant, memory.n_events, memory.last)
        # Padding comes after the last event, so its effect on the memory does not matter.
        after = memory.after(place, instant, process.hour(instant))
        return after, (jnp.where(happens, log_place, 0), happens & ~known.any(), *before)

    memory, (log_places, is_new, place, instant, gap, n_events, last) = lax.scan(add_event, memory, instants[1:])
    visited = jnp.broadcast_to(memory.place, n_events.shape)
    return log_places.sum(axis=0), _Arrival(place, instant, gap, visited, n_events, last), is_new


@jax.jit
def _log_new(process: CheckinProcess, tables: _ClassTables, arrivals: _Arrival) -> Float[Array, "arrival range class"]:
    """Log-probabilities of the places of events at new places."""

    def of_arrival(arrival: _Arrival) -> Float[Array, "range class"]:
        gap, slot = process.gap_bin(arrival.gap), process.slot(arrival.instant)
        gap_class, cell, own = jnp.asarray(GAP_CLASS)[gap], process.cell[arrival.place], process.cell[arrival.visited]
        n_events = arrival.n_events.astype(process.place_rate.dtype)
        visited = tables.visits[slot, arrival.visited].astype(process.place_rate.dtype) * (n_events[:, None] > 0)
        here = tables.visits[slot, arrival.place].astype(process.place_rate.dtype)

        def among_rest(weight: Array, total: Array, of_visited: Array) -> Array:
            # Rounding must not make the sum over the unvisited places less than the weight of one of them.
            return weight / jnp.maximum(total - of_visited, weight)

        anywhere = among_rest(here, tables.anywhere[slot], visited.sum(axis=0))
        factor = process.near_last[gap_class][process.distance_bin[own[arrival.last]]]
        total = tables.near_last[gap_class, slot, own[arrival.last]]
        near_last = among_rest(here * factor[cell], total, factor[own] @ visited)
        factor = process.near_own[process.distance_bin[own]]
        near_own = among_rest(factor[:, cell, None] * here, tables.near_own[slot, own], factor[:, own] @ visited)
        near_own = n_events / n_events.sum() @ near_own
        return jnp.log(process.reference[:, gap] @ jnp.stack([anywhere, near_last, near_own]))

    return jax.vmap(of_arrival)(arrivals)
