"""The experiments on friends who meet (Narita et al. 2022, Figs. 7 to 15) on six cities, and attacks on the results.

    python benchmarks/colocations.py counts ../shared --csv benchmarks/colocations_counts.csv
    python benchmarks/colocations.py traces ../shared --csv benchmarks/colocations_traces.csv
    python benchmarks/colocations.py members ../shared --only "New York" Jakarta "toy city" \\
        --csv benchmarks/colocations_members.csv
    python benchmarks/colocations.py attack ../shared --only "New York" Jakarta --csv benchmarks/colocations_attack.csv
    python benchmarks/colocations.py verdicts ../shared --csv benchmarks/colocations

The data have the 100 most visited places and 24 instants: the hours of the day, over all days. The data do not have the
paper's four categories of places. Our categories are the three that most places have, and "other". Gowalla has no
categories, so its categories are the four quarters of the city. All noise has a seed, so that numbers can be
reproduced; so nothing here is private.

`counts`: the friendship probability by epsilon (Fig. 7), and co-locations by category, for each limit c and each
epsilon (Figs. 8 to 11), with the published greedy rule, and with the bounded rule, which protects.

`traces`: population and transitions of synthetic traces, by the number of drawn meetings (Figs. 12 to 15). "published"
uses the most probable completion; "ours" uses random completions.

`members`: membership inference against traces made from half of the users, by epsilon.

`attack`: an attacker knows the data of everybody except one user, and tells from the noisy counts whether this user is
in the data. Differential privacy bounds their advantage by (e^epsilon - 1) / (e^epsilon + 1).

`verdicts` reads the file of counts and says what protection costs; `figures.py` draws Figs. 7 to 15.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import SHARED, Clock, Row, machine, new_york_2019, record

from ppmtf_jax import Traces, fit, synthesize
from ppmtf_jax.attacks import membership_advantage, membership_chance, membership_scores
from ppmtf_jax.colocation.counts import (
    ColocationLimits,
    Colocations,
    bounded_colocations,
    find_colocations,
    greedy_colocations,
)
from ppmtf_jax.colocation.friends import FriendGraph, noisy_friendship_probability
from ppmtf_jax.colocation.metrics import category_counts
from ppmtf_jax.colocation.synthesizer import place_hierarchy, synthesize_colocations
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.datasets import Discretization, MostVisited, read_gowalla, read_lbsn2vec
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.distributions import mean_errors
from ppmtf_jax.evaluation.metrics.matrices import population
from ppmtf_jax.evaluation.metrics.moves import transition_matrix
from ppmtf_jax.noise.accountant import float_below
from ppmtf_jax.noise.mechanisms import NoiseSource, SeededNoise
from ppmtf_jax.noise.privelet import Hierarchy, noisy_counts
from ppmtf_jax.runtime.memory import PeakMemory

N_PLACES, N_CATEGORIES, N_INSTANTS = 100, 4, 24
EPSILONS, LIMITS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0), (1, 5, 10, 15, 20)
THETAS = (1, 5, 10, 50, 100, 500, 1000, 5000)
# Values where epsilon and the limit are not varied, as published.
EPSILON, LIMIT = 1.0, 5
RULES, MECHANISMS = ("greedy", "bounded"), ("no noise", "laplace", "privelet", "privelet, weighted")
# Weights of the levels (root, categories, places) for precise sums of categories.
FAVOURING_CATEGORIES = [1, 4, 1]
PROBABILITY_RUNS, COUNT_RUNS, TRIMMING_SEEDS, TRACE_RUNS, MEMBER_RUNS, ATTACK_RUNS = 1000, 100, 5, 5, 5, 4000
MEMBER_EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 1e6)
COLUMNS = {
    "counts": ["data", "what", "rule", "mechanism", "epsilon", "c", "true", "mae", "mae_se", "mse", "mse_se", "runs"],
    "traces": ["data", "system", "theta", "what", "mae", "mae_se", "mse", "mse_se", "co_locations", "refused", "runs"],
    "members": ["data", "system", "epsilon", "seed", "advantage", "chance", "bound", "traces", "users"],
    "attack": ["data", "rule", "c", "epsilon", "changed", "claimed", "advantage", "standard_error", "bound"],
}


# Data


def cities(shared: Path) -> dict[str, Traces]:
    """Cities by name: two with dates, three with hours of the week only, and a simulated city of a day without gaps."""
    folder, gowalla = shared / "data" / "foursquare-www2019-lbsn2vec", shared / "data" / "gowalla-nyc"
    how = {"discretization": Discretization(MostVisited(N_PLACES), slot_s=3600, min_users_per_place=1)}
    found = {
        "New York": new_york_2019(shared, **how),
        "Gowalla": read_gowalla(
            *(gowalla / f"loc-gowalla_{name}_NYC.txt.gz" for name in ("totalCheckins", "edges")),
            time_zone="America/New_York",
            **how,
        )[0],
    }
    for name, file in (("Jakarta", "Jakarta"), ("Kuala Lumpur", "KualaLampur"), ("Sao Paulo", "SaoPaulo")):
        found[name] = read_lbsn2vec(folder / f"dataset_connected_{file}.mat", **how)[0]
    found["toy city"] = toy_city(n_users=8000, n_places=N_PLACES, n_days=1, missing=0.0, seed=0).traces
    return {name: in_few_categories(traces) for name, traces in found.items()}


def in_few_categories(traces: Traces) -> Traces:
    """Replace categories by the most frequent ones and "other"; by quarters of the city if there are no categories."""
    places = traces.places
    category = places.grid_cell(2).astype(str).astype(object) if places.category is None else places.category.copy()
    kept = pd.Series(category[category != ""]).value_counts().index[: N_CATEGORIES - 1]
    if places.category is not None:
        category[~np.isin(category.astype(str), kept)] = "other"
    return replace(traces, places=PlaceTable(places.ids, places.latitude, places.longitude, category))


# Counts: Figs. 7 to 11


def count_rows(data: dict[str, Traces]) -> Iterator[Row]:
    for name, traces in data.items():
        graph = FriendGraph.of(traces)
        for epsilon in EPSILONS:
            yield probability_row(graph, epsilon) | {"data": name}
        exact = find_colocations(traces, graph).counts(N_INSTANTS)
        varied = {(EPSILON, c) for c in LIMITS} | {(epsilon, LIMIT) for epsilon in EPSILONS}
        for rule in RULES:
            trimmed = {c: trimmed_counts(traces, graph, rule, c) for c in LIMITS}
            for epsilon, c in sorted(varied):
                for mechanism in MECHANISMS:
                    row = count_row(trimmed[c], exact, traces.places, mechanism, epsilon, c)
                    yield {"data": name, "what": "co-locations", "rule": rule} | row


def probability_row(graph: FriendGraph, epsilon: float) -> Row:
    noise = SeededNoise(0)
    drawn = [noisy_friendship_probability(graph, epsilon, noise) for _ in range(PROBABILITY_RUNS)]
    errors = np.abs(np.array(drawn) - graph.n_pairs / graph.n_possible_pairs)
    about = {"what": "friendship probability", "rule": "", "mechanism": "laplace", "epsilon": epsilon, "c": ""}
    return about | {"true": f"{graph.n_pairs / graph.n_possible_pairs:.4g}"} | means(mae=errors, mse=errors**2)


def trimmed_counts(
    traces: Traces, graph: FriendGraph, rule: str, c: int, n_seeds: int = TRIMMING_SEEDS
) -> list[np.ndarray]:
    """Counts for several random selections of the events that count; the greedy rule selects without randomness."""
    found: list[Colocations] = [greedy_colocations(traces, graph, c)] if rule == "greedy" else []
    if rule == "bounded":
        found = [bounded_colocations(traces, graph, ColocationLimits(c), seed=seed) for seed in range(n_seeds)]
    return [each.counts(N_INSTANTS).toarray() for each in found]


def count_row(trimmed: list[np.ndarray], exact: Any, places: PlaceTable, mechanism: str, epsilon: float, c: int) -> Row:
    noise = SeededNoise(c)
    runs = len(trimmed) if mechanism == "no noise" else COUNT_RUNS
    noisy = (with_noise(trimmed[run % len(trimmed)], places, mechanism, c, epsilon, noise) for run in range(runs))
    mae, mse = np.array([category_errors(each, exact, places) for each in noisy]).T
    total = f"{exact.sum() / (N_INSTANTS * N_CATEGORIES):.4g}"
    return {"mechanism": mechanism, "epsilon": epsilon, "c": c, "true": total} | means(mae=mae, mse=mse)


def category_errors(counts: np.ndarray, exact: Any, places: PlaceTable) -> list[float]:
    """MAE and MSE of counts by instant and category: the errors of Q' of section 5.2."""
    return mean_errors(category_counts(counts, places)[1] - category_counts(exact, places)[1].astype(float))


