"""Cluster bridge: users in clusters, and for each cluster one chain with its population and moves as people make them.

Metropolis-Hastings turns refusals into stays, so that the traces of PPMTF stay where people move on. Here every slot
has the distribution over places that it should have, for each cluster of users, and from one slot to the next the chain
with the moves that are nearest to the population's (see `bridge.chains`). All users of a cluster share it: their traces
are equally probable for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.bridge.chains import TOLERANCE, Chains, fit_chains
from ppmtf_jax.bridge.clusters import Clusters, ClusterSmoothing, Profiles, clusters_of_users, fit_clusters
from ppmtf_jax.bridge.contributions import NO_RULE, RULES
from ppmtf_jax.bridge.memory import require_memory_to_fit
from ppmtf_jax.bridge.moves import MoveCounts, Movement, MoveSmoothing, Steps
from ppmtf_jax.bridge.space import Space, space_of
from ppmtf_jax.bridge.tuning import (
    MOST_USERS,
    Choice,
    choose_clusters,
    choose_moves,
    choose_population,
    n_clusterings,
)
from ppmtf_jax.bridge.visits import PopulationSmoothing, Visits, population
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.runtime.devices import of_first_process
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import ScoredTraceModel, Sizes, StoredArray
from ppmtf_jax.trace_models.sampling import sample_index
from ppmtf_jax.trace_models.sparse_rows import find_in_row

CHOSEN = tuple(
    f"{part} {name}".replace("_", " ")
    for part, kind in (("population", PopulationSmoothing), ("moves", MoveSmoothing), ("clusters", ClusterSmoothing))
    for name in kind._fields
)
"""What the numbers of `ClusterBridge.chosen` are."""


@dataclass(frozen=True)
class BridgeSettings(Settings):
    """Settings of the cluster bridge; all else is chosen by held-out likelihood, see `bridge.tuning`.

    Parameters
    ----------
    min_cluster_users : int
        Users that each cluster has at least: a trace is equally probable for so many. Larger protects better. Twice
        the k of the privacy test, so that half of the users as verifiers find k. Fewer training users are refused.
    n_clusters : int, optional
        How many clusters are looked for; small ones are dissolved. Chosen by held-out likelihood where not given.
    """

    min_cluster_users: Count = 20
    n_clusters: Count | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ClusterBridge(ScoredTraceModel):
    """One chain for each cluster of users, inhomogeneous in time.

    From place a at the instant before, the weight of another place b is (seen(a, b) + leaving(a) between(a, b)
    arriving(b)) pull(b), that of staying stay(a) pull(a); see `bridge.chains.Chains`. Nothing of the size places x
    places is stored.

    Parameters
    ----------
    cluster : int array, shape (users,)
    n_present : int array, shape (clusters,)
        How many users of each cluster have events.
    first : float array, shape (clusters, places)
        Probabilities of the first place.
    pair_of_instant, slot_of_instant : int arrays, shape (instants,)
        Which pair of slots the step to an instant is of, and the slot of the instant.
    cell : int array, shape (places,)
        Places of one cell have the same distances.
    move_start : int array, shape (places + 1,)
        Where the moves seen from a place begin.
    next_place : int array, shape (moves + 1,), sorted for each place; the last is of no place
    seen : float array, shape (slots, moves + 1)
    stay, pull, log_total : float arrays, shapes (pairs, places), (pairs, clusters, places) and the same
    leaving, arriving : float arrays, shape (slots, places)
    between : float array, shape (cells, cells)
    chosen : float array, shape (settings,)
        The settings that were chosen, see `CHOSEN`.
    tried, gain : int and float arrays, shape (numbers of clusters,)
        Those that were tried, and by how much more probable a visit of a held-out user was than with one, in nats.
    marginal_error : float array, shape ()
        See `bridge.chains.Chains`.
    """

    cluster: Int[Array, " user"]
    n_present: Int[Array, " cluster"]
    first: Float[Array, "cluster place"]
    pair_of_instant: Int[Array, " instant"]
    slot_of_instant: Int[Array, " instant"]
    cell: Int[Array, " place"]
    move_start: Int[Array, " place1"]
    next_place: Int[Array, " move1"]
    seen: Float[Array, "slot move1"]
    stay: Float[Array, "pair place"]
    pull: Float[Array, "pair cluster place"]
    log_total: Float[Array, "pair cluster place"]
    leaving: Float[Array, "slot place"]
    arriving: Float[Array, "slot place"]
    between: Float[Array, "cell cell"]
    chosen: Float[Array, " setting"]
    tried: Int[Array, " number"]
    gain: Float[Array, " number"]
    marginal_error: Float[Array, ""]
    # How many moves were seen from the place that has most.
    longest: int = field(metadata={"static": True})

    @property
    def n_places(self) -> int:
        return self.first.shape[1]

    def sample_first(self, key: Key[Array, ""], user: Int[Array, ""]) -> Int[Array, ""]:
        return sample_index(jax.random.uniform(key), self.first[self.cluster[user]])

    def sample_next(
        self, key: Key[Array, ""], user: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""]
    ) -> Int[Array, ""]:
        pair, slot = self.pair_of_instant[instant], self.slot_of_instant[instant]
        pull = self.pull[pair, self.cluster[user]]
        near = self.between[self.cell[place]][self.cell]
        anywhere = self.leaving[slot, place] * near * self.arriving[slot] * pull
        anywhere = anywhere.at[place].set(self.stay[pair, place] * pull[place])
        begin, end = self.move_start[place], self.move_start[place + 1]
        # A slice near the end begins earlier than asked for, with moves of places before.
        at = jnp.minimum(begin, len(self.next_place) - self.longest) + jnp.arange(self.longest)
        next_place = self.next_place[at]
        seen = jnp.where((at >= begin) & (at < end), self.seen[slot, at] * pull[next_place], 0)
        drawn = sample_index(jax.random.uniform(key), jnp.concatenate([anywhere, seen]))
        moved = next_place[jnp.maximum(drawn - self.n_places, 0)]
        return jnp.where(drawn < self.n_places, drawn, moved).astype(jnp.int32)

    def classes(self, n_users: int) -> np.ndarray:
        """Users of a cluster are one class."""
        return np.asarray(self.cluster)[:n_users]

    def summary(self) -> list[str]:
        sizes = np.sort(np.asarray(self.n_present))
        least = int(sizes[0])
        users = f"the smallest has {counted(least, 'user')}, the largest {sizes[-1]:,}"
        if len(sizes) == 1:
            users = f"all {counted(least, 'user')}"
        lines = [
            f"{counted(len(sizes), 'cluster')} of users who are at similar places at similar hours: {users}",
            f"With all users as verifiers, every trace passes the privacy test up to k = {least}",
        ]
        tried, gain = np.asarray(self.tried), np.asarray(self.gain)
        if len(tried):
            chosen = int(np.asarray(self.chosen)[CHOSEN.index("clusters n clusters")])
            ratio = np.exp(gain[tried == chosen][0])
            lines.append(
                f"The number of clusters was tested on held-out training users: their visits were {ratio:.1f} times as "
                "probable as with one cluster"
            )
        if self.marginal_error > TOLERANCE:
            share = 100 * float(self.marginal_error)
            lines.append(
                f"The chains are not fitted to the end: at some time, {share:.2g} % of a cluster's people are "
                "synthesized at other places than they should be"
            )
        return lines

    def phases(self, n_instants: int) -> np.ndarray:
        return np.asarray(self.pair_of_instant)[:n_instants]

    def tables(self, users: Int[Array, " user"]) -> Int[Array, " user"]:
        """The users' clusters: all that distinguishes them."""
        return self.cluster[users]

    def log_first(self, tables: Int[Array, ""], place: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.log(self.first[tables, place])

    def log_next(
        self, tables: Int[Array, ""], instant: Int[Array, ""], place: Int[Array, ""], next_place: Int[Array, ""]
    ) -> Float[Array, ""]:
        weight = self._log_weight(instant, place, next_place)
        return weight + self._log_scaling(tables, instant, place, next_place)

    def log_moves(
        self,
        tables: Int[Array, " user"],
        instants: Int[Array, " step"],
        places: Int[Array, " step"],
        next_places: Int[Array, " step"],
    ) -> Float[Array, "step user"]:
        """What all clusters share is computed once."""
        weight = jax.vmap(self._log_weight)(instants, places, next_places)
        over_users = jax.vmap(self._log_scaling, (0, None, None, None))
        return weight[:, None] + jax.vmap(over_users, (None, 0, 0, 0))(tables, instants, places, next_places)

    def _log_weight(self, instant: Array, place: Array, next_place: Array) -> Float[Array, ""]:
        pair, slot = self.pair_of_instant[instant], self.slot_of_instant[instant]
        near = self.between[self.cell[place], self.cell[next_place]]
        gravity = self.leaving[slot, place] * near * self.arriving[slot, next_place]
        at, found = find_in_row(self.next_place, self.move_start[place], self.move_start[place + 1], next_place)
        moved = gravity + jnp.where(found, self.seen[slot, at], 0)
        return jnp.log(jnp.where(place == next_place, self.stay[pair, place], moved))

    def _log_scaling(self, cluster: Array, instant: Array, place: Array, next_place: Array) -> Float[Array, ""]:
        pair = self.pair_of_instant[instant]
        return jnp.log(self.pull[pair, cluster, next_place]) - self.log_total[pair, cluster, place]

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self) if each.name != "longest"}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> ClusterBridge:
        cluster, pairs, cells = len(arrays["first"]), len(arrays["stay"]), len(arrays["between"])
        for name, n_known in (("cluster", cluster), ("pair_of_instant", pairs), ("cell", cells)):
            if arrays[name].max() >= n_known:
                raise ValueError(f"{name} beyond the last")
        if arrays["move_start"][-1] >= len(arrays["next_place"]):
            raise ValueError("moves that end beyond the last")
        longest = max(1, int(np.diff(arrays["move_start"]).max()))
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()}, longest=longest)

    @classmethod
    def stored_arrays(cls, sizes: Sizes) -> dict[str, StoredArray]:
        def weights(*shape: str | int) -> StoredArray:
            return StoredArray(shape, low=0)

        slots, places = sizes.slots, sizes.places
        return {
            "cluster": StoredArray((sizes.users,), "int", 0),
            "n_present": StoredArray(("clusters",), "int", 0),
            "first": weights("clusters", places),
            "pair_of_instant": StoredArray((sizes.instants,), "int", 0),
            "slot_of_instant": StoredArray((sizes.instants,), "int", 0, slots - 1),
            "cell": StoredArray((places,), "int", 0),
            "move_start": StoredArray((places + 1,), "int", 0, rises=True),
            "next_place": StoredArray(("moves",), "int", 0, places),
            "seen": weights(slots, "moves"),
            "stay": weights("pairs", places),
            "pull": weights("pairs", "clusters", places),
            "log_total": StoredArray(("pairs", "clusters", places)),
            "leaving": weights(slots, places),
            "arriving": weights(slots, places),
            "between": weights("cells", "cells"),
            "chosen": StoredArray((len(CHOSEN),)),
            "tried": StoredArray(("numbers",), "int", 1),
            "gain": StoredArray(("numbers",)),
            "marginal_error": StoredArray((), low=0),
        }


