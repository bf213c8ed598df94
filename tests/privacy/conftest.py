"""What the tests of the privacy test share: the small model of `examples`, and blocks that are small too."""

from __future__ import annotations

import pytest

from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from tests.privacy.examples import naive_likelihoods, random_model, random_traces, use_small_blocks


@pytest.fixture
def small_blocks(monkeypatch):
    use_small_blocks(monkeypatch)


@pytest.fixture(scope="session")
def model():
    return random_model()


@pytest.fixture(scope="session")
def synthetic(model):
    return random_traces(model)


@pytest.fixture(scope="session")
def likelihoods(synthetic):
    return naive_likelihoods(synthetic)


@pytest.fixture(scope="session")
def whole(model, synthetic):
    """All plausible users of every trace."""
    with pytest.MonkeyPatch.context() as patch:
        use_small_blocks(patch)
        return plausible_deniability_test(model, synthetic, k=3, count_all=True)
