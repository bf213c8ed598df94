"""The bridge without memory: its utility and privacy beside PPMTF's, its time and memory, and its parts.

    python benchmarks/bridge.py table ../shared --csv benchmarks/bridge_table.csv
    python benchmarks/bridge.py tuning ../shared --csv benchmarks/bridge_tuning.csv
    python benchmarks/bridge.py cells ../shared --csv benchmarks/bridge_cells.csv
    python benchmarks/bridge.py city --csv benchmarks/bridge_city.csv
    python benchmarks/bridge.py wide --csv benchmarks/bridge_city.csv
    python benchmarks/bridge.py clusters ../shared --csv benchmarks/bridge_clusters.csv

Each section prints its rows when they are finished and appends them to the file. The data are people flow, check-ins in
New York and toy cities. "New York" has all places, as published; "New York, default" has only the places of at least
five training users, as `ppmtf import` keeps them.

`table`: synthesizers and controls over three seeds, ten traces a user (toy city: five), all numbers from `evaluate`.
The privacy test has k = 10 and eta = 1. The controls have the settings that were chosen for the bridge: `shuffled` puts
its users at random into clusters of the same sizes, and `one cluster` puts all users into one cluster. In the end it
prints a table of means over seeds and ranges.

`tuning`: CPU seconds for the choice of the settings, and the gain in likelihood of test users, whom the choice never
saw.

`cells`: how far chains with distances between 256 or 128 cells of places are from chains with exact distances.

`city` has 219,793 users at 1,000 places, `wide` has 20,000 users at 10,000 places. A model is fitted, makes one trace
of each user, and all users test these traces. Each part has seconds by the clock, seconds of all threads (both with
compilation) and peak memory (with libraries). In the toy cities people live and commute. The `random` city is the city
of `city.py` as traces: each user is seen at 20 of 24 instants, at random places, more often at popular ones.

`clusters`: a quarter of the users, at most 10,000, is held out. `gain` is the log-likelihood of their visits under a
mixture of the clusters minus that under the population, in nats per visit. It is the mean over seeds, which hold out
different users. Seconds are for one call of `fit_clusters`; memory is the peak of a process of its own, with the data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from common import Clock, Row, command_line, in_a_process, machine, measured, new_york, peak_mb, people_flow, record
from scipy.special import logsumexp

from ppmtf_jax import PPMTFSettings, evaluate, fit, plausible_deniability_test, synthesize
from ppmtf_jax.bridge import clusters, selection
from ppmtf_jax.bridge.clusters import Clusters, ClusterSmoother, ClusterSmoothing, fit_clusters, log_likelihoods
from ppmtf_jax.bridge.selection import Selection
from ppmtf_jax.bridge.space import Space, space_of
from ppmtf_jax.bridge.visits import PopulationSmoothing, VisitCounts, population
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.foursquare import read_foursquare
from ppmtf_jax.datasets.registry import split_users
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import EvaluationSettings
from ppmtf_jax.runtime.devices import use_all_cores
from ppmtf_jax.runtime.memory import PeakMemory
from ppmtf_jax.streams import Stage, numpy_stream
from ppmtf_jax.synthesizers import bridge
from ppmtf_jax.synthesizers.bridge import BridgeSettings, chains_and_clusters
from ppmtf_jax.synthesizers.bridge_model import ClusterBridge
from ppmtf_jax.synthesizers.fitted_model import FittedModel

# This script measures the bridge without memory; `people.py` measures the default.
CHAINS = BridgeSettings(memory="none")
# Number of synthetic traces of each user.
DATA = {"people flow": 10, "New York": 10, "toy city": 5, "New York, default": 10}
# In the toy city every user has a home of her own, so it needs a higher rank than the published data.
PPMTF = {"toy city": PPMTFSettings(rank=32, zeros="weighted", n_zeros=300)}
SEEDS = range(3)
MAX_HELD_OUT = 10_000
K, ETA = 10, 1.0
METRICS = (
    "tp_tv",
    "tm_emd_y",
    "tm_emd_x",
    "vf_tv",
    "stay_difference",
    "jump_tv",
    "distinct_w1",
    "radius_w1_km",
    "od_tv",
)
METRICS += ("group_tv", "reid_rate", "mia_advantage", "mia_chance")
TABLE_COLUMNS = ["data", "seed", "set", "traces", "share_passed", "clusters", *METRICS, "group_floor", "group_alike"]
TUNING_COLUMNS = ["data", "seed", "population_s", "moves_s", "clusters_s", "n_clusters", "blur_km", "population_mass"]
TUNING_COLUMNS += ["slot_bandwidth", "gain", "test_gain", "load"]
MAX_CELLS = (1024, 256, 128)
CELL_METRICS = ("tp_tv", "tm_emd_y", "vf_tv", "stay_difference", "jump_tv", "distinct_w1", "radius_w1_km", "od_tv")
CELL_COLUMNS = ["data", "users", "places", "cells", "row_tv", "marginal_tv", *CELL_METRICS, "cpu_seconds"]
# Users and places.
CITIES = {"city": (219_793, 1000), "random city": (219_793, 1000), "wide city": (20_000, 10_000)}
CITIES |= {"wide random city": (20_000, 10_000)}
CITY_COLUMNS = ["data", "users", "places", "events", "stage", "seconds", "cpu_seconds", "peak_mb", "cores", "load"]
CITY_COLUMNS += ["note"]
POPULATION = {
    "people flow": PopulationSmoothing(1.0, 2, 0.5, 3.0, 0.1),
    "New York": PopulationSmoothing(1.0, 3, 0.5, 3.0, 1.0),
    "city": PopulationSmoothing(1.0, 2, 0.0, 0.1, 0.3),
}
CLUSTER_CASES: list[Row] = [
    *({"data": "people flow", "smoothing": (n, 1.0, 3.0, 1.5), "seeds": 12} for n in (8, 16, 32)),
    *({"data": "New York", "smoothing": (n, 1.0, 5.0, 1.5), "seeds": 12} for n in (16, 32, 64)),
    *({"data": "New York", "smoothing": (32, 1.0, 5.0, 1.5), "seeds": 12, "n_sweeps": n} for n in (5, 10, 40)),
    *({"data": "city", "smoothing": (64, blur, 2.0, 0.85), "seeds": 3} for blur in (0.0, 1.0)),
    *({"data": "city", "smoothing": (64, 0.0, 2.0, 0.85), "seeds": 3, "em_users": n} for n in (5000, 10**6)),
    *({"data": "wide city", "smoothing": (64, blur, 2.0, 0.85), "seeds": 1} for blur in (0.0, 1.0)),
]
CLUSTER_COLUMNS = ["data", "users", "entries", "places", "slots", "n_clusters", "blur_km", "n_sweeps", "em_users"]
CLUSTER_COLUMNS += ["found", "gain", "gain_error", "seconds", "cpu_seconds", "peak_mb", "cores", "load"]


def read(data: str, shared: Path) -> Traces:
    if data in CITIES:
        n_users, n_places = CITIES[data]
        if "random" in data:
            return random_city(n_users, n_places)
        return toy_city(n_users=n_users, n_places=n_places, n_days=3, seed=0).traces
    if data == "toy city":
        return toy_city(n_users=2500, seed=0).traces
    if data == "people flow":
        return people_flow(shared)[0]
    return new_york(shared)


def split(data: str, shared: Path, seed: int) -> tuple[Traces, Traces]:
    if data == "people flow":
        return people_flow(shared)
    if data == "New York, default":
        traces, report = read_foursquare(shared / "data" / "foursquare-tsmc2014-nyc")
        sets = split_users(traces, report, 0.8, seed).sets
        return sets["train"], sets["test"]
    return read(data, shared).split_users(0.8, seed)


def random_city(n_users: int, n_places: int, n_instants: int = 24, events_per_user: int = 20) -> Traces:
    """Users who are at random places, more often at popular ones."""
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, n_places + 1)
    drawn = rng.random((n_users, n_instants), np.float32).argpartition(events_per_user, axis=1)[:, :events_per_user]
    instant = np.sort(drawn, axis=1).astype(np.int32).ravel()
    place = rng.choice(n_places, len(instant), p=popularity / popularity.sum()).astype(np.int32)
    at = rng.random((2, n_places))
    places = PlaceTable(np.arange(n_places), 41 + 0.2 * at[0], 28.8 + 0.4 * at[1])
    grid = TimeGrid("2024-01-01T00:00:00", 3600, (np.arange(n_instants) // 2).astype(np.int32))
    user = np.repeat(np.arange(n_users, dtype=np.int32), events_per_user)
    return Traces(user, np.zeros_like(user), instant, place, np.arange(n_users), places, grid)


# Utility and privacy


def table_rows(shared: Path) -> Iterator[Row]:
    for seed in SEEDS:
        for data in DATA:
            train, test = split(data, shared, seed)
            sets, about = synthetic_sets(data, train, seed)
            found = evaluate(sets, train, test)
            groups = next(row for row in found.rows if row.quantity.name == "group_tv").reading.references
            levels = {"group_floor": groups["floor"], "group_alike": groups["all alike"]}
            for name in found.columns:
                values = {metric: found.value(metric, name) for metric in METRICS}
                yield {"data": data, "seed": seed, "set": name} | about.get(name, {}) | _rounded(values | levels)


def synthetic_sets(data: str, train: Traces, seed: int) -> tuple[dict[str, Traces], dict[str, Row]]:
    """Synthetic traces of all systems and controls, and facts about them, such as the share that passed."""
    sets, about = {}, {}
    for name, model in models(data, train, seed):
        made = synthesize(model, traces_per_user=DATA[data], seed=seed)
        passed = plausible_deniability_test(model, made, k=K, eta=ETA).passed
        sets[name], about[name] = made, {"traces": len(passed), "share_passed": round(float(passed.mean()), 4)}
        if isinstance(model.trace_model, ClusterBridge):
            about[name]["clusters"] = len(model.trace_model.first)
        else:
            sets[f"{name}, passed"] = made.select_traces(passed)
            about[f"{name}, passed"] = {"traces": int(passed.sum())}
    return sets, about


def models(data: str, train: Traces, seed: int) -> Iterator[tuple[str, FittedModel]]:
    yield "PPMTF", fit(train, "ppmtf", PPMTF.get(data, PPMTFSettings()), seed=seed)
    model = fit(train, "bridge", CHAINS, seed=seed)
    yield "bridge", model
    of_user, choice = np.asarray(model.trace_model.cluster), Selection.of_numbers(np.asarray(model.trace_model.chosen))
    shuffled = np.random.default_rng(seed).permutation(of_user)
    for name, other in (("bridge, shuffled", shuffled), ("bridge, one cluster", np.zeros_like(of_user))):
        yield name, replace(model, trace_model=chains_and_clusters(train, other, choice)[0])


def print_table(rows: list[Row]) -> None:
    """Means over seeds and their range, as Markdown."""
    table = pd.DataFrame(rows)
    columns = ["share_passed", *METRICS]
    for data, of_data in table.groupby("data", sort=False):
        print(f"\n**{data}**\n\n| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
        for name, of_set in of_data.groupby("set", sort=False):
            print(f"| {name} | {' | '.join(_with_range(of_set[column]) for column in columns)} |")


def _with_range(values: pd.Series) -> str:
    if values.isna().all():
        return "-"
    mean, low, high = (f"{value:.3f}" for value in (values.mean(), values.min(), values.max()))
    return mean if low == high else f"{mean} ({low} to {high})"


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


# Choice of settings


def tuning_rows(shared: Path) -> Iterator[Row]:
    for data in DATA:
        for seed in SEEDS:
            train, test = split(data, shared, 0)
            visits, space, others = VisitCounts.of(train), space_of(train.places), VisitCounts.of(test)
            with cpu_seconds(selection, "choose_population", "choose_moves", "choose_clusters") as taken:
                given = {"min_users": CHAINS.min_cluster_users, "n_clusters": None}
                choice = selection.select(train, space, **given, random=numpy_stream(seed, Stage.TUNING))
            shares = population(visits, choice.population, train.time_grid)
            smoother = ClusterSmoother(shares, space, choice.clusters, train.time_grid)
            gains = []
            for start in SEEDS:
                random = np.random.default_rng(start)
                found = fit_clusters(visits, smoother, random=random, min_users=CHAINS.min_cluster_users)
                gains.append(gain_of(others, found, shares))
            yield (
                {"data": data, "seed": seed}
                | {f"{name.removeprefix('choose_')}_s": round(seconds, 1) for name, seconds in taken.items()}
                | _rounded(choice.clusters._asdict())
                | {"gain": round(choice.gains.get(choice.clusters.n_clusters, 0.0), 4)}
                | {"test_gain": round(float(np.mean(gains)), 4), "load": machine()["load"]}
            )


@contextmanager
def cpu_seconds(module: Any, *names: str) -> Iterator[dict[str, float]]:
    """Measure the CPU seconds of all threads in some functions of a module."""
    taken: dict[str, float] = {}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result, took = measured(function, *arguments, **options)
            taken[name] = took["cpu_seconds"]
            return result

        return call

    with patch.multiple(module, **{name: timed(name, getattr(module, name)) for name in names}):
        yield taken


def gain_of(visits: VisitCounts, found: Clusters, shares: np.ndarray) -> float:
    """Log-likelihood of visits under a mixture of clusters minus that under the population, in nats per visit."""
    likelihood = logsumexp(log_likelihoods(visits, found) + np.log(found.share), axis=1).sum()
    base = visits.count @ np.log(shares[visits.slot, visits.place])
    return float(likelihood - base) / float(visits.count.sum())


# Cells of places


def cell_rows(shared: Path) -> Iterator[Row]:
    """A row for each number of cells; clusters and settings are always the same."""
    sets = {
        "New York": read("New York", shared).split_users(0.8, 0),
        "toy city": toy_city(n_users=5000, n_places=1000, n_days=3, seed=0).traces.split_users(0.8, 0),
    }
    for data, (train, test) in sets.items():
        model = fit(train, "bridge", CHAINS, seed=0)
        exact: ClusterBridge = model.trace_model
        of_user, choice = np.asarray(exact.cluster), Selection.of_numbers(np.asarray(exact.chosen))
        for max_cells in MAX_CELLS:
            begin = time.process_time()
            with patch.object(bridge, "space_of", partial(space_of, max_cells=max_cells)):
                chains = chains_and_clusters(train, of_user, choice)[0]
            taken = time.process_time() - begin
            made = synthesize(replace(model, trace_model=chains), traces_per_user=2, seed=0)
            found = evaluate(made, train, test, EvaluationSettings(attacks=False))
            row_tv, marginal_tv = apart(exact, chains)
            values = {"row_tv": row_tv, "marginal_tv": marginal_tv} | {name: found[name] for name in CELL_METRICS}
            size = {"data": data, "users": train.n_users, "places": train.n_places, "cells": len(chains.between)}
            yield size | _rounded(values) | {"cpu_seconds": round(taken, 1)}


def apart(exact: ClusterBridge, other: ClusterBridge) -> tuple[float, float]:
    """Total variation between two models: of rows of transitions, and of the places of their chains; means over steps.

    Rows are weighted by how many chains of the exact model are at the place. Both chains start as the exact model does.
    """
    share = np.bincount(np.asarray(exact.cluster)) / len(exact.cluster)
    at = {name: np.asarray(exact.first, np.float64) for name in ("exact", "other")}
    rows, ends = [], []
    for instant in range(1, len(exact.slot_of_instant)):
        weights = [step_weights(model, instant) for model in (exact, other)]
        arrived = {"exact": [], "other": []}
        of_rows = 0.0
        for cluster in range(len(share)):
            first, second = (
                step_probabilities(model, table, instant, cluster)
                for model, table in zip((exact, other), weights, strict=True)
            )
            start = at["exact"][cluster]
            of_rows += share[cluster] * float(start @ np.abs(first - second).sum(axis=1)) / 2
            arrived["exact"].append(start @ first)
            arrived["other"].append(at["other"][cluster] @ second)
        at = {name: np.stack(places) for name, places in arrived.items()}
        rows.append(of_rows)
        ends.append(float(share @ np.abs(at["exact"] - at["other"]).sum(axis=1)) / 2)
    return float(np.mean(rows)), float(np.mean(ends))


def step_weights(model: ClusterBridge, instant: int) -> np.ndarray:
    """Weights of all next places, shape (places, places), before the pull of a cluster."""
    pair, slot = int(model.pair_of_instant[instant]), int(model.slot_of_instant[instant])
    cell, start = np.asarray(model.cell), np.asarray(model.move_start)
    weights = np.asarray(model.leaving)[slot, :, None] * np.asarray(model.between)[cell][:, cell]
    weights = weights * np.asarray(model.arriving)[slot]
    place = np.repeat(np.arange(model.n_places), np.diff(start))
    weights[place, np.asarray(model.next_place)[:-1]] += np.asarray(model.seen)[slot, :-1]
    np.fill_diagonal(weights, np.asarray(model.stay)[pair])
    return weights


def step_probabilities(model: ClusterBridge, weights: np.ndarray, instant: int, cluster: int) -> np.ndarray:
    rows = weights * np.asarray(model.pull[model.pair_of_instant[instant], cluster])
    return rows / rows.sum(axis=1, keepdims=True)


# Seconds and memory


def city_rows(data: list[str]) -> Iterator[Row]:
    for name in data:
        yield from in_a_process(measure_city, name)


def measure_city(data: str) -> list[Row]:
    """Fit, synthesize and test in this process."""
    use_all_cores()
    traces = read(data, Path())
    rows: list[Row] = []
    parts = {"select": "settings", "find_clusters": "clusters", "chains_and_clusters": "moves and chains"}
    timed = {name: adding_a_row(stage, getattr(bridge, name), rows) for name, stage in parts.items()}
    clock = Clock()
    with patch.multiple(bridge, **timed):
        model = fit(traces, "bridge", CHAINS, seed=0)
    synthetic = adding_a_row("synthesize", synthesize, rows)(model, seed=0)
    test = adding_a_row("test", plausible_deniability_test, rows)
    verdicts = test(model, synthetic, k=K, eta=ETA)
    chains = model.trace_model
    note = f"{len(chains.first)} clusters of {CHAINS.min_cluster_users} or more, "
    note += f"{len(chains.next_place) - 1:,} seen moves, {verdicts.passed.mean():.2%} pass"
    rows.append({"stage": "all", **clock.row(), "peak_mb": max(row["peak_mb"] for row in rows), "note": note})
    about = {"data": data, "users": traces.n_users, "places": traces.n_places, "events": traces.n_events}
    return [about | row | {"cores": machine()["cores"]} for row in rows]


def adding_a_row(stage: str, function: Callable[..., Any], rows: list[Row]) -> Callable[..., Any]:
    """The same function, but each call adds a row with its seconds and its peak memory."""

    def call(*arguments: Any, **options: Any) -> Any:
        peak, clock = PeakMemory(), Clock()
        result = function(*arguments, **options)
        rows.append({"stage": stage, **clock.row(), "peak_mb": peak.megabytes(), "load": machine()["load"]})
        print(rows[-1], file=sys.stderr, flush=True)
        return result

    return call


# Clusters


def cluster_rows(shared: Path) -> Iterator[Row]:
    for case in CLUSTER_CASES:
        whole = {"em_users": clusters.EM_USERS, "n_sweeps": 20} | case
        about = whole | dict(zip(("n_clusters", "blur_km"), case["smoothing"], strict=False))
        row = about | machine() | in_a_process(measure_clusters, whole, str(shared))
        yield {name: row[name] for name in CLUSTER_COLUMNS}


def measure_clusters(case: Row, shared: str) -> Row:
    clusters.EM_USERS = case["em_users"]
    traces = read(case["data"], Path(shared))
    visits, space, grid = VisitCounts.of(traces), space_of(traces.places), traces.time_grid
    del traces
    rows = [held_out(case, visits, space, grid, seed) for seed in range(case["seeds"])]
    found, gain, seconds, cpu_seconds = np.mean(rows, axis=0)
    error = np.std(rows, axis=0, ddof=1)[1] / len(rows) ** 0.5 if len(rows) > 1 else np.nan
    return {
        "users": visits.n_users,
        "entries": len(visits.user),
        "places": visits.n_places,
        "slots": visits.n_slots,
        "found": round(found, 1),
        "gain": round(gain, 4),
        "gain_error": round(error, 4),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_mb": peak_mb(),
    }


def held_out(case: Row, visits: VisitCounts, space: Space, grid: TimeGrid, seed: int) -> tuple[float, ...]:
    """Number of clusters, gain, seconds by the clock, and seconds of all threads."""
    users = np.random.default_rng(seed).permutation(visits.n_users)
    n = min(visits.n_users // 4, MAX_HELD_OUT)
    others, own = visits.of_users(np.sort(users[:n])), visits.of_users(np.sort(users[n:]))
    shares = population(own, POPULATION[case["data"].removeprefix("wide ")], grid)
    smoother = ClusterSmoother(shares, space, ClusterSmoothing(*case["smoothing"]), grid)
    options = {"min_users": 10, "random": np.random.default_rng(seed), "n_sweeps": case["n_sweeps"]}
    clock = Clock()
    found = fit_clusters(own, smoother, **options)
    taken = clock.both()
    return len(found.share), gain_of(others, found, shares), *taken


SECTIONS: dict[str, tuple[list[str], Callable[[Path], Iterator[Row]]]] = {
    "table": (TABLE_COLUMNS, table_rows),
    "tuning": (TUNING_COLUMNS, tuning_rows),
    "cells": (CELL_COLUMNS, cell_rows),
    "city": (CITY_COLUMNS, lambda _: city_rows(["city", "random city"])),
    "wide": (CITY_COLUMNS, lambda _: city_rows(["wide city", "wide random city"])),
    "clusters": (CLUSTER_COLUMNS, cluster_rows),
}


def main() -> None:
    parser = command_line(__doc__, sections=SECTIONS, shared=True)
    arguments = parser.parse_args()
    columns, section = SECTIONS[arguments.section]
    rows = record(section(arguments.shared), arguments.csv, columns, append=True)
    if arguments.section == "table":
        print_table(rows)


if __name__ == "__main__":
    main()
