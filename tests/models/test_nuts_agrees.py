"""NUTS on the NumPyro program and our sweep draw the same posterior.

On a small problem whose factors are weakly determined, so that prior and data both matter, the posterior means of every
cell's expected count and of its square are compared. These do not depend on how factors are labelled, signed or scaled.
Both samplers must first reach an effective sample size; then a difference is measured in its Monte Carlo standard error
sqrt(var_1 / ess_1 + var_2 / ess_2). |z| > 5 is a false alarm in 1.7 million for each of the 90 quantities (normal
approximation); the seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from ppmtf_jax.models.mtf_numpyro import Cells, expected_cells, mtf

from ppmtf_jax.gibbs import kernel
from ppmtf_jax.gibbs.cells import lay_out_cells
from ppmtf_jax.gibbs.conditionals import HyperPrior, hyper_conditional
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.mcmc_kernel import MTFGibbs

pytestmark = pytest.mark.slow

RANK = 2
ROWS = {"user": 3, "place": 3, "next_place": 3, "slot": 2}
ZERO_WEIGHT = np.array([0.4, 0.1, 0.7])
HYPER = HyperPrior(mean=0.5, mean_strength=2.0, scale=0.25, degrees_of_freedom=12.0)
SETTINGS = GibbsSettings(RANK, 2.0, HYPER)
MIN_EFFECTIVE = 1000
LIMIT = 5.0


class Summary(NamedTuple):
    """Posterior mean of each quantity, its Monte Carlo standard error and its effective sample size."""

    mean: np.ndarray
    error: np.ndarray
    effective: np.ndarray


def shape_of(modes: tuple[str, str, str]) -> tuple[int, ...]:
    return tuple(ROWS[name] for name in modes)


def small_problem() -> dict[str, Cells]:
    """All cells of both tensors, most of them drawn about a product of random factors, the rest weighted zeros."""
    rng = np.random.default_rng(0)
    factors = {name: rng.normal(0.5, 0.7, (n, RANK)) for name, n in ROWS.items()}
    cells = {}
    for tensor, modes in SHARED.tensors:
        index = np.argwhere(np.ones(shape_of(modes)))
        value = rng.normal(expected_cells(factors, modes, index), SETTINGS.noise_precision**-0.5).astype(np.float32)
        is_zero = rng.random(len(index)) < 0.3
        weight = np.where(is_zero, ZERO_WEIGHT[index[:, 0]], 1).astype(np.float32)
        cells[tensor] = Cells(index, np.where(is_zero, 0, value), weight)
    return cells


def summarize(draws: dict[str, jax.Array]) -> Summary:
    """Draws of the factors, shapes (chains, draws, rows, rank), as expected counts of all cells and their squares."""
    expected = [
        np.asarray(expected_cells(draws, modes, np.argwhere(np.ones(shape_of(modes)))), np.float64)
        for _, modes in SHARED.tensors
    ]
    cells = np.concatenate(expected, axis=-1)
    quantities = np.concatenate([cells, cells**2], axis=-1)
    effective = effective_sample_size(quantities)
    return Summary(quantities.mean((0, 1)), quantities.std((0, 1)) / np.sqrt(effective), effective)


def largest_z(one: Summary, other: Summary) -> float:
    for summary in (one, other):
        assert summary.effective.min() > MIN_EFFECTIVE
    return float((np.abs(one.mean - other.mean) / np.hypot(one.error, other.error)).max())


@pytest.fixture(scope="module")
def by_nuts() -> Summary:
    # As a closure, so that NumPyro compiles one program for all chains.
    model = partial(mtf, small_problem(), ROWS, SHARED, SETTINGS)
    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=5000,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0))
    assert float(mcmc.get_extra_fields()["diverging"].mean()) < 1e-3
    return summarize(mcmc.get_samples(group_by_chain=True))


def by_gibbs(settings: GibbsSettings = SETTINGS) -> Summary:
    cells = {}
    for tensor, modes in SHARED.tensors:
        index, value, weight, _ = small_problem()[tensor]
        stored = weight == 1
        cells[tensor] = lay_out_cells(index[stored], value[stored], shape_of(modes), ZERO_WEIGHT)
    mcmc = MCMC(
        MTFGibbs(SHARED, settings, ROWS),
        num_warmup=500,
        num_samples=5000,
        num_chains=20,
        chain_method="vectorized",
        progress_bar=False,
        jit_model_args=True,
    )
    mcmc.run(jax.random.key(1), jax.tree.map(jnp.asarray, cells))
    return summarize(mcmc.get_samples(group_by_chain=True))


def test_nuts_and_gibbs_agree(by_nuts):
    assert largest_z(by_nuts, by_gibbs()) < LIMIT


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, noise_precision=2.2),
        replace(SETTINGS, hyper=replace(HYPER, degrees_of_freedom=11.0)),
        replace(SETTINGS, hyper=replace(HYPER, scale=4.0)),
    ],
    ids=["noise precision", "degrees of freedom", "scale for inverse"],
)
def test_other_settings_are_told_apart(by_nuts, settings):
    assert largest_z(by_nuts, by_gibbs(settings)) > LIMIT


def test_an_uncentred_scatter_is_caught(by_nuts, monkeypatch):
    """Eqs. (25) and (28) as printed."""

    def uncentred(factor, hyper):
        good, centre = hyper_conditional(factor, hyper), factor.mean(axis=0)
        wrong = factor.shape[0] * jnp.outer(centre, centre)
        return good._replace(inverse_scale_matrix=good.inverse_scale_matrix + wrong)

    monkeypatch.setattr(kernel, "hyper_conditional", uncentred)
    assert largest_z(by_nuts, by_gibbs()) > LIMIT
