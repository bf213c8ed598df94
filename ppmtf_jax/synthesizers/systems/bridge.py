"""Bridge: synthetic people of clusters of users, with the cluster's population and realistic moves.

Each cluster of users has its own distribution over places in every slot. Its synthetic people have these distributions,
and their moves are as near as possible to the moves of the population. Three kinds of people are possible. The data
decide what people remember, and whether they have an event at every instant or check in now and then:

- a Markov chain between slots, without memory (`people.chain`);
- people who remember the places of their trace, and maybe have a home and a second place (`people.process`);
- windows of up to 28 days in which people check in now and then (`people.checkin_process`).

A trace is equally probable for all users of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.blocks import BLOCK_USERS
from ppmtf_jax.data.description import counted
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.people.bins import MAX_REMEMBERED
from ppmtf_jax.people.calibration import QUICK
from ppmtf_jax.people.chain import ClusterBridge, fit_chain
from ppmtf_jax.people.chain import held_out as chain_held_out
from ppmtf_jax.people.clusters import ClusterSmoother, find_clusters, population_and_clusters
from ppmtf_jax.people.counts import VisitCounts, population
from ppmtf_jax.people.fit import first_visits, fit_checkins, fit_people
from ppmtf_jax.people.likelihood import held_out as people_held_out
from ppmtf_jax.people.model import CheckinBridge, RememberingBridge
from ppmtf_jax.people.person import table_of
from ppmtf_jax.people.selection import (
    CLUSTER_NUMBERS,
    Memory,
    Selection,
    choose_memory,
    choose_population,
    select,
    some_users,
)
from ppmtf_jax.people.space import require_few_places, space_of
from ppmtf_jax.people.user_bounds import NO_RULE
from ppmtf_jax.people.windows import Sparsity
from ppmtf_jax.runtime.memory import available_bytes, require_memory
from ppmtf_jax.runtime.threads import one_thread
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Claims, Synthesizer

TITLE = "People of clusters of users, with the cluster's population, realistic moves, and a memory"
# Maximum number of last Sinkhorn iterations for chains that are only compared. They need not be fitted to the end: if
# the number of people at a place changes by 1 %, the likelihood of held-out users hardly changes.
QUICK_SCALINGS = 50
# Estimate of the memory of a fit, in bytes: compiled programs and tables of cells x cells; each event of the blocks
# that threads count at the same time, as int64 in a few copies; each entry of a table, six copies in single precision.
CONSTANT_BYTES, EVENT_BYTES, BLOCKS_AT_ONCE, TABLE_BYTES = 300 * 2**20, 200, 4, 6 * 4
# Tables of the places beside those of clusters: ten folds of the users in each slot while settings are selected; and
# for each cluster, people who remember by class of mobility and dwell time.
FOLD_TABLES, CROWD_TABLES = 16, 12
# Measured: 200 users who visit 8 places, in tables of 1,000 and 10,000 places, on two cores shared with other work.
PLACE_S = 0.004
Model = ClusterBridge | RememberingBridge | CheckinBridge


@dataclass(frozen=True)
class BridgeSettings(Settings):
    """Settings of the bridge; all other parameters are chosen by held-out likelihood, see `people.selection`.

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
        the training traces are sparse (see `people.windows.Sparsity`), and `memory` is not given.
    chosen : Selection, optional
        What another fit selected by held-out likelihood, see `FittedModel.settings_found`: the smoothing, the number of
        clusters and, for traces with gaps, the number of activity levels. With these numbers, a fit takes less time. By
        default, the fit selects them itself.
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
    """Do traces have gaps? Which smoothing? Which clusters? What do people remember? Then fit people of this kind."""
    del checkpoints
    _require_users(train, settings.min_cluster_users)
    require_memory_to_fit(train, settings.n_clusters, settings.min_cluster_users)
    # With several threads, the many small products of NumPy would take several times as long.
    with one_thread():
        train, grid = train.for_many_passes(), train.time_grid
        may_have_gaps = settings.gaps == settings.memory == "auto" and grid.has_whole_day()
        facts = Sparsity.of(train) if may_have_gaps else None
        has_gaps = settings.gaps == "as-observed" or (facts is not None and facts.is_sparse)
        selection = _select(train, settings, has_gaps, seed, progress)
        of_user = _find_clusters(train, selection, settings.min_cluster_users, seed, progress)
        if has_gaps:
            return _fit_checkins(train, of_user, selection, facts, seed, progress)
        memory, gain = settings.memory, None
        if memory == "auto":

            def score(
                memory: Memory, learned: Traces, of_learned: Int[np.ndarray, " user"], held_out: Traces
            ) -> Float[np.ndarray, " held_out"]:
                """Log-likelihood of each held-out user under a model that is quickly fitted to other users."""
                if memory == "none":
                    found = fit_chain(learned, of_learned, selection, most_last_scalings=QUICK_SCALINGS)
                    return chain_held_out(*found, held_out)
                anchors = memory == "anchors"
                people = fit_people(learned, of_learned, selection, anchors=anchors, seed=seed, effort=QUICK)
                return people_held_out(people, *table_of(held_out))

            random = numpy_stream(seed, Stage.MEMORY)
            memory, gain = choose_memory(train, of_user, score, MAX_REMEMBERED, random, progress)
        # A memory under which a held-out event is impossible gains -inf; a model folder holds finite numbers.
        why = {} if gain is None else {"memory_gain": np.maximum(gain, -1e3)}
        if memory == "none":
            return fit_chain(train, of_user, selection, why, progress=progress)[0]
        why["chosen"] = selection.numbers
        anchors = memory == "anchors"
        return fit_people(train, of_user, selection, anchors=anchors, seed=seed, selected=why, progress=progress)


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
    # Models of check-ins model returns apart, so returns must not count in their distributions over places.
    visits, space = train.blocks.map(first_visits).map(VisitCounts.of), space_of(train.places)
    smoothing = selection.first_visits or selection.population, selection.clusters
    clusters = population_and_clusters(visits, of_user, *smoothing, space, train.time_grid)[1]
    why = {"chosen": selection.numbers} | ({} if facts is None else {"facts": np.array(facts)})
    return fit_checkins(train, clusters, n_levels=selection.n_levels, seed=seed, selected=why, progress=progress)


