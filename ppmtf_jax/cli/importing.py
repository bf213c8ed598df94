"""`ppmtf import NAME`: a command for each data set of the registry."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ppmtf_jax.cli.console import tell
from ppmtf_jax.cli.group import FriendlyGroup, example, group_of_commands
from ppmtf_jax.cli.options import Overwrite, Quiet, Seed, option, option_name, with_settings
from ppmtf_jax.datasets.registry import DATA_SETS, DataSet
from ppmtf_jax.datasets.summary import DataCheck
from ppmtf_jax.errors import InputError, Message, Problem, Setting
from ppmtf_jax.jobs.steps import import_data
from ppmtf_jax.streams import draw_seed

MaybeOut = Annotated[Path | None, option("--out FOLDER", "Where to write; the name must be free.")]
Check = Annotated[bool, option("--check", "Write nothing: show what was found, and what it means for synthesis.")]


class ImportGroup(FriendlyGroup):
    """Looks up its commands in the registry, so that every registered data set has a command."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the data sets."""
        return list(DATA_SETS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a data set, made on demand; None if there is no such data set."""
        return _command_of(DATA_SETS[cmd_name]) if cmd_name in DATA_SETS else None

    def explained(self, ctx: Any, error: Exception) -> str | None:
        """The text of an error, with options in place of settings."""
        if ctx.invoked_subcommand is None or not isinstance(error, InputError):
            return super().explained(ctx, error)
        return _in_options(error.message(), DATA_SETS[ctx.invoked_subcommand])


data_sets = group_of_commands("import", "Each data set has its own help: `ppmtf import checkins --help`", ImportGroup)


def _command_of(data_set: DataSet) -> TyperCommand:
    def command(
        settings: Any,
        out: MaybeOut = None,
        check: Check = False,
        seed: Seed = None,
        overwrite: Overwrite = False,
        quiet: Quiet = False,
    ) -> None:
        if check:
            read = data_set.read(settings, draw_seed(seed).value, not quiet)
            tell(_in_options(DataCheck(read).text(), data_set))
            return
        if out is None:
            raise InputError("--out", [Problem("a folder to write to, or --check to write nothing", "neither")])
        imported = import_data(data_set.name, settings, out, seed=seed, overwrite=overwrite, progress=not quiet)
        tell(_in_options(imported.report, data_set))
        for name, traces in imported.sets.items():
            zone = traces.time_grid.time_zone
            tell(f"{out / name}: {traces.n_users} users, {traces.n_events} events, by the clocks of {zone}")

    command.__name__ = f"import {data_set.name}"
    single = typer.Typer(rich_markup_mode="markdown", add_completion=False, pretty_exceptions_enable=False)
    help_text = f"{data_set.title}\n\nWrites the trace sets train and test into the folder. Only you can read them."
    single.command(data_set.name, help=help_text, epilog=example(f"ppmtf import {data_set.example} --out data"))(
        with_settings(data_set.settings)(command)
    )
    return typer.main.get_command(single)  # type: ignore[return-value]


def _in_options(text: str, data_set: DataSet) -> str:
    """A text in which the options replace the names of the data set's settings."""
    names = {field.name for field in fields(data_set.settings)}
    if not isinstance(text, Message):
        return text
    return text.spelled(lambda setting: _option(setting) if setting.name in names else str(setting))


def _option(setting: Setting) -> str:
    """How the command line writes a setting.

    >>> _option(Setting("columns", {"user": "uid"})), _option(Setting("step_s", 60)), _option(Setting("n_places"))
    ('--columns user=uid', '--step 60', '--places')
    """
    name, value = option_name(setting.name), setting.value
    if value is None or value is True:
        return name
    if isinstance(value, dict):
        value = ",".join(f"{key}={column}" for key, column in value.items())
    elif isinstance(value, tuple):
        value = ",".join(map(str, value))
    return f"{name} {value!r}" if " " in str(value) else f"{name} {value}"
