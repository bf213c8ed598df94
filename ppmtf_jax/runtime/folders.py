"""Output folders: each has a marker that says what kind it is, what made it, and what its files are.

A folder appears complete or not at all. One that exists is replaced only on request, and only if this program wrote it,
it is of the same kind, holds nothing else, and is not among what the new one is made from. Nothing is put into one.
Only its owner may look into it and read its files, unless it is public.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ppmtf_jax.errors import InputError, Problem, first_examples
from ppmtf_jax.runtime.files import (
    MARKER,
    as_input_error,
    check_apart,
    create_private,
    leftover,
    make_public,
    remove,
    write_text,
)

MARKER_FORMAT = 1
# 2000-01-01: what the files of a public folder say of their time. Zip archives know none before 1980.
NO_TIME_S = 946_684_800
Paths = Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Marker:
    """What a folder says of itself.

    Parameters
    ----------
    kind : str
        Such as "model" or "release".
    about : dict
        What the stage that made it has to say; values as in JSON.
    files : dict
        SHA-256 of every file below the folder but the marker, by its path with slashes.
    made_by : str
    """

    kind: str
    about: dict[str, Any] = field(default_factory=dict, repr=False)
    files: dict[str, str] = field(default_factory=dict)
    made_by: str = ""

    def changed_files(self, folder: Path) -> list[str]:
        """Files that are no longer as they were written."""
        return [name for name, checksum in self.files.items() if _checksum_or_none(folder / name) != checksum]

    def foreign_files(self, folder: Path) -> list[str]:
        """What is in the folder beside them; folders without a file of ours, which end in a slash, too."""
        files = [name for name in files_below(folder) if name != MARKER and name not in self.files]
        folders = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if _is_folder(path)]
        return files + [f"{name}/" for name in folders if not any(file.startswith(f"{name}/") for file in self.files)]


@contextmanager
def output_folder(
    path: str | os.PathLike[str],
    kind: str,
    *,
    about: dict[str, Any] | None = None,
    overwrite: bool = False,
    public: bool = False,
    inputs: Paths = (),
) -> Iterator[Path]:
    """Give a temporary folder to fill; it gets its marker and the name `path` when the block ends without an error.

    Parameters
    ----------
    about : dict, optional
        For the marker. It may be filled until the block ends.
    overwrite : bool
        Whether to replace an earlier one, see `check_output_folder`.
    public : bool
        Whether it may be handed to anyone: others may read it, and no file tells when it was made. Otherwise only its
        owner may read it.
    inputs : paths
        What it is made from.

    Raises
    ------
    InputError
        `path` exists and may not be replaced, or its parent cannot be written to.
    """
    final = Path(os.path.abspath(path))
    check_output_folder(final, kind, overwrite=overwrite, inputs=inputs)
    partial = leftover(final, "partial")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        create_private(partial)
    except OSError as error:
        raise as_input_error(final, error) from error
    try:
        yield partial
        _write_marker(partial, Marker(kind, about or {}))
        _set_modes(partial, public)
        _put_in_place(partial, final, kind, inputs)
    except OSError as error:
        raise as_input_error(final, error) from error
    finally:
        remove(partial)


def check_output_folder(
    path: str | os.PathLike[str], kind: str, *, overwrite: bool = False, inputs: Paths = ()
) -> None:
    """Refuse at once, and not after the work, a folder that could not be written.

    Raises
    ------
    InputError
        It exists and `overwrite` is false; it is not an earlier one of the same kind, or holds other things too; it is
        or holds an input or the current folder; it would be in a folder that this program wrote; or its parent cannot
        be written to.
    """
    final = Path(os.path.abspath(path))
    real = Path(os.path.realpath(path))
    related = [str(other) for other in inputs if Path(os.path.realpath(other)).is_relative_to(real)]
    if related:
        raise InputError(str(path), [Problem("a folder apart from the input", f"{related[0]} in or around it")])
    check_apart(final)
    if os.path.lexists(final):
        _check_replaceable(final, kind, overwrite)
    parent = next(folder for folder in final.parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        found = f"{parent}, which is {'write-protected' if parent.is_dir() else 'a file'}"
        raise InputError(str(path), [Problem("a folder to write into", found)])


def read_marker(folder: str | os.PathLike[str]) -> Marker | None:
    """The marker of a folder; None where there is none.

    Raises
    ------
    InputError
        It cannot be read.
    """
    file = Path(folder) / MARKER
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found = content["format"], content["kind"], content["about"], content["files"], content["made_by"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = Problem("a readable marker", f"{type(error).__name__}: {error}", way_out="Make the folder again")
        raise InputError(str(file), [problem]) from error
    if found[0] != MARKER_FORMAT or not all(isinstance(part, dict) for part in found[2:4]):
        way_out = "Make the folder again"
        raise InputError(str(file), [Problem(f"a marker of format {MARKER_FORMAT}", f"{found[0]!r}", way_out=way_out)])
    return Marker(*found[1:])


def marked(folder: str | os.PathLike[str], kind: str, *, way_out: str, alone: bool = False) -> Marker:
    """The marker of a folder that has to be of a kind, with all its files as they were written.

    Parameters
    ----------
    alone : bool
        Whether there may be nothing else in it, as in what is handed out.

    Raises
    ------
    InputError
        There is no such folder, it is of another kind, or files of it have changed; or there are others.
    """
    marker = read_marker(folder)
    if marker is None or marker.kind != kind:
        found = "a folder without marker" if marker is None else f"a {marker.kind} folder"
        found = found if Path(folder).is_dir() else "no such folder"
        raise InputError(str(folder), [Problem(f"a {kind} folder", found, way_out=way_out)])
    changed = marker.changed_files(Path(folder))
    if changed:
        found = f"{', '.join(first_examples(changed))} changed or missing"
        raise InputError(str(folder), [Problem("the files as they were written", found, way_out=way_out)])
    others = marker.foreign_files(Path(folder)) if alone else []
    if others:
        found = f"also {', '.join(first_examples(others))}"
        out = "Take them out: whoever gets the folder gets them too"
        raise InputError(str(folder), [Problem("only what this program wrote there", found, way_out=out)])
    return marker


def checksum(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _checksum_or_none(file: Path) -> str | None:
    return checksum(file) if file.is_file() else None


def files_below(folder: Path) -> list[str]:
    """Every file below a folder, by its path with slashes, in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def _write_marker(folder: Path, marker: Marker) -> None:
    files = {name: checksum(folder / name) for name in files_below(folder)}
    content = {
        "format": MARKER_FORMAT,
        "kind": marker.kind,
        "made_by": f"ppmtf_jax {version('ppmtf_jax')}",
        "about": marker.about,
        "files": files,
    }
    write_text(folder / MARKER, json.dumps(content, indent=1) + "\n")


