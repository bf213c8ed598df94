"""Places with a similar meaning (Bindschaedler and Shokri 2016): seed traces, similarity, clusters.

Two users are similar if a renaming of places makes their visits similar. Places that are mapped to each other by this
renaming have a similar meaning: home and home, work and work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any


class SeedTraces(NamedTuple):
    """Complete traces of one period each, sorted by user."""

    user: Int[np.ndarray, " seed"]
    place: Int[np.ndarray, "seed instant"]
    n_users: int
    n_places: int

    @classmethod
    def of(cls, train: Traces) -> SeedTraces:
        """Cut traces into periods.

        Periods without events are left out, and also the last period if the grid cuts it off. Raises `InputError`: a
        period has some events, but not all, or a user has no whole period.
        """
        length = train.time_grid.period
        n_periods = train.time_grid.n_instants // length
        period = train.instant // length
        whole = period < n_periods
        trace = train.trace_of_event()[whole].astype(np.int64)
        first, n_events = np.unique(trace * n_periods + period[whole], return_index=True, return_counts=True)[1:]
        user = train.user[whole][first]
        gaps = n_events < length
        problems = []
        if gaps.any():
            examples = first_examples(train.user_ids[np.unique(user[gaps])].tolist())
            found = f"{gaps.sum()} periods with missing events; users"
            way_out = "SGLT and its privacy test need complete traces: complete them first, or take users without gaps"
            expected = f"an event at each of the {length} instants of a period"
            problems.append(Problem(expected, found, 0, examples, way_out))
        seedless = np.setdiff1d(np.arange(train.n_users), user)
        if len(seedless):
            examples = first_examples(train.user_ids[seedless].tolist())
            found = "events of a last period only, which the grid cuts off"
            problems.append(Problem(f"a whole period of {length} instants of every user", found, 0, examples))
        raise_any("seed traces", problems)
        return cls(user, train.place[whole].reshape(-1, length), train.n_users, train.n_places)

    def in_time_periods(self, n_time_periods: int) -> tuple[Float[np.ndarray, " time"], Sequence[SeedTraces]]:
        """Share of the instants in each of some time periods of about equal length, and the parts of all seeds."""
        parts = [self._replace(place=part) for part in np.array_split(self.place, n_time_periods, axis=1)]
        return np.array([part.place.shape[1] for part in parts]) / self.place.shape[1], parts

    @property
    def seeds_per_user(self) -> Int[np.ndarray, " user"]:
        return np.bincount(self.user, minlength=self.n_users)

    def visits(self) -> Float[np.ndarray, "user place"]:
        """Mean number of a user's events at each place in a period."""
        cell = self.user[:, None].astype(np.int64) * self.n_places + self.place
        count = np.bincount(cell.ravel(), minlength=self.n_users * self.n_places).reshape(self.n_users, self.n_places)
        return count / self.seeds_per_user[:, None]

    def transitions(self) -> Int[np.ndarray, "place next_place"]:
        """Transition counts of all users; the last instant of a seed is followed by its first."""
        cell = self.place.astype(np.int64) * self.n_places + np.roll(self.place, -1, axis=1)
        return np.bincount(cell.ravel(), minlength=self.n_places**2).reshape(self.n_places, self.n_places)


# Pseudo-visits of every place, per period.
SMOOTHING = 0.01
# Minimum similarity of two places, so that no similarity is 0.
FLOOR = 1e-8
# Number of entries (user, other user, rank) in memory at a time, with about 100 bytes each.
CELLS_AT_A_TIME = 2**20


