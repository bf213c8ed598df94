"""The system `private`: its declaration, its model without users, its ledger."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ppmtf_jax import fit, synthesize
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import rho_of
from ppmtf_jax.private import people
from ppmtf_jax.private.releases import MECHANISMS
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.systems.private import not_below
from tests.private.worlds import homes_city


@pytest.fixture(scope="module")
def traces():
    return homes_city(30)


@pytest.fixture(scope="module")
def model(traces):
    with pytest.MonkeyPatch.context() as patch:
        # No test here depends on how well people are calibrated.
        patch.setattr(people, "N_PEOPLE", 100)
        patch.setattr(people, "calibrate", partial(people.calibrate, n_rounds=1))
        with pytest.warns(UserWarning, match="too few users"):
            return fit(traces, "private", epsilon=0.7, public_places=True, noise="seeded", seed=3)


def test_places_must_be_declared_public(traces):
    with pytest.raises(InputError, match="public places"):
        fit(traces, "private")


def test_the_ledger_covers_the_promise(model):
    (own,) = model.trace_model.ledger()["relations"]
    assert (own["spent"]["epsilon"], own["spent"]["delta"]) == (0.7, 1e-6)
    assert own["spent"]["rho"] == pytest.approx(rho_of(0.7, 1e-6), rel=1e-5)
    assert own["spent"]["rho"] >= rho_of(0.7, 1e-6)
    assert {line["mechanism"] for line in own["mechanisms"]} <= set(MECHANISMS)


def test_numbers_of_32_bits_are_not_below():
    values = np.array([1e-6, 0.1, 1 / 3, 0.7, 1e-5, 8.0, 0.024355970357])
    assert (np.array([float(str(each)) for each in not_below(values.tolist())]) >= values).all()


def test_seeded_noise_repeats_and_is_not_private(traces, model):
    assert "NOT PRIVATE" in model.summary()[0]
    assert not model.claims().is_private
    assert not model.trace_model.ledger()["private"]


def test_the_model_knows_no_user_and_people_stand_for_nobody(tmp_path, traces, model):
    assert model.n_users == 0
    first, more = (synthesize(model, people=n, seed=1) for n in (20, 30))
    assert first.of_nobody
    np.testing.assert_array_equal(first.place, more.place[: len(first.place)])
    model.save(tmp_path / "model")
    loaded = FittedModel.load(tmp_path / "model")
    assert loaded.checksum == model.checksum
    np.testing.assert_array_equal(synthesize(loaded, people=20, seed=1).place, first.place)


def test_people_begin_where_their_process_says(model):
    """Pearson's statistic, within five of its standard deviations; the planted error is one key for ten people."""
    process, n = model.trace_model, 4000
    arrays = {name: np.asarray(values, np.float64) for name, values in process.to_arrays().items()}
    second = np.stack([1 - arrays["second_share"], arrays["second_share"]])
    places = np.stack([arrays[name] for name in ("home", "second", "first_other")], axis=1)
    places /= places.sum(axis=-1, keepdims=True)
    share = np.einsum("k,hk,hkl,klb->b", arrays["share"], second, arrays["role_first"], places)
    np.testing.assert_allclose(share.sum(), 1, rtol=1e-5)
    people = synthesize(model, people=n, seed=0, batch_users=64)  # the program of 20 people
    first, m = people.place[people.instant == 0], len(share)

    def deviation(first: np.ndarray) -> float:
        variance = 2 * (m - 1) + ((1 / share).sum() - m**2 - 2 * m + 2) / n
        found = np.bincount(first, minlength=m)
        return (((found - n * share) ** 2 / (n * share)).sum() - (m - 1)) / np.sqrt(variance)

    assert abs(deviation(first)) < 5
    assert deviation(np.repeat(first[: n // 10], 10)) > 15
    assert (synthesize(model, people=n, seed=1, batch_users=64).place != people.place).mean() > 0.5
