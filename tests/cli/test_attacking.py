"""The command attack: what it says and writes, and what it refuses."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppmtf_jax.attacks.membership import shadow_models
from ppmtf_jax.data.description import percent
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.stored_traces import StoredTraces
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import evaluation
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.privacy.release import write_release
from ppmtf_jax.privacy.release_plan import plan_release
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.commands import call, refused


@pytest.fixture(scope="module")
def city(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "city"
    toy_city(n_users=24, n_places=12, n_days=4, seed=0).traces.save(folder)
    return folder


def attack(*words: object) -> str:
    """All that the attack says, on one line."""
    result = call("attack", *words)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def attack_refused(*words: object) -> str:
    return " ".join(refused("attack", *words).split())


def test_reidentification_of_real_traces(city, tmp_path):
    found, picture = tmp_path / "found.json", tmp_path / "curves.svg"
    words = ("reidentify", city, "--estimator", "ml", "--estimator", "ml floor=1e-3", "--known-share", "0.4")
    result = attack(*words, "--json", found, "--plot", picture)
    rules = {
        float(rate): each for rate, each in json.loads(found.read_text())["attacks"][0]["each"]["open_world"].items()
    }
    assert set(rules) == {0.001, 0.01, 0.1}
    said = (
        f"(here {percent(rules[0.01]['pair_false'], 1)}), a target's trace has {rules[0.01]['n_candidates']:.1f} candi"
    )
    assert said in result
    assert "12 target users, 12 strangers" in result
    assert "names the right one of 12 (a guess: 8.33 %)" in " ".join(result.split())
    content = json.loads(found.read_text())
    assert content["settings"]["known_share"] == 0.4
    assert {each["estimator"] for each in content["attacks"]} == {"ml", "ml floor=1e-3"}
    assert f"{content['attacks'][0]['each']['auc']:.3f}" in result
    assert "all traces of a user together" in picture.read_text()
    assert "name that is free" in attack_refused(*words, "--json", found)
    attack(*words, "--json", found, "--overwrite", "--quiet")


def test_hidden_places_are_inferred_beside(city, tmp_path):
    found = tmp_path / "found.json"
    words = ("reidentify", city, "--estimator", "ml", "--deleted", 3, "--json", found)
    result = attack(*words, "--deletion", "random")
    assert "De-obfuscation" in result
    assert "Hidden places are inferred right for" in result.replace("\u00a0", " ")
    (attacked,) = json.loads(found.read_text())["attacks"]
    right, km, right_of_others, _ = attacked["hidden"]["Model of the person named"]
    assert 0 < right_of_others <= 1
    assert f"{100 * right:.1f}" in result
    assert f"{km:.2f}" in result
    # The worst places are deleted from target users alone.
    assert "De-obfuscation" not in attack(*words, "--deletion", "worst", "--overwrite")


def test_synthetic_traces_are_attacked_with_all_that_is_real(city, tmp_path):
    result = attack("reidentify", city, "--released", city, "--estimator", "ml")
    assert "24 target users, 0 strangers" in result
    assert "✕ Poor: " in result


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--key", "key"), "a release beside its key"),
        (("--released", "CITY", "--key", "key"), "a release, which a key is for"),
        (("--estimator", "magic"), "one of ml"),
        (("--known-share", "1"), "known_share as a number above 0 and below 1"),
        (("--plot", "curve.txt"), "a name that ends in"),
        (("--group-map", "map.txt"), "a name that ends in"),
        (("--group-map", "map.png", "--estimator", "ml"), "the estimator gstf, which has groups; found ml"),
        (("--group-map", "map.png", "--plot", "map.png"), "a file of its own; found that of --plot"),
    ],
)
def test_what_cannot_be_attacked_is_refused(city, words, message):
    assert message in attack_refused("reidentify", city, *(str(city) if word == "CITY" else word for word in words))


def test_users_of_groups_are_drawn_for_the_owner_alone(city, tmp_path):
    picture = tmp_path / "groups.svg"
    result = attack("reidentify", city, "--estimator", "gstf beta=0.1 rank=2 n_sweeps=2 q=inf", "--group-map", picture)
    assert "candidates" in result
    assert "% of events" in picture.read_text()
    assert stat.S_IMODE(picture.stat().st_mode) == 0o600


def test_groups_of_places_without_coordinates_are_refused_before_the_attack(city, tmp_path):
    traces = Traces.load(city)
    nowhere = np.full(traces.n_places, np.nan)
    replace(traces, places=PlaceTable(traces.places.ids, nowhere, nowhere)).save(tmp_path / "nowhere")
    words = ("--estimator", "gstf beta=0.1 rank=2 n_sweeps=2 adjacency_weight=0", "--plot", tmp_path / "curves.svg")
    found = attack_refused("reidentify", tmp_path / "nowhere", *words, "--group-map", tmp_path / "groups.svg")
    assert "places with coordinates" in found
    assert "learning" not in found


@pytest.fixture(scope="module")
def halves(city) -> dict[str, Path]:
    """Training and test users, and traces that are the training users'."""
    folders = {name: city.with_name(name) for name in ("train", "test", "copy")}
    train, test = Traces.load(city).split_users(0.5, seed=0)
    for name, traces in zip(folders, (train, test, train), strict=True):
        traces.save(folders[name])
    return folders


