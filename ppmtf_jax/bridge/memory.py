"""What fitting people needs: an estimate of the memory, and a limit of places, checked before the fit begins."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.bridge.clusters import EM_USERS
from ppmtf_jax.bridge.selection import CLUSTER_NUMBERS
from ppmtf_jax.data.blocks import BLOCK_USERS
from ppmtf_jax.data.traces import TraceSet
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.runtime.memory import available_bytes, require_memory

# Bytes for compiled programs and tables of cells x cells.
CONSTANT_BYTES = 300 * 2**20
# Per event of the blocks that threads count at the same time: cells, steps and pairs as int64, in a few copies.
EVENT_BYTES = 200
BLOCKS_AT_ONCE = 4
# Per user: cluster, anchors, mobility and its order.
USER_BYTES = 40
# Per slot and place while settings are chosen: counts and shares of ten folds of the users.
SLOT_PLACE_BYTES = 400
# Per slot, place and cluster: several copies of counts, smoothed counts and distributions.
THETA_BYTES = 6 * 4
# Per pair of slots, place and cluster: scalings and row sums of two rounds.
CHAIN_BYTES = 6 * 4
# Per time, place and cluster, of people who remember: pulls, scalings and log-odds of staying, partly twice.
PEOPLE_BYTES = 6 * 4
# Per place and cluster, of people who remember: expected people by class of mobility and dwell time, in a few copies.
CROWD_BYTES = 4 * 18 * 4
# Per user of EM and cluster: scores, sorted and unsorted.
SCORE_BYTES = 3 * 4

MAX_PLACES = 250_000
"""Maximum number of places of a fit. Time and memory grow in proportion to the places, visited or not."""
# Measured: 200 users who visit 8 places, in tables of 1,000 and 10,000 places, on two cores shared with other work.
PLACE_S = 0.004


def bytes_to_fit(train: TraceSet, n_clusters: int) -> int:
    """Estimated peak memory of fitting `n_clusters` clusters, in bytes; chains and people are fitted in turn."""
    n_slots, slots = train.time_grid.n_slots, train.time_grid.one_period().slot_of_instant
    n_pairs = len(np.unique(np.stack([slots[:-1], slots[1:]]), axis=1).T)
    n_users, n_counted = train.n_users, min(train.n_users, BLOCKS_AT_ONCE * BLOCK_USERS)
    fixed = CONSTANT_BYTES + USER_BYTES * n_users + EVENT_BYTES * (train.n_events * n_counted // n_users)
    fixed += SLOT_PLACE_BYTES * n_slots * train.n_places
    n_times = train.time_grid.period * (1 + (train.time_grid.n_instants > train.time_grid.period))
    per_place = THETA_BYTES * n_slots + max(CHAIN_BYTES * n_pairs, PEOPLE_BYTES * n_times + CROWD_BYTES)
    return fixed + n_clusters * (per_place * train.n_places + SCORE_BYTES * min(n_users, EM_USERS))


def require_few_places(n_places: int, needed: int, place_s: float, way_out: str) -> None:
    """Refuse more than `MAX_PLACES` places; the error says how many bytes (`needed`) and hours a fit would take."""
    if n_places > MAX_PLACES:
        found = f"{n_places:,}, which need about {needed / 1e9:.0f} GB and {n_places * place_s / 3600:.1f} hours"
        way_out = Message("Take larger cells, or a smaller box", way_out)
        raise InputError("fit", [Problem(f"at most {MAX_PLACES:,} places, visited or not", found, way_out=way_out)])


def require_memory_to_fit(train: TraceSet, n_clusters: int | None, min_cluster_users: int) -> None:
    """Refuse a fit that needs too much memory, and name a number of clusters that fits; see `require_memory`."""
    most = max(1, min(n_clusters or max(CLUSTER_NUMBERS), train.n_users // min_cluster_users))
    fixed = bytes_to_fit(train, 0)
    room = ((available_bytes() or 0) - fixed) // (bytes_to_fit(train, 1) - fixed)
    way_out = f"Set n_clusters={room}" if room >= 1 else "Take fewer users, places or slots"
    needed = bytes_to_fit(train, most)
    only_visited = Message(", or keep only those that people visit: import with ", Setting("min_users_per_place", 2))
    require_few_places(train.n_places, needed, PLACE_S, only_visited)
    require_memory("fit", needed, way_out)
