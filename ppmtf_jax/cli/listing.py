"""The command list: all data sets, synthesizers, metrics and attacks."""

from __future__ import annotations

from typing import Annotated, Any

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.cli.console import console, plain_table, tell
from ppmtf_jax.cli.group import with_example
from ppmtf_jax.cli.options import option
from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.synthesizers.registry import SYNTHESIZERS

WIDE = 120
"""A table of four columns is easy to read if a line has at least this many characters."""


@with_example("ppmtf list")
def list_all(markdown: Annotated[bool, option("--markdown", "Print Markdown tables.")] = False) -> None:
    """List all data sets, synthesizers, metrics and attacks."""
    if markdown:
        tell(markdown_tables())
        return
    for title, headings, rows in _registered():
        if console.width < WIDE:
            headings, rows = _in_two_columns(headings, rows)
        console.print(plain_table(title, headings, rows, n_left=len(headings), no_wrap=headings[:1]))


def _in_two_columns(headings: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Keep the name and the description, and append the other columns to the description as sentences."""
    _, _, *others = headings
    return headings[:2], [
        [name, " ".join([what, *(f"{heading}: {text}." for heading, text in zip(others, texts, strict=True))])]
        for name, what, *texts in rows
    ]


def markdown_tables() -> str:
    """Everything that is registered, as Markdown tables for a page of the site."""

    def table(title: str, headings: list[str], rows: list[list[str]]) -> str:
        lines = [headings, ["---"] * len(headings), *rows]
        return f"**{title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

    return "\n\n".join(table(*each) for each in _registered())


def _registered() -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, headings and rows of a table for each registry."""

    def entries(registry: Any) -> list[list[str]]:
        return [[entry.name, entry.title] for entry in registry.values()]

    def quantities(registry: Any) -> list[list[str]]:
        found = [quantity for entry in registry.values() for quantity in entry.described(entry.settings())]
        return [[each.title, each.meaning, each.better or "-", each.good_value] for each in found]

    numbers = ["Number", "What it is", "Better", "A good value"]
    return [
        ("Data sets", ["Name", "What it reads"], entries(DATA_SETS)),
        ("Synthesizers", ["Name", "What it is"], entries(SYNTHESIZERS)),
        ("Utility", numbers, quantities(METRICS)),
        ("Attacks", numbers, quantities(ATTACKS)),
    ]
