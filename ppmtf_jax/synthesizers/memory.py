"""What synthesis takes, and the refusal of what would not fit."""

from __future__ import annotations

from ppmtf_jax.runtime.memory import available_bytes, require_memory

# What synthesis and test take whatever the number of events.
SMALL_CONSTANT_BYTES = 200 * 2**20
# Places while drawn; user, trace, instant and place of the finished traces; indices from which they are made.
SYNTHETIC_EVENT_BYTES = 4 + 4 * 4 + 3 * 8


def bytes_to_synthesize(n_events: int) -> int:
    """Estimate of the peak of synthesizing traces of so many events in all, bytes."""
    return SMALL_CONSTANT_BYTES + SYNTHETIC_EVENT_BYTES * n_events


def require_memory_to_synthesize(n_users: int, traces_per_user: int, n_instants: int) -> None:
    """Refuse to synthesize more traces than would fit, and say how many would; see `require_memory`."""
    most = traces_that_fit(n_users * n_instants)
    way_out = f"Set traces_per_user={most}" if most >= 1 else "Take a model of fewer users"
    require_memory("synthesize", bytes_to_synthesize(n_users * traces_per_user * n_instants), way_out)


def require_memory_to_sample(n_traces: int, n_instants: int) -> None:
    """Refuse to sample more traces than would fit, and say how many would; see `require_memory`."""
    most = traces_that_fit(n_instants)
    way_out = f"Ask for at most {most:,} traces" if most >= 1 else "Take a model of fewer instants"
    require_memory("sample", bytes_to_synthesize(n_traces * n_instants), way_out)


def traces_that_fit(n_events: int) -> int:
    """How many times traces of so many events in all fit into the memory that is available."""
    return ((available_bytes() or 0) - SMALL_CONSTANT_BYTES) // (SYNTHETIC_EVENT_BYTES * n_events)
