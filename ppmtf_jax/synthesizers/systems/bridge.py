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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.attraction import MoveCounts, Movement
from ppmtf_jax.bridge.chains import fit_chains
from ppmtf_jax.bridge.checkins.fit import first_visits, fit_checkins
from ppmtf_jax.bridge.checkins.model import CheckinBridge
from ppmtf_jax.bridge.checkins.observed_windows import Sparsity
from ppmtf_jax.bridge.clusters import Clusters, ClusterSmoother, find_clusters, population_and_clusters
from ppmtf_jax.bridge.counts import Transitions, VisitCounts, population
from ppmtf_jax.bridge.memory import require_memory_to_fit
from ppmtf_jax.bridge.people.calibration import QUICK
from ppmtf_jax.bridge.people.fit import fit_people
from ppmtf_jax.bridge.people.law import MAX_REMEMBERED
from ppmtf_jax.bridge.people.likelihood import held_out as people_held_out
from ppmtf_jax.bridge.people.model import RememberingBridge
from ppmtf_jax.bridge.people.trails import table_of
from ppmtf_jax.bridge.selection import Memory, Selection, choose_memory, choose_population, select, some_users
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.user_bounds import NO_RULE
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.runtime.threads import one_thread
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.bridge_model import ClusterBridge
from ppmtf_jax.synthesizers.bridge_model import held_out as chain_held_out
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer

TITLE = "People of clusters of users, with the cluster's population, realistic moves, and a memory"
# Maximum number of last Sinkhorn iterations for chains that are only compared. They need not be fitted to the end: if
# the number of people at a place changes by 1 %, the likelihood of held-out users hardly changes.
QUICK_SCALINGS = 50
Model = ClusterBridge | RememberingBridge | CheckinBridge


@dataclass(frozen=True)
class BridgeSettings(Settings):
    """Settings of the bridge; all other parameters are chosen by held-out likelihood, see `bridge.selection`.

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
        the training traces are sparse (see `bridge.checkins.observed_windows.Sparsity`), and `memory` is not given.
    chosen : Selection, optional
        What another fit selected by held-out likelihood, see `FittedModel.settings_found`: the smoothing, the number of
        clusters and, for traces with gaps, the number of paces. With these numbers, a fit takes less time. By default,
        the fit selects them itself.
    """

    min_cluster_users: Count = 20
    n_clusters: Count | None = None
    memory: Literal["auto", "none", "places", "anchors"] = "auto"
    gaps: Literal["auto", "as-observed", "none"] = "auto"
    chosen: Selection | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chosen is not None:
            # No fit uses the gains, and a model folder cannot store them: the keys of JSON are texts.
            object.__setattr__(self, "chosen", self.chosen._replace(gains={}))

    def problems(self) -> list[Problem | str]:
        """Problems of `chosen`, and of a `memory` for traces with gaps, whose model has a memory of its own."""
        chosen, of_checkins = self.chosen, self.gaps == "as-observed"
        if chosen is not None and (self.gaps == "auto" or (chosen.first_visits is not None) != of_checkins):
            return [Problem("memory, gaps and chosen as another model of the bridge found them", "others")]
        if of_checkins and self.memory != "auto":
            way_out = 'Leave memory out, or set gaps to "none"'
            return [Problem('memory only with gaps = "none"', f"memory = {self.memory!r}", way_out=way_out)]
        return []


def fit_trace_model(
    train: Traces, settings: BridgeSettings, seed: int, progress: bool = False, checkpoints: Checkpoints | None = None
) -> Model:
    """Select the smoothing, find the clusters, and learn how the people of each cluster move."""
    del checkpoints
    _require_users(train, settings.min_cluster_users)
    require_memory_to_fit(train, settings.n_clusters, settings.min_cluster_users)
    # With several threads, the many small products of NumPy would take several times as long.
    with one_thread():
        return _fit(train.for_many_passes(), settings, seed, progress)


def _fit(train: Traces, settings: BridgeSettings, seed: int, progress: bool) -> Model:
    may_have_gaps = settings.gaps == settings.memory == "auto" and train.time_grid.has_whole_day()
    facts = Sparsity.of(train) if may_have_gaps else None
    has_gaps = settings.gaps == "as-observed" or (facts is not None and facts.is_sparse)
    selection = _select(train, settings, has_gaps, seed, progress)
    of_user = _find_clusters(train, selection, settings.min_cluster_users, seed, progress)
    if has_gaps:
        return _fit_checkins(train, of_user, selection, facts, seed, progress)
    memory, gain = settings.memory, None
    if memory == "auto":
        score, random = partial(_score, selection=selection, seed=seed), numpy_stream(seed, Stage.MEMORY)
        memory, gain = choose_memory(train, of_user, score, MAX_REMEMBERED, random, progress)
    why = {} if gain is None else {"memory_gain": gain}
    if memory == "none":
        return chains_and_clusters(train, of_user, selection, why, progress=progress)[0]
    why["chosen"] = selection.numbers
    return fit_people(
        train, of_user, selection, anchors=memory == "anchors", seed=seed, selected=why, progress=progress
    )


