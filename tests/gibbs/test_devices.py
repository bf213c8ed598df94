"""Draws do not depend on how many devices or processes share the work."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SWEEPS = """
import os, sys
import jax
import numpy as np

n_local, n_processes, process, port, path, zeros, *tensors = *map(int, sys.argv[1:5]), *sys.argv[5:]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", n_local)
if n_processes > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", n_processes, process)

from ppmtf_jax.gibbs import cells
from ppmtf_jax.gibbs.kernel import SHARED, Coupling, GibbsSettings, rows_of_factors
from ppmtf_jax.gibbs.run import run_gibbs
from ppmtf_jax.gibbs.tensors import CountTensors
from ppmtf_jax.gibbs.run import Quantity
from tests.tensors import sparse

cells.rows_at_a_time = lambda: 2  # several parts
rng = np.random.default_rng(0)
counts = CountTensors(*(sparse(rng.poisson(0.3, (20, 10, n_others))) for n_others in (10, 12)))
settings, coupling = GibbsSettings(rank=2), Coupling(tuple(each for each in SHARED.tensors if each[0] in tensors))
observed = {name: cells.observe(counts, zeros, 20, seed=0)[name] for name in tensors}
found = {}
devices = jax.devices()
for n in sorted({1, len(devices)} if n_processes == 1 else {len(devices)}):
    result = run_gibbs(
        jax.random.key(0), observed, rows_of_factors(coupling, counts), coupling, settings, n_sweeps=2,
        devices=devices[:n],
    )
    for name, draw in result.draws.items():
        found[f"{n} {name}"] = draw
    found[f"{n} log_joint"] = result.trace[Quantity("log_joint")]
if process == 0:
    np.savez(path, **found)
"""


BOTH = ("transitions", "visits")


def run(
    tmp_path, zeros: str, n_local: int, n_processes: int = 1, tensors: tuple[str, ...] = BOTH
) -> dict[str, np.ndarray]:
    """Draws by "number of devices, factor" from processes of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / f"{n_local}_{n_processes}.npz"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SWEEPS, *map(str, (n_local, n_processes, number, port, path)), zeros, *tensors],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).resolve().parents[2],
        )
        for number in range(n_processes)
    ]
    for process in processes:
        output = process.communicate(timeout=300)[0].decode()
        assert process.returncode == 0, output[-3000:]
    with np.load(path) as stored:
        return dict(stored)


def assert_same_draws(ours: dict[str, np.ndarray], n: int, others: dict[str, np.ndarray], n_others: int) -> None:
    names = [name.split(" ", 1)[1] for name in ours if name.startswith(f"{n} ")]
    assert {"user", "place", "slot", "log_joint"} <= set(names)
    for name in names:
        np.testing.assert_array_equal(ours[f"{n} {name}"], others[f"{n_others} {name}"], err_msg=name)


def test_four_devices_draw_what_one_does(tmp_path):
    """One tensor, whose program is half as large, compiled in less time; the slow tests do all of it."""
    found = run(tmp_path, "weighted", n_local=4, tensors=("visits",))
    assert_same_draws(found, 4, found, 1)


@pytest.mark.slow
def test_three_devices_draw_what_one_does(tmp_path):
    """A number that divides neither the users' parts nor the others'; the other kind of zeros."""
    found = run(tmp_path, "sampled", n_local=3)
    assert_same_draws(found, 3, found, 1)


@pytest.mark.slow
def test_two_processes_draw_what_one_does(tmp_path):
    found = run(tmp_path, "weighted", n_local=1, n_processes=2)
    assert_same_draws(found, 2, run(tmp_path, "weighted", n_local=1), 1)
