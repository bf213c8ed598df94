"""Numbers that show whether this library does what the published programs do, and all steps on real check-ins.

    python benchmarks/reproduce.py ../shared --csv benchmarks/reproduction.csv

The folder holds the official people-flow files and results, and Foursquare's check-ins in New York. Each part runs in a
process of its own. So the seconds of the first seed include compilation, and the peak memory (libraries included) is
that of the part. `seconds` are by the clock, and `cpu_seconds` are the CPU time of all threads; compare `cpu_seconds`
on a busy machine. If a number has a required range, it is marked `in` or `OUT`.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from common import Clock, Row, command_line, machine, measured, new_york, peak_mb

from ppmtf_jax import FittedModel, PPMTFSettings, SGDSettings, Traces, evaluate, fit, synthesize
from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow, read_synthetic, read_tensor
from ppmtf_jax.evaluation import Evaluation
from ppmtf_jax.evaluation.metrics.moves import transition_counts
from ppmtf_jax.evaluation.metrics.population import N_TOP, population_by_slot, tp_tv
from ppmtf_jax.gibbs.tensors import Trimming, count_tensors
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.synthesizers.fitted_model import complete_places
from ppmtf_jax.trace_models.likelihoods import pairwise_log_likelihood, step_log_probabilities
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

SEEDS = (0, 1, 2)
TRACES_PER_USER = 10
K = 10
PRECISIONS = ("float64", "float32")

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
# How far a metric of an official file may be from what the published program printed for it. Which of equally likely
# users is guessed is left open there.
OFFICIAL_TOLERANCE = {"tp_tv": 1e-4, "tm_emd_y": 1e-4, "tm_emd_x": 1e-4, "reid_rate": 4e-3}
SGD_TOLERANCE = {"tp_tv": 0.01, "tm_emd_y": 0.06, "tm_emd_x": 0.06}
OFFICIAL_FILES = {
    "alp200": "ppmtf_alpha200/synthetic_traces.csv.gz",
    "cn0": "sgd_copied_events_0.csv.gz",
    "cn2": "sgd_copied_events_2.csv.gz",
    "c100_0.25_0.75_0.2_4": "sglt_c100_parl_0.2.csv.gz",
    "c100_0.25_0.75_1_4": "sglt_c100_parl_1.csv.gz",
}
ORACLE_VERIFIERS, ORACLE_TRACES = 499, 5


@dataclass(frozen=True)
class Figure:
    """One number of one run, with what was published and the range demanded of it."""

    part: str
    run: str
    seed: int | None
    name: str
    value: float | int | str
    published: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        if self.low is None or self.high is None:
            return ""
        return "in" if self.low <= self.value <= self.high else "OUT"

    def __str__(self) -> str:
        where = f"{self.run}{'' if self.seed is None else f', seed {self.seed}'}"
        value = self.value if isinstance(self.value, str) else f"{self.value:.6g}"
        published = "" if self.published is None else f"  published {self.published:.6g}"
        demanded = "" if self.low is None else f"  demanded {self.low:.6g} to {self.high:.6g}: {self.verdict}"
        return f"{self.part:13}{where:52}{self.name:28}{value}{published}{demanded}"


def main() -> None:
    """Run the parts one after another; print every figure as it comes, and store all of them."""
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    needed = [arguments.shared / "reference" / "people_flow", arguments.shared / "data" / "foursquare-tsmc2014-nyc"]
    absent = [str(folder) for folder in needed if not folder.is_dir()]
    if absent:
        sys.exit(f"Needs the data, but there is no folder {' and no folder '.join(absent)}. Name the one above both.")
    figures = list(_machine())
    print(*figures, sep="\n", flush=True)
    context = multiprocessing.get_context("spawn")
    for part in arguments.parts:
        with ProcessPoolExecutor(1, mp_context=context) as process:
            figures += process.submit(_measure, part, arguments.shared).result()
    n_out = sum(figure.verdict == "OUT" for figure in figures)
    print(f"{sum(figure.verdict == 'in' for figure in figures)} figures are in the range demanded, {n_out} are not")
    if arguments.csv:
        rows = [asdict(figure) | {"verdict": figure.verdict} for figure in figures]
        with arguments.csv.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _rounded(value) for name, value in row.items()} for row in rows)


def fresh_fits(shared: Path) -> Iterator[Figure]:
    """PPMTF learned anew from the people-flow data, at its published settings and two variants."""
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


def official_traces(shared: Path) -> Iterator[Figure]:
    """What the published programs printed for their traces, from the same traces by our metrics; and our own SGD."""
    folder = _people_flow(shared)
    train, test = read_people_flow(folder)
    published = _published(shared)
    for setting, file in OFFICIAL_FILES.items():
        row = published.loc[setting]
        run = f"{row.system} {setting}, published traces"
        synthetic = read_synthetic(folder / file, train)
        evaluation = evaluate(synthetic, train, test)
        yield from _metric_figures("official", run, None, evaluation, row, _around(row, OFFICIAL_TOLERANCE))
        # Which of equally frequent places are among the top 50 is left to the sort, which was not stable there.
        low, high = _top50_over_ties(synthetic, test)
        yield Figure("official", run, None, "published_top50_among_ties", float(row.tp_tv_top50), None, low, high)
    for n_copied in (0, 2):
        row = published.loc[f"cn{n_copied}"]
        model = fit(train, "sgd", SGDSettings(n_copied))
        for seed in SEEDS:
            evaluation = evaluate(synthesize(model, traces_per_user=TRACES_PER_USER, seed=seed), train, test)
            demanded = _around(row, SGD_TOLERANCE)
            yield from _metric_figures("official", f"SGD cn{n_copied}, our own", seed, evaluation, row, demanded)


def likelihoods(shared: Path) -> Iterator[Figure]:
    """Likelihoods and the privacy test of the official traces under the official factors."""
    folder = _people_flow(shared) / "ppmtf_alpha200"
    train, _ = read_people_flow(_people_flow(shared))
    synthetic = read_synthetic(folder / "synthetic_traces.csv.gz", train)
    official = pd.read_csv(folder / "synthetic_traces.csv.gz").sort_values(["user", "trace_no", "time_slot"])
    model = _official_model(folder, train)
    synthetic = model.claim(synthetic)
    users, places = complete_places(model, synthetic)
    prefix = official["loglikeli"].to_numpy().reshape(places.shape)
    oracle = pd.read_csv(folder / "plausible_users.csv.gz").sort_values(["user", "trace"])["plausible_users"].to_numpy()
    asked = synthetic.trace_table()[1] < ORACLE_TRACES
    counted, likelihood = {}, {}
    for precision in PRECISIONS:
        verdicts, seconds = measured(
            plausible_deniability_test, model, synthetic, k=K, count_all=True, precision=precision
        )
        with jax.enable_x64(precision == "float64"):
            cast = _cast(model.trace_model, precision)
            prefixes = np.cumsum(step_log_probabilities(cast, users, places), axis=1, dtype=np.float64)
            likelihood[precision] = pairwise_log_likelihood(cast, np.arange(train.n_users), places).astype(float)
        counted[precision] = verdicts.plausible_users
        demanded = {"low": 0.0, "high": 1e-5} if precision == "float64" else {}
        difference = float(np.abs(prefixes - prefix).max())
        run = f"official factors, {precision}"
        yield Figure("likelihoods", run, None, "largest_prefix_difference", difference, **demanded)
        # The oracle asked users 0 to 498; the last user counts for their own traces only.
        last = likelihood[precision][:, ORACLE_VERIFIERS:]
        others_last = (_bin(last) == _bin(verdicts.log_likelihood)[:, None]) & (users != ORACLE_VERIFIERS)[:, None]
        ours = (verdicts.plausible_users - others_last.sum(axis=1))[asked]
        demanded = {"low": 0.999, "high": 1.0} if precision == "float64" else {}
        yield Figure("likelihoods", run, None, "traces_compared", len(oracle))
        yield Figure("likelihoods", run, None, "share_equal_to_oracle", float((ours == oracle).mean()), **demanded)
        for number in np.flatnonzero(ours != oracle):
            trace = np.flatnonzero(asked)[number]
            yield _reason(run, f"{ours[number]} and not {oracle[number]}", trace, users, likelihood[precision])
        yield Figure("likelihoods", run, None, "pass_rate_k10", float(verdicts.passed.mean()))
        yield from _seconds("likelihoods", run, None, {"test_all_5000": seconds})
    run = "float32 against float64, all verifiers"
    own = [likelihood[precision][np.arange(len(users)), users] for precision in PRECISIONS]
    yield Figure("likelihoods", run, None, "largest_difference_own", float(np.abs(own[0] - own[1]).max()))
    difference = np.abs(likelihood["float64"] - likelihood["float32"])
    yield Figure("likelihoods", run, None, "largest_difference_any_verifier", float(difference.max()))
    yield Figure("likelihoods", run, None, "share_of_pairs_beyond_1e-4", float((difference > 1e-4).mean()))
    differ = np.flatnonzero(counted["float32"] != counted["float64"])
    yield Figure("likelihoods", run, None, "traces_compared", len(users))
    yield Figure("likelihoods", run, None, "traces_with_another_count", len(differ))
    flipped = (counted["float32"] >= K) != (counted["float64"] >= K)
    yield Figure("likelihoods", run, None, "traces_with_another_verdict_k10", int(flipped.sum()))
    for trace in differ:
        change = f"{counted['float32'][trace]} and not {counted['float64'][trace]}"
        yield _reason(run, change, trace, users, likelihood["float64"])


def count_differences(shared: Path) -> Iterator[Figure]:
    """Our count tensors against the official ones; those are not cut, and no user has more than 100 positive cells."""
    folder = _people_flow(shared)
    counts = count_tensors(read_people_flow(folder)[0], Trimming(max_count=None), seed=0)
    files = {"transitions": "traintranstensor_TK_mnt100.csv.gz", "visits": "trainvisittensor_TK_mnv100.csv.gz"}
    for name, file in files.items():
        ours, official = getattr(counts, name), read_tensor(folder / file)
        dense = np.zeros(ours.shape, np.int32)
        np.add.at(dense, (ours.user, ours.place, ours.other), ours.count)
        other = "next_place" if name == "transitions" else "slot"
        np.subtract.at(dense, tuple(official[column] for column in ("user", "place", other)), official["count"])
        yield Figure("tensors", name, None, "positive_cells", len(official))
        yield Figure("tensors", name, None, "cells_that_differ", int(np.count_nonzero(dense)), low=0, high=0)
        yield Figure("tensors", name, None, "largest_count", int(official["count"].max()))
        yield Figure("tensors", name, None, "cells_above_10", int((official["count"] > 10).sum()))


def foursquare_nyc(shared: Path) -> Iterator[Figure]:
    """The whole line on check-ins in New York: 1,000 places, hourly instants, twelve cyclic slots."""
    part, seed = "foursquare", 0
    traces, import_s = measured(new_york, shared)
    train, test = traces.split_users(0.8, seed)
    counts = {"users_train": train.n_users, "users_test": test.n_users, "places": traces.n_places}
    counts |= {"instants": traces.time_grid.n_instants, "slots": traces.time_grid.n_slots}
    counts |= {"events_train": train.n_events, "events_test": test.n_events}
    counts |= {"transitions_train": int(train.is_step().sum()), "traces_per_user": TRACES_PER_USER}
    for name, count in counts.items():
        yield Figure(part, "data", seed, name, count)
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
        yield Figure(part, run, seed, "pass_rate_k10", float(verdicts.passed.mean()))
        sets = {f"{run}, all": (synthetic, evaluation)}
        if verdicts.passed.any():
            released = synthetic.select_traces(verdicts.passed)
            sets[f"{run}, passed"] = (released, evaluate(released, train, test))
        for which, (each, numbers) in sets.items():
            yield from _metric_figures(part, which, seed, numbers)
            yield Figure(part, which, seed, "tp_tv_of_all_numbers", tp_tv(each, test))
            yield from _staying(part, which, seed, each)
        if number == 0:
            for reference in ("Training", "Uniform"):
                yield from _metric_figures(part, reference, seed, evaluation, column=reference.lower())


PARTS: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "tensors": count_differences,
    "likelihoods": likelihoods,
    "official": official_traces,
    "fresh-fits": fresh_fits,
    "foursquare": foursquare_nyc,
}


def _measure(part: str, shared: Path) -> list[Figure]:
    """Run one part in this process, and add what it took."""
    clock = Clock()
    figures = []
    for figure in PARTS[part](shared):
        print(figure, flush=True)
        figures.append(figure)
    name = figures[0].part
    took = [
        *_seconds(name, "whole part", None, {"all": clock.row(2)}),
        Figure(name, "whole part", None, "peak_memory_mb", peak_mb()),
    ]
    print(*took, sep="\n", flush=True)
    return figures + took


def _machine() -> Iterator[Figure]:
    about: dict[str, str | int] = {
        "processor": _processor(),
        "cores": machine()["cores"],
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_at_start": str(machine()["load"]),
        "python": platform.python_version(),
    }
    about |= {name: version(name) for name in ("ppmtf_jax", "jax", "jaxlib", "numpy", "scipy", "pandas")}
    for name, value in about.items():
        yield Figure("machine", "", None, name, value)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _people_flow(shared: Path) -> Path:
    return shared / "reference" / "people_flow"


def _published(shared: Path) -> pd.DataFrame:
    return pd.read_csv(_people_flow(shared) / "published_results.csv").set_index("setting")


def _around(published: pd.Series, tolerance: dict[str, float]) -> dict[str, Range]:
    return {name: (published[name] - margin, published[name] + margin) for name, margin in tolerance.items()}


def _top50_over_ties(synthetic: Traces, test: Traces) -> Range:
    """Least and greatest TP-TV-Top50 that an order of equally frequent places can give."""
    frequency = population_by_slot(test)
    number = synthetic.trace_table()[1]
    parts = [population_by_slot(synthetic.select_traces(number == each)) for each in np.unique(number)]
    error = np.mean([np.abs(part - frequency) / 2 for part in parts], axis=0)
    # Sorted by frequency and, among equals, by the error: the smallest first, then the greatest first.
    sums = []
    for sign in (1, -1):
        top = np.lexsort((sign * error, -frequency), axis=1)[:, :N_TOP]
        sums.append(float(np.take_along_axis(error, top, axis=1).sum(axis=1).mean()))
    return sums[0], sums[1]


def _metric_figures(
    part: str,
    run: str,
    seed: int | None,
    evaluation: Evaluation,
    published: pd.Series | None = None,
    demanded: dict[str, Range] | None = None,
    *,
    column: str = "synthetic",
) -> Iterator[Figure]:
    for name in evaluation.metrics:
        there = None if published is None or name not in published else float(published[name])
        low, high = (demanded or {}).get(name, (None, None))
        yield Figure(part, run, seed, name, evaluation.value(name, column), there, low, high)


def _staying(part: str, run: str, seed: int, traces: Traces) -> Iterator[Figure]:
    """How often people stay where they are, and how many places nobody was seen to leave or to stay at."""
    counts = transition_counts(traces)
    yield Figure(part, run, seed, "share_of_steps_that_stay", float(counts.diagonal().sum() / counts.sum()))
    yield Figure(part, run, seed, "share_of_places_without_step", float((counts.sum(axis=1) == 0).mean()))


def _seconds(part: str, run: str, seed: int | None, seconds: dict[str, Row]) -> Iterator[Figure]:
    for stage, value in seconds.items():
        yield Figure(part, run, seed, f"seconds_{stage}", value["seconds"])
        yield Figure(part, run, seed, f"cpu_seconds_{stage}", value["cpu_seconds"])


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _official_model(folder: Path, train: Traces) -> FittedModel:
    """The published factors as a model, in double precision."""
    factors = read_official_factors(folder)
    slot_of_instant = jnp.asarray(train.time_grid.slot_of_instant)
    with jax.enable_x64(True):
        user, place, next_place, slot = (jnp.asarray(factors[name]) for name in "ABCD")
        trace_model = MetropolisHastings(user, place, next_place, user, place, slot, slot_of_instant)
    return FittedModel("ppmtf", {}, 0, train.user_ids, train.places, train.time_grid, trace_model)


def _cast(model: MetropolisHastings, precision: str) -> MetropolisHastings:
    def cast(leaf: jax.Array) -> jax.Array:
        return jnp.asarray(np.asarray(leaf), precision) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(cast, model)


def _bin(log_likelihood: np.ndarray) -> np.ndarray:
    """The bin of the test at eta = 1."""
    return np.floor(-log_likelihood)


def _reason(run: str, change: str, trace: int, users: np.ndarray, likelihood: np.ndarray) -> Figure:
    """Why a count may differ: how near a likelihood that decides about the trace is to the edge of a bin."""
    own = _bin(likelihood[trace, users[trace]])
    deciding = likelihood[trace][np.abs(_bin(likelihood[trace]) - own) <= 1]
    margin = float(np.abs(deciding - np.round(deciding)).min())
    return Figure("likelihoods", run, None, f"margin of trace {trace}, {change}", margin)


if __name__ == "__main__":
    main()
