"""What a report shows, apart from how: lights, gauges, tables, pictures and paragraphs, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ppmtf_jax.privacy.limits import Judgement, Limit, Status, rule

if TYPE_CHECKING:
    import matplotlib.figure


PIXELS_PER_INCH = 96
NARROW_PX = 530


@dataclass(frozen=True)
class Light:
    """A traffic light of the summary.

    Parameters
    ----------
    question : str
        What a reader wants to know.
    status : Status
    answer : str
        In plain words, with the number that decided.
    rule : str
        When it is good, fair or poor.
    """

    question: str
    status: Status
    answer: str
    rule: str


def light_of(question: str, decisive: Judgement, limits: Sequence[Limit], if_poor: str, found_by: str) -> Light:
    """The light that the worst number of some attacks gives.

    Parameters
    ----------
    question : str
    decisive : Judgement
        See `worst`.
    limits : sequence of Limit
        All that were looked at.
    if_poor : str
        What not to do then, as a sentence.
    found_by : str
        Which one it was, as a sentence.
    """
    advice = f" {if_poor}" if decisive.status is Status.POOR else ""
    return Light(question, decisive.status, f"{decisive.text} {found_by}{advice}", rule(limits))


@dataclass(frozen=True)
class Text:
    """Paragraphs, or the points of a list.

    Parameters
    ----------
    lines : tuple of str
    is_list : bool
    """

    lines: tuple[str, ...]
    is_list: bool = False
    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class Table:
    """Rows of text under headings.

    Parameters
    ----------
    caption : str
        What the numbers are.
    headings : sequence of str
    rows : sequence of sequences of str
    n_words : int
        How many of the first columns are words; numbers are aligned to the right.
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_words: int = 1
    kind: Literal["table"] = "table"


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture with what it shows.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    alt : str
        What can be seen, for those who cannot see it.
    caption : str
        How to read it.
    """

    figure: Any
    alt: str
    caption: str
    kind: Literal["picture"] = "picture"

    @property
    def width_px(self) -> int:
        """How wide it is where its text is as large as that of the page."""
        drawn: matplotlib.figure.Figure = self.figure
        return round(float(drawn.get_size_inches()[0]) * PIXELS_PER_INCH)

    @property
    def is_wide(self) -> bool:
        """Whether its text would be too small on a narrow screen."""
        return self.width_px > NARROW_PX


@dataclass(frozen=True)
class Gauge:
    """A number between what real traces give (Training) and what random places give (Uniform).

    Parameters
    ----------
    title : str
        In plain words.
    name : str
        By which the number is known, such as "TP-TV".
    meaning : str
        One sentence.
    better : str
        Which direction is good, in words.
    synthetic, training, uniform : str
        As printed.
    position : float or None
        How far the synthetic traces are on the way from Training (0) to Uniform (1); below 0 where they are better than
        Training. None where that says nothing.
    status : Status
    caveat : str
        Why the number says little on these data, or "".
    floor : str
        What no synthesizer can be better than, as printed, where the way begins there and not at Training; or "".
    reference : str
        What else to hold it against, or "".
    """

    title: str
    name: str
    meaning: str
    better: str
    synthetic: str
    training: str
    uniform: str
    position: float | None
    status: Status
    caveat: str = ""
    floor: str = ""
    reference: str = ""

    @property
    def percent(self) -> float:
        """Where the mark is on a scale of 0 to 100 that ends at Training and Uniform."""
        return 100 * min(max(self.position or 0.0, 0.0), 1.0)


@dataclass(frozen=True)
class Gauges:
    """Numbers one below the other.

    Parameters
    ----------
    items : tuple of Gauge
    """

    items: tuple[Gauge, ...]
    kind: Literal["gauges"] = "gauges"


@dataclass(frozen=True)
class Details:
    """What is shown on request.

    Parameters
    ----------
    summary : str
    blocks : tuple of blocks
    """

    summary: str
    blocks: tuple[Block, ...]
    kind: Literal["details"] = "details"


def percent(share: float, digits: int = 0) -> str:
    r"""A share in percent, which no line break parts from its sign.

    Examples
    --------
    >>> percent(0.125, 1)
    '12.5\xa0%'
    """
    return f"{100 * share:.{digits}f}\u00a0%"


Block = Text | Table | Picture | Gauges | Details


@dataclass(frozen=True, eq=False)
class Content:
    """What a section has to say.

    Parameters
    ----------
    blocks : sequence of blocks
    lights : sequence of Light
        For the summary.
    """

    blocks: Sequence[Block]
    lights: Sequence[Light] = ()


@dataclass(frozen=True, eq=False)
class Section:
    """A section of the page.

    Parameters
    ----------
    name : str
        Its anchor.
    part : str
        The part of the page that it belongs to.
    title : str
    lead : str
        What the section is about, in a sentence or two.
    content : Content
    """

    name: str
    part: str
    title: str
    lead: str
    content: Content


@dataclass(frozen=True, eq=False)
class Report:
    """All that the page shows.

    Parameters
    ----------
    title : str
    subtitle : str
        What was synthesized from what, in a sentence.
    sections : list of Section
        In order.
    made_on : str
        The day.
    """

    title: str
    subtitle: str
    sections: list[Section]
    made_on: str = ""

    def lights(self) -> list[tuple[Section, Light]]:
        """All lights, with the section that each comes from."""
        return [(section, light) for section in self.sections for light in section.content.lights]

    def lights_of(self, part: str) -> list[Light]:
        """The lights of a part."""
        return [light for section, light in self.lights() if section.part == part]

    def rules(self) -> dict[str, list[str]]:
        """The questions that each rule answers."""
        found: dict[str, list[str]] = {}
        for _, light in self.lights():
            found.setdefault(light.rule, []).append(light.question)
        return found

    def rule_of(self, part: str) -> str:
        """The rule that all lights of a part have in common, or ""."""
        rules = {light.rule for light in self.lights_of(part)}
        return rules.pop() if len(rules) == 1 else ""

    def parts(self) -> dict[str, list[Section]]:
        """Sections by part."""
        found: dict[str, list[Section]] = {}
        for section in self.sections:
            found.setdefault(section.part, []).append(section)
        return found
