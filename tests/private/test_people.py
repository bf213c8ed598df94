"""Synthetic people from releases: what is learned from noisy sums, and people who are calibrated to it."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.noise.mechanisms import SeededNoise
from ppmtf_jax.people.bins import HOME, SECOND
from ppmtf_jax.people.counts import VisitCounts
from ppmtf_jax.people.process import sample_life
from ppmtf_jax.people.roles import Anchors, Roles
from ppmtf_jax.private import people
from ppmtf_jax.private.domain import N_TYPES, Domain
from ppmtf_jax.private.estimation import estimate_population
from ppmtf_jax.private.people import AnchoredPeople, fit_anchors
from ppmtf_jax.private.releases import RELATION, SCALE, Noisy, Releases, has_dense_users, release, shrunk
from tests.people.person_processes import random_arrays
from tests.private.worlds import city, domain_of, homes_city
from tests.support import to_traces


def releases_of(traces, epsilon: float) -> Releases:
    return release(traces, domain_of(traces), ZCDPAccountant(RELATION, epsilon, 1e-6, SeededNoise(0)))


def test_planted_mobility_is_found_and_another_is_not():
    """Windows of people whose probability of a move has a beta distribution, with noise of a tenth of the people."""
    rng = np.random.default_rng(0)
    n_people, n_steps = 3000, 29
    rate = rng.beta(2.0, 4.0, n_people) * (rng.random(n_people) > 0.2)
    moves = rng.binomial(n_steps, rate)
    share = (100 * moves[:, None] > np.array([0, 12, 25, 40, 60]) * n_steps).sum(axis=1)
    table = np.zeros((3, 6))
    table[2] = np.bincount(share, minlength=6)
    noisy = Noisy(table + 30 * rng.standard_normal(table.shape), 30.0)
    slots = Noisy(np.array([[(1 - rate).sum(), rate.sum()]]), 30.0)
    found = people._classes(noisy, slots, n_steps)
    assert found.sum() == pytest.approx(1)
    # The standard error of a share of 3,000 people with this noise is about .02; six of those.
    below = np.array([(rate <= edge).mean() for edge in (0.11, 0.35, 0.66)])
    np.testing.assert_allclose(np.cumsum(found)[[1, 3, 5]], below, atol=0.12)
    others = people._classes(Noisy(noisy.value[:, ::-1], 30.0), Noisy(slots.value[:, ::-1], 30.0), n_steps)
    assert np.abs(np.cumsum(others)[[1, 3, 5]] - below).max() > 0.3


def test_without_noise_the_class_of_a_window_has_the_probabilities_of_the_binomial():
    share = people._class_of_window(10)
    np.testing.assert_allclose(share.sum(axis=1), 1)
    # Up to 12 % of 10 steps is one move.
    np.testing.assert_allclose(share[:, 1], 10 * people.CLASS_MOVES * (1 - people.CLASS_MOVES) ** 9)


def test_noisy_sums_are_drawn_to_the_guess_only_as_far_as_they_agree_with_it():
    rng = np.random.default_rng(1)
    guess = np.full(400, 100.0)
    noise = 10 * rng.standard_normal(400)
    assert np.abs(shrunk(Noisy(guess + noise, 10.0), guess) - guess).mean() < 3
    truth = 100 + 100 * (np.arange(400) % 2)
    assert np.abs(shrunk(Noisy(truth + noise, 10.0), guess) - truth).mean() < 10


def test_distances_become_rarer_and_none_is_impossible():
    releases = releases_of(city("both"), 1.0)
    flat = np.full(80, 1 / 80)
    share, pairs = people.distances(releases, "distance", flat), people.pairs_in_bins(releases.domain, flat)
    assert share.sum() == pytest.approx(1)
    assert ((share > 0) == (pairs > 0)).all()
    exact = people.distances(releases_of(city("both"), 1e4), "distance", flat)
    raw = np.maximum(releases["distance"].value, 0)
    assert np.abs(share - exact).sum() < np.abs(raw / raw.sum() - exact).sum()


def test_pairs_are_counted_by_brute_force():
    domain = domain_of(city("both"))
    population = np.random.default_rng(2).dirichlet(np.ones(80))
    expected = np.zeros(int(domain.distance_bin.max()) + 1)
    for a in range(80):
        for b in range(80):
            if a != b:
                expected[domain.distance_bin[a, b]] += population[a] * population[b]
    np.testing.assert_allclose(people.pairs_in_bins(domain, population), expected, rtol=1e-5)


def test_moves_back_are_counted():
    places = np.array([[0, 1, 0, 0, 1, 2], [3, 3, 4, 3, 4, 4]])
    # Moves that follow a move at once: 0-1-0, 0-1-2, 3-4-3, 4-3-4; three of them lead back.
    assert people.share_back(places) == pytest.approx((3 + 0.5) / (4 + 1))


@pytest.fixture(scope="module")
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(people, "N_PEOPLE", 1500)
        yield


@pytest.fixture(scope="module")
def fitted(quick):
    return releases_of(city("both"), 100.0), people.fit_people(releases_of(city("both"), 100.0), 0)


def simulated(fit: dict[str, np.ndarray], n_people: int, n_instants: int) -> np.ndarray:
    process = people.RememberingBridge.from_arrays({name: each for name, each in fit.items() if name != "share"})
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(1), jnp.arange(n_people))
    cluster = np.random.default_rng(0).choice(len(fit["share"]), n_people, p=fit["share"] / fit["share"].sum())
    draw = jax.jit(jax.vmap(lambda key, cluster: sample_life(process, key, cluster, n_instants)))
    return np.asarray(draw(keys, jnp.asarray(cluster, jnp.int32)))


@pytest.mark.slow
def test_people_have_the_population_the_moves_and_the_distances_of_the_releases(fitted):
    releases, fit = fitted
    places = simulated(fit, 6000, 24)
    domain = releases.domain
    slots = domain.time_grid.slot_of_instant
    # Beyond the chance of 6,000 people: what 1,500 simulated people cannot calibrate.
    assert people._misplaced(places, fit["population"], slots) < 0.03
    assert people._misplaced(places, fit["population"][::-1], slots) > 0.08
    movements = people.Movements.of(releases, fit["population"].mean(axis=0))
    moves = (places[:, 1:] != places[:, :-1]).mean(axis=0)
    np.testing.assert_allclose(moves, movements.moves[slots[1:]], atol=0.06)
    a, b = places[:, :-1].ravel(), places[:, 1:].ravel()
    bins = domain.distance_bin[domain.space.cell[a], domain.space.cell[b]][a != b]
    share = np.bincount(bins, minlength=len(movements.distances)) / len(bins)
    assert np.abs(share - movements.distances).sum() / 2 < 0.05


def test_people_who_forget_have_no_likelihood():
    process = people.RememberingBridge.from_arrays(random_arrays(anchors=False) | {"remembered": np.array(0)})
    with pytest.raises(InputError, match="people who remember"):
        process.log_traces(np.zeros((1, 24), int), np.array([0]))


@pytest.mark.parametrize(("remembered", "new_places"), [(0, True), (4, False)])
def test_people_who_forget_go_on_after_any_number_of_places(remembered, new_places):
    """With room for four places, only people who remember have nowhere new to go."""
    arrays = random_arrays(n_places=40, anchors=False)
    # They seldom stay, and mean to go to a new place.
    arrays |= {"stay": arrays["stay"] - 9, "strength": np.array(1e6), "remembered": np.array(remembered)}
    found = simulated(arrays | {"share": np.array([0.5, 0.5])}, 4, 60)
    assert [(len(set(trace)) > 10) for trace in found.tolist()] == [new_places] * 4


@pytest.mark.slow
def test_people_forget_where_a_popular_place_needs_them_to(quick):
    """All people move at every instant and never back, although a third of them are at one place at every instant."""
    n_places, n_users = 12, 200
    places = PlaceTable(np.arange(n_places), np.full(n_places, np.nan), np.full(n_places, np.nan))
    rng = np.random.default_rng(0)
    # On each day, a user has three events at consecutive hours of their own, at three places.
    events = [
        (user, day, hour + step, place)
        for user in range(n_users)
        for day, hour in enumerate(rng.integers(0, 22, 3))
        for step, place in enumerate(rng.permutation([0, *rng.choice(np.arange(1, n_places), 2, replace=False)]))
    ]
    grid = TimeGrid.cyclic("2024-01-01", 3600, 24, slot_s=21_600)
    traces = to_traces(events, places, grid)
    fit = people.fit_people(releases_of(traces, 1000.0), 0)
    assert not fit["remembered"]
    found = simulated(fit, 4000, 24)
    at_popular = (found == 0).mean(axis=0)
    assert (np.abs(at_popular - 1 / 3) < 0.06).all()


@pytest.mark.parametrize(("n_users", "small"), [(20, True), (400, False)])
def test_few_users_are_noticed(n_users, small):
    traces = toy_city(n_users, n_places=30, n_days=1, seed=0).traces
    assert people.is_small(releases_of(traces, 1.0)) is small


def test_people_with_homes_are_dense_though_only_their_steps_at_other_places_are_counted():
    short = np.zeros((4, 6), int)
    short[0] = 200 * SCALE // 6
    for anchored in (False, True):
        domain = domain_of(city("both"), anchored=anchored)
        noisy = release(city("both"), domain, ZCDPAccountant(RELATION, 1.0, 1e-6, SeededNoise(0)))
        assert people.is_small(replace(noisy, sums=noisy.sums | {"mobility": short})) is not anchored


def test_domain_of_one_place_and_one_instant(quick):
    places = PlaceTable(np.arange(1), np.array([35.0]), np.array([139.0]))
    traces = to_traces([(0, 0, 0, 0), (1, 0, 0, 0)], places, TimeGrid.each_instant("2024-01-01", 3600, 1))
    domain = Domain.of(places, traces.time_grid)
    noisy = release(traces, domain, ZCDPAccountant(RELATION, 1.0, 1e-6, SeededNoise(0)))
    assert (simulated(people.fit_people(noisy, 0), 10, 1) == 0).all()


# Homes and second places


@pytest.fixture(scope="module")
def with_homes():
    return homes_city(1500)


@pytest.fixture(scope="module")
def anchored(with_homes):
    domain = replace(domain_of(with_homes), anchored=True)
    releases = release(with_homes, domain, ZCDPAccountant(RELATION, 50.0, 1e-6, SeededNoise(0)))
    return fit_anchors(releases, estimate_population(releases, 0), 0)


def variation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2)


def test_homes_second_places_and_roles_are_those_of_the_users(with_homes, anchored):
    own = Anchors.of(VisitCounts.of(with_homes))
    homes = np.bincount(own.home, minlength=40) / with_homes.n_users
    with_second = own.second >= 0
    seconds = np.bincount(own.second[with_second], minlength=40) / with_second.sum()
    found = anchored.share @ anchored.home
    assert variation(found, homes) < 0.1
    assert variation(found[::-1], homes) > 0.2
    share = anchored.share * (np.arange(N_TYPES) > 0)
    assert share.sum() == pytest.approx(with_second.mean(), abs=0.03)
    assert variation(share @ anchored.second / share.sum(), seconds) < 0.1
    role = own.role(with_homes.user, with_homes.place)
    slots = with_homes.time_grid.slot_of_instant
    for each in (HOME, SECOND):
        real = (np.bincount(with_homes.slot, role == each) / np.bincount(with_homes.slot))[
            slots[: with_homes.time_grid.period]
        ]
        people = anchored.share * np.stack([1 - anchored.roles.second_share, anchored.roles.second_share])
        found = (people[:, :, None] * anchored.roles.at[..., each]).sum(axis=(0, 1))
        np.testing.assert_allclose(found, real, atol=0.06)
        assert np.abs(found[::-1] - real).max() > 0.2


def test_distributions_sum_to_one(anchored):
    for each in (anchored.home, anchored.second, anchored.other, anchored.roles.at, anchored.roles.next):
        np.testing.assert_allclose(each.sum(axis=-1), 1, rtol=1e-5)


def test_homes_and_other_places_are_drawn_to_a_population():
    rng = np.random.default_rng(0)
    home, second = rng.dirichlet(np.ones(30), N_TYPES), rng.dirichlet(np.ones(30), N_TYPES)
    other, occupancy = rng.dirichlet(np.ones(30), 6), rng.dirichlet(np.ones(3 * N_TYPES), 6)
    occupancy = occupancy.reshape(6, N_TYPES, 3).transpose(1, 0, 2)
    roles = Roles.always_other(N_TYPES, 6)
    true = AnchoredPeople(np.ones(N_TYPES), roles, home, second, other, occupancy)
    np.testing.assert_allclose(
        true.population()[4, 7],
        sum(
            occupancy[k, 4] @ (home[k, 7], second[k, 7], other[4, 7])  # as in the formula of the module
            for k in range(N_TYPES)
        ),
    )
    noisy = [each * rng.lognormal(0, 0.5, each.shape) for each in (home, second)]
    noisy = [each / each.sum(axis=1, keepdims=True) for each in noisy]
    start = true._replace(home=noisy[0], second=noisy[1])
    found = start.drawn_to(true.population())
    assert variation(found.population(), true.population()) < 0.6 * variation(start.population(), true.population())
    assert variation(found.home, home) < variation(noisy[0], home)


def test_anchors_need_dense_traces_of_several_periods(with_homes):
    def decide(with_homes):
        accountant = ZCDPAccountant(RELATION, 1.0, 1e-6, SeededNoise(0))
        return has_dense_users(with_homes, accountant), bool(accountant.spendings)

    assert decide(with_homes) == (True, True)
    short = toy_city(100, n_places=40, n_days=2, seed=0).traces
    assert decide(short) == (False, False)
    sparse = with_homes.select_events(np.random.default_rng(0).random(with_homes.n_events) < 0.2)
    assert decide(sparse) == (False, True)
