"""Diagnostics: known chains get known verdicts, held-out cells are really hidden."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ppmtf_jax.data.tensors import SparseCounts, count_tensors, sample_zeros
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.diagnostics import (
    MAX_R_HAT,
    _advice,
    _held_out_advice,
    _rounded_up,
    diagnose,
    hold_out,
    predict_cells,
    reconstruction_errors,
    summarize,
)
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings


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


def watched(**chains) -> dict[str, np.ndarray]:
    """Traces of 500 sweeps, as summarized over their second half."""
    return {f"size_{name}": values for name, values in chains.items()}


def advice_on(trace: dict[str, np.ndarray]) -> list[str]:
    return _advice(summarize({name: values[:, 250:] for name, values in trace.items()}), trace, 500, 4)


@pytest.fixture
def chains() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(4, 500))


def test_advice_says_when_the_sweeps_were_enough(chains):
    assert advice_on(watched(user=chains)) == [
        "500 sweeps were enough for the chains to meet: R-hat is at most 1.01 for all 1 quantities."
    ]


def test_advice_names_the_worst_quantity(chains):
    not_met, few = advice_on(watched(user=chains, place=chains + np.arange(4)[:, None]))
    assert not_met.startswith("500 sweeps were not enough: the chains have not met.")
    assert "for the mean square of place" in not_met
    assert "above 1.01 for 1 of 2 quantities" in not_met
    assert "predicted cell" not in not_met
    assert "1 of 2 quantities have fewer than 400 effective draws" in few


def test_advice_tells_how_far_the_predictions_are(chains):
    trace = watched(place=chains + np.arange(4)[:, None]) | {"cell_visits_1": chains, "cell_visits_2": -chains}
    assert re.search(r"after half the sweeps\), 1\.0\d for the worst predicted cell and above", advice_on(trace)[0])


def test_advice_tells_chains_that_come_nearer_from_those_that_stay_apart(chains):
    start = np.arange(4)[:, None]
    near = start * np.where(np.arange(500) < 250, 5.0, 1.0)
    assert (
        "They come nearer, too slowly to foretell when they meet: try n_sweeps=2000."
        in advice_on(watched(user=chains + near))[0]
    )
    apart = start * np.where(np.arange(500) < 250, 1.0, 5.0)
    assert "They hardly come nearer" in advice_on(watched(user=chains + apart))[0]


def test_advice_foretells_sweeps_where_it_is_no_guess(chains):
    # Of shifts (-s, s, -s, s) with noise of variance 1 the squared R-hat is near 1 + 4/3 s^2: here 1 + 0.08, four times
    # as far from 1 as 1.01^2.
    trace = watched(user=chains + 0.245 * np.array([-1, 1, -1, 1])[:, None])
    table = summarize({name: values[:, 250:] for name, values in trace.items()})
    factor = max(2, (table["r_hat"].max() ** 2 - 1) / (MAX_R_HAT**2 - 1), 400 / table["ess_bulk"].min())
    assert 2 < factor < 10
    said = advice_on(trace)[0]
    n_needed = int(re.search(r"set n_sweeps=(\d+)\.$", said)[1])
    assert factor * 500 <= n_needed < factor * 500 + 100


@pytest.mark.parametrize(("number", "rounded"), [(101.0, 110), (110.0, 110), (2301.0, 2400), (7.0, 7), (19.2, 20)])
def test_rounding_up_to_two_digits(number, rounded):
    assert _rounded_up(number) == rounded


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

    overview, table = diagnosis.overview(), diagnosis.table
    assert [name for name in overview.index if "worst" in name] == [
        f"{sum(name.startswith(f'cell_{tensor}') for name in names)} predicted {tensor}, worst"
        for tensor in ("transitions", "visits")
    ]
    worst, cells = overview.iloc[-1], table[table.index.str.startswith("cell_visits")]
    assert worst["r_hat"] == cells["r_hat"].max()
    assert worst["ess_tail"] == cells["ess_tail"].min()
    held_out = diagnosis.held_out().loc["visits"]
    assert held_out["third_quarter"] == pytest.approx(diagnosis.trace["held_out_visits"][:, 10:15].mean())
    assert held_out["of_average"] == pytest.approx(average[:, -1].mean())
    sweeps = diagnosis.sweeps()
    assert list(sweeps.columns[:2]) == ["chain", "sweep"]
    assert not [name for name in sweeps if name.startswith("cell_")]
    row = sweeps[(sweeps["chain"] == 2) & (sweeps["sweep"] == 7)]
    assert row["log_joint"].item() == diagnosis.trace["log_joint"][1, 6]


def test_chains_differ_and_each_is_the_same_however_many_there_are(counts):
    settings = {"zeros": "weighted", "n_zeros": 50, "n_sweeps": 20}
    two, three = (diagnose(counts, SHARED, GibbsSettings(rank=2), n_chains=n, **settings) for n in (2, 3))
    np.testing.assert_array_equal(two.trace["log_joint"], three.trace["log_joint"][:2])
    assert len(np.unique(three.trace["log_joint"][:, -1])) == 3


@pytest.mark.parametrize("options", [{"n_chains": 1}, {"n_sweeps": 5}, {"held_out": 0.0}])
def test_impossible_diagnoses(counts, options):
    with pytest.raises(InputError, match="at least 2 chains"):
        diagnose(counts, SHARED, GibbsSettings(rank=2), **options)


# Reconstruction errors


@pytest.fixture(scope="module")
def reconstructed():
    """A small tensor with observed zeros, factors, and the l1 errors of the dense tensors by loops over all cells."""
    rng = np.random.default_rng(1)
    shape = (6, 5, 4)
    dense = rng.poisson(0.3, shape)
    counts = SparseCounts(*(i.astype(np.int32) for i in np.nonzero(dense)), dense[dense > 0].astype(np.int32), shape)
    zeros = sample_zeros(counts, 3, seed=2)
    factors = tuple(rng.normal(size=(n, 2)) for n in shape)
    is_zero = {tuple(cell) for cell in zeros.tolist()}
    observed = unobserved = 0.0
    for u, i, j in np.ndindex(shape):
        rebuilt = sum(factors[0][u, z] * factors[1][i, z] * factors[2][j, z] for z in range(2))
        if dense[u, i, j] or (u, i, j) in is_zero:
            observed += abs(dense[u, i, j] - rebuilt)
        else:
            unobserved += abs(rebuilt)
    return factors, counts, zeros, observed, unobserved


def test_reconstruction_errors_are_those_of_the_dense_tensor(reconstructed):
    factors, counts, zeros, observed, unobserved = reconstructed
    # Every unobserved cell is sampled: nothing is left to chance.
    found = reconstruction_errors(factors, counts, zeros, n_sampled=1000)
    assert found == pytest.approx((observed, unobserved), rel=1e-12)


def test_a_sample_of_the_unobserved_cells_estimates_their_error(reconstructed):
    factors, counts, zeros, observed, unobserved = reconstructed
    found = [reconstruction_errors(factors, counts, zeros, n_sampled=4, seed=seed) for seed in range(400)]
    estimates = np.array([each.unobserved for each in found])
    standard_error = estimates.std(ddof=1) / np.sqrt(len(estimates))
    assert abs(estimates.mean() - unobserved) < 5 * standard_error
    # As many sampled cells as there are would be 40 % off, which this tells apart.
    assert 5 * standard_error < 0.1 * unobserved
    assert {each.observed for each in found} == {found[0].observed}
    assert found[0].observed == pytest.approx(observed, rel=1e-12)


def test_forgotten_zeros_are_noticed(reconstructed):
    factors, counts, zeros, observed, unobserved = reconstructed
    found = reconstruction_errors(factors, counts, zeros[:0])
    assert found.observed < observed - 0.1
    assert sum(found) == pytest.approx(observed + unobserved, rel=1e-12)
