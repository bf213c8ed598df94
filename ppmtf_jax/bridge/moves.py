"""Where people go from a place: stays, seen moves and gravity, each as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.contributions import STEP_USERS, bounded, stretches, sums, told
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import slot_kernel
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces

N_BINS = 24
# Rounds of proportional fitting; the factors of distance then change by less than a thousandth.
N_ROUNDS = 30
LEAST_STAY, MOST_STAY = 1e-4, 0.999


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps between consecutive instants of some users.

    Parameters
    ----------
    user, slot, place, next_place : int arrays, shape (steps,)
        The slot is that of arrival.
    n_slots, n_places : int
    """

    user: Int[np.ndarray, " step"]
    slot: Int[np.ndarray, " step"]
    place: Int[np.ndarray, " step"]
    next_place: Int[np.ndarray, " step"]
    n_slots: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces) -> Steps:
        """The transitions of some traces, see `Traces.transitions`."""
        event, user, place, next_place = traces.transitions()
        return cls(user, traces.slot[event], place, next_place, traces.time_grid.n_slots, traces.n_places)

    def of_users(self, users: Int[np.ndarray, " user"]) -> Steps:
        """Those of some users, given by sorted indices; they are numbered anew in that order."""
        found = self.where(np.isin(self.user, users))
        return replace(found, user=np.searchsorted(users, found.user))

    @property
    def stays(self) -> Steps:
        """Those that stay."""
        return self.where(self.place == self.next_place)

    @property
    def moves(self) -> Steps:
        """Those that do not."""
        return self.where(self.place != self.next_place)

    @property
    def row(self) -> Int[np.ndarray, " step"]:
        """Slot times places plus place."""
        return self.slot.astype(np.int64) * self.n_places + self.place

    @property
    def pair(self) -> Int[np.ndarray, " step"]:
        """Place times places plus next place."""
        return self.place.astype(np.int64) * self.n_places + self.next_place

    def __len__(self) -> int:
        return len(self.user)

    def where(self, keep: np.ndarray) -> Steps:
        """Some of them."""
        user, slot, place, next_place = (each[keep] for each in (self.user, self.slot, self.place, self.next_place))
        return Steps(user, slot, place, next_place, self.n_slots, self.n_places)


class Stays(NamedTuple):
    """How probable it is to stay.

    Attributes
    ----------
    in_slot : float array, shape (slots,)
        Share of all steps into a slot.
    at_place : float array, shape (slots, places)
        Of those from a place.
    """

    in_slot: Float[np.ndarray, " slot"]
    at_place: Float[np.ndarray, "slot place"]


class StayCounts(NamedTuple):
    """Stays, and steps away, as far as they are told; the first axis has stays first.

    Attributes
    ----------
    in_slot : float array, shape (2, slots)
        Of all places together.
    overall : float array, shape (2, slots, places)
        Told of each place over all slots.
    in_stretch : float array, shape (2, slots, places)
        Told of each place in each stretch of time.
    """

    in_slot: Float[np.ndarray, "2 slot"]
    overall: Float[np.ndarray, "2 slot place"]
    in_stretch: Float[np.ndarray, "2 slot place"]

    @classmethod
    def of(cls, steps: Steps, min_users: int, stretch: Int[np.ndarray, " slot"]) -> StayCounts:
        """Count steps, users of stays and of steps away each for themselves."""
        parts = steps.stays, steps.moves
        in_slot = np.stack([_in_slots(part) for part in parts])
        overall = np.stack([_told_at_places(part, min_users, np.zeros_like(stretch)) for part in parts])
        return cls(in_slot, overall, np.stack([_told_at_places(part, min_users, stretch) for part in parts]))


def stay_rates(counts: StayCounts, mass: float, kernel: Float[np.ndarray, "slot slot"]) -> Stays:
    """Rates of staying, smoothed over slots, and at a place shrunk to the slot's rate times the place's lift.

    Parameters
    ----------
    counts : StayCounts
    mass : float
        Steps that the shrinkage is worth.
    kernel : float array, shape (slots, slots)
        See `slot_kernel`.
    """
    stays, steps = counts.in_slot[0], counts.in_slot.sum(axis=0)
    overall = (stays.sum() + 0.5) / (steps.sum() + 1)
    in_slot = (kernel @ stays + overall) / (kernel @ steps + 1)
    expected = (counts.overall.sum(axis=0) * in_slot[:, None]).sum(axis=0)
    lift = (counts.overall[0].sum(axis=0) + mass) / (expected + mass)
    prior = np.clip(in_slot[:, None] * lift, LEAST_STAY, MOST_STAY)
    at_place = (kernel @ counts.in_stretch[0] + mass * prior) / (kernel @ counts.in_stretch.sum(axis=0) + mass)
    return Stays(in_slot, np.clip(at_place, LEAST_STAY, MOST_STAY))


