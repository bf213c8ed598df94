"""The metrics of one period: seconds and peak memory on a city, and what they give on three data sets.

    python benchmarks/metrics.py city --csv benchmarks/metrics_city.csv
    python benchmarks/metrics.py city --users 20000 --days 7
    python benchmarks/metrics.py values --data ../shared --csv benchmarks/metrics_values.csv

`city` is the toy city with 1,000 places; four fifths of its people are the training users. The synthetic set has one
complete trace of 24 events of each training user: another day of the same person. Each metric has a row, in the order
of measurement: the first metric that needs the windows of a set also pays for cutting them, and later metrics reuse
them. `reading` is the time for caveats and references.

`values` fits PPMTF to people flow, to check-ins in New York and to a toy city of 2,000 people, and prints the metrics
of its traces beside the values to compare them with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import Row, command_line, machine, measured, new_york, peak_mb, people_flow, record

from ppmtf_jax import PPMTFSettings, evaluate, fit, synthesize, toy_city
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation import EvaluationSettings
from ppmtf_jax.evaluation.registry import METRICS

N_PLACES, TRAIN_FRACTION = 1000, 0.8


def city(n_users: int, n_days: int) -> tuple[Traces, Traces, Traces]:
    """Synthetic, training and test traces with a given number of training users."""
    n_all = round(n_users / TRAIN_FRACTION)
    train, test = toy_city(n_all, n_places=N_PLACES, n_days=n_days, seed=0).traces.split_users(TRAIN_FRACTION, seed=0)
    complete = toy_city(n_all, n_places=N_PLACES, n_days=n_days + 1, missing=0.0, seed=0).traces
    last_day = complete.instant >= 24 * n_days
    day = replace(
        complete,
        **{name: getattr(complete, name)[last_day] for name in ("user", "trace", "place")},
        instant=complete.instant[last_day] - 24 * n_days,
        time_grid=complete.time_grid.one_period(),
    )
    return day.select_users(np.flatnonzero(np.isin(day.user_ids, train.user_ids))), train, test


def time_city(n_users: int, n_days: int) -> Iterator[Row]:
    synthetic, train, test = city(n_users, n_days)
    real = Comparison(train, train, test, synthetic.time_grid.n_instants, pool_traces=True)
    comparison = real.of(synthetic)
    for name, metric in METRICS.items():
        settings = metric.settings()
        row = {"users": train.n_users, "days": n_days, "metric": name}
        values, took = measured(metric.measure, comparison, settings)
        row["seconds"] = took["seconds"]
        for what, function in (("uniform", metric.uniform), ("reading", metric.reading)):
            row[f"{what}_seconds"] = measured(function, real, settings)[1]["seconds"] if function else ""
        row["value"] = " ".join(f"{value:.4f}" for value in values)
        row["peak_memory_mb"] = peak_mb()
        yield row | {"load": machine()["load"]}


def values_of_data(data: Path) -> Iterator[Row]:
    checkins = new_york(data)
    city = toy_city(n_users=2000, seed=0).traces
    sets = {
        "people flow": (*people_flow(data), PPMTFSettings(), 10),
        "New York": (*checkins.split_users(TRAIN_FRACTION, 0), PPMTFSettings(), 10),
        "toy city": (*city.split_users(TRAIN_FRACTION, 0), PPMTFSettings(zeros="weighted"), 5),
    }
    for name, (train, test, settings, n_traces) in sets.items():
        synthetic = synthesize(fit(train, "ppmtf", settings, seed=0), traces_per_user=n_traces, seed=0)
        found = evaluate(synthetic, train, test, EvaluationSettings(attacks=False))
        real = Comparison(train, train, test, synthetic.time_grid.n_instants, pool_traces=True)
        for metric in METRICS.values():
            if metric.applies is not None and not metric.applies(real.of(synthetic)):
                continue
            readings = metric.reading(real, metric.settings()) if metric.reading else [None] * len(metric.quantities)
            for quantity, reading in zip(metric.described(metric.settings()), readings, strict=True):
                row = {"data": name, "metric": quantity.name}
                row |= {column: round(found.value(quantity.name, column), 4) for column in found.columns}
                row["references"] = ", ".join(f"{a} {b:.4f}" for a, b in reading.references.items()) if reading else ""
                yield row | {"caveats": ", ".join(each.code for each in reading.caveats) if reading else ""}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("what", choices=["city", "values"])
    parser.add_argument("--users", type=int, default=220_000, help="training users of the city")
    parser.add_argument("--days", type=int, default=1, help="days of the real traces of the city")
    parser.add_argument("--data", type=Path, help="folder with data/ and reference/")
    arguments = parser.parse_args()
    if arguments.what == "values" and not arguments.data:
        parser.error("--data is needed")
    is_city = arguments.what == "city"
    rows = time_city(arguments.users, arguments.days) if is_city else values_of_data(arguments.data)
    record(rows, arguments.csv)


if __name__ == "__main__":
    main()
