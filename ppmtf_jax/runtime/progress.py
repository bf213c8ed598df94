"""The progress of long work, shown on a terminal alone, and its end at Ctrl-C, with a true word about what is kept."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread

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

from ppmtf_jax.runtime.files import remove_unfinished

LONG_S = 3600.0
"""Work that takes more seconds than this is announced in a separate line."""
_tellers: list[Callable[[str], None]] = []


@contextmanager
def progress_bar(
    title: str, total: int, *, show: bool, done: int = 0, waits_for: str = "compiling"
) -> Iterator[Callable[[int], None]]:
    """Give a function to call with the number of steps just finished; a bar shows the steps and the time left.

    Before the first finished steps the bar shows `waits_for`.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[note]}"))
    with _shown(show, TextColumn("{task.description}"), *columns, TimeRemainingColumn()) as bar:
        estimate = _estimate(title, total - done) if show else lambda _: None
        if bar is None:
            yield estimate
            return
        # The first steps wait for the compiler, sometimes for half a minute: the bar should not seem to hang.
        task = bar.add_task(title, total=total, completed=done, note=waits_for)

        def advance(steps: int) -> None:
            bar.update(task, advance=steps, note="left")
            estimate(steps)

        yield advance


@contextmanager
def spinner(title: str, *, show: bool) -> Iterator[None]:
    """Show that work of unknown length goes on, and for how long already."""
    with _shown(show, SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        if bar is None:
            yield
            return
        task = bar.add_task(title, total=None)
        _tellers.append(lambda text: bar.update(task, description=text))
        try:
            yield
        finally:
            _tellers.pop()


def tell(text: str) -> None:
    """Show how far the work has come, in place of the title of the spinner that is shown, if there is one."""
    if _tellers:
        _tellers[-1](text)


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
    >>> in_words(8.4), in_words(200.0), in_words(9000.0), in_words(1e6), in_words(1e8)
    ('8 s', '3 min', '2.5 h', '12 days', '3.2 years')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    if hours < 72:
        return f"{hours:.1f} h"
    return f"{hours / 24:.0f} days" if hours < 24 * 365 else f"{hours / 24 / 365:.1f} years"


def _estimate(title: str, n_left: int) -> Callable[[int], None]:
    """A function that counts finished steps, and prints once the time of the remaining steps, if it is long."""
    finished: list[tuple[float, int]] = []

    def advance(steps: int) -> None:
        finished.append((time.monotonic(), steps))
        # The first steps wait for the compiler, so the second ones are timed.
        if len(finished) == 2:
            left = (finished[1][0] - finished[0][0]) / steps * (n_left - finished[0][1] - steps)
            if left > LONG_S:
                Console(stderr=True).print(f"{title}: about {in_words(left)} left. Ctrl-C stops the work.")

    return advance


GRACE_S = 1.5
"""Time to stop in order. Python sees Ctrl-C only between two steps of its main thread, and ends only when all threads
have ended, so a running program of XLA would hold it up for as long as it runs."""
STOPPED = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C stopped."""

_resumable: dict[Path, str] = {}
_told = Event()


def continues_from(path: Path, what: str) -> None:
    """Note that a later call continues from this file; `what`: the work that it keeps, such as "the step fit"."""
    _resumable[path] = what


def what_is_kept() -> str:
    """What the same command will continue from, as a sentence: work whose file exists now."""
    kept = dict.fromkeys(what for path, what in _resumable.items() if path.exists())
    return f"Kept: {', '.join(kept)}. The same command continues from there." if kept else "Nothing was kept."


def tell_stopped() -> None:
    """Say that the command stopped, and what is kept."""
    _told.set()
    sys.stderr.write(f"Stopped. {what_is_kept()}\n")
    sys.stderr.flush()


@contextmanager
def stops_soon() -> Iterator[None]:
    """End the process at most `GRACE_S` after Ctrl-C, or at once when it is pressed again.

    Does nothing outside the main thread, where signals cannot be watched.
    """
    if current_thread() is not main_thread():
        yield
        return
    _told.clear()
    _resumable.clear()
    watched, waker = socket.socketpair()
    waker.setblocking(False)
    with waker:
        earlier = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        Thread(target=_end_after_signal, args=[watched], daemon=True).start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(earlier)


def _end_after_signal(watched: socket.socket) -> None:
    """Wait for Ctrl-C; then end the process when its time is over, unless it has ended by itself."""
    with watched:
        while (signals := watched.recv(1)) != bytes([signal.SIGINT]):
            if not signals:
                return  # the command is done
        end = time.monotonic() + GRACE_S
        watched.settimeout(GRACE_S)
        with suppress(TimeoutError):
            if not watched.recv(1):  # the command is over, but its threads may still hold up the end
                time.sleep(max(0.0, end - time.monotonic()))
    if not _told.is_set():
        tell_stopped()
    remove_unfinished()
    os._exit(STOPPED)
