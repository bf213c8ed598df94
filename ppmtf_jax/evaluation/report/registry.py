"""Every section of a report by its name: one file each, which registers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ppmtf_jax.evaluation.report.content import Content
from ppmtf_jax.evaluation.report.material import Material
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


@dataclass(frozen=True)
class SectionMaker:
    """An entry of the registry of sections.

    Parameters
    ----------
    name : str
        Its anchor on the page: words with hyphens between.
    part : str
        Of `PARTS`.
    title : str
    lead : str
        What it is about, for somebody who has read no paper.
    make : callable
        From a `Material` to the `Content`. Where something is missing it raises `Unavailable`, or lets an `InputError`
        through: the section then says what is missing, and the page goes on.
    question : str
        That of its light, if `make` may raise: the summary then says that the answer is not known.
    """

    name: str
    part: str
    title: str
    lead: str
    make: Callable[[Material], Content]
    question: str = ""


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
