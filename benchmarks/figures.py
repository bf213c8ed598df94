"""The figures of the papers: ours beside the published numbers, and whether they show the same.

    python benchmarks/figures.py measure ../shared
    python benchmarks/figures.py draw

`measure` runs the parts that `figures.csv` does not have yet, each in a process of its own; other figures are drawn
from the files of the other benchmarks.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from io import BytesIO
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import FOLDER, SHARED, Clock, Row, in_a_process, measured, new_york_2019, people_flow
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from PIL import Image
from scipy.stats import spearmanr

from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, MAP_COLOURS, STYLE

Point = tuple[str, str, str, float | str, float]
MEASURED = FOLDER / "figures.csv"
PAGE, PICTURES = FOLDER.parent / "docs" / "figures.md", FOLDER.parent / "docs" / "figures"
PAPERS = {"ppmtf": "PPMTF", "colocation": "co-location", "gstf": "GSTF", "ppmtf+": "PPMTF+"}
MARKS, WIDTH = "os^Dv*Ph", 7.0
COLUMNS = ["part", "figure", "panel", "series", "x", "y"]
UTILITY = {"tp_tv": "TP-TV", "tp_tv_top50": "TP-TV-Top50", "vf_tv": "VF-TV"}
PLUS = {"tp_tv": "TP-TV", "tp_tv_top50": "TP-TV-Top50", "tp_swd": "TP-SWD", "tm_tv": "TM-TV", "tm_swd": "TM-SWD"}
DISTANCES = {"tm_emd_y": "TM-EMD-Y", "tm_emd_x": "TM-EMD-X"}
CITIES = {"New York": "NYC", "Sao Paulo": "SaoPaulo", "Jakarta": "Jakarta", "Kuala Lumpur": "KualaLampur"}
KS = np.array([1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200])
SIZES = {"users": [(n, 400) for n in (100, 200, 500, 1000)], "places": [(100, n) for n in (100, 200, 400, 1000)]}
ALPHAS = (1e-6, 1e-4, 1e-2, 0.1, 0.4, 1.0, 10.0, 200.0, 1000.0)
TRACE_SIZES = {"2 to 5": (2, 5), "6 to 10": (6, 10), "11 to 15": (11, 15), "16 to 20": (16, 20), "21 to 25": (21, 25)}
TRACE_SIZES["over 25"] = (26, 10**9)
MODES = ("user", "place", "next_place", "slot")
KINDS = ("Park", "Bar", "Office", "University")


# Measuring


def city(shared: Path, name: str) -> Any:
    """A city as in section 4.1: the 1,000 most visited venues, slots of two hours, 80 % of the users to train."""
    from ppmtf_jax.datasets import Discretization, MostVisited, read_lbsn2vec

    how = {"discretization": Discretization(MostVisited(1000), slot_s=7200, min_users_per_place=1)}
    if name == "New York":
        traces = new_york_2019(shared, category_names=True, **how)
    else:
        folder = shared / "data" / "foursquare-www2019-lbsn2vec"
        traces = read_lbsn2vec(folder / f"dataset_connected_{CITIES[name]}.mat", **how)[0]
    return replace(traces, friendships=None).split_users(0.8, seed=0)


def measure_city(shared: Path, name: str) -> Iterator[Point]:
    """Figs. 10, 13 and 16 of PPMTF, and in New York, whose venues have names, Figs. 11, 12, 14 and 15."""
    from ppmtf_jax import PPMTFSettings, fit, synthesize
    from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test

    train, test = city(shared, name)
    made, models = {}, {}
    systems = {"PPMTF": ("ppmtf", PPMTFSettings()), "SGD": ("sgd", None)}
    if name == "New York":
        systems["ITF"] = ("itf", PPMTFSettings())
    for series, (system, settings) in systems.items():
        models[series], fitting = measured(fit, train, system, settings, seed=0)
        made[series], making = measured(synthesize, models[series], seed=0)
        yield "13", name, series, "train", fitting["cpu_seconds"]
        yield "13", name, series, "synthesize", making["cpu_seconds"]
    k = int(KS[-1])
    verdicts, testing = measured(plausible_deniability_test, models["PPMTF"], made["PPMTF"], k=k)
    yield "13", name, "PPMTF", "test", testing["cpu_seconds"]
    for at, rate in zip(KS, verdicts.pass_rates(KS), strict=True):
        yield "16", name, "PPMTF", int(at), float(rate)
    for at in (10, 100, 200):
        made[f"PPMTF, k = {at}"] = made["PPMTF"].select_traces(verdicts.plausible_users >= at)
    for series, x, value in utility(made, train, test, distances=name == "New York"):
        yield "15" if series == "ITF" else "10", name, series, x, value
    if name == "New York":
        yield from visit_fractions({"Testing": test, **made})
        yield from clusters_of_venues(models["PPMTF"], made["PPMTF"], train)
        for series in ("PPMTF", "ITF"):
            yield from reconstruction(series, models[series], train)


def utility(sets: dict[str, Any], train: Any, test: Any, *, distances: bool) -> Iterator[tuple[str, str, float]]:
    from ppmtf_jax import EvaluationSettings, evaluate

    settings = EvaluationSettings(attacks=False, settings={"vf_tv": {"published": True}})
    found = evaluate(sets, train, test, settings)
    for column, series in {**{name: name for name in sets}, "training": "Training", "uniform": "Uniform"}.items():
        for metric, title in (UTILITY | DISTANCES if distances else UTILITY).items():
            yield series, title, found.value(metric, column)


def visit_fractions(sets: dict[str, Any]) -> Iterator[Point]:
    """Fig. 11: how the users divide into bins by their share of events at a kind of place."""
    from ppmtf_jax.evaluation.plots.curves import visit_fraction_panels

    figure = visit_fraction_panels({name: sets[name] for name in ("Testing", "PPMTF, k = 10", "SGD")}, kinds=KINDS)
    for ax in figure.axes:
        for steps in ax.patches:
            for number, value in enumerate(steps.get_data().values):
                yield "11", ax.get_title(), steps.get_label(), number, float(value)


def clusters_of(factors: Any, made: Any, train: Any) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """The clusters, those first that differ most from everybody: columns of B, C, D, and shares of events at places."""
    from ppmtf_jax.evaluation.plots import maps
    from ppmtf_jax.evaluation.plots.maps import population_of

    user, place, after, slot = map(np.asarray, factors)
    after = maps.oriented_next_place(after, slot)
    user, place, slot = maps.oriented_factors(user, place, slot, train)
    members = [maps.top_users(column) for column in user.T]
    for cluster in np.argsort(-maps.cluster_strength(members, train), kind="stable"):
        again = np.flatnonzero(np.isin(made.user_ids, train.user_ids[members[cluster]]))
        shares = {"training": population_of(train, members[cluster]), "synthetic": population_of(made, again)}
        yield cluster + 1, shares | {"B": place[:, cluster], "C": after[:, cluster], "D": slot[:, cluster]}


def clusters_of_venues(model: Any, synthetic: Any, train: Any) -> Iterator[Point]:
    """Fig. 12: of the four clusters that differ most, the top venues, their share of events, and the slots."""
    from ppmtf_jax.evaluation.plots.maps import population_of

    factors = [getattr(model.trace_model, name) for name in MODES]
    for cluster, of in islice(clusters_of(factors, synthetic, train), 4):
        of["everybody"] = population_of(train)
        for rank, venue in enumerate(np.argsort(-of["B"], kind="stable")[:5], 1):
            for series in ("training", "synthetic", "everybody"):
                yield "12", f"cluster {cluster}", series, f"{rank} {train.places.category[venue]}", of[series][venue]
        for number, value in enumerate(of["D"]):
            yield "12", f"cluster {cluster}", "slot factor", 2 * number, value


def reconstruction(series: str, model: Any, train: Any) -> Iterator[Point]:
    """Fig. 14: the l1 loss of both tensors at observed and at unobserved cells, of the latter from 1,000 per user."""
    from ppmtf_jax import PPMTFSettings
    from ppmtf_jax.gibbs.tensors import ZERO_STAGES, count_tensors, sample_zeros

    settings, it = PPMTFSettings(), model.trace_model
    factors = {"transitions": (it.user, it.place, it.next_place), "visits": (it.visit_user, it.visit_place, it.slot)}
    for name, tensor in count_tensors(train, settings.trimming(), seed=0)._asdict().items():
        user, place, other = (np.asarray(factor, np.float64) for factor in factors[name])
        zeros = sample_zeros(tensor, settings.n_zeros, seed=0, stage=ZERO_STAGES[name])
        unseen = sample_zeros(tensor, 1000, seed=1, stage=ZERO_STAGES[name], hidden=zeros)

        def loss(cells: np.ndarray, value: Any = 0, modes: Any = (user, place, other)) -> float:
            parts = zip(np.array_split(cells, 100), np.array_split(value + np.zeros(len(cells)), 100), strict=True)
            rows = ((of, [mode[index] for mode, index in zip(modes, part.T, strict=True)]) for part, of in parts)
            return float(sum(np.abs(of - np.prod(row, axis=0).sum(axis=1)).sum() for of, row in rows))

        n_unseen = float(np.prod(np.array(tensor.shape, float))) - len(tensor.user) - len(zeros)
        yield "14", name, series, "observed", loss(tensor.cell_index, tensor.count) + loss(zeros)
        yield "14", name, series, "unobserved", loss(unseen) * n_unseen / len(unseen)


def measure_time(_: Path) -> Iterator[Point]:
    """Fig. 9: CPU seconds of a fit and of a trace per user, of the second run, because the first one compiles."""
    for system, settings in (("PPMTF", {}), ("SGLT", {"n_clusters": 100})):
        for along, sizes in SIZES.items():
            for n_users, n_places in sizes:
                fitting, making = in_a_process(timed, system.lower(), settings, n_users, n_places)
                x = n_users if along == "users" else n_places
                yield "9", along, f"{system}, train", x, fitting
                yield "9", along, f"{system}, synthesize", x, making


def timed(system: str, settings: dict[str, Any], n_users: int, n_places: int) -> list[float]:
    from ppmtf_jax import fit, synthesize
    from ppmtf_jax.datasets.toy_city import toy_city

    traces = toy_city(n_users=n_users, n_places=n_places, n_days=1, missing=0.0, seed=0).traces
    for _ in range(2):
        model, fitting = measured(fit, traces, system, seed=0, **settings)
        making = measured(synthesize, model, seed=0)[1]
    return [fitting["cpu_seconds"], making["cpu_seconds"]]


def measure_alpha(shared: Path) -> Iterator[Point]:
    """Fig. 17 with utility: epsilon of Proposition 1 at kappa = 0 against the utility, on people flow."""
    from ppmtf_jax import PPMTFSettings, fit, synthesize
    from ppmtf_jax.privacy.budgets import epsilon_of_user

    train, test = people_flow(shared)
    for alpha in ALPHAS:
        model = fit(train, "ppmtf", PPMTFSettings(noise_precision=alpha), seed=0)
        made = {"PPMTF": synthesize(model, traces_per_user=10, seed=0)}
        for series, title, value in utility(made, train, test, distances=True):
            yield "17", title, series, epsilon_of_user(alpha), value


def measure_clusters(shared: Path) -> Iterator[Point]:
    """Fig. 8: maps of two clusters, with our factors and traces, and with the published ones; distances of all."""
    from ppmtf_jax import PPMTFSettings, fit, synthesize
    from ppmtf_jax.datasets.people_flow import read_official_factors, read_synthetic
    from ppmtf_jax.evaluation.plots.maps import population_of

    train, _ = people_flow(shared)
    folder = shared / "reference" / "people_flow" / "ppmtf_alpha200"
    model, published = fit(train, "ppmtf", PPMTFSettings(), seed=0), read_official_factors(folder)
    ours = [getattr(model.trace_model, name) for name in MODES], synthesize(model, traces_per_user=10, seed=0)
    theirs = [published[name] for name in "ABCD"], read_synthetic(folder / "synthetic_traces.csv.gz", train)
    for kind, (factors, made) in {"ours": ours, "published": theirs}.items():
        for number, (cluster, of) in enumerate(clusters_of(factors, made, train)):
            for name, other in (("its people", of["synthetic"]), ("everybody", population_of(made))):
                yield "8", kind, name, f"cluster {cluster}", float(np.abs(of["training"] - other).sum() / 2)
            for name in ("training", "synthetic", "B", "C") if number < 2 else ():
                for place in np.flatnonzero(np.abs(of[name]) > np.abs(of[name]).max() / 25):
                    yield "8", f"{kind}, cluster {cluster}", name, int(place), float(of[name][place])


def measure_attack(shared: Path, data: str) -> Iterator[Point]:
    """Figs. 10 and 14 to 17 of GSTF: one division of the users, one seed."""
    import reidentification as gstf

    stored = pd.read_csv(FOLDER / "reidentification.csv", keep_default_na=False)
    betas = gstf.Betas(stored)
    for section, figure in (("table", "10"), ("biased", "16")):
        for estimator in gstf.PUBLISHED_ONES:
            attack = gstf.Attack(section, data, estimator, 0)
            matrices, rest, _ = gstf.run(attack, shared, betas.of(attack))
            scores = gstf.score_traces(rest, matrices)
            for star, each in (("", scores), ("*", scores.combined())):
                roc = gstf.verification(each).roc()
                grid = np.linspace(0, 1, 41)
                rates = np.interp(grid, roc.false_positive_rate, roc.true_positive_rate)
                yield from ((figure, data, estimator + star, round(x, 3), y) for x, y in zip(grid, rates, strict=True))
            if section == "table" and estimator == "GSTF":
                yield from several_targets(scores.combined(), data)
            if section == "biased":
                size = np.bincount(rest.trace_of_event())
                for name, (low, high) in TRACE_SIZES.items():
                    chosen = (size >= low) & (size <= high)
                    some = (scores.own, scores.others, scores.user_ids, scores.number)
                    area = gstf.auc_of(type(scores)(*(each[chosen] for each in some), scores.target_ids))
                    yield "17", data, estimator, name, area
    of_user = np.bincount(rest.trace_table()[0], minlength=rest.n_users)
    sizes = (("traces per user", of_user, (0, 10, 20, 30, 40, 50)), ("places per trace", size, (0, 5, 10, 15, 20, 25)))
    for series, values, edges in sizes:
        counts = np.bincount(np.searchsorted(edges, values, "left") - 1, minlength=len(edges))
        for low, high, count in zip(edges, [*edges[1:], None], counts, strict=True):
            yield "15", f"{data}, {series}", "all", f"{low + 1} to {high}" if high else f"over {low}", int(count)


def several_targets(scores: Any, data: str, n_draws: int = 200) -> Iterator[Point]:
    """Fig. 14: false positives and candidates of the threshold rule for 1 to 10 targets, at TPR 50 and 75 %."""
    random, score, truth = np.random.default_rng(0), scores.log_ratio, scores.truth
    own = score[truth >= 0, truth[truth >= 0]]
    for tpr in (50, 75):
        above = scores.candidates(np.quantile(own, 1 - tpr / 100))
        for n in range(1, 11):
            false, candidates = [], []
            for _ in range(n_draws):
                targets = random.choice(score.shape[1], n, replace=False)
                false.append(above[truth < 0][:, targets].any(axis=1).mean())
                candidates.append(above[np.isin(truth, targets)][:, targets].sum(axis=1).mean())
            for panel, values in (("false positive rate", false), ("candidates", candidates)):
                yield "14", f"{data}, {panel}", f"TPR {tpr} %", n, float(np.mean(values))


def measure_groups(shared: Path) -> Iterator[Point]:
    """Fig. 13 of GSTF: how much of their events the five users who go most to a group of places have there.

    Numbers in place of the paper's map, which shows single people. Both estimators are asked of the groups of GSTF.
    """
    import reidentification as gstf

    betas = gstf.Betas(pd.read_csv(FOLDER / "reidentification.csv", keep_default_na=False))
    attacks = {name: gstf.Attack("table", "Gowalla", name, 0) for name in ("GSTF", "TF")}
    found = {name: gstf.run(attack, shared, betas.of(attack))[0].counts for name, attack in attacks.items()}
    known, group = attacks["GSTF"].attacked(shared)[0], np.asarray(found["GSTF"].group)
    for number, which in enumerate(np.argsort(-np.bincount(group[known.place]), kind="stable")[:4], 1):
        inside = group == which
        for name, counts in found.items():
            affinity = np.asarray(counts.factors.user_b @ counts.factors.next_place_b.T)
            top = np.argsort(-affinity[:, inside].mean(axis=1), kind="stable")[:5]
            share = inside[known.place[np.isin(known.user, top)]].mean()
            yield "13", "Gowalla", name, f"group {number}", float(share)
        yield "13", "Gowalla", "everybody", f"group {number}", float(inside[known.place].mean())


def measure_plus(shared: Path) -> Iterator[Point]:
    """Figs. 16 and 18 of PPMTF+ on people flow: five draws of 500 people, against the training users as published."""
    from ppmtf_jax import EvaluationSettings, PPMTFSettings, evaluate, fit, synthesize

    train, test = people_flow(shared)
    for alpha in (10.0, 200.0):
        for series, system, people in (("PPMTF", "ppmtf", {}), ("PPMTF+", "ppmtf_plus", {"people": train.n_users})):
            model = fit(train, system, PPMTFSettings(noise_precision=alpha), seed=0)
            made = {f"draw {seed}": synthesize(model, seed=seed, **people) for seed in range(5)}
            found = evaluate(made, test, train, EvaluationSettings(attacks=False))
            for metric, title in PLUS.items():
                yield "16", title, series, alpha, float(np.mean([found.value(metric, name) for name in made]))
            if alpha == 200:
                one, two = (places_of_users(made[name]) for name in ("draw 0", "draw 1"))
                same, others = (np.abs(one - each).sum(axis=1).mean() for each in (two, np.roll(two, 1, axis=0)))
                yield "18", "same user over others", series, "people flow", float(same / others)


def places_of_users(traces: Any) -> np.ndarray:
    """The share of a user's events at each place, shape (users, places)."""
    counts = np.zeros((traces.n_users, traces.n_places))
    np.add.at(counts, (traces.user, traces.place), 1)
    return counts / counts.sum(axis=1, keepdims=True)


