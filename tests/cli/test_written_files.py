"""Whatever a command writes: who may read it, and that nothing gets into a release."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.commands import refused, works

REAL = ("--train", "city/train", "--test", "city/test")
ATTACK = ("attack", "membership", "synthetic", *REAL, "--attack", "density_ratio")
COMPARE = ("compare", "city/train", "city/test", "--no-attacks")
WHOSE = ("attack", "reidentify", "city/train", "--released", "synthetic", "--estimator", "ml")
# Every option that names something to write, with the command and an ending where one is needed.
WRITING = {
    "import": ("import", "toy-city", "--users", 30, "--places", 12, "--days", 1, "--out", "OUT"),
    "fit": ("fit", "city/train", "--system", "uniform", "--out", "OUT"),
    "diagnose": ("diagnose", "model", "--train", "city/train", "--out", "OUT"),
    "complete": ("complete", "model", "city/train", "--out", "OUT"),
    "synthesize": ("synthesize", "model", "--out", "OUT"),
    "test": ("test", "model", "synthetic", "--k", 2, "--out", "OUT"),
    "test --plot": ("test", "model", "synthetic", "--k", 2, "--out", "fresh", "--plot", "OUT.png"),
    "release": ("release", "synthetic", "verdicts", "--out", "OUT", "--key", "fresh"),
    "release --key": ("release", "synthetic", "verdicts", "--out", "fresh", "--key", "OUT"),
    "evaluate --json": ("evaluate", "synthetic", *REAL, "--no-attacks", "--json", "OUT.json"),
    "reidentify --json": (*WHOSE, "--json", "OUT.json"),
    "reidentify --plot": (*WHOSE, "--plot", "OUT.svg"),
    "membership --json": (*ATTACK, "--json", "OUT.json"),
    "membership --plot": (*ATTACK, "--plot", "OUT.pdf"),
    "unicity --json": ("attack", "unicity", "city/train", "--json", "OUT.json"),
    "export traces": ("export", "traces", "city/train", "--of-real-people", "--out", "OUT.csv"),
    "export of a release": ("export", "traces", "released", "--out", "OUT.geojson"),
    "export population": ("export", "population", "synthetic", "--real", "city/train", "--out", "OUT.parquet"),
    "compare": (*COMPARE, "--system", "uniform", "--seeds", 1, "--out", "OUT"),
    "colocate": ("colocate", "city/train", "--epsilon-friendship", 10, "--colocations", 5, "--out", "OUT"),
}
# Of no model but those that are sampled by Gibbs, which takes long.
NOT_TRIED = {"diagnose"}
PUBLIC = {"release", "export of a release"}


def put(name: str, out: Path, fresh: Path) -> list[object]:
    """A command that writes to `out`, and what else it has to write to a fresh name."""
    return [str(fresh) if word == "fresh" else str(word).replace("OUT", str(out)) for word in WRITING[name]]


@pytest.mark.parametrize("name", sorted(WRITING.keys() - NOT_TRIED))
def test_only_its_owner_may_read_what_a_command_writes(made, tmp_path, monkeypatch, name):
    """By a mask that lets others do everything: who keeps them out does not rely on it."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: Path(path).touch())
    old = os.umask(0)
    try:
        works(*put(name, tmp_path / "out", tmp_path / "fresh"))
    finally:
        os.umask(old)
    written = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    out = {path for path in written if path.relative_to(tmp_path).parts[0].startswith("out")}
    assert out
    for path, mode in written.items():
        if path in out and name in PUBLIC:
            assert mode == (0o755 if path.is_dir() else 0o644)
        elif path in out or name != "release --key":
            assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_written_into_a_release(made, tmp_path, monkeypatch, name):
    monkeypatch.chdir(made)
    before = sorted(Path().rglob("*"))
    said = refused(*put(name, Path("released/new"), tmp_path / "fresh"))
    assert "a place outside the folders that this program wrote" in said
    assert sorted(Path().rglob("*")) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("export", "traces", "released", "--out", "OUT.csv"),
        ("evaluate", "released", *REAL, "--key", "key", "--json", "OUT.json"),
        ("attack", "membership", "released", *REAL, "--json", "OUT.json"),
    ],
    ids=" ".join,
)
def test_a_release_with_something_else_in_it_is_none(made, tmp_path, monkeypatch, words):
    monkeypatch.chdir(made)
    notes = Path("released/notes.txt")
    notes.write_text("who is who")
    try:
        said = refused(*(word.replace("OUT", str(tmp_path / "out")) for word in words))
    finally:
        notes.unlink()
    assert "only what this program wrote there; found also notes.txt" in said
    assert not list(tmp_path.iterdir())
