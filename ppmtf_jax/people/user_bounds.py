"""The bridge's rules: the maximum weight of one user in a count, and the minimum number of users of a count.

`bounded` limits the weight of one user in counts of visits, stays, steps away, moves and distances. Where a count
belongs to a place or to a pair of places, `used_share` also reduces it. `RULES` says this in words, which the
privacy statement copies.

The bound. One user is added to the data. Let m be the weight of the heaviest of the other users in a group. Then the
group's sum grows by at most 2 m, whatever the added user did. Proof: before, the group has u users. Its cap c is the
weight of the second heaviest user, its sum is S <= u c, and the model uses the sum (u - n)/u S, where n = least - 1.
Afterwards the cap is c' <= m. The added user adds at most c', and the user who was heaviest adds at most c' - c more.
So the used sum grows by at most S n / (u (u + 1)) + (u + 1 - n)/(u + 1) (2 c' - c). This is at most 2 c', since the
first term is at most c n / (u + 1). The used sum never decreases.

The moves between two places may be few, and those from a place that are used fewer still. So `shrinkage` divides them
by the steps away from the place that are counted (bounded, of enough users). N(a, b) are the used moves from a to b, m
belongs to these moves, and L are the counted steps away from a. An added user then raises N(a, b) / L by at most
2 m / L. In a time block, the rest goes to the moves of all times. So steps away that a user adds also raise the weight
of these moves, by at most 2 m' / L'. Here m' belongs to the steps away in the time block, and L' are these steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.time_grid import TimeGrid

PLACE_USERS = 2
"""Minimum number of users at a place for its visits to count, over all times and again in each time block."""
STEP_USERS = 5
"""Minimum number of users who stay at a place, or move between two places, for these steps to count, over all times and
again in each time block."""
UNIT = 2.0**-22
"""Bounded weights are multiples of this, so that their sums in float64 are exact up to two billion. Then they do not
depend on the order in which they are added, and so not on how users are divided among files and workers."""
TIME_BLOCK_S = 7200
"""Length of a time block in seconds. All slots that begin within the same two hours form one time block; a slot that is
longer than two hours forms its own."""

CHECKIN_WINDOWS = 12
"""Maximum weight of a user, in windows of days, in what the model learns about check-ins."""
CHECKIN_RETURNS = 5
"""Maximum weight of a user, in returns to a place, in the rate of returns to this place."""

MOVE_RULE = (
    "the counted steps away from a place may be more than the counted moves from it to other places. At a time of the "
    "day, the model then sends the rest as the moves at all times go. At all times, it sends the rest to places that "
    "it chooses by their distance and their number of people. So the moves from one place to another weigh only as "
    "much as they do among the counted steps away from the place"
)
"""The rule of `RULES` for steps away that are not counted as moves. Models of check-ins with gaps count no moves."""
RULES = (
    "no user weighs more than the second most active user. The model counts each user's events at a place, their "
    "stays at it, their steps away from it and their moves from it to another place. Each of these numbers is limited "
    "to the number of the user who has the second most, over all times and again in each time block of "
    f"{TIME_BLOCK_S // 3600} hours. Their stays and moves at each time of the day, and their moves over each range of "
    "distances, are limited in the same way",
    f"events at a place count only if at least {PLACE_USERS} users have events there. Stays at a place, steps away "
    f"from it and moves from it to another place count only if at least {STEP_USERS} users made them. Both limits hold "
    f"over all times and again in each time block of {TIME_BLOCK_S // 3600} hours. The minimum of {STEP_USERS} users "
    "also holds for all stays and all steps away at each time of the day, and for moves over each range of distances. "
    "Only users who did exactly this are counted. If u users did it, the model multiplies their count by (u-n)/u. Here "
    f"n is {PLACE_USERS - 1} or more for events, and {STEP_USERS - 1} for stays, steps away and moves. There is one "
    "exception: when the model learns how far people go, steps away from a place count if at least "
    f"{PLACE_USERS} users made them",
    MOVE_RULE,
    "so, if one user is added to the data, each of these counts (over all times, in a whole time block, at a time of "
    "the day or over a range of distances) grows by at most twice the number that the most active of the other users "
    "has in this count. This holds whatever the data of the added user are",
)
"""The rules in words, each without its first capital letter and its last full stop."""
CHECKIN_RULES = (
    "where traces come with gaps, the model learns when people check in, how often they return and how far they go. "
    f"In these numbers, the windows of one user weigh at most as much as {CHECKIN_WINDOWS} windows. Their events weigh "
    "at most as much as the events of the user who has the second most. In the numbers of stays, returns and new "
    "places after gaps of each length and over distances of each range, no user weighs more than the user who has the "
    f"second most, and the model multiplies the number of u users by (u-{STEP_USERS - 1})/u; it uses none of fewer "
    f"than {STEP_USERS}",
    "people who check in more or less often form classes. The range of the most active class ends where the most "
    "active window of the second most active user is. In the number of windows of each class, in all clusters and in "
    "each, no user weighs more than the user who has the second most. What this takes from a class counts for the next "
    "less active class, or for all clusters. The model multiplies the number of windows of u users by "
    f"(u-{STEP_USERS - 1})/u; what this takes counts half for the next less and half for the next more active class",
    "in the numbers of check-ins at each hour of the day, on each day of the week, after each time since the last one "
    "and for each strength of habit, of all classes and of each class, no user weighs more than the user who has the "
    f"second most. A class with fewer than {STEP_USERS} users has no share, rate, hours, times or returns of its own. "
    f"More check-ins than expected, such as at an hour, count only if at least {STEP_USERS} users made them. If u "
    "users did, the model multiplies the difference between the observed and the expected number by "
    f"(u-{STEP_USERS - 1})/u. In this rule, a user counts as a part of a user if the weight of this user is below one "
    "and below that of the user who has the second most",
    f"the rate at which people return to a place counts at most {CHECKIN_RETURNS} returns of each user, and at most as "
    f"many as the user who has the second most. A place to which fewer than {STEP_USERS} users could return has no "
    "rate of its own. If u users could return to it, the model multiplies the difference between the observed and the "
    f"expected number of returns by (u-{STEP_USERS - 1})/u",
    "in the distributions over places, a user's events at a place count once in each window of a trace. The model also "
    "learns how often windows begin at each place. In this number, no user weighs more than the user who has the "
    f"second most. A place where windows of fewer than {STEP_USERS} users begin has no rate of its own. If windows of "
    "u users begin there, the model multiplies the difference between the observed and the expected number of windows "
    f"by (u-{STEP_USERS - 1})/u",
)
"""The rules for numbers that only models of check-ins with gaps learn; they hold beside `RULES` but `MOVE_RULE`."""
PEOPLE_RULES = (
    "a user weighs one in the number of users with a home at a place, and one in the number of users with a second "
    f"place there. Such a number counts only if it is at least {PLACE_USERS}. Of u users, the model counts u-n, where "
    f"n is {PLACE_USERS - 1} or more. The rest is spread over all places as visits are, so that the home of a single "
    "user is no likelier as a home than as a visited place. A user also weighs one in the number of users with a "
    "second place, and in the number of users of each class of mobility",
    "in the numbers of events at home, at the second place and at other places, and of steps between these, at each "
    "instant of the period, no user of a cluster weighs more than the user who has the second most. The same holds for "
    "stays and steps at other places, from which the model learns how staying depends on the time at the place; for "
    "moves, from which it learns how people choose among the places that they remember; and for returns and other "
    "moves in the share of returns. Stays and steps after each time at the place, and homes and second places at "
    f"distances of each range, count only from {STEP_USERS} users on; of u users, the model multiplies them by "
    f"(u-{STEP_USERS - 1})/u",
    "visits, stays, steps away, moves and distances at other places follow the rules for all visits and steps",
)
"""Additional rules of the remembering bridge, see `people.process`."""
NO_RULE = (
    "who is in which cluster, and when somebody was at a place within a time block in which others were there "
    "too. The rules for the model do not cover these, nor which settings were chosen, where the ranges of distances "
    "end, and that a cluster has few users at a place. They bound the weight of one user among all users, and they are "
    "not differential privacy"
)
"""What the rules do not cover."""


def time_blocks(time_grid: TimeGrid) -> Int[np.ndarray, " slot"]:
    """Number of the two-hour time block in which each slot begins.

    Examples
    --------
    >>> time_blocks(TimeGrid.each_instant("2024-01-01T09:00:00", 1200, 8)).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1]
    """
    first = np.unique(time_grid.slot_of_instant, return_index=True)[1]
    return np.unique(first * time_grid.step_s // TIME_BLOCK_S, return_inverse=True)[1]


class Rows(NamedTuple):
    """Rows of users that are counted, such as events; a user's rows of a group together weigh a bounded amount.

    `cell`: where the weight of a row is added, an index into an array of the shape `shape`. Without cells, the weight
    is added to the row's group.
    """

    user: Int[np.ndarray, " row"]
    group: Int[np.ndarray, " row"]
    cell: Int[np.ndarray, " row"] | None = None
    shape: tuple[int, ...] = ()
    weight: Float[np.ndarray, " row"] | None = None


class Groups(NamedTuple):
    """Distinct groups, ascending; the weights of the two heaviest users of each (0 if there is none), and its users.

    `total` is the sum of the rounded weights of a group's rows, without a bound.
    """

    group: Int[np.ndarray, " group"]
    heaviest: Float[np.ndarray, " group"]
    second: Float[np.ndarray, " group"]
    n_users: Int[np.ndarray, " group"]
    total: Float[np.ndarray, " group"]

    @classmethod
    def of(
        cls, group: np.ndarray, weight: np.ndarray, n_users: np.ndarray, total: np.ndarray
    ) -> tuple[Groups, Int[np.ndarray, " weight"]]:
        """Find the groups from weights; each weight is that of one user in one group.

        `n_users`: 1 for each weight that counts as a user, else 0. `total`: what each weight adds to its group's
        `total`. The second result is the index of each weight's group.
        """
        which, found = _numbered(group)
        heaviest, second = np.zeros((2, len(found)))
        np.maximum.at(heaviest, which, weight)
        # One of the heaviest users of each group. If another is equally heavy, the second heaviest weighs the same.
        first = np.zeros(len(found), np.int64)
        is_heaviest = np.flatnonzero(weight == heaviest[which])
        first[which[is_heaviest]] = is_heaviest
        others = np.ones(len(weight), bool)
        others[first] = False
        np.maximum.at(second, which[others], weight[others])
        n_users = np.bincount(which, n_users, len(found)).astype(np.int64)
        return cls(found, heaviest, second, n_users, sums(which, total, len(found))), which

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """The groups of different users together."""
        group, heaviest, second, *added = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        # Each group is listed twice, with two weights. Its users and its sum count only in the first half.
        added = (np.concatenate([each, np.zeros_like(each)]) for each in added)
        return cls.of(np.tile(group, 2), np.concatenate([heaviest, second]), *added)[0]

    def users_of(self, *shape: int) -> Int[np.ndarray, "*shape"]:
        """Number of users in each of the groups 0, 1, ... of an array of this shape."""
        found = np.zeros(prod(shape), np.int64)
        found[self.group] = self.n_users
        return found.reshape(shape)


class Bounded(NamedTuple):
    """Sums of bounded weights, in the shape of the cells, or of each of `groups`."""

    total: Float[np.ndarray, "..."]
    groups: Groups


class _Weights(NamedTuple):
    """Weights of rows; `of_user` is, for each row, the total weight of its user in its group."""

    group: Int[np.ndarray, " row"]
    cell: Int[np.ndarray, " row"]
    weight: Float[np.ndarray, " row"]
    of_user: Float[np.ndarray, " row"]

    def bounded(self, groups: Groups) -> Float[np.ndarray, " row"]:
        """Weights, scaled such that no user weighs more than the second heaviest user of the group."""
        return _rounded(self.weight * np.minimum(1, self._bound(groups) / self.of_user))

    def above(self, groups: Groups) -> _Weights:
        """The rows of users who weigh more than the second heaviest user of the group; at most one user of each."""
        return self.where(self.of_user > self._bound(groups))

    def where(self, keep: Bool[np.ndarray, " row"]) -> _Weights:
        return _Weights(*(column[keep] for column in self))

    def _bound(self, groups: Groups) -> Float[np.ndarray, " row"]:
        return groups.second[np.searchsorted(groups.group, self.group)]


class _Sum:
    """Sum of the rows of one kind. Rows of further users are added as they are; `bounded` then corrects the sum.

    For the correction, the rows of users above the bound are kept. More users can only raise the bound.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.shape, self.total = shape, np.zeros(prod(shape))
        self.parts: list[tuple[Groups, _Weights]] = []

    def add(self, cell: np.ndarray, weight: np.ndarray, groups: Groups, above: _Weights) -> None:
        np.add.at(self.total, cell, weight)
        self.parts.append((groups, above))
        # Joined when the new ones are as many as the old ones, so that this takes little time and memory.
        if sum(len(part.group) for part, _ in self.parts[1:]) > len(self.parts[0][0].group):
            self.parts = [self._joined()]

    def _joined(self) -> tuple[Groups, _Weights]:
        groups, above = zip(*self.parts, strict=True)
        groups = Groups.joined(groups)
        return groups, _Weights(*map(np.concatenate, zip(*above, strict=True))).above(groups)

    def bounded(self) -> Bounded:
        groups, above = self._joined()
        change = above.bounded(groups) - _rounded(above.weight)
        total, cell = self.total, above.cell
        if not self.shape:
            total, cell = groups.total, np.searchsorted(groups.group, above.group)
        return Bounded((total + sums(cell, change, len(total))).reshape(self.shape or -1), groups)