def _set_modes(folder: Path, public: bool) -> None:
    """For the owner alone; or readable as the user's mask lets files be, and all of the same time."""
    for path in (*folder.rglob("*"), folder):
        if public:
            make_public(path)
            os.utime(path, (NO_TIME_S, NO_TIME_S))
        else:
            path.chmod(0o700 if path.is_dir() else 0o600)


def _check_replaceable(final: Path, kind: str, overwrite: bool) -> None:
    # An empty folder that somebody prepared is as good as none.
    is_empty = final.is_dir() and not final.is_symlink() and not any(final.iterdir())
    if not overwrite and not is_empty:
        way_out = "Choose another name, or ask for it to be overwritten (--overwrite)"
        raise InputError(str(final), [Problem("a name that is free", "an existing one", way_out=way_out)])
    if Path.cwd().is_relative_to(final):
        raise InputError(str(final), [Problem("a folder other than the one that you are in", "it, or one around it")])
    if is_empty:
        return
    marker = read_marker(final) if final.is_dir() and not final.is_symlink() else None
    way_out = "Nothing was changed: choose another name, or move away what you keep there"
    if marker is None or marker.kind != kind:
        found = f"a {marker.kind} folder" if marker else _content_in_short(final)
        expected = f"an earlier {kind} folder to replace"
        raise InputError(str(final), [Problem(expected, found, way_out=way_out)])
    others = marker.foreign_files(final)
    if others:
        found = f"also {', '.join(first_examples(others))}"
        raise InputError(str(final), [Problem("only what this program wrote there", found, way_out=way_out)])


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _content_in_short(path: Path) -> str:
    if not path.is_dir():
        return "a file"
    return f"one with {', '.join(first_examples(sorted(entry.name for entry in path.iterdir()))) or 'nothing'}"


def _put_in_place(new: Path, final: Path, kind: str, inputs: Paths) -> None:
    if not os.path.lexists(final):
        new.rename(final)
        return
    # Once more: much time may have passed since it was checked before the work.
    check_output_folder(final, kind, overwrite=True, inputs=inputs)
    old = leftover(final, "old")
    final.rename(old)
    try:
        new.rename(final)
    except OSError:
        os.replace(old, final)
        raise
    remove(old)
