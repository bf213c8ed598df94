"""Exact probabilities of traces under the process of people who remember, in float64.

A *person* is a class of mobility, a home and a second place (or none). Given the person, the probability of a trace is
a product over its steps. The probability of the trace is the sum of (probability of the person x this product) over all
persons. A home or second place that is not in the trace does not matter, since it is drawn only when the person comes
there. So for each class of mobility, the sum has at most (distinct places + 1)^2 + 1 terms.

Most steps are *plain stays*: one more instant at the same place, while a place is left in every role. The probability
of a plain stay depends only on the person's class and on their role at this place. So it is computed once for each
place, role and class, and not for each person. A sum over all unvisited places is the sum over all places minus the
sum over the visited places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import logsumexp

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.people.attraction import Attraction
from ppmtf_jax.people.bins import OTHER
from ppmtf_jax.people.clusters import indicator
from ppmtf_jax.people.person import Persons, Steps, number_of_places
from ppmtf_jax.people.process import PersonProcess, StepFormulas
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.runtime.threads import map_in_threads
from ppmtf_jax.trace_models.base import ABSENT

EVENTS_AT_A_TIME = 2**16
"""Approximate maximum number of instants of the traces of a block."""
NUMBERS_AT_A_TIME = 2**18
"""Approximate maximum number of entries of an array of probabilities."""
ROWS_AT_A_TIME = 256
"""Number of sums over all places that are computed together."""
MIN_LEFT = 1e-3
"""Minimum share of a sum over all places that is left after the visited places are subtracted.

