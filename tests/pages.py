"""What the tests of README.md and of docs/ read from them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from ppmtf_jax.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
# What a user reads. The examples of CONTRIBUTING.md have a test of their own.
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def command_lines(text: str) -> list[list[str]]:
    """Every `ppmtf ...` of an indented line or in backticks, in words, without the name of the program."""
    lines = re.findall(r"^    (ppmtf .*)$", text, flags=re.MULTILINE) + re.findall(r"`(ppmtf [^`]+)`", text)
    return [shlex.split(line, comments=True)[1:] for line in lines]


def make_targets(page: Path) -> list[str]:
    """Every `make ...` of an indented line or in backticks."""
    return re.findall(r"(?:^    |`)make ([a-z]+)", text_of(page), flags=re.MULTILINE)


def exit_code_of_help(words: list[str]) -> int:
    """Help is shown once all commands and options of the line are known, and before any of them does anything."""
    return CliRunner().invoke(app, [*words, "--help"]).exit_code
