"""Output folders: each has a marker that says what kind it is, what made it, and what its files are.

A folder appears complete or not at all. An existing folder is replaced only on request, and only if this program wrote
it, it is of the same kind, contains nothing else, and is not an input of the new one. Only its owner may look into a
folder and read its files, unless it is public.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any
from ppmtf_jax.runtime.files import (
    MARKER,
    PathLike,
    check_apart,
    check_parent,
    create_private,
    leftover,
    make_public,
    name_taken,
    remove,
    unfinished,
    write_text,
)

MARKER_FORMAT = 1
# 2000-01-01: the modification time of the files of a public folder. Zip archives know no time before 1980.
NO_TIME_S = 946_684_800
Paths = Sequence[PathLike]


@dataclass(frozen=True)
class Marker:
    """The description of a folder: its kind, such as "model", the records of the step that wrote it, and its files.

    `files` has the SHA-256 of every file below the folder except the marker, by its path with slashes.
    """

    kind: str
    about: dict[str, Any]
    files: dict[str, str]
    made_by: str

    def changed_files(self, folder: Path) -> list[str]:
        """Files that were changed or removed since the folder was written."""
        files = {name: folder / name for name in self.files}
        return [name for name, file in files.items() if not file.is_file() or checksum(file) != self.files[name]]

    def foreign_files(self, folder: Path) -> list[str]:
        """Files that this program did not write there, and folders (with a slash) that contain none of its files."""
        files = [name for name in files_below(folder) if name != MARKER and name not in self.files]
        folders = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if _is_folder(path)]
        return files + [f"{name}/" for name in folders if not any(file.startswith(f"{name}/") for file in self.files)]


@contextmanager
def output_folder(
    path: PathLike,
    kind: str,
    *,
    about: dict[str, Any] | None = None,
    overwrite: bool = False,
    public: bool = False,
    inputs: Paths = (),
) -> Iterator[Path]:
    """Give a temporary folder to fill; it gets its marker and the name `path` when the block ends without an error.

    `about` is for the marker and may be filled until the block ends. A public folder can be handed to anyone: others
    may read it, and no file tells when it was made. See `check_output_folder` for `overwrite` and `inputs`.
    """
    final = Path(os.path.abspath(path))
    check_output_folder(final, kind, overwrite=overwrite, inputs=inputs)
    with unfinished(final) as partial:
        create_private(partial)
        yield partial
        files = checksums(partial)
        content = {
            "format": MARKER_FORMAT,
            "kind": kind,
            "made_by": f"ppmtf_jax {version('ppmtf_jax')}",
            "about": about or {},
            "files": files,
        }
        write_text(partial / MARKER, json.dumps(content, indent=1) + "\n")
        for name in {*files, MARKER, *(str(folder) for file in files for folder in Path(file).parents)}:
            _set_mode(partial / name, public)
        _put_in_place(partial, final, kind, inputs)


def _set_mode(path: Path, public: bool) -> None:
    if public:
        make_public(path)
        os.utime(path, (NO_TIME_S, NO_TIME_S))
    else:
        path.chmod(0o700 if path.is_dir() else 0o600)


def check_output_folder(path: PathLike, kind: str, *, overwrite: bool = False, inputs: Paths = ()) -> None:
    """Refuse an output folder that cannot be written, before the work and not after it.

    With `overwrite` an earlier folder of the same kind may be replaced if it contains nothing else. A folder that is or
    contains an input or the current folder is never replaced.
    """
    final = Path(os.path.abspath(path))
    real = Path(os.path.realpath(path))
    related = [str(other) for other in inputs if Path(os.path.realpath(other)).is_relative_to(real)]
    if related:
        raise InputError(str(path), [Problem("a folder apart from the input", f"{related[0]} in or around it")])
    check_apart(final)
    if os.path.lexists(final):
        _check_replaceable(final, kind, overwrite)
    check_parent(final)


def read_marker(folder: PathLike) -> Marker | None:
    """The marker of a folder, or None if it has none; a marker that cannot be read is refused."""
    file = Path(folder) / MARKER
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        marker = Marker(content["kind"], content["about"], content["files"], content["made_by"])
        found = None if content["format"] == MARKER_FORMAT else f"format {content['format']!r}"
        if not (isinstance(marker.about, dict) and isinstance(marker.files, dict)):
            found = "other content"
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"
    if found:
        problem = Problem(f"a readable marker of format {MARKER_FORMAT}", found, way_out="Make the folder again")
        raise InputError(str(file), [problem])
    return marker


def marked(folder: PathLike, kind: str, *, way_out: str, alone: bool = False) -> Marker:
    """The marker of a folder that must be of this kind, with unchanged files.

    With `alone` the folder must contain nothing else, because it is handed out.
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
        raise _with_others(Path(folder), others, "Take them out: everybody who gets the folder gets them too")
    return marker


