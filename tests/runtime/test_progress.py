from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace

import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.runtime import progress
from ppmtf_jax.runtime.progress import progress_bar, spinner, tell


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


def test_a_spinner_tells_how_far_the_work_has_come(shown):
    def read(show: bool) -> None:
        with spinner("importing", show=show):
            tell("importing: 5,000 rows read")

    assert "5,000 rows read" in shown(read, True)
    assert shown(tell, "after the work") == ""


def test_what_is_not_compiled_does_not_say_so(shown):
    def read(show: bool) -> None:
        with progress_bar("reading", 10, show=show, waits_for=""):
            pass

    assert "compiling" not in shown(read, True)


def test_every_long_stage_shows_itself(shown, tmp_path):
    """Reading, simulating and evaluating; the others are shown by what they run."""

    def stages() -> None:
        city = toy_city(20, n_days=1, seed=0, progress=True)
        city.traces.save(tmp_path / "city")
        train, test = Traces.load(tmp_path / "city", progress=True).split_users(0.5, seed=0)
        evaluate(train, train, test, EvaluationSettings(attacks=False), progress=True)

    text = shown(stages)
    # What is exact; the synthetic, the training and the uniform traces, each by trace numbers and whole.
    steps = f"{1 + 3 * 2}/{1 + 3 * 2}"
    assert [title for title in ("simulating", "20/20", "reading", "evaluating", steps) if title not in text] == []


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)


def test_long_work_is_announced_once(shown, monkeypatch):
    """Steps of 1,000 s each: of 20 steps 18 are left after the second, which is the first one timed."""
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    def work_long(n_steps: int) -> None:
        with progress_bar("sweeping", n_steps, show=True) as advance:
            for _ in range(4):
                advance(1)

    announced = re.findall(r"sweeping: about (.*) left\. Ctrl-C", without_colours(shown(work_long, 20)))
    assert announced == ["5.0 h"]
    assert "Ctrl-C" not in shown(work_long, 5)


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
