"""The NumPyro program against closed forms and SciPy, and the sampler's closed forms against the NumPyro program.

A mean of independent draws is compared with its expectation in standard errors; five of them are a false alarm in 1.7
million for each quantity (normal approximation). The seeds are fixed.
"""

from __future__ import annotations

import doctest
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.infer import SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density
from ppmtf_jax.models.mtf_numpyro import Cells, NormalWithPrecisionRoot, expected_cells, list_cells, mtf
from scipy import stats

from ppmtf_jax.gibbs import kernel
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.conditionals import (
    FactorPrior,
    HyperPrior,
    cell_statistics,
    hyper_conditional,
    row_conditional,
    with_row,
)
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings
from ppmtf_jax.gibbs.tensors import CountTensors
from ppmtf_jax.models import mtf_numpyro
from ppmtf_jax.synthesizers.systems.itf import UNSHARED
from tests.tensors import sparse

RANK = 2
USERS, PLACES, SLOTS = 3, 3, 2
HYPER = HyperPrior(mean=0.5, mean_strength=2.0, scale=0.25, degrees_of_freedom=12.0)
SETTINGS = GibbsSettings(RANK, 2.0, HYPER)
COUPLINGS = {"shared": SHARED, "unshared": UNSHARED}
ROWS = {
    "user": USERS,
    "place": PLACES,
    "next_place": PLACES,
    "slot": SLOTS,
    "visit_user": USERS,
    "visit_place": PLACES,
}
EVERY_CELL = {
    "transitions": Cells(np.argwhere(np.ones((USERS, PLACES, PLACES)))),
    "visits": Cells(np.argwhere(np.ones((USERS, PLACES, SLOTS)))),
}


@pytest.mark.slow
def test_examples_of_the_documentation():
    assert doctest.testmod(mtf_numpyro).failed == 0


# Draws from the prior


@pytest.fixture(scope="module", params=list(COUPLINGS))
def prior_draws(request):
    coupling = COUPLINGS[request.param]
    draw = Predictive(mtf, num_samples=20_000, parallel=True)
    return coupling, draw(jax.random.key(0), EVERY_CELL, ROWS, coupling, SETTINGS)


def largest_z(draws: np.ndarray, expected: np.ndarray | float) -> float:
    draws = np.asarray(draws, np.float64)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return float((np.abs(draws.mean(axis=0) - expected) / error).max())


def prior_z(draws: dict[str, np.ndarray], coupling: Coupling, settings: GibbsSettings) -> float:
    """Draws from the prior against the moments of the normal-Wishart hierarchy with these settings."""
    hyper = settings.hyper
    scale = hyper.scale * np.eye(RANK)
    row_covariance = np.linalg.inv(scale) / (hyper.degrees_of_freedom - RANK - 1)  # E[Lambda^-1]
    mean_covariance = row_covariance / hyper.mean_strength
    worst = 0.0
    for name in coupling.factors:
        root, mean, rows = (
            np.asarray(draws[site], np.float64) for site in (f"{name}_precision_root", f"{name}_mean", name)
        )
        precision = root @ root.transpose(0, 2, 1)
        variance = hyper.degrees_of_freedom * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))
        own, away = rows[:, 0] - mean, rows - hyper.mean
        worst = max(
            worst,
            largest_z(precision, hyper.degrees_of_freedom * scale),
            largest_z((precision - hyper.degrees_of_freedom * scale) ** 2, variance),
            largest_z(mean, hyper.mean),
            largest_z(rows, hyper.mean),
            largest_z(outer(mean - hyper.mean, mean - hyper.mean), mean_covariance),
            largest_z(outer(away[:, 0], away[:, 0]), row_covariance + mean_covariance),
            largest_z(outer(away[:, 0], away[:, 1]), mean_covariance),
            # Given Lambda, rows have covariance Lambda^-1: the model's own draw of it, and not only on average.
            largest_z(precision @ outer(own, own), np.eye(RANK)),
        )
    return worst


