"""Devices and processes: what is refused, and what several processes share, in threads and in earnest."""

from __future__ import annotations

import builtins
import io
import math
import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.stored_traces import StoredTraces, open_traces, save_in_parts
from ppmtf_jax.data.traces import Traces, TraceSet
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.jobs import steps
from ppmtf_jax.noise.laplace import add_laplace
from ppmtf_jax.privacy import plausible_deniability, plausible_users
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings, plausible_deniability_test
from ppmtf_jax.privacy.release import ReleaseSettings
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.runtime import devices
from ppmtf_jax.runtime.devices import (
    gather_rows,
    join_processes,
    n_cores,
    own_items,
    own_share,
    seed_of_first_process,
    use_all_cores,
)
from ppmtf_jax.runtime.folders import files_below, output_folder
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers import fitted_model
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.trace_models import sampling
from tests.together import Together


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
def test_versions_of_jaxlib_with_wrong_sums_are_named(version):
    with pytest.warns(UserWarning, match=f"jaxlib {version} may add up large arrays wrongly"):
        devices.warn_of_wrong_sums(version)


@pytest.mark.parametrize("version", ["0.10.1", "0.12.0.1"])
def test_other_versions_of_jaxlib_need_no_warning(version):
    devices.warn_of_wrong_sums(version)


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


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


# Threads in the place of processes


# Rows and processes: fewer rows than processes, equal shares, a share that is cut, a last row of several processes.
SHARES = [(5, 1), (1, 3), (2, 5), (5, 2), (12, 3), (13, 5), (6, 5)]


@pytest.mark.parametrize(("n_rows", "n_processes"), SHARES)
def test_rows_are_shared_and_gathered_in_order(n_rows, n_processes, monkeypatch):
    numbers, size = np.arange(n_rows), -(-n_rows // n_processes)
    together = Together(n_processes, monkeypatch)
    shares = [numbers[share] for share in together.run(lambda: own_share(n_rows))]
    assert all(1 <= len(share) <= size for share in shares)
    np.testing.assert_array_equal(np.unique(np.concatenate(shares)), numbers)
    # Only the last row may be in several shares.
    assert all(a[-1] < b[0] or b[0] == numbers[-1] for a, b in pairwise(shares))

    rows = np.random.default_rng(0).normal(size=(n_rows, 2, 3))
    for gathered in together.run(lambda: gather_rows(rows[own_share(n_rows)], n_rows)):
        np.testing.assert_array_equal(gathered, rows)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1 / 3, -0.0, np.inf, np.nan]),
        np.array([2**40 + 1, -1]),
        np.array([[1 / 3], [2]], np.float32)[:, ::-1],
        np.array([True, False]),
    ],
    ids=lambda values: values.dtype.name,
)
def test_every_bit_survives_the_exchange(values):
    """JAX would make 32 bits of 64."""
    (again,) = devices.of_each_process(values)
    assert again.dtype == values.dtype
    assert again.tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.float32, bool])
@pytest.mark.parametrize("shape", [(), (1,), (5, 7)])
def test_each_process_adds_up_its_part_of_a_sum(dtype, shape, monkeypatch):
    arrays = [np.asarray(100 * np.random.default_rng(process).normal(size=shape)).astype(dtype) for process in range(3)]
    total, together = np.stack(arrays).sum(axis=0), Together(3, monkeypatch)
    for found in together.run(lambda: devices.sum_over_processes(arrays[jax.process_index()])):
        assert found.dtype == total.dtype
        np.testing.assert_array_equal(found, total)
    assert max(map(np.size, together.given)) <= math.ceil(total.size / 3)


@pytest.mark.parametrize("lengths", [[[2, 0, 1], [1, 3, 0], [0, 0, 4]], [[0] * 3] * 3])
def test_each_process_gets_the_rows_that_are_for_it(lengths, monkeypatch):
    def rows(sender: int) -> list[np.ndarray]:
        return [np.full((n, 2), 10 * sender + to) for to, n in enumerate(lengths[sender])]

    found = Together(3, monkeypatch).run(lambda: devices.from_all_processes(rows(jax.process_index())))
    for to, received in enumerate(found):
        for sender in range(3):
            np.testing.assert_array_equal(received[sender], rows(sender)[to])


