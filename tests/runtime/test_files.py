"""Files: secret from their first moment, never put into what was written before, and never taken up from others."""

from __future__ import annotations

import ast
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from ppmtf_jax import runtime
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation.plots import save_figure
from ppmtf_jax.runtime import files
from ppmtf_jax.runtime.files import (
    append_text,
    atomic_file,
    check_output_file,
    exclusive_use,
    make_private,
    read_own,
    remove,
    write_text,
)
from ppmtf_jax.runtime.folders import check_output_folder, output_folder, read_arrays

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs a system that says whose a file is")


@pytest.fixture(params=[0o000, 0o022], ids=["mask 000", "mask 022"])
def mask(request) -> Iterator[int]:
    """What others may do by the user's mask: everything, or read."""
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_file_is_secret_from_its_first_moment_unless_it_is_said_to_be_public(tmp_path, mask):
    for name, public in (("secret", False), ("public", True)):
        with atomic_file(tmp_path / name, public=public) as partial:
            assert (mode(partial), partial.stat().st_size) == (0o600, 0)
            partial.write_text("numbers")
            assert mode(partial) == 0o600
    assert [mode(tmp_path / name) for name in ("secret", "public")] == [0o600, 0o644 & ~mask]


def test_all_that_writes_files_keeps_them_secret(tmp_path, mask):
    write_text(tmp_path / "text", "numbers")
    append_text(tmp_path / "log", "one\n")
    append_text(tmp_path / "log", "two\n")
    save_figure(Figure(), tmp_path / "picture.svg")
    make_private(tmp_path / "folder")
    with exclusive_use(tmp_path / "lock"):
        assert mode(tmp_path / "lock") == 0o600
    with output_folder(tmp_path / "model", "model") as partial:
        (partial / "part").mkdir()
        (partial / "part" / "file").write_text("numbers")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"
    for path in tmp_path.rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


WRITES = {"write_text", "write_bytes", "touch", "mkdir", "to_csv", "to_parquet", "savez", "savefig", "chmod"}
# These write into a temporary file or folder that `atomic_file`, `output_folder` or an import (mode 0700) gave them.
INTO_WHAT_IS_GIVEN = {
    "datasets/text_files.py",
    "private/releases.py",
    "cli/modelling.py",
    "attacks/membership/shadow_models.py",
    "data/trace_set.py",
    "evaluation/plots/style.py",
    "exports/formats.py",
    "gibbs/run.py",
    "jobs/steps.py",
    "runtime/folders.py",
    "synthesizers/model_folder.py",
}
# And these nothing that stays: a text, a file of the system.
NO_FILE = {"jobs/compare.py", "evaluation/report/page.py", "runtime/memory.py"}


def writes(tree: ast.AST) -> bool:
    """Whether a module calls what makes or fills a file; by the names of functions, and the modes of `open`."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        texts = [
            each.value for each in ast.walk(call) if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        is_own = isinstance(call.func, ast.Name) and name in WRITES  # `write_text` of `runtime.files`
        if (name in WRITES and not is_own) or (name == "open" and any(set(text) & set("wax+") for text in texts[:2])):
            return True
    return False


def test_every_file_is_written_through_one_module():
    """Who opens a file past it makes one that others may read, or follows a link: write through `runtime.files`."""
    package = Path(runtime.__file__).parents[1]
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if writes(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - {"runtime/files.py"} == INTO_WHAT_IS_GIVEN | NO_FILE


# Nothing is put into a folder that this program wrote

PUTTING: dict[str, Callable[[Path], object]] = {
    "text": lambda path: write_text(path, "numbers"),
    "lines": lambda path: append_text(path, "numbers"),
    "picture": lambda path: save_figure(Figure(), path.with_suffix(".svg")),
    "lock": lambda path: exclusive_use(path).__enter__(),
    "private folder": make_private,
    "folder": lambda path: output_folder(path, "model").__enter__(),
    "check of a file": lambda path: check_output_file(path, overwrite=True, is_ours=lambda _: True, what="one"),
    "check of a folder": lambda path: check_output_folder(path, "model", overwrite=True),
}


@pytest.mark.parametrize("where", ["release/x", "release/part/x", "link/x", "release/new/deep/x", "release/file"])
@pytest.mark.parametrize("put", PUTTING.values(), ids=PUTTING)
def test_nothing_is_put_into_what_this_program_wrote(tmp_path, monkeypatch, where, put):
    with output_folder(tmp_path / "release", "release", public=True) as partial:
        (partial / "part").mkdir()
        for name in ("file", "part/file"):
            (partial / name).write_text("released")
    (tmp_path / "link").symlink_to("release")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="a place outside the folders that this program wrote; found one in /"):
        put(Path(where))
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "release" / "file").read_text() == "released"


# Somebody else plants something


def plant(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something at a path that the user did not put there; gives the file that would be hit."""
    treasure = path.with_name("treasure")
    treasure.write_text("mine")
    treasure.chmod(0o600)
    if kind == "a link":
        path.symlink_to(treasure)
    elif kind == "a link to nothing":
        path.symlink_to(path.with_name("nothing"))
    elif kind == "another name":
        path.hardlink_to(treasure)
    elif kind == "a pipe":
        os.mkfifo(path)
    else:
        path.write_text("planted")
        path.chmod(0o600)
    if kind == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    return treasure


