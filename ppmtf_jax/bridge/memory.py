"""Memory that a fit of the bridge will need, told before it begins."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.bridge.tuning import CLUSTER_NUMBERS
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.runtime.memory import available_bytes, require_memory

# Compiling the programs, tables of cells x cells, and what does not grow with the data.
CONSTANT_BYTES = 300 * 2**20
# Of every event, while events are counted: its cell and its step as numbers of 8 bytes, sorted and not.
EVENT_BYTES = 50
# Of every place in every slot, while settings are chosen: counts and shares without each of ten tenths of the users.
SLOT_PLACE_BYTES = 400
# Of each of these and every cluster: counts, smoothed counts and distributions, of which a few are held at a time.
THETA_BYTES = 6 * 4
# Of every place, pair of slots and cluster: pulls and sums of rows, of one round and the next.
CHAIN_BYTES = 6 * 4
# Of every user and cluster: scores, sorted and not.
SCORE_BYTES = 3 * 4


def bytes_to_fit(train: Traces, n_clusters: int) -> int:
    """Estimate of the peak of fitting so many clusters, bytes.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train = toy_city(n_users=20, seed=0).traces
    >>> bytes_to_fit(train, 10) > bytes_to_fit(train, 1) > CONSTANT_BYTES
    True
    """
    return _without_clusters(train) + n_clusters * _of_cluster(train)


def require_memory_to_fit(train: Traces, n_clusters: int | None, min_cluster_users: int) -> None:
    """Refuse a fit of the bridge that would not fit into the memory, and name what would; see `require_memory`."""
    most = max(1, min(n_clusters or max(CLUSTER_NUMBERS), train.n_users // min_cluster_users))
    room = ((available_bytes() or 0) - _without_clusters(train)) // _of_cluster(train)
    way_out = f"Set n_clusters={room}" if room >= 1 else "Take fewer users, places or slots"
    require_memory("fit", bytes_to_fit(train, most), way_out)


def _without_clusters(train: Traces) -> int:
    return CONSTANT_BYTES + EVENT_BYTES * train.n_events + SLOT_PLACE_BYTES * train.time_grid.n_slots * train.n_places


def _of_cluster(train: Traces) -> int:
    slots = train.time_grid.one_period().slot_of_instant
    n_pairs = len(np.unique(np.stack([slots[:-1], slots[1:]]), axis=1).T)
    of_place = THETA_BYTES * train.time_grid.n_slots + CHAIN_BYTES * max(1, n_pairs)
    return of_place * train.n_places + SCORE_BYTES * train.n_users
