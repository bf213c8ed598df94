"""Opening files that are plain, compressed or in an archive; and how a text file is written."""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ppmtf_jax.errors import InputError, Problem

UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, csv.Error, zlib.error, zipfile.BadZipFile)
# On a tie the earlier delimiter wins, because a number or a text may contain a comma.
DELIMITERS = {"\t": "TABs", ";": "semicolons", "|": "pipes", ",": "commas"}
HEAD_BYTES, N_SAMPLE_LINES = 2**16, 50
GZIP_START, ZIP_STARTS, OLD_EXCEL_START = b"\x1f\x8b", (b"PK\3\4", b"PK\5\6"), b"\xd0\xcf\x11\xe0"
# Files that the archives of Excel and of OpenDocument contain.
SPREADSHEET_MEMBERS = {"[Content_Types].xml", "mimetype"}
# It leaves out a mark at the beginning.
UTF_8 = "utf-8-sig"
# Stands before blanks that belong to a field; see `_reader`. A text file with NUL characters is refused.
MARK = "\0"

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def paths_of(source: Files) -> list[Path]:
    """The files of a source, at least one; for a folder, all files that are not hidden."""
    given = [Path(source)] if isinstance(source, (str, os.PathLike)) else [Path(path) for path in source]
    if not given:
        raise InputError("check-ins", [Problem("at least one file", "none")])
    paths = []
    for path in given:
        inside = [path]
        if path.is_dir():
            inside = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith((".", "_")))
        if not inside:
            way_out = "Folders within it are not read: name their files, or put them into one folder"
            way_out = way_out if any(each.is_dir() for each in path.iterdir()) else ""
            raise InputError(str(path), [Problem("a folder of files", "a folder without files", way_out=way_out)])
        paths += inside
    return paths


class TextFile(NamedTuple):
    """How a text file is written; `n_blank` lines precede the line with `first_fields`.

    `quote_char` encloses texts that contain delimiters; False: nothing does.
    """

    path: Path
    encoding: str
    delimiter: str
    quote_char: str | bool
    first_fields: list[str]
    n_blank: int


