"""A city through the stages of the line: seconds and peak memory of each.

    python benchmarks/city.py --users 219793 --work city
    python benchmarks/city.py --stages test --precision float32 --work city --csv benchmarks/city.csv

The city is that of `gibbs.py`: random, of the size of Istanbul, popular places more often. Its model comes from a few
sweeps with weighted zeros, which is enough for factors of the right shape. Stages leave what they make in the work
folder for later ones. Each runs in a process of its own, so that peak memory is its own, libraries
and model included. `seconds` are by the clock, with compilation; `cpu_seconds` those that all threads computed: the
figure to compare on a machine that is also busy with other things. A new stage is a function in STAGES.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppmtf_jax.devices import use_all_cores
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.run import run_gibbs
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.synthesizers.base import FittedModel, synthesize
from ppmtf_jax.synthesizers.metropolis_hastings import MetropolisHastings
from ppmtf_jax.traces import PlaceTable, TimeGrid, Traces

sys.path.insert(0, str(Path(__file__).parent))
from gibbs import CITY, append_csv, city_tensors, figures_of

use_all_cores()

RANK = 16
INSTANTS_PER_SLOT = 2


def fit_city(case: dict[str, Any], work: Path) -> dict[str, Any]:
    """A few sweeps, and the model folder."""
    CITY["n_users"] = case["users"]
    counts = city_tensors()
    cells = observe(counts, "weighted", 1000, seed=0)
    settings = GibbsSettings(rank=RANK)
    n_rows = rows_of_factors(SHARED, counts)
    draws = run_gibbs(jax.random.key(0), cells, n_rows, SHARED, settings, n_sweeps=case["sweeps"]).draws
    user, place, next_place, slot = (
        jnp.asarray(draws[name][0, -1]) for name in ("user", "place", "next_place", "slot")
    )
    slots = np.repeat(np.arange(CITY["n_slots"]), INSTANTS_PER_SLOT).astype(np.int32)
    chains = MetropolisHastings(user, place, next_place, user, place, slot, jnp.asarray(slots))
    n_places = CITY["n_places"]
    places = PlaceTable(np.arange(n_places), np.linspace(41, 41.2, n_places), np.linspace(28.8, 29.2, n_places))
    grid = TimeGrid("2024-01-01T00:00:00", 3600, slots)
    FittedModel("ppmtf", {}, 0, np.arange(len(user)), places, grid, chains).save(work / "model", overwrite=True)
    return {"sweeps": case["sweeps"]}


def synthesize_city(case: dict[str, Any], work: Path) -> dict[str, Any]:
    """One trace of each user."""
    model = FittedModel.load(work / "model")
    # Compilation apart: the same programs on one batch.
    begin = time.perf_counter()
    synthesize(model, seed=1)
    first = time.perf_counter() - begin
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    synthetic = synthesize(model, seed=0)
    after_compilation = time.perf_counter() - begin
    synthetic.save(work / "synthetic", overwrite=True)
    return {
        "seconds_first": round(first, 1),
        "seconds_compiled": round(after_compilation, 1),
        "before_mb": before // 1024,
    }


def test_city(case: dict[str, Any], work: Path) -> dict[str, Any]:
    """The privacy test of all traces by a random subset of users."""
    model, synthetic = FittedModel.load(work / "model"), Traces.load(work / "synthetic")
    options = {"k": case["k"], "n_verifiers": min(case["verifiers"], model.n_users), "precision": case["precision"]}
    result = plausible_deniability_test(model, synthetic, eta=1.0, **options)
    asked = result.table["verifiers"]
    return options | {"pass_rate": round(float(result.passed.mean()), 4), "mean_verifiers": round(float(asked.mean()))}


STAGES: dict[str, Callable[[dict[str, Any], Path], dict[str, Any]]] = {
    "fit": fit_city,
    "synthesize": synthesize_city,
    "test": test_city,
}


def measure(case: dict[str, Any], work: str) -> dict[str, Any]:
    """One stage in this process."""
    begin, cpu = time.perf_counter(), time.process_time()
    more = STAGES[case["stage"]](case, Path(work))
    return {
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    } | more


def in_a_process(case: dict[str, Any], work: Path) -> dict[str, Any]:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import city, json; "
    code += f"print(json.dumps(city.measure({case!r}, {str(work)!r})))"
    return figures_of(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--users", type=int, default=CITY["n_users"])
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--verifiers", type=int, default=32_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--work", type=Path, required=True, help="folder for model and traces")
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    columns = ["stage", "users", "places", "cores", "load", "seconds", "cpu_seconds", "peak_mb", "sweeps"]
    columns += ["seconds_first", "seconds_compiled", "before_mb", "k", "n_verifiers", "precision", "pass_rate"]
    columns += ["mean_verifiers", "error"]
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for stage in arguments.stages:
        case = {name: getattr(arguments, name) for name in ("users", "sweeps", "verifiers", "k", "precision")}
        about = {"stage": stage, "users": arguments.users, "places": CITY["n_places"]}
        about |= {"cores": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1)}
        rows.append(about | in_a_process(case | {"stage": stage}, arguments.work))
        print(",".join(f"{name}={rows[-1][name]}" for name in columns if name in rows[-1]), flush=True)
    if arguments.csv:
        append_csv(arguments.csv, columns, rows)


if __name__ == "__main__":
    main()
