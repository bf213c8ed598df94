"""The list of commands, and groups of commands that show an error message, not a traceback, for a user's mistake."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from ppmtf_jax.cli.console import complaints
from ppmtf_jax.errors import InputError, PpmtfError
from ppmtf_jax.runtime.progress import STOPPED, stops_soon, tell_stopped, what_is_kept

STEPS, WHOLE = "Step by step", "All steps at once"


class Listed(NamedTuple):
    """A command in the list, which is shown without loading the commands and JAX, because loading takes long."""

    place: str  # module of `ppmtf_jax.cli`, and name of the function or group of commands there
    panel: str
    help: str  # the first sentence of the help


# In the order in which they are used.
COMMANDS = {
    "demo": Listed(
        "running.demo",
        WHOLE,
        "Run all steps on a simulated city: a table, pictures, and traces that passed the privacy test.",
    ),
    "run": Listed(
        "running.run", WHOLE, "Run all steps of a job file: import, fit, synthesize, test, release, evaluate, draw."
    ),
    "report": Listed(
        "reporting.report",
        WHOLE,
        "Write a page about the results of a job: what is kept, what leaks, what is guaranteed.",
    ),
    "compare": Listed(
        "running.compare",
        WHOLE,
        "Compare synthesizers on the same data: utility, privacy, the share that passes the test, time and memory.",
    ),
    "list": Listed("listing.list_all", WHOLE, "List all data sets, synthesizers, metrics and attacks."),
    "import": Listed(
        "importing.data_sets", STEPS, "Convert a data set into two trace sets, for training and for testing."
    ),
    "fit": Listed("modelling.fit", STEPS, "Learn a generative model of traces."),
    "diagnose": Listed("modelling.diagnose", STEPS, "Check whether a ppmtf or itf model had enough sweeps."),
    "complete": Listed(
        "modelling.complete", STEPS, "Fill the gaps of real traces: where people were when nothing was recorded."
    ),
    "synthesize": Listed(
        "modelling.synthesize", STEPS, "Synthesize traces from every user of a model, or from users drawn at random."
    ),
    "colocate": Listed(
        "modelling.colocate", STEPS, "Synthesize traces of friends who meet, under differential privacy."
    ),
    "test": Listed(
        "releasing.check_deniability",
        STEPS,
        "Test synthetic traces for plausible deniability, or those of sglt for semantic similarity.",
    ),
    "release": Listed(
        "releasing.release", STEPS, "Write the traces that passed the test into a folder that can be handed to anyone."
    ),
    "evaluate": Listed(
        "releasing.evaluate", STEPS, "Measure utility and privacy, beside the training traces and uniform traces."
    ),
    "export": Listed("exporting.export", STEPS, "Write a population or traces for maps: kepler.gl, QGIS and others."),
    "attack": Listed("attacking.attack", STEPS, "Attack real or synthetic traces: what do they reveal?"),
}

# Help that depends on what is registered is made when it is shown.
LATE_HELP: dict[str, Callable[[], str]] = {}


def example(command: str) -> str:
    """The last line of a command's help."""
    return f"Example: `{command}`"


def with_example(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command of the list an example, the last line of its help."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command.__dict__["epilog"] = example(text)
        return command

    return decorate


def group_of_commands(name: str, epilog: str, kind: type[TyperGroup] | None = None) -> typer.Typer:
    """A command of the list that has subcommands."""
    about = {"help": COMMANDS[name].help, "epilog": epilog, "rich_markup_mode": "markdown"}
    return typer.Typer(cls=kind or FriendlyGroup, no_args_is_help=True, callback=lambda: None, **about)


class FriendlyGroup(TyperGroup):
    """Every group of commands of this program."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error that a user can cause ends with a message and an exit code, not with a traceback."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # Let the terminal print any file name: a character that its encoding lacks is printed as a code.
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except typer.Exit as error:
            end = error
        except KeyboardInterrupt:
            tell_stopped()
            end = typer.Exit(STOPPED)
        except Exception as error:
            text = self.explained(ctx, error)
            if text is None:
                raise
            complaints.print("[bold red]Error:[/bold red]", end=" ")
            complaints.print(text, markup=False, highlight=False, soft_wrap=True)
            end = typer.Exit(1)
        raise end

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of this name; typer suggests similar names for an unknown name."""
        # Typer takes its suggestions from `self.commands`, which is empty in a group that looks up its commands.
        self.commands = self.commands or dict.fromkeys(self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def explained(self, ctx: Any, error: Exception) -> str | None:
        """The message of an error that a user can cause; None for a fault of this program."""
        if isinstance(error, PpmtfError):
            return str(error)
        # At EPIPE the reader stopped, as in `ppmtf ... | head`: typer ends quietly.
        if isinstance(error, OSError) and error.errno != errno.EPIPE:
            where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            return f"{where}. Check permissions and free space. {what_is_kept()}"
        if isinstance(error, AssertionError | RuntimeError):
            from ppmtf_jax.runtime.devices import require_devices

            try:  # without a device, JAX ends with an error that says nothing
                require_devices()
            except InputError as reason:
                return str(reason)
        # JAX raises an error of its own if memory is short.
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)):
            way_out = "Take fewer users or places, a lower rank, or zeros=weighted"
            return f"there is not enough memory ({error}). {way_out}. {what_is_kept()}"
        return None


class ListedGroup(FriendlyGroup):
    """The commands of `COMMANDS`; each is loaded when it is called, so that the list does not load JAX."""

    _only_lists = False

    def invoke(self, ctx: Any) -> Any:
        """Run a command, which Ctrl-C stops soon."""
        with stops_soon():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands, in the order of their use."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with help that lists what is registered; None if there is no such command."""
        if cmd_name not in COMMANDS:
            return None
        listed = COMMANDS[cmd_name]
        if self._only_lists:
            return TyperCommand(cmd_name, help=listed.help, rich_help_panel=listed.panel)
        from ppmtf_jax.runtime.devices import use_all_cores

        with suppress(InputError):  # if the calling program has already used JAX
            use_all_cores()
        holder = typer.Typer(rich_markup_mode="markdown", add_completion=False, callback=lambda: None)
        module, _, name = listed.place.partition(".")
        made = getattr(import_module(f"ppmtf_jax.cli.{module}"), name)
        if isinstance(made, typer.Typer):
            holder.add_typer(made, name=cmd_name)
        else:
            holder.command(cmd_name, epilog=made.epilog)(made)
        command = typer.main.get_group(holder).get_command(ctx, cmd_name)
        if command is not None and cmd_name in LATE_HELP:
            command.help = LATE_HELP[cmd_name]()
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, a line for each command."""
        self._only_lists = True
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """The possible completions of a word in a shell."""
        self._only_lists = True
        return super().shell_complete(ctx, incomplete)
