"""Joint tests of the sampler: sweeps leave the joint distribution of parameters and data as it was.

Thousands of independent chains start with exact draws from the joint distribution (made by SciPy, not by this package),
then alternate sweeps and fresh data given the parameters (Geweke 2004). If and only if every conditional is right, the
parameters are still distributed as at the start. Means of functions of them before and after are compared in standard
errors of their difference over the chains, which are independent, so that no autocorrelation has to be estimated. Five
standard errors are a false alarm in 1.7 million for each function (normal approximation; the hyper-prior has enough
degrees of freedom for the moments that this needs); the seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

from ppmtf_jax.gibbs import kernel
from ppmtf_jax.gibbs.cells import ObservedCells, lay_out_cells
from ppmtf_jax.gibbs.conditionals import (
    FactorPrior,
    HyperPrior,
    NormalWishart,
    hyper_conditional,
    row_conditional,
)
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings, GibbsState
from ppmtf_jax.gibbs.run import sweep_chain
from ppmtf_jax.runtime.devices import mesh_of

RANK = 2
ROWS = {"user": 3, "place": 2, "next_place": 2, "slot": 3}
HYPER = HyperPrior(mean=0.5, mean_strength=2.0, scale=0.25, degrees_of_freedom=12.0)
SETTINGS = GibbsSettings(RANK, 2.0, HYPER)
LIMIT = 5.0


def exact_draws(n_rows: int, n_chains: int, seed: int) -> tuple[FactorPrior, np.ndarray]:
    """Mean, precision and rows of a factor from the prior of the model, for every chain."""
    rng = np.random.default_rng(seed)
    scale = HYPER.scale * np.eye(RANK)
    precision = stats.wishart(HYPER.degrees_of_freedom, scale).rvs(n_chains, random_state=rng)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    mean = HYPER.mean + np.einsum("cij,cj->ci", root, rng.normal(size=(n_chains, RANK))) / np.sqrt(HYPER.mean_strength)
    rows = mean[:, None] + np.einsum("cij,cnj->cni", root, rng.normal(size=(n_chains, n_rows, RANK)))
    prior = FactorPrior(jnp.asarray(mean, jnp.float32), jnp.asarray(precision, jnp.float32))
    return prior, jnp.asarray(rows, jnp.float32)


def largest_z(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> float:
    """Over all functions (leaves; chains first), the largest mean change in standard errors."""
    worst = 0.0
    for name in before:
        change = np.asarray(after[name], np.float64) - np.asarray(before[name], np.float64)
        assert np.isfinite(change).all()
        worst = max(worst, np.abs(change.mean(0) / (change.std(0, ddof=1) / np.sqrt(len(change)))).max())
    return worst


BUGS = (
    "uncentred scatter",
    "degrees of freedom",
    "scale for inverse",
    "mean term dropped",
    "visits forgotten",
    "prior mean dropped",
)


class Planted:
    """The blocks of the sweep with bugs that numbers switch on, so that one compiled program serves all of them."""

    def __init__(self, switches: jax.Array):
        self.uncentred, self.degrees, self.scale, self.mean_term, self.visits, self.prior_mean = switches

    def hyper_conditional(self, factor: jax.Array, hyper: HyperPrior) -> NormalWishart:
        """Eqs. (25) and (28) as printed take the scatter about zero, beside the mean term."""
        good, n = hyper_conditional(factor, hyper), factor.shape[0]
        centre = factor.mean(axis=0)
        shift = centre - hyper.mean
        mean_term = hyper.mean_strength * n / (hyper.mean_strength + n) * jnp.outer(shift, shift)
        wrong = self.uncentred * n * jnp.outer(centre, centre) - self.mean_term * mean_term
        wrong += self.scale * (hyper.scale - 1 / hyper.scale) * jnp.eye(len(centre))
        return good._replace(
            inverse_scale_matrix=good.inverse_scale_matrix + wrong,
            degrees_of_freedom=good.degrees_of_freedom - self.degrees,
        )

    def total_statistics(self, original, design, n_rows, axis):
        """The place block is the one that could forget a tensor without being noticed by its size."""
        statistics = original(design, n_rows, axis)
        # Only the place block has this many rows of its own and this many slots beside it.
        forgotten = self.visits if n_rows == ROWS["place"] and len(design.right) == ROWS["slot"] else 0.0
        return statistics * (1 - forgotten)

    def row_conditional(self, prior: FactorPrior, cells: jax.Array, alpha: float) -> jax.Array:
        return row_conditional(prior._replace(mean=prior.mean * (1 - self.prior_mean)), cells, alpha)


def switches(bug: str | None) -> jax.Array:
    return jnp.array([float(bug == name) for name in BUGS])


def observe_everything(others: int) -> ObservedCells:
    """Every cell of a tensor observed; the value is the cell's number."""
    shape = (ROWS["user"], ROWS["place"], others)
    index = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    laid_out = lay_out_cells(index, np.arange(len(index), dtype=np.float32), shape)
    return jax.tree.map(jnp.asarray, laid_out)


