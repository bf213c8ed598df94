"""What mixing the population's transitions into the proposal does to utility and privacy.

    python benchmarks/proposal_mix.py ../shared --csv benchmarks/proposal_mix.csv
    python benchmarks/proposal_mix.py ../shared --data official --mixes 0 1 --seeds 0

`official` are the published factors of people flow, `people-flow` and `foursquare` fresh fits, one for each seed. One
trace per user; the privacy test has k = 10, eta = 1 and all users as verifiers. The population matrix is learned from
the training traces. Prints a table; --csv stores it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from ppmtf_jax import FittedModel, PPMTFSettings, Traces, evaluate, fit, plausible_deniability_test, synthesize
from ppmtf_jax.datasets.foursquare import read_foursquare
from ppmtf_jax.datasets.people_flow import read_official_factors, read_people_flow
from ppmtf_jax.synthesizers.metropolis_hastings import MetropolisHastings
from ppmtf_jax.synthesizers.population import population_transitions
from ppmtf_jax.tensors import count_tensors

K = 10
SHOWN = ("tp_tv", "tm_emd_x", "tm_emd_y", "reid_rate")
COLUMNS = ("data", "mix", "seed", "traces", "pass_rate", *SHOWN, *(f"{name}_passed" for name in SHOWN))


def official_model(shared: Path, train: Traces) -> FittedModel:
    a, b, c, d = (
        jnp.asarray(factor, jnp.float32)
        for factor in read_official_factors(shared / "reference/people_flow/ppmtf_alpha200").values()
    )
    chains = MetropolisHastings(a, b, c, a, b, d, jnp.asarray(train.time_grid.slot_of_instant))
    return FittedModel("ppmtf", {}, 0, train.user_ids, train.places, train.time_grid, chains)


def with_mix(model: FittedModel, train: Traces, mix: float) -> FittedModel:
    """The same factors with another proposal."""
    population = jnp.asarray(population_transitions(count_tensors(train).transitions), jnp.float32) if mix else None
    return replace(model, trace_model=replace(model.trace_model, population=population, proposal_mix=mix))


def measure(model: FittedModel, train: Traces, test: Traces, seed: int) -> dict[str, float | int]:
    synthetic = synthesize(model, seed=seed)
    passed = plausible_deniability_test(model, synthetic, k=K).passed
    row = {"traces": len(passed), "pass_rate": float(passed.mean())}
    before = evaluate(synthetic, train, test)
    after = evaluate(synthetic.select_traces(passed), train, test) if passed.any() else {}
    row |= {name: before[name] for name in SHOWN}
    return row | {f"{name}_passed": after.get(name, float("nan")) for name in SHOWN}


def rows(shared: Path, data: str, mixes: list[float], seeds: list[int]) -> Iterator[dict]:
    if data == "foursquare":
        traces, _ = read_foursquare(shared / "data/foursquare-tsmc2014-nyc")
        train, test = traces.split_users(0.8, 0)
    else:
        train, test = read_people_flow(shared / "reference/people_flow")
    for seed in seeds:
        model = official_model(shared, train) if data == "official" else fit(train, "ppmtf", PPMTFSettings(), seed=seed)
        for mix in mixes:
            yield {"data": data, "mix": mix, "seed": seed} | measure(with_mix(model, train, mix), train, test, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=Path)
    parser.add_argument("--data", nargs="+", default=["official", "people-flow", "foursquare"])
    parser.add_argument("--mixes", nargs="+", type=float, default=[0, 0.25, 0.5, 0.75, 1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    print(*COLUMNS, sep=",")
    stored = []
    for data in arguments.data:
        for row in rows(arguments.shared, data, arguments.mixes, arguments.seeds):
            stored.append({k: float(np.round(v, 4)) if isinstance(v, float) else v for k, v in row.items()})
            print(*(stored[-1][name] for name in COLUMNS), sep=",", flush=True)
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(stored)


if __name__ == "__main__":
    main()
