"""Exact log-probabilities of whole windows under the law of the check-in bridge, in double precision.

With the pace c, the type z and the range r of a person of cluster k, the probability of a window is

    first[k] sum_c pace_share[k, c] times[c] sum_z type_share[c, z] places[z] sum_r range_share[r] new[r, k] / any[k],

where `times` is that of the instants of events, `places` that of going back or not, `new` that of the new places, and
`any` that of at least one event. So the first three need no cluster or no place.
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
from jaxtyping import Array, Float, Int

from ppmtf_jax.bridge.checkins.law import (
    GAP_CLASS,
    HOURS_A_DAY,
    NONE_YET,
    NONE_YET_LATER,
    SINCE_FROM_H,
    CheckinLaw,
    Memory,
    bins_of_instants,
    habit_bin,
    hour_of_instants,
    near_hour,
)
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ABSENT

# Windows are padded to one of few numbers of events, so that few programs are compiled, and computed in blocks of about
# this many events.
EVENTS_AT_A_TIME = 4096
FEW_EVENTS, MORE_EVENTS = 8, 4


class _ClassTables(NamedTuple):
    """Distributions over places of some clusters, and sums over places of distribution x factor of distance."""

    visits: Float[Array, "slot place class"]
    anywhere: Float[Array, "slot class"]
    near_last: Float[Array, "gap_class slot cell class"]
    near_own: Float[Array, "slot cell class"]


def log_windows(
    law: CheckinLaw,
    places: Int[np.ndarray, "window instant"],
    classes: Int[np.ndarray, " class"],
    *,
    progress: bool = False,
) -> Float[np.ndarray, "window class"]:
    """Log-probability of each window under each of some clusters; `places` is `ABSENT` without an event."""
    n_events = (places != ABSENT).sum(axis=1)
    padded = FEW_EVENTS * MORE_EVENTS ** np.arange(32)
    padded = np.minimum(padded[np.searchsorted(padded, n_events)], places.shape[1])
    blocks = [
        (rows[begin : begin + size], most)
        for most in np.unique(padded[n_events > 0]).tolist()
        for rows in [np.flatnonzero((padded == most) & (n_events > 0))]
        for size in [-(-EVENTS_AT_A_TIME // most)]
        for begin in range(0, len(rows), size)
    ]
    log = np.full((len(places), len(classes)), -np.inf)
    with jax.enable_x64(True), progress_bar("likelihoods of the traces", len(places), show=progress) as advance:
        local_copy = on_each_device((_doubled(law), _tables(law, classes)))

        def of_block(block: tuple[np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
            rows, most = block
            size = -(-EVENTS_AT_A_TIME // most)
            found = _log_block(*local_copy(), classes, np.resize(places[rows], (size, places.shape[1])), most)
            return rows, np.asarray(found)[: len(rows)]

        for rows, found in map_in_threads(of_block, blocks):
            log[rows] = found
            advance(len(rows))
    return log


def log_users(
    law: CheckinLaw,
    places: Int[np.ndarray, "window instant"],
    user: Int[np.ndarray, " window"],
    n_users: int,
    *,
    progress: bool = False,
) -> Float[np.ndarray, " user"]:
    """Log-probability of all windows of each user, whose cluster is unknown: clusters have their shares of users.

    0 for a user without windows; minus infinity if the model never makes a window of the user.
    """
    share = np.asarray(law.n_present, np.float64)
    log = log_windows(law, places, np.arange(len(share)), progress=progress)
    of_user = np.zeros((n_users, len(share)))
    np.add.at(of_user, user, log)
    return np.logaddexp.reduce(of_user + np.log(share / share.sum()), axis=1)


def _doubled(law: CheckinLaw) -> CheckinLaw:
    """The law in double precision; shares that were rounded to single precision sum to one again."""

    def doubled(array: Array) -> Array:
        return array.astype(jnp.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array

    law = jax.tree.map(doubled, law)
    shares = {name: getattr(law, name) for name in ("pace_share", "type_share", "range_share", "reference")}
    return replace(law, **{name: share / share.sum(axis=-1, keepdims=True) for name, share in shares.items()})


def _tables(law: CheckinLaw, classes: Int[np.ndarray, " class"]) -> _ClassTables:
    """Sums over places, with one product of cells x cells for each table of factors."""
    visits = np.ascontiguousarray(np.moveaxis(np.asarray(law.visits)[classes], 0, -1))
    cell, bins = np.asarray(law.cell), np.asarray(law.distance_bin)
    in_cell = np.zeros((len(visits), len(bins), len(classes)))
    for of_cells, of_places in zip(in_cell, visits, strict=True):
        np.add.at(of_cells, cell, of_places)
    sums = [factor.astype(np.float64)[bins] @ in_cell for factor in np.vstack([law.near_last, law.near_own])]
    tables = _ClassTables(visits, in_cell.sum(axis=1), np.stack(sums[:-1]), sums[-1])
    return jax.tree.map(jnp.asarray, tables)


@partial(jax.jit, static_argnames="most_events")
def _log_block(
    law: CheckinLaw,
    tables: _ClassTables,
    classes: Int[Array, " class"],
    places: Int[Array, "window instant"],
    most_events: int,
) -> Float[Array, "window class"]:
    """Log-probabilities of windows with at least one and at most `most_events` events."""
    n_instants = places.shape[1]
    log_any, pace_share = law.log_first_event(n_instants)[1], law.pace_share[classes]

    def of_window(places: Array) -> Float[Array, " class"]:
        instants = jnp.flatnonzero(places != ABSENT, size=most_events, fill_value=n_instants).astype(jnp.int32)
        log_times = _log_times(law, places != ABSENT)
        log_first, log_places, log_new = _log_places(law, tables, instants, places)
        log_pace = log_times + logsumexp(log_places, axis=1, b=law.type_share)
        log_given = logsumexp(log_pace, axis=1, b=pace_share) - logsumexp(log_any, axis=1, b=pace_share)
        return log_first + log_given + logsumexp(log_new, axis=0, b=law.range_share[:, None])

    return jax.vmap(of_window)(places)


def _log_times(law: CheckinLaw, happens: Array) -> Float[Array, " pace"]:
    """Log-probability of events at these instants, and at no others, for each pace."""
    n_instants = len(happens)
    instants = jnp.arange(n_instants)
    last = jnp.append(-1, lax.cummax(jnp.where(happens, instants, -1))[:-1])
    none_yet = jnp.where(instants < law.per_day, NONE_YET, NONE_YET_LATER)
    since = jnp.asarray(bins_of_instants(SINCE_FROM_H, law.per_day, n_instants))
    since = jnp.where(last < 0, none_yet, since[instants - last])
    n_before = jnp.cumsum(happens) - happens
    day, hour = instants // law.per_day, hour_of_instants(law.per_day, n_instants)
    at_hour = jnp.zeros((-(-n_instants // law.per_day), HOURS_A_DAY), jnp.int32).at[day, hour].add(happens)
    on_days_before = jnp.cumsum(at_hour, axis=0) - at_hour
    habit = habit_bin(near_hour(on_days_before)[day, hour], n_before)
    log_odds = law.log_odds[:, instants % law.log_odds.shape[1], since, habit]
    return jax.nn.log_sigmoid(jnp.where(happens, log_odds, -log_odds)).sum(axis=1)


def _log_places(
    law: CheckinLaw, tables: _ClassTables, instants: Array, places: Array
) -> tuple[Float[Array, " class"], Float[Array, " type"], Float[Array, "range class"]]:
    """Log-probabilities of the first place; of going back or not, and where to; and of the new places.

    `instants`: those of the events, filled up with the number of instants.
    """
    at = places[instants[0]]
    slot = law.slot(instants[0])
    log_first = jnp.log(tables.visits[slot, at].astype(law.visits.dtype)) - jnp.log(tables.anywhere[slot])
    size = min(law.most_places, len(instants))
    memory = Memory.empty(size, law.n_places).after(at, instants[0], law.hour(instants[0]))

    def add_event(state: tuple[Memory, Array, Array], instant: Array) -> tuple[tuple[Memory, Array, Array], None]:
        memory, log_places, log_new_places = state
        place, happens = places[instant], instant < len(places)
        known = memory.place == place
        log_old, log_new = law.log_weights(memory, instant, law.hour(instant))
        log_last = log_old[memory.last] + law.last_of_type
        log_others = logsumexp(jnp.where(memory.is_last, -jnp.inf, log_old))
        total = jnp.logaddexp(jnp.logaddexp(log_others, log_last), log_new)
        log_back = jnp.where(known[memory.last], log_last, log_old[jnp.argmax(known)])
        log_place = jnp.where(known.any(), log_back, log_new) - total
        probability = _new_place(law, tables, memory, instant, place)
        log_places += jnp.where(happens, log_place, 0)
        log_new_places += jnp.where(happens & ~known.any(), jnp.log(probability), 0)
        after = memory.after(place, instant, law.hour(instant))
        memory = jax.tree.map(partial(jnp.where, happens), after, memory)
        return (memory, log_places, log_new_places), None

    zeros = jnp.zeros(len(law.strength_of_type)), jnp.zeros((len(law.range_share), tables.visits.shape[-1]))
    (_, log_places, log_new_places), _ = lax.scan(add_event, (memory, *zeros), instants[1:])
    return log_first, log_places, log_new_places


def _new_place(
    law: CheckinLaw, tables: _ClassTables, memory: Memory, instant: Array, place: Array
) -> Float[Array, "range class"]:
    """Probability of each range and cluster that a new place is `place`."""
    gap, slot = law.gap_bin(instant - memory.instant), law.slot(instant)
    cell, n_events = law.cell[memory.place], memory.n_events.astype(law.visits.dtype)
    visited = jnp.where(n_events[:, None] > 0, tables.visits[slot, memory.place].astype(law.visits.dtype), 0)
    here = tables.visits[slot, place].astype(law.visits.dtype)

    def among_rest(weight: Array, total: Array, of_visited: Array) -> Array:
        # Rounding of the difference must not make it less than one of its terms.
        return weight / jnp.maximum(total - of_visited, weight)

    anywhere = among_rest(here, tables.anywhere[slot], visited.sum(axis=0))
    gap_class = jnp.asarray(GAP_CLASS)[gap]
    factor = law.near_last[gap_class][law.distance_bin[cell[memory.last]]]
    total = tables.near_last[gap_class, slot, cell[memory.last]]
    near_last = among_rest(here * factor[law.cell[place]], total, factor[cell] @ visited)
    factor = law.near_own[law.distance_bin[cell]]
    to_here = factor[:, law.cell[place], None] * here
    near_own = among_rest(to_here, tables.near_own[slot, cell], factor[:, cell] @ visited)
    near_own = n_events / n_events.sum() @ near_own
    return law.reference[:, gap] @ jnp.stack([anywhere, near_last, near_own])
