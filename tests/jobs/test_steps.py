"""Steps refuse folders that do not belong together."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import Evaluation
from ppmtf_jax.jobs.steps import (
    fit_model,
    release_traces,
    run_privacy_test,
    synthesize_traces,
)
from ppmtf_jax.privacy.release import load_with_key
from ppmtf_jax.runtime.lineage import column_of
from tests.commands import refused, works


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Folders of one run, and training data of another: the same users and places, other events."""
    folder = tmp_path_factory.mktemp("steps")
    train, test = toy_city(n_users=40, n_places=10, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    train.save(folder / "train")
    test.save(folder / "test")
    replace(train, place=train.place[::-1].copy()).save(folder / "other")
    fit_model(folder / "train", folder / "model", "uniform")
    synthesize_traces(folder / "model", folder / "synthetic")
    run_privacy_test(folder / "model", folder / "synthetic", folder / "verdicts")
    release_traces(folder / "synthetic", folder / "verdicts", folder / "release", folder / "key")
    return folder


def evaluate(made: Path, traces: str, train: str, *words: object) -> list[object]:
    return ["evaluate", made / traces, "--train", made / train, "--test", made / "test", *words]


@pytest.mark.parametrize(("traces", "key"), [("synthetic", ()), ("release", ("--key", "key"))])
def test_traces_are_not_measured_against_data_that_they_were_not_made_from(made, monkeypatch, traces, key):
    monkeypatch.chdir(made)
    said = " ".join(refused(*evaluate(made, traces, "other", *key)).split())
    assert re.search(r"training set and \S+ of the same training traces; found those of different", said)


def test_an_evaluation_tells_what_was_measured(made, tmp_path):
    file = tmp_path / "metrics.json"
    works(*evaluate(made, "release", "train", "--key", made / "key", "--no-attacks", "--json", file))
    train, test = Traces.load(made / "train"), Traces.load(made / "test")
    assert Evaluation.from_json(file.read_text()).lineage == {
        "training traces": train.digest,
        "test traces": test.digest,
        column_of("released"): load_with_key(made / "release", made / "key", train).digest,
    }
