"""Work over parts: order, names of failures, and the same files from threads, processes and a cluster of Dask."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.data.stored_traces import save_in_parts
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.jobs import steps
from ppmtf_jax.runtime import engine
from ppmtf_jax.runtime.engine import is_remote, map_parts, stage, use_engine
from ppmtf_jax.runtime.files import MARKER
from ppmtf_jax.runtime.folders import files_below
from ppmtf_jax.runtime.threads import n_threads
from ppmtf_jax.synthesizers.synthesis import fit
from tests.workers import stand_in


def test_results_are_in_the_order_of_the_parts(workers):
    assert list(map_parts(lambda part: part**2, range(5))) == [0, 1, 4, 9, 16]
    assert len(workers) == 5


def test_a_worker_takes_one_thread_and_is_no_engine_itself(workers):
    del workers
    assert is_remote()
    assert list(map_parts(lambda _: (n_threads(), is_remote()), range(2))) == [(1, False)] * 2


@pytest.mark.parametrize("double", [False, True])
def test_a_worker_computes_in_the_precision_of_the_caller(workers, double):
    del workers
    with jax.enable_x64(double):
        (found,) = map_parts(lambda part: str(jnp.zeros(part).dtype), [1])
    assert found == ("float64" if double else "float32")


@pytest.mark.parametrize("words", ["threads", "processes:2"])
def test_an_error_names_the_stage_and_the_part(monkeypatch, words):
    def fail(part: int) -> int:
        if part == 2:
            raise InputError("traces", [Problem("a place", "none")])
        return part

    monkeypatch.setattr(engine, "_in_processes", stand_in)
    with use_engine(words), pytest.raises(InputError, match="a place") as error:
        stage("fit")(lambda: list(map_parts(fail, range(4), name_of=lambda part: f"users {part}")))()
    assert error.value.__notes__ == ["In the stage fit, users 2"]


def test_a_task_shows_its_stage_and_part_alone(workers, monkeypatch):
    """Dask logs the task when it fails."""
    seen = []

    def kept(tasks, _):
        seen.extend(tasks)
        return iter(())

    del workers
    monkeypatch.setattr(engine, "_in_processes", kept)
    stage("fit")(lambda: list(map_parts(abs, [41.890251], name_of=lambda _: "users 0 to 1")))()
    assert [repr(task) for task in seen] == ["fit: users 0 to 1"]


def test_tasks_in_threads_of_a_worker_follow_each_other(workers):
    del workers
    running, most = [], []

    def watched(_: int) -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()

    tasks = [engine._Task(watched, part, "fit", str(part), False) for part in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda task: task(), tasks))
    assert most == [1] * 4


def test_progress_counts_parts_of_other_processes(workers, monkeypatch):
    del workers
    seen = []

    @contextlib.contextmanager
    def bar(title: str, total: int, *, show: bool) -> Iterator[object]:
        seen.append((title, total, show))
        yield seen.append

    monkeypatch.setattr(engine, "progress_bar", bar)
    stage("test")(lambda: list(map_parts(abs, range(3), n_parts=3, progress=True)))()
    assert seen == [("test", 3, True), 1, 1, 1]


@pytest.mark.parametrize("words", ["", "processes", "processes:0", "processes:x", "ray:4", "mpi", "threads:2"])
def test_an_engine_that_does_not_exist_is_refused(words):
    with pytest.raises(InputError, match="engine"), use_engine(words):
        pass


def test_an_engine_without_its_library_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"ppmtf_jax\[cluster\]"), use_engine("dask:tcp://127.0.0.1:1"):
        pass


def test_workers_write_the_parts_of_a_synthesis(tmp_path, workers, monkeypatch):
    """Six parts of two users."""
    fit(toy_city(n_users=11, n_places=12, n_days=1, seed=0).traces, "sgd", seed=0).save(tmp_path / "model")
    monkeypatch.setattr(steps, "PART_USERS", 2)
    with use_engine("threads"):
        counts = steps.synthesize_traces(tmp_path / "model", tmp_path / "alone", seed=0)
    assert not workers
    assert steps.synthesize_traces(tmp_path / "model", tmp_path / "shared", seed=0) == counts
    assert len(workers) == 6
    names = files_below(tmp_path / "alone")
    assert len(names) == 6 + 3
    assert files_below(tmp_path / "shared") == names
    assert all((tmp_path / "alone" / name).read_bytes() == (tmp_path / "shared" / name).read_bytes() for name in names)


# Processes in earnest

# Blocks of two users and parts of sixteen.
SMALL = "import ppmtf_jax.data.blocks as blocks; blocks.BLOCK_USERS = 2; from ppmtf_jax.cli.app import app; app()"
CLUSTERS = "--set n_clusters=2 --set min_cluster_users=8"
REST = {
    "synthetic": "synthesize model --traces-per-user 2 --seed 2",
    "verdicts": "test model synthetic --k 2 --seed 3",
    "released": "release synthetic verdicts --key key --min-users-per-place 1 --seed 4",
}
LINES = {
    "default": {"model": f"fit train {CLUSTERS} --seed 1", **REST},
    "checkins": {"model": f"fit train {CLUSTERS} --set gaps=as-observed --seed 1", **REST},
    "private": {
        "model": "fit train --system private --set epsilon=8 --set public_places=true --set noise=seeded --seed 1",
        "synthetic": "synthesize model --people 40 --seed 2",
        "released": "release synthetic --model model",
    },
}


def start(folder: Path, command: str, *more: str) -> subprocess.Popen:
    # XLA's messages about programs from the cache would fill the pipe, and the process would wait for ever.
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", SMALL, *command.split(), *more], cwd=folder, env=quiet, **how)


def finish(process: subprocess.Popen, exit_code: int = 0) -> str:
    output = process.communicate(timeout=600)[0]
    assert process.returncode == exit_code, output[-3000:]
    return output


def write_city(folder: Path, n_parts: int) -> None:
    traces = replace(toy_city(130, n_places=12, n_days=1, seed=0).traces, friendships=None)
    save_in_parts(map(traces.select_users, np.array_split(np.arange(130), n_parts)), folder / "train")


def run_line(folder: Path, name: str, words: str, n_parts: int = 3) -> dict[str, bytes]:
    """All files that a line of commands writes, from the traces of 130 users in so many parts."""
    write_city(folder, n_parts)
    for out, command in LINES[name].items():
        finish(start(folder, command, "--out", out, "--engine", words))
    return files_of(folder, name)


def files_of(folder: Path, name: str) -> dict[str, bytes]:
    outs = [folder / out for out in (*LINES[name], "key") if (folder / out).exists()]
    return {f"{out.name}/{file}": (out / file).read_bytes() for out in outs for file in files_below(out)}


@pytest.fixture(scope="module")
def of_threads(tmp_path_factory) -> dict[str, dict[str, bytes]]:
    found = {name: run_line(tmp_path_factory.mktemp(name), name, "threads", n_parts=1) for name in LINES}
    assert sum("synthetic/traces.parquet/" in name for name in found["default"]) == 9
    return found


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [1, 7])
def test_parts_change_no_byte(n_parts, of_threads, tmp_path):
    assert run_line(tmp_path, "default", "threads", n_parts) == of_threads["default"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_processes_change_no_byte(name, of_threads, tmp_path):
    assert run_line(tmp_path, name, "processes:2") == of_threads[name]


@pytest.mark.slow
def test_a_killed_process_ends_the_command_with_a_message():
    with use_engine("processes:2"), pytest.raises(InputError, match="processes that live"):
        list(map_parts(lambda part: os.kill(os.getpid(), signal.SIGKILL) if part == 1 else part, range(3)))


@pytest.mark.slow
def test_large_arrays_of_tasks_are_in_no_file():
    def is_in_a_file(part: np.ndarray) -> bool:
        return isinstance(part, np.memmap)

    with use_engine("processes:2"):
        assert list(map_parts(is_in_a_file, [np.zeros(10**6)] * 2)) == [False, False]


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path):
    write_city(tmp_path, 3)
    # A shell that starts tests in the background has them ignore Ctrl-C, and the programs that they start, too.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    running = start(tmp_path, f"fit train {CLUSTERS} --out model", "--engine", "processes:2")
    signal.signal(signal.SIGINT, earlier)
    while not (workers := children_of(running.pid)):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    assert "Stopped." in finish(running, 130)
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [path.name for path in tmp_path.iterdir()] == ["train"]


def children_of(process: int) -> list[str]:
    """The processes that a process started, with a running interpreter."""
    found = Path(f"/proc/{process}/task/{process}/children")
    with contextlib.suppress(OSError):
        return [child for child in found.read_text().split() if "loky" in Path(f"/proc/{child}/cmdline").read_text()]
    return []


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a scheduler of Dask with two workers, which come back when they are killed."""
    distributed = pytest.importorskip("distributed")
    how = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
    with distributed.LocalCluster(**how) as made:
        yield made.scheduler_address


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["default", "private"])
def test_a_cluster_changes_no_byte(name, cluster, of_threads, tmp_path):
    assert run_line(tmp_path, name, f"dask:{cluster}") == of_threads[name]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_task_that_ends_every_worker_ends_the_command_with_a_message(cluster):
    with use_engine(f"dask:{cluster}"), pytest.raises(InputError, match="processes that live"):
        list(map_parts(lambda _: os.kill(os.getpid(), signal.SIGKILL), range(1)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("killed", ["model", "synthetic", "verdicts"])
def test_a_killed_worker_changes_no_byte(killed, cluster, of_threads, tmp_path):
    """In each stage that has tasks; the scheduler shows them by the name of their stage."""
    from distributed import Client  # pyright: ignore[reportMissingImports]

    write_city(tmp_path, 3)
    for out, command in LINES["default"].items():
        running = start(tmp_path, command, "--out", out, "--engine", f"dask:{cluster}")
        if out == killed:
            with Client(cluster) as client:
                while not (busy := {worker: keys for worker, keys in client.processing().items() if keys}):
                    assert running.poll() is None
                    time.sleep(0.01)
                (worker, keys), *_ = busy.items()
                assert command.split()[0] in str(keys)
                os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)
        finish(running)
    assert files_of(tmp_path, "default") == of_threads["default"]
    assert MARKER in str(list(of_threads["default"]))
    assert json.loads(of_threads["default"][f"model/{MARKER}"])
