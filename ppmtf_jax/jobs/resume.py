"""Long work that can be stopped: a whole job, and a fit by itself, go on where they were.

Every step writes complete files or none, then a stamp with two fingerprints: of everything it depends on (its settings,
its input files or the fingerprints of the steps before it, the seed and the version of the library) and of what it
wrote. A step is skipped if both agree; so what was removed, changed or damaged is made again.

A job writes two folders: `release`, which can be handed to anyone as it is, and `private`, which only its owner may
read, with everything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
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
from ppmtf_jax.runtime.files import as_input_error, clear_leftovers, create_private, exclusive_use, remove, write_text
from ppmtf_jax.runtime.folders import check_output_folder
from ppmtf_jax.streams import Seed, draw_seed
from ppmtf_jax.synthesizers.fitted_model import MODEL, FittedModel

STEPS = ("import", "fit", "synthesize", "test", "release", "evaluate", "pictures")
METRICS_FILE = "metrics.json"
# What a job writes into its private folder.
PRIVATE_NAMES = ("data", "model", "synthetic", "verdicts", "key", METRICS_FILE, "pictures", "seed.json")


@dataclass(frozen=True)
class JobResult:
    """What a finished job made.

    Parameters
    ----------
    out : Path
    evaluation : Evaluation
        Columns released (where any was) and all synthetic traces, training and uniform.
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
    _make_private(private)
    with exclusive_use(private / ".steps" / "lock"):
        return _Job(config, progress, say).run()


def fit_resumably(
    train: PathLike,
    out: PathLike,
    system: str = "ppmtf",
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

    So work that was stopped goes on with the seed it began with.
    """
    if seed is not None:
        return draw_seed(seed)
    if file.is_file():
        try:
            value = json.loads(file.read_text(encoding="utf-8"))["seed"]
            return Seed(draw_seed(value).value, given=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            way_out = "Remove it to begin anew with another seed"
            raise InputError(str(file), [Problem("a readable seed", str(error), way_out=way_out)]) from error
    drawn = draw_seed(None)
    write_text(file, json.dumps({"seed": drawn.value}) + "\n", secret=True)
    return drawn


def _make_private(folder: Path) -> None:
    """A folder that only its owner may look into, be it new or not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.is_dir():
            folder.chmod(0o700)
        else:
            create_private(folder)
    except OSError as error:
        raise as_input_error(folder, error) from error


class _Job:
    """The steps of one run. Each is a method that makes its output; `_do` decides whether it has to."""

    def __init__(self, config: JobConfig, progress: bool, say: Callable[[str], None]):
        self.config, self.progress, self.say = config, progress, say
        self.release, self.private = config.out / "release", config.out / "private"
        self.stamps = self.private / ".steps"
        self.seed = kept_seed(self.private / "seed.json", config.seed)
        self.fingerprints: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self) -> JobResult:
        config = self.config
        clear_leftovers(config.out, ["release"])
        clear_leftovers(self.private, PRIVATE_NAMES)
        clear_leftovers(self.stamps, [*STEPS, *(path.name.split(".partial")[0][1:] for path in self._checkpoints("."))])
        self._do("import", self._import, (config.source, self._importing_with_content()), None, ["private/data"])
        self._do("fit", self._fit, (config.system, config.fitting), "import", ["private/model"])
        # Only now: a job that is killed before the stamp is there goes on from the last checkpoint.
        for checkpoint in self._checkpoints(""):
            remove(checkpoint)
        self._do("synthesize", self._synthesize, config.synthesizing, "fit", ["private/synthetic"])
        self._do("test", self._test, config.testing, "synthesize", ["private/verdicts"])
        self._do("release", self._release, config.releasing, "test", ["release", "private/key"])
        self._do("evaluate", self._evaluate, config.evaluating, "release", [f"private/{METRICS_FILE}"])
        self._do("pictures", self._pictures, None, "evaluate", ["private/pictures"])
        passed = PlausibleDeniability.load(self.private / "verdicts").passed
        return JobResult(
            config.out,
            self._evaluation(),
            len(passed),
            int(passed.sum()),
            sorted((self.private / "pictures").glob("*.png")),
            self.skipped,
        )

    def _do(self, name: str, action: Callable[[], None], settings: Any, after: str | None, outputs: list[str]) -> None:
        """Do a step unless it was done before. It depends on the step `after` it, hence on all before that."""
        fingerprint = self.fingerprints[name] = self._fingerprint(name, settings, after)
        stamp = self.stamps / name
        if stamp.is_file() and stamp.read_text() == f"{fingerprint} {self._hash_outputs(outputs)}":
            self.skipped.append(name)
            self.say(f"{name}: done before")
            return
        self.say(f"{name} ...")
        begin = time.perf_counter()
        action()
        write_text(stamp, f"{fingerprint} {self._hash_outputs(outputs)}")
        self.say(f"  done in {time.perf_counter() - begin:.1f} s")

    def _fingerprint(self, name: str, settings: Any, after: str | None) -> str:
        before = self.fingerprints[after] if after else ""
        content = [name, version("ppmtf_jax"), repr(self.seed), repr(settings), before]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _importing_with_content(self) -> Any:
        """The settings with the content of the files in place of their names, which depend on where one stands."""
        settings = self.config.importing
        return replace(settings, **{name: _content_hash(path) for name, path in input_paths(settings).items()})

    def _hash_outputs(self, outputs: list[str]) -> str:
        return "".join(_content_hash(self.config.out / name) for name in outputs)

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

    def _fit(self) -> None:
        fit_model(
            self.private / "data" / "train",
            self.private / "model",
            self.config.system,
            self.config.fitting,
            seed=self.seed,
            checkpoint=self.stamps / f"fit-{self.fingerprints['fit'][:16]}.npz",
            overwrite=True,
            progress=self.progress,
        )

    def _synthesize(self) -> None:
        model, out = self.private / "model", self.private / "synthetic"
        settings = self.config.synthesizing
        synthesize_traces(model, out, settings, seed=self.seed, overwrite=True, progress=self.progress)

    def _test(self) -> None:
        verdicts = run_privacy_test(
            self.private / "model",
            self.private / "synthetic",
            self.private / "verdicts",
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
        sets["all"] = self._load("synthetic")
        evaluation = evaluate(sets, train, test, self.config.evaluating, progress=self.progress)
        write_text(self.private / METRICS_FILE, evaluation.to_json(), secret=True)

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


def _content_hash(path: Path) -> str:
    """Of a file, or of all files of a folder with their names; of nothing, where there is nothing."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(str(file.relative_to(path)).encode())
        if file.is_file():
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
    return digest.hexdigest()
