"""Devices and processes: what is refused, and a fit that two processes share."""

from __future__ import annotations

import socket
import subprocess
import sys

import jax
import pytest

from ppmtf_jax.devices import join_processes, use_all_cores
from ppmtf_jax.errors import InputError

FIT = "from ppmtf_jax.cli import app; app()"


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


@pytest.mark.parametrize(("n_processes", "process"), [(2, 2), (2, -1), (0, 0)])
def test_a_process_that_is_none_of_them_is_refused(n_processes, process):
    with pytest.raises(InputError, match="from 0 to one less"):
        join_processes("127.0.0.1:1", n_processes, process)


def test_processes_cannot_join_once_jax_was_used():
    jax.devices()
    with pytest.raises(InputError, match="--coordinator"):
        join_processes("127.0.0.1:1", 2, 0)


@pytest.mark.slow
def test_a_fit_of_two_processes_is_that_of_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def start(*arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", FIT, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def finish(process: subprocess.Popen) -> None:
        output = process.communicate(timeout=300)[0].decode()
        assert process.returncode == 0, output[-3000:]

    fit = ["fit", "city/train", "--set", "rank=3", "--set", "n_sweeps=7", "--out"]
    finish(start("import", "toy-city", "--users", "50", "--out", "city"))
    finish(start(*fit, "one"))
    together = ["two", "--coordinator", address, "--processes", "2", "--process"]
    for process in [start(*fit, *together, str(number)) for number in (0, 1)]:
        finish(process)
    one, two = (tmp_path / name / "parameters.npz" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