The relative error of the difference is at most the error of the sums, about 1e-13, divided by this share. If less is
left, the unvisited places are summed one by one.
"""


def log_traces(
    process: PersonProcess,
    places: Int[np.ndarray, "trace instant"],
    clusters: Int[np.ndarray, " cluster"],
    *,
    own: bool = False,
    progress: bool = False,
) -> Float[np.ndarray, "trace column"]:
    """Log-probability of each trace under the process of each given cluster; or, with `own`, of its own cluster alone.

    For a complete trace, the result is exact. For a trace with gaps, it is the logarithm of a product over the events.
    Each factor is a probability of the event given the events before. The factors of all possible places of an event
    sum to one. The rules for gaps are:

    - The probability of the role after a gap is given by the product of the transition matrices of its instants. The
      chain of roles begins at instant 0, even if the first event is later. If the first event is at one of the other
      places, this place has the distribution of instant 0.
    - A person who was at one of the other places before the gap may have stayed there. The probability of this is the
      product of the probabilities of staying over all instants of the gap. Otherwise the person left the place. Then a
      single step from this place leads to the next place, which may also be the same place again.

    `places` has the index of the place at each instant from instant 0 on, `ABSENT` where there is no event. `own`:
    there is one cluster for each trace, and the result has one column. The result is in nats; it is minus infinity if
    the process never makes the trace, such as one with more than `process.most_places` places. Raises `InputError` if a
    place does not exist.
    """
    if not process.remembered:
        found = "people who do not remember places"
        raise InputError("likelihoods of the traces", [Problem("a model of people who remember", found)])
    places, clusters = np.asarray(places), np.asarray(clusters)
    if places.size and not ABSENT <= places.min() <= places.max() < process.n_places:
        raise InputError("traces", [Problem(f"places from 0 to {process.n_places - 1}", "others")])
    parts = [(np.arange(len(places)), clusters)]
    if own:
        parts = [(np.flatnonzero(clusters == each), np.array([each])) for each in np.unique(clusters)]
    attraction, n_distinct, n_clusters = process.exact(), number_of_places(places), 1 if own else len(clusters)
    # A trace without events is certain, and nobody makes one with too many places.
    is_scored = (n_distinct > 0) & (n_distinct <= process.most_places)
    log = np.where(n_distinct > process.most_places, -np.inf, 0.0)[:, None].repeat(n_clusters, axis=1)
    blocks = (
        (exact, rows[block])
        for rows, some in parts
        for rows, exact in [(rows[is_scored[rows]], _Exact(process, attraction, some))]
        for block in _blocks(n_distinct[rows], places.shape[1], n_clusters)
    )

    def of_block(block: tuple[_Exact, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return block[1], block[0].log_traces(places[block[1]])

    with progress_bar("likelihoods of the traces", len(places), show=progress) as advance:
        for rows, found in map_in_threads(of_block, blocks):
            log[rows] = found
            advance(len(rows))
    return log


def held_out(
    process: PersonProcess, places: Int[np.ndarray, "trace instant"], user: Int[np.ndarray, " trace"]
) -> Float[np.ndarray, " user"]:
    """Log-probability of the traces of each user of unknown cluster; it is large if the process predicts them well.

    The probability of each cluster is its share of the training users. All traces of a user have the same cluster.
    Apart from that, each trace is that of a new person. `places`: traces with or without gaps, see `log_traces`.
    `user`: user of each trace, 0, 1, and so on. The result is in nats.
    """
    n_present = np.asarray(process.n_present, np.float64)
    clusters = np.flatnonzero(n_present)
    of_user = np.zeros((int(user.max()) + 1, len(clusters)))
    np.add.at(of_user, user, log_traces(process, places, clusters))
    return np.asarray(logsumexp(of_user + np.log(n_present[clusters] / n_present.sum()), axis=1))


def _blocks(n_distinct: Int[np.ndarray, " trace"], n_instants: int, n_clusters: int) -> Iterable[np.ndarray]:
    """Blocks of traces with equally many distinct places, at least one."""
    for number in np.unique(n_distinct).tolist():
        rows = np.flatnonzero(n_distinct == number)
        size = min(EVENTS_AT_A_TIME // n_instants, 4 * NUMBERS_AT_A_TIME // (number * (number + 1) * n_clusters))
        yield from np.split(rows, range(max(1, size), len(rows), max(1, size)))


class _Anchor(NamedTuple):
    """Probabilities, in each cluster, that an anchor (home or second place) is the place of each number (see `Steps`).

    The anchor is drawn when all places with smaller numbers are visited. The last axis is the number of the other
    anchor; its last entry is for people whose other anchor is not drawn yet. `none`: whether no place is left for the
    anchor after visits to `known` distinct places.
    """

    probability: Float[np.ndarray, "trace cluster number other1"]
    none: Bool[np.ndarray, "trace cluster known other1"]

    def log_entry(self, own: np.ndarray, other: np.ndarray) -> Float[np.ndarray, "trace cluster person"]:
        """Log-probability of the anchor of each person; 0 if the anchor is not in the trace."""
        drawn = self.probability[..., own, np.where(other < own, other, ABSENT)]
        return np.log(np.where(own == ABSENT, 1, drawn))

    def is_barred(
        self, trace: np.ndarray, known: np.ndarray, own: np.ndarray, other: np.ndarray
    ) -> Bool[np.ndarray, "step cluster person"]:
        """Whether no place is left for the anchor of a person at a step, and they do not have this anchor yet."""
        beside = np.where(other < known[:, None], other, ABSENT)[:, None]
        none_left = np.take_along_axis(self.none[trace, :, known], beside % self.none.shape[3], axis=2)
        return none_left & ((own == ABSENT) | (own >= known[:, None]))[:, None]

    def may_be_barred(self, trace: np.ndarray, known: np.ndarray) -> Bool[np.ndarray, " step"]:
        """Whether some person may have no place left for this anchor."""
        n_known, n_other = self.none.shape[2:]
        is_possible = np.arange(n_other) < np.arange(n_known)[:, None]
        is_possible[:, ABSENT] = True
        return (self.none & is_possible).any(axis=(1, 3))[trace, known]


class _Ways(NamedTuple):
    """Probabilities and weights of steps that do not depend on the person, except through their class and roles.

    The last axis of `roles` numbers `has_second`, the role before the step and the role after it.
    """

    steps: Steps
    roles: Float[np.ndarray, "step cluster 18"]  # probability of the role after the step, given the role before
    through: Float[np.ndarray, "step cluster 2"]  # probability of keeping the role `OTHER`; by `has_second`
    log_stays: Float[np.ndarray, "step cluster class"]  # log-probability of staying, if the role remains `OTHER`
    returns: Float[np.ndarray, "step number"]  # weight of going back to the place of each number
    chosen: Float[np.ndarray, " step"]  # weight of going back to the next place
    new: Float[np.ndarray, "step cluster"]  # probability of the next place among the new ones; 0 if it is not new
    has_new: Bool[np.ndarray, "step cluster"]  # whether a new place is left

    def to_role(
        self, persons: Persons, before: Int[np.ndarray, "step person"], after: Int[np.ndarray, "step person"] | int
    ) -> Float[np.ndarray, "step cluster person"]:
        """Probability of the role after the step for each person."""
        at = (3 * persons.has_second + before) * 3 + after
        return np.take_along_axis(self.roles, at[:, None], axis=2)


class _Exact(StepFormulas):
    """Some clusters of the process in float64; its probabilities, once rounded to float32, are normalized again."""

    def __init__(self, process: PersonProcess, attraction: Attraction, clusters: Int[np.ndarray, " cluster"]) -> None:
        def double(*arrays: Array) -> Iterable[np.ndarray]:
            return (np.asarray(array, np.float64) for array in arrays)

        def of_clusters(array: Array, axis: int = 0) -> np.ndarray:
            return np.take(np.asarray(array), clusters, axis).astype(np.float64)

        self.n_places, self.period, self.remembered = process.n_places, len(process.slot_of_phase), process.remembered
        self.slot_of_phase, self.attraction, self.cell = np.asarray(process.slot_of_phase), attraction, attraction.cell
        self.stay, self.stay_at_time = double(process.stay, process.stay_at_time)
        self.stay_by_dwell, self.stay_by_class = double(process.stay_by_dwell, process.stay_by_class)
        self.discount, self.strength, self.back = map(float, (process.discount, process.strength, process.back))
        self.by_popularity, self.near = float(process.by_popularity), float(process.near)
        self.log_popularity_ratio, self.population = double(process.log_popularity_ratio, process.population)
        self.class_share = _normalized(of_clusters(process.class_share))
        self.second_share = of_clusters(process.second_share)
        self.first_other = _normalized(of_clusters(process.first_other))
        self.role_first = _normalized(of_clusters(process.role_first, axis=1))
        self.role_next = _normalized(of_clusters(process.role_next, axis=1))
        # The largest arrays stay in float32 until their entries are needed.
        self.stay_tilt, self.pull = (np.asarray(each)[:, clusters] for each in (process.stay_tilt, process.pull))
        self.n_open = process.n_open(clusters).min(axis=1)
        anchors = map(process.anchor, process.roles[:-1])
        self.anchors = [(of_clusters(a), of_clusters(p), np.asarray(b, np.float64)) for a, p, b in anchors]

    def roles(
        self, start: Int[np.ndarray, " step"], end: Int[np.ndarray, " step"]
    ) -> tuple[Float[np.ndarray, "step cluster 18"], Float[np.ndarray, "step cluster 2"]]:
        """`roles` and `through` of `_Ways` for given spans of time."""
        # Numbers are sorted much faster than rows.
        n_ends = int(end.max(initial=0)) + 1
        spans, index = np.unique(start * n_ends + end, return_inverse=True)
        shape = len(spans), len(self.class_share)
        roles, through = np.empty((*shape, 2, 3, 3)), np.empty((*shape, 2))
        begin = at = -1
        product = remains = np.empty(0)
        # The spans are sorted, so that all spans from the same instant are computed together.
        for number, (start, end) in enumerate(zip(*np.divmod(spans, n_ends), strict=True)):
            if start != begin:
                begin = at = start
                product, remains = np.broadcast_to(np.eye(3), self.role_next[:, :, 0].shape), np.ones((2, shape[1]))
            while at < end:
                at += 1
                step = self.role_next[:, :, at % self.period]
                product, remains = product @ step, remains * step[..., OTHER, OTHER]
            roles[number], through[number] = np.moveaxis(product, 1, 0), remains.T
        return roles.reshape(*shape, 18)[index], through[index]

    def slot_of(self, instant: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        return self.slot_of_phase[instant % self.period]

    def log_stays(self, steps: Steps) -> Float[np.ndarray, "step cluster class"]:
        """Log-probability of staying at the place at every instant after the start of the step until its end."""
        cluster, mobility = np.arange(len(self.class_share))[:, None], np.arange(len(self.stay_by_class))
        log_stays = np.zeros((len(steps.place), len(cluster), len(mobility)))
        for more in range(1, 1 + int((steps.end - steps.start).max(initial=0))):
            step = np.flatnonzero(steps.start + more <= steps.end)
            instant, place, arrived = (x[step, None, None] for x in (steps.start + more, steps.place, steps.arrived))
            when = self.slot_of(instant), self.time_of(instant)
            log_odds = self.stay_log_odds(*when, cluster, place, instant - arrived, mobility)
            log_stays[step] -= np.logaddexp(0, -log_odds)
        return log_stays

    def to_all(
        self, time: Int[np.ndarray, " step"], place: Int[np.ndarray, " step"]
    ) -> Float[np.ndarray, "step cluster"]:
        """Sum of K(a, b) pull(b) over all places b."""
        total = np.empty((len(place), len(self.class_share)))
        for one_time in np.unique(time):
            rows = np.flatnonzero(time == one_time)
            slot, here = int(self.slot_of_phase[one_time % self.period]), place[rows]
            pull = self.pull[one_time].T.astype(np.float64)
            total[rows] = self.attraction.product(slot, here, pull)
        return total

    def log_traces(self, places: Int[np.ndarray, "trace instant"]) -> Float[np.ndarray, "trace cluster"]:
        """Log-probability of traces that have equally many distinct places."""
        distinct, first, steps = Steps.of(places)
        persons, n_numbers = Persons.of(distinct.shape[1], anchors=bool(self.anchors)), distinct.shape[1]
        with np.errstate(divide="ignore"):  # the logarithm of the probability 0 is minus infinity
            anchors = [self._anchor(distinct, *arrays) for arrays in self.anchors]
            # A plain stay: one instant later at the same place, while a place is left in every role.
            is_step, known = steps.end - steps.start == 1, steps.known
            has_new = (known < self.n_open[self.time_of(steps.end)]) & (self.new_weight(known) > 0)
            plain = steps.stays & is_step & has_new & (self.strength > 0)
            for anchor in anchors:
                plain &= ~anchor.may_be_barred(steps.trace, known)
            stays = steps.select(plain)
            at = (stays.trace * n_numbers + stays.number, len(places), n_numbers)
            keeps_role = _sums(np.log(np.einsum("hkpll->pkhl", self.role_next))[stays.end % self.period], *at)
            stays_at_other = _sums(self.log_stays(stays), *at)
            is_move = ~steps.stays & is_step
            moves, others = (self._ways(steps.select(x), distinct) for x in (is_move, ~plain & ~is_move))
            first_roles = self.roles(0 * first, first)[0].reshape(len(first), -1, 2, 3, 3)
            first_roles = np.einsum("hkl,tkhlm->tkhm", self.role_first, first_roles)
            log = np.full((len(places), len(self.class_share)), -np.inf)
            size = max(1, NUMBERS_AT_A_TIME // max(1, moves.log_stays.size, others.log_stays.size))
            for begin in range(0, len(persons.home), size):
                some = Persons(*(column[begin : begin + size] for column in persons))
                has_second, role = some.has_second, some.role[:, 0]
                share = np.where(has_second == 1, self.second_share[:, None], 1 - self.second_share[:, None])
                at_first = np.where(role == OTHER, self.first_other[:, distinct[:, 0]].T[..., None], 1)
                of_person = np.log(share) + np.log(first_roles[..., has_second, role] * at_first)
                for anchor, own, other in zip(anchors, some.anchors, some.anchors[::-1], strict=False):
                    of_person += anchor.log_entry(own, other)
                of_class = of_person[:, :, None] + np.log(self.class_share)[..., None]
                of_stays = np.einsum("tnkq,pn->tkqp", stays_at_other, some.is_other)
                for number, role in enumerate(some.role.T):
                    of_stays += keeps_role[:, number][..., has_second, role][:, :, None]
                of_class = of_class + of_stays
                of_class += self._log_of_moves(moves, some, len(log))
                if len(others.steps.trace):
                    of_class += self._log_of_others(others, anchors, some, len(log))
                # Sum person by person, so that rounding does not depend on the other persons and traces.
                of_person = np.moveaxis(of_class, 2, 3).reshape(*log.shape, -1)
                log = np.logaddexp.reduce(np.concatenate([log[..., None], of_person], axis=-1), axis=-1)
        return log

    def _log_of_moves(
        self, moves: _Ways, persons: Persons, n_traces: int
    ) -> Float[np.ndarray, "trace cluster class person"]:
        """Log-probability of the moves to another place from one instant to the next."""
        trace, (before, after) = moves.steps.trace, persons.roles_of(moves.steps)
        goes = np.where((after == OTHER)[:, None], self._goes(moves, persons)[0], 1)
        of_all = _sums(np.log(moves.to_role(persons, before, after) * goes), trace, n_traces)
        # The class of mobility matters only for moves from one of the other places to another.
        leaves = ((before == OTHER) & (after == OTHER))[:, None, None]
        of_class = np.where(leaves, np.log(-np.expm1(moves.log_stays))[..., None], 0)
        return of_all[:, :, None] + _sums(of_class, trace, n_traces)

    def _log_of_others(
        self, others: _Ways, anchors: list[_Anchor], persons: Persons, n_traces: int
    ) -> Float[np.ndarray, "trace cluster class person"]:
        """Log-probability of the steps over gaps, and of the stays while some role may have no place left."""
        steps, (before, after) = others.steps, persons.roles_of(others.steps)
        same = steps.stays[:, None, None]
        goes, is_barred = self._goes(others, persons)
        goes = goes + (same & is_barred)
        through = others.through[..., persons.has_second]
        through = through * ((before == OTHER) & (after == OTHER))[:, None]
        step = others.to_role(persons, before, after)
        step = np.where((after == OTHER)[:, None], (step - through) * goes, step)
        barred = [
            anchor.is_barred(steps.trace, steps.known, own, other)
            for anchor, own, other in zip(anchors, persons.anchors, persons.anchors[::-1], strict=False)
        ]
        for role, is_role_barred in enumerate([*barred, is_barred] if anchors else []):
            is_own = same & is_role_barred & (after != role)[:, None]
            step = step + is_own * others.to_role(persons, before, role)
        stays, leaves = np.exp(others.log_stays)[..., None], -np.expm1(others.log_stays)[..., None]
        of_class = step[:, :, None] + through[:, :, None] * (same[..., None] * stays + goes[:, :, None] * leaves)
        return _sums(np.log(of_class), steps.trace, n_traces)

    def _goes(
        self, ways: _Ways, persons: Persons
    ) -> tuple[Float[np.ndarray, "step cluster person"], Bool[np.ndarray, "step cluster person"]]:
        """Probability of the next place if a person goes to one of the other places; whether none is left to go to."""
        n_other = np.cumsum(persons.is_other, axis=1).T[ways.steps.known - 1]
        new = self.new_weight(n_other)[:, None]
        total = (ways.returns @ persons.is_other.T)[:, None] + new * ways.has_new[..., None]
        return (ways.chosen[:, None, None] + new * ways.new[..., None]) / _positive(total), total == 0

    def _ways(self, steps: Steps, distinct: Int[np.ndarray, "trace number"]) -> _Ways:
        slot, other, numbers = self.slot_of(steps.end)[:, None], distinct[steps.trace], np.arange(distinct.shape[1])
        weight = self.attraction.pair(slot, steps.place[:, None], other)
        is_here = steps.number[:, None] == numbers
        # During a gap, a person may leave their place and go back to it. Its nearness then has no effect on the weight.
        near = np.where(is_here, self.population[slot, other], weight)
        returns = self.return_weight(slot, other, near, steps.arrivals, steps.before[:, None] == numbers)
        is_old = (steps.arrivals > 0) & (~is_here | (steps.end - steps.start > 1)[:, None])
        returns = np.where(is_old, returns, 0)
        chosen = returns[np.arange(len(returns)), steps.following]
        new = self._new(steps, distinct, weight)
        return _Ways(steps, *self.roles(steps.start, steps.end), self.log_stays(steps), returns, chosen, *new)

    def _new(
        self, steps: Steps, distinct: Int[np.ndarray, "trace number"], weight: Float[np.ndarray, "step number"]
    ) -> tuple[Float[np.ndarray, "step cluster"], Bool[np.ndarray, "step cluster"]]:
        """Probability of the next place among new places (0 if it is not new), and whether a new place is left."""
        new = np.zeros((len(steps.place), len(self.class_share)))
        has_new = np.ones(new.shape, bool)
        time = self.time_of(steps.end)
        # The sum over all places is needed only if the next place is new, or if all may be visited already.
        at = np.flatnonzero((steps.following == steps.known) | (steps.known >= self.n_open[time]))
        known, following, place, time = steps.known[at], steps.following[at], steps.place[at], time[at]
        visited = distinct[steps.trace[at]]
        pull = np.moveaxis(self.pull[time[:, None], :, visited], 1, 2)
        of_visited = weight[at][:, None] * pull
        taken = np.where((np.arange(visited.shape[1]) < known[:, None])[:, None], of_visited, 0).sum(axis=2)

        def weights(row: np.ndarray, cluster: np.ndarray) -> np.ndarray:
            weight = self.attraction.rows(self.slot_of(time[row]), place[row]) * self.pull[time[row], cluster]
            return _without(weight, visited[row], known[row])

        left = _left(self.to_all(time, place), taken, weights)
        chosen = of_visited[np.arange(len(at)), :, following]
        new[at] = np.where((following == known)[:, None], chosen / _positive(left), 0)
        has_new[at] = left > 0
        return new, has_new

    def _anchor(
        self,
        distinct: Int[np.ndarray, "trace number"],
        alone: Float[np.ndarray, "cluster place"],
        pull: Float[np.ndarray, "cluster place"],
        between: Float[np.ndarray, "cell cell"],
    ) -> _Anchor:
        """Probabilities of an anchor; first index of `between`: cell of this anchor, second: cell of the other one."""
        cell, n_other = self.cell[distinct], distinct.shape[1]
        of_anchor, of_pull = (np.moveaxis(each[:, distinct], 0, 1)[..., None] for each in (alone, pull))
        near = between[cell[:, :, None], cell[:, None]][:, None]
        weight = np.concatenate([near * of_pull, of_anchor], axis=3)
        # Sums over all places, by the cell of the other anchor; then over those of the first 0, 1, ... numbers.
        beside = np.moveaxis((between.T @ (self.attraction.in_cell @ pull.T))[cell], 2, 1)
        to_all = np.concatenate([beside, np.broadcast_to(alone.sum(axis=1)[:, None], (*beside.shape[:2], 1))], axis=2)
        gone = np.cumsum(np.insert(weight, 0, 0, axis=2), axis=2)

        def weights(trace: np.ndarray, cluster: np.ndarray, known: np.ndarray, other: np.ndarray) -> np.ndarray:
            near = between.T[cell[trace, other % n_other]][:, self.cell] * pull[cluster]
            every = np.where((other == n_other)[:, None], alone[cluster], near)
            return _without(every, distinct[trace], known)

        left = _left(to_all[:, :, None], gone, weights)
        return _Anchor(weight / _positive(left[:, :, :-1]), left == 0)


def _left(
    all_places: Float[np.ndarray, "*#shape"], visited: Float[np.ndarray, "*shape"], weights: Callable[..., np.ndarray]
) -> Float[np.ndarray, "*shape"]:
    """Sum over the unvisited places; `weights` returns the weights of all places at given indices, 0 if visited."""
    left = all_places - visited
    few = np.argwhere((left <= MIN_LEFT * all_places) & (all_places > 0))
    for begin in range(0, len(few), ROWS_AT_A_TIME):
        some = few[begin : begin + ROWS_AT_A_TIME].T
        left[tuple(some)] = weights(*some).sum(axis=1)
    return left


def _without(
    weight: Float[np.ndarray, "row place"], visited: Int[np.ndarray, "row number"], known: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "row place"]:
    """The weights, with 0 at the first `known` visited places (at least one)."""
    at = np.where(np.arange(visited.shape[1]) < known[:, None], visited, visited[:, :1])
    np.put_along_axis(weight, at, 0, axis=1)
    return weight


def _sums(
    values: Float[np.ndarray, "row *other"], group: Int[np.ndarray, " row"], *shape: int
) -> Float[np.ndarray, "*sums"]:
    """Sums of the rows of each group, in an array of the given shape; `group` is a flat index of this shape."""
    flat = values.reshape(len(values), math.prod(values.shape[1:]))
    return (indicator(group, math.prod(shape)).T @ flat).reshape(*shape, *values.shape[1:])


def _positive(total: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The same numbers, with 1 instead of 0, so that 0 / 0 becomes 0 / 1."""
    return np.where(total > 0, total, 1)


def _normalized(weight: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Rows divided by their sums; rows of zeros stay zero."""
    return weight / _positive(weight.sum(axis=-1, keepdims=True))
