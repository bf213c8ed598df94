"""Privacy statements: what published data protect, and what they do not protect.

A statement is a dict of JSON values with the lists `protected` and `not_protected`. It is written twice: for programs
as privacy.json, and for people as PRIVACY.txt.
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill
from typing import Any

from ppmtf_jax.runtime.files import write_text

STATEMENT_FORMAT, STATEMENT_JSON, STATEMENT_TEXT = 1, "privacy.json", "PRIVACY.txt"
WIDTH = 100

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


def write_statement(folder: Path, statement: dict[str, Any], text: str) -> None:
    """Write a statement into a folder, for programs and for people."""
    write_text(folder / STATEMENT_JSON, json.dumps(statement, indent=1) + "\n")
    write_text(folder / STATEMENT_TEXT, text + "\n")
