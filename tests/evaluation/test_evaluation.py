"""What `evaluate` measures of which traces, several synthetic sets side by side, and what one can register."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ppmtf_jax import fit, synthesize, toy_city
from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.measurement import (
    Caveat,
    Comparison,
    Interpretation,
    Measurement,
    MetricInfo,
    NoSettings,
    part_of_trace,
)
from ppmtf_jax.data.time_grid import TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError
from ppmtf_jax.evaluation import Evaluation, EvaluationSettings, evaluate, format_table
from ppmtf_jax.evaluation import evaluation as evaluation_module
from ppmtf_jax.evaluation.judgement import UNIFORM_IS_BETTER
from ppmtf_jax.evaluation.plots import privacy_bars, utility_bars
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.settings import Settings
from ppmtf_jax.streams import Stage, numpy_stream
from tests import support
from tests.attacks.published_numbers import mia_advantage, reid_rate
from tests.evaluation.single_metrics import tm_emd, tp_tv, tp_tv_top50

PLACES = support.places_in_line(6)
NO_ATTACKS = EvaluationSettings(attacks=False)
# Five training users make a group.
SMALL_GROUPS = EvaluationSettings(settings={"group_tv": {"min_users": 2, "n_cells": 1}})
ATTACK_NUMBERS = [
    *("unicity", "copied_far", "n_people_copied", "density_ratio_auc", "hidden_places", "hidden_places_km"),
    *("inferred_home", "inferred_second", "inferred_rest"),
    *("mia_advantage", "mia_chance", "n_attacked", "reid_rate"),
]
UTILITY_NUMBERS = [
    *("tp_tv", "tp_tv_top50", "tm_emd_y", "tm_emd_x", "vf_tv", "tp_swd", "tm_tv", "tm_swd"),
    # Of one period; of all that have a distance from the test users.
    *("stay_difference", "move_interval_w1_h", "jump_tv", "radius_w1_km", "od_tv", "row_tv", "group_tv"),
    # Traces last one period of four hours, so no window has the events that shares and entropy need.
    *("return_difference", "straight_back_difference", "return_time_tv", "distinct_w1"),
    *("daily_motif_tv", "closed_day_difference", "diversity_difference", "stay_any_gap_difference"),
    # Of synthetic traces with gaps; undefined for Uniform.
    *("events_w1", "event_gap_tv", "day_events_tv"),
    *("rare_visits", "rare_tv", "population_mae", "population_mse", "transition_mae", "transition_mse"),
]
ALL = [*UTILITY_NUMBERS, *ATTACK_NUMBERS]


def grid_of(n_periods: int) -> TimeGrid:
    return TimeGrid("2024-01-01T00:00:00", 3600, np.tile(np.array([0, 0, 1, 2], np.int32), n_periods), period=4)


def random_traces(seed: int, users: range, *, n_traces: int = 1, n_periods: int = 1) -> Traces:
    grid = grid_of(n_periods)
    return support.random_traces(seed, users, PLACES, grid, n_traces=n_traces, keep=0.75, n_visited=4)


@pytest.fixture(scope="module")
def train() -> Traces:
    return random_traces(0, range(5), n_periods=3)


@pytest.fixture(scope="module")
def test_set() -> Traces:
    return random_traces(1, range(5, 9), n_traces=2, n_periods=3)


@pytest.fixture(scope="module")
def synthetic() -> Traces:
    return random_traces(2, range(5), n_traces=3)


@pytest.fixture(scope="module")
def evaluated(synthetic: Traces, train: Traces, test_set: Traces) -> Evaluation:
    return evaluate(synthetic, train, test_set, SMALL_GROUPS)


def test_averages_over_trace_numbers_and_takes_real_sets_whole(evaluated, synthetic, train, test_set) -> None:
    # Traces with gaps have few events each, so the population and the transitions are those of all traces.
    uniform = replace(
        synthetic, place=numpy_stream(0, Stage.UNIFORM).integers(6, size=synthetic.n_events, dtype=np.int32)
    )
    for column, traces, pooled in (("synthetic", synthetic, {}), ("training", train, {"pool_traces": True})):
        found = {name: evaluated.value(name, column) for name in ALL}
        assert found["tp_tv"] == tp_tv(traces, test_set)
        assert found["tp_tv_top50"] == tp_tv_top50(traces, test_set)
        assert (found["tm_emd_y"], found["tm_emd_x"]) == tm_emd(traces, test_set)
        assert found["reid_rate"] == reid_rate(traces, train, **pooled)
        assert found["mia_advantage"] == mia_advantage(traces, train, test_set, **pooled)
    assert evaluated.value("reid_rate", "uniform") == reid_rate(uniform, train)
    assert evaluated.value("mia_advantage", "uniform") == mia_advantage(uniform, train, test_set)
    assert evaluated.metrics == ALL
    assert evaluated.columns == ["synthetic", "training", "uniform"]
    pd.testing.assert_frame_equal(evaluated.to_frame(), evaluate(synthetic, train, test_set, SMALL_GROUPS).to_frame())


def test_the_population_of_complete_traces_is_averaged_over_trace_numbers(train, test_set) -> None:
    complete = support.random_traces(2, range(5), PLACES, grid_of(1), n_traces=3, keep=1, n_visited=4)
    metrics = evaluate(complete, train, test_set, NO_ATTACKS)
    parts = [complete.select_traces(complete.trace_table()[1] == number) for number in range(3)]
    for name, measure in (("tp_tv", tp_tv), ("tp_tv_top50", tp_tv_top50), ("tm_emd_y", lambda *of: tm_emd(*of)[0])):
        assert metrics[name] == pytest.approx(np.mean([measure(part, test_set) for part in parts]))


def test_of_large_sets_a_sample_is_measured(monkeypatch) -> None:
    """Synthetic and training users are the same; a smaller synthetic set is whole; the digests are of whole sets."""
    train, test_set = random_traces(0, range(12), n_periods=3), random_traces(1, range(12, 20), n_periods=3)
    few = train.select_users(np.arange(3))
    strangers = replace(train, user_ids=np.array([f"nobody {user:03}" for user in range(train.n_users)], object))
    sets = {"all": train, "few": few, "strangers": strangers}
    monkeypatch.setattr(evaluation_module, "MAX_USERS", 6)
    measured, sizes = evaluation_module.sample_of_users({"training": train, "test": test_set, **sets})
    ours, tested = measured.pop("training"), measured.pop("test")
    assert sizes == {"training": 12, "test": 8, "all": 12, "strangers": 12}
    assert [each.n_users for each in (*measured.values(), ours, tested)] == [6, 3, 6, 6, 6]
    assert measured["all"].user_ids.tolist() == ours.user_ids.tolist()
    assert set(few.user_ids) < set(ours.user_ids)
    whole = train.to_frame()
    pd.testing.assert_frame_equal(ours.to_frame(), whole[whole["user"].isin(ours.user_ids)].reset_index(drop=True))
    without = EvaluationSettings(attacks=False)
    of_sample = evaluate(sets, train, test_set, without)
    monkeypatch.undo()
    pd.testing.assert_frame_equal(of_sample.to_frame(), evaluate(measured, ours, tested, without).to_frame())
    assert of_sample.lineage["training traces"] == train.digest
    assert of_sample.sampled == {"training": 12, "test": 8, "all": 12, "strangers": 12}
    assert "all (12 users)" in repr(of_sample)
    assert Evaluation.from_json(of_sample.to_json()).sampled == of_sample.sampled


def test_several_synthetic_sets_stand_side_by_side(
    evaluated: Evaluation, synthetic: Traces, train: Traces, test_set: Traces
) -> None:
    """Each as if it were alone, but for uniform places: those are of the set with the most traces."""
    few = synthetic.select_traces(synthetic.trace_table()[1] != 1)
    sets = {"released": few, "all": synthetic}
    both = evaluate(sets, train, test_set, SMALL_GROUPS)
    assert both.columns == ["released", "all", "training", "uniform"]
    alone = {"released": evaluate(few, train, test_set, SMALL_GROUPS), "all": evaluated}
    for metric in ALL:
        for name, evaluation in alone.items():
            np.testing.assert_equal(both.value(metric, name), evaluation[metric])
        for name in ("training", "uniform"):
            np.testing.assert_equal(both.value(metric, name), alone["all"].value(metric, name))
    assert both["tp_tv"] == both.value("tp_tv", "released")
    assert any(alone["released"].value(name, "uniform") != both.value(name, "uniform") for name in ALL)


def test_names_of_other_columns_and_no_set_are_refused(synthetic, train, test_set) -> None:
    for sets, said in (
        ({"released": synthetic, "training": synthetic}, "found training"),
        ({"released": synthetic, "test": synthetic}, "found test"),
        ({}, "at least one synthetic trace set"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate(sets, train, test_set)


def test_attacks_can_be_left_out_and_strangers_then_do_not_matter(train: Traces, test_set: Traces) -> None:
    strangers = random_traces(2, range(50, 53))
    assert evaluate(strangers, train, test_set, NO_ATTACKS).metrics == UTILITY_NUMBERS
    with pytest.raises(InputError, match=r"users of the training set.*first: 50, 51, 52"):
        evaluate(strangers, train, test_set)


def test_of_users_who_stand_for_nobody_all_is_measured_but_who_they_are(train: Traces, test_set: Traces) -> None:
    """Whatever their ids: those of training users are an accident."""
    for users in (range(5), range(50, 55)):
        invented = replace(random_traces(2, users), of_nobody=True)
        evaluation = evaluate(invented, train, test_set, SMALL_GROUPS)
        assert {name for name in evaluation.metrics if math.isnan(evaluation[name])} == {"reid_rate", "group_tv"}
        assert not math.isnan(evaluation.value("reid_rate", "training"))
        (row,) = [row for row in evaluation.rows if row.quantity.name == "reid_rate"]
        assert "synthetic users who stand for nobody" in row.quantity.undefined


def test_what_passed_a_privacy_test_can_be_evaluated(synthetic: Traces, train: Traces, test_set: Traces) -> None:
    user, number = synthetic.trace_table()
    passed = synthetic.select_traces((user != 1) & ((number != 1) | (user == 3)))
    table = evaluate(passed, train, test_set, SMALL_GROUPS).to_frame()
    # Nothing is said of the times of uniform traces.
    assert table["metric"][~np.isfinite(table["value"])].tolist() == ["events_w1", "event_gap_tv", "day_events_tv"]
    complete, gaps = (synthetic.select_traces((user == 4) & (number == each)) for each in (0, 2))
    table = evaluate(complete, train, test_set, SMALL_GROUPS).to_frame()
    # One user is a smaller crowd than the test users are, and their only trace goes back nowhere, and to no rare place.
    undefined = {"unicity", "return_time_tv", "rare_tv", "diversity_difference"}
    assert set(table["metric"][~np.isfinite(table["value"])]) == undefined
    table = evaluate(gaps, train, test_set, SMALL_GROUPS).to_frame().query("column == 'synthetic'")
    assert table["metric"][~np.isfinite(table["value"])].tolist() == [
        *("return_time_tv", "diversity_difference", "unicity")
    ]


def test_undefined_metrics_are_nan_and_say_why(train: Traces) -> None:
    still = support.to_traces([(u, 0, 3 * u % 4, u % 3) for u in range(5, 9)], PLACES, grid_of(3))
    evaluation = evaluate(support.to_traces([(0, 0, 0, 1)], PLACES, grid_of(1)), train, still)
    # The test users have an event each, and so no window of two; five training users are no group.
    defined = {name for name in evaluation.metrics if not math.isnan(evaluation[name])}
    known = {"tp_tv", "tp_tv_top50", "tp_swd", "events_w1", "day_events_tv", "density_ratio_auc"}
    known |= {"population_mae", "population_mse"}
    assert defined == {*known, "n_attacked"}
    assert evaluation.to_frame().query("value.isna()")["undefined"].all()
    assert not math.isnan(evaluation.value("reid_rate", "training"))
    # JSON brings back everything.
    text = evaluation.to_json()
    assert "NaN" not in text
    assert json.loads(text)["kind"] == "evaluation"
    pd.testing.assert_frame_equal(Evaluation.from_json(text).to_frame(), evaluation.to_frame(), check_exact=True)


def test_sets_that_do_not_fit_are_an_error(synthetic: Traces, train: Traces, test_set: Traces) -> None:
    other_slots = replace(synthetic, time_grid=TimeGrid.each_instant("2024-01-01T00:00:00", 3600, 4))
    with pytest.raises(InputError, match="4 in synthetic, 3 in train, 3 in test"):
        evaluate(other_slots, train, test_set)
    other_places = replace(test_set, places=replace(test_set.places, ids=np.arange(1, 7)))
    with pytest.raises(InputError, match="different ids"):
        evaluate(synthetic, train, other_places)
    with pytest.raises(InputError, match="5 of 5 test users"):
        evaluate(synthetic, train, train)


# Settings


def test_settings_of_a_metric_reach_it_and_its_name(synthetic: Traces, train: Traces, test_set: Traces) -> None:
    wanted = {"tm_emd": {"n_bins": 7, "box": [35.2, 35.8, 139.2, 139.9]}, "tp_tv": {"n_top": 2}, "vf_tv": {"n_bins": 5}}
    evaluation = evaluate(synthetic, train, test_set, EvaluationSettings(attacks=False, settings=wanted))
    expected = tm_emd(train, test_set, n_bins=7, box=(35.2, 35.8, 139.2, 139.9))
    assert tuple(evaluation.value(f"tm_emd_{axis}", "training") for axis in "yx") == expected
    assert evaluation.value("tp_tv_top2", "training") == tp_tv_top50(train, test_set, n_top=2)
    assert "TP-TV-Top2" in set(evaluation.to_frame()["title"])


def test_settings_are_checked_at_once() -> None:
    wrong = {"tm_edm": {}, "tm_emd": {"n_bins": 0, "bins": 3}, "vf_tv": 4, "membership": {"floor": 1e-8}}
    with pytest.raises(InputError) as caught:
        EvaluationSettings(settings=wrong)
    text = str(caught.value)
    assert "5 problems" in text
    for part in (
        "found 'tm_edm'",
        "tm_emd: expected n_bins as a whole number",
        "found 'bins'",
        "vf_tv as a table",
    ):
        assert part in text
    assert "membership: expected no settings; found 'floor'" in text


# The table and the file


def test_the_table_is_tidy(evaluated) -> None:
    table = evaluated.to_frame()
    assert len(table) == len(ALL) * 3
    kinds = table.groupby("kind", sort=False)["metric"].unique().map(list).to_dict()
    assert kinds == {"utility": UTILITY_NUMBERS, "privacy": ATTACK_NUMBERS}
    lines = str(evaluated).splitlines()
    assert lines[0].split() == ["synthetic", "training", "uniform"]
    assert len(lines) == 1 + len(ALL) + len(evaluated.caveats())
    (attacked,) = [line for line in lines if line.startswith("Traces attacked ")]
    assert attacked.split()[2:] == ["15", "5", "15"]
    with pytest.raises(InputError, match=r"(?s)metric among tp_tv.*'reid_rates'.*column among synthetic.*'released'"):
        evaluated.value("reid_rates", "released")


def test_what_is_no_evaluation_is_refused(evaluated: Evaluation) -> None:
    content = json.loads(evaluated.to_json())
    first, *others = content["metrics"]
    # Without its scale, a number would be judged by another yardstick.
    without_scale = {name: value for name, value in first.items() if name != "scale"}
    lacking = (first | {"references": {"floor": "low"}}, first | {"caveats": ["few"]}, without_scale)
    metrics: list[Any] = [[metric, *others] for metric in lacking] + [[{"name": "tp_tv"}], 3]
    texts = ["", "[]", "{}", '{"kind": "model"}', '{"kind": "evaluation"}']
    for text in (*texts, *(json.dumps(content | {"metrics": each}) for each in metrics)):
        with pytest.raises(InputError, match=r"metrics\.json: expected an evaluation as JSON"):
            Evaluation.from_json(text, subject="metrics.json")


def test_every_quantity_is_explained() -> None:
    for quantity in EvaluationSettings().quantities().values():
        assert quantity.meaning.endswith(".")
        assert quantity.good_value
        assert quantity.unit
        assert "{" not in quantity.name + quantity.title + quantity.meaning


# What is registered at run time


@dataclass(frozen=True)
class StaySettings(Settings):
    offset: float = 0.0


def share_of_stays(traces: Traces) -> float:
    steps = traces.transitions()
    return float((steps.place == steps.next_place).mean())


def measure_stays(comparison: Comparison, settings: StaySettings) -> list[float]:
    shares = [comparison.statistic(share_of_stays, traces) for traces in (comparison.traces, comparison.test)]
    return [shares[0] + settings.offset, shares[1] + settings.offset]


def measure_users(comparison: Comparison, settings: NoSettings) -> list[float]:
    return [float(comparison.traces.n_users)]


@pytest.fixture
def registered() -> Iterator[None]:
    """A metric of two quantities, higher ones better, and an attack: each in one place."""
    about = ("Share of the steps that stay.", "share of steps", "higher", "near Training")
    stays = (MetricInfo("stay", "Stay share", *about), MetricInfo("stay_test", "Stay share of the test users", *about))
    METRICS.register(Measurement("stays", "utility", stays, measure_stays, settings=StaySettings))
    users = MetricInfo("seen", "Users seen", "Number of users.", "users", "lower", "few")
    ATTACKS.register(Measurement("counting", "privacy", (users,), measure_users))
    yield
    METRICS.remove("stays")
    ATTACKS.remove("counting")


@pytest.mark.usefixtures("registered")
def test_what_is_registered_in_one_place_is_measured_tabled_and_drawn(
    synthetic: Traces, train: Traces, test_set: Traces
) -> None:
    evaluation = evaluate(synthetic, train, test_set, EvaluationSettings(settings={"stays": {"offset": 10.0}}))
    assert evaluation["stay"] == 10 + share_of_stays(synthetic)
    assert evaluation.value("stay", "training") == 10 + share_of_stays(train)
    # Nothing exact is known of uniform traces, so random ones were measured.
    place = numpy_stream(0, Stage.UNIFORM).integers(6, size=synthetic.n_events, dtype=np.int32)
    assert evaluation.value("stay", "uniform") == 10 + share_of_stays(replace(synthetic, place=place))
    assert evaluation["stay_test"] == 10 + share_of_stays(test_set)
    assert evaluation["seen"] == 5
    assert "seen" not in evaluate(synthetic, train, test_set, NO_ATTACKS).metrics

    titles = list(format_table(evaluation).columns[0].cells)
    assert {"Stay share", "Stay share of the test users", "Users seen"} <= set(titles)
    panels = {ax.get_title(): ax for draw in (utility_bars, privacy_bars) for ax in draw(evaluation).axes}
    assert panels["Stay share\nhigher is better"].get_ylabel() == "share of steps"
    heights = [bar.get_height() for bar in panels["Users seen\nlower is better"].patches]
    assert heights == [evaluation.value("seen", column) for column in evaluation.columns]


# How numbers are to be read

THREE_USERS = Caveat("few_values", "Three users only")
PLANTED = {
    # Direction, what Training and what Uniform has, and whether the latter is better.
    "lower_fails": ("lower", 0.5, 0.4, True),
    "lower_holds": ("lower", 0.5, 0.6, False),
    "higher_fails": ("higher", 0.5, 0.6, True),
    "higher_holds": ("higher", 0.5, 0.4, False),
    "zero_fails": ("zero", -0.5, 0.4, True),
    "zero_holds": ("zero", 0.4, -0.5, False),
    "no_direction": ("none", 0.5, 0.4, False),
    "equal_but_for_rounding": ("lower", 0.1 + 0.2, 0.3, False),
    "undefined": ("lower", math.nan, 0.4, False),
    "undefined_of_uniform": ("higher", 0.4, math.nan, False),
    "infinite": ("lower", math.inf, 0.4, False),
}


@pytest.fixture(scope="module")
def planted(synthetic: Traces, train: Traces, test_set: Traces) -> tuple[Evaluation, list[Comparison]]:
    """Metrics of which is known whether Uniform is better than Training; with what their reading was asked for."""
    asked = []

    def read(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
        asked.append(comparison)
        caveats = [(THREE_USERS,), *[()] * (len(PLANTED) - 1)]
        return [Interpretation({"floor": 0.26, "undefined": math.nan}, each, alarm=1.5) for each in caveats]

    numbers = list(PLANTED.values())
    quantities = tuple(MetricInfo(name, name, "A number.", "1", about[0], "-") for name, about in PLANTED.items())
    metric = Measurement(
        "planted",
        "utility",
        quantities,
        lambda comparison, settings: [each[1] for each in numbers],
        lambda comparison, settings: [each[2] for each in numbers],
        reading=read,
    )
    leak = MetricInfo("leak", "Leak", "A number.", "1", "lower", "-")
    attack = Measurement(
        "leak", "privacy", (leak,), lambda comparison, settings: [0.9], lambda comparison, settings: [0.1]
    )
    METRICS.register(metric)
    ATTACKS.register(attack)
    try:
        return evaluate({"released": synthetic, "all": synthetic}, train, test_set), asked
    finally:
        METRICS.remove("planted")
        ATTACKS.remove("leak")


def test_how_to_read_a_number_is_asked_for_once_and_carried_everywhere(planted, train) -> None:
    evaluation, (asked,) = planted
    assert asked.traces is train
    assert (asked.n_instants, asked.pool_traces) == (4, True)
    rows = {row.quantity.name: row for row in evaluation.rows}
    # Marked is where Uniform is better than Training; of an attack it is what one hopes for.
    failing = [name for name, about in PLANTED.items() if about[3]]
    assert [name for name in PLANTED if UNIFORM_IS_BETTER in rows[name].reading.caveats] == failing
    assert not rows["leak"].reading.caveats
    assert rows["lower_fails"].reading == Interpretation({"floor": 0.26}, (UNIFORM_IS_BETTER, THREE_USERS), 1.5)
    assert rows["lower_fails"].title == "lower_fails †"
    assert evaluation.caveats()[THREE_USERS] == ["lower_fails"]
    assert evaluation.caveats()[UNIFORM_IS_BETTER][-3:] == failing
    assert "† lower_fails: Three users only." in str(evaluation).splitlines()
    # JSON knows no infinity either.
    table = evaluation.to_frame()
    stored = table.assign(value=table["value"].replace(math.inf, math.nan))
    pd.testing.assert_frame_equal(Evaluation.from_json(evaluation.to_json()).to_frame(), stored, check_exact=True)


@pytest.mark.usefixtures("registered")
def test_two_quantities_of_one_name_are_refused(synthetic: Traces, train: Traces, test_set: Traces) -> None:
    twice = MetricInfo("seen", "Seen", "Number of users.", "users", "lower", "few")
    METRICS.register(Measurement("again", "utility", (twice,), measure_users))
    try:
        with pytest.raises(InputError, match="seen more than once"):
            evaluate(synthetic, train, test_set)
    finally:
        METRICS.remove("again")


def test_a_statistic_of_a_set_is_computed_once(train: Traces, test_set: Traces, synthetic: Traces) -> None:
    asked = []

    def n_events(traces: Traces, factor: int) -> int:
        asked.append(traces)
        return factor * traces.n_events

    real = Comparison(train, train, test_set, n_instants=4, pool_traces=True)
    for comparison in (real, real.of(synthetic), *real.of(synthetic).parts()):
        for traces in (comparison.traces, train, test_set, train):
            assert comparison.statistic(n_events, traces, 2) == 2 * traces.n_events
    # Each real set once, the synthetic one once, and each of its three trace numbers.
    assert [sum(each is traces for each in asked) for traces in (train, test_set, synthetic)] == [1, 1, 1]
    assert len(asked) == 3 + 3


def test_sets_with_uneven_numbers_of_traces_are_measured_like_even_ones():
    """Of 300 users with 1 to 12 traces, the last trace numbers have few users, whose population is mostly chance."""
    city = toy_city(600, n_places=30, n_days=1, missing=0.0, seed=0).traces
    train, test = city.select_users(np.arange(300)), city.select_users(np.arange(300, 600))
    model = fit(train, "training")
    even = synthesize(model, traces_per_user=4, seed=0)
    uneven = synthesize(model, traces_per_user=12, seed=0)
    user, number = uneven.trace_table()
    uneven = uneven.select_traces(number < np.random.default_rng(0).integers(1, 13, size=300)[user])
    assert part_of_trace(even).tolist() == even.trace_table()[1].tolist()
    sizes = np.bincount(part_of_trace(uneven))
    assert sizes.max() - sizes.min() <= 1
    assert abs(sizes.mean() - 300) < 300 / 4
    settings = EvaluationSettings(attacks=False)
    found = evaluate({"even": even, "uneven": uneven}, train, test, settings)
    assert found.value("tp_tv", "uneven") == pytest.approx(found.value("tp_tv", "even"), rel=0.1)
    # Measured by trace number, the mean would be much larger.
    number = uneven.trace_table()[1]
    of_number = {f"number {each}": uneven.select_traces(number == each) for each in (0, 11)}
    found_by_number = evaluate(of_number, train, test, settings)
    mean = np.mean([found_by_number.value("tp_tv", name) for name in of_number])
    assert mean > 1.2 * found.value("tp_tv", "uneven")
