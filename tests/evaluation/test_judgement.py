"""What counts as fit: by hand for single numbers, and by real traces that must not be called unfit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from ppmtf_jax.data.measurement import Caveat, Interpretation, MetricInfo, Scale
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.evaluation.chance import chance_of, standard_errors
from ppmtf_jax.evaluation.judgement import UNIFORM_IS_BETTER, USES, YARDSTICKS, Chance, Fitness, judge, judge_uses, loss
from ppmtf_jax.evaluation.report import SECTIONS
from tests.support import evaluation_of

FLOWS = MetricInfo("od_tv", "OD-TV", "Flows.", "total variation, 0 to 1", scale="share", uses=("flows",))
RETURNS = MetricInfo(
    "return_difference", "Returns", "Returns.", "share of moves, -1 to 1", "zero", scale="share", uses=("days",)
)
DISTINCT = MetricInfo("distinct_w1", "Distinct places", "Places.", "places", scale="places")
RADIUS = MetricInfo("radius_w1_km", "Gyration, km", "Radius.", "km")


@pytest.mark.parametrize(
    ("quantity", "numbers", "word"),
    [
        # Synthetic, Training, Uniform. The yardstick is the way from Training to Uniform: 0.8.
        (FLOWS, (0.139, 0.1, 0.9), "Fit"),
        (FLOWS, (0.15, 0.1, 0.9), "With care"),
        (FLOWS, (0.27, 0.1, 0.9), "Not fit"),
        # The yardstick is 1, though random places have nearly the right share of returns.
        (RETURNS, (0.05, 0.0, 0.01), "Fit"),
        (RETURNS, (-0.19, 0.0, 0.01), "With care"),
        (RETURNS, (0.25, 0.02, 0.01), "Not fit"),
        # Fourteen places too many in a week are too many, whatever random places do.
        (DISTINCT, (14.0, 0.1, 160.0), "Not fit"),
        (DISTINCT, (0.6, 0.1, 160.0), "Fit"),
        (RADIUS, (0.5, 0.1, 8.1), "Fit"),
        (RADIUS, (1.8, 0.1, 8.1), "Not fit"),
        # Random places would be as good.
        (FLOWS, (0.6, 0.58, 0.585), "Not known"),
        (FLOWS, (0.61, 0.58, 0.6), "Not known"),
        (FLOWS, (math.nan, 0.1, 0.9), "Not known"),
        (FLOWS, (0.1, math.nan, 0.9), "Not known"),
        # Worse than random places by much is not fit.
        (FLOWS, (0.9, 0.58, 0.61), "Not fit"),
    ],
)
def test_numbers_by_hand(quantity, numbers, word):
    assert judge(quantity, *numbers).fitness.word == word


def test_what_chance_explains_is_no_error():
    assert judge(FLOWS, 0.3, 0.1, 0.9).fitness is Fitness.NOT_FIT
    assert judge(FLOWS, 0.3, 0.1, 0.9, chance=Chance(0.05)).fitness is Fitness.WITH_CARE
    assert judge(FLOWS, 0.3, 0.1, 0.9, chance=Chance(0.05)).error == pytest.approx(0.1 / 0.8)
    # Equally few real traces are as far.
    assert judge(FLOWS, 0.3, 0.1, 0.9, chance=Chance(0.0, few=0.29)).fitness is Fitness.FIT
    # A standard error that is not known is no error.
    assert judge(FLOWS, 0.3, 0.1, 0.9, chance=Chance(math.nan)).fitness is Fitness.NOT_FIT
    # If chance alone makes a serious error, only what is beyond it, or as good as real people, is known.
    widest = Chance(0.2)
    words = [judge(FLOWS, value, 0.1, 0.9, chance=widest).fitness.word for value in (0.1, 0.2, 0.5, 0.9)]
    assert words == ["Fit", "With care", "Not known", "Not fit"]


def test_few_traces_are_compared_with_few_real_and_few_random_ones():
    """New York: Uniform, which has no chance error, is as near to the test users as equally few real traces are."""
    exact, few = Chance(0.0129, 0.7141), Chance(0.0129, 0.7141, 0.8014)
    assert judge(FLOWS, 0.7221, 0.6259, 0.7167, chance=exact).fitness is Fitness.NOT_KNOWN
    found = judge(FLOWS, 0.7221, 0.6259, 0.7167, chance=few)
    assert (found.fitness, found.error, found.uniform) == (Fitness.WITH_CARE, 0.0, 0.8014)
    assert found.yardstick == pytest.approx(0.8014 - 0.7141)
    # What chance leaves open decides only where nothing else is known.
    fit = judge(FLOWS, 0.12, 0.1, 0.9)
    unknown = judge(FLOWS, math.nan, 0.1, 0.9)
    assert unknown.badness < found.badness < fit.badness
    # Nearer to random places than chance explains.
    assert judge(FLOWS, 0.8, 0.6259, 0.7167, chance=few).fitness is Fitness.NOT_FIT
    assert judge(FLOWS, 0.7407, 0.6259, 0.7167, chance=few._replace(few_uniform=0.76)).fitness is Fitness.NOT_KNOWN
    # As good as real people, but random places are as near, too: the 50 busiest places of New York.
    busiest = Chance(0.0118, 0.2440, 0.2629)
    assert judge(FLOWS, 0.2401, 0.2193, 0.2607, chance=busiest).fitness is Fitness.NOT_KNOWN
    # If Training is worse than equally few real traces, all are compared with Uniform itself.
    assert judge(FLOWS, 0.72, 0.715, 0.9, chance=few).uniform == 0.9


def test_caveats_and_floors():
    reading = Interpretation({"floor": 0.2}, (Caveat("sparse", "Too sparse"), Caveat("far", "Too far")))
    assert judge(FLOWS, 0.3, 0.1, 0.9, reading).reason == "Too sparse. Too far"
    assert judge(FLOWS, 0.22, 0.1, 0.9, Interpretation({"floor": 0.2})).fitness is Fitness.FIT
    assert judge(FLOWS, 0.22, 0.1, 0.9, Interpretation({"other": 0.2})).fitness is Fitness.WITH_CARE
    # Random places may have the right share by accident, but are near in no distance by accident.
    better = Interpretation(caveats=(UNIFORM_IS_BETTER,))
    assert judge(RETURNS, 0.25, 0.02, 0.01, better).fitness is Fitness.NOT_FIT
    assert judge(FLOWS, 0.25, 0.02, 0.01, better).fitness is Fitness.NOT_KNOWN


def test_a_larger_error_is_never_fitter():
    order = [Fitness.FIT, Fitness.WITH_CARE, Fitness.NOT_FIT]
    for quantity in (FLOWS, RETURNS, DISTINCT, RADIUS):
        found = [judge(quantity, value, 0.05, 2.0, chance=Chance(0.01)).fitness for value in np.linspace(0, 9, 400)]
        ranks = [order.index(each) for each in found if each in order]
        assert ranks == sorted(ranks)
        assert set(ranks) == {0, 1, 2}


def test_directions():
    higher = replace(FLOWS, direction="higher")
    assert [loss(each, -2.0) for each in (FLOWS, higher, RETURNS)] == [-2.0, 2.0, 2.0]
    assert math.isnan(loss(replace(FLOWS, direction="none"), 1.0))
    assert judge(higher, 0.79, 0.8, 0.0).fitness is Fitness.FIT
    assert judge(higher, 0.5, 0.8, 0.0).fitness is Fitness.NOT_FIT


def test_every_metric_has_a_yardstick_and_every_name_a_metric():
    quantities = EvaluationSettings().quantities()
    assert {name for use in USES.values() for name in use.needs} <= quantities.keys()
    used = [each for each in quantities.values() if each.uses]
    assert {use for each in used for use in each.uses} == set(USES)
    assert {each.section for each in quantities.values() if each.section} <= set(SECTIONS)
    in_space = {"jump_w1_km", "radius_w1_km", "main_places_w1_km", "tm_emd_y", "tm_emd_x"}
    assert {each.name for each in used if each.scale == "none"} <= in_space
    assert set(YARDSTICKS) == set(get_args(Scale))
    # A week's places are counted apart from other places.
    night = judge(quantities["night_homes_difference"], 1.5, 0.0, 6.0)
    assert (night.yardstick, night.fitness) == (5.0, Fitness.NOT_FIT)


def test_words_decide_nothing():
    """A unit or a caveat in another language gives the same verdict."""
    other = replace(FLOWS, unit="Anteil der Wege")
    for value in (0.12, 0.15, 0.25, 0.35):
        assert judge(other, value, 0.1, 0.5) == judge(FLOWS, value, 0.1, 0.5)
    better = Interpretation(caveats=(UNIFORM_IS_BETTER._replace(text="Zufall ist besser"),))
    assert judge(RETURNS, 0.25, 0.02, 0.01, better).fitness is Fitness.NOT_FIT


def test_the_worst_number_of_a_use_decides():
    rest = {"return_difference": 0.3, "straight_back_difference": 0.01}
    rows = [(replace(RETURNS, name=name), [value, 0.0, -0.6]) for name, value in rest.items()]
    evaluation = evaluation_of(["synthetic", "training", "uniform"], [*rows, (FLOWS, [0.12, 0.1, 0.9])])
    found = {each.use.title: each for each in judge_uses(evaluation.rows, "synthetic", {})}
    assert found["Days of persons"].fitness is Fitness.NOT_FIT
    assert [row.quantity.name for row, _ in found["Days of persons"].numbers] == list(rest)
    assert found["Flows between areas"].fitness is Fitness.FIT
    # Without a number nothing is known; what these data do not have is left out.
    assert found["Groups of people"].fitness is Fitness.NOT_KNOWN
    assert {"Friends", "Weeks of persons", "When people are seen"}.isdisjoint(found)


def mean_share(train, test):
    """Share of the training events at the first place."""
    return {"share": float(np.mean(train.place == 0))}


def test_standard_errors_are_those_of_a_mean():
    """Each user has one event, at the first place with probability 1/2: the standard error is 1 / sqrt(4 n)."""
    rng = np.random.default_rng(0)
    city = toy_city(n_users=800, n_days=1, seed=0).traces
    one_each = city.select_events(np.append(True, np.diff(city.user) > 0))
    traces = replace(one_each, place=rng.integers(2, size=one_each.n_events, dtype=np.int32))
    found = standard_errors(mean_share, traces, traces)["share"]
    # With 10 parts, the standard error itself has a relative one of 1 / sqrt(2 * 9): three of them are 0.71.
    assert found == pytest.approx(0.5 / math.sqrt(800), rel=0.71)


def test_parts_that_are_less_than_half_give_the_same_standard_error(monkeypatch):
    """A part of a tenth of the users has a variance 9 times as large, by which it is divided."""
    city = toy_city(n_users=400, n_days=1, seed=0).traces
    half = standard_errors(mean_share, city, city)["share"]
    monkeypatch.setattr("ppmtf_jax.evaluation.chance.MOST_USERS", 40)
    tenth = standard_errors(mean_share, city, city)["share"]
    # Both are estimates with a relative standard error of 0.24.
    assert 0.3 < tenth / half < 3


def test_too_few_people_have_no_standard_error():
    city = toy_city(n_users=3, n_days=1, seed=0).traces
    assert standard_errors(mean_share, city, city) == {}


@pytest.fixture(scope="module")
def people():
    city = toy_city(n_users=300, n_places=40, n_days=4, missing=0.5, seed=0).traces
    # Without friends: windows of several days, all put on one day, let friends meet more often than real days do.
    return replace(city, friendships=None).split_users(0.5, seed=0)


def test_few_real_traces_are_not_called_unfit(people):
    """A fortieth of the training users' own windows: beside all training users, they would not be fit."""
    train, test = people
    pieces = train.cut_into_periods()
    few = pieces.select_traces(np.random.default_rng(1).random(len(pieces.trace_table()[0])) < 1 / 40)
    few = replace(few, instant=few.instant % 24, time_grid=train.time_grid.one_period())
    evaluation = evaluate(few, train, test, EvaluationSettings(attacks=False))
    chance = chance_of(train, test, few)
    rows = evaluation.rows
    found = judge_uses(rows, "synthetic", chance)
    assert Fitness.NOT_FIT not in {each.fitness for each in found}
    alone = {name: Chance(each.standard_error) for name, each in chance.items()}
    blind = judge_uses(rows, "synthetic", alone)
    assert Fitness.NOT_FIT in {each.fitness for each in blind}


def test_equally_many_traces_are_held_against_training(people):
    """As many windows as training users have, but a quarter of their events of each trace number, which TP-TV takes."""
    train, test = people
    found = chance_of(train, test, train.cut_into_periods())
    assert math.isnan(found["od_tv"].few)
    assert found["tp_tv"].few > evaluate(train, train, test, EvaluationSettings(attacks=False))["tp_tv"]