def fit_trace_model(
    train: Traces,
    settings: BridgeSettings,
    seed: int,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
) -> ClusterBridge:
    """Choose the smoothing, find the clusters, and fit their chains."""
    del checkpoints
    _require_users(train, settings.min_cluster_users)
    require_memory_to_fit(train, settings.n_clusters, settings.min_cluster_users)
    space, visits = space_of(train.places), Visits.of(train)
    choice = choose(train, visits, space, settings, seed, progress)
    clusters = fit_clusters(
        visits,
        population(visits, choice.population, train.time_grid),
        space,
        choice.clusters,
        time_grid=train.time_grid,
        min_users=settings.min_cluster_users,
        random=numpy_stream(seed, Stage.FIT),
        progress=progress,
    )
    return fit_to_clusters(train, clusters.of_user, choice, progress)


def _require_users(train: Traces, min_cluster_users: int) -> None:
    n_users = len(np.unique(train.user))
    if n_users < min_cluster_users:
        way_out = (
            "Give traces of more users, or set min_cluster_users lower. A trace is then equally probable for fewer "
            "users, and tells more about each of them"
        )
        expected = f"at least {counted(min_cluster_users, 'training user')}, one cluster of min_cluster_users"
        raise InputError("fit", [Problem(expected, str(n_users), way_out=way_out)])