PARTS: dict[str, Callable[[Path], Iterator[Point]]] = {
    **{f"ppmtf, {name}": partial(measure_city, name=name) for name in CITIES},
    "ppmtf, clusters": measure_clusters,
    "ppmtf, alpha": measure_alpha,
    "ppmtf, time": measure_time,
    **{f"gstf, {name}": partial(measure_attack, data=name) for name in ("Geolife", "Gowalla", "Foursquare")},
    "gstf, groups": measure_groups,
    "ppmtf+, people flow": measure_plus,
}


def measure_part(shared: str, part: str) -> list[Row]:
    paper = part.partition(",")[0]
    points = ((part, f"{paper}-{figure}", *rest) for figure, *rest in PARTS[part](Path(shared)))
    return [dict(zip(COLUMNS, point, strict=True)) for point in points]


def measure(shared: Path, parts: list[str]) -> None:
    os.nice(10)
    done = set(pd.read_csv(MEASURED)["part"]) if MEASURED.exists() else set()
    for part in parts or [part for part in PARTS if part not in done]:
        clock = Clock()
        rows = pd.DataFrame(in_a_process(measure_part, str(shared), part), columns=COLUMNS)
        rows.to_csv(MEASURED, mode="a", header=not MEASURED.exists(), index=False, float_format="%.5g")
        print(part, len(rows), "rows", clock.row(), flush=True)