def _in_slots(steps: Steps) -> Float[np.ndarray, " slot"]:
    """Bounded number of the steps into each slot."""
    return sums(steps.slot, bounded(steps.user, steps.slot, steps.n_slots)[0], steps.n_slots)


def _told_at_places(steps: Steps, min_users: int, stretch: Int[np.ndarray, " slot"]) -> Float[np.ndarray, "slot place"]:
    """How many of the steps from each place in each slot are told, users counted at each place in each stretch."""
    group = stretch[steps.slot].astype(np.int64) * steps.n_places + steps.place
    weight, users = bounded(steps.user, group, (int(stretch.max()) + 1) * steps.n_places)
    told_of_step = weight * told(users, min_users)[group]
    return sums(steps.row, told_of_step, steps.n_slots * steps.n_places).reshape(steps.n_slots, steps.n_places)


class Gravity(NamedTuple):
    """How the flow between two places depends on their distance.

    Attributes
    ----------
    bin : int array, shape (cells, cells)
        Which of the bins of distance.
    factor : float array, shape (bins,)
    attraction : float array, shape (slots, places)
        Sum over all other places b of p(s, b) f(a, b): what normalizes g_s(. | a).
    """

    bin: Int[np.ndarray, "cell cell"]
    factor: Float[np.ndarray, " bin"]
    attraction: Float[np.ndarray, "slot place"]

    @property
    def between(self) -> Float[np.ndarray, "cell cell"]:
        """The factor of each pair of cells."""
        return self.factor[self.bin]


def fit_gravity(
    moves: Steps, population: Float[np.ndarray, "slot place"], space: Space, n_bins: int = N_BINS
) -> Gravity:
    """Fit g_s(b | a) ~ p(s, b) f(km(a, b)), b other than a, f constant in bins that hold equally many of the moves.

    Proportional fitting: f is such that people who leave the places as often as they do cover the distances that they
    do, with half a move more in every bin.
    """
    km = space.km[space.cell[moves.place], space.cell[moves.next_place]]
    edges = _quantiles(km, bounded(moves.user, np.zeros(len(km), np.int64), 1)[0], np.arange(1, n_bins) / n_bins)
    # An edge that is itself a distance of many moves: they belong below it.
    which = np.searchsorted(edges, space.km)
    n_used = len(edges) + 1
    covered = _covered(moves, np.searchsorted(edges, km), n_used)
    n_cells = len(space.km)
    leaving = sums(moves.place, bounded(moves.user, moves.place, moves.n_places)[0], moves.n_places)
    leaving = np.bincount(space.cell, leaving, n_cells)
    shares = population.mean(axis=0)
    mass, own = np.bincount(space.cell, shares, n_cells), _own_share(shares, space)
    factor = np.ones(n_used)
    for _ in range(N_ROUNDS if len(km) else 0):
        flow = factor[which] * mass
        np.fill_diagonal(flow, np.diag(flow) * (1 - own))
        flow *= (leaving / np.maximum(flow.sum(axis=1), 1e-300))[:, None]
        expected = np.bincount(which.ravel(), flow.ravel(), n_used)
        # Nobody can cover a distance that there is not.
        factor *= np.divide(covered, expected, out=np.ones(n_used), where=expected > 1e-9)
        factor /= factor.mean()
    return Gravity(which, factor, _attraction(population, factor[which], space))


def _covered(moves: Steps, bin_of_move: Int[np.ndarray, " step"], n_bins: int) -> Float[np.ndarray, " bin"]:
    """Moves in each bin of distance, and half a one more."""
    return sums(bin_of_move, bounded(moves.user, bin_of_move, n_bins)[0], n_bins) + 0.5


