"""Homes and second places of synthetic people, from noisy sums.

The population p(s, b) at place b in slot s is a mixture of people at home, at their second place, and elsewhere:

    p(s, b) = sum over types k and layers l of occupancy_k(s, l) D_kl(s, b)

where occupancy_k(s, l) is the share of the people who are of type k and in layer l, and D_kl is their distribution over
places. The estimates of homes and of second places have more noise than the estimate of p. Places elsewhere have no
estimate of their own: they start as the rest of p. From this start, expectation-maximization changes homes and places
elsewhere so that the mixture comes near p (a coupled factorization under the Kullback-Leibler divergence). Then p is
estimated again, with the mixture as its guess, and homes and places elsewhere are changed again, so that the mixture
comes near the new estimate (see `people.fit_people`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ppmtf_jax.bridge.people.anchors import couple
from ppmtf_jax.bridge.people.law import ELSEWHERE, HOME, SECOND
from ppmtf_jax.bridge.people.layers import Layers, chains_of_layers
from ppmtf_jax.private.domain import N_TYPES, Domain
from ppmtf_jax.private.estimation import estimate, log_guess, tables_of
from ppmtf_jax.private.releases import Noisy, Releases, shrunk, with_guess
from ppmtf_jax.private.summaries import N_LAYERS

N_UPDATES = 15
MIN_ELSEWHERE = 0.05
"""Minimum of the people elsewhere at a place at the start, as a share of (people elsewhere in the slot) x (share of
the population at the place). It counts where the estimates of homes and second places leave too few people."""
LAYERS_GUESS = np.array([[0.6, 0.0, 0.4], [0.5, 0.2, 0.3]])
"""Guess of the shares of layers: a row for people without a second place, and a row for people with one."""
STEPS_GUESS = 0.9
"""Guess of steps: this share stays in the layer, and the rest goes to all layers alike, the same layer included."""
TYPES_GUESS = np.full(N_TYPES, 1 / N_TYPES)
GUESS_WEIGHT = 1.0
"""Weight of a guess, in standard deviations of the noise."""
TINY = 1e-12


class AnchoredPeople(NamedTuple):
    """Types of people: their shares, when they are in each layer, and the places of each layer."""

    share: Float[np.ndarray, " type"]
    layers: Layers
    home: Float[np.ndarray, "type place"]
    second: Float[np.ndarray, "type place"]
    elsewhere: Float[np.ndarray, "slot place"]
    occupancy: Float[np.ndarray, "type slot 3"]

    def population(self) -> Float[np.ndarray, "slot place"]:
        """Where all people together are."""
        at_home, at_second, elsewhere = np.moveaxis(self.occupancy, -1, 0)
        return at_home.T @ self.home + at_second.T @ self.second + elsewhere.sum(axis=0)[:, None] * self.elsewhere

    def drawn_to(self, population: Float[np.ndarray, "slot place"]) -> AnchoredPeople:
        """The people with homes and places elsewhere such that their population is near the given one; see the module.

        Each update sets the homes to the mean of two distributions: the homes at the start, and the one that fits the
        population best. The distributions of second places do not change: the population says little about them.
        """
        people, at_home = self, self.occupancy[:, :, HOME]
        own_share = np.maximum(at_home.sum(axis=1, keepdims=True), TINY)
        for _ in range(N_UPDATES):
            ratio = population / np.maximum(people.population(), TINY)
            home = self.home + people.home * (at_home @ ratio) / own_share
            people = people._replace(home=_normalized(home), elsewhere=_normalized(people.elsewhere * ratio))
        return people


def _normalized(weight: Float[np.ndarray, "row place"]) -> Float[np.ndarray, "row place"]:
    return weight / np.maximum(weight.sum(axis=1, keepdims=True), TINY)


def fit_anchors(releases: Releases, population: Float[np.ndarray, "slot place"], seed: int) -> AnchoredPeople:
    """Estimate types, layers and distributions over places from releases and the estimated population."""
    domain, n_rows = releases.domain, 2 * N_TYPES - 1
    guess = np.repeat(population.mean(axis=0)[None], n_rows, axis=0)
    tables = tables_of(releases, domain.anchor_tables())
    places = estimate(tables, domain, log_guess(guess), np.eye(n_rows), seed)
    # People of type 0 have no second place, so any distribution will do for theirs.
    home, second = places[:N_TYPES], places[[N_TYPES, *range(N_TYPES, n_rows)]]
    types = with_guess(releases["type"], TYPES_GUESS, GUESS_WEIGHT)
    share, at, steps = types / types.sum(), _shares_of_layers(releases), _steps(releases)
    slots = domain.time_grid.slot_of_instant
    of_type = (np.arange(N_TYPES) > 0).astype(int)
    at_phase = np.broadcast_to(at[:, slots], (2, N_TYPES, len(slots), 3))
    own_steps = np.broadcast_to(steps[of_type][:, slots], (2, N_TYPES, len(slots), 3, 3))
    people = share * np.stack([1 - of_type, of_type])
    layers = Layers(of_type.astype(float), at_phase, chains_of_layers(at_phase, own_steps, people))
    occupancy = np.einsum("k,ksl->ksl", share, at)
    unnormalized = AnchoredPeople(share, layers, home, second, np.zeros_like(population), occupancy)
    else_where = occupancy[:, :, ELSEWHERE].sum(axis=0)[:, None]
    elsewhere = np.maximum(population - unnormalized.population(), MIN_ELSEWHERE * else_where * population)
    return unnormalized._replace(elsewhere=_normalized(elsewhere)).drawn_to(population)


def _shares_of_layers(releases: Releases) -> Float[np.ndarray, "type slot 3"]:
    """Shares of layers of each type in each slot; types 1 to 4 are shrunk towards the shares of all four together."""
    noisy = releases["type x slot x layer"]
    n_slots = noisy.value.shape[1]
    groups = (slice(0, 1), slice(1, None))
    shares = np.empty_like(noisy.value)
    for group, guess in zip(groups, LAYERS_GUESS, strict=True):
        own = noisy.value[group]
        together = with_guess(Noisy(own.sum(axis=0), noisy.sigma * np.sqrt(len(own))), guess, GUESS_WEIGHT)
        together = together / together.sum(axis=1, keepdims=True)
        total = np.maximum(own.sum(axis=(1, 2)), noisy.sigma)[:, None, None] / n_slots
        shares[group] = shrunk(Noisy(own, noisy.sigma), total * together)
    shares[0, :, SECOND] = 0
    return shares / shares.sum(axis=-1, keepdims=True)


def _steps(releases: Releases) -> Float[np.ndarray, "2 slot 3 3"]:
    """Steps between layers in each slot, without and with a second place, shrunk towards the steps of all slots."""
    noisy = releases["slot x layer x layer"]
    stays = STEPS_GUESS * np.eye(N_LAYERS) + (1 - STEPS_GUESS) / N_LAYERS
    n_slots, possible = noisy.value.shape[1], np.ones((2, 1, N_LAYERS, N_LAYERS))
    possible[0, :, SECOND], possible[0, ..., SECOND] = 0, 0
    together = Noisy(noisy.value.sum(axis=1, keepdims=True), noisy.sigma * np.sqrt(n_slots))
    guess = with_guess(together, LAYERS_GUESS[:, None, :, None] * stays, GUESS_WEIGHT) * possible
    return shrunk(noisy, np.repeat(guess / n_slots, n_slots, axis=1)) * possible


def anchor_arrays(
    people: AnchoredPeople, distances: Float[np.ndarray, " bin"], domain: Domain
) -> dict[str, np.ndarray]:
    """The arrays of `bridge.people.law.PersonLaw` for homes and second places."""
    share = people.share * people.layers.second_share
    pairs = couple(people.home, people.second, share, distances, domain.distance_bin, domain.space.cell)
    pulls = {"home_pull": pairs.home_pull, "second_pull": pairs.second_pull, "anchor_between": pairs.between}
    return {"home": people.home, "second": people.second, **pulls}
