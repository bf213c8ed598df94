"""Planted people: is a pattern that only one person repeats more frequent in the traces if her data are used?

    python benchmarks/planted.py --csv benchmarks/planted.csv
    python benchmarks/planted.py ../shared --data "people flow" "New York" --systems bridge --seeds 0

Some people (`--people`) are added to the training data. Each has places of her own; other people visit these places
too. Every day she is at home, then at four other places in a fixed order, and at home again. No training user makes any
of these moves, and few training users begin a day at her home. Models of the same seed are fitted with and without
these people. In the traces of both models, rows count

- `moves`: moves from one of her places to the next of her pattern;
- `three`: days with three of her places in her order;
- `all`: days with her whole pattern;
- `home`: days that begin at her home.

`ratio` is the rate with her divided by the rate without her, with the exact 95 % interval for two Poisson numbers. The
interval ignores that fits differ by chance, so look at several seeds. `copied` is the difference between both counts,
as a share of the difference that exact copies of her days would make in all synthetic traces made from her. In check-in
data, she checks in once at each stop, which is far more often than anybody else.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from common import Row, command_line, in_a_process, record
from jaxtyping import Int
from people import BRIDGES, DATA, SPARSE
from scipy.stats import beta

from ppmtf_jax import Traces, fit, synthesize, toy_city
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S

COLUMNS = ["data", "seed", "system", "what", "days", "without", "with", "ratio", "low", "high", "copied"]
N_STOPS = 5
MIN_USERS = 5
"""Least number of other visitors of her places, because the import leaves out places with fewer visitors."""
HOME_SHARE = 0.2
"""Her home is one of the places where the fewest days begin: this share of all places."""
SYSTEMS = {**BRIDGES, "ppmtf": {"zeros": "weighted"}, "training": {}}


def main() -> None:
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--data", nargs="+", choices=("toy days", *DATA), default=["toy days", "toy weeks"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=("chains", "bridge"))
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    parser.add_argument("--people", type=int, default=5, help="number of planted people")
    parser.add_argument("--traces", type=int, default=20, help="synthetic traces of each user")
    arguments = parser.parse_args()
    record(rows(arguments), arguments.csv, COLUMNS, append=True)


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for data in arguments.data:
        for seed in arguments.seeds:
            for system in arguments.systems:
                options = (str(arguments.shared), arguments.people, arguments.traces)
                yield from in_a_process(measure, data, system, seed, *options)


def measure(data: str, system: str, seed: int, shared: str, n_people: int, n_traces: int) -> list[Row]:
    """The rows of one data set, system and seed, in this process."""
    train = read(data, Path(shared), seed)
    with_them, places = plant(train, n_people, is_sparse=data in SPARSE, random=np.random.default_rng(seed))
    found = {}
    for name, traces in {"without": train, "with": with_them}.items():
        model = fit(traces, "bridge" if system in BRIDGES else system, SYSTEMS[system], seed=seed)
        found[name] = counts(synthesize(model, traces_per_user=n_traces, seed=seed), places)
    own = counts(with_them.select_users(~np.isin(with_them.user_ids, train.user_ids)), places)
    without, among = found["without"], found["with"]
    n_own_days = among["days"] * n_people / with_them.n_users
    fair = among["days"] / without["days"]
    about = {"data": data, "seed": seed, "system": system, "days": among["days"]}
    return [
        about
        | {"what": what, "without": without[what], "with": among[what]}
        | dict(zip(("ratio", "low", "high"), ratio_of(among[what], without[what], fair), strict=True))
        | {"copied": (among[what] - fair * without[what]) / (own[what] / own["days"] * n_own_days)}
        for what in ("moves", "three", "all", "home")
    ]


def read(data: str, shared: Path, seed: int) -> Traces:
    if data == "toy days":
        return toy_city(n_users=1000, n_places=500, n_days=7, seed=seed).traces
    return DATA[data].read(shared, seed)[0]


def plant(
    train: Traces, n_people: int, *, is_sparse: bool, random: np.random.Generator
) -> tuple[Traces, Int[np.ndarray, "person stop"]]:
    """Training data with the planted people, and the places of each planted person in the order of her day."""
    grid, n_places = train.time_grid, train.n_places
    runs = DayRuns.of(train)
    moves = np.unique(runs.place[:-1].astype(np.int64) * n_places + runs.place[1:])
    known, places = np.flatnonzero(train.users_per_place() >= MIN_USERS), np.zeros((0, N_STOPS), int)
    n_days = np.bincount(runs.first_places(), minlength=n_places)[known]
    homes = known[n_days <= np.quantile(n_days, HOME_SHARE)]
    while len(places) < n_people:
        home = random.choice(np.setdiff1d(homes, places))
        drawn = np.append(home, random.permutation(np.setdiff1d(known, [*places.ravel(), home]))[: N_STOPS - 1])
        if not np.isin(drawn * n_places + np.roll(drawn, -1), moves).any():
            places = np.vstack([places, drawn])
    day = min(DAY_S // grid.step_s, grid.n_instants)
    # She is at home for the first three tenths and the last two tenths of a day, and at each other place for an eighth.
    stop = np.searchsorted(np.array([0.3, 0.425, 0.55, 0.675, 0.8]) * day, np.arange(day), side="right") % N_STOPS
    is_seen = run_begins(stop) if is_sparse else np.ones(day, bool)
    instant = np.flatnonzero(np.resize(is_seen, grid.n_instants))
    frames = [train.to_frame()]
    for number, own in enumerate(places):
        is_text = train.user_ids.dtype == object
        user = f"planted {number}" if is_text else int(train.user_ids.max()) + 1 + number
        place = train.places.ids[own[stop[instant % day]]]
        frames.append(pd.DataFrame({"user": user, "trace": 0, "instant": instant, "place": place}))
    return Traces.from_frame(pd.concat(frames), train.places, grid), places


class DayRuns(NamedTuple):
    """Series of successive events at one place, on one day of a trace."""

    day: Int[np.ndarray, " run"]  # number of the day, counted over all traces
    place: Int[np.ndarray, " run"]

    @classmethod
    def of(cls, traces: Traces) -> DayRuns:
        trace, date = traces.trace_of_event(), traces.time_grid.day()[traces.instant]
        day = np.cumsum(run_begins(trace, date)) - 1
        begins = run_begins(day, traces.place)
        return cls(day[begins], traces.place[begins])

    def first_places(self) -> Int[np.ndarray, " day"]:
        """Where each day begins."""
        return self.place[run_begins(self.day)]


def counts(traces: Traces, places: Int[np.ndarray, "person stop"]) -> dict[str, int]:
    """Count how often traces contain the pattern of a planted person, or a part of it."""
    runs = DayRuns.of(traces)
    same_day = runs.day[:-1] == runs.day[1:]
    first_places = runs.first_places()
    found = {"days": len(first_places), "moves": 0, "three": 0, "all": 0, "home": 0}
    for own in places:
        following = np.full(traces.n_places, -1)
        following[own] = np.roll(own, -1)
        in_order = same_day & (following[runs.place[:-1]] == runs.place[1:])
        found["moves"] += int(in_order.sum())
        for name, n_moves in (("three", 2), ("all", N_STOPS - 1)):
            # A series of successive moves that are all in order is within one day.
            series = np.convolve(in_order, np.ones(n_moves, int))[n_moves - 1 :] == n_moves
            found[name] += len(np.unique(runs.day[:-1][series[: len(in_order)]]))
        found["home"] += int((first_places == own[0]).sum())
    return found


def ratio_of(many: int, few: int, fair: float) -> tuple[float, float, float]:
    """Ratio of two Poisson numbers beside its fair value, with the exact 95 % interval (Clopper and Pearson)."""
    low = beta.ppf(0.025, many, few + 1) if many else 0.0
    high = beta.ppf(0.975, many + 1, few) if few else 1.0
    share = many / max(many + few, 1)
    if not many + few:
        return np.nan, 0.0, np.inf
    ratio, low, high = (each / (1 - each) / fair if each < 1 else np.inf for each in (share, low, high))
    return ratio, low, high


if __name__ == "__main__":
    main()
