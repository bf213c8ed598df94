"""What the factorization knows about groups: the bridge with clusters from factors, beside clusters from EM.

    python benchmarks/factor_clusters.py ../shared --csv benchmarks/factor_clusters.csv
    python benchmarks/factor_clusters.py ../shared --data people-flow --cases em published

Each user is described by some numbers: her row of a factor, or her visits as a factorization predicts them. K-means on
these numbers makes as many clusters as EM starts with. Small clusters are dissolved (`bridge.clusters.assign`). Chains
are fitted to the clusters with the same smoothing as for the clusters of EM. Group-TV is measured on ten traces per
user. So only the clusters of the users differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import Clock, Row, command_line, new_york, people_flow, record
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF

from ppmtf_jax.bridge.clusters import ClusterSmoother, assign, fit_clusters
from ppmtf_jax.bridge.selection import Selection, select
from ppmtf_jax.bridge.space import Space, space_of
from ppmtf_jax.bridge.visits import VisitCounts, population
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.tensors import count_tensors
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics.groups import Groups, GroupSettings
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, rows_of_factors
from ppmtf_jax.gibbs.run import keep_every, run_gibbs
from ppmtf_jax.streams import Stage, jax_stream, numpy_stream
from ppmtf_jax.synthesizers.bridge import chains_and_clusters
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.itf import UNSHARED
from ppmtf_jax.synthesizers.ppmtf import PPMTFSettings
from ppmtf_jax.synthesizers.synthesis import synthesize

MIN_USERS, TRACES_PER_USER, N_PARTS = 10, 10, 4
RANK, N_ITERATIONS, N_REGIONS = 16, 200, 128
DATA = {"people-flow": "people flow", "foursquare": "New York"}


class Problem(NamedTuple):
    """Training data, and everything that all cases compute from them."""

    train: Traces
    visits: VisitCounts
    space: Space
    choice: Selection
    groups: Groups
    seed: int


Features = Callable[[Problem], dict[str, np.ndarray]]


def random_numbers(problem: Problem) -> dict[str, np.ndarray]:
    return {"random": np.random.default_rng(problem.seed).random((problem.train.n_users, 8))}


def own_visits(problem: Problem) -> dict[str, np.ndarray]:
    return {"visits": shares_of_quarters(problem, dense(problem.visits))}


def shares_of_quarters(problem: Problem, visits: np.ndarray) -> np.ndarray:
    """Where users are, as EM begins with: square roots of the shares of each quarter of the slots, blurred.

    Of visits users x slots x places, of which those below zero do not count.
    """
    parts = np.array_split(visits, min(N_PARTS, visits.shape[1]), axis=1)
    blur = kernel_over_places(problem)
    shares = [np.maximum(part.sum(axis=1), 0) @ blur + 1e-9 for part in parts]
    return np.concatenate([np.sqrt(share / share.sum(axis=1, keepdims=True)) for share in shares], axis=1)


def kernel_over_places(problem: Problem) -> np.ndarray:
    km = problem.space.km[np.ix_(problem.space.cell, problem.space.cell)]
    blur_km = problem.choice.clusters.blur_km
    weight = np.exp(-0.5 * (km / blur_km) ** 2) if blur_km else np.eye(len(km))
    return weight / weight.sum(axis=1, keepdims=True)


def dense(visits: VisitCounts) -> np.ndarray:
    counts = np.zeros((visits.n_users, visits.n_slots, visits.n_places), np.float32)
    counts[visits.user, visits.slot, visits.place] = visits.count
    return counts


def nmf(loss: str, *, blurred: bool) -> Features:
    """Weights of a nonnegative factorization of users x (slot, place), as shares."""

    def features(problem: Problem) -> dict[str, np.ndarray]:
        counts = dense(problem.visits)
        if blurred:
            counts = counts @ kernel_over_places(problem).astype(np.float32)
        solver = "mu" if loss == "kullback-leibler" else "cd"
        # From a random start the likelihood hardly rises at first: a tolerance would end there.
        options = {"beta_loss": loss, "solver": solver, "tol": 0.0, "max_iter": N_ITERATIONS}
        factorization = NMF(RANK, init="random", random_state=problem.seed, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            weight = factorization.fit_transform(counts.reshape(len(counts), -1)) + 1e-9
        return {"weights": np.sqrt(weight / weight.sum(axis=1, keepdims=True))}

    return features


def factors(problem: Problem, coupling: Coupling, draws: int, settings: PPMTFSettings) -> list[np.ndarray]:
    """The last draws of the three factors of visits, five sweeps apart, each of shape (draws, rows, rank)."""
    counts = count_tensors(problem.train, settings.trimming(), seed=problem.seed)
    result = run_gibbs(
        jax_stream(problem.seed, Stage.FIT),
        observe(counts, settings.zeros, settings.n_zeros, seed=problem.seed),
        rows_of_factors(coupling, counts),
        coupling,
        settings.gibbs(),
        n_sweeps=settings.n_sweeps,
        keep=keep_every(5, settings.n_sweeps - 5 * draws),
    )
    return [result.draws[name][0] for name in dict(coupling.tensors)["visits"]]


def ppmtf(*, visits_alone: bool = False, draws: int = 1, **settings: Any) -> Features:
    """The user factor, its direction, and the visits that the factors predict; means over draws."""

    def features(problem: Problem) -> dict[str, np.ndarray]:
        chosen = replace(PPMTFSettings(zeros="weighted"), **settings)
        user, place, slot = factors(problem, UNSHARED if visits_alone else SHARED, draws, chosen)
        mean = user.mean(axis=0)
        each = [np.einsum("ur,sr,pr->usp", *draw, optimize=True) for draw in zip(user, slot, place, strict=True)]
        return {
            "user factor": mean,
            "direction": mean / np.linalg.norm(mean, axis=1, keepdims=True),
            "predicted visits": shares_of_quarters(problem, np.mean(each, axis=0)),
        }

    return features


def of_regions(features: Features) -> Features:
    """The same for visits to regions: at most `N_REGIONS` groups of near places, with equally many places in each."""

    def coarse(problem: Problem) -> dict[str, np.ndarray]:
        train, cell = problem.train, space_of(problem.train.places, N_REGIONS).cell
        size = np.bincount(cell)
        at = (np.bincount(cell, degrees) / size for degrees in (train.places.latitude, train.places.longitude))
        regions = PlaceTable(np.arange(len(size)), *at)
        train = replace(train, place=cell[train.place], places=regions)
        return features(problem._replace(train=train, visits=VisitCounts.of(train), space=space_of(regions)))

    return coarse


ALL_ZEROS = 10**9
CASES: dict[str, Features] = {
    "random": random_numbers,
    "visits": own_visits,
    "NMF, squared error": nmf("frobenius", blurred=False),
    "NMF, Poisson": nmf("kullback-leibler", blurred=False),
    "NMF, Poisson, blurred": nmf("kullback-leibler", blurred=True),
    "published": ppmtf(zeros="sampled"),
    "weighted": ppmtf(),
    "precision 0.4": ppmtf(noise_precision=0.4),
    "precision 10": ppmtf(noise_precision=10.0),
    "rank 8": ppmtf(rank=8),
    "rank 32": ppmtf(rank=32),
    "untrimmed": ppmtf(max_visits=None, max_transitions=None, max_count=None),
    "400 sweeps": ppmtf(n_sweeps=400),
    "ten draws": ppmtf(draws=10),
    "every zero in full": ppmtf(n_zeros=ALL_ZEROS),
    "visits alone": ppmtf(visits_alone=True),
    "visits alone, every zero in full": ppmtf(visits_alone=True, n_zeros=ALL_ZEROS),
    "visits alone, every zero in full, untrimmed, ten draws": ppmtf(
        visits_alone=True, n_zeros=ALL_ZEROS, draws=10, max_visits=None, max_count=None
    ),
    "regions": of_regions(ppmtf()),
    "visits alone of regions, every zero in full": of_regions(ppmtf(visits_alone=True, n_zeros=ALL_ZEROS)),
}
EM = "EM"


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--cases", nargs="+", choices=[EM, *CASES], default=[EM, *CASES], metavar="CASE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    for data in arguments.data:
        for seed in arguments.seeds:
            problem = problem_of(arguments.shared, data, seed)
            references = f"floor {problem.groups.floor():.4f}, everybody alike {problem.groups.alike():.4f}"
            print(f"{data}: {references}, {problem.choice.clusters}", flush=True)
            record(rows(problem, data, arguments.cases), arguments.csv, append=True)


def problem_of(shared: Path, data: str, seed: int) -> Problem:
    train = people_flow(shared)[0] if data == "people-flow" else new_york(shared).split_users(0.8, 0)[0]
    visits, space = VisitCounts.of(train), space_of(train.places)
    choice = select(train, space, min_users=MIN_USERS, n_clusters=None, random=numpy_stream(seed, Stage.TUNING))
    return Problem(train, visits, space, choice, Groups.of(train, GroupSettings()), seed)


def rows(problem: Problem, data: str, cases: list[str]) -> Iterator[Row]:
    for case in cases:
        clock = Clock()
        if case == EM:
            clusterings = {EM: clusters_of_em(problem)}
        else:
            clusterings = {of: by_k_means(problem, numbers) for of, numbers in CASES[case](problem).items()}
        for of, of_user in clusterings.items():
            yield {
                "data": DATA[data],
                "case": case,
                "of": of,
                "seed": problem.seed,
                "clusters": int(of_user.max()) + 1,
                "group_tv": round(group_tv(problem, of_user), 4),
            }
        print(f"{clock.both()[0]:.0f} s", flush=True)


def clusters_of_em(problem: Problem) -> np.ndarray:
    shares = population(problem.visits, problem.choice.population, problem.train.time_grid)
    smoother = ClusterSmoother(shares, problem.space, problem.choice.clusters, problem.train.time_grid)
    random = np.random.default_rng(problem.seed)
    return fit_clusters(problem.visits, smoother, min_users=MIN_USERS, random=random).of_user


def by_k_means(problem: Problem, features: np.ndarray) -> np.ndarray:
    n_clusters = min(problem.choice.clusters.n_clusters, len(features))
    means = KMeans(n_clusters, n_init=4, random_state=problem.seed).fit(features)
    return assign(-means.transform(features), MIN_USERS)


def group_tv(problem: Problem, of_user: np.ndarray) -> float:
    train, groups = problem.train, problem.groups
    chains = chains_and_clusters(train, of_user, problem.choice)[0]
    grid = train.time_grid.one_period()
    model = FittedModel("bridge", {}, problem.seed, train.user_ids, train.places, grid, chains)
    traces = synthesize(model, traces_per_user=TRACES_PER_USER, seed=problem.seed)
    user = pd.Index(train.user_ids).get_indexer(pd.Index(traces.user_ids))
    return groups.variation(Windows.of(traces), groups.of_user[user], thin=True)


if __name__ == "__main__":
    main()
