"""SVI and NUTS of the NumPyro program: batches are unbiased, results are reproducible, and models are found."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppmtf_jax.models.inference import draw_batch, run_nuts, run_svi
from ppmtf_jax.models.mtf_numpyro import Cells, expected_cells

from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.models import inference

N_ROWS = {"user": 3, "place": 4, "next_place": 4, "slot": 2}
SETTINGS = GibbsSettings(rank=2, noise_precision=100.0)


def cells_of(seed: int = 0) -> dict[str, Cells]:
    """All cells of products of positive factors, a third of them zero users."""
    rng = np.random.default_rng(seed)
    factors = {name: rng.uniform(0.5, 1.5, (n, 2)) for name, n in N_ROWS.items()}
    factors["user"][0] = 0
    cells = {}
    for tensor, modes in SHARED.tensors:
        index = np.argwhere(np.ones([N_ROWS[mode] for mode in modes]))
        cells[tensor] = Cells(index, np.asarray(expected_cells(factors, modes, index), np.float32))
    return cells


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n_positive", "n_others"), [(5, 40), (40, 5), (30, 0), (20, 20)])
def test_batches_are_unbiased(n_positive, n_others, weighted):
    """Sums over batches against the sum over all cells: five standard errors, a false alarm in 1.7 million each."""
    rng = np.random.default_rng(0)
    n, batch = n_positive + n_others, 2 if n_others == 5 else 16
    weight = jnp.asarray(rng.uniform(0.5, 2, n)) if weighted else None
    cells = Cells(jnp.arange(n)[:, None], jnp.where(jnp.arange(n) < n_positive, 1.0, 0.0), weight)
    size = jnp.asarray(rng.normal(3, 1, n))
    draw = jax.jit(jax.vmap(partial(draw_batch, cells=cells, kinds=(n_positive, n_others), n_cells=batch)))
    index, value, weights, _ = draw(jax.random.split(jax.random.key(1), 20_000))
    assert index.shape == (20_000, batch, 1)
    every = np.ones(n) if weight is None else np.asarray(weight)
    for which in (0.0, 1.0):  # either kind for itself
        terms = np.asarray(jnp.where(value == which, weights * size[index[..., 0]], 0), np.float64)
        sums, own = terms.sum(axis=1), np.asarray(cells.value) == which
        error = max(sums.std() / np.sqrt(len(sums)), 1e-4)
        assert abs(sums.mean() - (every * np.asarray(size))[own].sum()) < 5 * error
        if own.any():  # planted: one scale for both kinds
            planted = (np.asarray(value) == which).sum(axis=1) * every[own].mean() * n / batch
            both = n_positive and n_others
            assert not both or n_positive == n_others or abs(planted.mean() - every[own].sum()) > 5 * error


def test_few_cells_are_taken_whole():
    cells = Cells(jnp.zeros((3, 3), int), jnp.ones(3))
    assert draw_batch(jax.random.key(0), cells, (3, 0), 3) is cells


def test_nuts_refuses_large_problems():
    with pytest.raises(InputError, match="at most 20,000 unknowns; found 32,") as caught:
        run_nuts(jax.random.key(0), cells_of(), N_ROWS | {"user": 16_000}, SHARED, SETTINGS)
    assert "inference=svi" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["delta", "normal"])
def test_svi_finds_the_cells_and_repeats_itself(guide):
    """From all cells and from batches; the guides find noise-free counts up to the noise of the model, 0.1."""
    found = {}
    for batch in (1000, 12):
        fit = partial(run_svi, cells=cells_of(), n_rows=N_ROWS, settings=SETTINGS, guide=guide, batch_cells=batch)
        found[batch] = fit(jax.random.key(0), n_steps=1010)
        for tensor, modes in SHARED.tensors:
            index, value, *_ = cells_of()[tensor]
            assert np.sqrt(np.mean((expected_cells(found[batch], modes, index) - value) ** 2)) < 0.2
    again = fit(jax.random.key(0), n_steps=1010)
    assert all(bool((again[name] == found[12][name]).all()) for name in again)
    assert not bool((fit(jax.random.key(1), n_steps=1010)["user"] == again["user"]).all())


@pytest.mark.slow
def test_nuts_says_how_its_chains_agree(monkeypatch):
    draws = run_nuts(jax.random.key(0), cells_of(), N_ROWS, SHARED, GibbsSettings(2, 2.0), n_draws=300)
    assert draws.sites["user"].shape == (inference.N_CHAINS, 300, 3, 2)
    assert draws.r_hat < 1.1
    few = run_nuts(jax.random.key(0), cells_of(), N_ROWS, SHARED, GibbsSettings(2, 2.0), n_draws=8)
    assert few.r_hat > draws.r_hat
