"""Semantic seeds and their decoding into synthetic traces (Bindschaedler and Shokri 2016).

A semantic seed is a set of allowed places for each instant of a trace. The Viterbi algorithm, with random factors,
finds a trace through these sets under the transition matrix of all users.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.data.places import PlaceTable

NEAREST_KM = 1.0
# Minimum number of places that a cluster keeps.
MIN_KEPT = 3
# The numbers of places in a step of the trellis are padded to the next of these widths.
TRELLIS_WIDTHS = (16, 128)


def aggregate_transitions(
    transitions: Int[np.ndarray, "place next_place"], places: PlaceTable
) -> Float[np.ndarray, "place next_place"]:
    """Transition matrix of all users: the mean of an observed matrix and a distance-based matrix.

    The observed matrix is P(a, b) = (N(a, b) + 1 / places) / (N(a) + 1), with N the counts of all users. The rows of
    the other matrix are proportional to max(1 km, distance)^-2.
    """
    seen = transitions + 1 / len(places)
    apart_km = places.position_km()[:, None] - places.position_km()
    near = np.maximum(NEAREST_KM, np.hypot(apart_km[..., 0], apart_km[..., 1])) ** -2
    return (seen / seen.sum(axis=1, keepdims=True) + near / near.sum(axis=1, keepdims=True)) / 2


class SemanticClasses(NamedTuple):
    """Clusters of places with a similar meaning, with the numbers of kept and of joining places."""

    cluster: Int[Array, " place"]
    n_kept: Int[Array, " cluster"]
    # At d instants from a change to or from a cluster, entry d - 1 of its places are allowed too (they join).
    n_joining: Int[Array, "distance cluster"]

    @classmethod
    def of(
        cls, cluster: Int[np.ndarray, " place"], remove_place_prob: float, merge_prob: float, n_instants: int
    ) -> SemanticClasses:
        """Remove floor(remove_place_prob size) places of each cluster if at least 3 places remain.

        Of the kept places, floor(merge_prob^(d^2) size) join.
        """
        size = np.bincount(cluster)
        n_removed = _floor(remove_place_prob * size)
        n_kept = np.where(size - n_removed >= MIN_KEPT, size - n_removed, size)
        distance = np.arange(1, max(2, n_instants))
        n_joining = _floor(merge_prob ** (distance[:, None] ** 2.0) * n_kept)
        # At larger distances no place joins. At least one row is kept, since JAX cannot index an empty array.
        n_distances = max(1, np.count_nonzero(n_joining.any(axis=1)))
        arrays = (cluster, n_kept, n_joining[:n_distances])
        return cls(*(jnp.asarray(array.astype(np.int32)) for array in arrays))


def _floor(count: np.ndarray) -> np.ndarray:
    """Floor, except that a number just below a whole number is rounded up."""
    return np.floor(count + 1e-9).astype(np.int32)


def semantic_seed(
    key: Key[Array, ""],
    seed: Int[Array, " instant"],
    classes: SemanticClasses,
    remove_true_prob: Float[Array, ""],
    as_published: Bool[Array, ""],
) -> Bool[Array, "instant place"]:
    """Draw the allowed places of a synthetic trace: places with a similar meaning as those of a seed trace.

    At each instant the kept places of the seed's cluster are allowed. Around a change of cluster, some places of both
    clusters join: the places of distance d join from d instants before the change until min(d, stay) instants after it,
    where stay is the number of further instants that the seed stays at its new place. Then, at each instant, the seed's
    own place is removed with probability `remove_true_prob`. If no place is left at an instant, all are allowed.

    `as_published`: like the published program: d is the distance to the seed's next change of place, and no place joins
    if this change stays within a cluster; the places with the lowest numbers join, not random places.
    """
    of_places, of_removal = jax.random.split(key)
    cluster, n_instants = classes.cluster[seed], len(seed)
    instants = jnp.arange(n_instants)
    change_of_place = _next_change(seed)
    change = jnp.where(as_published, change_of_place, _next_change(cluster))
    after = jnp.minimum(change, n_instants - 1)
    distance, stay = change - instants, change_of_place[after] - 1 - change
    n_distances = len(classes.n_joining)
    joins = (change < n_instants) & (cluster[after] != cluster) & (distance <= n_distances)
    # Offsets from each instant up to the last instant at which places join because of it.
    ahead = jnp.arange(2 * n_distances + 1)
    within = joins[:, None] & (ahead <= (distance + jnp.minimum(stay, distance))[:, None])
    limit = jnp.zeros((n_instants, len(classes.n_kept)), jnp.int32)
    limit = limit.at[instants, cluster].set(classes.n_kept[cluster])
    for side in (cluster, cluster[after]):
        n_joining = classes.n_joining[jnp.minimum(distance, n_distances) - 1, side]
        at = instants[:, None] + ahead
        limit = limit.at[at, side[:, None]].max(jnp.where(within, n_joining[:, None], 0), mode="drop")
    allowed = _order_in_cluster(of_places, classes, as_published) < limit[:, classes.cluster]
    removed = jax.random.uniform(of_removal, (n_instants,)) < remove_true_prob
    allowed = allowed.at[instants, seed].min(~removed)
    return allowed | ~allowed.any(axis=1, keepdims=True)


def _next_change(value: Int[Array, " instant"]) -> Int[Array, " instant"]:
    """For each instant, the first later instant with another value, or the number of instants if there is none."""
    n = len(value)
    changes = jnp.where(value[1:] != value[:-1], jnp.arange(1, n), n)
    return jnp.append(jax.lax.cummin(changes, reverse=True), n)


def _order_in_cluster(
    key: Key[Array, ""], classes: SemanticClasses, by_number: Bool[Array, ""]
) -> Int[Array, " place"]:
    """Rank 0, 1, ... of each kept place in its cluster; `n_places` for removed places."""
    n_places = len(classes.cluster)
    drawn = _rank_in_cluster(jax.random.uniform(key, (n_places,)), classes.cluster)
    kept = drawn < classes.n_kept[classes.cluster]
    numbered = _rank_in_cluster(jnp.where(kept, 0.0, 1.0), classes.cluster)
    return jnp.where(kept, jnp.where(by_number, numbered, drawn), n_places)


def _rank_in_cluster(value: Float[Array, " place"], cluster: Int[Array, " place"]) -> Int[Array, " place"]:
    """Rank of each place within its cluster by value; ties are ordered by place number."""
    order = jnp.lexsort((value, cluster))
    ordered = cluster[order]
    first = jnp.searchsorted(ordered, ordered)
    return jnp.zeros_like(order).at[order].set(jnp.arange(len(order)) - first)


@sequential_vmap
def decode(
    key: Key[Array, ""],
    allowed: Bool[Array, "instant place"],
    transition: Float[Array, "place next_place"],
    first: Float[Array, " place"],
    randomization: Float[Array, ""],
) -> Int[Array, " instant"]:
    """Find the most probable allowed trace by the Viterbi algorithm, with random factors.

    Each first probability, and each transition probability of each step, gets its own factor, uniform from 1 to
    `randomization`. `vmap` runs one trace after the other: a batch would compute all places in each step.
    """
    n_instants, n_places = allowed.shape
    keys = jax.random.split(key, n_instants)
    # The allowed places of each instant, padded with 0, and their number.
    listed = jax.vmap(lambda places: jnp.nonzero(places, size=n_places, fill_value=0)[0])(allowed)
    candidate, n_candidates = listed.astype(jnp.int32), allowed.sum(axis=1).astype(jnp.int32)
    widths = [width for width in TRELLIS_WIDTHS if width < n_places] + [n_places]

    def advance(width: int, key: Array, score: Array, before: Array, after: Array, n_after: Array) -> tuple:
        """Scores of the candidates after a step, 0 for padding, and the best previous candidate of each."""
        factor = jax.random.uniform(key, (width, width), transition.dtype, 1, randomization)
        weight = score[:width, None] * transition[before[:width, None], after[:width]] * factor
        origin = jnp.argmax(weight, axis=0)
        best = jnp.where(jnp.arange(width) < n_after, weight.max(axis=0), 0)
        rest = (0, n_places - width)
        # Scale the greatest score to 1 against underflow.
        return jnp.pad(best / best.max(), rest), jnp.pad(origin.astype(jnp.int32), rest)

    def step(state: tuple[Array, Array, Array], now: tuple[Array, Array, Array]) -> tuple:
        score, before, n_before = state
        key, after, n_after = now
        width = jnp.searchsorted(jnp.array(widths), jnp.maximum(n_before, n_after))
        branches = [partial(advance, each) for each in widths]
        score, origin = jax.lax.switch(width, branches, key, score, before, after, n_after)
        return (score, after, n_after), origin

    def trace_back(at: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        origin, before = now
        return origin[at], before[origin[at]]

    start = first[candidate[0]] * jax.random.uniform(keys[0], (n_places,), transition.dtype, 1, randomization)
    start = jnp.where(jnp.arange(n_places) < n_candidates[0], start, 0)
    begin = (start, candidate[0], n_candidates[0])
    (score, *_), origins = jax.lax.scan(step, begin, (keys[1:], candidate[1:], n_candidates[1:]))
    last = jnp.argmax(score).astype(jnp.int32)
    earlier = jax.lax.scan(trace_back, last, (origins, candidate[:-1]), reverse=True)[1]
    return jnp.append(earlier, candidate[-1, last])
