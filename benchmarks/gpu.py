"""A city on this machine's accelerator, or on two cores, in less than eight minutes.

    python benchmarks/gpu.py --work city --csv benchmarks/gpu.csv                         # on the GPU
    JAX_PLATFORMS=cpu taskset -c 0,1 python benchmarks/gpu.py --work city --csv benchmarks/gpu.csv
    python benchmarks/gpu.py --csv benchmarks/gpu.csv --table                             # both, side by side

Each stage is a process of its own with a budget of seconds, compilation included; what it measured until then is kept.
`city` makes a day of 24 hours of every user; `sweeps` runs PPMTF's sampler (rank 16, weighted zeros) with products in
float32 and in bfloat16, which a CPU does not tell apart; `ppmtf` synthesizes a trace of each user and tests as many of
them as time allows against 32,000 users, in float64; `people` fits, synthesizes and tests with the bridge.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from common import Row, command_line, machine, measured, record

BUDGETS = {"city": 60, "sweeps": 100, "ppmtf": 160, "people": 120}  # seconds
COLUMNS = ["stage", "measured", "platform", "device", "cores", "load", "users", "places", "n", "seconds"]
COLUMNS += ["cpu_seconds", "value"]
PPMTF = {"zeros": "weighted", "rank": 16}


def city(given: argparse.Namespace) -> Iterator[Row]:
    """Made once in a folder, which may be brought along."""
    from ppmtf_jax import toy_city

    if not (given.work / "traces.parquet").exists():
        made, row = measured(toy_city, given.users, n_places=given.places, n_days=1, missing=0.0, seed=0)
        made.traces.save(given.work)
        yield {"measured": "simulated", "n": made.traces.n_events} | row


def sweeps(given: argparse.Namespace) -> Iterator[Row]:
    """Seconds of a sweep after the program is compiled, and the error of the visits that the precision leaves."""
    import jax

    from ppmtf_jax.gibbs.cells import observe
    from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, rows_of_factors
    from ppmtf_jax.gibbs.run import Quantity, run_gibbs
    from ppmtf_jax.gibbs.tensors import count_tensors

    counts, row = measured(count_tensors, traces_of(given), seed=0)
    yield {"measured": "counts"} | row
    cells, rows = observe(counts, "weighted", 1000, seed=0), rows_of_factors(SHARED, counts)
    for precision in ("float32", "bfloat16"):
        with jax.default_matmul_precision(precision):
            start = jax.random.key(0), cells, rows, SHARED, GibbsSettings(rank=PPMTF["rank"])
            yield {"measured": f"first sweeps, compiled, {precision}", "n": 5} | measured(
                run_gibbs, *start, n_sweeps=5
            )[1]
            result, row = measured(run_gibbs, *start, n_sweeps=given.sweeps)
            error = float(result.trace[Quantity("rmse", "visits")][0, -1])
            row = {name: round(seconds / given.sweeps, 4) for name, seconds in row.items()}
            yield {"measured": f"a sweep, {precision}", "n": given.sweeps, "value": error} | row


def ppmtf(given: argparse.Namespace) -> Iterator[Row]:
    """A model of some sweeps: the time of what follows does not depend on their number."""
    from ppmtf_jax import fit

    model, row = measured(fit, traces_of(given), "ppmtf", **PPMTF, n_sweeps=given.sweeps, seed=1)
    yield {"measured": "fit", "n": given.sweeps} | row
    yield from made_and_tested(given, model, "ppmtf", n_verifiers=min(32_000, model.n_users))


def people(given: argparse.Namespace) -> Iterator[Row]:
    """The default system."""
    from ppmtf_jax import fit

    model, row = measured(fit, traces_of(given), seed=1)
    yield {"measured": "fit"} | row
    yield from made_and_tested(given, model, "people")


def made_and_tested(given: argparse.Namespace, model, stage: str, **settings) -> Iterator[Row]:
    """Synthesis, and the exact test of ever more traces while the next four times as many would be in time."""
    import numpy as np

    from ppmtf_jax import plausible_deniability_test, synthesize

    traces, row = measured(synthesize, model, seed=2)
    yield {"measured": "synthesis", "n": traces.n_users} | row
    n = 1024
    while True:
        n = min(n, traces.n_users)
        tested = traces.select_users(np.arange(n))
        verdicts, row = measured(plausible_deniability_test, model, tested, k=10, eta=1.0, seed=3, **settings)
        yield {"measured": f"test of {n} traces", "n": n, "value": float(verdicts.passed.mean())} | row
        left = given.patience * BUDGETS[stage] - (time.monotonic() - given.began)
        if n == traces.n_users or 4 * row["seconds"] > left:
            return
        n *= 4


def traces_of(given: argparse.Namespace):
    """The traces of the city, which `city` made."""
    from ppmtf_jax import Traces

    return Traces.load(given.work)


def measure(given: argparse.Namespace) -> None:
    """One stage, in this process; a row is stored as soon as it is measured."""
    import jax

    from ppmtf_jax import use_all_cores

    use_all_cores()  # of a CPU; an accelerator stays as it is
    device = jax.devices()[0]
    same = {"stage": given.stage, "platform": device.platform, "device": device.device_kind.replace(",", "")}
    same |= machine() | {"users": given.users, "places": given.places}
    rows = ({k: v for k, v in (same | row).items() if k in COLUMNS} for row in globals()[given.stage](given))
    record(rows, given.csv, COLUMNS, append=True)


def table(path: Path) -> None:
    """Seconds of each platform, for the same users and places."""
    import pandas as pd

    found = pd.read_csv(path)
    keys = ["users", "places", "stage", "measured"]
    seconds = found.pivot_table(index=keys, columns="platform", values="seconds", aggfunc="last", sort=False)
    if {"cpu", "gpu"} <= set(seconds.columns):
        seconds["times as fast"] = (seconds["cpu"] / seconds["gpu"]).round(1)
    print(seconds.to_string())


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--users", type=int, default=219_793)
    parser.add_argument("--places", type=int, default=1_000)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--patience", type=float, default=1, help="times the budgets, on a busy machine")
    parser.add_argument("--stages", nargs="+", choices=list(BUDGETS), default=list(BUDGETS))
    parser.add_argument("--work", type=Path, default=Path("city"), help="folder of the city")
    parser.add_argument("--stage", choices=list(BUDGETS), help=argparse.SUPPRESS)  # in a process of its own
    parser.add_argument("--table", action="store_true", help="print what is in the file")
    given = parser.parse_args()
    given.began = time.monotonic()
    if given.table:
        table(given.csv)
    elif given.stage:
        measure(given)
    else:
        for stage in given.stages:
            command = [sys.executable, __file__, *sys.argv[1:], "--stage", stage]
            try:
                if subprocess.run(command, timeout=given.patience * BUDGETS[stage], env=os.environ).returncode:
                    print(f"{stage} failed", flush=True)
            except subprocess.TimeoutExpired:
                print(f"{stage}: stopped after {given.patience * BUDGETS[stage]:.0f} seconds", flush=True)


if __name__ == "__main__":
    main()
