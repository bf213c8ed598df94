"""What counts as fit: by hand for single numbers, and by real traces that must not be called unfit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from ppmtf_jax.data.measurement import Caveat, Interpretation, MetricInfo, Scale
from ppmtf_jax.datasets.toy_city import toy_city
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import EvaluationSettings, evaluate
from ppmtf_jax.evaluation.chance import chance_of, standard_errors
from ppmtf_jax.evaluation.judgement import (
    UNIFORM_IS_BETTER,
    USES,
    YARDSTICKS,
    Chance,
    Fitness,
    Judged,
    judge,
    judge_uses,
)
from ppmtf_jax.evaluation.report import SECTIONS, Status
from ppmtf_jax.evaluation.report.compose import check_names, utility_finding
from ppmtf_jax.evaluation.results import Row
from tests.support import evaluation_of

FLOWS = MetricInfo("od_tv", "OD-TV", "Flows.", "total variation, 0 to 1", scale="share", uses=("flows",))
RETURNS = MetricInfo(
    "return_difference", "Returns", "Returns.", "share of moves, -1 to 1", "zero", scale="share", uses=("days",)
)
DISTINCT = MetricInfo("distinct_w1", "Distinct places", "Places.", "places", scale="places")
RADIUS = MetricInfo("radius_w1_km", "Gyration, km", "Radius.", "km")


FAR = MetricInfo("far_km", "Far, km", "How far off.", "km", "lower", "near Training", "nobody moves")
CAVEATS = (Caveat("sparse", "Too sparse"), Caveat("far", "Too far"))


def judged(
    quantity: MetricInfo, *numbers: float, reading: Interpretation = Interpretation(), **chance: float
) -> Judged:
    """The judgement of synthetic traces; the numbers are theirs, that of Training, and that of Uniform."""
    row = Row(quantity, "utility", dict(zip(("ours", "training", "uniform"), numbers, strict=True)), reading)
    return judge(row, "ours", Chance(**chance))


def word(*numbers: Any, **options: Any) -> str:
    return judged(*numbers, **options).fitness.word


@pytest.mark.parametrize(
    ("quantity", "numbers", "expected"),
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
        (replace(FLOWS, direction="higher"), (0.79, 0.8, 0.0), "Fit"),
        (replace(FLOWS, direction="higher"), (0.5, 0.8, 0.0), "Not fit"),
        # Random places would be as good.
        (FLOWS, (0.6, 0.58, 0.585), "Not known"),
        (FLOWS, (0.61, 0.58, 0.6), "Not known"),
        (FLOWS, (math.nan, 0.1, 0.9), "Not known"),
        (FLOWS, (0.1, math.nan, 0.9), "Not known"),
        (replace(FLOWS, direction="none"), (0.1, 0.1, 0.9), "Not known"),
        # Worse than random places by much is not fit.
        (FLOWS, (0.9, 0.58, 0.61), "Not fit"),
    ],
)
def test_numbers_by_hand(quantity, numbers, expected):
    assert word(quantity, *numbers) == expected
    # A unit in another language gives the same judgement.
    assert word(replace(quantity, unit="Anteil der Wege"), *numbers) == expected


def test_what_chance_explains_is_no_error():
    assert word(FLOWS, 0.3, 0.1, 0.9) == "Not fit"
    assert word(FLOWS, 0.3, 0.1, 0.9, standard_error=0.05) == "With care"
    assert judged(FLOWS, 0.3, 0.1, 0.9, standard_error=0.05).error == pytest.approx(0.1 / 0.8)
    # Equally few real traces are as far.
    assert word(FLOWS, 0.3, 0.1, 0.9, few=0.29) == "Fit"
    # A standard error that is not known is no error.
    assert word(FLOWS, 0.3, 0.1, 0.9, standard_error=math.nan) == "Not fit"
    # If chance alone makes a serious error, only what is beyond it, or as good as real people, is known.
    words = [word(FLOWS, value, 0.1, 0.9, standard_error=0.2) for value in (0.1, 0.2, 0.5, 0.9)]
    assert words == ["Fit", "With care", "Not known", "Not fit"]


def test_few_traces_are_compared_with_few_real_and_few_random_ones():
    """New York: Uniform, which has no chance error, is as near to the test users as equally few real traces are."""
    numbers, few = (0.7221, 0.6259, 0.7167), {"standard_error": 0.0129, "few": 0.7141}
    assert word(FLOWS, *numbers, **few) == "Not known"
    few["few_uniform"] = 0.8014
    found = judged(FLOWS, *numbers, **few)
    assert (found.fitness, found.error, found.uniform) == (Fitness.WITH_CARE, 0.0, 0.8014)
    assert found.yardstick == pytest.approx(0.8014 - 0.7141)
    # What chance leaves open decides only where nothing else is known.
    assert judged(FLOWS, math.nan, 0.1, 0.9).badness < found.badness < judged(FLOWS, 0.12, 0.1, 0.9).badness
    # Nearer to random places than chance explains.
    assert word(FLOWS, 0.8, 0.6259, 0.7167, **few) == "Not fit"
    assert word(FLOWS, 0.7407, 0.6259, 0.7167, **few | {"few_uniform": 0.76}) == "Not known"
    # As good as real people, but random places are as near, too: the 50 busiest places of New York.
    busiest = {"standard_error": 0.0118, "few": 0.2440, "few_uniform": 0.2629}
    assert word(FLOWS, 0.2401, 0.2193, 0.2607, **busiest) == "Not known"
    # If Training is worse than equally few real traces, all are compared with Uniform itself.
    assert judged(FLOWS, 0.72, 0.715, 0.9, **few).uniform == 0.9


def test_caveats_and_floors():
    floor = Interpretation({"floor": 0.2})
    assert judged(FLOWS, 0.3, 0.1, 0.9, reading=replace(floor, caveats=CAVEATS)).reason == "Too sparse. Too far"
    assert word(FLOWS, 0.22, 0.1, 0.9, reading=floor) == "Fit"
    assert word(FLOWS, 0.22, 0.1, 0.9, reading=Interpretation({"other": 0.2})) == "With care"
    # Random places may have the right share by accident, but are near in no distance by accident. Words decide nothing.
    better = Interpretation(caveats=(UNIFORM_IS_BETTER._replace(text="Zufall ist besser"),))
    assert word(RETURNS, 0.25, 0.02, 0.01, reading=better) == "Not fit"
    assert word(FLOWS, 0.25, 0.02, 0.01, reading=better) == "Not known"


def test_a_larger_error_is_never_fitter():
    order = [Fitness.FIT, Fitness.WITH_CARE, Fitness.NOT_FIT]
    for quantity in (FLOWS, RETURNS, DISTINCT, RADIUS):
        found = [judged(quantity, value, 0.05, 2.0, standard_error=0.01).fitness for value in np.linspace(0, 9, 400)]
        ranks = [order.index(each) for each in found if each in order]
        assert ranks == sorted(ranks)
        assert set(ranks) == {0, 1, 2}


@pytest.mark.parametrize(
    ("synthetic", "position", "expected"),
    [
        (0.5, -0.125, "Fit"),
        (1.0, 0.0, "Fit"),
        (1.2, 0.05, "Fit"),
        (1.3, 0.075, "With care"),
        (1.8, 0.2, "With care"),
        (1.9, 0.225, "Not fit"),
        (9.0, 2.0, "Not fit"),
        (math.nan, None, "Not known"),
    ],
)
def test_the_way_from_training_to_uniform(synthetic, position, expected):
    """Training is at 1, Uniform at 5: a twentieth of the way is 1.2, a fifth of it 1.8."""
    found = judged(FAR, synthetic, 1.0, 5.0)
    assert found.fitness.word == expected
    assert found.scale == (None if position is None else pytest.approx((position, 0.05, 0.2)))


def test_scales_and_numbers_are_those_that_the_judgement_compares():
    # Two standard errors of 0.1 on the way from 1 to 5 are a twentieth of it.
    found = judged(FAR, 1.35, 1.0, 5.0, standard_error=0.1)
    assert found.scale == pytest.approx((0.35 / 4, 0.1, 0.25))
    assert found.texts == {"Training": "1.0000 ± 0.2000", "Synthetic": "1.3500", "Uniform": "5.0000"}
    few = judged(FAR, 1.9, 1.0, 5.0, few=1.8, few_uniform=6.0)
    assert (few.fitness, [*few.texts]) == (Fitness.FIT, ["Equally few real", "Synthetic", "Equally few random"])
    signed, more = (replace(FAR, direction=direction) for direction in ("zero", "higher"))
    assert judged(signed, -0.3, 0.1, 0.9).scale[0] == pytest.approx((0.3 - 0.1) / (0.9 - 0.1))
    assert judged(more, 0.6, 0.8, 0.0).scale[0] == pytest.approx((0.8 - 0.6) / 0.8)
    with_floor = judged(FAR, 2.0, 0.0, 4.0, reading=Interpretation({"floor": 1.0, "all alike": 3.0}))
    assert with_floor.scale[0] == pytest.approx((2 - 1) / (4 - 1))
    assert with_floor.beside == "all alike 3"
    assert with_floor.texts == {"Floor": "1.0000", "Synthetic": "2.0000", "Uniform": "4.0000"}
    assert "Training" in judged(FAR, 2.0, 1.5, 4.0, reading=Interpretation({"floor": 1.0})).texts


def test_numbers_that_say_little_decide_nothing():
    with_caveat = judged(FAR, 9.0, 1.0, 5.0, reading=Interpretation(caveats=CAVEATS))
    assert with_caveat.scale is None
    assert word(FAR, 1.0, 5.0, 5.05) == "Not known"
    assert utility_finding("How far?", [with_caveat, judged(FAR, 1.0, 1.0, 5.0)]).status is Status.GOOD
    assert utility_finding("How far?", [with_caveat]).status is Status.UNKNOWN


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
    night = judged(quantities["night_homes_difference"], 1.5, 0.0, 6.0)
    assert (night.yardstick, night.fitness) == (5.0, Fitness.NOT_FIT)


def test_the_worst_number_of_a_use_decides():
    rest = {"return_difference": 0.3, "straight_back_difference": 0.01}
    rows = [(replace(RETURNS, name=name), [value, 0.0, -0.6]) for name, value in rest.items()]
    evaluation = evaluation_of(["synthetic", "training", "uniform"], [*rows, (FLOWS, [0.12, 0.1, 0.9])])
    found = {each.use.title: each for each in judge_uses(evaluation.rows, "synthetic", {})}
    assert found["Days of persons"].fitness is Fitness.NOT_FIT
    assert [each.quantity.name for each in found["Days of persons"].numbers] == list(rest)
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
    monkeypatch.setattr("ppmtf_jax.evaluation.chance.MAX_USERS", 40)
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
    rows = evaluate(few, train, test, EvaluationSettings(attacks=False)).rows
    chance = chance_of(train, test, few)
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


@pytest.mark.parametrize("wrong", [{"section": "person"}, {"uses": ("day",)}])
def test_a_metric_names_a_section_and_uses_that_exist(wrong):
    info = MetricInfo("tour", "Tour", "How long a tour is.", "km")
    check_names([replace(info, section="persons", uses=("days",))])
    with pytest.raises(InputError):
        check_names([replace(info, **wrong)])
