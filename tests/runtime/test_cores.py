"""Cores that a process may use, by what the system tells."""

from __future__ import annotations

import os

import pytest

from ppmtf_jax.runtime.devices import cores_of_group, n_cores
from tests.machine import with_memory_files

GROUP = "/sys/fs/cgroup"


def older(quota: int) -> dict[str, str]:
    return {f"{GROUP}/cpu/cpu.cfs_quota_us": f"{quota}\n", f"{GROUP}/cpu/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 8),
        ({f"{GROUP}/cpu.max": "max 100000\n"}, 8),
        ({f"{GROUP}/cpu.max": "200000 100000\n"}, 2),
        ({f"{GROUP}/cpu.max": "150000 100000\n"}, 2),
        ({f"{GROUP}/cpu.max": "20000 100000\n"}, 1),
        ({f"{GROUP}/cpu.max": "6400000 100000\n"}, 8),
        (older(-1), 8),
        (older(300000), 3),
    ],
    ids=str,
)
def test_a_container_may_use_as_much_as_it_is_given(monkeypatch, files, expected):
    """As `docker run --cpus 2` does it: all cores are in sight, and little of their time may be used."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    with_memory_files(monkeypatch, files)
    cores_of_group.cache_clear()
    try:
        assert n_cores() == expected
    finally:
        cores_of_group.cache_clear()
