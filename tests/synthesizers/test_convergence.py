"""A model is diagnosed with its own settings, and only on the traces that it was fitted to."""

from __future__ import annotations

from dataclasses import asdict, replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.diagnostics import Diagnosis
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.tensors import Trimming, count_tensors
from ppmtf_jax.synthesizers import convergence
from ppmtf_jax.synthesizers.convergence import COUPLINGS, diagnose_model
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.systems.itf import UNSHARED
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings
from ppmtf_jax.trace_models.metropolis_hastings import MetropolisHastings

SETTINGS = PPMTFSettings(
    rank=3, noise_precision=7.0, n_sweeps=30, zeros="weighted", n_zeros=40, max_transitions=2, max_count=2
)


@pytest.fixture(scope="module")
def train() -> Traces:
    return toy_city(n_users=20, n_places=20, seed=0).traces


def model_of(train: Traces, system: str = "ppmtf", seed: int = 5) -> FittedModel:
    """All but the factors, which a diagnosis does not look at."""
    grid = train.time_grid.one_period()
    chains = MetropolisHastings(*(jnp.ones((1, 1)) for _ in range(6)), jnp.asarray(grid.slot_of_instant))
    return FittedModel(system, asdict(SETTINGS), seed, train.user_ids, train.places, grid, chains)


@pytest.fixture
def called(monkeypatch) -> dict:
    """What `diagnose` was asked."""
    asked = {}

    def diagnose(counts, coupling, settings, **options):
        asked.update(counts=counts, coupling=coupling, settings=settings, **options)
        return Diagnosis(pd.DataFrame(), {}, options["n_sweeps"], [], "")

    monkeypatch.setattr(convergence, "diagnose", diagnose)
    return asked


@pytest.mark.parametrize(("system", "coupling"), [("ppmtf", SHARED), ("itf", UNSHARED)])
def test_chains_have_the_settings_of_the_model(called, train, system, coupling):
    diagnose_model(model_of(train, system), train, seed=9)
    counts = called.pop("counts")
    assert called == {
        "coupling": coupling,
        "settings": GibbsSettings(rank=3, noise_precision=7.0),
        "zeros": "weighted",
        "n_zeros": 40,
        "n_sweeps": 30,
        "n_chains": 4,
        "seed": 9,
        "progress": False,
    }
    # Trimming is random: these are the model's counts, and not those of the diagnosis' seed.
    for ours, models in zip(counts, count_tensors(train, Trimming(2, 100, 2), seed=5), strict=True):
        np.testing.assert_array_equal(ours.place, models.place)
        assert ours.count.max() == 2


def test_every_factorization_can_be_diagnosed(train):
    with pytest.raises(InputError, match="a model of ppmtf or itf; found sgd"):
        diagnose_model(model_of(train, "sgd"), train, seed=9)
    assert all(issubclass(PPMTFSettings, SYNTHESIZERS[name].settings) for name in COUPLINGS)


def test_other_traces_are_refused(train):
    others = toy_city(n_users=15, n_places=20, seed=0).traces
    with pytest.raises(InputError, match="the model's 20 users; found 15 users, 0 of them unknown to it"):
        diagnose_model(model_of(train), others, seed=9)
    renamed = replace(train, user_ids=np.array([f"u{i:02}" for i in range(20)]))
    with pytest.raises(InputError, match="20 users, 20 of them unknown to it, first: u00, u01"):
        diagnose_model(model_of(train), renamed, seed=9)
    grid = train.time_grid
    later = replace(train, time_grid=TimeGrid("2001-01-01T00:00:00", grid.step_s, grid.slot_of_instant, grid.time_zone))
    with pytest.raises(InputError, match="the model's time grid; found another"):
        diagnose_model(model_of(train), later, seed=9)
    places = replace(train.places, ids=np.array([f"p{i:02}" for i in range(20)]))
    with pytest.raises(InputError, match="2 problems"):
        diagnose_model(model_of(train), replace(renamed, places=places), seed=9)
