"""Traces of synthetic friends: meetings kept, budgets exact, and refusals that only noisy numbers decide on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppmtf_jax.colocation import synthesizer
from ppmtf_jax.colocation.counts import bounded_colocations, find_colocations, greedy_colocations
from ppmtf_jax.colocation.friends import (
    FriendGraph,
    noisy_degree_distribution,
    noisy_friendship_probability,
    noisy_level_counts,
)
from ppmtf_jax.colocation.statement import privacy_statement, statement_texts
from ppmtf_jax.colocation.synthesizer import (
    RELATION,
    ColocationSettings,
    ColocationSynthesis,
    noisy_colocation_counts,
    place_hierarchy,
    synthesize_colocations,
)
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.noise.accountant import Accountant
from ppmtf_jax.noise.mechanisms import SeededNoise
from ppmtf_jax.noise.privelet import noisy_counts
from ppmtf_jax.synthesizers.synthesis import fit
from ppmtf_jax.synthesizers.systems.tpm import fit_with_noise
from tests.colocation.examples import random_data, without_events, without_friends
from tests.noise.sources import Recorded, loss_between, scales_by_ledger
from tests.support import minutes, places_in_line, to_traces

# So much that noise is below one half: with probability 1 - e^-50 or so.
NO_PRIVACY = 1e4
ABSENT = -1


@pytest.fixture(scope="module")
def city() -> Traces:
    return toy_city(n_users=80, n_places=20, n_days=2, seed=0).traces


def without_categories(traces: Traces) -> Traces:
    places = traces.places
    return replace(traces, places=PlaceTable(places.ids, places.latitude, places.longitude))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"completion": "most-probable", "meetings": "by-counts"},
        {"mechanism": "laplace", "graph_model": "configuration", "max_degree": 20, "joining_probability": 0.4},
        {"graph_model": "barabasi-albert", "max_level": 5, "epsilon_level": 1e4},
    ],
    ids=lambda settings: ", ".join(settings) or "defaults",
)
def test_friends_are_where_they_meet(city, settings):
    made = synthesize_colocations(city, epsilon_friendship=10.0, n_colocations=200, seed=1, **settings)
    traces = made.traces
    assert [each[-3:] for each in traces.user_ids.tolist()] == [f" {number:02}" for number in range(80)]
    assert traces.time_grid == city.time_grid.one_period()
    places = traces.place.reshape(80, 24)
    known = made.drawn.known
    assert (places[known != ABSENT] == known[known != ABSENT]).all()
    graph = FriendGraph.of(traces)
    one, other = places[graph.pairs[made.drawn.pair].T, made.drawn.instant]
    assert (one == other).all()
    assert len(find_colocations(traces, graph)) >= len(made.drawn.pair) == 200


def test_the_ledger_is_exactly_what_was_asked_for(city):
    budgets = {"epsilon_friendship": 5.1, "epsilon_colocation": 0.2, "epsilon_number": 0.7, "epsilon_moves": 0.3}
    uniform = fit(city, "uniform", seed=0)
    for given, model, spent in (
        ({}, None, 6.3),
        ({"n_colocations": 5}, None, 5.6),
        ({"n_colocations": 5}, uniform, 5.3),
        ({"n_colocations": 5, "max_level": 3, "epsilon_level": 9.0, "max_degree": 20}, uniform, 14.3),
    ):
        made = synthesize_colocations(city, model=model, seed=0, **budgets, **given)
        stated = made.accountant.ledger()["relations"][0]
        assert stated["spent"]["epsilon"] == stated["budget"]["epsilon"] == spent
        assert made.model_given == (model is not None)


def test_sensitivities_in_the_ledger(city):
    limits = {"max_events": 7, "max_friends": 3, "max_meetings": 11}
    made = synthesize_colocations(city, epsilon_friendship=5.0, epsilon_number=5.0, seed=0, **limits)
    assert [line.sensitivity for line in made.accountant.spendings] == [79, 7 * 3, 11, 10]


def scales_of(made: ColocationSynthesis, city: Traces) -> list[tuple[float, float]]:
    """Sensitivity and epsilon of every draw, by the ledger; those of Privelet as it asks for them of empty counts."""
    counts, tree = np.zeros((24, city.n_places), int), place_hierarchy(city.places)
    privelet = {
        line.mechanism: lambda sensitivity, epsilon, noise: noisy_counts(counts, tree, sensitivity, epsilon, noise)
        for line in made.accountant.spendings
        if line.mechanism.endswith("privelet")
    }
    return scales_by_ledger(made.accountant.spendings, privelet)


# Each budget another, as is each limit, so that none can be taken for another one.
SPIED = {
    "epsilon_friendship": 10.0,
    "epsilon_colocation": 0.2,
    "epsilon_number": 7.0,
    "epsilon_moves": 0.3,
    "max_events": 7,
    "max_friends": 3,
    "max_meetings": 11,
    "max_transitions": 13,
    "epsilon_level": 9.0,
}
WAYS = {
    "as published": {},
    "laplace, degrees": {"mechanism": "laplace", "graph_model": "configuration", "max_degree": 17},
    "given number": {"n_colocations": 50},
    "levels": {"max_level": 3, "max_degree": 17, "graph_model": "barabasi-albert"},
}


def spied(city: Traces, **settings) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Sensitivity and epsilon of every draw: as noise was asked for, and by the ledger."""
    noise = Recorded(is_private=True)
    made = synthesize_colocations(city, noise=noise, seed=0, **SPIED | settings)
    return noise.scales, scales_of(made, city)


@pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
def test_every_draw_is_as_wide_as_the_ledger_says(city, settings):
    drawn, stated = spied(city, **settings)
    assert drawn == stated
    assert len(drawn) >= 3


def test_the_number_is_counted_up_to_the_limit_that_its_noise_covers(city):
    noise = Recorded(is_private=True)
    synthesize_colocations(city, noise=noise, seed=0, **SPIED)
    (counted,) = [draw.values for draw in noise.asked if draw.sensitivity == SPIED["max_meetings"]]
    assert counted.tolist() == [len(greedy_colocations(city, FriendGraph.of(city), SPIED["max_meetings"]))]


def at_ten_times_epsilon(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    """The same, of which the argument at some position, its epsilon, is ten times as large."""
    return lambda *given, **named: function(*given[:position], 10 * given[position], *given[position + 1 :], **named)


def tpm_at_ten_times_epsilon(traces, settings, noise, *, seed):
    return fit_with_noise(traces, replace(settings, epsilon=10 * settings.epsilon), noise, seed=seed)


PLANTED = {
    "friendships": ("noisy_friendship_probability", at_ten_times_epsilon(noisy_friendship_probability, 1), {}),
    "degrees": ("noisy_degree_distribution", at_ten_times_epsilon(noisy_degree_distribution, 2), {"max_degree": 17}),
    "levels": ("noisy_level_counts", at_ten_times_epsilon(noisy_level_counts, 4), {"max_level": 3, "max_degree": 17}),
    "moves": ("fit_with_noise", tpm_at_ten_times_epsilon, {}),
    "counts at ten times epsilon": ("noisy_counts", at_ten_times_epsilon(noisy_counts, 3), {}),
    "counts for c in place of c x D": (
        "noisy_counts",
        lambda counts, tree, sensitivity, *more: noisy_counts(counts, tree, sensitivity // 3, *more),
        {},
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_draw_that_is_not_what_the_ledger_says_is_noticed(city, monkeypatch, planted):
    name, wrong, settings = PLANTED[planted]
    monkeypatch.setattr(synthesizer, name, wrong)
    drawn, stated = spied(city, **settings | ({"graph_model": "configuration"} if settings else {}))
    assert drawn != stated


def test_one_user_costs_no_more_than_the_ledger_says():
    """The events and friendships of one user taken away."""
    settings = {"mechanism": "laplace", "epsilon_friendship": 40.0, "n_colocations": 1, "max_transitions": 2}
    traces, graph = random_data(3)

    def asked(own: Traces, friends: FriendGraph) -> tuple[Recorded, ColocationSynthesis]:
        noise = Recorded(is_private=True)
        return noise, synthesize_colocations(own, graph=friends, noise=noise, seed=0, **settings)

    whole, made = asked(traces, graph)
    without = [asked(without_events(traces, user), without_friends(graph, user))[0] for user in range(3)]
    lost = max(loss_between(whole, noise) for noise in without)
    # Of one of them at least as many moves count as may.
    assert 1 <= lost <= made.accountant.spent.epsilon


def test_without_noise_counts_are_those_of_the_bounded_rule(city):
    graph, settings = FriendGraph.of(city), ColocationSettings(epsilon_colocation=NO_PRIVACY)
    for mechanism in ("laplace", "privelet"):
        noisy = noisy_colocation_counts(
            city,
            graph,
            replace(settings, mechanism=mechanism),
            Accountant(RELATION, NO_PRIVACY),
            seed=4,
        )
        exact = bounded_colocations(city, graph, seed=4).counts(24).toarray()
        assert noisy.shape == (24, 20)
        # Privelet divides its noise unevenly: some tenths are left where Laplace has none.
        assert noisy == pytest.approx(exact, abs=0.25)


def test_one_user_changes_the_levels_of_friends_who_meet_by_no_more_than_the_ledger_says():
    """The events and friendships of one user taken away, in data where friends meet up to four times."""
    settings, changes = ColocationSettings(max_level=2, max_degree=1, epsilon_level=90.0), []

    def asked(traces: Traces, graph: FriendGraph) -> np.ndarray:
        noise = Recorded(is_private=True)
        with suppress(InputError):
            synthesizer._synthetic_levels(traces, graph, 9, settings, Accountant(RELATION, 90, noise=noise), seed=0)
        ((counts, sensitivity, _),) = noise.asked
        assert sensitivity == 3 * 1
        return counts

    for seed in range(8):
        traces, graph = random_data(seed, n_visited=2)
        whole = asked(traces, graph)
        for user in range(graph.n_users):
            without = asked(without_events(traces, user), without_friends(graph, user))
            changes.append(np.abs(whole - without).sum())
    assert 0 < max(changes) <= 3


def test_friends_of_a_higher_level_meet_more_often(city):
    """Without levels, all synthetic friends meet alike: the variance of their numbers is at most their mean.

    Five standard errors of this ratio, sqrt(2 / pairs), are about 0.4.
    """
    settings = {"epsilon_friendship": NO_PRIVACY, "n_colocations": 1200, "max_degree": 60, "epsilon_level": NO_PRIVACY}

    def variance_over_mean(max_level: int) -> float:
        made = synthesize_colocations(city, noise=SeededNoise(0), seed=2, max_level=max_level, **settings)
        n_met = np.bincount(made.drawn.pair, minlength=FriendGraph.of(made.traces).n_pairs)
        return n_met.var() / n_met.mean()

    assert variance_over_mean(1) < 1.4 < variance_over_mean(24)


def test_no_level_by_the_noisy_numbers_is_refused(city):
    accountant = Accountant(RELATION, 1, noise=Recorded(np.array([9000, -5, -5]), is_private=True))
    graph, settings = FriendGraph.of(city), ColocationSettings(max_level=2)
    with pytest.raises(InputError, match="friends who meet, by the noisy levels of friendships; found none"):
        synthesizer._synthetic_levels(city, graph, graph.n_pairs, settings, accountant, 0)
    assert [line.sensitivity for line in accountant.spendings] == [3 * settings.max_degree]


@pytest.mark.parametrize("max_degree", [3, 79])
def test_levels_are_drawn_as_they_are_counted(city, max_degree):
    """20,000 friendships, within five standard errors; the data have far fewer, and up to dozens of a user."""
    graph, noise, n = FriendGraph.of(city), Recorded(is_private=True), 20_000
    settings = ColocationSettings(max_level=20, max_degree=max_degree, epsilon_level=NO_PRIVACY)
    accountant = Accountant(RELATION, NO_PRIVACY, noise=noise)
    shares = np.bincount(synthesizer._synthetic_levels(city, graph, n, settings, accountant, 0), minlength=21) / n
    level = np.bincount(find_colocations(city, graph).pair, minlength=graph.n_pairs)
    cut = noisy_level_counts(graph, level, 20, max_degree, 1.0, Recorded(), seed=0)
    if max_degree >= graph.degrees().max():
        assert cut.tolist() == [(level >= least).sum() for least in range(21)]
    wanted = -np.diff(cut, append=0) / cut[0]
    assert (np.abs(shares - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / n)).all()


def test_levels_with_much_noise_are_told(city):
    """80 people, at the default budget."""
    with pytest.warns(UserWarning, match="levels of friendships have much noise: of scale 150"), suppress(InputError):
        synthesize_colocations(
            city, epsilon_friendship=10.0, max_level=2, n_colocations=20, noise=SeededNoise(1), seed=0
        )


def test_as_many_co_locations_as_there_are_in_a_period(city):
    n_days = 2
    true = len(find_colocations(city, FriendGraph.of(city))) / n_days
    made = synthesize_colocations(
        city,
        noise=SeededNoise(0),
        epsilon_friendship=NO_PRIVACY,
        epsilon_number=NO_PRIVACY,
        max_meetings=10_000,
        seed=0,
    )
    # Laplace noise of scale 10,000 / NO_PRIVACY = 1 on the number of both days.
    assert abs(made.n_wanted - true) < 25
    assert abs(len(made.drawn.pair) - true) < 25
    assert len(made.drawn.pair) <= made.n_wanted


@pytest.mark.parametrize("meetings", ["published", "by-counts"])
@pytest.mark.parametrize("joining_probability", [0.0, 0.4])
def test_what_chance_makes_is_subtracted(city, meetings, joining_probability):
    """1,000 co-locations in all, chance included; drawn without a thought of chance there are many more."""
    settings = {"epsilon_friendship": NO_PRIVACY, "meetings": meetings, "joining_probability": joining_probability}
    found = {}
    for subtract in (False, True):
        made = synthesize_colocations(
            city, noise=SeededNoise(0), n_colocations=1000, subtract_chance=subtract, seed=2, **settings
        )
        found[subtract] = len(find_colocations(made.traces, FriendGraph.of(made.traces)))
        assert (len(made.drawn.pair) == 1000) != subtract
    assert abs(found[True] - 1000) <= 0.02 * 1000
    assert found[False] > 1.1 * 1000


def test_more_by_chance_than_there_are_to_be_is_refused(city):
    with pytest.raises(InputError, match=r"fewer co-locations by chance than the 3 .*Leave subtract_chance"):
        synthesize_colocations(city, epsilon_friendship=10.0, n_colocations=3, subtract_chance=True, seed=0)


# Seeded noise


def test_what_seeded_noise_made_says_so(city):
    made = synthesize_colocations(city, epsilon_friendship=10.0, n_colocations=20, noise=SeededNoise(1), seed=0)
    statement = privacy_statement(made)
    assert (statement["private"], statement["ledger"]["private"], statement["protected"]) == (False, False, [])
    assert statement["not_protected"][0].startswith("Anybody: the noise comes from a seed")
    assert "OpenDP" not in statement["randomness"]
    assert all("NOT PRIVATE" in text for text in statement_texts(statement))
    assert made.model.settings["noise"] == "seeded"


def test_a_graph_of_more_users_than_have_events(city):
    graph = FriendGraph.from_pairs(city.user_ids, FriendGraph.of(city).pairs)
    some = city.select_users(np.arange(60))
    made = synthesize_colocations(some, graph=graph, epsilon_friendship=10.0, n_colocations=20, seed=0)
    assert made.traces.n_users == 80


# Bad input


def test_no_co_location_by_the_noisy_number_is_refused():
    """Friends who are never at one place."""
    traces = to_traces([(user, 0, 0, user) for user in range(4)], places_in_line(4), minutes(1))
    friends = replace(traces, friendships=np.array([[0, 1], [2, 3]], np.int32))
    settings = {"epsilon_friendship": NO_PRIVACY, "epsilon_number": NO_PRIVACY, "mechanism": "laplace"}
    with pytest.raises(InputError, match="at least one co-location in a period"):
        synthesize_colocations(friends, max_meetings=1, seed=0, **settings)


def test_a_place_without_category_is_refused_for_privelet_alone(city):
    with pytest.raises(InputError, match="a category of each place"):
        synthesize_colocations(without_categories(city), seed=0)
    category = city.places.category.copy()
    category[3] = ""
    places = PlaceTable(city.places.ids, city.places.latitude, city.places.longitude, category)
    with pytest.raises(InputError, match=r"1 row\), first: " + str(places.ids[3])):
        synthesize_colocations(replace(city, places=places), seed=0)
    made = synthesize_colocations(
        without_categories(city), mechanism="laplace", epsilon_friendship=10.0, n_colocations=3, seed=0
    )
    assert len(made.drawn.pair) == 3


def test_models_of_something_else_are_refused(city):
    other = toy_city(n_users=10, n_places=15, n_days=1, seed=0).traces
    with pytest.raises(InputError, match="another place table"):
        synthesize_colocations(city, model=fit(other, "uniform", seed=0), seed=0)


def test_meetings_that_a_model_makes_impossible_are_refused():
    """Everybody is always at place 0 or always at place 1 for sgd; friends meet at both, at one instant each."""
    rows = [(user, 0, instant, user // 2) for user in range(4) for instant in range(2)]
    traces = to_traces(rows, places_in_line(2), minutes(2))
    friends = replace(traces, friendships=np.array([[0, 1], [2, 3], [0, 2], [0, 3], [1, 2], [1, 3]], np.int32))
    settings = {"epsilon_friendship": NO_PRIVACY, "epsilon_colocation": NO_PRIVACY, "mechanism": "laplace"}
    sgd = fit(traces, "sgd", seed=0)
    with pytest.raises(InputError, match="meetings that are possible under the model"):
        synthesize_colocations(friends, model=sgd, n_colocations=6, seed=1, **settings)