def checksum(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, by its path with slashes, in order."""
    return {name: checksum(folder / name) for name in files_below(folder)}


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of all files below a folder with their names; empty if there is nothing at `path`."""
    return digest_of(checksums(path)) if path.is_dir() else checksum(path) if path.is_file() else ""


def files_below(folder: Path) -> list[str]:
    """Every file below a folder, by its path with slashes, in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def _check_replaceable(final: Path, kind: str, overwrite: bool) -> None:
    # An existing empty folder counts as a free name.
    is_empty = _is_folder(final) and not any(final.iterdir())
    if not overwrite and not is_empty:
        raise name_taken(final)
    if Path.cwd().is_relative_to(final):
        raise InputError(str(final), [Problem("a folder other than the one that you are in", "it, or one around it")])
    if is_empty:
        return
    marker = read_marker(final) if _is_folder(final) else None
    way_out = "Nothing was changed: choose another name, or move away what you keep there"
    if marker is None or marker.kind != kind:
        found = f"a {marker.kind} folder" if marker else _content_in_short(final)
        raise InputError(str(final), [Problem(f"an earlier {kind} folder to replace", found, way_out=way_out)])
    others = marker.foreign_files(final)
    if others:
        raise _with_others(final, others, way_out)


def _with_others(folder: Path, others: list[str], way_out: str) -> InputError:
    found = f"also {', '.join(first_examples(others))}"
    return InputError(str(folder), [Problem("only what this program wrote there", found, way_out=way_out)])


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
    # Check once more, because the user may have changed the folder during the work.
    check_output_folder(final, kind, overwrite=True, inputs=inputs)
    old = leftover(final, "old")
    final.rename(old)
    try:
        new.rename(final)
    except OSError:
        os.replace(old, final)
        raise
    remove(old)


Lineage = Mapping[str, str]
"""Digests of a thing and of what it was made from, by names such as "training traces"."""

TRAINING_TRACES, TEST_TRACES, SYNTHETIC_TRACES = "training traces", "test traces", "synthetic traces"
MODEL, VERDICTS = "model", "verdicts"
IDS_AT_A_TIME = 2**16


def column_of(name: str) -> str:
    """The name of the digest of the traces that a column of an evaluation measures."""
    return f"traces of the column {name!r}"


def check_belong_together(subject: str, lineages: Mapping[str, Lineage], *, way_out: str) -> None:
    """Refuse things whose lineages have different digests under the same name; `subject` is what the error is about.

    Examples
    --------
    >>> check_belong_together("job", {"key": {"verdicts": "a"}, "verdicts": {"verdicts": "b"}}, way_out="Run it again")
    Traceback (most recent call last):
    ppmtf_jax.errors.InputError: job: expected key and verdicts of the same verdicts; found those of different ones. ...
    """
    problems: list[Problem | str] = []
    for what in dict.fromkeys(what for lineage in lineages.values() for what in lineage):
        digests = {name: lineage[what] for name, lineage in lineages.items() if what in lineage}
        if len(set(digests.values())) > 1:
            expected = f"{' and '.join(digests)} of the same {what}"
            problems.append(Problem(expected, "those of different ones", way_out=way_out))
    raise_any(subject, problems)


def digest_of_array(values: np.ndarray) -> str:
    """SHA-256 of the numbers or the ids in an array, in hexadecimal digits; no copy of all of them is made."""
    digest = hashlib.sha256()
    for piece in json_of_ids(values) if values.dtype == object else [np.ascontiguousarray(values).data]:
        digest.update(piece)
    return digest.hexdigest()


def json_of_ids(ids: np.ndarray) -> Iterator[bytes]:
    """A JSON array of the ids as texts, in pieces.

    Examples
    --------
    >>> b"".join(json_of_ids(np.array([7, 9])))
    b'["7", "9"]'
    """
    yield b"["
    for first in range(0, len(ids), IDS_AT_A_TIME):
        piece = json.dumps([str(each) for each in ids[first : first + IDS_AT_A_TIME].tolist()])
        yield (", " if first else "").encode() + piece[1:-1].encode()
    yield b"]"


@cache
def digest_of_sources() -> str:
    """SHA-256 of the source files of the package, in hexadecimal digits: other code may make other outputs."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()} {digest_of(file.read_text(encoding='utf-8'))}".encode())
    return digest.hexdigest()


def digest_of(*values: Any) -> str:
    """SHA-256 of values as in JSON, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_arrays(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Read the arrays with the given names from a file of `numpy.savez`; some may be missing.

    Refuses arrays of other names, compressed arrays, and arrays longer or shorter than their header says.

    Raises `OSError`, `ValueError` or `zipfile.BadZipFile`: the file is not a file of `numpy.savez`.
    """
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if members.keys() - set(names) or len(members) < len(archive.infolist()):
            found = ", ".join(first_examples(sorted(members)))
            raise InputError(str(path), [Problem(f"arrays {', '.join(sorted(names))}", found)])
        file_bytes = path.stat().st_size
        problems = [
            Problem("arrays as NumPy stores them, uncompressed", repr(name))
            for name, member in members.items()
            # The lowest flag marks encryption. A member may also claim to be longer than the file.
            if member.compress_type != zipfile.ZIP_STORED
            or member.flag_bits & 1
            or max(member.file_size, member.compress_size) > file_bytes
        ]
        raise_any(str(path), problems)
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as stream:
                n_bytes = _bytes_by_header(stream)
            if n_bytes != member.file_size:
                found = f"{member.file_size} bytes"
                raise InputError(str(path), [Problem(f"{n_bytes} bytes of {name!r}, as its header says", found)])
            with archive.open(member) as stream:
                arrays[name] = npy.read_array(stream, allow_pickle=False)
        return arrays


def _bytes_by_header(stream: io.BufferedIOBase) -> int:
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
    shape, _, dtype = read_header(stream)
    return stream.tell() + math.prod(shape) * dtype.itemsize