def with_noise(
    counts: np.ndarray, places: PlaceTable, mechanism: str, c: int, epsilon: float, noise: NoiseSource
) -> np.ndarray:
    if mechanism == "no noise":
        return counts
    if mechanism == "laplace":
        return noise.add_laplace(counts, c, epsilon)
    if mechanism == "privelet":
        return noisy_counts(counts, place_hierarchy(places), c, epsilon, noise)
    return weighted_counts(counts, place_hierarchy(places), c, epsilon, noise, FAVOURING_CATEGORIES)


def weighted_counts(
    counts: np.ndarray, tree: Hierarchy, sensitivity: int, epsilon: float, noise: NoiseSource, weights: Sequence[int]
) -> np.ndarray:
    """Privelet whose levels share epsilon by weights, from the root on; `noisy_counts` gives them equal shares.

    More for the level of the categories makes their sums better, and single places worse. No leaf has coefficients
    above it whose shares are more than epsilon in all.
    """
    total = np.where(tree.coefficient_sensitivity > 0, np.array(weights)[tree.depth], 0)
    for node in range(1, len(total)):
        total[node] += total[tree.parent[node]]
    noisy = tree.transform(counts.astype(np.int64))
    for nodes in tree.alike():
        share = float_below(Fraction(epsilon) * weights[tree.depth[nodes[0]]] / int(total[-tree.n_leaves :].max()))
        own = int(tree.coefficient_sensitivity[nodes[0]] * sensitivity)
        noisy[..., nodes] = noise.add_laplace(noisy[..., nodes], own, share)
    return tree.inverse(tree.subtract_means(noisy))


