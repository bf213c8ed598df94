"""What is counted of users: events by slot and place, and steps between consecutive instants; and smoothed rates.

`VisitCounts` and `Transitions` have the counts of each user of a block. `BoundedCounts`, `StayCounts` and `SeenMoves`
are sums over the users of all blocks, under the rules of `user_bounds`. The population and the rates of staying are
smoothed sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.blocks import Blocks, OneBlock
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.space import Space
from ppmtf_jax.people.user_bounds import Groups, Rows, bounded_totals, sums, time_blocks, used_share

MIN_STAY, MAX_STAY = 1e-4, 0.999


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

    def in_time_block(self, time_grid: TimeGrid) -> Int[np.ndarray, " cell"]:
        """Code of each cell: time block (see `user_bounds.time_blocks`) * n_places + place."""
        return time_blocks(time_grid)[self.slot].astype(np.int64) * self.n_places + self.place


@dataclass(frozen=True, eq=False)
class Transitions(OneBlock):
    """Transitions between consecutive instants; `slot` is the slot of arrival."""

    user: Int[np.ndarray, " step"]
    slot: Int[np.ndarray, " step"]
    place: Int[np.ndarray, " step"]
    next_place: Int[np.ndarray, " step"]
    n_slots: int
    n_places: int

    @classmethod
    def of(cls, traces: Traces, arrival: Int[np.ndarray, " step"] | None = None) -> Transitions:
        """The transitions of traces, see `Traces.transitions`; or only those to the events `arrival`."""
        event = np.flatnonzero(traces.is_step()) if arrival is None else arrival
        place, next_place = traces.place[event - 1], traces.place[event]
        return cls(traces.user[event], traces.slot[event], place, next_place, traces.time_grid.n_slots, traces.n_places)

    def where(self, keep: Bool[np.ndarray, " step"]) -> Transitions:
        return replace(self, **{name: getattr(self, name)[keep] for name in ("user", "slot", "place", "next_place")})

    def of_users(self, users: Int[np.ndarray, " user"]) -> Transitions:
        """As `VisitCounts.of_users`."""
        found = self.where(np.isin(self.user, users))
        return replace(found, user=np.searchsorted(users, found.user))

    @property
    def is_move(self) -> Bool[np.ndarray, " step"]:
        return self.place != self.next_place

    @property
    def moves(self) -> Transitions:
        """Transitions to another place."""
        return self.where(self.is_move)

    @property
    def pair(self) -> Int[np.ndarray, " step"]:
        """Code of each pair: place * n_places + next place."""
        return self.place.astype(np.int64) * self.n_places + self.next_place

    def cells(self, space: Space) -> Int[np.ndarray, " step"]:
        """Code of each pair of cells: cell * n_cells + next cell."""
        return space.cell[self.place].astype(np.int64) * len(space.km) + space.cell[self.next_place]


Steps = Transitions | Blocks[Transitions]


class BoundedCounts(NamedTuple):
    """Counts of events with bounded weights of users (see `user_bounds.bounded`), and the numbers of users.

    `users_in_slot` counts the users at a place in the whole time block of the slot.
    """

    in_slot: Float[np.ndarray, "slot place"]
    users_in_slot: Int[np.ndarray, "slot place"]
    at_place: Float[np.ndarray, " place"]
    users_at_place: Int[np.ndarray, " place"]

    @classmethod
    def of(cls, visits: VisitCounts | Blocks[VisitCounts], exponent: float, time_grid: TimeGrid) -> BoundedCounts:
        def rows(own: VisitCounts) -> tuple[Rows, Rows]:
            shape, weight = (own.n_slots, own.n_places), own.tempered(exponent)
            in_slot = Rows(own.user, own.in_time_block(time_grid), own.cell, shape, weight)
            return in_slot, Rows(own.user, own.place, own.place, shape[1:], weight)

        (in_slot, of_time_block), (at_place, of_place) = bounded_totals(visits.map(rows))
        users = users_in_slot(of_time_block, time_blocks(time_grid), len(at_place))
        return cls(in_slot, users, at_place, of_place.users_of(len(at_place)))


def users_in_slot(groups: Groups, time_block: Int[np.ndarray, " slot"], n_places: int) -> Int[np.ndarray, "slot place"]:
    """Users at each place in the whole time block of each slot; groups as in `VisitCounts.in_time_block`."""
    return groups.users_of(int(time_block.max()) + 1, n_places)[time_block]


class Stays(NamedTuple):
    """Probability of staying: over all places of a slot, and at each place."""

    in_slot: Float[np.ndarray, " slot"]
    at_place: Float[np.ndarray, "slot place"]


class StayCounts(NamedTuple):
    """Numbers of stays (first row) and of steps away (second row), under the rules of `user_bounds`."""

    in_slot: Float[np.ndarray, "2 slot"]  # all places together, only slots with enough users
    overall: Float[np.ndarray, "2 slot place"]  # only places with enough users over all slots
    in_time_block: Float[np.ndarray, "2 slot place"]  # only places with enough users in the time block

    @classmethod
    def of(cls, steps: Steps, min_users: int, time_block: Int[np.ndarray, " slot"]) -> StayCounts:
        """Count transitions; users who stay and users who step away are counted separately."""

        def rows(own: Transitions) -> list[Rows]:
            found, shape = [], (own.n_slots, own.n_places)
            for steps in (own.where(~own.is_move), own.moves):
                user, slot, place = steps.user, steps.slot.astype(np.int64), steps.place
                cell = slot * own.n_places + place
                found += [Rows(user, slot, slot, shape[:1]), Rows(user, place, cell, shape)]
                found += [Rows(user, time_block[slot] * own.n_places + place, cell, shape)]
            return found

        found = bounded_totals(steps.map(rows))
        n_places = found[1].total.shape[1]
        for in_slot, overall, in_time_block in (found[:3], found[3:]):
            in_slot.total[:] *= used_share(in_slot.groups.users_of(len(time_block)), min_users)
            overall.total[:] *= used_share(overall.groups.users_of(n_places), min_users)
            in_time_block.total[:] *= used_share(users_in_slot(in_time_block.groups, time_block, n_places), min_users)
        return cls(*(np.stack([stays.total, away.total]) for stays, away in zip(found[:3], found[3:], strict=True)))


def stay_rates(counts: StayCounts, mass: float, kernel: Float[np.ndarray, "slot slot"]) -> Stays:
    """Rates of staying, smoothed over slots (see `slot_kernel`).

    The rate at a place is shrunk towards the slot's rate times a ratio of the place: its rate over all slots, divided
    by the rate expected from its slots. `mass` is the weight of this prior, in steps.
    """
    stays, steps = counts.in_slot[0], counts.in_slot.sum(axis=0)
    overall = (stays.sum() + 0.5) / (steps.sum() + 1)
    in_slot = (kernel @ stays + overall) / (kernel @ steps + 1)
    expected = (counts.overall.sum(axis=0) * in_slot[:, None]).sum(axis=0)
    ratio = (counts.overall[0].sum(axis=0) + mass) / (expected + mass)
    prior = np.clip(in_slot[:, None] * ratio, MIN_STAY, MAX_STAY)
    at_place = (kernel @ counts.in_time_block[0] + mass * prior) / (kernel @ counts.in_time_block.sum(axis=0) + mass)
    return Stays(in_slot, np.clip(at_place, MIN_STAY, MAX_STAY))


class SeenMoves(NamedTuple):
    """Sorted pairs of places between which enough users moved, and the numbers of moves.

    `overall` counts pairs with enough users over all slots, `in_slot` those that also have them in the time block.
    """

    place: Int[np.ndarray, " pair"]
    next_place: Int[np.ndarray, " pair"]
    in_slot: Float[np.ndarray, "slot pair"]
    overall: Float[np.ndarray, " pair"]
    n_places: int

    @classmethod
    def of(cls, moves: Steps, min_users: int, time_block: Int[np.ndarray, " slot"]) -> SeenMoves:
        """Count the moves between pairs of places with at least `min_users` users."""
        ((total, pairs),) = bounded_totals(moves.map(lambda own: [Rows(own.user, own.pair)]))
        enough = pairs.n_users >= min_users
        overall = (total * used_share(pairs.n_users, min_users))[enough]
        pair = pairs.group[enough]

        def rows(own: Transitions) -> list[Rows]:
            at, found = find_pairs(own.pair, pair)
            slot, at = own.slot[found].astype(np.int64), at[found]
            group, cell = time_block[slot] * len(pair) + at, slot * len(pair) + at
            return [Rows(own.user[found], group, cell, (len(time_block), len(pair)))]

        ((count, groups),) = bounded_totals(moves.map(rows))
        count *= used_share(users_in_slot(groups, time_block, len(pair)), min_users)
        n_places = moves.map(lambda own: own.n_places).first()
        place, next_place = (each.astype(np.int32) for each in np.divmod(pair, n_places))
        return cls(place, next_place, count, overall, n_places)

    def from_place(self, count: Float[np.ndarray, "row pair"]) -> Float[np.ndarray, "row place"]:
        """Sums over the pairs that leave each place."""
        return np.array([sums(self.place, row, self.n_places) for row in count]).reshape(len(count), self.n_places)


def find_pairs(
    pair: Int[np.ndarray, "*shape"], pairs: Int[np.ndarray, " pair"]
) -> tuple[Int[np.ndarray, "*shape"], Bool[np.ndarray, "*shape"]]:
    """Index of each pair among the ascending `pairs`, and whether it is there."""
    if not len(pairs):
        return np.zeros(pair.shape, np.int64), np.zeros(pair.shape, bool)
    at = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
    return at, pairs[at] == pair


def slot_kernel(time_grid: TimeGrid, bandwidth: float) -> Float[np.ndarray, "slot slot"]:
    """Gaussian weights between slots, 1 on the diagonal; `bandwidth` is the standard deviation in slots, or 0.

    If slots repeat (see `TimeGrid.period`), the last slot is a neighbour of the first.
    """
    slots = np.arange(time_grid.n_slots)
    apart = np.abs(slots[:, None] - slots)
    if time_grid.n_instants > time_grid.period:
        apart = np.minimum(apart, len(slots) - apart)
    return np.exp(-0.5 * (apart / bandwidth) ** 2) if bandwidth > 0 else np.eye(len(slots))


class PopulationSmoothing(NamedTuple):
    """Parameters of `population`."""

    exponent: float  # exponent of a user's number of events at a place, see `VisitCounts.tempered`
    least_users: int  # minimum number of users of a count, see `user_bounds.used_share`
    slot_bandwidth: float  # see `slot_kernel`
    place_mass: float  # pseudo-events per place in each slot, distributed like the events of all slots
    uniform_mass: float  # pseudo-events of each place over all slots, in units of the mean count of a place


def population(
    visits: VisitCounts | Blocks[VisitCounts], smoothing: PopulationSmoothing, time_grid: TimeGrid
) -> Float[np.ndarray, "slot place"]:
    """Share of the people at each place in each slot, every share positive.

    p(s, b) ~ sum_r T(s, r) c(r, b) + m M q(b), where c are the counts with enough users (in the time block, or
    over all slots), T the kernel over slots, M the number of places, m the place mass, and q(b) ~ c(b) + the uniform
    mass times the mean of c over places.
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
