"""Completing partly known traces of people who remember, by a particle filter that looks ahead to the next known event.

The next place depends on all places before it, so no exact recursion over places exists. Instead, several *particles*
go through each trace. A particle is a possible person, with a class of mobility and the places of their trace so far.
Their home is one of the known places, or it is none of them and is drawn later. The same holds for the second place. At
an instant with a known event, the particle goes to the place of the event. At any other instant, its next place is
drawn with probability proportional to

    (probability of the place under the process, see `process.outcomes`)
    x (estimate of the probability of all later events, given the place).

The *estimate* need not be exact: each particle has a weight that corrects its errors (a twisted particle filter,
Guarniero et al. 2017). It is a product of two parts. The first part is the probability of the next known event. A chain
without memory is followed backwards from this event. Its roles have their exact probabilities. Its other places follow
the stays and moves of the cluster, and a fixed share of its moves leads back to known places. The second part is the
probability of all events after the next known event. Home and second place tell the roles of these events. Each of the
other places has a probability in proportion to its earlier known events. If it has none, the probability is in
proportion to its share of the population.

The completion is the trace of one particle, which is drawn by weight. If a trace has at most `MAX_ANCHORS` known
places, the distribution of the completion tends to the exact one as the number of particles grows. If a trace has more,
the known places with fewer events are never home or second place.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.people.bins import HOME, OTHER, SECOND
from ppmtf_jax.people.person import Persons, PersonState
from ppmtf_jax.people.process import (
    PersonProcess,
    When,
    anchor_weights,
    for_those,
    new_place_weights,
    outcomes,
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
MAX_ANCHORS = 12
"""Maximum number of known places that may be home or second place: the known places with the most events."""
MIN_ESTIMATE = 1e-12
"""Smaller estimates of probabilities are raised to this number, so that no possible place is excluded."""


def complete_traces(
    keys: Key[Array, " trace"],
    process: PersonProcess,
    users: Int[np.ndarray, " trace"],
    known: Int[np.ndarray, "trace instant"],
    *,
    most_probable: bool = False,
    progress: bool = False,
) -> Completion:
    """Complete each trace under the process of its user's cluster; one trace belongs to one person.

    `impossible_at` is the first instant at which no particle is left, or `ABSENT`.

    Each completion depends only on its own key, apart from the rounding of sums. `known`: known places, `ABSENT` where
    the place is unknown; the person begins at the first column. `most_probable`: take the particle whose steps are most
    probable under the process, given the person's class of mobility and whether they have a second place. By default, a
    random particle is drawn by weight. Time: for each trace and instant, one product of a vector with the weights K of
    places x places; for each particle and instant, about as much as for one step of a synthetic trace.
    """
    n_instants, of_user, local_copy = known.shape[1], np.asarray(process.cluster)[users], on_each_device(process)
    size = int(np.clip(NUMBERS_AT_A_TIME // (n_instants * process.n_places), 1, MAX_AT_A_TIME))
    places, lost_at = np.empty(known.shape, np.int32), np.empty(len(known), np.int32)
    # Lower bound of the number of possible places of a home, second place or new place, wherever a person is.
    n_open = [process.n_open().min()]
    if process.home is not None:
        weights = process.home, process.second, process.home_pull, process.second_pull
        reaches = np.asarray(process.anchor_between) > 0
        n_open += [reaches.all() * (np.asarray(each) > 0).sum(axis=1).min() for each in weights]
    least_open = int(min(n_open))

    def complete(rows: Int[np.ndarray, " row"], n_particles: int) -> None:
        def of_block(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # All blocks have the same size, so that only one program is compiled.
            padded = np.resize(block, size)
            given = jnp.asarray(of_user[padded]), keys[padded], jnp.asarray(known[padded], jnp.int32), least_open
            made = _complete(local_copy(), *given, n_particles=n_particles, most_probable=most_probable)
            return np.asarray(made[0])[: len(block)], np.asarray(made[1])[: len(block)]

        blocks = np.split(rows, range(size, len(rows), size)) if len(rows) else []
        with progress_bar("completing", len(rows), show=progress) as advance:
            for block, made in zip(blocks, map_in_threads(of_block, blocks), strict=True):
                places[block], lost_at[block] = made
                advance(len(block))

    complete(np.arange(len(known)), PARTICLES)
    # If few places are possible, a known event may be impossible for all particles. More may include one that can.
    if (lost := np.flatnonzero(lost_at != ABSENT)).size:
        complete(lost, MORE * PARTICLES)
    return Completion(places, lost_at)


class Ahead(NamedTuple):
    """For every instant and trace, estimates about the *target*: the first known event after this instant.

    `next_place`: place of the target, `ABSENT` if there is no target. `roles`: probability of the role at the target,
    by `has_second`, by the role at the instant, and by the role at the target. `still`: probability that a person who
    has the role `OTHER` at the instant keeps it at all instants up to the target. `at_place`: for such a person,
    probability of the target's place, by their place at the instant. `moving`: expectation of `at_place` after a move
    to a new place, by the place at the instant before. `entering`: probability of the target's place for a person who
    has the role `OTHER` at the target, but not at all instants up to it.
    """

    next_place: Int[Array, "instant trace"]
    roles: Float[Array, "instant trace 2 3 3"]
    still: Float[Array, "instant trace 2"]
    at_place: Float[Array, "instant trace place"]
    moving: Float[Array, "instant trace place"]
    entering: Float[Array, "instant trace"]


def look_ahead(process: PersonProcess, cluster: Int[Array, " trace"], known: Int[Array, "trace instant"]) -> Ahead:
    """Follow the chain without memory backwards from each known event."""
    n_traces, n_instants = known.shape
    is_dense = len(process.between) == process.n_places
    origin = jnp.searchsorted(process.move_start, jnp.arange(len(process.next_place)), side="right") - 1
    n_known = jnp.maximum(jnp.sum(known != ABSENT, axis=1), 1)
    # Estimate of returns: a person returns to each known place in proportion to its known events. The share of returns
    # among moves is that of a person who arrived once at each known place.
    visits = jnp.zeros((n_traces, process.n_places + 1)).at[jnp.arange(n_traces)[:, None], known].add(known != ABSENT)
    visits = visits[:, :-1] / n_known[:, None]
    n_distinct = jnp.sum(visits > 0, axis=1)
    old = n_distinct * (1 - process.discount)
    returning = (old / (old + process.strength + process.discount * n_distinct + MIN_ESTIMATE))[:, None]
    average = process.stay_by_dwell[1] + process.class_share @ process.stay_by_class

    def back(state: tuple[Array, ...], instant: Array) -> tuple[tuple[Array, ...], Ahead]:
        """From an instant to the instant before."""
        next_place, roles, still, at_place, entering = state
        (_, phase, time, slot), here = process.when(instant), known[:, instant]
        kernel = process.kernel(slot, origin)
        product = kernel.as_dense().__matmul__ if is_dense else kernel.from_next
        pull, is_known = process.pull[time], (here != ABSENT)[:, None]
        value = jnp.where(is_known, jnp.arange(process.n_places) == here[:, None], at_place)
        total = jnp.maximum(product(pull.T).T, jnp.finfo(pull.dtype).tiny)
        moving = product((pull[cluster] * value).T).T / total[cluster]
        moving = jnp.where(instant == 0, jnp.sum(process.first_other[cluster] * value, axis=1)[:, None], moving)
        found = Ahead(next_place, roles, still, at_place, moving, entering)
        stay = process.stay[slot] + process.stay_at_time[time] + process.stay_tilt[time] + average[:, None]
        stays = jax.nn.sigmoid(stay)[cluster]
        back_again = returning * jnp.sum(visits * value, axis=1, keepdims=True)
        before = stays * value + (1 - stays) * (back_again + (1 - returning) * moving)
        chance = back_again + (1 - returning) * jnp.sum(process.population[slot] * value, axis=1, keepdims=True)
        next_roles = jnp.moveaxis(process.role_next[:, cluster, phase], 0, 1)
        roles = jnp.where(is_known[..., None, None], jnp.eye(3), roles)
        still = next_roles[..., OTHER, OTHER] * jnp.where(is_known, 1, still)
        entering = jnp.where(is_known[:, 0], chance[:, 0], entering)
        next_place = jnp.where(is_known[:, 0], here, next_place)
        return (next_place, next_roles @ roles, still, jnp.maximum(before, MIN_ESTIMATE), entering), found

    no_target = jnp.full(n_traces, ABSENT, known.dtype), jnp.ones((n_traces, 2, 3, 3)) * jnp.eye(3)
    end = (*no_target, *map(jnp.ones, ((n_traces, 2), (n_traces, process.n_places), n_traces)))
    return lax.scan(back, end, jnp.arange(n_instants), reverse=True)[1]


def persons_of(process: PersonProcess, n_instants: int) -> Persons:
    """People whose home and second place are absent or known places; place 0 has the most events."""
    return Persons.of(min(MAX_ANCHORS, n_instants), anchors=process.home is not None)


def people_of(
    process: PersonProcess, cluster: Int[Array, ""], known: Int[Array, " instant"], ahead: Ahead
) -> tuple[Array, Array, Array, Array, Array]:
    """People who may have made a trace: homes and second places (`ABSENT` if not a known place), `later`, and weights.

    `later`: for each person and instant, log of the estimated probability of all known events after the next known
    event. The last two arrays are the log-weight of each person, and the estimated log-probability of all known events.
    """
    n_instants = len(known)
    home, second, has_second, _ = persons_of(process, n_instants)
    # The known places with the most events.
    is_known, instants = known != ABSENT, jnp.arange(n_instants)
    is_same = (known[:, None] == known) & is_known
    is_earlier = is_same & (instants < instants[:, None])
    events = jnp.where(is_earlier.any(axis=1), 0, is_same.sum(axis=1))
    n_events, first = lax.top_k(events, max(1, 1 + home.max()))
    place = jnp.append(jnp.where(n_events > 0, known[first], ABSENT), ABSENT)
    homes, seconds = place[home], place[second]
    is_real = ((home == ABSENT) | (homes != ABSENT)) & ((second == ABSENT) | (seconds != ABSENT))
    # Probability of the role of each known event, given the role of the known event before.
    role = role_of(known, homes[:, None], seconds[:, None])
    before = lax.cummax(jnp.where(is_known, instants, ABSENT))
    before = jnp.append(ABSENT, before[:-1])
    step = ahead.roles[before, has_second[:, None], role[:, before], role]
    first_role = process.role_first[has_second, cluster]
    begin = jnp.einsum("pl,plm->pm", first_role, ahead.roles[0, has_second])
    begin = jnp.where(is_known[0], first_role, begin)
    step = jnp.where(before == ABSENT, jnp.take_along_axis(begin, role, axis=1), step)
    # Probability of each of the other places, given the known places before, as in a Chinese restaurant process.
    is_other = (role == OTHER) & is_known
    n_other = jnp.cumsum(is_other, axis=1) - is_other
    n_same, slot = is_earlier.sum(axis=1), jax.vmap(process.when)(instants).slot
    at_place = jnp.where(n_same > 0, n_same, process.population[slot, known]) / (n_other + 1)
    log_event = jnp.log(jnp.maximum(step * jnp.where(is_other, at_place, 1), MIN_ESTIMATE))
    from_here = jnp.cumsum(jnp.where(is_known, log_event, 0)[:, ::-1], axis=1)[:, ::-1]
    from_here = jnp.pad(from_here, [(0, 0), (0, 1)])
    following = lax.cummin(jnp.where(is_known, instants, n_instants), reverse=True)
    following = jnp.append(following[1:], n_instants)
    later = from_here[:, jnp.minimum(following + 1, n_instants)]
    share = process.second_share[cluster]
    prior = jnp.log(jnp.where(has_second == 1, share, 1 - share)) + jnp.where(is_real, 0, -jnp.inf)
    total = from_here[:, 0] + log_of_anchors(process, cluster, homes, seconds)
    return homes, seconds, later, prior + total, total


def role_of(place: Array, home: Array, second: Array) -> Array:
    """Role of a place, for a person with this home and this second place."""
    return jnp.where(place == home, HOME, jnp.where(place == second, SECOND, OTHER))


def log_of_anchors(process: PersonProcess, cluster: Array, home: Array, second: Array) -> Array:
    """Estimated log-probability that the process draws this home and this second place; an `ABSENT` one counts 0."""
    if process.home is None or process.second is None:
        return jnp.zeros(jnp.shape(home))
    pairs = (home, process.home), (second, process.second)
    logs = [jnp.where(a == ABSENT, 0, jnp.log(jnp.maximum(p[cluster, a], MIN_ESTIMATE))) for a, p in pairs]
    return logs[0] + logs[1]


class _Particle(NamedTuple):
    """A possible person and their trace so far.

    `log_weight`: log of the weight that corrects the estimates so far. `log_estimate`: log of the estimated probability
    of all later known events. `log_probability`: log-probability of the person's steps so far under the process.
    """

    trace: Int[Array, ""]
    person: Int[Array, ""]
    home: Int[Array, ""]  # `ABSENT` if it is not a known place
    second: Int[Array, ""]
    state: PersonState
    log_weight: Float[Array, ""]
    log_estimate: Float[Array, ""]
    log_probability: Float[Array, ""]


class _Instant(NamedTuple):
    """What all particles share at an instant: known places, and the estimates of each trace."""

    when: When
    known: Int[Array, " trace"]
    is_known_place: Bool[Array, "trace place"]
    ahead: Ahead
    later: Float[Array, "trace person"]  # see `people_of`


def _estimate(at: _Instant, particle: _Particle, role: Array, at_place: Array) -> Array:
    """Estimated probability of the next known event, given a role and, for the role `OTHER`, `at_place`."""
    trace, has_second = particle.trace, particle.state.has_second
    target = at.ahead.next_place[trace]
    target_role = role_of(target, particle.home, particle.second)
    reach = at.ahead.roles[trace, has_second, role, target_role]
    still = jnp.where(role == OTHER, at.ahead.still[trace, has_second], 0)
    at_other = still * at_place + jnp.maximum(reach - still, 0) * at.ahead.entering[trace]
    value = jnp.where(target_role == OTHER, at_other, reach)
    return jnp.where(target == ABSENT, 1, jnp.maximum(value, MIN_ESTIMATE))


def _weights_of(role: int, common: tuple[PersonProcess, _Instant], particle: _Particle) -> Float[Array, " place"]:
    """Weight of each place, when a new place of a role is drawn."""
    (process, at), state = common, particle.state
    if role != OTHER:
        return anchor_weights(role, process, state)
    gravity, next_place, seen = new_place_weights(process, at.when, state)
    weight = gravity.at[next_place].add(seen, mode="drop")
    return jnp.where(at.when.instant == 0, process.first_other[state.cluster], weight)


def _draw(
    role: int, common: tuple[PersonProcess, _Instant], particle: _Particle, wanted: Array, uniform: Array
) -> tuple[Array, Array, Array]:
    """A new place (`wanted`, or a random one); its log-probability under the process; and that of drawing it."""
    (process, at), weight = common, _weights_of(role, common, particle)
    # The role of each known place is fixed, so a known place cannot be drawn for another role.
    if role == OTHER:
        places, at_place = jnp.arange(process.n_places), at.ahead.at_place[particle.trace]
        is_other = role_of(places, particle.home, particle.second) == OTHER
        guided = weight * is_other * _estimate(at, particle, jnp.full(at_place.shape, role), at_place)
    else:
        guided = weight * ~at.is_known_place[particle.trace]
    drawn = sample_index(uniform, guided)
    drawing = jnp.where(wanted == ABSENT, guided[drawn] / guided.sum(), 1)
    place = jnp.where(wanted == ABSENT, drawn, wanted)
    probability = weight[place] / weight.sum()
    is_drawn = (probability > 0) & (drawing > 0)
    return place, jnp.log(jnp.where(is_drawn, probability, 0)), jnp.log(jnp.where(is_drawn, drawing, 1))


def _is_left(common: tuple[PersonProcess, _Instant], particle: _Particle) -> tuple[Array, ...]:
    """For each role, whether a place is left that can be drawn."""
    return tuple(_weights_of(role, common, particle).sum() > 0 for role in common[0].roles)


def _go(process: PersonProcess, at: _Instant, least_open: Array, particle: _Particle, uniform: Array) -> _Particle:
    """Let a particle make the step to an instant, and update its weight."""
    state, trace, known = particle.state, particle.trace, at.known[particle.trace]
    is_doubtful = (jnp.sum(state.visited != ABSENT) + 2 >= least_open) & (at.when.instant != 0)
    left = for_those(is_doubtful, (jnp.array(True),) * len(process.roles), _is_left, (process, at), particle)
    ways, n_anchors = outcomes(process, at.when, state, left), len(process.roles) - 1
    probability, at_place = ways.probability, at.ahead.at_place[trace, ways.place]
    # For a new place, the expectation.
    guided = probability * jax.vmap(partial(_estimate, at, particle))(
        ways.role, jnp.where(ways.place == ABSENT, at.ahead.moving[trace, state.place], at_place)
    )
    # If the place is known, it decides the outcome.
    home, second = particle.home, particle.second
    known_role = role_of(known, home, second)
    is_old = state.visited == known
    of_other = jnp.where(is_old.any(), 1 + n_anchors + jnp.argmax(is_old), len(probability) - 1)
    by_role = jnp.where((known_role == OTHER) | (n_anchors == 0), of_other, 1 + known_role)
    decided = jnp.where(known == state.place, 0, by_role)
    chosen = jnp.where(known == ABSENT, sample_index(uniform[0], guided), decided)
    drawing = jnp.where(known == ABSENT, guided[chosen] / guided.sum(), 1)
    role, old = ways.role[chosen], ways.place[chosen]
    is_new, nothing = old == ABSENT, (jnp.int32(0), jnp.array(0.0), jnp.array(0.0))
    place, log_place, log_drawing = old, 0.0, 0.0
    for each in process.roles:
        is_here = is_new & (role == each)
        wanted = known if each == OTHER else jnp.where(known == ABSENT, (home, second)[each], known)
        drawn = for_those(is_here, nothing, partial(_draw, each), (process, at), particle, wanted, uniform[1])
        place = jnp.where(is_here, drawn[0], place)
        log_place, log_drawing = log_place + drawn[1], log_drawing + drawn[2]
    log_probability = jnp.log(probability[chosen]) + log_place
    following = state.arrived(role, place)
    at_place = at.ahead.at_place[trace, place]
    log_estimate = jnp.log(_estimate(at, particle, role, at_place)) + at.later[trace, particle.person]
    if process.home is not None:
        pairs = (following.home, home), (following.second, second)
        to_draw = (jnp.where(drawn == ABSENT, wanted, ABSENT) for drawn, wanted in pairs)
        log_estimate += log_of_anchors(process, state.cluster, *to_draw)
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
    process: PersonProcess,
    cluster: Int[Array, " trace"],
    keys: Key[Array, " trace"],
    known: Int[Array, "trace instant"],
    least_open: Int[Array, ""],
    n_particles: int,
    most_probable: bool,
) -> tuple[Int[Array, "trace instant"], Int[Array, " trace"]]:
    """Places of each trace, and the first instant at which no particle was left (or `ABSENT`)."""
    n_traces, n_instants = known.shape
    ahead = look_ahead(process, cluster, known)
    people = jax.vmap(partial(people_of, process), in_axes=(0, 0, 1))(cluster, known, ahead)
    home, second, later, log_guess, log_all = people
    has_second, later = jnp.asarray(persons_of(process, n_instants).has_second), jnp.moveaxis(later, -1, 0)
    is_known_place = jnp.zeros((n_traces, process.n_places + 1), bool)
    is_known_place = is_known_place.at[jnp.arange(n_traces)[:, None], known].set(True)[:, :-1]

    def uniforms(number: Array | int, *shape: int) -> Array:
        def of_trace(key: Array) -> Array:
            return jax.random.uniform(jax.random.fold_in(key, number), shape)

        return jax.vmap(of_trace)(keys)

    def born(trace: Array, person: Array, uniform: Array) -> _Particle:
        k = cluster[trace]
        mobility = sample_index(uniform, process.class_share[k])
        state = PersonState.unborn(k, mobility, has_second[person], min(process.remembered, n_instants))
        none = jnp.array(0.0)
        anchors = home[trace, person], second[trace, person]
        return _Particle(trace, person, *anchors, state, none, log_all[trace, person], none)

    def flat(values: Array) -> Array:
        return values.reshape(-1, *values.shape[2:])

    first = uniforms(n_instants, n_particles + 1)
    person = jax.vmap(partial(_systematic, number=n_particles))(first[:, 0], log_guess)
    trace = jnp.repeat(jnp.arange(n_traces, dtype=jnp.int32), n_particles)
    particles = jax.vmap(born)(trace, flat(person), flat(first[:, 1:]))

    def step(particles: _Particle, given: tuple[Any, ...]) -> tuple[_Particle, tuple[Array, ...]]:
        instant, known, ahead, later = given
        at = _Instant(process.when(instant), known, is_known_place, ahead, later)
        uniform = uniforms(instant, 2 * n_particles + 1)
        own = flat(uniform[:, 1:].reshape(n_traces, n_particles, 2))
        particles = jax.vmap(partial(_go, process, at, least_open))(particles, own)
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
