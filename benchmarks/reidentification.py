"""Re-identification in the open world beside what was published: Murakami et al., TIFS 2017, sections VI and VII.

    python benchmarks/reidentification.py table ../shared --csv benchmarks/reidentification.csv
    python benchmarks/reidentification.py print --csv benchmarks/reidentification.csv --plot pictures
    python benchmarks/reidentification.py time --csv benchmarks/reidentification.csv

A trace has places that are more than 30 minutes apart; places are 16 x 16 regions. Half of the users are targets, and
the other users are strangers. The attacker knows the first traces of the targets. She gets the other traces of the
targets, and those of the strangers, without names. Both the division into targets and strangers and the random starts
of the estimators are varied. A run that the file already has is not repeated.

- `table`: Table I; ten traces of ten places for each user, one of them known;
- `controls`: the value of the groups of places: places in random groups of the same sizes, all places in one group, and
  each place in a group of its own;
- `deleted`: Fig. 11; the places whose absence hurts the attacker most are deleted;
- `known`: Fig. 12; several numbers of known traces;
- `biased`: Table II and Fig. 17; all traces of a user, with gaps of 30 minutes to a day;
- `boxes`: Gowalla in smaller boxes;
- `roc`: Fig. 10;
- `classes`: Fig. 14; several known users;
- `groups`: which columns of the factors are 0 together;
- `moves`: why ML fails;
- `time`: 500 target users and 500 strangers;
- `print`: means over divisions and seeds, beside the published numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from common import SHARED, Row, machine, measured, peak_mb, record
from matplotlib.figure import Figure

from ppmtf_jax import Traces
from ppmtf_jax.attacks.estimators.base import TransitionMatrices, estimate_transitions
from ppmtf_jax.attacks.estimators.tensor import FactorizedCounts
from ppmtf_jax.attacks.obfuscation import random_deletions, worst_deletions
from ppmtf_jax.attacks.open_world import NOBODY, verification
from ppmtf_jax.attacks.trace_scores import TraceScores, score_traces
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.datasets import GridPlaces, read_foursquare, read_geolife, read_gowalla
from ppmtf_jax.datasets.spaced_traces import SpacedTraces, split_traces
from ppmtf_jax.evaluation.plots import save_figure
from ppmtf_jax.evaluation.plots.attacks import draw_auc, draw_roc
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

N_DIVISIONS, SEEDS = 10, range(3)
DAY_S = 86_400
REGIONS = 16, 16
NEW_YORK = (40.6, 40.9, -74.1, -73.8)


@dataclass(frozen=True)
class Data:
    """A data set: where it is, its box, and which share of a user's traces are of the first month."""

    read: Callable[..., Any]
    file: str
    box: tuple[float, float, float, float]
    first_month: float


