"""Roles: the home and the second place of each user, how they are distributed, and when people are there.

A user's home is the place with most of their events. Their second place is the place with the second most of them. The
names mean no more than that. A user weighs one in the number of homes at a place, and one in the number of second
places there. Such a number follows the rule for visits: it counts only if it is at least `least_users`, and u users
count as u - n users (see `user_bounds`). The removed users are spread over all places in proportion to visits. So the
home of a single user is no likelier as a home of the model than as a visited place.

When people are at home, at their second place and at other places is a chain of *roles* of each cluster. Events in a
role, and steps between two roles, are counted for each instant of the period, for the users of each cluster who have a
second place and for those who have none. In each of these numbers, no user weighs more than the second heaviest user.
A user weighs one in the number of users who have a second place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.data.blocks import Blocks, each_of_users
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.attraction import distance_bins
from ppmtf_jax.people.bins import HOME, OTHER, SECOND
from ppmtf_jax.people.clusters import ClusterSmoother, clusters_of_users, indicator
from ppmtf_jax.people.counts import VisitCounts
from ppmtf_jax.people.fitting import matching
from ppmtf_jax.people.selection import Selection
from ppmtf_jax.people.space import Space
from ppmtf_jax.people.user_bounds import STEP_USERS, Rows, bounded_totals, used_share

NOWHERE = -1
"""Index instead of a place, for a user without this anchor."""
MIN_EVENTS = 2
"""Minimum number of a user's events at their anchor."""
MIN_SECOND_SHARE = 0.08
"""Minimum share of a user's events at their second place."""
DISTANCE_ROUNDS, SCALINGS = 16, 6
"""Number of rounds that set the factors of distance, and number of Sinkhorn iterations in each round."""
MAX_SECOND = 0.9
"""Maximum share of the people whose home is not at a place who have their second place there."""
PRIOR_EVENTS = 20.0
"""Weight, in events, of the roles (or steps) of all clusters as a prior for one cluster at one instant."""
RATIO_EVENTS = 5.0
"""Weight of a prior, in events, for the factor between the roles of a cluster and of all clusters at an instant."""
SECOND_USERS = 5.0
"""Weight, in users, of the share of all users with a second place, as a prior for the share in one cluster."""
BANDWIDTH, OVERALL_STEPS = 0.7, 10.0
"""Smoothing of the steps of all clusters: standard deviation in instants, and weight of the steps of all instants."""
RAKINGS, STAY_ROUNDS = 40, 8
MAX_DISTANCE_CHANGE, MAX_STAY_CHANGE = 10.0, 5.0
LEAST = 1e-4
TINY, TINY_SHARE = 1e-30, 1e-12


