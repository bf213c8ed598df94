"""Who was how often where in which slot, and the smoothed population that it tells of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.contributions import bounded, stretches, sums, told
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces


@dataclass(frozen=True, eq=False)
class Visits:
    """How often each user was at each place in each slot: the cells that are not zero, sorted by user.

    Parameters
    ----------
    user, slot, place : int32 arrays, shape (cells,)
    count : float32 array, shape (cells,)
    n_users, n_slots, n_places : int
    """

    user: Int[np.ndarray, " cell"]
    slot: Int[np.ndarray, " cell"]
    place: Int[np.ndarray, " cell"]
    count: Float[np.ndarray, " cell"]
    n_users: int
    n_slots: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces) -> Visits:
        """Count the events of some traces.

        Examples
        --------
        >>> from ppmtf_jax.datasets.toy_city import toy_city
        >>> traces = toy_city(n_users=3, seed=0).traces
        >>> int(Visits.of(traces).count.sum()) == traces.n_events
        True
        """
        n_slots, n_places = traces.time_grid.n_slots, traces.n_places
        code = (traces.user.astype(np.int64) * n_slots + traces.slot) * n_places + traces.place
        code, count = np.unique(code, return_counts=True)
        rest, place = np.divmod(code, n_places)
        user, slot = np.divmod(rest, n_slots)
        user, slot, place = (column.astype(np.int32) for column in (user, slot, place))
        return cls(user, slot, place, count.astype(np.float32), traces.n_users, n_slots, n_places)

    @property
    def cell(self) -> Int[np.ndarray, " cell"]:
        """Slot times places plus place, of each cell."""
        return self.slot.astype(np.int64) * self.n_places + self.place

    def of_users(self, users: Int[np.ndarray, " user"]) -> Visits:
        """Those of some users, given by sorted indices; they are numbered anew in that order."""
        number = np.full(self.n_users, -1, np.int32)
        number[users] = np.arange(len(users), dtype=np.int32)
        kept = number[self.user] >= 0
        slot, place, count = self.slot[kept], self.place[kept], self.count[kept]
        return Visits(number[self.user[kept]], slot, place, count, len(users), self.n_slots, self.n_places)

    def total(self, count: Float[np.ndarray, " cell"] | None = None) -> Float[np.ndarray, "slot place"]:
        """The counts of all users together."""
        shape = (self.n_slots, self.n_places)
        weights = self.count if count is None else count
        return sums(self.cell, weights, self.n_slots * self.n_places).reshape(shape)

    def tempered(self, exponent: float) -> Float[np.ndarray, " cell"]:
        """Counts where a user's n events at a place weigh n to a power, shared among her slots as they are.

        A user who is at one place again and again tells less of where others are than her events suggest.
        """
        if exponent == 1:
            return self.count
        pair = self.user.astype(np.int64) * self.n_places + self.place
        _, which = np.unique(pair, return_inverse=True)
        at_place = np.bincount(which, self.count)
        return self.count * at_place[which] ** (exponent - 1)

    def in_stretch(self, time_grid: TimeGrid) -> Int[np.ndarray, " cell"]:
        """Stretch of time times places plus place, of each cell."""
        return stretches(time_grid)[self.slot].astype(np.int64) * self.n_places + self.place


class BoundedCounts(NamedTuple):
    """Counts in which no user weighs more than the next one, see `contributions.bounded`, and how many users made them.

    Attributes
    ----------
    in_slot : float array, shape (slots, places)
        Bounded at each place in each stretch of time.
    users_in_slot : int array, shape (slots, places)
        Users at each place in the slot's stretch of time.
    at_place : float array, shape (places,)
        Bounded at each place over all slots.
    users_at_place : int array, shape (places,)
    """

    in_slot: Float[np.ndarray, "slot place"]
    users_in_slot: Int[np.ndarray, "slot place"]
    at_place: Float[np.ndarray, " place"]
    users_at_place: Int[np.ndarray, " place"]

    @classmethod
    def of(cls, visits: Visits, exponent: float, time_grid: TimeGrid) -> BoundedCounts:
        """Count tempered visits, see `Visits.tempered`."""
        weight, n_places, stretch = visits.tempered(exponent), visits.n_places, stretches(time_grid)
        n_groups = (int(stretch.max()) + 1) * n_places
        in_slot, users = bounded(visits.user, visits.in_stretch(time_grid), n_groups, weight)
        at_place, users_at_place = bounded(visits.user, visits.place, n_places, weight)
        at_place = sums(visits.place, at_place, n_places)
        return cls(visits.total(in_slot), users.reshape(-1, n_places)[stretch], at_place, users_at_place)


def slot_kernel(time_grid: TimeGrid, bandwidth: float) -> Float[np.ndarray, "slot slot"]:
    """Weights by which the counts of a slot tell of another: Gaussian, 1 on the diagonal.

    Slots that come round, see `TimeGrid.period`, are near each other across the end.

    Parameters
    ----------
    time_grid : TimeGrid
    bandwidth : float
        Standard deviation in slots; with 0 slots tell of themselves only.

    Examples
    --------
    >>> grid = TimeGrid.cyclic("2024-01-01", 3600, 48, slot_s=21_600)
    >>> slot_kernel(grid, 1.0).round(2)[0].tolist()
    [1.0, 0.61, 0.14, 0.61]
    """
    slots = np.arange(time_grid.n_slots)
    apart = np.abs(slots[:, None] - slots)
    if time_grid.n_instants > time_grid.period:
        apart = np.minimum(apart, len(slots) - apart)
    return np.exp(-0.5 * (apart / bandwidth) ** 2) if bandwidth > 0 else np.eye(len(slots))


class PopulationSmoothing(NamedTuple):
    """How counts become a population.

    Attributes
    ----------
    exponent : float
        Of a user's events at a place, see `Visits.tempered`.
    least_users : int
        Users from whom on counts are told, see `contributions.told`.
    slot_bandwidth : float
        See `slot_kernel`.
    place_mass : float
        Events per place that each slot gets on top, spread as all slots together are.
    uniform_mass : float
        What every place gets on top of its share over all slots, in events of the average place.
    """

    exponent: float
    least_users: int
    slot_bandwidth: float
    place_mass: float
    uniform_mass: float


def population(visits: Visits, smoothing: PopulationSmoothing, time_grid: TimeGrid) -> Float[np.ndarray, "slot place"]:
    """Share of the people at each place in each slot, every one positive.

    p(s, b) ~ sum_r T(s, r) c(r, b) + m M q(b), with c the counts told, T the kernel over slots, M places, m the place
    mass, and q(b) ~ c(b) + the uniform mass times the mean of c over places. The counts of a place in a slot are told
    as far as several users made them in its stretch of time, and those over all slots as far as several made these.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=20, seed=0).traces
    >>> shares = population(Visits.of(traces), PopulationSmoothing(1.0, 2, 0.0, 0.1, 0.3), traces.time_grid)
    >>> bool((shares > 0).all()), bool(np.allclose(shares.sum(axis=1), 1))
    (True, True)
    """
    counts = BoundedCounts.of(visits, smoothing.exponent, time_grid)
    return smoothed_population(counts, smoothing, slot_kernel(time_grid, smoothing.slot_bandwidth))


def smoothed_population(
    counts: BoundedCounts, smoothing: PopulationSmoothing, kernel: Float[np.ndarray, "slot slot"]
) -> Float[np.ndarray, "slot place"]:
    """`population` from counts."""
    in_slot = counts.in_slot * told(counts.users_in_slot, smoothing.least_users)
    anywhere = counts.at_place * told(counts.users_at_place, smoothing.least_users)
    # Where every place is one user's, nothing is told, and people are anywhere.
    anywhere = anywhere + smoothing.uniform_mass * (anywhere.mean() or 1)
    shares = kernel @ in_slot + smoothing.place_mass * len(anywhere) * anywhere / anywhere.sum()
    return shares / shares.sum(axis=1, keepdims=True)


def random_folds(n_users: int, n_folds: int, random: np.random.Generator) -> Iterator[Int[np.ndarray, " user"]]:
    """Users in folds of equal size, none of them empty, as sorted indices."""
    for part in np.array_split(random.permutation(n_users), min(n_folds, n_users)):
        yield np.sort(part)
