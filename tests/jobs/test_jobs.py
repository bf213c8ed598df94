"""The whole job: what is done, skipped, done again, and that a killed job ends like an unbroken one."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ppmtf_jax.data.stored_traces import StoredTraces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import plots
from ppmtf_jax.jobs import runner, steps
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.jobs.runner import JobResult, run
from ppmtf_jax.jobs.steps import fit_model, kept_seed
from ppmtf_jax.runtime.files import exclusive_use
from ppmtf_jax.synthesizers.synthesis import SynthesisSettings
from ppmtf_jax.synthesizers.systems.ppmtf import PPMTFSettings
from tests.faults import files_of_at_most, parquet_fails
from tests.trace_models.nobody import registered_nobody
from tests.trace_models.persons import registered_persons

STEPS = ["import", "fit", "synthesize", "test", "release", "evaluate", "pictures"]
OUTPUTS = [
    "private/data", "private/model", "private/synthetic", "private/verdicts", "release", "private/metrics.json",
    "private/pictures",
]  # fmt: skip
# A fixed seed, since jobs are compared byte by byte.
JOB = """
seed = 0
[import]
source = "toy-city"
n_users = 40
n_places = 12
n_days = 1

[fit]
{fit}

[test]
k = {k}

[evaluate]
attacks = {attacks}
"""
UNIFORM = 'system = "uniform"'
N_SWEEPS = 25
QUICK = PPMTFSettings(rank=2, n_sweeps=1, zeros="weighted")
PPMTF = f'system = "ppmtf"\nrank = 2\nn_sweeps = {N_SWEEPS}\nzeros = "weighted"'

# Runs the job of the first argument; kills itself at the n-th change of a file below the folder of the second. It
# prints how many changes there were, if it comes to that.
KILLED_AT = """
import os, signal, sys
job, folder, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
changes = 0
def count(event, arguments):
    global changes
    writes = event in ("os.mkdir", "os.rename", "os.remove", "shutil.rmtree")
    writes = writes or (event == "open" and isinstance(arguments[1], str) and set("wxa+") & set(arguments[1]))
    if writes and str(arguments[0]).startswith(folder):
        changes += 1
        if changes == left:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.jobs.runner import run
run(JobConfig.load(job))
print(changes)
"""


def configured(
    folder: Path, fit: str = UNIFORM, k: int | str = 2, more: str = "", attacks: Literal["true", "false"] = "false"
) -> JobConfig:
    """A job; without attacks, which take longest of so small a one."""
    (folder / "job.toml").write_text(more + JOB.format(fit=fit, k=k, attacks=attacks), encoding="utf-8")
    return JobConfig.load(folder / "job.toml")


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the log, which has times in it."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != runner.LOG_FILE]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def draw_nothing(folder, *, evaluation, **others) -> None:
    """Stands in for pictures, which take longer than all else here and have tests of their own."""
    (Path(folder) / "utility.png").write_text(evaluation.to_json())


@pytest.fixture
def no_drawing(monkeypatch):
    monkeypatch.setattr(plots, "save_pictures", draw_nothing)


@pytest.fixture(scope="module")
def unbroken_ppmtf(tmp_path_factory) -> Path:
    """Folder of such a job with the system that takes longest."""
    folder = tmp_path_factory.mktemp("unbroken_ppmtf")
    run(configured(folder, PPMTF))
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "save_pictures", draw_nothing)
        run(configured(folder))
    return folder


@pytest.fixture(scope="module")
def measured(finished, tmp_path_factory) -> tuple[Path, JobResult]:
    """Folder and result of the same job, with attacks and pictures."""
    folder = tmp_path_factory.mktemp("measured")
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        # The pictures are composed, but to lay them out takes longest, and has tests of its own.
        patch.setattr(Figure, "savefig", lambda _, path, **__: Path(path).touch())
        return folder, run(configured(folder, attacks="true"))


@pytest.fixture(scope="module")
def unseeded(tmp_path_factory) -> Path:
    """Folder of a job that draws its seed, run where files can be read by everybody unless a program forbids it."""
    folder = tmp_path_factory.mktemp("unseeded")
    config, old = without_seed(folder, "\n[[compare]]\nsystem = 'sgd'\nn_copied = 1\n"), os.umask(0)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plots, "save_pictures", draw_nothing)
            run(config)
    finally:
        os.umask(old)
    return folder


@pytest.fixture
def done(finished, tmp_path, no_drawing) -> Path:
    """Folder with a finished job of the quickest system, for one test alone."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path


