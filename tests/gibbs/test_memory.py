"""A fit that would not fit into memory is refused, and the setting that the error names fits."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.memory import require_memory_to_fit
from ppmtf_jax.gibbs.tensors import CountTensors, SparseCounts
from tests.machine import with_gigabytes


def counts_of(n_users: int, n_places: int, n_slots: int, cells_per_user: int) -> CountTensors:
    """Tensors of a size alone: their columns take no memory."""
    column = np.broadcast_to(np.int32(1), n_users * cells_per_user)
    tensors = (
        SparseCounts(column, column, column, column, (n_users, n_places, n), np.arange(n_users))
        for n in (n_places, n_slots)
    )
    return CountTensors(*tensors)


def test_the_setting_that_is_named_fits(monkeypatch):
    counts = counts_of(1_000_000, 1000, 12, 30)
    with_gigabytes(monkeypatch, 100)
    with pytest.raises(InputError, match=r"148\.4 GB .*estimate\); found 100\.0 GB .*zeros=weighted"):
        require_memory_to_fit(counts, "sampled", 1000, 16)
    require_memory_to_fit(counts, "weighted", 1000, 16)
    with_gigabytes(monkeypatch, 4)
    with pytest.raises(InputError, match=r"Set zeros=weighted, max_transitions=(\d+) and max_visits=\1") as caught:
        require_memory_to_fit(counts, "weighted", 1000, 16)
    named = int(str(caught.value).split("max_visits=")[1])
    require_memory_to_fit(counts_of(1_000_000, 1000, 12, named), "weighted", 1000, 16)
    with pytest.raises(InputError):
        require_memory_to_fit(counts_of(1_000_000, 1000, 12, named + 1), "weighted", 1000, 16)
    with_gigabytes(monkeypatch, 0.2)
    with pytest.raises(InputError, match="Take fewer users or places, or a lower rank"):
        require_memory_to_fit(counts, "weighted", 1000, 16)
