"""Which smoothing predicts people best who were not learned from: settings chosen by held-out likelihood.

Nothing here looks at test users or at a metric. Some of the training users are held out, the model is learned from the
others, and the settings are kept under which what the held-out users did is most probable. Settings are searched one
after the other, twice around. Of the numbers of clusters the smallest is then taken that is within one standard error
of the best: fewer clusters give away less. What one user weighs, and how many users it takes, is no matter of
likelihood, which would take fewer: see `contributions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from ppmtf_jax.bridge.clusters import ClusterSmoothing, fit_clusters, log_likelihoods
from ppmtf_jax.bridge.contributions import PLACE_USERS
from ppmtf_jax.bridge.moves import MoveCounts, Movement, MoveSmoothing, Steps
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import (
    BoundedCounts,
    PopulationSmoothing,
    Visits,
    population,
    random_folds,
    slot_kernel,
    smoothed_population,
)
from ppmtf_jax.data.time_grid import TimeGrid

# Users that settings are chosen on: more would take longer and choose the same.
MOST_USERS = 2000
N_FOLDS = 10
# A clustering takes longer: one user of so many is held out, once.
HELD_OUT_OF = 4
BANDWIDTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
POPULATION_GRID = PopulationSmoothing(
    (1.0, 0.75, 0.5),
    (PLACE_USERS, PLACE_USERS + 1, PLACE_USERS + 2),
    BANDWIDTHS,
    (0.1, 0.3, 1.0, 3.0, 5.0, 10.0, 20.0, 40.0),
    (0.03, 0.1, 0.2, 0.3, 1.0, 3.0),
)
POPULATION_START = PopulationSmoothing(1.0, PLACE_USERS, 1.0, 1.0, 0.3)
MOVE_GRID = MoveSmoothing(
    (5.0, 20.0, 50.0, 100.0, 300.0),
    (10.0, 50.0, 200.0, 1000.0, 5000.0),
    (10.0, 50.0, 200.0, 1000.0),
    BANDWIDTHS,
)
MOVE_START = MoveSmoothing(20.0, 200.0, 200.0, 1.0)
CLUSTER_NUMBERS = (1, 4, 8, 12, 16, 24, 32, 48, 64)
# Sweeps of EM while clusterings are only compared: more change less than other users held out do.
N_SWEEPS = 10
CLUSTER_MASSES = (0.3, 1.0, 3.0, 10.0, 30.0)
# Of a held-out user's visits, those that are as anybody's. Without them the few that fit no cluster, a home where none
# of the others lives, decide: all clusters then come out flat.
ANYBODYS = 0.1
# Blur of the places, in parts of how far the visits are spread.
BLURS = (0.0, 0.05, 0.1, 0.2, 0.4)

Smoothing = TypeVar("Smoothing", bound=tuple)
Score = Callable[[Any], Float[np.ndarray, " user"]]


class Choice(NamedTuple):
    """Settings of all parts, as they were chosen.

    Attributes
    ----------
    population : PopulationSmoothing
    moves : MoveSmoothing
    clusters : ClusterSmoothing
    gains : dict of int to float
        For each number of clusters that was tried, by how much more probable a visit of a held-out user is than with
        one for everybody, in nats; the mean over visits.
    """

    population: PopulationSmoothing
    moves: MoveSmoothing
    clusters: ClusterSmoothing
    gains: dict[int, float]


def choose_population(visits: Visits, time_grid: TimeGrid, random: np.random.Generator) -> PopulationSmoothing:
    """The smoothing of the population under which visits of held-out users are most probable."""
    if visits.n_users < 2:
        return POPULATION_START
    folds = [_Fold.of(visits, held_out, time_grid) for held_out in random_folds(visits.n_users, N_FOLDS, random)]

    def score(smoothing: PopulationSmoothing) -> Float[np.ndarray, " user"]:
        kernel = slot_kernel(time_grid, smoothing.slot_bandwidth)
        return np.concatenate([fold.score(smoothing, kernel) for fold in folds])

    together = [("slot_bandwidth", "place_mass")]
    return _search(score, POPULATION_GRID, POPULATION_START, together=together)


class _Fold(NamedTuple):
    """Visits to learn from, and others to predict."""

    learned: Visits
    held_out: Visits
    time_grid: TimeGrid
    counts: dict[float, BoundedCounts]

    @classmethod
    def of(cls, visits: Visits, held_out: Int[np.ndarray, " user"], time_grid: TimeGrid) -> _Fold:
        learned = visits.of_users(np.setdiff1d(np.arange(visits.n_users), held_out))
        return cls(learned, visits.of_users(held_out), time_grid, {})

    def score(self, smoothing: PopulationSmoothing, kernel: np.ndarray) -> Float[np.ndarray, " user"]:
        if smoothing.exponent not in self.counts:
            self.counts[smoothing.exponent] = BoundedCounts.of(self.learned, smoothing.exponent, self.time_grid)
        shares = smoothed_population(self.counts[smoothing.exponent], smoothing, kernel)
        of_cell = np.log(shares).ravel()[self.held_out.cell] * self.held_out.count
        return np.bincount(self.held_out.user, of_cell, self.held_out.n_users)


def choose_moves(
    steps: Steps,
    visits: Visits,
    smoothing: PopulationSmoothing,
    space: Space,
    time_grid: TimeGrid,
    random: np.random.Generator,
) -> MoveSmoothing:
    """The smoothing of moves and stays under which steps of held-out users are most probable."""
    if not len(steps) or visits.n_users < 2:
        return MOVE_START
    parts = []
    for held_out in random_folds(visits.n_users, N_FOLDS, random):
        others = np.setdiff1d(np.arange(visits.n_users), held_out)
        shares = population(visits.of_users(others), smoothing, time_grid)
        learned = MoveCounts.of(steps.of_users(others), shares, space, time_grid)
        parts.append((learned, steps.of_users(held_out)))

    def score(candidate: MoveSmoothing) -> Float[np.ndarray, " user"]:
        total = np.zeros(visits.n_users)
        for learned, held_out in parts:
            of_step = Movement.of(learned, candidate).log_probabilities(held_out)
            total += np.bincount(held_out.user, of_step, visits.n_users)
        return total

    return _search(score, MOVE_GRID, MOVE_START)


def choose_clusters(
    visits: Visits,
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
    """The number of clusters and their smoothing under which visits of held-out users are most probable.

    A held-out user is of each cluster with the probability of its share: no part of her decides which. One visit in ten
    is taken to be as anybody's, see `ANYBODYS`.

    Parameters
    ----------
    n_clusters : int, optional
        Where it is given.
    spread_km : float
        How far the visits are spread.
    """
    if visits.n_users < 2 * min_users or n_clusters == 1:
        # One cluster is the population, however it is smoothed.
        return ClusterSmoothing(1, 0.0, CLUSTER_MASSES[0], 0.0), {}
    held_out = next(random_folds(visits.n_users, HELD_OUT_OF, random))
    others = np.setdiff1d(np.arange(visits.n_users), held_out)
    learned, predicted = visits.of_users(others), visits.of_users(held_out)
    shares = population(learned, smoothing, time_grid)
    everybody = np.bincount(predicted.user, np.log(shares).ravel()[predicted.cell] * predicted.count, len(held_out))
    most = max(1, len(others) // min_users)
    numbers = (n_clusters,) if n_clusters else tuple(n for n in CLUSTER_NUMBERS if n <= most)
    blurs = tuple(part * spread_km for part in BLURS) if space.has_distances else (0.0,)
    seed = int(random.integers(2**32))
    gains: dict[ClusterSmoothing, Float[np.ndarray, " user"]] = {}

    def gain(candidate: ClusterSmoothing) -> Float[np.ndarray, " user"]:
        if candidate not in gains:
            # The same start for all, so that they differ by their smoothing.
            start = np.random.default_rng(seed)
            found = fit_clusters(
                learned,
                shares,
                space,
                candidate,
                time_grid=time_grid,
                min_users=min_users,
                random=start,
                n_sweeps=N_SWEEPS,
            )
            mixed = replace(found, visits=(1 - ANYBODYS) * found.visits + ANYBODYS * shares.astype(np.float32))
            by_cluster = log_likelihoods(predicted, mixed) + np.log(found.share)
            gains[candidate] = logsumexp(by_cluster, axis=1) - everybody
            advance(1)
        return gains[candidate]

    # At first every other number will do: it only says where the smoothing is to be chosen.
    grid = ClusterSmoothing(numbers[::-2], blurs, CLUSTER_MASSES, BANDWIDTHS)
    start = ClusterSmoothing(numbers[len(numbers) // 2], blurs[len(blurs) // 2], 3.0, 1.0)
    best = _search(gain, grid, start, n_rounds=1)
    by_number = [gain(best._replace(n_clusters=number)) for number in numbers]
    chosen = best._replace(n_clusters=numbers[fewest_within_error(by_number)])
    n_visits = predicted.count.sum()
    return chosen, {number: float(each.sum() / n_visits) for number, each in zip(numbers, by_number, strict=True)}


def fewest_within_error(scores: Sequence[Float[np.ndarray, " user"]]) -> int:
    """The first of some candidates whose total is within one standard error of the best one's.

    The error is that of the difference of the two totals over users.

    Examples
    --------
    >>> fewest_within_error([np.array([0.0, 0.0]), np.array([3.0, -1.0]), np.array([3.0, -0.9])])
    0
    """
    best = max(scores, key=np.sum)
    return next(number for number, each in enumerate(scores) if _within_error(best, each))


def _within_error(best: Float[np.ndarray, " user"], other: Float[np.ndarray, " user"]) -> bool:
    apart = best - other
    return bool(apart.sum() <= apart.std() * np.sqrt(len(apart)))


def _search(
    score: Score, grid: Smoothing, start: Smoothing, *, together: Sequence[Sequence[str]] = (), n_rounds: int = 2
) -> Smoothing:
    """The best of a grid by one setting after the other; those that can stand in for each other together."""
    known: dict[Smoothing, float] = {}

    def total(candidate: Smoothing) -> float:
        if candidate not in known:
            known[candidate] = float(score(candidate).sum())
        return known[candidate]

    values = grid._asdict()  # type: ignore[attr-defined]
    alone = [(name,) for name in values if not any(name in names for names in together)]
    best = start
    for _ in range(n_rounds):
        for names in (*together, *alone):
            changes = (dict(zip(names, each, strict=True)) for each in product(*(values[name] for name in names)))
            best = max((best._replace(**change) for change in changes), key=total)  # type: ignore[attr-defined]
    return best


def n_clusterings(n_clusters: int | None) -> int:
    """At most how many times `choose_clusters` looks for clusters."""
    n_numbers = 1 if n_clusters else len(CLUSTER_NUMBERS[::-2]) + len(CLUSTER_NUMBERS)
    return n_numbers + len(BLURS) + len(CLUSTER_MASSES) + len(BANDWIDTHS)
