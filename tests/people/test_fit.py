"""The remembering bridge of small towns: anchors are where users', nobody alone is told, and odd towns are fitted."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.people import fit
from ppmtf_jax.people.fit import fit_people
from tests.people.examples import place_table, traces_of
from tests.people.towns import CHOICE, PERIOD, at_one_point, clusters_of, commuters, grid_of


def simulated(model, n_people: int, n_instants: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(7), n_people)
    users = jnp.arange(n_people) % len(model.cluster)
    return np.asarray(jax.jit(jax.vmap(lambda key, user: model.sample_trace(key, user, n_instants)))(keys, users))


@pytest.fixture(scope="module")
def traces():
    return commuters(n_users=300, n_periods=2)


@pytest.fixture(scope="module")
def model(traces):
    return fit_people(traces, clusters_of(traces), CHOICE, anchors=True, seed=0)


@pytest.mark.slow
def test_people_have_one_home_at_night(traces, model):
    """All users are at home at instants 0 and 7, and so are most people; for some users the office counts as home."""
    places = simulated(model, 2000, PERIOD)
    assert (places[:, 0] == places[:, 7]).mean() > 0.6
    # Without anchors, they are where users are by hour, but not where they were in the morning.
    plain = fit_people(traces, clusters_of(traces), CHOICE, anchors=False, seed=0)
    without = simulated(plain, 2000, PERIOD)
    assert (without[:, 0] == without[:, 7]).mean() < (places[:, 0] == places[:, 7]).mean() - 0.1


@pytest.mark.slow
def test_two_periods_are_calibrated_where_traces_last_so_long(traces, model):
    assert len(model.stay_at_time) == 2 * PERIOD
    places = simulated(model, 2000, 3 * PERIOD)
    assert (places[:, 0] == places[:, 2 * PERIOD]).mean() > 0.55


@pytest.mark.slow
def test_a_home_of_one_user_is_no_home_of_the_model():
    """One user lives at place 9, where nobody else ever is: with them, it is hardly likelier than without them."""
    traces = commuters(n_users=100)
    elsewhere = replace(traces, place=np.where(traces.place == 9, 8, traces.place))
    planted = replace(elsewhere, place=np.where(traces.user == 0, 9, elsewhere.place).astype(np.int32))
    without, with_user = (
        fit_people(each, clusters_of(each), CHOICE, anchors=True, seed=0) for each in (elsewhere, planted)
    )
    assert np.asarray(with_user.home)[:, 9].max() < 1.5 * np.asarray(without.home)[:, 9].max()
    assert np.asarray(with_user.home)[:, 9].max() < 0.01


ODD = {
    "one place": (np.zeros((20, PERIOD), int), place_table(1)),
    "nobody moves": (np.repeat(np.arange(20)[:, None] % 4, PERIOD, axis=1), place_table(4)),
    "everybody always moves": (np.add.outer(np.arange(20), np.arange(PERIOD)) % 9, place_table(9)),
    "all places at one point": (np.random.default_rng(0).integers(5, size=(20, PERIOD)), at_one_point(5)),
    "a place that nobody visits": (np.random.default_rng(0).integers(3, size=(20, PERIOD)), place_table(4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("anchors", [False, True])
@pytest.mark.parametrize("town", ODD)
def test_odd_towns_are_fitted(town, anchors):
    places, table = ODD[town]
    traces = traces_of(places, np.ones(places.shape, bool), table, grid_of(1))
    model = fit_people(traces, np.zeros(20, int), CHOICE, anchors=anchors, seed=0)
    assert all(np.isfinite(values).all() for values in model.to_arrays().values())
    found = simulated(model, 50, 2 * PERIOD)
    assert found.min() >= 0
    assert found.max() < len(table)
    if town == "nobody moves":
        assert (found[:, 1:] == found[:, :-1]).mean() > 0.9


def test_towns_with_other_distances_share_the_programs_of_calibration(monkeypatch):
    found = []

    def stop(process, targets, *_):
        found.append((targets.distances, int(targets.bin.max())))
        raise InterruptedError

    monkeypatch.setattr(fit, "calibrate", stop)
    places = np.random.default_rng(0).integers(5, size=(20, PERIOD))
    for table in (place_table(5), at_one_point(5)):
        traces = traces_of(places, np.ones(places.shape, bool), table, grid_of(1))
        with pytest.raises(InterruptedError):
            fit_people(traces, clusters_of(traces), CHOICE, anchors=False, seed=0)
    (spread, last), (at_a_point, only) = found
    assert last > only == 0
    assert spread.shape == at_a_point.shape
    assert not spread[last + 1 :].any()
    assert spread.sum() == pytest.approx(1)


@pytest.mark.slow
def test_one_user_of_one_instant_with_gaps():
    """A period of one instant has no step; a user alone tells nothing."""
    table, grid = place_table(3), TimeGrid("2024-01-01T00:00:00", 3600, np.zeros(3, int), period=1)
    traces = traces_of(np.array([[0, 1, 2]]), np.array([[True, False, True]]), table, grid)
    model = fit_people(traces, np.zeros(1, int), CHOICE, anchors=True, seed=0)
    assert all(np.isfinite(values).all() for values in model.to_arrays().values())
    assert simulated(model, 10, 2).shape == (10, 2)
