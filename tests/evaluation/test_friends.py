"""Metrics of friends on a few people known by heart, planted synthesizers, and what is undefined or left out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax.colocation.friends import FriendGraph, sample_erdos_renyi
from ppmtf_jax.colocation.metrics import degree_distribution
from ppmtf_jax.data.measurement import Caveat, Comparison
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import EvaluationSettings, evaluate, format_table
from ppmtf_jax.evaluation.metrics.friends import APART, Encounters
from ppmtf_jax.evaluation.registry import METRICS
from tests import support

FRIENDS = ("friend_meetings", "friend_graph")

PERIOD = 4
NAMES = [quantity.name for name in FRIENDS for quantity in METRICS[name].quantities]
NO_ATTACKS = EvaluationSettings(attacks=False)
PLACES = replace(support.places_in_line(4), category=np.array(["bar", "home", "bar", "home"], object))
_ = None


def grid_of(n_periods: int = 1, *, step_s: int = 21_600) -> TimeGrid:
    """Two slots of two instants each."""
    return TimeGrid("2024-01-01T00:00:00", step_s, np.tile(np.array([0, 0, 1, 1]), n_periods), period=PERIOD)


def people(*days: list[int | None], friends: list[tuple[int, int]], first_id: int = 0) -> Traces:
    """A user for each list of places, one for each instant."""
    rows = [(first_id + u, 0, i, place) for u, day in enumerate(days) for i, place in enumerate(day) if place is not _]
    grid = grid_of(max(map(len, days)) // PERIOD)
    pairs = np.array(friends, np.int32).reshape(-1, 2)
    return replace(support.to_traces(rows, PLACES, grid), friendships=pairs)


# Friends 0 and 1 are both seen at instants 0, 1 and 2, and meet at 0 in place 0 and at 2 in place 1. Friends 1 and 2
# are seen at 0 and 1, and meet at 1 in place 2.
REAL = people([0, 0, 1, 1], [0, 2, 1, _], [3, 2, _, 0], [0, 2, 1, 1], friends=[(0, 1), (1, 2)])
# The first two meet at 0, 2 and 3, the first and the third at 1 and 3, the strangers at 3, all of them in place 1.
MADE = people([1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 1], friends=[(0, 1), (0, 2)], first_id=10)
REAL_COUNTS = [2, 1]


def comparison(traces: Traces, test: Traces = REAL, *, synthetic: bool = True) -> Comparison:
    return Comparison(traces, test, test, PERIOD, pool_traces=not synthetic)


def named(values: dict[str, list[float]]) -> dict[str, float]:
    """Numbers by the names of their quantities, of those by the names of the metrics."""
    return {
        quantity.name: value
        for name, numbers in values.items()
        for quantity, value in zip(METRICS[name].quantities, numbers, strict=True)
    }


def measured(traces: Traces, test: Traces = REAL, *, synthetic: bool = True) -> dict[str, float]:
    about = comparison(traces, test, synthetic=synthetic)
    return named({name: METRICS[name].measure(about, METRICS[name].settings()) for name in FRIENDS})


def uniform(test: Traces) -> dict[str, float]:
    about = comparison(test, test, synthetic=False)
    return named({name: METRICS[name].uniform(about, METRICS[name].settings()) for name in FRIENDS})


def caveats(test: Traces) -> dict[str, tuple[Caveat, ...]]:
    about = comparison(test, test, synthetic=False)
    readings = {name: METRICS[name].reading(about, METRICS[name].settings()) for name in FRIENDS}
    return named({name: [each.caveats for each in of_metric] for name, of_metric in readings.items()})


# Numbers known by heart


def test_encounters_of_people_known_by_heart() -> None:
    encounters = Encounters.of(REAL)
    friends = encounters.friends
    assert friends.user.tolist() == [0, 1]
    assert friends.window.tolist() == [0, 0, 0, 1, 1]
    assert friends.phase.tolist() == [0, 1, 2, 0, 1]
    assert friends.place.tolist() == [0, APART, 1, APART, 2]
    assert encounters.friends_seen().tolist() == [2, 2, 1, 0]
    assert {tuple(cell) for cell in np.argwhere(encounters.friends_met())} == {(0, 0), (2, 1), (1, 2)}
    assert encounters.meetings_per_window().tolist() == REAL_COUNTS
    # Pairs 0-2, 0-3, 1-3 and 2-3; they meet 0 + 3 + 3 + 1 times.
    assert encounters.strangers_seen.tolist() == [4, 4, 2, 3]
    assert encounters.strangers_met.tolist() == [2, 2, 2, 1]


def test_numbers_of_people_known_by_heart() -> None:
    """Synthetic pairs count at each instant as much as pairs of test users are seen there."""
    found = measured(MADE)
    # Half of the synthetic pairs of friends meet at 0, 1 and 2, where all real ones are seen. Strangers meet at 3 only.
    friends, strangers = 1 / 2, 3 / 13
    assert found["friend_rate"] == pytest.approx(friends - 3 / 5)
    assert found["stranger_rate"] == pytest.approx(strangers - 7 / 13)
    assert found["friend_lift"] == pytest.approx(math.log2(friends / strangers) - math.log2((3 / 5) / (7 / 13)))
    weight_of_slot = np.array([2 / 2 + 2 / 2, 1 / 2])
    assert found["meeting_slot_tv"] == pytest.approx(weight_of_slot[0] / weight_of_slot.sum() - 2 / 3)
    assert found["meeting_category_tv"] == pytest.approx(2 / 3)  # all at home, where a third of the real ones are
    # Seen as two real friends are, the first pair meets twice or once and the second once.
    assert found["pair_meetings_tv"] in (0, 1 / 2)
    # Of 0, 1, 2 and 1 friends, those who are among 3 of the 4 users: expected shares of 0, 1 and 2.
    expected = np.array([1 + 1 / 3 + 1 / 3 + 0, 2 / 3 + 2 / 3 + 2 / 3, 1 / 3]) / 4
    assert found["friends_tv"] == pytest.approx(np.abs(expected - np.array([0, 2, 1]) / 3).sum() / 2)
    assert found["clustering"] == 0


def test_real_sets_are_taken_as_they_are_seen() -> None:
    found = measured(MADE, synthetic=False)
    assert found["friend_rate"] == pytest.approx(5 / 8 - 3 / 5)
    assert found["stranger_rate"] == pytest.approx(1 / 4 - 7 / 13)
    assert found["pair_meetings_tv"] == 1 / 2  # 3 and 2 times, where the real ones meet 2 times and once


@pytest.mark.parametrize("synthetic", [False, True])
def test_a_set_is_no_distance_from_itself(synthetic: bool) -> None:
    found = measured(REAL, synthetic=synthetic)
    # Thinned to the window of another pair it is not quite itself.
    assert found.pop("pair_meetings_tv") <= 1 / 2 * synthetic
    assert found == pytest.approx(dict.fromkeys(found, 0))


def test_windows_of_friends_are_of_one_period() -> None:
    two_days = people([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 2, 2, _, 1], friends=[(0, 1)])
    assert Encounters.of(two_days).meetings_per_window().tolist() == [4, 1]
    assert Encounters.of(two_days).friends.time_grid == grid_of()
    # The pair is seen at every instant of the day that one synthetic pair is thinned to, or at all but 2.
    assert measured(people([0] * 4, [0] * 4, friends=[(0, 1)]), two_days)["pair_meetings_tv"] in (1 / 2, 1)


def test_traces_of_each_number_are_measured_by_themselves() -> None:
    doubled = {name: np.tile(getattr(MADE, name), 2) for name in ("user", "trace", "instant", "place")}
    doubled["trace"] = np.repeat(np.array([0, 1], np.int32), MADE.n_events)
    order = np.lexsort((doubled["instant"], doubled["trace"], doubled["user"]))
    twice = replace(MADE, **{name: column[order] for name, column in doubled.items()})
    one, two = (evaluate(each, REAL, REAL, NO_ATTACKS) for each in (MADE, twice))
    assert [one[name] for name in NAMES] == [two[name] for name in NAMES]


def test_uniform_is_chance() -> None:
    """Any of 4 places, half of which are bars; and 2 friendships of 6 possible ones, at random."""
    found = uniform(REAL)
    assert found["friend_rate"] == pytest.approx(1 / 4 - 3 / 5)
    assert found["stranger_rate"] == pytest.approx(1 / 4 - 7 / 13)
    assert found["friend_lift"] == pytest.approx(0 - math.log2((3 / 5) / (7 / 13)))
    assert found["meeting_slot_tv"] == pytest.approx(4 / 5 - 2 / 3)
    assert found["meeting_category_tv"] == pytest.approx(2 / 3 - 1 / 2)
    # Seen together 3 times and 2 times; the real ones meet twice and once.
    three, two = np.array([27, 27, 9, 1]) / 64, np.array([9, 6, 1, 0]) / 16
    expected = np.abs((three + two) / 2 - np.array([0, 1, 1, 0]) / 2).sum() / 2
    assert found["pair_meetings_tv"] == pytest.approx(expected)
    binomial = np.array([8, 12, 6, 1]) / 27
    assert found["friends_tv"] == pytest.approx(np.abs(binomial - np.array([1, 2, 1, 0]) / 4).sum() / 2)
    assert found["clustering"] == pytest.approx(1 / 3 - 0)
    triangle = replace(MADE, friendships=np.array([[0, 1], [0, 2], [1, 2]], np.int32))
    assert (measured(triangle)["clustering"], measured(MADE, triangle)["clustering"]) == (1, -1)
    other_grid = measured(replace(MADE, time_grid=grid_of(step_s=3600)))
    assert [name for name in NAMES if not math.isnan(other_grid[name])] == ["friends_tv", "clustering"]


# Planted synthesizers


@pytest.fixture(scope="module")
def halves() -> tuple[Traces, Traces]:
    return toy_city(n_users=1200, n_places=40, n_days=2, seed=0).traces.split_users(0.5, seed=0)


def shuffled_friends(traces: Traces) -> Traces:
    """The same graph, of other people."""
    other = np.random.default_rng(0).permutation(traces.n_users)
    return replace(traces, friendships=np.sort(other[traces.friendships], axis=1).astype(np.int32))


def at_other_hours(traces: Traces) -> Traces:
    """Everybody's nights and days swapped; there are two of each."""
    frame = traces.to_frame()
    frame["instant"] = (frame["instant"] + 12) % 48
    return Traces.from_frame(frame, traces.places, traces.time_grid, traces.friendship_frame())


