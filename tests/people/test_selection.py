"""Settings that are chosen are those that predict: planted groups are found, and none where there are none."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.people import selection
from ppmtf_jax.people.attraction import Movement
from ppmtf_jax.people.bins import MAX_REMEMBERED
from ppmtf_jax.people.chain import fit_chains
from ppmtf_jax.people.counts import Transitions, VisitCounts, population
from ppmtf_jax.people.person import number_of_places, table_of
from ppmtf_jax.people.selection import (
    MEMORIES,
    MIN_USERS,
    Selection,
    choose_clusters,
    choose_memory,
    choose_moves,
    choose_population,
    first_within_error,
    memory_sentence,
    random_folds,
    remembered,
)
from ppmtf_jax.people.space import space_of
from ppmtf_jax.settings import build_settings
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.synthesizers.systems.bridge import BridgeSettings
from ppmtf_jax.trace_models.base import ABSENT
from tests.people.examples import GRID, PERIOD, POPULATION, people


@pytest.fixture
def few_candidates(monkeypatch) -> None:
    """Three values of each setting of the clusters."""
    values = {"BLURS": (0.0, 0.1, 0.4), "BANDWIDTHS": (0.0, 1.0, 4.0), "CLUSTER_MASSES": (1.0, 3.0, 10.0)}
    for name, value in values.items():
        monkeypatch.setattr(selection, name, value)


@pytest.fixture(scope="module")
def train():
    return people(80)


@pytest.fixture(scope="module")
def visits(train) -> VisitCounts:
    return VisitCounts.of(train)


def chosen_clusters(visits: VisitCounts, train, **options):
    given = {"min_users": 5, "n_clusters": None, "spread_km": 3.0, "advance": lambda _: None}
    random = np.random.default_rng(0)
    return choose_clusters(visits, POPULATION, space_of(train.places), GRID, random=random, **(given | options))


@pytest.mark.usefixtures("few_candidates")
def test_groups_are_worth_clusters_and_shuffled_visits_are_not(train, visits):
    smoothing, gains = chosen_clusters(visits, train)
    # With two groups of half of the places each, a visit is at most twice as probable.
    assert smoothing.n_clusters > 1
    assert 0.4 < max(gains.values()) < np.log(2) + 0.1
    shuffled = np.random.default_rng(1).permutation(len(visits.user))
    nobody = replace(visits, slot=visits.slot[shuffled], place=visits.place[shuffled], count=visits.count[shuffled])
    # The best of 20 tries on 20 users is above 0 by chance, and no more than that.
    assert max(chosen_clusters(nobody, train)[1].values()) < 0.05


@pytest.mark.usefixtures("few_candidates")
def test_a_number_of_clusters_that_is_given_is_kept(train, visits):
    smoothing, gains = chosen_clusters(visits, train, n_clusters=3)
    assert smoothing.n_clusters == 3
    assert list(gains) == [3]
    # Fewer users than two clusters need are one cluster.
    smoothing, gains = chosen_clusters(visits, train, min_users=41)
    assert (smoothing.n_clusters, gains) == (1, {})


def test_what_one_user_did_is_never_told_of_the_population():
    """Users are each at a place of their own all day; nobody is anywhere else."""
    own = np.arange(40, dtype=np.int32).repeat(3)
    slot, count = np.tile(np.arange(3, dtype=np.int32), 40), np.full(120, 20, np.float32)
    regulars = VisitCounts(own, slot, own, count, 40, 3, 42)
    chosen = choose_population(regulars, GRID, np.random.default_rng(0))
    shares = population(regulars, chosen, GRID)
    # Places 40 and 41 are those that nobody visits.
    np.testing.assert_allclose(shares[:, :40], np.broadcast_to(shares[:, 40:41], (3, 40)), rtol=1e-6)
    # With another user at each of them they count.
    order = np.argsort(np.concatenate([own, (own + 1) % 40]), kind="stable")
    user, twice = np.concatenate([own, (own + 1) % 40])[order], np.tile(np.arange(120), 2)[order]
    both = VisitCounts(user, slot[twice], own[twice], count[twice], 40, 3, 42)
    assert population(both, chosen, GRID)[0, 0] > 1.5 * population(both, chosen, GRID)[0, 40]


@pytest.mark.parametrize("bug", [False, True], ids=["", "planted bug"])
def test_settings_are_chosen_by_what_others_did(train, visits, bug, monkeypatch):
    """By what users themselves did, seldom places and moves are trusted at once: everybody's own are among them."""
    if bug:
        monkeypatch.setattr(np, "setdiff1d", lambda everybody, held_out: everybody)
    random = np.random.default_rng(0)
    masses = choose_population(visits, GRID, random).place_mass
    moves = choose_moves(Transitions.of(train), visits, POPULATION, space_of(train.places), GRID, random)
    assert (masses > 10) != bug
    assert (moves.slot_mass >= 1000 and moves.stay_mass >= 200) != bug
    assert all(value in values for value, values in zip(moves, selection.MOVE_GRID, strict=True))
    assert moves != selection.MOVE_START