# What a job makes


def test_everything_is_made(measured):
    folder, result = measured
    out = folder / "job"
    assert result.out == out
    assert {path.name for path in out.iterdir()} == {"private", "release"}
    assert {path.name for path in (out / "private").iterdir()} == {
        ".steps", "data", "model", "synthetic", "verdicts", "key", "metrics.json", "pictures", "log.txt"
    }  # fmt: skip
    assert stat.S_IMODE((out / "private").stat().st_mode) == 0o700
    assert [path.name for path in result.pictures] == [
        f"{name}.png" for name in ("population", "privacy", "transitions", "utility")
    ]
    assert result.skipped == STEPS[:5]  # of a job without attacks
    assert result.n_released == result.n_traces == 32
    assert pd.read_parquet(out / "private" / "verdicts" / "verdicts.parquet")["passed"].sum() == result.n_released
    assert len(pd.read_parquet(out / "release" / "traces.parquet")) == 24 * result.n_released
    # All passed, and are what was released.
    assert result.evaluation.columns == ["released", "training", "uniform"]
    assert {"tp_tv", "reid_rate"} < set(result.evaluation.metrics)


def test_steps_are_told_in_plain_lines_and_logged_with_their_seconds(tmp_path, no_drawing, monkeypatch):
    said = []
    run(configured(tmp_path), say=said.append)
    assert [line for line in said if not line.startswith(" ")] == [f"{step} ..." for step in STEPS]
    assert sum("done in" in line for line in said) == len(STEPS)
    said.clear()
    run(configured(tmp_path), say=said.append)
    assert said == [f"{step}: done before" for step in STEPS]
    log = tmp_path / "job" / "private" / "log.txt"
    time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"
    lines = log.read_text().splitlines()
    for line, step in zip(lines, STEPS, strict=True):
        assert re.fullmatch(rf"{time} {step}: \d+\.\d s", line)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600

    def fail(*arguments, **options):
        raise InputError("traces", [Problem("others", "these")])

    monkeypatch.setattr(runner, "evaluate", fail)
    with pytest.raises(InputError, match="found these"):
        run(configured(tmp_path, k=3))
    added = log.read_text().splitlines()[len(lines) :]
    assert [line.split()[1] for line in added] == ["test:", "release:", "evaluate:"]
    assert re.fullmatch(rf"{time} evaluate: InputError after \d+\.\d s", added[-1])


def test_nothing_released(tmp_path, no_drawing):
    """Noise asks for more users than there are: the job still ends, and says what was withheld."""
    with pytest.raises(InputError, match="k up to 32, the training users; found 1000"):
        run(configured(tmp_path, k=1000))
    assert run(configured(tmp_path, k=1)).n_released == 32
    assert (tmp_path / "job" / "release").exists()
    result = run(configured(tmp_path, k="1000\nnoise_epsilon = 1"))
    assert (result.n_released, result.n_traces) == (0, 32)
    assert result.evaluation.columns == ["all", "training", "uniform"]
    assert not (tmp_path / "job" / "release").exists()
    assert not (tmp_path / "job" / "private" / "key").exists()


def test_what_was_withheld_is_measured_too(tmp_path, no_drawing):
    # First events are copied, so that only users who began at one place are alike.
    result = run(configured(tmp_path, 'system = "sgd"\nn_copied = 1', k=8))
    assert 0 < result.n_released < result.n_traces
    assert result.evaluation.columns == ["released", "all", "training", "uniform"]
    assert not {"reid_rate", "mia_advantage"} & set(result.evaluation.metrics)
    assert "the seed must stay secret" in (tmp_path / "job" / "release" / "PRIVACY_DETAILS.txt").read_text()


def test_of_many_users_a_sample_is_measured_and_drawn(done, monkeypatch):
    """No step loads a whole set."""
    monkeypatch.setattr("ppmtf_jax.evaluation.evaluation.MAX_USERS", 7)
    monkeypatch.setattr(StoredTraces, "in_memory", None)
    drawn = {}
    monkeypatch.setattr(plots, "save_pictures", lambda folder, **given: drawn.update(given))
    shutil.rmtree(done / "job" / "private" / "pictures")
    (done / "job" / "private" / "metrics.json").unlink()
    result = run(JobConfig.load(done / "job.toml"))
    assert set(result.evaluation.sampled) == {"released", "training", "test"}
    assert [drawn[name].n_users for name in ("synthetic", "train", "test")] == [7] * 3