@pytest.fixture(scope="module")
def modelled(halves) -> Path:
    """A folder with a model of the training users and its traces."""
    folder = halves["train"].parent
    model = fit(Traces.load(halves["train"]), "uniform", seed=0)
    model.save(folder / "model")
    synthesize(model, seed=0).save(folder / "made")
    return folder


def real(halves: dict[str, Path]) -> list[object]:
    return ["--train", halves["train"], "--test", halves["test"]]


def test_membership_of_copied_traces_is_found(halves, tmp_path):
    found, picture = tmp_path / "found.json", tmp_path / "curves.png"
    words = ["membership", halves["copy"], *real(halves), "--attack", "density_ratio density=kernel"]
    result = attack(*words, "--json", found, "--plot", picture)
    assert "✕ Poor: 100.0 % of the people are found" in result
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    content = json.loads(found.read_text())["attacks"]["density_ratio density=kernel"]
    assert content["auc"]["value"] > 0.9
    assert len(content["exposed"]) <= content["n_members"]
    assert picture.stat().st_size > 1000
    # Six others are too few to know what one false alarm in a hundred gives.
    assert " - " in result


def attacks_in(file: Path) -> set[str]:
    return {name.split()[0] for name in json.loads(file.read_text())["attacks"]}


def test_all_membership_attacks_and_shadow_models_of_the_model(halves, modelled, tmp_path):
    words = [*real(halves), "--json", tmp_path / "a.json", "--quiet"]
    assert "expected traces made by the model; found others" in attack_refused(
        "membership", halves["copy"], *words, "--model", modelled / "model"
    )
    attack("membership", modelled / "made", *words, "--model", modelled / "model", "--shadows", 6)
    assert attacks_in(tmp_path / "a.json") == {"likelihood_ratio", "density_ratio", "nearest", "shadow_models"}
    # What was kept to go on from is gone.
    assert not list(tmp_path.glob(".*"))
    odd = attack_refused(
        "membership", modelled / "made", *words, "--overwrite", "--model", modelled / "model", "--shadows", 7
    )
    assert "an even n_shadows of at least 6; found 7" in odd
    words[-1] = "--overwrite"  # and not quiet
    assert "are left out because the model that made these traces is not known (see --model)" in attack(
        "membership", modelled / "made", *words
    )