# What the papers say, and whether ours agree


def read_figures() -> dict[str, dict[str, Any]]:
    """All figures by name, in the order of the page."""
    figures = tomllib.loads((FOLDER / "figures.toml").read_text(encoding="utf-8"))
    return {name: figures[name] for name in sorted(figures, key=place_of)}


def place_of(name: str) -> tuple[int, int]:
    """The order of a figure's paper, and its number."""
    paper, number = name.rsplit("-", 1)
    return [*PAPERS].index(paper), int(number)


def points_of(name: str, figure: dict[str, Any]) -> pd.DataFrame:
    """The points of a figure: `panel`, `series`, `x`, `y`, `published`, averaged over runs; and `setting`, if it has.

    A source names a file, its rows (`where`), and for each of these a column, a fixed text, or columns with titles.
    """
    found = []
    for source in figure.get("sources", [{}]):
        table = table_of(source.get("file", "figures.csv")).query(source.get("where", f"figure == '{name}'"))
        x_titles, y_titles = (titles(source.get(axis, axis)) for axis in "xy")
        for (x, x_title), (y, y_title) in product(x_titles.items(), y_titles.items()):
            columns = {"panel": source.get("panel", "panel"), "series": source.get("series", "series"), "x": x, "y": y}
            rows = pd.DataFrame({each: table.get(it, it) for each, it in columns.items()})
            rows["published"] = table["published"].astype(bool) if "published" in table else False
            rows["setting"] = table[source["setting"]] if "setting" in source else rows["x"]
            if len(x_titles) * len(y_titles) > 1:
                rows["panel"] = ", ".join(filter(None, (y_title, x_title)))
            rows["series"] = rows["series"].replace(source.get("names", {})) + source.get("suffix", "")
            found.append(rows)
    rows = pd.concat(found)
    published = table_of("figures_published.csv").query("figure == @name").assign(published=True)
    published = published[published["panel"].isin(rows["panel"])].assign(setting=lambda of: of["x"])
    rows = pd.concat([rows, published[rows.columns]])
    for column in ("x", "setting"):
        if pd.to_numeric(rows[column], errors="coerce").notna().sum() >= rows[column].notna().sum():
            rows[column] = pd.to_numeric(rows[column])
    keys = ["panel", "series", "x", "published", "setting"]
    return rows.astype({"y": float}).groupby(keys, sort=False, dropna=False)["y"].mean().reset_index()


