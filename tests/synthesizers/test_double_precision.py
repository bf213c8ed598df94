"""A program that chose double precision, as with `numpyro.enable_x64()`, gets what every other program gets."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import jax
import numpy as np
import pytest

from ppmtf_jax.attacks.estimators.base import ESTIMATORS, estimate_transitions
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.private import people
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.gaps import complete
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.people.examples import try_few_settings

SETTINGS = {
    "bridge": {"n_clusters": 2, "min_cluster_users": 5, "memory": "none"},
    "itf": {"n_sweeps": 2, "rank": 4},
    "ppmtf": {"n_sweeps": 2, "rank": 4},
    "ppmtf_plus": {"n_sweeps": 2, "rank": 4},
    "private": {"noise": "seeded", "public_places": True},
    "sgd": {},
    "sglt": {"n_clusters": 3},
    "tpm": {"noise": "seeded", "epsilon": 1.0},
    "training": {},
    "uniform": {},
}
SIZES = {"private": {"people": 20}}
# Models of every kind that is scored; that of itf is of the same kind as that of ppmtf.
SCORED = {"bridge", "ppmtf", "sgd", "tpm", "uniform"}


@cache
def dense() -> Traces:
    return toy_city(n_users=12, n_places=9, n_days=2, missing=0.0, seed=0).traces


def test_every_system_is_looked_at():
    assert SETTINGS.keys() == set(SYNTHESIZERS)


def everything(system: str, folder: Path) -> list[np.ndarray]:
    """What is made with one seed: the model, its traces, what it completes, and the verdicts."""
    model = fit(dense(), system, seed=1, **SETTINGS[system])
    made = synthesize(model, SIZES.get(system), seed=2)
    model.save(folder)
    made_again = synthesize(FittedModel.load(folder), SIZES.get(system), seed=2)
    found = [np.array([model.checksum]), made.place, made_again.place]
    if system in SCORED:
        gaps = dense().select_events(np.arange(dense().n_events) % 3 > 0)
        found += [complete(model, gaps, how=how, seed=3).place for how in ("random", "most-probable")]
        verdicts = plausible_deniability_test(model, made, k=2, seed=4).table
        found += [verdicts[name].to_numpy() for name in ("plausible_users", "log_likelihood")]
    return found


@pytest.mark.filterwarnings("ignore:fit.* the noisy sums suggest too few users:UserWarning")
@pytest.mark.parametrize("system", SETTINGS)
def test_a_seed_gives_the_same(system, monkeypatch, tmp_path):
    try_few_settings(monkeypatch)
    monkeypatch.setattr(people, "N_PEOPLE", 100)
    monkeypatch.setattr(people, "calibrate", partial(people.calibrate, n_rounds=1))
    found = []
    for double in (False, True):
        with jax.enable_x64(double):
            found.append(everything(system, tmp_path / str(double)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_attacker_learns_the_same(estimator):
    found = []
    for double in (False, True):
        with jax.enable_x64(double):
            found.append(np.asarray(estimate_transitions(dense(), estimator, seed=0).of_users(np.arange(12))))
    np.testing.assert_array_equal(*found)
