"""Random processes of check-ins, and the probability of a window by loops over its instants and events."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import exp, prod

import numpy as np

from ppmtf_jax.people.bins import (
    ANYWHERE,
    DISTANCE_CLASS,
    DISTANCE_FROM_KM,
    GAP_CLASS,
    GAP_FROM_H,
    N_DISTANCE_CLASSES,
    N_GAP_CLASSES,
    N_HABITS,
    N_SINCE,
    NEAR_LAST,
    SINCE_FROM_H,
)

BUGS = (
    "first events are like others",
    "no discount",
    "visited places may be new",
    "windows without events",
    "habits count today",
    "match of hours ignores midnight",
    "the place before is that of the event before",
)


def random_arrays(
    n_places: int, per_day: int, n_days: int, *, n_cells: int | None = None, n_clusters: int = 2, events: float = 3
) -> dict[str, np.ndarray]:
    """Arrays of a random process with two activity levels, types and ranges; windows have about so many events."""
    rng = np.random.default_rng(0)
    n_instants, n_cells = per_day * n_days, n_cells or n_places
    slot_of_instant = np.arange(n_instants) % per_day * min(per_day, 3) // per_day
    # Log-odds of every bin differ from those of all others, such that no bin can be taken for another.
    log_odds = rng.normal(np.log(events / n_instants), 0.7, (2, min(n_instants, 7 * per_day), N_SINCE, N_HABITS))
    bins = rng.integers(len(DISTANCE_FROM_KM), size=(n_cells, n_cells))

    def shares(*shape: int) -> np.ndarray:
        return rng.dirichlet(np.ones(shape[-1]), shape[:-1])

    def logs(*shape: int) -> np.ndarray:
        return rng.normal(0, 1.2, shape)

    arrays = {
        "cluster": np.arange(n_clusters),
        "n_present": 1 + np.arange(n_clusters),
        "slot_of_instant": slot_of_instant,
        "per_day": np.array(per_day),
        "level_share": shares(n_clusters, 2),
        "log_odds": log_odds,
        "type_share": shares(2, 2),
        "range_share": shares(2),
        "discount": np.array(0.4),
        "strength": logs(len(GAP_FROM_H)),
        "strength_of_type": np.array([0.8, -0.8]),
        "last": logs(len(GAP_FROM_H)),
        "last_of_type": np.array([-0.5, 0.5]),
        "last_match": logs(3),
        "match": logs(3),
        "recency": np.array(-0.3),
        "previous": np.array(0.9),
        "distance": logs(N_GAP_CLASSES, N_DISTANCE_CLASSES),
        "place_rate": logs(n_places),
        "reference": shares(2, len(GAP_FROM_H), 3),
        "near_last": np.exp(logs(N_GAP_CLASSES, len(DISTANCE_FROM_KM))),
        "near_own": np.exp(logs(len(DISTANCE_FROM_KM))),
        "distance_bin": np.maximum(bins, bins.T),
        "cell": np.arange(n_places) * n_cells // n_places,
        "visits": rng.dirichlet(np.full(n_places, 3.0), (n_clusters, slot_of_instant.max() + 1)),
        "first_rate": logs(n_places),
    }
    kinds = {"f": np.float32, "i": np.int32}
    return {name: array.astype(kinds[array.dtype.kind]) for name, array in arrays.items()}


def random_windows(arrays: dict[str, np.ndarray], n: int, n_events: int, rng: np.random.Generator) -> np.ndarray:
    """Windows with so many events, of which some are at the same places, and some at the same hours."""
    n_instants, per_day = len(arrays["slot_of_instant"]), int(arrays["per_day"])
    weight = np.where(np.arange(n_instants) % per_day < max(1, per_day // 4), 3.0, 1.0)
    places = np.full((n, n_instants), -1, np.int32)
    for row in places:
        instants = rng.choice(n_instants, n_events, replace=False, p=weight / weight.sum())
        favourites = rng.integers(len(arrays["cell"]), size=1 + n_events // 2)
        row[instants] = rng.choice(favourites, n_events)
    return places


def probability_by_loop(arrays: dict[str, np.ndarray], window: Sequence[int], cluster: int, *, bug: str = "") -> float:
    """Probability of a window under a cluster: the sum over levels, types and ranges of products over instants."""
    a = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    level_share, range_share = _normal(a["level_share"][cluster]), _normal(a["range_share"])
    events = [(instant, place) for instant, place in enumerate(window) if place >= 0]
    instants = [instant for instant, _ in events]
    if not events and bug != "windows without events":
        return 0.0
    total, nothing = 0.0, 0.0
    for level in range(len(level_share)):
        of_times = _times(a, level, len(window), instants, bug)
        nothing += level_share[level] * _times(a, level, len(window), [], bug)
        for kind, reach in product(range(a["type_share"].shape[1]), range(len(range_share))):
            share = level_share[level] * _normal(a["type_share"][level])[kind] * range_share[reach]
            of_places = prod(_place(a, events[:n], events[n], cluster, kind, reach, bug) for n in range(len(events)))
            total += share * of_times * of_places
    return total if bug == "windows without events" else total / (1 - nothing)


def _times(a: dict[str, np.ndarray], level: int, n_instants: int, instants: list[int], bug: str) -> float:
    probability, per_day = 1.0, int(a["per_day"])
    for now in range(n_instants):
        before = [instant for instant in instants if instant < now]
        since = N_SINCE - 1 - (now < per_day)
        if before:
            since = _bin(SINCE_FROM_H, Fraction((now - before[-1]) * 24, per_day))
        near = [
            instant
            for instant in before
            if (instant // per_day < now // per_day or bug == "habits count today")
            and _apart(_hour(a, instant), _hour(a, now)) <= 1
        ]
        if len(before) <= 2:
            habit = 6 if near else 0
        elif not near:
            habit = 1
        else:
            share = Fraction(len(near), len(before))
            habit = 2 + sum(share > edge for edge in (Fraction(15, 100), Fraction(3, 10), Fraction(1, 2)))
        odds = exp(a["log_odds"][level, now % a["log_odds"].shape[1], since, habit])
        probability *= odds / (1 + odds) if now in instants else 1 / (1 + odds)
    return probability


def _place(
    a: dict[str, np.ndarray],
    before: list[tuple[int, int]],
    event: tuple[int, int],
    cluster: int,
    kind: int,
    reach: int,
    bug: str,
) -> float:
    """Probability of the place of an event, given the events before."""
    now, place = event
    n_places = len(a["cell"])
    visits = a["visits"][cluster, a["slot_of_instant"][now]]
    if not before:
        first = visits if bug == "first events are like others" else visits * np.exp(a["first_rate"])
        return first[place] / first.sum()
    then, last = before[-1]
    hours = Fraction((now - then) * 24, int(a["per_day"]))
    gap = _bin(GAP_FROM_H, hours)
    others = [each for _, each in before if each != last]
    previous = others[-1] if others else -1
    if bug == "the place before is that of the event before":
        previous = before[-2][1] if len(before) > 1 else -1
    discount = 0 if bug == "no discount" else a["discount"]
    weights = {}
    for old in {each for _, each in before}:
        there = [instant for instant, each in before if each == old]
        differences = [_hour(a, instant) - _hour(a, now) for instant in there]
        apart = [abs(each) if bug == "match of hours ignores midnight" else _apart(each, 0) for each in differences]
        match = np.array([[each <= 2, each == 0, each >= 6] for each in apart]).mean(axis=0)
        if old == last:
            log = a["last"][gap] + a["last_of_type"][kind] + a["last_match"] @ match
        else:
            since = (now - there[-1]) * 24 / int(a["per_day"])
            distance = DISTANCE_CLASS[_distance(a, last, old)]
            log = a["match"] @ match + a["recency"] * np.log(max(since, 1)) + a["previous"] * (old == previous)
            log += a["distance"][GAP_CLASS[gap], distance]
        weights[old] = (len(there) - discount) * exp(a["place_rate"][old] + log)
    new = exp(a["strength"][gap] + a["strength_of_type"][kind]) + discount * len(weights)
    new *= len(weights) < n_places
    total = sum(weights.values()) + new
    if place in weights:
        return weights[place] / total
    shares = _normal(a["reference"][reach, gap])
    rest = [each for each in range(n_places) if each not in weights or bug == "visited places may be new"]

    def among_rest(factor: list[float]) -> float:
        return visits[place] * factor[place] / sum(visits[each] * factor[each] for each in rest)

    probability = 0.0
    for near_to, share in enumerate(shares):
        if near_to == ANYWHERE:
            probability += share * among_rest([1.0] * n_places)
        elif near_to == NEAR_LAST:
            factor = a["near_last"][GAP_CLASS[gap]]
            probability += share * among_rest([factor[_distance(a, last, each)] for each in range(n_places)])
        else:
            for _, own in before:
                factor = [a["near_own"][_distance(a, own, each)] for each in range(n_places)]
                probability += share / len(before) * among_rest(factor)
    return float(new / total * probability)


def _normal(shares: np.ndarray) -> np.ndarray:
    return shares / shares.sum()


def _hour(a: dict[str, np.ndarray], instant: int) -> int:
    per_day = int(a["per_day"])
    return instant % per_day * 24 // per_day


def _apart(hour: int, other: int) -> int:
    return min((hour - other) % 24, (other - hour) % 24)


def _bin(edges: np.ndarray, number: Fraction) -> int:
    return sum(number >= edge for edge in edges) - 1


def _distance(a: dict[str, np.ndarray], place: int, other: int) -> int:
    return int(a["distance_bin"][a["cell"][place], a["cell"][other]])
