"""Output folders: each has a marker that says what kind it is, what made it, and what its files are.

A folder appears complete or not at all. One that exists is replaced only on request, and only if this program wrote it,
it is of the same kind, holds nothing else, and is not among what the new one is made from. What only its owner should
see has the mode 0700.
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
from ppmtf_jax.runtime.files import as_input_error, create_private, leftover, remove, write_text

MARKER = "ppmtf.json"
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
        if public:
            _make_public(partial)
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
        It exists and `overwrite` is false; it is not an earlier one of the same kind, or holds other things too; it is,
        holds or lies in an input or the current folder; or its parent cannot be written to.
    """
    final = Path(os.path.abspath(path))
    related = [str(other) for other in inputs if _overlap(Path(os.path.realpath(path)), Path(os.path.realpath(other)))]
    if related:
        raise InputError(str(path), [Problem("a folder apart from the input", f"{related[0]} in or around it")])
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


def marked(folder: str | os.PathLike[str], kind: str, *, way_out: str) -> Marker:
    """The marker of a folder that has to be of a kind, with all its files as they were written.

    Raises
    ------
    InputError
        There is no such folder, it is of another kind, or files of it have changed.
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


def _make_public(folder: Path) -> None:
    """Readable as the user's mask lets files be, and all of the same time."""
    mask = os.umask(0)
    os.umask(mask)
    for path in (*folder.rglob("*"), folder):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        os.utime(path, (NO_TIME_S, NO_TIME_S))


def _overlap(out: Path, other: Path) -> bool:
    """Whether writing `out` would replace an input, or put something into a folder of ours that is one."""
    return other.is_relative_to(out) or (out.is_relative_to(other) and (other / MARKER).is_file())


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
    others = [name for name in files_below(final) if name != MARKER and name not in marker.files]
    others += [
        f"{path.relative_to(final).as_posix()}/" for path in final.rglob("*") if _is_foreign(path, final, marker)
    ]
    if others:
        found = f"also {', '.join(first_examples(others))}"
        raise InputError(str(final), [Problem("only what this program wrote there", found, way_out=way_out)])


def _is_foreign(path: Path, folder: Path, marker: Marker) -> bool:
    """Whether a folder in ours is none of ours: empty ones have no file that would tell."""
    if not path.is_dir() or path.is_symlink():
        return False
    name = path.relative_to(folder).as_posix()
    return not any(file.startswith(f"{name}/") for file in marker.files)


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
