"""The process of check-ins: windows of days in which people check in now and then, at old places and new ones.

When people check in depends on their activity level, the time of the week, the hours since the last check-in, and their
habits. They check in at an old place again, or at a new place near the last place, near an old place, or anywhere.
Which of these depends on the hours since the last check-in. All people of a cluster follow one process, so every trace
is equally probable for all users of a cluster. The sampler draws the times of all events first, then their places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.people import bins
from ppmtf_jax.people.person import Memory
from ppmtf_jax.trace_models.base import ABSENT, PersonModel, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index


def _weights(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0)


def _shares(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, high=1)


def _logs(*shape: int | str) -> StoredArray:
    # float32 can represent the exponential of a sum of some such numbers.
    return StoredArray(shape, low=-30, high=30)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CheckinProcess(PersonModel):
    """Arrays of the process, and the weights of places.

    A trace is a window of whole days that begins at midnight.

    A person of cluster k draws an activity level c ~ level_share[k], a type z ~ type_share[c] (how often they return),
    and a range r ~ range_share (how far from their places they go). *Hours* of events are of the day, rounded down.

    *When*: at each instant there is an event with the log-odds log_odds[c, time, since, habit], where `time` is the
    instant of the week counted from the first instant of the window. People and times are drawn given that there is an
    event in the window.

    *Where*: the first event is at a place drawn from visits[k, slot] exp(first_rate). For a later event, let g be the
    bin and G the class of its gap from the last event, n_j the number of events so far at place j, and D the number of
    places visited so far. Then the weights are

    - for the last place j: (n_j - discount) exp(place_rate[j] + last[g] + last_of_type[z] + last_match . match_j),
    - for another visited place j: (n_j - discount) exp(place_rate[j] + match . match_j + recency log(hours since the
      last event at j, at least 1) + previous [j was the place before the last place] + distance[G, class of the
      distance from the last place]),
    - for a new place: exp(strength[g] + strength_of_type[z]) + discount D; 0 if D is the number of places or
      `MAX_CHECKIN_PLACES`.

    match_j has three shares of the events at j: those within `SAME_TIME_H` hours of the present hour of the day, those
    at the present hour, and those at least `OTHER_TIME_H` hours apart. For a new place, a component is first drawn from
    reference[r, g]. Then the place is drawn from visits[k, slot] times a factor: 1 for `ANYWHERE`, near_last[G, bin of
    the distance from the last place] for `NEAR_LAST`, near_own[bin of the distance from j] for `NEAR_OWN`, where the
    visited place j is drawn in proportion to n_j. Visited places are excluded. These weights are written three times:
    drawn here (`_nearness`), scored by `checkin_likelihood`, and learned by `checkin_new_places`. The last two
    compute sums over all places before, because each factor depends on one cell. The loop in
    `tests/people/checkin_processes.py` holds all three together.
    """

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    # Number of users with events in each cluster.
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    # Slot of each instant of the window.
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray((n.instants,), "int", 0, n.slots - 1))
    per_day: int = stored(lambda n: StoredArray((), "int", 1, n.instants), static=True)  # number of instants of a day
    # When. `time` has 7 x `per_day` instants, or all instants of a window that is shorter than a week. `since` has
    # `N_SINCE` bins, and the last two mean that there is no event yet. `habit` has `N_HABITS` bins.
    level_share: Float[Array, "cluster level"] = stored(lambda n: _shares("clusters", "levels"))
    log_odds: Float[Array, "level time since habit"] = stored(
        lambda n: _logs("levels", "times", bins.N_SINCE, bins.N_HABITS)
    )
    # Shares of the types for each level, and shares of the ranges.
    type_share: Float[Array, "level type"] = stored(lambda n: _shares("levels", "types"))
    range_share: Float[Array, " range"] = stored(lambda n: _shares("ranges"))
    # Returns, and how often there is a new place.
    discount: Float[Array, ""] = stored(lambda n: StoredArray((), low=0, high=0.99))
    strength: Float[Array, " gap"] = stored(lambda n: _logs(bins.N_GAPS))
    strength_of_type: Float[Array, " type"] = stored(lambda n: _logs("types"))
    last: Float[Array, " gap"] = stored(lambda n: _logs(bins.N_GAPS))
    last_of_type: Float[Array, " type"] = stored(lambda n: _logs("types"))
    last_match: Float[Array, " 3"] = stored(lambda n: _logs(3))
    match: Float[Array, " 3"] = stored(lambda n: _logs(3))
    recency: Float[Array, ""] = stored(lambda n: _logs())
    previous: Float[Array, ""] = stored(lambda n: _logs())
    distance: Float[Array, "gap_class distance_class"] = stored(
        lambda n: _logs(bins.N_GAP_CLASSES, bins.N_DISTANCE_CLASSES)
    )
    place_rate: Float[Array, " place"] = stored(lambda n: _logs(n.places))
    # New places: shares of `ANYWHERE`, `NEAR_LAST`, `NEAR_OWN`; positive factors of bins of distance; positive
    # distributions of the clusters over places. Two places of one cell have the bin of the distance within the cell
    # (which is never used if each place is a cell of its own).
    reference: Float[Array, "range gap 3"] = stored(lambda n: _shares("ranges", bins.N_GAPS, 3))
    near_last: Float[Array, "gap_class bin"] = stored(lambda n: _weights(bins.N_GAP_CLASSES, bins.N_DISTANCES))
    near_own: Float[Array, " bin"] = stored(lambda n: _weights(bins.N_DISTANCES))
    distance_bin: Int[Array, "cell cell"] = stored(
        lambda n: StoredArray(("cells", "cells"), "int", 0, bins.N_DISTANCES - 1)
    )
    cell: Int[Array, " place"] = stored(lambda n: StoredArray((n.places,), "int", 0))
    visits: Float[Array, "cluster slot place"] = stored(lambda n: _weights("clusters", n.slots, n.places))
    # Logarithm of a factor of each place, for the first event of a window. At some places, such as airports, windows
    # begin more often than `visits` says.
    first_rate: Float[Array, " place"] = stored(lambda n: _logs(n.places))
    # How far people whom the calibrated model simulates are from the training users, see
    # `checkin_calibration.residual`; None for a process that was not calibrated.
    residual: Float[Array, " 3"] | None = stored(lambda n: StoredArray((3,), low=0, optional=True), default=None)
    # Facts of the training traces, in the order of `windows.Sparsity`; None if the settings ask for gaps.
    facts: Float[Array, " fact"] | None = stored(lambda n: StoredArray((3,), low=0, optional=True), default=None)
    # The settings of `chain.ClusterBridge.chosen`, then the smoothing of the population of
    # first visits; None for a process that was not learned from traces.
    chosen: Float[Array, " setting"] | None = stored(lambda n: StoredArray(("settings",), optional=True), default=None)

    @property
    def n_places(self) -> int:
        return len(self.place_rate)

    @property
    def most_places(self) -> int:
        """Maximum number of places that a person visits."""
        return min(bins.MAX_CHECKIN_PLACES, self.n_places)

    def log_first_event(self, n_instants: int) -> tuple[Float[Array, "level instant"], Float[Array, " level"]]:
        """Log-probability that the first event is at each instant; log-probability that there is any event."""
        instants = np.arange(n_instants, dtype=np.int32)
        since = np.where(instants < self.per_day, bins.NONE_YET, bins.NONE_YET_LATER).astype(np.int32)
        log_odds = self.log_odds[:, instants % self.log_odds.shape[1], since, 0]
        log_none = jnp.cumsum(jax.nn.log_sigmoid(-log_odds), axis=1)
        log_none_before = jnp.pad(log_none[:, :-1], ((0, 0), (1, 0)))
        log_first = jax.nn.log_sigmoid(log_odds) + log_none_before
        return log_first, jnp.log(-jnp.expm1(log_none[:, -1]))

    def log_weights(
        self, memory: Memory, instant: Int[Array, ""], hour: Int[Array, ""]
    ) -> tuple[Float[Array, " remembered"], Float[Array, " type"]]:
        """Log-weights of the remembered places, without the effect of the type; log-weight of a new place, by type."""
        gap = self.gap_bin(instant - memory.instant)
        apart = jnp.abs(jnp.arange(bins.HOURS_A_DAY) - hour)
        apart = jnp.minimum(apart, bins.HOURS_A_DAY - apart)
        close = jnp.stack([apart <= bins.SAME_TIME_H, apart == 0, apart >= bins.OTHER_TIME_H]).astype(self.match.dtype)
        n_events = jnp.maximum(memory.n_events, 1).astype(self.match.dtype)
        at_hour = memory.at_hour.astype(self.match.dtype)
        at_last = self.last[gap] + self.last_match @ close @ at_hour[memory.last] / n_events[memory.last]
        hours = (instant - memory.latest) * (bins.HOURS_A_DAY / self.per_day)
        kilometres = self.distance_bin[self.cell[memory.place[memory.last]], self.cell[memory.place]]
        at_other = (
            at_hour @ (self.match @ close) / n_events
            + self.recency * jnp.log(jnp.maximum(hours, 1))
            + self.previous * (jnp.arange(len(n_events)) == memory.previous)
            + self.distance[jnp.asarray(bins.GAP_CLASS)[gap], jnp.asarray(bins.DISTANCE_CLASS)[kilometres]]
        )
        log_old = jnp.log(n_events - self.discount) + self.place_rate[memory.place]
        log_old += jnp.where(memory.is_last, at_last, at_other)
        log_new = jnp.logaddexp(self.strength[gap] + self.strength_of_type, jnp.log(self.discount * memory.n_visited))
        return (
            jnp.where(memory.n_events > 0, log_old, -jnp.inf),
            jnp.where(memory.n_visited < self.most_places, log_new, -jnp.inf),
        )

    def gap_bin(self, gap: Int[Array, ""]) -> Int[Array, ""]:
        """Bin of `GAP_FROM_H` of a gap in instants."""
        edges = (bins.GAP_FROM_H * self.per_day).astype(np.int32)
        return jnp.searchsorted(jnp.asarray(edges), gap * bins.HOURS_A_DAY, side="right") - 1

    def slot(self, instant: Int[Array, ""]) -> Int[Array, ""]:
        """Slot of an instant."""
        return self.slot_of_instant[instant % len(self.slot_of_instant)]

    def hour(self, instant: Int[Array, ""]) -> Int[Array, ""]:
        """Hour of the day of an instant, rounded down."""
        return instant % self.per_day * bins.HOURS_A_DAY // self.per_day


def sample_window(
    process: CheckinProcess, key: Key[Array, ""], cluster: Int[Array, ""], n_instants: int
) -> Int[Array, " instant"]:
    """Draw a person of a cluster, and their place at each instant (or `ABSENT`); at least one instant has an event."""
    of_person, of_times, of_places = (jax.random.fold_in(key, number) for number in range(3))
    uniforms = jax.random.uniform(of_person, 4)
    # The level and the first event are drawn given that there is an event.
    log_first, log_any = process.log_first_event(n_instants)
    level = sample_index(uniforms[0], process.level_share[cluster] * jnp.exp(log_any - log_any.max()))
    first = sample_index(uniforms[1], jnp.exp(log_first[level] - log_first[level].max()))
    kind = sample_index(uniforms[2], process.type_share[level])
    reach = sample_index(uniforms[3], process.range_share)
    happens = sample_times(process, of_times, level, first, n_instants)
    return sample_places(process, of_places, happens, cluster, kind, reach, happens.sum())


def sample_times(
    process: CheckinProcess, key: Array, level: Array, first: Array, n_instants: int
) -> Bool[Array, " instant"]:
    """Whether there is an event at each instant; `first` is the instant of the first event."""
    n_days = -(-n_instants // process.per_day)
    instants = jnp.arange(n_days * process.per_day, dtype=jnp.int32).reshape(n_days, process.per_day)
    uniforms = jax.random.uniform(key, instants.shape)
    hours = bins.hour_of_instants(process.per_day, process.per_day)
    since = jnp.asarray(bins.bins_of_instants(bins.SINCE_FROM_H, process.per_day, instants.size))

    def at_instant(state: tuple[Array, Array], step: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        last, n_before = state
        instant, uniform, near = step
        time = instant % process.log_odds.shape[1]
        # Before the first event, `instant - last` is negative, and the result is not used.
        log_odds = process.log_odds[level, time, since[instant - last], bins.habit_bin(near, n_before)]
        event = (instant == first) | ((instant > first) & (uniform < jax.nn.sigmoid(log_odds)))
        return (jnp.where(event, instant, last), n_before + event), event

    def on_day(state: tuple[Array, Array, Array], day: tuple[Array, Array]) -> tuple[Any, Array]:
        last, n_before, at_hour = state
        steps = (*day, bins.near_hour(at_hour)[hours])
        (last, n_before), events = lax.scan(at_instant, (last, n_before), steps)
        return (last, n_before, at_hour.at[hours].add(events)), events

    nothing = (first, jnp.int32(0), jnp.zeros(bins.HOURS_A_DAY, jnp.int32))
    return lax.scan(on_day, nothing, (instants, uniforms))[1].ravel()[:n_instants]


def sample_places(
    process: CheckinProcess,
    key: Array,
    happens: Bool[Array, " instant"],
    cluster: Array,
    kind: Array,
    reach: Array,
    most_events: Int[Array, ""],
) -> Int[Array, " instant"]:
    """The places of a person of a type and a range, given the instants of their events.

    `most_events`: upper bound of their number. If people who are drawn together by `vmap` share one bound, it takes
    less time. With bounds of their own, each step would copy the memories of all of them.
    """
    n_instants = len(happens)
    instants = jnp.arange(n_instants, dtype=jnp.int32)
    # For each instant, the instant of the next event at this instant or later; `n_instants` if there is none.
    coming = lax.cummin(jnp.where(happens, instants, n_instants), reverse=True)
    coming = jnp.pad(coming, (0, 2), constant_values=n_instants)
    first = coming[0]
    weight = process.visits[cluster, process.slot(first)] * jnp.exp(process.first_rate)
    place = sample_index(jax.random.uniform(jax.random.fold_in(key, 0)), weight)
    memory = Memory.empty(min(process.most_places, n_instants), process.n_places)
    memory = memory.after(place, first, process.hour(first))
    places = jnp.full(n_instants, ABSENT, jnp.int32).at[first].set(place)

    def add_event(_: Array, state: tuple[Memory, Array]) -> tuple[Memory, Array]:
        memory, places = state
        # After the last event, this is `n_instants`. Then no place is set, and the memory does not matter any more.
        instant = coming[memory.instant + 1]
        uniforms = jax.random.uniform(jax.random.fold_in(key, instant), 4)
        log_old, log_new = process.log_weights(memory, instant, process.hour(instant))
        log_old += process.last_of_type[kind] * memory.is_last
        log_weight = jnp.append(log_old, log_new[kind])
        drawn = sample_index(uniforms[0], jnp.exp(log_weight - log_weight.max()))
        near = _nearness(process, uniforms[1:3], memory, instant, reach)
        weight = (process.visits[cluster, process.slot(instant)] * near).at[memory.place].set(0, mode="drop")
        new = sample_index(uniforms[3], weight)
        place = jnp.where(drawn < len(log_old), memory.place[jnp.minimum(drawn, len(log_old) - 1)], new)
        return memory.after(place, instant, process.hour(instant)), places.at[instant].set(place, mode="drop")

    return lax.fori_loop(1, most_events, add_event, (memory, places))[1]


def _nearness(
    process: CheckinProcess, uniforms: Array, memory: Memory, instant: Array, reach: Array
) -> Float[Array, " place"]:
    """Draw the component of a new place; the factor of each place in it."""
    gap = process.gap_bin(instant - memory.instant)
    near_to = sample_index(uniforms[0], process.reference[reach, gap])
    own = sample_index(uniforms[1], memory.n_events.astype(process.near_own.dtype))
    place = memory.place[jnp.where(near_to == bins.NEAR_LAST, memory.last, own)]
    factor = jnp.where(near_to == bins.NEAR_LAST, process.near_last[jnp.asarray(bins.GAP_CLASS)[gap]], process.near_own)
    factor = jnp.where(near_to == bins.ANYWHERE, 1, factor)
    return factor[process.distance_bin[process.cell[place]]][process.cell]
