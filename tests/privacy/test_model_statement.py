"""The release of traces of nobody: without a test, with the guarantee of their model first."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ppmtf_jax.data.stored_traces import StoredTraces, open_traces, save_in_parts
from ppmtf_jax.data.trace_set import trace_files
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.privacy.model_statement import NOT_PRIVATE, greatest_accuracy, model_statement
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.privacy.release import is_release, statement_of, write_release
from ppmtf_jax.privacy.release_plan import plan_release
from ppmtf_jax.privacy.release_texts import statement_texts
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.support import minutes, places_in_line, random_traces
from tests.trace_models.nobody import NOBODY, RELATION, registered_nobody

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
    assert statement == json.loads(json.dumps(model_statement(model)))
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
