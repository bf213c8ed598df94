"""Docstrings are read by a documentation generator, every parameter found. The linter sees to their form."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).resolve().parents[1]


def objects(thing: griffe.Object) -> Iterator[griffe.Object]:
    """A module and all that is defined in it, at any depth."""
    yield thing
    for member in thing.members.values():
        if not member.is_alias:
            yield from objects(member)


def warnings_of(things: list[griffe.Object], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What griffe says of docstrings in the style of numpydoc."""
    with caplog.at_level(logging.WARNING):
        for thing in things:
            if thing.docstring is not None:
                thing.docstring.parse("numpy")
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(scope="module")
def package() -> list[griffe.Object]:
    return list(objects(griffe.load("ppmtf_jax", search_paths=[ROOT])))


@pytest.fixture(scope="module")
def models() -> list[griffe.Object]:
    names = [path.stem for path in (ROOT / "models").glob("*.py")]
    return [each for name in names for each in objects(griffe.load(name, search_paths=[ROOT / "models"]))]


@pytest.fixture(scope="module")
def everything(package, models) -> list[griffe.Object]:
    return package + models


def test_all_is_looked_at(everything):
    paths = {thing.path for thing in everything}
    assert {"ppmtf_jax.data.traces.Traces.select_traces", "ppmtf_jax.cli.app.main", "mtf_numpyro", "inference"} <= paths


def test_a_generator_reads_them_without_warnings(everything, caplog):
    assert warnings_of(everything, caplog) == []


@pytest.mark.parametrize(
    ("docstring", "warning"),
    [
        ("Add.\n\n    Parameters\n    ----------\n    a : int\n    c : int\n", "Parameter 'c' does not appear"),
        ("Add.\n\n    Parameters\n    ----------\n    a, b\n      Numbers.\n", "Confusing indentation"),
        ("Add.\n\n    Parameters\n    ----------\n    : a\n", "Could not parse line"),
        ("Add.\n\n    Parameters\n    ----------\n    a : int\n        The first.\n    b : int\n", None),
    ],
)
def test_a_planted_parameter_is_found(docstring, warning, caplog):
    with griffe.temporary_visited_module(f'def add(a: int, b: int) -> int:\n    """{docstring}    """') as module:
        said = warnings_of(list(objects(module)), caplog)
    assert bool(said) == (warning is not None)
    assert warning is None or warning in said[0]
