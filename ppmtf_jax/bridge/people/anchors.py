"""Anchors: the home and the second place of each user, and how they are distributed in each cluster.

A user's home is the place with most of her events. Her second place is the place with the second most of her events.
The names mean no more than that. A user weighs one in the number of homes at a place, and one in the number of second
places there. Such a number follows the rule for visits: it counts only if it is at least `least_users`, and u users
count as u - n users (see `contributions`). The removed users are spread over all places in proportion to visits. So the
home of a single user is no likelier as a home of the model than as a visited place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ppmtf_jax.bridge.attraction import distance_bins
from ppmtf_jax.bridge.clusters import ClusterSmoother, clusters_of_users, indicator
from ppmtf_jax.bridge.contributions import STEP_USERS, used_share
from ppmtf_jax.bridge.fitting import matching
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.bridge.selection import Selection
from ppmtf_jax.bridge.space import Space
from ppmtf_jax.bridge.visits import VisitCounts
from ppmtf_jax.data.blocks import Blocks, each_of_users
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.time_grid import TimeGrid

NOWHERE = -1
"""Index instead of a place, for a user without this anchor."""
MIN_EVENTS = 2
"""Minimum number of a user's events at her anchor."""
MIN_SECOND_SHARE = 0.08
"""Minimum share of a user's events at her second place."""
DISTANCE_ROUNDS, SCALINGS = 16, 6
"""Number of rounds that set the factors of distance, and number of Sinkhorn iterations in each round."""
MAX_SECOND = 0.9
"""Maximum share of the people with a home elsewhere who have their second place at the same place."""
MAX_CHANGE = 10.0
TINY = 1e-30


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

    def layer(self, user: Int[np.ndarray, " event"], place: Int[np.ndarray, " event"]) -> Int[np.ndarray, " event"]:
        """Layer of each event."""
        return np.where(place == self.home[user], HOME, np.where(place == self.second[user], SECOND, ELSEWHERE))


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


class AnchorPairs(NamedTuple):
    """Home h and second place w, h not w, have the weight home_pull(h) between(cell h, cell w) second_pull(w)."""

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
    """Pairs with the given distributions of homes and second places, and distances as between users' anchors."""
    who = np.flatnonzero(anchors.second != NOWHERE)
    share = np.bincount(of_user[who], minlength=len(home)) / max(len(who), 1)
    n_cells = len(space.km)
    cells = space.cell[anchors.home[who]].astype(np.int64) * n_cells + space.cell[anchors.second[who]]
    n_pairs = np.bincount(cells, minlength=n_cells**2).reshape(n_cells, n_cells)
    which = distance_bins(n_pairs, space)
    users = np.bincount(which.ravel(), n_pairs.ravel())
    wanted = users * used_share(users, STEP_USERS) + 0.5
    return couple(home, second, share, wanted / wanted.sum(), which, space.cell)


def couple(
    home: Float[np.ndarray, "cluster place"],
    second: Float[np.ndarray, "cluster place"],
    share: Float[np.ndarray, " cluster"],
    distances: Float[np.ndarray, " bin"],
    bins: Int[np.ndarray, "cell cell"],
    cell: Int[np.ndarray, " place"],
) -> AnchorPairs:
    """Pairs with the given distributions of homes and second places, and the given shares of bins of distance.

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
        factor *= matching(distances, found / max(found.sum(), TINY), MAX_CHANGE)
        factor /= factor.mean()
    # A common factor of the weights of one cluster does not matter: the greatest weight becomes 1.
    home_pull, second_pull = (np.float32(pull / pull.max(axis=0)).T for pull in (home_pull, second_pull))
    return AnchorPairs(home_pull, second_pull, between.astype(np.float32))


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