def test_systems_are_compared_on_the_same_data_and_test(tmp_path, no_drawing):
    more = '\n[[compare]]\nsystem = "sgd"\nn_copied = 1\n'
    job = configured(tmp_path, f"{UNIFORM}{more}")
    result = run(job)
    assert result.evaluation.columns == ["released", "sgd", "training", "uniform"]
    assert np.isfinite(result.evaluation.value("tp_tv", "sgd"))
    assert (tmp_path / "job" / "private" / "compared" / "sgd" / "verdicts").is_dir()
    assert run(job).skipped == [*STEPS[:5], *(f"{step} sgd" for step in STEPS[1:4]), *STEPS[5:]]
    # What is no longer compared goes, and nothing else is done again than what depends on it.
    without = run(configured(tmp_path))
    assert without.evaluation.columns == ["released", "training", "uniform"]
    assert without.skipped == STEPS[:5]
    assert not (tmp_path / "job" / "private" / "compared" / "sgd").exists()


# What is done again


def test_a_finished_job_is_skipped_from_wherever_it_is_called(done, monkeypatch):
    before = contents(done)
    assert run(configured(done)).skipped == STEPS
    monkeypatch.chdir(done)
    assert run(JobConfig.load("job.toml")).skipped == STEPS
    moved = shutil.copytree(done, done / "moved")
    assert run(JobConfig.load(moved / "job.toml")).skipped == STEPS
    shutil.rmtree(moved)
    assert contents(done) == before


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (("n_days = 1", "n_days = 2"), []),
        (("seed = 0", "seed = 1"), []),
        (('"uniform"', '"sgd"\nn_copied = 1'), STEPS[:1]),
        (("[test]", "[synthesize]\ntraces_per_user = 2\n[test]"), STEPS[:2]),
        (("k = 2", "k = 3"), STEPS[:3]),
        (("[evaluate]", "[release]\nkeep_users_together = true\n[evaluate]"), STEPS[:4]),
        (("k = 2", "k = 2 # as before"), STEPS),
    ],
)
def test_only_what_depends_on_a_change_is_done_again(done, change, kept):
    file = done / "job.toml"
    file.write_text(file.read_text().replace(*change))
    assert run(JobConfig.load(file)).skipped == kept
    assert run(JobConfig.load(file)).skipped == STEPS


def test_other_code_does_all_again_and_says_so(done, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(runner, "digest_of_sources", lambda: "0" * 64)
    assert run(configured(done), say=said.append).skipped == []
    assert sum("the code of the library has changed" in each for each in said) == len(STEPS)


def test_a_changed_input_does_all_again(tmp_path, no_drawing):
    frame = toy_city(40, n_places=12, n_days=1).traces.to_frame()
    frame["time"] = "2024-01-01T" + frame["instant"].map("{:02d}:00:00".format)
    frame["latitude"], frame["longitude"] = 52.0, 5.0
    frame.to_csv(tmp_path / "my.csv", index=False)
    job = '[import]\nsource = "checkins"\npath = "my.csv"\ntime_zone = "UTC"\n[fit]\nsystem = "uniform"\n'
    job += "[evaluate]\nattacks = false\n"
    (tmp_path / "job.toml").write_text(job)
    assert run(JobConfig.load(tmp_path / "job.toml")).skipped == []
    assert run(JobConfig.load(tmp_path / "job.toml")).skipped == STEPS
    frame.iloc[1:].to_csv(tmp_path / "my.csv", index=False)
    assert run(JobConfig.load(tmp_path / "job.toml")).skipped == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("private/data", "import"),
        ("private/data/test/traces.parquet", "import"),
        ("private/model/parameters.npz", "fit"),
        ("private/synthetic", "synthesize"),
        ("private/verdicts/verdicts.parquet", "test"),
        ("private/key/key.parquet", "release"),
        ("release/traces.parquet", "release"),
        ("private/metrics.json", "evaluate"),
        ("private/pictures/utility.png", "pictures"),
        ("private/.steps/fit", "fit"),
    ],
)
def test_what_was_removed_or_damaged_is_made_again(done, name, step):
    before = contents(done)
    path = done / "job" / name
    shutil.rmtree(path) if path.is_dir() else path.write_bytes(b"damaged")
    assert run(configured(done)).skipped == [other for other in STEPS if other != step]
    assert contents(done) == before


# What goes wrong


