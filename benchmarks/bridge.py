"""The parts of the bridge: how well they tell of other users, and seconds and peak memory.

    python benchmarks/bridge.py clusters --csv benchmarks/bridge_clusters.csv

`clusters`: on people flow, check-ins in New York and toy cities. A quarter of the users, at most 10,000, is held out:
`gain` is how much likelier, in nats a visit, theirs are under a mixture of the clusters than under the population. It
is the mean over seeds, each with other users held out. Seconds are of one call of `fit_clusters`; memory is the peak of
a process of its own, the data included.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from ppmtf_jax.bridge import clusters
from ppmtf_jax.bridge.clusters import ClusterSmoothing, fit_clusters, log_likelihoods
from ppmtf_jax.bridge.visits import PopulationSmoothing, Visits, population
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.foursquare import read_foursquare
from ppmtf_jax.datasets.people_flow import read_people_flow
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.runtime.devices import n_cores

sys.path.insert(0, str(Path(__file__).parent))
from gibbs import append_csv, figures_of

SHARED = Path(__file__).parents[2] / "shared"
KM_PER_DEGREE = 111.2
MAX_CELLS, MAX_HELD_OUT = 1024, 10_000
POPULATION = {
    "people flow": PopulationSmoothing(1.0, 1, 0.5, 3.0, 0.1),
    "New York": PopulationSmoothing(1.0, 2, 0.5, 3.0, 1.0),
    "city": PopulationSmoothing(1.0, 0, 0.0, 0.1, 0.3),
}
CITIES = {"city": (219_793, 1000), "city of many places": (20_000, 10_000)}
CASES: list[dict[str, Any]] = [
    *({"data": "people flow", "smoothing": (n, 1.0, 3.0, 1.5), "seeds": 12} for n in (8, 16, 32)),
    *({"data": "New York", "smoothing": (n, 1.0, 5.0, 1.5), "seeds": 12} for n in (16, 32, 64)),
    *({"data": "New York", "smoothing": (32, 1.0, 5.0, 1.5), "seeds": 12, "n_sweeps": n} for n in (5, 10, 40)),
    *({"data": "city", "smoothing": (64, blur, 2.0, 0.85), "seeds": 3} for blur in (0.0, 1.0)),
    *({"data": "city", "smoothing": (64, 0.0, 2.0, 0.85), "seeds": 3, "em_users": n} for n in (5000, 10**6)),
    *({"data": "city of many places", "smoothing": (64, blur, 2.0, 0.85), "seeds": 1} for blur in (0.0, 1.0)),
]
COLUMNS = ["data", "users", "entries", "places", "slots", "n_clusters", "blur_km", "n_sweeps", "em_users"]
COLUMNS += ["found", "gain", "gain_error", "seconds", "cpu_seconds", "peak_mb", "cores", "load"]


def read(data: str) -> Traces:
    if data in CITIES:
        n_users, n_places = CITIES[data]
        return toy_city(n_users=n_users, n_places=n_places, n_days=3, seed=0).traces
    if data == "people flow":
        return read_people_flow(SHARED / "reference" / "people_flow")[0]
    return read_foursquare(SHARED / "data" / "foursquare-tsmc2014-nyc")[0]


def distances(places: PlaceTable) -> SimpleNamespace:
    """Cells around places drawn at random, and kilometres between those, where there are more than 1,024 of them."""
    east = np.cos(np.radians(places.latitude.mean())) * places.longitude
    at_km = KM_PER_DEGREE * np.column_stack([places.latitude, east]).astype(np.float32)
    n_cells = min(len(at_km), MAX_CELLS)
    centre = at_km[np.sort(np.random.default_rng(0).choice(len(at_km), n_cells, replace=False))]

    def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.linalg.norm(a[:, None] - b, axis=-1)

    if n_cells == len(at_km):
        return SimpleNamespace(cell=np.arange(n_cells), km=apart(at_km, at_km))
    return SimpleNamespace(cell=apart(at_km, centre).argmin(axis=1), km=apart(centre, centre))


def measure_clusters(case: dict[str, Any]) -> dict[str, Any]:
    clusters.EM_USERS = case["em_users"]
    traces = read(case["data"])
    visits, space, grid = Visits.of(traces), distances(traces.places), traces.time_grid
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
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def held_out(case: dict[str, Any], visits: Visits, space: Any, grid: Any, seed: int) -> tuple[float, ...]:
    """Clusters found, gain, seconds and seconds of all threads."""
    users = np.random.default_rng(seed).permutation(visits.n_users)
    n = min(visits.n_users // 4, MAX_HELD_OUT)
    others, own = visits.of_users(np.sort(users[:n])), visits.of_users(np.sort(users[n:]))
    shares = population(own, POPULATION[case["data"].partition(" of ")[0]], grid)
    options = {"time_grid": grid, "min_users": 10, "random": np.random.default_rng(seed), "n_sweeps": case["n_sweeps"]}
    begin, cpu = time.perf_counter(), time.process_time()
    found = fit_clusters(own, shares, space, ClusterSmoothing(*case["smoothing"]), **options)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    likelihood = logsumexp(log_likelihoods(others, found) + np.log(found.share), axis=1).sum()
    base = others.count @ np.log(shares[others.slot, others.place])
    return len(found.share), float(likelihood - base) / float(others.count.sum()), seconds, cpu_seconds


def cluster_rows() -> Iterator[dict[str, Any]]:
    for case in CASES:
        whole = {"em_users": clusters.EM_USERS, "n_sweeps": 20} | case
        about = whole | dict(zip(("n_clusters", "blur_km"), case["smoothing"], strict=False))
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import bridge, json; "
        code += f"print(json.dumps(bridge.measure_clusters({whole!r})))"
        row = about | {"cores": n_cores(), "load": round(os.getloadavg()[0], 1)} | figures_of(code)
        if "error" in row:
            raise SystemExit(f"{case}: {row['error']}")
        yield {name: row[name] for name in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["clusters"])
    parser.add_argument("--csv", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    for row in cluster_rows():
        print(",".join(f"{name}={value}" for name, value in row.items()), flush=True)
        if arguments.csv:
            append_csv(arguments.csv, COLUMNS, [row])


if __name__ == "__main__":
    main()
