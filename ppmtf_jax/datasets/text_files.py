"""What a file of text holds: its encoding, what is between its fields, and its first line."""

from __future__ import annotations

import codecs
import csv
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import parquet as arrow_parquet

from ppmtf_jax.errors import InputError, Problem

UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, csv.Error, zlib.error, zipfile.BadZipFile)
# On a tie the earlier: a comma may be in a number or a text.
DELIMITERS = "\t;|,"
NAMES_OF_DELIMITERS = {"\t": "TABs", ";": "semicolons", "|": "pipes", ",": "commas"}
HEAD_BYTES = 2**16
N_SAMPLE_LINES = 50
PARQUET = b"PAR1"


class TextLayout(NamedTuple):
    """How a file of text is written.

    Attributes
    ----------
    encoding : str
    delimiter : str
    first_fields : list of str
        Of the first line that is not blank.
    n_blank : int
        Lines before it.
    """

    encoding: str
    delimiter: str
    first_fields: list[str]
    n_blank: int


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The content of a file as a stream of bytes: plain, gzipped, or the one file in a zip archive."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start == b"PK\3\4":
            with zipfile.ZipFile(file) as archive, archive.open(_only_member(path, archive)) as member:
                yield member
        else:
            with pa.input_stream(file, compression="gzip" if start.startswith(b"\x1f\x8b") else None) as stream:
                yield stream


@contextmanager
def opened_parquet(path: Path) -> Iterator[arrow_parquet.ParquetFile | None]:
    """A file as Parquet, None where it is none."""
    with opened(path) as stream:
        if stream.read(len(PARQUET)) != PARQUET:
            yield None
        elif stream.seekable():
            stream.seek(0)
            yield arrow_parquet.ParquetFile(stream)
        else:
            yield arrow_parquet.ParquetFile(io.BytesIO(PARQUET + stream.read()))


def look_at(path: Path, quote_char: str | bool) -> TextLayout:
    """Find how a file of text is written; UTF-8 where nothing speaks against it."""
    with opened(path) as stream:
        head = stream.read(HEAD_BYTES)
    encoding = _encoding(head)
    text = head.decode(encoding, "replace").removeprefix("\ufeff")
    lines = re.split(r"\r\n|\n|\r", text)
    if len(head) == HEAD_BYTES and len(lines) > 1:
        lines.pop()  # cut off
    n_blank = next((k for k, line in enumerate(lines) if line.strip()), 0)
    sample = [line for line in lines[n_blank:] if line.strip()][:N_SAMPLE_LINES]
    if not sample:
        return TextLayout(encoding, ",", [], 0)
    delimiter = _delimiter(sample, quote_char)
    return TextLayout(encoding, delimiter, _fields(sample[0], delimiter, quote_char), n_blank)


def encoding_of_all(path: Path, encoding: str) -> str:
    """The encoding of a file whose head looks like some: Latin-1 where the rest is no UTF-8."""
    if encoding != "utf-8":
        return encoding
    decoder = codecs.getincrementaldecoder(encoding)()
    with opened(path) as stream:
        try:
            while part := stream.read(HEAD_BYTES):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
    return encoding


def _only_member(path: Path, archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if "[Content_Types].xml" in names:
        way_out = "Save the sheet as CSV"
        raise InputError(str(path), [Problem("a table as text or Parquet", "a spreadsheet", way_out=way_out)])
    if len(names) != 1:
        found = ", ".join(names[:5]) or "none"
        way_out = "Take the one that is meant out of the archive"
        raise InputError(str(path), [Problem("one file in the archive", found, way_out=way_out)])
    return names[0]


def _encoding(head: bytes) -> str:
    if head.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        raise ValueError("UTF-32")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    n_even, n_odd = head[0::2].count(0), head[1::2].count(0)
    if not n_even and not n_odd:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            return "latin-1"
        return "utf-8"
    # Digits, marks and Latin letters have a NUL byte beside each in UTF-16, and a table is mostly that.
    for n_nul, n_other, encoding in ((n_odd, n_even, "utf-16-le"), (n_even, n_odd, "utf-16-be")):
        if not n_other and n_nul > 0.4 * len(head) / 2:
            return encoding
    raise ValueError("binary content")


def _delimiter(lines: Sequence[str], quote_char: str | bool) -> str:
    """What cuts the lines into most fields, as many in most lines as in the first."""
    best, n_best = "", 1
    fallback = next((mark for mark in DELIMITERS if mark in lines[0]), ",")
    for mark in DELIMITERS:
        counts = [len(_fields(line, mark, quote_char)) for line in lines]
        if counts[0] > n_best and counts.count(counts[0]) > len(counts) / 2:
            best, n_best = mark, counts[0]
    return best or fallback


def _fields(line: str, delimiter: str, quote_char: str | bool) -> list[str]:
    quoting = csv.QUOTE_MINIMAL if quote_char else csv.QUOTE_NONE
    return next(csv.reader([line], delimiter=delimiter, quoting=quoting), [])
