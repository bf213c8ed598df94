"""The bridge's rules: the maximum weight of one user in a count, and the minimum number of users of a count.

`bounded` limits the weight of one user in counts of visits, stays, steps away, moves and distances. Where a count
belongs to a place or to a pair of places, `used_share` also reduces it. `RULES` says this in words; the privacy
statement and the documentation copy these words.

The bound. One user is added to the data. Let m be the weight of the heaviest of the other users in a group. Then the
group's sum grows by at most 2 m, whatever the added user did. Proof: before, the group has u users. Its cap c is the
weight of the second heaviest user, its sum is S <= u c, and the model uses the sum (u - n)/u S, where n = least - 1.
Afterwards the cap is c' <= m. The added user adds at most c', and the user who was heaviest adds at most c' - c more.
So the used sum grows by at most S n / (u (u + 1)) + (u + 1 - n)/(u + 1) (2 c' - c). This is at most 2 c', since the
first term is at most c n / (u + 1). The used sum never decreases.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ppmtf_jax.data.blocks import Blocks
from ppmtf_jax.data.time_grid import TimeGrid

PLACE_USERS = 2
"""Minimum number of users at a place for its visits to count, over all times and again in each stretch of time."""
STEP_USERS = 5
"""Minimum number of users who stay at a place, or move between two places, for these steps to count, over all times and
again in each stretch of time."""
UNIT = 2.0**-22
"""Bounded weights are multiples of this, so that their sums in float64 are exact up to two billion. Then they do not
depend on the order in which they are added, and so not on how users are divided among files and processes."""
STRETCH_S = 7200
"""Length of a stretch of time in seconds. All slots that begin within the same two hours form one stretch; a slot
longer than two hours is its own stretch."""

CHECKIN_WINDOWS = 12
"""Maximum weight of a user, in windows of days, in what the model learns about check-ins."""
CHECKIN_RETURNS = 5
"""Maximum weight of a user, in returns to a place, in the rate of returns to this place."""

RULES = (
    "no user weighs more than the second most active user. The model counts each user's events at a place, her stays "
    "at it, her steps away from it and her moves from it to another place. Each of these numbers is limited to the "
    "number of the user who has the second most, over all times and again in each stretch of "
    f"{STRETCH_S // 3600} hours. Her stays and moves at each time of the day, and her moves over each range of "
    "distances, are limited in the same way",
    f"events at a place count only if at least {PLACE_USERS} users have events there. Stays at a place, steps away "
    f"from it and moves from it to another place count only if at least {STEP_USERS} users made them. Both limits hold "
    f"over all times and again in each stretch of {STRETCH_S // 3600} hours. Only users who did exactly this are "
    "counted. If u users did it, the model multiplies their count by (u-n)/u, where n is "
    f"{PLACE_USERS - 1} or more for events, and {STEP_USERS - 1} for stays, steps away and moves. There is one "
    "exception: when the model learns how far people go, steps away from a place count if at least "
    f"{PLACE_USERS} users made them",
    "so, if one user is added to the data, each of these counts (over all times, in a whole stretch, at a time of the "
    "day or over a range of distances) grows by at most twice the number that the most active of the other users has "
    "in this count. This holds whatever the data of the added user are",
)
"""The rules in words, each without its first capital letter and its last full stop."""
CHECKIN_RULES = (
    "where traces come with gaps, the model learns when people check in, how often they return and how far they go. "
    f"In these numbers, the windows of one user weigh at most as much as {CHECKIN_WINDOWS} windows. Her events weigh "
    "at most as much as the events of the user who has the second most. In the shares of stays, returns and "
    "distances that simulated people must have, no user weighs more than the user who has the second most. The same "
    "holds for a cluster's shares of slow and fast users. There, the weight of a user above this limit is not lost, "
    "but spread over all clusters",
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
"""The rules for numbers that only models of check-ins with gaps learn; they hold beside `RULES`."""
PEOPLE_RULES = (
    "a user weighs one in the number of users with a home at a place, and one in the number of users with a second "
    f"place there. Such a number counts only if it is at least {PLACE_USERS}. Of u users, the model counts u-n, where "
    f"n is {PLACE_USERS - 1} or more. The rest is spread over all places as visits are, so that the home of a single "
    "user is no likelier as a home than as a visited place. A user also weighs one in the number of users with a "
    "second place, and in the number of users of each class of mobility",
    "in the numbers of events at home, at the second place and elsewhere, and of steps between these, at each instant "
    "of the period, no user of a cluster weighs more than the user who has the second most. The same holds for stays "
    "and steps elsewhere, from which the model learns how staying depends on the time at the place; for moves, from "
    "which it learns how people choose among the places that they remember; and for returns and other moves in the "
    "share of returns",
    "visits, stays, steps away, moves and distances elsewhere follow the rules for all visits and steps",
)
"""Additional rules of the remembering bridge, see `bridge.people`."""
NO_RULE = (
    "who is in which cluster, which settings were chosen, where the ranges of distances end, when somebody was at a "
    "place within a stretch of time in which others were there too, and that a cluster has few users at a place. The "
    "rules for the model do not cover these: they bound the weight of one user among all users, and they are not "
    "differential privacy"
)
"""What the rules do not cover."""


def stretches(time_grid: TimeGrid) -> Int[np.ndarray, " slot"]:
    """Number of the two-hour stretch in which each slot begins.

    Examples
    --------
    >>> stretches(TimeGrid.each_instant("2024-01-01T09:00:00", 1200, 8)).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1]
    """
    first = np.unique(time_grid.slot_of_instant, return_index=True)[1]
    return np.unique(first * time_grid.step_s // STRETCH_S, return_inverse=True)[1]


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
    """Distinct groups, ascending; the weights of the two heaviest users of each (0 if there is none), and its users."""

    group: Int[np.ndarray, " group"]
    heaviest: Float[np.ndarray, " group"]
    second: Float[np.ndarray, " group"]
    n_users: Int[np.ndarray, " group"]

    @classmethod
    def of(cls, group: np.ndarray, weight: np.ndarray, n_users: np.ndarray) -> Groups:
        """From the weights of users in groups, each weight that of `n_users` (1 or 0) users."""
        found, which = np.unique(group, return_inverse=True)
        heaviest, second = np.zeros((2, len(found)))
        np.maximum.at(heaviest, which, weight)
        # One of the heaviest users of each group. If another user is equally heavy, the second heaviest has the same
        # weight.
        first = np.zeros(len(found), np.int64)
        is_heaviest = np.flatnonzero(weight == heaviest[which])
        first[which[is_heaviest]] = is_heaviest
        others = np.ones(len(weight), bool)
        others[first] = False
        np.maximum.at(second, which[others], weight[others])
        return cls(found, heaviest, second, np.bincount(which, n_users, len(found)).astype(np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Groups]) -> Groups:
        """The groups of different users together."""
        group, heaviest, second, n_users = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        weights = np.concatenate([heaviest, second])
        return cls.of(np.tile(group, 2), weights, np.concatenate([n_users, np.zeros_like(n_users)]))

    def users_of(self, n_groups: int) -> Int[np.ndarray, " number"]:
        """Number of users in each of the groups from 0 to `n_groups` - 1."""
        found = np.zeros(n_groups, np.int64)
        found[self.group] = self.n_users
        return found


class Bounded(NamedTuple):
    """Sums of bounded weights, in the shape of the cells, or of each of `groups`."""

    total: Float[np.ndarray, "..."]
    groups: Groups


class _Pairs(NamedTuple):
    """Rows with the number of their (user, group) pair; and each pair's group and total weight."""

    rows: Rows
    weight: Float[np.ndarray, " row"]
    pair: Int[np.ndarray, " row"]
    group: Int[np.ndarray, " pair"]
    total: Float[np.ndarray, " pair"]

    @classmethod
    def of(cls, rows: Rows) -> _Pairs:
        weight = np.ones(len(rows.user)) if rows.weight is None else rows.weight.astype(np.float64)
        n_groups = int(rows.group.max(initial=-1)) + 1
        which, pair = pd.factorize(rows.user.astype(np.int64) * n_groups + rows.group)
        return cls(rows, weight, which, pair % max(n_groups, 1), np.bincount(which, weight, len(pair)))

    def groups(self) -> Groups:
        return Groups.of(self.group, self.total, np.ones(len(self.group)))

    def bounded(self, groups: Groups) -> Float[np.ndarray, " row"]:
        """Weights of the rows, scaled such that no user weighs more than the second heaviest user of the group."""
        scale = np.minimum(1, groups.second[np.searchsorted(groups.group, self.group)] / self.total)
        # Rounded down, so that the bound holds; sums of such numbers are exact.
        return np.floor(self.weight * scale[self.pair] / UNIT) * UNIT

    def sums(self, groups: Groups) -> Float[np.ndarray, "..."]:
        cell, n_cells = self.rows.cell, prod(self.rows.shape)
        if cell is None:
            cell, n_cells = np.searchsorted(groups.group, self.rows.group), len(groups.group)
        total = sums(cell, self.bounded(groups), n_cells)
        return total if self.rows.cell is None else total.reshape(self.rows.shape)


