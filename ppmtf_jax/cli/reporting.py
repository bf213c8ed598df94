"""The command that reports: one page on what a job made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import with_example
from ppmtf_jax.cli.options import Quiet, argument, option, with_settings
from ppmtf_jax.evaluation.judgement import Fitness
from ppmtf_jax.evaluation.report import ReportSettings, Status
from ppmtf_jax.jobs.report import report_run


@with_example("ppmtf report demo --out report.html")
@with_settings(ReportSettings, without=("estimators",))
def report(
    run: Annotated[Path, argument("RUN", "Folder that `ppmtf run` or `ppmtf demo` made.")],
    settings: ReportSettings,
    out: Annotated[
        Path | None, option("--out FILE", "The page. By default report.html in the private folder of RUN.")
    ] = None,
    compared: Annotated[
        Path | None, option("--compared DIR", "Folder that `ppmtf compare` made from the same data, for the verdict.")
    ] = None,
    overwrite: Annotated[bool, option("--overwrite", "Replace an earlier report.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a page about the results of a job: what is kept, what leaks, what is guaranteed.

    The page is one HTML file that loads nothing from elsewhere. It begins with a verdict: for which uses the traces are
    fit. It answers each question in plain words, with a traffic light. It shows numbers and maps of all real people
    together: only you can read it, and it is not part of the release.
    """
    page, made = report_run(run, out, settings, compared=compared, overwrite=overwrite, progress=not quiet)
    if made.verdict is not None:
        for use in made.verdict.uses:
            tell(f"{use.fitness.symbol} {use.fitness.word:<{len(Fitness.WITH_CARE.word)}}  {use.use.title}")
    width = max(len(status.word) for status in Status)
    for status in Status:
        for finding in made.findings():
            if finding.status is status:
                tell(f"{status.symbol} {status.word:<{width}}  {finding.question}")
    tell(f"The page is {page}. Only you can read it; do not hand it out.")
