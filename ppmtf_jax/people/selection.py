"""Selection of the bridge's settings by the likelihood of held-out training users.

Some of the training users are held out, and the model is learned from the others. The chosen settings are those that
make the data of the held-out users most probable. Neither test users nor metrics are used. Settings are searched one
after the other, in two rounds (one round for the clusters). The number of clusters is the smallest one whose likelihood
is within one standard error of the best: fewer clusters reveal less. What people remember is chosen alike: the simplest
memory within one standard error of the best. The weight of a user and the numbers of users that a count needs are not
chosen by likelihood, since that would choose weaker protection: see `user_bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import logsumexp

from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.attraction import MoveCounts, Movement, MoveSmoothing
from ppmtf_jax.people.clusters import ClusterSmoother, ClusterSmoothing, fit_clusters, log_likelihoods
from ppmtf_jax.people.counts import (
    BoundedCounts,
    PopulationSmoothing,
    Transitions,
    VisitCounts,
    population,
    slot_kernel,
    smoothed_population,
)
from ppmtf_jax.people.person import is_first_visit
from ppmtf_jax.people.space import Space
from ppmtf_jax.people.user_bounds import PLACE_USERS
from ppmtf_jax.runtime.progress import progress_bar

# Maximum number of users for a selection: with more users it takes longer and gives the same result.
MAX_USERS = 2000
N_FOLDS = 10
# Clusterings and models of people take longer, so only one fold is used: one quarter of the users is held out.
HELD_OUT_OF = 4
# A comparison of memories needs several held-out users and several others. With fewer, nothing is compared.
MIN_USERS = 2 * HELD_OUT_OF
BANDWIDTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
EXPONENTS = (1.0, 0.75, 0.5)
POPULATION_GRID = PopulationSmoothing(
    EXPONENTS,
    (PLACE_USERS, PLACE_USERS + 1, PLACE_USERS + 2),
    BANDWIDTHS,
    (0.1, 0.3, 1.0, 3.0, 5.0, 10.0, 20.0, 40.0),
    (0.03, 0.1, 0.2, 0.3, 1.0, 3.0),
)
POPULATION_START = PopulationSmoothing(1.0, PLACE_USERS, 1.0, 1.0, 0.3)
MOVE_GRID = MoveSmoothing(
    (5.0, 20.0, 50.0, 100.0, 300.0), (10.0, 50.0, 200.0, 1000.0, 5000.0), (10.0, 50.0, 200.0, 1000.0), BANDWIDTHS
)
MOVE_START = MoveSmoothing(20.0, 200.0, 200.0, 1.0)
CLUSTER_START = ClusterSmoothing(1, 0.0, 0.3, 0.0)
CLUSTER_NUMBERS = (1, 4, 8, 12, 16, 24, 32, 48, 64)
# Sweeps of EM while clusterings are compared: more sweeps change the result less than other held-out users do.
N_SWEEPS = 10
CLUSTER_MASSES = (0.3, 1.0, 3.0, 10.0, 30.0)
# Share of a held-out user's visits that follow the population. Without this share, the choice would depend on the few
# visits that fit no cluster, such as a home where no other user lives, and the chosen smoothing would be too strong.
POPULATION_SHARE = 0.1
# Candidates for the blur, as fractions of the spatial spread of the visits.
BLURS = (0.0, 0.05, 0.1, 0.2, 0.4)

Smoothing = TypeVar("Smoothing", bound=tuple)
Memory = Literal["none", "places", "anchors"]
MEMORIES: tuple[Memory, ...] = ("none", "places", "anchors")
"""What people may remember, simplest first: nothing; the places of the trace; these, a home and a second place."""
IN_WORDS = {
    "none": "People remember nothing",
    "places": "People remember the places of their trace",
    "anchors": "People remember the places of their trace, and have a home and maybe a second place",
}


class Selection(NamedTuple):
    """Selected settings of the parts of a model.

    `first_visits`, `n_levels`: for check-ins, smoothing of first visits, and number of activity levels. `gains`: for
    each tried number of clusters, the mean gain over one cluster in log-probability (nats) of a held-out visit.
    """

    population: PopulationSmoothing = POPULATION_START
    moves: MoveSmoothing = MOVE_START
    clusters: ClusterSmoothing = CLUSTER_START
    first_visits: PopulationSmoothing | None = None
    n_levels: int | None = None
    gains: Mapping[int, float] = {}

    @property
    def numbers(self) -> Float[np.ndarray, " number"]:
        """All numbers, as a model folder stores them, without the gains and the number of activity levels."""
        return np.array(jax.tree.leaves(self[:4]), float)

    @classmethod
    def of_numbers(cls, numbers: Float[np.ndarray, " number"], **others: Any) -> Selection:
        """The inverse of `numbers`; each number gets its type, int or float."""
        start = [*cls()[:3], POPULATION_START]
        first_visits = len(numbers) == len(jax.tree.leaves(start))
        leaves, structure = jax.tree.flatten(start if first_visits else start[:3])
        typed = (type(old)(new) for old, new in zip(leaves, numbers.tolist(), strict=True))
        return cls(*structure.unflatten(typed), **others)


def memory_sentence(memory: Memory, gain: Float[Array | np.ndarray, " memory"] | None) -> str:
    """A sentence for the summary of a model; `gain` as in `choose_memory`."""
    if gain is None:
        return f"{IN_WORDS[memory]}; nothing else was compared"
    tried = dict(zip(MEMORIES, np.asarray(gain), strict=True))
    others = ", ".join(f"{name} {value:+.3f}" for name, value in tried.items() if name != "none")
    return (
        f"{IN_WORDS[memory]}. This was chosen on held-out training users: log-probability of an event, compared with "
        f"people who remember nothing, in nats: {others}"
    )


def select(
    train: Traces,
    space: Space,
    *,
    min_users: int,
    n_clusters: int | None,
    random: np.random.Generator,
    of_moves: bool = True,
    progress: bool = False,
) -> Selection:
    """Select all settings with at most 2,000 random users; a given `n_clusters` is kept.

    `of_moves`: whether to choose the smoothing of moves, too, which models of check-ins do not use.
    """
    some, grid = some_users(train, random), train.time_grid
    visits, steps = VisitCounts.of(some), Transitions.of(some)
    # Upper bound of the number of clusterings.
    n_numbers = 1 if n_clusters else len(CLUSTER_NUMBERS[::-2]) + len(CLUSTER_NUMBERS)
    n_steps = n_numbers + len(BLURS) + len(CLUSTER_MASSES) + len(BANDWIDTHS)
    with progress_bar("choosing the smoothing", n_steps, show=progress, waits_for="") as advance:
        of_population = choose_population(visits, grid, random)
        moves = choose_moves(steps, visits, of_population, space, grid, random) if of_moves else MOVE_START
        # Root mean square distance of people from their centre.
        position, share = train.places.position_km(), population(visits, of_population, grid).mean(axis=0)
        spread_km = float(np.sqrt(share @ ((position - share @ position) ** 2).sum(axis=1)))
        of_clusters, gains = choose_clusters(
            visits,
            of_population,
            space,
            grid,
            min_users=min_users,
            n_clusters=n_clusters,
            spread_km=spread_km,
            random=random,
            advance=advance,
        )
    return Selection(of_population, moves, of_clusters, gains=gains)


def some_users(train: Traces, random: np.random.Generator) -> Traces:
    """The traces of at most `MAX_USERS` random users."""
    return train.select_users(np.sort(random.permutation(train.n_users)[:MAX_USERS]))


def choose_population(visits: VisitCounts, time_grid: TimeGrid, random: np.random.Generator) -> PopulationSmoothing:
    """Smoothing of the population, by ten-fold cross-validation."""
    if visits.n_users < 2:
        return POPULATION_START
    folds = []
    for others, held_out in random_folds(visits.n_users, N_FOLDS, random):
        learned = visits.of_users(others)
        counts = {exponent: BoundedCounts.of(learned, exponent, time_grid) for exponent in EXPONENTS}
        folds.append((counts, visits.of_users(held_out)))

    def score(smoothing: PopulationSmoothing) -> Float[np.ndarray, " user"]:
        kernel, found = slot_kernel(time_grid, smoothing.slot_bandwidth), []
        for counts, held_out in folds:
            shares = smoothed_population(counts[smoothing.exponent], smoothing, kernel)
            of_cell = np.log(shares).ravel()[held_out.cell] * held_out.count
            found.append(np.bincount(held_out.user, of_cell, held_out.n_users))
        return np.concatenate(found)

    together = [("slot_bandwidth", "place_mass")]
    return _search(score, POPULATION_GRID, POPULATION_START, together=together)


def choose_moves(
    steps: Transitions,
    visits: VisitCounts,
    smoothing: PopulationSmoothing,
    space: Space,
    time_grid: TimeGrid,
    random: np.random.Generator,
) -> MoveSmoothing:
    """Smoothing of moves and stays, by ten-fold cross-validation."""
    if not len(steps.user) or visits.n_users < 2:
        return MOVE_START
    folds = []
    for others, held_out in random_folds(visits.n_users, N_FOLDS, random):
        shares = population(visits.of_users(others), smoothing, time_grid)
        learned = MoveCounts.of(steps.of_users(others), shares, space, time_grid)
        folds.append((learned, steps.of_users(held_out)))

    def score(candidate: MoveSmoothing) -> Float[np.ndarray, " user"]:
        total = np.zeros(visits.n_users)
        for learned, held_out in folds:
            of_step = Movement.of(learned, candidate).log_probabilities(held_out)
            total += np.bincount(held_out.user, of_step, visits.n_users)
        return total

    return _search(score, MOVE_GRID, MOVE_START)


def choose_clusters(
    visits: VisitCounts,
    smoothing: PopulationSmoothing,
    space: Space,
    time_grid: TimeGrid,
    *,
    min_users: int,
    n_clusters: int | None,
    spread_km: float,
    random: np.random.Generator,
    advance: Callable[[int], None],
) -> tuple[ClusterSmoothing, dict[int, float]]:
    """Number of clusters and their smoothing, with the gains of `Selection`.

    The likelihood of a held-out user is the mixture over all clusters, weighted by their shares.
    """
    if visits.n_users < 2 * min_users or n_clusters == 1:
        # One cluster equals the population for any smoothing.
        return CLUSTER_START, {}
    others, held_out = next(random_folds(visits.n_users, HELD_OUT_OF, random))
    learned, predicted = visits.of_users(others), visits.of_users(held_out)
    shares = population(learned, smoothing, time_grid)
    everybody = np.bincount(predicted.user, np.log(shares).ravel()[predicted.cell] * predicted.count, len(held_out))
    most = max(1, len(others) // min_users)
    numbers = (n_clusters,) if n_clusters else tuple(n for n in CLUSTER_NUMBERS if n <= most)
    blurs = tuple(part * spread_km for part in BLURS) if space.has_distances else (0.0,)
    seed = int(random.integers(2**32))

    @cache
    def gain(candidate: ClusterSmoothing) -> Float[np.ndarray, " user"]:
        smoother = ClusterSmoother(shares, space, candidate, time_grid)
        # The same random numbers for all candidates, so that only their smoothing differs.
        random = np.random.default_rng(seed)
        found = fit_clusters(learned, smoother, min_users=min_users, random=random, n_sweeps=N_SWEEPS)
        visited = (1 - POPULATION_SHARE) * found.visits + POPULATION_SHARE * shares.astype(np.float32)
        by_cluster = log_likelihoods(predicted, replace(found, visits=visited)) + np.log(found.share)
        advance(1)
        return np.asarray(logsumexp(by_cluster, axis=1)) - everybody

    # Every second number is enough here: it only determines with how many clusters the smoothing is chosen.
    grid = ClusterSmoothing(numbers[::-2], blurs, CLUSTER_MASSES, BANDWIDTHS)
    start = ClusterSmoothing(numbers[len(numbers) // 2], blurs[len(blurs) // 2], 3.0, 1.0)
    best = _search(gain, grid, start, n_rounds=1)
    by_number = [gain(best._replace(n_clusters=number)) for number in numbers]
    chosen = best._replace(n_clusters=numbers[first_within_error(by_number)])
    n_visits = predicted.count.sum()
    return chosen, {number: float(each.sum() / n_visits) for number, each in zip(numbers, by_number, strict=True)}


def choose_memory(
    train: Traces,
    of_user: Int[np.ndarray, " user"],
    score: Callable[[Memory, Traces, Int[np.ndarray, " user"], Traces], Float[np.ndarray, " held_out"]],
    most_places: int,
    random: np.random.Generator,
    progress: bool = False,
) -> tuple[Memory, Float[np.ndarray, " memory"] | None]:
    """Compare three memories on at most 2,000 random users; with too few users, people remember nothing.

    Returns the chosen memory, and for each of `MEMORIES` the mean gain over the chain in log-probability per event
    (nats); None if nothing was compared. `score(memory, learned, of_learned, held_out)` fits a model to the traces
    `learned` (three quarters of the users), whose users are in the clusters `of_learned`, and returns the
    log-likelihood of each held-out user. Of each held-out trace, the events count before the first place beyond
    `most_places`, which is impossible under people who remember.

    Real traces have gaps, and an exact score of an event after a gap would be a sum over all places at the missing
    instants. So all models distinguish the same two cases: the person stayed at each instant of the gap, or left their
    place. In a simulated city with weeks in which a fifth of the events follow a gap, the exact sum raises the mean
    log-probability of an event by 0.008 nats for the chain, and by 0.518 nats for people with homes.
    """
    if train.n_users < MIN_USERS:
        return "none", None
    users = np.sort(random.permutation(train.n_users)[:MAX_USERS])
    others, held_out = next(random_folds(len(users), HELD_OUT_OF, random))
    some = train.select_users(users)
    learned, predicted = (some.select_users(each).cut_into_periods() for each in (others, held_out))
    predicted = remembered(predicted, most_places)
    of_learned = np.unique(of_user[users[others]], return_inverse=True)[1].astype(np.int32)
    scores = []
    with progress_bar("choosing what people remember", len(MEMORIES), show=progress, waits_for="") as advance:
        for memory in MEMORIES:
            scores.append(score(memory, learned, of_learned, predicted))
            advance(1)
    gain = [(each - scores[0]).sum() / predicted.n_events for each in scores]
    return MEMORIES[first_within_error(scores)], np.array(gain, np.float32)


def remembered(traces: Traces, most_places: int) -> Traces:
    """The events of each trace before the first place beyond its first `most_places` distinct places."""
    trace = traces.trace_of_event()
    n_so_far = np.cumsum(is_first_visit(trace, traces.place))
    first = np.flatnonzero(run_begins(trace))
    return traces.select_events(n_so_far - (n_so_far[first] - 1)[trace] <= most_places)


def first_within_error(scores: Sequence[Float[np.ndarray, " user"]]) -> int:
    """Index of the first candidate whose total over users is within one standard error of the best total.

    The standard error is that of the difference of two totals.
    """
    best = max(scores, key=np.sum)
    apart = [best - each for each in scores]
    return next(n for n, each in enumerate(apart) if each.sum() <= each.std() * np.sqrt(len(each)))


def random_folds(
    n_users: int, n_folds: int, random: np.random.Generator
) -> Iterator[tuple[Int[np.ndarray, " other"], Int[np.ndarray, " user"]]]:
    """Sorted indices of learning users and of held-out users, for each of several nonempty folds of equal size."""
    for part in np.array_split(random.permutation(n_users), min(n_folds, n_users)):
        held_out = np.sort(part)
        yield np.setdiff1d(np.arange(n_users), held_out), held_out


def _search(
    score: Callable[[Any], Float[np.ndarray, " user"]],
    grid: Smoothing,
    start: Smoothing,
    *,
    together: Sequence[Sequence[str]] = (),
    n_rounds: int = 2,
) -> Smoothing:
    """Coordinate search on a grid for the greatest sum of scores; groups of settings in `together` vary jointly."""

    @cache
    def total(candidate: Smoothing) -> float:
        return float(score(candidate).sum())

    values = grid._asdict()  # type: ignore[attr-defined]
    alone = [(name,) for name in values if not any(name in names for names in together)]
    best = start
    for _ in range(n_rounds):
        for names in (*together, *alone):
            changes = (dict(zip(names, each, strict=True)) for each in product(*(values[name] for name in names)))
            best = max((best._replace(**change) for change in changes), key=total)  # type: ignore[attr-defined]
    return best