DATA = {
    "Geolife": Data(read_geolife, "geolife/geolife13_thin60s.tar.gz", (39.7, 40.2, 116.1, 116.7), 1 / 65),
    "Gowalla": Data(
        partial(read_gowalla, time_zone="America/New_York"),
        "gowalla-nyc/loc-gowalla_totalCheckins_NYC.txt.gz",
        (40.4844, 40.9176, -74.2586, -73.7013),
        1 / 21,
    ),
    "Foursquare": Data(read_foursquare, "foursquare-tsmc2014-nyc/dataset_TSMC2014_NYC_ge10.txt.gz", NEW_YORK, 1 / 11),
}
ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "ML": ("ml", {}),
    "TF": ("tf", {}),
    "GSTF": ("gstf", {}),
    "ML, floor 1e-3": ("ml", {"floor": 1e-3}),
    "GSTF, groups shuffled": ("gstf", {"groups": "shuffled"}),
    "GSTF, one group": ("gstf", {"groups": "one"}),
    "GSTF, places alone": ("gstf", {"groups": "singletons"}),
}
PUBLISHED_ONES, CONTROLS = list(ESTIMATORS)[:3], list(ESTIMATORS)[4:]
# Smaller and smaller boxes around the south of Manhattan.
BOXES = {
    "own box": DATA["Gowalla"].box,
    "40.6 to 40.9": NEW_YORK,
    "40.67 to 40.83": (40.67, 40.83, -74.07, -73.89),
    "40.70 to 40.80": (40.70, 40.80, -74.03, -73.93),
}
SIZES = {
    "2-5": (2, 5),
    "6-10": (6, 10),
    "11-15": (11, 15),
    "16-20": (16, 20),
    "21-25": (21, 25),
    "26+": (26, sys.maxsize),
}
KEYS = ["section", "data", "part", "known", "deleted", "estimator", "division", "seed"]
COLUMNS = [*KEYS, "targets", "beta", "auc", "auc_combined", "seconds"]
CLASS_COLUMNS = ["data", "division", "rate_of_one", "users", "true_positive", "false_positive", "candidates"]
CLASS_COLUMNS += ["expected_false_positive", "expected_candidates"]
GROUP_COLUMNS = ["data", "groups", "seed", "beta", "n_groups", "within", "between"]
TIME_COLUMNS = ["estimator", "targets", "strangers", "traces", "regions", "estimate_s", "score_s", "cpu_s", "peak_mb"]
TIME_COLUMNS += ["cores", "load"]
MOVE_COLUMNS = ["data", "box", "users", "whose", "seen", "seen_only_at_its_begin"]
ROC_COLUMNS = ["data", "estimator", "false_positive_rate", "true_positive_rate"]
# Published AUC in percent: for single traces, and for all traces of a user together. Its Foursquare data are of Tokyo.
PUBLISHED = {
    ("table", "Geolife"): {"ML": (60.1, 61.4), "TF": (64.3, 65.1), "GSTF": (68.6, 74.0)},
    ("table", "Gowalla"): {"ML": (56.4, 56.9), "TF": (81.4, 85.4), "GSTF": (84.5, 88.8)},
    ("table", "Foursquare"): {"ML": (38.0, 35.6), "TF": (81.8, 88.2), "GSTF": (83.0, 89.7)},
    ("biased", "Geolife"): {"ML": (57.1, 56.2), "TF": (62.3, 57.5), "GSTF": (65.4, 64.6)},
    ("biased", "Gowalla"): {"ML": (57.7, 57.4), "TF": (75.9, 81.8), "GSTF": (77.3, 83.9)},
    ("biased", "Foursquare"): {"ML": (52.7, 48.0), "TF": (76.7, 87.4), "GSTF": (77.2, 89.1)},
}


