"""Attraction K(a, b): weight of going from place a to another place b, by observed moves, distances and population.

K_s(a, b) = leaving[s, a] between[cell(a), cell(b)] arriving[s, b] + seen[s, (a, b)], in slot s of arrival. The first
term is *gravity*: the population at b, times a factor of the distance. The second term belongs to the pairs of places
between which enough users moved. So no array of places x places is stored.

`Attraction` has these arrays in NumPy, `StoredAttraction` as a part of a trace model in JAX, and `CellKernel` one slot
of them for products. `fit_gravity` finds the factors of distance, and `Movement` weighs gravity against seen moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ops import segment_sum
from jaxtyping import Array, Float, Int
from scipy.sparse import csc_array, csr_array

from ppmtf_jax.data.runs import joined_ranges
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people.counts import (
    SeenMoves,
    StayCounts,
    Stays,
    Steps,
    Transitions,
    find_pairs,
    slot_kernel,
    stay_rates,
)
from ppmtf_jax.people.space import Space, indicator
from ppmtf_jax.people.user_bounds import STEP_USERS, Rows, bounded_totals, shrinkage, time_blocks, used_share
from ppmtf_jax.trace_models.base import StoredArray, stored
from ppmtf_jax.trace_models.sampling import find_in_row, longest_row

N_BINS = 24
QUANTILES = np.append(np.arange(1, 12) / 12, [0.94, 0.96, 0.98, 0.99])
"""Upper edges of the bins of `distance_bins`, as quantiles; rare long distances have several bins."""
# Rounds of proportional fitting; further rounds change the factors of distance by less than a thousandth.
N_ROUNDS = 30


@dataclass(frozen=True, eq=False)
class Attraction:
    """K in NumPy. The seen moves from place a have the indices from `move_start[a]` to `move_start[a + 1]`."""

    cell: Int[np.ndarray, " place"]
    move_start: Int[np.ndarray, " place1"]
    next_place: Int[np.ndarray, " move"]
    seen: Float[np.ndarray, "slot move"]
    leaving: Float[np.ndarray, "slot place"]
    arriving: Float[np.ndarray, "slot place"]
    between: Float[np.ndarray, "cell cell"]

    @cached_property
    def origin(self) -> Int[np.ndarray, " move"]:
        """The place from which each seen move leaves."""
        return np.repeat(np.arange(len(self.cell)), np.diff(self.move_start))

    @cached_property
    def _pairs(self) -> Int[np.ndarray, " move"]:
        return self.origin * len(self.cell) + self.next_place

    @cached_property
    def _seen_from(self) -> list[csr_array]:
        shape = len(self.cell), len(self.cell)
        return [csr_array((seen, self.next_place, self.move_start), shape=shape) for seen in self.seen]

    @cached_property
    def in_cell(self) -> csc_array:
        """1 where a place is in a cell, with cells as rows."""
        return indicator(self.cell, len(self.between)).T

    def pair(
        self, slot: Int[np.ndarray, "*#shape"], place: Int[np.ndarray, "*#shape"], other: Int[np.ndarray, "*#shape"]
    ) -> Float[np.ndarray, "*shape"]:
        """K(a, b) of given pairs of places."""
        at, found = find_pairs(place.astype(np.int64) * len(self.cell) + other, self._pairs)
        seen = np.where(found, self.seen[slot, at], 0) if len(self.next_place) else 0
        return gravity(self, slot, place, other) + seen

    def rows(self, slot: Int[np.ndarray, " row"], place: Int[np.ndarray, " row"]) -> Float[np.ndarray, "row place"]:
        """K(a, b) from given places a to all places b."""
        weight = gravity(self, slot[:, None], place[:, None], np.arange(len(self.cell)))
        begin, n_moves = self.move_start[place], np.diff(self.move_start)[place]
        at, row = joined_ranges(begin, n_moves), np.repeat(np.arange(len(place)), n_moves)
        weight[row, self.next_place[at]] += self.seen[slot[row], at]
        return weight

    def product(
        self, slot: int, place: Int[np.ndarray, " row"], value: Float[np.ndarray, "place cluster"]
    ) -> Float[np.ndarray, "row cluster"]:
        """Sum of K(a, b) value(b) over all places b, for given places a."""
        to_cells = self.in_cell @ (self.arriving[slot][:, None] * value)
        # A product for each row alone: its rounding does not depend on the other rows, nor on the process.
        total = self.leaving[slot, place][:, None] * (self.between[self.cell[place]][:, None] @ to_cells)[:, 0]
        return total + self._seen_from[slot][place] @ value

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of `StoredAttraction`."""
        return {
            "cell": self.cell,
            "move_start": self.move_start.astype(np.int32),
            # JAX cannot index an empty array, so one move that belongs to no place is appended.
            "next_place": np.append(self.next_place, len(self.cell)).astype(np.int32),
            "seen": np.pad(self.seen, [(0, 0), (0, 1)]),
            "leaving": self.leaving,
            "arriving": self.arriving,
            "between": self.between,
        }


