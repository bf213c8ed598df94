"""SGLT: synthetic traces from seed traces, by places with a similar meaning (Bindschaedler and Shokri 2016).

A synthetic trace is made from one trace of its input user. Each of its places is replaced by all places with a similar
meaning, such as other work places for a work place, and Viterbi decoding finds a likely trace through these. The
similarity of places is learned from the traces of all users. The likelihood of its traces cannot be computed, so it has
a privacy test of its own, `privacy.semantic_test`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Array, Float, Int

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem, raise_any
from ppmtf_jax.runtime.memory import available_bytes, require_memory
from ppmtf_jax.semantics.decoding import SemanticClasses, aggregate_transitions, decode, semantic_seed
from ppmtf_jax.semantics.movements import place_similarity_by_moves
from ppmtf_jax.semantics.places import SeedTraces, cluster_places, most_modular_clusters, place_similarity
from ppmtf_jax.settings import Count, Probability, Settings
from ppmtf_jax.streams import Stage, jax_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import Index, OneKey, StoredArray, TraceModel, stored
from ppmtf_jax.trace_models.population import stationary_distribution

TITLE = "SGLT: each place of a user's trace replaced by one with a similar meaning, by Viterbi (section 4.2)"
# Places per cluster by default: 400 places had 100 clusters in the publication.
PLACES_IN_CLUSTER = 4
# Memory of a fit per pair of places, per user and place, and what `place_similarity` keeps of it in each time period.
PLACE_PAIR_BYTES, USER_PLACE_BYTES, RANK_BYTES = 9 * 8, 4 * 8, 4
TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class SGLTSettings(Settings):
    """Settings of SGLT; names in brackets, and the default values, are those of Murakami et al. 2021, section 4.2.

    Parameters
    ----------
    n_clusters : int or "modularity", optional
        Number of clusters of places with a similar meaning (c); by default a quarter of the places. Fewer clusters
        protect better. "modularity" chooses the number for which the similarity of places is most inside the clusters.
    remove_place_prob : float
        Share of a cluster's places that a synthetic trace cannot visit (par_c), if at least 3 places remain.
    merge_prob : float
        At distance d (in instants) from a change of cluster, the share merge_prob^(d^2) of both clusters' places is
        also allowed (par_m).
    remove_true_prob : float
        Probability that a synthetic trace cannot be where its input user was at the same instant (par_l). A lower
        probability means that a trace copies more places of its input user.
    randomization : float
        Upper limit of the random factor of a step's probability, at least 1; 1 gives the most likely trace (par_v).
    similarity : "visits" or "transitions"
        What makes two users similar, up to the names of places: how their time is divided among places (10), or also
        how they move between places (11). "transitions" takes a time that grows with the square of the users.
    n_time_periods : int
        Number of parts of about equal length, such as morning and evening, in which users are compared apart (tau).
    joining : "random" or "published"
        Which additional places are allowed, and when. "random": random places of both clusters, around each change of
        cluster. "published": as in the published program, the places with the lowest numbers, and only if the next
        change of place is also a change of cluster.
    """

    n_clusters: Count | Literal["modularity"] | None = None
    remove_place_prob: Probability = 0.25
    merge_prob: Probability = 0.75
    remove_true_prob: Probability = 1.0
    randomization: Annotated[float, Ge(1), Lt(np.inf)] = 4.0
    similarity: Literal["visits", "transitions"] = "visits"
    n_time_periods: Count = 1
    joining: Literal["random", "published"] = "random"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class SGLT(TraceModel):
    """Seed traces, clusters of places, and the transition matrix of all users."""

    # Where each user's rows begin in `seed`.
    seed_start: Int[Array, " user1"] = stored(lambda n: StoredArray((n.users + 1,), "int", 0, rises=True))
    # Places of the seed traces.
    seed: Int[Array, "seed instant"] = stored(lambda n: StoredArray(("seeds", n.instants), "int", 0, n.places - 1))
    # `cluster`, `n_kept`, `n_joining`: see `semantics.decoding.SemanticClasses`.
    cluster: Int[Array, " place"] = stored(lambda n: StoredArray((n.places,), "int", 0, n.places - 1))
    n_kept: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 1, n.places))
    n_joining: Int[Array, "distance cluster"] = stored(
        lambda n: StoredArray(("distances", "clusters"), "int", 0, n.places)
    )
    # `transition`, `first`: transition matrix of all users, and its stationary distribution. All entries are positive,
    # so that every trace of allowed places is possible.
    transition: Float[Array, "place next_place"] = stored(lambda n: StoredArray((n.places, n.places), low=TINY, high=1))
    first: Float[Array, " place"] = stored(lambda n: StoredArray((n.places,), low=TINY, high=1))
    remove_true_prob: Float[Array, ""] = stored(lambda n: StoredArray((), low=0, high=1))
    randomization: Float[Array, ""] = stored(lambda n: StoredArray((), low=1))
    # 1 if places join as in the published program.
    joins_as_published: Index = stored(lambda n: StoredArray((), "int", 0, 1))

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> SGLT:
        if arrays["cluster"].max() >= len(arrays["n_kept"]):
            raise ValueError("cluster beyond the last")
        starts = arrays["seed_start"]
        if starts[0] != 0 or (np.diff(starts) < 1).any() or starts[-1] != len(arrays["seed"]):
            raise ValueError("seeds that do not belong to one user each")
        return super().from_arrays(arrays)

    def sample_trace(self, key: OneKey, user: Index, n_instants: int) -> Int[Array, " instant"]:
        """Transform one of the user's seed traces, drawn at random."""
        of_choice, of_semantics, of_decoding = jax.random.split(key, 3)
        row = jax.random.randint(of_choice, (), self.seed_start[user], self.seed_start[user + 1])
        seed, classes = self.seed[row, :n_instants], SemanticClasses(self.cluster, self.n_kept, self.n_joining)
        allowed = semantic_seed(of_semantics, seed, classes, self.remove_true_prob, self.joins_as_published == 1)
        return decode(of_decoding, allowed, self.transition, self.first, self.randomization)

    def seed_traces(self) -> SeedTraces:
        """The training users' traces, from which synthetic traces are made."""
        start = np.asarray(self.seed_start)
        user = np.repeat(np.arange(len(start) - 1), np.diff(start))
        return SeedTraces(user, np.asarray(self.seed), len(start) - 1, len(self.first))

    @property
    def settings_found(self) -> dict[str, int]:
        """See `TraceModel`."""
        return {"n_clusters": len(self.n_kept)}

    def summary(self) -> list[str]:
        size = np.bincount(np.asarray(self.cluster))
        of_places = f"{size.min()} to {size.max()} places with a similar meaning, {(size == 1).sum()} of one place"
        return [f"{len(size)} clusters of {of_places}"]


