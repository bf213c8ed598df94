"""Semantic similarity of two users by how they move, eq. (11) of Bindschaedler and Shokri 2016, for few places.

By visits alone the best renaming of places is found by sorting, see `similarity`. With transitions it is a quadratic
assignment problem, for which no efficient algorithm is known; as in the paper it is searched by Metropolis-Hastings.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from ppmtf_jax.semantics.seed_traces import SeedTraces
from ppmtf_jax.semantics.similarity import SMOOTHING, Profiles, best_mapping

# Searches from one start, side by side.
N_CHAINS = 8
# Changes of the similarity that are accepted half of the time or so when they lower it.
TEMPERATURE = 0.01


class MobilityProfile(NamedTuple):
    """How one user moves.

    Attributes
    ----------
    visit : float array, shape (places,)
        Visit distribution pi.
    transition : float array, shape (places, places)
        Transition matrix p.
    """

    visit: Float[np.ndarray, " place"]
    transition: Float[np.ndarray, "place next_place"]

    @classmethod
    def of(cls, seeds: SeedTraces, user: int) -> MobilityProfile:
        """The profile of a user, over all her seeds.

        Visits get 0.01 more at each place, transitions 0.01 / places more in each cell; from the last instant of a seed
        it goes to its first.
        """
        own = SeedTraces(np.zeros(seeds.seeds_per_user[user], int), seeds.place[seeds.user == user], 1, seeds.n_places)
        visit = own.visits()[0] + SMOOTHING
        transition = own.transitions() + SMOOTHING / seeds.n_places
        return cls(visit / visit.sum(), transition / transition.sum(axis=1, keepdims=True))


class Renaming(NamedTuple):
    """A mapping of places, and how alike it makes two users.

    Attributes
    ----------
    mapping : int32 array, shape (places,)
        For each place of the user that of the other.
    similarity : float
        From 0 to 1.
    """

    mapping: Int[np.ndarray, " place"]
    similarity: float


def transition_similarity(
    seeds: SeedTraces, user: int, other: int, key: Key[Array, ""], *, n_steps: int = 10_000
) -> Renaming:
    """Search the renaming of places that makes two users move most alike, eq. (11).

    The similarity is the greatest sum over places r, r' of pi_r(u) min(p_r^r'(u), p_sigma(r)^sigma(r')(v)) over
    permutations sigma. It is not symmetric: places count by the user's visits. Eight chains of Metropolis-Hastings swap
    two places at a time, accept by exp(change / 0.01), and begin at the best mapping of visits; the best permutation
    that any of them met is returned. So the similarity is a lower bound, which `n_steps` tightens. A step takes
    O(places^2).

    Parameters
    ----------
    user, other : int
        Indices of u and v.
    key : of the search
    n_steps : int
        Of each chain.

    Examples
    --------
    Two users who go round, one through places 0, 1, 2 and one through 3, 2, 1:

    >>> seeds = SeedTraces(np.arange(2), np.array([[0, 1, 2], [3, 2, 1]]), n_users=2, n_places=4)
    >>> found = transition_similarity(seeds, 0, 1, jax.random.key(0), n_steps=100)
    >>> round(found.similarity, 4)
    1.0
    """
    profiles = [MobilityProfile.of(seeds, each) for each in (user, other)]
    visit, transition, to = (
        jnp.asarray(array, jnp.float32) for array in (profiles[0].visit, profiles[0].transition, profiles[1].transition)
    )
    start = jnp.asarray(best_mapping(Profiles.of(seeds), user, other))
    mapping, similarity = _search(jax.random.split(key, N_CHAINS), visit, transition, to, start, n_steps)
    best = int(np.argmax(similarity))
    return Renaming(np.asarray(mapping[best]), float(similarity[best]))


def similarity_by(
    visit: Float[Array, " place"],
    transition: Float[Array, "place next_place"],
    to: Float[Array, "place next_place"],
    mapping: Int[Array, " place"],
) -> Float[Array, ""]:
    """How alike a mapping of places makes two users: the sum in (11)."""
    return visit @ jnp.minimum(transition, to[mapping][:, mapping]).sum(axis=1)


@partial(jax.jit, static_argnames="n_steps")
def _search(
    keys: Key[Array, " chain"], visit: Array, transition: Array, to: Array, start: Array, n_steps: int
) -> tuple[Int[Array, "chain place"], Float[Array, " chain"]]:
    value = partial(similarity_by, visit, transition, to)

    def step(state: tuple[Array, ...], key: Array) -> tuple[tuple[Array, ...], None]:
        mapping, similarity, best, greatest = state
        of_swap, of_acceptance = jax.random.split(key)
        pair = jax.random.randint(of_swap, (2,), 0, len(mapping))
        proposed = mapping.at[pair].set(mapping[pair[::-1]])
        new = value(proposed)
        accepted = jnp.log(jax.random.uniform(of_acceptance)) < (new - similarity) / TEMPERATURE
        mapping, similarity = jnp.where(accepted, proposed, mapping), jnp.where(accepted, new, similarity)
        better = similarity > greatest
        state = (mapping, similarity, jnp.where(better, mapping, best), jnp.where(better, similarity, greatest))
        return state, None

    def chain(key: Array) -> tuple[Array, Array]:
        begin = value(start)
        end = jax.lax.scan(step, (start, begin, start, begin), jax.random.split(key, n_steps))[0]
        return end[2], end[3]

    return jax.vmap(chain)(keys)
