"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import shlex
import stat

import pytest

from tests.pages import ROOT, blocks, command_lines, exit_code_of_help, make_targets, text_of

README = ROOT / "README.md"


@pytest.mark.slow
def test_snippet_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks(README, "python")
    exec(compile(snippet, "README.md", "exec"), {})
    assert re.fullmatch(r"\d+% passed, TP-TV 0\.\d{3}\n", capsys.readouterr().out)
    assert {path.name for path in tmp_path.iterdir()} == {"released", "released-key"}
    files = {path.name for path in (tmp_path / "released").iterdir()}
    assert files >= {"traces.parquet", "places.parquet", "time_grid.json", "PRIVACY.txt", "privacy.json", "ppmtf.json"}
    assert stat.S_IMODE((tmp_path / "released-key").stat().st_mode) == 0o700


@pytest.mark.parametrize("line", ["fit train --out model --rank 3", "teleport x", "import nowhere x --out y"])
def test_a_wrong_command_line_is_noticed(line):
    assert exit_code_of_help(shlex.split(line)) == 2


def test_the_line_is_shown_in_the_order_of_its_use():
    # Before anything else is. A model of the default system has nothing to diagnose.
    line = ["import", "fit", "synthesize", "test", "release", "evaluate"]
    assert [words[0] for words in command_lines(text_of(README))][: len(line)] == line


def test_it_is_short_and_begins_with_two_commands():
    assert len(text_of(README).splitlines()) <= 120
    assert make_targets(README)[:2] == ["demo", "test"]


def test_files_in_backticks_are_there():
    folders = [path.name for path in ROOT.iterdir() if path.is_dir()]
    files = [name for name in re.findall(r"`([\w.]+/[\w./]*)`", text_of(README)) if name.split("/")[0] in folders]
    # What `make demo` writes is not in the repository.
    assert [name for name in files if not (ROOT / name).exists() and name != "demo/"] == []


def test_every_notebook_is_linked():
    linked = re.findall(r"\]\(notebooks/(\w+)\.ipynb\)", text_of(README))
    assert sorted(linked) == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
