"""A release gives nothing away by itself: every file of it is opened and searched."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from scipy import stats

from ppmtf_jax.data.stored_traces import StoredTraces, open_traces, save_in_parts
from ppmtf_jax.data.trace_set import trace_files
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.jobs.steps import open_released
from ppmtf_jax.privacy import release_plan as tested
from ppmtf_jax.privacy.own_test import load_verdicts
from ppmtf_jax.privacy.plausible_deniability import plausible_deniability_test
from ppmtf_jax.privacy.release import datasheet_text, lineage_of_key, load_with_key, open_with_key, write_release
from ppmtf_jax.privacy.release_plan import plan_release
from ppmtf_jax.privacy.statements import statement_texts
from ppmtf_jax.privacy.verdicts import Verdicts
from ppmtf_jax.runtime import engine
from ppmtf_jax.runtime.folders import MARKER, NO_TIME_S, content_digest, read_marker
from ppmtf_jax.streams import Seed, Stage, random_keys
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.registry import Claims
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from tests.support import minutes, places_in_line, to_traces
from tests.trace_models.persons import registered_persons
from tests.workers import stand_in

USERS, PER_USER = 200, 3


@pytest.fixture(scope="module")
def train() -> Traces:
    traces = toy_city(n_users=USERS, n_places=20, n_days=2, seed=3).traces
    # Ids that occur nowhere by chance, and places in another order than that of their ids.
    user_ids = np.array([f"person-{n:04d}-x" for n in range(USERS)], object)
    order = np.random.default_rng(0).permutation(traces.n_places)
    places = replace(
        traces.places,
        ids=np.array([f"venue {n:02d}" for n in order], object),
    )
    grid = replace(traces.time_grid, start="2024-03-07T00:00:00")
    return replace(traces, user_ids=user_ids, places=places, time_grid=grid, friendships=None)


@pytest.fixture(scope="module")
def model(train) -> FittedModel:
    return fit(train, "sgd", n_copied=1)


@pytest.fixture(scope="module")
def synthetic(model) -> Traces:
    return synthesize(model, traces_per_user=PER_USER)


@pytest.fixture(scope="module")
def verdicts(model, synthetic) -> Verdicts:
    """Of SGD with a copied event, so that some traces pass and others do not."""
    verdicts = plausible_deniability_test(model, synthetic, k=20)
    assert 0.1 < verdicts.passed.mean() < 0.95
    return verdicts


@pytest.fixture(scope="module")
def uniform(train) -> tuple[FittedModel, Traces]:
    model = fit(train, "uniform")
    return model, synthesize(model)


def statement_of(uniform: tuple[FittedModel, Traces], **test: Any) -> dict[str, Any]:
    """The statement of a release of traces of the uniform model, which all pass an ordinary test."""
    return plan_release(uniform[1], plausible_deniability_test(*uniform, **test)).statement


@pytest.fixture(scope="module", params=[False, True], ids=["apart", "together"])
def made(request, tmp_path_factory, synthetic, verdicts) -> tuple[Path, Path]:
    """Folders of a release and its key."""
    folder = tmp_path_factory.mktemp("release")
    release = plan_release(synthetic, verdicts, keep_users_together=request.param)
    write_release(release, folder / "release", folder / "key")
    return folder / "release", folder / "key"


def everything_in(folder: Path) -> str:
    """All that a curious person reads: file names, texts, tables, metadata, and raw bytes."""
    found = []
    for path in sorted(folder.rglob("*")):
        found.append(str(path.relative_to(folder)))
        if path.suffix == ".parquet":
            file = parquet.ParquetFile(path)
            found += [str(file.metadata.to_dict()), str(file.schema_arrow.metadata), str(file.metadata.metadata)]
            found.append(file.read().to_pandas().to_csv())
        if path.is_file():
            found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found)


def order_correlation(users_behind: np.ndarray, user_ids: np.ndarray, n_placed: int | None = None) -> float:
    """Rank correlation of the order of the released traces with the input's order of their users, in sd of chance.

    `n_placed` is how many were put somewhere at random: fewer than traces where those of a user stay together.
    """
    rank = pd.Index(user_ids).get_indexer(users_behind)
    correlation = stats.spearmanr(np.arange(len(rank)), rank).statistic
    return abs(correlation) * np.sqrt((n_placed or len(rank)) - 1)


def on_places(traces: Traces, like: Traces) -> Traces:
    """With the places in the order of other traces."""
    return Traces.from_frame(traces.to_frame(), like.places, traces.time_grid)


def test_a_release_names_nobody_and_tells_no_secret(made, train, model, synthetic, verdicts):
    text = everything_in(made[0])
    secrets = [*train.user_ids, "person-", str(model.seed), str(synthetic.origin.seed), str(verdicts.seed.value)]
    secrets += [model.checksum, model.checksum[:12], synthetic.origin.draw, train.time_grid.start[:10]]
    secrets += [f"{value:.6f}"[:8] for value in verdicts.log_likelihood[:50]]
    assert [secret for secret in secrets if secret in text] == []
    for word in ("plausible_users", "log_likelihood", "seed_given", 'verifiers": 2'):
        assert word not in text
    assert {path.name for path in made[0].iterdir()} == {
        "DATASHEET.txt", "PRIVACY.txt", "PRIVACY_DETAILS.txt", "places.parquet", "ppmtf.json", "privacy.json",
        "time_grid.json", "traces.parquet",
    }  # fmt: skip
    assert list(pd.read_parquet(made[0] / "traces.parquet")) == ["user", "trace", "instant", "place"]


def test_what_is_printed_names_nobody(synthetic, verdicts):
    release = plan_release(synthetic, verdicts)
    assert repr(release) == f"Release of {verdicts.passed.sum()} traces; its key, seed and origin are secret"
    shown = repr(verdicts)
    assert shown.startswith(
        f"Plausible deniability test: {verdicts.passed.sum()} of {len(verdicts.passed)} traces passed"
    )
    assert not any(str(user) in shown for user in synthetic.user_ids)
    assert str(verdicts.seed.value) not in shown


def test_the_data_sheet_says_what_is_in_the_folder(made, model):
    folder, _ = made
    text = " ".join((folder / "DATASHEET.txt").read_text().split())
    traces = Traces.load(folder)
    n_traces = len(traces.trace_table()[0])
    assert f"{n_traces} synthetic traces of {traces.n_users} synthetic users over {traces.n_places} places" in text
    # Some systems copy real events: what holds for these very traces only the statement says.
    assert "PRIVACY.txt says what they may reveal about real people" in text
    assert f"By the system {model.system}" in text
    assert all(path.name in text or path.name == "DATASHEET.txt" for path in folder.iterdir())
    # Each file is named, and what is read by the line that it gives is the traces.
    frame = traces.to_frame(with_time_and_coordinates=True)
    assert len(frame) == traces.n_events


def test_the_search_finds_what_was_released_before(tmp_path, synthetic, verdicts, train):
    """Twin: the traces that passed, as they are, name everybody, and in order."""
    synthetic.select_traces(verdicts.passed).save(tmp_path / "release")
    text = everything_in(tmp_path / "release")
    assert sum(user in text for user in train.user_ids) > USERS / 2
    frame = pd.read_parquet(tmp_path / "release" / "traces.parquet").drop_duplicates(["user", "trace"])
    assert order_correlation(frame["user"].to_numpy(), train.user_ids) > 10


def test_the_order_of_a_release_tells_nothing(made, train):
    """Of numbers, of rows and of trace numbers: within five standard deviations of no correlation."""
    released, key = Traces.load(made[0]), pd.read_parquet(made[1] / "key.parquet")
    n_placed = key["released_user"].nunique()
    assert order_correlation(key["user"].to_numpy(), train.user_ids, n_placed) < 5
    rows = pd.read_parquet(made[0] / "traces.parquet")
    assert rows.equals(rows.sort_values(["user", "trace", "instant"], ignore_index=True))
    by_number = key.drop_duplicates("released_user")
    assert order_correlation(by_number["user"].to_numpy(), train.user_ids) < 5
    assert (np.diff(pd.Index(released.places.ids).argsort()) > 0).all()
    assert not (np.diff(pd.Index(train.places.ids).argsort()) > 0).all()


def test_numbers_tell_nothing_of_withheld_traces(made, synthetic, verdicts):
    released = Traces.load(made[0])
    user, trace = released.trace_table()
    assert len(user) == verdicts.passed.sum()
    digits = len(str(released.n_users - 1))
    tag = released.user_ids[0].split()[1]
    assert released.user_ids.tolist() == [f"released {tag} {number:0{digits}}" for number in range(released.n_users)]
    together = released.n_users < len(user)
    assert together or not trace.any()
    # No gaps, where a withheld one would have been.
    for number in range(released.n_users):
        np.testing.assert_array_equal(trace[user == number], np.arange((user == number).sum()))


def test_files_do_not_tell_when_and_the_key_is_secret(made):
    release, key = made
    assert {path.stat().st_mtime for path in (release, *release.rglob("*"))} == {NO_TIME_S}
    assert stat.S_IMODE(key.stat().st_mode) == 0o700
    assert stat.S_IMODE(release.stat().st_mode) & 0o044


def test_with_its_key_a_release_is_what_passed(made, synthetic, verdicts, train):
    ours = load_with_key(*made, train).to_frame().sort_values(["user", "trace", "instant"], ignore_index=True)
    expected = synthetic.select_traces(verdicts.passed).to_frame()
    pd.testing.assert_frame_equal(ours, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("ids", "together"),
    [(np.arange(20), False), (np.array([f"released {n:02d}" for n in range(20)], object), True)],
)
def test_users_of_a_release_are_taken_for_no_training_users(ids, together, tmp_path):
    """Numbers from 0 on were: groups and attacks compared strangers, and the attacks found nobody."""
    prefix = "released [0-9a-f]{6} "
    train, test = toy_city(n_users=40, n_places=10, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    train = replace(train, user_ids=ids)
    test = replace(test, user_ids=np.arange(100, 100 + test.n_users))
    model = fit(train, "uniform")
    synthetic = synthesize(model, traces_per_user=2)
    verdicts = plausible_deniability_test(model, synthetic, k=2)
    release = plan_release(synthetic, verdicts, keep_users_together=together, min_users_per_place=1)
    write_release(release, tmp_path / "release", tmp_path / "key")
    groups = {"group_tv": {"min_users": 2, "n_cells": 1}}
    without = EvaluationSettings(attacks=False, settings=groups)
    assert evaluate(synthetic, train, test, without)["group_tv"] >= 0
    for traces in (release.traces, Traces.load(tmp_path / "release")):
        assert not set(traces.user_ids) & set(ids)
        # Not even of one training user's id the public ones tell.
        assert all(re.match(prefix, each) for each in traces.user_ids)
        assert np.isnan(evaluate(on_places(traces, train), train, test, without)["group_tv"])
        with pytest.raises(InputError, match=r"users of the training set; found others.*read a release with its key"):
            evaluate(on_places(traces, train), train, test)
    ours = load_with_key(tmp_path / "release", tmp_path / "key", train)
    assert evaluate(ours, train, test, without)["group_tv"] >= 0


def test_the_date_is_nominal(made, synthetic):
    released, own = Traces.load(made[0]).time_grid, synthetic.time_grid
    # The traces are of one day, a Thursday. Its day of the week tells nothing about them.
    assert own.time_of(0).weekday() == 3
    assert released.time_of(0).isoformat() == f"2001-01-01T{own.time_of(0).time()}"
    np.testing.assert_array_equal(released.slot_of_instant, own.slot_of_instant)


def test_every_trace_has_a_number_of_its_own_unless_asked_for(synthetic, verdicts):
    apart = plan_release(synthetic, verdicts)
    assert apart.traces.n_users == len(apart.key)
    assert "number of its own" in apart.statement["traces"]
    together = plan_release(synthetic, verdicts, keep_users_together=True)
    assert together.key.groupby("released_user")["user"].nunique().eq(1).all()
    assert together.key.groupby("user")["released_user"].nunique().eq(1).all()
    assert "share a number" in together.statement["traces"]
    assert any("share a number here" in point for point in together.statement["not_protected"])


def test_releases_of_one_seed_are_equal_and_others_are_not(synthetic, verdicts):
    one, again, other = (plan_release(synthetic, verdicts, seed=seed).key for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(other)
    drawn = [plan_release(synthetic, verdicts) for _ in range(2)]
    assert not drawn[0].key.equals(drawn[1].key)
    assert not drawn[0].seed.given


# The statement


def test_a_statement_says_what_it_must(made, model, train):
    statement = json.loads((made[0] / "privacy.json").read_text())
    assert statement["parameters"] == {
        "k": 20, "eta": 1.0, "n_verifiers": "all", "noise_epsilon": None, "precision": "float64",
        "min_users_per_place": int(train.users_per_place().min()),
    }  # fmt: skip
    assert statement["generator"]["system"] == "sgd"
    assert "drawn from the operating system's secure source" in statement["randomness"]
    page, details = ((made[0] / name).read_text() for name in ("PRIVACY.txt", "PRIVACY_DETAILS.txt"))
    for phrase in ("at least 20 users", "Which traces were withheld", "The first event of each trace"):
        assert phrase in " ".join(page.split())
    for phrase in ("k = 20", "not differential privacy", "withheld", "first event of each trace"):
        assert phrase in " ".join(details.split())
    assert (page, details) == tuple(f"{each}\n" for each in statement_texts(statement))
    assert max(map(len, [*page.splitlines(), *details.splitlines()])) <= 80


def test_a_statement_is_made_from_the_model_and_not_from_its_settings(tmp_path, train, uniform, monkeypatch):
    """A cluster "of at least 20 users", as set, had the three that there were."""
    claims = Claims(not_protected=("clusters: the smallest has 3 users",))
    monkeypatch.setattr(FittedModel, "claims", lambda _: claims)
    asked_for = replace(uniform[0], settings={"min_cluster_users": 20})
    synthetic = synthesize(asked_for)
    plausible_deniability_test(asked_for, synthetic, k=2).save(tmp_path / "verdicts")
    verdicts = load_verdicts(tmp_path / "verdicts")
    assert verdicts.claims == claims
    points = " ".join(plan_release(synthetic, verdicts).statement["not_protected"])
    assert "Clusters: the smallest has 3 users." in points
    assert "20" not in points


@pytest.mark.parametrize("given", ["model", "synthesis", "release"])
def test_a_given_seed_is_told(train, given):
    seeds = dict.fromkeys(("model", "synthesis", "release"), None) | {given: 5}
    model = fit(train, "uniform", seed=seeds["model"])
    synthetic = synthesize(model, seed=seeds["synthesis"])
    verdicts = plausible_deniability_test(model, synthetic, k=2)
    statement = plan_release(synthetic, verdicts, seed=seeds["release"]).statement
    assert "reproducible, so the seed must stay secret" in statement["randomness"]


def test_a_randomized_test_states_its_theorem(uniform):
    statement = statement_of(uniform, k=30, noise_epsilon=0.5)
    assert "discrete Laplace noise of scale 1/0.5" in statement["mechanism"]
    (theorem,) = (point for point in statement["protected"] if "Theorem 1 of Bindschaedler" in point)
    # t = 1, and t = 29: 0.5 + log(1 + e / t), e^(-0.5 (30 - t)).
    assert "(1.81, 5e-07)" in theorem
    assert "(0.59, 0.61)" in theorem
    assert "drawn at random" in theorem
    not_protected = " ".join(statement["not_protected"])
    for phrase in ("The release as a whole is not", "For m traces", "How the model was learned", "was withheld"):
        assert phrase in not_protected
    # A trace whose noise was low may have passed with nobody but its own user.
    assert "a noisy number of users around 30 (for some traces only the input user)" in statement["protected"][0]
    assert "at least 30" not in statement["protected"][0]


@pytest.mark.parametrize(
    ("test", "said", "not_said"),
    [
        ({"k": 2}, ["at least 2 users"], ["in single precision", "reproducible"]),
        ({"k": 2, "seed": 1}, [], ["reproducible"]),
        ({"k": 2, "n_verifiers": 50, "seed": 1}, ["reproducible", "50 training users chosen at random"], []),
        ({"k": 2, "precision": "float32"}, ["in single precision"], []),
        ({"k": 2, "eta": 5.0, "allow_large_eta": True}, ["at least 2 users", "a factor of e^5 = 148 of each"], []),
        ({"k": 1}, ["PROMISE - Nothing that could be", "k = 1 requires no other user", "1, which tests nothing"], []),
        ({"k": 1, "noise_epsilon": 3.0}, ["gives no differential privacy"], ["Theorem 1"]),
    ],
    ids=str,
)
def test_a_statement_has_the_words_of_its_test(uniform, test, said, not_said):
    text = " ".join(" ".join(statement_texts(statement_of(uniform, **test))).split())
    assert [each for each in said if each not in text] == [each for each in not_said if each in text] == []


def test_what_differential_privacy_protects_is_not_denied(train):
    """Below the guarantee stood: "this is not differential privacy", and that membership is not hidden."""
    model = fit(train, "tpm", epsilon=0.5)
    synthetic = synthesize(model)
    for options in ({"k": 2}, {"k": 5, "noise_epsilon": 1.0}):
        verdicts = plausible_deniability_test(model, synthetic, **options)
        statement = plan_release(synthetic, verdicts).statement
        assert "0.5-differentially private" in statement["protected"][0]
        denied = " ".join([statement["mechanism"], *statement["not_protected"]])
        for phrase in ("not differential", "no differential", "membership", "several traces of one", "data was used"):
            assert phrase not in denied.lower()
        # Exact numbers of users are no part of what the noise covers.
        assert statement["parameters"]["min_users_per_place"] is None
        assert "training users were at" not in denied


def test_a_statement_says_whether_it_tells_the_number_of_users(uniform):
    model, one_each = uniform
    told = "How many training users there were"
    for synthetic, is_told in ((one_each, True), (synthesize(model, people=300), False)):
        release = plan_release(synthetic, plausible_deniability_test(model, synthetic, k=2))
        assert any(told in point for point in release.statement["not_protected"]) == is_told
        # The data sheet says the same, in the same words.
        sheet = " ".join(datasheet_text(release).split())
        assert release.statement["number_of_traces"] in sheet
        assert ("says nothing about how many people" in sheet) != is_told


# Places


@pytest.fixture(scope="module")
def lonely() -> tuple[Traces, Verdicts]:
    """Place 0 is of one user alone, 1 to 4 are of all, and nobody was at 5."""
    place = np.tile([1, 1, 2, 3, 4], (10, 1))
    place[0, 0] = 0
    rows = [(user, 0, instant, at) for user, row in enumerate(place.tolist()) for instant, at in enumerate(row)]
    model = fit(to_traces(rows, places_in_line(6), minutes(5)), "uniform")
    synthetic = synthesize(model)
    return synthetic, plausible_deniability_test(model, synthetic, k=2)


def test_places_of_one_user_are_not_released_unless_asked_for(lonely):
    synthetic, verdicts = lonely
    assert verdicts.users_per_place.tolist() == [1, 10, 10, 10, 10, 0]
    with pytest.raises(
        InputError,
        match=r"at least 5 training users at each visited place; found 1 of 5 visited places.* only 1\..*=1 ",
    ):
        plan_release(synthetic, verdicts)
    with pytest.raises(InputError, match=r"found 5 of 5 visited places with fewer"):
        plan_release(synthetic, verdicts, min_users_per_place=11)
    statement = plan_release(synthetic, verdicts, min_users_per_place=1).statement
    n_there, n_events = int((synthetic.place == 0).sum()), synthetic.n_events
    said = f"1 of 6 places (16.7 %), with {n_there} of {n_events} released events ({100 * n_there / n_events:.1f} %)"
    assert any(said in point for point in statement["not_protected"])
    assert statement["parameters"]["min_users_per_place"] == 1


def test_the_least_number_of_users_of_a_place_is_stated(lonely):
    synthetic, verdicts = lonely
    of_three = replace(verdicts, users_per_place=np.array([3, 10, 10, 10, 10, 0]))
    with pytest.raises(InputError, match="min_users_per_place=3 "):
        plan_release(synthetic, of_three)
    statement = plan_release(synthetic, of_three, min_users_per_place=3).statement
    assert any("visited by at least 3 training users" in point for point in statement["not_protected"])


def test_a_model_that_does_not_know_its_places_is_not_released_from_unless_asked_for(lonely):
    synthetic, verdicts = lonely[0], replace(lonely[1], users_per_place=None)
    with pytest.raises(InputError, match="a model that does not know how many there were"):
        plan_release(synthetic, verdicts)
    statement = plan_release(synthetic, verdicts, min_users_per_place=1).statement
    assert any("It is not known how many training users" in each for each in statement["not_protected"])


# Streams


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_all_orders_are_equally_probable(together, bug):
    """Chi-squared of the 24 orders of four traces or users, at a false alarm in 10^6; the bug draws keys of 3 bits."""
    user, passed = np.array([0, 0, 1, 2, 2, 4, 5, 5]), np.array([1, 0, 0, 1, 1, 1, 0, 1], bool)[: 8 if together else 7]
    with pytest.MonkeyPatch.context() as patch:
        if bug:
            patch.setattr(tested, "random_keys", lambda *given: random_keys(*given) >> np.uint64(61) << np.uint64(61))
        drawn = [tested._new_numbers(user[: len(passed)], passed, together, seed) for seed in range(3000)]
    orders = pd.Series([tuple(number[passed].tolist()) for number, _ in drawn]).value_counts()
    assert len(orders) == 24
    assert (stats.chisquare(orders).pvalue < 1e-6) == bug
    if together:
        # Of the two traces of user 2, each comes first equally often, also where this is the first or the last user.
        first = pd.crosstab([number[3] for number, _ in drawn], [trace[3] for _, trace in drawn])
        assert first.shape == (4, 2)
        assert (stats.chisquare(first.to_numpy().ravel()).pvalue < 1e-6) == bug


def test_a_release_draws_from_its_own_stream(monkeypatch, synthetic, verdicts):
    asked = []
    monkeypatch.setattr(tested, "random_keys", lambda *given: asked.append(given[1]) or random_keys(*given))
    plan_release(synthetic, verdicts, seed=0)
    assert asked == [Stage.RELEASE]


# In parts


def test_an_opened_release_has_the_places_of_the_training_traces(made, train, monkeypatch):
    monkeypatch.setattr(StoredTraces, "in_memory", None)
    opened, loaded = open_released(made[0], train, None), Traces.load(made[0])
    assert isinstance(opened, StoredTraces)
    assert not np.array_equal(loaded.places.ids, train.places.ids)
    on_places = Traces.from_frame(loaded.to_frame(), train.places, loaded.time_grid)
    assert opened.digest == on_places.digest
    for one, other in zip(opened.blocks, on_places.blocks, strict=True):
        pd.testing.assert_frame_equal(one.to_frame(), other.to_frame())


@pytest.fixture
def small_parts(monkeypatch):
    """Blocks of 32 users, parts of 64 users, and temporary files of all events but a few."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 32)
    for module in ("data.stored_traces", "privacy.release_plan"):
        monkeypatch.setattr(f"ppmtf_jax.{module}.PART_USERS", 64)
    monkeypatch.setattr("ppmtf_jax.data.stored_traces.MAX_BYTES_IN_MEMORY", 1000)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.usefixtures("small_parts")
