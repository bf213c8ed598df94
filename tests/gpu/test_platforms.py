"""A CPU and a GPU learn, make and judge the same, within the tolerances below.

With `-m gpu` a GPU is compared with the CPU. With `-m slow` the same functions compare the CPU with itself, compiled
with other optimizations and so with another rounding, because a GPU is seldom at hand.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from ppmtf_jax.gibbs import run as gibbs_run
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

ROOT = Path(__file__).resolve().parents[2]
# Relative error of learned numbers. Two ways to compile for the CPU differ by 5e-7 in factors after five sweeps, and by
# 7e-5 in what the bridge calibrates; a factor of ten is left for another order of sums.
LEARNED = 1e-3
# `private` calibrates by people that it simulates from few users: a draw on the other side of a boundary moves what it
# learns by up to .054 between two ways to compile for the CPU.
LEARNED_OF = {"private": 0.1}
# Share of events at other places: a draw falls to the other side of a boundary as often as probabilities differ, and
# the rest of a trace of 24 events may differ with it: 24 x LEARNED.
OTHER_EVENTS = 24 * LEARNED
# Log-likelihood of a trace: 24 logarithms of probabilities that differ by LEARNED.
LIKELIHOOD = 24 * LEARNED
# Share of traces judged otherwise: those whose place differs, and those at the edge of a bin of width 1.
OTHER_VERDICTS = 0.05


def small_run(folder: Path, *planted: str, **variables: str) -> dict[str, np.ndarray]:
    """The arrays of `small_run`, in a process whose JAX has another environment."""
    out, environment = folder / f"{len(list(folder.iterdir()))}.npz", dict(os.environ)
    # As single precision as a CPU: by default a GPU may round factors of products to 11 bits.
    environment |= {"PYTHONPATH": str(ROOT), "JAX_DEFAULT_MATMUL_PRECISION": "highest"}
    environment.pop("JAX_PLATFORMS", None)
    command = [sys.executable, "-m", "tests.gpu.small_run", str(out), *planted]
    done = subprocess.run(command, env=environment | variables, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(out) as arrays:
        return dict(arrays)


def backend() -> str:
    """The platform that JAX takes by itself, asked in another process: this one may be bound to the CPU."""
    code = "import jax; print(jax.default_backend())"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True).stdout.strip()


@pytest.fixture(
    scope="module",
    params=[pytest.param("gpu", marks=pytest.mark.gpu), pytest.param("cpu", marks=pytest.mark.slow)],
)
def pair(request, tmp_path_factory) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays of the CPU, and those of the other platform."""
    if request.param == "gpu" and backend() != "gpu":
        pytest.skip(f"needs a GPU; the platform of JAX here is {backend()!r}")
    folder = tmp_path_factory.mktemp("platforms")
    other = {} if request.param == "gpu" else {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    return small_run(folder, JAX_PLATFORMS="cpu", JAX_DISABLE_MOST_OPTIMIZATIONS="0"), small_run(folder, **other)


def differences(system: str, one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """What two platforms disagree on beyond the tolerances."""
    found = []
    for name in (key for key in one if key.startswith(f"{system}/")):
        a, b, what = one[name], other[name], name.partition("/")[2]
        if a.shape != b.shape:
            found.append(f"{what}: shapes {a.shape} and {b.shape}")
        elif what == "place":
            share = np.mean(a != b)
            found += [f"{share:.1%} of the events"] if share > OTHER_EVENTS else []
        elif what == "passed":
            share = np.mean(a != b)
            found += [f"{share:.1%} of the verdicts"] if share > OTHER_VERDICTS else []
        elif what == "log_likelihood":
            # A trace that differs has another likelihood; the median trace does not differ.
            error = np.median(np.abs(a - b))
            found += [f"log-likelihoods by {error:.2g}"] if not error <= LIKELIHOOD else []
        elif np.issubdtype(a.dtype, np.floating):
            a, b = a.astype(float), b.astype(float)
            size = np.linalg.norm(np.nan_to_num(a, posinf=0, neginf=0)) or 1.0
            error = np.linalg.norm(np.where(a == b, 0, a - b)[~(np.isnan(a) & np.isnan(b))]) / size
            found += [f"{what} by {error:.2g}"] if not error <= LEARNED_OF.get(system, LEARNED) else []
        elif np.count_nonzero(a != b) > LEARNED * a.size:
            found.append(f"{np.mean(a != b):.1%} of {what}")
    return found


@pytest.mark.parametrize("system", SYNTHESIZERS)
def test_platforms_agree(system, pair):
    one, other = pair
    assert any(name.startswith(f"{system}/") for name in one)
    assert differences(system, one, other) == []


@pytest.mark.slow
def test_a_bad_generator_is_caught(pair, tmp_path):
    found = differences("ppmtf", pair[0], small_run(tmp_path, "planted", JAX_PLATFORMS="cpu"))
    assert any(each.startswith("model ") for each in found)


def test_what_differs_is_caught():
    rng = np.random.default_rng(0)
    one = {"x/place": rng.integers(9, size=2400), "x/passed": rng.random(100) < 0.5, "x/model a": rng.random(50)}
    one["x/log_likelihood"] = rng.random(100)
    assert differences("x", one, one) == []
    planted = {
        "x/place": np.where(rng.random(2400) < 0.05, 9, one["x/place"]),
        "x/passed": one["x/passed"] ^ (np.arange(100) < 6),
        "x/model a": one["x/model a"] * 1.002,
        "x/log_likelihood": one["x/log_likelihood"] + 0.03,
    }
    for name, array in planted.items():
        assert len(differences("x", one, one | {name: array})) == 1
    assert differences("x", one, one | {"x/model a": one["x/model a"] * np.nan}) != []


def test_options_of_the_cpu_reach_no_other_platform(monkeypatch):
    monkeypatch.setattr(jax, "jit", lambda function, *, compiler_options, **_: lambda: compiler_options)
    compiled = {platform: gibbs_run.sweep_on.__wrapped__(platform)() for platform in ("cpu", "gpu", "tpu")}
    assert compiled == {"cpu": gibbs_run.ONE_CORE_A_DEVICE, "gpu": None, "tpu": None}
    # Nobody else gives options to the compiler, and nobody writes them into the environment.
    given = [path.name for path in (ROOT / "ppmtf_jax").rglob("*.py") if "compiler_options=" in path.read_text()]
    assert given == ["run.py"]
    written = [
        path for path in (ROOT / "ppmtf_jax").rglob("*.py") if re.search(r"environ\[.XLA_FLAGS", path.read_text())
    ]
    assert written == []
