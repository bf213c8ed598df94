"""Why VF-TV puts PPMTF far before SGD and Uniform in the paper (claim c of Fig. 10), and not on our New York.

    python benchmarks/visit_fractions.py ../shared --csv benchmarks/visit_fractions.csv

Each arm changes one thing about the check-ins of New York (WWW 2019) at the 1,000 most visited venues, or thins the
people flow; users are split, models learn and traces are measured anew. `stays` are random venues that stay as often as
PPMTF does, and know nothing of anybody. Last come the published cities, with the transitions of a training user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from common import Row, command_line, new_york_2019, people_flow, record

from ppmtf_jax import PPMTFSettings, Traces, fit, synthesize
from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.datasets import Discretization, MostVisited
from ppmtf_jax.evaluation.metrics.persons import VisitSettings
from ppmtf_jax.evaluation.registry import METRICS

SEEDS = (0, 1, 2)
N_BINS, THINNED = 24, 0.2
# Section 4.1: users, and temporally-continuous events of the training users, four fifths of them.
PUBLISHED = {
    "IS": (219_793, 109_027),
    "JK": (83_325, 19_592),
    "KL": (51_189, 25_563),
    "NY": (52_432, 7_471),
    "SP": (42_100, 13_151),
    "TK": (32_056, 47_956),
}
SYSTEMS = ("ppmtf", "sgd", "stays", "uniform", "training")
Pair = tuple[Traces, Traces]


def main() -> None:
    """Measure the arms, three seeds each."""
    parser = command_line(__doc__, shared=True)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), metavar="ARM", help=", ".join(ARMS))
    parser.add_argument("--zeros", choices=("sampled", "weighted"), default="sampled")
    arguments = parser.parse_args()
    rows = (row for name in arguments.arms for row in _arm(name, arguments.shared, arguments.zeros))
    columns = ["arm", "seed", "users", "events", "transitions", "stays_of_ppmtf", *SYSTEMS]
    record(chain(rows, _published(arguments.shared)), arguments.csv, columns)


def new_york(shared: Path, n_places: int = 1000, repeats: str = "first") -> Traces:
    """All users with an event at the most visited venues."""
    every_place = Discretization(MostVisited(n_places), repeats=repeats, min_users_per_place=1)
    return replace(new_york_2019(shared, discretization=every_place), friendships=None)


def of_users(traces: Traces, low: int, high: float = np.inf) -> Traces:
    """The users with a number of events from `low` to `high`."""
    n_events = np.bincount(traces.user)[traces.user]
    return traces.select_events((n_events >= low) & (n_events <= high))


def some_users(traces: Traces, share: float, seed: int) -> Traces:
    """Some of the users, each kept or not by themselves."""
    return traces.select_events((np.random.default_rng(seed).random(traces.n_users) < share)[traces.user])


def thinned(traces: Traces, share: float, seed: int) -> Traces:
    """Some of the events, each kept or not by itself."""
    return traces.select_events(np.random.default_rng(seed).random(traces.n_events) < share)


def thin_people_flow(shared: Path, seed: int, share: float) -> Pair:
    """People flow with some of its events."""
    return tuple(thinned(each, share, 10 * seed + k) for k, each in enumerate(people_flow(shared)))  # type: ignore[return-value]


def split(read: Callable[[Path, int], Traces]) -> Callable[[Path, int], Pair]:
    """Four fifths of the users, at random, and the others."""
    return lambda shared, seed: read(shared, seed).split_users(0.8, seed)


ARMS: dict[str, Callable[[Path, int], Pair]] = {
    "New York": split(lambda shared, seed: new_york(shared)),
    "repeats counted": split(lambda shared, seed: new_york(shared, repeats="count")),
    "a quarter of the users": split(lambda shared, seed: some_users(new_york(shared), 0.25, seed)),
    "100 venues": split(lambda shared, seed: new_york(shared, 100)),
    "a fifth of the events": split(lambda shared, seed: thinned(new_york(shared), THINNED, seed)),
    "users of 24 and more": split(lambda shared, seed: of_users(new_york(shared), N_BINS)),
    "users of less than 24": split(lambda shared, seed: of_users(new_york(shared), 1, N_BINS - 1)),
    "people flow": lambda shared, seed: people_flow(shared),
    "people flow, a third": lambda shared, seed: thin_people_flow(shared, seed, 1 / 3),
}


def staying(traces: Traces, share: float, seed: int) -> Traces:
    """Complete traces with random places, which are kept from one instant to the next with a probability."""
    random, shape = np.random.default_rng(seed), (-1, traces.time_grid.n_instants)
    place = random.integers(traces.n_places, size=traces.n_events).reshape(shape)
    stays = random.random(place.shape) < share
    for instant in range(1, shape[1]):
        place[:, instant] = np.where(stays[:, instant], place[:, instant - 1], place[:, instant])
    return replace(traces, place=place.ravel().astype(traces.place.dtype))


def share_of_stays(traces: Traces) -> float:
    """Share of the steps of complete traces that stay."""
    place = traces.place.reshape(-1, traces.time_grid.n_instants)
    return float((place[:, 1:] == place[:, :-1]).mean())


def vf_tv(traces: Traces, train: Traces, test: Traces) -> float:
    """VF-TV as published."""
    length = train.time_grid.period
    comparison = Comparison(traces, train, test, length, pool_traces=traces is train)
    return METRICS["vf_tv"].measure(comparison, VisitSettings(N_BINS, published=True))[0]


def _arm(name: str, shared: Path, zeros: str) -> Iterator[Row]:
    for seed in SEEDS:
        train, test = ARMS[name](shared, seed)
        models = {"ppmtf": PPMTFSettings(zeros=zeros), "sgd": None}  # type: ignore[arg-type]
        sets = {
            system: synthesize(fit(train, system, settings, seed=seed), seed=seed)
            for system, settings in models.items()
        }
        sets["stays"] = staying(sets["ppmtf"], stays := share_of_stays(sets["ppmtf"]), seed)
        about: Row = {"arm": name, "seed": seed, "users": train.n_users, "events": train.n_events / train.n_users}
        about |= {"transitions": int(train.is_step().sum()) / train.n_users, "stays_of_ppmtf": stays}
        sets |= {"uniform": staying(sets["ppmtf"], 0.0, seed), "training": train}
        yield about | {system: vf_tv(each, train, test) for system, each in sets.items()}


def _published(shared: Path) -> Iterator[Row]:
    printed = pd.read_csv(shared / "reference" / "foursquare_published_results.csv").set_index(["system", "city"])
    for city, (users, transitions) in PUBLISHED.items():
        yield {
            "arm": f"published, {city}",
            "users": users * 4 // 5,
            "transitions": transitions / (users * 4 // 5),
            "ppmtf": printed["vf_tv"]["PPMTF", city],
            "sgd": printed["vf_tv"]["SGD", city],
            "uniform": printed["vf_tv_uniform"]["PPMTF", city],
            "training": printed["vf_tv_train"]["PPMTF", city],
        }


if __name__ == "__main__":
    main()
