"""The bridge's model: what is drawn is what is scored, users of a cluster are equal, and odd data are no trouble."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.stored_traces import open_traces, save_in_parts
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.people import chain, checkin_calibration, event_times, selection
from ppmtf_jax.people.calibration import QUICK
from ppmtf_jax.people.model import CheckinBridge
from ppmtf_jax.people.selection import Selection
from ppmtf_jax.people.user_bounds import CHECKIN_RULES, MOVE_RULE, NO_RULE, PEOPLE_RULES, RULES
from ppmtf_jax.privacy.plausible_deniability import choose_verifiers, plausible_deniability_test
from ppmtf_jax.settings import build_settings, parse_assignments
from ppmtf_jax.synthesizers.fitted_model import FittedModel
from ppmtf_jax.synthesizers.synthesis import fit, synthesize
from ppmtf_jax.synthesizers.systems import bridge
from ppmtf_jax.synthesizers.systems.bridge import BridgeSettings, claims, fit_trace_model
from ppmtf_jax.trace_models.likelihoods import step_log_probabilities
from tests.people.examples import N_PLACES, PERIOD, people, place_table, traces_of, try_few_settings
from tests.people.person_processes import random_process
from tests.people.test_checkins import ARRAYS
from tests.trace_models.pairs import pairwise_log_likelihood

N_DRAWS = 40_000
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module", autouse=True)
def few_settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        try_few_settings(patch)
        yield


@pytest.fixture(scope="module")
def model() -> FittedModel:
    return fit(people(), "bridge", memory="none", n_clusters=2, seed=0)


@pytest.fixture(scope="module")
def next_places(model) -> np.ndarray:
    """Probability of each next place, shape (users, instants, places, next places)."""
    chain, users = model.trace_model, jnp.arange(4)
    cache = chain.user_cache(users)
    places = jnp.arange(N_PLACES)
    over_next = jax.vmap(chain.log_next, (None, None, None, 0))
    over_places = jax.vmap(over_next, (None, None, 0, None))
    over_instants = jax.vmap(over_places, (None, 0, None, None))
    over_users = jax.jit(jax.vmap(over_instants, (0, None, None, None)))
    log = over_users(cache, jnp.arange(1, PERIOD), places, places)
    return np.exp(np.asarray(log))


def test_probabilities_sum_to_one(model, next_places):
    np.testing.assert_allclose(next_places.sum(axis=3), 1, rtol=1e-4)
    np.testing.assert_allclose(model.trace_model.first.sum(axis=1), 1, rtol=1e-5)


def test_what_is_drawn_is_what_is_scored(model, next_places):
    keys = jax.random.split(jax.random.key(1), N_DRAWS)
    draw = jax.jit(jax.vmap(model.trace_model.sample_next, (0, None, None, None)))
    for user, instant, place in ((0, 1, 2), (1, 3, 7), (0, 2, 4), (1, 2, 4), (0, 1, 0)):
        drawn = draw(keys, jnp.array(user), jnp.array(instant), jnp.array(place))
        seen = np.bincount(drawn, minlength=N_PLACES)
        expected = next_places[user, instant - 1, place]
        kept = expected * N_DRAWS > 5
        assert seen[~kept].sum() <= 5 * (~kept).sum() + 20
        share = expected[kept].astype(np.float64)
        share /= share.sum()
        assert stats.chisquare(seen[kept], share * seen[kept].sum()).pvalue > FALSE_ALARM
        # A chain of another cluster, or instant, would be told apart.
        other = next_places[1 - user, instant - 1, place]
        assert 0.5 * np.abs(seen / N_DRAWS - other).sum() > 0.2


def test_users_of_a_cluster_are_equal_to_the_last_bit(model):
    synthetic = synthesize(model, seed=1)
    places = synthetic.place.reshape(-1, PERIOD)
    log_likelihood = pairwise_log_likelihood(model.trace_model, np.arange(model.n_users), places)
    cluster = model.trace_model.user_classes(model.n_users)
    for number in range(2):
        members = log_likelihood[:, cluster == number]
        assert (members == members[:, :1]).all()
    own = step_log_probabilities(model.trace_model, np.arange(model.n_users), places).sum(axis=1)
    np.testing.assert_allclose(own, np.diag(log_likelihood), rtol=1e-5)
    assert np.abs(log_likelihood[:, 0] - log_likelihood[:, 1]).min() > 0.1


@pytest.mark.parametrize("eta", [1.0, 1e-6])
def test_every_trace_passes_for_as_many_as_the_smallest_cluster_has(model, eta):
    synthetic = synthesize(model, traces_per_user=2, seed=1)
    smallest = np.bincount(np.asarray(model.trace_model.cluster)).min()
    assert plausible_deniability_test(model, synthetic, k=int(smallest), eta=eta).passed.all()
    verdicts = plausible_deniability_test(model, synthetic, eta=eta, count_all=True)
    assert verdicts.plausible_users.min() >= smallest
    # With bins so narrow, only users of equal likelihood share one.
    if eta < 1:
        assert plausible_deniability_test(model, synthetic, k=int(smallest) + 1, eta=eta).passed.mean() < 1


def test_a_subset_of_verifiers_finds_the_users_of_the_cluster_among_them(model):
    synthetic = synthesize(model, seed=1)
    cluster = np.asarray(model.trace_model.cluster)
    verdicts = plausible_deniability_test(model, synthetic, n_verifiers=20, eta=1e-6, count_all=True, seed=5)
    verifiers = choose_verifiers(model.n_users, 20, 5)
    others = np.array([np.sum((cluster[verifiers] == cluster[user]) & (verifiers != user)) for user in range(60)])
    assert (verdicts.plausible_users >= 1 + others).all()


def test_fewer_users_than_one_cluster_are_refused():
    with pytest.raises(InputError, match=r"at least 20 training users.*found 12. .*set min_cluster_users lower"):
        fit(people(12), "bridge", seed=0)


def test_what_is_said_is_of_the_clusters_that_there_are(tmp_path):
    """Two clusters were asked for, of at least 3 users; a user without events is nobody's company."""
    train = people(13)
    absent = Traces(train.user, train.trace, train.instant, train.place, np.arange(14), train.places, train.time_grid)
    model = fit(absent, "bridge", memory="none", min_cluster_users=3, n_clusters=2, seed=0)
    model.save(tmp_path / "model")
    sizes = np.bincount(np.asarray(model.trace_model.cluster)[:13])
    least = int(sizes.min())
    assert 3 <= least < sizes.max(), "clusters of one size could not tell the smallest from the largest"
    for each in (model, FittedModel.load(tmp_path / "model")):
        said = each.claims()
        assert (said.protected, said.rules) == ((), RULES)
        assert f"the smallest has {least} users" in said.not_protected[0]
        assert said.not_protected[1:] == (NO_RULE,)
        assert f"With all users as verifiers, every trace passes the privacy test up to k = {least}" in each.summary()
    assert len(model.summary()) <= 5