def fit_to_clusters(
    train: Traces, of_user: Int[np.ndarray, " user"], choice: Choice, progress: bool = False
) -> ClusterBridge:
    """Fit the chains of given clusters, which are numbered 0, 1, ... without gaps."""
    grid, space, visits = train.time_grid, space_of(train.places), Visits.of(train)
    shares = population(visits, choice.population, grid)
    clusters = clusters_of_users(visits, Profiles(shares, space, choice.clusters, grid), of_user)
    movement = Movement.of(MoveCounts.of(Steps.of(train), shares, space, grid), choice.moves)
    slots = grid.one_period().slot_of_instant
    chains = fit_chains(clusters.visits, clusters.share, movement, slots, progress=progress)
    present = np.bincount(of_user[np.unique(train.user)], minlength=len(clusters.share))
    return _model(clusters, present, chains, movement, slots, choice)


def choose(
    train: Traces, visits: Visits, space: Space, settings: BridgeSettings, seed: int, progress: bool = False
) -> Choice:
    """Choose the smoothing of everything, on some of the users where there are many; see `bridge.tuning`."""
    random = numpy_stream(seed, Stage.TUNING)
    users = np.sort(random.permutation(train.n_users)[:MOST_USERS])
    visits, steps, grid = visits.of_users(users), Steps.of(train).of_users(users), train.time_grid
    n_steps = n_clusterings(settings.n_clusters)
    with progress_bar("choosing the smoothing", n_steps, show=progress, waits_for="") as advance:
        of_population = choose_population(visits, grid, random)
        of_moves = choose_moves(steps, visits, of_population, space, grid, random)
        of_clusters, gains = choose_clusters(
            visits,
            of_population,
            space,
            grid,
            min_users=settings.min_cluster_users,
            n_clusters=settings.n_clusters,
            spread_km=_spread_km(population(visits, of_population, grid), train.places),
            random=random,
            advance=advance,
        )
    return _of_first_process(Choice(of_population, of_moves, of_clusters, gains))


