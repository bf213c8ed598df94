"""Diagnostics: known chains get known verdicts, held-out cells are really hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import diagnostics, run
from ppmtf_jax.gibbs.cells import ObservedCells
from ppmtf_jax.gibbs.diagnostics import (
    MAX_R_HAT,
    Diagnosis,
    advise,
    diagnose,
    hold_out,
    summarize,
)
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.run import Quantity
from ppmtf_jax.gibbs.tensors import CountTensors, count_tensors
from tests.machine import with_gigabytes
from tests.tensors import sparse


@pytest.fixture(scope="module")
def counts():
    return count_tensors(toy_city(n_users=20, n_places=20, seed=0).traces, seed=0)


def test_chains_of_one_distribution_have_met_and_shifted_ones_have_not():
    chains = np.random.default_rng(0).normal(size=(4, 500))
    same, apart = Quantity("size", "same"), Quantity("size", "apart")
    table = summarize({same: chains, apart: chains + np.arange(4)[:, None]}).rename(index=lambda name: name[5:])
    assert table.loc["same", "r_hat"] < MAX_R_HAT
    # 2,000 independent draws: the estimate of their number scatters by about a tenth.
    assert table.loc["same", "ess_bulk"] == pytest.approx(2000, rel=0.3)
    assert table.loc["apart", "r_hat"] > 1.5
    assert table.loc["same", "mean"] == pytest.approx(chains.mean())


def watched(**chains) -> dict[Quantity, np.ndarray]:
    """Traces of 500 sweeps, as summarized over their second half."""
    return {Quantity("size", name): values for name, values in chains.items()}


def advice_on(trace: dict[Quantity, np.ndarray]) -> list[str]:
    return advise(summarize({quantity: values[:, 250:] for quantity, values in trace.items()}), trace)


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
    trace = watched(place=chains + np.arange(4)[:, None]) | {
        Quantity("cell", "visits", 1): chains,
        Quantity("cell", "visits", 2): -chains,
    }
    assert re.search(r"after half the sweeps\), 1\.0\d for the worst predicted cell and above", advice_on(trace)[0])


def test_advice_tells_chains_that_come_nearer_from_those_that_stay_apart(chains):
    start = np.arange(4)[:, None]
    near = start * np.where(np.arange(500) < 250, 5.0, 1.0)
    assert (
        "They approach each other, but too slowly to predict when they meet: try n_sweeps=2000."
        in advice_on(watched(user=chains + near))[0]
    )
    apart = start * np.where(np.arange(500) < 250, 1.0, 5.0)
    assert "They hardly approach each other" in advice_on(watched(user=chains + apart))[0]


def test_advice_foretells_sweeps_where_it_is_no_guess(chains):
    # Of shifts (-s, s, -s, s) with noise of variance 1 the squared R-hat is near 1 + 4/3 s^2: here 1 + 0.08, four times
    # as far from 1 as 1.01^2.
    trace = watched(user=chains + 0.245 * np.array([-1, 1, -1, 1])[:, None])
    table = summarize({quantity: values[:, 250:] for quantity, values in trace.items()})
    factor = max(2, (table["r_hat"].max() ** 2 - 1) / (MAX_R_HAT**2 - 1), 400 / table["ess_bulk"].min())
    assert 2 < factor < 10
    said = advice_on(trace)[0]
    n_needed = int(re.search(r"set n_sweeps=(\d+)\.$", said)[1])
    assert factor * 500 <= n_needed < factor * 500 + 100


@pytest.mark.parametrize(
    ("error", "word"),
    [(np.linspace(2, 1, 100), "still falls"), (np.linspace(1, 2, 100), "rose"), (np.ones(100), "settled")],
)
def test_advice_on_held_out_errors(error, word):
    chains = np.random.default_rng(0).normal(size=(1, 100))
    table = summarize({Quantity("log_joint"): np.repeat(chains, 2, axis=0)})
    trace = {Quantity("log_joint"): chains, Quantity("held_out", "visits"): error[None]}
    said = advise(table, trace)[-1]
    assert word in said
    assert said.startswith("Held-out error of the visits")


def test_held_out_cells_are_not_shown(counts):
    assert all((cells.value > 0).sum() == 1 for cells in hold_out(counts, 1e-12, seed=1)[1].values())
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
        per_user = [np.bincount(index[chosen, 0], minlength=20) for chosen in (value > 0, value == 0)]
        assert per_user[0].max() > 1
        np.testing.assert_array_equal(*per_user)


class Seen(NamedTuple):
    """What the sampler got, the draws of all chains, and what it was told to keep of each."""

    cells: dict[str, ObservedCells]
    draws: list[dict[str, jax.Array]]
    kept: list[dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def sampled() -> Iterator[Seen]:
    """A stand-in for the sampler, which takes long to compile: its draws depend on the key alone."""
    got = Seen({}, [], [])

    def sampler(key, cells, n_rows, coupling, settings, *, n_sweeps, kept_of=run.factors_of_draw, **_):
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        got.cells.update(cells)
        chain = [
            {name: jnp.asarray(rng.random((1, n, settings.rank))) for name, n in n_rows.items()}
            for _ in range(n_sweeps)
        ]
        kept = [kept_of(draw) for draw in chain]
        got.draws.extend(chain)
        got.kept.extend(kept)
        draws = {name: np.stack([each[name] for each in kept], axis=1) for name in kept[0]}
        trace = {quantity: rng.random((1, n_sweeps)) for quantity in run.watched(coupling)}
        return run.GibbsResult(None, draws, np.arange(n_sweeps), trace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnostics, "run_gibbs", sampler)
        yield got


@pytest.fixture
def seen(sampled) -> Seen:
    for part in sampled:
        part.clear()
    return sampled


def test_cells_are_predicted_while_the_chains_run_and_no_draw_is_kept(counts, seen):
    """Against all draws, kept: in single precision to seven digits."""
    diagnosis = diagnose(counts, SHARED, GibbsSettings(rank=2), n_sweeps=21, n_chains=2, held_out=0.2, seed=1)
    _, hidden = hold_out(counts, 0.2, seed=1)
    for tensor, modes in SHARED.tensors:
        index, value = hidden[tensor]
        factors = [np.stack([draw[name][0] for draw in seen.draws]) for name in modes]
        a, b, c = (factor[:, rows] for factor, rows in zip(factors, index.T, strict=True))
        predicted = (a * b * c).sum(axis=-1).reshape(2, 21, -1)
        for chain, sweep in np.ndindex(2, 21):
            error = {"held_out": predicted[chain, sweep] - value}
            error["held_out_average"] = predicted[chain, 10 : sweep + 1].sum(axis=0) / max(sweep - 9, 1) - value
            if sweep < 10:
                error["held_out_average"][:] = np.nan
            for kind, difference in error.items():
                ours = diagnosis.trace[Quantity(kind, tensor)][chain, sweep]
                np.testing.assert_allclose(ours, np.sqrt(np.mean(difference**2)), rtol=1e-6)
        cells = [quantity for quantity in diagnosis.trace if quantity.kind == "cell" and quantity.of == tensor]
        assert len(cells) == 50
        for cell in cells:
            np.testing.assert_allclose(diagnosis.trace[cell], predicted[..., cell.number], rtol=1e-6)
    # Two errors of each tensor and the cells, whatever the number of users.
    assert {sum(array.size for array in kept.values()) for kept in seen.kept} == {2 * (2 + 50)}


def test_a_diagnosis_that_would_not_fit_is_refused_before_it_begins(counts, monkeypatch):
    with_gigabytes(monkeypatch, 1e-6)
    monkeypatch.setattr(diagnostics, "observe", lambda *_, **__: pytest.fail("it began"))
    with pytest.raises(InputError, match=r"GB of memory \(an estimate\); found 0\.0 GB available"):
        diagnose(counts, SHARED, GibbsSettings(rank=2), seed=0)


def full_of_ones(n_zeros: int) -> CountTensors:
    """Two users whose cells are all positive but for the last few."""
    dense = np.ones((2, 5, 8), np.int32)
    dense.reshape(2, -1)[:, 40 - n_zeros :] = 0
    return CountTensors(sparse(dense), sparse(dense))


@pytest.mark.usefixtures("seen")
def test_a_user_with_few_zeros_holds_out_all_of_them_and_it_is_said():
    shown, hidden = hold_out(full_of_ones(3), 0.5, seed=0)
    for left, (index, value) in zip(shown, hidden.values(), strict=True):
        assert np.bincount(index[value > 0, 0]).min() > 3
        np.testing.assert_array_equal(np.bincount(index[value == 0, 0]), [3, 3])
        assert len(left.user) + np.sum(value > 0) == 2 * 37
    settings = {"n_zeros": 50, "n_sweeps": 20, "n_chains": 2, "held_out": 0.5, "seed": 0}
    note = diagnose(full_of_ones(3), SHARED, GibbsSettings(rank=2), **settings).held_out_note
    n_positive = [int(np.sum(value > 0)) for _, value in hidden.values()]
    assert note == (
        f"Held out: {n_positive[0]} positive and 6 zero transitions (users with fewer have no more), "
        f"{n_positive[1]} positive and 6 zero visits (users with fewer have no more). The sampler observes none of "
        "these cells."
    )


def test_a_tensor_without_cells_cannot_be_held_out(counts):
    none = counts.visits.select(np.zeros(len(counts.visits.user), bool))
    with pytest.raises(InputError, match="visits: expected at least one positive cell"):
        hold_out(counts._replace(visits=none), 0.1, seed=0)


@pytest.mark.parametrize("zeros", ["sampled", "weighted"])
def test_a_diagnosis_hides_from_the_sampler_what_it_holds_out_and_says_what_it_cannot(counts, seen, zeros):
    """Read off the cells that the sampler gets. With weighted zeros all cells but the stored ones count as zeros."""
    # So many that every zero cell is drawn that may be.
    options = {"zeros": zeros, "n_zeros": 10_000, "n_sweeps": 20, "n_chains": 2, "held_out": 0.2, "seed": 1}
    diagnosis = diagnose(counts, SHARED, GibbsSettings(rank=2), **options)
    shown, hidden = hold_out(counts, 0.2, seed=1)
    for name, tensor in shown._asdict().items():
        tiles = seen.cells[name].by_mode[0]
        n_stored = int(np.sum(tiles.right < tensor.shape[2]))
        n_cells = int(np.prod(tensor.shape))
        if zeros == "sampled":
            assert n_stored == n_cells - len(hidden[name].index)
            assert seen.cells[name].zero_weight is None
        else:
            assert n_stored == len(tensor.user)
            assert float(seen.cells[name].total_weight) == n_cells
    assert ("observes none of these cells" in diagnosis.held_out_note) == (zeros == "sampled")
    assert ("the zeros were not hidden from it" in diagnosis.held_out_note) == (zeros == "weighted")


def diagnosis_of(counts: CountTensors, n_chains: int) -> Diagnosis:
    settings = {"zeros": "weighted", "n_zeros": 50, "n_sweeps": 20, "n_chains": n_chains, "seed": 0}
    return diagnose(counts, SHARED, GibbsSettings(rank=2), **settings)


@pytest.fixture(scope="module")
def diagnosis(counts, sampled) -> Diagnosis:
    return diagnosis_of(counts, 2)


def test_a_diagnosis_watches_joint_errors_sizes_and_cells(diagnosis):
    names = set(diagnosis.table.index)
    assert {"log_joint", "rmse_transitions", "rmse_visits", "size_user", "size_slot"} <= names
    cells = [quantity for quantity in diagnosis.trace if quantity.kind == "cell"]
    assert len(cells) > 20
    assert {str(cell) for cell in cells} <= names
    assert not names & {"held_out_visits", "held_out_average_visits"}
    single, average = (diagnosis.trace[Quantity(kind, "visits")] for kind in ("held_out", "held_out_average"))
    assert single.shape == (2, 20)
    assert np.isnan(average[:, :10]).all()
    assert np.isfinite(average[:, 10:]).all()
    assert diagnosis.advice

    overview, table = diagnosis.overview(), diagnosis.table
    assert {"log joint density", "error at visits", "mean square of next_place"} <= set(overview.index)
    assert [name for name in overview.index if "worst" in name] == [
        f"{sum(cell.of == tensor for cell in cells)} predicted {tensor}, worst" for tensor in ("transitions", "visits")
    ]
    worst, own = overview.iloc[-1], table.loc[[str(cell) for cell in cells if cell.of == "visits"]]
    assert worst["r_hat"] == own["r_hat"].max()
    assert worst["ess_tail"] == own["ess_tail"].min()
    held_out = diagnosis.held_out().loc["visits"]
    assert held_out["third_quarter"] == pytest.approx(single[:, 10:15].mean())
    assert held_out["of_average"] == pytest.approx(average[:, -1].mean())
    sweeps = diagnosis.sweeps()
    shown = [quantity for quantity in diagnosis.trace if quantity.kind != "cell"]
    assert list(sweeps.columns) == ["chain", "sweep", *map(str, shown)]
    row = sweeps[(sweeps["chain"] == 2) & (sweeps["sweep"] == 7)]
    assert row["log_joint"].item() == diagnosis.trace[Quantity("log_joint")][1, 6]


def test_chains_differ_and_each_is_the_same_however_many_there_are(counts, diagnosis):
    first, second = (each.trace[Quantity("log_joint")] for each in (diagnosis, diagnosis_of(counts, 3)))
    np.testing.assert_array_equal(first, second[:2])
    assert len(np.unique(second[:, -1])) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_chains": 1}, "at least 2 chains; found 1"),
        ({"n_sweeps": 5}, r"at least 20 sweeps; found 5\. Ask for more with n_sweeps"),
        ({"held_out": 0.0}, r"a held-out share between 0 and 1; found 0\.0"),
    ],
)
def test_impossible_diagnoses(counts, options, message):
    with pytest.raises(InputError, match=message):
        diagnose(counts, SHARED, GibbsSettings(rank=2), seed=0, **options)