def test_chains_that_are_not_fitted_to_the_end_are_told_of(model, monkeypatch):
    assert not any("not fitted" in line for line in model.summary())
    monkeypatch.setattr(chain, "MAX_LAST_SCALINGS", 1)
    monkeypatch.setattr(chain, "MAX_SCALINGS", 1)
    found = fit(people(), "bridge", memory="none", n_clusters=2, seed=0)
    assert found.trace_model.marginal_error > chain.TOLERANCE
    share = f"{100 * float(found.trace_model.marginal_error):.2g} %"
    assert any(f"not fitted to the end: at some time, {share}" in line for line in found.summary())


def wandering(n_visited: int) -> np.ndarray:
    """Places of 30 users who go anywhere."""
    return np.random.default_rng(0).integers(n_visited, size=(30, 12))


def odd(name: str) -> Traces:
    """Data in which something is missing: moves, steps, distances, times, people or events."""
    minutes, whole = partial(TimeGrid.each_instant, "2024-01-01", 60), np.ones((30, 12), bool)
    if name == "one place":
        return traces_of(np.zeros((3, 4), int), whole[:3, :4], place_table(1), minutes(4))
    if name == "one instant":
        return traces_of(np.arange(30)[:, None] % 5, whole[:, :1], place_table(5), minutes(1))
    if name == "one user":
        return traces_of(np.array([[0, 1] * 6]), whole[:1], place_table(3))
    if name == "one slot, all at one point":
        grid = TimeGrid("2024-01-01T00:00:00", 60, np.zeros(12, int), period=6)
        return traces_of(wandering(5), whole, PlaceTable(np.arange(5), np.full(5, 35.0), np.full(5, 139.0)), grid)
    if name == "no moves":
        return traces_of(np.tile(np.arange(30)[:, None] % 5, 12), whole, place_table(7))
    if name == "no steps":
        return traces_of(wandering(6), np.tile([True, False], (30, 6)), place_table(7))
    whole[:, [2, 3, 8, 9]] = False
    return traces_of(wandering(3), whole, place_table(7))


