"""Friends: how often, when and where they meet, and how many friends people have.

Two users are seen together at an instant if both have an event at this instant. They meet if both events are at the
same place. The instants of one period at which two friends are seen together form a window (see `data.windows`). Real
users are seen at some instants only, synthetic users at all instants. So at each instant of the period, synthetic pairs
are weighted by the number of test pairs seen at this instant. For the number of meetings of two friends, each window of
synthetic friends is thinned to the instants of a random window of test friends (fixed seed). One bias remains: real
friends may be seen because they check in when they meet, while synthetic users are always seen.

A split of the users removes friendships: a friendship remains only if both users are in the same part. Every pair of
friends, and every triple of users, is equally likely to remain, so estimates for pairs and triples are not biased. But
in a smaller part, users have fewer friends. So the numbers of friends are expected numbers among as many users as the
smaller set has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import scipy  # loads `scipy.stats`, which takes half a second, when it is first used

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph, friendship_probability
from ppmtf_jax.colocation.metrics import (
    at_one_place,
    category_counts,
    clustering_coefficient,
    degree_distribution,
    degrees_in_part,
    pairs_together,
)
from ppmtf_jax.data.measurement import Comparison, Interpretation, NoSettings, caveat_if
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.evaluation.distributions import (
    mean_errors,
    pair_counts,
    variation,
    variation_of_counts,
    variation_of_samples,
)
from ppmtf_jax.evaluation.judgement import FEW_OF_PAIRS
from ppmtf_jax.evaluation.registry import (
    Undefined,
    difference_quantity,
    error_quantities,
    register_utility,
    variation_quantity,
)
from ppmtf_jax.streams import Stage, numpy_stream

Result = TypeVar("Result")
SEED = 0
# Random-stream number; groups.py uses 1 and 2.
WINDOWS = 3
APART = -1
"""The place of two friends who do not meet."""
NO_FRIENDS = "no friendships in one of the sets"
NEVER_SEEN = f"{NO_FRIENDS}, no two friends or no two strangers seen at the same time, or periods that differ"
NEVER_MET = f"{NEVER_SEEN}, or no meetings"


class Encounters(NamedTuple):
    """When pairs of users are seen at the same time, and where they meet.

    A window of `friends` is a pair of friends in one period: `user` is the row of the pair in the friendship graph, the
    events are the instants at which both are seen, and the place of an event is their meeting place, or `APART`.
    `strangers_seen` and `strangers_met` count, for each instant of a period, the pairs of non-friends who are both
    seen, and who meet.
    """

    friends: Windows
    strangers_seen: np.ndarray
    strangers_met: np.ndarray

    @classmethod
    def of(cls, traces: Traces) -> Encounters:
        """The encounters of the users of traces with friendships."""
        graph, grid, anywhere = FriendGraph.of(traces), traces.time_grid, at_one_place(traces)
        seen, met = find_colocations(anywhere, graph), find_colocations(traces, graph)
        code = np.sort(seen.pair * grid.n_instants + seen.instant)
        place = np.full(len(code), APART, np.int32)
        place[np.searchsorted(code, met.pair * grid.n_instants + met.instant)] = met.place
        pair, instant = np.divmod(code, grid.n_instants)
        number, phase = np.divmod(instant, grid.period)
        of_pair, window = np.unique(pair * grid.n_instants + number, return_inverse=True)
        user = (of_pair // grid.n_instants).astype(np.int32)
        columns = window.astype(np.int32), phase.astype(np.int32), place, user
        phase_of_instant = np.arange(grid.n_instants) % grid.period
        strangers = (
            np.bincount(phase_of_instant, pairs_together(all_) - np.bincount(part.instant, minlength=grid.n_instants))
            for all_, part in ((anywhere, seen), (traces, met))
        )
        friends = Windows(*columns, traces.places, grid.one_period())
        return cls(friends, *(each.astype(np.int64) for each in strangers))

    def friends_seen(self) -> np.ndarray:
        """Number of pairs of friends who are seen at each instant of a period, shape (instants of a period,)."""
        return np.bincount(self.friends.phase, minlength=self.friends.time_grid.n_instants)

    def friends_met(self) -> np.ndarray:
        """Number of meetings of friends by instant of a period and place, shape (instants of a period, places)."""
        met = self.friends.place != APART
        shape = self.friends.time_grid.n_instants, len(self.friends.places)
        return pair_counts(self.friends.phase[met], self.friends.place[met], shape).toarray()

    def meetings_per_window(self) -> np.ndarray:
        """Number of meetings of the two friends of each window, shape (windows,)."""
        return np.bincount(self.friends.window, self.friends.place != APART, self.friends.n_windows).astype(np.int64)


class _Meetings(NamedTuple):
    """Rates of meetings (of friends, of strangers, log2 of the ratio), and friends' meetings by time and place."""

    rates: np.ndarray
    by_slot: np.ndarray
    met: np.ndarray

    @classmethod
    def of(cls, encounters: Encounters, like: Encounters | None = None) -> _Meetings:
        """Summarize encounters; with `like`, instants get weights as if pairs were seen as often as in `like`."""
        seen, strangers_seen = encounters.friends_seen(), encounters.strangers_seen
        weight = strangers_weight = np.ones(len(seen))
        if like is not None:
            weight, strangers_weight = (
                np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
                for part, whole in ((like.friends_seen(), seen), (like.strangers_seen, strangers_seen))
            )
        met = encounters.friends_met() * weight[:, None]
        rates = _rates(
            (met.sum(), weight @ seen),
            (strangers_weight @ encounters.strangers_met, strangers_weight @ strangers_seen),
        )
        by_slot = np.bincount(encounters.friends.time_grid.slot_of_instant, met.sum(axis=1))
        return cls(rates, by_slot, met)

    def distances(self, test: _Meetings, places: PlaceTable, of_pairs: float) -> list[float]:
        """Rates minus those of the test users, and total variations between slots, `of_pairs`, and categories."""
        known = np.full(len(places), "") if places.category is None else places.category.astype(str)
        kinds, errors = math.nan, [math.nan] * 2
        if (known != "").any():
            of_all = (category_counts(each.met.sum(axis=0, keepdims=True), places)[1][0] for each in (self, test))
            made, real = (category_counts(each.met, places)[1] for each in (self, test))
            kinds, errors = variation_of_counts(*of_all), mean_errors(made - real)
        by_slot = variation_of_counts(self.by_slot, test.by_slot)
        return [*(self.rates - test.rates).tolist(), by_slot, of_pairs, kinds, *errors]


