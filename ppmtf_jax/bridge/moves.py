"""Probabilities of next places: from stays, observed moves and gravity, weighted by the amount of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ppmtf_jax.bridge.contributions import STEP_USERS, bounded, bounded_sums, stretches, sums, used_share
from ppmtf_jax.bridge.gravity import Gravity, covered_distances, fit_gravity
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.visits import slot_kernel
from ppmtf_jax.data.time_grid import TimeGrid

LEAST_STAY, MOST_STAY = 1e-4, 0.999


class Stays(NamedTuple):
    """Probability of staying: over all places of a slot, and at each place."""

    in_slot: Float[np.ndarray, " slot"]
    at_place: Float[np.ndarray, "slot place"]


class StayCounts(NamedTuple):
    """Numbers of stays (first row) and of steps away (second row), under the rules of `contributions`."""

    in_slot: Float[np.ndarray, "2 slot"]  # all places together
    overall: Float[np.ndarray, "2 slot place"]  # only places with enough users over all slots
    in_stretch: Float[np.ndarray, "2 slot place"]  # only places with enough users in the stretch of time

    @classmethod
    def of(cls, steps: Transitions, min_users: int, stretch: Int[np.ndarray, " slot"]) -> StayCounts:
        """Count transitions; users who stay and users who step away are counted separately."""
        parts = steps.stays, steps.moves
        in_slot = np.stack([bounded_sums(part.user, part.slot, part.n_slots) for part in parts])
        overall = np.stack([_used_at_places(part, min_users, np.zeros_like(stretch)) for part in parts])
        return cls(in_slot, overall, np.stack([_used_at_places(part, min_users, stretch) for part in parts]))


def stay_rates(counts: StayCounts, mass: float, kernel: Float[np.ndarray, "slot slot"]) -> Stays:
    """Rates of staying, smoothed over slots (see `slot_kernel`).

    The rate at a place is shrunk towards the slot's rate times the place's lift; `mass` is the weight of this prior, in
    steps. The lift of a place is its rate over all slots, divided by the rate expected from its slots.
    """
    stays, steps = counts.in_slot[0], counts.in_slot.sum(axis=0)
    overall = (stays.sum() + 0.5) / (steps.sum() + 1)
    in_slot = (kernel @ stays + overall) / (kernel @ steps + 1)
    expected = (counts.overall.sum(axis=0) * in_slot[:, None]).sum(axis=0)
    lift = (counts.overall[0].sum(axis=0) + mass) / (expected + mass)
    prior = np.clip(in_slot[:, None] * lift, LEAST_STAY, MOST_STAY)
    at_place = (kernel @ counts.in_stretch[0] + mass * prior) / (kernel @ counts.in_stretch.sum(axis=0) + mass)
    return Stays(in_slot, np.clip(at_place, LEAST_STAY, MOST_STAY))


def _used_at_places(
    steps: Transitions, min_users: int, stretch: Int[np.ndarray, " slot"]
) -> Float[np.ndarray, "slot place"]:
    """Number of steps from each place in each slot; 0 if too few users make such steps in the stretch of time."""
    group = steps.in_slot_and_place(stretch)
    weight, users = bounded(steps.user, group, (int(stretch.max()) + 1) * steps.n_places)
    used = weight * used_share(users, min_users)[group]
    return sums(steps.in_slot_and_place(), used, steps.n_slots * steps.n_places).reshape(steps.n_slots, steps.n_places)


class MoveSmoothing(NamedTuple):
    """Weights of priors against observed counts, in steps from a place; and the bandwidth over slots."""

    gravity_mass: float  # weight of gravity, as prior of the moves of all slots
    slot_mass: float  # weight of the moves of all slots, as prior of the moves of one slot
    stay_mass: float  # weight of the prior of a place's rate of staying, see `stay_rates`
    slot_bandwidth: float  # see `visits.slot_kernel`


@dataclass(frozen=True, eq=False)
class SeenMoves:
    """Sorted pairs of places between which enough users moved, and the numbers of moves.

    `overall` counts pairs with enough users over all slots, `count` only those with enough users also in the stretch of
    time.
    """

    place: Int[np.ndarray, " pair"]
    next_place: Int[np.ndarray, " pair"]
    count: Float[np.ndarray, "slot pair"]
    overall: Float[np.ndarray, " pair"]
    n_places: int

    @classmethod
    def of(cls, moves: Transitions, min_users: int, stretch: Int[np.ndarray, " slot"]) -> SeenMoves:
        """Count the moves between pairs of places with at least `min_users` users."""
        pair, which = np.unique(moves.pair, return_inverse=True)
        weight, users = bounded(moves.user, which, len(pair))
        enough = users >= min_users
        overall = (sums(which, weight, len(pair)) * used_share(users, min_users))[enough]
        kept, number = enough[which], np.cumsum(enough) - 1
        moves, which = moves.where(kept), number[which[kept]]
        place, next_place = (each.astype(np.int32) for each in np.divmod(pair[enough], moves.n_places))
        shape = (moves.n_slots, len(place))
        group = stretch[moves.slot].astype(np.int64) * len(place) + which
        weight, users = bounded(moves.user, group, (int(stretch.max()) + 1) * len(place))
        cell = moves.slot.astype(np.int64) * len(place) + which
        count = sums(cell, weight * used_share(users, min_users)[group], shape[0] * shape[1]).reshape(shape)
        return cls(place, next_place, count, overall, moves.n_places)

    def from_place(self, count: Float[np.ndarray, "row pair"]) -> Float[np.ndarray, "row place"]:
        """Sums over the pairs that leave each place."""
        return np.array([sums(self.place, row, self.n_places) for row in count]).reshape(len(count), self.n_places)

    def find(self, moves: Transitions) -> tuple[Int[np.ndarray, " step"], Bool[np.ndarray, " step"]]:
        """Index of each move's pair, and whether the pair exists."""
        pairs = self.place.astype(np.int64) * self.n_places + self.next_place
        if not len(pairs):
            return np.zeros(len(moves), np.int64), np.zeros(len(moves), bool)
        at = np.minimum(np.searchsorted(pairs, moves.pair), len(pairs) - 1)
        return at, pairs[at] == moves.pair


