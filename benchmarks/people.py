"""People, not chains: do synthetic traces remember as people do, and do they have gaps if the data have gaps?

    python benchmarks/people.py table ../shared --csv benchmarks/people.csv
    python benchmarks/people.py table ../shared --data "toy weeks" --systems chains bridge --seeds 0
    python benchmarks/people.py print --csv benchmarks/people.csv
    python benchmarks/people.py attacks ../shared --csv benchmarks/people_attacks.csv --keep shadows
    python benchmarks/people.py city --csv benchmarks/people_city.csv
    python benchmarks/people.py check --csv benchmarks/people.csv

`table` adds a row for each data set, system and seed. It does not repeat rows that the file already has, so a stopped
run continues when it is called again. All numbers are from `evaluate`, which compares windows as long as a synthetic
trace. There is one exception: for traces with gaps, TP-TV is measured on all traces together, because the one trace of
a user that `evaluate` takes has few events at a place and slot. Each system runs in a process of its own. `peak_mb` is
the peak memory of fit, synthesis and test together, libraries included. Seconds are given for each of the three,
compilation included. The privacy test has k = 10 and eta = 1.

Data:

- people flow: 500 and 500 people, half a day of 30 instants, ten traces a user;
- toy weeks: a simulated city of 1,000 and 1,000 people, a week of hours; another city for each seed;
- New York (Foursquare) and Gowalla (also New York): check-ins over months, eight windows of 28 days a user. Of Gowalla,
  only users with at least 20 check-ins are used. Half of the users are test users. Complete windows are *masked*: each
  has only the instants of a random training window, so that all sets have equally many events, for metrics and for
  attackers.

Systems: `PPMTF`, with its published settings; `chains`, the bridge without memory; `bridge`, the default; `presence`,
the default with a place at every hour (only for check-ins); and the peers density-EPR and DITRAS of scikit-mobility,
see `peers.py`. If the traces of a system last a day, 28 of them are joined to a window. `Training` and `Uniform` are
the columns of `evaluate`.

`attacks` makes the attacks of `membership.py` on people flow; shadow models are the strongest of them. Finished shadow
models are kept in the folder `--keep`, so that a stopped run continues from them.

`city` measures the seconds and the memory of chains and of the default on four simulated data sets: a day of 219,793
people at 1,000 places, a week of 20,000 people, a day of 10,000 people at 10,000 places, and a day of 2,000 people in
steps of a quarter of an hour.

`check` prints each limit that the default must meet, and whether the mean over seeds meets it. The worst seed and
Training are beside the mean. Numbers of attacks are read from a second file, whose name ends in `_attacks`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import Row, command_line, in_a_process, machine, measured, people_flow, record
from peers import PEERS, peer_traces

COLUMNS = ["data", "seed", "system", "traces", "share_passed"]
"""Columns of a row before those of the metrics."""
DENSE, SPARSE = ("people flow", "toy weeks"), ("New York", "Gowalla")
SEEDS = (0, 1, 2)
WINDOW_DAYS = 28
TEST = {"k": 10, "eta": 1.0}
METRICS = (
    "return_difference",
    "straight_back_difference",
    "return_time_tv",
    "distinct_w1",
    "top_place_w1",
    "second_place_w1",
    "main_places_w1_km",
    "daily_motif_tv",
    "closed_day_difference",
    "night_homes_difference",
    "entropy_difference",
    "stay_difference",
    "stay_any_gap_difference",
    "jump_tv",
    "jump_1h_tv",
    "jump_6h_tv",
    "jump_24h_tv",
    "jump_later_tv",
    "events_w1",
    "event_gap_tv",
    "day_events_tv",
    "radius_w1_km",
    "window_radius_w1_km",
    "tp_tv",
    "od_tv",
    "row_tv",
    "group_tv",
)
PRIVACY = ("density_ratio_auc", "reid_rate", "mia_advantage", "mia_chance")
SECONDS = ("fit_s", "synthesis_s", "test_s", "evaluate_s")
COLUMNS += [*METRICS, *PRIVACY, *SECONDS, "peak_mb", "cores", "load", "said"]


# Data


class Data(NamedTuple):
    """How real traces are read, and how many synthetic traces are made from them."""

    read: Callable[[Path, int], tuple[Any, Any]]  # training and test traces, of the folder of the data and the seed
    of_user: int  # synthetic traces of each training user
    n_days: int = 0  # periods of a window; 0 where a synthetic trace of one period is a window


def toy_weeks(shared: Path, seed: int) -> tuple[Any, Any]:
    """A simulated city whose slots repeat every week; the folder `shared` is not used."""
    from ppmtf_jax import toy_city

    return in_weeks(toy_city(n_users=2000, n_places=500, n_days=7, seed=seed).traces).split_users(0.5, seed=0)


def in_weeks(traces: Any) -> Any:
    """Traces of hours whose slots of two hours repeat every week."""
    from ppmtf_jax.data.time_grid import TimeGrid

    grid = traces.time_grid
    weeks = TimeGrid.cyclic(grid.start, grid.step_s, grid.n_instants, slot_s=7200, period_s=7 * 86_400)
    return replace(traces, friendships=None, time_grid=weeks)


def in_quarters(traces: Any) -> Any:
    """Traces of hours as traces of quarters of an hour: each event becomes four events."""
    from ppmtf_jax.data.time_grid import TimeGrid

    grid = traces.time_grid
    columns = {name: np.repeat(getattr(traces, name), 4) for name in ("user", "trace", "place")}
    columns["instant"] = (4 * traces.instant[:, None] + np.arange(4, dtype=np.int32)).ravel()
    quarters = TimeGrid.cyclic(grid.start, grid.step_s // 4, 4 * grid.n_instants, slot_s=7200)
    return replace(traces, friendships=None, time_grid=quarters, **columns)


def new_york(shared: Path, seed: int) -> tuple[Any, Any]:
    from ppmtf_jax.datasets.published import read_foursquare

    traces, _ = read_foursquare(shared / "data" / "foursquare-tsmc2014-nyc" / "dataset_TSMC2014_NYC_ge10.txt.gz")
    return replace(traces, friendships=None).split_users(0.5, seed=0)


def gowalla(shared: Path, seed: int) -> tuple[Any, Any]:
    from ppmtf_jax.datasets.published import read_gowalla

    file = shared / "data" / "gowalla-nyc" / "loc-gowalla_totalCheckins_NYC.txt.gz"
    traces, _ = read_gowalla(file, time_zone="America/New_York")
    traces = traces.select_users(np.bincount(traces.user, minlength=traces.n_users) >= 20)
    return replace(traces, friendships=None).split_users(0.5, seed=0)


DATA = {
    "people flow": Data(lambda shared, seed: people_flow(shared), of_user=10),
    "toy weeks": Data(toy_weeks, of_user=1),
    "New York": Data(new_york, of_user=8, n_days=WINDOW_DAYS),
    "Gowalla": Data(gowalla, of_user=8, n_days=WINDOW_DAYS),
}


# Systems


class Made(NamedTuple):
    """Synthetic traces, and what is known of how they were made."""

    traces: Any
    about: Row


def by_fit(system: str, **settings: Any) -> Callable[[Data, Any, int], Made]:
    """A synthesizer of the library."""

    def make(data: Data, train: Any, seed: int) -> Made:
        from ppmtf_jax import fit, plausible_deniability_test, synthesize
        from ppmtf_jax.runtime.memory import PeakMemory
        from ppmtf_jax.trace_models.base import PersonModel

        peak = PeakMemory()
        model, fitted = measured(fit, train, system, seed=seed, **settings)
        own, period = model.trace_model, train.time_grid.period
        is_window = not data.n_days or own.grid_of_trace(train.time_grid).n_instants > period
        goes_on = isinstance(own, PersonModel) and own.goes_on
        # Traces of a day are joined to windows afterwards.
        n_joined = 1 if is_window or goes_on else data.n_days
        days = data.n_days if goes_on and not is_window else None
        made, synthesized = measured(synthesize, model, traces_per_user=data.of_user * n_joined, days=days, seed=seed)
        verdicts, tested = measured(plausible_deniability_test, model, made, seed=seed, **TEST)
        about = {"share_passed": float(verdicts.passed.mean()), "peak_mb": peak.megabytes()}
        for name, took in (("fit", fitted), ("synthesis", synthesized), ("test", tested)):
            about[f"{name}_s"] = took["seconds"]
        about["said"] = " / ".join(model.trace_model.summary())
        return Made(made if n_joined == 1 else in_windows(made, n_joined), about)

    return make


def by_peer(peer: str) -> Callable[[Data, Any, int], Made]:
    """A model of scikit-mobility. Its people are not made from single users, so there is no privacy test."""

    def make(data: Data, train: Any, seed: int) -> Made:
        n_instants = train.time_grid.period * max(data.n_days, 1)
        made, took = measured(peer_traces, train, peer, train.n_users, n_instants, seed)
        return Made(made, {"synthesis_s": took["seconds"]})

    return make


def in_windows(traces: Any, n_days: int) -> Any:
    """Join every `n_days` traces of a user, each of one day, to one trace."""
    from ppmtf_jax.data.time_grid import TimeGrid

    grid = traces.time_grid
    slots = np.tile(grid.slot_of_instant, n_days)
    window, day = np.divmod(traces.trace, np.int32(n_days))
    return replace(
        traces,
        trace=window,
        instant=traces.instant + day * np.int32(grid.n_instants),
        time_grid=TimeGrid(grid.start, grid.step_s, slots, grid.time_zone, period=grid.n_instants),
    )


BRIDGES: dict[str, dict[str, str]] = {
    "chains": {"memory": "none", "gaps": "none"},
    "bridge": {},
    "presence": {"gaps": "none"},
}
SYSTEMS: dict[str, Callable[[Data, Any, int], Made]] = {
    "PPMTF": by_fit("ppmtf"),
    **{name: by_fit("bridge", **settings) for name, settings in BRIDGES.items()},
    **{peer: by_peer(peer) for peer in PEERS},
}
MASKED = ("presence",)
"""Systems that are only for check-ins."""


# The table


def table_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    done = _done(arguments.csv)
    for data in arguments.data:
        for seed in arguments.seeds:
            for system in arguments.systems:
                if (system in MASKED and data not in SPARSE) or (data, seed, system) in done:
                    continue
                load = machine()
                found = in_a_process(measure, data, system, seed, str(arguments.shared), keep_error=True)
                if "error" in found:
                    print(f"{data}, {system}, seed {seed}: left out, {found['error']}", flush=True)
                    continue
                for name, row in found.items():
                    if (data, seed, name) not in done:
                        done.add((data, seed, name))
                        yield {"data": data, "seed": seed, "system": name} | row | (load if name == system else {})


def _done(path: Path | None) -> set[tuple[str, int, str]]:
    if path is None or not path.exists():
        return set()
    return set(pd.read_csv(path)[["data", "seed", "system"]].itertuples(index=False, name=None))


def register_window_radius() -> None:
    """Add a metric: the radius of gyration in whole windows. The metric of the library measures one period."""
    from ppmtf_jax.evaluation.distributions import wasserstein
    from ppmtf_jax.evaluation.metrics.moves import radius_of_gyration_km
    from ppmtf_jax.evaluation.metrics.windows import window_metric

    window_metric(
        "window_radius_w1_km",
        "Gyration of a window, km",
        "Wasserstein distance between the radii of gyration of synthetic and of test users' windows.",
        wasserstein,
        unit="km",
        scale="none",
        min_events=3,
        applies=lambda comparison: comparison.window_length > comparison.test.time_grid.period,
    )(radius_of_gyration_km)


def measure(data: str, system: str, seed: int, shared: str) -> dict[str, Row]:
    """Compute the rows of a system, of Training and of Uniform in this process."""
    from ppmtf_jax import EvaluationSettings, evaluate
    from ppmtf_jax.data.windows import is_complete
    from ppmtf_jax.runtime.devices import use_all_cores

    use_all_cores()
    utility = EvaluationSettings(attacks=False)
    register_window_radius()
    train, test = DATA[data].read(Path(shared), seed)
    made, about = SYSTEMS[system](DATA[data], train, seed)
    if DATA[data].n_days and is_complete(made):
        made = masked(made, train, seed)
    found, took = measured(evaluate, {system: made}, train, test)
    known = [name for name in (*METRICS, *PRIVACY) if name in found.metrics]
    rows = {}
    for column in found.columns:
        name = column if column == system else column.capitalize()
        rows[name] = {metric: round(found.value(metric, column), 5) for metric in known}
    if "events_w1" in found.metrics:
        rows[system]["tp_tv"] = round(evaluate(of_people(made), train, test, utility)["tp_tv"], 5)
    rows[system] |= about | {"traces": len(made.trace_table()[0]), "evaluate_s": took["seconds"]}
    return rows


def masked(traces: Any, real: Any, seed: int) -> Any:
    """Each trace at the instants of a random real window of the same length."""
    from ppmtf_jax.data.windows import Windows

    length = traces.time_grid.n_instants
    windows, trace = Windows.of(real, length), traces.trace_of_event()
    seen = np.zeros((windows.n_windows, length), bool)
    seen[windows.window, windows.phase] = True
    drawn = np.random.default_rng(seed).integers(windows.n_windows, size=int(trace[-1]) + 1)
    return traces.select_events(seen[drawn[trace], traces.instant])


def of_people(traces: Any) -> Any:
    """The same traces, each with a user of its own, so that metrics of one trace per user use all traces."""
    people = traces.trace_of_event()
    ids = np.arange(int(people[-1]) + 1)
    return replace(traces, user=people, trace=np.zeros_like(people), user_ids=ids, friendships=None, of_nobody=True)


def print_table(path: Path) -> None:
    """Means over seeds and their range, as Markdown: a table for each data set, with metrics as rows."""
    table = pd.read_csv(path)
    for data, of_data in table.groupby("data", sort=False):
        systems = of_data["system"].unique()
        print(f"\n**{data}**\n\n| | {' | '.join(systems)} |\n|---|{'--:|' * len(systems)}")
        for name in ("share_passed", *METRICS, *PRIVACY, *SECONDS, "peak_mb"):
            if of_data[name].notna().any():
                cells = (_with_range(of_data.loc[of_data["system"] == system, name]) for system in systems)
                print(f"| {name} | {' | '.join(cells)} |")


def _with_range(values: pd.Series) -> str:
    if values.isna().all():
        return "-"
    mean, low, high = (f"{value:.3f}" for value in (values.mean(), values.min(), values.max()))
    return mean if low == high else f"{mean} ({low} to {high})"


# Attacks


def attack_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    from membership import attacked

    train, test = people_flow(arguments.shared)
    for seed in arguments.seeds:
        for system in ("chains", "bridge"):
            choice = " ".join(["bridge", *(f'{name}="{value}"' for name, value in BRIDGES[system].items())])
            for row in attacked(choice, train, test, arguments.shadows, seed, arguments.keep):
                yield {"system": system, "seed": seed, **row}


# Seconds and memory


CITIES = {
    "city": (219_793, 1000, 1),
    "weeks": (20_000, 1000, 7),
    "places": (10_000, 10_000, 1),
    "quarters": (2000, 500, 1),
}
"""Number of users, of places and of days of each simulated data set."""
CITY_COLUMNS = ["data", "system", "users", "places", "events", "stage", "seconds", "cpu_seconds", "peak_mb", "cores"]
CITY_COLUMNS += ["load", "note"]


def city_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for data in CITIES:
        for system in ("chains", "bridge"):
            yield from in_a_process(measure_city, data, system)


def measure_city(data: str, system: str) -> list[Row]:
    """Fit, synthesize and test in this process: seconds and peak memory, libraries included."""
    from ppmtf_jax import fit, plausible_deniability_test, synthesize, toy_city
    from ppmtf_jax.runtime.devices import use_all_cores
    from ppmtf_jax.runtime.memory import PeakMemory

    use_all_cores()
    n_users, n_places, n_days = CITIES[data]
    traces = toy_city(n_users=n_users, n_places=n_places, n_days=n_days, seed=0).traces
    traces = {"weeks": in_weeks, "quarters": in_quarters}.get(data, lambda hours: hours)(traces)
    about = {"data": data, "system": system, "users": n_users, "places": n_places, "events": traces.n_events}
    rows: list[Row] = []

    def timed(stage: str, function: Callable[..., Any], *given: Any, **options: Any) -> Any:
        peak = PeakMemory()
        result, took = measured(function, *given, **options)
        rows.append(about | {"stage": stage, **took, "peak_mb": peak.megabytes()} | machine())
        print(rows[-1], file=sys.stderr, flush=True)
        return result

    model = timed("fit", fit, traces, "bridge", seed=0, **BRIDGES[system])
    made = timed("synthesize", synthesize, model, seed=0)
    verdicts = timed("test", plausible_deniability_test, model, made, seed=0, **TEST)
    rows[0]["note"] = " / ".join(model.trace_model.summary())
    rows[2]["note"] = f"{verdicts.passed.mean():.2%} pass"
    return rows


# What must be shown


class Must(NamedTuple):
    """A limit of a metric of the default system on a data set."""

    metric: str
    data: str
    limit: float
    beside: str = ""  # the limit is this much above the metric of another system or column


def _musts() -> Iterator[Must]:
    dense = {
        "return_difference": (0.01, 0.02),
        "distinct_w1": (0.8, 0.55),
        "daily_motif_tv": (0.07, 0.14),
        "top_place_w1": (0.02, 0.02),
        # The limit is 1.25 homes in all; test users have 1.14.
        "night_homes_difference": (None, 0.11),
        "stay_difference": (0.015, 0.015),
        "jump_tv": (0.03, 0.06),
    }
    sparse = {
        "return_difference": (0.02, 0.02),
        "distinct_w1": (0.35, 0.40),
        "daily_motif_tv": (0.12, 0.07),
        "top_place_w1": (0.03, 0.03),
        "stay_any_gap_difference": (0.02, 0.02),
        # Of the steps of one hour, at most .055 and .02 may be stays; of those of test users, .029 and .012 are stays.
        "stay_difference": (0.026, 0.008),
        "jump_1h_tv": (0.16, 0.11),
        "event_gap_tv": (0.07, 0.06),
        "events_w1": (1.1, 1.1),
        "window_radius_w1_km": (0.45, 0.65),
        "tp_tv": (0.66, 0.66),
    }
    for names, limits in ((DENSE, dense), (SPARSE, sparse)):
        for metric, values in limits.items():
            pairs = zip(names, values, strict=True)
            yield from (Must(metric, data, limit) for data, limit in pairs if limit is not None)
    for data in DATA:
        yield Must("reid_rate", data, 0.03)
        yield Must("density_ratio_auc", data, 0.02, "chains")
        margin = 0.01 if data in DENSE else 0.0
        yield from (Must(metric, data, margin, "chains") for metric in ("od_tv", "group_tv"))
    yield from (Must("tp_tv", data, 0.005, "chains") for data in DENSE)
    # "Near Training" means: at most a tenth of a home away.
    yield from (Must("night_homes_difference", data, 0.1, "Training") for data in SPARSE)


def check(path: Path, system: str = "bridge") -> None:
    """Print each limit, the mean over seeds, the worst seed and Training, and whether the limit is met."""
    table = pd.read_csv(path)

    def values(data: str, name: str, metric: str) -> pd.Series:
        return table.loc[(table["data"] == data) & (table["system"] == name), metric].dropna().abs()

    rows = []
    for must in _musts():
        found, limit = values(must.data, system, must.metric), must.limit
        if must.beside:
            limit += values(must.data, must.beside, must.metric).mean()
        known = len(found) > 0 and np.isfinite(limit)
        verdict = ("met" if found.mean() <= limit else "NOT MET") if known else "not known"
        training = values(must.data, "Training", must.metric).mean()
        rows.append([must.data, must.metric, found.mean(), found.max(), training, limit, must.beside, verdict])
    for data in table["data"].unique():
        passed = values(data, system, "share_passed")
        if len(passed):
            rows.append([data, "share_passed", passed.mean(), passed.min(), np.nan, 1.0, "", _met(passed.min() == 1.0)])
    of_attacks = path.with_stem(f"{path.stem}_attacks")
    if of_attacks.exists():
        found = pd.read_csv(of_attacks).query("measured == 'held out' and attack == 'shadow models'")
        auc = found[found["shadows"] == found["shadows"].max()].groupby("system")["auc"]
        mean, worst, limit = auc.mean().get(system), auc.max().get(system), auc.mean().get("chains")
        if mean is not None and limit is not None:
            rows.append(
                ["people flow", "shadow models' AUC", mean, worst, np.nan, limit, "chains", _met(mean <= limit)]
            )
    columns = ["data", "metric", "mean", "worst", "Training", "limit", "above", "verdict"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="%.3f"))


def _met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def main() -> None:
    parser = command_line(__doc__, sections=("table", "print", "attacks", "city", "check"), shared=True)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--shadows", type=int, default=16, help="shadow models of an attack, even, at least 8")
    parser.add_argument("--keep", type=Path, help="folder for finished shadow models")
    arguments = parser.parse_args()
    if arguments.section in ("print", "check"):
        if arguments.csv is None:
            parser.error("--csv is needed")
        (print_table if arguments.section == "print" else check)(arguments.csv)
    elif arguments.section == "city":
        record(city_rows(arguments), arguments.csv, CITY_COLUMNS, append=True)
    elif arguments.section == "attacks":
        from membership import COLUMNS as OF_ATTACKS

        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
        record(attack_rows(arguments), arguments.csv, ["system", "seed", *OF_ATTACKS[1:]], append=True)
    else:
        record(table_rows(arguments), arguments.csv, COLUMNS, append=True)
        if arguments.csv is not None:
            print_table(arguments.csv)


if __name__ == "__main__":
    main()
