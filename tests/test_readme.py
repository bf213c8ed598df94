"""What the README shows works as it stands there."""

from __future__ import annotations

import re
import shlex
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli.app import app
from ppmtf_jax.cli.group import COMMANDS
from ppmtf_jax.cli.whole import markdown_tables
from ppmtf_jax.jobs.config import JobConfig

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def command_lines() -> list[list[str]]:
    """Every `ppmtf ...` of an indented line or in backticks, in words, without the name of the program."""
    lines = re.findall(r"^    (ppmtf .*)$", README, flags=re.MULTILINE) + re.findall(r"`(ppmtf [^`]+)`", README)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def exit_code_of_help(words: list[str]) -> int:
    """Help is shown once all commands and options of the line are known, and before any of them does anything."""
    return CliRunner().invoke(app, [*words, "--help"]).exit_code


@pytest.mark.slow
def test_snippet_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (snippet,) = blocks("python")
    exec(compile(snippet, "README.md", "exec"), {})
    assert re.fullmatch(r"\d+% passed, TP-TV 0\.\d{3}\n", capsys.readouterr().out)
    assert {path.name for path in tmp_path.iterdir()} == {"released", "released-key"}
    files = {path.name for path in (tmp_path / "released").iterdir()}
    assert files >= {"traces.parquet", "places.parquet", "time_grid.json", "PRIVACY.txt", "privacy.json", "ppmtf.json"}
    assert stat.S_IMODE((tmp_path / "released-key").stat().st_mode) == 0o700


@pytest.mark.parametrize("words", command_lines(), ids=" ".join)
def test_command_line_is_known(words):
    assert exit_code_of_help(words) == 0


@pytest.mark.parametrize("line", ["fit train --out model --rank 3", "teleport x", "import nowhere x --out y"])
def test_a_wrong_command_line_is_noticed(line):
    assert exit_code_of_help(shlex.split(line)) == 2


def test_what_processes_say_to_each_other_is_not_protected():
    assert "without authentication or encryption" in README
    assert "trusted\nnetworks only" in README


def test_every_step_has_a_command_line():
    steps = [words[0] for words in command_lines()]
    assert set(COMMANDS) - {"demo"} <= set(steps)  # `make demo` is the demo
    # Shown in the order of their use, before anything else is. A model of the default system has nothing to diagnose.
    line = ["import", "fit", "synthesize", "test", "release", "evaluate"]
    assert steps[: len(line)] == line


def test_tables_are_those_of_what_is_registered():
    (tables,) = re.findall(r"<!-- list -->\n\n(.*?)\n\n<!-- /list -->", README, flags=re.DOTALL)
    assert tables == markdown_tables(), "make sync"


def test_job_is_a_configuration(tmp_path):
    (content,) = blocks("toml")
    file = tmp_path / "job.toml"
    file.write_text(content, encoding="utf-8")
    config = JobConfig.load(file)
    assert (config.source, config.system, config.seed) == ("foursquare", "bridge", None)
    assert config.compared["ppmtf"].zeros == "weighted"
    assert (config.testing.k, config.testing.eta) == (10, 1.0)


def test_files_and_make_targets_are_there():
    folders = [path.name for path in ROOT.iterdir() if path.is_dir()]
    files = [name for name in re.findall(r"`([\w.]+/[\w./]*)`", README) if name.split("/")[0] in folders]
    assert "notebooks/quickstart.ipynb" in files
    # What `make demo` writes is not in the repository.
    assert [name for name in files if not (ROOT / name).exists() and name != "demo/"] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^    |`)make ([a-z]+)", README, flags=re.MULTILINE)
    assert set(targets) >= {"demo", "test", "check"}
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, flags=re.MULTILINE)] == []
