"""What a release says about itself; a release of traces of nobody has the guarantee of their model first."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppmtf_jax.data.stored_traces import StoredTraces, open_traces, save_in_parts
from ppmtf_jax.data.trace_set import trace_files
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.jobs.steps import fit_model, release_traces, run_privacy_test, synthesize_traces
from ppmtf_jax.privacy.own_test import load_verdicts, privacy_test
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.privacy.release import datasheet_text, is_release, statement_of, write_release
from ppmtf_jax.privacy.release_plan import ReleasePlan, ReleaseSettings, plan_release
from ppmtf_jax.privacy.semantic_test import SemanticTestSettings
from ppmtf_jax.privacy.statements import NOT_PRIVATE, greatest_accuracy, model_statement, point, statement_texts
from ppmtf_jax.private import people as private_people
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.people.examples import try_few_settings
from tests.support import minutes, places_in_line, random_traces
from tests.trace_models.nobody import NOBODY, RELATION, registered_nobody

MAX_WORDS, MAX_LINES, COLUMNS = 310, 34, 80
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
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(private_people, "N_PEOPLE", 100)  # of `private`: whom it is calibrated on changes no word
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
    assert len(page.split()) <= MAX_WORDS
    assert len(page.splitlines()) <= MAX_LINES
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


def test_settings_that_the_fit_chose_are_told_from_the_model(train, monkeypatch):
    """Twin: "auto" and None, as they were set."""
    try_few_settings(monkeypatch)
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
    """The bridge has two clusters of at least ten users, and every user of PPMTF has a distribution of their own."""
    model, _ = made(name)
    synthetic = synthesize(model)
    verdicts = privacy_test(model, synthetic, k=k)
    assert (verdicts.by_construction != "") == passes
    if not passes:
        return
    assert verdicts.passed.all()
    statement = plan_release(synthetic, verdicts, EVERY_PLACE).statement
    least = int(np.bincount(np.asarray(model.trace_model.cluster)).min())
    assert f"at least {least} users share one distribution" in statement["by_construction"]
    for text in statement_texts(statement):
        assert "by construction" in text
    assert not privacy_test(model, synthetic, k=2, n_verifiers=20).by_construction


# SGLT, whose test is another one


def test_sglt_goes_from_fit_to_release(tmp_path, train):
    train.save(tmp_path / "train")
    fit_model(tmp_path / "train", tmp_path / "model", "sglt", seed=0)
    synthesize_traces(tmp_path / "model", tmp_path / "synthetic", seed=0)
    settings = {"k": 3, "max_intersection": 0.2}
    verdicts = run_privacy_test(tmp_path / "model", tmp_path / "synthetic", tmp_path / "verdicts", settings)
    assert 0 < verdicts.n_passed < verdicts.n_traces
    again = load_verdicts(tmp_path / "verdicts")
    assert isinstance(again.settings, SemanticTestSettings)
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
    expected = [(verdicts.settings.may_pass(verdicts.table) & (verdicts.plausible_users >= each)).mean() for each in k]
    np.testing.assert_allclose(verdicts.pass_rates(k), expected)
    assert verdicts.pass_rates(k[:1])[0] == verdicts.passed.mean() < 1


TRAIN = random_traces(0, range(30), places_in_line(3), minutes(4))


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with registered_nobody():
        yield


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return fit(TRAIN, NOBODY, epsilon=2.0, seed=987654321)


@pytest.fixture(scope="module")
def people(model) -> Traces:
    return synthesize(model, people=40, seed=123456789)


def test_a_release_has_the_people_as_they_are(tmp_path, model, people):
    release = plan_release(people, model)
    write_release(release, tmp_path / "released")
    assert is_release(tmp_path / "released")
    assert repr(release) == "Release of 40 traces; its origin is secret"
    released = Traces.load(tmp_path / "released")
    assert released.of_nobody
    assert released.origin is None
    assert released.digest == people.digest
    for file in (tmp_path / "released").iterdir():
        content = file.read_bytes()
        assert b"987654321" not in content
        assert b"123456789" not in content


@pytest.mark.parametrize("n_parts", [1, 3])
def test_people_are_read_and_released_in_parts(tmp_path, model, people, monkeypatch, n_parts):
    """The traces of 40 people in parts of 8; a person is missing, or the places of the last block are others."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 4)
    monkeypatch.setattr("ppmtf_jax.privacy.release_plan.PART_BLOCKS", 2)
    monkeypatch.setattr("ppmtf_jax.privacy.release_plan.PART_USERS", 8)
    whole = replace(people)  # with a digest of small blocks
    changed = replace(people, place=np.append(people.place[:-1], (people.place[-1] + 1) % 3))
    for name, each in (("people", whole), ("fewer", people.select_users(np.arange(39))), ("changed", changed)):
        save_in_parts(map(each.select_users, np.array_split(np.arange(each.n_users), n_parts)), tmp_path / name)
    monkeypatch.setattr(StoredTraces, "in_memory", None)
    write_release(plan_release(open_traces(tmp_path / "people"), model), tmp_path / "released")
    assert len(trace_files(tmp_path / "released")) == 5
    released = Traces.load(tmp_path / "released")
    assert (released.digest, released.of_nobody, released.origin) == (whole.digest, True, None)
    for name in ("fewer", "changed"):
        with pytest.raises(InputError, match="all traces, as they were synthesized"):
            plan_release(open_traces(tmp_path / name), model)