def means(**samples: np.ndarray) -> Row:
    """Mean and standard error of each sample."""
    row: Row = {}
    for name, sample in samples.items():
        error = sample.std(ddof=1) / np.sqrt(len(sample)) if len(sample) > 1 else 0.0
        row |= {name: f"{sample.mean():.4g}", f"{name}_se": f"{error:.2g}"}
    return row | {"runs": len(next(iter(samples.values())))}


# Traces: Figs. 12 to 15


SYSTEMS = {
    "published": {"completion": "most-probable"},
    "ours": {"completion": "random"},
}


def trace_rows(data: dict[str, Traces]) -> Iterator[Row]:
    for name, traces in data.items():
        true = population(traces), transitions(traces)
        for system in ("uniform", "tpm"):
            makers = [partial(without_meetings, traces, system, run) for run in range(TRACE_RUNS)]
            yield from ({"data": name, "system": system, "theta": ""} | row for row in of_runs(makers, true))
        for system, settings in SYSTEMS.items():
            for theta in THETAS:
                chosen = {"max_events": LIMIT, "max_transitions": LIMIT, "n_colocations": theta, **settings}
                makers = [partial(with_meetings, traces, run, **chosen) for run in range(TRACE_RUNS)]
                yield from ({"data": name, "system": system, "theta": theta} | row for row in of_runs(makers, true))


def without_meetings(traces: Traces, system: str, run: int) -> tuple[Traces, int]:
    settings = {"epsilon": EPSILON, "max_transitions": LIMIT, "noise": "seeded"} if system == "tpm" else {}
    made = synthesize(fit(traces, system, seed=run, **settings), seed=run)
    return replace(made, friendships=None), 0