@cache
def table_of(file: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / file, keep_default_na=False, na_values=["", "nan"])


def titles(columns: str | dict[str, str]) -> dict[str, str]:
    return columns if isinstance(columns, dict) else {columns: ""}


def holds(points: pd.DataFrame, claim: dict[str, Any]) -> np.ndarray:
    """Whether a sentence holds, for each panel, point or series that it is asked for."""

    for key in {"panel", "x"} & set(claim):
        points = points[points[key].isin(claim[key]) | points[key].isna()]

    def values(series: str) -> pd.Series:
        rows = points[(points["series"] == series) & ~points["published"]]
        return rows.set_index(["panel", "x"])["y"]

    def within(numbers: Any) -> np.ndarray:
        numbers = np.asarray(numbers, float)
        return (numbers >= claim.get("low", -np.inf)) & (numbers <= claim.get("high", np.inf))

    one = values(claim.get("of", ""))
    by_panel = [one.xs(panel, level="panel") for panel in dict.fromkeys(one.index.get_level_values("panel"))]
    match claim["asks"]:
        case "value":
            return within(one)
        case "ratio":
            than = values(claim["to"])
            if len(than) and than.index.get_level_values("x").isna().all():  # one number for all x
                than = one.index.get_level_values("panel").map(than.droplevel("x"))
            return within((one / than).dropna())
        case "change":
            first, last = (one.xs(x, level="x") for x in claim["x"])
            return within((last / first).dropna())
        case "slope":
            logs = [np.log([each.index.to_numpy(float), each.to_numpy()]) for each in by_panel]
            return within([np.polyfit(*log, 1)[0] for log in logs])
        case "correlation":
            return within([spearmanr(each.index, each)[0] for each in by_panel])
        case "first":  # share of the first bins
            return within([each[: claim["n"]].sum() / each.sum() for each in by_panel])
        case "lowest":
            return np.array([each.idxmin() in claim["at"] for each in by_panel])
        case "nearer":
            far = [
                (values(name) - values(claim["target"])).abs().groupby("panel").sum()
                for name in (claim["of"], claim["to"])
            ]
            return (far[0] < far[1]).to_numpy()
        case "published":
            keys = ["panel", "series", "setting"]
            ours, theirs = (points[points["published"] == each].set_index(keys)["y"] for each in (False, True))
            both = pd.concat([ours, theirs], axis=1, join="inner", keys=["ours", "theirs"])
            gap = (both["ours"] - both["theirs"]).abs()
            return (
                gap <= np.maximum(claim.get("relative", 0) * both["theirs"].abs(), claim.get("absolute", 0))
            ).to_numpy()
    raise ValueError(claim["asks"])


