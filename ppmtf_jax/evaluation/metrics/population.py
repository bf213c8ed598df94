"""Where people are: the population of each slot, rare places, and the people of each neighbourhood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated

import numpy as np
from annotated_types import Ge
from scipy import sparse

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.description import percent
from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation, MetricInfo, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.evaluation.distributions import (
    pair_counts,
    row_shares,
    row_variation,
    row_variation_from,
    total_variation,
    variation_of_counts,
    weighted_mean,
)
from ppmtf_jax.evaluation.judgement import FEW_VALUES, FLOOR, LARGE_PART
from ppmtf_jax.evaluation.metrics.windows import SEED, has_gaps, one_point
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings, Share
from ppmtf_jax.streams import Stage, numpy_stream

N_TOP = 50
RARE_SHARE = 0.2
N_CELLS = 8
MIN_USERS = 20
N_QUARTERS = 4
N_HALVES = 10
# Random-stream numbers; see windows.py.
WINDOWS, HALVES = 1, 2
NO_GROUP = Caveat("no_group", "No group has enough training users")


# TP-TV: distance between the populations (distributions of the events over places) of each slot (Murakami et al. 2021)


@dataclass(frozen=True)
class PopulationSettings(Settings, subject="TP-TV"):
    """Settings of TP-TV.

    Parameters
    ----------
    n_top : int
        Number of most visited places of each slot that count for TP-TV-Top (50: TP-TV-Top50).
    """

    n_top: Count = N_TOP


def population_by_slot(traces: Traces) -> np.ndarray:
    """Distribution of the events of each slot over places, shape (slots, places); uniform for a slot without events."""
    count = pair_counts(traces.slot, traces.place, (traces.time_grid.n_slots, traces.n_places)).toarray()
    total = count.sum(axis=1, keepdims=True)
    return np.where(total > 0, count / np.maximum(total, 1), 1 / traces.n_places)


def compared_populations(comparison: Comparison, *, uniform: bool) -> tuple[np.ndarray, np.ndarray]:
    """`population_by_slot` of the measured traces, or of people at random places, and of the test users."""
    test = comparison.statistic(population_by_slot, comparison.test)
    if uniform:
        return np.full_like(test, 1 / test.shape[1]), test
    return comparison.statistic(population_by_slot, comparison.traces), test


def _measure_slots(comparison: Comparison, settings: PopulationSettings, *, uniform: bool = False) -> list[float]:
    population, test = compared_populations(comparison, uniform=uniform)
    top = np.argsort(-test, axis=1, kind="stable")[:, : settings.n_top]
    at_top = (np.take_along_axis(each, top, axis=1) for each in (population, test))
    return [total_variation(population, test), total_variation(*at_top)]


def _read_slots(comparison: Comparison, settings: PopulationSettings) -> list[Interpretation]:
    test = comparison.test
    empty = 1 - len(np.unique(test.slot)) / test.time_grid.n_slots
    text = (
        f"{percent(empty)} of the slots have no test event and count as uniform, so scattered traces score well there"
    )
    return [Interpretation(caveats=caveat_if(empty > LARGE_PART, "empty_slots", text))] * 2


register_utility(
    variation_quantity(
        "tp_tv",
        "TP-TV",
        "Total variation between the distributions over places of the synthetic and the test events, averaged "
        "over the slots.",
        plain="Where people are",
        section="population",
        uses=("population",),
    ),
    variation_quantity(
        "tp_tv_top{n_top}",
        "TP-TV-Top{n_top}",
        "TP-TV over the {n_top} places that the test users visit most in each slot.",
        plain="Where people are, the {n_top} busiest places alone",
        section="population",
        uses=("population",),
    ),
    measure=_measure_slots,
    uniform=partial(_measure_slots, uniform=True),
    settings=PopulationSettings,
    per_trace_number=True,
    pools_gaps=True,
    reading=_read_slots,
)


# Rare places: whether places with few visits get the right share of the visits, in the right parts of the town. Single
# rare places cannot be compared, because most of them are visited by training users or by test users, but not by both.
# So the events at all rare places are compared, first together and then by cells of a grid.


@dataclass(frozen=True)
class RareSettings(Settings, subject="rare places"):
    """Settings of the metrics of rare places.

    Parameters
    ----------
    share : float
        Largest share of the real events that are at rare places.
    n_cells : int
        Number of cells of the grid on each side of the bounding box of the places.
    """

    share: Share = RARE_SHARE
    n_cells: Count = N_CELLS


def visits(traces: Traces) -> np.ndarray:
    """Number of events at each place, shape (places,)."""
    return np.bincount(traces.place, minlength=traces.n_places)


def is_rare(n_visits: np.ndarray, share: float) -> np.ndarray:
    """Whether each place is one of the least visited places, which together have at most this share of the visits.

    Of places with equally many visits, all are rare or none is. The result has the shape (places,).

    Examples
    --------
    >>> n_visits = np.array([80, 0, 9, 9, 2])
    >>> [np.flatnonzero(is_rare(n_visits, share)).tolist() for share in (0.2, 0.15)]
    [[1, 2, 3, 4], [1, 4]]
    """
    ascending = np.sort(n_visits)
    # For each place, the sum of the visits of all places with at most as many visits.
    up_to = np.append(0, np.cumsum(ascending))[np.searchsorted(ascending, n_visits, side="right")]
    return up_to <= share * n_visits.sum()


def _rare(comparison: Comparison, settings: RareSettings) -> np.ndarray:
    """Whether each place is rare for all real users together; raises `Undefined` if the test users visit none."""
    test = comparison.statistic(visits, comparison.test)
    rare = is_rare(comparison.statistic(visits, comparison.train) + test, settings.share)
    if not test[rare].sum():
        raise Undefined
    return rare


def _measure_rare(comparison: Comparison, settings: RareSettings, *, uniform: bool = False) -> list[float]:
    rare, test = _rare(comparison, settings), comparison.statistic(visits, comparison.test)
    found = np.full(len(test), test.sum() / len(test)) if uniform else comparison.statistic(visits, comparison.traces)
    # Half an event is added, so that traces without any rare place are far off, but not infinitely far.
    shares = [(each[rare].sum() + 0.5) / (each.sum() + 0.5) for each in (found, test)]
    cell = comparison.test.places.grid_cell(settings.n_cells)[rare]
    by_cell = (np.bincount(cell, each[rare], settings.n_cells**2) for each in (found, test))
    return [float(np.log2(shares[0] / shares[1])), variation_of_counts(*by_cell)]


def _has_rare(comparison: Comparison) -> bool:
    """Whether the test users visit a rare place, at the default share."""
    try:
        return bool(_rare(comparison, RareSettings()).any())
    except Undefined:
        return False


def _read_rare(comparison: Comparison, settings: RareSettings) -> list[Interpretation]:
    n_events = int(comparison.statistic(visits, comparison.test)[_rare(comparison, settings)].sum())
    text = f"The test users have only {n_events} events at rare places, so chance decides"
    few = caveat_if(n_events < FEW_VALUES, "few_values", text)
    return [Interpretation(caveats=few), Interpretation(caveats=few + one_point(comparison.test))]


register_utility(
    MetricInfo(
        "rare_visits",
        "Rare visits",
        "Log2 of the ratio between the shares of synthetic and of test events at rare places: the least visited "
        "places, which have at most a share of {share:g} of all real events.",
        "log2 of a ratio",
        "zero",
        "near 0",
        "the test users visit no rare place",
        "bits",
        uses=("rare",),
    ),
    variation_quantity(
        "rare_tv",
        "Rare-TV",
        "Total variation between the distributions of the synthetic and of the test events at rare places over the "
        "cells of a grid of {n_cells} x {n_cells}.",
        "the test users or the synthetic users visit no rare place",
        uses=("rare",),
    ),
    name="rare_places",
    measure=_measure_rare,
    uniform=partial(_measure_rare, uniform=True),
    settings=RareSettings,
    reading=_read_rare,
    applies=_has_rare,
)


# Group-TV: total variation, over places and hours, between a neighbourhood's people and the traces made from them. A
# synthesizer that gives everybody the traces of an average person has the right population, but is useless for
# questions about a part of the town. So training users are grouped by the grid cell of their most visited place. Each
# group's distribution over cells and quarters of the period is compared with the distribution of the traces made from
# its users. First, each of these traces is thinned to the instants of a random window of the same group (fixed seed),
# because people check in more often at some hours than at others, while synthetic traces are complete. Synthetic traces
# with gaps of their own are compared as they are.


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


def _measure_groups(comparison: Comparison, settings: GroupSettings) -> list[float]:
    groups, traces, train = _groups(comparison, settings), comparison.traces, comparison.train
    user = index_of_ids(traces.user_ids, train.user_ids)
    if traces.of_nobody or (user < 0).any() or not same_period(traces.time_grid, train.time_grid):
        raise Undefined
    windows = comparison.statistic(Windows.of, traces)
    thin = not (comparison.pool_traces or has_gaps(comparison))
    return [groups.variation(windows, groups.of_user[user], thin=thin)]


def _read_groups(comparison: Comparison, settings: GroupSettings) -> list[Interpretation]:
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
    measure=_measure_groups,
    uniform=lambda comparison, settings: [_groups(comparison, settings).uniform()],
    settings=GroupSettings,
    reading=_read_groups,
)
