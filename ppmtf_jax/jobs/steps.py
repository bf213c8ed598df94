"""The whole line as one resumable job: import, fit, synthesize, test, evaluate, draw.

Every step writes complete files or none, then a stamp with two fingerprints: of everything it depends on (its settings,
its input files or the fingerprints of the steps before it, the seed and the version of the library) and of what it
wrote. A step is skipped if both agree; so what was removed, changed or damaged is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from math import isnan
from pathlib import Path
from textwrap import indent
from typing import Any, Literal

from ppmtf_jax.data.time_grid import zone_problems
from ppmtf_jax.data.trace_set import read_parquet
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.checkins import read_checkins
from ppmtf_jax.datasets.discretization import Discretization
from ppmtf_jax.datasets.foursquare import read_foursquare
from ppmtf_jax.datasets.gowalla import read_gowalla
from ppmtf_jax.datasets.people_flow import read_people_flow
from ppmtf_jax.datasets.places import GridPlaces, MostVisited
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import evaluate
from ppmtf_jax.evaluation.tables import write_json
from ppmtf_jax.gibbs.run import Checkpoints
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability, plausible_deniability_test
from ppmtf_jax.runtime.files import atomic_folder, clear_leftovers, exclusive_use, write_text
from ppmtf_jax.runtime.progress import spinner
from ppmtf_jax.settings import build_settings
from ppmtf_jax.streams import check_seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import synthesizer_named
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

STEPS = ("import", "fit", "synthesize", "test", "evaluate", "pictures")
VERDICTS = "verdicts.parquet"


@dataclass(frozen=True)
class ImportSettings:
    """Where the traces come from and how they become discrete.

    Parameters
    ----------
    source : the kind of data
    path : str
        File or folder, relative to the configuration file; not used for the toy city.
    edges : str, optional
        Friendships (Gowalla).
    columns : mapping, optional
        Column names of a general check-in table, see `read_checkins`.
    n_places : int
        How many of the most visited places to keep, by default 1000; for the toy city how many there are, by default
        100.
    grid : (south, north, west, east, rows, columns), optional
        Regular grid in degrees instead of places of the data.
    step_s, slot_s : int
        Seconds of an instant and of a slot that comes round every day.
    max_gap_s : float, optional
        A longer gap between check-ins ends a trace.
    time_zone : str, optional
        IANA name; the reader's default where it has one.
    train_fraction : float
        Share of the users to learn from; the others are for testing. People-flow data is split already.
    n_users, n_days : int
        Of the toy city.
    """

    source: Literal["people-flow", "foursquare", "gowalla", "checkins", "toy-city"]
    path: str = ""
    edges: str | None = None
    columns: dict | None = None
    n_places: int | None = None
    grid: tuple[int | float, ...] | None = None
    step_s: int = 3600
    slot_s: int = 7200
    max_gap_s: float | None = None
    time_zone: str | None = None
    train_fraction: float = 0.8
    n_users: int = 400
    n_days: int = 7

    def __post_init__(self) -> None:
        problems: list[Problem | str] = []
        if self.source != "toy-city" and not self.path:
            problems.append(Problem("path of the data", "nothing"))
        if not 0 < self.train_fraction < 1:
            problems.append(Problem("train_fraction between 0 and 1", repr(self.train_fraction)))
        for name, least in {"n_users": 2, "n_days": 1}.items():
            value = getattr(self, name)
            if value < least:
                problems.append(Problem(f"{name} of at least {least}", repr(value)))
        if self.time_zone is not None:
            problems += zone_problems(self.time_zone)
        _collect(problems, "", self.discretization)
        if problems:
            raise InputError("import", problems)

    def discretization(self) -> Discretization:
        """How check-ins become events."""
        if self.grid is None:
            places: GridPlaces | MostVisited = MostVisited(1000 if self.n_places is None else self.n_places)
        elif len(self.grid) != 6:
            expected = "grid as south, north, west, east, rows, columns"
            raise InputError("import", [Problem(expected, f"{len(self.grid)} values")])
        else:
            south, north, west, east, rows, columns = self.grid
            if not (isinstance(rows, int) and isinstance(columns, int)):
                expected = "rows and columns of the grid as whole numbers"
                raise InputError("import", [Problem(expected, f"{rows!r} and {columns!r}")])
            places = GridPlaces(south, north, west, east, rows, columns)
        return Discretization(places, self.step_s, self.slot_s, max_gap_s=self.max_gap_s)


@dataclass(frozen=True)
class SynthesizeSettings:
    """How many traces to synthesize from each user."""

    traces_per_user: int = 1

    def __post_init__(self) -> None:
        if self.traces_per_user < 1:
            raise InputError("synthesize", [Problem("traces_per_user of at least 1", repr(self.traces_per_user))])


@dataclass(frozen=True)
class TestSettings:
    """Parameters of the plausible-deniability test, see `plausible_deniability_test`."""

    __test__ = False  # pytest must not collect it

    k: int = 10
    eta: float = 1.0
    n_verifiers: int | None = None
    noise_epsilon: float | None = None
    precision: Literal["float64", "float32"] = "float64"

    def __post_init__(self) -> None:
        problems = []
        if self.noise_epsilon is not None and not 0 < self.noise_epsilon < float("inf"):
            problems.append(Problem("a positive, finite noise_epsilon", repr(self.noise_epsilon)))
        for name in ("k", "n_verifiers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                problems.append(Problem(f"{name} of at least 1", repr(value)))
        if not 0 < self.eta < float("inf"):
            problems.append(Problem("a positive, finite eta", repr(self.eta)))
        if problems:
            raise InputError("test", problems)


@dataclass(frozen=True)
class EvaluateSettings:
    """Whether to attack the traces too."""

    attacks: bool = True


TABLES = {
    "import": ImportSettings,
    "synthesize": SynthesizeSettings,
    "test": TestSettings,
    "evaluate": EvaluateSettings,
}


@dataclass(frozen=True)
class RunConfig:
    """A whole job.

    Parameters
    ----------
    out : Path
        Folder for everything that the job makes.
    seed : int
    importing, synthesizing, testing, evaluating : settings of the steps
    system : str
        The synthesizer.
    fitting : the synthesizer's settings
    """

    out: Path
    importing: ImportSettings
    fitting: Any
    system: str = "ppmtf"
    seed: int = 0
    synthesizing: SynthesizeSettings = SynthesizeSettings()
    testing: TestSettings = TestSettings()
    evaluating: EvaluateSettings = EvaluateSettings()

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> RunConfig:
        """Read a TOML file; all that is wrong with it is listed in one `InputError`.

        Paths in it are relative to the file; `out` is by default the file's name without its suffix.
        """
        file = Path(file)
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(str(file), [Problem("a configuration file", "no such file")]) from error
        except (OSError, ValueError) as error:
            raise InputError(str(file), [Problem("a readable TOML file", str(error))]) from error
        return cls.from_mapping(content, file.parent, default_out=file.stem, subject=str(file))

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], base: Path, *, default_out: str, subject: str) -> RunConfig:
        """Build from the tables of a configuration file."""
        expected = "out, seed, [import], [fit], [synthesize], [test], [evaluate] and nothing else"
        unknown = content.keys() - {"out", "seed", "fit", *TABLES}
        problems: list[Problem | str] = [Problem(expected, repr(name)) for name in sorted(unknown)]
        out, seed = content.get("out", default_out), content.get("seed", 0)
        if not isinstance(out, str):
            problems.append(Problem("out as text", repr(out)))
        _collect(problems, "seed: ", lambda: check_seed(seed))

        tables: dict[str, dict[str, Any]] = {}
        for name in (*TABLES, "fit"):
            table = content.get(name, {})
            if not isinstance(table, Mapping):
                problems.append(Problem(f"[{name}] as a table", repr(table)))
            else:
                tables[name] = dict(table)
        system = tables.get("fit", {}).pop("system", "ppmtf")
        kinds: dict[str, Any] = dict(TABLES)
        kinds["fit"] = _collect(problems, "[fit] ", lambda: synthesizer_named(system).settings)
        built = {
            name: _collect(problems, f"[{name}] ", lambda name=name: build_settings(kinds[name], tables[name], name))
            for name in tables
            if kinds[name]
        }
        if problems:
            raise InputError(subject, problems)
        importing = built["import"]
        moved = {name: str(base / getattr(importing, name)) for name in ("path", "edges") if getattr(importing, name)}
        steps = [built[name] for name in ("synthesize", "test", "evaluate")]
        return cls(base / out, replace(importing, **moved), built["fit"], system, seed, *steps)


@dataclass(frozen=True)
class RunResult:
    """What a finished job made.

    Parameters
    ----------
    out : Path
    metrics : dict
        Of the released traces; of all synthetic ones where none was released.
    metrics_before_test : dict
        Of all synthetic traces.
    n_traces, n_released : int
    pictures : list of Path
    skipped : list of str
        Steps that were done before and did not have to be done again.
    """

    out: Path
    metrics: dict[str, float]
    metrics_before_test: dict[str, float]
    n_traces: int
    n_released: int
    pictures: list[Path]
    skipped: list[str] = field(default_factory=list)


def run(config: RunConfig, *, progress: bool = False, say: Callable[[str], None] = lambda _: None) -> RunResult:
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
    with exclusive_use(config.out / ".steps" / "lock"):
        return _Job(config, progress, say).run()


def import_traces(settings: ImportSettings, seed: int, *, progress: bool = False) -> tuple[Traces, Traces, str]:
    """Read a data set and split it by users.

    Returns
    -------
    train, test : Traces
    report : str
        What became of the rows.
    """
    if settings.source == "people-flow":
        with spinner("importing", show=progress):
            train, test = read_people_flow(settings.path)
        return train, test, f"{train.n_users} training and {test.n_users} test users"
    if settings.source == "toy-city":
        size = {"n_places": settings.n_places or 100, "n_days": settings.n_days}
        traces = toy_city(settings.n_users, **size, seed=seed, progress=progress).traces
        report = f"a simulated city of {traces.n_users} users, {traces.n_places} places, {traces.n_events} events"
    else:
        with spinner("importing", show=progress):
            traces, report = _read_source(settings)
    train, test = traces.split_users(settings.train_fraction, seed)
    return train, test, str(report)


def save_sets(sets: Mapping[str, Traces], folder: Path, *, overwrite: bool, progress: bool) -> None:
    """Write trace sets by name into one folder, which appears complete or not at all."""
    with spinner("writing", show=progress), atomic_folder(folder, overwrite=overwrite) as partial:
        for name, traces in sets.items():
            (partial / name).mkdir()
            traces.write_into(partial / name)


def save_released(synthetic: Traces, verdicts: PlausibleDeniability, folder: Path, *, overwrite: bool = False) -> None:
    """Write the verdict on every trace, and the traces that passed as a trace set (left out where none did)."""
    with atomic_folder(folder, overwrite=overwrite) as partial:
        verdicts.table.to_parquet(partial / VERDICTS, index=False)
        if verdicts.passed.any():
            synthetic.select_traces(verdicts.passed).write_into(partial)


def _read_source(settings: ImportSettings) -> tuple[Traces, Any]:
    zone = {} if settings.time_zone is None else {"time_zone": settings.time_zone}
    discretization = settings.discretization()
    if settings.source == "foursquare":
        return read_foursquare(settings.path, discretization=discretization, **zone)
    if settings.source == "gowalla":
        return read_gowalla(settings.path, settings.edges, discretization=discretization, **zone)
    return read_checkins(settings.path, settings.columns, discretization=discretization, **zone)


def _collect(problems: list[Problem | str], name: str, build: Callable[[], Any]) -> Any:
    """What `build` returns; where it refuses, None, and its problems are added under `name`."""
    try:
        return build()
    except InputError as error:
        problems += [f"{name}{problem}" for problem in error.problems]
        return None


class _Job:
    """The steps of one run. Each is a method that makes its output; `_do` decides whether it has to."""

    def __init__(self, config: RunConfig, progress: bool, say: Callable[[str], None]):
        self.config, self.progress, self.say = config, progress, say
        self.out = config.out
        self.fingerprints: dict[str, str] = {}
        self.skipped: list[str] = []

    def run(self) -> RunResult:
        config = self.config
        for folder in (self.out, self.out / ".steps"):
            clear_leftovers(
                folder,
                [
                    "data",
                    "model",
                    "synthetic",
                    "released",
                    "metrics.json",
                    "metrics_before_test.json",
                    "pictures",
                    *STEPS,
                ],
            )
        self._do("import", self._import, self._importing_with_content(), None, ["data"])
        self._do("fit", self._fit, (config.system, config.fitting), "import", ["model"])
        # Only now: a job that is killed before the stamp is there goes on from the last checkpoint.
        for checkpoint in self.out.glob(".steps/fit-*.npz"):
            checkpoint.unlink()
        self._do("synthesize", self._synthesize, config.synthesizing, "fit", ["synthetic"])
        self._do("test", self._test, config.testing, "synthesize", ["released"])
        self._do("evaluate", self._evaluate, config.evaluating, "test", ["metrics.json", "metrics_before_test.json"])
        self._do("pictures", self._pictures, None, "evaluate", ["pictures"])
        passed = read_parquet(self.out / "released" / VERDICTS)["passed"]
        return RunResult(
            self.out,
            self._metrics("metrics.json"),
            self._metrics("metrics_before_test.json"),
            len(passed),
            int(passed.sum()),
            sorted((self.out / "pictures").glob("*.png")),
            self.skipped,
        )

    def _do(self, name: str, action: Callable[[], None], settings: Any, after: str | None, outputs: list[str]) -> None:
        """Do a step unless it was done before. It depends on the step `after` it, hence on all before that."""
        fingerprint = self.fingerprints[name] = self._fingerprint(name, settings, after)
        stamp = self.out / ".steps" / name
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
        content = [name, version("ppmtf_jax"), self.config.seed, repr(settings), before]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _importing_with_content(self) -> ImportSettings:
        """The settings with the content of the files in place of their names, which depend on where one stands."""
        settings = self.config.importing
        files = {name: getattr(settings, name) for name in ("path", "edges")}
        return replace(settings, **{name: _content_hash(Path(file)) for name, file in files.items() if file})

    def _hash_outputs(self, outputs: list[str]) -> str:
        return "".join(_content_hash(self.out / name) for name in outputs)

    def _import(self) -> None:
        train, test, report = import_traces(self.config.importing, self.config.seed, progress=self.progress)
        self.say(indent(report, "  "))
        save_sets({"train": train, "test": test}, self.out / "data", overwrite=True, progress=self.progress)

    def _fit(self) -> None:
        checkpoint = self.out / f".steps/fit-{self.fingerprints['fit'][:16]}.npz"
        config = self.config
        model = fit(
            self._load("data/train"),
            config.system,
            config.fitting,
            seed=config.seed,
            progress=self.progress,
            checkpoints=Checkpoints(checkpoint),
        )
        model.save(self.out / "model", overwrite=True)

    def _synthesize(self) -> None:
        model = FittedModel.load(self.out / "model")
        n = self.config.synthesizing.traces_per_user
        synthetic = synthesize(model, n, seed=self.config.seed, progress=self.progress)
        synthetic.save(self.out / "synthetic", overwrite=True)

    def _test(self) -> None:
        model, synthetic = FittedModel.load(self.out / "model"), self._load("synthetic")
        settings = asdict(self.config.testing)
        settings["n_verifiers"] = min(settings["n_verifiers"] or model.n_users, model.n_users)
        verdicts = plausible_deniability_test(
            model, synthetic, **settings, seed=self.config.seed, progress=self.progress
        )
        self.say(f"  {int(verdicts.passed.sum())} of {len(verdicts.passed)} traces passed")
        save_released(synthetic, verdicts, self.out / "released", overwrite=True)

    def _evaluate(self) -> None:
        train, test = self._load("data/train"), self._load("data/test")

        def evaluated(name: str) -> dict[str, float]:
            attacks = self.config.evaluating.attacks
            return evaluate(self._load(name), train, test, attacks=attacks, progress=self.progress)

        before = evaluated("synthetic")
        released = evaluated("released") if self._any_released() else before
        write_json(self.out / "metrics_before_test.json", before)
        write_json(self.out / "metrics.json", released)

    def _pictures(self) -> None:
        # Drawing needs Matplotlib, which nothing else does.
        from ppmtf_jax.evaluation.plots import Factors, save_pictures

        model = FittedModel.load(self.out / "model").trace_model
        shown = self._load("released" if self._any_released() else "synthetic")
        train, test = self._load("data/train"), self._load("data/test")
        with spinner("drawing", show=self.progress), atomic_folder(self.out / "pictures", overwrite=True) as partial:
            save_pictures(
                partial,
                synthetic=shown,
                train=train,
                test=test,
                metrics={name: value for name, value in self._metrics("metrics.json").items() if not isnan(value)},
                factors=model if isinstance(model, Factors) else None,
            )

    def _load(self, name: str) -> Traces:
        return Traces.load(self.out / name, progress=self.progress)

    def _metrics(self, name: str) -> dict[str, float]:
        content = json.loads((self.out / name).read_text(encoding="utf-8"))
        return {key: float("nan") if value is None else value for key, value in content.items()}

    def _any_released(self) -> bool:
        return (self.out / "released" / "traces.parquet").is_file()


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
