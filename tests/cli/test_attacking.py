"""The command attack: what it says and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli.app import app
from ppmtf_jax.datasets.toy_city import toy_city


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
    assert "Traces give their users away" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--key", "key"), "a release beside its key"),
        (("--released", "CITY", "--key", "key"), "a release with its key, or other traces"),
        (("--estimator", "magic"), "one of ml"),
        (("--known-share", "1"), "known_share between 0 and 1"),
        (("--plot", "curve.txt"), "a name that ends in"),
    ],
)
def test_what_cannot_be_attacked_is_refused(city, words, message):
    result = attack("reidentify", city, *(str(city) if word == "CITY" else word for word in words))
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
