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
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from common import FOLDER, SHARED, Clock, in_a_process, measured, new_york_2019, people_flow
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from PIL import Image
from scipy.stats import spearmanr

from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, STYLE

Point = tuple[str, str, str, float | str, float]
MEASURED = FOLDER / "figures.csv"
PAGE, PICTURES = FOLDER.parent / "docs" / "figures.md", FOLDER.parent / "docs" / "figures"
PAPERS = {"ppmtf": "PPMTF", "colocation": "co-location", "gstf": "GSTF", "ppmtf+": "PPMTF+"}
MARKS = "os^Dv*Ph"
COLUMNS = ["part", "figure", "panel", "series", "x", "y"]
UTILITY = {"tp_tv": "TP-TV", "tp_tv_top50": "TP-TV-Top50", "vf_tv": "VF-TV"}
UTILITY |= {"tm_emd_y": "TM-EMD-Y", "tm_emd_x": "TM-EMD-X"}
PLUS = {"tp_tv": "TP-TV", "tp_tv_top50": "TP-TV-Top50", "tp_swd": "TP-SWD", "tm_tv": "TM-TV", "tm_swd": "TM-SWD"}
KS = np.array([1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200])
SIZES = {"users": [(n, 400) for n in (100, 200, 500, 1000)], "places": [(100, n) for n in (100, 200, 400, 1000)]}
ALPHAS = (1e-6, 1e-4, 1e-2, 0.1, 0.4, 1.0, 10.0, 200.0, 1000.0)
TRACE_SIZES = {"2 to 5": (2, 5), "6 to 10": (6, 10), "11 to 15": (11, 15), "16 to 20": (16, 20), "21 to 25": (21, 25)}
TRACE_SIZES["over 25"] = (26, 10**9)


# Measuring


def new_york(shared: Path) -> tuple[Any, Any]:
    """New York as in section 4.1: the 1,000 most visited venues, slots of two hours, 80 % of the users to train."""
    from ppmtf_jax.datasets import Discretization, MostVisited

    how = Discretization(MostVisited(1000), slot_s=7200, min_users_per_place=1)
    traces = new_york_2019(shared, category_names=True, discretization=how)
    return replace(traces, friendships=None).split_users(0.8, seed=0)


def measure_new_york(shared: Path) -> Iterator[Point]:
    """Figs. 10 to 16 of PPMTF."""
    from ppmtf_jax import PPMTFSettings, fit, synthesize
    from ppmtf_jax.evaluation.plots import maps, visit_fraction_panels
    from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test

    (train, test), name = new_york(shared), "New York"
    made, models = {}, {}
    for series, settings in {"PPMTF": PPMTFSettings(), "SGD": None, "ITF": PPMTFSettings()}.items():
        models[series], fitting = measured(fit, train, series.lower(), settings, seed=0)
        made[series], making = measured(synthesize, models[series], seed=0)
        yield "13", name, series, "train", fitting["cpu_seconds"]
        yield "13", name, series, "synthesize", making["cpu_seconds"]
    verdicts, testing = measured(plausible_deniability_test, models["PPMTF"], made["PPMTF"], k=int(KS[-1]))
    yield "13", name, "PPMTF", "test", testing["cpu_seconds"]
    for at, rate in zip(KS, verdicts.pass_rates(KS), strict=True):
        yield "16", name, "PPMTF", int(at), float(rate)
    for at in (10, 100, 200):
        made[f"PPMTF, k = {at}"] = made["PPMTF"].select_traces(verdicts.plausible_users >= at)
    for series, x, value in utility(made, train, test):
        yield "15" if series == "ITF" else "10", name, series, x, value
    sets = {"Testing": test, **{name: made[name] for name in ("PPMTF, k = 10", "SGD")}}
    for ax in visit_fraction_panels(sets, kinds=("Park", "Bar", "Office", "University")).axes:
        for series, steps in zip(sets, ax.patches, strict=True):
            for number, value in enumerate(steps.get_data().values):
                yield "11", ax.get_title(), series, number, float(value)
    factors, everybody = models["PPMTF"].trace_model, maps.population_of(train)
    stored(maps.user_clusters(factors, made["PPMTF"], train, n_clusters=4), "ppmtf-12")
    for cluster, loading, training, synthetic in islice(clusters_of(factors, made["PPMTF"], train), 4):
        for rank, venue in enumerate(np.argsort(-loading, kind="stable")[:5], 1):
            for series, share in (("training", training), ("synthetic", synthetic), ("everybody", everybody)):
                yield "12", cluster, series, f"{rank} {train.places.category[venue]}", float(share[venue])
    for series in ("PPMTF", "ITF"):
        yield from reconstruction(series, models[series], train)


