"""`ppmtf export` as a careful and as a careless person uses it."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.commands import refused, works


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    """The folder of what was made; files are written into another."""
    monkeypatch.chdir(made)
    return tmp_path


def is_secret(file: Path) -> bool:
    return stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_release_can_be_exported_for_anyone(here):
    out = here / "traces.geojson"
    said = works("export", "traces", "released", "--out", out)
    assert f"all 64 traces, 1536 events, in {out}" in said
    assert "anyone may read the file" in said
    assert "Times are nominal, by the clocks of UTC" in said
    content = json.loads(out.read_text(encoding="utf-8"))
    released = Traces.load("released")
    assert [each["properties"]["place"] for each in content["features"]] == released.to_frame()["place"].tolist()
    assert content["features"][0]["properties"]["user"] == released.user_ids[0]
    assert not is_secret(out)
    works("export", "population", "released", "--out", here / "population.parquet")
    assert not is_secret(here / "population.parquet")


def test_real_counts_are_told_and_are_for_the_owner_alone(here):
    out = here / "population.csv"
    said = works("export", "population", "released", "--real", "city/train", "--out", out)
    assert "REAL DATA" in said
    assert is_secret(out)
    table = pd.read_csv(out)
    real, released = Traces.load("city/train"), Traces.load("released")
    assert (table["real_events"].sum(), table["synthetic_events"].sum()) == (real.n_events, released.n_events)
    # Places of a release are in another order.
    for name, traces in (("real", real), ("synthetic", released)):
        counted = table.groupby("place")[f"{name}_events"].sum()
        assert counted[counted > 0].to_dict() == traces.to_frame()["place"].value_counts().to_dict()
    assert table["time"].str[:10].unique().tolist() == ["2001-01-01"]
    works("export", "population", "city/train", "--out", here / "real.csv")
    assert is_secret(here / "real.csv")
    assert "synthetic_events" not in pd.read_csv(here / "real.csv")


def test_traces_of_real_people_are_never_written_unasked(here):
    out = here / "traces.csv"
    said = refused("export", "traces", "city/train", "--out", out)
    assert "released or synthetic traces; found real ones" in said
    assert "--of-real-people" in said
    assert list(here.iterdir()) == []
    assert "REAL DATA" in works("export", "traces", "city/train", "--of-real-people", "--out", out)
    assert is_secret(out)


def test_completed_and_copied_traces_are_real(here):
    works("complete", "model", "city/train", "--out", here / "whole")
    assert "found real ones" in refused("export", "traces", here / "whole", "--out", here / "x.csv")
    Traces.load("city/train").save(here / "saved")
    assert "found real ones" in refused("export", "traces", here / "saved", "--out", here / "x.csv")


def test_synthetic_traces_that_were_not_tested_are_for_the_owner_alone(here):
    out = here / "traces.mfjson"
    said = works("export", "traces", "synthetic", "--sample", 5, "--out", out)
    assert "5 of 64 traces" in said
    assert "not tested for release: only you can read" in said
    assert is_secret(out)
    first = out.read_bytes()
    works("export", "traces", "synthetic", "--sample", 5, "--out", out, "--overwrite")
    assert out.read_bytes() == first
    works("export", "traces", "synthetic", "--sample", 5, "--out", out, "--overwrite", "--seed", 1)
    assert out.read_bytes() != first


def test_synthetic_friends_stand_for_nobody(here):
    traces = synthesize(fit(Traces.load("city/train"), "uniform"))
    replace(traces, origin=None, of_nobody=True).save(here / "friends")
    said = works("export", "traces", here / "friends", "--out", here / "x.csv")
    assert "synthetic" in said
    assert is_secret(here / "x.csv")


def test_a_release_that_was_changed_is_none(here, made):
    shutil.copytree(made / "released", here / "changed")
    shutil.copy(made / "city/train/traces.parquet", here / "changed/traces.parquet")
    shutil.copy(made / "city/train/time_grid.json", here / "changed/time_grid.json")
    assert "as they were written" in refused("export", "traces", here / "changed", "--out", here / "x.csv")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("traces released --out x.csv --format geojson", "ends in .geojson for geojson; found .csv"),
        ("traces released --out x.csv --sample 0", "of at least 1; found 0"),
        ("traces released --out model/nowhere.csv/x.csv --sample a", "Invalid value for '--sample'"),
        ("traces nowhere --out x.csv", "nowhere: expected a trace-set folder"),
        ("traces released", "Missing option '--out'"),
        ("population released --out x.mfjson", "expected traces; found a population"),
        ("population released --out x.csv --real nowhere", "nowhere: expected a trace-set folder"),
        ("population released --out x.csv --sample 3", "No such option"),
    ],
)
def test_careless_use_is_refused_and_leaves_nothing(here, made, line, message):
    before = sorted(made.rglob("*"))
    assert message in " ".join(refused("export", *line.split()).split())
    assert sorted(made.rglob("*")) == before
