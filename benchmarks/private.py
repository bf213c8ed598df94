"""Traces with (epsilon, delta)-differential privacy per user: how true they are, beside peers with the same guarantee.

    python benchmarks/private.py table ../shared --csv benchmarks/private.csv
    python benchmarks/private.py table ../shared --data "people flow" --systems private TPM --epsilons 1 --seeds 0
    python benchmarks/private.py print --csv benchmarks/private.csv
    python benchmarks/private.py curves --csv benchmarks/private.csv
    python benchmarks/private.py attacks ../shared --csv benchmarks/private_attacks.csv --keep shadows
    python benchmarks/private.py city --csv benchmarks/private_city.csv
    python benchmarks/private.py check --csv benchmarks/private.csv

`table` adds a row for each data set, system, epsilon and seed. It does not repeat rows that the file already has. All
numbers are from `evaluate`, with 20,000 synthetic people. Delta is 1e-6, and neighbours differ by all traces of one
user. The seed is that of the noise and of the people. The data are the same for all seeds, except `people flow 250`,
whose users are drawn with the seed. These models are NOT PRIVATE: their noise comes from a seed, so that the numbers
can be reproduced.

Data: of check-ins, four fifths of the users are training users, and the 1,000 most visited places are kept, even if a
place has only one visitor. These places are chosen from the data, so they are not public: private releases should not
be made in this way. `Training` and `Uniform` are the columns of `evaluate`.

Systems: `private` with its default settings; `prior`, which is `private` with public knowledge (venues in Tokyo,
check-ins of another service in the same city, or the categories that people visit in other cities); `no anchors`, which
is `private` with people without homes; `week`, which is `private` with traces of seven days; the peers TPM (Laplace
noise, delta 0), MST and AIM (see `marginals.py`; only with coordinates); and `bridge` and `PPMTF`, which are not
differentially private, so their epsilon is infinite.

`curves` draws each metric against epsilon, as means over seeds. `attacks` makes the attacks of `membership.py` on
people flow. `city` measures time and memory for a day of 219,793 people at 1,000 places. `check` prints each limit, and
whether the mean over seeds meets it; for `people flow 250`, the worst seed must meet it. The results of attacks and of
the city are read from the files whose names end in `_attacks` and `_city`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import Row, command_line, in_a_process, machine, measured, people_flow, record
from common import new_york_2019 as of_new_york_2019
from marginals import MECHANISMS, marginal_traces
from people import of_people

N_PEOPLE = 20_000
DELTA = 1e-6
SEEDS = (0, 1, 2)
METRICS = (
    "tp_tv",
    "tp_tv_top50",
    "tm_emd_y",
    "tm_emd_x",
    "vf_tv",
    "stay_difference",
    "jump_tv",
    "od_tv",
    "row_tv",
    "distinct_w1",
    "top_place_w1",
    "return_difference",
    "straight_back_difference",
    "daily_motif_tv",
    "entropy_difference",
    "radius_w1_km",
)
COLUMNS = ["data", "system", "epsilon", "seed", *METRICS, "fit_s", "synthesis_s", "peak_mb", "cores", "load", "said"]


# Data


class Data(NamedTuple):
    """How real traces are read, what is public about them, and at which epsilons they are measured."""

    read: Callable[[Path, int], tuple[Any, Any]]  # from the folder of the data and the seed: training and test traces
    epsilons: tuple[float, ...] = (1.0, 8.0)
    prior: Callable[[Path, Any, Path], Path] | None = None  # writes public knowledge into the last folder
    located: bool = True


def few_people(shared: Path, seed: int) -> tuple[Any, Any]:
    train, test = people_flow(shared)
    return train.select_users(np.random.default_rng(seed).permutation(train.n_users)[:250]), test


def _split(read: Callable[..., Any], *files: Path, **options: Any) -> tuple[Any, Any]:
    from ppmtf_jax.datasets.discretize import Discretization

    traces, _ = read(*files, discretization=Discretization(min_users_per_place=1), **options)
    return replace(traces, friendships=None).split_users(0.8, seed=0)


def gowalla(shared: Path, seed: int) -> tuple[Any, Any]:
    from ppmtf_jax.datasets.published import read_gowalla

    folder = shared / "data" / "gowalla-nyc"
    files = (folder / f"loc-gowalla_{name}_NYC.txt.gz" for name in ("totalCheckins", "edges"))
    return _split(read_gowalla, *files, time_zone="America/New_York")


def new_york(shared: Path, seed: int) -> tuple[Any, Any]:
    from ppmtf_jax.datasets.published import read_foursquare

    return _split(read_foursquare, shared / "data" / "foursquare-tsmc2014-nyc")


def new_york_2019(shared: Path, seed: int) -> tuple[Any, Any]:
    return _split(lambda path, **how: (of_new_york_2019(path, category_names=True, **how), None), shared)


def hours_of_the_week(city: str, zone: str) -> Callable[[Path, int], tuple[Any, Any]]:
    """Check-ins by hour of the week, without coordinates."""

    def read(shared: Path, seed: int) -> tuple[Any, Any]:
        from ppmtf_jax.datasets.published import read_lbsn2vec

        folder = shared / "data" / "foursquare-www2019-lbsn2vec"
        names = folder / "nyc_category_names.csv"
        return _split(
            read_lbsn2vec, folder / f"dataset_connected_{city}.mat", category_names_file=names, time_zone=zone
        )

    return read


def toy(n_train: int, n_test: int) -> Callable[[Path, int], tuple[Any, Any]]:
    """A simulated city of 1,000 places and 7 days; the folder of the data is not used."""

    def read(shared: Path, seed: int) -> tuple[Any, Any]:
        from ppmtf_jax import toy_city

        traces = replace(toy_city(n_train + n_test, n_places=1000, n_days=7, seed=0).traces, friendships=None)
        return traces.select_users(np.arange(n_train)), traces.select_users(np.arange(n_train, n_train + n_test))

    return read


# Public knowledge: files for the setting `prior`


def venues(shared: Path, train: Any, folder: Path) -> Path:
    """Venues in Tokyo, from another data set."""
    table = pd.read_csv(shared / "data" / "foursquare-tky-sample" / "poi-TKY.csv.gz")
    table.rename(columns={"poiLat": "latitude", "poiLon": "longitude"})[["latitude", "longitude"]].to_csv(
        folder / "venues.csv", index=False
    )
    return folder / "venues.csv"


def other_service(name: str) -> Callable[[Path, Any, Path], Path]:
    """Check-ins of another service in the same city."""

    def write(shared: Path, train: Any, folder: Path) -> Path:
        DATA[name].read(shared, 0)[0].save(folder / "traces")
        return folder / "traces"

    return write


def other_cities(*names: str) -> Callable[[Path, Any, Path], Path]:
    """How often a place of each category is visited in other cities."""

    def write(shared: Path, train: Any, folder: Path) -> Path:
        visits = []
        for name in names:
            other = DATA[name].read(shared, 0)[0]
            share = np.bincount(other.place, minlength=other.n_places) / other.n_events
            visits.append(pd.Series(share, other.places.category.astype(str)))
        of_category = pd.concat(visits).groupby(level=0).mean()
        weight = of_category.reindex(train.places.category.astype(str)).fillna(of_category.median())
        table = pd.DataFrame({"place": train.places.ids, "weight": weight.to_numpy()})
        table.to_csv(folder / "places.csv", index=False)
        return folder / "places.csv"

    return write


CURVE = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
DATA = {
    "people flow": Data(lambda shared, seed: people_flow(shared), CURVE, venues),
    "Gowalla": Data(gowalla, CURVE, other_service("New York")),
    "toy 2500": Data(toy(2500, 20_000)),
    "Kuala Lumpur": Data(
        hours_of_the_week("KualaLampur", "Asia/Kuala_Lumpur"), prior=other_cities("Jakarta", "Sao Paulo"), located=False
    ),
    "New York 2019": Data(new_york_2019, prior=other_service("Gowalla")),
    "New York": Data(new_york, prior=other_service("Gowalla")),
    "Jakarta": Data(
        hours_of_the_week("Jakarta", "Asia/Jakarta"), prior=other_cities("Kuala Lumpur", "Sao Paulo"), located=False
    ),
    "Sao Paulo": Data(
        hours_of_the_week("SaoPaulo", "America/Sao_Paulo"), prior=other_cities("Kuala Lumpur", "Jakarta"), located=False
    ),
    "toy 20000": Data(toy(20_000, 20_000)),
    "people flow 250": Data(few_people),
}


# Systems


def with_prior(data: Data, train: Any, epsilon: float, seed: int, shared: Path) -> tuple[Any, Row]:
    """`private` with public knowledge."""
    if data.prior is None:
        raise SystemExit("no public prior of these data")
    with TemporaryDirectory() as folder:
        path = str(data.prior(shared, train, Path(folder)))
        return by_fit("private", public_places=True, prior=path)(data, train, epsilon, seed, shared)


def by_fit(
    system: str, *, days: int | None = None, **settings: Any
) -> Callable[[Data, Any, float, int, Path], tuple[Any, Row]]:
    """A synthesizer of the library; its traces have `days` days, or the usual length of the model."""

    def make(data: Data, train: Any, epsilon: float, seed: int, shared: Path) -> tuple[Any, Row]:
        from ppmtf_jax import fit, synthesize
        from ppmtf_jax.runtime.memory import PeakMemory

        peak = PeakMemory()
        budget = {"epsilon": epsilon, "noise": "seeded"} if np.isfinite(epsilon) else {}
        model, fitted = measured(fit, train, system, seed=seed, **budget, **settings)
        made, synthesized = measured(synthesize, model, people=N_PEOPLE, days=days, seed=seed)
        about = {"fit_s": fitted["seconds"], "synthesis_s": synthesized["seconds"], "peak_mb": peak.megabytes()}
        # `evaluate` computes some metrics for one trace of each user. To use all traces, each gets a user of its own.
        made = made if model.of_nobody else of_people(made)
        return made, about | {"said": " / ".join(model.trace_model.summary())}

    return make


def by_peer(mechanism: str) -> Callable[[Data, Any, float, int, Path], tuple[Any, Row]]:
    """A mechanism of mbi."""

    def make(data: Data, train: Any, epsilon: float, seed: int, shared: Path) -> tuple[Any, Row]:
        made, took = measured(marginal_traces, train, mechanism, epsilon, DELTA, N_PEOPLE, seed)
        return made, {"fit_s": took["seconds"]}

    return make


SYSTEMS: dict[str, Callable[[Data, Any, float, int, Path], tuple[Any, Row]]] = {
    "private": by_fit("private", public_places=True),
    "prior": with_prior,
    "no anchors": by_fit("private", public_places=True, anchors="none"),
    "week": by_fit("private", days=7, public_places=True),
    "TPM": by_fit("tpm"),
    **{mechanism: by_peer(mechanism) for mechanism in MECHANISMS},
    "bridge": by_fit("bridge"),
    "PPMTF": by_fit("ppmtf", zeros="weighted", rank=32),
}
WITHOUT_PRIVACY = ("bridge", "PPMTF")


# The table


def table_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    done = _done(arguments.csv)
    wanted = (
        (data, system, np.inf if system in WITHOUT_PRIVACY else epsilon, seed)
        for data in arguments.data
        for epsilon in arguments.epsilons or DATA[data].epsilons
        for system in arguments.systems
        for seed in arguments.seeds
    )
    for data, system, epsilon, seed in wanted:
        impossible = (system in MECHANISMS and not DATA[data].located) or (system == "prior" and not DATA[data].prior)
        if impossible or (data, system, epsilon, seed) in done:
            continue
        load = machine()
        found = in_a_process(measure, data, system, str(epsilon), seed, str(arguments.shared), keep_error=True)
        if "error" in found:
            print(f"{data}, {system}, epsilon {epsilon}, seed {seed}: left out, {found['error']}", flush=True)
            continue
        for name, row in found.items():
            at = epsilon if name == system else np.inf
            if (data, name, at, seed) not in done:
                done.add((data, name, at, seed))
                yield (
                    {"data": data, "system": name, "epsilon": at, "seed": seed} | row | (load if name == system else {})
                )


def _done(path: Path | None) -> set[tuple[str, str, float, int]]:
    if path is None or not path.exists():
        return set()
    return set(pd.read_csv(path)[["data", "system", "epsilon", "seed"]].itertuples(index=False, name=None))


def measure(data: str, system: str, epsilon: str, seed: int, shared: str) -> dict[str, Row]:
    """Compute the rows of a system, of Training and of Uniform in this process."""
    from ppmtf_jax import EvaluationSettings, evaluate
    from ppmtf_jax.runtime.devices import use_all_cores

    use_all_cores()
    train, test = DATA[data].read(Path(shared), seed)
    made, about = SYSTEMS[system](DATA[data], train, float(epsilon), seed, Path(shared))
    found = evaluate({system: made}, train, test, EvaluationSettings(attacks=False))
    rows = {}
    for column in found.columns:
        name = column if column == system else column.capitalize()
        rows[name] = {metric: round(found.value(metric, column), 5) for metric in METRICS if metric in found.metrics}
    rows[system] |= about
    return rows


def print_table(path: Path) -> None:
    """Means over seeds, as Markdown: a table for each data set, with metrics as columns."""
    table = pd.read_csv(path)
    for data, of_data in table.groupby("data", sort=False):
        print(f"\n**{data}**\n\n| | epsilon | {' | '.join(METRICS)} |\n|---|{'--:|' * (len(METRICS) + 1)}")
        for (system, epsilon), rows in of_data.groupby(["system", "epsilon"], sort=False):
            cells = (f"{value:.3f}" for value in rows[list(METRICS)].mean())
            print(f"| {system} | {epsilon:g} | {' | '.join(cells)} |")


def curves(path: Path) -> None:
    """Draw means over seeds against epsilon: a picture for each data set where a system has at least three epsilons."""
    from matplotlib.figure import Figure

    lines = {"Uniform": "gray", "Training": "black", "bridge": "tab:orange", "PPMTF": "tab:green"}
    table = pd.read_csv(path)
    for data, of_data in table.groupby("data", sort=False):
        mean = of_data.groupby(["system", "epsilon"])[list(METRICS)].mean().abs()
        figure = Figure((14, 11), layout="constrained")
        for axes, metric in zip(figure.subplots(4, 4).ravel(), METRICS, strict=True):
            axes.set_title(metric)
            for system, values in mean[metric].dropna().groupby("system"):
                values = values.droplevel("system")
                if len(values) > 2:
                    axes.semilogx(values.index, values, base=2, marker="o", label=system)
                    axes.set_xticks(values.index, [f"{epsilon:g}" for epsilon in values.index])
                elif np.isinf(values.index).all():
                    axes.axhline(values.iloc[0], ls="--", c=lines[system], label=system)
        if any(len(values) > 2 for _, values in mean.groupby("system")):
            axes.legend()
            figure.supxlabel("epsilon")
            figure.savefig(path.with_name(f"{path.stem}_{'_'.join(str(data).split())}.png"))


# Attacks


def attack_rows(arguments: argparse.Namespace) -> Iterator[Row]:
    from membership import attacked

    train, test = people_flow(arguments.shared)
    for seed in arguments.seeds:
        for name in (each for each in ATTACKED if each in arguments.systems):
            for row in attacked(ATTACKED[name], train, test, arguments.shadows, seed, arguments.keep):
                yield {"system": name, "seed": seed, **row}


ATTACKED = {"private": 'private public_places=true noise="seeded"', "bridge": "bridge", "PPMTF": "ppmtf"}


# Seconds and memory

CITY = 219_793, 1000
CITY_COLUMNS = ["users", "places", "events", "stage", "seconds", "cpu_seconds", "peak_mb", "cores", "load", "note"]


def measure_city() -> list[Row]:
    """Fit and synthesize in this process: seconds and peak memory, libraries and traces included."""
    from ppmtf_jax import fit, synthesize, toy_city
    from ppmtf_jax.runtime.devices import use_all_cores
    from ppmtf_jax.runtime.memory import PeakMemory

    use_all_cores()
    traces = toy_city(n_users=CITY[0], n_places=CITY[1], n_days=1, seed=0).traces
    rows: list[Row] = []

    def timed(stage: str, function: Callable[..., Any], *given: Any, **options: Any) -> Any:
        peak = PeakMemory()
        result, took = measured(function, *given, seed=0, **options)
        about = {"users": CITY[0], "places": CITY[1], "events": traces.n_events, "stage": stage}
        rows.append(about | {**took, "peak_mb": peak.megabytes()} | machine())
        print(rows[-1], file=sys.stderr, flush=True)
        return result

    model = timed("fit", fit, traces, "private", public_places=True)
    timed("synthesize", synthesize, model, people=CITY[0])
    rows[0]["note"] = " / ".join(model.trace_model.summary())
    return rows


# What must be shown


class Must(NamedTuple):
    """An upper limit of the mean absolute value of a metric over the seeds."""

    data: str
    system: str
    epsilon: float
    metric: str
    limit: float


MUSTS = [
    *(
        Must("people flow", "private", 1.0, *each)
        for each in (("tp_tv", 0.475), ("tm_emd_y", 0.60), ("tm_emd_x", 0.65))
    ),
    *(Must("people flow", "private", 1.0, *each) for each in (("vf_tv", 0.38), ("distinct_w1", 1.0))),
    Must("people flow", "prior", 1.0, "tp_tv", 0.43),
    Must("people flow", "private", 8.0, "tp_tv", 0.37),
    Must("Gowalla", "private", 1.0, "tp_tv", 0.605),
    Must("Gowalla", "private", 8.0, "tp_tv", 0.565),
    Must("Kuala Lumpur", "private", 1.0, "tp_tv", 0.47),
    Must("Kuala Lumpur", "private", 8.0, "tp_tv", 0.405),
    Must("New York 2019", "private", 1.0, "tp_tv", 0.64),
    Must("New York 2019", "private", 8.0, "tp_tv", 0.59),
    Must("Jakarta", "private", 1.0, "tp_tv", 0.51),
    *(Must("toy 2500", "private", 1.0, *each) for each in (("tp_tv", 0.295), ("vf_tv", 0.54))),
    Must("toy 20000", "private", 1.0, "tp_tv", 0.15),
]


def check(path: Path) -> None:
    """Print each limit, the mean over seeds and the worst seed, and whether the limit is met.

    For `people flow 250`, the mean is replaced by the worst seed.
    """
    table = pd.read_csv(path)
    rows = []

    def add(data: str, system: str, epsilon: float, metric: str, values: Any, limit: float, found: float) -> None:
        verdict = "not known" if np.isnan(found) else "met" if found <= limit else "NOT MET"
        worst = max(values, default=np.nan)
        rows.append([data, system, epsilon, metric, len(values), found, worst, limit, verdict])

    def values_of(data: str, system: str, epsilon: float, metric: str) -> pd.Series:
        chosen = (table["data"] == data) & (table["system"] == system) & (table["epsilon"] == epsilon)
        return table.loc[chosen, metric].dropna().abs()

    for must in MUSTS:
        values = values_of(*must[:4])
        add(*must[:4], values, must.limit, values.mean())
    of_few = table[(table["data"] == "people flow 250") & (table["system"] == "private")]
    uniform = values_of("people flow 250", "Uniform", np.inf, "tp_tv").mean()
    for epsilon, each in of_few.groupby("epsilon"):
        add("people flow 250", "private", epsilon, "tp_tv", each["tp_tv"], uniform + 0.01, each["tp_tv"].max())
    attacks, city = (path.with_stem(f"{path.stem}_{name}") for name in ("attacks", "city"))
    if attacks.exists():
        found = pd.read_csv(attacks).query(
            "measured == 'held out' and attack == 'shadow models' and system == 'private'"
        )
        found = found[found["shadows"] == found["shadows"].max()]
        # The mean over seeds of the lower ends of the intervals must not be above the AUC of a guess.
        add("people flow", "private", 1.0, "shadow AUC, low", found["auc_low"], 0.5, found["auc_low"].mean())
    if city.exists():
        fit = pd.read_csv(city).query("stage == 'fit'")
        for metric, limit in (("seconds", 60), ("peak_mb", 4000)):
            add("city", "private", 1.0, metric, fit[metric], limit, fit[metric].mean())
    columns = ["data", "system", "epsilon", "metric", "seeds", "mean", "worst", "limit", "verdict"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False, float_format="%.3f"))


def main() -> None:
    parser = command_line(__doc__, sections=("table", "print", "curves", "attacks", "city", "check"), shared=True)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--epsilons", nargs="+", type=float, help="by default those of the data set")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--shadows", type=int, default=16, help="shadow models of an attack, even, at least 8")
    parser.add_argument("--keep", type=Path, help="folder for finished shadow models")
    arguments = parser.parse_args()
    reads = {"print": print_table, "curves": curves, "check": check}
    if arguments.section in reads:
        if arguments.csv is None:
            parser.error("--csv is needed")
        reads[arguments.section](arguments.csv)
    elif arguments.section == "city":
        record(in_a_process(measure_city), arguments.csv, CITY_COLUMNS)
    elif arguments.section == "attacks":
        from membership import COLUMNS as OF_ATTACKS

        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
        record(attack_rows(arguments), arguments.csv, ["system", "seed", *OF_ATTACKS[1:]], append=True)
    else:
        record(table_rows(arguments), arguments.csv, COLUMNS, append=True)


if __name__ == "__main__":
    main()
