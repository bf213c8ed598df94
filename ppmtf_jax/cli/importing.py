"""`ppmtf import NAME`: a command for each data set of the registry."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import FriendlyGroup
from ppmtf_jax.cli.options import STEPS, Out, Overwrite, Quiet, Seed, example, with_settings
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.jobs.steps import import_data


class ImportGroup(FriendlyGroup):
    """Looks its commands up in the registry, so that a data set that was registered has one."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the data sets."""
        return list(DATA_SETS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a data set, made when it is asked for; None where there is no such data set."""
        return _command_of(DATA_SETS[cmd_name]) if cmd_name in DATA_SETS else None


def add_to(app: typer.Typer) -> None:
    """Add `import` to the commands."""
    app.add_typer(
        typer.Typer(cls=ImportGroup, no_args_is_help=True, rich_markup_mode="markdown", callback=lambda: None),
        name="import",
        help="Convert a data set into two trace sets, for training and for testing.",
        epilog="Each has its own help: `ppmtf import checkins --help`",
        rich_help_panel=STEPS,
    )


def _command_of(data_set: DataSet) -> TyperCommand:
    @with_settings(data_set.settings)
    def command(settings: Any, out: Out, seed: Seed = None, overwrite: Overwrite = False, quiet: Quiet = False) -> None:
        imported = import_data(data_set.name, settings, out, seed=seed, overwrite=overwrite, progress=not quiet)
        tell(imported.report)
        for name, traces in imported.sets.items():
            tell(f"{out / name}: {traces.n_users} users, {traces.n_events} events")

    single = typer.Typer(rich_markup_mode="markdown", add_completion=False, pretty_exceptions_enable=False)
    help_text = f"{data_set.title}\n\nWrites the trace sets train and test into the folder, readable by you alone."
    single.command(data_set.name, help=help_text, epilog=example(f"ppmtf import {data_set.example} --out data"))(
        command
    )
    return typer.main.get_command(single)  # type: ignore[return-value]
