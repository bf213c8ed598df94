"""Things of different runs are told apart by what they were made from."""

from __future__ import annotations

import pytest

from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime import folders
from ppmtf_jax.runtime.folders import check_belong_together, digest_of, digest_of_sources


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
