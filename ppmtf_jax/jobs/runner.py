"""The job runner: does the steps of a job that are not done yet, and makes one folder of their outputs.

Every step writes complete files or none, then a stamp with three fingerprints: of the source code of the library, of
everything that the step depends on (the code, its settings, its input files or the fingerprints of earlier steps, and
the seed), and of its output. A step is skipped if all agree, so an output is made again if it was removed, changed or
damaged, or if other code made it.

A job writes two folders: `release`, which can be handed to anyone, and `private`, which has everything else and which
only the owner may read; `private/log.txt` says when each step was done and how long it took.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
from jaxtyping import Bool

from ppmtf_jax.data.stored_traces import open_traces
from ppmtf_jax.data.trace_set import count_traces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import Evaluation, evaluate
from ppmtf_jax.evaluation.evaluation import sample_of_users
from ppmtf_jax.evaluation.results import TEST, TRAINING
from ppmtf_jax.jobs.config import JobConfig
from ppmtf_jax.jobs.steps import (
    fit_model,
    import_data,
    kept_seed,
    open_released,
    release_traces,
    run_privacy_test,
    synthesize_traces,
)
from ppmtf_jax.privacy.own_test import load_verdicts, settings_for
from ppmtf_jax.privacy.release import RELEASE, RELEASE_KEY, statement_of
from ppmtf_jax.runtime.files import append_text, clear_leftovers, exclusive_use, make_private, remove, write_text
from ppmtf_jax.runtime.folders import (
    VERDICTS,
    check_output_folder,
    content_digest,
    digest_of,
    digest_of_sources,
    output_folder,
)
from ppmtf_jax.runtime.progress import continues_from, spinner
from ppmtf_jax.settings import input_paths
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

SYSTEM_STEPS, SYSTEM_FOLDERS = ("fit", "synthesize", "test"), ("model", "synthetic", "verdicts")
"""The steps of every system, and the folder that each of them makes."""
METRICS_FILE = "metrics.json"
LOG_FILE = "log.txt"
"""The log in the private folder: a line for each finished step with its seconds, over all runs of the job."""
COMPARED, STAMPS, PICTURES = "compared", ".steps", "pictures"
PRIVATE_NAMES = ("data", *SYSTEM_FOLDERS, "key", METRICS_FILE, PICTURES, "seed.json")


@dataclass(frozen=True)
class JobResult:
    """What a finished job made.

    Parameters
    ----------
    evaluation : Evaluation
        Columns: released traces (if any), all synthetic traces (if not all were released), the traces of each compared
        system that passed, training and uniform.
    n_traces, n_released : int
    skipped : list of str
        Steps that an earlier run had done.
    guarantee : str
        The guarantee of the traces in words, if they are of nobody; empty for traces that were tested.
    """

    out: Path
    evaluation: Evaluation
    n_traces: int
    n_released: int
    pictures: list[Path]
    skipped: list[str] = field(default_factory=list)
    guarantee: str = ""


def run(config: JobConfig, *, progress: bool = False, say: Callable[[str], None] = lambda _: None) -> JobResult:
    """Do all steps of a job that are not done yet; `say` is told what happens.

    Raises `InputError`: the input is wrong, the disk is full, or another process works on the same folder.
    """
    stamps = config.out / "private" / STAMPS
    make_private(stamps.parent)
    make_private(stamps)
    with exclusive_use(stamps / "lock"):
        return _Job(config, progress, say).run()


class _Job:
    """One run of a job. Each step is a method that makes its output; `_do` decides whether it is needed."""

    def __init__(self, config: JobConfig, progress: bool, say: Callable[[str], None]):
        self.config, self.progress, self.say = config, progress, say
        self.release, self.private = config.out / "release", config.out / "private"
        self.stamps = self.private / STAMPS
        self.seed = kept_seed(self.private / "seed.json", config.seed)
        self.how: dict[str, Any] = {"seed": self.seed, "overwrite": True, "progress": progress}
        self.fingerprints: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self) -> JobResult:
        config, private, data = self.config, self.private, self.private / "data"
        self._clear_leftovers()
        importing = config.source, _with_digests(config.importing)
        self._do("import", lambda: self._import(data), importing, [], [data])
        self._check_k()
        self._make(config.system, config.fitting, private)
        self._do("release", self._release, config.releasing, ["test"], [self.release, private / "key"])
        if config.compared:
            make_private(private / COMPARED)
        for system, settings in config.compared.items():
            self._make(system, settings, self._compared(system), f" {system}")
        # Not earlier: a job that is killed before the stamp of a fit exists continues from its last checkpoint.
        for file in self.stamps.iterdir():
            if re.fullmatch(r"fit-[0-9a-f]{16}\.npz", file.name):
                remove(file)
        measured = ["release", *(f"test {system}" for system in config.compared)]
        self._do("evaluate", self._evaluate, config.evaluating, measured, [private / METRICS_FILE])
        pictures = private / PICTURES
        self._do("pictures", lambda: self._draw(pictures), None, ["evaluate"], [pictures])
        passed, found = self._passed(private), sorted(pictures.glob("*.png"))
        guarantee = statement_of(self.release).get("guarantee", "")
        return JobResult(config.out, self._evaluation(), len(passed), int(passed.sum()), found, self.skipped, guarantee)

    def _clear_leftovers(self) -> None:
        """Remove unfinished outputs of a killed run, and outputs of systems that are no longer compared."""
        clear_leftovers(self.config.out, ["release"])
        clear_leftovers(self.private, PRIVATE_NAMES)
        clear_leftovers(self.stamps)
        for system in SYNTHESIZERS:
            if system in self.config.compared:
                clear_leftovers(self._compared(system), SYSTEM_FOLDERS)
            else:
                remove(self._compared(system))

    def _compared(self, system: str) -> Path:
        return self.private / COMPARED / system

    def _make(self, system: str, settings: Any, folder: Path, suffix: str = "") -> None:
        """Fit a system, and synthesize and test traces, in `folder`; `suffix` ends the names of the steps."""
        config = self.config
        make_private(folder)
        fit, synthesize, test = (f"{step}{suffix}" for step in SYSTEM_STEPS)
        model, synthetic, verdicts = (folder / name for name in SYSTEM_FOLDERS)

        def fit_it() -> str:
            train, checkpoint = self.private / "data" / "train", self.stamps / f"fit-{self.fingerprints[fit][:16]}.npz"
            return "\n".join(fit_model(train, model, system, settings, checkpoint=checkpoint, **self.how).summary())

        wanted, of_nobody = config.synthesizing, SYNTHESIZERS[system].of_nobody
        testing = settings_for(system, config.testing)
        if suffix:
            # Length and start date are for the main system only: each compared system uses its default.
            wanted = replace(wanted, days=None, start=None)
            if of_nobody and wanted.people is None:
                n_people = self._open("data/train").n_users * (wanted.traces_per_user or 1)
                wanted = replace(wanted, traces_per_user=None, people=n_people)

        def synthesize_it() -> None:
            synthesize_traces(model, synthetic, wanted, **self.how)

        def test_it() -> str:
            passed = run_privacy_test(model, synthetic, verdicts, testing, **self.how).passed
            return f"{int(passed.sum())} of {len(passed)} traces passed"

        self._do(fit, fit_it, (system, _with_digests(settings)), ["import"], [model])
        self._do(synthesize, synthesize_it, wanted, [fit], [synthetic])
        if of_nobody:
            _remove_earlier(verdicts, VERDICTS)
            self.fingerprints[test] = self.fingerprints[synthesize]
            self.say(f"{test}: left out, because no trace was made from a user")
            return
        self._do(test, test_it, testing, [synthesize], [verdicts])

    def _do(
        self, name: str, action: Callable[[], str | None], settings: Any, after: list[str], outputs: list[Path]
    ) -> None:
        """Do a step unless it is done, and say what its action returns.

        The step depends on its settings, on the steps `after` and, through them, on all earlier steps.
        """
        before, code = [self.fingerprints[step] for step in after], digest_of_sources()
        fingerprint = digest_of(name, code, repr(tuple(self.seed)), repr(settings), *before)
        self.fingerprints[name] = fingerprint
        stamp = self.stamps / name
        found = stamp.read_text() if stamp.is_file() else ""
        if found == _stamp(code, fingerprint, outputs):
            self.skipped.append(name)
            continues_from(stamp, f"the step {name}")
            self.say(f"{name}: done before")
            return
        if found.split()[:2] == [code, fingerprint]:
            self.say(f"{name} was done before, but its output was changed")
        elif found and not found.startswith(code):
            self.say(f"{name} was done before, but the code of the library has changed")
        self.say(f"{name} ...")
        begin = time.perf_counter()
        try:
            made = action()
        except BaseException as error:
            with suppress(OSError):  # the step reports a full disk
                self._log(f"{name}: {type(error).__name__} after {time.perf_counter() - begin:.1f} s")
            raise
        if made:
            self.say(indent(made, "  "))
        write_text(stamp, _stamp(code, fingerprint, outputs))
        continues_from(stamp, f"the step {name}")
        seconds = time.perf_counter() - begin
        self._log(f"{name}: {seconds:.1f} s")
        self.say(f"  done in {seconds:.1f} s")

    def _log(self, text: str) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        append_text(self.private / LOG_FILE, f"{now} {text}\n")

    def _import(self, data: Path) -> str:
        return import_data(self.config.source, self.config.importing, data, **self.how).report

    def _check_k(self) -> None:
        """Refuse a k of the privacy test above the number of training users, unless there is noise on k."""
        if all(SYNTHESIZERS[system].of_nobody for system in (self.config.system, *self.config.compared)):
            return
        test, n_users = self.config.testing, self._open("data/train").n_users
        if getattr(test, "noise_epsilon", None) is None and test.k > n_users:
            way_out = "No trace could pass: lower k, or import more users"
            raise InputError("test", [Problem(f"k up to {n_users}, the training users", str(test.k), way_out=way_out)])

    def _release(self) -> None:
        model, synthetic, verdicts = (self.private / name for name in SYSTEM_FOLDERS)
        settings, key = self.config.releasing, self.private / "key"
        if SYNTHESIZERS[self.config.system].of_nobody:
            release_traces(synthetic, model, self.release, None, settings, **self.how)
            _remove_earlier(key, RELEASE_KEY)
        elif self._passed(self.private).any():
            release_traces(synthetic, verdicts, self.release, key, settings, **self.how)
        else:
            _remove_earlier(self.release, RELEASE)
            _remove_earlier(key, RELEASE_KEY)

    def _evaluate(self) -> None:
        train, test = self._open("data/train"), self._open("data/test")
        sets = {"released": self._released(train)} if self.release.is_dir() else {}
        if not self._passed(self.private).all():
            sets["all"] = self._open("synthetic")
        for system in self.config.compared:
            passed = self._passed(self._compared(system))
            if passed.any():
                sets[system] = self._open(f"{COMPARED}/{system}/synthetic").select_traces(passed)
        evaluation = evaluate(sets, train, test, self.config.evaluating, progress=self.progress)
        write_text(self.private / METRICS_FILE, evaluation.to_json())

    def _draw(self, folder: Path) -> None:
        """Draw pictures that compare the synthetic with the real traces."""
        # Only drawing needs Matplotlib.
        from ppmtf_jax.evaluation.plots import Factors, save_pictures

        train, model = self._open("data/train"), FittedModel.load(self.private / "model")
        synthetic = self._released(train) if self.release.is_dir() else self._open("synthetic")
        sets, _ = sample_of_users({TRAINING: train, TEST: self._open("data/test"), "synthetic": synthetic})
        sets["train"] = sets.pop(TRAINING)
        # Factors have a row for each user of the model.
        has_factors = isinstance(model.trace_model, Factors) and sets["train"].n_users == model.n_users
        factors = model.trace_model if has_factors else None
        with spinner("drawing", show=self.progress), output_folder(folder, PICTURES, overwrite=True) as partial:
            save_pictures(partial, **sets, evaluation=self._evaluation(), factors=factors)

    def _passed(self, folder: Path) -> Bool[np.ndarray, " trace"]:
        """Whether each synthetic trace of a system may be released: all traces of nobody, or those that passed."""
        if (folder / "verdicts").is_dir():
            return load_verdicts(folder / "verdicts").passed
        return np.ones(count_traces(folder / "synthetic"), bool)

    def _open(self, name: str) -> Traces:
        return open_traces(self.private / name, progress=self.progress)

    def _released(self, train: Traces) -> Traces:
        """The release as it was written; if there is a key, with the ids of the input users."""
        key = self.private / "key"
        return open_released(self.release, train, key if key.is_dir() else None)

    def _evaluation(self) -> Evaluation:
        return Evaluation.from_json((self.private / METRICS_FILE).read_text(encoding="utf-8"))


def _with_digests(settings: Any) -> Any:
    """Settings with digests in place of the names of files and folders, since names depend on the current folder."""
    return replace(settings, **{name: content_digest(path) or path for name, path in input_paths(settings).items()})


def _remove_earlier(folder: Path, kind: str) -> None:
    """Remove a folder that an earlier run with other settings may have left."""
    check_output_folder(folder, kind, overwrite=True)
    remove(folder)


def _stamp(code: str, fingerprint: str, outputs: list[Path]) -> str:
    return f"{code} {fingerprint} {''.join(map(content_digest, outputs))}"