def test_parts_of_the_traces_and_workers_change_no_byte(tmp_path, model, synthetic, together, monkeypatch):
    monkeypatch.setattr(engine, "_in_processes", stand_in)
    monkeypatch.setattr("ppmtf_jax.data.stored_traces.PART_BLOCKS", 2)
    made = []
    for n_parts, words in ((0, "threads"), (1, "threads"), (3, "processes:2"), (7, "processes:2")):
        folder = tmp_path / str(n_parts)
        traces: Traces = replace(synthetic)  # with a digest of small blocks
        if n_parts:
            of_parts = np.array_split(np.arange(USERS), n_parts)
            save_in_parts(map(synthetic.select_users, of_parts), folder / "synthetic")
            traces = open_traces(folder / "synthetic")
            assert isinstance(traces, StoredTraces)
        with engine.use_engine(words):
            plausible_deniability_test(model, traces, k=20, seed=0).save(folder / "verdicts")
            verdicts = load_verdicts(folder / "verdicts")
            release = plan_release(traces, verdicts, seed=1, keep_users_together=together)
            write_release(release, folder / "release", folder / "key")
        made.append([content_digest(folder / name) for name in ("verdicts", "release", "key")])
    assert made[1:] == made[:-1]
    pd.testing.assert_frame_equal(release.traces.to_frame(), Traces.load(folder / "release").to_frame())


