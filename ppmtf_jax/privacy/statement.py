"""Privacy statements: what is protected in published data, and what is not protected.

A statement is a dict of JSON values with the lists of points `protected` and `not_protected`. It is written to three
files: PRIVACY.txt, one screen that says what is promised; PRIVACY_DETAILS.txt, with everything else; and privacy.json,
for programs. The first sentence of each point stands alone, because it is the point on the first page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

STATEMENT_FORMAT = 2
STATEMENT_JSON, STATEMENT_TEXT, STATEMENT_DETAILS = "privacy.json", "PRIVACY.txt", "PRIVACY_DETAILS.txt"
WIDTH = 80
MORE = "PRIVACY_DETAILS.txt has all of this in full, and how the traces were made."
NOT_MEASURED = (
    "Nothing was measured: no attack was tried on these traces before this was written. Ask the publisher which "
    "attacks were tried since then, and what they found."
)
HOUSEHOLD = (
    "A household as one: two people who live together count as two users. So a family alone can reach a limit on the "
    "number of users of a place, or of users who could have led to a trace."
)
"""A point of every statement that counts people."""

RANDOMNESS = {
    True: "The noise is OpenDP's, from the operating system's secure source, and has no seed. Everything else was "
    "drawn from a seed. The protection does not depend on the secrecy of this seed.",
    False: "The noise and everything else were drawn from a seed. A person who knows the seed can remove the noise.",
}
"""Where the noise of a differentially private mechanism comes from, by whether it is private."""

Section = str | tuple[str, str | Sequence[str]]
"""A paragraph, or a heading with a paragraph or a list of points."""


def statement_files(statement: Mapping[str, Any], page: str, details: str) -> dict[str, str]:
    """The files of a statement by name: for programs, and for people, on one screen and in detail."""
    for_programs = json.dumps(statement, indent=1)
    return {STATEMENT_JSON: f"{for_programs}\n", STATEMENT_TEXT: f"{page}\n", STATEMENT_DETAILS: f"{details}\n"}


def as_text(*sections: Section) -> str:
    """Sections, such as a title, in lines of at most 80 characters; empty lists are left out."""

    def written(section: Section) -> str:
        if isinstance(section, str):
            return fill(section, WIDTH)
        heading, body = section
        points = [fill(each, WIDTH, initial_indent="- ", subsequent_indent="  ") for each in body]
        return "\n".join([heading, *([fill(body, WIDTH)] if isinstance(body, str) else points)])

    return "\n\n".join(written(each) for each in sections if isinstance(each, str) or each[1])


def first_page(of_what: str, promise: str | Sequence[str], points: Sequence[str]) -> str:
    """One screen: the promise, and the first sentence of each point that is not protected.

    Examples
    --------
    >>> print(first_page("TRACES", ["Nothing."], ["Anybody. They are real."]))
    WHAT THESE TRACES PROMISE
    - Nothing.
    <BLANKLINE>
    WHAT THEY DO NOT PROTECT
    - Anybody.
    <BLANKLINE>
    Nothing was measured: no attack was tried on these traces before this was
    written. Ask the publisher which attacks were tried since then, and what they
    found.
    <BLANKLINE>
    PRIVACY_DETAILS.txt has all of this in full, and how the traces were made.
    """
    short = ("WHAT THEY DO NOT PROTECT", [first_sentence(each) for each in points])
    return as_text((f"WHAT THESE {of_what} PROMISE", promise), short, NOT_MEASURED, MORE)


def first_sentence(text: str) -> str:
    """The text up to its first full stop before a space."""
    return text.split(". ")[0].removesuffix(".") + "."


def point(phrase: str) -> str:
    """A phrase of `Claims` as a point."""
    return f"{phrase[:1].upper()}{phrase[1:]}."


def protected(statement: dict[str, Any]) -> Section:
    """The section on what is protected."""
    return "Protected:", statement["protected"] or ["Nothing that could be stated: see below."]


def not_protected(statement: dict[str, Any]) -> Section:
    """The section on what is not protected."""
    return "Not protected:", statement["not_protected"]
