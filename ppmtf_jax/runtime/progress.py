"""Progress of long work, on standard error: shown on a terminal and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress_bar(
    title: str, total: int, *, show: bool, done: int = 0, waits_for: str = "compiling"
) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of steps just finished; a bar shows the steps and the time left.

    Before the first finished steps the bar shows `waits_for`.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with _shown(show, TextColumn("{task.description}"), *columns, TimeRemainingColumn()) as bar:
        if bar is None:
            yield lambda _: None
            return
        # The first steps wait for the compiler, sometimes for half a minute: the bar should not seem to hang.
        task = bar.add_task(title, total=total, completed=done, note=waits_for)
        yield lambda steps: bar.update(task, advance=steps, note="left")


@contextmanager
def spinner(title: str, *, show: bool) -> Iterator[None]:
    """Show that work of unknown length goes on, and for how long already."""
    with _shown(show, SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        if bar is not None:
            bar.add_task(title, total=None)
        yield


@contextmanager
def _shown(show: bool, *columns: ProgressColumn) -> Iterator[Progress | None]:
    # Not `Console.is_terminal`: variables such as FORCE_COLOR set it where there is no terminal.
    if not (show and sys.stderr.isatty()):
        yield None
        return
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar


def in_words(seconds: float) -> str:
    """A length of time as a person would say it.

    Examples
    --------
    >>> in_words(8.4), in_words(200.0), in_words(9000.0)
    ('8 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
