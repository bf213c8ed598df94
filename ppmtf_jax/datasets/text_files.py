"""Opening files that are plain, compressed or in an archive; and how a text file is written."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from ppmtf_jax.errors import InputError, Problem

UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, csv.Error, zlib.error, zipfile.BadZipFile)
# On a tie the earlier delimiter wins, because a number or a text may contain a comma.
DELIMITERS = "\t;|,"
# What programs write where a value is not known: R, Python, databases, spreadsheets.
UNKNOWN_WORDS = (
    "NULL",
    "null",
    "<null>",
    "(null)",
    "nan",
    "NaN",
    "NAN",
    "NaT",
    "None",
    "\\N",
    "<NA>",
    "NA",
    "N/A",
    "n/a",
)
UNKNOWN_WORDS += ("#N/A", "nil", "undefined", "0000-00-00", "0000-00-00 00:00:00")
NAMES_OF_DELIMITERS = {"\t": "TABs", ";": "semicolons", "|": "pipes", ",": "commas"}
HEAD_BYTES = 2**16
BLOCK_BYTES = 2**24
N_SAMPLE_LINES = 50
ZIP_STARTS = (b"PK\3\4", b"PK\5\6")
OLD_EXCEL_START = b"\xd0\xcf\x11\xe0"
# Files that the archives of Excel and of OpenDocument contain.
SPREADSHEET_MEMBERS = {"[Content_Types].xml", "mimetype"}


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


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Bytes of a plain or gzipped file, of the only file in a zip archive, or of a spreadsheet as it is."""
    with path.open("rb") as file:
        start = file.read(4)
        file.seek(0)
        if start in ZIP_STARTS and not is_spreadsheet(path):
            with zipfile.ZipFile(file) as archive, archive.open(_only_member(path, archive)) as member:
                yield member
        else:
            with pa.input_stream(file, compression="gzip" if start.startswith(b"\x1f\x8b") else None) as stream:
                yield stream


def is_spreadsheet(path: Path) -> bool:
    """Whether the content of a file, whatever its name, is a spreadsheet of Excel or OpenDocument."""
    with path.open("rb") as file:
        start = file.read(4)
        if start not in ZIP_STARTS:
            return start == OLD_EXCEL_START
        with zipfile.ZipFile(file) as archive:
            return not SPREADSHEET_MEMBERS.isdisjoint(archive.namelist())


def look_at(path: Path, head: bytes, quote_char: str | bool) -> TextFile:
    """Find encoding, delimiter and first line of a text file from its first bytes."""
    encoding = encoding_of(head)
    lines = re.split(r"\r\n|\n|\r", head.decode(encoding, "replace").removeprefix("\ufeff"))
    if len(head) == HEAD_BYTES and len(lines) > 1:
        lines.pop()  # cut off
    n_blank = next((k for k, line in enumerate(lines) if line.strip()), 0)
    sample = [line for line in lines[n_blank:] if line.strip()][:N_SAMPLE_LINES]
    if not sample:
        raise InputError(str(path), [Problem("a table with a header and rows", "an empty file")])
    delimiter = _delimiter(sample, quote_char)
    return TextFile(path, encoding, delimiter, quote_char, _fields(sample[0], delimiter, quote_char), n_blank)


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
        return "utf-8"
    # In UTF-16, digits, punctuation and Latin letters have a NUL byte beside each, and a table is mostly these.
    for n_nul, n_other, encoding in ((n_odd, n_even, "utf-16-le"), (n_even, n_odd, "utf-16-be")):
        if not n_other and n_nul > 0.4 * len(head) / 2:
            return encoding
    raise ValueError("binary content")


class ReadAgain(Exception):
    """A file turned out to be written in another way than its first bytes said; it has to be read again."""


def blocks(text: TextFile, continued: np.ndarray | None) -> Iterator[tuple[memoryview, int]]:
    """Blocks of whole rows as UTF-8, each with its number of lines.

    A block is valid until the next one is asked for, which is written over it. `continued` are the lines that continue
    the row before them, sorted; None where every line should be a row.
    """
    # One room for all blocks: new memory for each of them takes longer than reading the file. It grows with the file,
    # since room for a large block takes longer than reading a small file.
    n_asked, n_kept, n_before, n_lines, at_end = min(HEAD_BYTES, BLOCK_BYTES), 0, 0, 0, False
    room = bytearray(2 * n_asked)
    with opened(text.path) as stream:
        if text.encoding != "utf-8":
            stream = pa.transcoding_input_stream(pa.PythonFile(stream, "r"), text.encoding, "utf-8")
        while not at_end:
            if n_kept + n_asked > len(room):
                room = room + bytes(len(room))
            n_read = stream.readinto(memoryview(room)[n_kept : n_kept + n_asked])
            n_asked = min(2 * n_asked, BLOCK_BYTES)
            stop, at_end = n_kept + n_read, not n_read
            end = stop if at_end else _end_of_line(room, stop, stop)
            while end:
                n_lines = _count_lines(room, end)
                if at_end:
                    break
                before = _end_of_line(room, end - 1, stop)
                is_cut = bool(text.quote_char) and room.count(b'"', before, end) % 2 == 1
                if continued is not None:
                    at = np.searchsorted(continued, n_before + n_lines + 1)
                    is_cut = at < len(continued) and continued[at] == n_before + n_lines + 1
                if not is_cut:
                    break
                end = before
            if end:
                yield memoryview(room)[:end], n_lines
            n_before, n_kept = n_before + n_lines * bool(end), stop - end
            room[:n_kept] = room[end:stop]