class VisitProfiles(NamedTuple):
    """Visit distributions of users, most visited places first."""

    # Visited places by decreasing share (lower index first for ties), then places without visits.
    place: Int[np.ndarray, "user rank"]
    # Visit distribution pi at these places: (visits in a period + 0.01) / (instants + 0.01 places).
    share: Float[np.ndarray, "user rank"]
    # Rank of each place, the inverse of `place`; places without visits have higher ranks than all visited places.
    rank: Int[np.ndarray, "user place"]
    n_visited: Int[np.ndarray, " user"]
    background: float  # share of a place without visits

    @classmethod
    def of(cls, seeds: SeedTraces) -> VisitProfiles:
        visits = seeds.visits()
        mass = seeds.place.shape[1] + SMOOTHING * seeds.n_places
        order = np.argsort(-visits, axis=1, kind="stable").astype(np.int32)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(seeds.n_places, dtype=np.int32)[None], axis=1)
        n_visited = np.count_nonzero(visits, axis=1)
        place = order[:, : n_visited.max()].copy()  # a view would keep all of `order`
        share = (np.take_along_axis(visits, place, axis=1) + SMOOTHING) / mass
        return cls(place, share, rank, n_visited, SMOOTHING / mass)

    @property
    def n_places(self) -> int:
        return self.rank.shape[1]

    def similarity(self, users: Int[np.ndarray, " user"]) -> Float[np.ndarray, "user other"]:
        """Semantic similarity (10) of some users to all users in one time period, from 0 to 1.

        It is the greatest sum over places r of min(pi_r(u), pi_sigma(r)(v)) over all permutations sigma of the places.
        The published program solves an assignment problem for each pair of users, in O(places^3). But the best sigma
        maps the r-th most visited place of u to the r-th most visited place of v. Proof: min(x, y) is the length of the
        interval of t > 0 with x >= t and y >= t. So the sum is the integral over t of the number of places r with
        pi_r(u) >= t and pi_sigma(r)(v) >= t. For every permutation, this number is at most the smaller of two numbers:
        the number of places with pi(u) >= t, and the number with pi(v) >= t. The sorted permutation reaches this bound
        at every t.
        """
        least = np.minimum(self.share[users, None], self.share)
        return least.sum(axis=2) + self.background * (self.n_places - self.share.shape[1])


