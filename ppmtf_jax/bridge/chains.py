"""Chains with given marginals whose moves are as near as possible to the population's: a Schroedinger bridge.

For two slots and each cluster k, the chain is P_k(b | a) ~ K(a, b) d^[a = b] h(km(a, b)) psi_k(b). The Sinkhorn scaling
psi_k is chosen such that a step turns the cluster's distribution p_k(s) into p_k(s'). Of all joint distributions of
(a, b) with these marginals, this is the one nearest to K in Kullback-Leibler divergence with a given share of stays and
given distances (Csiszar 1975). All clusters share d, one number per pair of slots, and h, which is constant in bins of
distance. They are chosen such that stays are as frequent, and moves as long, as in the data.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ops import segment_sum
from jaxtyping import Array, Float, Int

from ppmtf_jax.bridge.attraction import Attraction, CellKernel, Movement
from ppmtf_jax.bridge.fitting import matching
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device

# Rounds that adjust stays and distances, and maximum numbers of Sinkhorn iterations in a round and in the last round.
# Some data need a few thousand iterations in the last round. The model's summary reports a remaining error.
N_ROUNDS, MAX_SCALINGS, MAX_LAST_SCALINGS = 4, 12, 5000
# Sinkhorn stops when, in every cluster, a step's distribution is within this total variation of its marginal.
TOLERANCE = 1e-4
# Near convergence, updates of rows and columns are overrelaxed (Thibault et al. 2021, Algorithms 14(5):143), which
# needs a third of the iterations. Far from convergence, overrelaxed updates may diverge.
NEAR, RELAXATION = 0.02, 1.6
MAX_CHANGE = 20.0
TINY = 1e-30


class Chains(NamedTuple):
    """Weights of next places, see `synthesizers.bridge_model.ClusterBridge`; slots are those of arrival.

    `slots` are the distinct pairs of slots of consecutive instants, `attraction` is K times the probability of not
    staying and h, `scaling` is psi, and `log_total` the logarithm of a row's sum of weights. `marginal_error` is the
    greatest total variation between the distribution after a step and its marginal.
    """

    slots: Int[np.ndarray, "pair 2"]
    stay: Float[np.ndarray, "pair place"]
    attraction: Attraction
    scaling: Float[np.ndarray, "pair cluster place"]
    log_total: Float[np.ndarray, "pair cluster place"]
    marginal_error: float


class _Scaled(NamedTuple):
    """Result of a round of Sinkhorn iterations for one pair of slots."""

    scaling: Float[Array, "cluster place"]
    total: Float[Array, "cluster place"]
    stays: Float[Array, ""]
    in_bin: Float[Array, " bin"]
    error: Float[Array, ""]


def fit_chains(
    marginals: Float[np.ndarray, "cluster slot place"],
    share: Float[np.ndarray, " cluster"],
    movement: Movement,
    slot_of_instant: Int[np.ndarray, " instant"],
    *,
    most_last_scalings: int | None = None,
    progress: bool = False,
) -> Chains:
    """Fit the chains of all clusters; threads share the pairs of slots.

    `marginals`: the positive distributions p_k(s). `share`: each cluster's share of the users. `movement`: K.
    `slot_of_instant`: slots of one period. `most_last_scalings`: maximum number of iterations in the last round.
    """
    counts, stays, weights = movement.counts, movement.stays, movement.attraction
    cell, origin, next_place, between = weights.cell, weights.origin, weights.next_place, weights.between
    following = np.stack([slot_of_instant[:-1], slot_of_instant[1:]], axis=1)
    # A period of one instant has no step; an unused pair avoids empty arrays.
    slots = np.unique(following if len(following) else slot_of_instant[[0, 0]][None], axis=0)
    n_pairs, (n_clusters, _, n_places) = len(slots), marginals.shape
    bin_of_move = counts.bin[cell[origin], cell[next_place]]
    shared = (cell, origin.astype(np.int32), next_place, between.astype(np.float32), bin_of_move, counts.bin)
    local_copy = on_each_device(jax.tree.map(jnp.asarray, shared))
    # The diagonal of K has the probabilities of staying; moves are multiplied by the probability of not staying.
    moving = 1 - stays.at_place
    seen_weight = (weights.seen * moving[:, origin]).astype(np.float32)
    leaving = (weights.leaving * moving).astype(np.float32)
    arriving = weights.arriving.astype(np.float32)
    more_stays, by_distance = np.ones(n_pairs), np.ones(len(counts.covered))
    scaling = np.ones((n_pairs, n_clusters, n_places), np.float32)

    def scaled(number: int, most_scalings: int) -> _Scaled:
        before, after = slots[number]
        stay = (stays.at_place[after] * more_stays[number]).astype(np.float32)
        cell, place, next_place, between, *bins = local_copy()
        parts = (stay, place, next_place, seen_weight[after], leaving[after], arriving[after], between, cell)
        given = (marginals[:, before], marginals[:, after], share, by_distance, scaling[number])
        found = _scale(
            CellKernel(*map(jnp.asarray, parts)),
            *bins,
            *(jnp.asarray(part, jnp.float32) for part in given),
            most_scalings,
            dense=counts.space.is_exact,
        )
        return jax.tree.map(np.asarray, found)

    with progress_bar("fitting chains", N_ROUNDS * n_pairs, show=progress) as advance:
        for number in range(N_ROUNDS):
            most = MAX_SCALINGS if number < N_ROUNDS - 1 else most_last_scalings or MAX_LAST_SCALINGS
            rounds = []
            for found in map_in_threads(partial(scaled, most_scalings=most), range(n_pairs)):
                rounds.append(found)
                advance(1)
            found = _Scaled(*map(np.stack, zip(*rounds, strict=True)))
            scaling = found.scaling
            if number < N_ROUNDS - 1:
                more_stays *= matching(_odds(stays.in_slot[slots[:, 1]]), _odds(found.stays), MAX_CHANGE)
                in_bin = found.in_bin.sum(axis=0)
                by_distance *= matching(counts.covered, in_bin / max(in_bin.sum(), TINY), MAX_CHANGE)
                by_distance /= by_distance.mean()
    return Chains(
        slots.astype(np.int32),
        (stays.at_place[slots[:, 1]] * more_stays[:, None]).astype(np.float32),
        replace(
            weights,
            seen=(seen_weight * by_distance[bin_of_move]).astype(np.float32),
            leaving=leaving,
            arriving=arriving,
            between=(between * by_distance[counts.bin]).astype(np.float32),
        ),
        scaling,
        np.log(found.total),
        float(found.error.max()),
    )


@partial(jax.jit, static_argnames="dense")
def _scale(
    kernel: CellKernel,
    bin_of_move: Int[Array, " move"],
    bin_of_cells: Int[Array, "cell cell"],
    before: Float[Array, "cluster place"],
    after: Float[Array, "cluster place"],
    share: Float[Array, " cluster"],
    by_distance: Float[Array, " bin"],
    scaling: Float[Array, "cluster place"],
    most_scalings: int | Array,
    dense: bool,
) -> _Scaled:
    """Sinkhorn iterations of u and v for the marginals before and after a step; then expected stays and distances."""
    between = kernel.between * by_distance[bin_of_cells]
    kernel = kernel._replace(seen=kernel.seen * by_distance[bin_of_move], between=between)
    weight = kernel.as_dense() if dense else None

    def from_next(v: Array) -> Array:
        return kernel.from_next(v) if weight is None else weight @ v

    def to_next(u: Array) -> Array:
        # Do not transpose in advance: that would change the rounding of the product.
        return kernel.to_next(u) if weight is None else weight.T @ u

    before, after = jnp.transpose(before), jnp.transpose(after)

    def is_open(state: tuple[Array, Array, Array, Array]) -> Array:
        return (state[2] > TOLERANCE) & (state[3] < most_scalings)

    def iterate(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        u, v, error, number = state
        relaxed = jnp.where(error < NEAR, RELAXATION, 1.0)
        leaving = from_next(v)
        own_error = _variation(u * leaving, before)
        u = u * _factor(before, u * leaving) ** relaxed
        arriving = to_next(u)
        # This is the error of u and v before this iteration: it needs no additional product.
        error = jnp.maximum(own_error, _variation(v * arriving, after))
        return u, v * _factor(after, v * arriving) ** relaxed, error, number + 1

    v = jnp.transpose(scaling)
    u = jnp.ones_like(v)
    _, v, _, _ = lax.while_loop(is_open, iterate, (u, v, jnp.array(jnp.inf, jnp.float32), jnp.array(0)))
    # A constant factor of a cluster's scaling cancels in the probabilities; it is chosen to keep numbers near one.
    v = v / jnp.exp(jnp.mean(jnp.log(jnp.maximum(v, TINY)), axis=0))
    total = from_next(v)
    u = before / jnp.maximum(total, TINY)
    error = _variation(v * to_next(u), after)
    u = u * share
    stays = jnp.sum(u * kernel.stay[:, None] * v)
    # Expected number of moves in each bin of distance: moves by gravity, plus seen moves.
    n_cells = len(between)
    leaving, arriving = kernel.leaving[:, None] * u, kernel.arriving[:, None] * v
    flow = between * (segment_sum(leaving, kernel.cell, n_cells) @ segment_sum(arriving, kernel.cell, n_cells).T)
    own = jnp.sum(leaving * arriving, axis=1) * jnp.diag(between)[kernel.cell]
    flow = flow.at[kernel.cell, kernel.cell].add(-own)
    in_bin = segment_sum(flow.ravel(), bin_of_cells.ravel(), len(by_distance))
    if dense:
        of_moves = (u @ v.T)[kernel.place, kernel.next_place]
    else:
        of_moves = jnp.sum(u[kernel.place] * v[kernel.next_place], axis=1)
    in_bin = jnp.maximum(in_bin, 0) + segment_sum(kernel.seen * of_moves, bin_of_move, len(by_distance))
    return _Scaled(v.T, total.T, stays, in_bin, error)


def _factor(wanted: Array, found: Array) -> Array:
    return wanted / jnp.maximum(found, TINY)


def _variation(found: Array, wanted: Array) -> Float[Array, ""]:
    """Greatest total variation over the clusters."""
    return jnp.abs(found - wanted).sum(axis=0).max() / 2


def _odds(share: np.ndarray) -> np.ndarray:
    return share / np.maximum(1 - share, TINY)
