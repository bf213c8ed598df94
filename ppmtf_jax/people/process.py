"""The process of people who remember: one step of a person, and the sampler as a scan over steps.

A person of cluster k draws a class of mobility, and whether they have a second place. Then they run a chain of *roles*
of places: home, second place, other. Their home (or second place) is drawn when they are there for the first time. So
places that they never visit do not enter the probability of their trace. A person at one of the other places stays
there, goes back to one that they visited before, or goes to a new place. Each newly drawn place (home, second place,
new place) is a place where they never were. If no place is left for their next role, they keep their place and their
role. All people of a cluster follow one process, so every trace is equally probable for all users of a cluster.

`outcomes` states a step. The sampler draws it part by part, so that what few people need is computed for them only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.people.attraction import StoredAttraction, drawn_place
from ppmtf_jax.people.bins import DWELL_FROM, HOME, MAX_ATTRACTION, MAX_REMEMBERED, OTHER, SECOND
from ppmtf_jax.people.person import PersonState
from ppmtf_jax.people.selection import MEMORIES
from ppmtf_jax.trace_models.base import ABSENT, PersonModel, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

MIN_WEIGHT = 1e-30
"""Before a logarithm is taken, smaller weights and shares are raised to this number."""
AT_A_TIME, MAX_AT_A_TIME = 1 / 8, 256
"""Share, and maximum number, of people for whom `for_those` computes at a time; few people need a new place at once."""


def _weights(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0)


def _shares(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, high=1)


def _optional(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, optional=True)


class When(NamedTuple):
    """An instant; the instant within its period; its index on the axis `time` of the process; its slot."""

    instant: Int[Array, ""]
    phase: Int[Array, ""]
    time: Int[Array, ""]
    slot: Int[Array, ""]


class StepFormulas:
    """Formulas of a step, for the sampler in JAX and for the exact probabilities in NumPy; see `PersonProcess`.

    All arguments of a formula have shapes that broadcast. Subclasses have the arrays of `PersonProcess`.
    """

    def time_of(self: Any, instant: Any) -> Any:
        """Index of an instant on the axis `time`; periods after the last calibrated period use the last one."""
        period = len(self.slot_of_phase)
        last = len(self.stay_at_time) // period - 1
        return instant.__array_namespace__().minimum(instant // period, last) * period + instant % period

    def stay_log_odds(self: Any, slot: Any, time: Any, cluster: Any, place: Any, dwell: Any, mobility: Any) -> Any:
        """Log-odds of staying at one of the other places, after `dwell` instants there."""
        at_place = self.stay[slot, place] + self.stay_tilt[time, cluster, place]
        bin_of = (dwell[..., None] >= DWELL_FROM).sum(axis=-1) - 1
        return at_place + self.stay_at_time[time] + self.stay_by_dwell[bin_of] + self.stay_by_class[mobility]

    def return_weight(self: Any, slot: Any, place: Any, weight: Any, arrivals: Any, is_before: Any) -> Any:
        """Weight of going back to a place; `weight` is K(a, place)."""
        xp = weight.__array_namespace__()
        attraction = xp.log(xp.maximum(weight, MIN_WEIGHT))
        attraction -= xp.log(xp.maximum(self.population[slot, place], MIN_WEIGHT))
        log_factor = self.back * is_before + self.by_popularity * self.log_popularity_ratio[slot, place]
        log_factor += self.near * xp.clip(attraction, -MAX_ATTRACTION, MAX_ATTRACTION)
        return (arrivals - self.discount) * xp.exp(log_factor)

    def new_weight(self: Any, n_other: Any) -> Any:
        """Weight of going to a new place, after `n_other` distinct other places."""
        return (self.strength + self.discount * n_other) * (n_other < max(self.remembered, 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class PersonProcess(StepFormulas, StoredAttraction, PersonModel):
    """Arrays of the process of people who remember.

    The axis `time` has the instants of the calibrated periods, one period after the other; see `time_of`.
    A new place b is a place that was never visited before. At time t, the weight of going from place a to b, in cluster
    k, is K_s(a, b) pull[t, k, b]. Here s is the slot of arrival, and K is that of `StoredAttraction`; its `seen` and
    `between` are also multiplied by the factors of distance.
    """

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    slot_of_phase: Int[Array, " phase"] = stored(lambda n: StoredArray(("phases",), "int", 0, n.slots - 1))
    # Probabilities of the classes of mobility, and of having a second place.
    class_share: Float[Array, "cluster class"] = stored(lambda n: _shares("clusters", "classes"))
    second_share: Float[Array, " cluster"] = stored(lambda n: _shares("clusters"))
    # Probabilities of roles. The first index says whether the person has a second place (0 no, 1 yes); `phase` is the
    # instant of arrival within the period. Without anchors, all places are other places.
    role_first: Float[Array, "2 cluster 3"] = stored(lambda n: _shares(2, "clusters", 3))
    role_next: Float[Array, "2 cluster phase 3 3"] = stored(lambda n: _shares(2, "clusters", "phases", 3, 3))
    # Distribution of the place at instant 0, if it is one of the other places.
    first_other: Float[Array, "cluster place"] = stored(lambda n: _weights("clusters", "places"))
    # The log-odds of staying at other places are a sum of five terms: by slot and place; by time; by time, cluster and
    # place; by bin of dwell time; by class of mobility.
    stay: Float[Array, "slot place"] = stored(lambda n: StoredArray(("slots", "places")))
    stay_at_time: Float[Array, " time"] = stored(lambda n: StoredArray(("times",)))
    stay_tilt: Float[Array, "time cluster place"] = stored(lambda n: StoredArray(("times", "clusters", "places")))
    stay_by_dwell: Float[Array, " dwell"] = stored(lambda n: StoredArray((len(DWELL_FROM),)))
    stay_by_class: Float[Array, " class"] = stored(lambda n: StoredArray(("classes",)))
    # Returns. So far, the person arrived n_j times at place j, and visited D distinct other places. The current
    # place is a. The weight of going back to place j is (n_j - discount) exp(back [j was the place before a] +
    # by_popularity log_popularity_ratio[s, j] + near log(K_s(a, j) / population[s, j])), where the last logarithm is
    # bounded by MAX_ATTRACTION. The weight of going to a new place is strength + discount D.
    discount: Float[Array, ""] = stored(lambda n: _shares())
    strength: Float[Array, ""] = stored(lambda n: _weights())
    back: Float[Array, ""] = stored(lambda n: StoredArray(()))
    by_popularity: Float[Array, ""] = stored(lambda n: StoredArray(()))
    near: Float[Array, ""] = stored(lambda n: StoredArray(()))
    log_popularity_ratio: Float[Array, "slot place"] = stored(lambda n: StoredArray(("slots", "places")))
    population: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    pull: Float[Array, "time cluster place"] = stored(lambda n: _weights("times", "clusters", "places"))
    # Anchors; None for a process without anchors. The first anchor of a person is drawn from `home` or `second`. If the
    # other anchor is drawn already, the weight of second place w given home h is anchor_between[cell(h), cell(w)]
    # second_pull[w], and the weight of home h given second place w is anchor_between[cell(h), cell(w)] home_pull[h].
    # Places visited before are excluded.
    home: Float[Array, "cluster place"] | None = stored(lambda n: _optional("clusters", "places"), default=None)
    second: Float[Array, "cluster place"] | None = stored(lambda n: _optional("clusters", "places"), default=None)
    home_pull: Float[Array, "cluster place"] | None = stored(lambda n: _optional("clusters", "places"), default=None)
    second_pull: Float[Array, "cluster place"] | None = stored(lambda n: _optional("clusters", "places"), default=None)
    anchor_between: Float[Array, "cell cell"] | None = stored(lambda n: _optional("cells", "cells"), default=None)
    # Maximum number of other places that a person remembers; if 0, every move goes to a "new" place, maybe an old one.
    remembered: int = stored(lambda n: StoredArray((), "int", 0, MAX_REMEMBERED), static=True, default=MAX_REMEMBERED)
    # How far the simulated people of the last round of calibration are from the targets: difference between the shares
    # of returns, and total variation between the distances of moves; None for a process that was not calibrated.
    residual: Float[Array, " 2"] | None = stored(lambda n: StoredArray((2,), low=0, optional=True), default=None)
    # As in `chain.ClusterBridge`.
    memory_gain: Float[Array, " memory"] | None = stored(
        lambda n: StoredArray((len(MEMORIES),), optional=True), default=None
    )
    # As in `chain.ClusterBridge`; None for a process that was not learned from traces.
    chosen: Float[Array, " setting"] | None = stored(lambda n: StoredArray(("settings",), optional=True), default=None)

    @property
    def n_places(self) -> int:
        return self.first_other.shape[1]

    @property
    def roles(self) -> tuple[int, ...]:
        """The roles in which people may be."""
        return (OTHER,) if self.home is None else (HOME, SECOND, OTHER)

    @property
    def most_places(self) -> int:
        """Maximum number of distinct places of a trace: those that a person remembers, and their anchors.

        People who remember nothing may visit all places.
        """
        if not self.remembered:
            return self.n_places
        return self.remembered + (0 if self.home is None else 2)

    def when(self, instant: Int[Array, ""]) -> When:
        """What the process depends on at an instant."""
        phase = instant % len(self.slot_of_phase)
        return When(instant, phase, self.time_of(instant), self.slot_of_phase[phase])

    def n_open(self, clusters: Int[np.ndarray, " cluster"] | slice = slice(None)) -> Int[np.ndarray, "time cluster"]:
        """Lower bound of the number of places b with K(a, b) pull(b) > 0, for any place a."""
        slot = np.resize(self.slot_of_phase, len(self.pull))
        reaches = np.all(np.asarray(self.leaving) > 0, axis=1) & np.all(np.asarray(self.between) > 0)
        is_open = (np.asarray(self.pull)[:, clusters] > 0) & (np.asarray(self.arriving) > 0)[slot][:, None]
        return np.where(reaches[slot][:, None], is_open.sum(axis=2), 0)

    def anchor(self, role: int) -> tuple[Array, Array, Array]:
        """Arrays that draw an anchor: probabilities if it is drawn first; pulls and factors of distance otherwise.

        The first index of the factors is the cell of this anchor, the second the cell of the other anchor. Only for a
        process with anchors.
        """
        between: Any = self.anchor_between
        of_home: Any = self.home, self.home_pull, between
        of_second: Any = self.second, self.second_pull, jnp.swapaxes(between, 0, 1)
        return of_home if role == HOME else of_second


# A step: what may happen to a person, and with which weights.


def roles_of(process: PersonProcess, at: When, state: PersonState) -> Float[Array, "3"]:
    """Probability of each role at an instant after the first."""
    return process.role_next[state.has_second, state.cluster, at.phase, state.role]


def stay_odds(process: PersonProcess, at: When, state: PersonState) -> Float[Array, ""]:
    """Log-odds of staying, for a person whose role is, and remains, `OTHER`."""
    return process.stay_log_odds(at.slot, at.time, state.cluster, state.place, state.dwell, state.mobility)


def move_weights(
    process: PersonProcess, at: When, state: PersonState
) -> tuple[Float[Array, " remembered"], Float[Array, ""]]:
    """Weight of going back to each visited place, and weight of going to a new place if one is left."""
    place = jnp.maximum(state.visited, 0)
    weight = jax.vmap(process.pair, (None, None, 0))(at.slot, state.place, place)
    weight = process.return_weight(at.slot, place, weight, state.arrivals, place == state.before)
    can_return = (state.visited != ABSENT) & (state.visited != state.place) & (process.remembered > 0)
    # Whoever forgets may go to a new place after any number of places.
    n_remembered = jnp.sum(state.visited != ABSENT) * (process.remembered > 0)
    return jnp.where(can_return, weight, 0), process.new_weight(n_remembered)


def new_place_weights(
    process: PersonProcess, at: When, state: PersonState
) -> tuple[Float[Array, " place"], Int[Array, " move"], Float[Array, " move"]]:
    """Weight of each place as a new place, by gravity; next places of seen moves, and the weights that they add."""
    pull = process.pull[at.time, state.cluster] * _never_visited(process, state)
    gravity, next_place, seen = process.row(at.slot, state.place)
    return gravity * pull, next_place, seen * pull[jnp.minimum(next_place, process.n_places - 1)]


def anchor_weights(role: int, process: PersonProcess, state: PersonState) -> Float[Array, " place"]:
    """Weights of places for a home or second place; if the other anchor is already drawn, they depend on it."""
    alone, pull, between = process.anchor(role)
    other = state.second if role == HOME else state.home
    beside = between[process.cell, process.cell[other]] * pull[state.cluster]
    return jnp.where(other == ABSENT, alone[state.cluster], beside) * _never_visited(process, state)


def _never_visited(process: PersonProcess, state: PersonState) -> Float[Array, " place"]:
    """1 for places where the person never was, otherwise 0; people without memory know the current place only."""
    visited = state.visited if process.remembered else state.place[None]
    known = jnp.append(visited, jnp.stack([state.home, state.second]))
    # A negative index would count from the end.
    known = jnp.where(known == ABSENT, process.n_places, known)
    return jnp.ones(process.n_places, jnp.float32).at[known].set(0, mode="drop")


class Outcomes(NamedTuple):
    """Outcomes of a step: remain, go home, to the second place, to each visited place, to a new place (`ABSENT`)."""

    probability: Float[Array, " outcome"]
    role: Int[Array, " outcome"]
    place: Int[Array, " outcome"]


def outcomes(process: PersonProcess, at: When, state: PersonState, left: tuple[Array, ...]) -> Outcomes:
    """All outcomes of a step. `left`: for each of `process.roles`, whether a place is left that they never visited."""
    is_first = at.instant == 0
    first = process.role_first[state.has_second, state.cluster]
    ways = jnp.where(is_first, first, roles_of(process, at, state))
    stays = ((state.role == OTHER) & ~is_first) * jax.nn.sigmoid(stay_odds(process, at, state))
    returns, new = move_weights(process, at, state)
    new = jnp.where(is_first, 1, new) * left[-1]
    total = returns.sum() + new
    going = ways[OTHER] * (1 - stays) / jnp.where(total > 0, total, 1)
    remains = ways[OTHER] * jnp.where(total > 0, stays, 1)
    anchored = process.roles[:-1]
    anchors, to_anchor = jnp.stack([state.home, state.second])[: len(anchored)], []
    for role in anchored:
        can_go = (state.role != role) & ((anchors[role] != ABSENT) | left[role])
        to_anchor.append(jnp.where(can_go, ways[role], 0))
        remains += jnp.where(can_go, 0, ways[role])
    other = jnp.full(len(state.visited) + 1, OTHER, jnp.int32)
    return Outcomes(
        jnp.concatenate([jnp.stack([remains, *to_anchor]), going * returns, (going * new)[None]]),
        jnp.concatenate([state.role[None], jnp.array(anchored, jnp.int32), other]),
        jnp.concatenate([state.place[None], anchors, state.visited, jnp.full(1, ABSENT, jnp.int32)]),
    )


# The sampler.


def sample_person(process: PersonProcess, key: Key[Array, ""], cluster: Int[Array, ""]) -> PersonState:
    """Draw a person of a cluster, and their place at instant 0; pass the same key to `sample_step`."""
    uniform = jax.random.uniform(jax.random.fold_in(key, 0), (4,))
    cluster = jnp.asarray(cluster, jnp.int32)
    has_second = (uniform[0] < process.second_share[cluster]).astype(jnp.int32)
    role = sample_index(uniform[1], process.role_first[has_second, cluster])
    anchors = (jnp.zeros_like(process.first_other),) * 2 if process.home is None else (process.home, process.second)
    place = sample_index(uniform[2], jnp.stack([*anchors, process.first_other])[role, cluster])
    mobility = sample_index(uniform[3], process.class_share[cluster])
    return PersonState.unborn(cluster, mobility, has_second, max(process.remembered, 1)).arrived(role, place)


def sample_step(
    process: PersonProcess, key: Key[Array, ""], state: PersonState, instant: Int[Array, ""]
) -> PersonState:
    """Draw the state of a person at `instant`, given their state at the instant before."""
    at, uniform = process.when(instant), jax.random.uniform(jax.random.fold_in(key, instant), (5,))
    nowhere = jnp.full((), ABSENT, jnp.int32)
    role = sample_index(uniform[0], roles_of(process, at, state))
    stays = (state.role == OTHER) & (uniform[1] < jax.nn.sigmoid(stay_odds(process, at, state)))
    goes = (role == OTHER) & ~stays
    old, wants_new = for_those(goes, (nowhere, jnp.array(False)), _old_place, process, at, uniform, state)
    new = for_those(goes & wants_new, nowhere, _new_place, process, at, uniform, state)
    place = jnp.where(stays, state.place, jnp.where(new == ABSENT, old, new))
    if process.home is not None:
        anchors = []
        for number, known in enumerate((state.home, state.second)):
            is_drawn = (role == number) & (known == ABSENT)
            drawn = for_those(is_drawn, nowhere, partial(_new_anchor, number), process, at, uniform, state)
            anchors.append(jnp.where(is_drawn, drawn, known))
        place = jnp.stack([*anchors, place])[role]
    found = place != ABSENT
    return state.arrived(jnp.where(found, role, state.role), jnp.where(found, place, state.place))


def sample_life(
    process: PersonProcess, key: Key[Array, ""], cluster: Int[Array, ""], n_instants: int
) -> Int[Array, " instant"]:
    """Draw a person of a cluster, and their place at each instant, int32."""

    def step(state: PersonState, instant: Array) -> tuple[PersonState, Array]:
        following = sample_step(process, key, state, instant)
        return following, following.place

    first = sample_person(process, key, cluster)
    rest = jax.lax.scan(step, first, jnp.arange(1, n_instants))[1]
    return jnp.concatenate([first.place[None], rest])


def _old_place(process: PersonProcess, at: When, uniform: Array, state: PersonState) -> tuple[Array, Array]:
    """A place to go back to (`ABSENT` if there is none), and whether the person wants a new place instead."""
    returns, new = move_weights(process, at, state)
    total, chosen = returns.sum(), state.visited[sample_index(uniform[2], returns)]
    return jnp.where(total > 0, chosen, ABSENT), uniform[3] * (total + new) < new


def _new_place(process: PersonProcess, at: When, uniform: Array, state: PersonState) -> Int[Array, ""]:
    gravity, next_place, seen = new_place_weights(process, at, state)
    return drawn_place(_draw(uniform[4], jnp.concatenate([gravity, seen])), process.n_places, next_place)


def _new_anchor(role: int, process: PersonProcess, at: When, uniform: Array, state: PersonState) -> Int[Array, ""]:
    return _draw(uniform[4], anchor_weights(role, process, state))


def _draw(uniform: Float[Array, ""], weight: Float[Array, " place"]) -> Int[Array, ""]:
    """Index drawn with probability proportional to `weight`; `ABSENT` if all weights are 0."""
    drawn = sample_index(uniform, weight)
    return jnp.where(weight[drawn] > 0, drawn, ABSENT)


def for_those(needed: Bool[Array, ""], others: Any, function: Callable[..., Any], common: Any, *person: Any) -> Any:
    """`function(common, *person)` for the people who need it, and `others` for all other people.

    Under `vmap` over people, `jax.lax.cond` would compute the function for everybody. Here it is computed only for the
    people who need it, some people at a time.
    """
    # JAX also makes a tree of booleans in the form of the arguments. A dataclass that checks types would refuse it.
    arrays, tree = jax.tree.flatten(common)

    def of_person(arrays: list[Array], *person: Any) -> Any:
        return function(jax.tree.unflatten(tree, arrays), *person)

    @jax.custom_batching.custom_vmap
    def of_one(arrays: list[Array], needed: Array, others: Any, person: Any) -> Any:
        return jax.lax.cond(needed, lambda: of_person(arrays, *person), lambda: others)

    @of_one.def_vmap
    def of_many(n_people: int, in_batched: Any, arrays: list[Array], needed: Array, others: Any, person: Any) -> Any:
        def for_each(value: Any, is_batched: bool) -> Array:
            return value if is_batched else jnp.broadcast_to(value, (n_people, *jnp.shape(value)))

        needed, others, person = jax.tree.map(for_each, (needed, others, person), tuple(in_batched[1:]))
        order, n_at_a_time = jnp.argsort(~needed), min(math.ceil(AT_A_TIME * n_people), MAX_AT_A_TIME)

        def compute_some(state: tuple[Array, Any]) -> tuple[Array, Any]:
            begin, results = state
            # A slice that would pass the end is shifted to the left.
            rows = jax.lax.dynamic_slice(order, (begin,), (n_at_a_time,))
            of_rows = jax.vmap(partial(of_person, arrays))(*jax.tree.map(lambda values: values[rows], person))

            def put(values: Array, new: Array) -> Array:
                is_needed = needed[rows].reshape(-1, *(1,) * (new.ndim - 1))
                return values.at[rows].set(jnp.where(is_needed, new, values[rows]))

            return begin + n_at_a_time, jax.tree.map(put, results, of_rows)

        results = jax.lax.while_loop(lambda state: state[0] < needed.sum(), compute_some, (0, others))[1]
        return results, jax.tree.map(lambda _: True, results)

    return of_one(arrays, needed, others, person)