KINDS = {
    "a link": "found a link",
    "a link to nothing": "found a link",
    "another name": "found a file that has another name too",
    "a pipe": "found no file",
    "another user's": "found a file of another user",
}
TAKING: dict[str, Callable[[Path], object]] = {
    "lock": lambda path: exclusive_use(path).__enter__(),
    "lines": lambda path: append_text(path, "numbers"),
    "reading": read_own,
}


@needs_owners
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("take", TAKING.values(), ids=TAKING)
def test_what_somebody_else_planted_is_refused_and_nothing_is_touched(tmp_path, monkeypatch, kind, take):
    treasure = plant(kind, tmp_path / "planted", monkeypatch)
    with pytest.raises(InputError, match=KINDS[kind]):
        take(tmp_path / "planted")
    assert treasure.read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


@needs_owners
def test_what_others_may_write_to_is_not_read(tmp_path):
    write_text(tmp_path / "kept", "ours")
    assert read_own(tmp_path / "kept") == b"ours"
    for writable in (0o602, 0o620):
        (tmp_path / "kept").chmod(writable)
        with pytest.raises(InputError, match="a file that others may write to"):
            read_own(tmp_path / "kept")


@needs_owners
def test_a_file_that_replaces_a_planted_link_does_not_follow_it(tmp_path, monkeypatch):
    treasure = plant("a link", tmp_path / "made", monkeypatch)
    write_text(tmp_path / "made", "numbers")
    assert (treasure.read_text(), (tmp_path / "made").is_symlink()) == ("mine", False)


@needs_owners
@pytest.mark.parametrize("is_link", [False, True])
def test_a_private_folder_of_somebody_else_is_refused(tmp_path, monkeypatch, is_link):
    folder = tmp_path / "private"
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "theirs").chmod(0o755)
    folder.symlink_to("theirs") if is_link else (tmp_path / "theirs").rename(folder)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(InputError, match="a folder of yours; found one of another user"):
        make_private(folder)
    assert mode(folder.resolve()) == 0o755


def test_a_file_in_the_place_of_a_private_folder_is_left_as_it_is(tmp_path):
    write_text(tmp_path / "private", "mine")
    with pytest.raises(InputError, match="a place that can be written to"):
        make_private(tmp_path / "private")
    assert ((tmp_path / "private").read_text(), mode(tmp_path / "private")) == ("mine", 0o600)


def test_a_lock_that_a_killed_process_left_is_taken_over(tmp_path):
    (tmp_path / "lock").write_text("process 1 on a machine with a very long name that no longer runs")
    with exclusive_use(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
        with pytest.raises(InputError, match=f"process {os.getpid()} .* at work"), exclusive_use(tmp_path / "lock"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_stays_is_told_with_the_number_of_its_files(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "old" / "train"
    folder.mkdir(parents=True)
    for name in ("traces.parquet", "places.parquet"):
        (folder / name).touch()
    # As where the folder may not be written to; the root user may always.
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refused)
        patch.setattr(os, "rmdir", refused)
        with pytest.raises(InputError, match="2 files stay"):
            remove(folder.parent)
        partial = files.leftover(tmp_path / "model", "partial")
        files.create_private(partial)
        write_text(partial / "model.npz", "numbers")
        patch.setattr(files, "_unfinished", {partial})
        files.remove_unfinished()
        assert str(partial) in capsys.readouterr().err
    remove(folder.parent)
    remove(folder.parent)
    assert not folder.parent.exists()


def refused(path: object, *, dir_fd: int | None = None) -> None:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_array_that_is_marked_as_encrypted_is_refused(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, user=np.zeros(3))
    content = bytearray(path.read_bytes())
    # The flags of the member, in its own header and in the archive's table.
    content[6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"as NumPy stores them, .*'user'"):
        read_arrays(path, ["user"])
