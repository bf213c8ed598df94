"""Whole runs: seeds, kept draws, checkpoints, chains, errors."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.gibbs import run
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.run import Checkpoints, GibbsResult, Quantity, keep_every, keep_last, run_gibbs, watched
from ppmtf_jax.gibbs.tensors import CountTensors, SparseCounts
from tests.faults import files_of_at_most
from tests.tensors import sparse

ROWS = {"user": 6, "place": 5, "next_place": 5, "slot": 3}
# One shape and one setting for all tests of this file: a sweep takes many seconds to compile.
SETTINGS = GibbsSettings(2, 50.0)
N_SWEEPS = 13
ROOT = Path(__file__).resolve().parents[2]


def random_counts(seed: int) -> CountTensors:
    """Always with the same number of positive cells of each row, hence of the same shape when laid out."""
    rng = np.random.default_rng(seed)

    def tensor(n_others: int) -> SparseCounts:
        dense = np.where(np.indices((6, 5, n_others)).sum(axis=0) % 3 == 0, rng.poisson(2.0, (6, 5, n_others)) + 1, 0)
        return sparse(dense)

    return CountTensors(tensor(5), tensor(3))


def observed(seed: int = 0):
    return observe(random_counts(seed), "weighted", 4, seed=0)


CELLS = observed()


def start(seed: int = 0, n_sweeps: int = N_SWEEPS, cells=CELLS, **options) -> GibbsResult:
    return run_gibbs(jax.random.key(seed), cells, ROWS, SHARED, SETTINGS, n_sweeps=n_sweeps, **options)


def assert_same(a: GibbsResult, b: GibbsResult) -> None:
    """Equal bit for bit."""
    for ours, expected in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(expected))


@pytest.fixture(scope="module")
def unbroken():
    return start(keep=keep_every(3, burn_in=1))


def test_result_has_the_promised_shapes(unbroken):
    assert unbroken.kept_sweeps.tolist() == [4, 7, 10, 13]
    for name, n_rows in ROWS.items():
        assert unbroken.draws[name].shape == (1, 4, n_rows, 2)
        assert unbroken.draws[name].dtype == np.float32
        np.testing.assert_array_equal(unbroken.draws[name][:, -1], unbroken.state.factors[name])
    sizes = {f"size_{name}" for name in ROWS}
    assert {str(each) for each in unbroken.trace} == {"log_joint", "rmse_transitions", "rmse_visits"} | sizes
    assert list(unbroken.trace) == watched(SHARED)
    assert {values.shape for values in unbroken.trace.values()} == {(1, 13)}
    for name, rows in unbroken.state.factors.items():
        np.testing.assert_allclose(unbroken.trace[Quantity("size", name)][0, -1], np.mean(np.square(rows)), rtol=1e-5)
    assert int(unbroken.state.sweep[0]) == 13


def test_seed_decides(unbroken):
    assert_same(start(keep=keep_every(3, burn_in=1)), unbroken)
    other = start(seed=1)
    assert not np.array_equal(other.state.factors["user"], unbroken.state.factors["user"])
    assert other.kept_sweeps.tolist() == [13]


def test_what_is_kept_does_not_change_the_draws(unbroken):
    last = start(keep=keep_last)
    assert_same(last._replace(draws={}, kept_sweeps=0), unbroken._replace(draws={}, kept_sweeps=0))
    np.testing.assert_array_equal(last.draws["user"][:, 0], unbroken.draws["user"][:, -1])


def test_a_function_of_the_factors_can_be_kept_instead(unbroken, tmp_path):
    def mean_of_users(factors):
        return {"mean": np.asarray(factors["user"]).mean(axis=(1, 2))}

    kept = start(keep=keep_every(3, burn_in=1), kept_of=mean_of_users)
    np.testing.assert_array_equal(kept.draws["mean"], unbroken.draws["user"].mean(axis=(2, 3)))
    assert kept.kept_sweeps.tolist() == unbroken.kept_sweeps.tolist()
    with pytest.raises(InputError, match="the last draw kept where there are checkpoints"):
        start(kept_of=mean_of_users, checkpoints=Checkpoints(tmp_path / "checkpoint"))


def test_keep_every():
    kept = [sweep for sweep in range(1, 21) if keep_every(5, burn_in=3)(sweep, 20)]
    assert kept == [8, 13, 18]
    assert [sweep for sweep in range(1, 21) if keep_last(sweep, 20)] == [20]


def test_nothing_is_compiled_again_for_other_seeds_numbers_of_sweeps_data_and_noise(unbroken):
    size = run.sweep_on("cpu")._cache_size()
    for seed, n_sweeps in ((2, 1), (3, 4), (4, 7)):
        start(seed, n_sweeps)
    start(cells=observed(seed=9), keep=keep_every(2))
    other = run_gibbs(jax.random.key(0), CELLS, ROWS, SHARED, GibbsSettings(2, 51.0), n_sweeps=N_SWEEPS)
    assert run.sweep_on("cpu")._cache_size() == size
    assert not np.array_equal(other.state.factors["user"], unbroken.state.factors["user"])


# Checkpoints


class Killed(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("kill_at", [1, 5, 13])
def test_a_killed_and_resumed_run_equals_an_unbroken_one(tmp_path, kill_at):
    checkpoints, original = Checkpoints(tmp_path / "new" / "run.npz", every=4), run.run_sweeps

    def killed(chain_keys, state, cells, n_active, *rest):
        if int(state.sweep[0]) + n_active >= kill_at:
            raise Killed
        return original(chain_keys, state, cells, n_active, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "run_sweeps", killed)
        with pytest.raises(Killed):
            start(checkpoints=checkpoints)
    unbroken = start()
    assert_same(start(checkpoints=checkpoints), unbroken)
    assert [path.name for path in checkpoints.path.parent.iterdir()] == ["run.npz"]
    # A finished run is read, not repeated.
    assert_same(start(checkpoints=checkpoints), unbroken)


def test_a_run_can_be_made_longer(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run.npz", every=5)
    for n_sweeps in (2, 7, 11):
        start(n_sweeps=n_sweeps, checkpoints=checkpoints)
    assert_same(start(checkpoints=checkpoints), start())


def test_only_its_owner_may_read_a_checkpoint(finished):
    """Draws tell of the users in the data."""
    assert stat.S_IMODE(finished.path.stat().st_mode) == 0o600


def test_a_checkpoint_holds_no_draws_but_the_last(tmp_path):
    with pytest.raises(InputError, match="the last draw kept where there are checkpoints"):
        start(keep=keep_every(2), checkpoints=Checkpoints(tmp_path / "run.npz"))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def finished(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run.npz", every=5)
    start(n_sweeps=5, checkpoints=checkpoints)
    return checkpoints


@pytest.mark.parametrize("other", [{"seed": 1}, {"cells": observed(seed=5)}], ids=["seed", "data"])
def test_a_checkpoint_of_another_run_is_refused(finished, other):
    before = finished.path.read_bytes()
    with pytest.raises(InputError, match=r"run\.npz.*[Dd]elete") as error:
        start(n_sweeps=8, checkpoints=finished, **other)
    assert "other data, settings or seed" in str(error.value)
    assert finished.path.read_bytes() == before


def test_a_checkpoint_of_other_settings_or_sizes_is_refused(finished):
    arguments = jax.random.key(0), CELLS
    with pytest.raises(InputError, match=r"run\.npz"):
        run_gibbs(*arguments, ROWS, SHARED, GibbsSettings(2, 51.0), n_sweeps=8, checkpoints=finished)
    with pytest.raises(InputError, match=r"run\.npz"):
        run_gibbs(*arguments, ROWS | {"next_place": 6}, SHARED, SETTINGS, n_sweeps=8, checkpoints=finished)


def test_a_checkpoint_of_more_sweeps_is_refused(finished):
    with pytest.raises(InputError, match="at most 3 sweeps"):
        start(n_sweeps=3, checkpoints=finished)


def damaged(kind: str, whole: bytes) -> bytes:
    middle = len(whole) // 2
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"
    return {
        "empty": b"",
        "text": b"hello",
        "cut": whole[:middle],
        "flipped": whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 200]) + whole[middle + 200 :],
        "array": header.ljust(127) + b"\n" + bytes(8),
    }[kind]


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "flipped", "array"])
def test_a_damaged_checkpoint_is_refused(finished, kind):
    finished.path.write_bytes(damaged(kind, finished.path.read_bytes()))
    with pytest.raises(InputError, match=r"run\.npz.*[Dd]elete"):
        start(n_sweeps=8, checkpoints=finished)


@pytest.mark.parametrize("share", [0, 0.99])
def test_a_full_disk_is_told_and_the_checkpoint_before_is_kept(finished, share):
    before = finished.path.read_bytes()
    full = pytest.raises(InputError, match=r"run\.npz.*File too large.*Check permissions and free space")
    # More than before is to be written: the next checkpoint has more sweeps.
    with full, files_of_at_most(int(share * len(before))):
        start(n_sweeps=8, checkpoints=finished)
    assert [path.name for path in finished.path.parent.iterdir()] == ["run.npz"]
    assert finished.path.read_bytes() == before
    assert_same(start(n_sweeps=8, checkpoints=finished), start(n_sweeps=8))


@pytest.mark.parametrize("sizes", [{"n_sweeps": 0}, {"n_chains": 0}])
def test_at_least_one_sweep_and_one_chain(sizes):
    with pytest.raises(InputError, match="at least one"):
        start(**sizes)


# Chains


@pytest.mark.slow
def test_chains_differ_and_the_first_is_that_of_a_single_run(tmp_path):
    three = start(n_chains=3, keep=keep_every(5))
    single = start(keep=keep_every(5))
    assert three.draws["user"].shape == (3, 2, 6, 2)
    assert three.trace[Quantity("rmse", "visits")].shape == (3, N_SWEEPS)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(three.draws["user"][a] - three.draws["user"][b]).max() > 0.01
    # Chains run one after another, each as if alone.
    np.testing.assert_array_equal(three.draws["user"][0], single.draws["user"][0])
    checkpoints = Checkpoints(tmp_path / "run.npz", every=4)
    start(n_sweeps=6, n_chains=3, checkpoints=checkpoints)
    assert_same(start(n_chains=3, checkpoints=checkpoints), start(n_chains=3))
    with pytest.raises(InputError, match=r"run\.npz"):
        start(checkpoints=checkpoints)


# Leaving the finite numbers


def test_values_that_are_not_numbers_stop_the_run_at_once():
    def poison(tiles):
        return tiles._replace(value=np.where(tiles.value > 0, np.float32(np.nan), tiles.value))

    bad = {name: own._replace(by_mode=tuple(map(poison, own.by_mode))) for name, own in CELLS.items()}
    with pytest.raises(NumericalError, match=r"factor 'user'.* sweep 1\b"):
        start(cells=bad)


def test_the_error_names_factor_sweep_and_checkpoint(monkeypatch, tmp_path):
    original, checkpoints = run.run_sweeps, Checkpoints(tmp_path / "run.npz", every=5)

    def breaks_in_the_second_call(keys, state, *rest):
        state, info = original(keys, state, *rest)
        finite = np.ones((1, run.SWEEPS_PER_CALL, 4), bool)
        if int(state.sweep[0]) > 5:
            finite[0, 1, 2] = False
        return state, info._replace(finite=jnp.asarray(finite))

    monkeypatch.setattr(run, "run_sweeps", breaks_in_the_second_call)
    with pytest.raises(NumericalError, match=rf"'{SHARED.factors[2]}'.* sweep 7\b.*run\.npz"):
        start(checkpoints=checkpoints)
    monkeypatch.undo()
    assert_same(start(checkpoints=checkpoints), start())


# Hanging


@pytest.mark.slow
def test_rank_32_with_500_users_does_not_hang():
    """XLA on a CPU waited for ever in concurrent LAPACK calls at this size; default flags."""
    program = """
import jax, numpy as np
from ppmtf_jax.gibbs.cells import observe
from ppmtf_jax.gibbs.kernel import SHARED, GibbsSettings
from ppmtf_jax.gibbs.run import Quantity
from ppmtf_jax.gibbs.run import run_gibbs
from ppmtf_jax.gibbs.tensors import CountTensors
from tests.tensors import sparse
rng = np.random.default_rng(0)
def tensor(n_others):
    return sparse(rng.poisson(0.02, (500, 60, n_others)))
cells = observe(CountTensors(tensor(60), tensor(12)), "sampled", 100, seed=0)
rows = {"user": 500, "place": 60, "next_place": 60, "slot": 12}
result = run_gibbs(jax.random.key(0), cells, rows, SHARED, GibbsSettings(32), n_sweeps=20)
print(float(result.trace[Quantity("rmse", "visits")][0, -1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1
