"""Output folders: what may be replaced, what is secret, and what others may see."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime import folders
from ppmtf_jax.runtime.files import check_output_file, clear_leftovers, leftover
from ppmtf_jax.runtime.folders import (
    MARKER,
    NO_TIME_S,
    check_belong_together,
    check_output_folder,
    digest_of,
    digest_of_sources,
    marked,
    output_folder,
    read_marker,
)


def make(folder: Path, kind: str = "model", content: str = "a", **options: object) -> None:
    with output_folder(folder, kind, **options) as partial:
        (partial / "part").mkdir()
        (partial / "part" / "file").write_text(content)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_says_what_it_is(tmp_path):
    make(tmp_path / "m", about={"rank": 3})
    marker = read_marker(tmp_path / "m")
    assert (marker.kind, marker.about, list(marker.files)) == ("model", {"rank": 3}, ["part/file"])
    assert marker.made_by.startswith("ppmtf_jax ")
    assert marked(tmp_path / "m", "model", way_out="") == marker
    assert read_marker(tmp_path) is None


def test_only_its_owner_may_look_into_a_folder_unless_it_is_public(tmp_path):
    old = os.umask(0)
    try:
        make(tmp_path / "secret")
        assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o700
        os.umask(0o022)
        make(tmp_path / "public", public=True)
    finally:
        os.umask(old)
    found = {(stat.S_IMODE(s.st_mode), s.st_mtime) for s in map(Path.stat, ((tmp_path / "public").rglob("*")))}
    assert found == {(0o755, NO_TIME_S), (0o644, NO_TIME_S)}


def test_an_earlier_one_is_replaced_on_request_only(tmp_path):
    make(tmp_path / "m")
    with pytest.raises(InputError, match=r"a name that is free; found an existing one.*--overwrite"):
        make(tmp_path / "m", content="b")
    make(tmp_path / "m", content="b", overwrite=True)
    assert contents(tmp_path / "m")["part/file"] == b"b"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def spoil(kind: str, folder: Path) -> None:
    make(folder, "trace set" if kind == "another kind" else "model")
    if kind == "without marker":
        (folder / MARKER).unlink()
    elif kind == "a file more":
        (folder / "notes.txt").write_text("mine")
    elif kind == "a file more, deep":
        (folder / "part" / "notes.txt").write_text("mine")
    elif kind == "a folder more":
        (folder / "part" / "mine").mkdir()
    elif kind == "a marker of others":
        (folder / MARKER).write_text('{"kind": "model"}')


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("another kind", "an earlier model folder to replace; found a trace set folder"),
        ("without marker", "an earlier model folder to replace; found one with part"),
        ("a file more", r"only what this program wrote there; found also notes\.txt.*Nothing was changed"),
        ("a file more, deep", r"found also part/notes\.txt"),
        ("a folder more", r"found also part/mine/"),
        ("a marker of others", "a readable marker"),
    ],
)
def test_what_is_not_wholly_ours_is_never_replaced(tmp_path, kind, message):
    spoil(kind, tmp_path / "m")
    before = contents(tmp_path)
    with pytest.raises(InputError, match=message):
        make(tmp_path / "m", content="b", overwrite=True)
    with pytest.raises(InputError, match=message):
        check_output_folder(tmp_path / "m", "model", overwrite=True)
    assert contents(tmp_path) == before


def test_what_a_user_adds_while_the_work_goes_on_is_kept(tmp_path):
    make(tmp_path / "m")

    def work() -> None:
        with output_folder(tmp_path / "m", "model", overwrite=True) as partial:
            (partial / "file").write_text("b")
            (tmp_path / "m" / "notes.txt").write_text("mine")

    with pytest.raises(InputError, match=r"also notes\.txt"):
        work()
    assert contents(tmp_path).keys() == {"m/part/file", f"m/{MARKER}", "m/notes.txt"}


def test_an_input_is_never_replaced(tmp_path):
    make(tmp_path / "m")
    (tmp_path / "link").symlink_to(tmp_path / "m")
    before = contents(tmp_path)
    for name in ("m", "m/part", "m/part/file", "link/part/file"):
        with pytest.raises(InputError, match="a folder apart from the input"):
            make(tmp_path / "m", overwrite=True, inputs=[tmp_path / name])
    assert contents(tmp_path) == before


def test_an_input_may_be_around_the_output(tmp_path):
    make(tmp_path / "inside", inputs=[tmp_path])
    assert read_marker(tmp_path / "inside") is not None


@pytest.mark.parametrize("name", ["notes.txt", "part/notes.txt", "mine/"])
def test_what_is_handed_out_holds_nothing_else(tmp_path, name):
    make(tmp_path / "m")
    other = tmp_path / "m" / name
    other.mkdir() if name.endswith("/") else other.write_text("mine")
    assert marked(tmp_path / "m", "model", way_out="").kind == "model"
    with pytest.raises(InputError, match=f"only what this program wrote there; found also {name}. Take them out"):
        marked(tmp_path / "m", "model", way_out="", alone=True)


def test_an_empty_folder_that_somebody_prepared_is_used(tmp_path):
    (tmp_path / "m").mkdir()
    make(tmp_path / "m")
    assert contents(tmp_path / "m").keys() == {"part/file", MARKER}


def test_a_link_is_not_followed(tmp_path):
    make(tmp_path / "real")
    (tmp_path / "m").symlink_to(tmp_path / "real")
    before = contents(tmp_path)
    with pytest.raises(InputError, match="earlier model folder"):
        make(tmp_path / "m", overwrite=True)
    assert contents(tmp_path) == before


def test_a_failure_leaves_nothing(tmp_path):
    def work() -> None:
        with output_folder(tmp_path / "m", "model") as partial:
            (partial / "half").touch()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["changed", "removed"])
def test_changed_files_are_told(tmp_path, how):
    make(tmp_path / "m")
    file = tmp_path / "m" / "part" / "file"
    file.write_text("b") if how == "changed" else file.unlink()
    with pytest.raises(InputError, match=r"part/file changed or missing\. Fit again"):
        marked(tmp_path / "m", "model", way_out="Fit again")


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", '{"format": 99, "kind": "", "about": {}, "files": {}, "made_by": ""}']
)
def test_a_damaged_marker_is_told(tmp_path, content):
    make(tmp_path / "m")
    (tmp_path / "m" / MARKER).write_text(content)
    with pytest.raises(InputError, match=r"marker"):
        marked(tmp_path / "m", "model", way_out="")


def test_only_leftovers_of_our_own_outputs_are_cleared(tmp_path):
    for name in ("model", "a.json"):
        (tmp_path / name).touch()
    ours = [leftover(tmp_path / name, kind) for name in ("model", "a.json") for kind in ("partial", "old")]
    kept = [
        ".model.partial-mine", ".model.old-2024", ".notes.old-0a1b2c3d", "model.partial-0a1b2c3d",
        ".model.partial-0a1b2c3d.bak", ".model.new-0a1b2c3d", ".xmodel.old-0a1b2c3d",
    ]  # fmt: skip
    for path in ours[:2]:
        (path / "half").mkdir(parents=True)
    for path in (*ours[2:], *(tmp_path / name for name in kept)):
        path.touch()
    clear_leftovers(tmp_path, ["model", "a.json"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "model", "a.json"])
    clear_leftovers(tmp_path / "nowhere", ["model"])


def test_what_was_moved_aside_comes_back_if_nothing_took_its_place(tmp_path):
    """Of a process that was killed between the two renames of a replacement."""
    make(tmp_path / "m")
    before = contents(tmp_path / "m")
    (tmp_path / "m").rename(leftover(tmp_path / "m", "old"))
    leftover(tmp_path / "m", "partial").mkdir()
    clear_leftovers(tmp_path, ["m"])
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert contents(tmp_path / "m") == before


def test_a_file_that_is_not_ours_is_never_replaced(tmp_path):
    file = tmp_path / "m.json"

    def check(overwrite: bool) -> None:
        def is_ours(path: Path) -> bool:
            return json.loads(path.read_text()) == "ours"

        check_output_file(file, overwrite=overwrite, is_ours=is_ours, what="an earlier evaluation")

    check(False)
    file.write_text('"ours"')
    check(True)
    with pytest.raises(InputError, match="a name that is free"):
        check(False)
    file.write_text('"mine"')
    for overwrite in (False, True):
        with pytest.raises(InputError, match="a file that this program did not write"):
            check(overwrite)
    with pytest.raises(InputError, match="found a folder"):
        check_output_file(tmp_path, overwrite=True, is_ours=lambda _: True, what="an earlier evaluation")
    with pytest.raises(InputError, match="which is a file"):
        check_output_file(file / "x", overwrite=True, is_ours=lambda _: True, what="an earlier evaluation")


def test_things_of_one_run_belong_together():
    model = {"training traces": "t", "model": "m"}
    check_belong_together("job", {"model": model, "verdicts": {**model, "verdicts": "v"}, "other": {}}, way_out="")


def test_another_line_of_code_makes_another_digest(tmp_path, monkeypatch):
    for name, line in (("a.py", "one = 1"), ("deep/b.py", "two = 2"), ("note.txt", "three")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(line)
    (tmp_path / "runtime").mkdir()
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "runtime" / "folders.py"))
    before = digest_of_sources.__wrapped__()
    (tmp_path / "note.txt").write_text("four")
    assert digest_of_sources.__wrapped__() == before
    (tmp_path / "deep" / "b.py").write_text("two = 3")
    changed = digest_of_sources.__wrapped__()
    (tmp_path / "deep" / "b.py").rename(tmp_path / "deep" / "c.py")
    assert len({before, changed, digest_of_sources.__wrapped__()}) == 3


def test_all_that_does_not_belong_together_is_told_at_once():
    lineages = {
        "data": {"training traces": "t"},
        "model": {"training traces": "u", "model": "m"},
        "key": {"model": "n"},
        "report": {"verdicts": "v"},
    }
    with pytest.raises(InputError) as refused:
        check_belong_together("job", lineages, way_out="Run the job again")
    text = str(refused.value)
    assert "data and model of the same training traces" in text
    assert "model and key of the same model" in text
    assert "report" not in text
    assert "Run the job again" in text


def test_a_digest_is_of_what_is_in_it():
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
    assert digest_of("ab", "c") != digest_of("a", "bc")