@dataclass(frozen=True)
class Attack:
    """One run: what is attacked, how, and with which division of the users and which random start."""

    section: str
    data: str
    estimator: str
    division: int
    seed: int = 0
    known: int = 1
    deleted: int = 0
    part: str = ""

    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in KEYS)

    def attacked(self, shared: Path) -> tuple[Traces, Traces]:
        """What the attacker knows of the target users, and the other traces of all users."""
        data = DATA[self.data]
        if self.section == "biased":
            known, rest = split_traces(all_traces(shared, self.data, data.box, DAY_S), data.first_month)
        else:
            box = BOXES[self.part] if self.section == "boxes" else data.box
            known, rest = split_traces(all_traces(shared, self.data, box), self.known / 10)
        shuffled = np.random.default_rng(self.division).permutation(known.n_users)
        return known.select_users(np.sort(shuffled[: known.n_users // 2])), rest

    def settings(self, beta: float | None) -> dict[str, Any]:
        """Settings of the estimator, with a beta that is known already."""
        return ESTIMATORS[self.estimator][1] | ({} if beta is None else {"beta": beta})


@cache
def all_traces(
    shared: Path, name: str, box: tuple[float, float, float, float], max_gap_s: float | None = None
) -> Traces:
    data = DATA[name]
    spaced = SpacedTraces(GridPlaces(*box, *REGIONS), max_gap_s=max_gap_s)
    traces, report = data.read(shared / "data" / data.file, discretization=spaced)
    print(report, file=sys.stderr)
    return traces


def plan(section: str, n_divisions: int) -> Iterator[Attack]:
    """The runs of a section, division by division, so that the results of a stopped section can be used."""
    for division in range(n_divisions):
        for data in DATA:
            if section == "table":
                yield from (Attack(section, data, each, division) for each in ("ML", "ML, floor 1e-3"))
                yield from (Attack(section, data, each, division, seed) for seed in SEEDS for each in ("TF", "GSTF"))
            if section == "controls":
                yield from (Attack(section, data, each, division) for each in CONTROLS)
            for each in [*PUBLISHED_ONES, "ML, floor 1e-3"]:
                if section == "deleted":
                    numbers = (5, 3, 1) if each in PUBLISHED_ONES else (5,)
                    yield from (Attack(section, data, each, division, deleted=n) for n in numbers)
                elif section == "known":
                    yield from (Attack(section, data, each, division, known=n) for n in (3, 5, 7, 9))
                elif section == "biased":
                    yield Attack(section, data, each, division)
                elif section == "boxes" and data == "Gowalla":
                    yield from (Attack(section, data, each, division, part=box) for box in list(BOXES)[1:])


def run(attack: Attack, shared: Path, beta: float | None = None) -> tuple[TransitionMatrices, Traces, float]:
    """Learn the matrices, and delete places from the attacked traces."""
    known, rest = attack.attacked(shared)
    name = ESTIMATORS[attack.estimator][0]
    matrices, took = measured(estimate_transitions, known, name, seed=attack.seed, **attack.settings(beta))
    if attack.deleted:
        at_random = random_deletions(rest, attack.deleted, seed=attack.division)
        worst = worst_deletions(rest, matrices, attack.deleted)
        is_target = index_of_ids(rest.user_ids, matrices.user_ids) >= 0
        rest = rest.select_events(np.where(is_target[rest.user], worst, at_random))
    return matrices, rest, took["seconds"]


def auc_of(scores: TraceScores) -> float:
    """AUC in percent; NaN if there is nothing to tell apart."""
    checked = verification(scores)
    return round(100 * checked.roc().auc, 2)


def rows_of(attack: Attack, shared: Path, beta: float | None) -> Iterator[Row]:
    matrices, rest, seconds = run(attack, shared, beta)
    scores = score_traces(rest, matrices)
    row = dict(zip(KEYS, attack.key(), strict=True)) | {
        "targets": matrices.n_users,
        "beta": getattr(matrices.counts, "beta", None),
        "seconds": round(seconds, 2),
    }
    yield row | {"auc": auc_of(scores), "auc_combined": auc_of(scores.combined())}
    if attack.section == "biased":
        size = np.bincount(rest.trace_of_event())
        for name, (least, most) in SIZES.items():
            chosen = (size >= least) & (size <= most)
            kept = {column: getattr(scores, column)[chosen] for column in ("own", "others", "user_ids", "number")}
            yield row | {"part": name, "auc": auc_of(replace(scores, **kept))}


class Betas:
    """Cross-validated weights of GSTF, which are chosen once and used again, because each choice takes long.

    For `table` and `biased`, there is one choice for each data set and division. For the other sections, one choice
    serves all divisions. All seeds and all numbers of deleted places share a choice.
    """

    def __init__(self, stored: pd.DataFrame):
        self._found: dict[tuple[Any, ...], float] = {}
        for row in stored.to_dict("records"):
            self.add(row)

    def of(self, attack: Attack) -> float | None:
        """The weight for an attack; None if it is not chosen yet, or if the estimator has no such weight."""
        return self._found.get(self._key(vars(attack)))

    def add(self, row: Row) -> None:
        if ESTIMATORS[row["estimator"]][0] == "gstf":
            self._found[self._key(row)] = float(row["beta"])

    def _key(self, row: Row) -> tuple[Any, ...]:
        section = row["section"].replace("deleted", "table")
        division = row["division"] if section in ("table", "biased") else None
        # All parts of the biased traces come from one run.
        part = row["part"] if section == "boxes" else ""
        return section, row["data"], part, row["known"], row["estimator"], division


def run_section(section: str, shared: Path, csv: Path, n_divisions: int) -> None:
    stored = pd.read_csv(csv, keep_default_na=False) if csv.exists() else pd.DataFrame(columns=COLUMNS)
    done = set(stored[KEYS].itertuples(index=False, name=None))
    betas = Betas(stored)
    for attack in plan(section, n_divisions):
        if attack.key() not in done:
            for row in record(rows_of(attack, shared, betas.of(attack)), csv, COLUMNS, append=True):
                betas.add(row)


def roc_rows(shared: Path, betas: Betas, n_divisions: int) -> Iterator[Row]:
    """True positive rate at each percent of false positives, as a mean over divisions."""
    grid = np.linspace(0, 1, 101)
    for data in DATA:
        for estimator in PUBLISHED_ONES:
            curves: dict[str, list[np.ndarray]] = {estimator: [], f"{estimator}*": []}
            for division in range(n_divisions):
                attack = Attack("table", data, estimator, division)
                matrices, rest, _ = run(attack, shared, betas.of(attack))
                scores = score_traces(rest, matrices)
                for name, each in zip(curves, (scores, scores.combined()), strict=True):
                    roc = verification(each).roc()
                    curves[name].append(np.interp(grid, roc.false_positive_rate, roc.true_positive_rate))
            for name, of_name in curves.items():
                for false_rate, true_rate in zip(grid, np.mean(of_name, axis=0), strict=True):
                    values = (data, name, round(float(false_rate), 2), round(float(true_rate), 4))
                    yield dict(zip(ROC_COLUMNS, values, strict=True))


def class_rows(shared: Path, betas: Betas, n_divisions: int) -> Iterator[Row]:
    """One to ten target users known to be among those who gave traces, GSTF, all traces of a user together."""
    for data in DATA:
        for division in range(n_divisions):
            attack = Attack("table", data, "GSTF", division)
            matrices, rest, _ = run(attack, shared, betas.of(attack))
            scores = score_traces(rest, matrices).combined()
            roc, rng = verification(scores).roc(), np.random.default_rng(division)
            for rate in (0.5, 0.75):
                threshold = roc.threshold[np.argmax(roc.true_positive_rate >= rate * (1 - 1e-12))]
                everybody = np.arange(matrices.n_users)
                one = np.mean([threshold_rule_rates(scores, threshold, np.array([each])) for each in everybody], axis=0)
                for n_known in range(1, 11):
                    # Each target user once, with others drawn at random.
                    drawn = [
                        np.append(each, rng.choice(np.delete(everybody, each), n_known - 1, False))
                        for each in everybody
                    ]
                    found = np.mean([threshold_rule_rates(scores, threshold, known) for known in drawn], axis=0)
                    expected = expected_rates(one[0], one[1], n_known)
                    values = [*found, expected.false_positive, expected.n_candidates]
                    values = [data, division, rate, n_known, *(round(float(value), 4) for value in values)]
                    yield dict(zip(CLASS_COLUMNS, values, strict=True))


class Rates(NamedTuple):
    """How well traces are classified into N' target users and "someone else" (section III-D)."""

    true_positive: float  # share of target users' traces with the right user among the candidates
    false_positive: float  # share of strangers' traces with a candidate
    n_candidates: float  # mean number of candidates of a target user's trace


def threshold_rule_rates(scores: TraceScores, log_threshold: float, known: np.ndarray) -> Rates:
    """Rates if all of the `known` target users whose score reaches the threshold are candidates.

    Only traces of these users and of strangers count.
    """
    chosen = scores.log_ratio[:, known] >= log_threshold
    position = np.full(len(scores.target_ids) + 1, NOBODY)
    position[known] = np.arange(len(known))
    # The index of strangers, -1, is the last position, which stays nobody's.
    own = position[scores.truth]
    of_known, of_strangers = own != NOBODY, scores.truth == NOBODY
    values = chosen[of_known, own[of_known]], chosen[of_strangers].any(axis=1), chosen[of_known].sum(axis=1)
    return Rates(*(float(each.mean()) if each.size else float("nan") for each in values))


def expected_rates(true_positive: float, false_positive: float, n_known: int) -> Rates:
    """Rates with N' users if scores are independent, from those of one user: equations (6), (7) and (10)."""
    return Rates(true_positive, 1 - (1 - false_positive) ** n_known, true_positive + (n_known - 1) * false_positive)


def sparsity_correlation(counts: FactorizedCounts) -> tuple[float, float]:
    """Correlation of which columns of U^(a) and V^(a) are 0, within groups and between them (section VI-B).

    A column of a group is either 0, or some of it is not. Correlated are these states of U^(a) in group g and of V^(a)
    in group h, over all columns and all pairs of groups with g = h (within) and g != h (between).
    """
    assert counts.group is not None
    membership = counts.group == np.arange(counts.group.max() + 1)[:, None]
    dense_u, dense_v = (
        membership @ (np.asarray(factor) > 0) > 0 for factor in (counts.factors.place_a, counts.factors.next_place_a)
    )
    first, second = np.divmod(np.arange(len(dense_u) ** 2), len(dense_u))
    same = first == second
    return _correlation(dense_u, dense_v), _correlation(dense_u[first[~same]], dense_v[second[~same]])


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    if one.min(initial=True) == one.max(initial=False) or other.min(initial=True) == other.max(initial=False):
        return float("nan")
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def group_rows(shared: Path) -> Iterator[Row]:
    """All users' first traces, as in section VI-B."""
    for data, about in DATA.items():
        known, _ = split_traces(all_traces(shared, data, about.box), 0.1)
        beta = None
        for seed in SEEDS:
            for groups in ("mcl", "shuffled"):
                chosen = {} if beta is None else {"beta": beta}
                counts = estimate_transitions(known, "gstf", seed=seed, groups=groups, **chosen).counts
                assert isinstance(counts, FactorizedCounts)
                assert counts.group is not None
                beta = counts.beta
                within, between = sparsity_correlation(counts)
                values = [data, groups, seed, beta, len(np.unique(counts.group)), round(within, 3), round(between, 3)]
                yield dict(zip(GROUP_COLUMNS, values, strict=True))


def move_rows(shared: Path) -> Iterator[Row]:
    """Share of attacked moves that a user is known to have made, and of others from her known places."""
    boxes = [(data, about.box) for data, about in DATA.items()] + [("Gowalla", box) for box in list(BOXES.values())[1:]]
    for name, box in boxes:
        known, rest = split_traces(all_traces(shared, name, box), 0.1)
        seen, begun = (
            (counts_of(known, whole) > 0).astype(float) @ counts_of(rest, whole).T for whole in (True, False)
        )
        n_moves = np.bincount(rest.transitions().user)
        same = np.eye(known.n_users, dtype=bool)
        for whose, chosen in (("own", same), ("others", ~same)):
            total = (chosen * n_moves).sum()
            shares = [each[chosen].sum() / total for each in (seen, begun - seen)]
            values = [name, " ".join(map(str, box)), known.n_users, whose, *(round(share, 3) for share in shares)]
            yield dict(zip(MOVE_COLUMNS, values, strict=True))


def counts_of(traces: Traces, whole: bool) -> np.ndarray:
    """How often each user made each move, or a move from each place."""
    steps = traces.transitions()
    n = traces.n_places
    column, n_columns = (steps.place.astype(int) * n + steps.next_place, n * n) if whole else (steps.place, n)
    counts = np.zeros((traces.n_users, n_columns), np.float32)
    np.add.at(counts, (steps.user, column), 1)
    return counts


def time_rows(n_users: int = 1000, n_traces: int = 10, length: int = 10) -> Iterator[Row]:
    """Seconds with compilation, and the peak of memory so far, of users who each have a chain over some regions."""
    traces = random_walks(n_users, n_traces, length)
    known, rest = split_traces(traces, 1 / n_traces)
    known = known.select_users(np.arange(0, n_users, 2))
    for label in PUBLISHED_ONES:
        matrices, estimating = measured(estimate_transitions, known, ESTIMATORS[label][0], seed=0)
        scores, scoring = measured(score_traces, rest, matrices)
        seconds = [estimating["seconds"], scoring["seconds"], estimating["cpu_seconds"] + scoring["cpu_seconds"]]
        print(f"{label}: AUC {auc_of(scores)}, {auc_of(scores.combined())} combined", file=sys.stderr)
        sizes = [known.n_users, n_users - known.n_users, len(rest.trace_table()[0]), rest.n_places]
        values = [label, *sizes, *(round(each, 1) for each in seconds), peak_mb(), *machine().values()]
        yield dict(zip(TIME_COLUMNS, values, strict=True))


def random_walks(n_users: int, n_traces: int, length: int, n_favourites: int = 15) -> Traces:
    """Traces over 16 x 16 regions: each user goes among some of them, some ways more often than others."""
    rng = np.random.default_rng(0)
    n_places = REGIONS[0] * REGIONS[1]
    favourite = rng.random((n_users, n_places)).argsort(axis=1)[:, :n_favourites]
    chain = rng.dirichlet(np.full(n_favourites, 0.3), (n_users, n_favourites)).cumsum(axis=2)
    at, visited = rng.integers(0, n_favourites, n_users), []
    for _ in range(n_traces * length):
        visited.append(at)
        at = (chain[np.arange(n_users), at] < rng.random((n_users, 1))).sum(axis=1).clip(max=n_favourites - 1)
    place = np.take_along_axis(favourite, np.stack(visited, axis=1), axis=1)
    row, column = np.divmod(np.arange(n_places), REGIONS[1])
    places = PlaceTable(np.arange(n_places), 35 + row / 100, 139 + column / 100)
    user, event = np.divmod(np.arange(place.size), n_traces * length)
    trace, instant = np.divmod(event, length)
    frame = pd.DataFrame({"user": user, "trace": trace, "instant": instant, "place": place.ravel()})
    return Traces.from_frame(frame, places, TimeGrid.each_instant("2024-01-01T00:00:00", 1800, length))


def print_means(csv: Path) -> None:
    """Mean and standard error over divisions, of the mean over seeds, beside what was published."""
    stored = pd.read_csv(csv, keep_default_na=False)
    values = ["auc", "auc_combined"]
    stored[values] = stored[values].apply(pd.to_numeric)
    keys = ["section", "data", "part", "known", "deleted", "estimator"]
    by_division = stored.groupby([*keys, "division"], sort=False)[values].mean().reset_index()
    for key, of_key in by_division.groupby(keys, sort=False):
        section, data, part, *rest, estimator = map(str, key)
        texts = [f"{of_key[name].mean():5.1f} +- {of_key[name].sem():.1f}" for name in values]
        known = PUBLISHED.get((section, data), {}).get(estimator) if not part else None
        printed = f"published {known[0]} {known[1]}" if known else ""
        print(section, data, part, *rest, estimator, *texts, f"n={len(of_key)}", printed, sep="  ")
    # Controls are compared with the rows of `table`.
    print_differences(by_division[by_division["part"] == ""].replace({"section": {"controls": "table"}}))


def print_differences(by_division: pd.DataFrame) -> None:
    """Print the differences between estimators on the same divisions."""
    wide = by_division.pivot_table(
        "auc", ["section", "data", "known", "deleted", "division"], "estimator", sort=False
    ).reset_index()
    for name in wide.columns.intersection(list(ESTIMATORS)):
        for other in ("ML", "TF", "GSTF"):
            if name == other or other not in wide:
                continue
            difference = (wide[name] - wide[other]).dropna()
            for key, rows in wide.loc[difference.index].groupby(["section", "data", "known", "deleted"], sort=False):
                of_key = difference.loc[rows.index]
                share = f"{(of_key > 0).sum()} of {len(of_key)} above 0"
                print(f"{name} - {other}", *key, f"{of_key.mean():+.1f} +- {of_key.sem():.1f}", share, sep="  ")


@styled
def draw_rocs(table: pd.DataFrame) -> Figure:
    # The curves are means, so they are drawn without steps.
    figure, axes = panels()
    fine = np.linspace(0, 1, 1001)
    for ax, data in zip(axes, DATA, strict=True):
        of_data = table[table["data"] == data]
        curves = {
            str(name): (fine, np.interp(fine, rows["false_positive_rate"], rows["true_positive_rate"]))
            for name, rows in of_data.groupby("estimator", sort=False)
        }
        draw_roc(ax, curves)
        ax.set_title(data)
    return with_legend(figure)


@styled
def draw_areas(table: pd.DataFrame, along: str, label: str) -> Figure:
    figure, axes = panels()
    for ax, data in zip(axes, DATA, strict=True):
        of_data = table[table["data"] == data]
        steps = of_data[along].unique()
        steps = np.array([size for size in SIZES if size in steps]) if along == "part" else np.sort(steps)
        lines, errors = {}, {}
        for estimator in [each for each in ESTIMATORS if each in set(of_data["estimator"])]:
            means = (
                of_data[of_data["estimator"] == estimator].groupby([along, "division"])[["auc", "auc_combined"]].mean()
            )
            for name, column in ((estimator, "auc"), (f"{estimator}*", "auc_combined")):
                by_step = means[column].groupby(level=0)
                if by_step.mean().notna().any():
                    lines[name] = by_step.mean().reindex(steps).to_numpy() / 100
                    errors[name] = by_step.sem().reindex(steps).to_numpy() / 100
        draw_auc(ax, steps, lines, label=label, errors=errors)
        ax.set_title(data)
    return with_legend(figure)


@styled
def draw_classes(table: pd.DataFrame) -> Figure:
    figure, axes = panels()
    for ax, data in zip(axes, DATA, strict=True):
        for rate, colour in zip((0.5, 0.75), LINE_COLOURS, strict=False):
            of_rate = (
                table[(table["data"] == data) & (table["rate_of_one"] == rate)].groupby("users").mean(numeric_only=True)
            )
            for name, expected, mark, what in (
                ("false_positive", "expected_false_positive", "o", "false positive rate"),
                ("candidates", "expected_candidates", "s", "candidates"),
            ):
                label = f"{what}, TPR of one {rate:.0%}"
                ax.plot(of_rate.index, of_rate[name], mark, color=colour, markersize=4, label=label)
                ax.plot(of_rate.index, of_rate[expected], color=colour, linewidth=1)
        ax.set_xlabel("known target users")
        ax.set_title(f"{data}; lines: (7), (10)")
    return with_legend(figure)


def panels() -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    return figure, figure.subplots(1, len(DATA))


def with_legend(figure: Figure) -> Figure:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def draw(csv: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pd.read_csv(csv, keep_default_na=False)
    table[["auc", "auc_combined"]] = table[["auc", "auc_combined"]].apply(pd.to_numeric)
    start = table[(table["section"] == "table") & (table["seed"] == 0)]
    for along, drawn in (("deleted", PUBLISHED_ONES), ("known", [*PUBLISHED_ONES, "ML, floor 1e-3"])):
        rows = table[(table["section"] == along) & table["estimator"].isin(drawn)]
        if len(rows):
            # Every point of a curve comes from the same divisions.
            at_start = start[start["estimator"].isin(drawn) & start["division"].isin(rows["division"])]
            label = "deleted places" if along == "deleted" else "known traces"
            save_figure(draw_areas(pd.concat([at_start, rows]), along, label), folder / f"auc_{along}.png")
    sizes = table[(table["section"] == "biased") & (table["part"] != "")]
    if len(sizes):
        save_figure(draw_areas(sizes, "part", "places of a trace"), folder / "auc_sizes.png")
    for name, figure_of in (("roc", draw_rocs), ("classes", draw_classes)):
        if (file := csv.with_name(f"{csv.stem}_{name}.csv")).exists():
            save_figure(figure_of(pd.read_csv(file)), folder / f"{name}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = ["table", "controls", "deleted", "known", "biased", "boxes"]
    parser.add_argument("section", choices=[*sections, "roc", "classes", "groups", "moves", "time", "print"])
    parser.add_argument("shared", type=Path, nargs="?", default=SHARED, help="folder of the data")
    parser.add_argument("--csv", type=Path, required=True, help="file of the runs; others get its name and an ending")
    parser.add_argument("--divisions", type=int, default=N_DIVISIONS, help="of the users into targets and strangers")
    parser.add_argument("--plot", type=Path, help="folder for pictures of all stored runs")
    arguments = parser.parse_args()
    section, shared, csv, n_divisions = arguments.section, arguments.shared, arguments.csv, arguments.divisions
    if section in sections:
        run_section(section, shared, csv, n_divisions)
    elif section == "print":
        print_means(csv)
    else:
        betas = Betas(pd.read_csv(csv, keep_default_na=False)) if csv.exists() else Betas(pd.DataFrame())
        rows, columns = {
            "roc": lambda: (roc_rows(shared, betas, n_divisions), ROC_COLUMNS),
            "classes": lambda: (class_rows(shared, betas, n_divisions), CLASS_COLUMNS),
            "groups": lambda: (group_rows(shared), GROUP_COLUMNS),
            "moves": lambda: (move_rows(shared), MOVE_COLUMNS),
            "time": lambda: (time_rows(), TIME_COLUMNS),
        }[section]()
        record(rows, csv.with_name(f"{csv.stem}_{section}.csv"), columns, append=True)
    if arguments.plot:
        draw(csv, arguments.plot)


if __name__ == "__main__":
    main()
