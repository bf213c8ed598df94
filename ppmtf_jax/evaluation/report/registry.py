"""The sections of a report, each a function with the decorator `section` in a file of its own, and a report of them.

A section that cannot be made gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.evaluation.report.blocks import Block, Details, Finding, Gauges, Picture, Report, Section, Status, Text
from ppmtf_jax.evaluation.report.gauges import utility_finding
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable, needed
from ppmtf_jax.evaluation.report.verdict import compose_verdict
from ppmtf_jax.evaluation.results import sample_remark
from ppmtf_jax.registry import Registry
from ppmtf_jax.runtime.progress import progress_bar

MADE, UTILITY, GROUPS, PRIVACY, GUARANTEE, NUMBERS = PARTS = (
    "What was made",
    "What was kept",
    "Groups of people",
    "What leaks",
    "What is guaranteed",
    "All numbers",
)
"""The parts of a page, in order."""
LEFT_OUT = "Not known: the data do not allow an answer."
MakeBlocks = Callable[[ReportData], list[Block]]


@dataclass(frozen=True)
class SectionMaker:
    """An entry of the registry of sections; see `section`.

    Parameters
    ----------
    name : str
        Its anchor on the page: words with hyphens between. Its gauges are those of the numbers with this `section`.
    part : str
        One of `PARTS`.
    lead : str
        An introduction for readers who do not know the papers.
    question : str
        The question that its gauges, or else its own findings, answer.
    if_poor : str
        Advice if its gauges are poor: a sentence on what the traces are not good for.
    needs_shadows : bool
        Whether it shows results of shadow models, which take longest.
    """

    name: str
    part: str
    title: str
    lead: str
    make: MakeBlocks
    question: str = ""
    if_poor: str = ""
    needs_shadows: bool = False


SECTIONS: Registry[SectionMaker] = Registry(
    "section of a report",
    "ppmtf_jax.evaluation.report.sections",
    first=(
        *("made", "population", "transitions", "trips", "persons", "visit-fractions", "places", "range-queries"),
        *("clusters", "deniability", "found", "copies", "inference", "statement", "numbers"),
    ),
)
"""The order of the sections within a part; other sections come last."""


def section(name: str, part: str, title: str, lead: str, **options: Any) -> Callable[[MakeBlocks], MakeBlocks]:
    """Register a function from `ReportData` to the blocks of a section; see `SectionMaker` for the arguments.

    The `Finding` objects among the blocks go to the summary. A section with gauges but without a finding gets a finding
    from its least good gauge. If something is missing, the function raises `Unavailable` or an `InputError`. Then the
    section says what is missing, the status of its question is "not known", and the other sections are made as usual.
    """

    def register(make: MakeBlocks) -> MakeBlocks:
        SECTIONS.register(SectionMaker(name, part, title, lead, make, **options))
        return make

    return register


def compose_early(data: ReportData) -> dict[str, Section]:
    """Make the sections that need no shadow models, by name, and draw their pictures."""
    found = {maker.name: compose_section(maker, data) for maker in SECTIONS.values() if not maker.needs_shadows}
    for each in found.values():
        _draw(each.blocks)
    return found


def _draw(blocks: Sequence[Block]) -> None:
    """Draw the pictures among some blocks, which keep what was drawn."""
    for block in blocks:
        if isinstance(block, Picture):
            block.svg  # noqa: B018
        elif isinstance(block, Details):
            _draw(block.blocks)


def compose_report(
    data: ReportData,
    *,
    made: Mapping[str, Section] | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Make every section of a report, and the verdict from what they found.

    `made`: sections that `compose_early` made. `say` receives the title of each other section before it is made.
    """
    makers = sorted(SECTIONS.values(), key=lambda maker: PARTS.index(maker.part))
    sections = []
    with progress_bar("writing the report", len(makers), show=progress, waits_for="") as advance:
        for maker in makers:
            found = (made or {}).get(maker.name)
            if found is None:
                say(f"{maker.title} ...")
                found = compose_section(maker, data)
            sections.append(found)
            advance(1)
    title = "Report on synthetic traces" + (f" ({data.source})" if data.source else "")
    n, what = data.n_synthetic, "released" if data.is_release else "synthetic"
    by = f" by {data.model.system}" if data.model else ""
    train, sampled = data.whole_sets[0], data.evaluation.sampled
    subtitle = f"{data.kept} " if data.kept else ""
    subtitle += (
        f"{n:,} {what} trace{'s' * (n != 1)} made{by} from {train.n_events:,} events of {train.n_users:,} people at "
        f"{train.n_places:,} places.{f' {sample_remark(sampled)}' if sampled else ''}"
    )
    return Report(title, subtitle, sections, date.today().isoformat(), compose_verdict(data, sections))


def compose_section(maker: SectionMaker, data: ReportData) -> Section:
    """A section with its findings, or with a sentence on why it cannot be made."""
    head = maker.name, maker.part, maker.title, maker.lead
    try:
        made = maker.make(data)
    except Unavailable as error:
        reason = str(error)
    except InputError as error:
        reason = f"It needs {needed(error)}."
    except NumericalError:
        reason = "The computation did not stay within finite numbers."
    else:
        findings = [block for block in made if isinstance(block, Finding)]
        gauges = [block.items for block in made if isinstance(block, Gauges)]
        if gauges and not findings:
            findings = [utility_finding(maker.question, sum(gauges, ()), maker.if_poor)]
        findings = [_or_proof(maker, each, data) for each in findings]
        return Section(*head, [block for block in made if not isinstance(block, Finding)], findings)
    finding = _or_proof(maker, Finding(maker.question, Status.UNKNOWN, reason, LEFT_OUT), data)
    return Section(*head, [Text((f"Left out. {reason}",))], [finding] if maker.question else [])


def _or_proof(maker: SectionMaker, finding: Finding, data: ReportData) -> Finding:
    """The finding, or the proof in its place if attacks could not answer the question."""
    if maker.part != PRIVACY or finding.status is not Status.UNKNOWN or not data.proof:
        return finding
    return finding._replace(status=Status.NOT_APPLICABLE, answer=data.proof)