def verdict(name: str, figure: dict[str, Any]) -> tuple[str, str]:
    """The word of a figure, and how often each of its sentences holds.

    A sentence holds if it holds for more than half of what it is asked for. A figure is reproduced if all of its
    sentences hold, and reversed if one does not. If the paper's data are not there, the word is "no data", and the
    nearest data are judged instead.
    """
    points = points_of(name, figure) if figure.get("claims") else pd.DataFrame()
    if not len(points):
        return "no data", "nothing measured yet"
    said, all_hold = [], True
    for claim in figure["claims"]:
        share = holds(points, claim)
        if not len(share):
            raise ValueError(f"{name}: no point answers {claim['says']!r}")
        is_held = share.mean() > 0.5
        all_hold &= is_held
        said.append(f"{claim['says']}: {'' if is_held else '**no**, '}{share.sum()}/{len(share)}")
    word = "reproduced" if all_hold else "reversed"
    if not figure.get("same", False):
        said.insert(0, f"on {figure['data']} **{word}**")
        word = "no data"
    return word, "; ".join(said) + ("" if all_hold or "why" not in figure else f". Why: {figure['why']}.")


# Drawing


def draw(name: str, figure: dict[str, Any]) -> list[Path]:
    """Store the pictures of a figure: lines or points in panels, maps of people flow, or venues of clusters."""
    points, kind = points_of(name, figure), figure.get("kind", "lines")
    if not len(points):
        return []
    if kind == "maps":
        of = {who: points[points["panel"].str.startswith(f"{who},")] for who in ("ours", "published")}
        pictures = {f"{name}-{who}": draw_maps(maps) for who, maps in of.items()}
    elif kind == "venues":
        pictures = {name: draw_venues(points)}
    else:
        pictures = {name: draw_panels(figure, points, dots=kind == "points")}
    return [stored(picture, stem) for stem, picture in pictures.items()]