def with_meetings(traces: Traces, run: int, **settings: Any) -> tuple[Traces, int]:
    """Traces, and how often noise was drawn again because the noisy probability allowed no friends."""
    for refused in range(20):
        # Each run and each attempt has a noise source of its own.
        noise = SeededNoise(run + 1000 * refused)
        try:
            made = synthesize_colocations(traces, noise=noise, seed=run, **settings)
        except InputError as error:
            if "friend" not in str(error):
                raise
        else:
            return made.traces, refused
    raise SystemExit("no friendship in twenty draws of the noise")


def transitions(traces: Traces) -> np.ndarray:
    return transition_matrix(traces).toarray()


def of_runs(makers: list[Callable[[], tuple[Traces, int]]], true: tuple[np.ndarray, np.ndarray]) -> Iterator[Row]:
    made = [make() for make in makers]
    meeting = [len(find_colocations(each, FriendGraph.of(each))) for each, _ in made if each.friendships is not None]
    measures = {"population": population, "transitions": transitions}
    for (what, of_traces), exact in zip(measures.items(), true, strict=True):
        mae, mse = np.array([mean_errors(of_traces(each) - exact) for each, _ in made]).T
        about = {"what": what, "co_locations": f"{np.mean(meeting):.0f}" if meeting else ""}
        yield about | means(mae=mae, mse=mse) | {"refused": sum(refused for _, refused in made)}


# Membership inference


def member_rows(data: dict[str, Traces]) -> Iterator[Row]:
    for name, traces in data.items():
        for seed in range(MEMBER_RUNS):
            members, others = traces.split_users(0.5, seed)
            yield member_row(replace(members, friendships=None), members, others) | {
                "data": name,
                "system": "the data itself",
                "epsilon": "",
                "seed": seed,
                "bound": 1,
            }
            for epsilon in MEMBER_EPSILONS:
                # Friendships, co-locations and moves get a third of epsilon each; the number of meetings is given.
                shares = {f"epsilon_{what}": epsilon / 3 for what in ("friendship", "colocation", "moves")}
                released, _ = with_meetings(members, seed, n_colocations=1000, **shares)
                figures = {"epsilon": epsilon, "seed": seed, "bound": f"{bound(epsilon):.4f}"}
                yield {"data": name, "system": "ours"} | figures | member_row(released, members, others)


def member_row(released: Traces, members: Traces, others: Traces) -> Row:
    scores = membership_scores(released, members, others, pool_traces=True)
    figures = {"advantage": membership_advantage(*scores), "chance": membership_chance(*scores)}
    return {name: f"{value:.4f}" for name, value in figures.items()} | {
        "traces": released.n_users,
        "users": members.n_users + others.n_users,
    }


def bound(epsilon: float) -> float:
    """Largest true minus false positive rate under differential privacy, for the question if one user is in the
    data."""
    return float(np.tanh(epsilon / 2))


# One user, in the data or not


def attack_rows(data: dict[str, Traces]) -> Iterator[Row]:
    for name, traces in (data | {"a chain": chain_of_friends()}).items():
        graph = FriendGraph.of(traces)
        for rule in RULES:
            for c in (1, LIMIT):
                counts, without = most_changing_user(traces, graph, rule, c)
                for epsilon in (0.1, 0.5, 1.0, 2.0):
                    figures = advantage_on_counts(counts, without, c, epsilon)
                    changed = int(np.abs(counts - without).sum())
                    about = {"data": name, "rule": rule, "c": c, "epsilon": epsilon, "changed": changed, "claimed": c}
                    yield about | figures | {"bound": f"{bound(epsilon):.4f}"}


