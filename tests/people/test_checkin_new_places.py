from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people import checkin_new_places
from ppmtf_jax.people.bins import DISTANCE_FROM_KM, DistanceBins
from ppmtf_jax.people.checkin_new_places import first_rates, unvisited_mass
from ppmtf_jax.people.windows import History, ObservedWindows
from tests.people.test_windows import random_windows


@pytest.mark.parametrize("at_a_time", [3, 10**6])
@pytest.mark.parametrize("n_cells", [6, 3])
def test_mass_around_a_visited_place_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch, n_cells, at_a_time):
    monkeypatch.setattr(checkin_new_places, "PAIRS_AT_A_TIME", at_a_time)
    rng, n_places = np.random.default_rng(0), 6
    history = History.of(random_windows())
    visits = rng.dirichlet(np.ones(n_places), (2, 3))
    cell = np.arange(n_places) * n_cells // n_places
    bins = rng.integers(0, len(DISTANCE_FROM_KM), (n_cells, n_cells))
    bins = np.maximum(bins, bins.T).astype(np.int8)
    cluster, slot = rng.integers(0, 2, len(history.gap)), rng.integers(0, 3, len(history.gap))
    mass = unvisited_mass(history.visited, (cluster, slot), visits, DistanceBins(bins, cell))
    for row, (event, place) in enumerate(zip(history.visited.event, history.visited.place, strict=True)):
        seen = history.visited.place[history.visited.event == event]
        wanted = np.zeros(len(DISTANCE_FROM_KM))
        for other in set(range(n_places)) - set(seen.tolist()):
            wanted[bins[cell[place], cell[other]]] += visits[cluster[event], slot[event], other]
        np.testing.assert_allclose(mass[row], wanted, atol=1e-12)


GRID = TimeGrid.each_instant("2024-01-01", 86_400, 2)
N_PLACES = 6
# Two clusters, and two slots.
VISITS = np.random.default_rng(1).dirichlet(np.full(N_PLACES, 5.0), (2, 2))


def first_events(weight_of_place: np.ndarray, n_users: int = 200, n_windows: int = 5) -> ObservedWindows:
    """Windows of one event; the places follow `VISITS` times a weight. Users with even numbers are in cluster 0."""
    rng = np.random.default_rng(2)
    user = np.repeat(np.arange(n_users), n_windows)
    instant = rng.integers(0, 2, len(user))
    chance = VISITS[user % 2, instant] * weight_of_place
    place = (chance.cumsum(axis=1) < rng.random(len(user))[:, None] * chance.sum(axis=1)[:, None]).sum(axis=1)
    return ObservedWindows(user, np.arange(len(user)), instant, place, GRID)


def rates(windows: ObservedWindows) -> np.ndarray:
    return first_rates(replace(windows, cluster=windows.user % 2), VISITS, np.random.default_rng(0))


def test_rates_of_first_events_are_found():
    weight_of_place = np.array([6.0, 1, 1, 1, 1, 1])
    found = rates(first_events(weight_of_place))
    # Shares of the first events at place 0 in each cluster and slot, which are about 1,000 events in all.
    of_group = VISITS * np.exp(found)
    wanted = VISITS * weight_of_place
    error = (of_group / of_group.sum(axis=2, keepdims=True) - wanted / wanted.sum(axis=2, keepdims=True))[..., 0]
    flat = (VISITS / VISITS.sum(axis=2, keepdims=True) - wanted / wanted.sum(axis=2, keepdims=True))[..., 0]
    assert np.abs(error).max() < 5 * np.sqrt(0.25 / 1000) < np.abs(flat).max()
    # Without an effect, the rates are shrunk to nearly nothing.
    assert np.abs(rates(first_events(np.ones(N_PLACES)))).max() < 0.1


def test_no_user_raises_the_rate_of_a_place():
    windows = first_events(np.ones(N_PLACES))
    # Four users are at place 5, and one of them very often.
    few = replace(windows, place=np.where((windows.place == 5) & (windows.user >= 4), 0, windows.place))
    assert rates(few)[5] == 0
    often = replace(windows, place=np.where(windows.user == 7, 1, windows.place))
    many = np.repeat(7, 500)
    more = ObservedWindows(
        np.append(often.user, many),
        np.arange(len(often.user) + len(many)),
        np.append(often.instant, many % 2),
        np.append(often.place, np.ones(len(many), int)),
        GRID,
    )
    assert rates(more)[1] < rates(often)[1] + 0.2


def test_rates_of_one_user_are_zero():
    assert (rates(first_events(np.ones(N_PLACES), n_users=1, n_windows=1)) == 0).all()
