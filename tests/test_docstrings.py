"""Docstrings are read by a documentation generator: every section by its name, every parameter found."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).resolve().parents[1]
# Sections of numpydoc: those that griffe takes apart, and those that are text.
SECTIONS = {
    "Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "Examples", "Notes", "References", "See Also"
}  # fmt: skip
# Full stops inside a sentence.
ABBREVIATION = re.compile(r"\b(App|Fig|eq|eqs|sec|al|e\.g|i\.e|cf|vs)\.")


def objects(thing: griffe.Object) -> Iterator[griffe.Object]:
    """A module and all that is defined in it, at any depth."""
    yield thing
    for member in thing.members.values():
        if not member.is_alias:
            yield from objects(member)


def is_public(thing: griffe.Object) -> bool:
    return not any(part.startswith("_") for part in thing.path.split("."))


def warnings_of(things: list[griffe.Object], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What griffe says of docstrings in the style of numpydoc."""
    with caplog.at_level(logging.WARNING):
        for thing in things:
            if thing.docstring is not None:
                thing.docstring.parse("numpy")
    return [record.getMessage() for record in caplog.records]


def wrong_sections(things: list[griffe.Object]) -> list[str]:
    """Headings that are no section of numpydoc, or are not taken for one, as where the line below has another length.

    A heading is a line above one of dashes alone.
    """
    found = []
    for thing in things:
        text = thing.docstring.value if thing.docstring is not None else ""
        for heading, dashes in re.findall(r"^(.*)\n(-{3,})$", text, flags=re.MULTILINE):
            if heading not in SECTIONS or len(heading) != len(dashes):
                found.append(f"{thing.path}: {heading!r}")
    return found


def wrong_summaries(things: list[griffe.Object]) -> list[str]:
    """Public functions, classes and methods whose docstring does not begin with a line that is one sentence.

    A method that a base class of the package explains needs no docstring of its own.
    """
    found = []
    for thing in things:
        if not is_public(thing) or not (thing.is_function or thing.is_class) or is_inherited(thing):
            continue
        first, _, rest = (thing.docstring.value if thing.docstring is not None else "").partition("\n")
        sentence = ABBREVIATION.sub(r"\1", first)
        if not re.fullmatch(r"\S.*[^.]\.", first) or re.search(r"[.?!] [A-Z]", sentence) or rest[:1].strip():
            found.append(f"{thing.path}: {first!r}")
    return found


def is_inherited(thing: griffe.Object) -> bool:
    """Whether this is a method without a docstring that a base class has with one."""
    if thing.docstring is not None or not thing.parent.is_class:
        return False
    bases = (base.members.get(thing.name) for base in thing.parent.mro())
    return any(member is not None and member.docstring is not None for member in bases)


@pytest.fixture(scope="module")
def package() -> list[griffe.Object]:
    return list(objects(griffe.load("ppmtf_jax", search_paths=[ROOT])))


@pytest.fixture(scope="module")
def models() -> list[griffe.Object]:
    return list(objects(griffe.load("mtf_numpyro", search_paths=[ROOT / "models"])))


@pytest.fixture(scope="module")
def everything(package, models) -> list[griffe.Object]:
    return package + models


def test_all_is_looked_at(everything):
    paths = {thing.path for thing in everything}
    assert {"ppmtf_jax.data.traces.Traces.select_traces", "ppmtf_jax.cli.app.main", "mtf_numpyro"} <= paths


def test_a_generator_reads_them_without_warnings(everything, caplog):
    assert warnings_of(everything, caplog) == []


def test_sections_are_those_of_numpydoc(everything):
    assert wrong_sections(everything) == []


def test_each_begins_with_one_sentence(everything):
    assert wrong_summaries(everything) == []


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


@pytest.mark.parametrize(
    ("docstring", "sections", "summaries"),
    [
        ("Add numbers.", 0, 0),
        ("Add numbers (Murakami et al. 2021, App. C).\n\n    Notes\n    -----\n    None.", 0, 0),
        ("Add numbers.\n\n    Source\n    ------\n    A book.", 1, 0),
        ("Add numbers.\n\n    Notes\n    ----\n    None.", 1, 0),
        ("Add numbers", 0, 1),
        ("Add numbers. Then subtract some.", 0, 1),
        ("Add numbers\n    and subtract some.", 0, 1),
        ("", 0, 1),
    ],
)
def test_a_planted_heading_or_summary_is_found(docstring, sections, summaries):
    with griffe.temporary_visited_module(f'def add(a):\n    """{docstring}"""', module_name="planted") as module:
        things = list(objects(module))
        assert (len(wrong_sections(things)), len(wrong_summaries(things))) == (sections, summaries)


def test_a_method_is_explained_by_its_base():
    code = 'class Base:\n    """A base."""\n    def run(self):\n        """Run."""\n'
    code += 'class Own(Base):\n    """Own."""\n    def run(self): ...\n    def stop(self): ...\n'
    with griffe.temporary_visited_module(code, module_name="planted") as module:
        assert wrong_summaries(list(objects(module))) == ["planted.Own.stop: ''"]
