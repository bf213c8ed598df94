"""The page of a report: findings, judged numbers, tables, pictures and paragraphs, and one file of HTML of them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ppmtf_jax.data import description
from ppmtf_jax.evaluation.judgement import Fitness, Judged, JudgedUse
from ppmtf_jax.privacy.limits import Status
from ppmtf_jax.runtime.files import has_mark

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

    from ppmtf_jax.attacks.audit import Reidentified
    from ppmtf_jax.attacks.copies import CopyCheck
    from ppmtf_jax.attacks.membership.base import MembershipSummary

PIXELS_PER_INCH = 96
MANY_MARKS = 300
"""A picture with more marks than this is drawn as pixels, because each mark would be an element of the page."""
RASTER_DPI = 150
HASH_SALT = "ppmtf_jax report"
"""The ids in a picture depend on it; with a constant, equal figures give equal texts."""
MAKER = "ppmtf_jax report"
MIN_OTHERS = 100
"""With fewer other users, a share found at 1 % false alarms is not known."""
# Whether `render` made the page in a file.
is_report = partial(has_mark, mark=rb'(?s)\A.{0,2000}<meta name="generator" content="%b"' % MAKER.encode())


class Finding(NamedTuple):
    """The answer to a question, with a traffic light, and the rule for the status."""

    question: str
    status: Status
    answer: str
    rule: str


class Text(NamedTuple):
    """Paragraphs, or the points of a list."""

    lines: tuple[str, ...]
    is_list: bool = False
    kind = "text"


class Table(NamedTuple):
    """Rows of text or lights under headings; the first `n_words` columns are words, the others numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str | Status | Fitness]]
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


class Gauges(NamedTuple):
    """Judged numbers one below the other, each on the scale from real traces to random places."""

    items: tuple[Judged, ...]
    kind = "gauges"


class Details(NamedTuple):
    """Blocks that are hidden until the reader opens them."""

    summary: str
    blocks: tuple[Block, ...]
    kind = "details"


Block = Text | Table | Picture | Gauges | Details | Finding


class Section(NamedTuple):
    """A section of the page: its words, the function that makes its blocks, and what this function made."""

    name: str  # its anchor on the page; its gauges are those of the numbers with this `section`
    part: str  # one of `compose.PARTS`
    title: str
    lead: str  # an introduction for readers who do not know the papers
    make: Callable[[Any], list[Block]]  # from `ReportData`
    question: str = ""  # what its gauges, or else its own findings, answer
    if_poor: str = ""  # advice if its gauges are poor: a sentence on what the traces are not good for
    needs_shadows: bool = False  # whether it shows results of shadow models, which take longest
    blocks: Sequence[Block] = ()
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


def percent(share: float, digits: int = 0) -> str:
    """A share in percent; no line breaks before the sign."""
    return description.percent(share, digits).replace(" %", "\u00a0%")


def small(text: str) -> str:
    """A text that begins with a small letter."""
    return text[:1].lower() + text[1:]