class MoveCounts(NamedTuple):
    """Counts of stays and moves, and gravity, before smoothing.

    `covered` is the share of the moves in each bin of distance (always positive), `bin` the bin of each pair of cells.
    """

    stays: StayCounts
    seen: SeenMoves
    population: Float[np.ndarray, "slot place"]
    gravity: Gravity
    covered: Float[np.ndarray, " bin"]
    bin: Int[np.ndarray, "cell cell"]
    space: Space
    time_grid: TimeGrid

    @classmethod
    def of(
        cls,
        steps: Transitions,
        population: Float[np.ndarray, "slot place"],
        space: Space,
        time_grid: TimeGrid,
        min_users: int = STEP_USERS,
    ) -> MoveCounts:
        """Count transitions."""
        moves, stretch = steps.moves, stretches(time_grid)
        cells = space.cell[moves.place], space.cell[moves.next_place]
        gravity = fit_gravity(moves, population, space)
        # Two bins of gravity form one bin here, so that every bin has many moves.
        bins = gravity.bin // 2
        covered = covered_distances(moves, bins[cells], int(bins.max()) + 1)
        stays, seen = StayCounts.of(steps, min_users, stretch), SeenMoves.of(moves, min_users, stretch)
        return cls(stays, seen, population, gravity, covered / covered.sum(), bins, space, time_grid)


@dataclass(frozen=True, eq=False)
class Movement:
    """Smoothed probabilities of next places, the same for all users: K of `chains`.

    A step that does not stay goes from a to b with probability seen_s(a, b) + gravity_s(a) p(s, b) f(a, b); f is
    `Gravity.between`. Slots are those of arrival.
    """

    counts: MoveCounts
    stays: Stays
    seen: Float[np.ndarray, "slot pair"]
    gravity: Float[np.ndarray, "slot place"]

    @classmethod
    def of(cls, counts: MoveCounts, smoothing: MoveSmoothing) -> Movement:
        """Shrink the moves of a slot towards the moves of all slots, and the moves of all slots towards gravity.

        D(b | a) = (N(a, b) + t_d g(b | a)) / (N(a) + t_d), M_s(b | a) = (N_s(a, b) + t_s D(b | a)) / (N_s(a) + t_s),
        where N counts the observed moves, N_s is N smoothed over slots, and t_d and t_s are `gravity_mass` and
        `slot_mass`.
        """
        kernel, seen = slot_kernel(counts.time_grid, smoothing.slot_bandwidth), counts.seen
        in_slot, from_overall = kernel @ seen.count, seen.from_place(seen.overall[None])[0]
        of_slot = 1 / (seen.from_place(in_slot) + smoothing.slot_mass)
        of_overall = smoothing.slot_mass / (from_overall + smoothing.gravity_mass)
        weights = (in_slot + seen.overall * of_overall[seen.place]) * of_slot[:, seen.place]
        leaving, attraction = of_overall * smoothing.gravity_mass * of_slot, counts.gravity.attraction
        gravity = np.divide(leaving, attraction, out=np.zeros_like(leaving), where=attraction > 0)
        return cls(counts, stay_rates(counts.stays, smoothing.stay_mass, kernel), weights, gravity)

    def log_probabilities(self, steps: Transitions) -> Float[np.ndarray, " step"]:
        """Log-probability of the next place of each transition, given its place and slot."""
        counts, slot, place, next_place = self.counts, steps.slot, steps.place, steps.next_place
        at, found = counts.seen.find(steps)
        seen = np.where(found, self.seen[slot, at] if len(counts.seen.place) else 0, 0)
        cell = counts.space.cell
        near = counts.gravity.between[cell[place], cell[next_place]]
        moved = seen + self.gravity[slot, place] * counts.population[slot, next_place] * near
        stay = self.stays.at_place[slot, place]
        return np.log(np.where(place == next_place, stay, (1 - stay) * moved))
