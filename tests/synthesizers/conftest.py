"""Traces and a model that tests of several synthesizers share."""

from __future__ import annotations

import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from tests.trace_models.examples import fitted, random_chains, random_training


@pytest.fixture(scope="package")
def random_train() -> Traces:
    return random_training()


@pytest.fixture(scope="package")
def chains() -> FittedModel:
    return fitted("ppmtf", random_chains())