def most_changing_user(traces: Traces, graph: FriendGraph, rule: str, c: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts with and without one user: of the 200 users with the most meetings, the one who changes counts most."""
    (counts,) = trimmed_counts(traces, graph, rule, c, n_seeds=1)
    meets = np.bincount(graph.pairs[find_colocations(traces, graph).pair].ravel(), minlength=graph.n_users)
    candidates = np.argsort(-meets, kind="stable")[:200]
    without = [without_user(traces, graph, rule, c, user) for user in candidates[meets[candidates] > 0]]
    return counts, max(without, key=lambda each: np.abs(each - counts).sum())


def without_user(traces: Traces, graph: FriendGraph, rule: str, c: int, user: int) -> np.ndarray:
    others = traces.select_users(np.delete(np.arange(traces.n_users), user))
    return trimmed_counts(others, graph, rule, c, n_seeds=1)[0]


def advantage_on_counts(counts: np.ndarray, without: np.ndarray, sensitivity: int, epsilon: float) -> Row:
    """Advantage of the likelihood-ratio test on noisy counts: twice the share of right answers, minus one."""
    noise, changed = SeededNoise(1), counts != without
    both = [each[changed].astype(np.int64) for each in (counts, without)]
    rate = epsilon / sensitivity
    right = []
    for truth, sign in zip(both, (1, -1), strict=True):
        noisy = noise.add_laplace(np.tile(truth, (ATTACK_RUNS, 1)), sensitivity, epsilon)
        ratio = rate * (np.abs(noisy - both[1]) - np.abs(noisy - both[0])).sum(axis=1) * sign
        # If both are equally probable, the attacker guesses.
        right.append(np.where(ratio > 0, 1.0, np.where(ratio < 0, 0.0, 0.5)))
    error = np.sqrt(sum(each.var() / len(each) for each in right))
    return {"advantage": f"{sum(each.mean() for each in right) - 1:.4f}", "standard_error": f"{error:.4f}"}


def chain_of_friends(n_users: int = 201) -> Traces:
    """A chain of users: each meets the next one, at an hour that no other pair has."""
    from ppmtf_jax.data.time_grid import TimeGrid

    grid = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, -(-n_users // 24) * 24, slot_s=3600)
    places = PlaceTable(np.arange(N_PLACES), np.zeros(N_PLACES), np.zeros(N_PLACES), np.full(N_PLACES, "a", object))
    first = np.arange(n_users - 1)
    both = {"user": np.concatenate([first, first + 1]), "instant": np.tile(first, 2)}
    frame = pd.DataFrame(both | {"place": np.tile(first % N_PLACES, 2)})
    return Traces.from_frame(frame, places, grid, pd.DataFrame({"user": first, "friend": first + 1}))


# What holds


def verdicts(stem: str) -> None:
    """Print what protection costs in each city."""
    counts = pd.read_csv(f"{stem}_counts.csv")
    errors = counts[counts["what"] == "co-locations"].set_index(["rule", "mechanism", "data", "epsilon", "c"])
    at_best = errors.xs(EPSILON, level="epsilon").groupby(["rule", "mechanism", "data"])[["mae", "true"]].min()
    for kind in MECHANISMS:
        honest, published = (at_best.loc[(rule, kind)] for rule in ("bounded", "greedy"))
        told(f"Cost of protection: MAE bounded over greedy, best c each, {kind}", honest["mae"] / published["mae"])
        for rule, best in (("bounded", honest), ("greedy", published)):
            told(f"MAE below that of saying 0, best c, {rule} rule, {kind}", best["mae"] / best["true"], below=1)


def told(finding: str, ratio: pd.Series, below: float | None = None) -> None:
    """Print the ratio in each city, and in how many cities it is below the limit of the finding."""
    held = "" if below is None else f": HOLDS in {(ratio < below).sum()} of {len(ratio)}"
    print(f"{finding}{held} ({', '.join(f'{name} {each:.2f}' for name, each in ratio.items())})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = {"counts": count_rows, "traces": trace_rows, "members": member_rows, "attack": attack_rows}
    parser.add_argument("section", choices=[*sections, "verdicts"])
    parser.add_argument("shared", type=Path, nargs="?", default=SHARED, help="folder of the data")
    parser.add_argument("--csv", required=True, help="file for the numbers; to read, how the files' names begin")
    parser.add_argument("--only", nargs="+", help="names of data sets")
    arguments = parser.parse_args()
    if arguments.section == "verdicts":
        verdicts(arguments.csv)
        return
    peak, clock = PeakMemory(), Clock()
    data = {name: traces for name, traces in cities(arguments.shared).items() if name in (arguments.only or [name])}
    record(sections[arguments.section](data), Path(arguments.csv), COLUMNS[arguments.section], append=True)
    print(f"{arguments.section}: {clock.row() | {'peak_mb': peak.megabytes()} | machine()}")


if __name__ == "__main__":
    main()
