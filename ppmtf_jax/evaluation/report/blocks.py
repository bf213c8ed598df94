"""The content of a report: findings, gauges, tables, pictures and paragraphs."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ppmtf_jax.data import description
from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.privacy.limits import Judgement, Limit, Status, rule, worst

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ppmtf_jax.evaluation.judgement import Judged, JudgedUse

PIXELS_PER_INCH = 96
MANY_MARKS = 300
"""A picture with more marks than this is drawn as pixels, because each mark would be an element of the page."""
RASTER_DPI = 150
HASH_SALT = "ppmtf_jax report"
"""The ids in a picture depend on it; with a constant, equal figures give equal texts."""


class Finding(NamedTuple):
    """The answer to a question, with a traffic light, and the rule for the status."""

    question: str
    status: Status
    answer: str
    rule: str


def finding_of(
    question: str, judged: Mapping[str, Judgement], limits: Sequence[Limit], if_poor: str, found_by: str = "Attack: {}."
) -> Finding:
    """The finding of the worst judgement; `judged` has judgements by attack, `found_by` names the attack."""
    decisive = worst(list(judged.values()))
    name = next(name for name, each in judged.items() if each is decisive)
    found_by = found_by.format(name[:1].lower() + name[1:])
    advice = f" {if_poor}" if decisive.status is Status.POOR else ""
    return Finding(question, decisive.status, f"{decisive.text} {found_by}{advice}", rule(limits))


class Text(NamedTuple):
    """Paragraphs, or the points of a list."""

    lines: tuple[str, ...]
    is_list: bool = False
    kind = "text"


class Mark(Protocol):
    """A status: a cell of a table that shows a word and a symbol."""

    @property
    def word(self) -> str: ...
    @property
    def symbol(self) -> str: ...
    @property
    def css(self) -> str: ...


class Table(NamedTuple):
    """Rows of text or marks under headings; the first `n_words` columns are words, numbers are aligned to the right."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Mark]]
    n_words: int = 1
    kind = "table"


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture, a description for people who cannot see it (`alt`), and how to read it (`caption`)."""

    figure: Figure
    alt: str
    caption: str
    kind = "picture"

    @cached_property
    def svg(self) -> str:
        """The figure as text of SVG, drawn when it is first asked for."""
        import matplotlib

        for drawn in (each for ax in self.figure.axes for each in ax.collections):
            if max(len(drawn.get_offsets()), len(drawn.get_paths())) > MANY_MARKS:
                drawn.set_rasterized(True)
        stream = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": HASH_SALT, "svg.fonttype": "none"}):
            self.figure.savefig(stream, format="svg", dpi=RASTER_DPI, metadata={"Date": None, "Creator": None})
        return stream.getvalue()

    @property
    def width_px(self) -> int:
        """The width at which the text of the picture is as large as the text of the page."""
        return round(float(self.figure.get_size_inches()[0]) * PIXELS_PER_INCH)


class Gauge(NamedTuple):
    """A number between that of real traces (Training) and that of random places (Uniform).

    `numbers` are as printed: "Training", "Synthetic" and "Uniform". If no synthesizer can be better than a
    reference "Floor", the floor replaces Training. `position` is the position of the synthetic number on the scale from
    the first (0) to the last (1), below 0 if it is better than both, and None if there is no such scale. `caveat` says
    why the fitness is not known, or known only with care. `ends` are the positions up to which a number is good, and
    up to which it is fair.
    """

    quantity: MetricInfo
    numbers: dict[str, str]
    position: float | None
    judged: Judged
    ends: tuple[float, ...]
    caveat: str = ""
    reference: str = ""

    @property
    def title(self) -> str:
        """What it measures, in words that need no explanation."""
        return self.quantity.plain or self.quantity.title

    @property
    def status(self) -> Status:
        """The light of its fitness."""
        return self.judged.fitness.status

    @property
    def percent(self) -> float:
        """Where the mark is on a scale from Training (0) to Uniform (100)."""
        return 100 * min(max(self.position or 0.0, 0.0), 1.0)


class Gauges(NamedTuple):
    """Numbers one below the other."""

    items: tuple[Gauge, ...]
    kind = "gauges"


class Details(NamedTuple):
    """Blocks that are hidden until the reader opens them."""

    summary: str
    blocks: tuple[Block, ...]
    kind = "details"


Block = Text | Table | Picture | Gauges | Details | Finding


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; no line breaks before the sign."""
    return description.percent(share, digits).replace(" %", "\u00a0%")


class Section(NamedTuple):
    """A section of the page; its name is the anchor, its lead says in a sentence or two what it is about."""

    name: str
    part: str
    title: str
    lead: str
    blocks: Sequence[Block]
    findings: Sequence[Finding] = ()


class Verdict(NamedTuple):
    """The uses of synthetic traces, judged, and the blocks that say it on the page."""

    uses: Sequence[JudgedUse]
    blocks: Sequence[Block]


@dataclass(frozen=True, eq=False)
class Report:
    """The content of the page; the subtitle describes the synthetic traces and their data in a sentence."""

    title: str
    subtitle: str
    sections: list[Section]
    made_on: str = ""
    verdict: Verdict | None = None

    def findings(self, part: str | None = None) -> list[Finding]:
        """The findings of a part, or all of them, in the order of the page."""
        return [each for section in self.sections if part in (None, section.part) for each in section.findings]

    def rules(self, part: str | None = None) -> dict[str, list[str]]:
        """The questions that each rule answers, in a part or on the whole page."""
        found: dict[str, list[str]] = {}
        for finding in self.findings(part):
            found.setdefault(finding.rule, []).append(finding.question)
        return found

    def parts(self) -> dict[str, list[Section]]:
        """Sections by part."""
        names = dict.fromkeys(section.part for section in self.sections)
        return {part: [section for section in self.sections if section.part == part] for part in names}
