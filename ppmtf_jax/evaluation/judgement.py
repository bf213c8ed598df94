"""All thresholds by which the library judges whether synthetic traces are fit for a use.

Verdicts, lights and caveats of utility, and warnings of few passed traces, all use these thresholds, so that they
cannot disagree. The thresholds of risk are in `privacy.limits`, because releases and attacks need them too.

A number of synthetic traces is compared with the same number of the training users, who are real people: no synthetic
traces need to be closer to the test users than other real people are. A difference that chance alone explains is no
error. The rest of the difference is measured on a yardstick: with many people, even an error that matters to nobody is
larger than chance explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import NamedTuple

from ppmtf_jax.data.measurement import Caveat, MetricInfo, Scale
from ppmtf_jax.evaluation.results import TRAINING, UNIFORM, Row, references_text
from ppmtf_jax.privacy.limits import Status

FIT, WITH_CARE = 0.05, 0.2
"""Largest errors of traces that are fit, and fit with care, for a use, as shares of the yardstick. If the number
compares where people are, 5 or 20 of 100 people would have to be elsewhere. Most questions do not notice 5 of 100; with
20 of 100, an answer may be wrong."""
N_STANDARD_ERRORS = 2
"""Chance explains a difference of at most so many standard errors, with a probability of about 95 %."""
MIN_GAP = 0.02
"""If random places are worse than Training by at most this share of their own number, the number says little."""
FLOOR = "floor"
"""Name of a reference that no synthesizer can beat. It replaces Training if it is worse than Training."""


class Yardstick(NamedTuple):
    """The error that counts as 1 for numbers of a scale, `what` they are, and why the error is so large."""

    what: str
    length: float
    reason: str


YARDSTICKS: dict[Scale, Yardstick] = {
    "share": Yardstick("shares and total variations", 1.0, "A share of people, moves or events: 1 is all of them."),
    "nights": Yardstick(
        "places of nights", 5.0, "People sleep at one or two places a week: a quarter of a place is no error."
    ),
    "places": Yardstick("places", 10.0, "People visit some ten places in a week: half a place is hardly an error."),
    "events": Yardstick("events", 10.0, "People have some ten events in a week: half an event is hardly an error."),
    "hours": Yardstick("hours", 10.0, "Plans are made in hours: half an hour is hardly an error."),
    "bits": Yardstick("bits", 5.0, "A quarter of a bit is a factor of 1.2."),
    "cells": Yardstick(
        "errors of cells",
        math.inf,
        "The more cells a table has, the smaller they are: the error of random places counts.",
    ),
    "none": Yardstick(
        "other numbers", math.inf, "Distances depend on the size of the town: the error of random places counts."
    ),
}
"""Where random places have a smaller error than the yardstick, their error is the yardstick, so that random places are
never fit. This does not hold for numbers that are best at 0, such as differences of shares."""
FEW_VALUES, FEW_OF_PAIRS = 30, 100
"""A number from fewer values of test users, or from fewer meetings or friendships, has a caveat. The relative standard
deviation of 100 counts is 10 %; pairs of the same person are not independent."""
LARGE_PART = 0.2
"""A metric has a caveat if more than this share of the averaged items cannot be compared or has a conventional value. A
total variation is at most 1, so these items can change the mean by this share. Synthesizers differ by less."""
LITTLE_MEMORY = 3
"""Windows with at most this many events show little memory."""
SPARSE_ROWS = 0.9
"""Where the rows of Training are so far from those of the test users, they are too sparse to compare."""
ENOUGH_PASSED, FEW_PASSED = 0.75, 0.25
"""Least shares of passed traces that are enough (a good light, and an advised k or system) and not few (a fair light).
A trace passes only if it resembles those of many people, so a few such traces are not representative."""
UNIFORM_IS_BETTER = Caveat(
    "uniform_is_better",
    "Uniform scores better than Training on these data, so the number says nothing about a synthesizer",
)
TOO_SHORT = "Random places score nearly as well as real traces here, so the number says little"
TOO_FEW = "Too few people: chance alone changes this number as much as a serious error would"
NEAR_AS_FAR_AS_KNOWN = (
    "As near as other real people, as far as so few can tell, and surely nearer than random places; chance may hide a "
    "serious error"
)


class Fitness(Enum):
    """Whether traces are fit for a use: a printed word, and the light of the same symbol and colour."""

    FIT = ("Fit", Status.GOOD)
    WITH_CARE = ("With care", Status.FAIR)
    NOT_FIT = ("Not fit", Status.POOR)
    NOT_KNOWN = ("Not known", Status.UNKNOWN)

    def __init__(self, word: str, status: Status) -> None:
        self.word, self.status = word, status
        self.symbol, self.css = status.symbol, status.css


class Chance(NamedTuple):
    """What chance does to a number of real people, see `chance_of`."""

    standard_error: float = 0.0  # NaN if it is not known
    few: float = math.nan  # mean over samples of as many real windows as synthetic traces; NaN if nothing was drawn
    # The number of as many random places as synthetic events: fewer events are further from the test users by chance.
    few_uniform: float = math.nan


class Judged(NamedTuple):
    """A number of synthetic traces, judged: `row.numbers[column]`."""

    row: Row
    column: str
    chance: Chance
    fitness: Fitness
    error: float  # how much worse the number is than that of real people, beyond chance; 1 is the yardstick
    real: float  # the number of real people: of Training, the floor, or equally few real traces, whichever is worst
    uniform: float  # the number of random places: exactly, or of equally few, as for real people
    noise: float  # how much chance alone changes the number
    yardstick: float
    reason: str = ""  # why the fitness is not known, or known only with care

    @property
    def quantity(self) -> MetricInfo:
        return self.row.quantity

    @property
    def title(self) -> str:
        """What it measures, in words that need no explanation."""
        return self.quantity.plain or self.quantity.title

    @property
    def badness(self) -> tuple[int, float]:
        """Worse is greater. The least are numbers of unknown fitness, then those that chance leaves open.

        Such numbers decide only where nothing else is known.
        """
        order = (Fitness.NOT_KNOWN, None, Fitness.FIT, Fitness.WITH_CARE, Fitness.NOT_FIT)
        is_open = self.reason and self.fitness is Fitness.WITH_CARE
        return order.index(None if is_open else self.fitness), self.error if math.isfinite(self.error) else 0.0

    @property
    def texts(self) -> dict[str, str]:
        """The printed numbers of real people ± what chance explains, of the synthetic traces and of random places.

        The names of the first and the last say which number of real people and of random places it is.
        """
        known = {"Training": self.row.numbers.get(TRAINING), "Floor": self.row.reading.references.get(FLOOR)}
        known["Equally few real"] = self.chance.few
        best = next((name for name, value in known.items() if value == self.real), "Training")
        random = "Equally few random" if self.uniform == self.chance.few_uniform else "Uniform"
        apart = f" ± {self.quantity.text(self.noise)}" if self.noise > 0 and math.isfinite(self.real) else ""
        numbers = {best: self.real, "Synthetic": self.row.numbers[self.column], random: self.uniform}
        return {name: self.quantity.text(value) + apart * (name == best) for name, value in numbers.items()}

    @property
    def beside(self) -> str:
        """The references of the number that are not among its `texts`, and its alarm."""
        reading, shown = self.row.reading, self.texts
        beside = {name: value for name, value in reading.references.items() if name.capitalize() not in shown}
        return references_text(replace(reading, references=beside))

    @property
    def scale(self) -> tuple[float, ...] | None:
        """Where the number is on the way from real people (0) to random places (1), and where good and fair end.

        None if there is no such scale. The number is below 0 if it is better than both.
        """
        real = loss(self.quantity, self.real)
        way = loss(self.quantity, self.uniform) - real
        if self.reason or not way > 0:
            return None
        ends = (min((self.noise + limit * self.yardstick) / way, 1.0) for limit in (FIT, WITH_CARE))
        return (loss(self.quantity, self.row.numbers[self.column]) - real) / way, *ends


def judge(row: Row, column: str, chance: Chance = Chance()) -> Judged:
    """Judge a number of synthetic traces beside those of Training and of random places.

    A caveat makes the fitness unknown. The worst of Training, a reference "floor" and equally few real traces stands
    for real people; beside the last, equally few random places replace Uniform.

    Examples
    --------
    >>> flows = MetricInfo("od_tv", "OD-TV", "Flows.", "total variation, 0 to 1", scale="share")
    >>> rows = [Row(flows, "utility", {"ours": n, "training": 0.10, "uniform": 0.90}) for n in (0.12, 0.15, 0.25, 0.35)]
    >>> [judge(row, "ours", Chance(0.01)).fitness.word for row in rows]
    ['Fit', 'Fit', 'With care', 'Not fit']
    """
    quantity, reading = row.quantity, row.reading
    synthetic, training, uniform = (row.numbers.get(each, math.nan) for each in (column, TRAINING, UNIFORM))
    noise = N_STANDARD_ERRORS * chance.standard_error if math.isfinite(chance.standard_error) else 0.0
    floor = reading.references.get(FLOOR, math.nan)
    known = [each for each in (training, floor, chance.few) if math.isfinite(each)]
    real = max(known, key=partial(loss, quantity), default=math.nan)
    best = loss(quantity, real)
    if real == chance.few and math.isfinite(chance.few_uniform):
        uniform = chance.few_uniform
    way, is_signed = loss(quantity, uniform) - best, quantity.direction == "zero"
    length = YARDSTICKS[quantity.scale].length
    # By accident, random places may have the right share of something, such as returns. Then their error is no scale.
    is_own_measure = is_signed or not math.isfinite(way)
    yardstick = length if is_own_measure and math.isfinite(length) else min(length, way)

    def found(fitness: Fitness, error: float = math.nan, reason: str = "") -> Judged:
        return Judged(row, column, chance, fitness, error, real, uniform, noise, yardstick, reason)

    # For the same reason, random places may be better than Training: then this caveat says nothing.
    caveats = [each for each in reading.caveats if not (is_signed and each.code == UNIFORM_IS_BETTER.code)]
    if not math.isfinite(synthetic):
        return found(Fitness.NOT_KNOWN, reason=f"It is undefined here: {quantity.undefined}")
    if caveats:
        return found(Fitness.NOT_KNOWN, reason=". ".join(each.text for each in caveats))
    if not math.isfinite(best):
        return found(Fitness.NOT_KNOWN, reason="There is no number of real people to compare it with")
    if not math.isfinite(yardstick) or yardstick <= (0 if is_signed else MIN_GAP * abs(loss(quantity, uniform))):
        return found(Fitness.NOT_KNOWN, reason=TOO_SHORT)
    excess = max(loss(quantity, synthetic) - best - noise, 0.0)
    error = excess / yardstick
    is_worse = loss(quantity, synthetic) > best
    is_surely_nearer = loss(quantity, synthetic) + noise < loss(quantity, uniform)
    if error <= WITH_CARE < noise / yardstick and (is_worse or not is_own_measure):
        if not is_surely_nearer:
            return found(Fitness.NOT_KNOWN, reason=TOO_FEW)
        if is_worse:
            return found(Fitness.WITH_CARE, error, NEAR_AS_FAR_AS_KNOWN if error <= FIT else "")
    if error > WITH_CARE and excess <= FIT * length < math.inf:
        # The error is small, but the error of random places is small too.
        return found(Fitness.NOT_KNOWN, reason=TOO_SHORT)
    return found(Fitness.FIT if error <= FIT else Fitness.WITH_CARE if error <= WITH_CARE else Fitness.NOT_FIT, error)


def loss(quantity: MetricInfo, value: float) -> float:
    """The number, changed so that less is better; NaN if no direction is better."""
    return {"lower": value, "higher": -value, "zero": abs(value)}.get(quantity.direction, math.nan)


# Uses


class Use(NamedTuple):
    """Something that traces are used for; metrics name the uses that they decide on."""

    title: str
    examples: str
    otherwise: str  # what not to do if the traces are not fit
    needs: tuple[str, ...] = ()  # if given, the use is left out where the evaluation has none of these numbers


USES = {
    "population": Use(
        "Where people are, by hour",
        "Shops, buses, cell towers: how many people are at a place at a time of day.",
        "Do not count people at single places and hours.",
    ),
    "flows": Use(
        "Flows between areas",
        "Traffic, epidemics: between which parts of the town people move, and how far.",
        "Do not plan traffic, or model an epidemic, with these traces.",
    ),
    "commuting": Use(
        "Commuting",
        "Homes and work places: the two main places of a person, the distance between them, nights at home.",
        "Do not look for homes, work places or the ways between them.",
    ),
    "days": Use(
        "Days of persons",
        "Time use, travel diaries: which places a person visits on a day, in which order, and for how long.",
        "Do not follow a person through a day.",
    ),
    "weeks": Use(
        "Weeks of persons",
        "Habits: how often a person comes back to a place, and how regular a person is over several days.",
        "Do not follow a person over several days.",
        needs=("night_homes_difference",),
    ),
    "events": Use(
        "When people are seen",
        "Check-ins: how many events a person has, and how long the gaps between them are.",
        "Do not study when people check in.",
        needs=("events_w1", "event_gap_tv", "day_events_tv"),
    ),
    "groups": Use(
        "Groups of people",
        "Neighbourhoods: where the people of one part of the town spend their time.",
        "Do not compare parts of the population.",
    ),
    "rare": Use(
        "Rare places",
        "Parks, clinics, small shops: places with few visits.",
        "Do not ask about places with few visits.",
    ),
    "friends": Use(
        "Friends",
        "Contacts: how often friends meet, where and when.",
        "Do not study who meets whom.",
        needs=("friend_rate", "friends_tv"),
    ),
}
"""The uses of a verdict. Metrics that an evaluation does not have are ignored; the worst other metric decides."""


class JudgedUse(NamedTuple):
    """A use with its judged numbers, the worst first; it is as fit as the worst number whose fitness is known."""

    use: Use
    numbers: Sequence[Judged]

    @property
    def fitness(self) -> Fitness:
        return self.numbers[0].fitness if self.numbers else Fitness.NOT_KNOWN


def judge_uses(rows: Sequence[Row], column: str, chance: Mapping[str, Chance]) -> list[JudgedUse]:
    """Judge all uses by a column of the rows of an `Evaluation`.

    The uses are in the order of `USES`, without those for which the evaluation has none of the `needs`. `chance`: by
    metric, see `chance_of`; a metric that is missing counts as exact.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax import evaluate
    >>> train, test = toy_city(n_users=200, seed=0).traces.split_users(0.5, seed=0)
    >>> judged = judge_uses(evaluate(train, train, test).rows, "uniform", {})
    >>> judged[0].use.title, judged[0].fitness.word
    ('Where people are, by hour', 'Not fit')
    """
    judged = [judge(row, column, chance.get(row.quantity.name, Chance())) for row in rows if row.quantity.uses]
    known = {row.quantity.name for row in rows}
    return [
        JudgedUse(use, sorted((e for e in judged if name in e.quantity.uses), key=lambda e: e.badness, reverse=True))
        for name, use in USES.items()
        if not use.needs or not known.isdisjoint(use.needs)
    ]