def bounded_totals(rows: Blocks[Sequence[Rows]]) -> list[Bounded]:
    """Sums of rows in which no user weighs more in a group than the second heaviest user of the group.

    Several kinds of rows can be counted in one pass over the users. In a group with a single user, all weights are 0.
    """
    found: list[_Sum] = []
    for kinds in rows.map(lambda kinds: list(map(_added, kinds))):
        found = found or [_Sum(shape) for shape, *_ in kinds]
        for each, (_, *own) in zip(found, kinds, strict=True):
            each.add(*own)
    return [each.bounded() for each in found]


def _added(rows: Rows) -> tuple[tuple[int, ...], np.ndarray, np.ndarray, Groups, _Weights]:
    """Shape of the sum, cells and what to add to them, and what is needed for the bound."""
    weights, groups, is_above = _weigh(rows)
    cell, weight, n_cells = weights.cell, _rounded(weights.weight), prod(rows.shape)
    if rows.cell is None:
        cell, weight = cell[:0], weight[:0]
    elif n_cells < len(cell):
        cell, weight = np.arange(n_cells), sums(cell, weight, n_cells)
    return rows.shape, cell, weight, groups, weights.where(is_above)


def _weigh(rows: Rows) -> tuple[_Weights, Groups, Bool[np.ndarray, " row"]]:
    """Weights of rows, their groups, and which rows are above the bound of their group."""
    weight = np.ones(len(rows.user)) if rows.weight is None else rows.weight.astype(np.float64)
    n_groups = int(rows.group.max(initial=-1)) + 1
    pair, found = pd.factorize(rows.user.astype(np.int64) * n_groups + rows.group)
    of_pair, rounded = (sums(pair, each, len(found)) for each in (weight, _rounded(weight)))
    groups, which = Groups.of(found % max(n_groups, 1), of_pair, np.ones(len(found)), rounded)
    weights = _Weights(rows.group, rows.group if rows.cell is None else rows.cell, weight, of_pair[pair])
    return weights, groups, (of_pair > groups.second[which])[pair]


