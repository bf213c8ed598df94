"""How a command stops at Ctrl-C: soon, without unfinished files, and with a true word about what is kept."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread

from ppmtf_jax.runtime.files import remove_unfinished

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