def gravity(k: Attraction | StoredAttraction, slot: Any, place: Any, other: Any) -> Any:
    """K(a, b) without seen moves, in NumPy and JAX; the arguments have shapes that broadcast."""
    return k.leaving[slot, place] * k.between[k.cell[place], k.cell[other]] * k.arriving[slot, other]


def _weights(*shape: str) -> StoredArray:
    return StoredArray(shape, low=0)


@dataclass(frozen=True, eq=False)
class StoredAttraction:
    """The arrays of K in a trace model; the last entries of `next_place` may belong to no place, with weight 0."""

    cell: Int[Array, " place"] = stored(lambda n: StoredArray((n.places,), "int", 0))
    move_start: Int[Array, " place1"] = stored(lambda n: StoredArray((n.places + 1,), "int", 0, rises=True))
    next_place: Int[Array, " move1"] = stored(lambda n: StoredArray(("moves",), "int", 0, n.places))
    seen: Float[Array, "slot move1"] = stored(lambda n: _weights("slots", "moves"))
    leaving: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    arriving: Float[Array, "slot place"] = stored(lambda n: _weights("slots", "places"))
    between: Float[Array, "cell cell"] = stored(lambda n: _weights("cells", "cells"))
    longest: int = field(kw_only=True, metadata={"static": True})  # at least the number of seen moves from any place

    @staticmethod
    def longest_of(arrays: dict[str, np.ndarray]) -> int:
        """The number `longest` of stored arrays.

        Raises `ValueError`: an index is beyond the last, or the seen moves from a place do not ascend.
        """
        if arrays["cell"].max(initial=0) >= len(arrays["between"]):
            raise ValueError("cell beyond the last")
        start, next_place = arrays["move_start"], arrays["next_place"]
        if start[0] != 0 or start[-1] >= len(next_place):
            raise ValueError("moves that end beyond the last")
        origin = np.repeat(np.arange(len(start) - 1), np.diff(start))
        if (np.diff(origin * len(start) + next_place[: len(origin)]) <= 0).any():
            raise ValueError("moves from a place that do not ascend")
        return longest_row(start, len(next_place))

    def pair(self, slot: Int[Array, ""], place: Int[Array, ""], other: Int[Array, ""]) -> Float[Array, ""]:
        """K(a, b) of two places."""
        begin, end = self.move_start[place], self.move_start[place + 1]
        at, found = find_in_row(self.next_place, begin, end, other)
        return gravity(self, slot, place, other) + jnp.where(found, self.seen[slot, at], 0)

    def row(
        self, slot: Int[Array, ""], place: Int[Array, ""]
    ) -> tuple[Float[Array, " place"], Int[Array, " longest"], Float[Array, " longest"]]:
        """K from one place: gravity to each place; next places of the seen moves, and what these add."""
        near = self.between[self.cell[place]][self.cell]
        anywhere = self.leaving[slot, place] * near * self.arriving[slot]
        begin, end = self.move_start[place], self.move_start[place + 1]
        # A slice that would pass the end is shifted to the left. Moves from other places have weight 0.
        first = jnp.minimum(begin, len(self.next_place) - self.longest)
        at = first + jnp.arange(self.longest)
        next_place = jax.lax.dynamic_slice(self.next_place, (first,), (self.longest,))
        seen = jax.lax.dynamic_slice(self.seen, (slot, first), (1, self.longest))[0]
        return anywhere, next_place, jnp.where((at >= begin) & (at < end), seen, 0)

    def exact(self) -> Attraction:
        """The same arrays in NumPy, in float64."""
        n_moves = int(self.move_start[-1])
        numbers = (self.seen[:, :n_moves], self.leaving, self.arriving, self.between)
        whole = (np.asarray(each) for each in (self.cell, self.move_start, self.next_place[:n_moves]))
        return Attraction(*whole, *(np.asarray(each, np.float64) for each in numbers))

    def kernel(self, slot: Int[Array, ""], origin: Int[Array, " move1"]) -> CellKernel:
        """K of one slot, without stays. `origin`: the place from which each seen move leaves."""
        outer = self.leaving[slot], self.arriving[slot], self.between, self.cell
        return CellKernel(jnp.zeros(len(self.cell)), origin, self.next_place, self.seen[slot], *outer)


