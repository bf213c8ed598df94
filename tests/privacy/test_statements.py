"""What a release says about itself: one screen with the promise, the details, and the data sheet."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.jobs.steps import fit_model, release_traces, run_privacy_test, synthesize_traces
from ppmtf_jax.privacy.own_test import load_verdicts, privacy_test
from ppmtf_jax.privacy.release_plan import ReleasePlan, ReleaseSettings, plan_release
from ppmtf_jax.privacy.release_texts import datasheet_text, statement_texts
from ppmtf_jax.privacy.semantic_test import SemanticVerdicts
from ppmtf_jax.privacy.statement import point
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit, synthesize

MOST_WORDS, MOST_LINES, COLUMNS = 310, 34, 80
EVERY_PLACE = ReleaseSettings(min_users_per_place=1)
QUICK = {"rank": 4, "zeros": "weighted", "n_zeros": 50, "n_sweeps": 5}
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "bridge": ("bridge", {"min_cluster_users": 10, "n_clusters": 2, "memory": "none"}),
    "ppmtf": ("ppmtf", QUICK),
    "ppmtf population": ("ppmtf", QUICK | {"proposal_mix": 1.0, "population_epsilon": 1.0}),
    "sglt": ("sglt", {"remove_true_prob": 0.5}),
    "sgd": ("sgd", {"n_copied": 1}),
    "tpm": ("tpm", {}),
    "uniform": ("uniform", {}),
    "private": ("private", {"public_places": True, "epsilon": 8.0}),
}
pytestmark = pytest.mark.filterwarnings("ignore:fit. the noisy sums suggest too few users")


@pytest.fixture(scope="module")
def train() -> Traces:
    """Traces of 40 users without gaps."""
    city = toy_city(n_users=40, n_places=12, n_days=1, seed=0).traces
    return synthesize(fit(city, "sgd", seed=0), seed=0)


@pytest.fixture(scope="module")
def made(train) -> Callable[[str], tuple[FittedModel, ReleasePlan]]:
    found: dict[str, tuple[FittedModel, ReleasePlan]] = {}

    def make(name: str) -> tuple[FittedModel, ReleasePlan]:
        if name not in found:
            system, settings = SYSTEMS[name]
            model = fit(train, system, **settings)
            synthetic = synthesize(model, people=30) if model.of_nobody else synthesize(model)
            by = model if model.of_nobody else privacy_test(model, synthetic, k=2)
            found[name] = model, plan_release(synthetic, by, None if model.of_nobody else EVERY_PLACE)
        return found[name]

    return make


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_promise_is_on_one_screen_and_rules_are_no_promise(made, name):
    model, release = made(name)
    page, details = statement_texts(release.statement)
    assert page.startswith("WHAT THESE SYNTHETIC")
    assert len(page.split()) <= MOST_WORDS
    assert len(page.splitlines()) <= MOST_LINES
    assert max(map(len, [*page.splitlines(), *details.splitlines()])) <= COLUMNS
    in_full = " ".join(details.split())
    for rule in map(point, model.claims().rules):
        assert rule not in " ".join(page.split())
        assert rule in in_full
    # Every point stands in the details in full.
    stated = [*release.statement["protected"], *release.statement["not_protected"]]
    assert [each for each in stated if each not in in_full] == []
    promised = " ".join(release.statement["protected"])
    assert not any(rule in promised for rule in map(point, model.claims().rules))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_release_quotes_no_measurement_of_other_data_and_counts_households(made, name):
    text = " ".join(" ".join(statement_texts(made(name)[1].statement)).split())
    assert "AUC" not in text
    assert "people flow" not in text
    assert "no attack was tried on these traces" in text
    assert "household" in text


def test_bridge_has_rules(made):
    assert made("bridge")[1].statement["rules"]


# Settings that were left out: what that means, by the model.
IN_WORDS = {
    "bridge": {"n_clusters": "2", "memory": "none", "gaps": "none"},
    "ppmtf": {"population_epsilon": "not used", "max_count": "10"},
    "ppmtf population": {"population_epsilon": "1.0"},
    "sglt": {"n_clusters": "3"},
    "private": {"prior": "none", "anchors": "none"},
}


@pytest.mark.parametrize("name", IN_WORDS)
def test_the_data_sheet_says_what_settings_mean(made, name):
    _, release = made(name)
    said = release.statement["generator"]["settings_in_words"]
    assert IN_WORDS[name].items() <= said.items()
    sheet = " ".join(datasheet_text(release).split())
    assert all(f"{key} = {value}" in sheet for key, value in IN_WORDS[name].items())
    assert "chosen automatically" not in sheet
    # Settings of shadow models and of reports stay as they were given.
    assert release.statement["generator"]["settings"].keys() == said.keys()


def test_settings_that_the_fit_chose_are_told_from_the_model(train):
    """Twin: "auto" and None, as they were set."""
    model = fit(train, "bridge", min_cluster_users=10, n_clusters=2)
    assert model.settings["memory"] == model.settings["gaps"] == "auto"
    said = model.claims().settings
    assert said["memory"] in ("none", "places", "anchors")
    assert said["gaps"] == "none"
    assert said["chosen"] == "by the likelihood of held-out users"
    unset = replace(model, settings=model.settings | {"n_clusters": None}).claims().settings
    assert unset["n_clusters"] == "chosen by the likelihood of held-out users"


@pytest.mark.parametrize(("name", "k", "passes"), [("bridge", 10, True), ("bridge", 40, False), ("ppmtf", 2, False)])
def test_passing_by_construction_is_said(made, train, name, k, passes):
    """The bridge has two clusters of at least ten users, and every user of PPMTF has a law of their own."""
    model, _ = made(name)
    synthetic = synthesize(model)
    verdicts = privacy_test(model, synthetic, k=k)
    assert verdicts.passes_by_construction == passes
    if not passes:
        return
    assert verdicts.passed.all()
    statement = plan_release(synthetic, verdicts, EVERY_PLACE).statement
    least = int(np.bincount(np.asarray(model.trace_model.cluster)).min())
    assert f"at least {least} users share one law" in statement["by_construction"]
    for text in statement_texts(statement):
        assert "by construction" in text
    assert not privacy_test(model, synthetic, k=2, n_verifiers=20).passes_by_construction


# SGLT, whose test is another one


def test_sglt_goes_from_fit_to_release(tmp_path, train):
    train.save(tmp_path / "train")
    fit_model(tmp_path / "train", tmp_path / "model", "sglt", seed=0)
    synthesize_traces(tmp_path / "model", tmp_path / "synthetic", seed=0)
    settings = {"k": 3, "max_intersection": 0.2}
    verdicts = run_privacy_test(tmp_path / "model", tmp_path / "synthetic", tmp_path / "verdicts", settings)
    assert 0 < verdicts.n_passed < verdicts.n_traces
    again = load_verdicts(tmp_path / "verdicts")
    assert isinstance(again, SemanticVerdicts)
    assert again.lineage == verdicts.lineage
    release = release_traces(
        tmp_path / "synthetic", tmp_path / "verdicts", tmp_path / "r", tmp_path / "key", EVERY_PLACE
    )
    assert release.n_traces == verdicts.n_passed
    statement = json.loads((tmp_path / "r" / "privacy.json").read_text())
    assert statement["parameters"]["max_intersection"] == 0.2
    assert statement["parameters"]["k"] == 3
    # What the test does not bound is the first thing that is not promised.
    assert statement["not_protected"][0].startswith("From whom a trace was made")
    assert not any("From whom" in each for each in statement["protected"])


def test_pass_rates_of_sglt_respect_its_other_conditions(made):
    model, _ = made("sglt")
    verdicts = privacy_test(model, synthesize(model, seed=3), k=1, max_intersection=0.1)
    k = np.arange(1, 12)
    expected = [(verdicts.may_pass & (verdicts.plausible_users >= each)).mean() for each in k]
    np.testing.assert_allclose(verdicts.pass_rates(k), expected)
    assert verdicts.pass_rates(k[:1])[0] == verdicts.passed.mean() < 1
