"""Progress of long work: a bar with estimated time on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str, total: int, *, show: bool, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Give a function that is called with the number of steps just finished.

    Examples
    --------
    >>> with progress_bar("sweeps", 10, show=False) as advance:
    ...     advance(5)
    """
    if not show:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, completed=done)
        yield lambda steps: bar.advance(task, steps)
