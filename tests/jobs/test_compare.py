"""Several synthesizers side by side: what is measured, kept, done again, and left out."""

from __future__ import annotations

import stat
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax import evaluate, fit, plausible_deniability_test, synthesize, toy_city
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings
from ppmtf_jax.jobs import compare as module
from ppmtf_jax.jobs.compare import Candidate, Compared, CompareSettings, compare, compare_systems
from tests.trace_models.nobody import registered_nobody

SETTINGS = CompareSettings(n_seeds=2, traces_per_user=2, k=5, attacks=False)
ONCE = replace(SETTINGS, n_seeds=1)
SYSTEMS = ["sgd n_copied=1", "uniform"]


@pytest.fixture(scope="module")
def sets():
    return toy_city(n_users=30, n_places=12, n_days=2, seed=0).traces.split_users(0.6, seed=0)


@pytest.fixture(scope="module")
def found(sets):
    def slowly(*arguments, **options):
        time.sleep(0.02)  # costs are rounded to a hundredth of a second
        return synthesize(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ppmtf_jax.jobs.compare.synthesize", slowly)
        return compare(*sets, SYSTEMS, SETTINGS)


@pytest.fixture(scope="module")
def folders(sets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name, traces in zip(("train", "test"), sets, strict=True):
        traces.save(folder / name)
    return folder / "train", folder / "test"


@pytest.fixture
def measured(monkeypatch):
    """Candidates and seeds that were measured, in order."""
    done, measure = [], module.measure

    def noted(candidate, train, test, settings, seed, **options):
        done.append((candidate.name, seed))
        return measure(candidate, train, test, settings, seed, **options)

    monkeypatch.setattr(module, "measure", noted)
    return done


def test_numbers_are_those_of_the_steps_one_by_one(sets, found):
    train, test = sets
    values, shares, passed_values = [], [], []
    for seed in range(2):
        model = fit(train, "sgd", n_copied=1, seed=seed)
        made = synthesize(model, traces_per_user=2, seed=seed)
        passed = plausible_deniability_test(model, made, k=5, eta=1.0, seed=seed).passed
        shares.append(passed.mean())
        measure = EvaluationSettings(attacks=False)
        values.append(evaluate(made, train, test, measure)["tp_tv"])
        passed_values.append(evaluate(made.select_traces(passed), train, test, measure)["tp_tv"])
    assert 0 < shares[0] < 1
    name = "sgd n_copied=1"
    assert found.mean().value("tp_tv", name) == pytest.approx(np.mean(values))
    assert found.mean("passed").value("tp_tv", name) == pytest.approx(np.mean(passed_values))
    assert found.mean("passed").value("share_passed", name) == pytest.approx(np.mean(shares))
    assert found.spread().value("tp_tv", name) == pytest.approx(abs(values[0] - values[1]) / np.sqrt(2))


def test_costs_are_measured_and_where_all_pass_passed_are_all(found):
    """Everybody is equally plausible under uniform traces."""
    for name in SYSTEMS:
        assert found.mean().value("fit_s", name) >= 0
        assert found.mean().value("synthesize_s", name) >= 0.02
        # Python with JAX alone takes more than 100 MB.
        assert not found.mean().value("peak_mb", name) < 100
    assert np.isnan(found.mean().value("fit_s", "training"))
    assert found.mean("passed").value("share_passed", "uniform") == 1
    assert found.mean("passed").value("tp_tv", "uniform") == found.mean().value("tp_tv", "uniform")


def test_where_none_pass_there_are_no_numbers_of_passed(sets):
    nobody = compare(*sets, ["uniform"], replace(ONCE, k=30))
    assert nobody.mean("passed").value("share_passed", "uniform") == 0
    assert np.isnan(nobody.mean("passed").value("tp_tv", "uniform"))
    assert nobody.mean().value("tp_tv", "uniform") > 0
    assert np.isnan(nobody.spread().value("tp_tv", "uniform"))


def test_a_metric_that_the_first_cell_lacks_is_kept(found):
    """A system with complete traces comes first, one of check-ins with gaps second."""
    cell, other = (found.cells[name, 0] for name in ("sgd n_copied=1", "uniform"))
    fewer = replace(cell, rows=[row for row in cell.rows if row.quantity.name != "tp_tv"])
    mean = Compared({("sgd n_copied=1", 0): fewer, ("uniform", 0): other}, {}).mean()
    assert np.isnan(mean.value("tp_tv", "sgd n_copied=1"))
    assert mean.value("tp_tv", "uniform") == other.value("tp_tv", "all")


def test_the_table_has_a_row_for_each_number(found):
    table = found.table
    assert not table.duplicated(["candidate", "seed", "traces", "metric"]).any()
    assert set(table["candidate"]) == {*SYSTEMS, "training"}
    own = table.query("candidate == 'sgd n_copied=1' and metric == 'tp_tv' and traces == 'all'")
    assert own["value"].mean() == pytest.approx(found.mean().value("tp_tv", "sgd n_copied=1"))


def test_finished_cells_are_not_measured_again(folders, tmp_path, measured):
    first = compare_systems(*folders, tmp_path / "out", SYSTEMS, ONCE)
    assert measured == [("sgd n_copied=1", 0), ("uniform", 0)]
    measured.clear()
    more = compare_systems(*folders, tmp_path / "out", [*SYSTEMS, "sgd"], SETTINGS)
    assert measured == [("sgd n_copied=1", 1), ("uniform", 1), ("sgd", 0), ("sgd", 1)]
    same = more.table[more.table["seed"] == 0].merge(first.table, on=["candidate", "seed", "traces", "metric"])
    assert (same["value_x"] == same["value_y"]).all()
    assert len(same) == len(first.table)
    out = tmp_path / "out"
    pd.testing.assert_frame_equal(pd.read_csv(out / "compare.csv"), more.table)
    means = Evaluation.from_json((out / "compare.json").read_text())
    training, test = (Traces.load(each).digest for each in folders)
    assert means.lineage == {"training traces": training, "test traces": test}
    pd.testing.assert_frame_equal(means.to_frame(), more.mean("passed").to_frame())
    for path in (out, out / "cells", out / "compare.csv", out / "compare.json", *out.glob("cells/*.json")):
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_what_a_cell_depends_on_makes_another(folders, sets, tmp_path, measured):
    compare_systems(*folders, tmp_path / "out", ["uniform"], ONCE)
    compare_systems(*folders, tmp_path / "out", ["uniform"], replace(ONCE, k=4))
    other = tmp_path / "other"
    sets[0].select_users(np.arange(10)).save(other)
    compare_systems(other, folders[1], tmp_path / "out", ["uniform"], ONCE)
    assert len(measured) == 3


def test_a_damaged_cell_is_measured_again_and_leftovers_vanish(folders, tmp_path, measured):
    compare_systems(*folders, tmp_path / "out", ["uniform"], ONCE)
    (cell,) = (tmp_path / "out" / "cells").glob("*.json")
    cell.write_text(cell.read_text()[:50])
    left = [
        tmp_path / "out" / name for name in (".compare.csv.partial-0123abcd", f"cells/.{cell.name}.partial-0123abcd")
    ]
    for file in left:
        file.write_text("half")
    compare_systems(*folders, tmp_path / "out", ["uniform"], ONCE)
    assert len(measured) == 2
    assert not any(file.exists() for file in left)


def failing(monkeypatch, error: BaseException) -> None:
    """The fit of SGD fails."""
    kept = module.fit

    def fitted(train, system, *arguments, **options):
        if system == "sgd":
            raise error
        return kept(train, system, *arguments, **options)

    monkeypatch.setattr(module, "fit", fitted)


def test_a_stop_keeps_what_was_finished(folders, tmp_path, measured):
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            compare_systems(*folders, tmp_path / "out", ["uniform", "sgd"], ONCE)
    compare_systems(*folders, tmp_path / "out", ["uniform", "sgd"], ONCE)
    assert measured == [("uniform", 0), ("sgd", 0), ("sgd", 0)]


def test_one_that_does_not_suit_the_data_is_left_out(sets, monkeypatch):
    said: list[str] = []
    failing(monkeypatch, InputError("train", [Problem("whole traces", "gaps")]))
    found = compare(*sets, ["sgd", "uniform"], ONCE, say=said.append)
    assert list(found.refused) == ["sgd"]
    assert any("whole traces" in line for line in said)
    assert found.mean().columns == ["uniform", "training"]
    with pytest.raises(InputError, match=r"suits the data.*whole traces"):
        compare(*sets, ["sgd"], ONCE)


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ([], "synthesizers among"),
        (["sgd", "sgd n_copied=0"], "'sgd' twice"),
        (["sgd copied=1"], "Did you mean n_copied"),
        (["nothing"], "'nothing'"),
        ([""], "''"),
        (["sgd n_copied"], "name=value"),
    ],
)
def test_candidates_that_are_none(sets, systems, message):
    with pytest.raises(InputError, match=message):
        compare(*sets, systems)


