"""Trace model of the cluster bridge: one Markov chain for each cluster of users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy.special import logsumexp

from ppmtf_jax.bridge.attraction import StoredAttraction, drawn_place
from ppmtf_jax.bridge.chains import TOLERANCE, Chains
from ppmtf_jax.bridge.clusters import Clusters, cluster_sentences
from ppmtf_jax.bridge.selection import MEMORIES, Selection, memory_sentence
from ppmtf_jax.bridge.user_bounds import RULES
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.trace_models.base import ScoredTraceModel, StoredArray, stored
from ppmtf_jax.trace_models.sampling import sample_index

STEPS_AT_A_TIME = 4096
# In single precision, a probability of staying may be rounded to 1.
ROUNDING = 1e-6


def _weights(*shape: str) -> StoredArray:
    return StoredArray(shape, low=0)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ClusterBridge(StoredAttraction, ScoredTraceModel):
    """One Markov chain for each cluster of users, inhomogeneous in time; see `bridge.chains`.

    A move from place a to another place b has the weight K(a, b) pull(b), see `StoredAttraction`. Staying at a has the
    weight stay(a) pull(a).
    """

    padded: ClassVar[tuple[str, ...]] = ("clusters", "moves")
    rules: ClassVar[tuple[str, ...]] = RULES
    kind_found: ClassVar[dict[str, str]] = {"memory": "none", "gaps": "none"}
    n_paces: ClassVar[None] = None

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    # Number of users with events in each cluster.
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    # Probabilities of the first place.
    first: Float[Array, "cluster place"] = stored(lambda n: _weights("clusters", "places"))
    # `pair_of_instant`, `slot_of_instant`: pair of slots of the step to an instant, and slot of the instant.
    pair_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray((n.instants,), "int", 0))
    slot_of_instant: Int[Array, " instant"] = stored(lambda n: StoredArray((n.instants,), "int", 0, n.slots - 1))
    # `stay`, `pull`, `log_total`, `marginal_error`: see `bridge.chains.Chains`; `pull` is its `scaling`.
    stay: Float[Array, "pair place"] = stored(lambda n: _weights("pairs", "places"))
    pull: Float[Array, "pair cluster place"] = stored(lambda n: _weights("pairs", "clusters", "places"))
    log_total: Float[Array, "pair cluster place"] = stored(lambda n: StoredArray(("pairs", "clusters", "places")))
    # The selected settings, see `bridge.selection.Selection.numbers`.
    chosen: Float[Array, " setting"] = stored(lambda n: StoredArray((len(Selection().numbers),)))
    # `tried`, `gain`: the gains of `Selection`.
    tried: Int[Array, " number"] = stored(lambda n: StoredArray(("numbers",), "int", 1))
    gain: Float[Array, " number"] = stored(lambda n: StoredArray(("numbers",)))
    marginal_error: Float[Array, ""] = stored(lambda n: StoredArray((), low=0))
    # For each of `bridge.selection.MEMORIES`: gain in log-probability (nats) of an event of a held-out training
    # user over people who remember nothing; None if nothing was compared.
    memory_gain: Float[Array, " memory"] | None = stored(
        lambda n: StoredArray((len(MEMORIES),), optional=True), default=None
    )

    @classmethod
    def of(
        cls,
        clusters: Clusters,
        n_present: Int[np.ndarray, " cluster"],
        chains: Chains,
        slots: Int[np.ndarray, " instant"],
        selection: Selection,
        selected: Mapping[str, np.ndarray],
    ) -> ClusterBridge:
        """Assemble the model; `slots` are those of one period, `selected` has further arrays."""
        pairs = [tuple(pair) for pair in chains.slots.tolist()]
        before = np.concatenate([slots[:1], slots[:-1]])
        # No step leads to the first instant, so its pair is never used.
        steps = zip(before.tolist(), slots.tolist(), strict=True)
        of_instant = [pairs.index(pair) if pair in pairs else 0 for pair in steps]
        arrays = {
            "cluster": clusters.of_user.astype(np.int32),
            "n_present": n_present.astype(np.int32),
            "first": clusters.visits[:, slots[0]],
            "pair_of_instant": np.array(of_instant, np.int32),
            "slot_of_instant": slots,
            "stay": chains.stay,
            "log_total": chains.log_total,
            "pull": chains.scaling,
            "tried": np.array(list(selection.gains), np.int32),
            "gain": np.array(list(selection.gains.values()), np.float32),
            "marginal_error": np.array(chains.marginal_error, np.float32),
            "chosen": selection.numbers.astype(np.float32),
            **selected,
        }
        return cls.from_arrays(arrays | chains.attraction.arrays())

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
        """The users' clusters: every trace is equally probable for all users of a cluster."""
        return np.asarray(self.cluster)[:n_users]

    def instant_classes(self, n_instants: int) -> np.ndarray:
        return np.asarray(self.pair_of_instant)[:n_instants]

    def user_cache(self, users: Int[Array, " user"]) -> Int[Array, " user"]:
        """The users' clusters."""
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


def held_out(chain: ClusterBridge, clusters: Clusters, traces: Traces) -> Float[np.ndarray, " user"]:
    """Log-likelihood of each user's events under the mixture of clusters.

    The probability of the first event of a trace is the share of its place in the cluster's visits in its slot. After a
    gap, a person is still at the place before the gap with the probability of staying there at each instant of the gap.
    Otherwise, the probability of her place is again this share.
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