def with_values(numbered: ObservedCells, values: jax.Array) -> ObservedCells:
    past_the_last = values.shape[2], values.shape[2], values.shape[1]
    by_mode = tuple(
        tiles._replace(value=jnp.where(tiles.right < end, values.ravel()[tiles.value.astype(int)], 0))
        for tiles, end in zip(numbered.by_mode, past_the_last, strict=True)
    )
    return numbered._replace(by_mode=by_mode)


def rebuilt(factors: dict[str, jax.Array], modes: tuple[str, str, str]) -> jax.Array:
    return jnp.einsum("ur,pr,or->upo", *(factors[name] for name in modes))


def functions_of_state(state: GibbsState) -> dict[str, np.ndarray]:
    """Of states with a leading chain axis."""
    values, factors = {}, {name: np.asarray(rows) for name, rows in state.factors.items()}
    for name, rows in factors.items():
        values[name] = rows
        values[f"{name} square"] = rows[:, :, :, None] * rows[:, :, None]
        values[f"{name} mean"], values[f"{name} precision"] = map(np.asarray, state.priors[name])
    for tensor, modes in SHARED.tensors:
        values[tensor] = np.einsum("cur,cpr,cor->cupo", *(factors[name] for name in modes))
    return values


@pytest.fixture(scope="module")
def sweep_z():
    """Alternate data given the parameters and a sweep given the data."""
    n_chains, n_sweeps = 2000, 2
    numbered = {name: observe_everything(ROWS[modes[2]]) for name, modes in SHARED.tensors}
    drawn = {name: exact_draws(n, n_chains, seed) for seed, (name, n) in enumerate(ROWS.items())}
    start = GibbsState(
        {name: rows for name, (_, rows) in drawn.items()},
        {name: prior for name, (prior, _) in drawn.items()},
        jnp.zeros(n_chains, jnp.int32),
    )
    before, keys = functions_of_state(start), jax.random.split(jax.random.key(2), n_chains)
    original, one_device = kernel.total_statistics, mesh_of(jax.devices()[:1])

    def one_sweep(state, key):
        data_key, sweep_key = jax.random.split(key)
        cells = {}
        for i, (name, modes) in enumerate(SHARED.tensors):
            exact = rebuilt(state.factors, modes)
            noise = jax.random.normal(jax.random.fold_in(data_key, i), exact.shape)
            cells[name] = with_values(numbered[name], exact + noise / np.sqrt(SETTINGS.noise_precision))
        # The program that `run_gibbs` runs, on one device, asked for one sweep.
        given = SETTINGS.noise_precision, SHARED, replace(SETTINGS, noise_precision=1.0), one_device
        return sweep_chain(sweep_key, state, cells, 1, *given)[0], None

    @jax.jit
    def run(bugs, keys, state):
        planted = Planted(bugs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "hyper_conditional", planted.hyper_conditional)
            patch.setattr(kernel, "total_statistics", partial(planted.total_statistics, original))
            patch.setattr(kernel, "row_conditional", planted.row_conditional)
            return jax.vmap(lambda key, s: lax.scan(one_sweep, s, jax.random.split(key, n_sweeps))[0])(keys, state)

    def z(bug: str | None) -> float:
        return largest_z(before, functions_of_state(run(switches(bug), keys, start)))

    return z


def test_whole_sweep(sweep_z):
    assert sweep_z(None) < LIMIT


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_in_the_sweep_are_caught(sweep_z, bug):
    assert sweep_z(bug) > LIMIT