def outer(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return left[:, :, None] * right[:, None, :]


def cell_z(draws: dict[str, np.ndarray], shared: bool, settings: GibbsSettings) -> float:
    """Means, squares and products of cells of both tensors."""
    hyper = settings.hyper
    spread = np.linalg.inv(hyper.scale * np.eye(RANK)) / (hyper.degrees_of_freedom - RANK - 1)
    second = hyper.mean**2 + (1 + 1 / hyper.mean_strength) * spread  # E[x_k x_l] of one row
    mean = RANK * hyper.mean**3
    # Cells of the same user and place have two rows in common if the tensors share factors.
    product = (second**2).sum() * hyper.mean**2 if shared else mean**2
    transitions, visits = (np.asarray(draws[name], np.float64) for name in EVERY_CELL)
    return max(
        largest_z(transitions, mean),
        largest_z(visits, mean),
        largest_z(transitions**2, (second**3).sum() + 1 / settings.noise_precision),
        largest_z(visits**2, (second**3).sum() + 1 / settings.noise_precision),
        largest_z(transitions[:, 0] * visits[:, 0], product),
    )


@pytest.mark.slow
def test_prior_moments(prior_draws):
    coupling, draws = prior_draws
    assert prior_z(draws, coupling, SETTINGS) < 5
    assert cell_z(draws, coupling is SHARED, SETTINGS) < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"degrees_of_freedom": 11.0}, {"scale": 4.0}, {"mean_strength": 3.0}, {"mean": 0.45}]
)
def test_prior_moments_of_another_prior_are_told_apart(prior_draws, change):
    coupling, draws = prior_draws
    assert prior_z(draws, coupling, replace(SETTINGS, hyper=replace(HYPER, **change))) > 5


@pytest.mark.slow
def test_cells_that_share_factors_are_told_from_those_that_do_not(prior_draws):
    coupling, draws = prior_draws
    assert cell_z(draws, coupling is UNSHARED, SETTINGS) > 5
    assert cell_z(draws, coupling is SHARED, replace(SETTINGS, noise_precision=1.5)) > 5


# The log joint density


