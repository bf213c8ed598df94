"""The one guard of memory: a step that would not fit is refused before it begins.

What a step needs is an estimate: what grows with its arrays, and a constant share for compiled programs. Slow tests
hold those of large fits against measured peaks. What is available is measured when the step begins. On a CPU,
host and devices share the memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem

CONTROL_GROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that this process may still take, by the machine, its container and `ulimit -v`; None outside Linux."""
    free = [_line_bytes("/proc/meminfo", "MemAvailable"), _free_in_address_space()]
    free += [
        _free_in_group(limit, used)
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
        )
    ]
    return min((n for n in free if n is not None), default=None)


class PeakMemory:
    """The largest memory of this process, with all libraries, since this object was made.

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
        """The peak in megabytes; None outside Linux."""
        peak = _line_bytes("/proc/self/status", "VmHWM") if self.is_known else None
        return None if peak is None else peak // 10**6


def require_memory(step: str, needed: int, way_out: str) -> None:
    """Refuse a step that needs more bytes than are available; the error says both and what to do."""
    available = available_bytes()
    if available is not None and needed > available:
        found = f"{available / 1e9:.1f} GB available"
        raise InputError(step, [Problem(f"{needed / 1e9:.1f} GB of memory (an estimate)", found, way_out=way_out)])


def require_memory_for(step: str, number: int, each: int, constant: int, way_out: Callable[[int], str]) -> None:
    """`require_memory` for a number of things of `each` bytes beside a constant; `way_out` is told how many fit."""
    fit = max(0, (available_bytes() or 0) - constant) // each
    require_memory(step, constant + number * each, way_out(fit))


def _free_in_address_space() -> int | None:
    """Bytes that `ulimit -v` still allows; it limits the reserved address space, used or not."""
    if sys.platform != "linux":
        return None
    import resource  # Windows does not have it

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    reserved = _line_bytes("/proc/self/status", "VmSize") or 0
    return None if limit == resource.RLIM_INFINITY else max(limit - reserved, 0)


def _free_in_group(limit: str, used: str) -> int | None:
    """Bytes that the control group of a container still allows; None without a limit. Cached files count as free."""
    numbers = [_text(CONTROL_GROUP / name).strip() for name in (limit, used)]
    if not all(number.isdecimal() for number in numbers):
        return None
    lines = _text((CONTROL_GROUP / used).with_name("memory.stat")).splitlines()
    cached = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return int(numbers[0]) - int(numbers[1]) + cached


def _line_bytes(path: str, name: str) -> int | None:
    """Bytes that a line of a system file gives in kB; None without such a line."""
    lines = _text(Path(path)).splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def _text(path: Path) -> str:
    """The content of a system file; empty if there is none."""
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
