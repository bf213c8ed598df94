"""Several synthesizers side by side on the same data: each fitted, its traces tested and measured, for several seeds.

What is measured of one synthesizer with one seed is a cell. With a folder, every cell is written there when it is
finished, and none is computed twice: a comparison that was stopped goes on, and one with more synthesizers or seeds
adds to what is there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from ppmtf_jax.data.comparable import check_comparable, check_disjoint_users
from ppmtf_jax.data.measurement import Quantity
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import TRAINING, UNIFORM, Evaluation, EvaluationSettings, Row, evaluate
from ppmtf_jax.jobs.resume import content_hash
from ppmtf_jax.jobs.steps import PathLike
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings, plausible_deniability_test
from ppmtf_jax.runtime.files import clear_leftovers, exclusive_use, make_private, write_text
from ppmtf_jax.runtime.memory import PeakMemory
from ppmtf_jax.settings import Count, Positive, Settings, chosen_settings, parse_choice
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.trace_models.base import ScoredTraceModel

ALL, PASSED = "all", "passed"
COMPARED = (DEFAULT_SYSTEM, "ppmtf", "sgd")
"""Synthesizers that are compared where none is named."""
TABLE_FILE, CELLS = "compare.csv", "cells"
COST = "cost"
COSTS = (
    Quantity("share_passed", "Passed the test", "Traces that passed the privacy test.", "share of traces", "none", ""),
    Quantity("fit_s", "Fit, s", "Time of learning, compilation included.", "s", "lower", ""),
    Quantity("synthesize_s", "Synthesis, s", "Time of synthesis, compilation included.", "s", "lower", ""),
    Quantity("test_s", "Test, s", "Time of the privacy test, compilation included.", "s", "lower", ""),
    Quantity("peak_mb", "Memory, MB", "Peak of the process, with all it loaded before.", "MB", "lower", ""),
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class CompareSettings(Settings, subject="compare"):
    """What is done with every synthesizer.

    Parameters
    ----------
    n_seeds : int
        How often each is fitted, with the seeds 0, 1, ....
    traces_per_user : int
        How many traces from each user.
    k : int
        Of the privacy test: how many users a trace must be as plausible for.
    eta : float
        Of the privacy test: width of a bin of log-likelihood.
    attacks : bool
        Also attack the traces.
    """

    n_seeds: Count = 3
    traces_per_user: Count = 1
    k: Count = 10
    eta: Positive = 1.0
    attacks: bool = True

    def problems(self) -> list[Problem | str]:
        """What the privacy test refuses."""
        try:
            PrivacyTestSettings(self.k, self.eta)
        except InputError as error:
            return list(error.problems)
        return []


class Candidate(NamedTuple):
    """A synthesizer at some settings.

    Attributes
    ----------
    system : str
        Its name in `SYNTHESIZERS`.
    settings : the system's settings
    """

    system: str
    settings: Any

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """From its name, and settings as name=value with spaces between.

        Examples
        --------
        >>> Candidate.parse("sgd n_copied=2")
        Candidate(system='sgd', settings=SGDSettings(n_copied=2))
        """
        entry, settings = parse_choice(text, SYNTHESIZERS)
        return cls(entry.name, settings)

    @property
    def name(self) -> str:
        """The system, and those of its settings that are not the default.

        Examples
        --------
        >>> Candidate.parse("ppmtf rank=16 zeros=weighted").name
        'ppmtf zeros=weighted'
        """
        usual = {each.name: each.default for each in fields(self.settings)}
        chosen = {name: value for name, value in vars(self.settings).items() if value != usual[name]}
        return " ".join([self.system, *(f"{name}={value}" for name, value in chosen.items())])


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """What `compare` found.

    Parameters
    ----------
    cells : dict of (str, int) to Evaluation
        By name of the candidate and seed. Columns are "all" traces; "passed" where some, but not all, passed the test;
        training and uniform. Beside the metrics they have `COSTS`.
    refused : dict of str to str
        Candidates that cannot be fitted to these data, and why.
    """

    cells: dict[tuple[str, int], Evaluation]
    refused: dict[str, str]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each number: candidate, seed, traces ("all" or "passed"), metric, value.

        What training and uniform traces give stands beside, unless they are candidates themselves.
        """
        parts = []
        names = {name for name, _ in self.cells}
        for (name, seed), cell in self.cells.items():
            part = cell.table[["metric", "column", "value"]]
            part = part[~part["column"].isin(names)]
            ours = part["column"].isin([ALL, PASSED])
            candidate, traces = part["column"].where(~ours, name), part["column"].where(ours, ALL)
            parts.append(part.assign(candidate=candidate, seed=seed, traces=traces))
        found = pd.concat(parts)[["candidate", "seed", "traces", "metric", "value"]].dropna(subset="value")
        # Those of the first candidate stand for all: they are of the real sets alone, but for attacks on uniform.
        return found.drop_duplicates(["candidate", "seed", "traces", "metric"], ignore_index=True)

    def mean(self, traces: str = ALL) -> Evaluation:
        """Means over seeds, a column for each candidate.

        Parameters
        ----------
        traces : {"all", "passed"}
            Where all passed, or none can be tested, these are the same. A candidate none of whose traces passed has no
            numbers.
        """
        return self._over_seeds(traces, np.mean)

    def spread(self, traces: str = ALL) -> Evaluation:
        """Standard deviations over seeds; NaN for one seed."""
        return self._over_seeds(traces, lambda values: np.std(values, ddof=1) if len(values) > 1 else np.nan)

    def _over_seeds(self, traces: str, statistic: Callable[[list[float]], float]) -> Evaluation:
        of_name: dict[str, list[Evaluation]] = {}
        for (name, _), cell in self.cells.items():
            of_name.setdefault(name, []).append(cell)
        first = next(iter(of_name.values()))
        columns = [(name, cells, traces) for name, cells in of_name.items()]
        columns += [(name, first, name) for name in (TRAINING, UNIFORM) if name not in of_name]
        rows = []
        for row in first[0].rows():
            found = [[_number(cell, row.quantity.name, which) for cell in cells] for _, cells, which in columns]
            finite = [[each for each in values if np.isfinite(each)] for values in found]
            rows.append(row._replace(values=[float(statistic(values)) if values else np.nan for values in finite]))
        return Evaluation.of_rows([name for name, *_ in columns], rows)

    def __repr__(self) -> str:
        return repr(self.mean())


