"""Bridge: synthetic people of clusters of users, with the cluster's population and realistic moves.

Each cluster of users has its own distribution over places in every slot. Its synthetic people have these distributions,
and their moves are as near as possible to the moves of the population. Three kinds of people are possible. The data
decide what people remember, and whether they have an event at every instant or check in now and then:

- a Markov chain between slots, without memory (`bridge.chains`);
- people who remember the places of their trace, and maybe have a home and a second place (`bridge.people`);
- windows of up to 28 days in which people check in now and then (`bridge.checkins`).

A trace is equally probable for all users of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.chains import fit_chains
from ppmtf_jax.bridge.checkins.fit import first_visits, fit_checkins
from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.bridge.checkins.sparsity import Sparsity
from ppmtf_jax.bridge.clusters import Clusters, clusters_of_users, find_clusters
from ppmtf_jax.bridge.contributions import CHECKIN_RULES, NO_RULE, PEOPLE_RULES, RULES
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoother
from ppmtf_jax.bridge.memory import require_memory_to_fit
from ppmtf_jax.bridge.moves import MoveCounts, Movement
from ppmtf_jax.bridge.people.calibration import QUICK
from ppmtf_jax.bridge.people.choice import Memory
from ppmtf_jax.bridge.people.fit import fit_people
from ppmtf_jax.bridge.people.likelihood import held_out as people_held_out
from ppmtf_jax.bridge.people.model import RememberingBridge
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.tuning import MOST_USERS, POPULATION_START, BridgeChoice, choose, choose_population, with_numbers
from ppmtf_jax.bridge.visits import PopulationSmoothing, VisitCounts, population
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.traces import Traces, TraceSet
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.runtime.threads import one_thread
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.bridge_choice import chain_log_likelihood, choose_memory, table_of
from ppmtf_jax.synthesizers.bridge_model import CHOSEN, ClusterBridge
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer

TITLE = "People of clusters of users, with the cluster's population, realistic moves, and a memory"
# Maximum number of last Sinkhorn iterations for chains that are only compared. They need not be fitted to the end: if
# the number of people at a place changes by 1 %, the likelihood of held-out users hardly changes.
QUICK_SCALINGS = 50
# For traces with gaps: the smoothing of the population of first visits, and the number of paces.
N_CHOSEN_OF_CHECKINS = len(PopulationSmoothing._fields) + 1
Model = ClusterBridge | RememberingBridge | CheckinBridge


@dataclass(frozen=True)
class BridgeSettings(Settings):
    """Settings of the bridge; all other parameters are chosen by held-out likelihood, see `bridge.tuning`.

    Parameters
    ----------
    min_cluster_users : int
        Minimum number of users in a cluster, and so also the minimum number of training users. A trace is equally
        probable for all users of a cluster, so a larger minimum protects better. With all users as verifiers, every
        trace passes the privacy test with a k up to this minimum. The default is twice the default k of the test: if
        the test draws only half of the users as verifiers, a cluster still has about k of them.
    n_clusters : int, optional
        Number of clusters at the start; clusters with too few users are dissolved. By default it is chosen by held-out
        likelihood.
    memory : {"auto", "none", "places", "anchors"}
        What the people of complete traces remember: nothing, the places of their trace, or also a home and a second
        place. By default it is chosen by the likelihood of held-out training users.
    gaps : {"auto", "as-observed", "none"}
        Whether traces have events now and then, as the training traces do ("as-observed"), or at every instant
        ("none"). By default, traces have gaps if three conditions hold: the time grid has a whole day from midnight on,
        the training traces are sparse (see `bridge.checkins.sparsity.Sparsity`), and `memory` is not given.
    chosen : list of numbers, optional
        What another fit chose by held-out likelihood, see `FittedModel.settings_found`: the smoothing, the number of
        clusters and, for traces with gaps, the number of paces. With these numbers, a fit takes less time. By default,
        the fit makes these choices itself.
    """

    min_cluster_users: Count = 20
    n_clusters: Count | None = None
    memory: Literal["auto", "none", "places", "anchors"] = "auto"
    gaps: Literal["auto", "as-observed", "none"] = "auto"
    chosen: tuple[float, ...] | None = None

    def problems(self) -> list[Problem | str]:
        """Problems of `chosen`, and of a `memory` for traces with gaps, whose model has a memory of its own."""
        n_chosen = len(CHOSEN) + (N_CHOSEN_OF_CHECKINS if self.gaps == "as-observed" else 0)
        if self.chosen is not None and (self.gaps == "auto" or len(self.chosen) != n_chosen):
            return [Problem("memory, gaps and chosen as another model of the bridge found them", "others")]
        if self.gaps == "as-observed" and self.memory != "auto":
            way_out = 'Leave memory out, or set gaps to "none"'
            return [Problem('memory only with gaps = "none"', f"memory = {self.memory!r}", way_out=way_out)]
        return []


def fit_trace_model(
    train: TraceSet, settings: BridgeSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> Model:
    """Choose the smoothing, find the clusters, and learn how the people of each cluster move."""
    del checkpoints
    _require_users(train, settings.min_cluster_users)
    require_memory_to_fit(train, settings.n_clusters, settings.min_cluster_users)
    # With several threads, the many small products of NumPy would take several times as long.
    with one_thread():
        return _fit(train.for_many_passes(), settings, seed, progress)


def _fit(train: TraceSet, settings: BridgeSettings, seed: int, progress: bool) -> Model:
    min_users, n_clusters = settings.min_cluster_users, settings.n_clusters
    space, visits, grid = space_of(train.places), train.blocks.map(VisitCounts.of), train.time_grid
    may_have_gaps = settings.gaps == settings.memory == "auto" and grid.has_whole_day()
    facts = Sparsity.of(train) if may_have_gaps else None
    has_gaps = settings.gaps == "as-observed" or (facts is not None and facts.is_sparse)
    if settings.chosen is None:
        choice = choose(
            train,
            space,
            min_users=min_users,
            n_clusters=n_clusters,
            random=numpy_stream(seed, Stage.TUNING),
            of_moves=not has_gaps,
            progress=progress,
        )
    else:
        choice = BridgeChoice.of_numbers(settings.chosen[: len(CHOSEN)], {})
        smoothing = choice.clusters._replace(n_clusters=n_clusters or choice.clusters.n_clusters)
        choice = choice._replace(clusters=smoothing)
    of_user = find_clusters(
        visits,
        lambda users: VisitCounts.of(train.select_users(users)),
        ClusterSmoother(population(visits, choice.population, grid), space, choice.clusters, grid),
        space,
        choice.clusters,
        n_users=train.n_users,
        min_users=min_users,
        random=numpy_stream(seed, Stage.FIT),
        progress=progress,
    )
    if has_gaps:
        # Models of check-ins have a law of returns, so returns must not count in their distributions over places.
        first = train.blocks.map(first_visits).map(VisitCounts.of)
        if settings.chosen is None:
            random = numpy_stream(seed, Stage.TUNING, 1)
            some = train.select_users(np.sort(random.permutation(train.n_users)[:MOST_USERS]))
            of_first, n_paces = choose_population(VisitCounts.of(first_visits(some)), grid, random), None
        else:
            *numbers, n_paces = settings.chosen[len(CHOSEN) :]
            of_first, n_paces = with_numbers(POPULATION_START, numbers), int(n_paces)
        smoother = ClusterSmoother(population(first, of_first, grid), space, choice.clusters, grid)
        clusters = clusters_of_users(first, smoother, of_user)
        model = fit_checkins(train, clusters, n_paces=n_paces, seed=seed, progress=progress)
        model = replace(model, chosen=jnp.asarray([*choice.numbers, *of_first], jnp.float32))
        return model if facts is None else replace(model, facts=jnp.asarray(facts, jnp.float32))
    memory, gain = settings.memory, None
    if memory == "auto":
        score = partial(_score, choice=choice, seed=seed)
        memory, gain = choose_memory(train, of_user, score, numpy_stream(seed, Stage.MEMORY), progress)
    if memory == "none":
        model = fit_to_clusters(train, of_user, choice, progress)
    else:
        anchors = memory == "anchors"
        model = fit_people(train, of_user, choice, anchors=anchors, seed=seed, progress=progress)
        model = replace(model, chosen=jnp.asarray(choice.numbers, jnp.float32))
    return model if gain is None else replace(model, memory_gain=jnp.asarray(gain))


def _score(
    memory: Memory,
    learned: Traces,
    of_learned: Int[np.ndarray, " user"],
    held_out: Traces,
    *,
    choice: BridgeChoice,
    seed: int,
) -> Float[np.ndarray, " held_out"]:
    """Log-likelihood of each held-out user under a model that is quickly fitted to other users."""
    if memory != "none":
        anchors = memory == "anchors"
        people = fit_people(learned, of_learned, choice, anchors=anchors, seed=seed, effort=QUICK)
        return people_held_out(people, *table_of(held_out))
    chain, clusters = _chains_and_clusters(learned, of_learned, choice, most_last_scalings=QUICK_SCALINGS)
    return chain_log_likelihood(chain, clusters, held_out)


def _require_users(train: TraceSet, min_cluster_users: int) -> None:
    n_users = int(train.has_events.sum())
    if n_users < min_cluster_users:
        way_out = (
            "Give traces of more users, or set min_cluster_users lower. With a lower min_cluster_users, a trace is "
            "equally probable for fewer users, and reveals more about each of them"
        )
        expected = f"at least {counted(min_cluster_users, 'training user')}, one cluster of min_cluster_users"
        raise InputError("fit", [Problem(expected, str(n_users), way_out=way_out)])


def fit_to_clusters(
    train: TraceSet, of_user: Int[np.ndarray, " user"], choice: BridgeChoice, progress: bool = False
) -> ClusterBridge:
    """Fit the Markov chains of the given clusters, numbered 0, 1, ... without gaps."""
    return _chains_and_clusters(train, of_user, choice, progress)[0]


def _chains_and_clusters(
    train: TraceSet,
    of_user: Int[np.ndarray, " user"],
    choice: BridgeChoice,
    progress: bool = False,
    most_last_scalings: int | None = None,
) -> tuple[ClusterBridge, Clusters]:
    """The chains and the smoothed clusters; `most_last_scalings` as in `fit_chains`."""
    grid, space, visits = train.time_grid, space_of(train.places), train.blocks.map(VisitCounts.of)
    shares = population(visits, choice.population, grid)
    clusters = clusters_of_users(visits, ClusterSmoother(shares, space, choice.clusters, grid), of_user)
    movement = Movement.of(MoveCounts.of(train.blocks.map(Transitions.of), shares, space, grid), choice.moves)
    slots = grid.one_period().slot_of_instant
    given = (clusters.visits, clusters.share, movement, slots)
    chains = fit_chains(*given, most_last_scalings=most_last_scalings, progress=progress)
    present = np.bincount(of_user[train.has_events], minlength=len(clusters.share))
    return ClusterBridge.of(clusters, present, chains, movement.counts, slots, choice), clusters


def claims(model: Model, settings: BridgeSettings) -> Claims:
    """Claims of a release of these traces."""
    cluster = (
        "what the users of a cluster have in common. They are at similar places at similar hours. Of all clusters, the "
        f"smallest has {counted(int(np.asarray(model.n_present).min()), 'user')}. All users of a cluster share one "
        "law of traces, and the privacy test compares users. So the test passes every trace once its cluster has k "
        "users, and it says nothing about what the cluster as a whole gives away"
    )
    held_out, found = "by the likelihood of held-out users", settings_found(model)
    in_words = {"memory": found.get("memory", "that of people who check in"), "gaps": found["gaps"]}
    in_words["chosen"] = "as another fit chose" if settings.chosen else held_out
    in_words |= {} if settings.n_clusters else {"n_clusters": f"chosen {held_out}"}
    rules = RULES
    if isinstance(model, RememberingBridge):
        rules += PEOPLE_RULES
    elif isinstance(model, CheckinBridge):
        rules += CHECKIN_RULES
    return Claims(not_protected=(cluster, NO_RULE), rules=rules, settings=in_words)


def settings_found(model: Model) -> dict[str, Any]:
    """All choices by held-out likelihood, but nothing that is learned from counts, such as the clusters of users.

    The choices are at most twenty numbers. Most of them come from coarse grids, and they hardly depend on a single
    user.
    """
    chosen = () if model.chosen is None else tuple(np.asarray(model.chosen).tolist())
    if isinstance(model, CheckinBridge):
        n_paces = model.pace_share.shape[1]
        return {"gaps": "as-observed", "chosen": (*chosen, n_paces) if chosen else None}
    memory = "none"
    if isinstance(model, RememberingBridge):
        memory = "places" if model.home is None else "anchors"
    return {"memory": memory, "gaps": "none", "chosen": chosen or None}


OTHER_MODELS = (RememberingBridge, CheckinBridge)
SYNTHESIZERS.register(
    Synthesizer(
        "bridge",
        TITLE,
        BridgeSettings,
        fit_trace_model,
        ClusterBridge,
        claims,
        OTHER_MODELS,
        in_blocks=True,
        settings_found=settings_found,
    )
)
