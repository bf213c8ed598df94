"""Writing files and folders so that nothing half-written is ever seen under the final name."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem

LEFTOVER_DIGITS = 8

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, secret: bool = False) -> Iterator[Path]:
    """Give a temporary file to write; it replaces `path` when the block ends without an error.

    Only its owner may read a secret one, at any moment.
    """
    final = Path(path)
    partial = leftover(final, "partial")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        if secret:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        yield partial
        os.replace(partial, final)
    except OSError as error:
        raise as_input_error(final, error) from error
    finally:
        remove(partial)


def check_output_file(
    path: str | os.PathLike[str], *, overwrite: bool, is_ours: Callable[[Path], bool], what: str
) -> None:
    """Refuse at once, and not after the work, a file that may not be written.

    Parameters
    ----------
    overwrite : bool
        Whether an earlier one, by `is_ours`, may be replaced.
    what : str
        What such a file is, for the message.

    Raises
    ------
    InputError
        There is a file that is not ours, or one of ours that may not be replaced, or no file can be there.
    """
    path = Path(path)
    if os.path.lexists(path):
        way_out = "Nothing was changed: choose another name"
        if not (path.is_file() and not path.is_symlink() and is_ours(path)):
            found = "a folder" if path.is_dir() else "a file that this program did not write"
            raise InputError(str(path), [Problem(f"a free name, or that of {what}", found, way_out=way_out)])
        if not overwrite:
            way_out = "Choose another name, or ask for it to be overwritten (--overwrite)"
            raise InputError(str(path), [Problem("a name that is free", "an existing one", way_out=way_out)])
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        found = f"{parent}, which is {'write-protected' if parent.is_dir() else 'a file'}"
        raise InputError(str(path), [Problem("a folder to write into", found)])


def write_text(path: str | os.PathLike[str], text: str, *, secret: bool = False) -> None:
    """Write `text` to `path` in one step."""
    with atomic_file(path, secret=secret) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def exclusive_use(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock file `path`, so that only one process at a time works on what it stands for.

    The system frees the lock of a process that ends, however it ends; the file is removed only for tidiness. Where the
    system has no such locks, as on Windows, none is held.

    Raises
    ------
    InputError
        Another process holds it: says which.
    """
    path = Path(path)
    if fcntl is None:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
    except OSError as error:
        raise as_input_error(path, error) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def clear_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove what a killed process had not finished writing or removing in a folder, of outputs of some names.

    Only what has exactly a name that `leftover` gives. An earlier output that was moved aside, and whose successor did
    not come to take its place, gets its name back. Nobody else may be writing there now.
    """
    if not folder.is_dir():
        return
    for name in names:
        ours = re.compile(rf"\.{re.escape(name)}\.(partial|old)-[0-9a-f]{{{LEFTOVER_DIGITS}}}")
        for entry in list(folder.iterdir()):
            found = ours.fullmatch(entry.name)
            if found and found[1] == "old" and not os.path.lexists(folder / name):
                entry.rename(folder / name)
            elif found:
                remove(entry)


def leftover(final: Path, kind: str) -> Path:
    """A name, beside an output, for what is to become it (partial) or was it before (old)."""
    return final.with_name(f".{final.name}.{kind}-{uuid.uuid4().hex[:LEFTOVER_DIGITS]}")


def create_private(folder: Path) -> None:
    """Make a folder that only its owner may look into."""
    folder.mkdir(mode=0o700)
    # The mode of `mkdir` is what the mask leaves of it.
    folder.chmod(0o700)


def _locked(path: Path) -> int:
    """Descriptor of the locked file of that name."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[union-attr]
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode(errors="replace") or "another process"
            os.close(lock)
            problem = Problem("work of one process at a time", f"{holder} at work", way_out="Wait for it, or stop it")
            raise InputError(str(path.parent), [problem]) from None
        # Whoever held the lock before may have removed the file since it was opened.
        if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"process {os.getpid()} on {platform.node()}".encode(), 0)
            return lock
        os.close(lock)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        path.unlink()


_CANNOT_WRITE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.EISDIR,
}


def as_input_error(path: Path, error: OSError) -> Exception:
    """What the user can mend (permissions, a full disk) becomes an `InputError`; anything else stays as it is."""
    if error.errno not in _CANNOT_WRITE:
        return error
    problem = Problem("a place that can be written to", str(error), way_out="Check permissions and free space")
    return InputError(str(path), [problem])
