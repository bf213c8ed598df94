"""What mixing the population's transitions into the proposal does to utility and privacy.

    python benchmarks/proposal_mix.py ../shared --csv benchmarks/proposal_mix.csv
    python benchmarks/proposal_mix.py ../shared --data official --mixes 0 1 --seeds 0
    python benchmarks/proposal_mix.py --csv benchmarks/proposal_mix.csv --plot proposal_mix.png

`official` uses the published factors of people flow. All other cases are new fits, one for each seed, and the factors
of a fit are used for every mix. Each user has ten traces; the privacy test has k = 10, eta = 1 and all users as
verifiers. The population matrix is learned from the training traces. `set` says which traces are measured: `all`
traces, the traces that `passed`, or a `thinned` set: a random part of the traces that passed, as many as pass with the
mix that passes fewest. Thinning is needed because many traces have a smaller error than few traces of the same kind.
The script prints a table; --csv appends it to a file, and --plot draws this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import pandas as pd
from common import Row, new_york, people_flow, record
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ppmtf_jax import FittedModel, PPMTFSettings, Traces, evaluate, fit, plausible_deniability_test, synthesize
from ppmtf_jax.data.tensors import count_tensors
from ppmtf_jax.datasets.people_flow import read_official_factors
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import EvaluationSettings
from ppmtf_jax.evaluation.metrics.transitions import transition_counts
from ppmtf_jax.evaluation.plots.style import DPI, LINE_COLOURS, STYLE
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings
from ppmtf_jax.trace_models.population import population_transitions

K, TRACES_PER_USER = 10, 10
# Data, system and settings of each case.
CASES = {
    "people-flow": ("people flow, PPMTF", "ppmtf", PPMTFSettings()),
    "official": ("people flow, published factors", "ppmtf", PPMTFSettings()),
    "foursquare": ("New York, PPMTF", "ppmtf", PPMTFSettings()),
    "toy-city": ("toy city, PPMTF", "ppmtf", PPMTFSettings(zeros="weighted", n_zeros=300)),
    "people-flow-itf": ("people flow, ITF", "itf", PPMTFSettings()),
}
DRAWN = ("people-flow", "people-flow-itf", "foursquare", "toy-city")
METRICS = ("tp_tv", "tp_tv_top50", "tm_emd_y", "tm_emd_x", "vf_tv", "reid_rate", "mia_advantage")
COLUMNS = ("data", "mix", "seed", "set", "traces", "share", *METRICS, "stay")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, nargs="?", help="folder of the data; without it nothing is measured")
    parser.add_argument("--data", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--mixes", nargs="+", type=float, default=[0, 0.25, 0.5, 0.75, 1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--csv", type=Path, help="file to append the figures to, or to draw from")
    parser.add_argument("--plot", type=Path, help="file for a picture of the numbers in --csv")
    arguments = parser.parse_args()
    if arguments.plot and not arguments.csv:
        parser.error("--plot needs --csv")
    for case in arguments.data if arguments.shared else ():
        for seed in arguments.seeds:
            record(rows(arguments.shared, case, arguments.mixes, seed), arguments.csv, COLUMNS, append=True)
    if arguments.plot:
        curves(pd.read_csv(arguments.csv)).savefig(arguments.plot, dpi=DPI)


def rows(shared: Path, case: str, mixes: list[float], seed: int) -> Iterator[Row]:
    name, system, settings = CASES[case]
    train, test = trace_sets(shared, case)
    model = official_model(shared, train) if case == "official" else fit(train, system, settings, seed=seed)
    synthesized, passed = {}, {}
    for mix in mixes:
        mixed = with_mix(model, train, mix, seed)
        synthesized[mix] = synthesize(mixed, traces_per_user=TRACES_PER_USER, seed=seed)
        passed[mix] = plausible_deniability_test(mixed, synthesized[mix], k=K).passed
    fewest = min(verdicts.sum() for verdicts in passed.values())
    for mix, traces in synthesized.items():
        thinned = np.random.default_rng(seed).permutation(np.flatnonzero(passed[mix]))[:fewest]
        sets = {"all": np.full(len(passed[mix]), True), "passed": passed[mix]}
        sets["thinned"] = np.isin(np.arange(len(passed[mix])), thinned)
        for which, chosen in sets.items():
            about = {"data": name, "mix": mix, "seed": seed, "set": which}
            about |= {"traces": int(chosen.sum()), "share": float(chosen.mean())}
            yield about | (measure(traces.select_traces(chosen), train, test) if chosen.any() else {})


def trace_sets(shared: Path, case: str) -> tuple[Traces, Traces]:
    if case.startswith("foursquare"):
        return new_york(shared).split_users(0.8, 0)
    if case == "toy-city":
        return toy_city(n_users=1000, seed=0).traces.split_users(0.8, 0)
    return people_flow(shared)


def official_model(shared: Path, train: Traces) -> FittedModel:
    a, b, c, d = (
        jnp.asarray(factor, jnp.float32)
        for factor in read_official_factors(shared / "reference/people_flow/ppmtf_alpha200").values()
    )
    chains = MetropolisHastings(a, b, c, a, b, d, jnp.asarray(train.time_grid.slot_of_instant))
    return FittedModel("ppmtf", {}, 0, train.user_ids, train.places, train.time_grid, chains)


def with_mix(model: FittedModel, train: Traces, mix: float, seed: int) -> FittedModel:
    """The same factors with another proposal."""
    population = None
    if mix:
        population = jnp.asarray(population_transitions(count_tensors(train, seed=seed).transitions), jnp.float32)
    return replace(model, trace_model=replace(model.trace_model, population=population, proposal_mix=mix))


def measure(synthetic: Traces, train: Traces, test: Traces) -> dict[str, float]:
    """The metrics, and the share of the steps that stay where they are."""
    evaluation, counts = evaluate(synthetic, train, test), transition_counts(synthetic)
    return {name: evaluation[name] for name in METRICS} | {"stay": float(counts.diagonal().sum() / counts.sum())}


def curves(table: pd.DataFrame) -> Figure:
    """Each metric against the mix: a line through the means over seeds, and a point for each seed."""
    quantities = EvaluationSettings().quantities()
    panels = {"share": "Traces that pass"} | {name: quantities[name].title for name in METRICS if name != "tp_tv_top50"}
    styles = {"all": ("-", "full", "all traces"), "passed": ("--", "none", "those that passed")}
    drawn = [CASES[case][0] for case in DRAWN if CASES[case][0] in set(table["data"])]
    colours = dict(zip(drawn, LINE_COLOURS, strict=False))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.4, 5.4), layout="constrained")
        axes = figure.subplots(2, 4).ravel()
        for ax, (name, title) in zip(axes, panels.items(), strict=False):
            for (data, which), rows in table.groupby(["data", "set"]):
                if data in colours and which in (["passed"] if name == "share" else styles):
                    line, fill, _ = styles["all" if name == "share" else which]
                    mean = rows.groupby("mix")[name].mean()
                    ax.plot(mean.index, mean, line, color=colours[data], lw=1.2)
                    ax.plot(rows["mix"], rows[name], "o", color=colours[data], fillstyle=fill, ms=2.5, mew=0.6)
            ax.set_title(title)
            ax.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", ".25", ".5", ".75", "1"])
            ax.set_ylim(bottom=0)
        for ax in axes[3:7]:
            ax.set_xlabel("proposal_mix")
        handles = [Line2D([], [], color=colour, label=data) for data, colour in colours.items()]
        handles += [
            Line2D([], [], color="black", ls=line, marker="o", fillstyle=fill, ms=3, label=label)
            for line, fill, label in styles.values()
        ]
        axes[7].set_axis_off()
        axes[7].legend(handles=handles, loc="center", frameon=False)
        figure.suptitle("From a user's own transitions to the population's")
    return figure


if __name__ == "__main__":
    main()