def _rates(*met_and_seen: tuple[float, float]) -> np.ndarray:
    """Rates of meetings of friends and of strangers, and the log2 of their ratio."""
    friends, strangers = (float(met / seen) if seen > 0 else math.nan for met, seen in met_and_seen)
    return np.array([friends, strangers, math.log2(friends / strangers) if min(friends, strangers) > 0 else math.nan])


# Measured


def _applies(comparison: Comparison) -> bool:
    sets = (comparison.traces, comparison.test)
    return all(traces.friendships is not None and len(traces.friendships) > 0 for traces in sets)


def _statistics(function: Callable[[Traces], Result], comparison: Comparison) -> tuple[Result, Result]:
    """A statistic of the friendships of the measured and of the test users."""
    if not _applies(comparison):
        raise Undefined
    made, test = (comparison.statistic(function, traces) for traces in (comparison.traces, comparison.test))
    return made, test


def _measure_meetings(comparison: Comparison, settings: NoSettings) -> list[float]:
    if not same_period(comparison.traces.time_grid, comparison.test.time_grid):
        raise Undefined
    made, test = _statistics(Encounters.of, comparison)
    if not (made.friends.n_windows and test.friends.n_windows):
        raise Undefined
    like = None if comparison.pool_traces else test
    compared = made
    if like is not None:
        # Each window of two friends is thinned to the instants of a random window of real friends.
        size, n_windows = made.friends.n_windows, test.friends.n_windows
        drawn = numpy_stream(SEED, Stage.METRICS, WINDOWS).integers(n_windows, size=size)
        compared = made._replace(friends=made.friends.thinned(test.friends, drawn))
    of_pairs = variation_of_samples(compared.meetings_per_window(), test.meetings_per_window())
    return _Meetings.of(made, like).distances(_Meetings.of(test), test.friends.places, of_pairs)


def _measure_graph(comparison: Comparison, settings: NoSettings) -> list[float]:
    made, test = _statistics(FriendGraph.of, comparison)
    n_users = min(made.n_users, test.n_users)
    degrees = (degrees_in_part(graph, n_users) for graph in (made, test))
    return [_degree_variation(*degrees), clustering_coefficient(made) - clustering_coefficient(test)]


def _degree_variation(shares: np.ndarray, other: np.ndarray) -> float:
    """Total variation between shares of 0, 1, ... friends; shares of more friends than an array has are 0."""
    length = max(len(shares), len(other))
    return float(variation(*(np.pad(each, (0, length - len(each))) for each in (shares, other))))


# Uniform traces: any two users are equally likely to be friends