def test_shadow_models_of_a_release_are_made_as_its_statement_says(halves, tmp_path, monkeypatch):
    """By default, without a model or a key; --fast leaves them out, and the test is that of the release."""
    train = Traces.load(halves["train"])
    model = fit(train, "uniform", seed=0)
    synthetic = synthesize(model, traces_per_user=2, seed=0)
    verdicts = plausible_deniability_test(model, synthetic, k=3, eta=0.5)
    write_release(plan_release(synthetic, verdicts, min_users_per_place=1), tmp_path / "release", tmp_path / "key")
    tested = []

    def spied(model, traces, settings, **given):
        tested.append((settings.k, settings.eta, settings.n_verifiers))
        return plausible_deniability_test(model, traces, settings, **given)

    monkeypatch.setattr(shadow_models, "privacy_test", spied)
    monkeypatch.setattr(shadow_models, "all_pass", lambda *_: False)  # otherwise, no test is needed here
    words = ["membership", tmp_path / "release", *real(halves), "--shadows", 6, "--json", tmp_path / "a.json"]
    result = attack(*words)
    assert "shadow_models" in attacks_in(tmp_path / "a.json")
    assert "5 more take about" in result
    assert set(tested) == {(3, 0.5, None)}
    attack(*words, "--fast", "--overwrite")
    assert "shadow_models" not in attacks_in(tmp_path / "a.json")


def test_nothing_is_lost_where_shadow_models_cannot_be_made(halves, modelled, monkeypatch):
    def refused(*_, **__):
        raise InputError("fit", ["more users"])

    monkeypatch.setattr(shadow_models, "fit", refused)
    words = ["--model", modelled / "model", "--attack", "density_ratio"]
    result = attack("membership", modelled / "made", *real(halves), *words)
    assert "are left out: fit: more users" in result
    assert "density_ratio" in result


def test_points_and_copies(city, halves, tmp_path):
    alone = attack("unicity", city)
    assert "nats" not in alone
    beside = attack("unicity", halves["copy"], *real(halves), "--json", tmp_path / "points.json")
    content = json.loads((tmp_path / "points.json").read_text())
    assert content["mean"] > content["held_out_mean"]
    assert 0 <= content["n_copied"] <= content["n_users"]
    assert f"at least {content['n_copied']}" in beside
    assert len(content["unicity"]) == 5


def test_half_of_what_is_needed_is_refused(halves):
    assert "training and test traces, or neither" in attack_refused(
        "unicity", halves["copy"], "--train", halves["train"]
    )
    result = attack_refused("membership", halves["copy"], "--train", halves["train"], "--test", halves["train"])
    assert "test users who are not training users" in result


def test_of_large_sets_a_sample_is_attacked(halves, tmp_path, monkeypatch):
    """The numbers are those of the sample alone, and are said to be so; no large set is in memory as a whole."""
    train, test = (Traces.load(halves[name]) for name in ("train", "test"))
    monkeypatch.setattr(evaluation, "MAX_USERS", test.n_users // 2)
    sets, _ = evaluation.sample_of_users({"training": train, "test": test, "synthetic": train})
    for name, traces in (("train", sets["training"]), ("test", sets["test"]), ("copy", sets["synthetic"])):
        traces.save(tmp_path / name)
    commands = {
        "unicity": ["--test", "test"],
        "membership": ["--test", "test", "--fast", "--attack", "likelihood_ratio"],
        "reidentify": ["--estimator", "ml"],
    }
    for command, words in commands.items():
        found = []
        for folder in (halves["train"].parent, tmp_path):
            given = [folder / word if word == "test" else word for word in words]
            given += [folder / "train", "--released", folder / "copy"] if command == "reidentify" else []
            given += [] if command == "reidentify" else [folder / "copy", "--train", folder / "train"]
            with monkeypatch.context() as patch:
                if folder != tmp_path:
                    patch.setattr(StoredTraces, "in_memory", None)
                said = attack(command, *given, "--json", tmp_path / f"{command}{len(found)}.json")
            found.append(json.loads((tmp_path / f"{command}{len(found)}.json").read_text()))
            assert ("Only a random sample was measured of training" in said) == (folder != tmp_path)
        sampled = found[0].pop("sampled")
        assert sampled["training"] == train.n_users
        for each in (*found[0].get("attacks", ()), *found[1].get("attacks", ())):
            if command == "reidentify":
                del each["seconds"]
        assert found[0] == found[1]
