"""The command colocate: what it writes, and that its statement says what holds."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppmtf_jax.cli.app import app
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.colocation.synthesizer import ColocationSettings
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import Evaluation
from ppmtf_jax.jobs.colocate import colocate_traces
from ppmtf_jax.noise.seeded import SeededNoise
from ppmtf_jax.synthesizers.synthesis import fit

# With 40 users, no friendship at all is then less probable than e^-20.
FRIENDS = ("--epsilon-friendship", "10", "--colocations", "30")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    city = toy_city(n_users=40, n_places=12, n_days=1, seed=0).traces
    city.save(folder / "city")
    fit(city, "tpm", epsilon=0.5, seed=0).save(folder / "tpm")
    return folder


def colocate(folder: Path, out: Path, *words: str) -> tuple[str, dict, str]:
    """What is said, and the statement as JSON and as text."""
    call = ["colocate", str(folder / "city"), "--out", str(out), *FRIENDS, *words]
    result = CliRunner().invoke(app, call, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.stdout, json.loads((out / "privacy.json").read_text()), (out / "PRIVACY.txt").read_text()


def test_a_trace_set_of_friends_and_what_it_cost(made, tmp_path):
    out = tmp_path / "friends"
    said, statement, text = colocate(
        made, out, "--epsilon-colocation", "0.7", "--epsilon-moves", "0.1", "--max-events", "4"
    )
    traces = Traces.load(out)
    assert (traces.n_users, traces.n_events) == (40, 40 * 24)
    assert len(find_colocations(traces, FriendGraph.of(traces))) >= 30
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert (statement["private"], statement["epsilon"], statement["delta"]) == (True, 10.8, 0)
    (relation,) = statement["ledger"]["relations"]
    lines = [(line["epsilon"], line["sensitivity"]) for line in relation["mechanisms"]]
    assert lines == [(10, 39), (0.7, 4), (0.1, 10)]
    assert "epsilon 10.8 in all" in said
    assert "30 meetings drawn" in said
    assert f"{len(find_colocations(traces, FriendGraph.of(traces)))} co-locations of friends in all" in said
    flat = " ".join(text.split())
    assert "epsilon 10.8" in flat
    for sentence in (*statement["protected"], *statement["not_protected"], statement["neighbours"]):
        assert sentence in flat
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--limit-rule", "greedy"), "one user can change the counts of co-locations by more than the 10"),
        (("--model", "tpm"), "the ledger does not cover what it tells of them"),
    ],
    ids=["greedy", "model"],
)
def test_what_does_not_hold_is_not_claimed(made, tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(made)
    said, statement, text = colocate(made, tmp_path / "friends", *words)
    assert not statement["private"]
    assert statement["protected"] == []
    assert any(reason in sentence for sentence in statement["not_protected"])
    assert "NOT differentially private" in said
    assert "Nothing that could be stated" in text
    assert "NOT PRIVATE" in text


def test_a_folder_made_with_seeded_noise_says_that_it_is_not_private(made, tmp_path):
    settings = ColocationSettings(epsilon_friendship=10.0, n_colocations=30)
    for name in ("first", "again"):
        colocate_traces(made / "city", tmp_path / name, settings, noise=SeededNoise(1), seed=0)
    statement = json.loads((tmp_path / "first" / "privacy.json").read_text())
    assert (statement["private"], statement["protected"]) == (False, [])
    assert "NOT PRIVATE" in (tmp_path / "first" / "PRIVACY.txt").read_text()
    places = [Traces.load(tmp_path / name).place for name in ("first", "again")]
    assert (places[0] == places[1]).all()


def test_help_of_the_seed_does_not_promise_that_noise_repeats():
    said = CliRunner().invoke(app, ["colocate", "--help"], env={"COLUMNS": "300"}).stdout
    assert "Of all draws but the noise, which no seed repeats" in said
    assert "The same seed gives the same result" not in said


def test_a_model_under_differential_privacy_says_what_it_cost(made, tmp_path):
    _, statement, _ = colocate(made, tmp_path / "friends", "--model", str(made / "tpm"))
    assert any("0.5-differentially private" in sentence for sentence in statement["not_protected"])


def test_earlier_friends_are_replaced_on_request(made, tmp_path):
    colocate(made, tmp_path / "friends")
    colocate(made, tmp_path / "friends", "--overwrite")
    assert Traces.load(tmp_path / "friends").n_users == 40


def test_synthetic_friends_are_evaluated_and_nobody_is_looked_for(made, tmp_path):
    colocate(made, tmp_path / "friends")
    city = Traces.load(made / "city")
    for name, half in zip(("train", "test"), city.split_users(0.5, seed=0), strict=True):
        half.save(tmp_path / name)
    call = ["evaluate", tmp_path / "friends", "--train", tmp_path / "train", "--test", tmp_path / "test"]
    call += ["--json", tmp_path / "numbers.json"]
    result = CliRunner().invoke(app, [str(word) for word in call], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    evaluation = Evaluation.from_json((tmp_path / "numbers.json").read_text())
    undefined = [name for name in evaluation.metrics if math.isnan(evaluation[name])]
    assert undefined == ["group_fidelity", "reid_rate"]
    assert "synthetic users who stand for nobody" in " ".join(result.stdout.split())
    for row in ("Friends meet", "Clustering"):
        assert row in result.stdout
