"""The process of people who remember in plain Python: every way in which a person can make a trace, one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from math import exp, log
from typing import NamedTuple

import numpy as np

from ppmtf_jax.people.bins import DWELL_FROM, HOME, MAX_ATTRACTION, OTHER, SECOND
from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.people.process import MIN_WEIGHT, PersonProcess
from tests.people.person_processes import random_process

N_INSTANTS = 5


class Person(NamedTuple):
    has_second: int
    mobility: int
    role: int
    place: int
    before: int
    dwell: int
    home: int | None
    second: int | None
    arrivals: tuple[tuple[int, int], ...]  # other places, and arrivals there


class Oracle:
    """Exact probabilities under the process; a planted bug changes one rule."""

    def __init__(self, process: PersonProcess, cluster: int, bug: str = "", most_remembered: int = 64) -> None:
        self.process, self.k, self.bug, self.most_remembered = process, cluster, bug, most_remembered
        self.a: dict[str, np.ndarray] = {
            name: np.asarray(value, np.float64) for name, value in process.to_arrays().items()
        }
        for name in ("cell", "move_start", "next_place", "slot_of_phase"):
            self.a[name] = np.asarray(getattr(process, name))
        for name in ("class_share", "role_first", "role_next", "first_other"):
            total = self.a[name].sum(axis=-1, keepdims=True)
            self.a[name] = self.a[name] / np.where(total > 0, total, 1)
        self.n_places, self.period = process.n_places, len(self.a["slot_of_phase"])
        self.weight = cache(self._weight)

    def traces(self, n_instants: int) -> dict[tuple[int, ...], float]:
        """Probability of each trace that the process makes."""
        paths = {((person.place,), person): p for person, p in self.people()}
        for instant in range(1, n_instants):
            longer: dict[tuple[tuple[int, ...], Person], float] = defaultdict(float)
            for (trace, person), p in paths.items():
                for following, q in self.steps(person, instant):
                    longer[(*trace, following.place), following] += p * q
            paths = longer
        found: dict[tuple[int, ...], float] = defaultdict(float)
        for (trace, _), p in paths.items():
            found[trace] += p
        return found

    def probability(self, trace: tuple[int, ...]) -> float:
        """Probability of one trace, of any process."""
        people = {person: p for person, p in self.people() if person.place == trace[0]}
        for instant, place in enumerate(trace[1:], start=1):
            following: dict[Person, float] = defaultdict(float)
            for person, p in people.items():
                for other, q in self.steps(person, instant):
                    if other.place == place:
                        following[other] += p * q
            people = following
        return sum(people.values())

    def people(self) -> Iterator[tuple[Person, float]]:
        a, k = self.a, self.k
        for has_second, p in enumerate((1 - a["second_share"][k], a["second_share"][k])):
            for mobility, q in enumerate(a["class_share"][k]):
                for role, r in enumerate(a["role_first"][has_second, k]):
                    name = ("home", "second", "first_other")[role]
                    if p * q * r == 0:
                        continue
                    first = a[name][k]
                    for place, share in enumerate(first / first.sum()):
                        arrivals = ((place, 1),) if role == OTHER else ()
                        home, second = (place if role == each else None for each in (HOME, SECOND))
                        person = Person(has_second, mobility, role, place, -1, 1, home, second, arrivals)
                        yield person, p * q * r * share

    def steps(self, person: Person, instant: int) -> Iterator[tuple[Person, float]]:
        a, phase = self.a, instant % self.period
        barred = 0.0
        for role, p in enumerate(a["role_next"][person.has_second, self.k, phase, person.role]):
            if p == 0:
                continue
            ways = self.other(person, instant) if role == OTHER else self.anchor(person, role)
            for place, q in ways.items():
                yield self.arrived(person, role, place), p * q
            barred += 0 if ways else p
        if barred:
            yield self.arrived(person, person.role, person.place), barred

    def unvisited(self, person: Person) -> list[int]:
        known = {person.home, person.second} | {place for place, _ in person.arrivals}
        return [place for place in range(self.n_places) if place not in known]

    def anchor(self, person: Person, role: int) -> dict[int, float]:
        a, k = self.a, self.k
        own, other = (person.home, person.second) if role == HOME else (person.second, person.home)
        if own is not None:
            return {own: 1.0}
        name = "home" if role == HOME else "second"
        weight = a[name][k]
        if other is not None:
            between = a["anchor_between"][a["cell"]][:, a["cell"]]
            near = between[:, other] if role == HOME else between[other]
            weight = near * a[name + "_pull"][k]
        free = range(self.n_places) if self.bug == "home at a visited place" else self.unvisited(person)
        return shares({place: weight[place] for place in free})

    def _weight(self, slot: int, place: int, other: int) -> float:
        a = self.a
        between = a["between"][a["cell"][place], a["cell"][other]]
        gravity = a["leaving"][slot, place] * between * a["arriving"][slot, other]
        begin, end = a["move_start"][place : place + 2]
        return float(gravity + sum(a["seen"][slot, at] for at in range(begin, end) if a["next_place"][at] == other))

    def other(self, person: Person, instant: int) -> dict[int, float]:
        a, k, here = self.a, self.k, person.place
        slot = a["slot_of_phase"][instant % self.period]
        day = min(instant // self.period, len(a["stay_at_time"]) // self.period - 1)
        time = day * self.period + instant % self.period
        returns = {}
        for place, n in person.arrivals:
            if place != here:
                weights = self.weight(slot, here, place), a["population"][slot, place]
                attraction = log(max(weights[0], MIN_WEIGHT)) - log(max(weights[1], MIN_WEIGHT))
                factor = (
                    a["back"] * (place == person.before) + a["by_popularity"] * a["log_popularity_ratio"][slot, place]
                )
                factor += a["near"] * min(max(attraction, -MAX_ATTRACTION), MAX_ATTRACTION)
                discount = 0 if self.bug == "discount forgotten" else a["discount"]
                returns[place] = (n - discount) * exp(factor)
        n_known = len(person.arrivals)
        new = (a["strength"] + a["discount"] * n_known) * (n_known < self.most_remembered)
        free = range(self.n_places) if self.bug == "visited places not excluded" else self.unvisited(person)
        news = shares({b: self.weight(slot, here, b) * a["pull"][time, k, b] for b in free if b != here})
        goes = shares(returns | {place: new * p for place, p in news.items()})
        if person.role != OTHER:
            return goes
        bin_of = sum(person.dwell >= each for each in DWELL_FROM) - 1
        odds = a["stay"][slot, here] + a["stay_at_time"][time] + a["stay_tilt"][time, k, here]
        odds += a["stay_by_dwell"][bin_of] + a["stay_by_class"][person.mobility]
        stay = 1 / (1 + exp(-odds))
        if not goes:
            return {here: 1.0}
        return {place: (1 - stay) * p for place, p in goes.items()} | {here: stay}

    def arrived(self, person: Person, role: int, place: int) -> Person:
        moved = place != person.place
        arrivals = dict(person.arrivals)
        if moved and role == OTHER:
            arrivals[place] = arrivals.get(place, 0) + 1
        return person._replace(
            role=role,
            place=place,
            before=person.place if moved else person.before,
            dwell=1 if moved else person.dwell + 1,
            home=place if role == HOME else person.home,
            second=place if role == SECOND else person.second,
            arrivals=tuple(arrivals.items()),
        )


def shares(weight: dict[int, float]) -> dict[int, float]:
    """Probabilities of the entries of positive weight."""
    total = sum(weight.values())
    return {place: value / total for place, value in weight.items() if value > 0}


def anchored_process() -> RememberingBridge:
    """A process of people with homes, of which `traces_of_anchored` has all traces."""
    return random_process(period=3, seed=1)


@cache
def traces_of_anchored(bug: str = "") -> dict[tuple[int, ...], float]:
    """Probability of each trace of user 0, enumerated once for all tests."""
    return Oracle(anchored_process(), 0, bug).traces(N_INSTANTS)
