"""Where people go from a place: stays, seen moves and gravity, each as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import users_per_place
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
        """Those of some users, given by sorted indices."""
        return self._where(np.isin(self.user, users))

    @property
    def stays(self) -> Steps:
        """Those that stay."""
        return self._where(self.place == self.next_place)

    @property
    def moves(self) -> Steps:
        """Those that do not."""
        return self._where(self.place != self.next_place)

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

    def per_row(self) -> Float[np.ndarray, "slot place"]:
        """How many leave each place in each slot."""
        count = np.bincount(self.row, minlength=self.n_slots * self.n_places)
        return count.reshape(self.n_slots, self.n_places).astype(np.float64)

    def _where(self, keep: np.ndarray) -> Steps:
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


def stay_rates(steps: Steps, mass: float, kernel: Float[np.ndarray, "slot slot"], min_users: int) -> Stays:
    """Rates of staying, smoothed over slots, and at a place shrunk to the slot's rate times the place's lift.

    Parameters
    ----------
    steps : Steps
    mass : float
        Steps that the shrinkage is worth.
    kernel : float array, shape (slots, slots)
        See `slot_kernel`.
    min_users : int
        A place from which fewer users made steps has the slot's rate.
    """
    stays, all_steps = steps.stays.per_row(), steps.per_row()
    overall = (stays.sum() + 0.5) / (all_steps.sum() + 1)
    in_slot = (kernel @ stays.sum(axis=1) + overall) / (kernel @ all_steps.sum(axis=1) + 1)
    enough = users_per_place(steps.user, steps.place, steps.n_places) >= min_users
    stays, all_steps = stays * enough, all_steps * enough
    expected = (all_steps * in_slot[:, None]).sum(axis=0)
    lift = (stays.sum(axis=0) + mass) / (expected + mass)
    prior = np.clip(in_slot[:, None] * lift, LEAST_STAY, MOST_STAY)
    at_place = (kernel @ stays + mass * prior) / (kernel @ all_steps + mass)
    return Stays(in_slot, np.clip(at_place, LEAST_STAY, MOST_STAY))


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
    edges = np.unique(np.quantile(km, np.arange(1, n_bins) / n_bins)) if len(km) else np.zeros(0)
    # An edge that is itself a distance of many moves: they belong below it.
    which = np.searchsorted(edges, space.km)
    n_used = len(edges) + 1
    covered = np.bincount(np.searchsorted(edges, km), minlength=n_used) + 0.5
    n_cells = len(space.km)
    leaving = np.bincount(moves.place, minlength=moves.n_places).astype(np.float64)
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
    min_users : int
        Pairs of places between which fewer users moved do not count, nor stays at places from which fewer made steps.
    gravity_mass : float
        Moves of all slots from a place that gravity is worth.
    slot_mass : float
        Moves in a slot from a place that those of all slots are worth.
    stay_mass : float
        Steps in a slot from a place that the slot's rate of staying, times the place's lift, is worth.
    slot_bandwidth : float
        See `visits.slot_kernel`.
    """

    min_users: int
    gravity_mass: float
    slot_mass: float
    stay_mass: float
    slot_bandwidth: float


