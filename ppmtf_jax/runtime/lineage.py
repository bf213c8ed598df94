"""Lineage: digests of what a folder was made from, so that folders of different runs are not combined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ppmtf_jax.errors import Problem, raise_any

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
    if values.dtype != object:
        digest.update(np.ascontiguousarray(values).data)
    for piece in json_of_ids(values) if values.dtype == object else ():
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