def test_an_error_keeps_finished_steps_and_leaves_nothing_half_written(tmp_path, monkeypatch, no_drawing):
    with pytest.raises(InputError, match=r"No space left on device.*free space"), parquet_fails():
        run(configured(tmp_path))
    assert contents(tmp_path / "job") == {}
    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(configured(tmp_path))
    assert run(configured(tmp_path)).skipped == STEPS[:5]


@pytest.mark.parametrize(("step", "output"), list(zip(STEPS, OUTPUTS, strict=True)))
def test_a_full_disk_at_any_step_keeps_what_was_finished(done, step, output):
    before = contents(done)
    removed = done / "job" / output
    shutil.rmtree(removed) if removed.is_dir() else removed.unlink()
    left, config = contents(done), configured(done)
    with pytest.raises(InputError, match=r"File too large.*Check permissions and free space"), files_of_at_most(10):
        run(config)
    assert contents(done) == left
    assert run(configured(done)).skipped == [other for other in STEPS if other != step]
    assert contents(done) == before


@pytest.mark.parametrize("folder", ["job/private", "job/private/.steps"])
def test_write_protection_is_told_and_nothing_is_changed(done, folder):
    before, config = contents(done), configured(done, k=3)
    (done / folder).chmod(0o500)
    if os.access(done / folder, os.W_OK):
        (done / folder).chmod(0o700)
        pytest.skip("the superuser may write everywhere")
    try:
        with pytest.raises(InputError, match=r"Permission denied.*Check permissions"):
            run(config)
    finally:
        (done / folder).chmod(0o700)
    assert contents(done / "job") == {name.removeprefix("job/"): before[name] for name in before if "job/" in name}


def test_a_second_run_of_the_same_job_is_refused(done):
    before, config = contents(done), configured(done)
    leftover = done / "job" / "private" / ".model.partial-0a1b2c3d"
    leftover.mkdir()
    with exclusive_use(done / "job" / "private" / ".steps" / "lock"):
        with pytest.raises(
            InputError, match=rf"job/private/\.steps: .*found process {os.getpid()} on .* at work.*Wait for it"
        ):
            run(config)
        assert leftover.exists()
    assert run(config).skipped == STEPS
    assert contents(done) == before


def test_leftovers_of_a_killed_run_vanish(done):
    out = done / "job"
    before = contents(done)
    lock, code = (
        out / "private" / ".steps" / "lock",
        (
            "import os, signal, sys; from ppmtf_jax.runtime.files import exclusive_use\n"
            "with exclusive_use(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)"
        ),
    )
    subprocess.run([sys.executable, "-c", code, str(lock)], capture_output=True, check=False)
    assert "process" in lock.read_text()
    for folder in ("private/.model.partial-0a1b2c3d", "private/.data.old-0a1b2c3d", ".release.partial-0a1b2c3d"):
        (out / folder).mkdir()
        (out / folder / "half").touch()
    fit = "private/.steps/{}fit-0123456789abcdef.npz"
    for file in ("private/.metrics.json.partial-0a1b2c3d", fit.format(".") + ".partial-0a1b2c3d", fit.format("")):
        (out / file).touch()
    kept = {"private/.notes.old-0a1b2c3d", "private/.steps/fit-mine.npz", ".model.partial-mine"}
    for file in kept:
        (out / file).touch()
    assert run(configured(done)).skipped == STEPS
    after = contents(done)
    assert {name.removeprefix("job/") for name in after.keys() - before.keys()} == kept
    assert {name: after[name] for name in before} == before


def test_what_somebody_keeps_among_the_pictures_is_not_lost(done):
    (done / "job" / "private" / "pictures" / "mine.png").write_text("a drawing")
    with pytest.raises(InputError, match=r"pictures: .*also mine\.png.*move away what you keep there"):
        run(configured(done))
    assert (done / "job" / "private" / "pictures" / "mine.png").read_text() == "a drawing"


def test_a_folder_of_others_is_not_touched(tmp_path, no_drawing):
    for name in ("private/data", "release"):
        folder = tmp_path / "job" / name
        folder.mkdir(parents=True)
        (folder / "mine.txt").write_text("precious")
        with pytest.raises(InputError, match=r"folder to replace; found one with mine\.txt"):
            run(configured(tmp_path))
        assert (folder / "mine.txt").read_text() == "precious"
        shutil.rmtree(folder)


