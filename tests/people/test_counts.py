"""Counts, the population and where people go against sums written out and loops over places; gravity's distances."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import EARTH_RADIUS_KM, PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people import attraction
from ppmtf_jax.people.attraction import Movement, MoveSmoothing, fit_gravity
from ppmtf_jax.people.counts import (
    MAX_STAY,
    MIN_STAY,
    PopulationSmoothing,
    SeenMoves,
    StayCounts,
    Transitions,
    VisitCounts,
    population,
    slot_kernel,
    stay_rates,
)
from ppmtf_jax.people.space import space_of
from ppmtf_jax.people.user_bounds import bounded, time_blocks
from tests.people.examples import GRID, MOVES, N_PLACES, POPULATION, movement_of, people, place_table


@pytest.fixture(scope="module")
def train():
    return people()


@pytest.fixture(scope="module")
def movement(train) -> Movement:
    return movement_of(train)


def told_by_loop(rows: dict, min_users: int) -> dict:
    """Counts of each key, of which users count {user: n}: nobody more than the second, and (u - n) / u of u users'."""
    found = {}
    for key, by_user in rows.items():
        second = sorted([0, *by_user.values()])[-2]
        bounded = {user: min(n, second) / n for user, n in by_user.items()}
        found[key] = {
            user: part * max(len(by_user) - min_users + 1, 0) / len(by_user) for user, part in bounded.items()
        }
    return found


def shrunk(used: np.ndarray, counted: float, mass: float, prior: np.ndarray) -> np.ndarray:
    """Probabilities of the used counts and of a prior, which weighs its mass and all that was counted but not used."""
    weighed = used + (max(counted - used.sum(), 0) + mass) * prior
    return weighed / weighed.sum()


def dense_probabilities(train, smoothing: MoveSmoothing, min_users: int) -> np.ndarray:
    """P(next | place, slot) by loops, with the gravity and the stays that the library found."""
    steps, space, time_block = Transitions.of(train), space_of(train.places), time_blocks(GRID)
    shares = population(VisitCounts.of(train), POPULATION, GRID)
    kernel = slot_kernel(GRID, smoothing.slot_bandwidth)
    factor = fit_gravity(steps.moves, shares, space).between
    stays = stay_rates(StayCounts.of(steps, min_users, time_block), smoothing.stay_mass, kernel).at_place
    moved = [
        (int(user), int(slot), int(place), int(following))
        for user, slot, place, following in zip(steps.user, steps.slot, steps.place, steps.next_place, strict=True)
        if place != following
    ]
    # Moves between two places, and steps away from a place to any other.
    overall_rows, time_block_rows = defaultdict(Counter), defaultdict(Counter)
    for user, slot, place, following in moved:
        for key in ((place, following), (place,)):
            overall_rows[key][user] += 1
            time_block_rows[time_block[slot], *key][user] += 1
    of_overall, of_time_block = told_by_loop(overall_rows, min_users), told_by_loop(time_block_rows, min_users)
    total, counted = np.zeros((N_PLACES, N_PLACES)), np.zeros((GRID.n_slots, N_PLACES, N_PLACES))
    away, away_in_slot = np.zeros(N_PLACES), np.zeros((GRID.n_slots, N_PLACES))
    for user, slot, *pair in moved:
        place = pair[0]
        total[tuple(pair)] += of_overall[tuple(pair)][user]
        away[place] += of_overall[(place,)][user]
        counted[(slot, *pair)] += of_time_block[(time_block[slot], *pair)][user]
        away_in_slot[slot, place] += of_time_block[(time_block[slot], place)][user]
    result = np.zeros_like(counted)
    for slot in range(GRID.n_slots):
        for place in range(N_PLACES):
            gravity = factor[place] * shares[slot]
            gravity[place] = 0
            gravity /= gravity.sum()
            overall = shrunk(total[place], away[place], smoothing.gravity_mass, gravity)
            row = shrunk(
                kernel[slot] @ counted[:, place], kernel[slot] @ away_in_slot[:, place], smoothing.slot_mass, overall
            )
            result[slot, place] = (1 - stays[slot, place]) * row
            result[slot, place, place] = stays[slot, place]
    return result


def test_probabilities_of_steps_are_the_formula(train, movement):
    dense = dense_probabilities(train, MOVES, min_users=2)
    np.testing.assert_allclose(dense.sum(axis=2), 1)
    steps = Transitions.of(train)
    expected = np.log(dense[steps.slot, steps.place, steps.next_place])
    np.testing.assert_allclose(movement.log_probabilities(steps), expected, rtol=1e-5)


def test_pairs_that_few_users_made_do_not_count(train):
    moves, time_block = Transitions.of(train).moves, time_blocks(GRID)
    assert len(SeenMoves.of(moves, 2, time_block).place) > len(SeenMoves.of(moves, 5, time_block).place) > 0
    alone = moves.of_users(np.array([0]))
    assert not len(SeenMoves.of(alone, 2, time_block).place)