MEMORIES = ("none", "auto", "places", "anchors")
ODD = ("one place", "one instant", "one user", "one slot, all at one point", "no moves", "no steps", "an empty slot")


def test_a_model_of_a_choice_with_gains_can_be_read_again(tmp_path):
    chosen = Selection(gains={1: 0.0, 4: 0.1})
    model = fit(people(), "bridge", memory="none", gaps="none", chosen=chosen, n_clusters=2, seed=0)
    model.save(tmp_path / "model")
    again = FittedModel.load(tmp_path / "model")
    assert again.claims() == model.claims()
    assert again.claims().settings["chosen"] == "as another fit chose"


def test_a_fit_of_check_ins_can_take_over_the_choices_of_another_fit(monkeypatch):
    """Both models have nearly the same numbers; they differ only because the chosen settings were rounded."""
    monkeypatch.setattr(checkin_calibration, "N_REPEATS", ())
    days = TimeGrid("2024-01-01T00:00:00", 21600, np.arange(24) % 4, period=4)
    train = traces_of(np.tile(wandering(5), 2), np.tile(np.arange(24) % 3 > 0, (30, 1)), place_table(7), days)
    # Nothing in a model of check-ins uses the smoothing of moves, so nobody searches for it.
    monkeypatch.setattr(selection, "choose_moves", None)
    first = fit(train, "bridge", gaps="as-observed", min_cluster_users=1, n_clusters=2, seed=0)
    for name in ("select", "choose_population"):
        monkeypatch.setattr(bridge, name, None)
    monkeypatch.setattr(event_times, "_choose_number", None)
    again = fit(train, "bridge", first.settings_found(), seed=0)
    assert again.settings_found() == first.settings_found()
    for name, array in first.trace_model.to_arrays().items():
        np.testing.assert_allclose(again.trace_model.to_arrays()[name], array, atol=1e-2, err_msg=name)
    wrong = {**first.settings_found(), "chosen": Selection()}
    with pytest.raises(InputError, match="as another model of the bridge found them"):
        fit(train, "bridge", wrong, seed=0)


def test_a_grid_without_a_whole_day_has_no_windows_of_check_ins():
    with pytest.raises(InputError, match="a step that divides a day, and a whole day of instants"):
        fit(odd("no steps"), "bridge", gaps="as-observed", min_cluster_users=1, n_clusters=2, seed=0)


