"""NumPyro's driver runs our sweep: the same draws as our own driver, collected as NumPyro and ArviZ expect.

Most tests put a small function in the sweep's place, which compiles at once: they are about what happens between driver
and sweep. Those that compare with our own driver run the sweep itself.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC

from ppmtf_jax.errors import InputError
from ppmtf_jax.gibbs import kernel, mcmc_kernel
from ppmtf_jax.gibbs.cells import ObservedCells, observe
from ppmtf_jax.gibbs.conditionals import FactorPrior
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings, GibbsState, SweepInfo
from ppmtf_jax.gibbs.mcmc_kernel import MTFGibbs
from ppmtf_jax.gibbs.run import GibbsResult, Quantity, keep_every, run_gibbs
from ppmtf_jax.gibbs.tensors import CountTensors
from tests.tensors import sparse

ROWS = {"user": 6, "place": 4, "next_place": 4, "slot": 3}
RANK = 2
SETTINGS = GibbsSettings(RANK, 10.0)
KEY = jax.random.key(3)
WARMUP, SAMPLES = 3, 5


@cache
def cells() -> dict[str, ObservedCells]:
    rng = np.random.default_rng(0)
    tensors = []
    for _, modes in SHARED.tensors:
        tensors.append(sparse(rng.poisson(0.7, [ROWS[name] for name in modes])))
    return jax.tree.map(jnp.asarray, observe(CountTensors(*tensors), "weighted", 5, seed=0))


# NumPyro's driver compiles a program for almost every test.
pytestmark = pytest.mark.slow


def by_numpyro(n_chains: int = 1, **options: Any) -> MCMC:
    options = {"num_warmup": WARMUP, "num_samples": SAMPLES, "progress_bar": False, "jit_model_args": True} | options
    return MCMC(MTFGibbs(SHARED, SETTINGS, ROWS), num_chains=n_chains, **options)


def keys_of(n_chains: int) -> jax.Array:
    """What `run_gibbs` gives its chains."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(KEY, jnp.arange(n_chains))
    return keys if n_chains > 1 else keys[0]


def assert_same_draws(mcmc: MCMC, expected: dict[str, np.ndarray]) -> None:
    """Equal but for rounding, which another compiled program may do otherwise."""
    draws = mcmc.get_samples(group_by_chain=True)
    assert draws.keys() == expected.keys()
    for name, rows in expected.items():
        assert draws[name].dtype == jnp.float32
        np.testing.assert_allclose(draws[name], rows, rtol=1e-3, atol=1e-4, err_msg=name)


# The sweep itself, against our own driver


@cache
def our_own(n_chains: int) -> GibbsResult:
    n_sweeps = WARMUP + SAMPLES
    keep = keep_every(1, burn_in=WARMUP)
    return run_gibbs(KEY, cells(), ROWS, SHARED, SETTINGS, n_sweeps=n_sweeps, n_chains=n_chains, keep=keep)


def test_draws_and_diagnostics_are_those_of_our_own_driver():
    mcmc, ours = by_numpyro(2, chain_method="vectorized"), our_own(2)
    mcmc.run(keys_of(2), cells(), extra_fields=("rmse", "priors"))
    assert_same_draws(mcmc, ours.draws)
    fields = mcmc.get_extra_fields(group_by_chain=True)
    np.testing.assert_allclose(fields["log_joint"], ours.trace[Quantity("log_joint")][:, WARMUP:], rtol=1e-3)
    for name, rmse in fields["rmse"].items():
        np.testing.assert_allclose(rmse, ours.trace[Quantity("rmse", name)][:, WARMUP:], rtol=1e-3)
    for name, prior in ours.state.priors.items():
        np.testing.assert_allclose(fields["priors"][name].precision[:, -1], prior.precision, rtol=1e-3, atol=1e-4)


def test_parallel_chains_run_on_several_devices():
    """In a process of its own, since JAX counts devices when it starts."""
    code = (
        "import jax, test_mcmc_kernel as t; assert jax.local_device_count() == 3; "
        "mcmc = t.by_numpyro(3, chain_method='parallel'); mcmc.run(t.keys_of(3), t.cells()); "
        "assert mcmc.chain_method == 'parallel'; t.assert_same_draws(mcmc, t.our_own(3).draws); print('same')"
    )
    here = Path(__file__).resolve()
    path = os.pathsep.join([str(here.parent), str(here.parents[2])])
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "3", "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["same"], done.stderr


