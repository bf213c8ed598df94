"""Law of the check-in bridge: windows of days in which people check in now and then, at old places and new ones.

When a person checks in depends on her pace, the time of the week, the hours since her last check-in, and her habits.
She checks in at an old place again, or at a new place near her last place, near an old place, or anywhere. Which of
these depends on the hours since her last check-in. All people of a cluster follow one law, so every trace is equally
probable for all users of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from ppmtf_jax.bridge.person import entry_of
from ppmtf_jax.trace_models.base import PersonModel, StoredArray, stored

MAX_DAYS = 28
"""Maximum number of days of a window."""
MAX_REMEMBERED = 128
"""Maximum number of places that a person remembers; when she has so many, she goes to no new place."""

# Every bin begins at its edge and ends before the next edge. Some bins stay empty where the step of the grid is long.
SINCE_FROM_H = np.array([0, 0.5, 1, 2, 3, 4, 7, 13, 19, 23, 26, 31, 47, 50, 71, 74, 121])
"""Edges, in hours, of the bins of the time since the last event, for the law of the time of the next event."""
NONE_YET, NONE_YET_LATER = len(SINCE_FROM_H), len(SINCE_FROM_H) + 1
"""Bins of the time since the last event if there is no event yet: on the first day, and on later days."""
N_SINCE = len(SINCE_FROM_H) + 2
GAP_FROM_H = np.array([0, 1, 2, 3, 4, 7, 13, 25, 49])
"""Edges, in hours, of the bins of the gap between an event and the one before, for the law of the event's place."""
GAP_CLASS = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3], np.int32)
"""Coarser bins of gaps: class of each bin of `GAP_FROM_H`."""
N_GAP_CLASSES = 4
N_HABITS = 7
"""Number of bins of habits; see `habit_bin`."""
DISTANCE_FROM_KM = np.array([0, 0.25, 0.4, 0.63, 1, 1.6, 2.5, 4, 7, 12, 20, 32, 80, 200])
"""Edges in km of the bins of distance."""
DISTANCE_CLASS = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4], np.int32)
"""Coarser bins of distance: class of each bin of `DISTANCE_FROM_KM`."""
N_DISTANCE_CLASSES = 5
ANYWHERE, NEAR_LAST, NEAR_OWN = 0, 1, 2
"""References of a new place: none, the last place, or an own place. A new place is near its reference."""
HOURS_A_DAY = 24
SAME_TIME_H, OTHER_TIME_H = 2, 6
"""Two events match if their hours of the day are at most 2 apart, and they do not match if at least 6 apart."""


def _weights(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0)


def _shares(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, high=1)