def test_the_statement_begins_with_the_guarantee(tmp_path, model, people):
    write_release(plan_release(people, model), tmp_path / "released")
    statement = statement_of(tmp_path / "released")
    assert statement == json.loads(json.dumps(model_statement(model, people.origin)))
    assert (statement["private"], statement["epsilon"], statement["delta"]) == (True, 2.0, 1e-6)
    assert statement["neighbours"] == RELATION
    assert statement["generator"]["model"] == model.checksum
    page, text = ((tmp_path / "released" / name).read_text() for name in ("PRIVACY.txt", "PRIVACY_DETAILS.txt"))
    begin = " ".join(text.split("\n\n")[1].split())
    assert " ".join(page.split()).startswith(f"WHAT THESE SYNTHETIC PEOPLE PROMISE {begin}")
    # e^2 / (1 + e^2) = 0.8808, rounded up.
    assert begin.startswith("Every person whose data was used is protected, with all their traces together")
    assert "epsilon = 2 and delta = 1e-06" in begin
    assert "right in at most 88.1 % of cases" in begin
    assert "- top place  rho" in text
    assert "- together   epsilon 2, delta 1e-06, rho" in text
    order = ["Protected:", "Neighbours", "Treated as public:", "Not protected:", "Randomness:"]
    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    sheet = " ".join((tmp_path / "released" / "DATASHEET.txt").read_text().split())
    assert sheet.index(begin) < sheet.index("What it is")
    assert "privacy test" not in sheet
    # Nothing in it depends on how many people the data has.
    assert not any(str(n) in " ".join(statement_texts(statement)) for n in (TRAIN.n_users, TRAIN.n_events))


def test_seeded_noise_protects_nobody_and_the_first_words_say_so():
    model = fit(TRAIN, NOBODY, noise="seeded", seed=0)
    statement = plan_release(synthesize(model, people=5), model).statement
    assert statement["guarantee"] == NOT_PRIVATE
    assert not statement["private"]
    page, details = statement_texts(statement)
    assert page.splitlines()[1] == details.split("\n\n")[1] == NOT_PRIVATE
    assert statement["protected"] == []
    assert "NOT PRIVATE" in statement["not_protected"][0]
    assert "can remove the noise" in statement["randomness"]


def test_the_greatest_accuracy_is_that_of_randomized_response_and_no_test_is_better():
    """Randomized response with a leak of probability delta reaches it; others, drawn at random, are below."""
    rng = np.random.default_rng(0)
    for epsilon, delta in ((0.5, 0.0), (1.0, 1e-2), (3.0, 0.1)):
        right = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
        assert greatest_accuracy(epsilon, delta) == pytest.approx(right)
        false, true = rng.random((2, 10_000))
        allowed = (true <= math.exp(epsilon) * false + delta) & (1 - false <= math.exp(epsilon) * (1 - true) + delta)
        accuracy = (true + 1 - false)[allowed] / 2
        assert accuracy.max() <= greatest_accuracy(epsilon, delta) < accuracy.max() + 0.05


def test_what_is_no_release(tmp_path, model, people):
    other = fit(TRAIN, NOBODY, epsilon=1.0, seed=1)
    with pytest.raises(InputError, match="those of another one"):
        plan_release(people, other)
    with pytest.raises(InputError, match="traces made by the model; found others"):
        plan_release(replace(people, origin=None), model)
    changed = replace(people, place=(people.place + 1) % 3)
    for each in (people.select_users(np.arange(39)), changed):
        with pytest.raises(InputError, match=r"all traces, as they were synthesized.*may depend on the data"):
            plan_release(each, model)
    with pytest.raises(InputError, match="no settings"):
        plan_release(people, model, min_users_per_place=1)
    usual = fit(TRAIN, "uniform", seed=0)
    with pytest.raises(InputError, match=r"a uniform model, which knows users\. Test the traces"):
        plan_release(synthesize(usual), usual)
    with pytest.raises(InputError, match="no key: nobody stands behind these traces"):
        write_release(plan_release(people, model), tmp_path / "released", tmp_path / "key")
    tested = plausible_deniability_test(usual, made := synthesize(usual, seed=0), k=2)
    with pytest.raises(InputError, match="a folder for the key; found None"):
        write_release(plan_release(made, tested), tmp_path / "released")
    assert not list(tmp_path.iterdir())


def test_there_is_nothing_to_test(model, people):
    with pytest.raises(InputError, match=r"made from users; found those of a nobody model.*release the traces with"):
        plausible_deniability_test(model, people)