def test_chosen_move_smoothing_is_what_the_chains_are_fitted_with(train, monkeypatch):
    chosen = selection.MoveSmoothing(300.0, 5000.0, 1000.0, 4.0)
    used = []
    monkeypatch.setattr(selection, "choose_moves", lambda *_: chosen)
    monkeypatch.setattr(
        "ppmtf_jax.people.chain.fit_chains", lambda *given, **_: used.append(given[2]) or fit_chains(*given)
    )
    model = fit(train, "bridge", memory="none", n_clusters=1, seed=0).trace_model
    assert Selection.of_numbers(np.asarray(model.chosen)).moves == chosen
    np.testing.assert_array_equal(used[0].stays.at_place, Movement.of(used[0].counts, chosen).stays.at_place)
    np.testing.assert_array_equal(used[0].attraction.seen, Movement.of(used[0].counts, chosen).attraction.seen)
    assert (
        np.abs(used[0].stays.at_place - Movement.of(used[0].counts, selection.MOVE_START).stays.at_place).max() > 0.001
    )


def test_steps_and_visits_of_some_users_are_numbered_alike(train, visits):
    """Where settings are chosen on some users, both are split into the same folds."""
    some = np.array([3, 10, 77])
    steps = Transitions.of(train)
    found = steps.of_users(some)
    assert sorted(set(found.user)) == sorted(set(visits.of_users(some).user)) == [0, 1, 2]
    for number, user in enumerate(some):
        np.testing.assert_array_equal(found.place[found.user == number], steps.place[steps.user == user])


def test_the_fewest_within_one_error_of_the_best():
    rng = np.random.default_rng(0)
    best = rng.normal(1, 1, 400)
    # Differences of mean 0.02 and 0.5, each with an error of about 0.05.
    near, far = best - rng.normal(0.02, 1, 400), best - rng.normal(0.5, 1, 400)
    assert first_within_error([far, near, best]) == 1
    assert first_within_error([best, near]) == 0
    assert first_within_error([far, best]) == 1


@pytest.mark.usefixtures("few_candidates")
def test_homes_where_no_other_of_a_cluster_lives_leave_clusters_as_they_are(monkeypatch):
    traces = toy_city(n_users=150, n_days=3, seed=0).traces
    given = {"min_users": 5, "n_clusters": 8, "spread_km": 0.0, "advance": lambda _: None}

    def mass() -> float:
        visits, space, random = VisitCounts.of(traces), space_of(traces.places), np.random.default_rng(0)
        return choose_clusters(visits, POPULATION, space, traces.time_grid, random=random, **given)[0].population_mass

    found = mass()
    monkeypatch.setattr(selection, "POPULATION_SHARE", 0.0)
    assert found < mass()


