"""A town of commuters with known homes, and the settings with which it is learned."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.clusters import ClusterSmoothing
from ppmtf_jax.people.selection import Selection
from tests.people.examples import MOVES, POPULATION, place_table, traces_of

N_PLACES, PERIOD = 10, 8
CHOICE = Selection(POPULATION, MOVES, ClusterSmoothing(2, 0.0, 0.3, 0.5))


def grid_of(n_periods: int) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.repeat(np.arange(4), 2), n_periods), period=PERIOD)


def clusters_of(traces: Traces) -> np.ndarray:
    """Two clusters: users with even and odd indices."""
    return np.arange(traces.n_users) % 2


def commuters(n_users: int = 120, n_periods: int = 1, seed: int = 0, *, present: float = 1.0) -> Traces:
    """Of each period, people are at home at first, then at their second place if they have one, then about, then home.

    Homes are places 0 to 3, and second places 4 to 6; one of three users has none. Elsewhere people stay for half of
    the steps, or go to any place.
    """
    rng = np.random.default_rng(seed)
    home, second = rng.integers(4, size=n_users), 4 + rng.integers(3, size=n_users)
    second[::3] = -1
    places = np.empty((n_users, n_periods * PERIOD), int)
    for user in range(n_users):
        at = home[user]
        for instant in range(n_periods * PERIOD):
            phase = instant % PERIOD
            if phase < 2 or phase == 7:
                at = home[user]
            elif phase == 2 and second[user] >= 0:
                at = second[user]
            elif phase >= 4 and rng.random() < 0.5:
                at = rng.integers(N_PLACES)
            places[user, instant] = at
    return traces_of(places, rng.random(places.shape) < present, place_table(N_PLACES), grid_of(n_periods))


def wanderers(n_users: int = 400, n_places: int = 30, seed: int = 0) -> Traces:
    """People who stay for half of the steps, or go to one of half of the places, which change with time and group."""
    rng = np.random.default_rng(seed)
    phase, group = np.arange(PERIOD), 15 * (np.arange(n_users) % 2)
    places = (3 * phase + group[:, None] + rng.integers(15, size=(n_users, PERIOD))) % n_places
    for instant in range(1, PERIOD):
        stays = rng.random(n_users) < 0.5
        places[stays, instant] = places[stays, instant - 1]
    return traces_of(places, np.ones(places.shape, bool), place_table(n_places), grid_of(1))


def at_one_point(n_places: int) -> PlaceTable:
    return PlaceTable(np.arange(n_places), np.full(n_places, 35.0), np.full(n_places, 139.0))
