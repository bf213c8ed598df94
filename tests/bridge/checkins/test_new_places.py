import numpy as np
import pytest

from ppmtf_jax.bridge.checkins import new_places
from ppmtf_jax.bridge.checkins.history import History
from ppmtf_jax.bridge.checkins.law import DISTANCE_FROM_KM
from ppmtf_jax.bridge.checkins.new_places import unvisited_mass
from tests.bridge.checkins.test_history import random_windows


@pytest.mark.parametrize("at_a_time", [3, 10**6])
@pytest.mark.parametrize("n_cells", [6, 3])
def test_mass_around_a_visited_place_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch, n_cells, at_a_time):
    monkeypatch.setattr(new_places, "PAIRS_AT_A_TIME", at_a_time)
    rng, n_places = np.random.default_rng(0), 6
    history = History.of(random_windows())
    visits = rng.dirichlet(np.ones(n_places), (2, 3))
    cell = np.arange(n_places) * n_cells // n_places
    bins = rng.integers(0, len(DISTANCE_FROM_KM), (n_cells, n_cells))
    bins = np.maximum(bins, bins.T).astype(np.int8)
    cluster, slot = rng.integers(0, 2, len(history.gap)), rng.integers(0, 3, len(history.gap))
    mass = unvisited_mass(history.visited, (cluster, slot), visits, bins, cell)
    for row, (event, place) in enumerate(zip(history.visited.event, history.visited.place, strict=True)):
        seen = history.visited.place[history.visited.event == event]
        wanted = np.zeros(len(DISTANCE_FROM_KM))
        for other in set(range(n_places)) - set(seen.tolist()):
            wanted[bins[cell[place], cell[other]]] += visits[cluster[event], slot[event], other]
        np.testing.assert_allclose(mass[row], wanted, atol=1e-12)
