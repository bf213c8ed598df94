"""Completing partly known traces of people who remember, by a particle filter that looks ahead to the next known event.

The next place depends on all places before it, so no exact recursion over places exists. Instead, several *particles*
go through each trace. A particle is a possible person. She has a class of mobility and the places of her trace so far.
Her home is one of the known places, or it is none of them and is drawn later. The same holds for her second place. At
an instant with a known event, the particle goes to the place of the event. At any other instant, its next place is
drawn with probability proportional to

    (probability of the place under the law) x (estimate of the probability of all later events, given the place).

The *estimate* is made in `look_ahead`. It need not be exact: each particle has a weight that corrects its errors (a
twisted particle filter, Guarniero et al. 2017).

The completion is the trace of one particle, which is drawn by weight. If a trace has at most `look_ahead.MAX_ANCHORS`
known places, the distribution of the completion tends to the exact one as the number of particles grows. If a trace has
more, the known places with fewer events are never home or second place.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND, PersonLaw
from ppmtf_jax.bridge.people.look_ahead import (
    MIN_ESTIMATE,
    Ahead,
    People,
    layer_of,
    log_of_anchors,
    look_ahead,
    people_of,
    persons_of,
)
from ppmtf_jax.bridge.people.steps import (
    PersonState,
    anchor_weights,
    arrived,
    for_those,
    move_weights,
    new_place_weights,
    unborn,
)
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ABSENT
from ppmtf_jax.trace_models.completion import Completion
from ppmtf_jax.trace_models.sampling import sample_index

PARTICLES, MORE = 32, 8
"""Number of particles of a trace; factor of this number for a second try, if no particle was left in the first.