def _of_first_process(choice: Choice) -> Choice:
    """What the first process chose: processors of several kinds may round, and then choose, in several ways."""

    def same(values: tuple) -> list:
        found = of_first_process(np.array(values, np.float64)).tolist()
        return [type(value)(each) for value, each in zip(values, found, strict=True)]

    return Choice(
        PopulationSmoothing(*same(choice.population)),
        MoveSmoothing(*same(choice.moves)),
        ClusterSmoothing(*same(choice.clusters)),
        dict(zip(choice.gains, same(tuple(choice.gains.values())), strict=True)),
    )


def _spread_km(shares: Float[np.ndarray, "slot place"], places: PlaceTable) -> float:
    """Root mean square distance of people from their centre."""
    position, share = places.position_km(), shares.mean(axis=0)
    return float(np.sqrt(share @ ((position - share @ position) ** 2).sum(axis=1)))


def _model(
    clusters: Clusters, present: np.ndarray, chains: Chains, movement: Movement, slots: np.ndarray, choice: Choice
) -> ClusterBridge:
    pairs = [tuple(pair) for pair in chains.slots.tolist()]
    before = np.concatenate([slots[:1], slots[:-1]])
    # No step leads to the first instant.
    steps = zip(before.tolist(), slots.tolist(), strict=True)
    of_instant = [pairs.index(pair) if pair in pairs else 0 for pair in steps]
    place, next_place = movement.counts.seen.place, movement.counts.seen.next_place
    n_places = clusters.visits.shape[2]
    arrays = {
        "cluster": clusters.of_user.astype(np.int32),
        "n_present": present.astype(np.int32),
        "first": clusters.visits[:, slots[0]],
        "pair_of_instant": np.array(of_instant, np.int32),
        "slot_of_instant": slots,
        "cell": movement.counts.space.cell,
        "move_start": np.searchsorted(place, np.arange(n_places + 1)).astype(np.int32),
        # JAX cannot index an empty array: a last entry that no row reaches.
        "next_place": np.append(next_place, n_places).astype(np.int32),
        "seen": np.pad(chains.seen, [(0, 0), (0, 1)]),
        "stay": chains.stay,
        "pull": chains.pull,
        "log_total": chains.log_total,
        "leaving": chains.leaving,
        "arriving": chains.arriving,
        "between": chains.between,
        "tried": np.array(list(choice.gains), np.int32),
        "gain": np.array(list(choice.gains.values()), np.float32),
        "marginal_error": np.array(chains.marginal_error, np.float32),
        "chosen": np.array([*choice.population, *choice.moves, *choice.clusters], np.float32),
    }
    return ClusterBridge.from_arrays(arrays)


MEMBERSHIP_FOUND = (
    "that a person's data was used at all. This was measured on real data (people flow, 500 users, ten traces of "
    "each). An attacker fits models to other people's data and uses them to calibrate the attack for each person. This "
    "attacker tells training users from others with an AUC of 0.74, and finds 10 % of the training users at 1 % "
    "false alarms"
)
"""What a membership attack found on real data."""


def claims(model: ClusterBridge, settings: BridgeSettings) -> Claims:
    """What a release of these traces has to say."""
    del settings
    cluster = (
        "what the users of a cluster have in common. They are at similar places at similar hours. Of all clusters, the "
        f"smallest has {counted(int(np.asarray(model.n_present).min()), 'user')}. All users of a cluster share one "
        "chain, and the privacy test compares users. So the test passes every trace once its cluster has k users, and "
        "it says nothing about what the cluster as a whole gives away"
    )
    return Claims(RULES, (cluster, NO_RULE, MEMBERSHIP_FOUND))


SYNTHESIZERS.register(
    Synthesizer(
        "bridge",
        "Cluster bridge: a chain for each cluster of users, with its population and moves as people make them",
        BridgeSettings,
        fit_trace_model,
        ClusterBridge,
        claims,
    )
)
