"""A group of commands that shows an error message, not a traceback, for what a user can cause."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer
from jax.errors import JaxRuntimeError
from typer.core import TyperGroup

from ppmtf_jax.cli.console import complaints, print_any_text, stop
from ppmtf_jax.errors import InputError, PpmtfError
from ppmtf_jax.runtime.devices import leave_processes, use_all_cores, wait_for_processes

# In the order of their use.
COMMANDS = [
    "demo",
    "run",
    "report",
    "compare",
    "list",
    "import",
    "fit",
    "diagnose",
    "complete",
    "synthesize",
    "colocate",
    "test",
    "release",
    "evaluate",
    "attack",
]

# Help that depends on what is registered is made when it is shown.
LATE_HELP: dict[str, Callable[[], str]] = {}


class FriendlyGroup(TyperGroup):
    """Every group of commands of this program."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in the order of their use."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: COMMANDS.index(name) if name in COMMANDS else len(COMMANDS))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, its help up to date with what is registered."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and cmd_name in LATE_HELP:
            command.help = LATE_HELP[cmd_name]()
        return command

    def invoke(self, ctx: Any) -> Any:
        """Do a command on all cores; what a user can cause ends in a message and exit code 1."""
        print_any_text()
        with suppress(InputError):  # where this is called from a program that has used JAX already
            use_all_cores()
        try:
            return self._invoke(ctx)
        except typer.Exit as end:
            if end.exit_code:
                leave_processes(end.exit_code)
            raise

    def explained(self, ctx: Any, error: PpmtfError) -> str:
        """What to say of an error of a command."""
        return str(error)

    def _invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            wait_for_processes()
            return result
        except PpmtfError as error:
            raise stop(self.explained(ctx, error)) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # nobody reads on, as in `ppmtf ... | head`: typer ends quietly
            where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise stop(f"{where}. Check permissions and free space; what was finished is kept.") from error
        except (MemoryError, JaxRuntimeError) as error:
            if "Gloo" in str(error):
                raise stop(f"another process ended before the work was done; see what it says. ({error})") from error
            if isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            way_out = "Take fewer users or places, a lower rank, or zeros=weighted; what was finished is kept"
            raise stop(f"the memory does not suffice ({error}). {way_out}.") from error
        except KeyboardInterrupt as error:
            complaints.print("Stopped. What was finished is kept; `fit` and `run` go on when they are called again.")
            raise typer.Exit(130) from error
