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
    with_gigabytes(monkeypatch, 1e-5)
    monkeypatch.setattr("ppmtf_jax.synthesizers.systems.ppmtf.observe", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(InputError, match=r"fit: expected .* GB of memory \(an estimate\); found 0\.0 GB available"):
        fit(train, "ppmtf", PPMTFSettings(rank=2, n_sweeps=1))


def test_the_number_of_traces_that_is_named_fits(monkeypatch):
    """An event takes four numbers of 4 bytes."""
    model = fit(toy_city(20, n_days=1, seed=0).traces, "uniform")
    with_gigabytes(monkeypatch, 1)
    with pytest.raises(InputError, match="Ask for at most") as refused:
        model.sample(10**12)
    assert f"at most {round(1e9 / 1024) * 1024 // (16 * 24):,} traces" in str(refused.value)
    with pytest.raises(InputError, match="Set traces_per_user=") as refused:
        synthesize_in_parts(model, n_users=None, traces_per_user=10**6)
    named = int(re.search(r"traces_per_user=(\d+)", str(refused.value))[1])
    synthesize_in_parts(model, n_users=None, traces_per_user=named)
    with pytest.raises(InputError):
        synthesize_in_parts(model, n_users=None, traces_per_user=named + 1)
    with_gigabytes(monkeypatch, 1e-6)
    with pytest.raises(InputError, match="Take a model of fewer users"):
        synthesize_in_parts(model, n_users=None, traces_per_user=1)