@dataclass(frozen=True, eq=False)
class SeenMoves:
    """Pairs of places between which enough users moved, sorted, and how often in each slot.

    Parameters
    ----------
    place, next_place : int32 arrays, shape (pairs,)
    count : float array, shape (slots, pairs)
    n_places : int
    """

    place: Int[np.ndarray, " pair"]
    next_place: Int[np.ndarray, " pair"]
    count: Float[np.ndarray, "slot pair"]
    n_places: int

    @classmethod
    def of(cls, moves: Steps, min_users: int) -> SeenMoves:
        """Count the moves between pairs that at least `min_users` users made."""
        pair, which = np.unique(moves.pair, return_inverse=True)
        n_users = int(moves.user.max(initial=0)) + 1
        of_pair = np.unique(which * np.int64(n_users) + moves.user) // n_users
        enough = np.bincount(of_pair, minlength=len(pair)) >= min_users
        number = np.cumsum(enough) - 1
        kept = enough[which]
        place, next_place = np.divmod(pair[enough], moves.n_places)
        n_pairs = len(place)
        cell = moves.slot[kept].astype(np.int64) * n_pairs + number[which[kept]]
        count = np.bincount(cell, minlength=moves.n_slots * n_pairs).reshape(moves.n_slots, n_pairs)
        return cls(place.astype(np.int32), next_place.astype(np.int32), count.astype(np.float64), moves.n_places)

    def from_place(self, count: Float[np.ndarray, "row pair"]) -> Float[np.ndarray, "row place"]:
        """Sums of some numbers of the pairs over those that leave each place."""
        sums = [np.bincount(self.place, row, self.n_places) for row in count]
        # Without pairs, `bincount` counts in whole numbers.
        return np.array(sums, np.float64).reshape(len(count), self.n_places)

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
    in_slot, overall = kernel @ seen.count, seen.count.sum(axis=0, keepdims=True)
    from_overall = seen.from_place(overall)[0]
    of_slot = 1 / (seen.from_place(in_slot) + smoothing.slot_mass)
    of_overall = smoothing.slot_mass / (from_overall + smoothing.gravity_mass)
    weights = (in_slot + overall * of_overall[seen.place]) * of_slot[:, seen.place]
    leaving = of_overall * smoothing.gravity_mass * of_slot
    attraction = gravity.attraction
    return MoveWeights(weights, np.divide(leaving, attraction, out=np.zeros_like(leaving), where=attraction > 0))


@dataclass(frozen=True, eq=False)
class Movement:
    """Where people go from each place in each slot, whoever they are: K of `chains`.

    Parameters
    ----------
    stays : Stays
    seen : SeenMoves
    weights : MoveWeights
    population : float array, shape (slots, places)
    gravity : Gravity
    covered : float array, shape (bins,)
        Share of the moves in each of a few bins of distance, positive.
    bin : int array, shape (cells, cells)
        Which of these bins.
    space : Space
    """

    stays: Stays
    seen: SeenMoves
    weights: MoveWeights
    population: Float[np.ndarray, "slot place"]
    gravity: Gravity
    covered: Float[np.ndarray, " bin"]
    bin: Int[np.ndarray, "cell cell"]
    space: Space

    @classmethod
    def of(
        cls,
        steps: Steps,
        population: Float[np.ndarray, "slot place"],
        smoothing: MoveSmoothing,
        kernel: Float[np.ndarray, "slot slot"],
        space: Space,
        gravity: Gravity | None = None,
    ) -> Movement:
        """Learn it from the steps of some users; gravity too, unless it is given."""
        moves = steps.moves
        seen = SeenMoves.of(moves, smoothing.min_users)
        gravity = gravity or fit_gravity(moves, population, space)
        weights = move_weights(seen, smoothing, kernel, gravity)
        # Two bins of gravity each, so that every one has many moves.
        bins = gravity.bin // 2
        km = bins[space.cell[moves.place], space.cell[moves.next_place]]
        covered = np.bincount(km, minlength=int(bins.max()) + 1) + 0.5
        stays = stay_rates(steps, smoothing.stay_mass, kernel, smoothing.min_users)
        return cls(stays, seen, weights, population, gravity, covered / covered.sum(), bins, space)

    def log_probabilities(self, steps: Steps) -> Float[np.ndarray, " step"]:
        """Of the next place of each step, given its place and slot."""
        slot, place, next_place = steps.slot, steps.place, steps.next_place
        at, found = self.seen.find(steps)
        seen = np.where(found, self.weights.seen[slot, at] if len(self.seen.place) else 0, 0)
        cell = self.space.cell
        near = self.gravity.between[cell[place], cell[next_place]]
        moved = seen + self.weights.gravity[slot, place] * self.population[slot, next_place] * near
        stay = self.stays.at_place[slot, place]
        return np.log(np.where(place == next_place, stay, (1 - stay) * moved))