def _logs(*shape: int | str) -> StoredArray:
    # float32 can represent the exponential of a sum of some such numbers.
    return StoredArray(shape, low=-30, high=30)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class CheckinLaw(PersonModel):
    """Arrays of the law, and the weights of places.

    A trace is a window of whole days that begins at midnight.

    A person of cluster k draws a pace c ~ pace_share[k], a type z ~ type_share[c] (how often she returns), and a range
    r ~ range_share (how far from her own places she goes). *Hours* of events are hours of the day, rounded down.

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
      `MAX_REMEMBERED`.

    match_j has three shares of the events at j: those within `SAME_TIME_H` hours of the present hour of the day, those
    at the present hour, and those at least `OTHER_TIME_H` hours apart. For a new place, a reference is first drawn from
    reference[r, g]. Then the place is drawn from visits[k, slot] times a factor: 1 for `ANYWHERE`, near_last[G, bin of
    the distance from the last place] for `NEAR_LAST`, near_own[bin of the distance from j] for `NEAR_OWN`, where the
    visited place j is drawn in proportion to n_j. Visited places are excluded.
    """

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    # Number of users with events in each cluster.
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    # Slot of each instant of the window.
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray((n.instants,), "int", 0, n.slots - 1))
    per_day: int = stored(lambda n: StoredArray((), "int", 1, n.instants), static=True)  # number of instants of a day
    # When. `time` has 7 x `per_day` instants, or all instants of a window that is shorter than a week. `since` has
    # `N_SINCE` bins, and the last two mean that there is no event yet. `habit` has `N_HABITS` bins.
    pace_share: Float[Array, "cluster pace"] = stored(lambda n: _shares("clusters", "paces"))
    log_odds: Float[Array, "pace time since habit"] = stored(lambda n: _logs("paces", "times", N_SINCE, N_HABITS))
    # Shares of the types for each pace, and shares of the ranges.
    type_share: Float[Array, "pace type"] = stored(lambda n: _shares("paces", "types"))
    range_share: Float[Array, " range"] = stored(lambda n: _shares("ranges"))
    # Returns, and how often there is a new place.
    discount: Float[Array, ""] = stored(lambda n: StoredArray((), low=0, high=0.99))
    strength: Float[Array, " gap"] = stored(lambda n: _logs(len(GAP_FROM_H)))
    strength_of_type: Float[Array, " type"] = stored(lambda n: _logs("types"))
    last: Float[Array, " gap"] = stored(lambda n: _logs(len(GAP_FROM_H)))
    last_of_type: Float[Array, " type"] = stored(lambda n: _logs("types"))
    last_match: Float[Array, " 3"] = stored(lambda n: _logs(3))
    match: Float[Array, " 3"] = stored(lambda n: _logs(3))
    recency: Float[Array, ""] = stored(lambda n: _logs())
    previous: Float[Array, ""] = stored(lambda n: _logs())
    distance: Float[Array, "gap_class distance_class"] = stored(lambda n: _logs(N_GAP_CLASSES, N_DISTANCE_CLASSES))
    place_rate: Float[Array, " place"] = stored(lambda n: _logs(n.places))
    # New places: shares of `ANYWHERE`, `NEAR_LAST`, `NEAR_OWN`; positive factors of bins of distance; positive
    # distributions of the clusters over places. Two places of one cell have the bin of the distance within the cell
    # (which is never used if each place is a cell of its own).
    reference: Float[Array, "range gap 3"] = stored(lambda n: _shares("ranges", len(GAP_FROM_H), 3))
    near_last: Float[Array, "gap_class bin"] = stored(lambda n: _weights(N_GAP_CLASSES, len(DISTANCE_FROM_KM)))
    near_own: Float[Array, " bin"] = stored(lambda n: _weights(len(DISTANCE_FROM_KM)))
    distance_bin: Int[Array, "cell cell"] = stored(
        lambda n: StoredArray(("cells", "cells"), "int", 0, len(DISTANCE_FROM_KM) - 1)
    )
    cell: Int[Array, " place"] = stored(lambda n: StoredArray((n.places,), "int", 0))
    visits: Float[Array, "cluster slot place"] = stored(lambda n: _weights("clusters", n.slots, n.places))
    # Logarithm of a factor of each place, for the first event of a window. At some places, such as airports, windows
    # begin more often than `visits` says.
    first_rate: Float[Array, " place"] = stored(lambda n: _logs(n.places))
    # How far people whom the calibrated model simulates are from the training users, see `calibration.residual`; None
    # for a law that was not calibrated.
    residual: Float[Array, " 3"] | None = stored(lambda n: StoredArray((3,), low=0, optional=True), default=None)
    # Facts of the training traces, in the order of `observed_windows.Sparsity`; None if the settings ask for gaps.
    facts: Float[Array, " fact"] | None = stored(lambda n: StoredArray((3,), low=0, optional=True), default=None)
    # The settings of `ClusterBridge.chosen` (in `synthesizers.bridge_model`), then the smoothing of the population of
    # first visits; None for a law that was not learned from traces.
    chosen: Float[Array, " setting"] | None = stored(lambda n: StoredArray(("settings",), optional=True), default=None)

    @property
    def n_places(self) -> int:
        return len(self.place_rate)

    @property
    def most_places(self) -> int:
        """Maximum number of places that a person visits."""
        return min(MAX_REMEMBERED, self.n_places)

    def log_first_event(self, n_instants: int) -> tuple[Float[Array, "pace instant"], Float[Array, " pace"]]:
        """Log-probability that the first event is at each instant; log-probability that there is any event."""
        instants = np.arange(n_instants, dtype=np.int32)
        since = np.where(instants < self.per_day, NONE_YET, NONE_YET_LATER).astype(np.int32)
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
        apart = jnp.abs(jnp.arange(HOURS_A_DAY) - hour)
        apart = jnp.minimum(apart, HOURS_A_DAY - apart)
        close = jnp.stack([apart <= SAME_TIME_H, apart == 0, apart >= OTHER_TIME_H]).astype(self.match.dtype)
        n_events = jnp.maximum(memory.n_events, 1).astype(self.match.dtype)
        at_hour = memory.at_hour.astype(self.match.dtype)
        at_last = self.last[gap] + self.last_match @ close @ at_hour[memory.last] / n_events[memory.last]
        hours = (instant - memory.latest) * (HOURS_A_DAY / self.per_day)
        kilometres = self.distance_bin[self.cell[memory.place[memory.last]], self.cell[memory.place]]
        at_other = (
            at_hour @ (self.match @ close) / n_events
            + self.recency * jnp.log(jnp.maximum(hours, 1))
            + self.previous * (jnp.arange(len(n_events)) == memory.previous)
            + self.distance[jnp.asarray(GAP_CLASS)[gap], jnp.asarray(DISTANCE_CLASS)[kilometres]]
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
        edges = (GAP_FROM_H * self.per_day).astype(np.int32)
        return jnp.searchsorted(jnp.asarray(edges), gap * HOURS_A_DAY, side="right") - 1

    def slot(self, instant: Int[Array, ""]) -> Int[Array, ""]:
        """Slot of an instant."""
        return self.slot_of_instant[instant % len(self.slot_of_instant)]

    def hour(self, instant: Int[Array, ""]) -> Int[Array, ""]:
        """Hour of the day of an instant, rounded down."""
        return instant % self.per_day * HOURS_A_DAY // self.per_day


class Memory(NamedTuple):
    """The places that a person visited so far, in the order of her first events there."""

    place: Int[Array, " remembered"]  # index of the place; unused entries have the number of places
    n_events: Int[Array, " remembered"]
    # Numbers of events by hour of the day; as floats, since to convert them in each step took a fifth of its time.
    at_hour: Float[Array, "remembered 24"]
    latest: Int[Array, " remembered"]  # instant of the latest event there
    n_visited: Int[Array, ""]
    # Indices of the last place, and of the place before the last place (-1 if there is none).
    last: Int[Array, ""]
    previous: Int[Array, ""]
    instant: Int[Array, ""]  # of the last event

    @classmethod
    def empty(cls, size: int, n_places: int) -> Memory:
        """The memory before the first event, with room for some places."""
        zero, zeros = jnp.int32(0), jnp.zeros(size, jnp.int32)
        at_hour = jnp.zeros((size, HOURS_A_DAY), jnp.float32)
        return cls(zeros + n_places, zeros, at_hour, zeros, zero, zero - 1, zero - 1, zero)

    @property
    def is_last(self) -> Bool[Array, " remembered"]:
        """Whether a place is the last place."""
        return jnp.arange(len(self.place)) == self.last

    def after(self, place: Int[Array, ""], instant: Int[Array, ""], hour: Int[Array, ""]) -> Memory:
        """The memory after one more event; a new place needs a free entry."""
        at, is_new = entry_of(place, self.place, self.n_visited)
        return Memory(
            self.place.at[at].set(place),
            self.n_events.at[at].add(1),
            self.at_hour.at[at, hour].add(1),
            self.latest.at[at].set(instant),
            self.n_visited + is_new,
            at,
            jnp.where(at == self.last, self.previous, self.last),
            instant,
        )


def bins_of_instants(from_h: Shaped[np.ndarray, " bin"], per_day: int, n_instants: int) -> Int[np.ndarray, " instants"]:
    """Bins of the durations 0, 1, ..., n_instants - 1, in instants; the edges `from_h` are in hours.

    Examples
    --------
    >>> bins_of_instants(np.array([0, 1, 3]), per_day=48, n_instants=8).tolist()  # steps of half an hour
    [0, 0, 1, 1, 1, 1, 2, 2]
    """
    bins = np.searchsorted(from_h * per_day / HOURS_A_DAY, np.arange(n_instants), side="right") - 1
    return bins.astype(np.int32)


def hour_of_instants(per_day: int, n_instants: int) -> Int[np.ndarray, " instant"]:
    """Hour of the day, rounded down, of each instant of a window that begins at midnight."""
    return (np.arange(n_instants) % per_day * HOURS_A_DAY // per_day).astype(np.int32)


def habit_bin(
    near: Int[Array | np.ndarray, "*shape"], before: Int[Array | np.ndarray, "*shape"]
) -> Int[Array | np.ndarray, "*shape"]:
    """Bin of the share near / before.

    `before`: number of all earlier events. `near`: number of those that are on earlier days and within an hour of this
    time of the day. The hours of the day are rounded down, and 23 is one hour from 0. If `before` is at most two, the
    bin is 0 without near events, and 6 with any. Otherwise the bin is 1 without near events, and 2 to 5 for shares
    up to 0.15, 0.3, 0.5, 1.

    Examples
    --------
    >>> habit_bin(np.array([0, 1, 0, 1, 3]), np.array([0, 2, 3, 10, 3])).tolist()
    [0, 6, 1, 2, 5]
    """
    # Products of whole numbers are exact, so that all programs agree at the edges.
    share_bin = 1 + (near > 0) + (20 * near > 3 * before) + (10 * near > 3 * before) + (2 * near > before)
    few = before <= 2
    return few * (N_HABITS - 1) * (near > 0) + (1 - few) * share_bin


def since_and_habit(
    happens: Bool[Array, " instant"], per_day: int
) -> tuple[Int[Array, " instant"], Int[Array, " instant"]]:
    """Bins of the time since the last event and of the habit, at each instant of a window with these events."""
    n_instants = len(happens)
    instants = jnp.arange(n_instants)
    last = jnp.append(-1, lax.cummax(jnp.where(happens, instants, -1))[:-1])
    none_yet = jnp.where(instants < per_day, NONE_YET, NONE_YET_LATER)
    since = jnp.asarray(bins_of_instants(SINCE_FROM_H, per_day, n_instants))
    since = jnp.where(last < 0, none_yet, since[instants - last])
    day, hour = instants // per_day, hour_of_instants(per_day, n_instants)
    at_hour = jnp.zeros((-(-n_instants // per_day), HOURS_A_DAY), jnp.int32).at[day, hour].add(happens)
    on_days_before = jnp.cumsum(at_hour, axis=0) - at_hour
    habit = habit_bin(near_hour(on_days_before)[day, hour], jnp.cumsum(happens) - happens)
    return since, jnp.asarray(habit)


def near_hour(at_hour: Int[Array, "*days 24"]) -> Int[Array, "*days 24"]:
    """Numbers of events within an hour of each hour of the day, given the numbers at each hour."""
    return at_hour + jnp.roll(at_hour, 1, axis=-1) + jnp.roll(at_hour, -1, axis=-1)


def distance_bins(km: Float[np.ndarray, "cell cell"]) -> Int[np.ndarray, "cell cell"]:
    """Bin of `DISTANCE_FROM_KM` of each distance; all unknown distances have bin 0."""
    return (np.searchsorted(DISTANCE_FROM_KM, np.nan_to_num(km), side="right") - 1).astype(np.int8)
