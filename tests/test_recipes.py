"""The recipes for clusters in docs/scaling.md run, with programs that stand in for those of a cluster."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.runtime.folders import read_marker
from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "scaling.md"
SLURM, SSH = (recipe for recipe in blocks(PAGE, "bash") if "--coordinator" in recipe)
SERVICE, JOB = yaml.safe_load_all(blocks(PAGE, "yaml")[0])
POD = JOB["spec"]["template"]["spec"]
STAND_INS = {
    # A fit that takes little time, because what is tested is that the processes find each other.
    "ppmtf": f'exec {sys.executable} -c "from ppmtf_jax.cli.app import app; app()" "$@" --system sgd',
    # srun --nodes N --ntasks-per-node 1 COMMAND...
    "srun": """n=$2; shift 4; export SLURM_NTASKS=$n SLURM_JOB_NODELIST=host[0-3]
for i in $(seq 0 $((n - 1))); do SLURM_PROCID=$i "$@" || touch failed & done; wait""",
    "scontrol": '[ "$*" = "show hostnames host[0-3]" ] && printf "127.0.0.1\\nhost1\\nhost2\\nhost3\\n"',
    "ssh": 'shift; sh -c "$*" || touch failed',
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a small city, where the stand-ins are found."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in STAND_INS.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    toy_city(n_users=63, seed=0).traces.save(tmp_path / "city" / "train")
    return tmp_path


def here(recipe: str) -> str:
    """The recipe with a free port of this machine in place of its first machine's port 9900."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return re.sub(r"(host0|fit-0\.ppmtf):9900", "127.0.0.1:9900", recipe).replace(":9900", f":{port}")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [SLURM, SSH], ids=["Slurm", "ssh"])
def test_a_recipe_for_the_shell_runs(recipe, folder):
    subprocess.run(["bash", "-c", here(recipe)], cwd=folder, check=True, timeout=600)
    assert not (folder / "failed").exists()
    assert read_marker(folder / "model").kind == "model"


@pytest.mark.slow
def test_the_command_of_the_pods_runs(folder):
    *shell, command = POD["containers"][0]["command"]
    command = [*shell, here(command)]
    environments = [os.environ | {"JOB_COMPLETION_INDEX": str(number)} for number in range(4)]
    pods = [subprocess.Popen(command, cwd=folder, env=each) for each in environments]
    assert [pod.wait(timeout=600) for pod in pods] == [0] * 4
    assert read_marker(folder / "model").kind == "model"


def test_the_pods_find_the_first_one():
    """A pod of an indexed job has the name JOB-INDEX.SUBDOMAIN if a service of this name has no address of its own."""
    spec, name = JOB["spec"], f"{JOB['metadata']['name']}-0.{POD['subdomain']}"
    assert SERVICE["metadata"]["name"] == POD["subdomain"]
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert SERVICE["spec"]["selector"] == {"job-name": JOB["metadata"]["name"]}
    assert spec["completionMode"] == "Indexed"
    assert f"--coordinator {name}:9900" in POD["containers"][0]["command"][-1]
    assert f"--processes {spec['completions']} " in POD["containers"][0]["command"][-1]
    assert spec["completions"] == spec["parallelism"]
    (mount,), (volume,) = POD["containers"][0]["volumeMounts"], POD["volumes"]
    assert mount["name"] == volume["name"]
    assert mount["mountPath"] == POD["containers"][0]["workingDir"]
