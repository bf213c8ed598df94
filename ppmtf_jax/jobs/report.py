"""The step that reports: what a job made, what it keeps and what it gives away, as one private page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ppmtf_jax.attacks.membership.scores import MembershipScores
from ppmtf_jax.attacks.membership.shadow_models import ShadowModelSettings, infer_by_shadow_models
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import Evaluation, EvaluationSettings, evaluate
from ppmtf_jax.evaluation.report import Material, Report, ReportSettings, compose_report, is_report, render
from ppmtf_jax.jobs.attack import shadows_of_release
from ppmtf_jax.jobs.resume import METRICS_FILE
from ppmtf_jax.jobs.steps import load_released
from ppmtf_jax.privacy.plausible_deniability import PlausibleDeniability
from ppmtf_jax.privacy.release import lineage_of_key
from ppmtf_jax.privacy.statement import STATEMENT_JSON
from ppmtf_jax.runtime.files import check_output_file, write_text
from ppmtf_jax.runtime.folders import read_marker
from ppmtf_jax.runtime.lineage import TEST_TRACES, TRAINING_TRACES, check_belong_together, column_of
from ppmtf_jax.synthesizers.fitted_model import FittedModel

REPORT_FILE, SHADOWS_FILE = "report.html", "shadows.npz"
RELEASED, ALL = "released", "all"
"""Columns of the evaluation of a job."""
PARAMETERS = ("k", "eta", "noise_epsilon", "precision")
"""Of the privacy test, as a statement and verdicts have them."""

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
        Is told which section is made, and how long the shadow models of the attack on membership take. What is known
        of finished ones is kept in the private folder of the job: a report that was stopped goes on from there.

    Returns
    -------
    path, report
        Where the page is, and what it shows.

    Raises
    ------
    InputError
        It is no folder of a job, or things in it are of different runs; or `out` would be in a release, is something
        else, or cannot be written.
    """
    folder = Path(run)
    page = folder / "private" / REPORT_FILE if out is None else Path(out)
    private = folder / "private"
    absent = [name for name in ("data/train", "data/test") if not (private / name).is_dir()]
    if absent:
        missing = ", ".join(f"private/{name}" for name in absent)
        way_out = "Make one with `ppmtf run` or `ppmtf demo`"
        raise InputError(str(folder), [Problem("a folder of a job", f"no {missing}", way_out=way_out)])
    check_output_file(page, overwrite=overwrite, is_ours=_is_own, what="an earlier report")
    material = load_material(folder, settings or ReportSettings(), progress=progress)
    if not material.settings.fast:
        material = replace(
            material, shadow_scores=shadow_scores(material, private / SHADOWS_FILE, progress=progress, say=say)
        )
    report = compose_report(material, progress=progress, say=say)
    write_text(page, render(report))
    return page, report


def load_material(folder: Path, settings: ReportSettings, *, progress: bool = False) -> Material:
    """What the folder of a job has for a report.

    Raises
    ------
    InputError
        Things are of different runs, such as verdicts that were made anew after the release: a page on them would say
        of one what is true of the other.
    """
    private, release = folder / "private", folder / "release"
    train, test = (Traces.load(private / "data" / name, progress=progress) for name in ("train", "test"))
    verdicts = PlausibleDeniability.load(private / "verdicts") if (private / "verdicts").is_dir() else None
    model = FittedModel.load(private / "model") if (private / "model").is_dir() else None
    is_release, key = release.is_dir(), private / "key"
    column, statement = RELEASED if is_release else ALL, _statement(release)
    lineages: dict[str, dict[str, str]] = {
        "private/data": {TRAINING_TRACES: train.digest, TEST_TRACES: test.digest},
        "private/model": dict(model.lineage) if model else {},
        "private/verdicts": dict(verdicts.lineage) if verdicts else {},
    }
    if verdicts:
        lineages["private/verdicts"] |= _test_in(asdict(verdicts.settings), int(verdicts.passed.sum()))
    if is_release:
        synthetic = load_released(release, train, key if key.is_dir() else None, progress=progress)
        lineages["private/key"] = dict(lineage_of_key(key)) if key.is_dir() else {}
        parameters = (statement or {}).get("parameters")
        lineages["release"] = _test_in(parameters, len(synthetic.trace_table()[0])) if parameters else {}
    elif (private / "synthetic").is_dir():
        synthetic = load_released(private / "synthetic", train, None, progress=progress)
        lineages["private/synthetic"] = dict(synthetic.lineage)
    else:
        way_out = "Run the job again"
        raise InputError(str(folder), [Problem("release or private/synthetic", "neither", way_out=way_out)])
    users_known = bool((index_of_ids(synthetic.user_ids, train.user_ids) >= 0).all())
    found = _measured(private / METRICS_FILE, column) if users_known else None
    if found is not None:
        lineages[METRICS_FILE] = dict(found.lineage)
        lineages["release" if is_release else "private/synthetic"] |= {column_of(column): synthetic.digest}
    way_out = "Run the job again with its configuration: it makes anew what is out of date"
    check_belong_together(str(folder), lineages, way_out=way_out)
    if not users_known:
        # Of a release without its key: nobody can be found behind the ids that it gave.
        synthetic = replace(synthetic, of_nobody=True)
    return Material(
        train,
        test,
        synthetic,
        found or evaluate({column: synthetic}, train, test, EvaluationSettings(), progress=progress),
        column,
        is_release,
        users_known,
        source=str(_about(private / "data").get("source", "")),
        losses=tuple(map(str, _about(private / "data").get("losses", ()))),
        seeds_given=_seeds_given(private, verdicts),
        model=model,
        verdicts=verdicts,
        statement=statement,
        settings=settings,
    )


def shadow_scores(
    material: Material, checkpoint: Path, *, progress: bool = False, say: Callable[[str], None] = lambda _: None
) -> MembershipScores | None:
    """Of the attack with shadow models; None where it is not known how to make them, or the data do not suit.

    A release says how it was made and tested; synthetic traces that were not released are those of the model, untested.
    """
    settings, model = None, material.model
    if material.statement is not None:
        settings = shadows_of_release(material.statement)
    elif model is not None and not material.is_release:
        settings = ShadowModelSettings(model.system, model.settings)
    if settings is None:
        return None
    real = material.train, material.test
    settings = replace(settings, n_attacked=material.settings.n_users)
    say("Models like this one, to attack membership; --fast leaves them out")
    try:
        return infer_by_shadow_models(
            material.synthetic, *real, settings, checkpoint=checkpoint, progress=progress, say=say
        )
    except InputError as error:
        say(f"Left out: {error}")
        return None


def _measured(file: Path, column: str) -> Evaluation | None:
    """What the job measured of these traces; None where it did not, or does not say of which."""
    if not file.is_file():
        return None
    found = Evaluation.from_json(file.read_text(encoding="utf-8"), subject=str(file))
    return found if column in found.columns and column_of(column) in found.lineage else None


def _test_in(parameters: Mapping[str, Any], n_released: int) -> dict[str, str]:
    """What a privacy test leaves to be compared: all that a release without its key says of it."""
    # A statement says "all" where settings have none.
    asked = parameters.get("n_verifiers") or "all"
    said = [asked, *(parameters.get(name) for name in PARAMETERS)]
    return {"settings of the privacy test": repr(said), "number of traces that passed": str(n_released)}


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


def _is_own(path: Path) -> bool:
    try:
        return is_report(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
