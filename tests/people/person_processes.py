"""Random processes of people who remember."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.people.bins import DWELL_FROM
from ppmtf_jax.people.model import RememberingBridge


def random_arrays(
    n_places: int = 4,
    period: int = 4,
    n_days: int = 1,
    n_clusters: int = 2,
    n_classes: int = 2,
    n_slots: int = 2,
    n_cells: int | None = None,
    n_users: int = 5,
    *,
    anchors: bool = True,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Arrays of a process; about half of all moves are seen moves too."""
    rng = np.random.default_rng(seed)
    n_cells = n_cells or n_places
    times, by_cluster = period * n_days, (n_clusters, n_places)
    is_seen = rng.random((n_places, n_places)) < min(0.5, 20 / n_places)
    np.fill_diagonal(is_seen, False)
    place, next_place = np.nonzero(is_seen)

    def shares(*shape: int) -> np.ndarray:
        return rng.dirichlet(np.ones(shape[-1]), shape[:-1])

    def weights(*shape: int) -> np.ndarray:
        return np.exp(rng.normal(size=shape))

    role_next = shares(2, n_clusters, period, 3, 3)
    role_first = shares(2, n_clusters, 3)
    for rows in (role_first, role_next):
        rows[0, ..., 1] = 0
        if not anchors:
            rows[..., :2] = 0
        rows /= rows.sum(-1, keepdims=True)
    arrays = {
        "class_share": shares(n_clusters, n_classes),
        "second_share": rng.random(n_clusters) * anchors,
        "role_first": role_first,
        "role_next": role_next,
        "first_other": shares(*by_cluster),
        "stay": rng.normal(size=(n_slots, n_places)),
        "stay_at_time": rng.normal(size=times),
        "stay_tilt": 0.5 * rng.normal(size=(times, *by_cluster)),
        "stay_by_dwell": rng.normal(size=len(DWELL_FROM)),
        "stay_by_class": rng.normal(size=n_classes),
        "discount": np.array(0.4),
        "strength": np.array(0.7),
        "back": np.array(0.9),
        "by_popularity": np.array(0.6),
        "near": np.array(0.8),
        "log_popularity_ratio": rng.normal(size=(n_slots, n_places)),
        "population": shares(n_slots, n_places),
        "seen": np.pad(weights(n_slots, len(place)), [(0, 0), (0, 1)]),
        "leaving": weights(n_slots, n_places),
        "arriving": shares(n_slots, n_places),
        "between": weights(n_cells, n_cells),
        "pull": weights(times, *by_cluster),
    }
    if anchors:
        arrays |= {
            "home": shares(*by_cluster),
            "second": shares(*by_cluster),
            "home_pull": weights(*by_cluster),
            "second_pull": weights(*by_cluster),
            "anchor_between": weights(n_cells, n_cells),
        }
    whole = {
        "cluster": np.arange(n_users) % n_clusters,
        "n_present": np.bincount(np.arange(n_users) % n_clusters, minlength=n_clusters),
        "slot_of_phase": np.arange(period) * n_slots // period,
        "cell": np.arange(n_places) % n_cells,
        "move_start": np.searchsorted(place, np.arange(n_places + 1)),
        "next_place": np.append(next_place, n_places),
    }
    return {name: value.astype(np.float32) for name, value in arrays.items()} | {
        name: value.astype(np.int32) for name, value in whole.items()
    }


def with_zeros(arrays: dict[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    """Half of the weights of places and moves become 0, so that people often have no place to go to."""
    rng = np.random.default_rng(seed)
    changed = {}
    for name in ("pull", "seen", "between", "arriving", "population", "home_pull", "second_pull", "home", "second"):
        if name in arrays:
            keep = rng.random(arrays[name].shape) < 0.5
            if name in ("home", "second"):
                keep[:, 0] = True
            changed[name] = np.where(keep, arrays[name], 0)
    return arrays | changed


def random_process(**options: object) -> RememberingBridge:
    return RememberingBridge.from_arrays(random_arrays(**options))  # type: ignore[arg-type]
