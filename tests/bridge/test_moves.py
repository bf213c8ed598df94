"""Where people go against the formulas as loops over places, and gravity's distances against those of the moves."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.bridge.moves import (
    LEAST_STAY,
    MOST_STAY,
    Movement,
    MoveSmoothing,
    SeenMoves,
    Steps,
    fit_gravity,
    stay_rates,
)
from ppmtf_jax.bridge.space import space_of
from ppmtf_jax.bridge.visits import Visits, population, slot_kernel
from tests.bridge.examples import GRID, MOVES, N_PLACES, POPULATION, movement_of, people, place_table


@pytest.fixture(scope="module")
def train():
    return people()


@pytest.fixture(scope="module")
def movement(train) -> Movement:
    return movement_of(train)


def dense_probabilities(train, smoothing: MoveSmoothing) -> np.ndarray:
    """P(next | place, slot) by loops, with the gravity that `fit_gravity` found."""
    steps, space = Steps.of(train), space_of(train.places)
    shares = population(Visits.of(train), POPULATION, GRID)
    kernel = slot_kernel(GRID, smoothing.slot_bandwidth)
    factor = fit_gravity(steps.moves, shares, space).between
    stays = stay_rates(steps, smoothing.stay_mass, kernel, smoothing.min_users).at_place
    counted, makers = np.zeros((GRID.n_slots, N_PLACES, N_PLACES)), {}
    for user, slot, place, following in zip(steps.user, steps.slot, steps.place, steps.next_place, strict=True):
        if place != following:
            counted[slot, place, following] += 1
            makers.setdefault((place, following), set()).add(user)
    for pair, users in makers.items():
        if len(users) < smoothing.min_users:
            counted[:, pair[0], pair[1]] = 0
    result = np.zeros_like(counted)
    for slot in range(GRID.n_slots):
        for place in range(N_PLACES):
            gravity = factor[place] * shares[slot]
            gravity[place] = 0
            gravity /= gravity.sum()
            overall = counted[:, place].sum(axis=0)
            overall = (overall + smoothing.gravity_mass * gravity) / (overall.sum() + smoothing.gravity_mass)
            here = sum(kernel[slot, other] * counted[other, place] for other in range(GRID.n_slots))
            row = (here + smoothing.slot_mass * overall) / (here.sum() + smoothing.slot_mass)
            result[slot, place] = (1 - stays[slot, place]) * row
            result[slot, place, place] = stays[slot, place]
    return result


def test_probabilities_of_steps_are_the_formula(train, movement):
    dense = dense_probabilities(train, MOVES)
    np.testing.assert_allclose(dense.sum(axis=2), 1)
    steps = Steps.of(train)
    expected = np.log(dense[steps.slot, steps.place, steps.next_place])
    np.testing.assert_allclose(movement.log_probabilities(steps), expected, rtol=1e-5)


def test_pairs_that_few_users_made_do_not_count(train):
    moves = Steps.of(train).moves
    assert len(SeenMoves.of(moves, 1).place) > len(SeenMoves.of(moves, 3).place) > 0
    alone = moves.of_users(np.array([0]))
    assert not len(SeenMoves.of(alone, 2).place)


def test_gravity_covers_the_distances_that_people_cover(train):
    """Of those who leave each place as often as people do, as many arrive in each bin of distance."""
    moves, space = Steps.of(train).moves, space_of(train.places)
    shares = population(Visits.of(train), POPULATION, GRID)
    gravity = fit_gravity(moves, shares, space, n_bins=6)
    flow = gravity.between * shares.mean(axis=0)
    np.fill_diagonal(flow, 0)
    flow *= (np.bincount(moves.place, minlength=N_PLACES) / flow.sum(axis=1))[:, None]
    covered = np.bincount(gravity.bin[moves.place, moves.next_place], minlength=gravity.bin.max() + 1) + 0.5
    found = np.bincount(gravity.bin.ravel(), flow.ravel(), len(covered))
    np.testing.assert_allclose(found / found.sum(), covered / covered.sum(), rtol=1e-2)
    # Without the fit it would not: people go to near places here, since each keeps to a half of them.
    flat = np.bincount(gravity.bin.ravel(), minlength=len(covered)) / gravity.bin.size
    assert np.abs(flat - covered / covered.sum()).max() > 0.05


def test_stays_are_those_of_slot_and_place_as_far_as_they_are_known(train):
    steps = Steps.of(train)
    rates = stay_rates(steps, 1e-9, np.eye(GRID.n_slots), 1)
    stays, leaving = steps.stays.per_row(), steps.per_row()
    known = leaving > 0
    expected = np.clip(stays[known] / leaving[known], LEAST_STAY, MOST_STAY)
    np.testing.assert_allclose(rates.at_place[known], expected, rtol=1e-6)
    shrunk = stay_rates(steps, 1e9, np.eye(GRID.n_slots), 1)
    # With much shrinkage the place's lift is one, and only the slot counts.
    np.testing.assert_allclose(shrunk.at_place, np.tile(shrunk.in_slot[:, None], N_PLACES), rtol=1e-5)


def test_stays_of_few_users_do_not_count():
    """Five users stay at place 0; four stay, and one moves, at place 1; the rate there is that of all."""
    user, slot = np.arange(9), np.zeros(9, int)
    place = np.where(user < 5, 0, 1)
    steps = Steps(user, slot, place, np.where(user == 8, 2, place), n_slots=1, n_places=3)
    told = stay_rates(steps, 1e-9, np.eye(1), min_users=5)
    assert told.at_place[0, 0] == pytest.approx(MOST_STAY)
    assert told.at_place[0, 1] == told.at_place[0, 2] == pytest.approx(told.in_slot[0])
    # With four users enough, three quarters stay.
    assert stay_rates(steps, 1e-9, np.eye(1), min_users=4).at_place[0, 1] == pytest.approx(3 / 4)


def test_without_moves_people_go_where_people_are():
    stuck = people(4, seed=1)
    stuck.place[:] = stuck.place[np.unique(stuck.user, return_index=True)[1]][stuck.user]
    movement = movement_of(stuck)
    assert not len(movement.seen.place)
    shares = movement.population[0].copy()
    shares[0] = 0
    places = np.arange(1, N_PLACES)
    steps = Steps(places * 0, places * 0, places * 0, places, GRID.n_slots, N_PLACES)
    found = np.exp(movement.log_probabilities(steps)) / (1 - movement.stays.at_place[0, 0])
    np.testing.assert_allclose(found, shares[1:] / shares.sum(), rtol=1e-5)


def test_one_place_has_nowhere_to_go():
    table = place_table(1)
    space = space_of(table)
    steps = Steps(np.zeros(2, int), np.zeros(2, int), np.zeros(2, int), np.zeros(2, int), 1, 1)
    movement = Movement.of(steps, np.ones((1, 1)), MOVES, np.eye(1), space)
    assert movement.weights.gravity.tolist() == [[0]]
    assert np.isfinite(movement.log_probabilities(steps)).all()