class Anchors(NamedTuple):
    """Home and second place of each user, or `NOWHERE`."""

    home: Int[np.ndarray, " user"]
    second: Int[np.ndarray, " user"]

    @classmethod
    def of(cls, visits: VisitCounts) -> Anchors:
        """The anchors of users; if two places have equally many events, the smaller index comes first."""
        code = visits.user.astype(np.int64) * visits.n_places + visits.place
        pair, which = np.unique(code, return_inverse=True)
        user, place = np.divmod(pair, visits.n_places)
        count = np.bincount(which, visits.count)
        order = np.lexsort((place, -count, user))
        user, place, count = user[order], place[order], count[order]
        rank = rank_in_run(user)
        total = np.bincount(user, count, visits.n_users)[user]
        enough = count >= MIN_EVENTS
        of_rank = (rank == 0) & enough, (rank == 1) & enough & (count >= MIN_SECOND_SHARE * total)
        home, second = np.full((2, visits.n_users), NOWHERE, np.int32)
        home[user[of_rank[0]]] = place[of_rank[0]]
        second[user[of_rank[1]]] = place[of_rank[1]]
        return cls(home, second)

    @classmethod
    def of_all(cls, visits: Blocks[VisitCounts]) -> Anchors:
        """The anchors of the users of all blocks."""
        return cls(*visits.map(lambda own: np.stack(cls.of(own), axis=1)).joined().T)

    @classmethod
    def none(cls, n_users: int) -> Anchors:
        """Nobody has an anchor."""
        return cls(*np.full((2, n_users), NOWHERE, np.int32))

    def of_users(self, users: Int[np.ndarray, " some"]) -> Anchors:
        """The anchors of some users."""
        return Anchors(self.home[users], self.second[users])

    def role(self, user: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
        """Role of each event."""
        return np.where(place == self.home[user], HOME, np.where(place == self.second[user], SECOND, OTHER))


def anchor_distribution(
    place: Int[np.ndarray, " user"],
    of_user: Int[np.ndarray, " user"],
    visited: Float[np.ndarray, " place"],
    space: Space,
    selection: Selection,
) -> Float[np.ndarray, "cluster place"]:
    """Distribution of each cluster's homes, or of its second places; every probability is positive.

    `place`: home (or second place) of each user. `visited`: positive distribution of visits over places.
    """

    def visits(own: Int[np.ndarray, " some"]) -> VisitCounts:
        who = np.flatnonzero(own != NOWHERE)
        return VisitCounts(who, np.zeros_like(who), own[who], np.ones(len(who), np.float32), len(own), 1, len(visited))

    users = np.bincount(place[place != NOWHERE], minlength=len(visited))
    known = users * used_share(users, selection.population.least_users)
    shares = known + max(users.sum() - known.sum(), 1) * visited
    anchors = each_of_users(place).map(visits)
    instant = TimeGrid.each_instant("2000-01-01", 1, 1)
    smoother = ClusterSmoother(shares[None] / shares.sum(), space, selection.clusters, instant)
    return clusters_of_users(anchors, smoother, of_user).visits[:, 0]


def pair_anchors(
    anchors: Anchors,
    of_user: Int[np.ndarray, " user"],
    home: Float[np.ndarray, "cluster place"],
    second: Float[np.ndarray, "cluster place"],
    space: Space,
) -> dict[str, np.ndarray]:
    """The arrays of anchors: the given distributions, and pairs of such places as far apart as users' anchors."""
    who = np.flatnonzero(anchors.second != NOWHERE)
    share = np.bincount(of_user[who], minlength=len(home)) / max(len(who), 1)
    n_cells = len(space.km)
    cells = space.cell[anchors.home[who]].astype(np.int64) * n_cells + space.cell[anchors.second[who]]
    n_pairs = np.bincount(cells, minlength=n_cells**2).reshape(n_cells, n_cells)
    which = distance_bins(n_pairs, space)
    users = np.bincount(which.ravel(), n_pairs.ravel())
    wanted = users * used_share(users, STEP_USERS) + 0.5
    pairs = couple(home, second, share, wanted / wanted.sum(), which, space.cell)
    return {"home": home, "second": second, **pairs}


def couple(
    home: Float[np.ndarray, "cluster place"],
    second: Float[np.ndarray, "cluster place"],
    share: Float[np.ndarray, " cluster"],
    distances: Float[np.ndarray, " bin"],
    bins: Int[np.ndarray, "cell cell"],
    cell: Int[np.ndarray, " place"],
) -> dict[str, np.ndarray]:
    """Pairs with the given distributions of homes and second places, and the given shares of bins of distance.

    Home h and second place w, h not w, have the weight home_pull(h) anchor_between(cell h, cell w) second_pull(w).
    Each round runs Sinkhorn scalings in each cluster, and then sets the factors of distance, which all clusters share.
    Home and second place differ, so a place that has the share h of the homes cannot have more than 1 - h of the second
    places. Near this bound the pulls of all other places would vanish. So the second places move, as far as needed,
    towards those that are drawn among the places other than the home.
    """
    home, second = home.astype(np.float64), second.astype(np.float64)
    most = MAX_SECOND * (1 - home)
    of_home = home / np.maximum(1 - second, TINY)
    drawn = second * np.maximum(of_home.sum(axis=1, keepdims=True) - of_home, TINY)
    beyond = second - drawn
    part = np.divide(most - drawn, beyond, where=(second > most) & (beyond > 0), out=np.ones_like(second))
    second = drawn + np.clip(part.min(axis=1, keepdims=True), 0, 1) * beyond
    factor = np.ones(len(distances))
    second_pull = np.ones_like(home.T)
    for _ in range(DISTANCE_ROUNDS):
        between = factor[bins]
        for _ in range(SCALINGS):
            home_pull = home.T / np.maximum(of_others(second_pull, between, cell), TINY)
            second_pull = second.T / np.maximum(of_others(home_pull, between, cell), TINY)
        found = in_bins(home_pull * share, second_pull, between, bins, cell)
        factor *= matching(distances, found / max(found.sum(), TINY), MAX_DISTANCE_CHANGE)
        factor /= factor.mean()
    # A common factor of the weights of one cluster does not matter: the greatest weight becomes 1.
    home_pull, second_pull = ((pull / pull.max(axis=0)).astype(np.float32).T for pull in (home_pull, second_pull))
    return {"home_pull": home_pull, "second_pull": second_pull, "anchor_between": between.astype(np.float32)}


def of_others(
    value: Float[np.ndarray, "place cluster"], between: Float[np.ndarray, "cell cell"], cell: Int[np.ndarray, " place"]
) -> Float[np.ndarray, "place cluster"]:
    """For each place, the sum of (factor of distance x value) over all other places; `between` is symmetric."""
    near = (between @ (indicator(cell, len(between)).T @ value))[cell]
    return np.maximum(near - np.diag(between)[cell, None] * value, 0)


def in_bins(
    home: Float[np.ndarray, "place cluster"],
    second: Float[np.ndarray, "place cluster"],
    between: Float[np.ndarray, "cell cell"],
    bins: Int[np.ndarray, "cell cell"],
    cell: Int[np.ndarray, " place"],
) -> Float[np.ndarray, " bin"]:
    """Expected number of pairs in each bin of distance, over all clusters."""
    members = indicator(cell, len(between)).T
    pairs = (members @ home) @ (members @ second).T
    own = np.bincount(cell, (home * second).sum(axis=1), len(between))
    np.fill_diagonal(pairs, np.maximum(np.diag(pairs) - own, 0))
    return np.bincount(bins.ravel(), (pairs * between).ravel(), int(bins.max()) + 1)


class Roles(NamedTuple):
    """Chains of roles; the first index of arrays is whether people have a second place; see `process.PersonProcess`.

    `at`: share of the people in each role at each phase, learned from the users.
    """

    second_share: Float[np.ndarray, " cluster"]
    at: Float[np.ndarray, "2 cluster phase 3"]
    next: Float[np.ndarray, "2 cluster phase 3 3"]

    @classmethod
    def always_other(cls, n_clusters: int, period: int) -> Roles:
        """Nobody has an anchor."""
        at = np.zeros((2, n_clusters, period, 3))
        at[..., OTHER] = 1
        return cls(np.zeros(n_clusters), at, np.repeat(at[..., None, :], 3, axis=-2))


def fit_roles(train: Traces, anchors: Anchors, of_user: Int[np.ndarray, " user"]) -> Roles:
    """Chains that have the users' shares of roles at each instant, and stay at anchors as often as users do.

    The shares of roles of a cluster are shrunk to the shares of all clusters, times a factor for the cluster. The
    steps of a cluster are shrunk to the steps of all clusters. At each instant, raking finds the joint distribution of
    the roles before and after the step: it has the given marginals, and is nearest to the observed steps. Raking
    alternates with setting the odds of staying at an anchor, which all clusters share.
    """
    n_clusters, period = int(of_user.max()) + 1, train.time_grid.period
    shape = (2, n_clusters, period, 3, 3)

    def rows(block: Traces, home: np.ndarray, second: np.ndarray, cluster: np.ndarray) -> list[Rows]:
        role = Anchors(home, second).role(block.user, block.place)
        kind, arrival = (second != NOWHERE).astype(np.int64), np.flatnonzero(block.is_step())

        def counted(events: np.ndarray | slice, *roles: np.ndarray) -> Rows:
            user, size = block.user[events], shape[: 3 + len(roles)]
            cell = np.ravel_multi_index((kind[user], cluster[user], block.instant[events] % period, *roles), size)
            return Rows(user, cell, cell, size)

        return [counted(slice(None), role), counted(arrival, role[arrival - 1], role[arrival])]

    events, steps = bounded_totals(train.blocks.map(rows, *anchors, of_user))
    at, users, has_second = _marginals(events.total), np.bincount(of_user), anchors.second != NOWHERE
    share = (np.bincount(of_user, has_second) + SECOND_USERS * has_second.mean()) / (users + SECOND_USERS)
    people = users * np.stack([1 - share, share]) / len(of_user)
    return Roles(share, at, chains_of_roles(at, steps.total, people))


def _marginals(events: Float[np.ndarray, "2 cluster phase 3"]) -> Float[np.ndarray, "2 cluster phase 3"]:
    possible = np.ones((2, 1, 1, 3))
    possible[0, ..., SECOND] = 0
    of_all = _normalized((events.sum(axis=1, keepdims=True) + 1e-3) * possible)
    in_cluster = events.sum(axis=0)
    together = in_cluster.sum(axis=0)
    mean = max(together.sum(axis=-1).mean(), 1)
    ratio = _normalized(in_cluster + RATIO_EVENTS * together / mean + TINY_SHARE) / _normalized(together + 1e-3)
    prior = _normalized(of_all * ratio * possible)
    return _normalized(events * possible + PRIOR_EVENTS * prior)


def chains_of_roles(
    at: Float[np.ndarray, "2 cluster phase 3"],
    steps: Float[np.ndarray, "2 cluster phase 3 3"],
    people: Float[np.ndarray, "2 cluster"],
) -> Float[np.ndarray, "2 cluster phase 3 3"]:
    """Chains with the shares `at` of roles, and nearly the observed steps; see `fit_roles`."""
    instant = np.arange(at.shape[2])
    near = _normalized(np.exp(-0.5 * ((instant[:, None] - instant) / BANDWIDTH) ** 2))
    of_all = np.einsum("st,htij->hsij", near, steps.sum(axis=1))
    ever = _normalized(steps.sum(axis=(1, 2)) + 0.5)
    pooled = _normalized(of_all + OVERALL_STEPS * ever[:, None])
    own = _normalized(steps + PRIOR_EVENTS * pooled[:, None])
    # Share of the steps of all people that stay at an anchor.
    together, anywhen = of_all.sum(axis=0), steps.sum(axis=(0, 1, 2))
    overall = (anywhen[HOME, HOME] + anywhen[SECOND, SECOND]) / max(anywhen.sum(), 1)
    stays = together[:, HOME, HOME] + together[:, SECOND, SECOND] + PRIOR_EVENTS * overall
    wanted = np.clip(stays / (together.sum(axis=(1, 2)) + PRIOR_EVENTS), LEAST, 1 - LEAST)
    before, odds = np.roll(at, 1, axis=2), np.ones(len(instant))
    is_stay = np.diag([1.0, 1.0, 0.0])
    for number in range(STAY_ROUNDS):
        joint = own * (1 + (odds - 1)[:, None, None] * is_stay) * before[..., None] + TINY_SHARE
        for _ in range(RAKINGS):
            joint *= (at / np.maximum(joint.sum(axis=-2), TINY_SHARE))[..., None, :]
            joint *= (before / np.maximum(joint.sum(axis=-1), TINY_SHARE))[..., None]
        found = np.einsum("hk,hkt->t", people, joint[..., HOME, HOME] + joint[..., SECOND, SECOND])
        found = np.clip(found, LEAST, 1 - LEAST)
        if number < STAY_ROUNDS - 1:
            odds *= matching(wanted / (1 - wanted), found / (1 - found), MAX_STAY_CHANGE)
            odds = np.clip(odds, 1e-4, 1e4)
    # If nobody is in a role, it has no steps, and any row will do.
    total = joint.sum(axis=-1, keepdims=True)
    return np.where(total > TINY_SHARE, joint / np.maximum(total, TINY_SHARE), at[..., None, :])


def _normalized(weight: np.ndarray) -> np.ndarray:
    return weight / weight.sum(axis=-1, keepdims=True)
