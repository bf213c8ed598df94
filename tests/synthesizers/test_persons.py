"""Traces of persons: with gaps, of several periods, and dated."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.errors import InputError, NumericalError
from ppmtf_jax.synthesizers.fitted_model import FittedModel, complete_places, grid_problems
from ppmtf_jax.synthesizers.gaps import complete
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.trace_models.base import ABSENT
from tests.trace_models.examples import GRID, IDS, INSTANTS, PLACES, TABLE, USERS, random_chains
from tests.trace_models.examples import fitted as fitted_chains
from tests.trace_models.persons import (
    Fortnight,
    HomeLovers,
    Travellers,
    every_trace,
    fitted_persons,
    log_probability_by_loop,
    random_persons,
    registered_persons,
)

DAY = TimeGrid.cyclic("2024-01-03T06:00:00", 21_600, 4, slot_s=21_600)  # a Wednesday
WEEK = TimeGrid.cyclic("2024-01-03T06:00:00", 21_600, 28, slot_s=43_200, period_s=7 * 86_400)


@pytest.fixture(scope="module", autouse=True)
def registered():
    with registered_persons():
        yield


def test_the_model_of_these_tests_is_a_distribution_and_is_sampled_as_it_says():
    model = random_persons(n_places=3)
    traces = every_trace(3, 3)
    log_probability = model.log_traces(traces, np.arange(3))
    np.testing.assert_allclose(np.exp(log_probability).sum(axis=0), 1, rtol=1e-6)
    expected = [[log_probability_by_loop(model, trace, k) for k in range(3)] for trace in traces.tolist()]
    np.testing.assert_allclose(log_probability, expected, rtol=1e-6)
    fitted = replace(fitted_persons(model), places=PLACES_3, time_grid=GRID_3)
    users, places = complete_places(fitted, drawn := fitted.sample(30_000, seed=0))
    row = ((places + 1) @ [16, 4, 1]).tolist()
    found = np.zeros((3, 64))
    np.add.at(found, (users % 3, row), 1)
    n_traces = found.sum(axis=1)
    probability = np.zeros((3, 64))
    probability[:, (traces + 1) @ [16, 4, 1]] = np.exp(log_probability).T
    # Five standard errors of a binomial share.
    error = 5 * np.sqrt(probability / n_traces[:, None]) + 1e-3
    assert (np.abs(found / n_traces[:, None] - probability) < error).all()
    assert len(drawn.trace_table()[0]) == 30_000


PLACES_3 = replace(TABLE, ids=TABLE.ids[:3], latitude=TABLE.latitude[:3], longitude=TABLE.longitude[:3])
GRID_3 = TimeGrid.each_instant(GRID.start, 60, 3)


def test_instants_without_an_event_are_left_out_and_each_trace_keeps_its_number():
    fitted = fitted_persons(random_persons(seen=0.3))
    synthetic = synthesize(fitted, traces_per_user=3, seed=1)
    user, trace = synthetic.trace_table()
    assert user.tolist() == np.repeat(np.arange(USERS), 3).tolist()
    assert trace.tolist() == np.tile(np.arange(3), USERS).tolist()
    # The shape of the traces, by the model's own draws.
    users, places = complete_places(fitted, synthetic)
    np.testing.assert_array_equal(users, user)
    assert (places >= 0).sum() == synthetic.n_events < places.size
    assert ((places == ABSENT) | ((places >= 0) & (places < PLACES))).all()
    assert (places != ABSENT).any(axis=1).all()
    for event in range(0, synthetic.n_events, 7):
        row = synthetic.trace_of_event()[event]
        assert places[row, synthetic.instant[event]] == synthetic.place[event]
    # A number of traces does not change the first of them.
    fewer = synthesize(fitted, traces_per_user=1, seed=1)
    np.testing.assert_array_equal(complete_places(fitted, fewer)[1], places[::3])


def test_a_trace_without_any_event_does_not_vanish():
    class Shy(HomeLovers):
        def sample_trace(self, key, user, n_instants):
            drawn = super().sample_trace(key, user, n_instants)
            return jnp.where(user == 5, ABSENT, drawn)

    import jax

    jax.tree_util.register_dataclass(Shy, ["cluster", "home", "seen", "at_home"], [])
    with pytest.raises(NumericalError, match="2 synthetic traces have no event"):
        synthesize(fitted_persons(random_persons(Shy)), traces_per_user=2)


def test_a_chain_must_still_have_an_event_at_every_instant():
    synthetic = synthesize(fitted_persons(random_persons(seen=0.3)), seed=1)
    with pytest.raises(InputError, match=r"an event at every instant; found .* traces with missing events"):
        complete_places(fitted_chains("ppmtf", random_chains()), synthetic)


def test_a_model_may_make_traces_longer_than_a_period(random_train):
    grid = DAY.of_periods(3)
    fitted = fitted_persons(random_persons(Fortnight), grid)
    assert fitted.time_grid == DAY.of_periods(2)
    synthetic = synthesize(fitted, seed=1)
    assert synthetic.time_grid == fitted.time_grid
    assert complete_places(fitted, synthetic)[1].shape == (USERS, 8)
    train = replace(random_train, time_grid=grid)
    assert grid_problems(fitted, train) == []
    assert grid_problems(fitted, replace(train, time_grid=WEEK))


def test_people_and_days_and_dates():
    fitted = fitted_persons(random_persons(Travellers), DAY)
    synthetic = synthesize(fitted, people=50, days=5, start="2025-03-03", seed=2)
    assert len(synthetic.trace_table()[0]) == 50
    assert set(synthetic.user_ids) <= set(IDS)
    assert synthetic.time_grid == TimeGrid.cyclic("2025-03-03T06:00:00", 21_600, 20, slot_s=21_600)
    assert synthetic.origin.dated
    assert synthetic.instant.max() > DAY.n_instants
    assert complete_places(fitted, synthetic)[1].shape == (50, 20)
    same = synthesize(fitted, people=50, days=5, start=date(2025, 3, 3), seed=2)
    assert same.digest == synthetic.digest
    undated = synthesize(fitted, people=50, days=5, seed=2)
    assert undated.time_grid.start == DAY.start
    assert not undated.origin.dated
    np.testing.assert_array_equal(undated.place, synthetic.place)


@pytest.mark.parametrize(
    ("kind", "grid", "days", "start", "message"),
    [
        (HomeLovers, DAY, 2, None, r"traces of 1 day, as this model makes them; found traces of 2 days\. Leave"),
        (Fortnight, DAY, 3, None, "traces of 2 days, as this model makes them; found traces of 3 days"),
        (Travellers, WEEK, 10, None, "days that are a whole number of the model's periods of 7 days; found 10 days"),
        (Travellers, GRID, 1, "2024-01-01", None),
        (Travellers, TimeGrid.each_instant("2024-01-01", 7000, 4), 1, None, "periods of 28,000 s; found 1 day"),
        (Travellers, WEEK, 14, "2025-03-04", "a start on a Wednesday, .*; found 2025-03-04, a Tuesday"),
        (Travellers, WEEK, 14, "2025-03-05", None),
        (HomeLovers, DAY, 1, "2025-03-04", None),
        (Fortnight, DAY, 2, "2025-03-04", "a start on a Wednesday"),
        (Fortnight, DAY, 2, "2025-03-05", None),
    ],
)
def test_days_and_dates_that_a_model_cannot_make_are_refused(kind, grid, days, start, message):
    fitted = fitted_persons(random_persons(kind), grid)
    if message is None:
        made = synthesize(fitted, people=2, days=days, start=start)
        assert made.time_grid.n_instants * grid.step_s == days * 86_400
        assert start is None or made.time_grid.start.startswith(start)
        complete_places(fitted, made)
        return
    with pytest.raises(InputError, match=message):
        synthesize(fitted, people=2, days=days, start=start)


def test_days_of_a_chain_are_refused():
    with pytest.raises(InputError, match="as this model makes them"):
        synthesize(replace(fitted_chains("ppmtf", random_chains()), time_grid=DAY), days=2)
    with pytest.raises(InputError, match="start as a date, such as 2025-03-03; found '3 March'"):
        synthesize(fitted_persons(random_persons()), start="3 March")
    with pytest.raises(InputError, match="traces_per_user or people; found both"):
        synthesize(fitted_persons(random_persons()), people=3, traces_per_user=1)


def test_traces_on_another_grid_are_refused():
    """Also traces of another length or day of the week than the model makes."""
    fitted = fitted_persons(random_persons(Fortnight), DAY)
    traces = synthesize(fitted, people=9)
    for grid, found in (
        (WEEK, "another time grid"),
        (DAY.of_periods(3), "traces of 3 days"),
        (DAY.of_periods(2, date(2024, 1, 1)), "a Monday"),
        (replace(DAY.of_periods(2), time_zone="Asia/Tokyo"), "another time grid"),
    ):
        with pytest.raises(InputError, match=found):
            complete_places(fitted, replace(traces, time_grid=grid))


def test_a_synthesizer_may_return_one_of_several_models(tmp_path, random_train):
    """The folder says which; its traces and its grid are the same after loading."""
    for kind, n_instants in (("HomeLovers", INSTANTS), ("Travellers", INSTANTS), ("Fortnight", 2 * INSTANTS)):
        model = fit(random_train, "persons", kind=kind, seed=0)
        assert model.time_grid.n_instants == n_instants
        model.save(tmp_path / kind)
        again = FittedModel.load(tmp_path / kind)
        assert type(again.trace_model).__name__ == kind
        assert again.checksum == model.checksum
        assert synthesize(again, seed=1).digest == synthesize(model, seed=1).digest


def test_completion_says_that_it_needs_people_at_every_instant(random_train):
    model = fit(random_train, "persons", seed=0)
    with pytest.raises(InputError, match=r"found persons, which makes check-ins .* Fit the bridge with gaps=\"none\""):
        complete(model, random_train)
