"""What fitting people needs: an estimate of the memory, and a limit of places, checked before the fit begins."""

from __future__ import annotations

import numpy as np

from ppmtf_jax.bridge.selection import CLUSTER_NUMBERS
from ppmtf_jax.data.blocks import BLOCK_USERS
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.runtime.memory import available_bytes, require_memory

# Bytes for compiled programs and tables of cells x cells.
CONSTANT_BYTES = 300 * 2**20
# Per event of the blocks that threads count at the same time: cells, steps and pairs as int64, in a few copies.
EVENT_BYTES, BLOCKS_AT_ONCE = 200, 4
# Per entry of a table: six copies in single precision, such as counts, smoothed counts and distributions.
TABLE_BYTES = 6 * 4
# Tables of the places beside those of clusters: ten folds of the users in each slot while settings are selected; and
# for each cluster, people who remember by class of mobility and dwell time.
FOLD_TABLES, CROWD_TABLES = 16, 12

MAX_PLACES = 250_000
"""Maximum number of places of a fit. Time and memory grow in proportion to the places, visited or not."""
# Measured: 200 users who visit 8 places, in tables of 1,000 and 10,000 places, on two cores shared with other work.
PLACE_S = 0.004


def bytes_to_fit(train: Traces, n_clusters: int) -> int:
    """Estimated peak memory of fitting `n_clusters` clusters, in bytes; chains and people are fitted in turn."""
    n_slots, slots = train.time_grid.n_slots, train.time_grid.one_period().slot_of_instant
    n_pairs = len(np.unique(np.stack([slots[:-1], slots[1:]]), axis=1).T)
    n_counted = min(train.n_users, BLOCKS_AT_ONCE * BLOCK_USERS)
    n_times = train.time_grid.period * (1 + (train.time_grid.n_instants > train.time_grid.period))
    tables = n_slots * (n_clusters + FOLD_TABLES) + n_clusters * max(n_pairs, n_times + CROWD_TABLES)
    of_events = EVENT_BYTES * (train.n_events * n_counted // train.n_users)
    return CONSTANT_BYTES + of_events + TABLE_BYTES * train.n_places * tables


def require_few_places(n_places: int, needed: int, place_s: float, way_out: str) -> None:
    """Refuse more than `MAX_PLACES` places; the error says how many bytes (`needed`) and hours a fit would take."""
    if n_places > MAX_PLACES:
        found = f"{n_places:,}, which need about {needed / 1e9:.0f} GB and {n_places * place_s / 3600:.1f} hours"
        way_out = Message("Take larger cells, or a smaller box", way_out)
        raise InputError("fit", [Problem(f"at most {MAX_PLACES:,} places, visited or not", found, way_out=way_out)])


def require_memory_to_fit(train: Traces, n_clusters: int | None, min_cluster_users: int) -> None:
    """Refuse a fit that needs too much memory, and name a number of clusters that fits; see `require_memory`."""
    most = max(1, min(n_clusters or max(CLUSTER_NUMBERS), train.n_users // min_cluster_users))
    fixed = bytes_to_fit(train, 0)
    room = ((available_bytes() or 0) - fixed) // (bytes_to_fit(train, 1) - fixed)
    way_out = f"Set n_clusters={room}" if room >= 1 else "Take fewer users, places or slots"
    needed = bytes_to_fit(train, most)
    only_visited = Message(", or keep only those that people visit: import with ", Setting("min_users_per_place", 2))
    require_few_places(train.n_places, needed, PLACE_S, only_visited)
    require_memory("fit", needed, way_out)
