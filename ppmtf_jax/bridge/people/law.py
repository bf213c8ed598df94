"""Law of the remembering bridge: synthetic people with a home, a second place and a memory of places.

A person of cluster k draws whether she has a second place, and a class of mobility. Then she runs a chain of *layers*:
at home, at the second place, elsewhere. Her home and her second place are drawn when she first is there, so that places
which she never visits do not enter the probability of her trace. Elsewhere she stays, goes back to a place visited
elsewhere before, or goes to a new place. Whatever is drawn anew (home, second place, new place elsewhere) is a place
where she never was. Who should go where no place is left stays where she is, and in her layer. All people of a cluster
follow one law, so every trace is equally probable for all users of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ppmtf_jax.trace_models.base import StoredArray, stored
from ppmtf_jax.trace_models.persons import PersonModel

HOME, SECOND, ELSEWHERE = 0, 1, 2
"""Layers."""
DWELL_FROM = np.array([1, 2, 3, 5, 9, 17])
"""First number of instants at the place so far, of each bin of dwell time."""
MOST_REMEMBERED = 64
"""Greatest number of places elsewhere that a person remembers; with so many, she goes to no new place."""
MOST_ATTRACTION = 4.0
"""Bound of the logarithm of (weight of going to a place from here / share of people at the place), in a return."""
LEAST_WEIGHT = 1e-30
"""Smaller weights and shares count as this number when their logarithm is taken."""


def _weights(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0)


def _shares(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, high=1)


def _anchored(*shape: int | str) -> StoredArray:
    return StoredArray(shape, low=0, optional=True)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class PersonLaw(PersonModel):
    """Arrays of the law of people who remember.

    The axis `time` has the instants of the calibrated periods, one period after the other; see `time_of`.
    The weight of going from place a to a new place b at time t, in cluster k, is K_s(a, b) pull[t, k, b], where s is
    the slot of arrival and K_s(a, b) = leaving[s, a] between[cell(a), cell(b)] arriving[s, b] + seen[s, (a, b)], for
    every b never visited before.
    """

    cluster: Int[Array, " user"] = stored(lambda n: StoredArray((n.users,), "int", 0))
    n_present: Int[Array, " cluster"] = stored(lambda n: StoredArray(("clusters",), "int", 0))
    slot_of_phase: Int[Array, " phase"] = stored(lambda n: StoredArray(("phases",), "int", 0, n.slots - 1))
    # Probabilities of the classes of mobility, and of having a second place.
    class_share: Float[Array, "cluster class"] = stored(lambda n: _shares("clusters", "classes"))
    second_share: Float[Array, " cluster"] = stored(lambda n: _shares("clusters"))
    # Probabilities of layers: first index whether the person has a second place (0 no, 1 yes); `phase` is the instant
    # of arrival within the period. Without anchors, everybody is always elsewhere.
    layer_first: Float[Array, "2 cluster 3"] = stored(lambda n: _shares(2, "clusters", 3))
    layer_next: Float[Array, "2 cluster phase 3 3"] = stored(lambda n: _shares(2, "clusters", "phases", 3, 3))
    # Distribution of the first place elsewhere, if the person is elsewhere at instant 0.
    first_elsewhere: Float[Array, "cluster place"] = stored(lambda n: _weights("clusters", "places"))
    # Log-odds of staying elsewhere, which are added up: of slot and place, of the time, of cluster and place at the
    # time, of the bin of dwell time, of the class of mobility.
    stay: Float[Array, "slot place"] = stored(lambda n: StoredArray(("slots", "places")))
    stay_at_time: Float[Array, " time"] = stored(lambda n: StoredArray(("times",)))
    stay_tilt: Float[Array, "time cluster place"] = stored(lambda n: StoredArray(("times", "clusters", "places")))
    stay_by_dwell: Float[Array, " dwell"] = stored(lambda n: StoredArray((len(DWELL_FROM),)))
    stay_by_class: Float[Array, " class"] = stored(lambda n: StoredArray(("classes",)))
    # Returns, for n_j arrivals at place j and D places elsewhere so far: the weight of going back to j (not the current
    # place) is (n_j - discount) exp(back [j was the place before] + by_lift lift[s, j] + near log(K_s(a, j) /
    # population[s, j])), where the logarithm is bounded by MOST_ATTRACTION; the weight of a new place is strength +
    # discount D.
    discount: Float[Array, ""] = stored(lambda n: _shares())
    strength: Float[Array, ""] = stored(lambda n: _weights())
    back: Float[Array, ""] = stored(lambda n: StoredArray(()))
    by_lift: Float[Array, ""] = stored(lambda n: StoredArray(()))
    near: Float[Array, ""] = stored(lambda n: StoredArray(()))
    lift: Float[Array, "slot place"] = stored(lambda n: StoredArray(("slots", "places")))
    population: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    # New places; the arrays of K are as in `synthesizers.bridge_model.ClusterBridge`, with the factor of distance
    # multiplied in.
    cell: Int[Array, " place"] = stored(lambda n: StoredArray((n.places,), "int", 0))
    move_start: Int[Array, " place1"] = stored(lambda n: StoredArray((n.places + 1,), "int", 0, rises=True))
    next_place: Int[Array, " move1"] = stored(lambda n: StoredArray(("moves",), "int", 0, n.places))
    seen: Float[Array, "slot move1"] = stored(lambda n: _weights("slots", "moves"))
    leaving: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    arriving: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    between: Float[Array, "cell cell"] = stored(lambda n: _weights("cells", "cells"))
    pull: Float[Array, "time cluster place"] = stored(lambda n: _weights("times", "clusters", "places"))
    longest: int = field(kw_only=True, metadata={"static": True})  # greatest number of seen moves from a place
    # Anchors: None without. Probabilities of the home, and of a second place if the home is not drawn yet. A second
    # place w given the home h, and a home given the second place, have the weights anchor_between[cell(h), cell(w)]
    # times `second_pull` (of w) or `home_pull` (of h). Places visited before are excluded.
    home: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    second: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    home_pull: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    second_pull: Float[Array, "cluster place"] | None = stored(lambda n: _anchored("clusters", "places"), default=None)
    anchor_between: Float[Array, "cell cell"] | None = stored(lambda n: _anchored("cells", "cells"), default=None)

    @property
    def n_places(self) -> int:
        return self.first_elsewhere.shape[1]

    def phase_of(self, instant: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
        """Instant within its period."""
        return instant % len(self.slot_of_phase)

    def time_of(self, instant: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
        """Index of an instant in arrays by time; periods after the last calibrated period are like the last."""
        period = len(self.slot_of_phase)
        last = len(self.stay_at_time) // period - 1
        return jnp.minimum(instant // period, last) * period + instant % period

    def anchor(self, layer: int) -> tuple[Array, Array, Array]:
        """Arrays of the home or second place: probabilities alone, pulls beside the other one, factors of distance.

        The factors have the cell of this anchor first, then that of the other. Only for a law with anchors.
        """
        arrays: tuple[Any, Any, Any] = (self.home, self.home_pull, self.anchor_between)
        if layer == SECOND:
            arrays = (self.second, self.second_pull, jnp.swapaxes(self.anchor_between, 0, 1))  # type: ignore[arg-type]
        return arrays
