"""Compare several synthesizers on the same data: fit each with several seeds, test its traces and measure them.

The measurements of one synthesizer with one seed are a cell. `compare_systems` writes every finished cell to a folder
and computes none twice: a stopped comparison continues, and more synthesizers or seeds add cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from ppmtf_jax.data.comparable import check_comparable, check_disjoint_users
from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem, collecting, raise_any
from ppmtf_jax.evaluation.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.evaluation.results import TRAINING, UNIFORM, Evaluation, Row
from ppmtf_jax.privacy.own_test import can_be_tested, privacy_test, settings_for
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.runtime.files import PathLike, clear_leftovers, exclusive_use, make_private, write_text
from ppmtf_jax.runtime.folders import TEST_TRACES, TRAINING_TRACES, digest_of, digest_of_sources
from ppmtf_jax.runtime.memory import PeakMemory
from ppmtf_jax.runtime.progress import continues_from
from ppmtf_jax.settings import Count, Positive, Settings, chosen_settings, parse_choice
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

ALL, PASSED = "all", "passed"
COMPARED = (DEFAULT_SYSTEM, "ppmtf", "sgd")
"""The synthesizers to compare by default."""
TABLE_FILE, MEANS_FILE, CELLS = "compare.csv", "compare.json", "cells"
COST = "cost"
SHARE_PASSED = "share_passed"
COSTS = (
    MetricInfo(SHARE_PASSED, "Passed the test", "Traces that passed the test.", "share of traces", "none", ""),
    MetricInfo("fit_s", "Fit, s", "Time of the fit with compilation.", "s", "lower", ""),
    MetricInfo("synthesize_s", "Synthesis, s", "Time of synthesis with compilation.", "s", "lower", ""),
    MetricInfo("test_s", "Test, s", "Time of the privacy test with compilation.", "s", "lower", ""),
    MetricInfo("peak_mb", "Memory, MB", "Peak of the process, including what it loaded earlier.", "MB", "lower", ""),
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class CompareSettings(Settings, subject="compare"):
    """What `compare` does with every synthesizer.

    Parameters
    ----------
    n_seeds : int
        Number of fits of each synthesizer, with the seeds 0, 1, 2 and so on.
    traces_per_user : int
        Number of synthetic traces from each user.
    k : int
        Privacy test: number of users for whom a trace must be about equally plausible.
    eta : float
        Privacy test: width of a bin of log-likelihood.
    attacks : bool
        Also attack the traces.
    """

    n_seeds: Count = 3
    traces_per_user: Count = 1
    k: Count = 10
    eta: Positive = 1.0
    attacks: bool = True

    def problems(self) -> list[Problem | str]:
        """Problems with the settings of the privacy test."""
        problems: list[Problem | str] = []
        with collecting(problems):
            PrivacyTestSettings(self.k, self.eta)
        return problems


class Candidate(NamedTuple):
    """A synthesizer, by its name in `SYNTHESIZERS`, with settings."""

    system: str
    settings: Any

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """From a name, followed by settings as name=value separated by spaces.

        Examples
        --------
        >>> Candidate.parse("sgd n_copied=2")
        Candidate(system='sgd', settings=SGDSettings(n_copied=2))
        """
        entry, settings = parse_choice(text, SYNTHESIZERS)
        return cls(entry.name, settings)

    @property
    def name(self) -> str:
        """The system and its settings that differ from the default."""
        usual = {each.name: each.default for each in fields(self.settings)}
        chosen = {name: value for name, value in vars(self.settings).items() if value != usual[name]}
        return " ".join([self.system, *(f"{name}={value}" for name, value in chosen.items())])


@dataclass(frozen=True, eq=False, repr=False)
class Compared:
    """The results of `compare`."""

    # By name of the candidate and seed. Columns: "all" traces; "passed" if some, but not all, passed the test; training
    # and uniform. The rows are metrics and `COSTS`.
    cells: dict[tuple[str, int], Evaluation]
    refused: dict[str, str]  # candidates that cannot be fitted to these data, and why

    @property
    def table(self) -> pd.DataFrame:
        """A row for each number: candidate, seed, traces ("all" or "passed"), metric, value.

        Training and uniform traces have rows too, unless they are candidates.
        """
        headings, candidates = ["candidate", "seed", "traces", "metric", "value"], {name for name, _ in self.cells}
        numbers = [
            (*((name, seed, column) if column in (ALL, PASSED) else (column, seed, ALL)), row.quantity.name, value)
            for (name, seed), cell in self.cells.items()
            for row in cell.rows
            for column, value in row.numbers.items()
            if column not in candidates
        ]
        found = pd.DataFrame(numbers, columns=headings).dropna(subset="value")
        # Numbers of training and uniform traces do not depend on the candidate, except for attacks on uniform traces:
        # the numbers of the first candidate are kept.
        return found.drop_duplicates(headings[:-1], ignore_index=True)

    def mean(self, traces: str = ALL) -> Evaluation:
        """Means over seeds of all traces, or of the traces that passed the test; a column for each candidate.

        The two are equal if all traces passed or the system cannot be tested. If no trace passed, "passed" is NaN.
        """
        return self._over_seeds(traces, np.mean)

    def spread(self, traces: str = ALL) -> Evaluation:
        """Standard deviations over seeds; NaN for a single seed."""
        return self._over_seeds(traces, lambda values: np.std(values, ddof=1) if len(values) > 1 else np.nan)

    def _over_seeds(self, traces: str, statistic: Callable[[list[float]], float]) -> Evaluation:
        # A cell may lack metrics that others have, such as those of events with gaps.
        rows: dict[str, Row] = {}
        cells: dict[str, list[dict[str, Row]]] = {}
        for (name, _), cell in self.cells.items():
            of_cell = {row.quantity.name: row for row in cell.rows}
            rows |= {metric: row for metric, row in of_cell.items() if metric not in rows}
            cells.setdefault(name, []).append(of_cell)
        columns = {name: (of_name, traces) for name, of_name in cells.items()}
        first = next(iter(cells.values()))
        columns |= {name: (first, name) for name in (TRAINING, UNIFORM) if name not in cells}

        def over_seeds(of_name: list[dict[str, Row]], which: str, metric: str) -> float:
            found = [_number(cell, metric, which) for cell in of_name]
            finite = [each for each in found if np.isfinite(each)]
            return float(statistic(finite)) if finite else np.nan

        means = [
            row._replace(numbers={name: over_seeds(*about, metric) for name, about in columns.items()})
            for metric, row in rows.items()
        ]
        lineage = next(iter(self.cells.values())).lineage
        return Evaluation(means, {name: lineage[name] for name in (TRAINING_TRACES, TEST_TRACES)})

    def __repr__(self) -> str:
        return repr(self.mean())


def compare(
    train: Traces,
    test: Traces,
    candidates: Sequence[str | Candidate] = COMPARED,
    settings: CompareSettings | None = None,
    *,
    cells: Path | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **named_settings: Any,
) -> Compared:
    """Fit several synthesizers to the same data, and test and measure their traces.

    Raises `InputError`: there are no candidates, two of them are the same, or none can be fitted to these data.

    Parameters
    ----------
    candidates : list of str or Candidate
        A name, such as "bridge", or a name and settings, such as "sgd n_copied=2".
    cells : Path, optional
        Folder that keeps finished cells; those that are there are not computed again.
    say : function of a str
        Is called with a line for each cell.
    **named_settings
        Settings by name, in place of `settings`.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=10, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    >>> found = compare(train, test, ["uniform"], n_seeds=1, attacks=False)
    >>> found.mean().columns
    ['uniform', 'training']
    """
    chosen, settings = _distinct(candidates), chosen_settings(CompareSettings, settings, named_settings, "compare")
    # Check the data before hours of work.
    check_comparable(train=train, test=test)
    if settings.attacks:
        check_disjoint_users(train, test)
    found: dict[tuple[str, int], Evaluation] = {}
    refused: dict[str, str] = {}
    for candidate, seed in product(chosen, range(settings.n_seeds)):
        name, file = candidate.name, None
        if name in refused:
            continue
        if cells is not None:
            # Its name has a digest of everything that the cell depends on, and the number of seeds changes no cell.
            depends_on = repr(candidate), seed, repr(replace(settings, n_seeds=1))
            digest = digest_of(digest_of_sources(), *map(_content, (train, test)), *depends_on)
            file = cells / f"{candidate.system}-{digest[:16]}.json"
            continues_from(file, "the finished systems and seeds")
            # A damaged cell is computed again.
            with suppress(OSError, ValueError):
                found[name, seed] = Evaluation.from_json(file.read_text(encoding="utf-8"))
                say(f"{name}, seed {seed}: done before")
                continue
        say(f"{name}, seed {seed} ...")
        begin = time.perf_counter()
        try:
            found[name, seed] = measure(candidate, train, test, settings, seed, progress=progress)
        except InputError as error:
            # Continue with the other candidates.
            refused[name] = str(error)
            say(f"  refused: {error}")
            continue
        if file is not None:
            write_text(file, found[name, seed].to_json())
        say(f"  done in {time.perf_counter() - begin:.1f} s")
    if not found:
        raise InputError("compare", [Problem("a synthesizer that suits the data", "; ".join(refused.values()))])
    return Compared(found, refused)


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
    """Compare as `compare` does, with trace sets in folders; a stopped comparison continues.

    The folder `out` must be new or from an earlier comparison; it gets `compare.csv` and the means over seeds in
    `compare.json`, and only its owner can read it.
    """
    folder = Path(out)
    if folder.exists() and not (folder / CELLS).is_dir() and (not folder.is_dir() or any(folder.iterdir())):
        expected = "a new folder, or one of an earlier comparison"
        raise InputError(str(out), [Problem(expected, "another", way_out="Choose another name, or remove it")])
    training, testing = (Traces.load(each, progress=progress) for each in (train, test))
    cells = folder / CELLS
    make_private(folder)
    make_private(cells)
    with exclusive_use(cells / "lock"):
        clear_leftovers(folder, [TABLE_FILE, MEANS_FILE])
        clear_leftovers(cells)
        found = compare(training, testing, candidates, settings, cells=cells, progress=progress, say=say)
        write_text(folder / TABLE_FILE, found.table.to_csv(index=False))
        write_text(folder / MEANS_FILE, found.mean(PASSED).to_json())
    return found


def measure(
    candidate: Candidate, train: Traces, test: Traces, settings: CompareSettings, seed: int, *, progress: bool = False
) -> Evaluation:
    """Fit one candidate with one seed, and test and measure its traces; see `Compared.cells`."""
    peak = PeakMemory()
    fit_s, model = _timed(fit, train, candidate.system, candidate.settings, seed=seed, progress=progress)
    number = {"traces_per_user": settings.traces_per_user}
    if model.of_nobody:
        number = {"people": train.n_users * settings.traces_per_user}
    synthesize_s, made = _timed(synthesize, model, number, seed=seed, progress=progress)
    sets, share_passed, test_s = {ALL: made}, np.nan, np.nan
    if can_be_tested(model):
        privacy = settings_for(model.system, PrivacyTestSettings(settings.k, settings.eta))
        test_s, verdicts = _timed(privacy_test, model, made, privacy, seed=seed, progress=progress)
        share_passed = float(verdicts.passed.mean())
        if 0 < share_passed < 1:
            sets[PASSED] = made.select_traces(verdicts.passed)
    peak_mb = peak.megabytes()
    costs = (share_passed, fit_s, synthesize_s, test_s, np.nan if peak_mb is None else float(peak_mb))
    evaluation = evaluate(sets, train, test, EvaluationSettings(attacks=settings.attacks), progress=progress)
    rows = [
        Row(quantity, COST, {column: cost if column in sets else np.nan for column in evaluation.columns})
        for quantity, cost in zip(COSTS, costs, strict=True)
    ]
    return replace(evaluation, rows=[*evaluation.rows, *rows])


def _content(traces: Traces) -> str:
    """What all numbers of a set depend on: its digest, which does not count friendships, and these."""
    return traces.digest + repr(None if traces.friendships is None else traces.friendships.tolist())


def _timed(function: Callable[..., Result], *arguments: Any, **options: Any) -> tuple[float, Result]:
    begin = time.perf_counter()
    result = function(*arguments, **options)
    return round(time.perf_counter() - begin, 2), result


def _distinct(candidates: Sequence[str | Candidate]) -> list[Candidate]:
    problems: list[Problem | str] = []
    chosen: dict[str, Candidate] = {}
    for each in candidates:
        with collecting(problems):
            candidate = Candidate.parse(each) if isinstance(each, str) else each
            if candidate.name in chosen:
                problems.append(Problem("different candidates", f"{candidate.name!r} twice"))
            chosen[candidate.name] = candidate
    if not candidates:
        problems.append(Problem(f"synthesizers among {', '.join(SYNTHESIZERS)}", "none"))
    raise_any("compare", problems)
    return list(chosen.values())


def _number(cell: dict[str, Row], metric: str, column: str) -> float:
    """A number of a cell; `Compared.mean` says what "passed" is in a cell without that column."""
    if metric not in cell:
        return np.nan
    numbers = cell[metric].numbers
    if column == PASSED and PASSED not in numbers:
        nothing = cell[SHARE_PASSED].numbers[ALL] == 0 and metric != SHARE_PASSED
        column = column if nothing else ALL
    return numbers.get(column, np.nan)