def bounded_totals(rows: Blocks[Sequence[Rows]]) -> list[Bounded]:
    """Sums of rows in which no user weighs more in a group than the second heaviest user of the group.

    Several kinds of rows can be counted in the same two passes over the users. The first pass finds the heaviest users
    of each group, and the second pass adds the scaled weights. In a group with a single user, all weights are 0.
    """
    pairs = rows.map(lambda kinds: [_Pairs.of(each) for each in kinds])
    found: list[list[Groups]] = []
    for kinds in pairs.map(lambda kinds: [each.groups() for each in kinds]):
        found = found or [[] for _ in kinds]
        for before, each in zip(found, kinds, strict=True):
            before.append(each)
            # Joined when the new ones are as many as the old ones, so that this takes little time and memory.
            if sum(len(part.group) for part in before[1:]) > len(before[0].group):
                before[:] = [Groups.joined(before)]
    own = [Groups.joined(before) for before in found]
    groups = [Groups.joined([Groups(*map(rows.of_all, each))]) for each in own]
    sums = pairs.map(lambda kinds: tuple(each.sums(own) for each, own in zip(kinds, groups, strict=True))).total()
    return [Bounded(total, own) for total, own in zip(sums, groups, strict=True)]


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
    pairs = _Pairs.of(Rows(user, group, weight=weight))
    groups = pairs.groups()
    return pairs.bounded(groups), groups.users_of(n_groups)


def sums(
    group: Int[np.ndarray, " row"], weight: Float[np.ndarray, " row"], n_groups: int
) -> Float[np.ndarray, " group"]:
    """Sum of the weights of each group, as floats; without rows, `np.bincount` would return integers."""
    return np.bincount(group, weight, n_groups).astype(np.float64)


def used_share(users: Int[np.ndarray, "..."], least: int) -> Float[np.ndarray, "..."]:
    """Share of a count that the model uses: 0 if fewer than `least` users contribute, near 1 if many users contribute.

    Examples
    --------
    >>> used_share(np.array([0, 4, 5, 10]), least=5).tolist()
    [0.0, 0.0, 0.2, 0.6]
    """
    return np.maximum(users - least + 1, 0) / np.maximum(users, 1)
