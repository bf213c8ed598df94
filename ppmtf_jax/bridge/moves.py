"""Probabilities of next places: from stays, observed moves and gravity, weighted by the amount of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.attraction import Attraction, Gravity, covered_distances, find_pairs, fit_gravity
from ppmtf_jax.bridge.contributions import STEP_USERS, Rows, bounded_totals, shrinkage, stretches, sums, used_share
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.transitions import Transitions
from ppmtf_jax.bridge.visits import slot_kernel
from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.time_grid import TimeGrid

Steps = Transitions | Blocks[Transitions]
MIN_STAY, MAX_STAY = 1e-4, 0.999


class Stays(NamedTuple):
    """Probability of staying: over all places of a slot, and at each place."""

    in_slot: Float[np.ndarray, " slot"]
    at_place: Float[np.ndarray, "slot place"]


class StayCounts(NamedTuple):
    """Numbers of stays (first row) and of steps away (second row), under the rules of `contributions`."""

    in_slot: Float[np.ndarray, "2 slot"]  # all places together, only slots with enough users
    overall: Float[np.ndarray, "2 slot place"]  # only places with enough users over all slots
    in_stretch: Float[np.ndarray, "2 slot place"]  # only places with enough users in the stretch of time

    @classmethod
    def of(cls, steps: Steps, min_users: int, stretch: Int[np.ndarray, " slot"]) -> StayCounts:
        """Count transitions; users who stay and users who step away are counted separately."""

        def rows(own: Transitions) -> list[Rows]:
            return [*_rows_of_steps(own.stays, stretch), *_rows_of_steps(own.moves, stretch)]

        found = bounded_totals(steps.map(rows))
        in_slot, overall, in_stretch = (np.stack([found[n].total, found[n + 3].total]) for n in range(3))
        n_places = overall.shape[2]
        for number in range(2):
            in_slot[number] *= used_share(found[3 * number].groups.users_of(len(stretch)), min_users)
            users = found[3 * number + 1].groups.users_of(n_places)
            overall[number] *= used_share(users, min_users)
            users = found[3 * number + 2].groups.users_of((int(stretch.max()) + 1) * n_places)
            in_stretch[number] *= used_share(users, min_users).reshape(-1, n_places)[stretch]
        return cls(in_slot, overall, in_stretch)


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
    prior = np.clip(in_slot[:, None] * lift, MIN_STAY, MAX_STAY)
    at_place = (kernel @ counts.in_stretch[0] + mass * prior) / (kernel @ counts.in_stretch.sum(axis=0) + mass)
    return Stays(in_slot, np.clip(at_place, MIN_STAY, MAX_STAY))


def _rows_of_steps(steps: Transitions, stretch: Int[np.ndarray, " slot"]) -> tuple[Rows, Rows, Rows]:
    """Steps counted in each slot; in each slot at each place; and there again, bounded in each stretch of time."""
    cell, shape = steps.in_slot_and_place(), (steps.n_slots, steps.n_places)
    in_slot = Rows(steps.user, steps.slot, steps.slot, shape[:1])
    overall = Rows(steps.user, steps.place, cell, shape)
    return in_slot, overall, Rows(steps.user, steps.in_slot_and_place(stretch), cell, shape)


class MoveSmoothing(NamedTuple):
    """Weights of priors against observed counts, in steps from a place; and the bandwidth over slots."""

    gravity_mass: float  # weight of gravity, as prior of the moves of all slots
    slot_mass: float  # weight of the moves of all slots, as prior of the moves of one slot
    stay_mass: float  # weight of the prior of a place's rate of staying, see `stay_rates`
    slot_bandwidth: float  # see `visits.slot_kernel`


@dataclass(frozen=True, eq=False)
class SeenMoves:
    """Sorted pairs of places between which enough users moved, and the numbers of moves.

    `overall` counts pairs with enough users over all slots, `count` those that also have them in the stretch of time.
    """

    place: Int[np.ndarray, " pair"]
    next_place: Int[np.ndarray, " pair"]
    count: Float[np.ndarray, "slot pair"]
    overall: Float[np.ndarray, " pair"]
    n_places: int

    @classmethod
    def of(cls, moves: Steps, min_users: int, stretch: Int[np.ndarray, " slot"]) -> SeenMoves:
        """Count the moves between pairs of places with at least `min_users` users."""
        ((total, pairs),) = bounded_totals(moves.map(lambda own: [Rows(own.user, own.pair)]))
        enough = pairs.n_users >= min_users
        overall = (total * used_share(pairs.n_users, min_users))[enough]
        pair, n_stretches = pairs.group[enough], int(stretch.max()) + 1

        def rows(own: Transitions) -> list[Rows]:
            at, found = find_pairs(own.pair, pair)
            slot, at = own.slot[found].astype(np.int64), at[found]
            group, cell = stretch[slot] * len(pair) + at, slot * len(pair) + at
            return [Rows(own.user[found], group, cell, (len(stretch), len(pair)))]

        ((count, groups),) = bounded_totals(moves.map(rows))
        users = groups.users_of(n_stretches * len(pair)).reshape(n_stretches, len(pair))
        n_places = moves.map(lambda own: own.n_places).first()
        place, next_place = (each.astype(np.int32) for each in np.divmod(pair, n_places))
        return cls(place, next_place, count * used_share(users, min_users)[stretch], overall, n_places)

    def from_place(self, count: Float[np.ndarray, "row pair"]) -> Float[np.ndarray, "row place"]:
        """Sums over the pairs that leave each place."""
        return np.array([sums(self.place, row, self.n_places) for row in count]).reshape(len(count), self.n_places)


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
        steps: Steps,
        population: Float[np.ndarray, "slot place"],
        space: Space,
        time_grid: TimeGrid,
        min_users: int = STEP_USERS,
    ) -> MoveCounts:
        """Count transitions."""
        moves, stretch = steps.map(lambda own: own.moves), stretches(time_grid)
        gravity = fit_gravity(moves, population, space)
        # Two bins of gravity form one bin here, so that every bin has many moves.
        bins = gravity.bin // 2
        covered = covered_distances(moves, bins, space)
        stays, seen = StayCounts.of(steps, min_users, stretch), SeenMoves.of(moves, min_users, stretch)
        return cls(stays, seen, population, gravity, covered / covered.sum(), bins, space, time_grid)


@dataclass(frozen=True, eq=False)
class Movement:
    """Smoothed probabilities of next places, the same for all users.

    A step that does not stay goes from a to b with the probability that is the weight of `attraction`.
    """

    counts: MoveCounts
    stays: Stays
    attraction: Attraction

    @classmethod
    def of(cls, counts: MoveCounts, smoothing: MoveSmoothing) -> Movement:
        """Shrink the moves of a slot towards the moves of all slots, and the moves of all slots towards gravity.

        D(b | a) = (N(a, b) + (R(a) + t_d) g(b | a)) / (S(a) + t_d) and
        M_s(b | a) = (N_s(a, b) + (R_s(a) + t_s) D(b | a)) / (S_s(a) + t_s). Here N counts the observed moves that are
        used, and L the steps away from a place that are counted (bounded, of enough users). R = max(L - sum_b N(a, b),
        0) is the rest, and S = max(L, sum_b N(a, b)), see `shrinkage`. N_s and L_s are smoothed over slots; t_d is
        `gravity_mass` and t_s `slot_mass`.
        """
        kernel, seen = slot_kernel(counts.time_grid, smoothing.slot_bandwidth), counts.seen
        in_slot, (_, away), (_, away_in_slot) = kernel @ seen.count, counts.stays.overall, counts.stays.in_stretch
        used = seen.from_place(np.vstack([seen.overall, in_slot]))
        of_overall, to_gravity = shrinkage(used[0], away.sum(axis=0), smoothing.gravity_mass)
        of_slot, to_overall = shrinkage(used[1:], kernel @ away_in_slot, smoothing.slot_mass)
        weights = in_slot * of_slot[:, seen.place] + to_overall[:, seen.place] * (seen.overall * of_overall[seen.place])
        by_gravity, total = to_overall * to_gravity, counts.gravity.total
        leaving = np.divide(by_gravity, total, out=np.zeros_like(by_gravity), where=total > 0)
        move_start = np.searchsorted(seen.place, np.arange(seen.n_places + 1))
        outer = leaving, counts.population, counts.gravity.between
        attraction = Attraction(counts.space.cell, move_start, seen.next_place, weights, *outer)
        return cls(counts, stay_rates(counts.stays, smoothing.stay_mass, kernel), attraction)

    def log_probabilities(self, steps: Transitions) -> Float[np.ndarray, " step"]:
        """Log-probability of the next place of each transition, given its place and slot."""
        slot, place, next_place = steps.slot, steps.place, steps.next_place
        moved, stay = self.attraction.pair(slot, place, next_place), self.stays.at_place[slot, place]
        return np.log(np.where(place == next_place, stay, (1 - stay) * moved))