def start_of(path: Path) -> bytes:
    """The first bytes, which tell how a file is packed."""
    with path.open("rb") as file:
        return file.read(4)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Bytes of a plain or gzipped file, of the only file in a zip archive, or of a spreadsheet as it is."""
    start = start_of(path)
    if start in ZIP_STARTS and not is_spreadsheet(path):
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
            if len(names) != 1:
                found = ", ".join(names[:5]) or "an empty archive"
                way_out = "Extract the files that you want; a folder of files is read as one table" if names else ""
                raise InputError(str(path), [Problem("one file in the archive", found, way_out=way_out)])
            with archive.open(names[0]) as member:
                yield member
    else:
        compression = "gzip" if start.startswith(GZIP_START) else None
        with path.open("rb") as file, pa.input_stream(file, compression=compression) as stream:
            yield stream


def is_spreadsheet(path: Path) -> bool:
    """Whether the content of a file, whatever its name, is a spreadsheet of Excel or OpenDocument."""
    start = start_of(path)
    if start not in ZIP_STARTS:
        return start == OLD_EXCEL_START
    with zipfile.ZipFile(path) as archive:
        return not SPREADSHEET_MEMBERS.isdisjoint(archive.namelist())


def look_at(path: Path, head: bytes, quote_char: str | bool) -> TextFile:
    """Find encoding, delimiter and first line of a text file from its first bytes."""
    encoding = encoding_of(head)
    lines = re.split(r"\r\n|\n|\r", head.decode(encoding, "replace"))
    if len(head) == HEAD_BYTES and len(lines) > 1:
        lines.pop()  # cut off
    n_blank = next((k for k, line in enumerate(lines) if line.strip()), 0)
    sample = [line for line in lines[n_blank:] if line.strip()][:N_SAMPLE_LINES]
    if not sample:
        raise InputError(str(path), [Problem("a table with a header and rows", "an empty file")])

    def fields(line: str, mark: str) -> list[str]:
        return _unmarked(next(_reader([line], mark, quote_char), []))

    # The delimiter that gives the most fields in the first line, if most lines have equally many.
    best, n_best = next((mark for mark in DELIMITERS if mark in sample[0]), ","), 1
    for mark in DELIMITERS:
        counts = [len(fields(line, mark)) for line in sample]
        if counts[0] > n_best and counts.count(counts[0]) > len(counts) / 2:
            best, n_best = mark, counts[0]
    return TextFile(path, encoding, best, quote_char, fields(sample[0], best), n_blank)


def encoding_of(head: bytes) -> str:
    """UTF-8 or UTF-16 if the bytes can be that, otherwise Latin-1."""
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
        return UTF_8
    # In UTF-16, digits, punctuation and Latin letters have a NUL byte beside each, and a table is mostly these.
    for n_nul, n_other, encoding in ((n_odd, n_even, "utf-16-le"), (n_even, n_odd, "utf-16-be")):
        if not n_other and n_nul > 0.4 * len(head) / 2:
            return encoding
    raise ValueError("binary content")


def utf8_copy(text: TextFile, folder: Path, *, is_rewritten: bool = False) -> tuple[Path, str]:
    """The file, plain or gzipped as UTF-8, and its compression: itself, or a plain copy in a folder.

    `is_rewritten`: in the copy, all lines end in the same way, and quotes are where they should be.
    """
    start = start_of(text.path)
    is_plain = text.encoding == UTF_8 and start not in ZIP_STARTS and not set("*?[").intersection(str(text.path))
    if is_plain and not is_rewritten:
        return text.path, "gzip" if start.startswith(GZIP_START) else "none"
    copy = folder / f"{hashlib.sha256(f'{text.path} {text.encoding} {is_rewritten}'.encode()).hexdigest()}.txt"
    if not copy.exists():
        with opened(text.path) as stream, copy.open("w", encoding="utf-8", newline="") as to:
            lines = io.TextIOWrapper(stream, text.encoding, newline="")
            if is_rewritten:
                quotes = (csv.QUOTE_MINIMAL, '"') if text.quote_char else (csv.QUOTE_NONE, None)
                how: Any = {"delimiter": text.delimiter, "quoting": quotes[0], "quotechar": quotes[1]}
                rows = map(_unmarked, _reader(lines, text.delimiter, text.quote_char))
                csv.writer(to, lineterminator="\n", **how).writerows(rows)
            else:
                to.writelines(iter(lambda: lines.read(HEAD_BYTES), ""))
    return copy, "none"


def lines_of(
    text: TextFile, n_skipped: int, wanted: Sequence[int], unknown: set[str]
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The line, from 1, at which each row begins, and the line and number of fields of each row that has others.

    A row whose wanted fields are all unknown does not count. Unknown fields after the last column do no harm. A quote
    that is not closed is an error, since it would swallow the rows after it.
    """
    n_fields = len(text.first_fields)
    for is_strict in (True, False):
        begins, bad, after = [], [], n_skipped + 1
        with opened(text.path) as stream:
            lines = io.TextIOWrapper(stream, text.encoding, errors="replace", newline="")
            for _ in range(n_skipped):
                lines.readline()
            reader = _reader(lines, text.delimiter, text.quote_char, is_strict=is_strict)
            try:
                for fields in map(_unmarked, reader):
                    begin, after = after, n_skipped + reader.line_num + 1
                    if fields and (len(fields) < n_fields or not unknown.issuperset(fields[n_fields:])):
                        bad.append((begin, len(fields)))
                    elif not unknown.issuperset(fields[k] for k in wanted if fields):
                        begins.append(begin)
                break
            except csv.Error as error:
                # A text of several lines with something after its quote ended at the first quote of another text.
                if is_strict and ("end of data" in str(error) or n_skipped + reader.line_num > after):
                    found = f"a text that begins in row {after} and does not end"
                    way_out = "Add or remove the quote in that row"
                    problem = Problem('a closing quote for every quote (")', found, way_out=way_out)
                    raise InputError(str(text.path), [problem]) from error
                if not is_strict:
                    raise
    return np.array(begins, np.int64), bad


def _reader(lines: Iterable[str], delimiter: str, quote_char: str | bool, *, is_strict: bool = False) -> Any:
    """Splits lines into fields as the database does: a single blank before a quote does not count, other blanks do.

    Each row must go through `_unmarked`.
    """
    if not quote_char:
        return csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE, strict=is_strict)
    blanks = re.compile(rf"(^|{re.escape(delimiter)})(?= (?!\"))")
    marked = (blanks.sub(rf"\1{MARK}", line) if " " in line else line for line in lines)
    return csv.reader(marked, delimiter=delimiter, skipinitialspace=True, strict=is_strict)


def _unmarked(fields: list[str]) -> list[str]:
    return [field.replace(MARK, "") for field in fields]
