"""How a person of the remembering bridge goes through her trace: the exact sampler, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.bridge.attraction import drawn_place
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND, PersonLaw
from ppmtf_jax.bridge.person import entry_of
from ppmtf_jax.trace_models.base import ABSENT
from ppmtf_jax.trace_models.sampling import sample_index

AT_A_TIME, MAX_AT_A_TIME = 1 / 8, 256
"""Share, and maximum number, of people for whom `for_those` computes at a time; few people need a new place at once."""


class PersonState(NamedTuple):
    """A synthetic person at an instant of her trace; a place that does not exist (yet) is `ABSENT`.

    `before`: the last place that was not the current place. `dwell`: number of instants at the current place so far.
    `visited`: distinct places elsewhere, in the order of the first arrivals. `arrivals`: number of arrivals at each.
    """

    cluster: Int[Array, ""]
    mobility: Int[Array, ""]
    has_second: Int[Array, ""]
    layer: Int[Array, ""]
    place: Int[Array, ""]
    before: Int[Array, ""]
    dwell: Int[Array, ""]
    home: Int[Array, ""]
    second: Int[Array, ""]
    visited: Int[Array, " remembered"]
    arrivals: Int[Array, " remembered"]


class _Step(NamedTuple):
    """When a step is made, and its random numbers."""

    time: Int[Array, ""]
    slot: Int[Array, ""]
    uniform: Float[Array, "5"]


def begin(law: PersonLaw, key: Key[Array, ""], cluster: Int[Array, ""]) -> PersonState:
    """Draw a person of a cluster, and her place at instant 0; pass the same key to `advance`."""
    uniform = jax.random.uniform(jax.random.fold_in(key, 0), (4,))
    cluster = jnp.asarray(cluster, jnp.int32)
    has_second = (uniform[0] < law.second_share[cluster]).astype(jnp.int32)
    layer = sample_index(uniform[1], law.layer_first[has_second, cluster])
    place = sample_index(uniform[2], _first_places(law)[layer, cluster])
    mobility = sample_index(uniform[3], law.class_share[cluster])
    return arrived(unborn(cluster, mobility, has_second, max(law.remembered, 1)), layer, place)


def _first_places(law: PersonLaw) -> Float[Array, "3 cluster place"]:
    """Weight of each place at instant 0, for people in each layer."""
    anchors = (jnp.zeros_like(law.first_elsewhere),) * 2 if law.home is None else (law.home, law.second)
    return jnp.stack([*anchors, law.first_elsewhere])


def unborn(cluster: Int[Array, ""], mobility: Int[Array, ""], has_second: Int[Array, ""], most: int) -> PersonState:
    """A person before her first instant, who can remember `most` places."""
    nowhere, nothing = jnp.int32(ABSENT), jnp.zeros(most, jnp.int32)
    return PersonState(
        cluster,
        mobility,
        has_second,
        layer=jnp.int32(ELSEWHERE),
        place=nowhere,
        before=nowhere,
        dwell=jnp.int32(0),
        home=nowhere,
        second=nowhere,
        visited=nothing + ABSENT,
        arrivals=nothing,
    )


def arrived(state: PersonState, layer: Int[Array, ""], place: Int[Array, ""]) -> PersonState:
    """The person one instant later, at a given place, which belongs to a given layer."""
    moved = place != state.place
    number = entry_of(place, state.visited, jnp.sum(state.visited != ABSENT))[0]
    arrives = (jnp.arange(len(state.visited)) == number) & moved & (layer == ELSEWHERE)
    return state._replace(
        layer=layer,
        place=place,
        before=jnp.where(moved, state.place, state.before),
        dwell=jnp.where(moved, 1, state.dwell + 1),
        home=jnp.where(layer == HOME, place, state.home),
        second=jnp.where(layer == SECOND, place, state.second),
        visited=jnp.where(arrives, place, state.visited),
        arrivals=state.arrivals + arrives,
    )


def advance(law: PersonLaw, key: Key[Array, ""], state: PersonState, instant: Int[Array, ""]) -> PersonState:
    """Draw the state of a person at `instant`, given her state at the instant before."""
    phase = law.phase_of(instant)
    uniform = jax.random.uniform(jax.random.fold_in(key, instant), (5,))
    step = _Step(law.time_of(instant), law.slot_of_phase[phase], uniform)
    layer = sample_index(uniform[0], law.layer_next[state.has_second, state.cluster, phase, state.layer])
    place = _elsewhere(law, step, state, layer == ELSEWHERE)
    if law.home is not None:
        nowhere = jnp.full((), ABSENT, jnp.int32)
        draws_home = (layer == HOME) & (state.home == ABSENT)
        draws_second = (layer == SECOND) & (state.second == ABSENT)
        new_home = for_those(draws_home, nowhere, partial(_new_anchor, HOME), law, step, state)
        new_second = for_those(draws_second, nowhere, partial(_new_anchor, SECOND), law, step, state)
        home = jnp.where(draws_home, new_home, state.home)
        second = jnp.where(draws_second, new_second, state.second)
        place = jnp.stack([home, second, place])[layer]
    found = place != ABSENT
    return arrived(state, jnp.where(found, layer, state.layer), jnp.where(found, place, state.place))


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


def _elsewhere(law: PersonLaw, step: _Step, state: PersonState, is_there: Bool[Array, ""]) -> Int[Array, ""]:
    """Place elsewhere: the current one, an old one or a new one; `ABSENT` if no place is left."""
    nowhere = jnp.full((), ABSENT, jnp.int32)
    log_odds = law.stay_log_odds(step.slot, step.time, state.cluster, state.place, state.dwell, state.mobility)
    stays = (state.layer == ELSEWHERE) & (step.uniform[1] < jax.nn.sigmoid(log_odds))
    goes = is_there & ~stays
    old, wants_new = for_those(goes, (nowhere, jnp.array(False)), _old_place, law, step, state)
    new = for_those(goes & wants_new, nowhere, _new_place, law, step, state)
    return jnp.where(stays, state.place, jnp.where(new == ABSENT, old, new))


def move_weights(
    law: PersonLaw, slot: Int[Array, ""], state: PersonState
) -> tuple[Float[Array, " remembered"], Float[Array, ""]]:
    """Weight of going back to each visited place, and weight of going to a new place if one is left."""
    place = jnp.maximum(state.visited, 0)
    weight = jax.vmap(law.pair, (None, None, 0))(slot, state.place, place)
    weight = law.return_weight(slot, place, weight, state.arrivals, place == state.before)
    is_other = (state.visited != ABSENT) & (state.visited != state.place) & (law.remembered > 0)
    # Whoever forgets may go to a new place after any number of places.
    n_remembered = jnp.sum(state.visited != ABSENT) * (law.remembered > 0)
    return jnp.where(is_other, weight, 0), law.new_weight(n_remembered)


def _old_place(law: PersonLaw, step: _Step, state: PersonState) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """A place to go back to (`ABSENT` if there is none), and whether the person wants a new place instead."""
    returns, new = move_weights(law, step.slot, state)
    total, chosen = returns.sum(), state.visited[sample_index(step.uniform[2], returns)]
    return jnp.where(total > 0, chosen, ABSENT), step.uniform[3] * (total + new) < new


def new_place_weights(
    law: PersonLaw, time: Int[Array, ""], slot: Int[Array, ""], state: PersonState
) -> tuple[Float[Array, " place"], Int[Array, " move"], Float[Array, " move"]]:
    """Weight of each place as a new place, by gravity; next places of seen moves, and the weights that they add."""
    place, pull = state.place, law.pull[time, state.cluster] * _never_visited(law, state)
    gravity, next_place, seen = law.row(slot, place)
    return gravity * pull, next_place, seen * pull[jnp.minimum(next_place, law.n_places - 1)]


def _new_place(law: PersonLaw, step: _Step, state: PersonState) -> Int[Array, ""]:
    """A new place elsewhere."""
    gravity, next_place, seen = new_place_weights(law, step.time, step.slot, state)
    drawn = _draw(step.uniform[4], jnp.concatenate([gravity, seen]))
    return drawn_place(drawn, law.n_places, next_place)


def anchor_weights(layer: int, law: PersonLaw, state: PersonState) -> Float[Array, " place"]:
    """Weights of places for a home or second place; if the other anchor is already drawn, they depend on it."""
    alone, pull, between = law.anchor(layer)
    other = state.second if layer == HOME else state.home
    beside = between[law.cell, law.cell[other]] * pull[state.cluster]
    return jnp.where(other == ABSENT, alone[state.cluster], beside) * _never_visited(law, state)


def _new_anchor(layer: int, law: PersonLaw, step: _Step, state: PersonState) -> Int[Array, ""]:
    """Draw the home or second place, when the person is there for the first time."""
    return _draw(step.uniform[4], anchor_weights(layer, law, state))


def _draw(uniform: Float[Array, ""], weight: Float[Array, " place"]) -> Int[Array, ""]:
    """Index drawn with probability proportional to `weight`; `ABSENT` if all weights are 0."""
    drawn = sample_index(uniform, weight)
    return jnp.where(weight[drawn] > 0, drawn, ABSENT)


def _never_visited(law: PersonLaw, state: PersonState) -> Float[Array, " place"]:
    """1 for places where the person never was, otherwise 0; people without memory know the current place only."""
    visited = state.visited if law.remembered else state.place[None]
    known = jnp.append(visited, jnp.stack([state.home, state.second]))
    # A negative index would count from the end.
    known = jnp.where(known == ABSENT, law.n_places, known)
    return jnp.ones(law.n_places, jnp.float32).at[known].set(0, mode="drop")