# Between driver and sweep


def quick_step(
    key: jax.Array, state: GibbsState, cells: dict[str, ObservedCells], coupling: Coupling, settings: GibbsSettings
) -> tuple[GibbsState, SweepInfo]:
    """A random walk that depends on everything that a sweep depends on."""
    del settings
    key = jax.random.fold_in(key, state.sweep)
    weight = {name: cells[name].total_weight for name, _ in coupling.tensors}
    noise = jax.random.normal(key)
    factors = {name: state.factors[name] / 2 + noise for name in coupling.factors}
    priors = {name: FactorPrior(rows.mean(axis=0) * weight["visits"], rows.T @ rows) for name, rows in factors.items()}
    info = SweepInfo(
        square_error={name: weight[name] * jnp.sum(factors["user"]) ** 2 for name in weight},
        log_joint=jnp.sum(factors["slot"]),
        square_size={name: jnp.mean(rows**2) for name, rows in factors.items()},
        finite=jnp.stack([jnp.isfinite(rows).all() for rows in factors.values()]),
    )
    return GibbsState(factors, priors, state.sweep + 1), info


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(mcmc_kernel, "step", quick_step)


@cache
def by_loop(n_chains: int) -> dict[str, np.ndarray]:
    """Draws of `quick_step` after the warm-up, shape (chains, draws, rows, rank)."""
    chains = []
    for number in range(n_chains):
        key = jax.random.fold_in(KEY, number)
        state = kernel.init_state(key, ROWS, SHARED, SETTINGS)
        draws = []
        for _ in range(WARMUP + SAMPLES):
            state, _ = quick_step(key, state, cells(), SHARED, SETTINGS)
            draws.append(state.factors)
        chains.append(jax.tree.map(lambda *rows: np.stack(rows), *draws[WARMUP:]))
    return jax.tree.map(lambda *rows: np.stack(rows), *chains)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("n_chains", "options"),
    [
        (1, {}),
        (1, {"jit_model_args": False}),
        (1, {"progress_bar": True}),
        (3, {"chain_method": "vectorized"}),
        (3, {"chain_method": "sequential"}),
    ],
    ids=["one chain", "constant cells", "progress bar", "vectorized", "sequential"],
)
def test_every_chain_makes_its_own_sweeps(n_chains, options):
    mcmc = by_numpyro(n_chains, **options)
    mcmc.run(keys_of(n_chains), cells())
    assert_same_draws(mcmc, by_loop(n_chains))
    assert int(np.max(mcmc.last_state.sweep)) == WARMUP + SAMPLES


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("n_chains", [1, 3])
def test_keys_of_plain_integers_will_do(n_chains):
    mcmc = by_numpyro(n_chains, chain_method="vectorized")
    mcmc.run(jax.random.key_data(keys_of(n_chains)), cells())
    assert_same_draws(mcmc, by_loop(n_chains))