def run_killed(folder: Path, at: int, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED_AT, str(folder / "job.toml"), str(folder / "job"), str(at)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_a_killed_job_equals_an_unbroken_one(finished, tmp_path, no_drawing):
    """Killed at its 25th change of a file; slow tests kill at random changes and times."""
    config = configured(tmp_path)
    assert run_killed(tmp_path, 25).returncode == -signal.SIGKILL
    run(config)
    assert contents(tmp_path) == contents(finished)


def test_the_checkpoint_of_a_fit_outlives_the_model(tmp_path, monkeypatch, no_drawing):
    """At no moment does a job know neither that the fit is done nor where it was."""
    quick_fit, write_text = steps.fit, runner.write_text
    found = []

    def fit(*args, checkpoints, **kwargs):
        found.append(checkpoints.path.exists())
        checkpoints.path.touch()
        return quick_fit(*args, **kwargs)

    def stop_at_the_stamp_of_fit(path, text, **options):
        if path.name == "fit":
            raise KeyboardInterrupt
        write_text(path, text, **options)

    monkeypatch.setattr(steps, "fit", fit)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "write_text", stop_at_the_stamp_of_fit)
        with pytest.raises(KeyboardInterrupt):
            run(configured(tmp_path))
    assert (tmp_path / "job" / "private" / "model").is_dir()
    assert run(configured(tmp_path)).skipped == ["import"]
    assert found == [False, True]
    assert not list((tmp_path / "job" / "private" / ".steps").glob("*.npz"))


# The seed


def without_seed(folder: Path, more: str = "") -> JobConfig:
    configured(folder, UNIFORM + more)
    text = (folder / "job.toml").read_text().replace("seed = 0\n", "")
    (folder / "job.toml").write_text(text)
    return JobConfig.load(folder / "job.toml")


def test_a_job_draws_its_seed_once_and_goes_on_with_it(unseeded, tmp_path, monkeypatch, no_drawing):
    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(without_seed(tmp_path))
    seed_file = tmp_path / "job" / "private" / "seed.json"
    seed = json.loads(seed_file.read_text())["seed"]
    assert stat.S_IMODE(seed_file.stat().st_mode) == 0o600
    assert seed.bit_length() > 90
    assert run(without_seed(tmp_path)).skipped == STEPS[:5]
    assert json.loads(seed_file.read_text())["seed"] == seed
    assert json.loads((tmp_path / "job/private/model/model.json").read_text())["seed"] == seed
    statement = (tmp_path / "job" / "release" / "PRIVACY_DETAILS.txt").read_text()
    assert "drawn from the operating system's secure source" in statement
    release = "job/release/traces.parquet"
    assert (tmp_path / release).read_bytes() != (unseeded / release).read_bytes()


def test_others_can_read_only_the_release_and_it_does_not_tell_the_seed(unseeded):
    private = unseeded / "job" / "private"
    for path in (private, *private.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    seed = json.loads((private / "seed.json").read_text())["seed"]
    for path in (unseeded / "job" / "release").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert str(seed).encode() not in path.read_bytes()


needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs a system that says whose a file is")


# Each of the three files is opened as one of ours; the tests of `runtime.files` plant everything else.
PLANTED = [
    ("json", "of another user"), ("json", "that others may write to"), ("npz", "a link"),
    ("lock", "has another name too"),
]  # fmt: skip


@needs_owners
@pytest.mark.parametrize(("suffix", "kind"), PLANTED)
def test_what_somebody_else_put_beside_a_model_is_no_checkpoint(tmp_path, monkeypatch, suffix, kind):
    """Whoever may write to the folder; by a seed that they know they could take apart what is released."""
    toy_city(20, n_places=12, n_days=1).traces.save(tmp_path / "train")
    planted, treasure = tmp_path / f".m.checkpoint.{suffix}", tmp_path / "treasure"
    treasure.write_text('{"seed": 1}')
    treasure.chmod(0o600)
    if kind == "a link":
        planted.symlink_to(treasure)
    elif kind == "has another name too":
        planted.hardlink_to(treasure)
    else:
        treasure.rename(planted)
        planted.chmod(0o622 if kind == "that others may write to" else 0o600)
    if kind == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InputError, match=rf"checkpoint\.{suffix}: expected a file that this program .* found .*{kind}"):
        fit_model(tmp_path / "train", tmp_path / "m", "ppmtf", QUICK)
    assert not (tmp_path / "m").exists()
    assert not treasure.exists() or treasure.read_text() == '{"seed": 1}'


