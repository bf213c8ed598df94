"""People without memory: a Markov chain for each cluster of users, with the cluster's population at every instant.

For two slots and each cluster k, the chain is P_k(b | a) ~ K(a, b) d^[a = b] h(km(a, b)) psi_k(b). The Sinkhorn scaling
psi_k is chosen such that a step turns the cluster's distribution p_k(s) into p_k(s'). Of all joint distributions of
(a, b) with these marginals, this is the one nearest to K in Kullback-Leibler divergence with a given share of stays and
given distances (a Schroedinger bridge, Csiszar 1975). All clusters share d, one number per pair of slots, and h, which
is constant in bins of distance. They are chosen such that stays are as frequent, and moves as long, as in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ops import segment_sum
from jaxtyping import Array, Float, Int, Key
from scipy.special import logsumexp

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.attraction import Attraction, CellKernel, MoveCounts, Movement, StoredAttraction, drawn_place
from ppmtf_jax.people.clusters import Clusters, cluster_sentences, population_and_clusters
from ppmtf_jax.people.counts import Transitions, VisitCounts
from ppmtf_jax.people.fitting import matching
from ppmtf_jax.people.selection import MEMORIES, Selection, memory_sentence
from ppmtf_jax.people.space import space_of
from ppmtf_jax.people.user_bounds import RULES
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads, on_each_device
from ppmtf_jax.trace_models.base import ScoredTraceModel, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

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
STEPS_AT_A_TIME = 4096
# In single precision, a probability of staying may be rounded to 1.
ROUNDING = 1e-6


def _weights(*shape: str) -> StoredArray:
    return StoredArray(shape, low=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ClusterBridge(StoredAttraction, ScoredTraceModel):
    """One Markov chain for each cluster of users, inhomogeneous in time; see the module.

    A move from place a to another place b has the weight K(a, b) pull(b), see `StoredAttraction`. Staying at a has the
    weight stay(a) pull(a).
    """

    padded: ClassVar[tuple[str, ...]] = ("clusters", "moves")
    rules: ClassVar[tuple[str, ...]] = RULES
    kind_found: ClassVar[dict[str, str]] = {"memory": "none", "gaps": "none"}
    n_levels: ClassVar[None] = None

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    # Number of users with events in each cluster.
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    # Probabilities of the first place.
    first: Float[Array, "cluster place"] = stored(lambda n: _weights("clusters", "places"))
    # `pair_of_instant`, `slot_of_instant`: pair of slots of the step to an instant, and slot of the instant.
    pair_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray((n.instants,), "int", 0))
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray((n.instants,), "int", 0, n.slots - 1))
    # `stay`, `pull`, `log_total`, `marginal_error`: see `Chains`; `pull` is its `scaling`.
    stay: Float[Array, "pair place"] = stored(lambda n: _weights("pairs", "places"))
    pull: Float[Array, "pair cluster place"] = stored(lambda n: _weights("pairs", "clusters", "places"))
    log_total: Float[Array, "pair cluster place"] = stored(lambda n: StoredArray(("pairs", "clusters", "places")))
    # The selected settings, see `Selection.numbers`.
    chosen: Float[Array, " setting"] = stored(lambda n: StoredArray((len(Selection().numbers),)))
    # `tried`, `gain`: the gains of `Selection`.
    tried: Int[Array, " number"] = stored(lambda n: StoredArray(("numbers",), "int", 1))
    gain: Float[Array, " number"] = stored(lambda n: StoredArray(("numbers",)))
    marginal_error: Float[Array, ""] = stored(lambda n: StoredArray((), low=0))
    # For each of `MEMORIES`: gain in log-probability (nats) of an event of a held-out training
    # user over people who remember nothing; None if nothing was compared.
    memory_gain: Float[Array, " memory"] | None = stored(
        lambda n: StoredArray((len(MEMORIES),), optional=True), default=None
    )

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> ClusterBridge:
        for name, known in (("cluster", "first"), ("pair_of_instant", "stay")):
            if arrays[name].max() >= len(arrays[known]):
                raise ValueError(f"{name} beyond the last")
        longest = cls.longest_of(arrays)
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()}, longest=longest)

    @property
    def n_places(self) -> int:
        return self.first.shape[1]

    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        return sample_index(jax.random.uniform(key), self.first[self.cluster[user]])

    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        pair, slot = self.pair_of_instant[instant], self.slot_of_instant[instant]
        scaling = self.pull[pair, self.cluster[user]]
        gravity, next_place, seen = self.row(slot, place)
        anywhere = (gravity * scaling).at[place].set(self.stay[pair, place] * scaling[place])
        weight = jnp.concatenate([anywhere, seen * scaling[next_place]])
        drawn = sample_index(jax.random.uniform(key), weight)
        return drawn_place(drawn, self.n_places, next_place).astype(jnp.int32)

    def user_classes(self, n_users: int) -> np.ndarray:
        return np.asarray(self.cluster)[:n_users]

    def instant_classes(self, n_instants: int) -> np.ndarray:
        return np.asarray(self.pair_of_instant)[:n_instants]

    def user_cache(self, users: Int[Array, " user"]) -> Int[Array, " user"]:
        return self.cluster[users]

    def log_first(self, cache: Int[Array, ""], place: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.log(self.first[cache, place])

    def log_next(
        self, cache: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        weight = self._log_weight(instant, place, next_place)
        return weight + self._log_scaling(cache, instant, place, next_place)

    def log_moves(
        self,
        cache: Int[Array, " user"],
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Float[Array, "step user"]:
        """Computes the weights only once, because all clusters share them."""
        weight = jax.vmap(self._log_weight)(instants, places, next_places)
        over_users = jax.vmap(self._log_scaling, (0, None, None, None))
        return weight[:, None] + jax.vmap(over_users, (None, 0, 0, 0))(cache, instants, places, next_places)

    def _log_weight(self, instant: Array, place: Array, next_place: Array) -> Float[Array, ""]:
        pair, slot = self.pair_of_instant[instant], self.slot_of_instant[instant]
        moved = self.pair(slot, place, next_place)
        return jnp.log(jnp.where(place == next_place, self.stay[pair, place], moved))

    def _log_scaling(self, cluster: Array, instant: Array, place: Array, next_place: Array) -> Float[Array, ""]:
        pair = self.pair_of_instant[instant]
        return jnp.log(self.pull[pair, cluster, next_place]) - self.log_total[pair, cluster, place]

    def summary(self) -> list[str]:
        lines = cluster_sentences(np.asarray(self.n_present))
        tried, gain = np.asarray(self.tried), np.asarray(self.gain)
        if len(tried):
            chosen = Selection.of_numbers(np.asarray(self.chosen)).clusters.n_clusters
            ratio = np.exp(gain[tried == chosen][0])
            lines.append(
                f"The number of clusters was tested on held-out training users: their visits were {ratio:.1f} times as "
                "probable as with one cluster"
            )
        lines.append(memory_sentence("none", self.memory_gain))
        if self.marginal_error > TOLERANCE:
            share = 100 * float(self.marginal_error)
            lines.append(
                f"The chains are not fitted to the end: at some time, {share:.2g} % of a cluster's people are "
                "synthesized at other places than they should be"
            )
        return lines


def fit_chain(
    train: Traces,
    of_user: Int[np.ndarray, " user"],
    selection: Selection,
    selected: Mapping[str, np.ndarray] | None = None,
    *,
    most_last_scalings: int | None = None,
    progress: bool = False,
) -> tuple[ClusterBridge, Clusters]:
    """Markov chains of given clusters, numbered 0, 1, ... without gaps; and the smoothed clusters.

    `selected`: arrays of the model that say why it was selected. `most_last_scalings`: as in `fit_chains`.
    """
    grid, space, visits = train.time_grid, space_of(train.places), train.blocks.map(VisitCounts.of)
    shares, clusters = population_and_clusters(visits, of_user, selection.population, selection.clusters, space, grid)
    movement = Movement.of(MoveCounts.of(train.blocks.map(Transitions.of), shares, space, grid), selection.moves)
    slots = grid.one_period().slot_of_instant
    given = (clusters.visits, clusters.share, movement, slots)
    chains = fit_chains(*given, most_last_scalings=most_last_scalings, progress=progress)
    # No step leads to the first instant, so its pair is never used.
    pairs, steps = chains.slots.tolist(), np.stack([np.append(slots[:1], slots[:-1]), slots], axis=1).tolist()
    arrays = {
        "cluster": of_user.astype(np.int32),
        "n_present": np.bincount(of_user[train.has_events], minlength=len(clusters.share)).astype(np.int32),
        "first": clusters.visits[:, slots[0]],
        "pair_of_instant": np.array([pairs.index(step) if step in pairs else 0 for step in steps], np.int32),
        "slot_of_instant": slots,
        "stay": chains.stay,
        "log_total": chains.log_total,
        "pull": chains.scaling,
        "tried": np.array(list(selection.gains), np.int32),
        "gain": np.array(list(selection.gains.values()), np.float32),
        "marginal_error": np.array(chains.marginal_error, np.float32),
        "chosen": selection.numbers.astype(np.float32),
        **(selected or {}),
    }
    return ClusterBridge.from_arrays(arrays | chains.attraction.arrays()), clusters


class Chains(NamedTuple):
    """Weights of next places, see `ClusterBridge`; slots are those of arrival.

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


