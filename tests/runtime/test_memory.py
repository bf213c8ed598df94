"""Memory that is available, by what the system tells, and what is refused."""

from __future__ import annotations

import sys

import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime.memory import available_bytes, require_memory
from tests.machine import with_gigabytes, with_memory_files


def test_more_than_is_available_is_refused(monkeypatch):
    with_gigabytes(monkeypatch, 3)
    require_memory("fit", int(2.9e9), "")
    with pytest.raises(InputError, match=r"fit: expected 3\.1 GB .*estimate\); found 3\.0 GB available\. Do less"):
        require_memory("fit", int(3.1e9), "Do less")


def test_nothing_is_refused_where_the_system_does_not_say(monkeypatch):
    with_memory_files(monkeypatch, {})
    assert available_bytes() is None
    require_memory("fit", 2**60, "")


@pytest.mark.parametrize("folder", ["", "memory/"])
def test_a_container_has_less_than_its_machine(monkeypatch, folder):
    gib = 2**30
    names = {"": ("memory.max", "memory.current"), "memory/": ("memory.limit_in_bytes", "memory.usage_in_bytes")}[
        folder
    ]
    files = {"/proc/meminfo": f"MemTotal: 9\nMemAvailable: {16 * 2**20} kB\n"}
    group = {names[0]: str(8 * gib), names[1]: str(3 * gib), "memory.stat": f"anon 5\ninactive_file {gib}\n"}
    files |= {f"/sys/fs/cgroup/{folder}{name}": content for name, content in group.items()}
    with_memory_files(monkeypatch, files)
    assert available_bytes() == 6 * gib
    files[f"/sys/fs/cgroup/{folder}{names[0]}"] = "max"
    assert available_bytes() == 16 * gib


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much is reserved")
def test_a_limit_of_the_address_space_counts_what_is_reserved(monkeypatch):
    import resource

    gib = 2**30
    monkeypatch.setattr(resource, "getrlimit", lambda which: {resource.RLIMIT_AS: (7 * gib, -1)}[which])
    files = {"/proc/meminfo": f"MemAvailable: {16 * 2**20} kB\n", "/proc/self/status": f"VmSize: {2 * 2**20} kB\n"}
    with_memory_files(monkeypatch, files)
    assert available_bytes() == 5 * gib
    files["/proc/self/status"] = f"VmSize: {8 * 2**20} kB\n"
    assert available_bytes() == 0
