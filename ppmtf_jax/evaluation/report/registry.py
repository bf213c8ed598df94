"""Every section of a report by its name: a function with the decorator `section`, in a file of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ppmtf_jax.evaluation.report.blocks import Block
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.registry import Registry

MADE, UTILITY, GROUPS, PRIVACY, GUARANTEE, NUMBERS = PARTS = (
    "What was made",
    "What was kept",
    "Groups of people",
    "What leaks",
    "What is guaranteed",
    "All numbers",
)
"""The parts of a page, in order."""
MakeBlocks = Callable[[ReportData], list[Block]]


@dataclass(frozen=True)
class SectionMaker:
    """An entry of the registry of sections; see `section`."""

    name: str
    part: str
    title: str
    lead: str
    make: MakeBlocks
    question: str = ""
    if_poor: str = ""


SECTIONS: Registry[SectionMaker] = Registry(
    "section of a report",
    "ppmtf_jax.evaluation.report.sections",
    first=(
        "made",
        "population",
        "transitions",
        "trips",
        "visit-fractions",
        "places",
        "range-queries",
        "clusters",
        "deniability",
        "identity",
        "membership",
        "copies",
        "statement",
        "numbers",
    ),
)
"""Within a part, in this order; others come last."""


def section(
    name: str, part: str, title: str, lead: str, *, question: str = "", if_poor: str = ""
) -> Callable[[MakeBlocks], MakeBlocks]:
    """Register a function from `ReportData` to the blocks of a section.

    The `Finding` objects among the blocks go to the summary. A section without one, but with gauges, gets a finding
    from its least good gauge. If something is missing, the function raises `Unavailable`, or lets an `InputError`
    through: then the section says what is missing, the answer to its question is not known, and the page goes on.

    Parameters
    ----------
    name : str
        Its anchor on the page: words with hyphens between.
    part : str
        One of `PARTS`.
    title : str
    lead : str
        An introduction for readers who do not know the papers.
    question : str
        The question that its gauges, or else its own findings, answer.
    if_poor : str
        Advice if its gauges are poor: a sentence on what the traces are not good for.
    """

    def register(make: MakeBlocks) -> MakeBlocks:
        SECTIONS.register(SectionMaker(name, part, title, lead, make, question, if_poor))
        return make

    return register
