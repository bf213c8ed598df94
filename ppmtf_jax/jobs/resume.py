"""Long work that can be stopped: a whole job, and a fit by itself, go on where they were.

Every step writes complete files or none, then a stamp with two fingerprints: of everything it depends on (its settings,
its input files or the fingerprints of the steps before it, the seed and the version of the library) and of what it
wrote. A step is skipped if both agree; so what was removed, changed or damaged is made again.

A job writes two folders: `release`, which can be handed to anyone as it is, and `private`, which only its owner may
read, with everything else; `log.txt` there says when each step was done, and in how many seconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from textwrap import indent
from typing import Any

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import Evaluation, evaluate
from ppmtf_jax.jobs.config import JobConfig, input_paths
from ppmtf_jax.jobs.steps import (
    AnySeed,
    PathLike,
    draw_pictures,
    fit_model,
    import_data,
    release_traces,
    run_privacy_test,
    synthesize_traces,
)
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability
from ppmtf_jax.privacy.release import RELEASE, RELEASE_KEY, load_with_key
from ppmtf_jax.runtime.devices import is_first_process
from ppmtf_jax.runtime.files import (
    append_text,
    clear_leftovers,
    exclusive_use,
    make_private,
    read_own,
    remove,
    write_text,
)
from ppmtf_jax.runtime.folders import check_output_folder
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import MODEL, FittedModel
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS

LINE_STEPS, LINE = ("fit", "synthesize", "test"), ("model", "synthetic", "verdicts")
"""What is done with every system, and the folder that each of these makes."""
STEPS = ("import", *LINE_STEPS, "release", "evaluate", "pictures")
METRICS_FILE = "metrics.json"
LOG_FILE = "log.txt"
"""In the private folder: a line for each step that was done, with its seconds, of all runs of the job."""
# What a job writes into its private folder.
PRIVATE_NAMES = ("data", "model", "synthetic", "verdicts", "key", METRICS_FILE, "pictures", "seed.json")
COMPARED, STAMPS = "compared", ".steps"


@dataclass(frozen=True)
class JobResult:
    """What a finished job made.

    Parameters
    ----------
    out : Path
    evaluation : Evaluation
        Columns released (where any was) and all synthetic traces (where not all were released), what passed of each
        compared system, training and uniform.
    n_traces, n_released : int
    pictures : list of Path
    skipped : list of str
        Steps that were done before and did not have to be done again.
    """

    out: Path
    evaluation: Evaluation
    n_traces: int
    n_released: int
    pictures: list[Path]
    skipped: list[str] = field(default_factory=list)


def run(config: JobConfig, *, progress: bool = False, say: Callable[[str], None] = lambda _: None) -> JobResult:
    """Do all steps of a job that are not done yet.

    Parameters
    ----------
    progress : bool
        Show progress bars where there is a terminal.
    say : function of a str
        Is told what happens.

    Raises
    ------
    InputError
        Something is wrong with the input, the disk is full, or another process works on the same folder: says which.
    """
    private = config.out / "private"
    make_private(private)
    make_private(private / STAMPS)
    with exclusive_use(private / STAMPS / "lock"):
        return _Job(config, progress, say).run()


def fit_resumably(
    train: PathLike,
    out: PathLike,
    system: str = DEFAULT_SYSTEM,
    settings: Any = None,
    *,
    seed: AnySeed = None,
    overwrite: bool = False,
    progress: bool = False,
) -> FittedModel:
    """Learn a model of a trace set; a fit that was stopped goes on when it is called again in the same way.

    Its state and its seed are kept beside `out` until it is done. One fit at a time writes a model.
    """
    final = Path(os.path.abspath(out))
    if is_first_process():
        check_output_folder(out, MODEL, overwrite=overwrite, inputs=[train])
    checkpoint, seed_file = (final.with_name(f".{final.name}.checkpoint.{suffix}") for suffix in ("npz", "json"))
    with exclusive_use(checkpoint.with_suffix(".lock")) if is_first_process() else nullcontext():
        if is_first_process():
            clear_leftovers(final.parent, [final.name, checkpoint.name, seed_file.name])
            seed = kept_seed(seed_file, seed)
        try:
            model = fit_model(
                train, out, system, settings, seed=seed, checkpoint=checkpoint, overwrite=overwrite, progress=progress
            )
        finally:
            # A seed without a state to go on from would only lie there.
            if is_first_process() and not checkpoint.exists():
                remove(seed_file)
        if is_first_process():
            remove(checkpoint)
            remove(seed_file)
        return model


def kept_seed(file: Path, seed: AnySeed) -> Seed:
    """The given seed; else that of the file; else one drawn from the operating system, which the file then keeps.

    So work that was stopped goes on with the seed it began with. A file that this user did not make, or that others may
    write to, is refused: see `runtime.files.open_own`.
    """
    if seed is not None:
        return draw_seed(seed)
    if os.path.lexists(file):
        # Of a file that somebody else put there it would be said that its seed came from the operating system.
        content = read_own(file)
        try:
            return Seed(draw_seed(json.loads(content)["seed"]).value, given=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            way_out = "Remove it to begin anew with another seed"
            raise InputError(str(file), [Problem("a readable seed", str(error), way_out=way_out)]) from error
    drawn = draw_seed(None)
    write_text(file, json.dumps({"seed": drawn.value}) + "\n")
    return drawn


class _Job:
    """The steps of one run. Each is a method that makes its output; `_do` decides whether it has to."""

    def __init__(self, config: JobConfig, progress: bool, say: Callable[[str], None]):
        self.config, self.progress, self.say = config, progress, say
        self.release, self.private = config.out / "release", config.out / "private"
        self.stamps = self.private / STAMPS
        self.seed = kept_seed(self.private / "seed.json", config.seed)
        self.fingerprints: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self) -> JobResult:
        config = self.config
        self._clear_leftovers()
        self._do("import", self._import, (config.source, self._importing_with_content()), [], ["private/data"])
        config.check_k(self._load("data/train").n_users)
        self._make(config.system, config.fitting, self.private)
        self._do("release", self._release, config.releasing, ["test"], ["release", "private/key"])
        if config.compared:
            make_private(self.private / COMPARED)
        for system, settings in config.compared.items():
            self._make(system, settings, self._compared(system), f" {system}")
        # Only now: a job that is killed before a fit's stamp is there goes on from its last checkpoint.
        for checkpoint in self._checkpoints(""):
            remove(checkpoint)
        measured = ["release", *(f"test {system}" for system in config.compared)]
        self._do("evaluate", self._evaluate, config.evaluating, measured, [f"private/{METRICS_FILE}"])
        self._do("pictures", self._pictures, None, ["evaluate"], ["private/pictures"])
        passed = PlausibleDeniability.load(self.private / "verdicts").passed
        return JobResult(
            config.out,
            self._evaluation(),
            len(passed),
            int(passed.sum()),
            sorted((self.private / "pictures").glob("*.png")),
            self.skipped,
        )

    def _clear_leftovers(self) -> None:
        """What a killed run left unfinished, and what was made of systems that are no longer compared."""
        clear_leftovers(self.config.out, ["release"])
        clear_leftovers(self.private, PRIVATE_NAMES)
        for system in SYNTHESIZERS:
            if system in self.config.compared:
                clear_leftovers(self._compared(system), LINE)
            else:
                remove(self._compared(system))
        stamps = [*STEPS, *(f"{step} {system}" for step in LINE_STEPS for system in SYNTHESIZERS)]
        clear_leftovers(
            self.stamps, [*stamps, *(path.name.split(".partial")[0][1:] for path in self._checkpoints("."))]
        )

    def _compared(self, system: str) -> Path:
        return self.private / COMPARED / system

    def _make(self, system: str, settings: Any, folder: Path, of_system: str = "") -> None:
        """Fit a system, and synthesize and test traces, into a folder of the private one."""
        make_private(folder)
        outputs = [[str((folder / name).relative_to(self.config.out))] for name in LINE]
        fit, synthesize, test = (f"{step}{of_system}" for step in LINE_STEPS)
        self._do(fit, lambda: self._fit(system, settings, folder, fit), (system, settings), ["import"], outputs[0])
        self._do(synthesize, lambda: self._synthesize(folder), self.config.synthesizing, [fit], outputs[1])
        self._do(test, lambda: self._test(folder), self.config.testing, [synthesize], outputs[2])

    def _do(self, name: str, action: Callable[[], None], settings: Any, after: list[str], outputs: list[str]) -> None:
        """Do a step unless it was done before. It depends on the steps `after` it, hence on all before those."""
        fingerprint = self.fingerprints[name] = self._fingerprint(name, settings, after)
        stamp = self.stamps / name
        if stamp.is_file() and stamp.read_text() == f"{fingerprint} {self._hash_outputs(outputs)}":
            self.skipped.append(name)
            self.say(f"{name}: done before")
            return
        self.say(f"{name} ...")
        begin = time.perf_counter()
        try:
            action()
        except BaseException as error:
            with suppress(OSError):  # a full disk is told by the step
                self._log(f"{name}: {type(error).__name__} after {time.perf_counter() - begin:.1f} s")
            raise
        write_text(stamp, f"{fingerprint} {self._hash_outputs(outputs)}")
        seconds = time.perf_counter() - begin
        self._log(f"{name}: {seconds:.1f} s")
        self.say(f"  done in {seconds:.1f} s")

    def _log(self, text: str) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        append_text(self.private / LOG_FILE, f"{now} {text}\n")

    def _fingerprint(self, name: str, settings: Any, after: list[str]) -> str:
        before = [self.fingerprints[step] for step in after]
        content = [name, version("ppmtf_jax"), repr(tuple(self.seed)), repr(settings), *before]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _importing_with_content(self) -> Any:
        """The settings with the content of the files in place of their names, which depend on where one stands."""
        settings = self.config.importing
        return replace(settings, **{name: content_hash(path) for name, path in input_paths(settings).items()})

    def _hash_outputs(self, outputs: list[str]) -> str:
        return "".join(content_hash(self.config.out / name) for name in outputs)

    def _checkpoints(self, before: str) -> list[Path]:
        """Checkpoints of fits, or what is left of unfinished ones: exactly the names that are made here."""
        after = r"\.partial-[0-9a-f]{8}" if before else ""
        name = re.compile(rf"{re.escape(before)}fit-[0-9a-f]{{16}}\.npz{after}")
        return [path for path in self.stamps.iterdir() if name.fullmatch(path.name)]

    def _import(self) -> None:
        config = self.config
        imported = import_data(
            config.source,
            config.importing,
            self.private / "data",
            seed=self.seed,
            overwrite=True,
            progress=self.progress,
        )
        self.say(indent(imported.report, "  "))

    def _fit(self, system: str, settings: Any, folder: Path, step: str) -> None:
        model = fit_model(
            self.private / "data" / "train",
            folder / "model",
            system,
            settings,
            seed=self.seed,
            checkpoint=self.stamps / f"fit-{self.fingerprints[step][:16]}.npz",
            overwrite=True,
            progress=self.progress,
        )
        for sentence in model.summary():
            self.say(f"  {sentence}")

    def _synthesize(self, folder: Path) -> None:
        settings = self.config.synthesizing
        synthesize_traces(
            folder / "model", folder / "synthetic", settings, seed=self.seed, overwrite=True, progress=self.progress
        )

    def _test(self, folder: Path) -> None:
        verdicts = run_privacy_test(
            folder / "model",
            folder / "synthetic",
            folder / "verdicts",
            self.config.testing,
            seed=self.seed,
            overwrite=True,
            progress=self.progress,
        )
        self.say(f"  {int(verdicts.passed.sum())} of {len(verdicts.passed)} traces passed")

    def _release(self) -> None:
        verdicts, key = self.private / "verdicts", self.private / "key"
        if PlausibleDeniability.load(verdicts).passed.any():
            settings, synthetic = self.config.releasing, self.private / "synthetic"
            release_traces(synthetic, verdicts, self.release, key, settings, seed=self.seed, overwrite=True)
            return
        # Of an earlier run with other settings.
        for folder, kind in ((self.release, RELEASE), (key, RELEASE_KEY)):
            check_output_folder(folder, kind, overwrite=True)
            remove(folder)

    def _evaluate(self) -> None:
        train, test = self._load("data/train"), self._load("data/test")
        sets = {"released": self._released(train)} if self.release.is_dir() else {}
        if not PlausibleDeniability.load(self.private / "verdicts").passed.all():
            sets["all"] = self._load("synthetic")
        for system in self.config.compared:
            passed = PlausibleDeniability.load(self._compared(system) / "verdicts").passed
            if passed.any():
                sets[system] = self._load(f"{COMPARED}/{system}/synthetic").select_traces(passed)
        evaluation = evaluate(sets, train, test, self.config.evaluating, progress=self.progress)
        write_text(self.private / METRICS_FILE, evaluation.to_json())

    def _pictures(self) -> None:
        train = self._load("data/train")
        draw_pictures(
            self.private / "pictures",
            synthetic=self._released(train) if self.release.is_dir() else self._load("synthetic"),
            train=train,
            test=self._load("data/test"),
            evaluation=self._evaluation(),
            model=FittedModel.load(self.private / "model"),
            overwrite=True,
            progress=self.progress,
        )

    def _load(self, name: str) -> Traces:
        return Traces.load(self.private / name, progress=self.progress)

    def _released(self, train: Traces) -> Traces:
        """What was released, as it was written, with its users known again."""
        return load_with_key(self.release, self.private / "key", train)

    def _evaluation(self) -> Evaluation:
        return Evaluation.from_json((self.private / METRICS_FILE).read_text(encoding="utf-8"))


def content_hash(path: Path) -> str:
    """Of a file, or of all files of a folder with their names; of nothing, where there is nothing."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(str(file.relative_to(path)).encode())
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()