def test_gravity_covers_the_distances_that_people_cover(train, monkeypatch):
    """Of those who leave each place as often as people do, as many arrive in each bin of distance."""
    moves, space = Transitions.of(train).moves, space_of(train.places)
    shares = population(VisitCounts.of(train), POPULATION, GRID)
    monkeypatch.setattr(attraction, "N_BINS", 6)
    gravity = fit_gravity(moves, shares, space)
    flow = gravity.between * shares.mean(axis=0)
    np.fill_diagonal(flow, 0)
    leaving = np.bincount(moves.place, bounded(moves.user, moves.place, N_PLACES)[0], N_PLACES)
    flow *= (leaving / flow.sum(axis=1))[:, None]
    bins = gravity.bin[moves.place, moves.next_place]
    n_bins = int(gravity.bin.max()) + 1
    weight, users = bounded(moves.user, bins, n_bins)
    covered = np.bincount(bins, weight, n_bins) * (users - 4) / users + 0.5
    assert users.min() >= 5
    found = np.bincount(gravity.bin.ravel(), flow.ravel(), len(covered))
    np.testing.assert_allclose(found / found.sum(), covered / covered.sum(), rtol=1e-2)
    # Without the fit it would not: people go to near places here, since each keeps to a half of them.
    flat = np.bincount(gravity.bin.ravel(), minlength=len(covered)) / gravity.bin.size
    assert np.abs(flat - covered / covered.sum()).max() > 0.05


def one_step_each(place: np.ndarray, next_place: np.ndarray) -> Transitions:
    """Transitions of as many users at one time."""
    return Transitions(np.arange(len(place)), np.zeros(len(place), int), place, next_place, n_slots=1, n_places=3)


def rates_of(steps: Transitions, mass: float, min_users: int):
    return stay_rates(StayCounts.of(steps, min_users, np.zeros(1, int)), mass, np.eye(1))


def test_stays_are_those_of_slot_and_place_as_far_as_they_are_known():
    """Of place 0 three of four stay, of place 1 one of four; each user has one step, so that nobody is bounded."""
    place = np.repeat([0, 1], 4)
    steps = one_step_each(place, np.array([0, 0, 0, 2, 1, 2, 2, 2]))
    rates = rates_of(steps, 1e-9, 1)
    # A single step is nobody's next one: of place 0 three stays count, and of place 1 three steps away.
    np.testing.assert_allclose(rates.at_place[0, :2], [MAX_STAY, MIN_STAY])
    twice = Transitions(*(np.tile(each, 2) for each in (steps.user, steps.slot, place, steps.next_place)), 1, 3)
    twice.user[8:] += 8
    np.testing.assert_allclose(rates_of(twice, 1e-9, 1).at_place[0, :2], [3 / 4, 1 / 4])
    shrunk = rates_of(twice, 1e9, 1)
    # With much shrinkage the ratio of the place is one, and only the slot counts.
    np.testing.assert_allclose(shrunk.at_place, np.tile(shrunk.in_slot[:, None], 3), rtol=1e-5)


def test_stays_and_steps_away_of_few_users_do_not_count():
    """At place 0 six users stay, and four step away; at place 1 four stay, and six step away."""
    place = np.repeat([0, 1], 10)
    steps = one_step_each(place, np.array([0] * 6 + [2] * 4 + [1] * 4 + [2] * 6))
    told = rates_of(steps, 1e-9, 5)
    np.testing.assert_allclose(told.at_place[0, :2], [MAX_STAY, MIN_STAY])
    assert told.at_place[0, 2] == pytest.approx(told.in_slot[0])
    # With two users enough, 5/6 of six and 3/4 of four count: five and three steps.
    np.testing.assert_allclose(rates_of(steps, 1e-9, 2).at_place[0, :2], [5 / 8, 3 / 8])


def test_without_moves_people_go_where_people_are():
    stuck = people(4, seed=1)
    stuck.place[:] = stuck.place[np.unique(stuck.user, return_index=True)[1]][stuck.user]
    movement = movement_of(stuck)
    assert not len(movement.counts.seen.place)
    shares = movement.counts.population[0].copy()
    shares[0] = 0
    places = np.arange(1, N_PLACES)
    steps = Transitions(places * 0, places * 0, places * 0, places, GRID.n_slots, N_PLACES)
    found = np.exp(movement.log_probabilities(steps)) / (1 - movement.stays.at_place[0, 0])
    np.testing.assert_allclose(found, shares[1:] / shares.sum(), rtol=1e-5)


# Visits

TWO_DAYS = TimeGrid("2024-01-01T00:00:00", 3600, np.array([0, 1, 0, 1]), period=2)


@pytest.fixture(scope="module")
def traces():
    """User 0 is at place 0 three times and at 1 once, user 1 at place 1 twice; place 2 is empty."""
    rows = [(0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 1), (1, 0, 1), (1, 1, 1)]
    return Traces.from_frame(pd.DataFrame(rows, columns=["user", "instant", "place"]), place_table(3), TWO_DAYS)


def test_counts_by_user_slot_and_place(traces):
    visits = VisitCounts.of(traces)
    cells = set(zip(visits.user, visits.slot, visits.place, visits.count, strict=True))
    assert cells == {(0, 0, 0, 2), (0, 1, 0, 1), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1)}
    second = visits.of_users(np.array([1]))
    assert (second.n_users, second.user.tolist(), second.count.tolist()) == (1, [0, 0], [1, 1])


