"""Privacy statements: what is protected in published data, and what is not protected.

A statement is a dict of JSON values with the lists `protected` and `not_protected`. It is written to two files:
privacy.json for programs, and PRIVACY.txt for people.
"""

from __future__ import annotations

from textwrap import fill
from typing import Any

STATEMENT_FORMAT = 1
WIDTH = 100

RANDOMNESS = {
    True: "The noise is OpenDP's, from the operating system's secure source, and has no seed. Everything else was "
    "drawn from a seed. The protection does not depend on the secrecy of this seed.",
    False: "The noise and everything else were drawn from a seed. A person who knows the seed can remove the noise.",
}
"""Where the noise of a differentially private mechanism comes from, by whether it is private."""

Section = str | tuple[str, str | list[str]]
"""A paragraph, or a heading with a paragraph or a list of points."""


def as_text(title: str, *sections: Section) -> str:
    """A title and sections, in lines of at most 100 characters."""

    def written(section: Section) -> str:
        if isinstance(section, str):
            return fill(section, WIDTH)
        heading, body = section
        points = [fill(point, WIDTH, initial_indent="- ", subsequent_indent="  ") for point in body]
        return "\n".join([heading, *([fill(body, WIDTH)] if isinstance(body, str) else points)])

    return "\n\n".join([title, *map(written, sections)])


def protected(statement: dict[str, Any]) -> Section:
    """The section on what is protected."""
    return "Protected:", statement["protected"] or ["Nothing that could be stated: see below."]


def not_protected(statement: dict[str, Any]) -> Section:
    """The section on what is not protected."""
    return "Not protected:", statement["not_protected"]
