"""A small world in which people check in by a known process: steps of six hours, windows of four weeks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.people.bins import DISTANCE_FROM_KM, GAP_FROM_H, DistanceBins
from ppmtf_jax.people.clusters import Clusters
from ppmtf_jax.people.model import CheckinBridge
from ppmtf_jax.people.space import space_of
from ppmtf_jax.trace_models.sampling import sample_traces

N_PLACES, N_WINDOWS = 8, 3
# Two kilometres from each place to the next.
PLACES = PlaceTable(np.arange(N_PLACES), np.full(N_PLACES, 35.0), 139 + np.arange(N_PLACES) * 0.022)
GRID = TimeGrid.cyclic("2024-01-03T00:00:00", 6 * 3600, 28 * 4 * N_WINDOWS, slot_s=12 * 3600)
WINDOW = GRID.whole_days(28)


def process(n_users: int) -> CheckinBridge:
    """Two clusters, two activity levels, two types and two ranges that differ clearly."""
    rng, n_gaps, n_bins = np.random.default_rng(0), len(GAP_FROM_H), len(DISTANCE_FROM_KM)
    log_odds = np.zeros((2, 28, 19, 7)) + np.array([-3.5, -1.5])[:, None, None, None]
    log_odds += np.tile([-1.0, 0, 1.0, 0], 7)[:, None, None]
    arrays = {
        "level_share": np.array([[0.7, 0.3], [0.3, 0.7]]),
        "log_odds": log_odds,
        "type_share": np.array([[0.8, 0.2], [0.3, 0.7]]),
        "range_share": np.array([0.5, 0.5]),
        "discount": 0.4,
        "strength": np.linspace(0.5, -1, n_gaps),
        "strength_of_type": np.array([1.0, -1.0]),
        "last": np.linspace(-1.0, 1.0, n_gaps),
        "last_of_type": np.array([-0.3, 0.3]),
        "last_match": np.array([0.5, 0.7, -0.3]),
        "match": np.array([0.6, 0.9, -0.5]),
        "recency": -0.2,
        "previous": 0.4,
        "distance": np.linspace(0.8, -0.8, 5) * np.array([1, 0.7, 0.4, 0])[:, None],
        "place_rate": np.zeros(N_PLACES),
        "reference": np.tile([[0.2, 0.7, 0.1], [0.2, 0.1, 0.7]], (n_gaps, 1, 1)).transpose(1, 0, 2),
        "near_last": np.exp(-np.minimum(np.arange(n_bins), 9) * np.array([0.6, 0.4, 0.3, 0])[:, None]),
        "near_own": np.exp(-np.minimum(np.arange(n_bins), 9) * 0.5),
        "visits": rng.dirichlet(np.full(N_PLACES, 3.0), (2, 2)),
        "first_rate": np.array([2.0, *np.zeros(N_PLACES - 1)]),
    }
    space = space_of(PLACES)
    whole = {
        "cluster": np.arange(n_users) % 2,
        "n_present": np.bincount(np.arange(n_users) % 2, minlength=2),
        "slot_of_instant": WINDOW.slot_of_instant,
        "distance_bin": DistanceBins.of(space.km, space.cell).distance_bin,
        "cell": space.cell,
    }
    return CheckinBridge(
        per_day=4,
        **{name: jnp.asarray(each, jnp.float32) for name, each in arrays.items()},
        **{name: jnp.asarray(each, jnp.int32) for name, each in whole.items()},
    )


def windows_of(model: CheckinBridge, n_users: int, seed: int = 0) -> np.ndarray:
    """Three windows of each user."""
    often = np.full(n_users, N_WINDOWS)
    return sample_traces(jax.random.key(seed), model, often, WINDOW.n_instants, batch_users=n_users)


def traces_of(places: np.ndarray) -> Traces:
    """Traces of users whose windows follow each other."""
    places = places.reshape(-1, GRID.n_instants)
    user, instant = np.nonzero(places >= 0)
    zero = np.zeros(len(user), int)
    return Traces.from_indices(user, zero, instant, places[user, instant], np.arange(len(places)), PLACES, GRID)


def clusters_of(model: CheckinBridge) -> Clusters:
    """The true clusters."""
    cluster = np.asarray(model.cluster)
    share = np.bincount(cluster) / len(cluster)
    return Clusters(cluster, share, np.asarray(model.visits)[: len(share)])
