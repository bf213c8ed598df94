"""Estimate of the memory of synthesis, checked before it begins."""

from __future__ import annotations

from ppmtf_jax.runtime.memory import available_bytes, require_memory

# Memory of synthesis and privacy test that does not depend on the number of traces.
SMALL_CONSTANT_BYTES = 200 * 2**20
# Bytes per instant of a trace: the drawn place, whether there is an event, and four int32 columns of the traces.
SYNTHETIC_EVENT_BYTES = 4 + 1 + 4 * 4
# Bookkeeping per trace: five int64.
SYNTHETIC_TRACE_BYTES = 5 * 8


def bytes_to_synthesize(n_traces: int, n_instants: int) -> int:
    """Estimated peak memory of synthesis, in bytes."""
    return SMALL_CONSTANT_BYTES + n_traces * bytes_per_trace(n_instants)


def bytes_per_trace(n_instants: int) -> int:
    """Memory of a synthetic trace, in bytes."""
    return SYNTHETIC_TRACE_BYTES + SYNTHETIC_EVENT_BYTES * n_instants


def require_memory_to_synthesize(n_users: int, traces_per_user: int, n_instants: int) -> None:
    """Refuse more traces than fit into memory, and say how many per user fit; see `require_memory`."""
    per_user = _traces_that_fit(n_instants) // n_users
    way_out = f"Set traces_per_user={per_user}" if per_user >= 1 else "Take a model of fewer users"
    require_memory("synthesize", bytes_to_synthesize(n_users * traces_per_user, n_instants), way_out)


def require_memory_to_sample(n_traces: int, n_instants: int) -> None:
    """Refuse more traces than fit into memory, and say how many fit; see `require_memory`."""
    most = _traces_that_fit(n_instants)
    way_out = f"Ask for at most {most:,} traces" if most >= 1 else ""
    require_memory("sample", bytes_to_synthesize(n_traces, n_instants), way_out)


def _traces_that_fit(n_instants: int) -> int:
    return ((available_bytes() or 0) - SMALL_CONSTANT_BYTES) // bytes_per_trace(n_instants)
