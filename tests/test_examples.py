"""The job files and scripts of examples/: one for each system, and each runs."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS
from tests.commands import works

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# The real traces can be neither tested nor released, so there is no job of them; each table has them as a column.
SYSTEMS = [name for name in SYNTHESIZERS if name != "training"]
# Fewer people and sweeps than in the files, which take minutes.
SMALLER = {"n_users = ": "n_users = 60", "n_places = ": "n_places = 20", "n_sweeps = ": "n_sweeps = 3"}
SMALLER |= {"people = ": "people = 50", "k = ": "k = 2"}


def small(system: str, folder: Path) -> Path:
    """The job of a system with less of everything, without attacks and with a seed."""
    lines = (EXAMPLES / f"{system}.toml").read_text(encoding="utf-8").splitlines()
    shorter = [next((short for begin, short in SMALLER.items() if line.startswith(begin)), line) for line in lines]
    text = "\n".join(["seed = 1", *shorter, "[evaluate]", "attacks = false", ""])
    (folder / "job.toml").write_text(text, encoding="utf-8")
    return folder / "job.toml"


def test_every_system_has_a_job():
    assert {path.stem for path in EXAMPLES.glob("*.toml")} == set(SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_job_is_valid(system):
    assert JobConfig.load(EXAMPLES / f"{system}.toml").system == system


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_job_runs(system, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few users are too few for private
        works("run", small(system, tmp_path), "--quiet")
    written = {path.name for path in (tmp_path / "job" / "private").iterdir()}
    assert written >= {"data", "model", "synthetic", "metrics.json"}


def run(script: str, *words: object, **variables: str) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["bash", str(EXAMPLES / script), *map(str, words)]
    environment = os.environ | {"PATH": path} | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_a_task_replaces_the_seed_of_the_job_and_no_other(tmp_path):
    job, stand_in = tmp_path / "job.toml", tmp_path / "ppmtf"
    job.write_text("seed=1\n  seed = 2\nseeds = 3\n[systems.a]\nseed = 4\n")
    stand_in.write_text("#!/bin/bash\n")
    stand_in.chmod(0o700)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = run("slurm_seeds.sh", job, tmp_path, SLURM_ARRAY_TASK_ID="7", PATH=path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "job-7" / "job.toml").read_text() == "seed = 7\nseeds = 3\n[systems.a]\nseed = 4\n"


@pytest.mark.slow
def test_array_of_seeds(tmp_path):
    job = small("uniform", tmp_path)
    for task in ("3", "4"):
        done = run("slurm_seeds.sh", job, tmp_path / "runs", SLURM_ARRAY_TASK_ID=task)
        assert done.returncode == 0, done.stderr
    texts = [(tmp_path / "runs" / f"job-{task}" / "job.toml").read_text() for task in (3, 4)]
    assert [text.splitlines()[0] for text in texts] == ["seed = 3", "seed = 4"]
    released = [(tmp_path / "runs" / f"job-{task}" / "job" / "private" / "metrics.json").read_text() for task in (3, 4)]
    assert released[0] != released[1]


@pytest.mark.slow
def test_cluster_of_this_machine(tmp_path):
    done = run("dask_cluster.sh", small("bridge", tmp_path), 1, PORT="18786")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "job" / "private" / "metrics.json").exists()
