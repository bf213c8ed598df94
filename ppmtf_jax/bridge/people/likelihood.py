"""Exact probabilities of traces under the law of people who remember, in float64.

Given the person (class of mobility, home, second place), the probability of a trace is a product over its steps. The
probability of the trace is the sum over all persons. A home or second place that is not in the trace does not matter,
since a person draws it only when she is there for the first time. So for each class of mobility, the sum has at most
(distinct places + 1)^2 + 1 terms.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

from ppmtf_jax.bridge.people.law import (
    DWELL_FROM,
    ELSEWHERE,
    HOME,
    LEAST_WEIGHT,
    MOST_ATTRACTION,
    MOST_REMEMBERED,
    SECOND,
    PersonLaw,
)
from ppmtf_jax.data.runs import joined_ranges
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads
from ppmtf_jax.trace_models.base import ABSENT

TRACES_AT_A_TIME = 64
NUMBERS_AT_A_TIME = 2**21
"""Maximum number of entries of an array of probabilities of steps."""


def log_traces(
    law: PersonLaw,
    places: Int[np.ndarray, "trace instant"],
    clusters: Int[np.ndarray, " cluster"],
    *,
    progress: bool = False,
) -> Float[np.ndarray, "trace cluster"]:
    """Log-probability of each trace under the law of each given cluster.

    For a complete trace, the result is exact. For a trace with gaps, it is the logarithm of a product over the events.
    Each factor is a probability of the event given the events before it, and sums to one over the places of the event:

    - The layer changes through the gap by the product of its transition matrices. The chain of layers begins at instant
      0, even if the first event is later. If the first event is elsewhere, its place has the distribution of instant 0.
    - A person who was elsewhere before the gap may have stayed at her place. The probability of this is the product of
      the probabilities of staying over all instants of the gap. Otherwise she left her place. Then a single step from
      this place leads to her next place, which may also be the same place again.

    Parameters
    ----------
    law : PersonLaw
    places : int array, shape (traces, instants)
        Index of the place at each instant from instant 0 on, `ABSENT` where there is no event.
    clusters : int array, shape (clusters,)

    Returns
    -------
    float array, shape (traces, clusters)
        In nats; minus infinity if the law never makes the trace.

    Raises
    ------
    InputError
        Places that do not exist.
    """
    exact = _Exact(law, clusters)
    places = np.asarray(places)
    if places.size and not ABSENT <= places.min() <= places.max() < law.n_places:
        raise InputError("traces", [Problem(f"places from 0 to {law.n_places - 1}", "others")])
    if not len(places):
        return np.zeros((0, len(clusters)))
    # Traces with similar numbers of distinct places are computed together, since shorter rows are padded.
    order = np.argsort(_n_distinct(places), kind="stable")
    blocks = np.split(order, np.arange(TRACES_AT_A_TIME, len(order), TRACES_AT_A_TIME))
    found = np.empty((len(places), len(clusters)))
    with progress_bar("likelihoods of the traces", len(places), show=progress) as advance:
        for block, values in zip(
            blocks, map_in_threads(lambda block: exact.log_traces(places[block]), blocks), strict=True
        ):
            found[block] = values
            advance(len(block))
    return found


def held_out(
    law: PersonLaw,
    places: Int[np.ndarray, "trace instant"],
    user: Int[np.ndarray, " trace"],
    *,
    progress: bool = False,
) -> Float[np.ndarray, " user"]:
    """Log-probability of the traces of each user, whose cluster is unknown; it is large if the law predicts them well.

    The probability of each cluster is its share of the training users. All traces of a user have the same cluster.
    Apart from that, each trace is that of a new person.

    Parameters
    ----------
    law : PersonLaw
    places : int array, shape (traces, instants)
        Traces with or without gaps, see `log_traces`.
    user : int array, shape (traces,)
        User of each trace: 0, 1, and so on.

    Returns
    -------
    float array, shape (users,)
        In nats.
    """
    n_present = np.asarray(law.n_present, np.float64)
    clusters = np.flatnonzero(n_present)
    of_user = np.zeros((int(user.max()) + 1, len(clusters)))
    np.add.at(of_user, user, log_traces(law, places, clusters, progress=progress))
    return np.asarray(logsumexp(of_user + np.log(n_present[clusters] / n_present.sum()), axis=1))


def _n_distinct(places: Int[np.ndarray, "trace instant"]) -> Int[np.ndarray, " trace"]:
    """Number of distinct places of each trace."""
    ordered = np.sort(places, axis=1)
    is_first = np.diff(ordered, axis=1, prepend=ABSENT) != 0
    return is_first.sum(axis=1)


class _Events(NamedTuple):
    """Events of some traces, in the order of time; entries after a trace's last event have the place `ABSENT`.

    The *number* of a place counts the distinct places of a trace in the order of their first events: 0, 1, ...
    """

    place: Int[np.ndarray, "trace event"]
    instant: Int[np.ndarray, "trace event"]
    distinct: Int[np.ndarray, "trace number"]  # the place of each number, `ABSENT` after the last number
    number: Int[np.ndarray, "trace event"]
    known: Int[np.ndarray, "trace event"]  # number of distinct places of the earlier events
    begin: Int[np.ndarray, "trace event"]  # first event of the run of events at the same place
    arrivals: Int[np.ndarray, "trace event number"]  # number of runs of events at each place that began so far

    @classmethod
    def of(cls, places: Int[np.ndarray, "trace instant"]) -> _Events:
        n_events = max(1, int((places != ABSENT).sum(axis=1).max(initial=0)))
        instant = np.argsort(places == ABSENT, axis=1, kind="stable")[:, :n_events]
        place = np.take_along_axis(places, instant, axis=1).astype(np.int64)
        events = np.arange(n_events)
        is_same = place[:, :, None] == place[:, None]
        first = np.argmax(is_same, axis=2)
        is_first = (first == events) & (place != ABSENT)
        number = np.where(place == ABSENT, ABSENT, np.take_along_axis(np.cumsum(is_first, axis=1) - 1, first, axis=1))
        known = np.cumsum(is_first, axis=1) - is_first
        distinct = np.full((len(place), max(1, int(is_first.sum(axis=1).max()))), ABSENT)
        trace, event = np.nonzero(is_first)
        distinct[trace, number[trace, event]] = place[trace, event]
        arrives = np.diff(place, axis=1, prepend=ABSENT - 1) != 0
        begin = np.maximum.accumulate(np.where(arrives, events, 0), axis=1)
        at_number = number[:, :, None] == np.arange(distinct.shape[1])
        arrivals = np.cumsum(at_number & arrives[:, :, None], axis=1)
        return cls(place, instant, distinct, number, known, begin, arrivals)


class _Anchor(NamedTuple):
    """Probabilities, in each cluster, that an anchor (home or second place) is the place of a number.

    The anchor is drawn when all places with smaller numbers are visited. `alone`: the other anchor is not drawn yet.
    `beside`: the other anchor is the place of the number `other`. `none_alone`, `none_beside`: whether no place is left
    for the anchor, if `known` distinct places are visited.
    """

    alone: Float[np.ndarray, "trace number cluster"]
    beside: Float[np.ndarray, "trace number other cluster"]
    none_alone: Bool[np.ndarray, "trace known cluster"]
    none_beside: Bool[np.ndarray, "trace known other cluster"]

    def log_entry(self, trace: np.ndarray, own: np.ndarray, other: np.ndarray) -> Float[np.ndarray, "person cluster"]:
        """Log-probability of the anchor of each person; 0 if the anchor is not in the trace."""
        is_beside = (other != ABSENT) & (other < own)
        drawn = np.where(is_beside[:, None], self.beside[trace, own, other], self.alone[trace, own])
        return np.log(np.where((own == ABSENT)[:, None], 1, drawn))

    def is_barred(
        self, trace: np.ndarray, known: np.ndarray, own: np.ndarray, other: np.ndarray
    ) -> Bool[np.ndarray, "person step cluster"]:
        """Whether no place is left for the anchor of a person at a step, and she does not have this anchor yet."""
        own, other = own[:, None], other[:, None]
        is_beside = (other != ABSENT) & (other < known)
        none_left = np.where(
            is_beside[..., None],
            self.none_beside[trace[:, None], known, other],
            self.none_alone[trace[:, None], known],
        )
        return none_left & ((own == ABSENT) | (own >= known))[..., None]


class _Persons(NamedTuple):
    """Persons who may have made the traces.

    `home`, `second`: numbers of the home and of the second place, `ABSENT` if this place is not in the trace. The
    persons of a trace stand next to each other.
    """

    trace: Int[np.ndarray, " person"]
    home: Int[np.ndarray, " person"]
    second: Int[np.ndarray, " person"]
    has_second: Int[np.ndarray, " person"]

    @classmethod
    def of(cls, n_distinct: Int[np.ndarray, " trace"], *, anchors: bool) -> _Persons:
        of_traces = [_persons_of_trace(int(n) if anchors else 0) for n in n_distinct]
        trace = np.repeat(np.arange(len(of_traces)), [persons.shape[1] for persons in of_traces])
        return cls(trace, *np.concatenate(of_traces, axis=1))


@cache
def _persons_of_trace(n_anchors: int) -> Int[np.ndarray, "3 person"]:
    """Home, second place and `has_second` of all persons; only numbers below `n_anchors` can be an anchor."""
    numbers = np.arange(ABSENT, n_anchors)
    home, second, has_second = (x.ravel() for x in np.meshgrid(numbers, numbers, [0, 1], indexing="ij"))
    exists = ((home != second) | (home == ABSENT)) & ((second == ABSENT) | (has_second == 1))
    return np.stack([home, second, has_second])[:, exists]


class _Steps(NamedTuple):
    """Probabilities and weights of the steps from event to event that all persons of a trace share.

    `layers`: probabilities of the layer after the step, given the layer before it. `elsewhere`: probability of being
    elsewhere during the whole step. `pair`: index of the step in `layers` and `elsewhere`. `stays`, `leaves`:
    probabilities of staying at the place and of leaving it, for a person who is elsewhere during the whole step.
    `returns`: weight of going back to the place of each number; `chosen`: weight of going back to the next place.
    `new`: probability of the next place among the new places, 0 if it is not new. `has_new`: whether a new place is
    left.
    """

    valid: Bool[np.ndarray, "trace step"]
    same: Bool[np.ndarray, "trace step"]
    pair: Int[np.ndarray, "trace step"]
    layers: Float[np.ndarray, "pair 2 3 3 cluster"]
    elsewhere: Float[np.ndarray, "pair 2 cluster"]
    stays: Float[np.ndarray, "trace step cluster class"]
    leaves: Float[np.ndarray, "trace step cluster class"]
    returns: Float[np.ndarray, "trace step number"]
    chosen: Float[np.ndarray, "trace step"]
    new: Float[np.ndarray, "trace step cluster"]
    has_new: Bool[np.ndarray, "trace step cluster"]
    first: Float[np.ndarray, "trace 2 3 cluster"]  # probabilities of the layers at the first event


class _Exact:
    """The law of some clusters in float64, whose probabilities are normalized again after their rounding to float32."""

    def __init__(self, law: PersonLaw, clusters: Int[np.ndarray, " cluster"]) -> None:
        def double(value: Array) -> np.ndarray:
            return np.asarray(value, np.float64)

        self.slot_of_phase, self.cell = np.asarray(law.slot_of_phase), np.asarray(law.cell)
        self.n_places, self.period = law.n_places, len(self.slot_of_phase)
        self.last_day = len(law.stay_at_time) // self.period - 1
        self.class_share = _normalized(double(law.class_share)[clusters])
        self.second_share = double(law.second_share)[clusters]
        self.layer_first = _normalized(double(law.layer_first)[:, clusters])
        self.layer_next = _normalized(double(law.layer_next)[:, clusters])
        self.first_elsewhere = _normalized(double(law.first_elsewhere)[clusters])
        self.stay, self.stay_at_time = double(law.stay), double(law.stay_at_time)
        self.stay_by_dwell, self.stay_by_class = double(law.stay_by_dwell), double(law.stay_by_class)
        # The largest arrays stay in float32 until their entries are needed.
        self.stay_tilt, self.pull = (np.asarray(each)[:, clusters] for each in (law.stay_tilt, law.pull))
        self.discount, self.strength = float(law.discount), float(law.strength)
        self.back, self.by_lift, self.near = float(law.back), float(law.by_lift), float(law.near)
        self.lift, self.population = double(law.lift), double(law.population)
        self.seen, self.leaving, self.arriving = double(law.seen), double(law.leaving), double(law.arriving)
        self.between = double(law.between)
        self.move_start, self.next_place = np.asarray(law.move_start), np.asarray(law.next_place)
        n_moves = np.diff(self.move_start)
        self.move = np.repeat(np.arange(self.n_places), n_moves) * self.n_places + self.next_place[: n_moves.sum()]
        layers = () if law.home is None else (HOME, SECOND)
        self.anchors = []
        for alone, pull, between in map(law.anchor, layers):
            self.anchors.append((double(alone)[clusters], double(pull)[clusters], double(between)))

    def log_traces(self, places: Int[np.ndarray, "trace instant"]) -> Float[np.ndarray, "trace cluster"]:
        """Log-probability of each trace in each cluster."""
        with np.errstate(divide="ignore"):  # the logarithm of the probability 0 is minus infinity
            return self._log_traces(_Events.of(places))

    def _log_traces(self, events: _Events) -> Float[np.ndarray, "trace cluster"]:
        free = self._free(events)
        steps = self._steps(events, free)
        anchors = [self._anchor(events, free, *arrays) for arrays in self.anchors]
        persons = _Persons.of((events.distinct != ABSENT).sum(axis=1), anchors=bool(anchors))
        size = steps.stays[0].size
        at_a_time = max(1, NUMBERS_AT_A_TIME // max(1, size))
        parts = [
            self._log_of_persons(events, steps, anchors, _Persons(*(x[begin : begin + at_a_time] for x in persons)))
            for begin in range(0, len(persons.trace), at_a_time)
        ]
        first_of_trace = np.searchsorted(persons.trace, np.arange(len(events.place)))
        return np.logaddexp.reduceat(np.concatenate(parts), first_of_trace, axis=0)

    def _log_of_persons(
        self, events: _Events, steps: _Steps, anchors: list[_Anchor], persons: _Persons
    ) -> Float[np.ndarray, "person cluster"]:
        """Log-probability of the trace together with the person, for each person."""
        trace, home, second, has_second = persons
        number, known = events.number[trace], events.known[trace][:, 1:]
        layer = np.where(number == home[:, None], HOME, np.where(number == second[:, None], SECOND, ELSEWHERE))
        before, after, pair = layer[:, :-1], layer[:, 1:], steps.pair[trace]
        same = steps.same[trace][..., None]
        is_elsewhere = np.arange(events.distinct.shape[1]) != home[:, None]
        is_elsewhere &= np.arange(events.distinct.shape[1]) != second[:, None]
        returns = np.einsum("psn,pn->ps", steps.returns[trace], is_elsewhere)
        n_elsewhere = known - ((home != ABSENT)[:, None] & (home[:, None] < known))
        n_elsewhere -= (second != ABSENT)[:, None] & (second[:, None] < known)
        new = (self.strength + self.discount * n_elsewhere) * (n_elsewhere < MOST_REMEMBERED)
        total = returns[..., None] + new[..., None] * steps.has_new[trace]
        is_barred = total == 0
        goes = (steps.chosen[trace][..., None] + new[..., None] * steps.new[trace]) / np.where(is_barred, 1, total)
        goes += same & is_barred
        remains = (before == ELSEWHERE) & (after == ELSEWHERE)
        through = np.where(remains[..., None], steps.elsewhere[pair, has_second[:, None]], 0)
        step = steps.layers[pair, has_second[:, None], before, after]
        step = np.where((after == ELSEWHERE)[..., None], (step - through) * goes, step)
        if anchors:
            barred = [
                anchors[0].is_barred(trace, known, home, second),
                anchors[1].is_barred(trace, known, second, home),
                is_barred,
            ]
            for other, is_other in enumerate(barred):
                is_hers = same & is_other & (after != other)[..., None]
                if is_hers.any():
                    step = step + is_hers * steps.layers[pair, has_second[:, None], before, other]
        stays = same[..., None] * steps.stays[trace] + goes[..., None] * steps.leaves[trace]
        steps_of_class = step[..., None] + through[..., None] * stays
        log_steps = np.log(np.where(steps.valid[trace][..., None, None], steps_of_class, 1)).sum(axis=1)
        first = self._log_first(events, steps, persons, layer[:, 0])
        if anchors:
            first += anchors[0].log_entry(trace, home, second) + anchors[1].log_entry(trace, second, home)
        return first + np.logaddexp.reduce(log_steps + np.log(self.class_share), axis=2)

    def _log_first(
        self, events: _Events, steps: _Steps, persons: _Persons, layer: Int[np.ndarray, " person"]
    ) -> Float[np.ndarray, "person cluster"]:
        """Log-probability of `has_second`, and of the layer and the place elsewhere at the first event."""
        trace, has_second = persons.trace, persons.has_second
        place = events.place[trace, 0]
        share = np.where(has_second[:, None] == 1, self.second_share, 1 - self.second_share)
        at_place = np.where((layer == ELSEWHERE)[:, None], self.first_elsewhere[:, place].T, 1)
        first = steps.first[trace, has_second, layer] * at_place
        return np.log(share) + np.log(np.where((place == ABSENT)[:, None], 1, first))

    def _steps(self, events: _Events, free: Float[np.ndarray, "trace known place"]) -> _Steps:
        place, following = events.place[:, :-1], events.place[:, 1:]
        valid = following != ABSENT
        # Steps after the last event do not count; they are treated as steps from instant 0 to instant 0.
        start = np.where(valid, events.instant[:, :-1], 0)
        end = np.where(valid, events.instant[:, 1:], 0)
        first = np.where(events.place[:, :1] == ABSENT, 0, events.instant[:, :1])
        spans = np.concatenate([np.stack([start, end], axis=-1), np.stack([0 * first, first], axis=-1)], axis=1)
        distinct, pair = np.unique(spans.reshape(-1, 2), axis=0, return_inverse=True)
        pair = pair.reshape(spans.shape[:2])
        layers, elsewhere = self._layers(distinct)
        at_first = np.einsum("hkl,phlmk->phmk", self.layer_first, layers)
        log_stays = self._log_stays(np.where(valid, place, 0), start, end, _taken(events.instant, events.begin)[:, :-1])
        returns = self._returns(events, end)
        chosen = np.take_along_axis(returns, np.maximum(events.number[:, 1:], 0)[..., None], axis=2)[..., 0]
        new, has_new = self._new(events, end, free)
        return _Steps(
            valid,
            following == place,
            pair[:, :-1],
            layers,
            elsewhere,
            np.exp(log_stays),
            -np.expm1(log_stays),
            returns,
            chosen,
            new,
            has_new,
            at_first[pair[:, -1]],
        )

    def _layers(
        self, spans: Int[np.ndarray, "pair 2"]
    ) -> tuple[Float[np.ndarray, "pair 2 3 3 cluster"], Float[np.ndarray, "pair 2 cluster"]]:
        """For each span of time: probabilities of the layer at its end, given the layer at its start; and `elsewhere`.

        `elsewhere` is the probability of being elsewhere during the whole span, given elsewhere at its start. The spans
        are sorted, so that all spans from the same instant are computed together.
        """
        layers, elsewhere = [], []
        begin = -1
        for start, end in spans.tolist():
            if start != begin:
                begin = at = start
                product, remains = np.broadcast_to(np.eye(3), self.layer_next[:, :, 0].shape), np.ones(1)
            while at < end:
                at += 1
                step = self.layer_next[:, :, at % self.period]
                product, remains = product @ step, remains * step[..., ELSEWHERE, ELSEWHERE]
            layers.append(np.moveaxis(product, 1, -1))
            elsewhere.append(np.broadcast_to(remains, product.shape[:2]))
        return np.stack(layers), np.stack(elsewhere)

    def _time_of(self, instant: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        return np.minimum(instant // self.period, self.last_day) * self.period + instant % self.period

    def _slot_of(self, instant: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        return self.slot_of_phase[instant % self.period]

    def _log_stays(
        self,
        place: Int[np.ndarray, "trace step"],
        start: Int[np.ndarray, "trace step"],
        end: Int[np.ndarray, "trace step"],
        arrived: Int[np.ndarray, "trace step"],
    ) -> Float[np.ndarray, "trace step cluster class"]:
        """Log-probability of staying at the place at every instant after `start` until `end`."""
        log_stays = np.zeros((*place.shape, len(self.class_share), len(self.stay_by_class)))
        for more in range(1, 1 + int((end - start).max(initial=0))):
            trace, step = np.nonzero(start + more <= end)
            at, instant = place[trace, step], (start + more)[trace, step]
            time = self._time_of(instant)
            dwell = np.searchsorted(DWELL_FROM, instant - arrived[trace, step], side="right") - 1
            log_odds = self.stay[self._slot_of(instant), at] + self.stay_at_time[time] + self.stay_by_dwell[dwell]
            log_odds = log_odds[:, None] + self.stay_tilt[time, :, at]
            log_stays[trace, step] -= np.logaddexp(0, -(log_odds[:, :, None] + self.stay_by_class))
        return log_stays

    def _returns(self, events: _Events, end: Int[np.ndarray, "trace step"]) -> Float[np.ndarray, "trace step number"]:
        """Weight of going back to the place of each number; 0 for places that were not visited before."""
        arrivals, slot = events.arrivals[:, :-1], self._slot_of(end)[..., None]
        here, other = np.maximum(events.place[:, :-1, None], 0), np.maximum(events.distinct[:, None], 0)
        numbers = np.arange(events.distinct.shape[1])
        run_before = np.maximum(events.begin - 1, 0)
        before = np.where(events.begin > 0, _taken(events.number, run_before), ABSENT)[:, :-1, None]
        is_here = events.number[:, :-1, None] == numbers
        attraction = np.log(np.maximum(self._weight(slot, here, other), LEAST_WEIGHT))
        attraction = attraction - np.log(np.maximum(self.population[slot, other], LEAST_WEIGHT))
        # During a gap, a person may leave her place and go back to it.
        attraction = np.where(is_here, 0, np.clip(attraction, -MOST_ATTRACTION, MOST_ATTRACTION))
        log_factor = self.back * (before == numbers) + self.by_lift * self.lift[slot, other] + self.near * attraction
        is_old = (arrivals > 0) & (~is_here | (end - events.instant[:, :-1] > 1)[..., None])
        return np.where(is_old, (arrivals - self.discount) * np.exp(log_factor), 0)

    def _weight(
        self, slot: Int[np.ndarray, "*#shape"], place: Int[np.ndarray, "*#shape"], other: Int[np.ndarray, "*#shape"]
    ) -> Float[np.ndarray, "*#shape"]:
        """K(a, b) for given pairs of places."""
        gravity = self.leaving[slot, place] * self.between[self.cell[place], self.cell[other]]
        wanted = place * self.n_places + other
        if not len(self.move):
            return gravity * self.arriving[slot, other]
        at = np.minimum(np.searchsorted(self.move, wanted), len(self.move) - 1)
        return gravity * self.arriving[slot, other] + np.where(self.move[at] == wanted, self.seen[slot, at], 0)

    def _weights_from(self, slot: int, place: Int[np.ndarray, " step"]) -> Float[np.ndarray, "step place"]:
        """K(a, b) from given places a to all places b, in one slot."""
        near = self.between[self.cell[place]][:, self.cell]
        weight = self.leaving[slot, place][:, None] * near * self.arriving[slot]
        begin, n_moves = self.move_start[place], np.diff(self.move_start)[place]
        at, row = joined_ranges(begin, n_moves), np.repeat(np.arange(len(place)), n_moves)
        weight[row, self.next_place[at]] += self.seen[slot, at]
        return weight

    def _free(self, events: _Events) -> Float[np.ndarray, "trace known place"]:
        """1 for places that are still unvisited after the first `known` distinct places of a trace, otherwise 0."""
        n_traces, n_numbers = events.distinct.shape
        free = np.ones((n_traces, n_numbers + 1, self.n_places))
        for number in range(n_numbers):
            trace = np.flatnonzero(events.distinct[:, number] != ABSENT)
            free[trace, number + 1 :, events.distinct[trace, number]] = 0
        return free

    def _new(
        self, events: _Events, end: Int[np.ndarray, "trace step"], free: Float[np.ndarray, "trace known place"]
    ) -> tuple[Float[np.ndarray, "trace step cluster"], Bool[np.ndarray, "trace step cluster"]]:
        """Probability of the next place among new places (0 if it is not new), and whether a new place is left.

        The sum over all places is needed only if the next place is new, or if all places with a positive weight may be
        visited already.
        """
        known, number = events.known[:, 1:], events.number[:, 1:]
        new = np.zeros((*known.shape, len(self.class_share)))
        has_new = np.ones(new.shape, bool)
        time = self._time_of(end)
        is_needed = (number != ABSENT) & ((number == known) | (known >= self._n_open[time]))
        for one_time in np.unique(time[is_needed]):
            trace, step = np.nonzero(is_needed & (time == one_time))
            slot = int(self.slot_of_phase[one_time % self.period])
            weight = self._weights_from(slot, events.place[trace, step]) * free[trace, known[trace, step]]
            pull = self.pull[one_time].astype(np.float64)
            total = weight @ pull.T
            following = events.place[trace, step + 1]
            chosen = weight[np.arange(len(trace)), following][:, None] * pull[:, following].T
            new[trace, step] = chosen / _positive(total)
            has_new[trace, step] = total > 0
        return new, has_new

    @cached_property
    def _n_open(self) -> Int[np.ndarray, " time"]:
        """Lower bound of the number of places with a positive weight at each time, wherever a person is."""
        slot = self._slot_of(np.arange(len(self.pull)))
        reaches = np.all(self.leaving > 0, axis=1) & np.all(self.between > 0)
        is_open = (self.pull > 0) & (self.arriving[slot] > 0)[:, None]
        return np.where(reaches[slot], is_open.sum(axis=2).min(axis=1), 0)

    def _anchor(
        self,
        events: _Events,
        free: Float[np.ndarray, "trace known place"],
        alone: Float[np.ndarray, "cluster place"],
        pull: Float[np.ndarray, "cluster place"],
        between: Float[np.ndarray, "cell cell"],
    ) -> _Anchor:
        """Probabilities of an anchor; first index of `between`: cell of this anchor, second: cell of the other one."""
        own, numbers = events.distinct, np.arange(events.distinct.shape[1])
        cell = self.cell[own]
        total_alone = free @ alone.T
        total_beside = np.stack(
            [(free * between[self.cell][:, cell[:, other]].T[:, None]) @ pull.T for other in numbers], axis=2
        )
        chosen = np.moveaxis(alone[:, own], 0, -1)
        near = between[cell[:, :, None], cell[:, None]]
        beside = near[..., None] * np.moveaxis(pull[:, own], 0, -1)[:, :, None]
        return _Anchor(
            chosen / _positive(total_alone[:, :-1]),
            beside / _positive(total_beside[:, :-1]),
            total_alone == 0,
            total_beside == 0,
        )


def _taken(
    values: Int[np.ndarray, "trace event"], at: Int[np.ndarray, "trace event"]
) -> Int[np.ndarray, "trace event"]:
    return np.take_along_axis(values, at, axis=1)


def _positive(total: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The same numbers, with 1 instead of 0, so that 0 / 0 becomes 0 / 1."""
    return np.where(total > 0, total, 1)


def _normalized(weight: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Rows divided by their sums; rows of zeros stay zero."""
    return weight / _positive(weight.sum(axis=-1, keepdims=True))