def test_a_fit_that_was_stopped_goes_on_with_its_seed(tmp_path, monkeypatch):
    toy_city(20, n_places=12, n_days=1).traces.save(tmp_path / "train")
    quick_fit, seeds = steps.fit, []

    def fit(*args, seed, checkpoints, **kwargs):
        seeds.append(seed)
        checkpoints.path.touch()
        if len(seeds) == 1:
            raise KeyboardInterrupt
        return quick_fit(*args, seed=seed, **kwargs)

    monkeypatch.setattr(steps, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        fit_model(tmp_path / "train", tmp_path / "m", "uniform")
    kept = tmp_path / ".m.checkpoint.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    model = fit_model(tmp_path / "train", tmp_path / "m", "uniform")
    assert seeds[0] == seeds[1]
    assert (model.seed, model.seed_given) == (seeds[0].value, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "train"]
    again = fit_model(tmp_path / "train", tmp_path / "m", "uniform", overwrite=True)
    assert again.seed != model.seed


@pytest.mark.parametrize("content", ["", "{}", '{"seed": -1}', '{"seed": "x"}', "[]"])
def test_a_damaged_seed_is_told(tmp_path, content):
    (tmp_path / "seed.json").write_text(content)
    with pytest.raises(InputError, match="seed"):
        kept_seed(tmp_path / "seed.json", None)
    assert kept_seed(tmp_path / "seed.json", 3).value == 3


@pytest.mark.slow
def test_a_killed_fit_goes_on_from_its_checkpoint(unbroken_ppmtf, tmp_path):
    config = configured(tmp_path, PPMTF)
    # Killed where it begins to write the model: all sweeps are done, and only the checkpoint knows of them.
    kill_before_model = """
import os, signal, sys
def kill(event, arguments):
    if event == "os.mkdir" and ".model.partial" in str(arguments[0]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.jobs.runner import run
run(JobConfig.load(sys.argv[1]))
"""
    killed = subprocess.run(
        [sys.executable, "-c", kill_before_model, str(tmp_path / "job.toml")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (checkpoint,) = (tmp_path / "job" / "private" / ".steps").glob("fit-*.npz")
    with np.load(checkpoint) as arrays:
        assert arrays["kept_sweeps"].tolist() == [N_SWEEPS]
    assert run(config).skipped == ["import"]
    assert contents(tmp_path) == contents(unbroken_ppmtf)


@pytest.mark.slow
def test_a_job_killed_again_and_again_equals_an_unbroken_one(unbroken_ppmtf, tmp_path):
    """Kills at random file changes, just before each takes place, and at random times."""
    draw = random.Random(0)
    expected = contents(unbroken_ppmtf)
    n_kills = {"at a change": 0, "at a time": 0}
    rounds = 0
    while sum(n_kills.values()) < 24 or rounds < 3:
        folder = tmp_path / str(rounds)
        folder.mkdir()
        configured(folder, PPMTF)
        while True:
            how = draw.choice(list(n_kills))
            try:
                ended = run_killed(
                    folder,
                    draw.randint(1, 30) if how == "at a change" else 0,
                    draw.uniform(1, 10) if how == "at a time" else None,
                )
            except subprocess.TimeoutExpired:  # which kills
                n_kills[how] += 1
                continue
            if ended.returncode == 0:
                break
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            n_kills[how] += 1
        assert contents(folder) == expected
        rounds += 1
    assert min(n_kills.values()) > 5


# Configurations


def refusal(tmp_path: Path, text: str) -> InputError:
    (tmp_path / "job.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        JobConfig.load(tmp_path / "job.toml")
    assert str(caught.value).startswith(str(tmp_path / "job.toml"))
    return caught.value


def test_all_mistakes_of_a_file_are_listed(tmp_path):
    error = refusal(
        tmp_path,
        """
        seed = -1
        sede = 1
        out = 3
        synthesize = 10
        [import]
        source = "gowalla"
        path = "x"
        n_place = 3
        train_fraction = 2
        step_s = 7
        time_zone = "Mars"
        [fit]
        system = "ppmf"
        [test]
        k = 0
        eta = 0
        n_verifiers = "all"
        [evaluate]
        attacks = 1
        [picture]
        """,
    )
    found = [
        "found 'picture'", "found 'sede'", "out as text; found 3", "seed: expected a whole number", "table; found 10",
        "[fit] expected one of", "Did you mean n_places?", "train_fraction as a number", "'Mars'",
        "[import] expected a step", "[test] expected n_verifiers as a whole number", "expected k as a whole number",
        "eta as a finite number above 0; found 0", "[evaluate] expected attacks as true or false; found 1",
    ]  # fmt: skip
    assert [text for text in found if text not in str(error)] == []
    assert len(error.problems) == len(found)


TOY = '[import]\nsource = "toy-city"\n'
CHECKINS = '[import]\nsource = "checkins"\npath = "x"\n'
NOBODY = '\n[fit]\nsystem = "nobody"\n'
NOT_PUBLIC = r"onto public places; found.*place_table.*min_users_per_place=1"
MISTAKES = [
    ("", r"\[import\] expected source as 'checkins' or .*found nothing"),
    ("seed = ", "readable TOML file; found Invalid value"),
    ('[import]\nsource = "foursquare"', "path as a file or folder; found nothing"),
    (f"{CHECKINS}grid = [1, 2]", "found 2 values"),
    (f"{CHECKINS}grid = [1, 2, 3, 4, 5.5, 0]", r"whole numbers; found 5\.5 and 0"),
    (f"{CHECKINS}n_places = 0", "n_places as a whole number of at least 1"),
    (f'{TOY}[fit]\nsystem = "ppmtf"\nrank = 0', r"\[fit\] expected rank as .* at least 1 or 'auto'; found 0"),
    (f"{TOY}[synthesize]\ntraces_per_user = 0", "traces_per_user as a whole number of at least 1"),
    (f"{TOY}[compare]\nsystem = 'sgd'", "with a system in each"),
    (f"{TOY}[[compare]]\nn_copied = 1", "with a system in each"),
    (f"{TOY}[[compare]]\nsystem = 'bridge'", "of another system each; found 'bridge'"),
    (f"{TOY}[[compare]]\nsystem = 'sgd'\nrank = 2", "rank"),
    (f"{TOY}[[compare]]\nsystem = 'sdg'", "sdg"),
    # Places, and events at them, that depend on people are refused before the fit.
    (f"{CHECKINS}{NOBODY}", NOT_PUBLIC),
    (f"{CHECKINS}n_places = 5\nmin_users_per_place = 1{NOBODY}", NOT_PUBLIC),
    (f"{CHECKINS}grid = [1, 2, 1, 2, 3, 3]{NOBODY}", NOT_PUBLIC),
    (f"{TOY}{NOBODY}", "onto public places"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_one_mistake(tmp_path, text, message):
    with registered_nobody():
        assert refusal(tmp_path, text).args[0].count("\n") == 0
        with pytest.raises(InputError, match=message):
            JobConfig.load(tmp_path / "job.toml")


def test_settings_for_users_are_refused_before_the_fit(tmp_path):
    more = "[synthesize]\ntraces_per_user = 2\n[release]\nmin_users_per_place = 1\nkeep_users_together = true"
    with registered_nobody(), pytest.raises(InputError) as error:
        configured(tmp_path, f'system = "nobody"\n{more}')
    assert len(error.value.problems) == 4
    assert "no traces_per_user in [synthesize]: nobody knows no users" in str(error.value)


def test_files_that_are_none_and_others(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, message in (("nowhere.toml", "no such file"), ("", "Is a directory"), ("binary", "readable TOML file")):
        with pytest.raises(InputError, match=message):
            JobConfig.load(tmp_path / name)
    # Some editors write a byte-order mark. Paths are relative to the file.
    text = '[import]\nsource = "gowalla"\npath = "x.txt"\nedges = "/y.txt"\ntime_zone = "Asia/Tokyo"'
    (tmp_path / "a job.toml").write_text(text, encoding="utf-8-sig")
    config = JobConfig.load(tmp_path / "a job.toml")
    assert config.out == tmp_path / "a job"
    assert (config.importing.path, config.importing.edges) == (tmp_path / "x.txt", Path("/y.txt"))
    for how in ('place_table = "b.csv"\n', "grid = [1, 2, 1, 2, 3, 3]\nmin_users_per_place = 1\n"):
        (tmp_path / "job.toml").write_text(f"{CHECKINS}{how}{NOBODY}")
        with registered_nobody():
            assert JobConfig.load(tmp_path / "job.toml").system == "nobody"


def test_files_of_the_fit_are_relative_to_the_file_and_decide_whether_it_is_done(tmp_path, no_drawing):
    """Also those of compared systems; the release names such a file without its folder."""
    fit = 'system = "nobody"\npublic = "known.csv"\n[synthesize]\npeople = 20'
    with registered_nobody():
        job = configured_for_nobody(tmp_path, fit)
        assert job.fitting.public == tmp_path / "known.csv"
        more = configured(tmp_path, f'{UNIFORM}\n[[compare]]\nsystem = "nobody"\npublic = "known.csv"\n')
        assert more.compared["nobody"].public == tmp_path / "known.csv"
        with pytest.raises(InputError, match=r"known\.csv: expected a file to read"):
            run(job)
        (tmp_path / "known.csv").write_text("1")
        run(job)
        assert "fit" in run(job).skipped
        assert json.loads((job.out / "private" / "model" / "model.json").read_text())["settings"]["public"] == str(
            tmp_path / "known.csv"
        )
        statement = json.loads((job.out / "release" / "privacy.json").read_text())
        assert statement["generator"]["settings"]["public"] == "known.csv"
        assert not any(str(tmp_path).encode() in content for content in contents(job.out / "release").values())
        (tmp_path / "known.csv").write_text("2")
        assert "fit" not in run(job).skipped


# Persons


def test_a_job_makes_people_of_some_days(tmp_path, no_drawing):
    """Dated as TOML writes dates; systems compared with them make traces as long as they can."""
    more = '[synthesize]\npeople = 50\ndays = 3\nstart = 2031-05-06\n[[compare]]\nsystem = "sgd"\n'
    with registered_persons():
        config = configured(tmp_path, 'system = "persons"\nkind = "Travellers"')
        file = tmp_path / "job.toml"
        file.write_text(file.read_text() + more)
        config = JobConfig.load(file)
        assert config.synthesizing == SynthesisSettings(people=50, days=3, start=date(2031, 5, 6))
        result = run(config)
        assert result.n_traces == 50
        private = config.out / "private"
        made = Traces.load(private / "synthetic")
        assert (made.time_grid.start, made.time_grid.n_instants) == ("2031-05-06T00:00:00", 72)
        assert made.n_events < 50 * 72
        compared = Traces.load(private / "compared" / "sgd" / "synthetic")
        assert (len(compared.trace_table()[0]), compared.time_grid.n_instants) == (50, 24)
        assert Traces.load(config.out / "release").time_grid.start == "2031-05-06T00:00:00"
        assert run(config).skipped


# Nobody


def configured_for_nobody(folder: Path, fit: str = 'system = "nobody"', k: int = 2) -> JobConfig:
    """A job on public places, where nobody's events are moved."""
    text = JOB.replace("n_days = 1", "n_days = 1\nmin_users_per_place = 1").format(fit=fit, k=k, attacks="false")
    (folder / "job.toml").write_text(text)
    return JobConfig.load(folder / "job.toml")


def test_a_model_of_nobody_needs_no_test_and_no_key(tmp_path, no_drawing):
    """In the folder of a job whose users have both."""
    nobody = 'system = "nobody"\n[synthesize]\npeople = 60'
    private, said = tmp_path / "job" / "private", []
    with registered_nobody():
        run(configured(tmp_path))
        assert (private / "verdicts").is_dir()
        assert (private / "key").is_dir()
        # A k that no trace could reach does not matter: there is no test.
        job = configured_for_nobody(tmp_path, nobody, k=999)
        result = run(job, say=said.append)
        assert "test: left out, because no trace was made from a user" in said
        assert (result.n_traces, result.n_released) == (60, 60)
        assert result.guarantee.startswith("Every person whose data was used is protected")
        assert result.evaluation.columns == ["released", "training", "uniform"]
        assert not (private / "verdicts").exists()
        assert not (private / "key").exists()
        assert Traces.load(tmp_path / "job" / "release").of_nobody
        assert run(job).skipped == [step for step in STEPS if step != "test"]
        # And back.
        run(configured(tmp_path))
        assert (private / "key").is_dir()
        assert not Traces.load(tmp_path / "job" / "release").of_nobody


def test_nobody_is_compared_in_as_many_people_as_there_are_traces(tmp_path, no_drawing):
    more = '\n[synthesize]\ntraces_per_user = 2\n[[compare]]\nsystem = "nobody"\n'
    with registered_nobody():
        job = configured(tmp_path, f"{UNIFORM}{more}")
        result = run(job)
        assert result.evaluation.columns == ["released", "nobody", "training", "uniform"]
        compared = Traces.load(tmp_path / "job" / "private" / "compared" / "nobody" / "synthetic")
        assert compared.n_users == result.n_traces == 2 * 32
        assert result.guarantee == ""
