"""The memory of a Gibbs run, checked before the run begins."""

from __future__ import annotations

from typing import Literal

from ppmtf_jax.gibbs.tensors import CountTensors
from ppmtf_jax.runtime.memory import available_bytes, require_memory

# A cell: three numbers of 4 bytes for each of three modes, on the host and on the devices.
CELL_BYTES = 2 * 3 * 3 * 4


def require_memory_to_fit(counts: CountTensors, zeros: Literal["sampled", "weighted"], n_zeros: int, rank: int) -> None:
    """Refuse a PPMTF fit whose cells and factors do not fit into memory, and name settings that need less."""
    n_users, n_places, n_slots = counts.visits.shape
    n_cells = sum(len(tensor.user) for tensor in counts)
    n_drawn = sum(min(n_zeros, tensor.cells_per_user) for tensor in counts) * n_users if zeros == "sampled" else 0
    # A factor before and after a sweep, and its matrix of rank x rank for each place.
    factors = 4 * (2 * (n_users + 2 * n_places + n_slots) * rank + n_places * rank**2)
    available = available_bytes() or 0
    per_user = (available - factors) // CELL_BYTES // (len(counts) * n_users)
    way_out = "Take fewer users or places, or a lower rank"
    if factors + CELL_BYTES * n_cells <= available:
        way_out = "Set zeros=weighted"
    elif per_user >= 1:
        way_out = f"Set zeros=weighted, max_transitions={per_user} and max_visits={per_user}"
    require_memory("fit", factors + CELL_BYTES * (n_cells + n_drawn), way_out)
