"""The estimate of a fit against measured peaks, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.memory import (
    CELL_BYTES,
    CONSTANT_BYTES,
    FACTOR_ENTRY_BYTES,
    PLACE_MATRIX_BYTES,
    bytes_to_fit,
    require_memory_to_fit,
)
from ppmtf_jax.gibbs.tensors import CountTensors, SparseCounts, Trimming, count_tensors
from tests.machine import with_gigabytes

# Prints the estimate and how far the process grew, bytes; system calls count kilobytes.
MEASURE = """
import resource, sys
import jax, numpy as np
from ppmtf_jax.gibbs.memory import bytes_to_fit
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings, SHARED, fit_chains
from ppmtf_jax.gibbs.tensors import count_tensors
from ppmtf_jax.datasets.toy_city import toy_city
users, zeros, rank = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
train = toy_city(users, n_places=1000, n_days=1, seed=0).traces
settings = PPMTFSettings(rank=rank, zeros=zeros, n_sweeps=1)
needed = bytes_to_fit(count_tensors(train, settings.trimming(), seed=0), zeros, settings.n_zeros, rank)
jax.devices()
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak counts from now on
fit_chains(SHARED, train, settings, 0)
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(needed, peak - before)
"""


def counts_of(n_users: int, n_places: int, n_slots: int, cells_per_user: int) -> CountTensors:
    """Tensors of a size alone: their columns take no memory."""
    column = np.broadcast_to(np.int32(1), n_users * cells_per_user)
    tensors = (
        SparseCounts(column, column, column, column, (n_users, n_places, n), np.arange(n_users))
        for n in (n_places, n_slots)
    )
    return CountTensors(*tensors)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system does not tell a peak")
@pytest.mark.parametrize(
    ("users", "zeros", "rank"), [(400_000, "weighted", 16), (8_000, "sampled", 16), (2000, "weighted", 32)]
)
def test_estimates_are_within_a_third_of_the_peak(users, zeros, rank):
    """Where programs are compiled: what a cache has of an earlier run takes 330 MB less."""
    command = [sys.executable, "-c", MEASURE, str(users), zeros, str(rank)]
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    needed, grown = map(int, done.stdout.split())
    assert 0.7 < needed / grown < 1.3


def test_a_fit_needs_memory_for_cells_and_factors():
    counts = counts_of(1000, 100, 12, 7)
    more_cells, more_users = counts_of(1000, 100, 12, 8), counts_of(2000, 100, 12, 7)
    weighted = bytes_to_fit(counts, "weighted", 50, 16)
    assert bytes_to_fit(more_cells, "weighted", 50, 16) - weighted == CELL_BYTES * 2 * 1000
    # Visits have 1200 cells for each user, so that 5000 zeros are at most that many.
    assert bytes_to_fit(counts, "sampled", 5000, 16) - weighted == CELL_BYTES * 1000 * (5000 + 1200)
    assert bytes_to_fit(counts, "weighted", 50, 17) - weighted == (
        FACTOR_ENTRY_BYTES * (1000 + 200 + 12) + PLACE_MATRIX_BYTES * 100 * (17**2 - 16**2)
    )
    cells_and_rows = CELL_BYTES * 2 * 7 + FACTOR_ENTRY_BYTES * 16
    assert bytes_to_fit(more_users, "weighted", 50, 16) - weighted == 1000 * cells_and_rows


def test_the_setting_that_is_named_fits(monkeypatch):
    counts = counts_of(1_000_000, 1000, 12, 30)
    with_gigabytes(monkeypatch, 100)
    with pytest.raises(InputError, match=r"169\.8 GB .*estimate\); found 100\.0 GB .*zeros=weighted"):
        require_memory_to_fit(counts, "sampled", 1000, 16)
    require_memory_to_fit(counts, "weighted", 1000, 16)
    with_gigabytes(monkeypatch, 4)
    with pytest.raises(InputError, match=r"Set zeros=weighted, max_transitions=(\d+) and max_visits=\1") as caught:
        require_memory_to_fit(counts, "weighted", 1000, 16)
    named = int(str(caught.value).split("max_visits=")[1])
    require_memory_to_fit(counts_of(1_000_000, 1000, 12, named), "weighted", 1000, 16)
    with pytest.raises(InputError):
        require_memory_to_fit(counts_of(1_000_000, 1000, 12, named + 1), "weighted", 1000, 16)
    with_gigabytes(monkeypatch, 0.5)
    with pytest.raises(InputError, match="Take fewer users or places, or a lower rank"):
        require_memory_to_fit(counts, "weighted", 1000, 16)


def test_a_million_places_need_what_was_measured():
    """Of 200 users a fit took 1.06 GB more at 100,000 places than at 1,000."""
    few, many = (bytes_to_fit(counts_of(200, n, 12, 7), "weighted", 1000, 16) for n in (1_000, 100_000))
    assert 0.7 < (many - few) / 1.05e9 < 1.3


def test_counts_of_a_data_set_are_enough_to_estimate():
    counts = count_tensors(toy_city(50, n_days=1, seed=0).traces, Trimming(), seed=0)
    n_cells = len(counts.transitions.user) + len(counts.visits.user)
    assert bytes_to_fit(counts, "weighted", 1, 1) > CONSTANT_BYTES + CELL_BYTES * n_cells
