"""The command attack: what it says and writes, and what it refuses."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli.app import app
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.synthesizers.synthesis import fit, synthesize


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "city"
    toy_city(n_users=24, n_places=12, n_days=4, seed=0).traces.save(folder)
    return folder


def attack(*words: object):
    return CliRunner().invoke(app, ["attack", *map(str, words)], env={"COLUMNS": "80"})


def test_reidentification_of_real_traces(city, tmp_path):
    found, picture = tmp_path / "found.json", tmp_path / "curves.svg"
    words = ("reidentify", city, "--estimator", "ml", "--estimator", "ml floor=1e-3", "--known-share", "0.4")
    result = attack(*words, "--json", found, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "12 target users, 12 strangers" in result.stdout
    assert "Right user: of all 12; by chance 8.33%" in " ".join(result.stdout.split())
    content = json.loads(found.read_text())
    assert content["settings"]["known_share"] == 0.4
    assert {each["estimator"] for each in content["attacks"]} == {"ml", "ml floor=1e-3"}
    assert f"{content['attacks'][0]['each']['auc']:.3f}" in result.stdout
    assert "all traces of a user together" in picture.read_text()
    refused = attack(*words, "--json", found)
    assert refused.exit_code == 1
    assert "name that is free" in refused.output
    assert attack(*words, "--json", found, "--plot", picture, "--overwrite", "--quiet").exit_code == 0


def test_synthetic_traces_are_attacked_with_all_that_is_real(city, tmp_path):
    result = attack("reidentify", city, "--released", city, "--estimator", "ml")
    assert result.exit_code == 0, result.output
    assert "24 target users, 0 strangers" in result.stdout
    assert "✕ Poor: The right person is named for" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--key", "key"), "a release beside its key"),
        (("--released", "CITY", "--key", "key"), "a release, which a key is for"),
        (("--estimator", "magic"), "one of ml"),
        (("--known-share", "1"), "known_share between 0 and 1"),
        (("--plot", "curve.txt"), "a name that ends in"),
    ],
)
def test_what_cannot_be_attacked_is_refused(city, words, message):
    result = attack("reidentify", city, *(str(city) if word == "CITY" else word for word in words))
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


@pytest.fixture(scope="module")
def halves(city) -> dict[str, Path]:
    """Training and test users, and traces that are the training users'."""
    folders = {name: city.with_name(name) for name in ("train", "test", "copy")}
    train, test = Traces.load(city).split_users(0.5, seed=0)
    for name, traces in zip(folders, (train, test, train), strict=True):
        traces.save(folders[name])
    return folders


def real(halves: dict[str, Path]) -> list[object]:
    return ["--train", halves["train"], "--test", halves["test"]]


def test_membership_of_copied_traces_is_found(halves, tmp_path):
    found, picture = tmp_path / "found.json", tmp_path / "curves.png"
    words = ["membership", halves["copy"], *real(halves), "--attack", "density_ratio density=kernel"]
    result = attack(*words, "--json", found, "--plot", picture)
    assert result.exit_code == 0, result.output
    assert "✕ Poor: Of a training user and another" in result.stdout
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    content = json.loads(found.read_text())["attacks"]["density_ratio density=kernel"]
    assert content["auc"]["value"] > 0.9
    assert len(content["exposed"]["user_ids"]) == 2
    assert picture.stat().st_size > 1000
    # Six others are too few to know what one false alarm in a hundred gives.
    assert " - " in result.stdout


def test_all_membership_attacks_and_shadow_models_of_the_model(halves, tmp_path):
    model = fit(Traces.load(halves["train"]), "uniform", seed=0)
    model.save(tmp_path / "model")
    synthesize(model, seed=0).save(tmp_path / "made")
    words = [*real(halves), "--model", tmp_path / "model", "--json", tmp_path / "a.json", "--quiet"]
    refused = attack("membership", halves["copy"], *words)
    assert refused.exit_code == 1
    assert "expected traces made by the model; found others" in " ".join(refused.output.split())
    result = attack("membership", tmp_path / "made", *words)
    assert result.exit_code == 0, result.output
    attacks = json.loads((tmp_path / "a.json").read_text())["attacks"]
    assert {name.split()[0] for name in attacks} == {"likelihood_ratio", "density_ratio", "shadow_models"}


def test_points_and_copies(city, halves, tmp_path):
    alone = attack("unicity", city)
    assert alone.exit_code == 0, alone.output
    assert "Longest run" not in alone.stdout
    beside = attack("unicity", halves["copy"], *real(halves), "--json", tmp_path / "points.json")
    assert beside.exit_code == 0, beside.output
    content = json.loads((tmp_path / "points.json").read_text())
    assert content["nearest_share"]["mean"] == 1.0
    assert "nearest training trace has too: 1.00" in " ".join(beside.stdout.split())
    assert len(content["unicity"]) == 5


def test_half_of_what_is_needed_is_refused(halves):
    result = attack("unicity", halves["copy"], "--train", halves["train"])
    assert result.exit_code == 1
    assert "training and test traces, or neither" in result.output
    result = attack("membership", halves["copy"], "--train", halves["train"], "--test", halves["train"])
    assert result.exit_code == 1
    assert "test users who are not training users" in " ".join(result.output.split())
