"""Fresh fits beside what the published programs printed, and all steps on real check-ins.

    python benchmarks/reproduce.py ../shared --csv benchmarks/reproduction.csv

The folder holds the official people-flow files and results, and Foursquare's check-ins in New York. Each part runs in a
process of its own. So the seconds of the first seed include compilation, and the peak memory (libraries included) is
that of the part. `seconds` are by the clock, and `cpu_seconds` are the CPU time of all threads; compare `cpu_seconds`
on a busy machine. If a number has a required range, it is marked `in` or `OUT`. The exact parts are tests, marked slow:
test_published.py (metrics of the published traces), test_tensors.py (counts), test_plausible_users.py (privacy test).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
from common import Clock, Row, command_line, in_a_process, machine, measured, new_york, peak_mb, record

from ppmtf_jax import PPMTFSettings, SGDSettings, Traces, evaluate, fit, synthesize
from ppmtf_jax.datasets.people_flow import read_people_flow
from ppmtf_jax.evaluation import Evaluation
from ppmtf_jax.evaluation.distributions import total_variation
from ppmtf_jax.evaluation.metrics.moves import transition_counts
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test

SEEDS = (0, 1, 2)
TRACES_PER_USER = 10
K = 10
COLUMNS = ["part", "run", "seed", "name", "value", "published", "low", "high", "verdict"]

Range = tuple[float, float]

# What a fresh fit on people flow must reach.
EMD: Range = (1.5, 2.2)
PUBLISHED_SETTINGS = {
    "tp_tv": (0.42, 0.435),
    "tp_tv_top50": (0.125, 0.133),
    "tm_emd_y": EMD,
    "tm_emd_x": EMD,
    "reid_rate": (0.0, 0.03),
}
# Of counts that are not cut nothing is demanded; the ranges stand beside them to see what the cut changes.
DEMANDED = {
    "sampled zeros": PUBLISHED_SETTINGS,
    "weighted zeros": {"tp_tv": (0.415, 0.435)},
    "sampled zeros, counts not cut": PUBLISHED_SETTINGS,
}
SETTINGS = {
    "sampled zeros": PPMTFSettings(proposal_mix=0.0),
    "weighted zeros": PPMTFSettings(zeros="weighted", proposal_mix=0.0),
    "sampled zeros, counts not cut": PPMTFSettings(max_count=None, proposal_mix=0.0),
}
# How far our SGD may be from the published one.
SGD_TOLERANCE = {"tp_tv": 0.01, "tm_emd_y": 0.06, "tm_emd_x": 0.06}


def figure(
    part: str,
    run: str,
    seed: int | None,
    name: str,
    value: float | int | str,
    published: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Row:
    """One number of one run, with what was published and the range demanded of it."""
    verdict = "" if low is None or high is None else "in" if low <= value <= high else "OUT"
    values = (part, run, seed, name, value, published, low, high, verdict)
    return dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Run the parts one after another; print every figure as it comes, and store all of them."""
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    needed = [arguments.shared / "reference" / "people_flow", arguments.shared / "data" / "foursquare-tsmc2014-nyc"]
    absent = [str(folder) for folder in needed if not folder.is_dir()]
    if absent:
        sys.exit(f"Needs the data, but there is no folder {' and no folder '.join(absent)}. Name the one above both.")
    about = machine() | {name: version(name) for name in ("ppmtf_jax", "jax", "jaxlib", "numpy", "scipy", "pandas")}
    rows = [figure("machine", "", None, name, value) for name, value in about.items()]
    measuring = (row for part in arguments.parts for row in in_a_process(measure_part, part, str(arguments.shared)))
    found = record(chain(rows, measuring), arguments.csv, COLUMNS)
    n_in, n_out = (sum(row["verdict"] == verdict for row in found) for verdict in ("in", "OUT"))
    print(f"{n_in} figures are in the range demanded, {n_out} are not")


def fresh_fits(shared: Path) -> Iterator[Row]:
    """PPMTF from the people-flow data, at its published settings and two variants; and SGD."""
    train, test = read_people_flow(_people_flow(shared))
    published = _published(shared).loc["alp200"]
    for run, settings in SETTINGS.items():
        demanded = DEMANDED.get(run, {})
        for seed in SEEDS:
            model, fit_s = measured(fit, train, "ppmtf", settings, seed=seed)
            synthetic, synthesize_s = measured(synthesize, model, traces_per_user=TRACES_PER_USER, seed=seed)
            evaluation, evaluate_s = measured(evaluate, synthetic, train, test)
            yield from _metric_figures("fresh fits", run, seed, evaluation, published, demanded)
            seconds = {"fit": fit_s, "synthesize": synthesize_s, "evaluate": evaluate_s}
            yield from _seconds("fresh fits", run, seed, seconds)
    for run in ("Training", "Uniform"):
        yield from _metric_figures("fresh fits", run, None, evaluation, column=run.lower())
    for n_copied in (0, 2):
        row = _published(shared).loc[f"cn{n_copied}"]
        model = fit(train, "sgd", SGDSettings(n_copied))
        for seed in SEEDS:
            evaluation = evaluate(synthesize(model, traces_per_user=TRACES_PER_USER, seed=seed), train, test)
            demanded = {name: (row[name] - margin, row[name] + margin) for name, margin in SGD_TOLERANCE.items()}
            yield from _metric_figures("fresh fits", f"SGD cn{n_copied}", seed, evaluation, row, demanded)


