"""Ctrl-C: a command stops soon, leaves nothing unfinished, and says what it keeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.runtime import progress
from ppmtf_jax.synthesizers.synthesis import fit

# A command stops `GRACE_S` after Ctrl-C at the latest; the rest is for a machine that is busy with other tests.
MAX_S = progress.GRACE_S + 8
# Between two commands that wait for a file. The first import of JAX alone takes several seconds.
LONGEST_WAIT_S = 120
# A system whose fit is one program of XLA that never ends, which Python cannot interrupt.
ENDLESS = """
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
from ppmtf_jax.cli.app import app
from ppmtf_jax.settings import Settings
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS, Synthesizer
from ppmtf_jax.trace_models.base import ScoredTraceModel

@dataclass(frozen=True)
class NoSettings(Settings):
    pass

def fit(train, settings, seed, progress=False, checkpoints=None):
    forever = jax.jit(lambda x: jax.lax.while_loop(lambda x: x < 2, lambda x: 1 - x, x))
    compiled = forever.lower(1.0).compile()
    Path("begun").touch()
    compiled(1.0).block_until_ready()

SYNTHESIZERS.register(Synthesizer("endless", "Endless", NoSettings, fit, ScoredTraceModel))
app()
"""


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that starts tests in the background has them ignore Ctrl-C, and the programs that they start, too."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Training traces of 40 users and a model of them."""
    folder = tmp_path_factory.mktemp("stopping")
    city = toy_city(n_users=40, n_places=12, n_days=1, seed=0).traces
    city.save(folder / "train")
    fit(city, "uniform", seed=0).save(folder / "model")
    return folder


def stopped(folder: Path, words: list[str], begun: Callable[[], bool], n_signals: int = 1) -> tuple[float, int, str]:
    """Start a command, stop it once it has begun, and return the seconds that it took, its exit code and stderr."""
    # A file, not a pipe, which would be full: XLA writes much to stderr when it loads programs compiled before.
    with open(folder / "stderr", "w") as stderr:
        process = subprocess.Popen([sys.executable, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr)
    end = time.monotonic() + LONGEST_WAIT_S
    while not begun() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.5)  # by now, it runs the program of XLA
    begin = time.monotonic()
    for _ in range(n_signals):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3 if n_signals > 1 else 0)
    try:
        process.wait(LONGEST_WAIT_S)
    finally:
        process.kill()
    return time.monotonic() - begin, process.returncode, (folder / "stderr").read_text().splitlines()[-1]


def leftovers(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if ".partial-" in name or ".old-" in name]


@pytest.mark.parametrize("n_signals", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_fit_without_checkpoints_keeps_nothing_and_stops(folder, n_signals):
    """A second Ctrl-C ends it at once: then the time to stop in order is long here."""
    (folder / "begun").unlink(missing_ok=True)
    long = "import ppmtf_jax.runtime.progress as s; s.GRACE_S = 60\n" if n_signals == 2 else ""
    words = ["-c", long + ENDLESS, "fit", "train", "--system", "endless", "--out", "endless", "--quiet"]
    seconds, code, error = stopped(folder, words, (folder / "begun").exists, n_signals)
    assert (code, error) == (130, "Stopped. Nothing was kept.")
    assert seconds < MAX_S
    assert leftovers(folder) == []
    assert not (folder / "endless").exists()


@pytest.mark.slow
def test_without_the_watch_it_does_not_stop(folder):
    """Planted bug: Python's own handling waits until the program of XLA ends."""
    (folder / "begun").unlink(missing_ok=True)
    without = "import ppmtf_jax.runtime.progress as s, contextlib; s.stops_soon = contextlib.nullcontext\n"
    words = ["-c", without + ENDLESS, "fit", "train", "--system", "endless", "--out", "endless", "--quiet"]
    process = subprocess.Popen([sys.executable, *words], cwd=folder, stderr=subprocess.DEVNULL)
    while not (folder / "begun").exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3 * progress.GRACE_S)
    process.kill()
    process.wait()


def test_a_fit_with_checkpoints_keeps_its_sweeps(folder):
    words = ["-m", "ppmtf_jax.cli.app", "fit", "train", "--system", "ppmtf", "--out", "factors", "--quiet"]
    words += ["--set", "rank=2", "--set", "n_sweeps=1000000", "--set", "zeros=weighted", "--set", "n_zeros=50"]
    checkpoint = folder / ".factors.checkpoint.npz"
    seconds, code, error = stopped(folder, words, checkpoint.exists)
    assert code == 130
    assert error == "Stopped. Kept: the sweeps up to the last checkpoint. The same command continues from there."
    assert checkpoint.exists()
    assert seconds < MAX_S
    assert leftovers(folder) == []


@pytest.mark.slow
def test_a_synthesis_keeps_nothing(folder):
    """Enough traces for minutes; the unfinished folder is removed."""
    words = ["-m", "ppmtf_jax.cli.app", "synthesize", "model", "--traces-per-user", "200000", "--out", "s", "--quiet"]
    seconds, code, error = stopped(folder, words, lambda: bool(leftovers(folder)))
    assert (code, error) == (130, "Stopped. Nothing was kept.")
    assert seconds < MAX_S
    assert leftovers(folder) == []


@pytest.mark.slow
def test_a_job_keeps_its_finished_steps(folder):
    job = "[import]\nsource = 'toy-city'\nn_users = 60\nn_places = 12\nn_days = 1\n"
    job += "[fit]\nsystem = 'ppmtf'\nn_sweeps = 1000000\nrank = 2\nzeros = 'weighted'\nn_zeros = 50\n"
    (folder / "job.toml").write_text(job)
    begun = folder / "job" / "private" / ".steps"
    words = ["-m", "ppmtf_jax.cli.app", "run", "job.toml", "--quiet"]
    seconds, code, error = stopped(folder, words, lambda: begun.is_dir() and bool(list(begun.glob("fit-*.npz"))))
    assert code == 130
    assert error == (
        "Stopped. Kept: the step import, the sweeps up to the last checkpoint. The same command continues from there."
    )
    assert seconds < MAX_S


def test_only_work_whose_file_exists_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_resumable", {})
    assert progress.what_is_kept() == "Nothing was kept."
    progress.continues_from(tmp_path / "state", "the state")
    assert progress.what_is_kept() == "Nothing was kept."
    (tmp_path / "state").touch()
    assert progress.what_is_kept() == "Kept: the state. The same command continues from there."
