"""Write files so that nobody ever sees a half-written file under its final name, and so that they stay secret.

A file has the mode 0600 from its creation and a folder 0700, unless the caller asks for `public`. Nothing is ever
added to a folder that this program wrote earlier, because a release is handed out with everything in it. Files that a
later run continues from, and locks, are used only if the current user made them: in a folder that others may write to,
somebody else can create a link or a file beside an output.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import stat
import sys
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem

PathLike = str | os.PathLike[str]
LEFTOVER_DIGITS = 8
MARKER = "ppmtf.json"
"""The file in every folder that this program wrote; see `folders`."""
# `has_mark` searches this many bytes at the beginning and at the end of a file.
SEARCHED_BYTES = 2**16
# Windows does not have these flags.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
AS_IT_IS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_unfinished: set[Path] = set()


@contextmanager
def atomic_file(path: PathLike, *, public: bool = False) -> Iterator[Path]:
    """Give a temporary file to write; it replaces `path` when the block ends without an error.

    Only the owner may read it; a public file gets the permissions of the user's mask once it is complete.
    """
    final = Path(path)
    check_apart(final)
    with unfinished(final) as partial:
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK, 0o600))
        yield partial
        if public:
            make_public(partial)
        os.replace(partial, final)


@contextmanager
def unfinished(final: Path) -> Iterator[Path]:
    """Give a temporary name beside `final`; remove what has this name at the end."""
    partial = leftover(final, "partial")
    _unfinished.add(partial)
    with writing_to(final):
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            yield partial
        finally:
            remove(partial)
            _unfinished.discard(partial)


@contextmanager
def removed_if_stopped(folder: Path) -> Iterator[None]:
    """Remove a temporary folder at the end of the block, also if the process is stopped."""
    _unfinished.add(folder)
    try:
        yield
    finally:
        remove(folder)
        _unfinished.discard(folder)


def remove_unfinished() -> None:
    """Remove all unfinished outputs, because the process is about to end; another thread may still be writing them."""
    for path in list(_unfinished):
        for _ in range(10):
            with suppress(OSError, InputError):
                remove(path)
        if os.path.lexists(path):
            sys.stderr.write(f"{path} could not be removed. It may hold data of people.\n")


def check_apart(path: PathLike) -> None:
    """Refuse a path inside a folder that this program wrote, such as a release; links are followed."""
    parent = Path(os.path.realpath(Path(path).parent))
    for folder in (parent, *parent.parents):
        if os.path.isfile(folder / MARKER):
            expected = "a place outside the folders that this program wrote"
            way_out = (
                "Nothing was changed: choose another place. Nothing may be added to such a folder; a file in a release "
                "would be handed out with it"
            )
            raise InputError(str(path), [Problem(expected, f"one in {folder}", way_out=way_out)])


def check_output_file(path: PathLike, *, overwrite: bool, is_ours: Callable[[Path], bool], what: str) -> None:
    """Refuse an output file that cannot be written, before the work and not after it.

    With `overwrite` an earlier file of ours may be replaced: `is_ours` recognizes it (see `has_mark`), `what` names it.
    """
    path = Path(path)
    check_apart(path)
    if os.path.lexists(path):
        if not (path.is_file() and not path.is_symlink() and is_ours(path)):
            found = "a folder" if path.is_dir() else "a file that this program did not write"
            way_out = "Nothing was changed: choose another name"
            raise InputError(str(path), [Problem(f"a free name, or that of {what}", found, way_out=way_out)])
        if not overwrite:
            raise name_taken(path)
    check_parent(path.absolute())


def has_mark(path: Path, mark: bytes) -> bool:
    r"""Whether a regular expression matches near the beginning or the end of a file: a sign that this program wrote it.

    Start the expression with ``\A`` if a file of somebody else could contain the same text after its beginning.
    """
    with suppress(OSError), path.open("rb") as stream:  # a file that cannot be read is not ours
        begin = stream.read(SEARCHED_BYTES)
        stream.seek(max(0, path.stat().st_size - SEARCHED_BYTES))
        return any(re.search(mark, part) for part in (begin, stream.read()))
    return False


def name_taken(path: Path) -> InputError:
    """The error for an output that exists and may not be replaced."""
    way_out = "Choose another name, or ask for it to be overwritten (--overwrite)"
    return InputError(str(path), [Problem("a name that is free", "an existing one", way_out=way_out)])


def check_parent(path: Path) -> None:
    """Refuse an absolute path whose folder, or the nearest folder that exists, cannot be written to."""
    parent = next(folder for folder in path.parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        found = f"{parent}, which is {'write-protected' if parent.is_dir() else 'a file'}"
        raise InputError(str(path), [Problem("a folder to write into", found)])


def write_text(path: PathLike, text: str) -> None:
    """Write `text` to `path` in one step; only the owner may read the file."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def append_text(path: PathLike, text: str) -> None:
    """Append `text` to a file of ours (see `open_own`); when this returns, the text is on the disk."""
    path = Path(path)
    with writing_to(path), open(open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def read_own(path: PathLike) -> bytes:
    """The content of a file of ours; see `open_own`."""
    with open(open_own(Path(path), os.O_RDONLY), "rb") as file:
        return file.read()


def open_own(path: Path, flags: int) -> int:
    """Descriptor of a file that this user made; with O_CREAT in `flags` a missing file is created.

    Refuses a link, a second name of a file, another user's file and, for reading, a file that others may write to:
    somebody who may write to the folder could have put it there.
    """
    flags |= NO_LINK | AS_IT_IS
    if flags & os.O_CREAT:
        check_apart(path)
        # A new file needs no check: its owner is this user.
        with suppress(FileExistsError):
            return os.open(path, flags | os.O_EXCL, 0o600)
    try:
        descriptor = os.open(path, flags & ~os.O_CREAT)
    except FileNotFoundError:
        raise
    except OSError as error:
        found = _why_not_own(path.lstat())
        raise error if found is None else _not_own(path, found) from error
    found = _why_not_own(os.fstat(descriptor), to_be_read=not flags & (os.O_WRONLY | os.O_RDWR))
    if found:
        os.close(descriptor)
        raise _not_own(path, found)
    return descriptor


def _not_own(path: Path, found: str) -> InputError:
    way_out = "Somebody else may have put it there: look at it, and remove it"
    return InputError(str(path), [Problem("a file that this program wrote for you alone", found, way_out=way_out)])


def _why_not_own(status: os.stat_result, *, to_be_read: bool = False) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "a link"
    if not stat.S_ISREG(status.st_mode):
        return "no file"
    if status.st_nlink > 1:
        return "a file that has another name too"
    if not _is_own(status):
        return "a file of another user"
    if to_be_read and hasattr(os, "geteuid") and status.st_mode & OTHERS_MAY_WRITE:
        return "a file that others may write to"
    return None


def _is_own(status: os.stat_result) -> bool:
    # Windows does not say who owns a file.
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


@contextmanager
def exclusive_use(path: PathLike) -> Iterator[None]:
    """Hold the lock file `path`, so that only one process at a time works on an output.

    The system frees the lock of a process that ends, however it ends. The error names the process that holds the lock.
    """
    path = Path(path)
    check_apart(path)
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove an open file; the next process locks the remaining file
            path.unlink()
        os.close(lock)


def _locked(path: Path) -> int:
    """Descriptor of the locked file `path`, which then says who holds the lock."""
    from filelock import lock_descriptor  # imported late, because few programs need a lock

    while True:
        try:
            lock = open_own(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            # The previous holder removed the file just now.
            continue
        if not lock_descriptor(lock, blocking=False):
            holder = b""
            with suppress(OSError):  # Windows lets nobody else read a locked file
                holder = os.read(lock, 200)
            os.close(lock)
            found = f"{holder.decode(errors='replace') or 'another process'} at work"
            problem = Problem("work of one process at a time", found, way_out="Wait for it, or stop it")
            raise InputError(str(path.parent), [problem])
        # The previous holder may have removed the file after it was opened here.
        if os.path.lexists(path) and os.path.samestat(os.fstat(lock), path.lstat()):
            if hasattr(os, "fchmod"):  # not on Windows
                os.fchmod(lock, 0o600)
            os.ftruncate(lock, 0)
            os.write(lock, f"process {os.getpid()} on {platform.node()}".encode())
            return lock
        os.close(lock)


def clear_leftovers(folder: Path, names: Collection[str] | None = None) -> None:
    """Remove the unfinished outputs that a killed process left in a folder, for the outputs `names` or for all.

    Removes only names that `leftover` gives. An earlier output that was moved aside gets its name back if the new one
    never took its place. No other process may be writing to the folder.
    """
    for entry in list(folder.iterdir()) if folder.is_dir() else ():
        found = re.fullmatch(rf"\.(.+)\.(partial|old)-[0-9a-f]{{{LEFTOVER_DIGITS}}}", entry.name)
        if found is None or (names is not None and found[1] not in names):
            continue
        if found[2] == "old" and not os.path.lexists(folder / found[1]):
            entry.rename(folder / found[1])
        else:
            remove(entry)


def leftover(final: Path, kind: str) -> Path:
    """A temporary name beside an output: "partial" for the new one, "old" for the one that it replaces."""
    return final.with_name(f".{final.name}.{kind}-{uuid.uuid4().hex[:LEFTOVER_DIGITS]}")


def create_private(folder: Path) -> None:
    """Create a folder that only its owner may look into."""
    folder.mkdir(mode=0o700)
    # The user's mask may have removed bits of the mode of `mkdir`.
    folder.chmod(0o700)


def make_private(folder: Path) -> None:
    """Create a folder that only its owner may look into, or make an existing folder so; refuse another user's."""
    check_apart(folder)
    with writing_to(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            create_private(folder)
        except FileExistsError:
            if not folder.is_dir():
                raise
            if not (_is_own(folder.lstat()) and _is_own(folder.stat())):
                way_out = "Choose another name: the owner of a folder can look into it"
                found = "one of another user"
                raise InputError(str(folder), [Problem("a folder of yours", found, way_out=way_out)]) from None
            folder.chmod(0o700)


def make_public(path: Path) -> None:
    """Let others read a file or folder, as far as the user's mask allows; only the owner may change it."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o755 if path.is_dir() else 0o644) & ~mask)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists; an `InputError` says what could not be removed."""
    if path.is_dir() and not path.is_symlink():
        # Other processes may remove the same folder at the same time.
        shutil.rmtree(path, ignore_errors=True)
        if os.path.lexists(path):
            n_files = sum(not each.is_dir() for each in path.rglob("*"))
            way_out = "They may hold data of people: check the permissions, and remove the folder yourself"
            found = f"one of which {n_files} files stay"
            raise InputError(str(path), [Problem("a folder that can be removed", found, way_out=way_out)])
    elif os.path.lexists(path):
        path.unlink()


_CANNOT_WRITE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EEXIST,
    errno.EISDIR,
}  # fmt: skip


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn errors that the user can mend (permissions, a full disk) into an `InputError` about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _CANNOT_WRITE:
            raise
        problem = Problem("a place that can be written to", str(error), way_out="Check permissions and free space")
        raise InputError(str(path), [problem]) from error