def place_similarity(seeds: SeedTraces, n_time_periods: int = 1) -> Float[np.ndarray, "place other"]:
    """Semantic similarity of places: the graph G of the paper, from the best mappings between all pairs of users.

    As in (10), each time period weighs as much as it is long and has its own mappings, and the similarity of two users
    is the weighted sum over all time periods. For each pair of users, and each user with
    themselves, each mapped pair of places gets the smaller of the two shares times the users' similarity, in both
    directions. The matrix is symmetric, and every entry is at least 1e-8.

    Many mappings are optimal, since both users visit few places. The mapping used here maps the first n visited places
    of both users by rank, where n is the smaller number of visited places. Every other place is mapped to itself, or by
    rank to another such place if it is already mapped on the other side.
    """
    n_users, n_places = seeds.n_users, seeds.n_places
    weights, parts = seeds.in_time_periods(n_time_periods)
    profiles = [VisitProfiles.of(part) for part in parts]
    total = np.zeros(n_places**2)
    block = max(1, CELLS_AT_A_TIME // (n_users * max(each.place.shape[1] for each in profiles)))
    for first in range(0, n_users, block):
        users = np.arange(first, min(first + block, n_users))
        of_users = sum(weight * each.similarity(users) for weight, each in zip(weights, profiles, strict=True))
        similarity = np.where(np.arange(n_users) >= users[:, None], of_users, 0)
        for in_time, each in zip(weights, profiles, strict=True):
            for place, other, weight in _mapped_pairs(each, users, in_time * similarity):
                total += np.bincount(place * n_places + other, weight, minlength=len(total))
    graph = total.reshape(n_places, n_places)
    return np.maximum(graph + graph.T, FLOOR)


def _mapped_pairs(
    profiles: VisitProfiles, users: Int[np.ndarray, " user"], similarity: Float[np.ndarray, "user other"]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs of places from the mappings between some users and all users, weighted by the similarity of the users.

    There are too many pairs of unvisited places to list. So all places are mapped to themselves, and the weights of
    places with another partner are subtracted.
    """
    similarity = similarity[..., None]
    n_by_rank = np.minimum(profiles.n_visited[users, None], profiles.n_visited)[..., None]
    by_rank = np.arange(profiles.place.shape[1]) < n_by_rank
    place, other = np.broadcast_arrays(profiles.place[users, None], profiles.place)
    # Places that are mapped by rank on one side but not on the other side; both sides have equally many of them.
    everybody = np.arange(len(profiles.place))[:, None]
    place_left = by_rank & (profiles.rank[everybody, place] >= n_by_rank)
    other_left = by_rank & (profiles.rank[users[:, None, None], other] >= n_by_rank)
    of_visited = np.minimum(profiles.share[users, None], profiles.share) * similarity
    of_unvisited = profiles.background * similarity
    every = np.arange(profiles.n_places)
    others_first, places_first = _selected_first(other, other_left), _selected_first(place, place_left)
    n_left_first = np.sort(other_left, axis=2)[..., ::-1]
    pairs = [
        # Every place mapped to itself, except places that are mapped by rank on either side.
        (every, every, np.full(len(every), of_unvisited.sum())),
        (place, place, -(of_unvisited * by_rank)),
        (other, other, -(of_unvisited * other_left)),
        # Visited places mapped by rank, and remaining places of both sides.
        (place, other, of_visited * by_rank),
        (others_first, places_first, of_unvisited * n_left_first),
    ]
    return [(first.ravel(), second.ravel(), weight.ravel()) for first, second, weight in pairs]


def _selected_first(
    place: Int[np.ndarray, "user other rank"], selected: Bool[np.ndarray, "user other rank"]
) -> Int[np.ndarray, "user other rank"]:
    """The selected places in their original order, then the other places."""
    return np.take_along_axis(place, np.argsort(~selected, axis=2, kind="stable"), axis=2)


def most_modular_clusters(similarity: Float[np.ndarray, "place other"], key: Key[Array, ""]) -> np.ndarray:
    """Clusters of `cluster_places`, as many as give the greatest modularity.

    The criterion of `cluster_places` cannot choose: it falls with every further cluster. Numbers from 1 to half of the
    places are tried, each about 1.5 times the number before.
    """
    most = max(1, len(similarity) // 2)
    tried = np.unique(np.geomspace(1, most, 2 + round(np.log(most) / np.log(1.5))).round().astype(int))
    found = [cluster_places(similarity, n, key) for n in tried.tolist()]
    return max(found, key=lambda cluster: modularity(similarity, cluster))


def modularity(similarity: Float[np.ndarray, "place other"], cluster: Int[np.ndarray, " place"]) -> float:
    """Share of the similarity of different places that is inside clusters, minus what chance gives (Newman 2004)."""
    pairs = similarity - np.diag(similarity.diagonal())
    total, of_cluster = max(pairs.sum(), FLOOR), np.bincount(cluster, pairs.sum(axis=1))
    return float(pairs[cluster[:, None] == cluster].sum() / total - ((of_cluster / total) ** 2).sum())


N_STARTS = 10
# Maximum number of rounds; in each round, every place may move once. About ten rounds are usually enough.
MAX_ROUNDS = 100
# A move must lower the criterion by at least this fraction, which is more than rounding errors.
MIN_GAIN = 1e-6


def cluster_places(
    similarity: Float[np.ndarray, "place other"], n_clusters: int, key: Key[Array, ""]
) -> Int[np.ndarray, " place"]:
    """Cluster places into `n_clusters` clusters of about equal size, numbered from 0, none of them empty.

    Minimizes the sum over clusters of size^2 times (similarity of its places to all places) / (similarity of its places
    to each other): the criterion G1' of CLUTO, which the published program uses, plus the sum of size^2. Each of ten
    starts assigns every place to the most similar of random seed places. Then single places move to the cluster that
    lowers the criterion most, until no move lowers it. The best start counts. `similarity` is symmetric and positive.
    Raises `InputError`: `n_clusters` is below 1 or above the number of places.
    """
    n_places = len(similarity)
    if not 1 <= n_clusters <= n_places:
        raise InputError("sglt", [Problem(f"n_clusters from 1 to {n_places}, the number of places", repr(n_clusters))])
    # Double precision is needed: in single precision, subtracting the largest term of a sum leaves rounding errors.
    with jax.enable_x64(True):
        keys, exact = jax.random.split(key, N_STARTS), jnp.asarray(similarity, jnp.float64)
        found, value = _of_starts(keys, exact, n_clusters)
        return np.asarray(found)[int(np.argmin(value))]


@partial(jax.jit, static_argnames="n_clusters")
def _of_starts(
    keys: Key[Array, " start"], similarity: Float[Array, "place other"], n_clusters: int
) -> tuple[Int[Array, "start place"], Float[Array, " start"]]:
    """The clusters of each start, and the criterion."""

    def descend(key: Array) -> tuple[Array, Array]:
        cluster = _descend(key, similarity, n_clusters)
        return cluster, criterion(*_sums(similarity, cluster, n_clusters)).sum()

    return jax.lax.map(descend, keys)


def _descend(key: Key[Array, ""], similarity: Float[Array, "place other"], n_clusters: int) -> Int[Array, " place"]:
    n_places = len(similarity)
    to_all, to_itself = similarity.sum(axis=1), similarity.diagonal()
    of_seeds, of_rounds = jax.random.split(key)
    attracting = jax.random.choice(of_seeds, n_places, (n_clusters,), replace=False)
    cluster = jnp.argmax(similarity[:, attracting], axis=1).astype(jnp.int32)
    cluster = cluster.at[attracting].set(jnp.arange(n_clusters, dtype=jnp.int32))

    def move(place: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        cluster, size, total, inside, moved = state
        left, own = cluster[place], jax.ops.segment_sum(similarity[place], cluster, n_clusters)
        cost = criterion(size, total, inside)
        joined = criterion(size + 1, total + to_all[place], inside + 2 * own + to_itself[place])
        inside_rest = jnp.where(size[left] > 1, inside[left] - 2 * own[left] + to_itself[place], 1)
        rest = criterion(size[left] - 1, total[left] - to_all[place], inside_rest)
        change = (joined - cost + rest - cost[left]).at[left].set(0)
        best = jnp.argmin(change).astype(jnp.int32)
        moves = (size[left] > 1) & (change[best] < -MIN_GAIN * cost.sum())
        best, sign = jnp.where(moves, best, left), jnp.array([-1, 1]) * moves
        both = jnp.stack([left, best])
        return (
            cluster.at[place].set(best),
            size.at[both].add(sign),
            total.at[both].add(sign * to_all[place]),
            inside.at[both].add(sign * 2 * own[both] + moves * to_itself[place]),
            moved + moves.astype(jnp.int32),
        )

    def move_each(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        cluster, _, number = state
        order = jax.random.permutation(jax.random.fold_in(of_rounds, number), n_places)
        # Sums are recomputed in every round, so that rounding errors do not accumulate.
        begin = (cluster, *_sums(similarity, cluster, n_clusters), jnp.zeros((), jnp.int32))
        end = jax.lax.fori_loop(0, n_places, lambda i, inner: move(order[i], inner), begin)
        return end[0], end[-1], number + 1

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        return (state[1] > 0) & (state[2] < MAX_ROUNDS)

    return jax.lax.while_loop(goes_on, move_each, (cluster, jnp.ones((), jnp.int32), 0))[0]


def _sums(similarity: Array, cluster: Array, n_clusters: int) -> tuple[Array, Array, Array]:
    """Size of each cluster, and the similarity of its places to all places and to each other."""
    member = jax.nn.one_hot(cluster, n_clusters, dtype=similarity.dtype)
    near = similarity @ member
    return member.sum(axis=0), near.sum(axis=0), (member * near).sum(axis=0)


def criterion(size: Array, total: Array, inside: Array) -> Array:
    """Terms of the criterion of `cluster_places`."""
    return size**2 * total / inside
