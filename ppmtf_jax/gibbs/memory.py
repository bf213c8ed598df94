"""Estimate of the memory that a Gibbs run needs, checked before the run begins."""

from __future__ import annotations

from typing import Literal

from ppmtf_jax.gibbs.tensors import CountTensors
from ppmtf_jax.runtime.memory import available_bytes, require_memory

# Bytes for compiling the programs and for everything else that does not grow with the data. Programs from JAX's disk
# cache need 330 MB less.
CONSTANT_BYTES = 600 * 2**20
# Bytes per stored cell: for each of three modes, three numbers of 4 bytes plus about a seventh of padding; once on the
# host and once on the devices.
CELL_BYTES = 2 * 41
# Each factor entry is held before and after a sweep, and in the kept draw. The noise of a sweep has as many entries.
FACTOR_ENTRY_BYTES = 4 * 4
# Each row of a factor of places has a matrix of rank x rank when it is drawn, in about eleven copies. The rows of users
# are drawn some at a time.
PLACE_MATRIX_BYTES = 11 * 4


def bytes_to_fit(counts: CountTensors, zeros: Literal["sampled", "weighted"], n_zeros: int, rank: int) -> int:
    """Estimated peak memory of a PPMTF fit, in bytes: the cells in the layout of `gibbs.cells`, and the factors."""
    n_users, n_places, n_slots = counts.visits.shape
    n_cells = sum(len(tensor.user) for tensor in counts)
    if zeros == "sampled":
        n_cells += sum(min(n_zeros, tensor.cells_per_user) * n_users for tensor in counts)
    factors = FACTOR_ENTRY_BYTES * (n_users + 2 * n_places + n_slots) * rank
    return CONSTANT_BYTES + factors + PLACE_MATRIX_BYTES * n_places * rank**2 + CELL_BYTES * n_cells


def require_memory_to_fit(counts: CountTensors, zeros: Literal["sampled", "weighted"], n_zeros: int, rank: int) -> None:
    """Refuse a PPMTF fit that needs too much memory, and name settings that need less."""
    available, weighted = available_bytes() or 0, bytes_to_fit(counts, "weighted", n_zeros, rank)
    room = (available - weighted) // CELL_BYTES + sum(len(tensor.user) for tensor in counts)
    per_user = room // (len(counts) * counts.visits.shape[0])
    way_out = "Take fewer users or places, or a lower rank"
    if weighted <= available:
        way_out = "Set zeros=weighted"
    elif per_user >= 1:
        way_out = f"Set zeros=weighted, max_transitions={per_user} and max_visits={per_user}"
    require_memory("fit", bytes_to_fit(counts, zeros, n_zeros, rank), way_out)
