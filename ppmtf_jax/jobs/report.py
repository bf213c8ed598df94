"""The step that reports: what a job made, what it keeps and what it gives away, as one private page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import Evaluation, EvaluationSettings, evaluate
from ppmtf_jax.evaluation.report import Material, Report, ReportSettings, compose_report, is_report, render
from ppmtf_jax.jobs.resume import METRICS_FILE
from ppmtf_jax.jobs.steps import load_released
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability
from ppmtf_jax.privacy.release import RELEASE, STATEMENT_JSON
from ppmtf_jax.runtime.files import check_output_file, write_text
from ppmtf_jax.runtime.folders import read_marker
from ppmtf_jax.synthesizers.fitted_model import FittedModel

REPORT_FILE = "report.html"
RELEASED, ALL = "released", "all"
"""Columns of the evaluation of a job."""

PathLike = str | os.PathLike[str]


def report_run(
    run: PathLike,
    out: PathLike | None = None,
    settings: ReportSettings | None = None,
    *,
    overwrite: bool = False,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Path, Report]:
    """Write a page on what a job made, which only its owner may read.

    Needed are real traces (`private/data`) and synthetic ones (`release`, or else `private/synthetic`). Where other
    things are missing, the page says so.

    Parameters
    ----------
    run : path
        Folder of a job.
    out : path, optional
        By default `report.html` in its private folder.
    settings : ReportSettings, optional
    say : function of a str
        Is told which section is made.

    Returns
    -------
    path, report
        Where the page is, and what it shows.

    Raises
    ------
    InputError
        It is no folder of a job; or `out` would be in a release, is something else, or cannot be written.
    """
    folder = Path(run)
    page = folder / "private" / REPORT_FILE if out is None else Path(out)
    private = folder / "private"
    absent = [name for name in ("data/train", "data/test") if not (private / name).is_dir()]
    if absent:
        missing = ", ".join(f"private/{name}" for name in absent)
        way_out = "Make one with `ppmtf run` or `ppmtf demo`"
        raise InputError(str(folder), [Problem("a folder of a job", f"no {missing}", way_out=way_out)])
    _check_not_released(page)
    check_output_file(page, overwrite=overwrite, is_ours=_is_own, what="an earlier report")
    material = load_material(folder, settings or ReportSettings(), progress=progress)
    report = compose_report(material, progress=progress, say=say)
    write_text(page, render(report), secret=True)
    return page, report


def load_material(folder: Path, settings: ReportSettings, *, progress: bool = False) -> Material:
    """What the folder of a job has for a report."""
    private, release = folder / "private", folder / "release"
    train, test = (Traces.load(private / "data" / name, progress=progress) for name in ("train", "test"))
    verdicts = PlausibleDeniability.load(private / "verdicts") if (private / "verdicts").is_dir() else None
    is_release = release.is_dir()
    if is_release:
        key = private / "key"
        synthetic = load_released(release, train, key if key.is_dir() else None, progress=progress)
    elif (private / "synthetic").is_dir():
        synthetic = load_released(private / "synthetic", train, None, progress=progress)
    else:
        way_out = "Run the job again"
        raise InputError(str(folder), [Problem("release or private/synthetic", "neither", way_out=way_out)])
    users_known = bool((index_of_ids(synthetic.user_ids, train.user_ids) >= 0).all())
    if not users_known:
        # Of a release without its key: nobody can be found behind the ids that it gave.
        synthetic = replace(synthetic, of_nobody=True)
    column = RELEASED if is_release else ALL
    return Material(
        train,
        test,
        synthetic,
        _evaluation(private / METRICS_FILE, column, synthetic, train, test, progress),
        column,
        is_release,
        users_known,
        source=str(_about(private / "data").get("source", "")),
        losses=tuple(map(str, _about(private / "data").get("losses", ()))),
        seeds_given=_seeds_given(private, verdicts),
        model=FittedModel.load(private / "model") if (private / "model").is_dir() else None,
        verdicts=verdicts,
        statement=_statement(release),
        settings=settings,
    )


def _evaluation(file: Path, column: str, synthetic: Traces, train: Traces, test: Traces, progress: bool) -> Evaluation:
    """What the job measured; measured now where it did not."""
    if file.is_file():
        found = Evaluation.from_json(file.read_text(encoding="utf-8"), subject=str(file))
        if column in found.columns:
            return found
    return evaluate({column: synthetic}, train, test, EvaluationSettings(), progress=progress)


def _about(folder: Path) -> dict[str, Any]:
    marker = read_marker(folder) if folder.is_dir() else None
    return {} if marker is None else marker.about


def _seeds_given(private: Path, verdicts: PlausibleDeniability | None) -> bool | None:
    """Whether somebody chose a seed of what was drawn; None where nothing says."""
    seeds = [_about(private / name).get("seed") for name in ("data", "key")]
    given = [bool(seed["given"]) for seed in seeds if isinstance(seed, dict) and "given" in seed]
    if verdicts is not None:
        # That of the test matters only where it drew some of the users.
        given += [verdicts.origin.seeds_given, verdicts.settings.n_verifiers is not None and verdicts.seed.given]
    return any(given) if given else None


def _statement(release: Path) -> dict[str, Any] | None:
    file = release / STATEMENT_JSON
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = Problem("a readable statement", type(error).__name__, way_out="Release the traces again")
        raise InputError(str(file), [problem]) from error
    return content if isinstance(content, dict) else None


def _check_not_released(page: Path) -> None:
    """A private page must not lie in what is handed out."""
    for folder in page.absolute().resolve().parents:
        marker = read_marker(folder) if folder.is_dir() else None
        if marker is not None and marker.kind == RELEASE:
            found = "a file in a release, which would be handed out with it"
            raise InputError(str(page), [Problem("a place for a private page", found)])


def _is_own(path: Path) -> bool:
    try:
        return is_report(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