@pytest.mark.parametrize(("n_parts", "bug"), [(1, False), (3, False), (7, False), (3, True)])
@pytest.mark.usefixtures("small_parts")
def test_what_passed_is_read_in_blocks(tmp_path, model, synthetic, verdicts, train, monkeypatch, n_parts, bug):
    """From a release with its key, and by the verdicts; the bug gives blocks another size, so the digests differ."""
    for module in ("traces", "stored_traces"):
        monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", 4)
    size = -(-int(verdicts.passed.sum()) // n_parts // 4) * 4
    for module in ("data.stored_traces", "privacy.release_plan"):
        monkeypatch.setattr(f"ppmtf_jax.{module}.PART_USERS", size)
    write_release(plan_release(synthetic, verdicts), tmp_path / "release", tmp_path / "key")
    assert len(trace_files(tmp_path / "release")) == n_parts
    pairs = np.array([[0, 1], [5, USERS - 1]], np.int32)
    save_in_parts([replace(synthetic, friendships=pairs)], tmp_path / "synthetic")
    if bug:
        monkeypatch.setattr("ppmtf_jax.data.stored_traces.BLOCK_USERS", 16)
    from_key = open_with_key(tmp_path / "release", tmp_path / "key", train)
    by_verdicts = open_traces(tmp_path / "synthetic").select_traces(verdicts.passed)
    expected = replace(synthetic, friendships=pairs).select_traces(verdicts.passed)
    assert (by_verdicts.digest == expected.digest) == (not bug)
    np.testing.assert_array_equal(by_verdicts.friendships, expected.friendships)
    assert (by_verdicts.origin, by_verdicts.n_events) == (synthetic.origin, expected.n_events)
    for traces in (from_key, by_verdicts):
        frames = [block.to_frame() for block in traces.blocks]
        pd.testing.assert_frame_equal(pd.concat(frames, ignore_index=True), expected.to_frame(), check_dtype=False)
    if not bug:
        # Of a sample, the same numbers as from memory, without all traces in memory.
        monkeypatch.setattr("ppmtf_jax.evaluation.evaluation.MAX_USERS", 50)
        how = EvaluationSettings(attacks=False)
        in_memory = evaluate(load_with_key(tmp_path / "release", tmp_path / "key", train), train, train, how)
        monkeypatch.setattr(StoredTraces, "in_memory", None)
        assert evaluate(from_key, train, train, how).to_json() == in_memory.to_json()


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
@pytest.mark.usefixtures("small_parts")
def test_a_part_of_the_release_does_not_tell_a_part_of_the_input(synthetic, verdicts, monkeypatch, bug):
    """Chi-squared of three parts of users and of all parts of the release, at a false alarm in 10^6; a fixed seed."""
    if bug:
        monkeypatch.setattr(tested, "random_keys", lambda *given: np.arange(given[-1], dtype=np.uint64))
    key = plan_release(synthetic, verdicts, seed=0).key
    of_input = pd.Index(synthetic.user_ids).get_indexer(key["user"]) * 3 // USERS
    of_release = np.arange(len(key)) // 64
    assert (stats.chi2_contingency(pd.crosstab(of_input, of_release)).pvalue < 1e-6) == bug


# Refused


def test_verdicts_of_other_traces_are_refused(model, synthetic, verdicts):
    again = synthesize(model, traces_per_user=PER_USER)
    with pytest.raises(InputError, match="the verdicts of these traces; found those of other traces"):
        plan_release(again, verdicts)
    of_another_model = replace(synthetic, origin=synthetic.origin._replace(model="another"))
    with pytest.raises(InputError, match="the verdicts of these traces; found those of traces of another model"):
        plan_release(of_another_model, verdicts)
    fewer = synthetic.select_traces(np.arange(USERS * PER_USER) % 2 == 0)
    with pytest.raises(InputError, match=f"{USERS * PER_USER} verdicts for {USERS * PER_USER // 2} traces"):
        plan_release(fewer, verdicts)
    other = synthetic.select_traces(np.arange(USERS * PER_USER) != 0)
    strangers = replace(verdicts, table=verdicts.table.iloc[:-1])
    with pytest.raises(InputError, match="or verdicts of other users"):
        plan_release(other, strangers)
    with pytest.raises(InputError, match=r"at least one trace that passed; found none\. Lower k"):
        plan_release(synthetic, plausible_deniability_test(model, synthetic, k=10_000))


def _cut(traces: Traces) -> Traces:
    """Without the first event of a trace: what follows it would be read as an hour earlier, in all later traces."""
    return traces.select_events(np.arange(traces.n_events) > 0)


def _elsewhere(traces: Traces) -> Traces:
    place = traces.place.copy()
    place[5] = (place[5] + 1) % traces.n_places
    return replace(traces, place=place)


def _later(traces: Traces) -> Traces:
    """All of the first instant is missing, and what was last has moved up by the same number of events."""
    kept = traces.select_events(traces.instant > 0)
    return replace(kept, instant=kept.instant - 1)


def _moved(traces: Traces) -> Traces:
    return replace(traces, places=replace(traces.places, latitude=traces.places.latitude + 1))


@pytest.mark.parametrize("change", [_cut, _elsewhere, _later, _moved])
def test_what_was_not_tested_is_not_released(synthetic, verdicts, change):
    with pytest.raises(InputError, match="the traces as they were tested; found traces with other events"):
        plan_release(change(synthetic), verdicts)


def test_a_key_knows_the_verdicts_that_its_release_was_made_from(tmp_path, made, model, train, synthetic, verdicts):
    lineage, origin = lineage_of_key(made[1]), read_marker(made[1]).about["origin"]
    assert (origin["model"], origin["seed"]) == (model.checksum, synthetic.origin.seed)
    assert lineage == verdicts.lineage
    assert lineage == {
        "training traces": train.digest,
        "model": model.checksum,
        "synthetic traces": synthetic.digest,
        "verdicts": verdicts.lineage["verdicts"],
    }
    others = plausible_deniability_test(model, synthetic, k=1)
    assert others.lineage["verdicts"] != lineage["verdicts"]


def test_the_key_of_a_release_of_the_same_traces_with_another_statement_is_refused(tmp_path, train):
    """With one seed both hold the same traces: what they state differs, and so do their keys."""
    model = fit(train, "uniform", seed=0)
    synthetic = synthesize(model, seed=0)
    for k in (2, 3):
        release = plan_release(synthetic, plausible_deniability_test(model, synthetic, k=k), seed=0)
        write_release(release, tmp_path / f"release{k}", tmp_path / f"key{k}")
    load_with_key(tmp_path / "release2", tmp_path / "key2", train)
    with pytest.raises(InputError, match="the key of this release"):
        load_with_key(tmp_path / "release2", tmp_path / "key3", train)


def test_a_key_is_not_put_into_its_release(tmp_path, synthetic, verdicts):
    release = plan_release(synthetic, verdicts)
    for key in ("r", "r/key"):
        with pytest.raises(InputError, match="a key outside the release"):
            write_release(release, tmp_path / "r", tmp_path / key)
    assert list(tmp_path.iterdir()) == []


def test_the_key_of_another_release_is_refused(tmp_path, made, synthetic, verdicts, train):
    write_release(plan_release(synthetic, verdicts, seed=3), tmp_path / "r", tmp_path / "key")
    with pytest.raises(InputError, match="the key of this release; found that of another one"):
        load_with_key(made[0], tmp_path / "key", train)
    with pytest.raises(InputError, match="a release key folder; found a release folder"):
        load_with_key(made[0], made[0], train)
    with pytest.raises(InputError, match="a release folder; found a release key folder"):
        load_with_key(made[1], made[1], train)


def test_a_changed_release_is_refused(tmp_path, synthetic, verdicts, train):
    write_release(plan_release(synthetic, verdicts), tmp_path / "r", tmp_path / "key")
    text = (tmp_path / "r" / "privacy.json").read_text()
    (tmp_path / "r" / "privacy.json").write_text(re.sub(r'"k": \d+', '"k": 1000', text))
    with pytest.raises(InputError, match=r"privacy\.json changed"):
        load_with_key(tmp_path / "r", tmp_path / "key", train)


def test_verdicts_survive_their_folder(tmp_path, verdicts):
    verdicts.save(tmp_path / "v")
    again = load_verdicts(tmp_path / "v")
    assert stat.S_IMODE((tmp_path / "v").stat().st_mode) == 0o700
    assert (again.settings, again.origin, again.seed) == (verdicts.settings, verdicts.origin, verdicts.seed)
    np.testing.assert_array_equal(again.passed, verdicts.passed)
    pd.testing.assert_frame_equal(again.table, verdicts.table)
    assert isinstance(again.seed, Seed)
    with pytest.raises(InputError, match="a verdicts folder; found no such folder"):
        load_verdicts(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["test", "users_per_place", "settings"])
def test_verdicts_without_a_field_are_refused(tmp_path, verdicts, name):
    verdicts.save(tmp_path / "v")
    marker = json.loads((tmp_path / "v" / MARKER).read_text())
    del marker["about"][name]
    (tmp_path / "v" / MARKER).write_text(json.dumps(marker))
    with pytest.raises(InputError, match=rf"verdicts of this version; found no {name}\. Test the traces again"):
        load_verdicts(tmp_path / "v")


# Traces of persons: with gaps, of several days, dated


@pytest.fixture(scope="module")
def persons() -> Iterator[FittedModel]:
    """A model whose traces have gaps and may last any number of days, of users who are in no order of theirs."""
    with registered_persons():
        train = toy_city(n_users=60, n_places=12, n_days=2, missing=0.5, seed=0).traces
        yield fit(train, "persons", kind="Travellers", seed=0)


@pytest.mark.parametrize("together", [False, True])
def test_a_release_keeps_the_gaps_of_each_trace(persons, tmp_path, together):
    synthetic = synthesize(persons, traces_per_user=2)
    assert synthetic.n_events < 120 * 24
    verdicts = plausible_deniability_test(persons, synthetic, k=21)
    assert 0 < verdicts.passed.mean() < 1
    release = plan_release(synthetic, verdicts, keep_users_together=together)
    write_release(release, tmp_path / "release", tmp_path / "key")
    like = replace(synthetic, user_ids=persons.user_ids)
    ours = load_with_key(tmp_path / "release", tmp_path / "key", like).to_frame()
    expected = synthetic.select_traces(verdicts.passed).to_frame()
    pd.testing.assert_frame_equal(
        ours.sort_values(["user", "trace", "instant"], ignore_index=True), expected, check_dtype=False
    )
    sheet = " ".join((tmp_path / "release" / "DATASHEET.txt").read_text().split())
    mean = release.traces.n_events / verdicts.passed.sum()
    assert f"Of 24 instants of 3600 s, it has a place at {mean:.3g} on average" in sheet
    assert "Each trace covers 1 day of a person who never lived: it has no particular date, day of the week" in sheet


def test_dates_that_were_asked_for_are_released(persons):
    asked, nominal = (synthesize(persons, people=99, days=3, start=start, seed=0) for start in ("2031-05-06", None))
    for synthetic, start, said in (
        (asked, "2031-05-06", "The publisher chose the dates"),
        (nominal, "2001-01-01", "The date of the time grid is nominal"),
    ):
        release = plan_release(synthetic, plausible_deniability_test(persons, synthetic, k=2), seed=0)
        assert release.traces.time_grid.start[:10] == start
        assert release.traces.time_grid.n_instants == 72
        assert said in release.statement["traces"]
        assert "Each trace covers 3 days" in " ".join(datasheet_text(release).split())
