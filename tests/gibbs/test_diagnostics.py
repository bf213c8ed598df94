"""Diagnostics: known chains get known verdicts, held-out cells are really hidden."""

from __future__ import annotations

import numpy as np
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.diagnostics import (
    MAX_R_HAT,
    _advice,
    _held_out_advice,
    diagnose,
    hold_out,
    predict_cells,
    summarize,
)
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.tensors import count_tensors


@pytest.fixture(scope="module")
def counts():
    return count_tensors(toy_city(n_users=20, n_places=20, seed=0).traces)


def test_chains_of_one_distribution_have_met_and_shifted_ones_have_not():
    chains = np.random.default_rng(0).normal(size=(4, 500))
    table = summarize({"same": chains, "apart": chains + np.arange(4)[:, None]})
    assert table.loc["same", "r_hat"] < MAX_R_HAT
    # 2,000 independent draws: the estimate of their number scatters by about a tenth.
    assert table.loc["same", "ess_bulk"] == pytest.approx(2000, rel=0.3)
    assert table.loc["apart", "r_hat"] > 1.5
    assert table.loc["same", "mean"] == pytest.approx(chains.mean())


def test_advice_names_the_worst_quantity():
    chains = np.random.default_rng(0).normal(size=(4, 500))
    good = {"a": chains}
    assert _advice(summarize(good), good, 500, 4) == []
    bad = {"a": chains, "b": chains + np.arange(4)[:, None]}
    met, few = _advice(summarize(bad), bad, 500, 4)
    assert "for b" in met
    assert "1 of 2 quantities" in few


@pytest.mark.parametrize(
    ("error", "word"),
    [(np.linspace(2, 1, 100), "still falls"), (np.linspace(1, 2, 100), "rose"), (np.ones(100), "settled")],
)
def test_advice_on_held_out_errors(error, word):
    assert word in _held_out_advice("visits", error[None])


def test_held_out_cells_are_not_shown(counts):
    shown, hidden = hold_out(counts, 0.2, seed=1)
    for name, tensor in counts._asdict().items():
        left, index, value = getattr(shown, name), hidden[name].index, hidden[name].value
        cell = {tuple(c) for c in np.stack([left.user, left.place, left.other], axis=1).tolist()}
        assert not cell & {tuple(c) for c in index.tolist()}
        n_positive = int((value > 0).sum())
        assert len(left.user) + n_positive == len(tensor.user)
        assert 0 < n_positive < 0.4 * len(tensor.user)
        truth = dict(zip(zip(*(a.tolist() for a in tensor[:3]), strict=True), tensor.count.tolist(), strict=True))
        assert [truth.get(tuple(c), 0) for c in index.tolist()] == value.tolist()


def test_predicted_cells_are_the_products_of_the_rows():
    rng = np.random.default_rng(0)
    factors = tuple(rng.normal(size=(2, 3, n, 4)) for n in (5, 6, 7))
    index = np.array([[0, 1, 2], [4, 5, 6]])
    expected = [
        [[float(sum(a[u] * b[i] * c[j])) for u, i, j in index.tolist()] for a, b, c in zip(*chain, strict=True)]
        for chain in zip(*factors, strict=True)
    ]
    np.testing.assert_allclose(predict_cells(factors, index), expected, rtol=1e-12)


def test_a_diagnosis_watches_joint_errors_sizes_and_cells(counts):
    diagnosis = diagnose(counts, SHARED, GibbsSettings(rank=2), zeros="weighted", n_zeros=50, n_sweeps=20, n_chains=2)
    names = set(diagnosis.table.index)
    assert {"log_joint", "rmse_transitions", "rmse_visits", "size_user", "size_slot"} <= names
    assert sum(name.startswith("cell_") for name in names) > 20
    assert diagnosis.trace["held_out_visits"].shape == (2, 20)
    average = diagnosis.trace["held_out_average_visits"]
    assert np.isnan(average[:, :10]).all()
    assert np.isfinite(average[:, 10:]).all()
    assert diagnosis.advice


@pytest.mark.parametrize("options", [{"n_chains": 1}, {"n_sweeps": 5}, {"held_out": 0.0}])
def test_impossible_diagnoses(counts, options):
    with pytest.raises(InputError, match="at least 2 chains"):
        diagnose(counts, SHARED, GibbsSettings(rank=2), **options)
