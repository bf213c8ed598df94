"""The law of people who remember in float64: its arrays, and the weights and probabilities of steps."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND, PersonLaw, StepFormulas
from ppmtf_jax.bridge.people.trails import Steps


class ExactLaw(StepFormulas):
    """The law in float64; its probabilities, which were rounded to float32, are normalized again."""

    def __init__(self, law: PersonLaw) -> None:
        def double(*arrays: Array) -> Iterable[np.ndarray]:
            return (np.asarray(array, np.float64) for array in arrays)

        self.law, self.n_places, self.period = law, law.n_places, len(law.slot_of_phase)
        self.remembered = law.remembered
        self.slot_of_phase, self.attraction = np.asarray(law.slot_of_phase), law.exact()
        self.cell = self.attraction.cell
        self.stay, self.stay_at_time = double(law.stay, law.stay_at_time)
        self.stay_by_dwell, self.stay_by_class = double(law.stay_by_dwell, law.stay_by_class)
        self.discount, self.strength = float(law.discount), float(law.strength)
        self.back, self.by_lift, self.near = float(law.back), float(law.by_lift), float(law.near)
        self.lift, self.population = double(law.lift, law.population)
        self.n_open_of_cluster = law.n_open()

    def of(self, clusters: Int[np.ndarray, " cluster"]) -> ExactLaw:
        """The law of some clusters."""
        some = copy(self)
        some._take(clusters)
        return some

    def _take(self, clusters: Int[np.ndarray, " cluster"]) -> None:
        """Set the arrays that differ between clusters."""

        def double(array: Array, axis: int = 0) -> np.ndarray:
            return np.take(np.asarray(array), clusters, axis).astype(np.float64)

        law = self.law
        self.class_share, self.second_share = normalized(double(law.class_share)), double(law.second_share)
        self.layer_first = normalized(double(law.layer_first, axis=1))
        self.layer_next = normalized(double(law.layer_next, axis=1))
        self.first_elsewhere = normalized(double(law.first_elsewhere))
        # The largest arrays stay in float32 until their entries are needed.
        self.stay_tilt, self.pull = (np.asarray(each)[:, clusters] for each in (law.stay_tilt, law.pull))
        self.n_open = self.n_open_of_cluster[:, clusters].min(axis=1)
        self.anchors = []
        for alone, pull, between in map(law.anchor, () if law.home is None else (HOME, SECOND)):
            alone, pull, between = double(alone), double(pull), np.asarray(between, np.float64)
            self.anchors.append((alone, pull, between, between.T @ (self.attraction.in_cell @ pull.T)))

    def layers_at(self, instant: Int[np.ndarray, " trace"]) -> Float[np.ndarray, "trace cluster 2 3"]:
        """Probabilities of the layers at given instants."""
        layers = self.layers(0 * instant, instant)[0].reshape(len(instant), -1, 2, 3, 3)
        return np.einsum("hkl,tkhlm->tkhm", self.layer_first, layers)

    def layers(
        self, start: Int[np.ndarray, " step"], end: Int[np.ndarray, " step"]
    ) -> tuple[Float[np.ndarray, "step cluster 18"], Float[np.ndarray, "step cluster 2"]]:
        """`layers` and `through` of `_Ways` for given spans of time."""
        # Numbers are sorted much faster than rows.
        n_ends = int(end.max(initial=0)) + 1
        spans, index = np.unique(start * n_ends + end, return_inverse=True)
        shape = len(spans), len(self.class_share)
        layers, through = np.empty((*shape, 2, 3, 3)), np.empty((*shape, 2))
        begin = at = -1
        product = remains = np.empty(0)
        # The spans are sorted, so that all spans from the same instant are computed together.
        for number, (start, end) in enumerate(zip(*np.divmod(spans, n_ends), strict=True)):
            if start != begin:
                begin = at = start
                product, remains = np.broadcast_to(np.eye(3), self.layer_next[:, :, 0].shape), np.ones((2, shape[1]))
            while at < end:
                at += 1
                step = self.layer_next[:, :, at % self.period]
                product, remains = product @ step, remains * step[..., ELSEWHERE, ELSEWHERE]
            layers[number], through[number] = np.moveaxis(product, 1, 0), remains.T
        return layers.reshape(*shape, 18)[index], through[index]

    def slot_of(self, instant: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """Slot of each instant."""
        return self.slot_of_phase[instant % self.period]

    def log_stays(self, steps: Steps) -> Float[np.ndarray, "step cluster class"]:
        """Log-probability of staying at the place at every instant after the start of the step until its end."""
        cluster, mobility = np.arange(len(self.class_share))[:, None], np.arange(len(self.stay_by_class))
        log_stays = np.zeros((len(steps.place), len(cluster), len(mobility)))
        for more in range(1, 1 + int((steps.end - steps.start).max(initial=0))):
            step = np.flatnonzero(steps.start + more <= steps.end)
            instant, place = (x[step, None, None] for x in (steps.start + more, steps.place))
            slot, time, dwell = (
                self.slot_of(instant),
                self.time_of(instant),
                instant - steps.arrived[step, None, None],
            )
            log_odds = self.stay_log_odds(slot, time, cluster, place, dwell, mobility)
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


def positive(total: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The same numbers, with 1 instead of 0, so that 0 / 0 becomes 0 / 1."""
    return np.where(total > 0, total, 1)


def normalized(weight: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Rows divided by their sums; rows of zeros stay zero."""
    return weight / positive(weight.sum(axis=-1, keepdims=True))