def draw_panels(figure: dict[str, Any], points: pd.DataFrame, *, dots: bool) -> Figure:
    """A panel for each data set or metric; ours filled, published hollow."""
    panels, names = ([*dict.fromkeys(points[column])] for column in ("panel", "series"))
    n_columns = {1: 1, 2: 2, 4: 2, 8: 4}.get(len(panels), 3)
    n_rows = -(-len(panels) // n_columns)
    bases = [*dict.fromkeys(name.rstrip("*") for name in names)]  # a star: all traces of a user, dashed
    picture = Figure(figsize=(WIDTH, 2.1 * n_rows + 0.5), layout="constrained")
    axes = picture.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[len(panels) :]:
        ax.remove()
    for ax, panel in zip(axes, panels, strict=False):
        of_panel = points[points["panel"] == panel]
        x_of = {x: x for x in of_panel["x"].dropna()}
        is_named = pd.to_numeric(pd.Series([*x_of]), errors="coerce").isna().any()
        if is_named:
            x_of = {x: number for number, x in enumerate(x_of)}
            turned = {"rotation": 40, "ha": "right"} if sum(len(str(x)) + 3 for x in x_of) > 75 / n_columns else {}
            ax.set_xticks([*x_of.values()], [*x_of], **turned)
            ax.set_xlim(-0.5, len(x_of) - 0.5)
        for name in names:
            number = bases.index(name.rstrip("*"))
            for published in (False, True):
                rows = of_panel[(of_panel["series"] == name) & (of_panel["published"] == published)]
                if len(rows) and rows["x"].isna().all():  # one number for all x
                    ax.axhline(rows["y"].iloc[0], color=LINE_COLOURS[number % 6], ls="--", lw=1.2, label=name)
                    continue
                x = np.array([x_of[each] for each in rows["x"]], float)
                shift = (number - (len(bases) - 1) / 2) * 0.6 / len(bases) if dots else 0
                look = {"color": LINE_COLOURS[number % 6], "marker": MARKS[number % 8], "ms": 4.5, "lw": 1.2}
                look |= {"mfc": "white", "ls": ":"} if published else {"ls": "--" if name.endswith("*") else "-"}
                look |= {"ls": ""} if dots else {}
                look |= {"marker": ""} if len(x) > 20 else {}
                label = f"{name}, published" if published else name
                ax.plot(x + shift, rows["y"], **look, **({"label": label} if len(x) else {}))
        for axis, values in (("x", [] if is_named else [*x_of]), ("y", of_panel["y"].to_list())):
            if axis in figure.get("log", "") and values:
                set_log(ax, axis, values)
        ax.set(
            title=panel.replace(", ", "\n") if ", percent" not in panel else panel,
            xlabel="" if is_named else figure["axes"][0],
        )
        ax.set_ylabel(figure["axes"][1] if ax in axes[::n_columns] and not panel.startswith("AUC") else "")
    found = {label: line for ax in picture.axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(found) > 1:
        n_columns = min(4, 105 // (max(map(len, found)) + 6))
        picture.legend([*found.values()], [*found], loc="outside lower center", ncols=n_columns, frameon=False)
    return picture


def set_log(ax: Any, axis: str, values: list[float]) -> None:
    """A logarithmic axis with plain numbers, linear near 0 if there are values up to 0."""
    low, high = min(values), max(values)
    getattr(ax, f"set_{axis}scale")(**({"value": "log"} if low > 0 else {"value": "symlog", "linthresh": 0.01}))
    if low > 0:
        which = getattr(ax, f"{axis}axis")
        which.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,), numticks=5))
        which.set_minor_locator(NullLocator())
        which.set_major_formatter("{x:g}")


