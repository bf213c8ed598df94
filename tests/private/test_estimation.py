"""The estimate finds planted populations, its parts are what dense loops say, and it sees nothing but releases."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import ZCDPAccountant
from ppmtf_jax.noise.mechanisms import SeededNoise
from ppmtf_jax.private import estimation
from ppmtf_jax.private.domain import Domain
from ppmtf_jax.private.estimation import MIN_WEIGHT, estimate_population, read_prior
from ppmtf_jax.private.releases import RELATION, Releases, shares
from tests.private.worlds import city, domain_of
from tests.support import minutes, places_in_line, to_traces

GRID = TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 24, slot_s=4 * 3600)
SIDE = 10
N_USERS = 2000


def places_on_a_grid() -> PlaceTable:
    north, east = np.divmod(np.arange(SIDE**2), SIDE)
    category = np.array(["home", "work", "food"], object)[np.arange(SIDE**2) % 3]
    return PlaceTable(np.arange(SIDE**2), 35 + north / 100, 139 + east / 100, category)


DOMAIN = Domain.of(places_on_a_grid(), GRID)


def planted_population() -> np.ndarray:
    """People gather at a centre at noon, are spread out at night, and prefer some places at any time; (slot, place)."""
    rng = np.random.default_rng(0)
    far = np.hypot(*(DOMAIN.places.position_km() - [2.0, -1.0]).T)
    at_noon = np.sin(np.pi * (np.arange(6) + 0.5) / 6)
    weight = np.exp(-at_noon[:, None] * far / 2 + rng.normal(0, 0.7, SIDE**2))
    return weight / weight.sum(axis=1, keepdims=True)


POPULATION = planted_population()


def releases_of(people: np.ndarray, epsilon: float, seed: int = 0) -> Releases:
    """Noisy releases in which each table has the sums of these people."""
    accountant = ZCDPAccountant(RELATION, epsilon, 1e-6, SeededNoise(seed))
    budget, sums = accountant.budget.rho, {}
    for name, table in DOMAIN.population_tables().items():
        exact = np.zeros(table.shape)
        np.add.at(exact, (table.row[:, None], table.column), people)
        sums[name] = accountant.add_gaussian(
            np.rint(1024 * exact).astype(int), 1024, budget * shares(DOMAIN)[name], name
        )
    return Releases(DOMAIN, sums, accountant.ledger())


def variation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum(axis=1).mean() / 2)


def naive(releases: Releases) -> np.ndarray:
    """The finest table, without its negative numbers."""
    value = np.maximum(releases["slot x place"].value, 1e-9)
    return value / value.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    """Users drawn at random from the planted population: each weighs 1 / sqrt(6) in each slot."""
    rng = np.random.default_rng(1)
    return np.stack([rng.multinomial(N_USERS, row) for row in POPULATION]) / np.sqrt(6)


@pytest.fixture(scope="module")
def estimates(drawn) -> dict[float, tuple[Releases, np.ndarray]]:
    made = {epsilon: releases_of(drawn, epsilon) for epsilon in (0.5, 2.0, 50.0)}
    return {epsilon: (releases, estimate_population(releases, 0)) for epsilon, releases in made.items()}


def test_a_planted_population_is_found(estimates, drawn):
    """Far nearer than the noisy counts and than the uniform distribution; with little noise nearer than the sample."""
    uniform = np.full_like(POPULATION, 1 / SIDE**2)
    errors = {epsilon: variation(estimate, POPULATION) for epsilon, (_, estimate) in estimates.items()}
    for epsilon in (0.5, 2.0):
        assert errors[epsilon] < 0.5 * variation(naive(estimates[epsilon][0]), POPULATION)
        assert errors[epsilon] < 0.6 * variation(uniform, POPULATION)
    for _, estimate in estimates.values():
        assert estimate.min() > 0
        np.testing.assert_allclose(estimate.sum(axis=1), 1)
    assert errors[50.0] < errors[2.0] < errors[0.5]
    assert errors[50.0] < variation(drawn / drawn.sum(axis=1, keepdims=True), POPULATION)


def test_planted_places_in_another_order_are_not_found(estimates):
    """A twin that must fail: the same sums, with the places of all tables but the finest permuted."""
    releases, estimate = estimates[50.0]
    permuted = np.random.default_rng(0).permutation(SIDE**2)
    places = replace(
        DOMAIN.places, latitude=DOMAIN.places.latitude[permuted], longitude=DOMAIN.places.longitude[permuted]
    )
    wrong = estimate_population(Releases(Domain.of(places, GRID), releases.sums, releases.ledger), 0)
    assert variation(wrong, POPULATION) > 2 * variation(estimate, POPULATION)


def test_the_seed_repeats_and_hardly_matters(estimates):
    releases, estimate = estimates[2.0]
    np.testing.assert_array_equal(estimate_population(releases, 0), estimate)
    other = estimate_population(releases, 1)
    assert 0 < variation(other, estimate) < 0.3 * variation(estimate, POPULATION)


def test_a_good_prior_helps_and_a_bad_one_is_hardly_used(estimates):
    releases, without = estimates[0.5]
    for seed in range(2):  # a start that is too uncertain fails for some seeds
        good = estimate_population(releases, seed, POPULATION)
        assert variation(good, POPULATION) < 0.7 * variation(without, POPULATION)
    bad = estimate_population(releases, 0, 1 / POPULATION)
    assert variation(bad, POPULATION) < 1.5 * variation(without, POPULATION)
    # Places at which a prior has nobody stay possible.
    nowhere = np.where(np.arange(SIDE**2) < 5, 0.0, 1.0) * np.ones((6, 1))
    assert estimate_population(releases, 0, nowhere).min() > 0


@pytest.mark.parametrize(
    "prior", [POPULATION.T, -POPULATION, POPULATION * np.nan, np.zeros_like(POPULATION), POPULATION[:5]]
)
def test_no_prior_is_refused(estimates, prior):
    with pytest.raises(InputError, match=r"6 x 100 numbers \(slots, places\) of at least 0"):
        estimate_population(estimates[2.0][0], 0, prior)


def test_tables_add_up_people(estimates):
    """Against loops over slots and places."""
    releases, _ = estimates[2.0]
    people = np.random.default_rng(2).random((SIDE**2, 6)).astype(np.float32)
    tables = estimation.tables_of(releases, DOMAIN.population_tables())
    for table, (name, grouping) in zip(tables, DOMAIN.population_tables().items(), strict=True):
        expected = np.zeros(grouping.shape)
        for slot in range(6):
            for place in range(SIDE**2):
                expected[grouping.row[slot], grouping.column[place]] += people[place, slot]
        np.testing.assert_allclose(table.expected(jnp.asarray(people)), expected.T, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(table.value, releases[name].value.T, rtol=1e-6)


def test_moments_of_effects_are_those_of_draws():
    """The mean and the variance of the sum of all effects against 20,000 draws of independent effects."""
    rng = np.random.default_rng(3)
    effects, smoothing = estimation._effects(DOMAIN), jnp.asarray(estimation._smoothing(GRID), jnp.float32)
    start = estimation._start(
        effects, estimation.tables_of(releases_of(POPULATION, 1.0), DOMAIN.population_tables()), 6, SIDE**2
    )
    sd = {name: jnp.asarray(rng.uniform(0.1, 0.5, mean.shape), jnp.float32) for name, mean in start.mean.items()}

    def total(key: jax.Array) -> jax.Array:
        values = {
            name: part * jax.random.normal(jax.random.fold_in(key, i), part.shape)
            for i, (name, part) in enumerate(sd.items())
        }
        return sum(effect.at(values[name], smoothing) for name, effect in effects.items())[::9]

    draws = jax.lax.map(total, jax.random.split(jax.random.key(0), 20_000), batch_size=1000)
    variance = sum(estimation._squared(effect).at(sd[name] ** 2, smoothing**2) for name, effect in effects.items())[::9]
    # The sample variance of 20,000 normal numbers has a standard error of 1 %; six of those for 72 of them.
    np.testing.assert_allclose(draws.var(axis=0), np.broadcast_to(variance, draws.shape[1:]), rtol=0.06)


@pytest.mark.parametrize(
    ("grid", "is_circle"),
    [
        (GRID, True),
        (TimeGrid.each_instant("2024-01-01T09:00:00", 1200, 30), False),
        (TimeGrid.weekly("2024-01-01T00:00:00", 3600, 168, slot_s=7200), True),
        (TimeGrid.each_instant("2024-01-01T00:00:00", 900, 96), True),
        (TimeGrid.cyclic("2024-01-01T00:00:00", 3600, 24, slot_s=86_400), True),
    ],
)
def test_smoothing_joins_neighbouring_slots(grid, is_circle):
    root = estimation._smoothing(grid.one_period())
    effect = estimation._Effect(jnp.arange(len(root)), len(root), "smooth", 1.0)
    smooth = effect.at(jnp.eye(len(root)), jnp.asarray(root, jnp.float32))
    np.testing.assert_allclose(smooth, root.T, rtol=1e-5, atol=1e-6)
    kernel = root @ root.T
    np.testing.assert_allclose(np.diag(kernel), 1.01)
    if grid.n_slots > 2:
        assert kernel[0, 1] > kernel[0, 2]
        assert (kernel[0, -1] == pytest.approx(kernel[0, 1])) == is_circle


def test_one_place_one_slot_and_no_people():
    """The estimate of a single place is certain, and releases of nobody give a distribution."""
    one = Domain.of(PlaceTable(np.arange(1), np.array([35.0]), np.array([139.0])), GRID)
    accountant = ZCDPAccountant(RELATION, 1, 1e-6, SeededNoise(0))
    part = Fraction(1, 2)
    sums = {
        name: accountant.add_gaussian(np.zeros(table.shape, int), 1024, part * accountant.budget.rho, name)
        for name, table in one.population_tables().items()
    }
    np.testing.assert_allclose(estimate_population(Releases(one, sums, accountant.ledger()), 0), 1)
    estimate = estimate_population(releases_of(np.zeros_like(POPULATION), 1.0), 0)
    np.testing.assert_allclose(estimate.sum(axis=1), 1)
    assert np.isfinite(estimate).all()


def test_saved_releases_give_the_same_estimate(tmp_path, estimates):
    releases, estimate = estimates[2.0]
    releases.save(tmp_path / "releases")
    np.testing.assert_array_equal(estimate_population(Releases.load(tmp_path / "releases"), 0), estimate)


# Public priors from tables and trace sets


@pytest.fixture(scope="module")
def traces():
    return city("both")


def test_a_table_of_venues_is_spread_to_the_places_around(tmp_path, traces):
    domain, file = domain_of(traces), tmp_path / "venues.csv"
    places = traces.places
    pd.DataFrame({"lat": [places.latitude[7]] * 2, "lon": [places.longitude[7]] * 2, "weight": [3, 1]}).to_csv(file)
    prior = read_prior(file, domain)
    assert prior.shape == (domain.n_slots, domain.n_places)
    assert (prior > 0).all()
    km = domain.space.km[7]
    # The nearer the place, the larger its weight.
    assert (np.diff(prior[0][np.argsort(km, kind="stable")]) <= 1e-12).all()
    assert prior[0].argmax() == 7


def test_weights_of_known_places_need_no_coordinates(tmp_path):
    nowhere = np.full(3, np.nan)
    domain = Domain.of(PlaceTable(np.array(["a", "b", "c"], object), nowhere, nowhere), minutes(4))
    file = tmp_path / "weights.csv"
    pd.DataFrame({"place": ["c", "a", "x"], "weight": [6.0, 2.0, 9.0]}).to_csv(file, index=False)
    share = read_prior(file, domain)[0]
    np.testing.assert_allclose(share / share.sum(), [0.25, 0, 0.75], atol=2 * MIN_WEIGHT)


def test_a_trace_set_says_when_places_are_popular(tmp_path):
    places, grid = places_in_line(4), minutes(2)
    domain = Domain.of(places, grid)
    public = to_traces([(user, 0, i, 3 * i) for user in range(5) for i in range(2)], places, grid)
    public.save(tmp_path / "public")
    prior = read_prior(tmp_path / "public", domain, "digest of others")
    assert prior[0].argmax() == 0
    assert prior[1].argmax() == 3
    with pytest.raises(InputError, match="a public prior; found the training traces"):
        read_prior(tmp_path / "public", domain, public.digest)
    with pytest.raises(InputError, match="slots in"):
        read_prior(tmp_path / "public", Domain.of(places, minutes(3)))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"lat": [35.0], "lon": [139.0], "weight": [-1]}, "weights of at least 0"),
        ({"name": ["a"]}, "Missing: latitude, longitude"),
        ({"lat": [-35.0], "lon": [20.0]}, "weights at or near the places of the traces"),
    ],
)
def test_other_tables_are_refused(tmp_path, traces, table, message):
    file = tmp_path / "table.csv"
    pd.DataFrame(table).to_csv(file, index=False)
    with pytest.raises(InputError, match=message):
        read_prior(file, domain_of(traces))
