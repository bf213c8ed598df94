"""Make the sections of a report; a section that cannot be made gives the reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.evaluation.report.blocks import Finding, Gauges, Report, Section, Status, Text
from ppmtf_jax.evaluation.report.gauges import utility_finding
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable
from ppmtf_jax.evaluation.report.registry import PARTS, SECTIONS, SectionMaker
from ppmtf_jax.runtime.progress import progress_bar

LEFT_OUT = "Not known: the data do not allow an answer."


def compose_report(data: ReportData, *, progress: bool = False, say: Callable[[str], None] = lambda _: None) -> Report:
    """Make every section of a report.

    Parameters
    ----------
    data : ReportData
    progress : bool
        Show a progress bar where there is a terminal.
    say : function of a str
        Receives the title of each section before the section is made.
    """
    makers = sorted(SECTIONS.values(), key=lambda maker: PARTS.index(maker.part))
    sections = []
    with progress_bar("writing the report", len(makers), show=progress, waits_for="") as advance:
        for maker in makers:
            say(f"{maker.title} ...")
            sections.append(compose_section(maker, data))
            advance(1)
    title = "Report on synthetic traces" + (f" ({data.source})" if data.source else "")
    return Report(title, _subtitle(data), sections, date.today().isoformat())


def compose_section(maker: SectionMaker, data: ReportData) -> Section:
    """A section with its findings, or with a sentence on why it cannot be made."""
    head = maker.name, maker.part, maker.title, maker.lead
    try:
        made = maker.make(data)
    except Unavailable as error:
        reason = str(error)
    except InputError as error:
        # Examples and what was found may name users: only what was expected is told.
        needed = "; ".join(getattr(problem, "expected", "other input") for problem in error.problems)
        reason = f"It needs {needed}."
    except NumericalError:
        reason = "The computation did not stay within finite numbers."
    else:
        findings = [block for block in made if isinstance(block, Finding)]
        gauges = [block.items for block in made if isinstance(block, Gauges)]
        if gauges and not findings:
            findings = [utility_finding(maker.question, sum(gauges, ()), maker.if_poor)]
        return Section(*head, [block for block in made if not isinstance(block, Finding)], findings)
    findings = [Finding(maker.question, Status.UNKNOWN, reason, LEFT_OUT)] if maker.question else []
    return Section(*head, [Text((f"Left out. {reason}",))], findings)


def _subtitle(data: ReportData) -> str:
    n, what = data.n_synthetic, "released" if data.is_release else "synthetic"
    by = f" by {data.model.system}" if data.model else ""
    return (
        f"{n:,} {what} trace{'s' * (n != 1)} made{by} from {data.train.n_events:,} events of "
        f"{data.train.n_users:,} people at {data.train.n_places:,} places."
    )
