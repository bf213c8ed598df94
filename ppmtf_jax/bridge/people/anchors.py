"""Anchors: the home and the second place of each user, and how they are distributed in each cluster.

A user's home is the place of most of her events, and her second place is that of second most. These names say no more
than that. A user weighs one in the number of homes at a place, and one in the number of second places. These numbers
count only where `least_users` users have them, and u users count as u - n of them, as visits do (see `contributions`).
What is removed is spread as visits are, so that nobody's home alone at a place becomes a home of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.clusters import clusters_of_users
from ppmtf_jax.bridge.contributions import used_share
from ppmtf_jax.bridge.expectation_maximization import ClusterSmoother
from ppmtf_jax.bridge.people.distances import distance_bins
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.bridge.products import indicator
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.tuning import BridgeChoice
from ppmtf_jax.bridge.visits import VisitCounts
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.time_grid import TimeGrid

NOWHERE = -1
"""Instead of a place: the user has no such anchor."""
LEAST_EVENTS = 2
"""Least number of events at an anchor."""
LEAST_SECOND_SHARE = 0.08
"""Least share of a user's events at her second place."""
DISTANCE_ROUNDS, SCALINGS = 16, 6
"""Rounds that set the factors of distance, and Sinkhorn iterations in each."""
MOST_CHANGE = 10.0
TINY = 1e-30


class Anchors(NamedTuple):
    """Home and second place of each user, or `NOWHERE`."""

    home: Int[np.ndarray, " user"]
    second: Int[np.ndarray, " user"]

    @classmethod
    def of(cls, visits: VisitCounts) -> Anchors:
        """The anchors of users; of places with equally many events, the one with the smaller index comes first."""
        code = visits.user.astype(np.int64) * visits.n_places + visits.place
        pair, which = np.unique(code, return_inverse=True)
        user, place = np.divmod(pair, visits.n_places)
        count = np.bincount(which, visits.count)
        order = np.lexsort((place, -count, user))
        user, place, count = user[order], place[order], count[order]
        rank = rank_in_run(user)
        total = np.bincount(user, count, visits.n_users)[user]
        enough = count >= LEAST_EVENTS
        of_rank = (rank == 0) & enough, (rank == 1) & enough & (count >= LEAST_SECOND_SHARE * total)
        home, second = np.full((2, visits.n_users), NOWHERE)
        home[user[of_rank[0]]] = place[of_rank[0]]
        second[user[of_rank[1]]] = place[of_rank[1]]
        return cls(home, second)

    @classmethod
    def none(cls, n_users: int) -> Anchors:
        """Nobody has an anchor."""
        return cls(*np.full((2, n_users), NOWHERE))

    def layer(self, user: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
        """Layer of each event."""
        return np.where(place == self.home[user], HOME, np.where(place == self.second[user], SECOND, ELSEWHERE))


def anchor_distribution(
    place: Int[np.ndarray, " user"],
    of_user: Int[np.ndarray, " user"],
    visited: Float[np.ndarray, " place"],
    space: Space,
    choice: BridgeChoice,
) -> Float[np.ndarray, "cluster place"]:
    """Distribution of each cluster's homes, or second places; every probability is positive.

    `place`: that anchor of each user. `visited`: positive distribution of visits.
    """
    who = np.flatnonzero(place != NOWHERE)
    users = np.bincount(place[who], minlength=len(visited))
    known = users * used_share(users, choice.population.least_users)
    shares = known + max(len(who) - known.sum(), 1) * visited
    anchors = VisitCounts(who, np.zeros_like(who), place[who], np.ones(len(who), np.float32), len(place), 1, len(users))
    instant = TimeGrid.each_instant("2000-01-01", 1, 1)
    smoother = ClusterSmoother(shares[None] / shares.sum(), space, choice.clusters, instant)
    return clusters_of_users(anchors, smoother, of_user).visits[:, 0]


class AnchorPairs(NamedTuple):
    """Weights of pairs: home h and second place w have home_pull(h) between(cell h, cell w) second_pull(w), h not w."""

    home_pull: Float[np.ndarray, "cluster place"]
    second_pull: Float[np.ndarray, "cluster place"]
    between: Float[np.ndarray, "cell cell"]


def pair_anchors(
    anchors: Anchors,
    of_user: Int[np.ndarray, " user"],
    home: Float[np.ndarray, "cluster place"],
    second: Float[np.ndarray, "cluster place"],
    space: Space,
) -> AnchorPairs:
    """Pairs with the given distributions of homes and second places, as far from each other as those of users.

    Sinkhorn scalings in each cluster, and factors of distance that all clusters share, in turns. A distribution with
    more than half of its mass at one place may be out of reach, since the two places differ.
    """
    who = np.flatnonzero(anchors.second != NOWHERE)
    share = np.bincount(of_user[who], minlength=len(home)) / max(len(who), 1)
    which = distance_bins(anchors.home[who], anchors.second[who], space)
    cells = space.cell[anchors.home[who]], space.cell[anchors.second[who]]
    wanted = np.bincount(which[cells], minlength=int(which.max()) + 1) + 0.5
    factor = np.ones(len(wanted))
    second_pull = np.ones_like(home.T, np.float64)
    for _ in range(DISTANCE_ROUNDS):
        between = factor[which]
        for _ in range(SCALINGS):
            home_pull = home.T / np.maximum(_of_others(second_pull, between, space.cell), TINY)
            second_pull = second.T / np.maximum(_of_others(home_pull, between, space.cell), TINY)
        found = _in_bins(home_pull * share, second_pull, between, which, space.cell)
        ratio = wanted / wanted.sum() / np.maximum(found / max(found.sum(), TINY), TINY)
        factor *= np.clip(ratio, 1 / MOST_CHANGE, MOST_CHANGE)
        factor /= factor.mean()
    # The weights of one cluster may have any common factor: the greatest is 1.
    home_pull, second_pull = (np.float32(pull / pull.max(axis=0)).T for pull in (home_pull, second_pull))
    return AnchorPairs(home_pull, second_pull, between.astype(np.float32))


def _of_others(
    value: Float[np.ndarray, "place cluster"], between: Float[np.ndarray, "cell cell"], cell: Int[np.ndarray, " place"]
) -> Float[np.ndarray, "place cluster"]:
    """For each place, the sum over all other places of the factor of distance times a value; `between` is symmetric."""
    near = (between @ (indicator(cell, len(between)).T @ value))[cell]
    return np.maximum(near - np.diag(between)[cell, None] * value, 0)


def _in_bins(
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