@pytest.mark.parametrize("lengths", [[0, 0, 0], [3, 0, 8], [1, 2, 1]])
@pytest.mark.parametrize("n_bytes", [1, 100, 2**20])
def test_rows_are_joined_in_pieces(lengths, n_bytes, monkeypatch):
    """A row of a process has 16 bytes, so that the pieces have one row, two rows, or all."""
    monkeypatch.setattr(devices, "EXCHANGED_BYTES", n_bytes)
    rows = np.arange(2 * sum(lengths)).reshape(-1, 2)
    own = np.split(rows, np.cumsum(lengths)[:-1])
    found = Together(3, monkeypatch).run(lambda: devices.joined_over_processes(own[jax.process_index()]))
    for joined in found:
        np.testing.assert_array_equal(joined, rows)


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
@pytest.mark.parametrize("lengths", [[40], [20, 20], [7, 0, 33], [1, 2, 3, 34]])
def test_keys_are_ranked_among_those_of_all_processes(lengths, monkeypatch, bug):
    """Keys from a few ranges, among them the ends of all ranges, some several times. The bug forgets lower ranges."""
    ends = np.array([number * 2**64 // 12 for number in range(12)] + [2**64 - 1], np.uint64)
    keys = np.random.default_rng(0).choice(np.concatenate([ends, ends[1:] - np.uint64(1)]), 40)
    expected = np.argsort(np.argsort(keys, kind="stable"))
    own = np.split(keys, np.cumsum(lengths)[:-1])
    together = Together(len(lengths), monkeypatch)
    if bug:
        monkeypatch.setattr(devices, "number_before", lambda _: 0)
    ranks = together.run(lambda: devices.ranks_among_all(own[jax.process_index()], shared=len(lengths) > 1))
    assert np.array_equal(np.concatenate(ranks), expected) == (not bug or len(lengths) == 1)


def test_one_process_sends_to_itself():
    rows = np.array([[2**40 + 1, -1]])
    np.testing.assert_array_equal(devices.to_each_process(rows), rows)
    np.testing.assert_array_equal(devices.from_all_processes([rows])[0], rows)


def test_noise_is_drawn_once_for_all_processes(monkeypatch):
    together, zeros = Together(2, monkeypatch), np.zeros(20, np.int64)
    one, two = together.run(lambda: add_laplace(zeros, 1, 0.01))
    assert one.any()
    np.testing.assert_array_equal(one, two)
    # Each to its own values. Noise of the scale 100 is the same for all 20 with a probability of 200^-20.
    one, two = together.run(lambda: add_laplace(zeros, 1, 0.01, of_all_processes=False))
    assert (one != two).any()


@pytest.fixture
def model(monkeypatch) -> fitted_model.FittedModel:
    """Of 11 users, whose shares among three processes are 4, 4 and 3. Formulas stand for what has to be compiled."""

    def sample(key: Any, model: Any, tiles: Any, numbers: Any, n_instants: int) -> np.ndarray:
        return (
            31 * np.asarray(tiles)[..., None] + 7 * np.asarray(numbers)[:, None, None] + np.arange(n_instants) ** 2
        ) % 12

    def log_probabilities(model: Any, users: np.ndarray, places: np.ndarray, **_: Any) -> np.ndarray:
        return -1 / (1 + users[:, None] + places)

    def count(
        model: Any,
        verifiers: np.ndarray,
        users: np.ndarray,
        places: np.ndarray,
        own: np.ndarray,
        eta: float,
        stop_at: np.ndarray,
        progress: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        assert len(users) in (3, 4, 11), "not a share"
        return users + (1000 * own).astype(int), places.sum(axis=1) + stop_at

    monkeypatch.setattr(sampling, "TILE", 2)
    monkeypatch.setattr(sampling, "sample_tiles", sample)
    monkeypatch.setattr(plausible_users, "step_log_probabilities", log_probabilities)
    monkeypatch.setattr(plausible_deniability, "count_plausible_users", count)
    return fit(toy_city(n_users=11, n_places=12, n_days=1, seed=0).traces, "uniform")


def test_synthesis_does_not_depend_on_the_number_of_processes(model, monkeypatch):
    def traces() -> Traces:
        return synthesize(model, traces_per_user=2)

    def sampled() -> Traces:
        return model.sample(25, seed=0)

    whole, some = traces().place, sampled().place
    together = Together(3, monkeypatch)
    for each in together.run(traces):
        np.testing.assert_array_equal(each.place, whole)
    for each in together.run(sampled):
        np.testing.assert_array_equal(each.place, some)
    # The planted bug: every share is the first one.
    monkeypatch.setattr(sampling, "own_share", lambda n_rows: slice(0, 8))
    assert not any(np.array_equal(each.place, whole) for each in together.run(traces))


def test_a_drawn_seed_is_that_of_the_first_process(model, monkeypatch):
    """Each would draw its own."""
    drawn = iter([Seed(2**127 + 1, given=False), Seed(2, given=False), Seed(3, given=False)])
    seeds = Together(3, monkeypatch).run(lambda: seed_of_first_process(next(drawn)))
    assert len(set(seeds)) == 1
    assert seeds[0].value in (2**127 + 1, 2, 3)
    monkeypatch.setattr(fitted_model, "draw_seed", lambda _: Seed(secrets.randbits(128), given=False))
    origins = {traces.origin for traces in Together(3, monkeypatch).run(lambda: synthesize(model))}
    assert len(origins) == 1


def test_the_privacy_test_does_not_depend_on_the_number_of_processes(model, monkeypatch):
    synthetic = synthesize(model)
    monkeypatch.setattr(plausible_deniability, "add_laplace", lambda values, *_, **__: values + np.arange(11) ** 2)

    def verdicts() -> pd.DataFrame:
        return plausible_deniability_test(model, synthetic, k=3, noise_epsilon=1.0).table

    whole = verdicts()
    together = Together(3, monkeypatch)
    for table in together.run(verdicts):
        pd.testing.assert_frame_equal(table, whole, check_exact=True)
    # The planted bug: each trace is tested with the likelihood of the one before it.
    monkeypatch.setattr(plausible_deniability, "gather_rows", lambda rows, n: np.roll(gather_rows(rows, n), 1))
    assert not any(table.equals(whole) for table in together.run(verdicts))


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_processes_that_test_blocks_of_their_own_write_the_same(model, tmp_path, monkeypatch, bug):
    """Six blocks of two users, so that each of three processes has two. The bug takes the first traces for its own."""
    synthetic = synthesize(model)
    synthetic.save(tmp_path / "synthetic")
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 2)
    monkeypatch.setattr(plausible_deniability, "add_laplace", lambda values, *_, **__: values + np.arange(11) ** 2)

    def verdicts(traces: TraceSet) -> pd.DataFrame:
        return plausible_deniability_test(model, traces, k=3, noise_epsilon=1.0, seed=0).table

    # In Python 3.11, a cached property would make the threads wait for each other.
    monkeypatch.setattr(TraceSet, "digest", property(TraceSet.__dict__["digest"].func))
    whole = verdicts(replace(synthetic))
    if bug:
        groups = plausible_deniability._groups
        monkeypatch.setattr(
            plausible_deniability, "_groups", lambda *given: ((0, places) for _, places in groups(*given))
        )
    tables = Together(3, monkeypatch).run(lambda: verdicts(open_traces(tmp_path / "synthetic")))
    assert [table.equals(whole) for table in tables] == [not bug] * 3


# Modules that know the size of a part.
TESTED = ("data.stored_traces", "data.rearranged", "privacy.release")


@pytest.mark.parametrize(("n_processes", "bug"), [(2, False), (3, False), (4, False), (3, True)])
def test_each_process_keeps_the_verdicts_on_its_own_traces(model, tmp_path, monkeypatch, n_processes, bug):
    """Six parts of two users, and three parts of a release. The bug gives traces the places of verdicts of others."""
    for module in ("traces", "stored_traces", "rearranged"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 1)
    names = ("data.stored_traces.PART_BLOCKS", *(f"{module}.PART_USERS" for module in TESTED))
    for name in names:
        monkeypatch.setattr(f"ppmtf_jax.{name}", 2)
    for kind, name in ((TraceSet, "digest"), (Verdicts, "lineage")):
        monkeypatch.setattr(kind, name, property(kind.__dict__[name].func))
    # Every other trace passes.
    noise = np.arange(11) + np.arange(11) % 2 * 10**6 - 10**5

    def of_own_traces(values: np.ndarray, *_: float, of_all_processes: bool) -> np.ndarray:
        assert of_all_processes == (len(values) == 11)
        first = 0 if of_all_processes else 2 * own_items(6).start
        return values + noise[first : first + len(values)]

    monkeypatch.setattr(plausible_deniability, "add_laplace", of_own_traces)
    monkeypatch.setattr(plausible_deniability, "count_plausible_users", lambda *each: (each[2], each[3].sum(axis=1)))
    synthesize(model, seed=0).save(tmp_path / "synthetic")
    model.save(tmp_path / "model")

    def run(name: str) -> tuple[Any, ...]:
        synthetic, settings = tmp_path / "synthetic", PrivacyTestSettings(k=3, noise_epsilon=1.0)
        out, released, key = (tmp_path / f"{name}{of}" for of in ("", "-released", "-key"))
        found = steps.run_privacy_test(tmp_path / "model", synthetic, out, settings, seed=0)
        if not bug:
            steps.release_traces(synthetic, out, released, key, ReleaseSettings(min_users_per_place=1), seed=0)
        said = found.n_traces, found.n_passed, found.counted_to, found.lineage
        return *said, len(found.table)

    alone = run("alone")
    if bug:
        table = StoredTraces.trace_table
        rolled = lambda *each, own: [np.roll(column, 1) for column in table(*each, own=own)]  # noqa: E731
        monkeypatch.setattr(StoredTraces, "trace_table", rolled)
    each = Together(n_processes, monkeypatch).run(lambda: run("together"))
    assert (files(tmp_path / "together") == files(tmp_path / "alone")) == (not bug)
    assert sum(found[-1] for found in each) == 11
    if not bug:
        assert [found[:-1] for found in each] == [alone[:-1]] * n_processes
        for name, n_parts in (("-released", 4 + 6), ("-key", 3 + 1)):
            assert len(files(tmp_path / f"together{name}")) == n_parts
            assert files(tmp_path / f"together{name}") == files(tmp_path / f"alone{name}")


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_each_process_writes_parts_of_its_own(model, tmp_path, monkeypatch, bug):
    """Six parts of two users for three processes. The bug gives every process the same parts."""
    model.save(tmp_path / "model")
    monkeypatch.setattr(steps, "PART_USERS", 2)
    if bug:
        monkeypatch.setattr(fitted_model, "own_items", lambda n: range(n // 3))

    def synthesize_into(name: str) -> tuple[int, int]:
        return steps.synthesize_traces(tmp_path / "model", tmp_path / name, seed=0)

    made = synthesize_into("alone")
    Together(3, monkeypatch).run(lambda: synthesize_into("together"))
    assert (files(tmp_path / "together") == files(tmp_path / "alone")) == (not bug)
    assert bug or len(files(tmp_path / "alone")) == 6 + 3
    assert bug or made == (11, 11 * model.time_grid.n_instants)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "alone", "together"}


def test_a_folder_that_not_all_processes_see_is_refused(tmp_path, monkeypatch):
    together = Together(2, monkeypatch)

    def write() -> str:
        out = tmp_path / f"disk-of-{jax.process_index()}" / "out"
        with pytest.raises(InputError, match="process 1 does not see") as refused:  # noqa: SIM117
            with output_folder(out, "model", together=True):
                pass
        return str(refused.value)

    assert len(together.run(write)) == 2
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["disk-of-0", "disk-of-1"]


# Processes in earnest

COMMANDS = {
    "model": "fit city/train --system ppmtf --set rank=3 --set n_sweeps=7 --seed 1 --out model",
    "synthetic": "synthesize model --traces-per-user 3 --seed 2 --out synthetic",
    "verdicts": "test model synthetic --k 4 --verifiers 40 --seed 3 --out verdicts",
    "bridge": "fit city/train --system bridge --set min_cluster_users=8 --seed 1 --out bridge",
}
for form, setting in (("people", "memory=anchors"), ("checkins", "gaps=as-observed")):
    COMMANDS |= {
        form: f"fit city/train --set {setting} --set n_clusters=2 --set min_cluster_users=8 --seed 1 --out {form}",
        f"{form}-synthetic": f"synthesize {form} --people 40 --seed 2 --out {form}-synthetic",
        f"{form}-verdicts": f"test {form} {form}-synthetic --k 4 --seed 3 --out {form}-verdicts",
    }
PPMTF = [sys.executable, "-c", "from ppmtf_jax.cli.app import app; app()"]


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    # XLA's messages about programs from the cache would fill the pipe, and the process would wait for ever.
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*PPMTF, *arguments], cwd=folder, env=quiet, **how)


def start_together(folder: Path, *commands: list[str]) -> list[subprocess.Popen]:
    """A process for each command, which are told of each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    together = ["--coordinator", address, "--processes", str(len(commands)), "--process"]
    return [start(folder, *command, *together, str(number)) for number, command in enumerate(commands)]


def finish(process: subprocess.Popen, exit_code: int = 0) -> str:
    output = process.communicate(timeout=300)[0]
    assert process.returncode == exit_code, output[-3000:]
    return output


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    """A folder with a city of 51 users, a model of it, synthetic traces and a test, each by one process."""
    folder = tmp_path_factory.mktemp("processes")
    finish(start(folder, "import", "toy-city", "--users", "63", "--seed", "0", "--out", "city"))
    for command in COMMANDS.values():
        finish(start(folder, *command.split()))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("made", COMMANDS)
def test_two_processes_write_what_one_does(city, made):
    command = f"{COMMANDS[made]}_of_two".split()
    first, second = (finish(process) for process in start_together(city, command, command))
    assert f"{made}_of_two" in first
    assert f"{made}_of_two" not in second
    assert files(city / f"{made}_of_two") == files(city / made)


# Blocks of two users and parts of sixteen.
SMALL = "import ppmtf_jax.data.blocks as blocks; blocks.BLOCK_USERS = 2; from ppmtf_jax.cli.app import app; app()"
LINE = {
    "model": "fit train --set n_clusters=2 --set min_cluster_users=8 --seed 1",
    "synthetic": "synthesize model --traces-per-user 2 --seed 2",
    "verdicts": "test model synthetic --k 2 --seed 3",
    "released": "release synthetic verdicts --key key --min-users-per-place 1 --seed 4",
    "together": "release synthetic verdicts --key users --keep-users-together --min-users-per-place 1 --seed 4",
}


CHECKINS = {"model": f"{LINE['model']} --set gaps=as-observed"}


def run_line(
    folder: Path, n_parts: int, n_processes: int, monkeypatch: pytest.MonkeyPatch, line: dict[str, str] = LINE
) -> dict[str, bytes]:
    """All files that a line of commands writes, from the traces of 130 users in so many parts."""
    monkeypatch.setattr(sys.modules[__name__], "PPMTF", [sys.executable, "-c", SMALL])
    traces = toy_city(130, n_places=12, n_days=1, seed=0).traces
    traces = replace(traces, friendships=None)
    of_parts = np.array_split(np.arange(130), n_parts)
    save_in_parts(map(traces.select_users, of_parts), folder / "train")
    for out, command in line.items():
        words = [*command.split(), "--out", out]
        running = start_together(folder, *[words] * n_processes) if n_processes > 1 else [start(folder, *words)]
        for process in running:
            finish(process)
    return {
        f"{out}/{name}": content for out in (*line, "key", "users") for name, content in files(folder / out).items()
    }


@pytest.fixture(scope="module")
def of_one_process(tmp_path_factory) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        return run_line(tmp_path_factory.mktemp("one"), 1, 1, patch)


@pytest.mark.slow
@pytest.mark.parametrize("n_parts", [1, 3, 7])
@pytest.mark.parametrize("n_processes", [1, 2, 3, 4])
def test_processes_and_parts_change_no_byte(n_parts, n_processes, of_one_process, tmp_path, monkeypatch):
    assert sum("synthetic/traces.parquet/" in name for name in of_one_process) == 9
    assert run_line(tmp_path, n_parts, n_processes, monkeypatch) == of_one_process


@pytest.mark.slow
def test_processes_and_parts_change_no_byte_of_a_model_of_checkins(tmp_path, monkeypatch):
    of_one, of_three = (run_line(tmp_path / str(n), n, n, monkeypatch, CHECKINS) for n in (1, 3))
    assert of_three == of_one


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_the_other_process_of_a_killed_one_ends_and_the_fit_goes_on_with_one(city, victim):
    command, again = (
        f"fit city/train --system ppmtf --set rank=3 --set n_sweeps=3000 --seed 1 --out {out}".split()
        for out in (f"killed-{victim}", "whole")
    )
    checkpoint = city / f".killed-{victim}.checkpoint.npz"
    both = start_together(city, command, command)
    while not checkpoint.exists():
        assert all(process.poll() is None for process in both)
        time.sleep(0.01)
    time.sleep(secrets.randbelow(1000) / 1000)
    both[victim].kill()
    both[victim].communicate()
    output = both[1 - victim].communicate(timeout=30)[0]  # a bound: JAX alone would take longer, or hang
    assert both[1 - victim].returncode == 1
    assert "another process ended" in output
    assert "Traceback" not in output
    assert checkpoint.exists()
    assert not (city / f"killed-{victim}").exists()
    assert not any(".partial-" in path.name for path in city.iterdir() if victim)  # a killed process cannot tidy up
    finish(start(city, *command))
    if not (city / "whole").exists():
        finish(start(city, *again))
    assert files(city / f"killed-{victim}") == files(city / "whole")
    assert not checkpoint.exists()


@pytest.mark.slow
def test_a_process_that_fails_is_not_waited_for(city):
    command, wrong = (["synthesize", model, "--out", "nothing"] for model in ("model", "other"))
    first, second = start_together(city, command, wrong)
    assert "expected a model folder" in finish(second, 1)
    assert "another process ended" in finish(first, 1)
    assert not (city / "nothing").exists()


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
