"""From one distribution over places to the next with moves as near as can be to the population's: a Sinkhorn bridge.

For two slots and each cluster k, the chain is P_k(b | a) ~ K(a, b) d^[a = b] h(km(a, b)) psi_k(b), with psi_k such that
p_k(s) goes over into p_k(s'). Of all joint distributions of (a, b) with these marginals it is the one nearest to K, in
Kullback-Leibler divergence, that has a given number of stays and given distances (Csiszar 1975). The stays' d, one for
each pair of slots, and h, constant in bins of distance, are common to all clusters, and set these to what people do.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ppmtf_jax.bridge.moves import Movement
from ppmtf_jax.runtime.devices import gather_rows, own_share
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device

N_BINS = 12
# Rounds in which stays and distances are set, and scalings at most in each; more in the last, of which data have taken
# up to some thousand. What is not reached then, the model tells.
N_ROUNDS, MOST_SCALINGS, MOST_LAST_SCALINGS = 4, 12, 5000
# Total variation from the distribution that a step should arrive at, of the worst cluster, below which scaling stops.
TOLERANCE = 1e-4
# Near the end rows and columns are scaled by more than they lack (overrelaxation: Thibault et al. 2021, Algorithms
# 14(5):143): it takes a third of the scalings. Far from it that need not converge.
NEAR, RELAXATION = 0.02, 1.6
MOST_CHANGE = 20.0
TINY = 1e-30


class Chains(NamedTuple):
    """All that the probabilities of the next place consist of; see `synthesizers.bridge.ClusterBridge`.

    Attributes
    ----------
    slots : int array, shape (pairs, 2)
        The distinct pairs of slots of consecutive instants.
    stay : float32 array, shape (pairs, places)
        Weight of staying.
    seen : float32 array, shape (slots, moves)
        Weight of each seen move, by slot of arrival.
    leaving, arriving : float32 arrays, shape (slots, places)
        Weights of gravity, by slot of arrival.
    between : float32 array, shape (cells, cells)
        Factor of gravity.
    pull : float32 array, shape (pairs, clusters, places)
        psi.
    log_total : float32 array, shape (pairs, clusters, places)
        Logarithm of the sum of a row's weights.
    marginal_error : float
        Greatest total variation between the distribution that a step arrives at and the one it should.
    """

    slots: Int[np.ndarray, "pair 2"]
    stay: Float[np.ndarray, "pair place"]
    seen: Float[np.ndarray, "slot move"]
    leaving: Float[np.ndarray, "slot place"]
    arriving: Float[np.ndarray, "slot place"]
    between: Float[np.ndarray, "cell cell"]
    pull: Float[np.ndarray, "pair cluster place"]
    log_total: Float[np.ndarray, "pair cluster place"]
    marginal_error: float


class Kernel(Protocol):
    """Weights K(a, b) of one pair of slots, applied to many clusters at once."""

    def from_next(self, v: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """Sum over b of K(a, b) v(b)."""
        ...

    def to_next(self, u: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """Sum over a of u(a) K(a, b)."""
        ...


class DenseKernel(NamedTuple):
    """Every weight, for as many places as there are cells."""

    weight: Float[Array, "place next_place"]

    def from_next(self, v: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """See `Kernel`."""
        return self.weight @ v

    def to_next(self, u: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """See `Kernel`."""
        return self.weight.T @ u


class CellKernel(NamedTuple):
    """Stays, seen moves, and gravity between cells: no table of places x places."""

    stay: Float[Array, " place"]
    place: Int[Array, " move"]
    next_place: Int[Array, " move"]
    seen: Float[Array, " move"]
    leaving: Float[Array, " place"]
    arriving: Float[Array, " place"]
    between: Float[Array, "cell cell"]
    cell: Int[Array, " place"]

    def from_next(self, v: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """See `Kernel`."""
        moved = _sums(self.seen[:, None] * v[self.next_place], self.place, len(v))
        return self.stay[:, None] * v + moved + self._gravity(v, self.arriving, self.between, self.leaving)

    def to_next(self, u: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """See `Kernel`."""
        moved = _sums(self.seen[:, None] * u[self.place], self.next_place, len(u))
        return self.stay[:, None] * u + moved + self._gravity(u, self.leaving, self.between.T, self.arriving)

    def _gravity(self, x: Array, inner: Array, between: Array, outer: Array) -> Float[Array, "place cluster"]:
        """Of all other places; a place itself is taken out again of its cell."""
        x = inner[:, None] * x
        near = (between @ _sums(x, self.cell, len(between)))[self.cell]
        return outer[:, None] * jnp.maximum(near - jnp.diag(between)[self.cell, None] * x, 0)


class _Pieces(NamedTuple):
    """What all pairs of slots have in common, on the devices."""

    cell: Int[Array, " place"]
    place: Int[Array, " move"]
    next_place: Int[Array, " move"]
    bin_of_move: Int[Array, " move"]
    bin_of_cells: Int[Array, "cell cell"]
    between: Float[Array, "cell cell"]


class _Task(NamedTuple):
    """A pair of slots."""

    stay: Float[np.ndarray, " place"]
    seen: Float[np.ndarray, " move"]
    leaving: Float[np.ndarray, " place"]
    arriving: Float[np.ndarray, " place"]
    before: Float[np.ndarray, "cluster place"]
    after: Float[np.ndarray, "cluster place"]
    share: Float[np.ndarray, " cluster"]


class _Scaled(NamedTuple):
    """What a round of scaling gives."""

    pull: Float[Array, "cluster place"]
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
    progress: bool = False,
) -> Chains:
    """Fit the chains of all clusters, one pair of slots beside the other.

    Parameters
    ----------
    marginals : float array, shape (clusters, slots, places)
        p_k(s), all positive.
    share : float array, shape (clusters,)
        Of the users.
    movement : Movement
        K.
    slot_of_instant : int array, shape (instants,)
        Of one period.
    progress : bool
        Show a progress bar where there is a terminal.
    """
    counts, stays = movement.counts, movement.stays
    seen, space, between = counts.seen, counts.space, counts.gravity.between
    following = np.stack([slot_of_instant[:-1], slot_of_instant[1:]], axis=1)
    # A period of one instant has no step; a chain that nobody asks keeps the arrays from being empty.
    slots = np.unique(following if len(following) else slot_of_instant[[0, 0]][None], axis=0)
    n_pairs, (n_clusters, _, n_places) = len(slots), marginals.shape
    bin_of_move = counts.bin[space.cell[seen.place], space.cell[seen.next_place]]
    pieces = _Pieces(space.cell, seen.place, seen.next_place, bin_of_move, counts.bin, between.astype(np.float32))
    local_copy = on_each_device(jax.tree.map(jnp.asarray, pieces))
    # K has the stays on its diagonal, and (1 - stay) times where those go who move.
    moving = 1 - stays.at_place
    seen_weight = (movement.weights.seen * moving[:, seen.place]).astype(np.float32)
    leaving = (movement.weights.gravity * moving).astype(np.float32)
    arriving = counts.population.astype(np.float32)
    more_stays, by_distance = np.ones(n_pairs), np.ones(len(counts.covered))
    pull = np.ones((n_pairs, n_clusters, n_places), np.float32)

    def task_of(pair: int) -> _Task:
        before, after = slots[pair]
        stay = (stays.at_place[after] * more_stays[pair]).astype(np.float32)
        own = (marginals[:, before], marginals[:, after], share)
        own = (part.astype(np.float32, copy=False) for part in own)
        return _Task(stay, seen_weight[after], leaving[after], arriving[after], *own)

    def scaled(pair: int, most_scalings: int) -> _Scaled:
        task = jax.tree.map(jnp.asarray, task_of(pair))
        factor = jnp.asarray(by_distance, jnp.float32)
        found = _scale(local_copy(), task, factor, jnp.asarray(pull[pair]), most_scalings, dense=space.is_exact)
        return jax.tree.map(np.asarray, found)

    own_pairs = range(n_pairs)[own_share(n_pairs)]
    with progress_bar("fitting chains", N_ROUNDS * len(own_pairs), show=progress) as advance:
        for number in range(N_ROUNDS):
            most = MOST_SCALINGS if number < N_ROUNDS - 1 else MOST_LAST_SCALINGS
            rounds = []
            for found in map_in_threads(partial(scaled, most_scalings=most), own_pairs):
                rounds.append(found)
                advance(1)
            found = _Scaled(*(gather_rows(np.stack(part), n_pairs) for part in zip(*rounds, strict=True)))
            pull = found.pull
            if number < N_ROUNDS - 1:
                more_stays *= _odds_ratio(stays.in_slot[slots[:, 1]], found.stays)
                in_bin = found.in_bin.sum(axis=0)
                by_distance *= _ratio(counts.covered, in_bin / max(in_bin.sum(), TINY))
                by_distance /= by_distance.mean()
    return Chains(
        slots.astype(np.int32),
        (stays.at_place[slots[:, 1]] * more_stays[:, None]).astype(np.float32),
        (seen_weight * by_distance[bin_of_move]).astype(np.float32),
        leaving,
        arriving,
        (between * by_distance[counts.bin]).astype(np.float32),
        pull,
        np.log(found.total),
        float(found.error.max()),
    )


@partial(jax.jit, static_argnames="dense")
def _scale(
    pieces: _Pieces, task: _Task, by_distance: Array, pull: Array, most_scalings: int | Array, dense: bool
) -> _Scaled:
    """Scale rows and columns in turn, and see how many then stay, and how far the others go."""
    between = pieces.between * by_distance[pieces.bin_of_cells]
    seen = task.seen * by_distance[pieces.bin_of_move]
    kernel = CellKernel(
        task.stay, pieces.place, pieces.next_place, seen, task.leaving, task.arriving, between, pieces.cell
    )
    applied = _as_dense(kernel) if dense else kernel
    before, after = jnp.transpose(task.before), jnp.transpose(task.after)

    def is_open(state: tuple[Array, Array, Array, Array]) -> Array:
        _, _, error, number = state
        return (error > TOLERANCE) & (number < most_scalings)

    def scale(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        u, v, error, number = state
        relaxed = jnp.where(error < NEAR, RELAXATION, 1.0)
        leaving = applied.from_next(v)
        own_error = _variation(u * leaving, before)
        u = u * _factor(before, u * leaving) ** relaxed
        arriving = applied.to_next(u)
        # Of u and v as they came: no product more than the next ones need.
        error = jnp.maximum(own_error, _variation(v * arriving, after))
        return u, v * _factor(after, v * arriving) ** relaxed, error, number + 1

    v = jnp.transpose(pull)
    u = jnp.ones_like(v)
    _, v, _, _ = lax.while_loop(is_open, scale, (u, v, jnp.array(jnp.inf, jnp.float32), jnp.array(0)))
    # A factor common to a cluster's pulls cancels in the probabilities: keep numbers near one.
    v = v / jnp.exp(jnp.mean(jnp.log(jnp.maximum(v, TINY)), axis=0))
    total = applied.from_next(v)
    u = before / jnp.maximum(total, TINY)
    error = _variation(v * applied.to_next(u), after)
    u = u * task.share
    stays = jnp.sum(u * task.stay[:, None] * v)
    in_bin = _covered(kernel, pieces, u, v, len(by_distance), dense)
    return _Scaled(v.T, total.T, stays, in_bin, error)


def _factor(wanted: Array, found: Array) -> Array:
    return wanted / jnp.maximum(found, TINY)


def _variation(found: Array, wanted: Array) -> Float[Array, ""]:
    """Greatest total variation of a cluster."""
    return jnp.abs(found - wanted).sum(axis=0).max() / 2


def _as_dense(kernel: CellKernel) -> DenseKernel:
    places = jnp.arange(len(kernel.stay))
    weight = kernel.leaving[:, None] * kernel.between[kernel.cell][:, kernel.cell] * kernel.arriving
    weight = weight.at[kernel.place, kernel.next_place].add(kernel.seen)
    return DenseKernel(weight.at[places, places].set(kernel.stay))


def _covered(kernel: CellKernel, pieces: _Pieces, u: Array, v: Array, n_bins: int, dense: bool) -> Float[Array, " bin"]:
    """Expected number of moves in each bin of distance."""
    n_cells = len(kernel.between)
    leaving, arriving = kernel.leaving[:, None] * u, kernel.arriving[:, None] * v
    flow = kernel.between * (_sums(leaving, kernel.cell, n_cells) @ _sums(arriving, kernel.cell, n_cells).T)
    own = jnp.sum(leaving * arriving, axis=1) * jnp.diag(kernel.between)[kernel.cell]
    flow = flow.at[kernel.cell, kernel.cell].add(-own)
    in_bin = jax.ops.segment_sum(flow.ravel(), pieces.bin_of_cells.ravel(), n_bins)
    if dense:
        of_moves = (u @ v.T)[kernel.place, kernel.next_place]
    else:
        of_moves = jnp.sum(u[kernel.place] * v[kernel.next_place], axis=1)
    return jnp.maximum(in_bin, 0) + jax.ops.segment_sum(kernel.seen * of_moves, pieces.bin_of_move, n_bins)


def _sums(rows: Float[Array, "row cluster"], which: Int[Array, " row"], n: int) -> Float[Array, "n cluster"]:
    """Sums of the rows that belong to each place or cell."""
    return jax.ops.segment_sum(rows, which, n)


def _odds_ratio(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    """By how much the odds of staying have to change; bounded, for what the marginals forbid cannot be reached."""
    return _ratio(wanted / (1 - wanted), found / np.maximum(1 - found, TINY))


def _ratio(wanted: np.ndarray, found: np.ndarray) -> np.ndarray:
    return np.clip(wanted / np.maximum(found, TINY), 1 / MOST_CHANGE, MOST_CHANGE)