def random_parameters(coupling: Coupling, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    parameters = {}
    for name in coupling.factors:
        root = np.tril(rng.normal(size=(RANK, RANK)))
        root[np.diag_indices(RANK)] = rng.uniform(0.5, 2, RANK)
        parameters |= {
            f"{name}_precision_root": root,
            f"{name}_mean": rng.normal(size=RANK),
            name: rng.normal(size=(ROWS[name], RANK)),
        }
    return parameters


def random_cells(seed: int) -> dict[str, Cells]:
    """Cells of both tensors in no order, the zeros at weights other than 1; a user and a place without any."""
    rng = np.random.default_rng(seed)
    cells = {}
    for name, (index, *_) in EVERY_CELL.items():
        index = rng.permutation(index[(index[:, 0] > 0) & (index[:, 1] < PLACES - 1)])[:-1]
        value = rng.poisson(1.0, len(index)).astype(float)
        cells[name] = Cells(index, value, np.where(value > 0, 1.0, rng.uniform(0.1, 0.9, len(index))))
    return cells


def log_joint(parameters: dict[str, np.ndarray], cells: dict[str, Cells], coupling: Coupling) -> float:
    return float(jitted_log_joint(parameters, cells, coupling))


@partial(jax.jit, static_argnames="coupling")
def jitted_log_joint(parameters: dict[str, jax.Array], cells: dict[str, Cells], coupling: Coupling) -> jax.Array:
    return log_density(mtf, (cells, ROWS, coupling, SETTINGS), {}, parameters)[0]


def log_density_of_root(root: np.ndarray) -> float:
    """log |d(L L^T) / dL|, by which the density of a root differs from that of its precision matrix."""
    return RANK * np.log(2) + (np.arange(RANK, 0, -1) * np.log(np.diag(root))).sum()


def log_joint_by_scipy(parameters: dict[str, np.ndarray], cells: dict[str, Cells], coupling: Coupling) -> float:
    total = 0.0
    for name in coupling.factors:
        root, mean, rows = (parameters[site] for site in (f"{name}_precision_root", f"{name}_mean", name))
        precision = root @ root.T
        total += stats.wishart(HYPER.degrees_of_freedom, HYPER.scale * np.eye(RANK)).logpdf(precision)
        total += log_density_of_root(root)
        covariance = np.linalg.inv(precision)
        total += stats.multivariate_normal(np.full(RANK, HYPER.mean), covariance / HYPER.mean_strength).logpdf(mean)
        total += stats.multivariate_normal(mean, covariance).logpdf(rows).sum()
    for tensor, modes in coupling.tensors:
        for (user, place, other), value, weight in zip(*cells[tensor][:3], strict=True):
            expected = sum(
                parameters[modes[0]][user, k] * parameters[modes[1]][place, k] * parameters[modes[2]][other, k]
                for k in range(RANK)
            )
            total += weight * stats.norm(expected, SETTINGS.noise_precision**-0.5).logpdf(value)
    return total


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", COUPLINGS)
def test_log_density_equals_scipy(name):
    coupling = COUPLINGS[name]
    for seed in range(3):
        parameters, cells = random_parameters(coupling, seed), random_cells(seed)
        expected = log_joint_by_scipy(parameters, cells, coupling)
        np.testing.assert_allclose(log_joint(parameters, cells, coupling), expected, rtol=1e-8)


@pytest.mark.usefixtures("float64")
def test_every_site_enters_the_density():
    """Moving any parameter by a little moves the density as it does SciPy's, so that none is left out of both."""
    parameters, cells = random_parameters(SHARED, 0), random_cells(0)
    for name in parameters:
        moved = parameters | {name: parameters[name] * 1.1}
        change = log_joint(moved, cells, SHARED) - log_joint(parameters, cells, SHARED)
        expected = log_joint_by_scipy(moved, cells, SHARED) - log_joint_by_scipy(parameters, cells, SHARED)
        assert abs(change) > 1e-3
        np.testing.assert_allclose(change, expected, rtol=1e-8)
    sites = log_density(mtf, (cells, ROWS, SHARED, SETTINGS), {}, jax.tree.map(jnp.asarray, parameters))[1]
    for name in (*parameters, *cells):
        assert abs(sites[name]["fn"].log_prob(sites[name]["value"]).sum()) > 1e-3


# The sampler's conditionals are those of the model: as functions of a block, conditional and joint differ by a constant


def rows_log_density(
    name: str, parameters: dict[str, np.ndarray], cells: dict[str, Cells], coupling: Coupling
) -> float:
    """Log density, but for a constant, of a factor by the closed form of its rows' conditionals."""
    prior = factor_prior(parameters, name)
    total = 0.0
    for row in range(ROWS[name]):
        parts = []
        for tensor, modes in coupling.tensors:
            if name not in modes:
                continue
            mode = modes.index(name)
            index, value, weight, _ = cells[tensor]
            mine = index[:, mode] == row
            others = [parameters[modes[m]][index[mine, m]] for m in range(3) if m != mode]
            root = np.sqrt(weight[mine])
            design = others[0] * others[1] * root[:, None]
            parts.append(with_row(*cell_statistics(jnp.asarray(design), jnp.asarray(value[mine] / root))))
        conditional = row_conditional(prior, sum(parts, start=jnp.zeros((RANK + 1, RANK))), SETTINGS.noise_precision)
        x = parameters[name][row]
        total += float(-0.5 * x @ conditional[:-1] @ x + conditional[-1] @ x)
    return total


def factor_prior(parameters: dict[str, np.ndarray], name: str) -> FactorPrior:
    root = jnp.asarray(parameters[f"{name}_precision_root"])
    return FactorPrior(jnp.asarray(parameters[f"{name}_mean"]), root @ root.T)


def hyper_log_density(name: str, parameters: dict[str, np.ndarray]) -> float:
    """Log density of a factor's mean and precision root by the closed form of their conditional."""
    posterior = hyper_conditional(jnp.asarray(parameters[name]), HYPER)
    mean, strength, inverse_scale, degrees = (np.asarray(x) for x in posterior)
    precision = np.asarray(factor_prior(parameters, name).precision)
    return (
        stats.multivariate_normal(mean, np.linalg.inv(strength * precision)).logpdf(parameters[f"{name}_mean"])
        + stats.wishart(float(degrees), np.linalg.inv(inverse_scale)).logpdf(precision)
        + log_density_of_root(parameters[f"{name}_precision_root"])
    )


def change(function, name: str, block: tuple[str, ...], coupling: Coupling) -> tuple[float, float]:
    """Change of the model's log joint and of `function` when the sites of a block take other values."""
    before, other, cells = random_parameters(coupling, 1), random_parameters(coupling, 2), random_cells(3)
    after = before | {site: other[site] for site in block}
    return (
        log_joint(after, cells, coupling) - log_joint(before, cells, coupling),
        function(name, after, cells, coupling) - function(name, before, cells, coupling),
    )


def rows_change(name: str, coupling: Coupling) -> tuple[float, float]:
    return change(rows_log_density, name, (name,), coupling)


def hyper_change(name: str, coupling: Coupling) -> tuple[float, float]:
    block = (f"{name}_mean", f"{name}_precision_root")
    return change(lambda name, parameters, *_: hyper_log_density(name, parameters), name, block, coupling)


ALL_BLOCKS = [(kind, name) for kind, coupling in COUPLINGS.items() for name in coupling.factors]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("coupling", "name"), ALL_BLOCKS)
def test_conditionals_are_those_of_the_model(coupling, name):
    for both in (rows_change(name, COUPLINGS[coupling]), hyper_change(name, COUPLINGS[coupling])):
        np.testing.assert_allclose(*both, rtol=1e-8)