def _quantiles(value: np.ndarray, weight: Float[np.ndarray, " value"], quantile: np.ndarray) -> np.ndarray:
    """The distinct quantiles of weighted values; none where nothing has weight."""
    order = np.argsort(value, kind="stable")
    reached = np.cumsum(weight[order])
    if not len(value) or reached[-1] == 0:
        return np.zeros(0)
    return np.unique(value[order][np.searchsorted(reached, quantile * reached[-1])])


def _own_share(shares: Float[np.ndarray, " place"], space: Space) -> Float[np.ndarray, " cell"]:
    """For each cell, what part of it a place in it makes up by itself, on average over its people."""
    mass = np.bincount(space.cell, shares, len(space.km))
    return np.bincount(space.cell, shares**2, len(space.km)) / np.maximum(mass, 1e-300) ** 2


def _attraction(
    population: Float[np.ndarray, "slot place"], between: Float[np.ndarray, "cell cell"], space: Space
) -> Float[np.ndarray, "slot place"]:
    n_cells = len(space.km)
    mass = np.stack([np.bincount(space.cell, row, n_cells) for row in population])
    of_cell = (mass @ between.T)[:, space.cell]
    rest = of_cell - population * np.diag(between)[space.cell]
    # Of the only place of all, nothing but rounding is left.
    return np.where(rest > 1e-9 * of_cell, rest, 0)


class MoveSmoothing(NamedTuple):
    """How far seen moves are believed.

    Attributes
    ----------
    gravity_mass : float
        Moves of all slots from a place that gravity is worth.
    slot_mass : float
        Moves in a slot from a place that those of all slots are worth.
    stay_mass : float
        Steps in a slot from a place that the slot's rate of staying, times the place's lift, is worth.
    slot_bandwidth : float
        See `visits.slot_kernel`.
    """

    gravity_mass: float
    slot_mass: float
    stay_mass: float
    slot_bandwidth: float


@dataclass(frozen=True, eq=False)
class SeenMoves:
    """Pairs of places between which enough users moved, sorted, and how often: as far as it is told.

    Parameters
    ----------
    place, next_place : int32 arrays, shape (pairs,)
    count : float array, shape (slots, pairs)
        Told of each pair in each stretch of time.
    overall : float array, shape (pairs,)
        Told of each pair over all slots.
    n_places : int
    """

    place: Int[np.ndarray, " pair"]
    next_place: Int[np.ndarray, " pair"]
    count: Float[np.ndarray, "slot pair"]
    overall: Float[np.ndarray, " pair"]
    n_places: int

    @classmethod
    def of(cls, moves: Steps, min_users: int, stretch: Int[np.ndarray, " slot"]) -> SeenMoves:
        """Count the moves between pairs that at least `min_users` users made."""
        pair, which = np.unique(moves.pair, return_inverse=True)
        weight, users = bounded(moves.user, which, len(pair))
        enough = users >= min_users
        overall = (sums(which, weight, len(pair)) * told(users, min_users))[enough]
        kept, number = enough[which], np.cumsum(enough) - 1
        moves, which = moves.where(kept), number[which[kept]]
        place, next_place = (each.astype(np.int32) for each in np.divmod(pair[enough], moves.n_places))
        shape = (moves.n_slots, len(place))
        group = stretch[moves.slot].astype(np.int64) * len(place) + which
        weight, users = bounded(moves.user, group, (int(stretch.max()) + 1) * len(place))
        cell = moves.slot.astype(np.int64) * len(place) + which
        count = sums(cell, weight * told(users, min_users)[group], shape[0] * shape[1]).reshape(shape)
        return cls(place, next_place, count, overall, moves.n_places)

    def from_place(self, count: Float[np.ndarray, "row pair"]) -> Float[np.ndarray, "row place"]:
        """Sums of some numbers of the pairs over those that leave each place."""
        return np.array([sums(self.place, row, self.n_places) for row in count]).reshape(len(count), self.n_places)

    def find(self, moves: Steps) -> tuple[Int[np.ndarray, " step"], np.ndarray]:
        """Which pair each move is of, and whether it is of any."""
        pairs = self.place.astype(np.int64) * self.n_places + self.next_place
        if not len(pairs):
            return np.zeros(len(moves), np.int64), np.zeros(len(moves), bool)
        at = np.minimum(np.searchsorted(pairs, moves.pair), len(pairs) - 1)
        return at, pairs[at] == moves.pair