def parse(
    block: bytes | memoryview,
    text: TextFile,
    types: Mapping[int, pa.DataType],
    n_skipped: int,
    newlines_in_values: bool,
) -> tuple[pa.Table, list[arrow_csv.InvalidRow]]:
    """The columns at some positions k as f"f{k}", and the rows with more or fewer fields than the first line.

    The numbers of these rows count the rows of the block from 1, with those that are skipped.
    """
    invalid: list[arrow_csv.InvalidRow] = []

    def skip(row: arrow_csv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    # Only one thread knows the numbers of invalid rows; without `skip`, they are an error.
    for handler in (None, skip):
        columns = {f"f{k}": kind for k, kind in types.items()}
        names = [f"f{position}" for position in range(len(text.first_fields))]
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block),
                arrow_csv.ReadOptions(column_names=names, skip_rows=n_skipped, use_threads=handler is None),
                arrow_csv.ParseOptions(
                    delimiter=text.delimiter,
                    quote_char=text.quote_char,
                    newlines_in_values=newlines_in_values,
                    # A blank line becomes a row with nothing in it, so that rows can be counted.
                    ignore_empty_lines=False,
                    invalid_row_handler=handler,
                ),
                arrow_csv.ConvertOptions(
                    column_types=columns,
                    include_columns=list(columns),
                    null_values=["", *UNKNOWN_WORDS],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            if handler is None and "CSV parse error" in str(error):
                continue
            raise
        return table, invalid
    raise AssertionError


def continued_lines(text: TextFile) -> np.ndarray:
    """The numbers, from 1, of the lines that continue a quoted text of the line before them.

    A quote that is not closed is an error, since it would swallow the rows after it.
    """
    continued, first = [], 1
    with opened(text.path) as stream:
        lines = io.TextIOWrapper(stream, text.encoding, newline="")
        reader = csv.reader(lines, delimiter=text.delimiter, strict=True)
        try:
            for _ in reader:
                continued += range(first + 1, reader.line_num + 1)
                first = reader.line_num + 1
        except csv.Error as error:
            found = f"a text that begins in row {first} and does not end"
            way_out = "Add or remove the quote in that row"
            problem = Problem('a closing quote for every quote (")', found, way_out=way_out)
            raise InputError(str(text.path), [problem]) from error
    return np.array(continued, np.int64)


def _count_lines(data: bytearray, stop: int) -> int:
    # Pieces that fit into the cache are counted three times faster than by `bytearray.count`.
    content = np.frombuffer(data, np.uint8, stop)
    pieces = (content[begin : begin + HEAD_BYTES] for begin in range(0, stop, HEAD_BYTES))
    n_ends = sum(int(np.count_nonzero(piece == ord("\n"))) for piece in pieces)
    if data.find(b"\r", 0, stop) >= 0:
        n_ends += data.count(b"\r", 0, stop) - data.count(b"\r\n", 0, stop)
    return n_ends + (data[stop - 1] not in b"\r\n")


def _end_of_line(data: bytearray, stop: int, n_read: int) -> int:
    """Where the last line ends that ends before `stop`; 0 if none does."""
    end = data.rfind(b"\n", 0, stop) + 1
    # The last byte that was read may be the first half of the two that end a line.
    return end or data.rfind(b"\r", 0, min(stop, n_read - 1)) + 1


def _only_member(path: Path, archive: zipfile.ZipFile) -> str:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        found = ", ".join(names[:5]) or "an empty archive"
        way_out = "Extract the files that you want; a folder of files is read as one table" if names else ""
        raise InputError(str(path), [Problem("one file in the archive", found, way_out=way_out)])
    return names[0]


def _delimiter(lines: Sequence[str], quote_char: str | bool) -> str:
    """The delimiter that gives the most fields in the first line, if most lines have equally many."""
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
