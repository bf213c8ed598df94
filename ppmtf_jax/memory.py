"""Memory that a large job will need, told before it begins.

The estimates are of what comes on top of what the process holds already, on a CPU, where host and devices share the
memory. They count what grows with the data and a constant share of compiled programs; the measured peaks of large jobs
lie within 30 % of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.tensors import CountTensors
from ppmtf_jax.threads import n_threads

# Compiling the programs, and what does not grow with the data.
CONSTANT_BYTES = 600 * 2**20
# A stored cell is laid out for each of three modes as three numbers of 4 bytes, with about a seventh of padding; once
# on the host and once on the devices.
CELL_BYTES = 2 * 41
# Of every factor entry: the sampler's state before and after a sweep, and the draw that is kept.
FACTOR_ENTRY_BYTES = 3 * 4
# An entry of the population's transitions while they are made; with noise, each is a Python number for a while.
POPULATION_BYTES, PRIVATE_POPULATION_BYTES = 24, 90
# What synthesis and test take whatever the number of events.
SMALL_CONSTANT_BYTES = 200 * 2**20
# Places while drawn; user, trace, instant and place of the finished traces; indices from which they are made.
SYNTHETIC_EVENT_BYTES = 4 + 4 * 4 + 3 * 8
# Number of the trace that an event belongs to, and its log-probability twice.
TESTED_EVENT_BYTES = 8 + 2 * 8
# The privacy test takes traces in groups of so many events, and makes, in each thread, a table with a row for each
# distinct step of a group, at most one for each event.
EVENTS_TESTED_TOGETHER = 6 << 20
STEP_BYTES = 64 * 4


def available_bytes() -> int | None:
    """Memory that this process may still take: what the machine has free, or its control group if that is less.

    None where the system does not say, as outside Linux.
    """
    free = [_of_machine(), _of_group("memory.max", "memory.current")]
    free.append(_of_group("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    return min((n for n in free if n is not None), default=None)


def bytes_to_fit(counts: CountTensors, zeros: Literal["sampled", "weighted"], n_zeros: int, rank: int) -> int:
    """Estimate of the peak of a PPMTF fit, bytes: cells as `gibbs.cells` lays them out, and the factors."""
    n_cells = sum(len(tensor.user) for tensor in counts)
    if zeros == "sampled":
        n_cells += sum(min(n_zeros, tensor.cells_per_user) * tensor.shape[0] for tensor in counts)
    return _without_cells(counts, rank) + CELL_BYTES * n_cells


def _without_cells(counts: CountTensors, rank: int) -> int:
    n_users, n_places, n_slots = counts.visits.shape
    return CONSTANT_BYTES + FACTOR_ENTRY_BYTES * (n_users + 2 * n_places + n_slots) * rank


def bytes_to_synthesize(n_events: int) -> int:
    """Estimate of the peak of synthesizing traces of so many events in all, bytes."""
    return SMALL_CONSTANT_BYTES + SYNTHETIC_EVENT_BYTES * n_events


def bytes_to_test(n_events: int) -> int:
    """Bound on the peak of a plausible-deniability test of traces of so many events in all, bytes.

    An estimate where all steps differ; traces that share steps take less.
    """
    tables = n_threads() * STEP_BYTES * min(n_events, EVENTS_TESTED_TOGETHER)
    return SMALL_CONSTANT_BYTES + TESTED_EVENT_BYTES * n_events + tables


def require_memory(step: str, needed: int, way_out: str) -> None:
    """Refuse a step that would not fit.

    Raises
    ------
    InputError
        Saying what it needs, what there is, and what to do.
    """
    available = available_bytes()
    if available is not None and needed > available:
        found = f"{available / 1e9:.1f} GB available"
        raise InputError(step, [Problem(f"{needed / 1e9:.1f} GB of memory (an estimate)", found, way_out=way_out)])


def require_memory_to_fit(counts: CountTensors, zeros: Literal["sampled", "weighted"], n_zeros: int, rank: int) -> None:
    """Refuse a PPMTF fit that would not fit into the memory, and name settings that would; see `require_memory`."""
    require_memory("fit", bytes_to_fit(counts, zeros, n_zeros, rank), _settings_that_fit(counts, n_zeros, rank))


def require_memory_for_population(n_places: int, *, private: bool) -> None:
    """Refuse a matrix of the population's transitions that would not fit; see `require_memory`."""
    needed = (PRIVATE_POPULATION_BYTES if private else POPULATION_BYTES) * n_places**2
    require_memory("the population's transitions", needed, "Set proposal_mix=0, or take fewer places")


def require_memory_to_synthesize(n_users: int, traces_per_user: int, n_instants: int) -> None:
    """Refuse to synthesize more traces than would fit, and say how many would; see `require_memory`."""
    per_user = ((available_bytes() or 0) - SMALL_CONSTANT_BYTES) // (SYNTHETIC_EVENT_BYTES * n_users * n_instants)
    way_out = f"Set traces_per_user={per_user}" if per_user >= 1 else "Take a model of fewer users"
    require_memory("synthesize", bytes_to_synthesize(n_users * traces_per_user * n_instants), way_out)


def require_memory_to_test(n_events: int) -> None:
    """Refuse to test more traces than would fit; see `require_memory`."""
    require_memory("test", bytes_to_test(n_events), "Synthesize fewer traces per user, and test them in several runs")


def _settings_that_fit(counts: CountTensors, n_zeros: int, rank: int) -> str:
    available = available_bytes() or 0
    if bytes_to_fit(counts, "weighted", n_zeros, rank) <= available:
        return "Set zeros=weighted"
    room = (available - _without_cells(counts, rank)) // CELL_BYTES
    per_user = room // (len(counts) * counts.visits.shape[0])
    if per_user >= 1:
        return f"Set zeros=weighted, max_transitions={per_user} and max_visits={per_user}"
    return "Take fewer users, or a lower rank"


def _of_machine() -> int | None:
    lines = _read(Path("/proc/meminfo")).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _of_group(limit: str, used: str) -> int | None:
    """Of the control group, as a container sees its own; None where it has no limit. Cached files can be dropped."""
    root = Path("/sys/fs/cgroup")
    numbers = [_read(root / name).strip() for name in (limit, used)]
    if not all(number.isdecimal() for number in numbers):
        return None
    lines = _read((root / used).with_name("memory.stat")).splitlines()
    cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return int(numbers[0]) - int(numbers[1]) + cached


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
