"""PPMTF with other inference, and with settings chosen by held-out cells: what is fitted, stored, told and claimed.

With stand-ins for what takes long to compile; `tests/models/test_inference.py` has inference itself.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from ppmtf_jax.models.inference import PosteriorDraws
from ppmtf_jax.models.mtf_numpyro import list_cells

from ppmtf_jax import fit, synthesize, toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import selection
from ppmtf_jax.gibbs.kernel import GibbsSettings
from ppmtf_jax.gibbs.selection import hide
from ppmtf_jax.gibbs.tensors import count_tensors
from ppmtf_jax.models import inference
from ppmtf_jax.synthesizers.convergence import diagnose_model
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.systems import ppmtf
from ppmtf_jax.synthesizers.systems.ppmtf import HOW_FOUND, PPMTFSettings

SMALL = {"rank": 2, "n_zeros": 30, "seed": 3}


@pytest.fixture(scope="module")
def train():
    return toy_city(n_users=10, n_places=8, n_days=1, seed=0).traces


def sites_of(n_rows, rank, value, shape=()):
    sites = {name: jnp.full((*shape, n, rank), value) for name, n in n_rows.items()}
    sites |= {f"{name}_mean": jnp.full((*shape, rank), 5.0) for name in n_rows}
    root = jnp.broadcast_to(jnp.array([[2.0, 0.0], [1.0, 3.0]]), (*shape, 2, 2))
    return sites | {f"{name}_precision_root": root for name in n_rows}


@pytest.fixture
def calls(monkeypatch):
    """What SVI was asked for; a guide of the value 0 predicts the many zeros well."""
    calls, values = [], {"delta": 0.0, "normal": 1.5}

    def svi(key, cells, n_rows, coupling, settings, *, guide, n_steps, batch_cells, progress):
        calls.append((cells, guide, settings, n_steps, batch_cells))
        return sites_of(n_rows, settings.rank, values[guide])

    monkeypatch.setattr(inference, "run_svi", svi)
    return calls, values


def as_set(cells):
    return set(map(tuple, np.asarray(cells.index)[np.asarray(cells.value) > 0].tolist()))


@pytest.mark.parametrize(("best", "zeros"), [("delta", "sampled"), ("normal", "weighted")])
def test_the_guide_that_predicts_hidden_cells_is_fitted_to_all_cells(train, calls, best, zeros, tmp_path):
    asked, values = calls
    values |= {"delta": 1.5, "normal": 0.0} if best == "normal" else {}
    model = fit(train, "ppmtf", inference="svi", zeros=zeros, n_steps=7, batch_cells=9, **SMALL)
    assert [guide for _, guide, *_ in asked] == ["delta", "normal", best]
    assert {each[2:] for each in asked} == {(GibbsSettings(2), 7, 9)}
    counts = count_tensors(train, PPMTFSettings().trimming(), seed=3)
    _, hidden = hide(counts, 3)
    for name, cells in list_cells(counts, zeros, 30, seed=3).items():
        # Among weighted zeros, nothing would be hidden.
        assert [each[0][name].zero_weight is None for each in asked] == [True, True, zeros == "sampled"]
        np.testing.assert_array_equal(asked[2][0][name].index, cells.index)
        away = set(map(tuple, hidden[name].index[hidden[name].value > 0].tolist()))
        assert away
        assert as_set(asked[0][0][name]) == as_set(cells) - away
        seen = {tuple(each) for each in asked[1][0][name].index.tolist()}
        assert not seen & set(map(tuple, hidden[name].index.tolist()))
    np.testing.assert_array_equal(model.trace_model.prior_precision[4], [[4.0, 2.0], [2.0, 10.0]])
    assert float(model.trace_model.user[0, 0]) == values[best]

    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    assert again.checksum == model.checksum
    (told,) = again.summary()
    assert told.startswith(f"The {best} guide")
    claims = again.claims()
    assert claims.settings["guide"] == f"{best}, chosen by held-out cells"
    assert HOW_FOUND[best] in claims.settings["inference"]
    assert "App. G" in claims.not_protected[0]
    # Another fit, as of a shadow model, makes the same choice without a comparison.
    fit(train, "ppmtf", again.settings_found(), seed=4)
    assert [guide for _, guide, *_ in asked[3:]] == [best]
    with pytest.raises(InputError, match="inference=gibbs"):
        diagnose_model(again, train, seed=0)


def test_guides_are_compared_by_some_users(train, calls, monkeypatch):
    monkeypatch.setattr(selection, "MAX_USERS", 4)
    fit(train, "ppmtf", inference="svi", **SMALL)
    assert [int(cells["visits"].index[:, 0].max()) + 1 for cells, *_ in calls[0]] == [4, 4, train.n_users]


def test_nuts_gives_its_last_draw_and_how_its_chains_agree(train, monkeypatch):
    def nuts(key, cells, n_rows, coupling, settings, *, n_draws, progress):
        sites = sites_of(n_rows, settings.rank, 1.0, (2, n_draws))
        return PosteriorDraws({name: site.at[0, -1].mul(7.0) for name, site in sites.items()}, 1.25, 4)

    monkeypatch.setattr(inference, "run_nuts", nuts)
    model = fit(train, "itf", inference="nuts", n_sweeps=4, **SMALL)
    assert float(model.trace_model.visit_user[0, 0]) == 7.0
    assert "R-hat 1.25" in model.summary()[0]
    assert "4 divergent" in model.summary()[0]
    assert not model.claims().not_protected
    assert model.claims().settings["inference"] == "nuts: the last draw. R-hat 1.25, 4 divergent draws"
    with pytest.raises(InputError, match="n_sweeps of at least 4"):
        fit(train, "itf", inference="nuts", n_sweeps=3, **SMALL)
    monkeypatch.setattr(ppmtf, "choose_settings", None)  # not reached
    monkeypatch.setattr(inference, "MAX_UNKNOWNS", 100)
    with pytest.raises(InputError, match="at most 100 unknowns"):
        fit(train, "ppmtf", inference="nuts", rank="auto", seed=3)


def test_factors_of_another_program_are_not_said_to_be_a_draw(train, calls):
    model = fit(train, "ppmtf", inference="svi", guide="delta", **SMALL)
    claims = ppmtf.claims(replace(model.trace_model, prior_mean=None), PPMTFSettings())
    assert "App. G" in claims.not_protected[0]
    assert claims.settings["inference"].startswith("not said")


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["gibbs", "svi", "nuts"])
def test_each_inference_fits_without_stand_ins(train, inference):
    model = fit(train, "ppmtf", inference=inference, n_sweeps=6, n_steps=20, **SMALL)
    assert bool(jnp.isfinite(model.trace_model.user).all())
    assert model.trace_model.prior_precision.shape == (6, 2, 2)
    assert synthesize(model, seed=0).n_users == train.n_users


def test_chosen_settings_are_used_stored_and_told(train, calls, monkeypatch, tmp_path):
    chosen = {"rank": 2, "noise_precision": 50.0}
    monkeypatch.setattr(ppmtf, "choose_settings", lambda *given, **_: (chosen, 0.125))
    model = fit(train, "ppmtf", inference="svi", guide="delta", noise_precision="auto", rank="auto", n_zeros=30, seed=3)
    assert calls[0][0][2] == GibbsSettings(2, 50.0)
    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    assert again.settings_found() == model.settings | chosen
    words = again.claims().settings
    assert (words["noise_precision"], words["n_zeros"]) == ("50.0, chosen by held-out cells", "30")
    assert "noise_precision 50" in again.summary()[0]
    assert "+0.125" in again.summary()[0]
