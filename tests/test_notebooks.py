"""What makes a stored notebook out of date, and how the first cell of all of them installs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pages import ROOT, text_of

SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
FIRST = text_of(SCRIPTS[0]).split("# %%\n")[1]
NEEDED = ["jax>=0.10", "jaxlib!=0.11.*,>=0.10", "jaxtyping>=0.3", "pytest>=8; extra == 'test'"]


class Output(dict):
    """As nbformat has it: a key is an attribute too."""

    @property
    def output_type(self):
        return self["output_type"]


def module():
    spec = importlib.util.spec_from_file_location("docs_notebooks", ROOT / "docs" / "notebooks.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def shows(*outputs, source="x", tags=()):
    cell = SimpleNamespace(cell_type="code", source=source, outputs=list(outputs), metadata={"tags": tags})
    return SimpleNamespace(cells=[cell])


def text(words):
    return Output(output_type="stream", name="stdout", text=words)


def table(*headings):
    html = "<table>" + "".join(f"<th>{each}</th>" for each in headings) + "<td>0.3</td></table>"
    return Output(output_type="execute_result", data={"text/html": html, "text/plain": "0.3"})


PICTURE = Output(output_type="display_data", data={"image/png": "abc"})


def test_other_numbers_and_pictures_are_not_out_of_date():
    before = shows(text("TP-TV 0.31 of 20 users"), table("", "TP-TV", "epsilon 1"), PICTURE)
    other = Output(output_type="display_data", data={"image/png": "xyz"})
    after = shows(text("TP-TV 0.33 of 19 users"), table("", "TP-TV", "epsilon 2"), other)
    assert module().out_of_date(before, after) == []


@pytest.mark.parametrize(
    "after",
    [
        shows(text("all is well here"), source="y"),
        shows(text("all is well here"), tags=["noise"]),
        shows(text("all is well here"), PICTURE),
        shows(),
        shows(PICTURE),
        shows(text("nothing of that is true")),
        shows(Output(output_type="stream", name="stderr", text="all is well here")),
    ],
)
def test_other_cells_kinds_and_words_are_out_of_date(after):
    assert len(module().out_of_date(shows(text("all is well here")), after)) == 1


STATEMENT = """It protects each person, with all of her traces, against anybody who knows everything else.
It does NOT protect a household, which counts as several people, or facts about many people.
Nothing was measured: no attack was tried on these traces before this was written."""


@pytest.mark.parametrize(
    "stale",
    [STATEMENT.replace("NOT ", ""), STATEMENT.replace("person", "people"), STATEMENT.rpartition("\n")[0]],
)
def test_one_other_word_is_out_of_date_unless_words_depend_on_noise(stale):
    check = module().out_of_date
    assert check(shows(text(stale)), shows(text(STATEMENT))) == ["what cell 0 shows"]
    noisy = [shows(text(each), tags=["noise"]) for each in (stale, STATEMENT)]
    assert check(*noisy) == []


def test_a_drawn_name_is_not_a_word():
    assert module().out_of_date(shows(table("c475c5 000 at home_1")), shows(table("ab0 000 at home_12"))) == []


def test_other_headings_are_out_of_date():
    assert module().out_of_date(shows(table("users", "places")), shows(table("events", "slots"))) != []


def test_all_notebooks_begin_in_the_same_way():
    assert {text_of(path).split("# %%\n")[1].strip() for path in SCRIPTS} == {FIRST.strip()}


@pytest.fixture
def pip(monkeypatch):
    """Stands in for pip and for what is installed; `calls` are its words, `fails` says which of them fail."""
    said = SimpleNamespace(calls=[], fails=lambda words: False, installed={"jax": "0.7.2", "jaxlib": "0.11.1"})
    said.installed |= {"jax_cuda12_plugin": "0.7.2", "jaxtyping": "0.2", "numpy": "2.1"}

    def run(command, **_):
        words = [Path(each).read_text() if each.endswith("constraints.txt") else each for each in command[3:]]
        said.calls.append(words)
        return SimpleNamespace(returncode=int(said.fails(words)), stderr="No matching distribution found")

    def distributions():
        return [SimpleNamespace(name=name, version=version) for name, version in said.installed.items()]

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "distributions", distributions)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: NEEDED)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    return said


def test_nothing_is_installed_where_the_library_is(pip, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    exec(FIRST, {})
    assert (pip.calls, capsys.readouterr().out) == ([], "")


def test_an_installed_jax_stays(pip, capsys):
    exec(FIRST, {})
    library, needed = pip.calls
    assert library == ["install", "--no-deps", "ppmtf_jax", "--quiet"]
    constraints = "jax==0.7.2\njaxlib==0.11.1\njax-cuda12-plugin==0.7.2\n"
    assert needed == ["install", "--constraint", constraints, "jaxtyping>=0.3", "--quiet"]
    said = capsys.readouterr().out
    assert "jax>=0.10 is asked for; 0.7.2 was installed and stays" in said
    assert "0.11.1 was installed and stays" in said


def test_without_jax_the_one_that_the_library_asks_for_is_installed(pip, capsys):
    pip.installed = {"numpy": "2.1"}
    exec(FIRST, {})
    assert pip.calls[1] == ["install", "--constraint", "", *NEEDED[:3], "--quiet"]
    assert "stays" not in capsys.readouterr().out


def test_the_cell_says_so_when_nothing_is_found(pip):
    pip.fails = lambda words: "--no-deps" in words
    with pytest.raises(RuntimeError, match=r"(?s)no network, or SOURCE = 'ppmtf_jax'.*No matching distribution"):
        exec(FIRST, {})
    assert len(pip.calls) == 1


def test_a_half_installed_library_is_removed(pip):
    """Otherwise the cell would find it, and install nothing the next time."""
    pip.fails = lambda words: "--constraint" in words
    with pytest.raises(RuntimeError, match=r"no network, or the installed .*'jax': '0.7.2'.* is too old"):
        exec(FIRST, {})
    assert pip.calls[-1] == ["uninstall", "--yes", "ppmtf_jax", "--quiet"]
