"""The estimate of the privacy test, and what is refused."""

from __future__ import annotations

import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy import plausible_deniability
from ppmtf_jax.privacy.plausible_deniability import require_memory_to_test
from tests.machine import with_gigabytes


def test_more_traces_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr(plausible_deniability, "n_threads", lambda: 2)
    with_gigabytes(monkeypatch, 10)
    require_memory_to_test(10 * 24_000_000, 10_000_000)
    with pytest.raises(InputError, match=r"test: expected .* found 10\.0 GB .*Synthesize fewer traces per user"):
        require_memory_to_test(100 * 24_000_000, 100_000_000)