def _uniform_meetings(comparison: Comparison, settings: NoSettings) -> list[float]:
    encounters, places = comparison.statistic(Encounters.of, comparison.test), comparison.test.places
    if not encounters.friends.n_windows:
        raise Undefined
    chance = 1 / len(places)
    by_slot = np.bincount(encounters.friends.time_grid.slot_of_instant, encounters.friends_seen())
    # Both friends are at a given place with the probability chance^2.
    met = np.repeat(encounters.friends_seen()[:, None] * chance**2, len(places), axis=1)
    everywhere = _Meetings(_rates((chance, 1.0), (chance, 1.0)), by_slot, met)
    n_seen, n_windows = np.unique(encounters.friends.events_per_window(), return_counts=True)
    probability = (
        scipy.stats.binom.pmf(np.arange(n_seen.max() + 1)[:, None], n_seen, chance) @ n_windows / n_windows.sum()
    )
    met = np.bincount(encounters.meetings_per_window(), minlength=len(probability))
    return everywhere.distances(_Meetings.of(encounters), places, variation_of_counts(probability, met))


def _uniform_graph(comparison: Comparison, settings: NoSettings) -> list[float]:
    graph = comparison.statistic(FriendGraph.of, comparison.test)
    probability = friendship_probability(graph)
    shares = scipy.stats.binom.pmf(np.arange(graph.n_users), graph.n_users - 1, probability)
    return [_degree_variation(shares, degree_distribution(graph)), probability - clustering_coefficient(graph)]


# Caveats


def _read_meetings(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    n_meetings = comparison.statistic(Encounters.of, comparison.test).meetings_per_window().sum()
    few = caveat_if(n_meetings < FEW_OF_PAIRS, "few_values", f"Test friends meet only {n_meetings} times")
    return [Interpretation(caveats=() if each.name == "stranger_rate" else few) for each in MEETINGS]


def _read_graph(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    n_pairs = comparison.statistic(FriendGraph.of, comparison.test).n_pairs
    text = f"There are only {n_pairs} friendships among the test users"
    return [Interpretation(caveats=caveat_if(n_pairs < FEW_OF_PAIRS, "few_values", text))] * len(GRAPH)


# Registered

_difference = partial(difference_quantity, uses=("friends",))
_variation = partial(variation_quantity, uses=("friends",))
MEETINGS = (
    _difference(
        "friend_rate",
        "Friends meet",
        "How often two friends are at the same place, as a share of the instants at which both are seen: synthetic "
        "friends minus test friends.",
        "share of instants, -1 to 1",
        NEVER_SEEN,
    ),
    _difference(
        "stranger_rate",
        "Strangers meet",
        "How often two strangers are at the same place when both are seen: synthetic users minus test users.",
        "share of instants, -1 to 1",
        NEVER_SEEN,
    ),
    _difference(
        "friend_lift",
        "Friends over strangers",
        "Log2 of the ratio between how often friends and how often strangers meet: synthetic users minus test users.",
        "log2 of a ratio",
        NEVER_MET,
        "bits",
    ),
    _variation(
        "meeting_slot_tv",
        "Meeting slots",
        "Total variation between the distributions over slots of synthetic and of test friends' meetings.",
        NEVER_MET,
    ),
    _variation(
        "pair_meetings_tv",
        "Meetings of a pair",
        "Total variation between the distributions of the number of meetings of two friends in one period, at instants "
        "at which both are seen: synthetic and test friends.",
        NEVER_SEEN,
    ),
    _variation(
        "meeting_category_tv",
        "Meeting places",
        "Total variation between the distributions over place categories of synthetic and of test friends' meetings.",
        f"{NEVER_MET}, or no categories",
    ),
    *error_quantities(
        "colocation",
        "Co-location",
        "the number of meetings of friends at an instant of a period and a category of places, where synthetic friends "
        "count as if they were seen as often as test friends",
        "meetings",
        f"{NEVER_SEEN}, or no categories",
    ),
)
GRAPH = (
    _variation(
        "friends_tv",
        "Friends of a user",
        "Total variation between the distributions of the number of friends of synthetic and of test users, as "
        "expected among equally many users.",
        NO_FRIENDS,
    ),
    _difference(
        "clustering",
        "Clustering",
        "How often two friends of a user are friends of each other: synthetic users minus test users.",
        "share of pairs, -1 to 1",
        f"{NO_FRIENDS}, or nobody with two friends",
    ),
)
register_utility(
    *MEETINGS,
    name="friend_meetings",
    measure=_measure_meetings,
    uniform=_uniform_meetings,
    per_trace_number=True,
    reading=_read_meetings,
    applies=_applies,
)
register_utility(
    *GRAPH, name="friend_graph", measure=_measure_graph, uniform=_uniform_graph, reading=_read_graph, applies=_applies
)