@pytest.mark.parametrize("first_visits", [(), (1.0, 3.0, 0.5, 1.0, 0.3)], ids=["", "check-ins"])
def test_a_selection_comes_back_from_its_numbers_and_from_json(first_visits):
    numbers = np.array([0.5, 2.0, 4.0, 20.0, 0.2, 20.0, 200.0, 50.0, 4.0, 16.0, 0.72, 0.3, 2.0, *first_visits])
    found = Selection.of_numbers(numbers, n_levels=6 if first_visits else None)
    np.testing.assert_array_equal(found.numbers, numbers)
    assert (found.population.least_users, found.moves.slot_bandwidth, found.clusters.n_clusters) == (2, 4.0, 16)
    assert isinstance(found.clusters.n_clusters, int)
    settings = BridgeSettings(chosen=found, gaps="as-observed" if first_visits else "none")
    assert build_settings(BridgeSettings, json.loads(json.dumps(asdict(settings))), "bridge") == settings


def test_folds_share_out_all_users():
    folds = [own for _, own in random_folds(10, 4, np.random.default_rng(0))]
    assert sorted(np.concatenate(folds).tolist()) == list(range(10))
    assert {len(fold) for fold in folds} == {2, 3}
    assert [len(own) for _, own in random_folds(3, 10, np.random.default_rng(0))] == [1, 1, 1]


# What people remember


def gains_of(*per_user: float):
    """A score that gives each held-out user a number for each memory, with a small spread."""

    def score(memory, learned, of_learned, held_out):
        assert not set(learned.user_ids) & set(held_out.user_ids)
        assert len(of_learned) == learned.n_users
        assert held_out.n_users == people().n_users // 4
        spread = np.where(np.arange(held_out.n_users) % 2, 0.5, -0.5) * (memory != "none")
        return np.full(held_out.n_users, per_user[MEMORIES.index(memory)]) + spread

    return score


@pytest.mark.parametrize(
    ("per_user", "memory"),
    [((0, -1, -2), "none"), ((0, 1, 0.99), "places"), ((0, 1, 3), "anchors"), ((0, 0.01, 0.02), "none")],
)
def test_the_simplest_memory_within_one_error_of_the_best_is_chosen(per_user, memory):
    train = people()
    chosen, gain = choose_memory(
        train, np.zeros(train.n_users, int), gains_of(*per_user), MAX_REMEMBERED, np.random.default_rng(0)
    )
    assert chosen == memory
    assert gain[0] == 0
    # 15 held-out users with a spread of half of them up, half of them down: seven up, eight down.
    n_events = gain[2] / gain[1]
    assert n_events == pytest.approx((15 * per_user[2] - 0.5) / (15 * per_user[1] - 0.5))


def test_too_few_users_remember_nothing():
    train = people(MIN_USERS - 1)
    choice = choose_memory(train, np.zeros(train.n_users, int), pytest.fail, MAX_REMEMBERED, np.random.default_rng(0))
    assert choice == ("none", None)
    assert memory_sentence(*choice) == "People remember nothing; nothing else was compared"


def test_traces_are_compared_up_to_the_last_place_that_a_person_can_remember():
    train = people()
    np.testing.assert_array_equal(remembered(train, MAX_REMEMBERED).place, train.place)
    expected = []
    for (user, trace), events in train.to_frame().groupby(["user", "trace"]):
        for n, instant in enumerate(events["instant"]):
            if events["place"].iloc[: n + 1].nunique() <= 2:
                expected.append((user, trace, instant))
    found = remembered(train, 2).to_frame()
    assert 0 < len(found) < train.n_events
    assert list(found[["user", "trace", "instant"]].itertuples(index=False, name=None)) == expected


def test_a_person_with_more_places_than_can_be_remembered_does_not_decide():
    """Under people who remember, their whole trace would be impossible."""
    train, longest = people(), []

    def score(memory, learned, of_learned, held_out):
        longest.append(number_of_places(table_of(held_out)[0]).max())
        return np.full(held_out.n_users, float(MEMORIES.index(memory)))

    choose_memory(train, np.zeros(train.n_users, int), score, 2, np.random.default_rng(0))
    assert longest == [2] * len(MEMORIES)


def test_a_table_of_traces_has_a_row_for_each_period():
    train = people()
    places, user = table_of(train)
    assert places.shape == (2 * train.n_users, PERIOD)
    row, phase = np.nonzero(places != ABSENT)
    np.testing.assert_array_equal(user[row], train.user)
    np.testing.assert_array_equal(phase, train.instant % PERIOD)
    np.testing.assert_array_equal(places[row, phase], train.place)