def at_other_places(traces: Traces) -> Traces:
    """Everybody at another place, the same for all who were at one."""
    other = np.random.default_rng(0).permutation(traces.n_places).astype(np.int32)
    return replace(traces, place=other[traces.place])


def friends_of_chance(traces: Traces) -> Traces:
    """As many friendships, between anybody."""
    probability = FriendGraph.of(traces).n_pairs / FriendGraph.of(traces).n_possible_pairs
    return replace(traces, friendships=sample_erdos_renyi(traces.n_users, probability, seed=0).pairs)


@pytest.mark.parametrize(
    ("plant", "worse", "kept"),
    [
        (
            shuffled_friends,
            ["friend_rate", "friend_lift", "pair_meetings_tv"],
            ["friends_tv", "clustering"],
        ),
        (at_other_hours, ["meeting_slot_tv"], ["friends_tv", "clustering"]),
        (
            at_other_places,
            ["meeting_category_tv"],
            ["friend_rate", "friend_lift", "meeting_slot_tv", "pair_meetings_tv"],
        ),
        (friends_of_chance, ["friend_rate", "friend_lift", "pair_meetings_tv", "clustering"], []),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_planted_is_found_out_and_nothing_else(halves, plant, worse: list[str], kept: list[str]) -> None:
    train, test = halves
    honest, planted = (measured(each, test, synthetic=False) for each in (train, plant(train)))
    for name in worse:
        assert abs(planted[name]) > 2 * abs(honest[name]) + 0.02, name
    for name in kept:
        assert planted[name] == pytest.approx(honest[name]), name


def test_friends_of_chance_are_too_even() -> None:
    """Real people have 1 to 20 friends; by chance nearly all have about as many."""
    train, test = toy_city(n_users=6000, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    honest, planted = (
        measured(each, test, synthetic=False)["friends_tv"] for each in (train, friends_of_chance(train))
    )
    # Shares p of 3,000 users are known to sqrt(p / 3000), and so are those that they are compared with.
    tolerance = math.sqrt(2 * 12 / 3000) / 2
    assert honest < tolerance
    assert planted > 2 * tolerance


def test_gaps_alone_are_no_difference() -> None:
    """Complete traces, and the same with most events of the night missing, as if they were real."""
    traces = toy_city(n_users=800, n_places=40, n_days=2, missing=0.0, seed=0).traces
    frame = traces.to_frame()
    seen_share = np.where(frame["instant"] % 24 < 12, 0.15, 0.8)
    frame = frame[np.random.default_rng(0).random(len(frame)) < seen_share]
    gaps = Traces.from_frame(frame, traces.places, traces.time_grid)
    gaps = replace(gaps, friendships=traces.friendships)
    assert gaps.n_users == traces.n_users
    encounters = Encounters.of(gaps)
    # Five standard errors, as if all that is seen of a pair were one observation.
    n_pairs = len(np.unique(encounters.friends.user))
    tolerance = 5 * 0.5 / math.sqrt(n_pairs)
    thinned, whole = (measured(traces, gaps, synthetic=synthetic) for synthetic in (True, False))
    for name in ("friend_rate", "stranger_rate", "meeting_slot_tv", "meeting_category_tv", "pair_meetings_tv"):
        assert abs(thinned[name]) < tolerance, name
    # Taken as they are, nights, when friends are at home, count several times as much as they should.
    for name in ("friend_rate", "meeting_slot_tv", "pair_meetings_tv"):
        assert abs(whole[name]) > tolerance, name


def test_splitting_users_is_no_difference() -> None:
    """A fifth of the users have a fifth of their friends; as many are taken away from the others."""
    train, test = toy_city(n_users=3000, n_places=40, n_days=1, seed=1).traces.split_users(0.8, seed=0)
    found = measured(train, test, synthetic=False)
    assert FriendGraph.of(test).degrees().mean() < 0.4 * FriendGraph.of(train).degrees().mean()
    # Shares p of 600 users are known to sqrt(p / 600); those of 10 numbers of friends add up to sqrt(10) / 2 times it.
    assert found["friends_tv"] < 2 * math.sqrt(10 / 600) / 2
    shares, other = (degree_distribution(FriendGraph.of(each)) for each in (train, test))
    naive = np.abs(shares[: len(other)] - other).sum() / 2 + shares[len(other) :].sum() / 2
    assert naive > 0.4
    # About 600 x (8 / 5)^2 / 2 pairs of friends of one user, each closed or not: five standard errors.
    assert abs(found["clustering"]) < 5 * math.sqrt(0.1 / (600 * (8 / 5) ** 2 / 2))


# What is undefined, or left out


def test_without_friendships_nothing_is_said_of_friends() -> None:
    alone = replace(MADE, friendships=None)
    for sets in ((alone, REAL, REAL), (MADE, REAL, replace(REAL, friendships=None))):
        evaluation = evaluate(*sets, NO_ATTACKS)
        assert not set(NAMES) & set(evaluation.metrics)
    nobody = replace(MADE, friendships=np.zeros((0, 2), np.int32))
    assert not set(NAMES) & set(evaluate(nobody, REAL, REAL, NO_ATTACKS).metrics)
    # Where one set of several has friends, the others are undefined.
    evaluation = evaluate({"friends": MADE, "alone": alone}, replace(REAL, friendships=None), REAL, NO_ATTACKS)
    for name in NAMES:
        known = [not math.isnan(evaluation.value(name, each)) for each in ("friends", "uniform", "alone", "training")]
        assert known == [True, True, False, False]
    assert "no friendships in one of the sets" in str(format_table(evaluation).caption)


def test_friends_who_are_never_seen_together() -> None:
    apart = people([0, _, 1, _], [_, 0, _, 1], [1, 1, 1, 1], friends=[(0, 1)], first_id=10)
    found = measured(apart)
    assert [name for name in NAMES if not math.isnan(found[name])] == ["friends_tv"]
    for found in (measured(MADE, apart), uniform(apart)):
        assert [name for name in NAMES[:-2] if not math.isnan(found[name])] == []
        assert found["friends_tv"] < 1


def test_places_without_categories_have_no_number() -> None:
    everywhere = replace(PLACES, category=np.full(4, "", object))
    for places in (replace(PLACES, category=None), everywhere):
        made, real = (replace(each, places=places) for each in (MADE, REAL))
        found = evaluate(made, real, real, NO_ATTACKS)
        undefined = ["meeting_category_tv", "colocation_mae", "colocation_mse"]
        assert [name for name in NAMES if math.isnan(found[name])] == undefined


def test_friends_who_never_meet_have_a_rate_but_no_hours() -> None:
    never = people([0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], friends=[(0, 1)], first_id=10)
    found = measured(never)
    undefined = {"friend_lift", "meeting_slot_tv", "meeting_category_tv", "clustering"}
    assert {name for name in NAMES if math.isnan(found[name])} == undefined
    assert found["friend_rate"] == pytest.approx(0 - 3 / 5)


def test_few_meetings_and_friendships_are_told(halves) -> None:
    told = caveats(REAL)
    assert told.pop("stranger_rate") == ()
    assert {each.code for caveats in told.values() for each in caveats} == {"few_values"}
    assert all("only 2 friend" in told.pop(name)[0].text for name in ("friends_tv", "clustering"))
    assert all("only 3 times" in caveat.text for [caveat] in told.values())
    assert not any(caveats(halves[1]).values())


# Synthetic traces beside friendships


def at_places_of_chance(traces: Traces, n_traces: int) -> Traces:
    """Several traces of each user, at random places: they know nothing of friends."""
    rng, frame = np.random.default_rng(0), traces.to_frame()
    frames = [frame.assign(trace=number, place=rng.permutation(frame["place"])) for number in range(n_traces)]
    return Traces.from_frame(pd.concat(frames), traces.places, traces.time_grid, traces.friendship_frame())


def test_synthetic_friends_are_measured_and_nobody_is_looked_for() -> None:
    train, test = toy_city(n_users=100, n_places=20, n_days=1, seed=0).traces.split_users(0.5, seed=0)
    # Numbers from 0 on, as one might have given the synthetic users.
    train = replace(train, user_ids=np.arange(train.n_users))
    test = replace(test, user_ids=np.arange(1000, 1000 + test.n_users))
    evaluation = evaluate(replace(at_places_of_chance(train, 1), of_nobody=True), train, test)
    undefined = [name for name in evaluation.metrics if math.isnan(evaluation[name])]
    assert undefined == ["group_tv", "reid_rate"]
    assert set(NAMES) < set(evaluation.metrics)
    caption = " ".join(str(format_table(evaluation).caption).split())
    assert "Re-identification rate: no transition to attack with" in caption
    assert "synthetic users who stand for nobody" in caption
    assert evaluation.value("reid_rate", "training") > 0.9