def compare(
    train: Traces,
    test: Traces,
    candidates: Sequence[str | Candidate] = COMPARED,
    settings: CompareSettings | None = None,
    *,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **named_settings: Any,
) -> Compared:
    """Fit several synthesizers to the same data, and test and measure their traces.

    Parameters
    ----------
    candidates : list of str or Candidate
        A name, such as "bridge", or a name and settings, such as "sgd n_copied=2".
    settings : CompareSettings, optional
    progress : bool
        Show progress bars where there is a terminal.
    say : function of a str
        Is told what happens.
    **named_settings
        Settings by name, in place of `settings`.

    Raises
    ------
    InputError
        There are no candidates, two of them are the same, or these data suit none of them.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, n_days=2, seed=0).traces.split_users(0.5, seed=0)
    >>> found = compare(train, test, ["uniform", "sgd n_copied=2"], n_seeds=2, attacks=False)
    >>> found.mean().columns
    ['uniform', 'sgd n_copied=2', 'training']
    """
    chosen = chosen_settings(CompareSettings, settings, named_settings, "compare")
    return _compare(train, test, candidates, chosen, _Cells(None, ""), progress, say)


def compare_systems(
    train: PathLike,
    test: PathLike,
    out: PathLike,
    candidates: Sequence[str | Candidate] = COMPARED,
    settings: CompareSettings = CompareSettings(),
    *,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Compared:
    """`compare` of trace sets in folders, which writes `compare.csv` and goes on where it was stopped.

    Parameters
    ----------
    out : path
        A folder of its own: new, or of an earlier comparison. Only its owner can read it.
    """
    folder = Path(out)
    if folder.exists() and not (folder / CELLS).is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        way_out = "Choose another name, or remove it"
        raise InputError(
            str(out), [Problem("a new folder, or one of an earlier comparison", "another", way_out=way_out)]
        )
    training, testing = (Traces.load(each, progress=progress) for each in (train, test))
    data = content_hash(Path(train)) + content_hash(Path(test))
    make_private(folder)
    make_private(folder / CELLS)
    with exclusive_use(folder / CELLS / "lock"):
        clear_leftovers(folder, [TABLE_FILE])
        found = _compare(training, testing, candidates, settings, _Cells(folder / CELLS, data), progress, say)
        write_text(folder / TABLE_FILE, found.table.to_csv(index=False))
    return found


class _Cells:
    """Finished cells, in a folder if there is one; their names tell all that they depend on."""

    def __init__(self, folder: Path | None, data: str):
        self.folder, self.data = folder, data

    def load(self, candidate: Candidate, seed: int, settings: CompareSettings) -> Evaluation | None:
        """A cell that is finished and undamaged."""
        file = self._file(candidate, seed, settings)
        try:
            return None if file is None else Evaluation.from_json(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def save(self, cell: Evaluation, candidate: Candidate, seed: int, settings: CompareSettings) -> None:
        file = self._file(candidate, seed, settings)
        if file is not None:
            clear_leftovers(file.parent, [file.name])
            write_text(file, cell.to_json())

    def _file(self, candidate: Candidate, seed: int, settings: CompareSettings) -> Path | None:
        if self.folder is None:
            return None
        # More seeds are more cells, and leave those that are there.
        content = [version("ppmtf_jax"), self.data, repr(candidate), seed, repr(replace(settings, n_seeds=1))]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return self.folder / f"{candidate.system}-{digest[:16]}.json"


def _compare(
    train: Traces,
    test: Traces,
    candidates: Sequence[str | Candidate],
    settings: CompareSettings,
    cells: _Cells,
    progress: bool,
    say: Callable[[str], None],
) -> Compared:
    chosen = _distinct(candidates)
    # What is wrong with the data is told before hours of work.
    check_comparable(train=train, test=test)
    if settings.attacks:
        check_disjoint_users(train, test)
    found: dict[tuple[str, int], Evaluation] = {}
    refused: dict[str, str] = {}
    for candidate in chosen:
        for seed in range(settings.n_seeds):
            cell = cells.load(candidate, seed, settings)
            if cell is not None:
                say(f"{candidate.name}, seed {seed}: done before")
                found[candidate.name, seed] = cell
                continue
            say(f"{candidate.name}, seed {seed} ...")
            begin = time.perf_counter()
            try:
                cell = measure(candidate, train, test, settings, seed, progress=progress)
            except InputError as error:
                # The others are worth having.
                refused[candidate.name] = str(error)
                say(f"  refused: {error}")
                break
            cells.save(cell, candidate, seed, settings)
            found[candidate.name, seed] = cell
            say(f"  done in {time.perf_counter() - begin:.1f} s")
    if not found:
        raise InputError("compare", [Problem("a synthesizer that suits the data", "; ".join(refused.values()))])
    return Compared(found, refused)


def measure(
    candidate: Candidate,
    train: Traces,
    test: Traces,
    settings: CompareSettings,
    seed: int,
    *,
    progress: bool = False,
) -> Evaluation:
    """Fit one candidate with one seed, and test and measure its traces: see `Compared.cells`."""
    peak = PeakMemory()
    fit_s, model = _timed(fit, train, candidate.system, candidate.settings, seed=seed, progress=progress)
    synthesize_s, made = _timed(
        synthesize, model, traces_per_user=settings.traces_per_user, seed=seed, progress=progress
    )
    sets, share_passed, test_s = {ALL: made}, np.nan, np.nan
    if isinstance(model.trace_model, ScoredTraceModel):
        privacy = PrivacyTestSettings(settings.k, settings.eta)
        test_s, verdicts = _timed(plausible_deniability_test, model, made, privacy, seed=seed, progress=progress)
        share_passed = float(verdicts.passed.mean())
        if 0 < share_passed < 1:
            sets[PASSED] = made.select_traces(verdicts.passed)
    peak_mb = peak.megabytes()
    costs = (share_passed, fit_s, synthesize_s, test_s, np.nan if peak_mb is None else peak_mb)
    evaluation = evaluate(sets, train, test, EvaluationSettings(attacks=settings.attacks), progress=progress)
    rows = [
        Row(quantity, COST, [cost if column in sets else np.nan for column in evaluation.columns])
        for quantity, cost in zip(COSTS, costs, strict=True)
    ]
    return Evaluation.of_rows(evaluation.columns, [*evaluation.rows(), *rows])


def _timed(function: Callable[..., Result], *arguments: Any, **options: Any) -> tuple[float, Result]:
    begin = time.perf_counter()
    result = function(*arguments, **options)
    return round(time.perf_counter() - begin, 2), result


def _distinct(candidates: Sequence[str | Candidate]) -> list[Candidate]:
    problems: list[Problem | str] = []
    chosen: dict[str, Candidate] = {}
    for each in candidates:
        try:
            candidate = Candidate.parse(each) if isinstance(each, str) else each
        except InputError as error:
            problems += error.problems
            continue
        if candidate.name in chosen:
            problems.append(Problem("different candidates", f"{candidate.name!r} twice"))
        chosen[candidate.name] = candidate
    if not candidates:
        problems.append(Problem(f"synthesizers among {', '.join(SYNTHESIZERS)}", "none"))
    if problems:
        raise InputError("compare", problems)
    return list(chosen.values())


def _number(cell: Evaluation, metric: str, column: str) -> float:
    """Of all or passed traces, or of a column of the cell."""
    if column == PASSED and PASSED not in cell.columns:
        # Where none passed, there is nothing to measure; where all did, or no test is known, all are meant.
        nothing = cell.value("share_passed", ALL) == 0 and metric != "share_passed"
        return np.nan if nothing else cell.value(metric, ALL)
    return cell.value(metric, column)