def held_out(chain: ClusterBridge, clusters: Clusters, traces: Traces) -> Float[np.ndarray, " user"]:
    """Log-likelihood of each user's events under the mixture of clusters.

    The probability of the first event of a trace is the share of its place in the cluster's visits in its slot. After a
    gap, a person is still at the place before the gap with the probability of staying there at each instant of the gap.
    Otherwise, the probability of their place is again this share.
    """
    slot, place, phase = traces.slot, traces.place, traces.instant % traces.time_grid.period
    is_step, is_first = traces.is_step(), np.zeros(traces.n_events, bool)
    is_first[traces.periods().first] = True
    first_user = np.unique(clusters.of_user, return_index=True)[1]
    cache, score = chain.user_cache(jnp.asarray(first_user)), jax.jit(chain.log_moves)

    def log_moves(*columns: Int[np.ndarray, " step"]) -> Float[np.ndarray, "step cluster"]:
        """Log-probabilities of steps, by phase, place and next place."""
        found = np.empty((len(columns[0]), len(first_user)))
        for begin in range(0, len(found), STEPS_AT_A_TIME):
            rows = slice(begin, begin + STEPS_AT_A_TIME)
            padded = (jnp.asarray(np.resize(column[rows], STEPS_AT_A_TIME)) for column in columns)
            found[rows] = np.asarray(score(cache, *padded))[: len(found[rows])]
        return found

    log = np.log(clusters.visits[:, slot, place]).T
    step, gap = np.flatnonzero(is_step), np.flatnonzero(~is_step & ~is_first)
    log[step] = log_moves(phase[step], place[step - 1], place[step])
    last, length = place[gap - 1], phase[gap] - phase[gap - 1]
    log_stay = np.zeros((len(gap), len(first_user)))
    for before in range(length.max(initial=0)):
        rows = np.flatnonzero(before < length)
        log_stay[rows] += log_moves(phase[gap[rows]] - before, last[rows], last[rows])
    stays = np.minimum(np.exp(log_stay), 1 - ROUNDING)
    log[gap] = np.log(np.where((last == place[gap])[:, None], stays, 0) + (1 - stays) * np.exp(log[gap]))
    of_user = np.stack([np.bincount(traces.user, column, traces.n_users) for column in log.T], axis=1)
    return np.asarray(logsumexp(of_user + np.log(clusters.share), axis=1))
