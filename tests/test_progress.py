from __future__ import annotations

import io
import sys

import pytest

from ppmtf_jax.progress import progress_bar, spinner


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch):
    """Gives a function that calls another while standard error is a terminal, and returns what is shown there."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")

    def shown_by(action, *arguments) -> str:
        with monkeypatch.context() as patch:
            # Not in the fixture itself, since pytest puts its own stream back before the test begins.
            patch.setattr(sys, "stderr", Terminal())
            action(*arguments)
            return sys.stderr.getvalue()

    return shown_by


def work(show: bool) -> None:
    with progress_bar("sweeping", 10, show=show, done=4) as advance:
        advance(3)
    with spinner("evaluating", show=show):
        pass


def test_shown_on_a_terminal(shown):
    text = shown(work, True)
    assert [part for part in ("sweeping", "4/10", "compiling", "7/10", "left", "evaluating") if part not in text] == []


def test_quiet_when_asked(shown):
    assert shown(work, False) == ""


@pytest.mark.parametrize("forced", ["FORCE_COLOR", "TTY_COMPATIBLE", None])
def test_quiet_elsewhere(monkeypatch, capsys, forced):
    """Logs of build servers, which ask for colours, get no bars."""
    if forced:
        monkeypatch.setenv(forced, "1")
    work(show=True)
    assert capsys.readouterr() == ("", "")


def fail(shows) -> None:
    with shows:
        raise KeyError("mine")


def test_an_error_passes(shown):
    for shows in (spinner("evaluating", show=True), progress_bar("sweeping", 2, show=True)):
        with pytest.raises(KeyError):
            shown(fail, shows)