def draw_maps(points: pd.DataFrame) -> Figure:
    """A row for each cluster: training and synthetic events, and columns of B and C on the grid of people flow."""
    clusters, kinds = ([*dict.fromkeys(points[column])] for column in ("panel", "series"))
    picture = Figure(figsize=(WIDTH, 2.1 * len(clusters)), layout="constrained")
    axes = picture.subplots(len(clusters), len(kinds), squeeze=False)
    for row, cluster in zip(axes, clusters, strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            rows = points[(points["panel"] == cluster) & (points["series"] == kind)]
            cells = np.zeros((20, 20))
            cells.flat[rows["x"].astype(int)] = rows["y"]
            ax.imshow(np.sqrt(np.maximum(cells, 0)), origin="lower", cmap=MAP_COLOURS)
            ax.set(
                xticks=[],
                yticks=[],
                title={"training": "training events", "synthetic": "synthetic events"}.get(kind, f"factor {kind}"),
            )
        row[0].set_ylabel(cluster)
    return picture


def draw_venues(points: pd.DataFrame) -> Figure:
    """A row for each cluster, named by its venues: their shares of events, and the hours of the cluster."""
    clusters = [*dict.fromkeys(points["panel"])]
    picture = Figure(figsize=(WIDTH, 1.7 * len(clusters)), layout="constrained")
    for row, cluster in zip(picture.subplots(len(clusters), 2, squeeze=False), clusters, strict=True):
        of = points[points["panel"] == cluster]
        venues = [*dict.fromkeys(of[of["series"] == "training"]["x"])]
        for number, series in enumerate(("training", "synthetic", "everybody")):
            share = 100 * of[of["series"] == series].set_index("x")["y"][venues]
            row[0].barh(np.arange(len(venues)) + 0.27 * number, share, 0.25, color=LINE_COLOURS[number], label=series)
        row[0].set(
            yticks=np.arange(len(venues)) + 0.27,
            yticklabels=[venue[:24] for venue in venues],
            xlabel="share of their events, percent",
        )
        row[0].invert_yaxis()
        kinds = dict.fromkeys(venue.partition(" ")[2] for venue in venues)
        row[0].set_title(f"{cluster}: {', '.join([*kinds][:2])}")
        hours = of[of["series"] == "slot factor"]
        row[1].bar(hours["x"].astype(float), hours["y"], 1.7, color=LINE_COLOURS[0], align="edge")
        row[1].set(title="factor D", xlabel="hour of the day", xticks=range(0, 25, 6))
    picture.axes[0].legend(frameon=False)
    return picture


def stored(picture: Figure, stem: str) -> Path:
    """Write a picture of few colours, so that it is small."""
    path, whole = PICTURES / f"{stem}.png", BytesIO()
    picture.savefig(whole, dpi=100, format="png", facecolor="white")
    PICTURES.mkdir(exist_ok=True)
    Image.open(whole).convert("RGB").quantize(64).save(path, optimize=True)
    return path


def index(figures: dict[str, dict[str, Any]]) -> str:
    """The table of the page: each figure, what it shows, the word, and what was asked."""
    lines = ["| Figure | Shows | Word | What the paper says, and how often it holds |", "|---|---|---|---|"]
    for name, figure in figures.items():
        paper, number = name.rsplit("-", 1)
        word, said = verdict(name, figure)
        lines.append(f"| {PAPERS[paper]} {number} | {figure['title']} | {word} | {said} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["measure", "draw"])
    parser.add_argument("shared", type=Path, nargs="?", default=SHARED, help="folder of the data")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[], help="measure these, and no others")
    given = parser.parse_args()
    if given.stage == "measure":
        measure(given.shared, given.parts)
        return
    figures = read_figures()
    for name, figure in figures.items():
        with rc_context(STYLE | {"text.parse_math": True}):
            print(name, *verdict(name, figure), *draw(name, figure), sep="  ")
    begin, end = "<!-- made by benchmarks/figures.py -->\n", "<!-- end -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(before + begin + index(figures) + "\n" + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
