"""Fitting PPMTF: the parts are put together as they should be. The sampler has its own tests."""

from __future__ import annotations

from dataclasses import asdict, replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.conditionals import FactorPrior
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, GibbsState
from ppmtf_jax.gibbs.run import Checkpoints, GibbsResult, run_gibbs
from ppmtf_jax.gibbs.tensors import Trimming, count_tensors
from ppmtf_jax.streams import Stage, jax_stream
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.synthesizers.systems import ppmtf
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings, population_transitions
from tests.noise.sources import Recorded

SETTINGS = PPMTFSettings(2, 50.0, 6, "weighted", 4, max_transitions=4, max_visits=6, max_count=2, floor=1e-3)


@pytest.fixture(scope="module")
def train():
    """Two days of four instants in two cyclic slots."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame([(u, i) for u in range(6) for i in range(8)], columns=["user", "instant"])
    places = PlaceTable(np.arange(5), np.linspace(35, 36, 5), np.linspace(139, 140, 5))
    grid = TimeGrid("2024-01-01T00:00:00", 60, np.array([0, 1, 1, 0] * 2), period=4)
    return Traces.from_frame(frame.assign(place=rng.integers(5, size=len(frame))), places, grid)


def state_of(n_rows, settings):
    """State of one chain whose every factor has another prior."""
    means = {z: jnp.full((1, settings.rank), number, float) for number, z in enumerate(n_rows)}
    priors = {z: FactorPrior(mean, jnp.eye(settings.rank)[None] * (mean.max() + 1)) for z, mean in means.items()}
    return GibbsState({}, priors, jnp.array([6]))


def test_fit_counts_observes_and_runs_the_sampler(train, monkeypatch, tmp_path):
    """With a stand-in for the sampler, which takes long to compile: it gets the data, and its draw is the model."""
    calls = []

    def sampler(key, cells, n_rows, coupling, settings, **options):
        calls.append((key, cells, n_rows, coupling, settings, options))
        rng = np.random.default_rng(0)
        draws = {name: rng.random((1, 2, n, settings.rank)).astype(np.float32) for name, n in n_rows.items()}
        return GibbsResult(state_of(n_rows, settings), draws, np.array([5, 6]), {})

    monkeypatch.setattr(ppmtf, "run_gibbs", sampler)
    checkpoints = Checkpoints(tmp_path / "fit.npz")
    model = fit(train, "ppmtf", SETTINGS, seed=3, checkpoints=checkpoints)

    ((key, cells, n_rows, coupling, settings, options),) = calls
    assert (jax.random.key_data(key) == jax.random.key_data(jax_stream(3, Stage.FIT))).all()
    expected = observe(count_tensors(train, Trimming(4, 6, 2), seed=3), "weighted", 4, seed=3)
    for ours, theirs in zip(jax.tree.leaves(cells), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert n_rows == {"user": 6, "place": 5, "next_place": 5, "slot": 2}
    assert (coupling, settings) == (SHARED, GibbsSettings(2, 50.0))
    assert options["n_sweeps"] == 6
    assert options["checkpoints"] is checkpoints

    chains = model.trace_model
    last = sampler(*calls[0][:5]).draws
    for name in n_rows:
        np.testing.assert_array_equal(getattr(chains, name), last[name][0, -1])
    np.testing.assert_array_equal(chains.visit_user, chains.user)
    np.testing.assert_array_equal(chains.visit_place, chains.place)
    # A prior for each factor of the model, in its order: user, place, next place; user, place, slot.
    assert chains.prior_mean[:, 0].tolist() == [0, 1, 2, 0, 1, 3]
    assert chains.prior_precision[:, 1, 1].tolist() == [1, 2, 3, 1, 2, 4]
    assert chains.floor == 1e-3
    # One synthetic trace covers a period of the slots.
    np.testing.assert_array_equal(chains.slot_of_instant, [0, 1, 1, 0])
    assert model.time_grid.n_instants == 4
    assert model.settings == asdict(SETTINGS)


@pytest.fixture
def all_ones(monkeypatch) -> None:
    """A stand-in for the sampler, which draws factors of ones."""

    def sampler(key, cells, n_rows, coupling, settings, **options):
        draws = {name: np.ones((1, 1, n, settings.rank), np.float32) for name, n in n_rows.items()}
        return GibbsResult(state_of(n_rows, settings), draws, np.array([6]), {})

    monkeypatch.setattr(ppmtf, "run_gibbs", sampler)


@pytest.mark.usefixtures("all_ones")
@pytest.mark.parametrize("system", ["ppmtf", "itf"])
def test_a_mixed_proposal_is_learned_and_stored(train, monkeypatch, tmp_path, system):
    """From the counts that the sampler sees, with the model folder giving back what it was given."""
    counted = []
    monkeypatch.setattr(ppmtf, "count_tensors", lambda *a, **k: counted.append(k) or count_tensors(*a, **k))
    model = fit(train, system, replace(SETTINGS, proposal_mix=0.25), seed=3)
    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model").trace_model
    expected = population_transitions(count_tensors(train, Trimming(4, 6, 2), seed=3).transitions)
    np.testing.assert_allclose(again.population, expected, rtol=1e-6)
    assert again.proposal_mix == 0.25
    for name in ("prior_mean", "prior_precision"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model.trace_model, name))
    assert counted == [{"seed": 3}]
    assert fit(train, system, SETTINGS, seed=3).trace_model.population is None


@pytest.mark.slow
def test_a_stopped_fit_goes_on_from_its_checkpoint(train, tmp_path, monkeypatch):
    model = fit(train, "ppmtf", SETTINGS, seed=3)
    checkpoints = Checkpoints(tmp_path / "fit.npz", every=2)
    monkeypatch.setattr(ppmtf, "run_gibbs", lambda *a, **k: run_gibbs(*a, **(k | {"n_sweeps": 4})))
    fit(train, "ppmtf", SETTINGS, seed=3, checkpoints=checkpoints)
    monkeypatch.undo()
    assert checkpoints.path.is_file()
    resumed = fit(train, "ppmtf", SETTINGS, seed=3, checkpoints=checkpoints)
    for name, values in model.trace_model.to_arrays().items():
        np.testing.assert_array_equal(resumed.trace_model.to_arrays()[name], values)
    with pytest.raises(InputError, match=r"fit\.npz"):
        fit(train, "ppmtf", SETTINGS, seed=4, checkpoints=checkpoints)


@pytest.mark.usefixtures("all_ones")
def test_the_noise_of_the_population_is_that_of_the_settings_and_of_the_statement(train, monkeypatch):
    noise = Recorded()
    monkeypatch.setattr(ppmtf, "add_laplace", noise.add_laplace)
    private = replace(SETTINGS, n_sweeps=1, proposal_mix=0.5, population_epsilon=0.25)
    claims = fit(train, "ppmtf", private, seed=0).claims()
    ((counts, sensitivity, epsilon),) = noise.asked
    assert (sensitivity, epsilon) == (SETTINGS.max_transitions * SETTINGS.max_count, 0.25)
    of_each = count_tensors(train, private.trimming(), seed=0).transitions
    assert counts.sum() == of_each.count.sum() > 0
    # One user's part, by brute force.
    assert max(np.bincount(of_each.user, of_each.count)) <= sensitivity
    assert f"{epsilon:g}-differentially private" in claims.not_protected[0]


def test_defaults_are_the_published_ones():
    assert PPMTFSettings() == PPMTFSettings(16, 200.0, 100, "sampled", 1000, 100, 100, 10, 1e-8, 0.0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": 0},
        {"floor": 1e-13},
        {"floor": 1.0},
        {"population_epsilon": 1.0},  # without proposal_mix nothing would be private
        {"max_count": None, "population_epsilon": 1.0},
    ],
    ids=str,
)
def test_bad_settings_are_refused_before_any_work(wrong):
    with pytest.raises(InputError, match=next(iter(wrong)).removeprefix("n_").rstrip("s")):
        PPMTFSettings(**wrong)