def _numbered(group: Int[np.ndarray, " row"]) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """Index of each row's group among the distinct groups, and these groups, ascending."""
    n_groups = int(group.max(initial=-1)) + 1
    if n_groups > 4 * len(group):
        return pd.factorize(group, sort=True)
    # This is much faster than sorting or hashing the groups.
    is_there = np.zeros(n_groups, bool)
    is_there[group] = True
    return (np.cumsum(is_there) - 1)[group], np.flatnonzero(is_there)


def _rounded(weight: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Weights, rounded down so that bounds hold; sums of such numbers are exact."""
    return np.floor(weight / UNIT) * UNIT


def bounded(
    user: Int[np.ndarray, " row"],
    group: Int[np.ndarray, " row"],
    n_groups: int,
    weight: Float[np.ndarray, " row"] | None = None,
) -> tuple[Float[np.ndarray, " row"], Int[np.ndarray, " group"]]:
    """Weights of rows such that no user weighs more than the second heaviest user; and users per group.

    The rows of a user in a group are scaled down until their sum is at most the sum of the group's second heaviest
    user. So the row weights of a group with a single user become 0. Input weights are positive, and 1 by default.

    Examples
    --------
    User 7 has three rows of place 0, and user 8 has one. User 7 is alone at place 1:

    >>> weights, users = bounded(np.array([7, 7, 7, 8, 7]), np.array([0, 0, 0, 0, 1]), n_groups=2)
    >>> weights.round(2).tolist(), users.tolist()
    ([0.33, 0.33, 0.33, 1.0, 0.0], [2, 1])
    """
    weights, groups, _ = _weigh(Rows(user, group, weight=weight))
    return weights.bounded(groups), groups.users_of(n_groups)


def bounded_columns(
    of_user: Float[np.ndarray, "user column"],
) -> tuple[Float[np.ndarray, "user column"], Float[np.ndarray, " column"]]:
    """Weights of users in each column, none above that of the second heaviest user; and the users of each column.

    Users count in proportion to their weights: whoever weighs as much as the second heaviest user, or one if this is
    more, counts as one user. So users who hardly contribute do not let two heavy users count as five.

    Examples
    --------
    >>> weights, users = bounded_columns(np.array([[9.0, 0.5], [2.0, 0.0], [1.0, 0.0]]))
    >>> weights.T.tolist(), users.tolist()
    ([[2.0, 2.0, 1.0], [0.0, 0.0, 0.0]], [2.5, 0.5])
    """
    second = np.partition(of_user, -2, axis=0)[-2] if len(of_user) > 1 else np.zeros(of_user.shape[1])
    return np.minimum(of_user, second), np.minimum(of_user / np.maximum(second, 1), 1).sum(axis=0)


def sums(
    group: Int[np.ndarray, " row"], weight: Float[np.ndarray, " row"], n_groups: int
) -> Float[np.ndarray, " group"]:
    """Sum of the weights of each group, as floats; without rows, `np.bincount` would return integers."""
    return np.bincount(group, weight, n_groups).astype(np.float64)


def used_share(users: Int[np.ndarray, "..."] | Float[np.ndarray, "..."], least: int) -> Float[np.ndarray, "..."]:
    """Share of a count that the model uses: 0 if fewer than `least` users contribute, near 1 if many users contribute.

    Examples
    --------
    >>> used_share(np.array([0, 4, 5, 10]), least=5).tolist()
    [0.0, 0.0, 0.2, 0.6]
    """
    return np.maximum(users - least + 1, 0) / np.maximum(users, 1)


def shrinkage(
    used: Float[np.ndarray, "*shape"], counted: Float[np.ndarray, "*shape"], mass: float
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """Weight of each used count in a probability, and the share of the prior; what is not used goes to the prior.

    `used`: sums of the moves that are used. `counted`: sums of the steps away; if `used` is more, `used` counts.
    `mass`: weight of the prior where all counts are used.

    Examples
    --------
    Of 30 steps away from a place, 2 are used as moves. The other 28, and 20 more, go where the prior says:

    >>> shrinkage(np.array([2.0]), np.array([30.0]), mass=20.0)
    (array([0.02]), array([0.96]))
    """
    total = np.maximum(used, counted) + mass
    return 1 / total, (total - used) / total
