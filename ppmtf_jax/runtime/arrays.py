"""Stored arrays (npz), checked before they are read, so that no array takes more memory than its file."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from ppmtf_jax.errors import InputError, Problem, first_examples, raise_any


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
