"""Who was how often where in which slot, and the smoothed population that it tells of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

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
        # Without events, `bincount` counts in whole numbers.
        return np.bincount(self.cell, weights, self.n_slots * self.n_places).astype(np.float64).reshape(shape)

    def users_per_place(self) -> Int[np.ndarray, " place"]:
        """How many users were at each place."""
        return users_per_place(self.user, self.place, self.n_places)

    def tempered(self, exponent: float) -> Float[np.ndarray, " cell"]:
        """Counts where a user's n events at a place weigh n to a power, shared among her slots as they are.

        A user who is at one place again and again tells less of where others are than her events suggest.
        """
        if exponent == 1:
            return self.count
        pair = self.user.astype(np.int64) * self.n_places + self.place
        _, which = np.unique(pair, return_inverse=True)
        at_place = np.bincount(which, self.count)
        weight = self.count * at_place[which] ** (exponent - 1)
        return weight * (self.count.sum() / weight.sum())


def users_per_place(
    user: Int[np.ndarray, " row"], place: Int[np.ndarray, " row"], n_places: int
) -> Int[np.ndarray, " place"]:
    """How many different users stand beside each place in some rows.

    Examples
    --------
    >>> users_per_place(np.array([0, 0, 1]), np.array([2, 2, 2]), n_places=3).tolist()
    [0, 0, 2]
    """
    pair = np.unique(user.astype(np.int64) * n_places + place)
    return np.bincount(pair % n_places, minlength=n_places)


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
    discount : int
        A place's counts are worth (users - discount) / users of themselves, so that what few users did is not told.
    slot_bandwidth : float
        See `slot_kernel`.
    place_mass : float
        Events per place that each slot gets on top, spread as all slots together are.
    uniform_mass : float
        What every place gets on top of its share over all slots, in events of the average place.
    """

    exponent: float
    discount: int
    slot_bandwidth: float
    place_mass: float
    uniform_mass: float


def population(visits: Visits, smoothing: PopulationSmoothing, time_grid: TimeGrid) -> Float[np.ndarray, "slot place"]:
    """Share of the people at each place in each slot, every one positive.

    p(s, b) ~ sum_r T(s, r) c'(r, b) + m M q(b), with c' the discounted counts, T the kernel over slots, M places, m the
    place mass, and q(b) ~ c'(., b) + (mass taken by the discount, plus the uniform mass of events) / M.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> traces = toy_city(n_users=20, seed=0).traces
    >>> shares = population(Visits.of(traces), PopulationSmoothing(1.0, 1, 0.0, 0.1, 0.3), traces.time_grid)
    >>> bool((shares > 0).all()), bool(np.allclose(shares.sum(axis=1), 1))
    (True, True)
    """
    counts = visits.total(visits.tempered(smoothing.exponent))
    kernel = slot_kernel(time_grid, smoothing.slot_bandwidth)
    return smoothed_population(counts, visits.users_per_place(), smoothing, kernel)


def smoothed_population(
    counts: Float[np.ndarray, "slot place"],
    users: Int[np.ndarray, " place"],
    smoothing: PopulationSmoothing,
    kernel: Float[np.ndarray, "slot slot"],
) -> Float[np.ndarray, "slot place"]:
    """`population` from counts, however they were made, and the number of users who were at each place."""
    n_places, total = counts.shape[1], counts.sum()
    kept = counts * (np.maximum(users - smoothing.discount, 0) / np.maximum(users, 1))
    anywhere = kept.sum(axis=0) + (total - kept.sum()) / n_places + smoothing.uniform_mass * total / n_places
    shares = kernel @ kept + smoothing.place_mass * n_places * anywhere / anywhere.sum()
    return shares / shares.sum(axis=1, keepdims=True)


def random_folds(n_users: int, n_folds: int, random: np.random.Generator) -> Iterator[Int[np.ndarray, " user"]]:
    """Users in folds of equal size, none of them empty, as sorted indices."""
    for part in np.array_split(random.permutation(n_users), min(n_folds, n_users)):
        yield np.sort(part)
