"""The bridge without memory beside PPMTF: utility and privacy. `people.py` measures the default.

    python benchmarks/bridge.py ../shared --csv benchmarks/bridge_table.csv

Three seeds, ten traces a user (toy city: five), all numbers from `evaluate`; the privacy test has k = 10 and eta = 1.
"New York" has all places, as published; "New York, default" has only the places of at least five training users, as
`ppmtf import` keeps them. In the end it prints a table of means over seeds and ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from common import Row, command_line, new_york, people_flow, record

from ppmtf_jax import PPMTFSettings, Traces, evaluate, fit, plausible_deniability_test, synthesize, toy_city
from ppmtf_jax.datasets.published import read_foursquare
from ppmtf_jax.datasets.registry import split_users

# Number of synthetic traces of each user.
DATA = {"people flow": 10, "New York": 10, "toy city": 5, "New York, default": 10}
# In the toy city every user has a home of her own, so it needs a higher rank than the published data.
PPMTF = {"toy city": PPMTFSettings(rank=32, zeros="weighted", n_zeros=300)}
SEEDS = range(3)
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
TABLE_COLUMNS = ["data", "seed", "set", "traces", "share_passed", *METRICS, "group_floor", "group_alike"]


def split(data: str, shared: Path, seed: int) -> tuple[Traces, Traces]:
    if data == "people flow":
        return people_flow(shared)
    if data == "New York, default":
        traces, report = read_foursquare(shared / "data" / "foursquare-tsmc2014-nyc")
        sets = split_users(traces, report, 0.8, seed).sets
        return sets["train"], sets["test"]
    traces = toy_city(n_users=2500, seed=0).traces if data == "toy city" else new_york(shared)
    return traces.split_users(0.8, seed)


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
    """Synthetic traces of both systems, and of PPMTF those that passed; and the number of each, and the share."""
    ppmtf = fit(train, "ppmtf", PPMTF.get(data, PPMTFSettings()), seed=seed)
    models = {"PPMTF": ppmtf, "bridge": fit(train, "bridge", memory="none", seed=seed)}
    sets, about = {}, {}
    for name, model in models.items():
        made = synthesize(model, traces_per_user=DATA[data], seed=seed)
        passed = plausible_deniability_test(model, made, k=K, eta=ETA).passed
        sets[name], about[name] = made, {"traces": len(passed), "share_passed": round(float(passed.mean()), 4)}
        if name == "PPMTF":
            sets["PPMTF, passed"] = made.select_traces(passed)
            about["PPMTF, passed"] = {"traces": int(passed.sum())}
    return sets, about


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


def main() -> None:
    parser = command_line(__doc__, shared=True)
    arguments = parser.parse_args()
    print_table(record(table_rows(arguments.shared), arguments.csv, TABLE_COLUMNS, append=True))


if __name__ == "__main__":
    main()
