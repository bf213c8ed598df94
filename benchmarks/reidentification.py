"""Re-identification in the open world beside what was published: Murakami et al., TIFS 2017, sections VI and VII.

    python benchmarks/reidentification.py table ../shared --csv benchmarks/reidentification.csv
    python benchmarks/reidentification.py print --csv benchmarks/reidentification.csv

A trace has places that are more than 30 minutes apart; places are 16 x 16 regions. Half of the users are targets, and
the other users are strangers. The attacker knows the first traces of the targets. They get the other traces of the
targets, and those of the strangers, without names. Both the division into targets and strangers and the random starts
of the estimators are varied. A run that the file already has is not repeated.

- `table`: Table I; ten traces of ten places for each user, one of them known;
- `deleted`: Fig. 11; the places whose absence hurts the attacker most are deleted;
- `known`: Fig. 12; several numbers of known traces;
- `biased`: Table II; all traces of a user, with gaps of 30 minutes to a day;
- `rules`: Fig. 14; GSTF with all traces of a user together and several numbers N' of targets: false alarms beside (7)
  and the max-score rule at a true positive rate of 50 %, candidates beside (10) at 75 %; and other norms of groups;
- `print`: means over divisions and seeds; `figures.py` draws them beside the published numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import SHARED, Row, measured, record

from ppmtf_jax import Traces
from ppmtf_jax.attacks.estimators.base import TransitionMatrices, estimate_transitions
from ppmtf_jax.attacks.obfuscation import random_deletions, worst_deletions
from ppmtf_jax.attacks.trace_scores import TraceScores, score_traces, verification
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.datasets import GridPlaces, read_foursquare, read_geolife, read_gowalla
from ppmtf_jax.datasets.discretize import SpacedTraces

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
}
PUBLISHED_ONES = list(ESTIMATORS)[:3]
KEYS = ["section", "data", "known", "deleted", "estimator", "division", "seed"]
COLUMNS = [*KEYS, "targets", "beta", "auc", "auc_combined", "seconds"]


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

    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in KEYS)

    def attacked(self, shared: Path) -> tuple[Traces, Traces]:
        """What the attacker knows of the target users, and the other traces of all users."""
        data = DATA[self.data]
        if self.section == "biased":
            traces, share = all_traces(shared, self.data, DAY_S), data.first_month
        else:
            traces, share = all_traces(shared, self.data), self.known / 10
        user, _ = traces.trace_table()
        # The first traces of each user, at least one.
        is_first = rank_in_run(user) < np.maximum(1, np.ceil(share * np.bincount(user) - 1e-9))[user]
        known, rest = traces.select_traces(is_first), traces.select_traces(~is_first)
        shuffled = np.random.default_rng(self.division).permutation(known.n_users)
        return known.select_users(np.sort(shuffled[: known.n_users // 2])), rest

    def settings(self, beta: float | None) -> dict[str, Any]:
        """Settings of the estimator, with a beta that is known already."""
        return ESTIMATORS[self.estimator][1] | ({} if beta is None else {"beta": beta})


@cache
def all_traces(shared: Path, name: str, max_gap_s: float | None = None) -> Traces:
    data = DATA[name]
    spaced = SpacedTraces(GridPlaces(*data.box, *REGIONS), max_gap_s=max_gap_s)
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
            for each in [*PUBLISHED_ONES, "ML, floor 1e-3"]:
                if section == "deleted":
                    numbers = (5, 3, 1) if each in PUBLISHED_ONES else (5,)
                    yield from (Attack(section, data, each, division, deleted=n) for n in numbers)
                elif section == "known":
                    yield from (Attack(section, data, each, division, known=n) for n in (3, 5, 7, 9))
                elif section == "biased":
                    yield Attack(section, data, each, division)


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
        return section, row["data"], row["known"], row["estimator"], division


def run_section(section: str, shared: Path, csv: Path, n_divisions: int) -> None:
    stored = pd.read_csv(csv, keep_default_na=False) if csv.exists() else pd.DataFrame(columns=COLUMNS)
    done = set(stored[KEYS].itertuples(index=False, name=None))
    betas = Betas(stored)
    for attack in plan(section, n_divisions):
        if attack.key() not in done:
            for row in record(rows_of(attack, shared, betas.of(attack)), csv, COLUMNS, append=True):
                betas.add(row)


def rules_rows(shared: Path, betas: Betas) -> Iterator[Row]:
    """Means over random targets at a division, and the AUC of GSTF with other norms, each with the beta of q = 2."""
    for data in DATA:
        attack = Attack("table", data, "GSTF", 0)
        matrices, rest, _ = run(attack, shared, betas.of(attack))
        scores = score_traces(rest, matrices).combined()
        roc, rng = verification(scores).roc(), np.random.default_rng(0)
        at = {rate: float(roc.false_positive_rate[np.argmax(roc.true_positive_rate >= rate)]) for rate in (0.5, 0.75)}
        for n_targets in (1, 2, 5, 10, matrices.n_users):
            drawn = [rng.permutation(matrices.n_users)[:n_targets] for _ in range(20)]
            half, most = ([scores.of_targets(each).open_world(at[rate]) for each in drawn] for rate in (0.5, 0.75))
            mean = {name: np.mean([getattr(each, name) for each in half]) for name in half[0]._fields}
            names = ("pair_false", "false_alarms", "expected_false_alarms", "named_right", "named_wrong")
            row = {"data": data, "n_targets": n_targets} | {name: round(100 * mean[name], 1) for name in names}
            for name in ("n_candidates", "expected_candidates"):
                row[name] = round(float(np.mean([getattr(each, name) for each in most])), 2)
            yield row
        for q in (1.5, 3, np.inf):
            known, rest = attack.attacked(shared)
            other = estimate_transitions(known, "gstf", beta=betas.of(attack), q=q)
            yield {"data": data, "q": q, "auc": auc_of(score_traces(rest, other))}


def print_means(csv: Path) -> None:
    """Mean and standard error over divisions, of the mean over seeds."""
    stored = pd.read_csv(csv, keep_default_na=False)
    values = ["auc", "auc_combined"]
    stored[values] = stored[values].apply(pd.to_numeric)
    keys = ["section", "data", "known", "deleted", "estimator"]
    by_division = stored.groupby([*keys, "division"], sort=False)[values].mean().reset_index()
    for key, of_key in by_division.groupby(keys, sort=False):
        section, data, *rest, estimator = map(str, key)
        texts = [f"{of_key[name].mean():5.1f} +- {of_key[name].sem():.1f}" for name in values]
        print(section, data, *rest, estimator, *texts, f"n={len(of_key)}", sep="  ")
    print_differences(by_division)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["table", "deleted", "known", "biased", "rules", "print"])
    parser.add_argument("shared", type=Path, nargs="?", default=SHARED, help="folder of the data")
    parser.add_argument("--csv", type=Path, required=True, help="file of the runs")
    parser.add_argument("--divisions", type=int, default=N_DIVISIONS, help="of the users into targets and strangers")
    given = parser.parse_args()
    if given.section == "print":
        print_means(given.csv)
    elif given.section == "rules":
        record(rules_rows(given.shared, Betas(pd.read_csv(given.csv, keep_default_na=False))))
    else:
        run_section(given.section, given.shared, given.csv, given.divisions)


if __name__ == "__main__":
    main()
