"""The command colocate: what it writes, and that its statement says what holds."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import pytest

from ppmtf_jax.cli import modelling
from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import Evaluation
from ppmtf_jax.noise.mechanisms import SeededNoise
from ppmtf_jax.runtime.files import write_text
from ppmtf_jax.synthesizers.synthesis import fit
from tests.commands import refused, works
from tests.noise.sources import Recorded

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
    said = works("colocate", folder / "city", "--out", out, *FRIENDS, *words)
    return said, json.loads((out / "privacy.json").read_text()), (out / "PRIVACY_DETAILS.txt").read_text()


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
    assert "epsilon 10.8 in total" in said
    assert "30 meetings drawn" in said
    assert f"{len(find_colocations(traces, FriendGraph.of(traces)))} co-locations of friends in total" in said
    flat = " ".join(text.split())
    assert "epsilon 10.8" in flat
    for sentence in (*statement["protected"], *statement["not_protected"], statement["neighbours"]):
        assert sentence in flat
    assert max(map(len, text.splitlines())) <= 80


def test_what_does_not_hold_is_not_claimed(made, tmp_path, monkeypatch):
    monkeypatch.chdir(made)
    said, statement, text = colocate(made, tmp_path / "friends", "--model", "tpm")
    reason = "the ledger does not cover what the model reveals about them"
    assert not statement["private"]
    assert statement["protected"] == []
    for told in (reason, "0.5-differentially private"):
        assert any(told in sentence for sentence in statement["not_protected"])
    assert "NOT differentially private" in said
    assert "Nothing that could be stated" in text
    assert "NOT PRIVATE" in text


def test_a_folder_made_with_seeded_noise_says_that_it_is_not_private(made, tmp_path, monkeypatch):
    monkeypatch.setattr(modelling, "SecureNoise", lambda: SeededNoise(1))
    for name in ("first", "again"):
        _, statement, text = colocate(made, tmp_path / name, "--seed", "0")
    assert (statement["private"], statement["protected"]) == (False, [])
    assert "NOT PRIVATE" in text
    places = [Traces.load(tmp_path / name).place for name in ("first", "again")]
    assert (places[0] == places[1]).all()


def test_help_of_the_seed_does_not_promise_that_noise_repeats():
    said = works("colocate", "--help", columns=300)
    assert "Seed of all draws except the noise, which has none" in said
    assert "The same seed gives the same result" not in said


def ledger_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.ledger.jsonl")


def ledger_lines(out: Path) -> list[dict]:
    ledger = ledger_of(out)
    assert stat.S_IMODE(ledger.stat().st_mode) == 0o600
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def test_what_a_repeated_run_costs_is_added(made, tmp_path):
    """Earlier friends are replaced on request; their numbers were drawn nevertheless."""
    out = tmp_path / "friends"
    _, statement, _ = colocate(made, out)
    assert (statement["epsilon"], statement["earlier_runs"]["n"]) == (12, 0)
    said, statement, text = colocate(made, out, "--overwrite")
    assert Traces.load(out).n_users == 40
    assert statement["epsilon"] == 24
    assert statement["earlier_runs"] == {"n": 1, "epsilon": 12, "delta": 0, "bounded": True}
    assert "epsilon 24 in total with 1 earlier run of epsilon 12" in said
    flat = " ".join(text.split())
    assert "with epsilon 12, the sum over all mechanisms" in flat
    assert "if everything that 1 earlier run drew is counted too: with epsilon 24" in flat
    assert len(ledger_lines(out)) == 2 * (1 + 3)


def test_a_run_that_fails_has_spent_what_it_drew(made, tmp_path):
    out = tmp_path / "friends"
    # Chance alone makes more than 30 co-locations, which is known when all is drawn.
    refused("colocate", made / "city", "--out", out, *FRIENDS, "--subtract-chance")
    assert not out.exists()
    assert [line["loss"]["epsilon"] for line in ledger_lines(out) if "loss" in line] == ["10", "1", "1"]
    _, statement, _ = colocate(made, out)
    assert (statement["epsilon"], statement["earlier_runs"]["n"]) == (24, 1)


def test_what_is_refused_before_anything_is_drawn_costs_nothing(made, tmp_path):
    colocate(made, tmp_path / "friends")
    before = ledger_of(tmp_path / "friends").read_bytes()
    assert "a name that is free" in refused("colocate", made / "city", "--out", tmp_path / "friends", *FRIENDS)
    assert ledger_of(tmp_path / "friends").read_bytes() == before


def test_every_loss_is_written_down_before_its_noise_is_drawn(made, tmp_path, monkeypatch):
    class LooksIntoTheLedger(Recorded):
        def add_laplace(self, values, sensitivity, epsilon):
            seen.append(sum("loss" in line for line in ledger_lines(tmp_path / "friends")))
            return super().add_laplace(values, sensitivity, epsilon)

    seen: list[int] = []
    monkeypatch.setattr(modelling, "SecureNoise", LooksIntoTheLedger)
    colocate(made, tmp_path / "friends", "--mechanism", "laplace", "--seed", "0")
    assert seen == [1, 2, 3]


def test_earlier_runs_that_nothing_bounds_are_told(made, tmp_path):
    _, statement, _ = colocate(made, tmp_path / "friends", "--model", str(made / "tpm"))
    _, statement, _ = colocate(made, tmp_path / "friends", "--overwrite")
    assert statement["private"]
    assert not any("Together with" in sentence for sentence in statement["protected"])
    [told] = (sentence for sentence in statement["not_protected"] if "their epsilon bounds nothing" in sentence)
    for reason in ("a model that was given", "noise from a seed", "a limit by the greedy rule"):
        assert reason in told


def test_the_folder_has_no_seed_and_the_ledger_beside_it_has(made, tmp_path):
    seed = 2**100 + 12345
    colocate(made, tmp_path / "friends", "--seed", str(seed))
    assert not any(str(seed).encode() in file.read_bytes() for file in (tmp_path / "friends").iterdir())
    assert ledger_lines(tmp_path / "friends")[0]["seed"] == seed


@pytest.mark.parametrize("content", ["{}", "mine", '{"run": "a", "loss": {"epsilon": "1/0", "delta": "0"}}'])
def test_a_ledger_that_cannot_be_read_is_refused_before_anything_is_drawn(made, tmp_path, content):
    write_text(ledger_of(tmp_path / "friends"), content)
    said = refused("colocate", made / "city", "--out", tmp_path / "friends", *FRIENDS)
    assert "a ledger with a line for each loss; found line 1" in " ".join(said.split())
    assert ledger_of(tmp_path / "friends").read_text() == content


def test_synthetic_friends_are_evaluated_and_nobody_is_looked_for(made, tmp_path):
    colocate(made, tmp_path / "friends")
    city = Traces.load(made / "city")
    for name, half in zip(("train", "test"), city.split_users(0.5, seed=0), strict=True):
        half.save(tmp_path / name)
    call = ["evaluate", tmp_path / "friends", "--train", tmp_path / "train", "--test", tmp_path / "test"]
    said = works(*call, "--json", tmp_path / "numbers.json")
    evaluation = Evaluation.from_json((tmp_path / "numbers.json").read_text())
    undefined = [name for name in evaluation.metrics if math.isnan(evaluation[name])]
    assert undefined == ["group_tv", "reid_rate"]
    assert "synthetic users who stand for nobody" in " ".join(said.split())
    for row in ("Friends meet", "Clustering"):
        assert row in said
