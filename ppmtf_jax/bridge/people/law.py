"""Law of the remembering bridge: synthetic people with a home, a second place and a memory of places.

A person of cluster k draws whether she has a second place, and a class of mobility. Then she runs a chain of *layers*:
at home, at the second place, elsewhere. Her home (or second place) is drawn when she is there for the first time. So
places that she never visits do not enter the probability of her trace. Elsewhere she stays, goes back to a place that
she visited elsewhere before, or goes to a new place. Each newly drawn place (home, second place, new place elsewhere)
is a place where she never was. If no place is left for her next layer, she keeps her place and her layer. All people of
a cluster follow one law, so every trace is equally probable for all users of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.bridge.attraction import StoredAttraction
from ppmtf_jax.bridge.selection import MEMORIES
from ppmtf_jax.trace_models.base import PersonModel, StoredArray, stored

HOME, SECOND, ELSEWHERE = 0, 1, 2
"""Layers."""
DWELL_FROM = np.array([1, 2, 3, 5, 9, 17])
"""Lower edges of the bins of dwell time: numbers of instants at the place so far."""
MAX_REMEMBERED = 64
"""Number of places elsewhere that people remember; whoever has so many goes to no new place."""
MAX_ATTRACTION = 4.0
"""Bound of log(weight of going to a place from here / share of people at this place), for returns."""
MIN_WEIGHT = 1e-30
"""Before a logarithm is taken, smaller weights and shares are raised to this number."""


def _weights(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0)


def _shares(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, high=1)


def _anchored(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, optional=True)


class StepFormulas:
    """Formulas of a step, for the sampler in JAX and for the exact probabilities in NumPy; see `PersonLaw`.

    All arguments of a formula have shapes that broadcast. Subclasses have the arrays of `PersonLaw`.
    """

    def time_of(self: Any, instant: Any) -> Any:
        """Index of an instant on the axis `time`; periods after the last calibrated period use the last one."""
        period = len(self.slot_of_phase)
        last = len(self.stay_at_time) // period - 1
        return instant.__array_namespace__().minimum(instant // period, last) * period + instant % period

    def stay_log_odds(self: Any, slot: Any, time: Any, cluster: Any, place: Any, dwell: Any, mobility: Any) -> Any:
        """Log-odds of staying elsewhere, after `dwell` instants at the place."""
        at_place = self.stay[slot, place] + self.stay_tilt[time, cluster, place]
        bin_of = (dwell[..., None] >= DWELL_FROM).sum(axis=-1) - 1
        return at_place + self.stay_at_time[time] + self.stay_by_dwell[bin_of] + self.stay_by_class[mobility]

    def return_weight(self: Any, slot: Any, place: Any, weight: Any, arrivals: Any, is_before: Any) -> Any:
        """Weight of going back to a place; `weight` is K(a, place)."""
        xp = weight.__array_namespace__()
        attraction = xp.log(xp.maximum(weight, MIN_WEIGHT))
        attraction -= xp.log(xp.maximum(self.population[slot, place], MIN_WEIGHT))
        log_factor = self.back * is_before + self.by_lift * self.lift[slot, place]
        log_factor += self.near * xp.clip(attraction, -MAX_ATTRACTION, MAX_ATTRACTION)
        return (arrivals - self.discount) * xp.exp(log_factor)

    def new_weight(self: Any, n_elsewhere: Any) -> Any:
        """Weight of going to a new place, after `n_elsewhere` distinct places elsewhere."""
        return (self.strength + self.discount * n_elsewhere) * (n_elsewhere < max(self.remembered, 1))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class PersonLaw(StepFormulas, StoredAttraction, PersonModel):
    """Arrays of the law of people who remember.

    The axis `time` has the instants of the calibrated periods, one period after the other; see `time_of`.
    A new place b is a place that was never visited before. At time t, the weight of going from place a to b, in cluster
    k, is K_s(a, b) pull[t, k, b]. Here s is the slot of arrival, and K is that of `StoredAttraction`; its `seen` and
    `between` are also multiplied by the factors of distance.
    """

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    slot_of_phase: Int[Array, " phase"] = stored(lambda n: StoredArray(("phases",), "int", 0, n.slots - 1))
    # Probabilities of the classes of mobility, and of having a second place.
    class_share: Float[Array, "cluster class"] = stored(lambda n: _shares("clusters", "classes"))
    second_share: Float[Array, " cluster"] = stored(lambda n: _shares("clusters"))
    # Probabilities of layers. The first index says whether the person has a second place (0 no, 1 yes); `phase` is the
    # instant of arrival within the period. Without anchors, everybody is always elsewhere.
    layer_first: Float[Array, "2 cluster 3"] = stored(lambda n: _shares(2, "clusters", 3))
    layer_next: Float[Array, "2 cluster phase 3 3"] = stored(lambda n: _shares(2, "clusters", "phases", 3, 3))
    # Distribution of the first place elsewhere, if the person is elsewhere at instant 0.
    first_elsewhere: Float[Array, "cluster place"] = stored(lambda n: _weights("clusters", "places"))
    # The log-odds of staying elsewhere are the sum of five terms: by slot and place; by time; by time, cluster and
    # place; by bin of dwell time; by class of mobility.
    stay: Float[Array, "slot place"] = stored(lambda n: StoredArray(("slots", "places")))
    stay_at_time: Float[Array, " time"] = stored(lambda n: StoredArray(("times",)))
    stay_tilt: Float[Array, "time cluster place"] = stored(lambda n: StoredArray(("times", "clusters", "places")))
    stay_by_dwell: Float[Array, " dwell"] = stored(lambda n: StoredArray((len(DWELL_FROM),)))
    stay_by_class: Float[Array, " class"] = stored(lambda n: StoredArray(("classes",)))
    # Returns. So far, the person arrived n_j times at place j, and visited D distinct places elsewhere. Her current
    # place is a. The weight of going back to another place j is (n_j - discount) exp(back [j was the place before a] +
    # by_lift lift[s, j] + near log(K_s(a, j) / population[s, j])), where the logarithm is bounded by MAX_ATTRACTION.
    # The weight of going to a new place is strength + discount D.
    discount: Float[Array, ""] = stored(lambda n: _shares())
    strength: Float[Array, ""] = stored(lambda n: _weights())
    back: Float[Array, ""] = stored(lambda n: StoredArray(()))
    by_lift: Float[Array, ""] = stored(lambda n: StoredArray(()))
    near: Float[Array, ""] = stored(lambda n: StoredArray(()))
    lift: Float[Array, "slot place"] = stored(lambda n: StoredArray(("slots", "places")))
    population: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    pull: Float[Array, "time cluster place"] = stored(lambda n: _weights("times", "clusters", "places"))
    # Anchors; None for a law without anchors. The first anchor of a person is drawn from `home` or `second`. If her
    # other anchor is drawn already, the weight of second place w given home h is anchor_between[cell(h), cell(w)]
    # second_pull[w], and the weight of home h given second place w is anchor_between[cell(h), cell(w)] home_pull[h].
    # Places visited before are excluded.
    home: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    second: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    home_pull: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    second_pull: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    anchor_between: Float[Array, "cell cell"] | None = stored(lambda n: _anchored("cells", "cells"), default=None)
    # Maximum number of places elsewhere that a person remembers. If it is 0, every move goes to a "new" place, which
    # may be an old one.
    remembered: int = stored(lambda n: StoredArray((), "int", 0, MAX_REMEMBERED), static=True, default=MAX_REMEMBERED)
    # How far the simulated people of the last round of calibration are from the targets: difference between the shares
    # of returns, and total variation between the distances of moves; None for a law that was not calibrated.
    residual: Float[Array, " 2"] | None = stored(lambda n: StoredArray((2,), low=0, optional=True), default=None)
    # As in `synthesizers.bridge_model.ClusterBridge`.
    memory_gain: Float[Array, " memory"] | None = stored(
        lambda n: StoredArray((len(MEMORIES),), optional=True), default=None
    )
    # As in `synthesizers.bridge_model.ClusterBridge`; None for a law that was not learned from traces.
    chosen: Float[Array, " setting"] | None = stored(lambda n: StoredArray(("settings",), optional=True), default=None)

    @property
    def n_places(self) -> int:
        return self.first_elsewhere.shape[1]

    @property
    def most_places(self) -> int:
        """Maximum number of distinct places of a trace: those that a person remembers, and her anchors.

        People who remember nothing may visit all places.
        """
        if not self.remembered:
            return self.n_places
        return self.remembered + (0 if self.home is None else 2)

    def phase_of(self, instant: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
        """Instant within its period."""
        return instant % len(self.slot_of_phase)

    def n_open(self) -> Int[np.ndarray, "time cluster"]:
        """Lower bound of the number of places b with K(a, b) pull(b) > 0, for any place a."""
        slot = np.asarray(self.slot_of_phase)[np.arange(len(self.pull)) % len(self.slot_of_phase)]
        reaches = np.all(np.asarray(self.leaving) > 0, axis=1) & np.all(np.asarray(self.between) > 0)
        is_open = (np.asarray(self.pull) > 0) & (np.asarray(self.arriving) > 0)[slot][:, None]
        return np.where(reaches[slot][:, None], is_open.sum(axis=2), 0)

    def anchor(self, layer: int) -> tuple[Array, Array, Array]:
        """Arrays that draw an anchor: probabilities if it is drawn first; pulls and factors of distance otherwise.

        The first index of the factors is the cell of this anchor, the second the cell of the other anchor. Only for a
        law with anchors.
        """
        arrays: tuple[Any, Any, Any] = (self.home, self.home_pull, self.anchor_between)
        if layer == SECOND:
            arrays = (self.second, self.second_pull, jnp.swapaxes(self.anchor_between, 0, 1))  # type: ignore[arg-type]
        return arrays
