"""Clusters of places with a similar meaning."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.errors import InputError, Problem

N_STARTS = 10
# Maximum number of rounds; in each round, every place may move once. About ten rounds are usually enough.
MAX_ROUNDS = 100
# A move must lower the criterion by at least this fraction, which is more than rounding errors.
LEAST_GAIN = 1e-6


def cluster_places(
    similarity: Float[np.ndarray, "place other"], n_clusters: int, key: Key[Array, ""]
) -> Int[np.ndarray, " place"]:
    """Cluster places into `n_clusters` clusters of about equal size, numbered from 0, none of them empty.

    Minimizes the sum over clusters of size^2 times (similarity of its places to all places) / (similarity of its places
    to each other): the criterion G1' of CLUTO, which the published program uses, plus the sum of size^2. Each of ten
    starts assigns every place to the most similar of random seed places. Then single places move to the cluster that
    lowers the criterion most, until no move lowers it. The result of the best start is returned.

    `similarity`: symmetric and positive. Raises `InputError`: `n_clusters` is below 1 or above the number of places.
    """
    n_places = len(similarity)
    if not 1 <= n_clusters <= n_places:
        raise InputError("sglt", [Problem(f"n_clusters from 1 to {n_places}, the number of places", repr(n_clusters))])
    # Double precision is needed: in single precision, subtracting the largest term of a sum leaves rounding errors.
    with jax.enable_x64(True):
        found, value = _best_of_starts(
            jax.random.split(key, N_STARTS), jnp.asarray(similarity, jnp.float64), n_clusters
        )
        return np.asarray(found)[int(np.argmin(value))]


def criterion(similarity: Float[Array, "place other"], cluster: Int[Array, " place"], n_clusters: int) -> Array:
    """The criterion of `cluster_places`."""
    return _cost(*_sums(similarity, cluster, n_clusters)).sum()


@partial(jax.jit, static_argnames="n_clusters")
def _best_of_starts(
    keys: Key[Array, " start"], similarity: Float[Array, "place other"], n_clusters: int
) -> tuple[Int[Array, "start place"], Float[Array, " start"]]:
    def descend(key: Array) -> tuple[Array, Array]:
        cluster = _descend(key, similarity, n_clusters)
        return cluster, criterion(similarity, cluster, n_clusters)

    return jax.lax.map(descend, keys)


def _descend(key: Key[Array, ""], similarity: Float[Array, "place other"], n_clusters: int) -> Int[Array, " place"]:
    n_places = len(similarity)
    to_all, to_itself = similarity.sum(axis=1), similarity.diagonal()
    of_seeds, of_rounds = jax.random.split(key)
    attracting = jax.random.choice(of_seeds, n_places, (n_clusters,), replace=False)
    cluster = jnp.argmax(similarity[:, attracting], axis=1).astype(jnp.int32)
    cluster = cluster.at[attracting].set(jnp.arange(n_clusters, dtype=jnp.int32))

    def move(place: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        cluster, size, total, inside, moved = state
        left, own = cluster[place], jax.ops.segment_sum(similarity[place], cluster, n_clusters)
        cost = _cost(size, total, inside)
        joined = _cost(size + 1, total + to_all[place], inside + 2 * own + to_itself[place])
        inside_rest = jnp.where(size[left] > 1, inside[left] - 2 * own[left] + to_itself[place], 1)
        rest = _cost(size[left] - 1, total[left] - to_all[place], inside_rest)
        change = (joined - cost + rest - cost[left]).at[left].set(0)
        best = jnp.argmin(change).astype(jnp.int32)
        moves = (size[left] > 1) & (change[best] < -LEAST_GAIN * cost.sum())
        best, sign = jnp.where(moves, best, left), jnp.array([-1, 1]) * moves
        both = jnp.stack([left, best])
        return (
            cluster.at[place].set(best),
            size.at[both].add(sign),
            total.at[both].add(sign * to_all[place]),
            inside.at[both].add(sign * 2 * own[both] + moves * to_itself[place]),
            moved + moves.astype(jnp.int32),
        )

    def move_each(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        cluster, _, number = state
        order = jax.random.permutation(jax.random.fold_in(of_rounds, number), n_places)
        # Sums are recomputed in every round, so that rounding errors do not accumulate.
        begin = (cluster, *_sums(similarity, cluster, n_clusters), jnp.zeros((), jnp.int32))
        end = jax.lax.fori_loop(0, n_places, lambda i, inner: move(order[i], inner), begin)
        return end[0], end[-1], number + 1

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 0) & (state[2] < MAX_ROUNDS)

    return jax.lax.while_loop(goes_on, move_each, (cluster, jnp.ones((), jnp.int32), 0))[0]


def _sums(similarity: Array, cluster: Array, n_clusters: int) -> tuple[Array, Array, Array]:
    """Size of each cluster, and the similarity of its places to all places and to each other."""
    member = jax.nn.one_hot(cluster, n_clusters, dtype=similarity.dtype)
    near = similarity @ member
    return member.sum(axis=0), near.sum(axis=0), (member * near).sum(axis=0)


def _cost(size: Array, total: Array, inside: Array) -> Array:
    return size**2 * total / inside
