"""Devices: how many there are, and what is refused."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime import devices
from ppmtf_jax.runtime.devices import n_cores, use_all_cores


def test_a_process_may_use_the_cores_of_its_affinity_and_its_container(monkeypatch):
    """As `docker run --cpus 1` does it: all cores are in sight, and little of their time may be used."""

    def cores(limit: str) -> int:
        n_cores.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "cpu_count", lambda: 8)
            patch.setattr(os, "sched_getaffinity", lambda _: set(range(7)), raising=False)
            patch.setattr(os.path, "exists", lambda _: True)
            patch.setattr(builtins, "open", {"/sys/fs/cgroup/cpu.max": io.StringIO(limit)}.__getitem__)
            return n_cores()

    limits = {"max 100000": 7, "150000 100000": 2, "20000 100000": 1, "6400000 100000": 7}
    assert {limit: cores(limit) for limit in limits} == limits
    n_cores.cache_clear()


def test_large_sums_are_right():
    """Some versions of jaxlib get this sum wrong in one of about fifteen calls, and more often on a busy machine."""
    total = jax.jit(lambda column: jnp.sum(jnp.broadcast_to(column, (2, 1024, 1024))))
    assert {float(total(jnp.ones((1024, 1)))) for _ in range(100)} == {2.0 * 1024**2}


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0", "0.11.2"])
def test_versions_of_jaxlib_with_wrong_sums_are_named_and_others_not(version):
    with pytest.warns(UserWarning, match=f"jaxlib {version} may add up large arrays wrongly"):
        devices.warn_of_wrong_sums(version)
    for right in ("0.10.1", "0.12.0.1"):
        devices.warn_of_wrong_sums(right)  # a warning would be an error


def test_devices_are_chosen_before_jax_is_used(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    jax.devices()
    if jax.config.values["jax_num_cpu_devices"] == -1:
        with pytest.raises(InputError, match="first in the program"):
            use_all_cores()


def test_a_choice_of_devices_is_left_alone(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    before = jax.config.values["jax_num_cpu_devices"]
    use_all_cores()
    assert jax.config.values["jax_num_cpu_devices"] == before


@pytest.mark.parametrize(
    "run",
    [
        "from ppmtf_jax import *; fit(Traces.load('traces'), 'sgd')",
        "from ppmtf_jax.cli.app import app; app(['fit', 'traces', '--system', 'sgd', '--out', 'model'])",
    ],
)
def test_a_device_that_is_not_there_is_named(run, tmp_path):
    toy_city(n_users=5, n_days=1, seed=0).traces.save(tmp_path / "traces")
    environment = os.environ | {"JAX_PLATFORMS": "cuda", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", run], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    *_, told = done.stderr.splitlines()
    assert "JAX_PLATFORMS=cuda" in told
    assert "set it to cpu" in told
