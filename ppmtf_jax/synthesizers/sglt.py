"""SGLT: synthetic traces from seed traces, by places with a like meaning (Bindschaedler and Shokri 2016).

A synthetic trace is made of one trace of its input user: each place is replaced by the places that mean the same, as
work means the same wherever it is, and among these the way is taken that people are most likely to go. The places that
mean the same are learned of all users' traces.

Its traces have no likelihood that could be computed, so that the plausible-deniability test does not know them; its own
test is `privacy.semantic_test`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from annotated_types import Ge, Lt
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.runtime.devices import of_first_process
from ppmtf_jax.runtime.memory import available_bytes, require_memory
from ppmtf_jax.semantics.decoding import (
    SemanticClasses,
    aggregate_transitions,
    decode,
    semantic_seed,
    stationary_distribution,
)
from ppmtf_jax.semantics.place_clusters import cluster_places
from ppmtf_jax.semantics.seed_traces import SeedTraces
from ppmtf_jax.semantics.similarity import Profiles, place_similarity
from ppmtf_jax.settings import Count, Probability, Settings
from ppmtf_jax.streams import Stage, jax_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer
from ppmtf_jax.trace_models.base import Sizes, StoredArray, TraceModel

# Places in a cluster on average where nothing else is asked for: as published, 400 places in 100 clusters.
PLACES_IN_CLUSTER = 4
# Of each pair of places while a model is fitted, and of each user and place.
PLACE_PAIR_BYTES, USER_PLACE_BYTES = 9 * 8, 4 * 8


@dataclass(frozen=True)
class SGLTSettings(Settings):
    """Settings of SGLT; in brackets the names of Murakami et al. 2021, section 4.2, whose values are the defaults.

    Parameters
    ----------
    n_clusters : int, optional
        How many clusters of places with a like meaning (c); by default a quarter of the places. Fewer protect better.
    remove_place_prob : float
        Share of a cluster's places that a synthetic trace cannot be at (par_c), where at least 3 places stay.
    merge_prob : float
        Places of both clusters join around a change between them, d instants away the share merge_prob^(d^2) (par_m).
    remove_true_prob : float
        Probability that a synthetic trace cannot be at an instant where its input user was (par_l). The lower, the more
        of a trace is hers.
    randomization : float
        How much an unlikely way can be preferred to the most likely one, at least 1 (par_v).
    joining : "random" or "published"
        Which places of a cluster join, and when: random ones around a change of cluster; or, as in the published
        program, those of the lowest numbers, and only around a change of place that is one of cluster as well.
    """

    n_clusters: Count | None = None
    remove_place_prob: Probability = 0.25
    merge_prob: Probability = 0.75
    remove_true_prob: Probability = 1.0
    randomization: Annotated[float, Ge(1), Lt(np.inf)] = 4.0
    joining: Literal["random", "published"] = "random"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class SGLT(TraceModel):
    """Seed traces, clusters of places, and how everybody moves.

    Parameters
    ----------
    seed_start : int array, shape (users + 1,)
        Where each user's rows begin in `seed`.
    seed : int array, shape (seeds, instants)
        Places of the seed traces.
    cluster : int array, shape (places,)
    n_kept, n_joining : int arrays, shapes (clusters,) and (distances, clusters)
        See `semantics.decoding.SemanticClasses`.
    transition, first : float arrays, shapes (places, places) and (places,)
        How everybody moves, and is distributed.
    remove_true_prob, randomization : float arrays, shape ()
    joins_as_published : int array, shape ()
        1 where places join as in the published program.
    """

    seed_start: Int[Array, " user1"]
    seed: Int[Array, "seed instant"]
    cluster: Int[Array, " place"]
    n_kept: Int[Array, " cluster"]
    n_joining: Int[Array, "distance cluster"]
    transition: Float[Array, "place next_place"]
    first: Float[Array, " place"]
    remove_true_prob: Float[Array, ""]
    randomization: Float[Array, ""]
    joins_as_published: Int[Array, ""]

    def sample_trace(self, key: Key[Array, ""], user: Int[Array, ""], n_instants: int) -> Int[Array, " instant"]:
        """Transform one of the user's seed traces, each as probable as the others."""
        of_choice, of_semantics, of_decoding = jax.random.split(key, 3)
        row = jax.random.randint(of_choice, (), self.seed_start[user], self.seed_start[user + 1])
        allowed = self.allowed_places(of_semantics, self.seed[row, :n_instants])
        return decode(of_decoding, allowed, self.transition, self.first, self.randomization)

    def allowed_places(self, key: Key[Array, ""], seed: Int[Array, " instant"]) -> Bool[Array, "instant place"]:
        """Draw the places that a synthetic trace of a seed may be at; see `semantics.decoding.semantic_seed`."""
        classes = SemanticClasses(self.cluster, self.n_kept, self.n_joining)
        return semantic_seed(key, seed, classes, self.remove_true_prob, self.joins_as_published == 1)

    def summary(self) -> list[str]:
        size = np.bincount(np.asarray(self.cluster))
        alone = int((size == 1).sum())
        return [
            f"{len(size)} clusters of {size.min()} to {size.max()} places with a like meaning, {alone} of one place"
        ]

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {each.name: np.asarray(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> SGLT:
        if arrays["cluster"].max() >= len(arrays["n_kept"]):
            raise ValueError("cluster beyond the last")
        starts = arrays["seed_start"]
        if starts[0] != 0 or (np.diff(starts) < 1).any() or starts[-1] != len(arrays["seed"]):
            raise ValueError("seeds that do not belong to one user each")
        return cls(**{name: jnp.asarray(value) for name, value in arrays.items()})

    @classmethod
    def stored_arrays(cls, sizes: Sizes) -> dict[str, StoredArray]:
        places, tiny = sizes.places, np.finfo(np.float32).tiny
        return {
            "seed_start": StoredArray((sizes.users + 1,), "int", 0, rises=True),
            "seed": StoredArray(("seeds", sizes.instants), "int", 0, places - 1),
            "cluster": StoredArray((places,), "int", 0, places - 1),
            "n_kept": StoredArray(("clusters",), "int", 1, places),
            "n_joining": StoredArray(("distances", "clusters"), "int", 0, places),
            # Without zeros, so that every trace of allowed places is possible.
            "transition": StoredArray((places, places), low=float(tiny), high=1),
            "first": StoredArray((places,), low=float(tiny), high=1),
            "remove_true_prob": StoredArray((), low=0, high=1),
            "randomization": StoredArray((), low=1),
            "joins_as_published": StoredArray((), "int", 0, 1),
        }


def fit_trace_model(
    train: Traces, settings: SGLTSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> SGLT:
    """Learn which places mean the same.

    Each period in which a user has an event at every instant is one seed trace; her profile is of all of them.

    Raises
    ------
    InputError
        Periods with missing events, a single user, or more clusters than places.
    """
    del progress, checkpoints
    seeds = SeedTraces.of(train)
    n_clusters = settings.n_clusters or max(1, train.n_places // PLACES_IN_CLUSTER)
    problems: list[Problem | str] = []
    if train.n_users < 2:
        way_out = "Which places mean the same is learned of how users differ"
        problems.append(Problem("at least two users", f"{train.n_users}", way_out=way_out))
    if n_clusters > train.n_places:
        problems.append(Problem(f"n_clusters up to {train.n_places}, the number of places", f"{n_clusters}"))
    if problems:
        raise InputError("sglt", problems)
    require_memory_to_fit(train.n_users, train.n_places)
    similarity = place_similarity(Profiles.of(seeds))
    cluster = cluster_places(similarity, n_clusters, jax_stream(seed, Stage.FIT))
    # Processors of several kinds may round, and then cluster, in several ways.
    return fit_to_clusters(train, of_first_process(cluster), settings)


def fit_to_clusters(train: Traces, cluster: Int[np.ndarray, " place"], settings: SGLTSettings) -> SGLT:
    """The model of given clusters of places.

    Raises
    ------
    InputError
        Not every place has a cluster, or these are not numbered 0, 1, ... without gaps; or periods with missing events.
    """
    if len(cluster) != train.n_places or not np.array_equal(np.unique(cluster), np.arange(cluster.max() + 1)):
        found = f"{len(cluster)} numbers from {cluster.min()} to {cluster.max()}"
        expected = f"a cluster for each of {train.n_places} places, numbered 0, 1, ... without gaps"
        raise InputError("sglt", [Problem(expected, found)])
    seeds = SeedTraces.of(train)
    classes = SemanticClasses.of(
        cluster, settings.remove_place_prob, settings.merge_prob, n_instants=train.time_grid.period
    )
    transition = aggregate_transitions(seeds.transitions(), train.places)
    return SGLT(
        jnp.asarray(np.searchsorted(seeds.user, np.arange(train.n_users + 1)).astype(np.int32)),
        jnp.asarray(seeds.place),
        *classes,
        jnp.asarray(transition, jnp.float32),
        jnp.asarray(stationary_distribution(transition), jnp.float32),
        jnp.asarray(settings.remove_true_prob, jnp.float32),
        jnp.asarray(settings.randomization, jnp.float32),
        jnp.asarray(settings.joining == "published", jnp.int32),
    )


def require_memory_to_fit(n_users: int, n_places: int) -> None:
    """Refuse a fit of SGLT that would not fit into the memory, and say how many places would; see `require_memory`."""
    needed = PLACE_PAIR_BYTES * n_places**2 + USER_PLACE_BYTES * n_users * n_places
    room = int(((available_bytes() or 0) / (PLACE_PAIR_BYTES + USER_PLACE_BYTES * n_users / n_places)) ** 0.5)
    require_memory("fit", needed, f"Take fewer places, about {room}")


def claims(model: SGLT, settings: SGLTSettings) -> Claims:
    """What a release of these traces has to say."""
    del model
    notes = ["when the input user goes from one kind of place to another: a trace does so at about the same instants"]
    if settings.remove_true_prob < 1:
        share = 1 - settings.remove_true_prob
        notes.append(f"where the input user was: at each instant her own place is allowed with probability {share:g}")
    return Claims(not_protected=tuple(notes))


SYNTHESIZERS.register(
    Synthesizer(
        "sglt",
        "SGLT: a user's trace moved to other places with a like meaning, decoded by Viterbi (section 4.2)",
        SGLTSettings,
        fit_trace_model,
        SGLT,
        claims,
    )
)
