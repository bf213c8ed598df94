"""The estimate of synthesis, and what is refused."""

from __future__ import annotations

import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.memory import require_memory_to_sample, require_memory_to_synthesize
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings
from tests.machine import with_gigabytes


def test_a_fit_is_refused_before_it_begins(monkeypatch):
    train = toy_city(20, n_days=1, seed=0).traces
    with_gigabytes(monkeypatch, 0.1)
    monkeypatch.setattr("ppmtf_jax.synthesizers.systems.ppmtf.observe", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(InputError, match=r"fit: expected .* GB of memory \(an estimate\); found 0\.1 GB available"):
        fit(train, "ppmtf", PPMTFSettings(rank=2, n_sweeps=1))


def test_the_number_of_traces_that_is_named_fits(monkeypatch):
    """A trace takes five numbers of 8 bytes, and an event of it 21 bytes."""
    with_gigabytes(monkeypatch, 5)
    # 1e7 * (40 + 24 * 21) bytes, and 0.2 GB: 5.6 GB.
    with pytest.raises(InputError, match=r"synthesize: expected 5\.6 GB .*found 5\.0 GB .*Set traces_per_user=8"):
        require_memory_to_synthesize(1_000_000, 10, 24)
    require_memory_to_synthesize(1_000_000, 8, 24)
    # Available memory is told in units of 1,024 bytes.
    most = int((round(5e9 / 1024) * 1024 - 200 * 2**20) // (40 + 24 * 21))
    with pytest.raises(InputError, match=rf"sample: expected .*Ask for at most {most:,} traces"):
        require_memory_to_sample(10_000_000, 24)
    require_memory_to_sample(most, 24)
    with_gigabytes(monkeypatch, 0.5)
    with pytest.raises(InputError, match="Take a model of fewer users"):
        require_memory_to_synthesize(1_000_000, 1, 24)


def test_a_sample_is_refused_before_it_begins(monkeypatch):
    model = fit(toy_city(20, n_days=1, seed=0).traces, "uniform")
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match="Ask for at most"):
        model.sample(10**12)
