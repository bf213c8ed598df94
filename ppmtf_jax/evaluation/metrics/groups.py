"""Group-TV: total variation, over places and hours, between a neighbourhood's people and the traces made from them.

A synthesizer that gives everybody the traces of an average person has the right population, but is useless for
questions about a part of the town. So training users are grouped by the grid cell of their most visited place. Each
group's distribution over cells and quarters of the period is compared with the distribution of the traces made from its
users. First, each of these traces is thinned to the instants of a random window of the same group (fixed seed), because
people check in more often at some hours than at others, while synthetic traces are complete. Synthetic traces with gaps
of their own are compared as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from annotated_types import Ge
from scipy import sparse

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.evaluation.distributions import pair_counts, row_shares, row_variation, row_variation_from, weighted_mean
from ppmtf_jax.evaluation.judgement import FLOOR
from ppmtf_jax.evaluation.metrics.windows import has_gaps, one_point
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings
from ppmtf_jax.streams import Stage, numpy_stream

MIN_USERS = 20
N_CELLS = 8
N_QUARTERS = 4
N_HALVES = 10
SEED = 0
# Random-stream numbers; windows.py uses the stream without a number.
WINDOWS, HALVES = 1, 2
NO_GROUP = Caveat("no_group", "No group has enough training users")


@dataclass(frozen=True)
class GroupSettings(Settings, subject="groups"):
    """Settings of Group-TV.

    Parameters
    ----------
    min_users : int
        Smallest number of training users of a group.
    n_cells : int
        Number of cells of the grid on each side of the bounding box of the places.
    """

    min_users: Annotated[int, Ge(2)] = MIN_USERS
    n_cells: Count = N_CELLS


@dataclass(frozen=True, eq=False)
class Groups:
    """Training users, grouped by the cell of their most visited place, and their events by place and time.

    `of_user` is the group of each user, -1 if the group is too small. `user_counts` has the number of events of each
    user by quarter of the period and cell, shape (users, quarters * cells).
    """

    windows: Windows
    n_cells: int
    of_user: np.ndarray
    n_users: np.ndarray
    user_counts: sparse.csr_array

    @classmethod
    def of(cls, train: Traces, settings: GroupSettings) -> Groups:
        """Group training users by the cell of their most visited place, and keep the large enough groups."""
        home = train.places.grid_cell(settings.n_cells)[most_visited_place(train)]
        n_users = np.bincount(home, minlength=settings.n_cells**2)
        counts = n_users >= settings.min_users
        of_user = np.where(counts[home], (np.cumsum(counts) - 1)[home], -1)
        windows = Windows.of(train)
        user_counts = _counts(windows, np.arange(train.n_users), train.n_users, settings.n_cells)
        return cls(windows, settings.n_cells, of_user, n_users[counts], user_counts)

    @cached_property
    def shares(self) -> sparse.csr_array:
        """Distribution of each group's events over quarters and cells, shape (groups, quarters * cells)."""
        return self._shares_of(np.arange(len(self.of_user)))

    def variation(self, windows: Windows, group: np.ndarray, *, thin: bool) -> float:
        """Total variation between the users of a group and the traces made from them, averaged over the groups.

        `group` is the group of each user of the windows, -1 for a user without a group. If `thin`, each window is first
        thinned to the instants of a random window of a member of the group.
        """
        if thin:
            of_window = self.of_user[self.windows.user]
            by_group = np.argsort(of_window, kind="stable")
            wanted = group[windows.user]
            first, after = (np.searchsorted(of_window[by_group], wanted, side=side) for side in ("left", "right"))
            # For group -1, any window is drawn; it is not counted.
            drawn = numpy_stream(SEED, Stage.METRICS, WINDOWS).integers(first, np.maximum(after, first + 1))
            windows = windows.thinned(self.windows, by_group[drawn])
        counts = _counts(windows, group, len(self.n_users), self.n_cells)
        return weighted_mean(row_variation(row_shares(counts), self.shares), self.n_users)

    def floor(self) -> float:
        """Total variation between a random half of a group's users and the whole group, averaged over some halves.

        A random half is about as far from the whole group as the whole group is from infinitely many people like its
        members. So a synthesizer that knows the distribution behind a group, but not its members, gives this value.
        """
        rank, halves = np.arange(len(self.of_user)), []
        for number in range(N_HALVES):
            shuffled = numpy_stream(SEED, Stage.METRICS, HALVES, number).permutation(len(rank))
            # Sort by group, in random order within a group. Users without a group come first and do not count.
            shuffled = shuffled[np.argsort(self.of_user[shuffled], kind="stable")]
            group = self.of_user[shuffled]
            is_first_half = rank - np.searchsorted(group, group) < self.n_users[group] // 2
            halves.append(row_variation(self._shares_of(shuffled[is_first_half]), self.shares))
        return weighted_mean(np.mean(halves, axis=0), self.n_users)

    def alike(self) -> float:
        """Total variation between each group and all training users: the value if all synthetic users are alike."""
        everybody = np.asarray(self.user_counts.sum(axis=0)) / self.user_counts.sum()
        return weighted_mean(row_variation_from(everybody[self.shares.tocoo().coords[1]], self.shares), self.n_users)

    def uniform(self) -> float:
        """Total variation between each group and people at random places at the same hours."""
        group, column = self.shares.tocoo().coords
        quarter, cell = np.divmod(column, self.n_cells**2)
        group_quarter = group * N_QUARTERS + quarter
        at_quarter = np.bincount(group_quarter, self.shares.data)[group_quarter]
        in_cell = np.bincount(self.windows.places.grid_cell(self.n_cells), minlength=self.n_cells**2)
        in_cell = in_cell / len(self.windows.places)
        return weighted_mean(row_variation_from(at_quarter * in_cell[cell], self.shares), self.n_users)

    def _shares_of(self, users: np.ndarray) -> sparse.csr_array:
        """Distribution over quarters and cells of some users of each group, shape (groups, quarters * cells)."""
        users = users[self.of_user[users] >= 0]
        shape = (len(self.n_users), len(self.of_user))
        members = sparse.csr_array((np.ones(len(users)), (self.of_user[users], users)), shape=shape)
        return row_shares(members @ self.user_counts)


