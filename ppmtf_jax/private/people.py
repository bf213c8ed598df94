"""Synthetic people from private releases: all parameters of the process of people who remember, from noisy sums.

The people follow the process of `people.process`. They differ in how often they move. Moves depend on the distance and
the population (gravity), and on the places of the trace so far. Calibration brings the population, stays, distances and
returns of simulated people near the estimates. No function here sees a real trace.

If the domain is anchored, people have homes and second places, and are of several types; each type is a cluster of the
process. The population p(s, b) at place b in slot s is then a mixture of people at home, at their second place, and at
other places:

    p(s, b) = sum over types k and roles l of occupancy_k(s, l) D_kl(s, b)

where occupancy_k(s, l) is the share of the people who are of type k and in role l, and D_kl is their distribution over
places. The estimates of homes and of second places have more noise than the estimate of p. Other places have no
estimate of their own: they start as the rest of p. From this start, expectation-maximization changes homes and other
places so that the mixture comes near p (a coupled factorization under the Kullback-Leibler divergence). Then p is
estimated again, with the mixture as its guess, and homes and other places are changed again, so that the mixture comes
near the new estimate (see `fit_people`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import isotonic_regression
from scipy.stats import beta, binom

from ppmtf_jax.people.attraction import Attraction
from ppmtf_jax.people.bins import DWELL_FROM, HOME, MAX_REMEMBERED, OTHER, SECOND
from ppmtf_jax.people.calibration import THOROUGH, Targets, calibrate
from ppmtf_jax.people.fit import narrow
from ppmtf_jax.people.model import RememberingBridge
from ppmtf_jax.people.roles import Roles, chains_of_roles, couple, in_bins, of_others
from ppmtf_jax.private.domain import N_TYPES, Domain
from ppmtf_jax.private.estimation import estimate, estimate_population, log_guess, tables_of
from ppmtf_jax.private.releases import MOVES_PERCENT, N_ROLES, Noisy, Releases, shrunk, with_guess
from ppmtf_jax.runtime.progress import progress_bar
from ppmtf_jax.streams import Stage, jax_stream

N_PEOPLE = 8000
"""Number of simulated people."""
CLASS_MOVES = np.array([0.001, 0.06, 0.16, 0.28, 0.42, 0.58, 0.74, 0.9])
"""Probability of a move in a step, for each class of mobility."""
NO_MOVES, MEAN_MOVES, SPREAD = (
    np.linspace(0, 0.6, 13),
    np.linspace(0.04, 0.96, 24),
    np.array([0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.65]),
)
"""Grid of distributions of mobility. In each distribution, a share of the people (`NO_MOVES`) hardly move. The others
have probabilities of a move with a beta distribution: it has a mean (`MEAN_MOVES`), and its variance is a share
(`SPREAD`) of mean x (1 - mean)."""
BACK_WEIGHT, SLOT_WEIGHT, ANCHOR_WEIGHT = 0.5, 2.0, 1.0
"""Weights of three guesses, in standard deviations of the noise: of moves back, of moves in a slot, and of anchors."""
MIN_MASS = 0.5
"""Minimum rate of moves per pair of people, in standard errors of an estimate that is the same at all distances."""
NEUTRAL_BACK = 0.2
"""Share of moves back for the calibration of people without memory; it changes nothing for them."""
MAX_MISPLACED = 0.03
"""If people remember places but hardly go back, they cannot be at popular places often enough. The share of people who
are misplaced may exceed that of people without memory by this number. Otherwise other places are not remembered."""
SMALL = (300, 100)
"""With fewer users with a step than this, at epsilon 1, a model is of little use: for sparse traces, and for dense
traces. Of 1,000 users who check in now and then, a third have events at consecutive instants."""
MIN_SHARE = 1e-3

N_UPDATES = 15
MIN_OTHER = 0.05
"""Minimum of the people whose role is `OTHER` at a place at the start, as a share of (people of this role in the slot)
x (share of the population at the place). It counts where the estimates of homes and second places leave too few."""
ROLES_GUESS = np.array([[0.6, 0.0, 0.4], [0.5, 0.2, 0.3]])
"""Guess of the shares of roles: a row for people without a second place, and a row for people with one."""
STEPS_GUESS = 0.9
"""Guess of steps: this share stays in the role, and the rest goes to all roles alike, the same role included."""
TYPES_GUESS = np.full(N_TYPES, 1 / N_TYPES)
TINY = 1e-12


class Movements(NamedTuple):
    """How people move, learned from noisy sums."""

    class_share: Float[np.ndarray, " class"]  # share of the people in each class of `CLASS_MOVES`
    moves: Float[np.ndarray, " slot"]  # share of moves among all steps
    distances: Float[np.ndarray, " bin"]  # share of the moves in each bin of distance

    @classmethod
    def of(cls, releases: Releases, population: Float[np.ndarray, " place"]) -> Movements:
        """Estimate movements from noisy sums; the more noise a sum has, the more a guess weighs."""
        in_slots = releases["slot x stay or move"]
        class_share = _classes(releases["mobility"], in_slots, len(releases.domain.time_grid.slot_of_instant) - 1)
        return cls(
            class_share,
            _second_of_two(in_slots, float(class_share @ CLASS_MOVES), SLOT_WEIGHT),
            distances(releases, "distance", population),
        )


def _classes(mobility: Noisy, in_slots: Noisy, most_steps: int) -> Float[np.ndarray, " class"]:
    """Shares of the classes of mobility: the mean of all distributions, weighted by the likelihood of both tables."""
    shares = _distributions()
    log_likelihood = np.zeros(len(shares))
    lengths = most_steps / 8, most_steps / 2, most_steps
    for value, n_steps in zip(mobility.value, lengths, strict=True):
        expected = shares @ _class_of_window(max(round(n_steps), 1))
        log_likelihood += _log_likelihood(value, expected, mobility.sigma)
    moves = shares @ CLASS_MOVES
    value, sigma = in_slots.value.sum(axis=0), in_slots.sigma * np.sqrt(len(in_slots.value))
    log_likelihood += _log_likelihood(value, np.stack([1 - moves, moves], axis=1), sigma)
    weight = np.exp(log_likelihood - log_likelihood.max())
    return weight @ shares / weight.sum()


def _distributions() -> Float[np.ndarray, "distribution class"]:
    """Shares of the classes of mobility in each distribution of the grid, see `NO_MOVES`."""
    still, mean, spread = (each.ravel()[:, None] for each in np.meshgrid(NO_MOVES, MEAN_MOVES, SPREAD))
    edges = np.append(0, (CLASS_MOVES[1:-1] + CLASS_MOVES[2:]) / 2)
    size = 1 / spread - 1
    below = np.append(beta.cdf(edges, mean * size, (1 - mean) * size), np.ones_like(mean), axis=1)
    return np.append(still, (1 - still) * np.diff(below), axis=1)


def _class_of_window(n_steps: int) -> Float[np.ndarray, "class window"]:
    """Probability of each class of windows, for a window of `n_steps` steps of people in each class of mobility."""
    most_moves = np.array(MOVES_PERCENT) * n_steps // 100
    below = binom.cdf(most_moves, n_steps, CLASS_MOVES[:, None])
    return np.diff(below, axis=1, prepend=0, append=1)


def _log_likelihood(
    value: Float[np.ndarray, " cell"], expected: Float[np.ndarray, "distribution cell"], sigma: float
) -> Float[np.ndarray, " distribution"]:
    """Log-likelihood of noisy sums whose means are the expected shares times an unknown number, which is fitted."""
    number = np.maximum(expected @ value, 0) / (expected**2).sum(axis=1)
    return -((value - number[:, None] * expected) ** 2).sum(axis=1) / (2 * sigma**2)


def _second_of_two(noisy: Noisy, guess: float, weight: float) -> np.ndarray | np.floating:
    """Share of the second of two noisy numbers in their sum, drawn towards a guess of this share; see `with_guess`."""
    sums = with_guess(noisy, np.array([1 - guess, guess]), weight)
    return np.clip(sums[..., 1] / sums.sum(axis=-1), MIN_SHARE, 1 - MIN_SHARE)


def distances(releases: Releases, name: str, population: Float[np.ndarray, " place"]) -> Float[np.ndarray, " bin"]:
    """Share of each bin of distance in a release, "distance" or "home to second"; one bin if there are no distances.

    The sums are shrunk towards a guess. In the guess, the number of moves (or of homes with a second place) per pair of
    people never rises with the distance (isotonic regression).
    """
    domain = releases.domain
    if not domain.space.has_distances:
        return np.ones(1)
    noisy, pairs = releases[name], pairs_in_bins(domain, population)
    some = np.flatnonzero(pairs)
    value, pairs = noisy.value[some], pairs[some]
    rate = isotonic_regression(value / pairs, weights=pairs**2, increasing=False).x
    rate = np.maximum(rate, MIN_MASS * noisy.sigma / np.sqrt((pairs**2).sum()))
    sums = shrunk(Noisy(value, noisy.sigma), rate * pairs)
    share = np.zeros(len(noisy.value))
    share[some] = sums / sums.sum()
    return share


def pairs_in_bins(domain: Domain, population: Float[np.ndarray, " place"]) -> Float[np.ndarray, " bin"]:
    """Share of pairs of people who are at different places, in each bin of distance."""
    space, people = domain.space, population[:, None]
    total = in_bins(people, people, np.ones(space.km.shape), domain.distance_bin, space.cell)
    return np.where(total > TINY, total, 0)


def is_small(releases: Releases) -> bool:
    """Whether the noisy sums suggest too few users for a useful model: `SMALL` users, times 1 / epsilon.

    The sums of windows are at least the number of users who have a step. Most windows of dense traces are complete,
    unless only steps at other places are counted: people with homes have dense traces.
    """
    windows = releases["mobility"].value
    dense = releases.domain.anchored or windows[-1].sum() > windows[:-1].sum()
    return bool(windows.sum() * releases.ledger["relations"][0]["spent"]["epsilon"] < SMALL[int(dense)])


def share_back(places: Int[np.ndarray, "person instant"]) -> float:
    """Share of moves back to the place before, among moves directly after a move."""
    moves = places[:, 1:] != places[:, :-1]
    second = moves[:, 1:] & moves[:, :-1]
    back = second & (places[:, 2:] == places[:, :-2])
    return float((back.sum() + 0.5) / (second.sum() + 1))


def fit_people(
    releases: Releases, seed: int, prior: Float[np.ndarray, "slot place"] | None = None, *, progress: bool = False
) -> dict[str, np.ndarray]:
    """Fit the process of synthetic people to releases and a public prior alone.

    Returns the arrays of `PersonProcess`, and the `share` of people in each cluster (type). `seed`: seed of the fit. It
    may be known: privacy does not depend on it. `prior`: see `estimation.estimate_population`.
    """
    domain = releases.domain
    population = other = estimate_population(releases, seed, prior)
    roles, share, arrays = Roles.always_other(1, domain.time_grid.n_instants), np.ones(1), {}
    if domain.anchored:
        # What the releases say about homes makes the estimate of the population better.
        anchored = fit_anchors(releases, population, seed)
        population = estimate_population(releases, seed, anchored.population())
        anchored = anchored.drawn_to(population)
        roles, share, other = anchored.roles, anchored.share, anchored.other
        apart = distances(releases, "home to second", population.mean(axis=0))
        with_second = share * roles.second_share
        pairs = couple(anchored.home, anchored.second, with_second, apart, domain.distance_bin, domain.space.cell)
        arrays = {"home": anchored.home, "second": anchored.second, **pairs}
    movements = Movements.of(releases, other.mean(axis=0))
    arrays |= _start(domain, other, movements, roles)
    process_arrays = {name: narrow(values) for name, values in arrays.items()}
    slots = domain.time_grid.slot_of_instant
    # The number of simulated people of a type is proportional to its share, so that all people have equal weights.
    clusters = np.searchsorted(np.cumsum(share), (np.arange(N_PEOPLE) + 0.5) / N_PEOPLE).clip(0, len(share) - 1)

    def calibrated(remembered: int, back: float) -> tuple[RememberingBridge, np.ndarray]:
        targets = Targets(
            np.repeat(np.float32(other[None]), len(share), axis=0),
            np.float32(1 - movements.moves),
            domain.distance_bin,
            np.float32(movements.distances),
            back,
            np.float32(share),
        )
        process = RememberingBridge.from_arrays(process_arrays | {"remembered": np.array(remembered)})
        return calibrate(process, targets, clusters, share_back, jax_stream(seed, Stage.FIT, 2), advance)

    with progress_bar("calibrating people", 2 * THOROUGH.n_rounds, show=progress) as advance:
        chain, places = calibrated(0, NEUTRAL_BACK)
        neutral = share_back(places), _misplaced(places, population, slots)
        back = _second_of_two(releases["back or not"], neutral[0], BACK_WEIGHT)
        process, places = calibrated(MAX_REMEMBERED, float(back))
    remembers = _misplaced(places, population, slots) < neutral[1] + MAX_MISPLACED
    return (process if remembers else chain).to_arrays() | {"share": share}


def _misplaced(
    places: Int[np.ndarray, "person instant"],
    population: Float[np.ndarray, "slot place"],
    slots: Int[np.ndarray, " instant"],
) -> float:
    """Total variation between simulated people and the population, less that by chance, on average over instants.

    By chance, a share has a nearly normal error, with a mean absolute value of sqrt(2 variance / pi).
    """
    n_people, n_places = len(places), population.shape[1]
    apart = []
    for column, slot in zip(places.T, slots, strict=True):
        share = population[slot]
        found = np.bincount(column, minlength=n_places) / n_people
        chance = np.sqrt(2 / np.pi * share * (1 - share) / n_people)
        apart.append((np.abs(found - share) - chance).sum() / 2)
    return float(np.mean(apart))


def _start(
    domain: Domain, population: Float[np.ndarray, "slot place"], movements: Movements, roles: Roles
) -> dict[str, np.ndarray]:
    """Arrays of the process before calibration, except those of anchors. `population`: people at other places."""
    n_slots, n_places = population.shape
    slots, space = domain.time_grid.slot_of_instant, domain.space
    n_types = len(roles.second_share)
    times = (len(slots), n_types, n_places)
    pairs = pairs_in_bins(domain, population.mean(axis=0))
    factor = np.divide(movements.distances, pairs, out=np.zeros_like(pairs), where=pairs > 0)
    between = factor[domain.distance_bin]
    going = of_others(population.T, between, space.cell).T
    leaving = np.divide(1, going, out=np.zeros_like(going), where=going > TINY)
    no_moves = np.zeros(n_places + 1, int), np.zeros(0, int), np.zeros((n_slots, 0))
    attraction = Attraction(space.cell, *no_moves, leaving, population, between)
    return {
        "cluster": np.zeros(0, int),
        "n_present": np.zeros(n_types, int),
        "slot_of_phase": slots,
        "class_share": np.repeat(movements.class_share[None], n_types, axis=0),
        "second_share": roles.second_share,
        "role_first": roles.at[:, :, 0],
        "role_next": roles.next,
        "first_other": np.repeat(population[slots[:1]], n_types, axis=0),
        "stay": np.zeros((n_slots, n_places)),
        "stay_at_time": np.zeros(times[0]),
        "stay_tilt": np.zeros(times),
        "stay_by_dwell": np.zeros(len(DWELL_FROM)),
        "stay_by_class": -np.log(CLASS_MOVES / (1 - CLASS_MOVES)),
        "log_popularity_ratio": np.log(np.maximum(population, TINY)),
        "population": population,
        "pull": np.ones(times),
        "discount": np.array(0.0),
        "strength": np.array(1.0),
        "back": np.array(0.0),
        "by_popularity": np.array(1.0),
        "near": np.array(1.0),
        **attraction.arrays(),
    }


class AnchoredPeople(NamedTuple):
    """Types of people: their shares, when they are in each role, and the places of each role."""

    share: Float[np.ndarray, " type"]
    roles: Roles
    home: Float[np.ndarray, "type place"]
    second: Float[np.ndarray, "type place"]
    other: Float[np.ndarray, "slot place"]
    occupancy: Float[np.ndarray, "type slot 3"]

    def population(self) -> Float[np.ndarray, "slot place"]:
        """Where all people together are."""
        at_home, at_second, at_other = np.moveaxis(self.occupancy, -1, 0)
        return at_home.T @ self.home + at_second.T @ self.second + at_other.sum(axis=0)[:, None] * self.other

    def drawn_to(self, population: Float[np.ndarray, "slot place"]) -> AnchoredPeople:
        """Homes and other places are changed such that the population comes near the given one; see the module.

        Each update sets the homes to the mean of the homes at the start and those that fit the population best. Second
        places do not change: the population says little about them.
        """
        people, at_home = self, self.occupancy[:, :, HOME]
        own_share = np.maximum(at_home.sum(axis=1, keepdims=True), TINY)
        for _ in range(N_UPDATES):
            ratio = population / np.maximum(people.population(), TINY)
            home = self.home + people.home * (at_home @ ratio) / own_share
            people = people._replace(home=_normalized(home), other=_normalized(people.other * ratio))
        return people


def _normalized(weight: Float[np.ndarray, "row place"]) -> Float[np.ndarray, "row place"]:
    return weight / np.maximum(weight.sum(axis=1, keepdims=True), TINY)


def fit_anchors(releases: Releases, population: Float[np.ndarray, "slot place"], seed: int) -> AnchoredPeople:
    """Estimate types, roles and distributions over places from releases and the estimated population."""
    domain, n_rows = releases.domain, 2 * N_TYPES - 1
    guess = np.repeat(population.mean(axis=0)[None], n_rows, axis=0)
    tables = tables_of(releases, domain.anchor_tables())
    places = estimate(tables, domain, log_guess(guess), np.eye(n_rows), seed)
    # People of type 0 have no second place, so any distribution will do for theirs.
    home, second = places[:N_TYPES], places[[N_TYPES, *range(N_TYPES, n_rows)]]
    types = with_guess(releases["type"], TYPES_GUESS, ANCHOR_WEIGHT)
    share, at, steps = types / types.sum(), _shares_of_roles(releases), _steps(releases)
    slots = domain.time_grid.slot_of_instant
    of_type = (np.arange(N_TYPES) > 0).astype(int)
    at_phase = np.broadcast_to(at[:, slots], (2, N_TYPES, len(slots), 3))
    own_steps = np.broadcast_to(steps[of_type][:, slots], (2, N_TYPES, len(slots), 3, 3))
    people = share * np.stack([1 - of_type, of_type])
    roles = Roles(of_type.astype(float), at_phase, chains_of_roles(at_phase, own_steps, people))
    occupancy = np.einsum("k,ksl->ksl", share, at)
    unnormalized = AnchoredPeople(share, roles, home, second, np.zeros_like(population), occupancy)
    at_other = occupancy[:, :, OTHER].sum(axis=0)[:, None]
    other = np.maximum(population - unnormalized.population(), MIN_OTHER * at_other * population)
    return unnormalized._replace(other=_normalized(other)).drawn_to(population)


def _shares_of_roles(releases: Releases) -> Float[np.ndarray, "type slot 3"]:
    """Shares of roles of each type in each slot; types 1 to 4 are shrunk towards the shares of all four together."""
    noisy = releases["type x slot x role"]
    n_slots = noisy.value.shape[1]
    groups = (slice(0, 1), slice(1, None))
    shares = np.empty_like(noisy.value)
    for group, guess in zip(groups, ROLES_GUESS, strict=True):
        own = noisy.value[group]
        together = with_guess(Noisy(own.sum(axis=0), noisy.sigma * np.sqrt(len(own))), guess, ANCHOR_WEIGHT)
        together = together / together.sum(axis=1, keepdims=True)
        total = np.maximum(own.sum(axis=(1, 2)), noisy.sigma)[:, None, None] / n_slots
        shares[group] = shrunk(Noisy(own, noisy.sigma), total * together)
    shares[0, :, SECOND] = 0
    return shares / shares.sum(axis=-1, keepdims=True)


def _steps(releases: Releases) -> Float[np.ndarray, "2 slot 3 3"]:
    """Steps between roles in each slot, without and with a second place, shrunk towards the steps of all slots."""
    noisy = releases["slot x role x role"]
    stays = STEPS_GUESS * np.eye(N_ROLES) + (1 - STEPS_GUESS) / N_ROLES
    n_slots, possible = noisy.value.shape[1], np.ones((2, 1, N_ROLES, N_ROLES))
    possible[0, :, SECOND], possible[0, ..., SECOND] = 0, 0
    together = Noisy(noisy.value.sum(axis=1, keepdims=True), noisy.sigma * np.sqrt(n_slots))
    guess = with_guess(together, ROLES_GUESS[:, None, :, None] * stays, ANCHOR_WEIGHT) * possible
    return shrunk(noisy, np.repeat(guess / n_slots, n_slots, axis=1)) * possible
