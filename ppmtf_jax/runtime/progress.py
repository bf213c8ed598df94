"""Progress of long work, on standard error: shown on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress_bar(
    title: str, total: int, *, show: bool, done: int = 0, waits_for: str = "compiling"
) -> Iterator[Callable[[int], None]]:
    """Give a function that is called with the number of steps just finished; a bar shows them and the time left.

    Until the first of them is finished it shows what that waits for.

    Examples
    --------
    >>> with progress_bar("sweeps", 10, show=False) as advance:
    ...     advance(5)
    """
    if not _shown(show):
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        # The first steps wait for the compiler, at times for half a minute: it should not look as if they hung.
        task = bar.add_task(title, total=total, completed=done, note=waits_for)
        yield lambda steps: bar.update(task, advance=steps, note="left")


@contextmanager
def spinner(title: str, *, show: bool) -> Iterator[None]:
    """Show that work of unknown length goes on, and for how long already.

    Examples
    --------
    >>> with spinner("evaluating", show=False):
    ...     pass
    """
    if not _shown(show):
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(title, total=None)
        yield


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


def _shown(show: bool) -> bool:
    # Not `Console.is_terminal`, which variables such as FORCE_COLOR set where there is no terminal.
    return show and sys.stderr.isatty()
