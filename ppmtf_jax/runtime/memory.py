"""Memory that a large job will need, told before it begins.

The estimates are of what comes on top of what the process holds already, on a CPU, where host and devices share the
memory. They count what grows with the data and a constant share of compiled programs; the measured peaks of large jobs
lie within 30 % of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem

CONTROL_GROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that this process may still take: what the machine, its control group and `ulimit -v` leave.

    None where the system does not say, as outside Linux.
    """
    free = [_of_machine(), _of_process(), _of_group("memory.max", "memory.current")]
    free.append(_of_group("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    return min((n for n in free if n is not None), default=None)


class PeakMemory:
    """The most memory that this process held since it was made, libraries included.

    Examples
    --------
    >>> peak = PeakMemory().megabytes()
    >>> peak is None or peak > 10
    True
    """

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self.is_known = True
        except OSError:
            self.is_known = False

    def megabytes(self) -> int | None:
        """None where the system does not say, as outside Linux."""
        peak = _of_line(Path("/proc/self/status"), "VmHWM") if self.is_known else None
        return None if peak is None else peak // 10**6


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


def _of_machine() -> int | None:
    return _of_line(Path("/proc/meminfo"), "MemAvailable")


def _of_process() -> int | None:
    """Of the limit of its address space, which counts what is reserved, used or not."""
    if sys.platform != "linux":
        return None
    # Windows has no such module.
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    reserved = _of_line(Path("/proc/self/status"), "VmSize") or 0
    return None if limit == resource.RLIM_INFINITY else max(limit - reserved, 0)


def _of_group(limit: str, used: str) -> int | None:
    """Of the control group, as a container sees its own; None where it has no limit. Cached files can be dropped."""
    numbers = [told(CONTROL_GROUP / name).strip() for name in (limit, used)]
    if not all(number.isdecimal() for number in numbers):
        return None
    lines = told((CONTROL_GROUP / used).with_name("memory.stat")).splitlines()
    cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return int(numbers[0]) - int(numbers[1]) + cached


def _of_line(path: Path, name: str) -> int | None:
    """Bytes that a line of the system's files gives in kB; None without such a line."""
    lines = told(path).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def told(path: Path) -> str:
    """What a file of the system says; nothing where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
