"""What commands print: plain lines and tables on standard output, complaints on standard error."""

from __future__ import annotations

import io
import sys

import pandas as pd
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ppmtf_jax.gibbs.diagnostics import MAX_R_HAT, Diagnosis

FEW_PASSED = 0.25
"""Share of the traces below which those that passed are said to be few."""

console = Console()
complaints = Console(stderr=True)


def print_any_text() -> None:
    """Let names of files be printed whatever the encoding of the terminal: what it lacks is shown as its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def tell(text: str) -> None:
    """Print a line as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def warn_of_few(n_passed: int, n_traces: int) -> None:
    """Say so where so few traces passed the privacy test that they are no sample of people any more."""
    if 0 < n_passed < FEW_PASSED * n_traces:
        tell(
            f"Only {n_passed} of {n_traces} traces passed: these are not a fair sample, but what is special of nobody. "
            "Measure them (`ppmtf evaluate`) before use. A system that smooths more, such as bridge, passes more."
        )


def stop(message: str) -> typer.Exit:
    """Print an error; to be raised, to end with exit code 1."""
    complaints.print("[bold red]Error:[/bold red]", end=" ")
    complaints.print(message, markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)


def plain_table(title: str, caption: str = "") -> Table:
    """An empty table in the style of all."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.caption, table.caption_justify = caption or None, "left"
    return table


def agreement_table(overview: pd.DataFrame, title: str) -> Table:
    """How the chains agree on each quantity, over the second half of the sweeps."""
    table = plain_table(title, f"Second half of the sweeps. R-hat to be {MAX_R_HAT} at most; ESS: effective draws.")
    table.add_column("Quantity")
    for heading in ("Mean", "SD", "R-hat", "ESS bulk", "tail"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in overview.iterrows():
        numbers = [f"{row['mean']:.4g}", f"{row['sd']:.2g}", f"{row['r_hat']:.3f}"]
        numbers += [f"{row[column]:.0f}" for column in ("ess_bulk", "ess_tail")]
        table.add_row(str(name), *("-" if number == "nan" else number for number in numbers))
    return table


def held_out_table(diagnosis: Diagnosis) -> Table:
    """How the error at the held-out cells went."""
    table = plain_table("Error at cells held out", diagnosis.held_out_note)
    table.add_column("Tensor")
    for heading in ("1st", "2nd", "3rd", "4th quarter", "Best sweep", "Average of draws"):
        table.add_column(heading, justify="right", no_wrap=True)
    for tensor, row in diagnosis.held_out().iterrows():
        quarters = [f"{row[f'{which}_quarter']:.3f}" for which in ("first", "second", "third", "last")]
        table.add_row(str(tensor), *quarters, f"{row['best_sweep']:.0f}", f"{row['of_average']:.3f}")
    return table