def foursquare_nyc(shared: Path) -> Iterator[Row]:
    """The whole line on check-ins in New York: 1,000 places, hourly instants, twelve cyclic slots."""
    part, seed = "foursquare", 0
    traces, import_s = measured(new_york, shared)
    train, test = traces.split_users(0.8, seed)
    counts = {"users_train": train.n_users, "users_test": test.n_users, "places": traces.n_places}
    counts |= {"instants": traces.time_grid.n_instants, "slots": traces.time_grid.n_slots}
    counts |= {"events_train": train.n_events, "events_test": test.n_events}
    counts |= {"transitions_train": int(train.is_step().sum()), "traces_per_user": TRACES_PER_USER}
    for name, count in counts.items():
        yield figure(part, "data", seed, name, count)
    yield from _seconds(part, "data", seed, {"import": import_s})
    yield from _staying(part, "Training", seed, train)
    yield from _staying(part, "Test", seed, test)
    systems: dict[str, tuple[str, Any]] = {
        f"PPMTF, {name}": ("ppmtf", SETTINGS[name]) for name in ("sampled zeros", "weighted zeros")
    }
    systems["SGD cn0"] = ("sgd", SGDSettings())
    # The exact Uniform has no sampling noise; this one has as much as the others.
    systems["Uniform, drawn"] = ("uniform", None)
    for number, (run, (system, settings)) in enumerate(systems.items()):
        model, fit_s = measured(fit, train, system, settings, seed=seed)
        synthetic, synthesize_s = measured(synthesize, model, traces_per_user=TRACES_PER_USER, seed=seed)
        verdicts, test_s = measured(plausible_deniability_test, model, synthetic, k=K)
        evaluation, evaluate_s = measured(evaluate, synthetic, train, test)
        seconds = {"fit": fit_s, "synthesize": synthesize_s, "test": test_s, "evaluate": evaluate_s}
        yield from _seconds(part, run, seed, seconds)
        yield figure(part, run, seed, "pass_rate_k10", float(verdicts.passed.mean()))
        sets = {f"{run}, all": (synthetic, evaluation)}
        if verdicts.passed.any():
            released = synthetic.select_traces(verdicts.passed)
            sets[f"{run}, passed"] = (released, evaluate(released, train, test))
        for which, (each, numbers) in sets.items():
            yield from _metric_figures(part, which, seed, numbers)
            of_all = total_variation(population_by_slot(each), population_by_slot(test))
            yield figure(part, which, seed, "tp_tv_of_all_numbers", of_all)
            yield from _staying(part, which, seed, each)
        if number == 0:
            for reference in ("Training", "Uniform"):
                yield from _metric_figures(part, reference, seed, evaluation, column=reference.lower())


PARTS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "fresh-fits": fresh_fits,
    "foursquare": foursquare_nyc,
}


def measure_part(part: str, shared: str) -> list[Row]:
    """Run one part in this process, and add what it took."""
    clock = Clock()
    rows = list(PARTS[part](Path(shared)))
    took = {"all": clock.row(2)}
    whole = rows[0]["part"], "whole part", None
    return [*rows, *_seconds(*whole, took), figure(*whole, "peak_memory_mb", peak_mb())]


def _people_flow(shared: Path) -> Path:
    return shared / "reference" / "people_flow"


def _published(shared: Path) -> pd.DataFrame:
    return pd.read_csv(_people_flow(shared) / "published_results.csv").set_index("setting")


def _around(published: pd.Series, tolerance: dict[str, float]) -> dict[str, Range]:
    return {name: (published[name] - margin, published[name] + margin) for name, margin in tolerance.items()}


def _metric_figures(
    part: str,
    run: str,
    seed: int | None,
    evaluation: Evaluation,
    published: pd.Series | None = None,
    demanded: dict[str, Range] | None = None,
    *,
    column: str = "synthetic",
) -> Iterator[Row]:
    for name in evaluation.metrics:
        there = None if published is None or name not in published else float(published[name])
        low, high = (demanded or {}).get(name, (None, None))
        yield figure(part, run, seed, name, evaluation.value(name, column), there, low, high)


def _staying(part: str, run: str, seed: int, traces: Traces) -> Iterator[Row]:
    """How often people stay where they are, and how many places nobody was seen to leave or to stay at."""
    counts = transition_counts(traces)
    yield figure(part, run, seed, "share_of_steps_that_stay", float(counts.diagonal().sum() / counts.sum()))
    yield figure(part, run, seed, "share_of_places_without_step", float((counts.sum(axis=1) == 0).mean()))


def _seconds(part: str, run: str, seed: int | None, seconds: dict[str, Row]) -> Iterator[Row]:
    for stage, value in seconds.items():
        yield figure(part, run, seed, f"seconds_{stage}", value["seconds"])
        yield figure(part, run, seed, f"cpu_seconds_{stage}", value["cpu_seconds"])


if __name__ == "__main__":
    main()