def _require_users(train: Traces, min_cluster_users: int) -> None:
    n_users = int(train.has_events.sum())
    if n_users < min_cluster_users:
        way_out = (
            "Give traces of more users, or set min_cluster_users lower. With a lower min_cluster_users, a trace is "
            "equally probable for fewer users, and reveals more about each of them"
        )
        expected = f"at least {counted(min_cluster_users, 'training user')}, one cluster of min_cluster_users"
        raise InputError("fit", [Problem(expected, str(n_users), way_out=way_out)])


def bytes_to_fit(train: Traces, n_clusters: int) -> int:
    """Estimated peak memory of fitting `n_clusters` clusters, in bytes; chains and people are fitted in turn."""
    n_slots, slots = train.time_grid.n_slots, train.time_grid.one_period().slot_of_instant
    n_pairs = len(np.unique(np.stack([slots[:-1], slots[1:]]), axis=1).T)
    n_counted = min(train.n_users, BLOCKS_AT_ONCE * BLOCK_USERS)
    n_times = train.time_grid.period * (1 + (train.time_grid.n_instants > train.time_grid.period))
    tables = n_slots * (n_clusters + FOLD_TABLES) + n_clusters * max(n_pairs, n_times + CROWD_TABLES)
    of_events = EVENT_BYTES * (train.n_events * n_counted // train.n_users)
    return CONSTANT_BYTES + of_events + TABLE_BYTES * train.n_places * tables


def require_memory_to_fit(train: Traces, n_clusters: int | None, min_cluster_users: int) -> None:
    """Refuse a fit that needs too much memory, and name a number of clusters that fits; see `require_memory`."""
    most = max(1, min(n_clusters or max(CLUSTER_NUMBERS), train.n_users // min_cluster_users))
    fixed, needed = bytes_to_fit(train, 0), bytes_to_fit(train, most)
    room = ((available_bytes() or 0) - fixed) // (bytes_to_fit(train, 1) - fixed)
    only_visited = Message(", or keep only those that people visit: import with ", Setting("min_users_per_place", 2))
    require_few_places(train.n_places, needed, PLACE_S, only_visited)
    require_memory("fit", needed, f"Set n_clusters={room}" if room >= 1 else "Take fewer users, places or slots")


def claims(model: Model, settings: BridgeSettings) -> Claims:
    """Claims of a release of these traces."""
    cluster = (
        "what the users of a cluster have in common. They are at similar places at similar hours. Of all clusters, the "
        f"smallest has {counted(int(np.asarray(model.n_present).min()), 'user')}. All users of a cluster share one "
        "distribution of traces, and the privacy test compares users. So the test passes every trace once its cluster "
        "has k users, and it says nothing about what the cluster as a whole gives away"
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
    chosen = None if model.chosen is None else Selection.of_numbers(np.asarray(model.chosen), n_levels=model.n_levels)
    return {**model.kind_found, "chosen": chosen}


SYNTHESIZERS.register(
    Synthesizer(
        "bridge",
        TITLE,
        BridgeSettings,
        fit_trace_model,
        ClusterBridge,
        claims,
        (RememberingBridge, CheckinBridge),
        in_blocks=True,
        settings_found=settings_found,
    )
)