class MoveWeights(NamedTuple):
    """Probabilities of moves, in two parts: K_s(a, b) = seen_s(a, b) + gravity_s(a) p(s, b) f(a, b) for b other than a.

    Each row without its stay sums to one. Slots are those of arrival.

    Attributes
    ----------
    seen : float array, shape (slots, pairs)
    gravity : float array, shape (slots, places)
    """

    seen: Float[np.ndarray, "slot pair"]
    gravity: Float[np.ndarray, "slot place"]


def move_weights(
    seen: SeenMoves,
    smoothing: MoveSmoothing,
    kernel: Float[np.ndarray, "slot slot"],
    gravity: Gravity,
) -> MoveWeights:
    """Where those go who move: the slot's moves shrunk to those of all slots, and these to gravity.

    D(b | a) = (N(a, b) + t_d g(b | a)) / (N(a) + t_d), M_s(b | a) = (N_s(a, b) + t_s D(b | a)) / (N_s(a) + t_s), with N
    the seen moves, N_s those smoothed over slots, t_d and t_s the masses.
    """
    in_slot, overall = kernel @ seen.count, seen.overall
    from_overall = seen.from_place(overall[None])[0]
    of_slot = 1 / (seen.from_place(in_slot) + smoothing.slot_mass)
    of_overall = smoothing.slot_mass / (from_overall + smoothing.gravity_mass)
    weights = (in_slot + overall * of_overall[seen.place]) * of_slot[:, seen.place]
    leaving = of_overall * smoothing.gravity_mass * of_slot
    attraction = gravity.attraction
    return MoveWeights(weights, np.divide(leaving, attraction, out=np.zeros_like(leaving), where=attraction > 0))


class MoveCounts(NamedTuple):
    """What is told of steps, before any smoothing.

    Attributes
    ----------
    stays : StayCounts
    seen : SeenMoves
    population : float array, shape (slots, places)
    gravity : Gravity
    covered : float array, shape (bins,)
        Share of the moves in each of a few bins of distance, positive.
    bin : int array, shape (cells, cells)
        Which of these bins.
    space : Space
    time_grid : TimeGrid
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
        """Count the steps of some users."""
        moves, stretch = steps.moves, stretches(time_grid)
        gravity = fit_gravity(moves, population, space)
        # Two bins of gravity each, so that every one has many moves.
        bins = gravity.bin // 2
        bin_of_move = bins[space.cell[moves.place], space.cell[moves.next_place]]
        covered = _covered(moves, bin_of_move, int(bins.max()) + 1)
        stays, seen = StayCounts.of(steps, min_users, stretch), SeenMoves.of(moves, min_users, stretch)
        return cls(stays, seen, population, gravity, covered / covered.sum(), bins, space, time_grid)


@dataclass(frozen=True, eq=False)
class Movement:
    """Where people go from each place in each slot, whoever they are: K of `chains`.

    Parameters
    ----------
    counts : MoveCounts
    stays : Stays
    weights : MoveWeights
    """

    counts: MoveCounts
    stays: Stays
    weights: MoveWeights

    @classmethod
    def of(cls, counts: MoveCounts, smoothing: MoveSmoothing) -> Movement:
        """Smooth what was counted."""
        kernel = slot_kernel(counts.time_grid, smoothing.slot_bandwidth)
        stays = stay_rates(counts.stays, smoothing.stay_mass, kernel)
        return cls(counts, stays, move_weights(counts.seen, smoothing, kernel, counts.gravity))

    def log_probabilities(self, steps: Steps) -> Float[np.ndarray, " step"]:
        """Of the next place of each step, given its place and slot."""
        counts, slot, place, next_place = self.counts, steps.slot, steps.place, steps.next_place
        at, found = counts.seen.find(steps)
        seen = np.where(found, self.weights.seen[slot, at] if len(counts.seen.place) else 0, 0)
        cell = counts.space.cell
        near = counts.gravity.between[cell[place], cell[next_place]]
        moved = seen + self.weights.gravity[slot, place] * counts.population[slot, next_place] * near
        stay = self.stays.at_place[slot, place]
        return np.log(np.where(place == next_place, stay, (1 - stay) * moved))
