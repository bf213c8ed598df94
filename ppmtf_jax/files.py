"""Writing files and folders so that nothing half-written is ever seen under the final name."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ppmtf_jax.errors import InputError, Problem


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary folder to fill; it takes the name `path` when the block ends without an error.

    An existing folder is replaced only with `overwrite`, and only once the new one is complete.

    Raises
    ------
    InputError
        `path` exists and `overwrite` is false, or its parent cannot be written to.
    """
    final = Path(path)
    if final.exists() and not overwrite:
        raise InputError(
            str(final), [Problem("a folder that does not exist yet", "an existing one", way_out="Choose another name, or ask for it to be overwritten")]
        )
    partial = _sibling(final, "partial")
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise _as_input_error(final, error) from error
    try:
        yield partial
        if final.exists():
            old = _sibling(final, "old")
            final.rename(old)
            partial.rename(final)
            _remove(old)
        else:
            partial.rename(final)
    except OSError as error:
        raise _as_input_error(final, error) from error
    finally:
        _remove(partial)


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary file name to write; it replaces `path` when the block ends without an error."""
    final = Path(path)
    partial = _sibling(final, "partial")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        os.replace(partial, final)
    except OSError as error:
        raise _as_input_error(final, error) from error
    finally:
        _remove(partial)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` in one step."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _sibling(final: Path, kind: str) -> Path:
    return final.with_name(f".{final.name}.{kind}-{uuid.uuid4().hex[:8]}")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    elif path.exists():
        path.unlink()


_CANNOT_WRITE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


def _as_input_error(path: Path, error: OSError) -> Exception:
    """What the user can mend (permissions, a full disk) becomes an `InputError`; anything else stays as it is."""
    if error.errno not in _CANNOT_WRITE:
        return error
    problem = Problem("a place that can be written to", str(error), way_out="Check permissions and free space")
    return InputError(str(path), [problem])
