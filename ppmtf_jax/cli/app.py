"""The command line `ppmtf`: one command for each step from data to release, and `run` for all of them."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from ppmtf_jax.cli.console import console
from ppmtf_jax.cli.group import ListedGroup

app = typer.Typer(
    cls=ListedGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Synthesize location traces that keep the statistics of real ones, and test that they protect people.",
    epilog="To try it without any data: `ppmtf demo`",
)


@app.callback(invoke_without_command=True)
def main(show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Handle the options of `ppmtf` itself, before any command."""
    if show_version:
        console.print(f"ppmtf_jax {version('ppmtf_jax')}", highlight=False)


if __name__ == "__main__":
    sys.exit(app())
