"""What commands print: plain lines and tables on standard output, errors on standard error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

console = Console()
complaints = Console(stderr=True)


def tell(text: str) -> None:
    """Print a line as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def warn_of_few(n_passed: int, n_traces: int) -> None:
    """Warn if so few traces passed the privacy test that they are not representative of people."""
    # Commands that print no warning do not wait for the import.
    from ppmtf_jax.evaluation.judgement import FEW_PASSED

    if 0 < n_passed < FEW_PASSED * n_traces:
        tell(
            f"Only {n_passed} of {n_traces} traces passed: they are not representative, because only traces that "
            "resemble many users passed. Measure them (`ppmtf evaluate`) before use. With a system that smooths more, "
            "such as bridge, more traces pass."
        )


def plain_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    *,
    n_left: int = 1,
    no_wrap: Collection[str] = (),
) -> Table:
    """A table in the common style, with `n_left` columns of text; the other columns have numbers."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.caption, table.caption_justify = caption or None, "left"
    for number, heading in enumerate(headings):
        justify = "left" if number < n_left else "right"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=heading in no_wrap)
    for row in rows:
        table.add_row(*row)
    return table