# The same data for model and sampler


def every_cell_of(cells: Cells, n_rows: dict[str, int], modes: tuple[str, str, str]) -> Cells:
    """The same observations with the zeros that only have weights listed one by one."""
    index, value, weight, zero_weight = cells
    weight = np.ones(len(value)) if weight is None else weight
    if zero_weight is None:
        return Cells(index, value, weight)
    left = np.ones([n_rows[mode] for mode in modes])
    np.subtract.at(left, tuple(index.T), weight)
    others = np.argwhere(left)
    zeros = zero_weight[others[:, 0]] * left[tuple(others.T)]
    joined = [(index, others), (value, np.zeros(len(others))), (weight, zeros)]
    return Cells(*(np.concatenate(both) for both in joined))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", COUPLINGS)
def test_weights_of_zeros_are_the_zeros_one_by_one(name):
    """A listed cell is no zero; one of weight 2 stands for two cells, and a half for half a cell."""
    coupling = COUPLINGS[name]
    cells, parameters, zero_weight = random_cells(4), random_parameters(coupling, 5), np.array([0.3, 0.0, 0.9])
    short = {z: each._replace(zero_weight=zero_weight) for z, each in cells.items()}
    twice = {z: each._replace(weight=2 * each.weight) for z, each in short.items()}
    for given in (short, twice):
        whole = {z: every_cell_of(given[z], ROWS, modes) for z, modes in coupling.tensors}
        # Listed cells that stand for two leave less than no zero: by SciPy, with a negative weight.
        expected = log_joint_by_scipy(parameters, whole, coupling)
        np.testing.assert_allclose(log_joint(parameters, given, coupling), expected, rtol=1e-8)
    planted = {
        z: every_cell_of(each._replace(weight=None), ROWS, dict(coupling.tensors)[z]) for z, each in short.items()
    }
    assert abs(log_joint_by_scipy(parameters, planted, coupling) / log_joint(parameters, short, coupling) - 1) > 1e-3


def random_counts() -> CountTensors:
    rng = np.random.default_rng(0)
    tensors = []
    for n_others in (PLACES, SLOTS):
        tensors.append(sparse(rng.poisson(0.7, (USERS, PLACES, n_others))))
    return CountTensors(*tensors)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("zeros", "name"), [("sampled", "unshared"), ("weighted", "shared")])
