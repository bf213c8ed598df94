"""Estimates of what follows in a partly known trace, for the particle filter of `completion`.

The estimate of the probability of all later known events is a product of two parts. The first part is the probability
of the next known event. A chain without memory is followed backwards from this event. Its layers have their exact
probabilities. Its places elsewhere follow the stays and moves of the cluster, and a fixed share of its moves leads back
to known places. The second part is the probability of all events after the next known event. Home and second place tell
the layers of these events. A place elsewhere has a probability in proportion to its earlier known events. If it has
none, the probability is in proportion to its share of the population.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND, PersonLaw
from ppmtf_jax.bridge.people.trails import Persons
from ppmtf_jax.trace_models.base import ABSENT

MAX_ANCHORS = 12
"""Maximum number of known places that may be home or second place: the known places with the most events."""
MIN_ESTIMATE = 1e-12
"""Smaller estimates of probabilities are raised to this number, so that no possible place is excluded."""


class Ahead(NamedTuple):
    """For every instant and trace, estimates about the *target*: the first known event after this instant.

    `next_place`: place of the target, `ABSENT` if there is no target. `layers`: probability of the layer at the target,
    by `has_second`, by the layer at the instant, and by the layer at the target. `still`: probability that a person who
    is elsewhere at the instant is elsewhere at all instants up to the target. `at_place`: for such a person,
    probability of the target's place, by her place at the instant. `moving`: expectation of `at_place` after a move to
    a new place, by the place at the instant before. `entering`: probability of the target's place for a person who is
    elsewhere at the target, but not at all instants up to it.
    """

    next_place: Int[Array, "instant trace"]
    layers: Float[Array, "instant trace 2 3 3"]
    still: Float[Array, "instant trace 2"]
    at_place: Float[Array, "instant trace place"]
    moving: Float[Array, "instant trace place"]
    entering: Float[Array, "instant trace"]


def look_ahead(law: PersonLaw, cluster: Int[Array, " trace"], known: Int[Array, "trace instant"]) -> Ahead:
    """Follow the chain without memory backwards from each known event."""
    n_traces, n_instants = known.shape
    is_dense = len(law.between) == law.n_places
    origin = jnp.searchsorted(law.move_start, jnp.arange(len(law.next_place)), side="right") - 1
    n_known = jnp.maximum(jnp.sum(known != ABSENT, axis=1), 1)
    # Estimate of returns: a person returns to each known place in proportion to its known events. The share of returns
    # among moves is that of a person who arrived once at each known place.
    visits = jnp.zeros((n_traces, law.n_places + 1)).at[jnp.arange(n_traces)[:, None], known].add(known != ABSENT)
    visits = visits[:, :-1] / n_known[:, None]
    n_distinct = jnp.sum(visits > 0, axis=1)
    old = n_distinct * (1 - law.discount)
    returning = (old / (old + law.strength + law.discount * n_distinct + MIN_ESTIMATE))[:, None]
    average = law.stay_by_dwell[1] + law.class_share @ law.stay_by_class

    def back(state: tuple[Array, ...], instant: Array) -> tuple[tuple[Array, ...], Ahead]:
        """From an instant to the instant before."""
        next_place, layers, still, at_place, entering = state
        phase, time = law.phase_of(instant), law.time_of(instant)
        slot, here = law.slot_of_phase[phase], known[:, instant]
        kernel = law.kernel(slot, origin)
        product = kernel.as_dense().__matmul__ if is_dense else kernel.from_next
        pull, is_known = law.pull[time], (here != ABSENT)[:, None]
        value = jnp.where(is_known, jnp.arange(law.n_places) == here[:, None], at_place)
        total = jnp.maximum(product(pull.T).T, jnp.finfo(pull.dtype).tiny)
        moving = product((pull[cluster] * value).T).T / total[cluster]
        moving = jnp.where(instant == 0, jnp.sum(law.first_elsewhere[cluster] * value, axis=1)[:, None], moving)
        found = Ahead(next_place, layers, still, at_place, moving, entering)
        stay = law.stay[slot] + law.stay_at_time[time] + law.stay_tilt[time] + average[:, None]
        stays = jax.nn.sigmoid(stay)[cluster]
        back_again = returning * jnp.sum(visits * value, axis=1, keepdims=True)
        before = stays * value + (1 - stays) * (back_again + (1 - returning) * moving)
        chance = back_again + (1 - returning) * jnp.sum(law.population[slot] * value, axis=1, keepdims=True)
        next_layers = jnp.moveaxis(law.layer_next[:, cluster, phase], 0, 1)
        layers = jnp.where(is_known[..., None, None], jnp.eye(3), layers)
        still = next_layers[..., ELSEWHERE, ELSEWHERE] * jnp.where(is_known, 1, still)
        entering = jnp.where(is_known[:, 0], chance[:, 0], entering)
        next_place = jnp.where(is_known[:, 0], here, next_place)
        return (next_place, next_layers @ layers, still, jnp.maximum(before, MIN_ESTIMATE), entering), found

    end = (
        jnp.full(n_traces, ABSENT, known.dtype),
        jnp.ones((n_traces, 2, 3, 3)) * jnp.eye(3),
        jnp.ones((n_traces, 2)),
        jnp.ones((n_traces, law.n_places)),
        jnp.ones(n_traces),
    )
    return lax.scan(back, end, jnp.arange(n_instants), reverse=True)[1]


class People(NamedTuple):
    """People who may have made a trace; a home or second place that is not a known place is `ABSENT`.

    `later`: for each instant, log of the estimated probability of all known events after the next known event.
    """

    home: Int[Array, "trace person"]
    second: Int[Array, "trace person"]
    has_second: Int[Array, " person"]
    later: Float[Array, "instant trace person"]


def persons_of(law: PersonLaw, n_instants: int) -> Persons:
    """People whose home and second place are absent or known places; place 0 has the most events."""
    return Persons.of(min(MAX_ANCHORS, n_instants), anchors=law.home is not None)


def people_of(
    law: PersonLaw, cluster: Int[Array, ""], known: Int[Array, " instant"], ahead: Ahead
) -> tuple[Array, Array, Array, Array, Array]:
    """Homes, second places and `later` of the people of one trace; log-weights; estimated log-probability of events."""
    n_instants = len(known)
    home, second, has_second, _ = persons_of(law, n_instants)
    # The known places with the most events.
    is_known, instants = known != ABSENT, jnp.arange(n_instants)
    is_same = (known[:, None] == known) & is_known
    is_earlier = is_same & (instants < instants[:, None])
    events = jnp.where(is_earlier.any(axis=1), 0, is_same.sum(axis=1))
    n_events, first = lax.top_k(events, max(1, 1 + home.max()))
    place = jnp.append(jnp.where(n_events > 0, known[first], ABSENT), ABSENT)
    homes, seconds = place[home], place[second]
    is_real = ((home == ABSENT) | (homes != ABSENT)) & ((second == ABSENT) | (seconds != ABSENT))
    # Probability of the layer of each known event, given the layer of the known event before.
    layer = layer_of(known, homes[:, None], seconds[:, None])
    before = lax.cummax(jnp.where(is_known, instants, ABSENT))
    before = jnp.append(ABSENT, before[:-1])
    step = ahead.layers[before, has_second[:, None], layer[:, before], layer]
    first_layer = law.layer_first[has_second, cluster]
    begin = jnp.einsum("pl,plm->pm", first_layer, ahead.layers[0, has_second])
    begin = jnp.where(is_known[0], first_layer, begin)
    step = jnp.where(before == ABSENT, jnp.take_along_axis(begin, layer, axis=1), step)
    # Probability of each place elsewhere, given the known places before, as in a Chinese restaurant process.
    is_elsewhere = (layer == ELSEWHERE) & is_known
    n_elsewhere = jnp.cumsum(is_elsewhere, axis=1) - is_elsewhere
    n_same, slot = is_earlier.sum(axis=1), law.slot_of_phase[law.phase_of(instants)]
    at_place = jnp.where(n_same > 0, n_same, law.population[slot, known]) / (n_elsewhere + 1)
    log_event = jnp.log(jnp.maximum(step * jnp.where(is_elsewhere, at_place, 1), MIN_ESTIMATE))
    from_here = jnp.cumsum(jnp.where(is_known, log_event, 0)[:, ::-1], axis=1)[:, ::-1]
    from_here = jnp.pad(from_here, [(0, 0), (0, 1)])
    following = lax.cummin(jnp.where(is_known, instants, n_instants), reverse=True)
    following = jnp.append(following[1:], n_instants)
    later = from_here[:, jnp.minimum(following + 1, n_instants)]
    share = law.second_share[cluster]
    prior = jnp.log(jnp.where(has_second == 1, share, 1 - share)) + jnp.where(is_real, 0, -jnp.inf)
    total = from_here[:, 0] + log_of_anchors(law, cluster, homes, seconds)
    return homes, seconds, later, prior + total, total


def layer_of(place: Array, home: Array, second: Array) -> Array:
    """Layer of a place, for a person with this home and this second place."""
    return jnp.where(place == home, HOME, jnp.where(place == second, SECOND, ELSEWHERE))


def log_of_anchors(law: PersonLaw, cluster: Array, home: Array, second: Array) -> Array:
    """Estimated log-probability that the law draws this home and this second place; an `ABSENT` one counts 0."""
    if law.home is None or law.second is None:
        return jnp.zeros(jnp.shape(home))
    pairs = (home, law.home), (second, law.second)
    logs = [jnp.where(a == ABSENT, 0, jnp.log(jnp.maximum(p[cluster, a], MIN_ESTIMATE))) for a, p in pairs]
    return logs[0] + logs[1]
