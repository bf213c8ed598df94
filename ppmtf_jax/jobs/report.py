"""The step that reports: what a job made, what it keeps and what it leaks, as one private page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ppmtf_jax.attacks.membership.base import MembershipScores
from ppmtf_jax.attacks.membership.shadow_models import infer_by_shadow_models
from ppmtf_jax.data.comparable import index_of_ids
from ppmtf_jax.data.stored_traces import open_traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import Evaluation, evaluate
from ppmtf_jax.evaluation.evaluation import sample_of_users
from ppmtf_jax.evaluation.report import Report, ReportData, ReportSettings, compose_report, is_report, render
from ppmtf_jax.evaluation.report.compose import check_names, compose_early
from ppmtf_jax.evaluation.report.inputs import needed
from ppmtf_jax.evaluation.report.sections.leaks import traced_back
from ppmtf_jax.evaluation.results import RESERVED, TEST, TRAINING, Row
from ppmtf_jax.jobs.attack import shadows_like
from ppmtf_jax.jobs.compare import MEANS_FILE, SHARE_PASSED
from ppmtf_jax.jobs.runner import COMPARED, METRICS_FILE
from ppmtf_jax.jobs.steps import open_released
from ppmtf_jax.privacy.own_test import load_verdicts
from ppmtf_jax.privacy.release import lineage_of_key, statement_of
from ppmtf_jax.runtime.files import PathLike, check_output_file, write_text
from ppmtf_jax.runtime.folders import MODEL, TEST_TRACES, TRAINING_TRACES, check_belong_together, column_of, read_marker
from ppmtf_jax.runtime.threads import one_thread
from ppmtf_jax.synthesizers.fitted_model import FittedModel

RELEASED, ALL = "released", "all"
"""Columns of the evaluation of a job."""

Say = Callable[[str], None]


def report_run(
    run: PathLike,
    out: PathLike | None = None,
    settings: ReportSettings | None = None,
    *,
    compared: PathLike | None = None,
    overwrite: bool = False,
    progress: bool = False,
    say: Say = lambda _: None,
) -> tuple[Path, Report]:
    """Write a page on what a job made, which only its owner may read.

    It needs real traces (`private/data`) and synthetic ones (`release`, or else `private/synthetic`). Where other
    things are missing, the page says so.

    `run`: folder of a job. `out`: by default `report.html` in the private folder of the job. `compared`: folder of a
    comparison of systems on the same data (see `compare_systems`), for the verdict. `say`: is told which section is
    made, and how long the shadow models of the attack on membership take. Finished shadow models are kept in the
    private folder of the job, so that a report that was stopped goes on from there. Raises `InputError`: `run` is not
    the folder of a job, or its parts are of different runs; `compared` is of other data; or `out` is inside a release,
    is not an earlier report, or cannot be written.
    """
    folder = Path(run)
    private = folder / "private"
    page = private / "report.html" if out is None else Path(out)
    absent = [name for name in ("data/train", "data/test") if not (private / name).is_dir()]
    if absent:
        missing = ", ".join(f"private/{name}" for name in absent)
        way_out = "Make one with `ppmtf run` or `ppmtf demo`"
        raise InputError(str(folder), [Problem("a folder of a job", f"no {missing}", way_out=way_out)])
    check_output_file(page, overwrite=overwrite, is_ours=is_report, what="an earlier report")
    data = load_report_data(folder, settings or ReportSettings(), progress=progress)
    if compared is not None:
        data = with_compared(data, compared)
    check_names(row.quantity for row in data.evaluation.rows)  # before the shadow models, which take minutes
    # Attacks limit NumPy to one thread. The limit is set here for all, since they do not end at the same time.
    with one_thread(), ThreadPoolExecutor(1) as pool:
        made = None
        if not data.settings.fast:
            # Compiling the programs of the shadow models, and learning the last one, use little more than one core. The
            # attacks and sections that do not need them can use another one.
            early = pool.submit(lambda: (traced_back(data), compose_early(data)))
            how = {"progress": progress, "say": say}
            scores, why_not = shadow_scores(data, private / "shadows.npz", **how)
            data = replace(data, shadow_scores=scores, no_shadows=why_not)
            if scores is not None:
                of_release, _ = shadow_scores(data, private / "shadows_of_release.npz", people="released", **how)
                data = replace(data, release_scores=of_release)
            traced, made = early.result()
            data = replace(data, traced=traced)
        report = compose_report(data, made=made, progress=progress, say=say)
    write_text(page, render(report))
    return page, report


def load_report_data(folder: Path, settings: ReportSettings, *, progress: bool = False) -> ReportData:
    """Load the data of a report from the folder of a job; of more than 250,000 users, the sample that was measured.

    Raises `InputError`: parts of the folder are of different runs, such as verdicts that were made again after the
    release; the page would mix them.
    """
    private, release, key = folder / "private", folder / "release", folder / "private" / "key"
    train, test = (open_traces(private / "data" / name, progress=progress) for name in ("train", "test"))
    verdicts = load_verdicts(private / "verdicts") if (private / "verdicts").is_dir() else None
    model = FittedModel.load(private / "model") if (private / "model").is_dir() else None
    is_release, statement = release.is_dir(), statement_of(release) or None
    source, column = (release, RELEASED) if is_release else (private / "synthetic", ALL)
    if not source.is_dir():
        way_out = "Run the job again"
        raise InputError(str(folder), [Problem("release or private/synthetic", "neither", way_out=way_out)])
    has_key = is_release and key.is_dir()
    synthetic = open_released(source, train, key if has_key else None, progress=progress)
    users_known = bool((index_of_ids(synthetic.user_ids, train.user_ids) >= 0).all())
    found = _measured(private / METRICS_FILE, column) if users_known or synthetic.of_nobody else None
    of_source = {} if is_release else dict(synthetic.lineage)
    if is_release and statement:
        if parameters := statement.get("parameters"):
            of_source |= _test_in(parameters, len(synthetic.trace_table()[0]))
        if checksum := statement.get("generator", {}).get("model"):
            of_source[MODEL] = checksum
    if found is not None:
        of_source[column_of(column)] = synthetic.digest
    of_verdicts = _test_in(verdicts.settings.stated(), int(verdicts.passed.sum())) if verdicts else {}
    lineages: dict[str, dict[str, str]] = {
        "private/data": {TRAINING_TRACES: train.digest, TEST_TRACES: test.digest},
        "private/model": dict(model.lineage) if model else {},
        "private/verdicts": dict(verdicts.lineage if verdicts else {}) | of_verdicts,
        "private/key": dict(lineage_of_key(key)) if has_key else {},
        source.relative_to(folder).as_posix(): of_source,
        METRICS_FILE: dict(found.lineage) if found else {},
    }
    way_out = "Run the job again with its configuration: it makes anew what is out of date"
    check_belong_together(str(folder), lineages, way_out=way_out)
    if not users_known:
        # A release without its key has new ids, so its traces cannot be linked to training users.
        synthetic = replace(synthetic, of_nobody=True)
    about = _about(private / "data")
    # Whether somebody chose the seed of any step.
    seeds = [each.get("seed") for each in (about, _about(private / "key"))]
    given = [bool(seed["given"]) for seed in seeds if isinstance(seed, dict) and "given" in seed]
    passed = {each.parent.name: load_verdicts(each) for each in (private / COMPARED).glob("*/verdicts")}
    if verdicts is not None:
        given.append(verdicts.seed_given)
        passed = {column: verdicts, **passed}
    sets, sampled = sample_of_users({TRAINING: train, TEST: test, column: synthetic})
    return ReportData(
        sets[TRAINING],
        sets[TEST],
        sets[column],
        found or evaluate({column: synthetic}, train, test, progress=progress),
        column,
        is_release,
        source=str(about.get("source", "")),
        kept=str(about.get("kept", "")),
        losses=tuple(map(str, about.get("losses", ()))),
        seeds_given=any(given) if given else None,
        model=model,
        verdicts=verdicts,
        statement=statement,
        settings=settings,
        shares_passed={name: float(each.passed.mean()) for name, each in passed.items()},
        whole=(train, test, synthetic) if sampled else None,
    )


def with_compared(data: ReportData, folder: PathLike) -> ReportData:
    """Add a column for each system of a comparison: means over seeds.

    The numbers are of the traces that passed the test. Raises `InputError`: there is no comparison, or it is of other
    data.
    """
    file, own = Path(folder) / MEANS_FILE, data.evaluation
    if not file.is_file():
        way_out = "Make one with `ppmtf compare`"
        raise InputError(str(folder), [Problem("a folder of a comparison", f"no {MEANS_FILE}", way_out=way_out)])
    found = Evaluation.from_json(file.read_text(encoding="utf-8"), subject=str(file))
    way_out = "Compare systems on private/data/train and private/data/test of the job"
    check_belong_together(str(folder), {"the comparison": found.lineage, "the job": own.lineage}, way_out=way_out)
    systems = {
        name: f"{name} (compared)" if name in own.columns else name for name in found.columns if name not in RESERVED
    }
    theirs = {row.quantity.name: row.numbers for row in found.rows}
    passed = {title: theirs[SHARE_PASSED][name] for name, title in systems.items()}
    shares = {title: share for title, share in passed.items() if math.isfinite(share)}

    def with_theirs(row: Row) -> Row:
        numbers = theirs.get(row.quantity.name, {})
        added = {title: numbers.get(name, math.nan) for name, title in systems.items()}
        return row._replace(numbers=row.numbers | added)

    evaluation = replace(own, rows=list(map(with_theirs, own.rows)))
    return replace(data, evaluation=evaluation, shares_passed={**data.shares_passed, **shares})


def shadow_scores(
    data: ReportData,
    checkpoint: Path,
    *,
    people: Literal["real", "released"] = "real",
    progress: bool = False,
    say: Say = lambda _: None,
) -> tuple[MembershipScores | None, str]:
    """Scores of the attack with shadow models, or None with the reason, which is the end of a sentence.

    `people`: whom the models learn from, see `ShadowModelSettings`.
    """
    if data.is_sample:
        return None, "because they would learn from a sample of the users, and the model learned from all"
    # A release without a statement may be of another model.
    model = None if data.is_release and data.statement is None else data.model
    settings, why_not = shadows_like(data.statement, model, n_attacked=data.settings.n_users)
    if settings is None:
        return None, why_not
    settings = replace(settings, people=people)
    say(f"Shadow models of {people} people, to attack membership; --fast leaves them out")
    sets = data.synthetic, data.train, data.test
    try:
        return infer_by_shadow_models(*sets, settings, checkpoint=checkpoint, progress=progress, say=say), ""
    except InputError as error:
        say(f"Left out: {error}")
        return None, f"because they need {needed(error)}"


def _measured(file: Path, column: str) -> Evaluation | None:
    """The job's evaluation of these traces; None if it has none, or does not say which traces it measured."""
    if not file.is_file():
        return None
    found = Evaluation.from_json(file.read_text(encoding="utf-8"), subject=str(file))
    return found if column in found.columns and column_of(column) in found.lineage else None


def _test_in(parameters: Mapping[str, Any], n_released: int) -> dict[str, str]:
    """The settings and the result of the privacy test that a release shows, for comparison with the verdicts."""
    said = {name: value for name, value in parameters.items() if name != "min_users_per_place"}
    return {"settings of the privacy test": repr(said), "number of traces that passed": str(n_released)}


def _about(folder: Path) -> dict[str, Any]:
    marker = read_marker(folder) if folder.is_dir() else None
    return {} if marker is None else marker.about