The error of the distribution falls as 1 / particles.
"""
NUMBERS_AT_A_TIME, MAX_AT_A_TIME = 2**23, 64
"""Maximum size of an array of (instants, traces, places), and maximum number of traces that are completed at a time."""


def complete_traces(
    keys: Key[Array, " trace"],
    law: PersonLaw,
    users: Int[np.ndarray, " trace"],
    known: Int[np.ndarray, "trace instant"],
    *,
    most_probable: bool = False,
    progress: bool = False,
) -> Completion:
    """Complete each trace under the law of its user's cluster; one trace belongs to one person.

    `impossible_at` is the first instant at which no particle is left, or `ABSENT`.

    Each completion depends only on its own key, apart from the rounding of sums. `known`: known places, `ABSENT` where
    the place is unknown; the person begins at the first column. `most_probable`: take the particle whose steps are most
    probable under the law, given her class of mobility and whether she has a second place. By default, a random
    particle is drawn by weight. Time: for each trace and instant, one product of a vector with the weights K of places
    x places; for each particle and instant, about as much as for one step of a synthetic trace.
    """
    made = _in_blocks(keys, law, users, known, most_probable, PARTICLES, progress)
    # If few places are possible, a known event may be impossible for every particle. More particles may include one for
    # which the event is possible.
    if (lost := np.flatnonzero(made.impossible_at != ABSENT)).size:
        again = _in_blocks(keys[lost], law, users[lost], known[lost], most_probable, MORE * PARTICLES, progress)
        for values, new in zip(made, again, strict=True):
            values[lost] = new
    return made


def _in_blocks(
    keys: Key[Array, " trace"],
    law: PersonLaw,
    users: Int[np.ndarray, " trace"],
    known: Int[np.ndarray, "trace instant"],
    most_probable: bool,
    n_particles: int,
    progress: bool,
) -> Completion:
    (n_traces, n_instants), of_user = known.shape, np.asarray(law.cluster)[users]
    places, lost_at = np.empty(known.shape, np.int32), np.empty(n_traces, np.int32)
    size = int(np.clip(NUMBERS_AT_A_TIME // (n_instants * law.n_places), 1, MAX_AT_A_TIME))
    local_copy, least_open = on_each_device(law), _least_open(law)

    def of_block(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # All blocks have the same size, so that only one program is compiled.
        padded = np.resize(rows, size)
        given = jnp.asarray(of_user[padded]), keys[padded], jnp.asarray(known[padded], jnp.int32), least_open
        made = _complete(local_copy(), *given, n_particles=n_particles, most_probable=most_probable)
        return np.asarray(made[0])[: len(rows)], np.asarray(made[1])[: len(rows)]

    blocks = np.split(np.arange(n_traces), range(size, n_traces, size)) if n_traces else []
    with progress_bar("completing", n_traces, show=progress) as advance:
        for rows, made in zip(blocks, map_in_threads(of_block, blocks), strict=True):
            places[rows], lost_at[rows] = made
            advance(len(rows))
    return Completion(places, lost_at)


def _least_open(law: PersonLaw) -> int:
    """Lower bound of the number of possible places of a home, second place or new place, wherever a person is."""
    n_open = [law.n_open().min()]
    if law.home is not None:
        weights, reaches = (law.home, law.second, law.home_pull, law.second_pull), np.asarray(law.anchor_between) > 0
        n_open += [reaches.all() * (np.asarray(each) > 0).sum(axis=1).min() for each in weights]
    return int(min(n_open))


class _Particle(NamedTuple):
    """A possible person and her trace so far.

    `log_weight`: log of the weight that corrects the estimates so far. `log_estimate`: log of the estimated probability
    of all later known events. `log_probability`: log-probability of her steps so far under the law.
    """

    trace: Int[Array, ""]
    person: Int[Array, ""]
    state: PersonState
    log_weight: Float[Array, ""]
    log_estimate: Float[Array, ""]
    log_probability: Float[Array, ""]


class _Instant(NamedTuple):
    """What all particles share at an instant: an index of time, known places, and the estimates of each trace."""

    instant: Int[Array, ""]
    time: Int[Array, ""]
    slot: Int[Array, ""]
    known: Int[Array, " trace"]
    is_known_place: Bool[Array, "trace place"]
    ahead: Ahead
    people: People


def _anchors(at: _Instant, particle: _Particle) -> tuple[Array, Array]:
    """Home and second place, if they are known places."""
    return at.people.home[particle.trace, particle.person], at.people.second[particle.trace, particle.person]


def _estimate(at: _Instant, particle: _Particle, layer: Array, at_place: Array) -> Array:
    """Estimated probability of the next known event, given a layer and, for the layer elsewhere, `at_place`."""
    trace, has_second = particle.trace, particle.state.has_second
    target = at.ahead.next_place[trace]
    target_layer = layer_of(target, *_anchors(at, particle))
    reach = at.ahead.layers[trace, has_second, layer, target_layer]
    still = jnp.where(layer == ELSEWHERE, at.ahead.still[trace, has_second], 0)
    elsewhere = still * at_place + jnp.maximum(reach - still, 0) * at.ahead.entering[trace]
    value = jnp.where(target_layer == ELSEWHERE, elsewhere, reach)
    return jnp.where(target == ABSENT, 1, jnp.maximum(value, MIN_ESTIMATE))


def _weights_of(layer: int, common: tuple[PersonLaw, _Instant], particle: _Particle) -> Float[Array, " place"]:
    """Weight of each place, when a new place of a layer is drawn."""
    (law, at), state = common, particle.state
    if layer != ELSEWHERE:
        return anchor_weights(layer, law, state)
    gravity, next_place, seen = new_place_weights(law, at.time, at.slot, state)
    weight = gravity.at[next_place].add(seen, mode="drop")
    return jnp.where(at.instant == 0, law.first_elsewhere[state.cluster], weight)


def _draw(
    layer: int, common: tuple[PersonLaw, _Instant], particle: _Particle, wanted: Array, uniform: Array
) -> tuple[Array, Array, Array]:
    """A new place (`wanted`, or a random one); its log-probability under the law; the log-probability of drawing it."""
    (law, at), weight = common, _weights_of(layer, common, particle)
    # The layer of each known place is fixed, so a known place cannot be drawn for another layer.
    if layer == ELSEWHERE:
        places, at_place = jnp.arange(law.n_places), at.ahead.at_place[particle.trace]
        is_other = layer_of(places, *_anchors(at, particle)) == ELSEWHERE
        guided = weight * is_other * _estimate(at, particle, jnp.full(at_place.shape, layer), at_place)
    else:
        guided = weight * ~at.is_known_place[particle.trace]
    drawn = sample_index(uniform, guided)
    drawing = jnp.where(wanted == ABSENT, guided[drawn] / guided.sum(), 1)
    place = jnp.where(wanted == ABSENT, drawn, wanted)
    probability = weight[place] / weight.sum()
    is_drawn = (probability > 0) & (drawing > 0)
    return place, jnp.log(jnp.where(is_drawn, probability, 0)), jnp.log(jnp.where(is_drawn, drawing, 1))


def _is_left(common: tuple[PersonLaw, _Instant], particle: _Particle) -> tuple[Array, ...]:
    """For each layer, whether a place is left that can be drawn."""
    return tuple(_weights_of(layer, common, particle).sum() > 0 for layer in _layers(common[0]))


def _layers(law: PersonLaw) -> tuple[int, ...]:
    return (ELSEWHERE,) if law.home is None else (HOME, SECOND, ELSEWHERE)


class _Outcomes(NamedTuple):
    """Outcomes of a step: remain, go home, to the second place, to each visited place, to a new place (`ABSENT`)."""

    probability: Float[Array, " outcome"]  # under the law
    layer: Int[Array, " outcome"]
    place: Int[Array, " outcome"]
    at_place: Float[Array, " outcome"]  # as in `Ahead`, or its expectation for a new place


def _outcomes(law: PersonLaw, at: _Instant, least_open: Array, particle: _Particle) -> _Outcomes:
    state, trace, is_first, layers = particle.state, particle.trace, at.instant == 0, _layers(law)
    ways = jnp.where(
        is_first,
        law.layer_first[state.has_second, state.cluster],
        law.layer_next[state.has_second, state.cluster, law.phase_of(at.instant), state.layer],
    )
    is_doubtful = (jnp.sum(state.visited != ABSENT) + 2 >= least_open) & ~is_first
    left = for_those(is_doubtful, (jnp.array(True),) * len(layers), _is_left, (law, at), particle)
    is_elsewhere = (state.layer == ELSEWHERE) & ~is_first
    stays = is_elsewhere * jax.nn.sigmoid(
        law.stay_log_odds(at.slot, at.time, state.cluster, state.place, state.dwell, state.mobility)
    )
    returns, new = move_weights(law, at.slot, state)
    new = jnp.where(is_first, 1, new) * left[-1]
    total = returns.sum() + new
    going = ways[ELSEWHERE] * (1 - stays) / jnp.where(total > 0, total, 1)
    remains = ways[ELSEWHERE] * jnp.where(total > 0, stays, 1)
    anchors, to_anchor = jnp.stack([state.home, state.second])[: len(layers) - 1], []
    for layer in layers[:-1]:
        can_go = (state.layer != layer) & ((anchors[layer] != ABSENT) | left[layer])
        to_anchor.append(jnp.where(can_go, ways[layer], 0))
        remains += jnp.where(can_go, 0, ways[layer])
    at_place, nowhere = at.ahead.at_place[trace], jnp.full(1, ABSENT, jnp.int32)
    of_visited, of_new = at_place[jnp.maximum(state.visited, 0)], at.ahead.moving[trace, state.place]
    elsewhere = jnp.full(len(state.visited) + 1, ELSEWHERE, jnp.int32)
    return _Outcomes(
        jnp.concatenate([jnp.stack([remains, *to_anchor]), going * returns, (going * new)[None]]),
        jnp.concatenate([state.layer[None], jnp.array(layers[:-1], jnp.int32), elsewhere]),
        jnp.concatenate([state.place[None], anchors, state.visited, nowhere]),
        jnp.concatenate([at_place[state.place][None], jnp.ones(len(anchors)), of_visited, of_new[None]]),
    )


def _go(law: PersonLaw, at: _Instant, least_open: Array, particle: _Particle, uniform: Array) -> _Particle:
    """Let a particle make the step to an instant, and update its weight."""
    state, trace, known = particle.state, particle.trace, at.known[particle.trace]
    outcomes = _outcomes(law, at, least_open, particle)
    probability, n_anchors = outcomes.probability, len(_layers(law)) - 1
    guided = probability * jax.vmap(partial(_estimate, at, particle))(outcomes.layer, outcomes.at_place)
    # If the place is known, it decides the outcome.
    home, second = _anchors(at, particle)
    known_layer = layer_of(known, home, second)
    is_old = state.visited == known
    elsewhere = jnp.where(is_old.any(), 1 + n_anchors + jnp.argmax(is_old), len(probability) - 1)
    by_layer = jnp.where((known_layer == ELSEWHERE) | (n_anchors == 0), elsewhere, 1 + known_layer)
    decided = jnp.where(known == state.place, 0, by_layer)
    chosen = jnp.where(known == ABSENT, sample_index(uniform[0], guided), decided)
    drawing = jnp.where(known == ABSENT, guided[chosen] / guided.sum(), 1)
    layer, old = outcomes.layer[chosen], outcomes.place[chosen]
    is_new, nothing = old == ABSENT, (jnp.int32(0), jnp.array(0.0), jnp.array(0.0))
    place, log_place, log_drawing = old, 0.0, 0.0
    for each in _layers(law):
        is_here = is_new & (layer == each)
        wanted = known if each == ELSEWHERE else jnp.where(known == ABSENT, (home, second)[each], known)
        drawn = for_those(is_here, nothing, partial(_draw, each), (law, at), particle, wanted, uniform[1])
        place = jnp.where(is_here, drawn[0], place)
        log_place, log_drawing = log_place + drawn[1], log_drawing + drawn[2]
    log_probability = jnp.log(probability[chosen]) + log_place
    following = arrived(state, layer, place)
    at_place = at.ahead.at_place[trace, place]
    log_estimate = jnp.log(_estimate(at, particle, layer, at_place)) + at.people.later[trace, particle.person]
    if law.home is not None:
        to_draw = (
            jnp.where(following.home == ABSENT, home, ABSENT),
            jnp.where(following.second == ABSENT, second, ABSENT),
        )
        log_estimate += log_of_anchors(law, state.cluster, *to_draw)
    log_ratio = log_probability - jnp.log(drawing) - log_drawing + log_estimate - particle.log_estimate
    return particle._replace(
        state=following,
        log_weight=particle.log_weight + jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio),
        log_estimate=log_estimate,
        log_probability=particle.log_probability + log_probability,
    )


def _systematic(uniform: Float[Array, ""], log_weight: Float[Array, " weight"], number: int) -> Int[Array, " drawn"]:
    """Systematic sampling by weight: each index is drawn as often as expected, rounded up or down."""
    cumulative = jnp.cumsum(jax.nn.softmax(log_weight))
    drawn = jnp.searchsorted(cumulative, (uniform + jnp.arange(number)) / number * cumulative[-1], side="right")
    return jnp.minimum(drawn, len(log_weight) - 1).astype(jnp.int32)


@partial(jax.jit, static_argnames=("n_particles", "most_probable"))
def _complete(
    law: PersonLaw,
    cluster: Int[Array, " trace"],
    keys: Key[Array, " trace"],
    known: Int[Array, "trace instant"],
    least_open: Int[Array, ""],
    n_particles: int,
    most_probable: bool,
) -> tuple[Int[Array, "trace instant"], Int[Array, " trace"]]:
    """Places of each trace, and the first instant at which no particle was left (or `ABSENT`)."""
    n_traces, n_instants = known.shape
    ahead = look_ahead(law, cluster, known)
    of_trace = partial(people_of, law)
    home, second, later, log_guess, log_all = jax.vmap(of_trace, in_axes=(0, 0, 1))(cluster, known, ahead)
    has_second = jnp.asarray(persons_of(law, n_instants).has_second)
    people = People(home, second, has_second, jnp.moveaxis(later, -1, 0))
    is_known_place = jnp.zeros((n_traces, law.n_places + 1), bool)
    is_known_place = is_known_place.at[jnp.arange(n_traces)[:, None], known].set(True)[:, :-1]

    def uniforms(number: Array | int, *shape: int) -> Array:
        def of_trace(key: Array) -> Array:
            return jax.random.uniform(jax.random.fold_in(key, number), shape)

        return jax.vmap(of_trace)(keys)

    def born(trace: Array, person: Array, uniform: Array) -> _Particle:
        k = cluster[trace]
        mobility = sample_index(uniform, law.class_share[k])
        state = unborn(k, mobility, has_second[person], min(law.remembered, n_instants))
        none = jnp.array(0.0)
        return _Particle(trace, person, state, none, log_all[trace, person], none)

    def flat(values: Array) -> Array:
        return values.reshape(-1, *values.shape[2:])

    first = uniforms(n_instants, n_particles + 1)
    person = jax.vmap(partial(_systematic, number=n_particles))(first[:, 0], log_guess)
    trace = jnp.repeat(jnp.arange(n_traces, dtype=jnp.int32), n_particles)
    particles = jax.vmap(born)(trace, flat(person), flat(first[:, 1:]))

    def step(particles: _Particle, given: tuple[Any, ...]) -> tuple[_Particle, tuple[Array, ...]]:
        instant, known, ahead, later = given
        slot = law.slot_of_phase[law.phase_of(instant)]
        at = _Instant(instant, law.time_of(instant), slot, known, is_known_place, ahead, people._replace(later=later))
        uniform = uniforms(instant, 2 * n_particles + 1)
        own = flat(uniform[:, 1:].reshape(n_traces, n_particles, 2))
        particles = jax.vmap(partial(_go, law, at, least_open))(particles, own)
        log_weight = particles.log_weight.reshape(n_traces, n_particles)
        is_lost = log_weight.max(axis=1) == -jnp.inf
        weight = jax.nn.softmax(jnp.where(is_lost[:, None], 0, log_weight), axis=1)
        drawn = jax.vmap(partial(_systematic, number=n_particles))(uniform[:, 0], jnp.log(weight))
        # If few particles have most of the weight, all particles are drawn again by weight.
        again = (1 / jnp.sum(weight**2, axis=1) < n_particles / 2)[:, None]
        ancestor = jnp.where(again, drawn, jnp.arange(n_particles))
        source = flat(ancestor + n_particles * jnp.arange(n_traces)[:, None])
        place = particles.state.place.reshape(n_traces, n_particles)
        particles = jax.tree.map(lambda values: values[source], particles)
        log_weight = flat(jnp.where(again, 0, jnp.log(weight)))
        return particles._replace(log_weight=log_weight), (place, ancestor, is_lost)

    later = people.later
    particles, (places, ancestors, is_lost) = lax.scan(step, particles, (jnp.arange(n_instants), known.T, ahead, later))
    log_weight, log_probability = (
        values.reshape(n_traces, n_particles) for values in (particles.log_weight, particles.log_probability)
    )
    if most_probable:
        chosen = jnp.argmax(jnp.where(log_weight > -jnp.inf, log_probability, -jnp.inf), axis=1)
    else:
        chosen = jax.vmap(sample_index)(uniforms(n_instants + 1), jnp.exp(log_weight))

    def back(chosen: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        place, ancestor = at
        rows = jnp.arange(n_traces)
        chosen = ancestor[rows, chosen]
        return chosen, place[rows, chosen]

    drawn = lax.scan(back, chosen, (places, ancestors), reverse=True)[1].T
    lost_at = jnp.where(is_lost.any(axis=0), jnp.argmax(is_lost, axis=0), ABSENT)
    return jnp.where((lost_at == ABSENT)[:, None], drawn, ABSENT), lost_at
