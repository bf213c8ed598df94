"""Cluster bridge: one Markov chain per cluster of users, with the cluster's population and realistic moves.

Metropolis-Hastings turns rejected proposals into stays, so traces of PPMTF stay at places where people would move on.
Here each cluster of users has its own distribution over places in every slot. The chain between two slots has these
distributions, and its moves are as near as possible to the population's (see `bridge.chains`). A trace is equally
probable for all users of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ppmtf_jax.bridge.chains import fit_chains
from ppmtf_jax.bridge.clusters import clusters_of_users, fit_clusters
from ppmtf_jax.bridge.contributions import NO_RULE, RULES
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoother
from ppmtf_jax.bridge.memory import require_memory_to_fit
from ppmtf_jax.bridge.moves import MoveCounts, Movement
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.tuning import BridgeChoice, choose
from ppmtf_jax.bridge.visits import VisitCounts, population
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.bridge_model import ClusterBridge
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer

TITLE = "Cluster bridge: one Markov chain per cluster of users, with the cluster's population and realistic moves"


@dataclass(frozen=True)
class BridgeSettings(Settings):
    """Settings of the cluster bridge; all other parameters are chosen by held-out likelihood, see `bridge.tuning`.

    Parameters
    ----------
    min_cluster_users : int
        Minimum number of users in a cluster, and so of training users. A trace is equally probable for all users of a
        cluster, so a larger minimum protects better. The default is twice the k of the privacy test, since half of the
        users are verifiers.
    n_clusters : int, optional
        Number of clusters at the start; clusters with too few users are dissolved. By default it is chosen by held-out
        likelihood.
    """

    min_cluster_users: Count = 20
    n_clusters: Count | None = None


def fit_trace_model(
    train: Traces,
    settings: BridgeSettings,
    seed: int,
    progress: bool = False,
    checkpoints: Checkpoints | None = None,
) -> ClusterBridge:
    """Choose the smoothing, find the clusters, and fit their chains."""
    del checkpoints
    min_users, n_clusters = settings.min_cluster_users, settings.n_clusters
    _require_users(train, min_users)
    require_memory_to_fit(train, n_clusters, min_users)
    space, visits = space_of(train.places), VisitCounts.of(train)
    random = numpy_stream(seed, Stage.TUNING)
    choice = choose(train, visits, space, min_users=min_users, n_clusters=n_clusters, random=random, progress=progress)
    clusters = fit_clusters(
        visits,
        population(visits, choice.population, train.time_grid),
        space,
        choice.clusters,
        time_grid=train.time_grid,
        min_users=min_users,
        random=numpy_stream(seed, Stage.FIT),
        progress=progress,
    )
    return fit_to_clusters(train, clusters.of_user, choice, progress)


def _require_users(train: Traces, min_cluster_users: int) -> None:
    n_users = len(np.unique(train.user))
    if n_users < min_cluster_users:
        way_out = (
            "Give traces of more users, or set min_cluster_users lower. With a lower min_cluster_users, a trace is "
            "equally probable for fewer users, and reveals more about each of them"
        )
        expected = f"at least {counted(min_cluster_users, 'training user')}, one cluster of min_cluster_users"
        raise InputError("fit", [Problem(expected, str(n_users), way_out=way_out)])


def fit_to_clusters(
    train: Traces, of_user: Int[np.ndarray, " user"], choice: BridgeChoice, progress: bool = False
) -> ClusterBridge:
    """Fit the chains of given clusters, which are numbered 0, 1, ... without gaps."""
    grid, space, visits = train.time_grid, space_of(train.places), VisitCounts.of(train)
    shares = population(visits, choice.population, grid)
    clusters = clusters_of_users(visits, ClusterSmoother(shares, space, choice.clusters, grid), of_user)
    movement = Movement.of(MoveCounts.of(Transitions.of(train), shares, space, grid), choice.moves)
    slots = grid.one_period().slot_of_instant
    chains = fit_chains(clusters.visits, clusters.share, movement, slots, progress=progress)
    present = np.bincount(of_user[np.unique(train.user)], minlength=len(clusters.share))
    return ClusterBridge.of(clusters, present, chains, movement.counts, slots, choice)


MEMBERSHIP_FOUND = (
    "that a person's data was used at all. This was measured on real data (people flow, 500 users, ten traces of "
    "each). An attacker fits models to other people's data and uses them to calibrate the attack for each person. This "
    "attacker tells training users from others with an AUC of 0.74, and finds 10 % of the training users at 1 % "
    "false alarms"
)
"""Result of a membership attack on real data."""


def claims(model: ClusterBridge, settings: BridgeSettings) -> Claims:
    """Claims of a release of these traces."""
    del settings
    cluster = (
        "what the users of a cluster have in common. They are at similar places at similar hours. Of all clusters, the "
        f"smallest has {counted(int(np.asarray(model.n_present).min()), 'user')}. All users of a cluster share one "
        "chain, and the privacy test compares users. So the test passes every trace once its cluster has k users, and "
        "it says nothing about what the cluster as a whole gives away"
    )
    return Claims(RULES, (cluster, NO_RULE, MEMBERSHIP_FOUND))


SYNTHESIZERS.register(Synthesizer("bridge", TITLE, BridgeSettings, fit_trace_model, ClusterBridge, claims))
