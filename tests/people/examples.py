"""A small city in which people move: traces of groups around two centres, with gaps, over two days."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people import selection
from ppmtf_jax.people.attraction import MoveCounts, Movement, MoveSmoothing
from ppmtf_jax.people.counts import PopulationSmoothing, Transitions, VisitCounts, population
from ppmtf_jax.people.space import Space, space_of

N_USERS, N_PLACES, PERIOD = 60, 12, 6
GRID = TimeGrid("2024-01-01T00:00:00", 3600, np.tile([0, 0, 1, 1, 2, 2], 2), period=PERIOD)
POPULATION = PopulationSmoothing(1.0, 2, 0.5, 0.3, 0.3)
MOVES = MoveSmoothing(5.0, 10.0, 10.0, 0.5)


def place_table(n_places: int = N_PLACES) -> PlaceTable:
    rng = np.random.default_rng(3)
    return PlaceTable(np.arange(n_places), 35 + 0.1 * rng.random(n_places), 139 + 0.1 * rng.random(n_places))


def traces_of(places: np.ndarray, present: np.ndarray, table: PlaceTable, grid: TimeGrid = GRID) -> Traces:
    """Traces from a table users x instants, where `present`."""
    user, instant = np.nonzero(present)
    frame = pd.DataFrame({"user": user, "instant": instant, "place": table.ids[places[user, instant]]})
    return Traces.from_frame(frame, table, grid)


def people(n_users: int = N_USERS, seed: int = 0) -> Traces:
    """Users of two groups; each goes about among their group's half of the places, and stays for half of the steps."""
    rng = np.random.default_rng(seed)
    places = np.empty((n_users, GRID.n_instants), int)
    half = N_PLACES // 2
    for user in range(n_users):
        own = np.arange(half) + half * (user % 2)
        at = rng.choice(own)
        for instant in range(GRID.n_instants):
            at = at if rng.random() < 0.5 else rng.choice(own)
            places[user, instant] = at
    return traces_of(places, rng.random(places.shape) < 0.9, place_table())


def try_few_settings(patch: pytest.MonkeyPatch) -> None:
    """Fits of the bridge choose among few settings: for tests of what is fitted, and not of what is chosen."""
    patch.setattr(selection, "POPULATION_GRID", PopulationSmoothing((1.0,), (2,), (0.0, 1.0), (1.0, 3.0), (0.3,)))
    patch.setattr(selection, "MOVE_GRID", MoveSmoothing((20.0, 50.0), (200.0,), (200.0,), (0.0, 1.0)))
    for name, values in {"BLURS": (0.0, 0.2), "CLUSTER_MASSES": (1.0, 3.0), "BANDWIDTHS": (0.0, 1.0)}.items():
        patch.setattr(selection, name, values)


def movement_of(train: Traces, space: Space | None = None, moves: MoveSmoothing = MOVES) -> Movement:
    visits = VisitCounts.of(train)
    shares = population(visits, POPULATION, train.time_grid)
    counts = MoveCounts.of(Transitions.of(train), shares, space or space_of(train.places), train.time_grid, min_users=2)
    return Movement.of(counts, moves)