def test_what_cannot_be_compared_is_refused_before_any_work(sets, measured):
    with pytest.raises(InputError) as caught:
        compare(*sets, ["nothing", "sgd copied=1"])
    assert len(caught.value.problems) == 2
    with pytest.raises(InputError, match="users"):
        compare(sets[0], sets[0], ["uniform"], CompareSettings(1))
    with pytest.raises(InputError, match="n_seeds"):
        CompareSettings(n_seeds=0)
    with pytest.raises(InputError, match="eta"):
        CompareSettings(eta=-1.0)
    assert not measured


def test_a_folder_of_others_is_not_touched(folders, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="earlier comparison"):
        compare_systems(*folders, tmp_path, ["uniform"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_names_tell_what_is_not_the_default():
    assert Candidate.parse("sgd").name == Candidate.parse("sgd n_copied=0").name == "sgd"
    assert Candidate.parse("ppmtf zeros=weighted rank=8").name == "ppmtf rank=8 zeros=weighted"


def test_nobody_is_measured_without_a_test(sets):
    with registered_nobody():
        cell = compare(*sets, ["nobody"], n_seeds=1, traces_per_user=3, attacks=True).cells["nobody", 0]
    assert cell.columns == ["all", "training", "uniform"]
    assert np.isnan(cell.value("share_passed", "all"))
    assert np.isfinite(cell.value("tp_tv", "all"))
    # Re-identification has no right answer; membership has.
    assert np.isnan(cell.value("reid_rate", "all"))
    assert cell.value("n_attacked", "all") == 3 * sets[0].n_users
