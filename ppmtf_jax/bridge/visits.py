"""Visits of users by slot and place, and the smoothed population computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ppmtf_jax.bridge.contributions import Rows, bounded_totals, stretches, used_share
from ppmtf_jax.data.blocks import Blocks, OneBlock
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces


@dataclass(frozen=True, eq=False)
class VisitCounts(OneBlock):
    """Number of events of each user at each place in each slot: the nonzero cells, sorted by user."""

    user: Int[np.ndarray, " cell"]
    slot: Int[np.ndarray, " cell"]
    place: Int[np.ndarray, " cell"]
    count: Float[np.ndarray, " cell"]
    n_users: int
    n_slots: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces) -> VisitCounts:
        """Count the events of traces."""
        n_slots, n_places = traces.time_grid.n_slots, traces.n_places
        code = (traces.user.astype(np.int64) * n_slots + traces.slot) * n_places + traces.place
        # Faster than `np.unique`, because events are nearly in this order.
        code.sort(kind="stable")
        first = np.flatnonzero(run_begins(code))
        code, count = code[first], np.diff(first, append=len(code))
        rest, place = np.divmod(code, n_places)
        user, slot = np.divmod(rest, n_slots)
        user, slot, place = (column.astype(np.int32) for column in (user, slot, place))
        return cls(user, slot, place, count.astype(np.float32), traces.n_users, n_slots, n_places)

    @property
    def cell(self) -> Int[np.ndarray, " cell"]:
        """Code of each cell: slot * n_places + place."""
        return self.slot.astype(np.int64) * self.n_places + self.place

    def of_users(self, users: Int[np.ndarray, " user"]) -> VisitCounts:
        """Visits of the users with these sorted indices, who are numbered 0, 1, ... in that order."""
        number = np.full(self.n_users, -1, np.int32)
        number[users] = np.arange(len(users), dtype=np.int32)
        kept = number[self.user] >= 0
        slot, place, count = self.slot[kept], self.place[kept], self.count[kept]
        return VisitCounts(number[self.user[kept]], slot, place, count, len(users), self.n_slots, self.n_places)

    def tempered(self, exponent: float) -> Float[np.ndarray, " cell"]:
        """Counts in which a user's n events at a place sum to n^exponent, divided among slots in proportion.

        Repeated events of one user at one place reveal less about other users' places than their number suggests.
        """
        if exponent == 1:
            return self.count
        pair = self.user.astype(np.int64) * self.n_places + self.place
        which = pd.factorize(pair)[0]
        at_place = np.bincount(which, self.count)
        return self.count * at_place[which] ** (exponent - 1)

    def in_stretch(self, time_grid: TimeGrid) -> Int[np.ndarray, " cell"]:
        """Code of each cell: stretch of time (see `contributions.stretches`) * n_places + place."""
        return stretches(time_grid)[self.slot].astype(np.int64) * self.n_places + self.place


class BoundedCounts(NamedTuple):
    """Counts of events with bounded weights of users (see `contributions.bounded`), and the numbers of users.

    `users_in_slot` counts the users at a place in the whole stretch of time of the slot.
    """

    in_slot: Float[np.ndarray, "slot place"]
    users_in_slot: Int[np.ndarray, "slot place"]
    at_place: Float[np.ndarray, " place"]
    users_at_place: Int[np.ndarray, " place"]

    @classmethod
    def of(cls, visits: VisitCounts | Blocks[VisitCounts], exponent: float, time_grid: TimeGrid) -> BoundedCounts:
        """Count tempered visits, see `VisitCounts.tempered`."""

        def rows(own: VisitCounts) -> tuple[Rows, Rows]:
            shape, weight = (own.n_slots, own.n_places), own.tempered(exponent)
            in_slot = Rows(own.user, own.in_stretch(time_grid), own.cell, shape, weight)
            return in_slot, Rows(own.user, own.place, own.place, shape[1:], weight)

        (in_slot, of_stretch), (at_place, of_place) = bounded_totals(visits.map(rows))
        stretch, n_places = stretches(time_grid), len(at_place)
        users = of_stretch.users_of((int(stretch.max()) + 1) * n_places).reshape(-1, n_places)
        return cls(in_slot, users[stretch], at_place, of_place.users_of(n_places))


def slot_kernel(time_grid: TimeGrid, bandwidth: float) -> Float[np.ndarray, "slot slot"]:
    """Gaussian weights between slots, 1 on the diagonal; `bandwidth` is the standard deviation in slots, or 0.

    If slots repeat (see `TimeGrid.period`), the last slot is a neighbour of the first.

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
    """Parameters of the smoothing from counts to a population."""

    exponent: float  # exponent of a user's number of events at a place, see `VisitCounts.tempered`
    least_users: int  # minimum number of users of a count, see `contributions.used_share`
    slot_bandwidth: float  # see `slot_kernel`
    place_mass: float  # pseudo-events per place in each slot, distributed like the events of all slots
    uniform_mass: float  # pseudo-events of each place over all slots, in units of the mean count of a place


def population(
    visits: VisitCounts | Blocks[VisitCounts], smoothing: PopulationSmoothing, time_grid: TimeGrid
) -> Float[np.ndarray, "slot place"]:
    """Share of the people at each place in each slot, every share positive.

    p(s, b) ~ sum_r T(s, r) c(r, b) + m M q(b), where c are the counts with enough users, T the kernel over slots, M the
    number of places, m the place mass, and q(b) ~ c(b) + the uniform mass times the mean of c over places. A count of a
    place in a slot is used only if enough users were there in the stretch of time; a count over all slots, only if
    enough users were there at any time.
    """
    counts = BoundedCounts.of(visits, smoothing.exponent, time_grid)
    return smoothed_population(counts, smoothing, slot_kernel(time_grid, smoothing.slot_bandwidth))


def smoothed_population(
    counts: BoundedCounts, smoothing: PopulationSmoothing, kernel: Float[np.ndarray, "slot slot"]
) -> Float[np.ndarray, "slot place"]:
    """`population` from counts."""
    in_slot = counts.in_slot * used_share(counts.users_in_slot, smoothing.least_users)
    anywhere = counts.at_place * used_share(counts.users_at_place, smoothing.least_users)
    # If each place has only one user, no count is used, and the population is uniform.
    anywhere = anywhere + smoothing.uniform_mass * (anywhere.mean() or 1)
    shares = kernel @ in_slot + smoothing.place_mass * len(anywhere) * anywhere / anywhere.sum()
    return shares / shares.sum(axis=1, keepdims=True)
