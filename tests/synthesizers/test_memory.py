"""The estimate of synthesis, and what is refused."""

from __future__ import annotations

import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.ppmtf import PPMTFSettings
from ppmtf_jax.synthesizers.synthesis import fit, require_memory_to_synthesize
from tests.machine import with_gigabytes


def test_a_fit_is_refused_before_it_begins(monkeypatch):
    train = toy_city(20, n_days=1, seed=0).traces
    with_gigabytes(monkeypatch, 0.1)
    monkeypatch.setattr("ppmtf_jax.synthesizers.ppmtf.observe", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(InputError, match=r"fit: expected .* GB of memory \(an estimate\); found 0\.1 GB available"):
        fit(train, "ppmtf", PPMTFSettings(rank=2, n_sweeps=1))


def test_the_number_of_traces_that_is_named_fits(monkeypatch):
    with_gigabytes(monkeypatch, 10)
    with pytest.raises(InputError, match=r"synthesize: expected 10\.8 GB .*found 10\.0 GB .*Set traces_per_user=9"):
        require_memory_to_synthesize(1_000_000, 10, 24)
    require_memory_to_synthesize(1_000_000, 9, 24)
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match="Take a model of fewer users"):
        require_memory_to_synthesize(1_000_000, 1, 24)
