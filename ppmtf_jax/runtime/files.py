"""Writing files and folders so that nothing half-written is ever seen under the final name.

**Secret unless it is said to be public.** A file has the mode 0600 from its first moment, a folder 0700; whoever writes
something for others says so (`public`). Nothing is ever put into a folder that this program wrote before: what lies in
a release is handed out with it. And what is kept to go on from, or shared with other processes, is taken up only if
this user made it: anybody may put a link or a file beside an output, in a folder that others may write to.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem

LEFTOVER_DIGITS = 8
MARKER = "ppmtf.json"
"""In every folder that this program wrote, see `folders`."""
# What Windows lacks is 0 there.
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
AS_IT_IS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, public: bool = False) -> Iterator[Path]:
    """Give a temporary file to write; it replaces `path` when the block ends without an error.

    Only its owner may read it, at any moment; a public one may be read as the user's mask lets files be, once it is
    complete.

    Raises
    ------
    InputError
        It would be in a folder that this program wrote, or cannot be written.
    """
    final = Path(path)
    check_apart(final)
    partial = leftover(final, "partial")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_LINK, 0o600))
        yield partial
        if public:
            make_public(partial)
        os.replace(partial, final)
    except OSError as error:
        raise as_input_error(final, error) from error
    finally:
        remove(partial)


def check_apart(path: str | os.PathLike[str]) -> None:
    """Refuse to put something into a folder that this program wrote, such as a release.

    Raises
    ------
    InputError
        `path` would be in one, or in a folder in one, by whatever name.
    """
    parent = Path(os.path.realpath(Path(path).parent))
    for folder in (parent, *parent.parents):
        if os.path.isfile(folder / MARKER):
            expected = "a place outside the folders that this program wrote"
            way_out = (
                "Nothing was changed: choose another place. Nothing may be added to such a folder; a file in a release "
                "would be handed out with it"
            )
            raise InputError(str(path), [Problem(expected, f"one in {folder}", way_out=way_out)])


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
        There is a file that is not ours, or one of ours that may not be replaced, or no file can be there; or it would
        be in a folder that this program wrote.
    """
    path = Path(path)
    check_apart(path)
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


def write_text(path: str | os.PathLike[str], text: str, *, public: bool = False) -> None:
    """Write `text` to `path` in one step; only its owner may read it unless it is public."""
    with atomic_file(path, public=public) as partial:
        partial.write_text(text, encoding="utf-8")


def append_text(path: str | os.PathLike[str], text: str) -> None:
    """Add `text` to a file of ours, which only its owner may read; what returns is on the disk.

    Raises
    ------
    InputError
        See `open_own`; or it cannot be written.
    """
    path = Path(path)
    try:
        with open(open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise as_input_error(path, error) from error


def read_own(path: str | os.PathLike[str]) -> bytes:
    """The content of a file of ours, see `open_own`."""
    with open(open_own(Path(path), os.O_RDONLY), "rb") as file:
        return file.read()


def open_own(path: Path, flags: int) -> int:
    """Descriptor of a file that this user made, for something that only he may have a say in.

    Parameters
    ----------
    flags : int
        As of `os.open`. With O_CREAT a missing file is made.

    Raises
    ------
    InputError
        It is a link, another name of some file, no file, somebody else's, or, to be read, one that others may write to:
        whoever may write to the folder could have put it there.
    """
    flags |= NO_LINK | AS_IT_IS
    if flags & os.O_CREAT:
        check_apart(path)
        # Of what is made here the owner is whoever the file system says.
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
    """Windows does not say whose a file is."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


@contextmanager
def exclusive_use(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock file `path`, so that only one process at a time works on what it stands for.

    The system frees the lock of a process that ends, however it ends; the file is removed only for tidiness. Where the
    system has no such locks, as on Windows, none is held.

    Raises
    ------
    InputError
        Another process holds it: says which. Or it is not ours, see `open_own`.
    """
    path = Path(path)
    check_apart(path)
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


def make_private(folder: Path) -> None:
    """A folder that only its owner may look into, be it new or not.

    Raises
    ------
    InputError
        It is somebody else's, or a link that somebody else made; it would be in a folder that this program wrote, or
        cannot be made.
    """
    check_apart(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            create_private(folder)
        except FileExistsError:
            if not folder.is_dir():
                raise
            if not (_is_own(folder.lstat()) and _is_own(folder.stat())):
                way_out = "Choose another name: whoever owns a folder can look into it"
                found = "one of another user"
                raise InputError(str(folder), [Problem("a folder of yours", found, way_out=way_out)]) from None
            folder.chmod(0o700)
    except OSError as error:
        raise as_input_error(folder, error) from error


def make_public(path: Path) -> None:
    """Let others read a file or folder, as far as the user's mask lets them, and nobody but its owner change it."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o755 if path.is_dir() else 0o644) & ~mask)


def _locked(path: Path) -> int:
    """Descriptor of the locked file of that name."""
    while True:
        try:
            lock = open_own(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            # Whoever held the lock removed the file just now.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[union-attr]
        except BlockingIOError:
            holder = os.pread(lock, 200, 0).decode(errors="replace") or "another process"
            os.close(lock)
            problem = Problem("work of one process at a time", f"{holder} at work", way_out="Wait for it, or stop it")
            raise InputError(str(path.parent), [problem]) from None
        # Whoever held the lock before may have removed the file since it was opened.
        if os.path.lexists(path) and os.path.samestat(os.fstat(lock), path.lstat()):
            os.fchmod(lock, 0o600)
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