def _select(train: Traces, settings: BridgeSettings, has_gaps: bool, seed: int, progress: bool) -> Selection:
    """The smoothing and the number of clusters: by held-out likelihood, or as the settings say."""
    n_clusters = settings.n_clusters
    if settings.chosen is not None:
        clusters = settings.chosen.clusters
        return settings.chosen._replace(clusters=clusters._replace(n_clusters=n_clusters or clusters.n_clusters))
    found = select(
        train,
        space_of(train.places),
        min_users=settings.min_cluster_users,
        n_clusters=n_clusters,
        random=numpy_stream(seed, Stage.TUNING),
        of_moves=not has_gaps,
        progress=progress,
    )
    if not has_gaps:
        return found
    random = numpy_stream(seed, Stage.TUNING, 1)
    first = VisitCounts.of(first_visits(some_users(train, random)))
    return found._replace(first_visits=choose_population(first, train.time_grid, random))


def _find_clusters(
    train: Traces, selection: Selection, min_users: int, seed: int, progress: bool
) -> Int[np.ndarray, " user"]:
    visits, space, grid = train.blocks.map(VisitCounts.of), space_of(train.places), train.time_grid
    return find_clusters(
        visits,
        lambda users: VisitCounts.of(train.select_users(users)),
        ClusterSmoother(population(visits, selection.population, grid), space, selection.clusters, grid),
        n_users=train.n_users,
        min_users=min_users,
        random=numpy_stream(seed, Stage.FIT),
        progress=progress,
    )


def _fit_checkins(
    train: Traces,
    of_user: Int[np.ndarray, " user"],
    selection: Selection,
    facts: Sparsity | None,
    seed: int,
    progress: bool,
) -> CheckinBridge:
    # Models of check-ins have a law of returns, so returns must not count in their distributions over places.
    visits, space = train.blocks.map(first_visits).map(VisitCounts.of), space_of(train.places)
    smoothing = selection.first_visits or selection.population, selection.clusters
    clusters = population_and_clusters(visits, of_user, *smoothing, space, train.time_grid)[1]
    why = {"chosen": selection.numbers} | ({} if facts is None else {"facts": np.array(facts)})
    return fit_checkins(train, clusters, n_paces=selection.n_paces, seed=seed, selected=why, progress=progress)


def _score(
    memory: Memory,
    learned: Traces,
    of_learned: Int[np.ndarray, " user"],
    held_out: Traces,
    *,
    selection: Selection,
    seed: int,
) -> Float[np.ndarray, " held_out"]:
    """Log-likelihood of each held-out user under a model that is quickly fitted to other users."""
    if memory == "none":
        chain, clusters = chains_and_clusters(learned, of_learned, selection, most_last_scalings=QUICK_SCALINGS)
        return chain_held_out(chain, clusters, held_out)
    people = fit_people(learned, of_learned, selection, anchors=memory == "anchors", seed=seed, effort=QUICK)
    return people_held_out(people, *table_of(held_out))


def _require_users(train: Traces, min_cluster_users: int) -> None:
    n_users = int(train.has_events.sum())
    if n_users < min_cluster_users:
        way_out = (
            "Give traces of more users, or set min_cluster_users lower. With a lower min_cluster_users, a trace is "
            "equally probable for fewer users, and reveals more about each of them"
        )
        expected = f"at least {counted(min_cluster_users, 'training user')}, one cluster of min_cluster_users"
        raise InputError("fit", [Problem(expected, str(n_users), way_out=way_out)])


def chains_and_clusters(
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
    present = np.bincount(of_user[train.has_events], minlength=len(clusters.share))
    return ClusterBridge.of(clusters, present, chains, slots, selection, selected or {}), clusters


def claims(model: Model, settings: BridgeSettings) -> Claims:
    """Claims of a release of these traces."""
    cluster = (
        "what the users of a cluster have in common. They are at similar places at similar hours. Of all clusters, the "
        f"smallest has {counted(int(np.asarray(model.n_present).min()), 'user')}. All users of a cluster share one "
        "law of traces, and the privacy test compares users. So the test passes every trace once its cluster has k "
        "users, and it says nothing about what the cluster as a whole gives away"
    )
    held_out = "by the likelihood of held-out users"
    in_words = {"memory": "that of people who check in", **model.kind_found}
    in_words["chosen"] = "as another fit chose" if settings.chosen else held_out
    in_words |= {} if settings.n_clusters else {"n_clusters": f"chosen {held_out}"}
    return Claims(not_protected=(cluster, NO_RULE), rules=model.rules, settings=in_words)


def settings_found(model: Model) -> dict[str, Any]:
    """All choices by held-out likelihood, but nothing that is learned from counts, such as the clusters of users.

    The choices are at most twenty numbers. Most of them come from coarse grids, and they hardly depend on a single
    user.
    """
    chosen = None if model.chosen is None else Selection.of_numbers(np.asarray(model.chosen), n_paces=model.n_paces)
    return {**model.kind_found, "chosen": chosen}


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