@pytest.mark.parametrize(
    "memory", ["none", *(pytest.param(m, marks=pytest.mark.slow) for m in ("auto", "places", "anchors"))]
)
@pytest.mark.parametrize("name", ODD)
def test_odd_data_give_a_model_whose_numbers_are_right(name, memory):
    train = odd(name)
    n_clusters = None if (name, memory) == ("no steps", "none") else 2
    model = fit(train, "bridge", memory=memory, min_cluster_users=1, n_clusters=n_clusters, seed=0)
    for array_name, array in model.trace_model.to_arrays().items():
        assert np.isfinite(array).all(), array_name
    synthetic = synthesize(model, seed=0)
    assert synthetic.n_events == train.n_users * model.time_grid.n_instants
    # An impossible trace would be refused.
    assert plausible_deniability_test(model, synthetic, k=1, seed=0).passed.all()
    if memory != "none":
        return
    places = synthetic.place.reshape(train.n_users, -1)
    assert np.isfinite(step_log_probabilities(model.trace_model, np.arange(train.n_users), places)).all()
    if name == "no moves":
        _, _, place, following = synthetic.transitions()
        # 330 of 330 steps stay; the rates know of half a step more. There are 150 steps here.
        assert (place != following).sum() <= 3


# Blocks of users, and the settings that a fit found


@pytest.mark.parametrize(
    "settings",
    [{"memory": "none"}, *(pytest.param(each, marks=pytest.mark.slow) for each in ({}, {"gaps": "as-observed"}))],
    ids=str,
)
def test_a_fit_does_not_depend_on_blocks_and_parts(settings, tmp_path, monkeypatch):
    """Bit for bit: one block of all users, blocks of 37 users in one file, and of 20 users in three files."""
    train = replace(toy_city(90, n_places=20, n_days=2, seed=0).traces, friendships=None)
    parts = [train.select_users(users) for users in np.array_split(np.arange(90), 3)]
    train.save(tmp_path / "one")
    save_in_parts(parts, tmp_path / "three")
    found = []
    for n_users, where in ((8192, None), (37, "one"), (20, "three")):
        for module in ("blocks", "traces", "stored_traces"):
            monkeypatch.setattr(f"ppmtf_jax.data.{module}.BLOCK_USERS", n_users)
        traces = train if where is None else open_traces(tmp_path / where)
        found.append(fit_trace_model(traces, BridgeSettings(**settings), 0).to_arrays())
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, array in found[0].items():
            np.testing.assert_array_equal(other[name], array, err_msg=name)


def test_a_fit_to_others_can_make_the_same_choice(model, monkeypatch):
    """The settings that a fit found give a model of the same kind, with as many clusters, and nothing is compared."""
    chosen = Selection.of_numbers(np.asarray(model.trace_model.chosen))
    assert model.settings_found() == model.settings | {"memory": "none", "gaps": "none", "chosen": chosen}
    monkeypatch.setattr(bridge, "fit_people", partial(bridge.fit_people, effort=QUICK))
    places = fit(people(), "bridge", memory="places", n_clusters=2, seed=0)
    monkeypatch.setattr(bridge, "select", None)
    again = fit(people(), "bridge", places.settings_found(), seed=1)
    assert isinstance(again.trace_model, type(places.trace_model))
    assert again.settings_found() == places.settings_found()
    assert again.trace_model.memory_gain is None


# Settings, and what a release says


def test_a_memory_is_refused_for_traces_with_gaps():
    with pytest.raises(InputError, match=r"memory only with gaps.*found memory = 'places'.*Leave memory out"):
        BridgeSettings(memory="places", gaps="as-observed")


@pytest.mark.parametrize("text", ["memory=none", 'memory="none"', "memory=None"])
def test_no_memory_can_be_asked_for_in_words(text):
    settings = build_settings(BridgeSettings, parse_assignments([text, "n_clusters=none"], "bridge"), "bridge")
    assert settings == BridgeSettings(memory="none")


def test_a_release_states_the_rules_of_the_model_that_made_it():
    of_checkins = (*(rule for rule in RULES if rule != MOVE_RULE), *CHECKIN_RULES)
    assert len(of_checkins) == len(RULES) - 1 + len(CHECKIN_RULES)
    for model, rules in (
        (random_process(), (*RULES, *PEOPLE_RULES)),
        (CheckinBridge.from_arrays(ARRAYS), of_checkins),
    ):
        stated = claims(model, BridgeSettings())
        assert stated.rules == rules
        assert "the smallest has" in stated.not_protected[0]