def drawn_place(drawn: Int[Array, ""], n_places: int, next_place: Int[Array, " longest"]) -> Int[Array, ""]:
    """The place of an index that was drawn among the weights of all places and of seen moves, see `row`."""
    return jnp.where(drawn < n_places, drawn, next_place[jnp.maximum(drawn - n_places, 0)])


class CellKernel(NamedTuple):
    """Weights K(a, b) of one pair of slots: stays, seen moves, and gravity between cells.

    No table of places x places is stored; `as_dense` makes one if each place is a cell.
    """

    stay: Float[Array, " place"]
    place: Int[Array, " move"]
    next_place: Int[Array, " move"]
    seen: Float[Array, " move"]
    leaving: Float[Array, " place"]
    arriving: Float[Array, " place"]
    between: Float[Array, "cell cell"]
    cell: Int[Array, " place"]

    def from_next(self, v: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """Sum over b of K(a, b) v(b)."""
        moved = segment_sum(self.seen[:, None] * v[self.next_place], self.place, len(v))
        return self.stay[:, None] * v + moved + self._gravity(v, self.arriving, self.between, self.leaving)

    def to_next(self, u: Float[Array, "place cluster"]) -> Float[Array, "place cluster"]:
        """Sum over a of u(a) K(a, b)."""
        moved = segment_sum(self.seen[:, None] * u[self.place], self.next_place, len(u))
        return self.stay[:, None] * u + moved + self._gravity(u, self.leaving, self.between.T, self.arriving)

    def _gravity(self, x: Array, inner: Array, between: Array, outer: Array) -> Float[Array, "place cluster"]:
        """Gravity of all other places: the place itself is subtracted from its cell."""
        x = inner[:, None] * x
        near = (between @ segment_sum(x, self.cell, len(between)))[self.cell]
        return outer[:, None] * jnp.maximum(near - jnp.diag(between)[self.cell, None] * x, 0)

    def as_dense(self) -> Float[Array, "place next_place"]:
        """All weights as a table."""
        places = jnp.arange(len(self.stay))
        weight = self.leaving[:, None] * self.between[self.cell][:, self.cell] * self.arriving
        weight = weight.at[self.place, self.next_place].add(self.seen)
        return weight.at[places, places].set(self.stay)


class Gravity(NamedTuple):
    """Dependence of the flow between two places on their distance."""

    bin: Int[np.ndarray, "cell cell"]  # bin of distance
    factor: Float[np.ndarray, " bin"]
    total: Float[np.ndarray, "slot place"]  # normalizing sum over all other places b of p(s, b) f(a, b)

    @property
    def between(self) -> Float[np.ndarray, "cell cell"]:
        """The factor of each pair of cells."""
        return self.factor[self.bin]


def fit_gravity(moves: Steps, population: Float[np.ndarray, "slot place"], space: Space) -> Gravity:
    """Fit g_s(b | a) ~ p(s, b) f(km(a, b)) for b not a; f is constant in bins with equal numbers of moves.

    Proportional fitting of f: if people leave each place as often as in the data, the expected number of moves in each
    bin of distance is that of the data plus one half.
    """

    def rows(own: Transitions) -> tuple[Rows, Rows]:
        between = own.cells(space)
        of_distances = Rows(own.user, np.zeros_like(between), between, space.km.shape)
        return of_distances, Rows(own.user, own.place, own.place, population.shape[1:])

    (of_pairs, _), (of_places, _) = bounded_totals(moves.map(rows))
    edges = _quantiles(space.km.ravel(), of_pairs.ravel(), np.arange(1, N_BINS) / N_BINS)
    which = np.searchsorted(edges, space.km)
    n_used = int(which.max()) + 1
    covered = covered_distances(moves, which, space)
    n_cells = len(space.km)
    leaving = np.bincount(space.cell, of_places, n_cells)
    shares = population.mean(axis=0)
    mass = np.bincount(space.cell, shares, n_cells)
    # Share of a cell's people who are at a person's own place, on average over the cell's people.
    own = np.bincount(space.cell, shares**2, n_cells) / np.maximum(mass, 1e-300) ** 2
    factor = np.ones(n_used)
    for _ in range(N_ROUNDS if of_pairs.any() else 0):
        flow = factor[which] * mass
        np.fill_diagonal(flow, np.diag(flow) * (1 - own))
        flow *= (leaving / np.maximum(flow.sum(axis=1), 1e-300))[:, None]
        expected = np.bincount(which.ravel(), flow.ravel(), n_used)
        # The factor of a bin without pairs of places does not change.
        factor *= np.divide(covered, expected, out=np.ones(n_used), where=expected > 1e-9)
        factor /= factor.mean()
    between = factor[which]
    in_cell = np.stack([np.bincount(space.cell, row, n_cells) for row in population])
    of_all = (in_cell @ between.T)[:, space.cell]
    of_others = of_all - population * np.diag(between)[space.cell]
    # If there is only one place, `of_others` is only rounding error.
    return Gravity(which, factor, np.where(of_others > 1e-9 * of_all, of_others, 0))


def covered_distances(moves: Steps, bins: Int[np.ndarray, "cell cell"], space: Space) -> Float[np.ndarray, " bin"]:
    """Bounded number of moves in each bin of distance between cells, of enough users, plus one half."""
    n_bins = int(bins.max()) + 1

    def rows(own: Transitions) -> list[Rows]:
        bin_of_move = bins.ravel()[own.cells(space)]
        return [Rows(own.user, bin_of_move, bin_of_move, (n_bins,))]

    ((total, groups),) = bounded_totals(moves.map(rows))
    return total * used_share(groups.users_of(n_bins), STEP_USERS) + 0.5


def distance_bins(n_pairs: Int[np.ndarray, "cell cell"], space: Space) -> Int[np.ndarray, "cell cell"]:
    """Bin of distance of each pair of cells: 0, 1, ... from near to far; the quantiles are those of the given pairs.

    `n_pairs`: how many pairs of places lie in each pair of cells.
    """
    bins = np.searchsorted(_quantiles(space.km.ravel(), n_pairs.ravel(), QUANTILES), space.km)
    return np.unique(bins, return_inverse=True)[1].reshape(bins.shape)


def _quantiles(value: np.ndarray, weight: np.ndarray, quantile: np.ndarray) -> np.ndarray:
    """Distinct quantiles of weighted values (none if all weights are 0); a value equal to one is in the lower bin."""
    value, weight = value[weight > 0], weight[weight > 0]
    order = np.argsort(value, kind="stable")
    reached = np.cumsum(weight[order])
    if not len(value):
        return np.zeros(0)
    return np.unique(value[order][np.searchsorted(reached, quantile * reached[-1])])


class MoveSmoothing(NamedTuple):
    """Weights of priors against observed counts, in steps from a place; and the bandwidth over slots."""

    gravity_mass: float  # weight of gravity, as prior of the moves of all slots
    slot_mass: float  # weight of the moves of all slots, as prior of the moves of one slot
    stay_mass: float  # weight of the prior of a place's rate of staying, see `stay_rates`
    slot_bandwidth: float  # see `counts.slot_kernel`


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
        moves, time_block = steps.map(lambda own: own.moves), time_blocks(time_grid)
        by_distance = fit_gravity(moves, population, space)
        # Two bins of gravity form one bin here, so that every bin has many moves.
        bins = by_distance.bin // 2
        covered = covered_distances(moves, bins, space)
        stays, seen = StayCounts.of(steps, min_users, time_block), SeenMoves.of(moves, min_users, time_block)
        return cls(stays, seen, population, by_distance, covered / covered.sum(), bins, space, time_grid)


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
        in_slot, (_, away), (_, away_in_slot) = kernel @ seen.in_slot, counts.stays.overall, counts.stays.in_time_block
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