def utility(sets: Any, train: Any, test: Any, metrics: dict[str, str] = UTILITY) -> Iterator[tuple[str, str, float]]:
    from ppmtf_jax import EvaluationSettings, evaluate

    settings = EvaluationSettings(attacks=False, settings={"vf_tv": {"published": True}})
    found = evaluate(sets, train, test, settings)
    names = {name: name for name in sets} | {"training": "Training", "uniform": "Uniform"}
    for (column, series), (metric, title) in product(names.items(), metrics.items()):
        yield series, title, found.value(metric, column)


def clusters_of(factors: Any, made: Any, train: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """Clusters as `user_clusters` orders them: name, column of B, and the shares of real and of synthetic events."""
    from ppmtf_jax.evaluation.plots import maps

    user, place, _ = maps.oriented_factors(factors.user, factors.place, factors.slot, train)
    members = [maps.top_users(column) for column in user.T]
    for cluster in np.argsort(-maps.cluster_strength(members, train), kind="stable"):
        training = maps.population_of(train, members[cluster])
        again = np.flatnonzero(np.isin(made.user_ids, train.user_ids[members[cluster]]))
        yield f"cluster {cluster + 1}", place[:, cluster], training, maps.population_of(made, again)


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
        for series, title, value in utility(made, train, test):
            yield "17", title, series, epsilon_of_user(alpha), value


def measure_clusters(shared: Path) -> Iterator[Point]:
    """Fig. 8: pictures of two clusters, with our factors and traces, and with the published ones; distances of all."""
    from ppmtf_jax import PPMTFSettings, fit, synthesize
    from ppmtf_jax.datasets.people_flow import read_official_factors, read_synthetic
    from ppmtf_jax.evaluation.plots.maps import population_of, user_clusters

    train, _ = people_flow(shared)
    folder = shared / "reference" / "people_flow" / "ppmtf_alpha200"
    model, published = fit(train, "ppmtf", PPMTFSettings(), seed=0), read_official_factors(folder)
    ours = model.trace_model, synthesize(model, traces_per_user=10, seed=0)
    modes = dict(zip(("user", "place", "next_place", "slot"), (published[name] for name in "ABCD"), strict=True))
    theirs = SimpleNamespace(**modes), read_synthetic(folder / "synthetic_traces.csv.gz", train)
    for kind, (factors, made) in {"ours": ours, "published": theirs}.items():
        stored(user_clusters(factors, made, train, n_clusters=2), f"ppmtf-8-{kind}")
        for cluster, _, training, synthetic in clusters_of(factors, made, train):
            for series, other in (("its people", synthetic), ("everybody", population_of(made))):
                yield "8", kind, series, cluster, float(np.abs(training - other).sum() / 2)


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
            draws = [random.choice(score.shape[1], n, replace=False) for _ in range(n_draws)]
            false = [above[truth < 0][:, targets].any(axis=1).mean() for targets in draws]
            candidates = [above[np.isin(truth, targets)][:, targets].sum(axis=1).mean() for targets in draws]
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
    from ppmtf_jax import PPMTFSettings, fit, synthesize

    train, test = people_flow(shared)
    for alpha in (10.0, 200.0):
        for series, system, people in (("PPMTF", "ppmtf", {}), ("PPMTF+", "ppmtf_plus", {"people": train.n_users})):
            model = fit(train, system, PPMTFSettings(noise_precision=alpha), seed=0)
            made = {f"draw {seed}": synthesize(model, seed=seed, **people) for seed in range(5)}
            found = [each for each in utility(made, test, train, PLUS) if each[0] in made]
            yield from (("16", title, series, alpha, value) for _, title, value in found)
            if alpha == 200:
                one, two = (places_of_users(made[name]) for name in ("draw 0", "draw 1"))
                same, others = (np.abs(one - each).sum(axis=1).mean() for each in (two, np.roll(two, 1, axis=0)))
                yield "18", "same user over others", series, "people flow", float(same / others)


def places_of_users(traces: Any) -> np.ndarray:
    """The share of a user's events at each place, shape (users, places)."""
    counts, *_ = np.histogram2d(traces.user, traces.place, (range(traces.n_users + 1), range(traces.n_places + 1)))
    return counts / counts.sum(axis=1, keepdims=True)


def measure_plus_in_new_york(shared: Path) -> Iterator[Point]:
    """Fig. 17 of PPMTF+: a draw of each system, against the training users as published."""
    from ppmtf_jax import fit, synthesize

    train, test = new_york(shared)
    made = {name: synthesize(fit(train, name.lower(), seed=0), seed=0) for name in ("PPMTF", "SGD")}
    made["PPMTF+"] = synthesize(fit(train, "ppmtf_plus", seed=0), people=train.n_users, seed=0)
    found = utility(made, test, train, PLUS | {"vf_tv": "VF-TV"})
    yield from (("17", title, series, "New York", value) for series, title, value in found if series in made)


PARTS: dict[str, Callable[[Path], Iterator[Point]]] = {
    "ppmtf, New York": measure_new_york,
    "ppmtf, clusters": measure_clusters,
    "ppmtf, alpha": measure_alpha,
    "ppmtf, time": measure_time,
    **{f"gstf, {name}": partial(measure_attack, data=name) for name in ("Geolife", "Gowalla", "Foursquare")},
    "gstf, groups": measure_groups,
    "ppmtf+, people flow": measure_plus,
    "ppmtf+, New York": measure_plus_in_new_york,
}


def measure_part(shared: str, part: str) -> list[list[Any]]:
    paper = part.partition(",")[0]
    return [[part, f"{paper}-{figure}", *rest] for figure, *rest in PARTS[part](Path(shared))]


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
    """All figures by name, in the order of the page: of its paper, and its number."""
    figures = tomllib.loads((FOLDER / "figures.toml").read_text(encoding="utf-8"))
    place = {name: ([*PAPERS].index(paper), int(number)) for name in figures for paper, number in [name.rsplit("-", 1)]}
    return {name: figures[name] for name in sorted(figures, key=place.__getitem__)}


def points_of(name: str, figure: dict[str, Any]) -> pd.DataFrame:
    """The points of a figure: `panel`, `series`, `x`, `y`, `published`, averaged over runs; and `setting`, if it has.

    A source names a file, its rows (`where`), and for each of these a column, a fixed text, or columns with titles.
    """
    found = []
    for source in figure.get("sources", [{}]):
        table = table_of(source.get("file", "figures.csv")).query(source.get("where", f"figure == '{name}'"))
        axes = (source.get(axis, axis) for axis in "xy")
        x_titles, y_titles = (each if isinstance(each, dict) else {each: ""} for each in axes)
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
            gaps = ((values(name) - values(claim["target"])).abs() for name in (claim["of"], claim["to"]))
            near, far = (gap.groupby("panel").sum() for gap in gaps)
            return (near < far).to_numpy()
        case "published":
            keys = ["panel", "series", "setting"]
            ours, theirs = (points[points["published"] == each].set_index(keys)["y"] for each in (False, True))
            both = pd.concat([ours, theirs], axis=1, join="inner", keys=["ours", "theirs"])
            allowed = np.maximum(claim.get("relative", 0) * both["theirs"].abs(), claim.get("absolute", 0))
            return ((both["ours"] - both["theirs"]).abs() <= allowed).to_numpy()
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


def draw_panels(figure: dict[str, Any], points: pd.DataFrame) -> Figure:
    """A panel for each data set or metric; ours filled, published hollow."""
    dots = figure.get("kind") == "points"
    panels, names = ([*dict.fromkeys(points[column])] for column in ("panel", "series"))
    n_columns = {1: 1, 2: 2, 4: 2, 8: 4}.get(len(panels), 3)
    n_rows = -(-len(panels) // n_columns)
    bases = [*dict.fromkeys(name.rstrip("*") for name in names)]  # a star: all traces of a user, dashed
    picture = Figure(figsize=(7.0, 2.1 * n_rows + 0.5), layout="constrained")
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
                low, high = min(values), max(values)
                scale = {"value": "log"} if low > 0 else {"value": "symlog", "linthresh": 0.01}
                getattr(ax, f"set_{axis}scale")(**scale)
                if low > 0:
                    ticks = LogLocator(subs=(1, 2, 5) if high < 50 * low else (1,), numticks=5)
                    look = {"major_locator": ticks, "minor_locator": NullLocator(), "major_formatter": "{x:g}"}
                    getattr(ax, f"{axis}axis").set(**look)
        is_first = ax in axes[::n_columns] and not panel.startswith("AUC")
        x_label, y_label = "" if is_named else figure["axes"][0], figure["axes"][1] if is_first else ""
        ax.set(title=panel if ", percent" in panel else panel.replace(", ", "\n"), xlabel=x_label, ylabel=y_label)
    found = {label: line for ax in picture.axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if len(found) > 1:
        n_columns = min(4, 105 // (max(map(len, found)) + 6))
        picture.legend([*found.values()], [*found], loc="outside lower center", ncols=n_columns, frameon=False)
    return picture


def stored(picture: Figure, stem: str) -> None:
    """Write a picture of few colours, so that it is small."""
    whole = BytesIO()
    picture.savefig(whole, dpi=min(100, 900 / picture.get_figwidth()), format="png", facecolor="white")
    Image.open(whole).convert("RGB").quantize(64).save(PICTURES / f"{stem}.png", optimize=True)


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
        print(name, *verdict(name, figure), sep="  ")
        points = points_of(name, figure)
        if len(points) and figure.get("kind") != "clusters":  # pictures of clusters are drawn when they are measured
            with rc_context(STYLE | {"text.parse_math": True}):
                stored(draw_panels(figure, points), name)
    begin, end = "<!-- made by benchmarks/figures.py -->\n", "<!-- end -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    PAGE.write_text(before + begin + index(figures) + "\n" + end + rest.partition(end)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
