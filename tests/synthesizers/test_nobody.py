"""Models that know no users: what they keep of the data, and the people whom they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.runtime.folders import files_below
from ppmtf_jax.streams import Seed
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import DEFAULT_PEOPLE, fit, synthesize
from tests.machine import with_gigabytes
from tests.support import places_in_line, random_traces
from tests.trace_models.nobody import NOBODY, RELATION, NewPeople, registered_nobody

GRID = TimeGrid.cyclic("2024-03-06T00:00:00", 3600, 48, slot_s=7200)
PEOPLE = NewPeople(np.array([0.5, 0.3, 0.2], np.float32), 1.0, 1e-6, 1)


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with registered_nobody():
        yield


def city(seed: int, users: range, start: str = GRID.start) -> Traces:
    """Everybody's place is random."""
    return random_traces(seed, users, places_in_line(3), replace(GRID, start=start), keep=0.5)


def of(train: Traces, seed: int = 0) -> FittedModel:
    settings = {"epsilon": 1.0, "delta": 1e-6, "noise": "secure", "public": None}
    return FittedModel.of(NOBODY, settings, Seed(seed, given=True), train, PEOPLE)


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return of(city(0, range(20)))


def test_a_folder_has_nothing_of_the_data_but_the_parameters(tmp_path):
    """Data of other people, on another date, and another seed give the same bytes."""
    sets = city(0, range(20)), city(1, range(100, 107), "2031-11-23T00:00:00")
    for number, train in enumerate(sets):
        of(train, seed=number).save(tmp_path / str(number))
    folders = [tmp_path / str(number) for number in range(2)]
    names = files_below(folders[0])
    assert names == files_below(folders[1])
    different = [name for name in names if (folders[0] / name).read_bytes() != (folders[1] / name).read_bytes()]
    assert not different
    # A model that knows users keeps all of it.
    usual = [fit(train, "uniform", seed=number) for number, train in enumerate(sets)]
    for name in ("seed", "user_ids", "time_grid", "learned_from", "users_per_place", "checksum"):
        one, other = (getattr(each, name) for each in usual)
        assert not np.array_equal(np.asarray(one), np.asarray(other))


def test_a_folder_is_read_back(tmp_path, model):
    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    assert again.checksum == model.checksum
    assert (again.n_users, again.learned_from, again.users_per_place, again.of_nobody) == (0, "", None, True)
    assert again.trace_model.ledger() == model.trace_model.ledger()
    assert again.trace_model.ledger()["relations"][0]["relation"] == RELATION
    pd.DataFrame({"user": [7]}).to_parquet(tmp_path / "model" / "users.parquet")
    with pytest.raises(InputError, match=r"files as they were written"):
        FittedModel.load(tmp_path / "model")


def test_users_beside_a_model_of_nobody_are_refused(tmp_path, model):
    replace(model, user_ids=np.array([7])).save(tmp_path / "model")
    with pytest.raises(InputError, match="a column 'user' with no id; found user; 1 id"):
        FittedModel.load(tmp_path / "model")


def test_its_text_has_no_number_of_users(model):
    assert repr(model).splitlines()[0] == "FittedModel: nobody, of nobody at 3 places"
    assert "may be published" in repr(model)
    seeded = fit(city(0, range(5)), NOBODY, noise="seeded", seed=0)
    assert "NOT PRIVATE" in repr(seeded)
    assert "may be published" not in repr(seeded)


def test_people_are_new_and_come_in_any_number(model):
    few, many = (synthesize(model, people=n, seed=3, batch_users=32) for n in (70, 200))
    assert few.of_nobody
    assert (few.n_users, many.n_users) == (70, 200)
    # Person i is the same in any number of people, and in batches of any size.
    np.testing.assert_array_equal(few.place, many.place[: few.n_events])
    np.testing.assert_array_equal(synthesize(model, people=70, seed=3).place, few.place)
    assert (few.place != synthesize(model, people=70, seed=4).place).any()
    assert few.user_ids[0].startswith("synthetic ")
    assert not set(few.user_ids) & set(many.user_ids)
    assert "invented" in repr(few)
    assert "not for release" not in repr(few)


def test_people_have_no_date_but_the_one_that_is_asked_for(model):
    assert synthesize(model, people=2, seed=0).time_grid.start == "2001-01-01T00:00:00"
    dated = synthesize(model, people=2, start="2025-05-06", seed=0)
    assert dated.time_grid.start == "2025-05-06T00:00:00"
    assert dated.origin is not None
    assert dated.origin.dated


def test_places_are_those_of_the_model(model):
    """Each share is within five standard errors of its probability: 24,000 independent draws."""
    traces = synthesize(model, seed=0)
    assert traces.n_users == DEFAULT_PEOPLE == 1000
    share, expected = np.bincount(traces.place) / traces.n_events, np.array([0.5, 0.3, 0.2])
    assert (np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / traces.n_events)).all()


def test_what_cannot_be_synthesized(model, monkeypatch):
    with pytest.raises(InputError, match=r"no traces_per_user, because the model knows no users.*people=1000"):
        synthesize(model, traces_per_user=2)
    for number in (0, -1, np.ones(3, int)):
        with pytest.raises(InputError, match=r"expected a number of traces of at least 1; found"):
            model.sample(number)
    with_gigabytes(monkeypatch, 0.25)
    with pytest.raises(InputError, match=r"Ask for at most [\d,]+ traces"):
        synthesize(model, people=10**9)