def test_listed_cells_are_those_that_the_sampler_sees(zeros, name):
    """A sweep reports the square error and the log joint at its draw: another cell or weight would change them."""
    coupling, counts = COUPLINGS[name], random_counts()
    listed, observed = list_cells(counts, zeros, 3, seed=5), observe(counts, zeros, 3, seed=5)
    whole = {name: every_cell_of(cells, ROWS, dict(coupling.tensors)[name]) for name, cells in listed.items()}
    start = kernel.init_state(jax.random.key(0), ROWS, coupling, SETTINGS, jnp.dtype("float64"))
    sweep = jax.jit(lambda state, cells: kernel.step(jax.random.key(1), state, cells, coupling, SETTINGS))
    state, info = sweep(start, jax.tree.map(jnp.asarray, observed))
    for tensor, modes in coupling.tensors:
        index, value, weight, _ = whole[tensor]
        error = (weight * (value - expected_cells(state.factors, modes, index)) ** 2).sum()
        # The layout keeps weights in single precision.
        np.testing.assert_allclose(info.square_error[tensor], error, rtol=1e-6)
    parameters = dict(state.factors)
    for factor, prior in state.priors.items():
        root = np.linalg.cholesky(prior.precision)
        parameters |= {f"{factor}_mean": prior.mean, f"{factor}_precision_root": root}
    jacobian = sum(log_density_of_root(parameters[f"{factor}_precision_root"]) for factor in coupling.factors)
    np.testing.assert_allclose(info.log_joint, log_joint(parameters, listed, coupling) - jacobian, rtol=1e-6)


# Inference


@pytest.mark.slow
def test_stochastic_variational_inference_finds_a_better_fit():
    guide = AutoNormal(mtf, init_scale=0.1)
    svi = SVI(mtf, guide, optax.adam(0.02), Trace_ELBO())
    arguments = (list_cells(random_counts(), "weighted", 5, seed=0), ROWS, SHARED, SETTINGS)
    result = svi.run(jax.random.key(0), 400, *arguments, progress_bar=False)
    losses = np.asarray(result.losses, np.float64)
    assert np.isfinite(losses).all()
    first, last = losses[:50], losses[-50:]
    # Losses are noisy estimates; steps are small beside 50 of them, so that their spread is the noise.
    assert last.mean() + 5 * np.sqrt((first.var() + last.var()) / 50) < first.mean()
    unobserved = {name: cells._replace(value=None) for name, cells in arguments[0].items()}
    predict = Predictive(mtf, guide=guide, params=result.params, num_samples=7)
    n_cells = len(arguments[0]["transitions"].index)
    assert predict(jax.random.key(1), unobserved, *arguments[1:])["transitions"].shape == (7, n_cells)


@pytest.mark.slow
def test_predictive_draws_cells_about_their_expectation():
    """Given the factors, cells are normal with the noise precision."""
    n_draws = 5000
    factors = jax.tree.map(jnp.asarray, random_parameters(SHARED, 0))
    repeated = {name: jnp.broadcast_to(rows, (n_draws, *rows.shape)) for name, rows in factors.items()}
    drawn = Predictive(mtf, repeated, parallel=True)(jax.random.key(2), EVERY_CELL, ROWS, SHARED, SETTINGS)
    for tensor, modes in SHARED.tensors:
        expected = np.asarray(expected_cells(factors, modes, EVERY_CELL[tensor].index))
        assert largest_z(drawn[tensor], expected) < 5
        assert largest_z((drawn[tensor] - expected) ** 2, 1 / SETTINGS.noise_precision) < 5
        assert largest_z((drawn[tensor] - expected) ** 2, 1.1 / SETTINGS.noise_precision) > 5


@pytest.mark.usefixtures("float64")
def test_normal_with_precision_root():
    root = jnp.array([[1.5, 0.0], [-0.7, 0.6]])
    normal = NormalWithPrecisionRoot(jnp.array([[0.3, -1.0], [2.0, 0.0], [0.0, 0.0]]), root, validate_args=True)
    draws = np.asarray(normal.sample(jax.random.key(0), (20_000,)))
    assert draws.shape == (20_000, 3, 2)
    away = draws - np.asarray(normal.loc)
    covariance = np.linalg.inv(root @ root.T)
    products = np.einsum("dni,dmj->dnimj", away, away)
    assert largest_z(draws, np.asarray(normal.loc)) < 5
    assert largest_z(products, np.einsum("nm,ij->nimj", np.eye(3), covariance)) < 5
    expected = [stats.multivariate_normal(np.asarray(normal.loc[n]), covariance).logpdf(draws[:4, n]) for n in range(3)]
    np.testing.assert_allclose(normal.log_prob(draws[:4]), np.transpose(expected), rtol=1e-10)