def test_tempered_counts_weigh_a_regular_less(traces):
    visits = VisitCounts.of(traces)
    weight = visits.tempered(0.5)
    # Users' events at a place, 3, 1 and 2, weigh sqrt(3), 1 and sqrt(2).
    expected = {(0, 0, 0): 2 / 3 * np.sqrt(3), (0, 1, 0): np.sqrt(3) / 3, (0, 1, 1): 1}
    expected |= {(1, 0, 1): np.sqrt(2) / 2, (1, 1, 1): np.sqrt(2) / 2}
    for user, slot, place, found in zip(visits.user, visits.slot, visits.place, weight, strict=True):
        assert found == pytest.approx(expected[user, slot, place])
    np.testing.assert_array_equal(visits.tempered(1.0), visits.count)


def test_population_is_the_formula(traces):
    smoothing = PopulationSmoothing(1.0, 2, 0.0, 0.5, 0.3)
    shares = population(VisitCounts.of(traces), smoothing, TWO_DAYS)
    # Of place 0, where one user was, nothing is told. At place 1 user 0 was once, and user 1, who was twice, weighs as
    # much as user 0: half of an event in each slot. Both slots are within two hours. Of two users' counts half is told.
    told = np.array([[0, 0.5, 0], [0, 1.5, 0]]) / 2
    anywhere = told.sum(axis=0) + 0.3 / 3
    expected = told + 0.5 * 3 * anywhere / anywhere.sum()
    np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True))


def test_slots_are_near_each_other_across_the_end_only_where_they_come_round():
    once = TimeGrid.each_instant("2024-01-01T00:00:00", 3600, 4)
    around = TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.arange(4), 2), period=4)
    assert slot_kernel(once, 1.0)[0, 3] == pytest.approx(np.exp(-9 / 2))
    assert slot_kernel(around, 1.0)[0, 3] == pytest.approx(np.exp(-1 / 2))
    np.testing.assert_array_equal(slot_kernel(once, 0.0), np.eye(4))


# Distances against the law of cosines on the sphere, and cells of near places


def places_at(latitude, longitude) -> PlaceTable:
    return PlaceTable(np.arange(len(latitude)), np.asarray(latitude, float), np.asarray(longitude, float))


def on_sphere_km(places: PlaceTable) -> np.ndarray:
    latitude, longitude = np.radians(places.latitude), np.radians(places.longitude)
    cosine = np.sin(latitude[:, None]) * np.sin(latitude) + np.cos(latitude[:, None]) * np.cos(latitude) * np.cos(
        longitude[:, None] - longitude
    )
    return EARTH_RADIUS_KM * np.arccos(np.clip(cosine, -1, 1))


@pytest.mark.parametrize("west", [139.6, 179.9])
def test_distances_are_those_on_the_sphere(west):
    rng = np.random.default_rng(0)
    longitude = (west + 0.3 * rng.random(40) + 180) % 360 - 180
    places = places_at(35 + 0.3 * rng.random(40), longitude)
    space = space_of(places)
    assert space.is_exact
    assert space.has_distances
    # The plane touches at the middle: over 30 km the cosine of latitude changes by less than 0.3 percent.
    np.testing.assert_allclose(space.km, on_sphere_km(places), rtol=3e-3, atol=0.01)


def test_cells_hold_equally_many_near_places():
    rng = np.random.default_rng(1)
    places = places_at(35 + rng.random(1000), 139 + rng.random(1000))
    space = space_of(places, max_cells=64)
    size = np.bincount(space.cell)
    assert len(space.km) == 64
    assert size.min() >= 1000 // 64
    assert size.max() <= -(-1000 // 64)
    position = places.position_km()
    apart = np.hypot(*(position[:, None] - position).transpose(2, 0, 1))
    of_cells = space.km[space.cell[:, None], space.cell]
    centre = np.stack([np.bincount(space.cell, axis) / size for axis in position.T], axis=1)
    off = np.hypot(*(position - centre[space.cell]).T)
    same = space.cell[:, None] == space.cell
    # By the triangle inequality; and places are near the centres of their cells, of about 14 km x 11 km.
    assert (np.abs(of_cells - apart) <= off[:, None] + off + 1e-3)[~same].all()
    assert off.mean() < np.hypot(14, 11) / 2
    # Within a cell the root mean square over ordered pairs, a place with itself among them, as arithmetic says.
    squares = np.bincount(space.cell, (apart**2 * same).sum(axis=1)) / size**2
    np.testing.assert_allclose(np.diag(space.km) ** 2, squares, rtol=1e-5)


def test_places_at_one_point_have_no_distances():
    assert not space_of(places_at([35.0] * 3, [139.0] * 3)).has_distances
    assert not space_of(places_at([35.0], [139.0])).has_distances
    many = space_of(places_at([35.0] * 50, [139.0] * 50), max_cells=8)
    assert not many.has_distances
    assert len(many.km) == 8
