"""A city through all stages: seconds and peak memory of each stage, and how they grow with users and places.

    python benchmarks/city.py --work city
    python benchmarks/city.py --stages test --precision float32 --work city --csv benchmarks/city.csv
    python benchmarks/city.py --users 10000 100000 1000000 --verifiers 768 --count-all --work city --csv rows.csv
    python benchmarks/city.py --users 10000 --places 100 300 2000 --verifiers 768 --count-all --work city --csv rows.csv
    python benchmarks/city.py --exponents rows.csv

The city is the random city of `gibbs.py`: popular places have more events, and each user has 20 cells in a city of any
size. Its model comes from a few sweeps with weighted zeros, which is enough for factors of the right shape. Each stage
writes its output into the work folder, where later stages read it, so that stages can run one by one. Each stage runs
in a process of its own, so that its peak memory (with libraries and model) is its own, and its row is stored as soon as
it is finished. A new stage is a function in STAGES.

`seconds` are by the clock, and `cpu_seconds` are the CPU time of all threads; both include compilation and files. They
do not tell how a stage grows: compilation takes tens of seconds for any size, so it would make every exponent look
small. The exponents are for the work without compilation, after the same programs have run once:

- `sweep_s`: the best call of five sweeps;
- `synthesis_s`: synthesizing one trace of each user, the second time;
- `own_s`: the likelihoods of all traces under their own users, with which the privacy test begins;
- `verifier_ms`: the time for one more verifier of all traces. It needs --count-all, because with early stopping each
  next verifier has fewer traces. The first round is left out, because its programs are compiled.

A complete test with v verifiers takes `own_s` plus v times `verifier_ms`; an exponent of the sum would depend on v.
Exponents are least-squares slopes of log time over log size: in users with the number of places fixed, and in places
with the number of users fixed, always on equally many cores. Each exponent is given for the time by the clock, and for
the CPU time of all threads (columns that end in `_cpu`), which is also valid on a busy machine.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from common import Clock, Row, command_line, in_a_process, machine, measured, peak_mb, record
from gibbs import CITY_PLACES, CITY_SLOTS, CITY_USERS, city_tensors, time_sweeps

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.run import SWEEPS_PER_CALL, share_cells
from ppmtf_jax.privacy import plausible_users
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.runtime.devices import mesh_of, n_cores, use_all_cores
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import synthesize
from ppmtf_jax.trace_models.likelihoods import USERS_AT_A_TIME
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

use_all_cores()

RANK = 16
INSTANTS_PER_SLOT = 2
COLUMNS = ["stage", "users", "places", "cores", "load", "seconds", "cpu_seconds", "peak_mb", "sweeps", "cells"]
COLUMNS += ["seconds_first", "sweep_s", "sweep_s_cpu", "synthesis_s", "synthesis_s_cpu", "before_mb", "k"]
COLUMNS += ["n_verifiers", "count_all", "precision", "own_s", "own_s_cpu", "verifier_ms", "verifier_ms_cpu"]
COLUMNS += ["pass_rate", "mean_verifiers", "error"]
# The times that have exponents, and the time of the official program for each 1,000 users or traces (with 1,000 places,
# on the same kind of machine).
FIGURES = {
    "sweep_s": ("fit, seconds a sweep", 1.5),
    "synthesis_s": ("synthesis, seconds", 7.4),
    "own_s": ("test, own likelihoods, seconds", None),
    "verifier_ms": ("test, milliseconds a verifier", 54.0),
}


def fit_city(case: Row, work: Path) -> Row:
    """A few sweeps, and the model folder."""
    n_users, n_places = case["users"], case["places"]
    counts = city_tensors(n_users, n_places)
    n_cells, n_rows = sum(len(tensor.user) for tensor in counts), rows_of_factors(SHARED, counts)
    cells = share_cells(observe(counts, "weighted", 1000, seed=0), mesh_of())
    n_calls = max(1, case["sweeps"] // SWEEPS_PER_CALL)
    state, first, sweeps = time_sweeps(cells, n_rows, SHARED, GibbsSettings(rank=RANK), n_calls)
    # Copies that lie on one device alone.
    factors = (jnp.asarray(np.asarray(state.factors[name][0])) for name in ("user", "place", "next_place", "slot"))
    user, place, next_place, slot = factors
    slots = np.repeat(np.arange(CITY_SLOTS), INSTANTS_PER_SLOT).astype(np.int32)
    chains = MetropolisHastings(user, place, next_place, user, place, slot, jnp.asarray(slots))
    places = PlaceTable(np.arange(n_places), np.linspace(41, 41.2, n_places), np.linspace(28.8, 29.2, n_places))
    grid = TimeGrid("2024-01-01T00:00:00", 3600, slots)
    FittedModel("ppmtf", {}, 0, np.arange(n_users), places, grid, chains).save(work / "model", overwrite=True)
    return {
        "sweeps": n_calls * SWEEPS_PER_CALL,
        "cells": n_cells,
        "seconds_first": round(first, 1),
    } | _both("sweep_s", sweeps.min(axis=0))


def synthesize_city(case: Row, work: Path) -> Row:
    """One trace of each user."""
    model = FittedModel.load(work / "model")
    before = peak_mb()
    # Run the same programs once before, so that compilation is not measured.
    first = measured(synthesize, model, seed=1)[1]["seconds"]
    clock = Clock()
    synthetic = synthesize(model, seed=0)
    taken = clock.both()
    synthetic.save(work / "synthetic", overwrite=True)
    return {"seconds_first": round(first, 1), "before_mb": before} | _both("synthesis_s", taken)


def test_city(case: Row, work: Path) -> Row:
    """The privacy test of all traces by a random subset of users."""
    model, synthetic = FittedModel.load(work / "model"), Traces.load(work / "synthetic")
    # With k = 1 no verifier is asked. So this only compiles the programs of own likelihoods, for full blocks of users
    # and for the last block.
    some = USERS_AT_A_TIME * n_cores() + synthetic.n_users % USERS_AT_A_TIME
    some = synthetic.select_users(np.arange(min(synthetic.n_users, some)))
    plausible_deniability_test(model, some, k=1, precision=case["precision"])
    options = {"k": case["k"], "n_verifiers": min(case["verifiers"], model.n_users), "precision": case["precision"]}
    with _clock_of_rounds() as finished:
        result = plausible_deniability_test(model, synthetic, eta=1.0, count_all=case["count_all"], **options)
    figures = _both("own_s", finished[0][0])
    rounds = finished[1:]
    if case["count_all"] and len(rounds) > 1:
        # Of many traces each verifier is asked once for every group.
        n_groups = sum(n for _, n in rounds) / options["n_verifiers"]
        taken, n_asked = rounds[-1][0] - rounds[0][0], sum(n for _, n in rounds[1:])
        figures |= _both("verifier_ms", taken / n_asked * n_groups * 1000)
    asked = result.table["verifiers"]
    figures |= {"pass_rate": round(float(result.passed.mean()), 4), "mean_verifiers": round(float(asked.mean()))}
    return options | {"count_all": case["count_all"]} | figures


def _both(figure: str, taken: Sequence[float]) -> dict[str, float]:
    return {figure: round(float(taken[0]), 4), f"{figure}_cpu": round(float(taken[1]), 4)}


@contextmanager
def _clock_of_rounds() -> Iterator[list[tuple[np.ndarray, int]]]:
    """Time at which the verifiers begin, and at which each round of verifiers ends; taken from the progress bar."""
    since, finished = Clock(), []

    @contextmanager
    def clock(title: str, total: int, **options: Any) -> Iterator[Callable[[int], None]]:
        finished.append((np.array(since.both()), 0))
        yield lambda n: finished.append((np.array(since.both()), n))

    bar = plausible_users.progress_bar
    plausible_users.progress_bar = clock
    try:
        yield finished
    finally:
        plausible_users.progress_bar = bar


STAGES: dict[str, Callable[[Row, Path], Row]] = {
    "fit": fit_city,
    "synthesize": synthesize_city,
    "test": test_city,
}


def measure(case: Row, work: str) -> Row:
    """One stage in this process."""
    clock = Clock()
    more = STAGES[case["stage"]](case, Path(work))
    return clock.row() | {"peak_mb": peak_mb()} | more


def print_exponents(rows: list[Row]) -> None:
    """Print the exponent of each time, and the time at the largest size beside that of the official program."""
    print("| | grows with | from | to | at | exponent | CPU time's | per 1,000 users | official |")
    print("|---|---|--:|--:|---|--:|--:|--:|--:|")
    for figure, (title, official) in FIGURES.items():
        measured = [row for row in rows if row.get(figure) not in (None, "")]
        for axis, other in (("users", "places"), ("places", "users")):
            for group, points in sorted(_alike(measured, other).items()):
                size, clock, cpu = (
                    np.array([float(row[name]) for row in points]) for name in (axis, figure, f"{figure}_cpu")
                )
                if len(set(size)) < 2:
                    continue
                exponents = (np.polyfit(np.log(size), np.log(taken), 1)[0] for taken in (clock, cpu))
                largest = points[int(size.argmax())]
                per_1000 = float(largest[figure]) / float(largest["users"]) * 1000
                at = f"{group[0]:,} {other}, cores: {group[1]} {group[2]}".strip()
                print(f"| {title} | {axis} | {int(size.min()):,} | {int(size.max()):,} | {at} ", end="")
                print("| {:.2f} | {:.2f} ".format(*exponents), end="")
                print(f"| {per_1000:.3g} | {official or ''} |")


def _alike(rows: list[Row], axis: str) -> dict[tuple[int, str, str], list[Row]]:
    """Rows grouped by their size along an axis, their number of cores and their precision."""
    groups = defaultdict(list)
    for row in rows:
        groups[int(row[axis]), str(row["cores"]), str(row.get("precision") or "")].append(row)
    return groups


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--users", type=int, nargs="+", default=[CITY_USERS])
    parser.add_argument("--places", type=int, nargs="+", default=[CITY_PLACES])
    parser.add_argument("--sweeps", type=int, default=10, help="timed ones, after the first five")
    parser.add_argument("--verifiers", type=int, default=32_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--count-all", action="store_true", help="test without early stopping")
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--work", type=Path, help="folder for models and traces")
    parser.add_argument("--exponents", type=Path, metavar="CSV", help="measure nothing: print those of stored rows")
    arguments = parser.parse_args()
    if arguments.exponents:
        print_exponents(list(csv.DictReader(arguments.exponents.open(newline=""))))
        return
    if not arguments.work:
        parser.error("--work is needed")
    rows = record(measure_all(arguments), arguments.csv, COLUMNS, append=True)
    if len(rows) > len(arguments.stages):
        print_exponents(rows)


def measure_all(arguments: argparse.Namespace) -> Iterator[Row]:
    for n_users, n_places in ((n, m) for m in arguments.places for n in arguments.users):
        work = arguments.work / f"{n_users}x{n_places}"
        work.mkdir(parents=True, exist_ok=True)
        for stage in arguments.stages:
            about = {"stage": stage, "users": n_users, "places": n_places}
            names = ("sweeps", "verifiers", "k", "count_all", "precision")
            options = {name: getattr(arguments, name) for name in names}
            figures = in_a_process(measure, about | options, str(work), keep_error=True)
            yield about | machine() | figures


if __name__ == "__main__":
    main()
