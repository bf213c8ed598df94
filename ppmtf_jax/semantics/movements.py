"""Semantic similarity by transitions, (9) and (11) of Bindschaedler and Shokri 2016, by Metropolis-Hastings.

Users are similar if a renaming of places makes their moves similar. To find the best renaming is a quadratic
assignment, for which no fast algorithm is known, so it is searched for at random.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.runtime.memory import require_memory
from ppmtf_jax.semantics.places import FLOOR, SeedTraces, VisitProfiles

# A renaming that is so much less similar is accepted with probability 1 / e, at the first and at the last proposal.
HOT, COLD = 0.2, 0.005
PROPOSALS, PROPOSALS_PER_PLACE = 800, 20


class Movements(NamedTuple):
    """Steps of users in time periods, between places that are ranked by the visits of each user.

    `leaving`: share of a user's steps that begin at a place; `chain`: distribution of the next place. A step belongs to
    the time period in which it begins; the last instant of a seed is followed by its first.
    """

    n_visited: Int[Array, " user"]
    leaving: Float[Array, "time user rank"]
    chain: Float[Array, "time user rank next_rank"]

    @classmethod
    def of(cls, seeds: SeedTraces, profiles: VisitProfiles, n_time_periods: int, n_ranks: int) -> Movements:
        """Count the steps; `n_ranks`: at least the largest number of places that a user visits."""
        n_bytes = 12 * n_time_periods * seeds.n_users * n_ranks**2
        require_memory("similarity by transitions", n_bytes, "Take fewer users")
        rank = profiles.rank[seeds.user[:, None], seeds.place]
        steps = np.zeros((n_time_periods, seeds.n_users, n_ranks, n_ranks), np.float32)
        for counts, at in zip(steps, np.array_split(np.arange(rank.shape[1]), n_time_periods), strict=True):
            np.add.at(counts, (seeds.user[:, None], rank[:, at], np.roll(rank, -1, axis=1)[:, at]), 1)
        leaving = steps.sum(axis=3)
        chain = steps / np.maximum(leaving, 1)[..., None]
        return cls(*map(jnp.asarray, (profiles.n_visited, leaving / leaving.sum(axis=2, keepdims=True), chain)))


def place_similarity_by_moves(
    seeds: SeedTraces, n_time_periods: int, key: Key[Array, ""]
) -> Float[np.ndarray, "place other"]:
    """Semantic similarity of places as in `places.place_similarity`, from mappings by (11) between all pairs of users.

    The similarity (11) is that of an ordered pair, so both orders count.
    """
    profiles, every = VisitProfiles.of(seeds), np.arange(seeds.n_users)[:, None]
    moves = Movements.of(seeds, profiles, n_time_periods, profiles.place.shape[1])
    leaving, graph = np.asarray(moves.leaving, float), np.zeros((seeds.n_places, seeds.n_places))
    weights, _ = seeds.in_time_periods(n_time_periods)
    for user in range(seeds.n_users):
        greatest, best = (np.asarray(found) for found in best_mappings(key, jnp.int32(user), moves, moves))
        similarity = weights @ greatest
        for weight, of_users, sigma in zip(weights, leaving, best, strict=True):
            common = np.minimum(of_users[user], of_users[every, sigma]) * weight * similarity[:, None]
            np.add.at(graph, (profiles.place[user], profiles.place[every, sigma]), common)
        # Places without visits are mapped to themselves.
        graph[np.diag_indices_from(graph)] += profiles.background * similarity.sum()
    return np.maximum(graph + graph.T, FLOOR)


@jax.jit
def best_mappings(
    key: Key[Array, ""], user: Int[Array, ""], own: Movements, others: Movements
) -> tuple[Float[Array, "time other"], Int[Array, "time other rank"]]:
    """Similarity (11) of a user to each of others in each time period, and the best mapping of ranks that was found.

    The similarity is the sum over places r and r' of pi_r(u) min(p_r'|r(u), p_sigma(r')|sigma(r)(v)), from 0 to 1: the
    share of the user's steps that the other makes too, under other names. The chain begins at the best mapping of
    the whole day's visits and proposes to exchange the images of two places. What it finds is a lower bound of the
    greatest similarity.
    """
    keys = jax.random.split(jax.random.fold_in(key, user), others.chain.shape[:2])
    search = jax.vmap(jax.vmap(_search, (0, None, None, None, 0, 0)), (0, 0, 0, None, 0, None))
    return search(keys, own.leaving[:, user], own.chain[:, user], own.n_visited[user], others.chain, others.n_visited)


def _search(key: Array, leaving: Array, chain: Array, n_own: Array, other: Array, n_other: Array) -> tuple:
    every = jnp.arange(len(leaving))
    ends = jnp.array([n_own, jnp.maximum(n_own, n_other)])

    def terms(sigma: Array, pair: Array) -> Array:
        """The terms of (11) from or to two places."""
        rows = leaving[pair, None] * jnp.minimum(chain[pair], other[sigma[pair, None], sigma])
        rest = jnp.where((every[:, None] == pair).any(axis=1), 0, leaving)
        return rows.sum() + (rest[:, None] * jnp.minimum(chain[:, pair], other[sigma[:, None], sigma[pair]])).sum()

    def step(state: tuple[Array, ...], now: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        (sigma, value, best, greatest), (drawn, temperature) = state, now
        pair = jnp.minimum((drawn[:2] * ends).astype(jnp.int32), ends - 1)
        proposed = sigma.at[pair].set(sigma[pair[::-1]])
        change = terms(proposed, pair) - terms(sigma, pair)
        accepted = jnp.log(drawn[2]) * temperature < change
        sigma, value = jnp.where(accepted, proposed, sigma), value + jnp.where(accepted, change, 0)
        is_best = value > greatest + FLOOR
        return (sigma, value, jnp.where(is_best, sigma, best), jnp.where(is_best, value, greatest)), None

    start = (leaving[:, None] * jnp.minimum(chain, other)).sum()
    n_proposals = PROPOSALS + PROPOSALS_PER_PLACE * len(leaving)
    drawn = jax.random.uniform(key, (n_proposals, 3)), jnp.geomspace(HOT, COLD, n_proposals)
    (_, _, best, greatest), _ = jax.lax.scan(step, (every, start, every, start), drawn)
    return greatest, best