def render(report: Report) -> str:
    """The page of a report, one file of HTML that contains its style sheet and pictures."""
    loader = PackageLoader("ppmtf_jax.evaluation.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["with_code"] = _with_code
    style, _, _ = loader.get_source(environment, "style.css")
    return environment.get_template("page.html.jinja").render(
        report=report,
        style=Markup(style),
        maker=MAKER,
        version=version("ppmtf_jax"),
        statuses=list(Status),
        tally=tally,
        svg=partial(_svg, count(1)),
    )


def tally(findings: list[Finding]) -> str:
    """How many findings have each status, such as "2 good, 1 poor"."""
    counts = {status: sum(finding.status is status for finding in findings) for status in Status}
    return ", ".join(f"{n} {status.word.lower()}" for status, n in counts.items() if n)


def _with_code(text: str) -> Markup:
    """Escaped text, with code between backticks."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(Markup.escape(text))))


def _svg(numbers: Iterator[int], picture: Picture) -> Markup:
    """A picture as an SVG element that scales with the page; its number makes its ids differ from all others."""
    svg, prefix = picture.svg, f"picture{next(numbers)}-"
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for reference in (r'\bid="', r"url\(#", 'href="#'):
        svg = re.sub(f"({reference})", rf"\g<1>{prefix}", svg)
    view = re.search(r'viewBox="([^"]*)"', svg)
    box = view[1] if view else "0 0 1 1"
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'viewBox="{box}" style="max-width: {picture.width_px}px" aria-label="{Markup.escape(picture.alt)}">'
    )
    return Markup(opening + svg[svg.index(">") + 1 :])


# What attacks found: the report and `ppmtf attack` show the same tables


def identity_table(attacks: Sequence[Reidentified]) -> Table:
    """Each attack on single traces, and on all traces of a person together."""
    rows = []
    for attack in attacks:
        for which, linkage in (("one by one", attack.each), ("all of a person", attack.combined)):
            low, high = linkage.auc_interval
            found = percent(linkage.found, 1), str(linkage.n_exposed)
            area = f"{linkage.auc:.3f}", f"{low:.2f}-{high:.2f}"
            rows.append([attack.title, which, *found, percent(linkage.accuracy, 1), *area])
    n = attacks[0].each.n_targets
    caption = (
        f"Whose traces are these? Attacks by somebody who knows traces of {n:,} people. Found: people who are named "
        "right, where at most 1 % of the people are named wrongly. People exposed: people with a trace that scores "
        "higher than chance explains (0.05 people by chance, over all attacks). Right person: how often the attacker "
        f"names the right one of {n:,} (a guess: {percent(1 / n, 2)}). AUC: how often a trace made from a person "
        "scores higher for this person than another trace (a guess: 0.5)"
    )
    headings = ("Attack", "Traces", "Found", "People exposed", "Right person", "AUC", "95 %")
    return Table(caption, headings, rows, n_words=2)


def hidden_table(attacks: Sequence[Reidentified]) -> Table:
    """What each attack infers of hidden places."""
    forms = (partial(percent, digits=1), "{:.2f}".format) * 2
    rows = [
        [attack.title, model, *("-" if each != each else form(each) for form, each in zip(forms, numbers, strict=True))]
        for attack in attacks
        if attack.hidden is not None
        for model, numbers in attack.hidden.rows.items()
    ]
    caption = (
        "Where were people at the hidden instants? Right: hidden places that are inferred right. Distance: expected "
        "distance from the true place, in km. Others: people whom the attacker does not know, so that only a "
        "difference from them is about a person"
    )
    headings = ("Attack", "Inferred from", "Right", "Distance", "Right, others", "Distance, others")
    return Table(caption, headings, rows, n_words=2)


def membership_table(summaries: Mapping[str, MembershipSummary]) -> Table:
    """A row for each attack, by its title."""
    rows = []
    for title, each in summaries.items():
        found, auc = each.tpr_at_1_percent, each.auc
        rate = f"{percent(found.value, 1)} ({100 * found.low:.0f}-{100 * found.high:.0f})"
        area = f"{auc.value:.3f}", f"{auc.low:.2f}-{auc.high:.2f}"
        advantage = f"{each.advantage.value:.3f}", f"{each.chance:.3f}"
        rows.append([title, rate if each.n_others >= MIN_OTHERS else "-", f"{len(each.exposed):,}", *area, *advantage])
    n_members, n_others = (max(getattr(each, n) for each in summaries.values()) for n in ("n_members", "n_others"))
    caption = (
        f"Whose data was used? Up to {n_members:,} training users and {n_others:,} others. Found: share of the "
        "training users found where at most 1 % of the others are named, and its 95 % interval, if there are "
        f"{MIN_OTHERS} others to know it. People exposed: training users who score higher than chance explains (0.05 "
        "people by chance, over all attacks). AUC: how often a training user scores higher than another user (a guess: "
        "0.5). Advantage: greatest difference between the shares of true and of false alarms, and its value by chance"
    )
    return Table(caption, ("Attack", "Found", "People exposed", "AUC", "95 %", "Advantage", "by chance"), rows)


def copies_table(found: CopyCheck) -> Table:
    """What training users and test users find of their traces in synthetic traces."""
    rows = [
        ["Found by training users, mean, nats", f"{found.training.mean():.1f}"],
        ["Found by test users, mean, nats", f"{found.test.mean():.1f}"],
        ["Training users who find more than 95 % of the test users do (5 % by chance)", percent(found.share_far, 1)],
        ["Training users who find more than chance explains, at least", f"{found.n_copied:,}"],
    ]
    caption = (
        "How much people find of a trace of theirs in one synthetic trace, as a whole or in a run of places: training "
        "users, and people whose data was not used (test users). The last number counts people who are far above all "
        "others, and people who are more often among the highest than an exchange of training and test users explains. "
        "At most 4,000 periods of each set are looked for, of people drawn at random"
    )
    return Table(caption, ("What", "Number"), rows)


def unicity_table(shares: Mapping[str, np.ndarray], crowd: int | None = None) -> Table:
    """Share of people identified by 1, 2, ... known points, for each set by its title."""
    points = [f"{n} point{'s' * (n > 1)}" for n in range(1, len(next(iter(shares.values()))) + 1)]
    rows = [[title, *(percent(share, 1) for share in each)] for title, each in shares.items()]
    of = "" if crowd is None else f", in crowds of {crowd:,} people"
    caption = f"Share of people whom this number of known points tells from all others{of}"
    return Table(caption, ("Traces", *points), rows)