def fit_trace_model(train: Traces, settings: SGLTSettings, seed: int, *_: object) -> SGLT:
    """Learn clusters of places with a similar meaning.

    Each period in which a user has an event at every instant is one seed trace.

    Raises `InputError`: periods with missing events, a single user, or more clusters than places.
    """
    seeds = SeedTraces.of(train)
    n_clusters = settings.n_clusters or max(1, train.n_places // PLACES_IN_CLUSTER)
    length = train.time_grid.period
    problems: list[Problem | str] = []
    if train.n_users < 2:
        way_out = "Which places have a similar meaning is learned from how users differ"
        problems.append(Problem("at least two users", f"{train.n_users}", way_out=way_out))
    if n_clusters != "modularity" and n_clusters > train.n_places:
        problems.append(Problem(f"n_clusters up to {train.n_places}, the number of places", f"{n_clusters}"))
    if settings.n_time_periods > length:
        problems.append(Problem(f"n_time_periods up to {length}, the instants of a seed", f"{settings.n_time_periods}"))
    raise_any("sglt", problems)
    n_profiles = settings.n_time_periods if settings.similarity == "visits" else 1
    per_place = (USER_PLACE_BYTES + RANK_BYTES * (n_profiles - 1)) * train.n_users
    room = int(((available_bytes() or 0) / (PLACE_PAIR_BYTES + per_place / train.n_places)) ** 0.5)
    needed = PLACE_PAIR_BYTES * train.n_places**2 + per_place * train.n_places
    require_memory("fit", needed, f"Take fewer places, about {room}")
    key = jax_stream(seed, Stage.FIT)
    if settings.similarity == "transitions":
        similarity = place_similarity_by_moves(seeds, settings.n_time_periods, key)
    else:
        similarity = place_similarity(seeds, settings.n_time_periods)
    if n_clusters == "modularity":
        return model_of_clusters(seeds, train.places, most_modular_clusters(similarity, key), settings)
    return model_of_clusters(seeds, train.places, cluster_places(similarity, n_clusters, key), settings)


def model_of_clusters(
    seeds: SeedTraces, places: PlaceTable, cluster: Int[np.ndarray, " place"], settings: SGLTSettings
) -> SGLT:
    """The model of given clusters of places, numbered 0, 1, ... without gaps."""
    n_instants = seeds.place.shape[1]
    classes = SemanticClasses.of(cluster, settings.remove_place_prob, settings.merge_prob, n_instants)
    transition = aggregate_transitions(seeds.transitions(), places)
    return SGLT(
        jnp.asarray(np.searchsorted(seeds.user, np.arange(seeds.n_users + 1)).astype(np.int32)),
        jnp.asarray(seeds.place),
        *classes,
        jnp.asarray(transition, jnp.float32),
        jnp.asarray(stationary_distribution(transition), jnp.float32),
        jnp.asarray(settings.remove_true_prob, jnp.float32),
        jnp.asarray(settings.randomization, jnp.float32),
        jnp.asarray(settings.joining == "published", jnp.int32),
    )


def claims(model: SGLT, settings: SGLTSettings) -> Claims:
    """Claims of a release of these traces."""
    notes = [
        "when the user behind a trace goes from one kind of place to another: it does so at about the same instants"
    ]
    if settings.remove_true_prob < 1:
        share = 1 - settings.remove_true_prob
        notes.append(
            f"where the user behind a trace was: at each instant, this place is allowed with probability {share:g}"
        )
    return Claims(not_protected=tuple(notes), settings={"n_clusters": str(len(model.n_kept))})


SYNTHESIZERS.register(Synthesizer("sglt", TITLE, SGLTSettings, fit_trace_model, SGLT, claims))