def most_visited_place(traces: Traces) -> np.ndarray:
    """The place at which each user has most events (ties: the first in the place table), shape (users,)."""
    pair, count = np.unique(traces.user.astype(np.int64) * traces.n_places + traces.place, return_counts=True)
    user, place = np.divmod(pair, traces.n_places)
    # Stable: pairs of a user are in the order of the places.
    most_first = np.lexsort((-count, user))
    return place[most_first[np.searchsorted(user, np.arange(traces.n_users))]]


def _counts(windows: Windows, row_of_user: np.ndarray, n_rows: int, n_cells: int) -> sparse.csr_array:
    """Events by row, quarter of the period and cell, shape (rows, quarters * cells), without users of row -1."""
    row = row_of_user[windows.user][windows.window]
    counted = row >= 0
    quarter = windows.phase[counted].astype(np.int64) * N_QUARTERS // windows.time_grid.n_instants
    column = quarter * n_cells**2 + windows.places.grid_cell(n_cells)[windows.place[counted]]
    return pair_counts(row[counted], column, (n_rows, N_QUARTERS * n_cells**2))


def _groups(comparison: Comparison, settings: GroupSettings) -> Groups:
    groups = comparison.statistic(Groups.of, comparison.train, settings)
    if not len(groups.n_users):
        raise Undefined
    return groups


def _measure(comparison: Comparison, settings: GroupSettings) -> list[float]:
    groups, traces, train = _groups(comparison, settings), comparison.traces, comparison.train
    user = index_of_ids(traces.user_ids, train.user_ids)
    if traces.of_nobody or (user < 0).any() or not same_period(traces.time_grid, train.time_grid):
        raise Undefined
    windows = comparison.statistic(Windows.of, traces)
    thin = not (comparison.pool_traces or has_gaps(comparison))
    return [groups.variation(windows, groups.of_user[user], thin=thin)]


def _uniform(comparison: Comparison, settings: GroupSettings) -> list[float]:
    return [_groups(comparison, settings).uniform()]


def _reading(comparison: Comparison, settings: GroupSettings) -> list[Interpretation]:
    try:
        groups = _groups(comparison, settings)
    except Undefined:
        return [Interpretation(caveats=(NO_GROUP,))]
    references = {FLOOR: groups.floor(), "all alike": groups.alike()}
    return [Interpretation(references, one_point(comparison.test))]


register_utility(
    variation_quantity(
        "group_tv",
        "Group-TV",
        "Total variation, over cells and quarters of the period, between the users of a group and the traces made "
        "from them, averaged over groups of at least {min_users} training users with the same most visited cell of a "
        "grid of {n_cells} x {n_cells}.",
        "no group with enough training users, synthetic users who are not known, or time grids with different periods",
        good_value="near floor",
        plain="Where and when the people of each neighbourhood are",
        section="clusters",
        uses=("groups",),
    ),
    measure=_measure,
    uniform=_uniform,
    settings=GroupSettings,
    reading=_reading,
)
