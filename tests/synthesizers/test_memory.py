"""What would not fit into memory is refused before it begins, and the error names what would."""

from __future__ import annotations

import re

import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.synthesizers.synthesis import fit, synthesize_in_parts
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings
from tests.machine import with_gigabytes


def test_a_fit_is_refused_before_it_begins(monkeypatch):
    train = toy_city(20, n_days=1, seed=0).traces
    with_gigabytes(monkeypatch, 0.1)
    monkeypatch.setattr("ppmtf_jax.synthesizers.systems.ppmtf.observe", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(InputError, match=r"fit: expected .* GB of memory \(an estimate\); found 0\.1 GB available"):
        fit(train, "ppmtf", PPMTFSettings(rank=2, n_sweeps=1))


def test_the_number_of_traces_that_is_named_fits(monkeypatch):
    """A trace takes five numbers of 8 bytes, and an instant of it 21 bytes; 200 MiB are for everything else."""
    model = fit(toy_city(20, n_days=1, seed=0).traces, "uniform")
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match="Ask for at most") as refused:
        model.sample(10**12)
    # Available memory is told in units of 1,024 bytes.
    most = (round(1e9 / 1024) * 1024 - 200 * 2**20) // (40 + 24 * 21)
    assert f"at most {most:,} traces" in str(refused.value)
    with pytest.raises(InputError, match="Set traces_per_user=") as refused:
        synthesize_in_parts(model, n_users=None, traces_per_user=10**6)
    named = int(re.search(r"traces_per_user=(\d+)", str(refused.value))[1])
    synthesize_in_parts(model, n_users=None, traces_per_user=named)
    with pytest.raises(InputError):
        synthesize_in_parts(model, n_users=None, traces_per_user=named + 1)
    with_gigabytes(monkeypatch, 0.2)
    with pytest.raises(InputError, match="Take a model of fewer users"):
        synthesize_in_parts(model, n_users=None, traces_per_user=1)