@pytest.mark.usefixtures("quick")
def test_collected_fields():
    mcmc = by_numpyro(2, chain_method="vectorized")
    mcmc.run(keys_of(2), cells(), extra_fields=("rmse", "priors.user", "sweep", "~factors.place"))
    assert set(mcmc.get_samples()) == {"user", "next_place", "slot"}
    fields = mcmc.get_extra_fields(group_by_chain=True)
    assert set(fields) == {"rmse", "priors.user", "sweep", "log_joint", "finite"}
    assert fields["finite"].all()
    assert fields["sweep"].tolist() == [list(range(WARMUP + 1, WARMUP + SAMPLES + 1))] * 2
    user, slot = (by_loop(2)[name] for name in ("user", "slot"))
    np.testing.assert_allclose(fields["log_joint"], slot.sum((2, 3)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fields["priors.user"].precision, np.swapaxes(user, 2, 3) @ user, rtol=1e-5, atol=1e-5)
    for rmse in fields["rmse"].values():
        np.testing.assert_allclose(rmse, np.abs(user.sum((2, 3))), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("n_chains", [1, 2])
def test_a_run_can_start_from_given_factors(n_chains):
    rng = np.random.default_rng(1)
    leading = (n_chains,) if n_chains > 1 else ()
    start = {name: jnp.asarray(rng.normal(size=(*leading, n, RANK)), jnp.float32) for name, n in ROWS.items()}
    mcmc = by_numpyro(n_chains, num_warmup=0, chain_method="vectorized")
    mcmc.run(keys_of(n_chains), cells(), init_params=start)
    mine = start if n_chains == 1 else jax.tree.map(lambda rows: rows[1], start)
    key = jax.random.fold_in(KEY, n_chains - 1)
    state = kernel.init_state(key, ROWS, SHARED, SETTINGS)._replace(factors=mine)
    state, _ = quick_step(key, state, cells(), SHARED, SETTINGS)
    for name, rows in mcmc.get_samples(group_by_chain=True).items():
        np.testing.assert_allclose(rows[-1, 0], state.factors[name], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("quick")
def test_the_progress_bar_shows_errors_and_what_is_not_finite():
    mcmc = by_numpyro()
    mcmc.run(KEY, cells())
    shown, rmse = mcmc.sampler.get_diagnostics_str(mcmc.last_state), mcmc.last_state.rmse
    assert shown == f"rmse transitions {float(rmse['transitions']):.3g}, visits {float(rmse['visits']):.3g}"
    start = {name: jnp.full((n, RANK), jnp.nan) for name, n in ROWS.items()}
    mcmc.run(KEY, cells(), init_params=start)
    assert not mcmc.get_extra_fields()["finite"].any()
    assert "no longer finite" in mcmc.sampler.get_diagnostics_str(mcmc.last_state)


def test_a_second_run_compiles_nothing(monkeypatch):
    """NumPyro without a progress bar compiles its loop anew at every run; and it has no bar under these variables."""
    for variable in ("CI", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(variable, raising=False)
    traced = []
    monkeypatch.setattr(mcmc_kernel, "step", lambda *arguments: traced.append(1) or quick_step(*arguments))
    mcmc = by_numpyro(progress_bar=True)
    mcmc.run(keys_of(1), cells())
    assert len(traced) > 0
    traced.clear()
    mcmc.run(jax.random.key(9), jax.tree.map(lambda leaf: leaf * 1, cells()))
    assert traced == []


@pytest.mark.usefixtures("quick")
def test_the_sampler_can_be_pickled():
    mcmc = pickle.loads(pickle.dumps(by_numpyro()))
    mcmc.run(keys_of(1), cells())
    assert_same_draws(mcmc, by_loop(1))


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings(r"ignore:\s*ArviZ is undergoing a major refactor:FutureWarning")
def test_arviz_takes_the_draws():
    arviz = importlib.import_module("arviz")
    mcmc = by_numpyro(2, chain_method="vectorized", num_samples=20)
    mcmc.run(keys_of(2), cells())
    data = arviz.from_numpyro(mcmc, dims={"user": ["row", "component"]})
    assert dict(data.posterior["user"].sizes) == {"chain": 2, "draw": 20, "row": ROWS["user"], "component": RANK}
    assert dict(data.sample_stats["log_joint"].sizes) == {"chain": 2, "draw": 20}
    assert np.isfinite(arviz.summary(data, kind="diagnostics")["ess_bulk"]).all()


@pytest.mark.parametrize(
    ("arguments", "named", "found"),
    [
        ((), {}, "0 positional and 0 named"),
        (({}, {}), {}, "2 positional"),
        (({},), {"more": 1}, "1 named"),
        (({"visits": None},), {}, "those of visits"),
    ],
)
def test_what_is_not_cells_is_refused(arguments, named, found):
    with pytest.raises(InputError, match=found):
        by_numpyro().run(KEY, *arguments, **named)


def test_bad_starts_and_missing_rows_are_refused():
    with pytest.raises(InputError, match="init_params"):
        by_numpyro().run(KEY, cells(), init_params={"user": jnp.zeros((2, 2))})
    with pytest.raises(InputError, match="slot"):
        MTFGibbs(SHARED, SETTINGS, {name: n for name, n in ROWS.items() if name != "slot"})
