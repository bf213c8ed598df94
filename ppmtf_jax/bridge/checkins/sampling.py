"""The exact sampler of the check-in bridge: first the times of all events, then their places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.bridge.checkins.law import (
    ANYWHERE,
    GAP_CLASS,
    HOURS_A_DAY,
    NEAR_LAST,
    SINCE_FROM_H,
    CheckinLaw,
    Memory,
    bins_of_instants,
    habit_bin,
    hour_of_instants,
    near_hour,
)
from ppmtf_jax.trace_models.base import ABSENT
from ppmtf_jax.trace_models.sampling import sample_index


def sample_window(
    law: CheckinLaw, key: Key[Array, ""], cluster: Int[Array, ""], n_instants: int
) -> Int[Array, " instant"]:
    """Draw a person of a cluster, and her place at each instant (or `ABSENT`); at least one instant has an event."""
    of_person, of_times, of_places = (jax.random.fold_in(key, number) for number in range(3))
    uniforms = jax.random.uniform(of_person, 4)
    # The pace and the first event are drawn given that there is an event.
    log_first, log_any = law.log_first_event(n_instants)
    pace = sample_index(uniforms[0], law.pace_share[cluster] * jnp.exp(log_any - log_any.max()))
    first = sample_index(uniforms[1], jnp.exp(log_first[pace] - log_first[pace].max()))
    kind = sample_index(uniforms[2], law.type_share[pace])
    reach = sample_index(uniforms[3], law.range_share)
    happens = sample_times(law, of_times, pace, first, n_instants)
    return sample_places(law, of_places, happens, cluster, kind, reach, happens.sum())


def sample_times(law: CheckinLaw, key: Array, pace: Array, first: Array, n_instants: int) -> Bool[Array, " instant"]:
    """Whether there is an event at each instant; `first` is the instant of the first event."""
    n_days = -(-n_instants // law.per_day)
    instants = jnp.arange(n_days * law.per_day, dtype=jnp.int32).reshape(n_days, law.per_day)
    uniforms = jax.random.uniform(key, instants.shape)
    hours = hour_of_instants(law.per_day, law.per_day)
    since = jnp.asarray(bins_of_instants(SINCE_FROM_H, law.per_day, instants.size))

    def at_instant(state: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        last, n_before = state
        instant, uniform, near = step
        time = instant % law.log_odds.shape[1]
        # Before the first event, `instant - last` is negative, and the result is not used.
        log_odds = law.log_odds[pace, time, since[instant - last], habit_bin(near, n_before)]
        event = (instant == first) | ((instant > first) & (uniform < jax.nn.sigmoid(log_odds)))
        return (jnp.where(event, instant, last), n_before + event), event

    def on_day(state: tuple[Array, Array, Array], day: tuple[Array, Array]) -> tuple[Any, Array]:
        last, n_before, at_hour = state
        steps = (*day, near_hour(at_hour)[hours])
        (last, n_before), events = lax.scan(at_instant, (last, n_before), steps)
        return (last, n_before, at_hour.at[hours].add(events)), events

    nothing = (first, jnp.int32(0), jnp.zeros(HOURS_A_DAY, jnp.int32))
    return lax.scan(on_day, nothing, (instants, uniforms))[1].ravel()[:n_instants]


def sample_places(
    law: CheckinLaw,
    key: Array,
    happens: Bool[Array, " instant"],
    cluster: Array,
    kind: Array,
    reach: Array,
    most_events: Int[Array, ""],
) -> Int[Array, " instant"]:
    """The places of a person of a type and a range, given the instants of her events.

    `most_events`: upper bound of their number. If people who are drawn together by `vmap` share one bound, it takes
    less time. With bounds of their own, each step would copy the memories of all of them.
    """
    n_instants = len(happens)
    instants = jnp.arange(n_instants, dtype=jnp.int32)
    # For each instant, the instant of the next event at this instant or later; `n_instants` if there is none.
    coming = lax.cummin(jnp.where(happens, instants, n_instants), reverse=True)
    coming = jnp.pad(coming, (0, 2), constant_values=n_instants)
    first = coming[0]
    weight = law.visits[cluster, law.slot(first)] * jnp.exp(law.first_rate)
    place = sample_index(jax.random.uniform(jax.random.fold_in(key, 0)), weight)
    memory = Memory.empty(min(law.most_places, n_instants), law.n_places).after(place, first, law.hour(first))
    places = jnp.full(n_instants, ABSENT, jnp.int32).at[first].set(place)

    def add_event(_: Array, state: tuple[Memory, Array]) -> tuple[Memory, Array]:
        memory, places = state
        # After the last event, this is `n_instants`. Then no place is set, and the memory does not matter any more.
        instant = coming[memory.instant + 1]
        uniforms = jax.random.uniform(jax.random.fold_in(key, instant), 4)
        log_old, log_new = law.log_weights(memory, instant, law.hour(instant))
        log_old += law.last_of_type[kind] * memory.is_last
        log_weight = jnp.append(log_old, log_new[kind])
        drawn = sample_index(uniforms[0], jnp.exp(log_weight - log_weight.max()))
        weight = law.visits[cluster, law.slot(instant)] * _nearness(law, uniforms[1:3], memory, instant, reach)
        weight = weight.at[memory.place].set(0, mode="drop")
        new = sample_index(uniforms[3], weight)
        place = jnp.where(drawn < len(log_old), memory.place[jnp.minimum(drawn, len(log_old) - 1)], new)
        return memory.after(place, instant, law.hour(instant)), places.at[instant].set(place, mode="drop")

    return lax.fori_loop(1, most_events, add_event, (memory, places))[1]


def _nearness(law: CheckinLaw, uniforms: Array, memory: Memory, instant: Array, reach: Array) -> Float[Array, " place"]:
    """Draw the reference of a new place, and compute the factor of each place for this reference."""
    gap = law.gap_bin(instant - memory.instant)
    near_to = sample_index(uniforms[0], law.reference[reach, gap])
    own = sample_index(uniforms[1], memory.n_events.astype(law.near_own.dtype))
    place = memory.place[jnp.where(near_to == NEAR_LAST, memory.last, own)]
    factor = jnp.where(near_to == NEAR_LAST, law.near_last[jnp.asarray(GAP_CLASS)[gap]], law.near_own)
    factor = jnp.where(near_to == ANYWHERE, 1, factor)
    return factor[law.distance_bin[law.cell[place]]][law.cell]
