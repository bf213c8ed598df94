"""What was kept: where people are, where they go, how far, and what is asked about places and parts of town."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from scipy import stats

from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.chance import N_FEW, few_real
from ppmtf_jax.evaluation.distributions import variation
from ppmtf_jax.evaluation.metrics.moves import jump_lengths_km, radius_of_gyration_km
from ppmtf_jax.evaluation.metrics.persons import distinct, share_of_rank
from ppmtf_jax.evaluation.metrics.population import N_TOP, population_by_slot
from ppmtf_jax.evaluation.metrics.windows import Sample
from ppmtf_jax.evaluation.plots import flow_maps, population_maps, transition_matrices
from ppmtf_jax.evaluation.plots.curves import LOOKS, draw_cumulative, draw_lines
from ppmtf_jax.evaluation.plots.style import DIM, LOWER, label_slots, panels
from ppmtf_jax.evaluation.report.compose import UTILITY, section
from ppmtf_jax.evaluation.report.inputs import MIN_VISITORS, ReportData, Unavailable, if_available
from ppmtf_jax.evaluation.report.page import Block, Details, Picture, Table, Text, percent
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM
from ppmtf_jax.streams import Stage, numpy_stream

N_LABELS, N_SHOWN = 8, 10
OF_LENGTHS = ("jump_tv", "radius_w1_km")
OF_A_MAP: dict[str, Callable[[Windows], Sample]] = {
    "length of a trip, km": jump_lengths_km,
    "radius of gyration, km": radius_of_gyration_km,
}
OF_ANY: dict[str, Callable[[Windows], Sample]] = {"different places in one period": distinct}
N_QUERIES = 500
SEED = 0
MIN_SIDE, MAX_SIDE = 0.1, 0.5
"""Side of the box of a query, as a share of that of the box around all places."""
SANITY_BOUND = 0.01
"""Smallest divisor of a relative error, as a share of all events, so that tiny answers do not outweigh all others."""
RANK = MetricInfo(
    "place_rank",
    "Spearman's rank correlation",
    f"Whether the {N_TOP} places that test users visit most are in the same order: 1 is the same, 0 no relation.",
    "rank correlation, -1 to 1",
    "higher",
    undefined="all places are visited equally often in one of the sets",
    scale="share",
    plain="Order of the places by visits",
)
ERROR = MetricInfo(
    "range_query_error",
    "Range-query error",
    f"Mean relative error of {N_QUERIES} random questions: which share of the events is in this box, at these hours?",
    "relative error",
    scale="share",
    plain="Error of a count",
)


@section(
    "population",
    UTILITY,
    "Where people are, hour by hour",
    "People who plan shops, buses or cell towers need to know how many people are at each place at each time.",
    question="Are people at the right places at the right hours?",
    if_poor="Do not use these traces for questions about single places and hours.",
)
def population(data: ReportData) -> list[Block]:
    """How far the population of each slot is off, and maps of it."""
    lines = {name: 100 * distance_by_slot(data, name) for name in (TRAINING, SYNTHETIC, UNIFORM)}
    labels = data.train.time_grid.slot_labels()

    def draw(ax: Axes) -> None:
        marker = {"marker": "o", "markersize": 3} if len(labels) < 3 else {}
        draw_lines(ax, np.arange(len(labels)), lines, **marker)
        label_slots(ax, labels, N_LABELS)
        ax.set(ylim=(0, 101), xlabel="time from", ylabel="at another place, percent")

    by_hour = Picture(
        panels([draw], size=(5.4, 2.6), room=(0.0, 0.4), legend=LOWER | {"ncols": 2}),
        "Curves over the day: how far training, synthetic and random traces are from where other people are.",
        "Distance at each time: the share of people who would have to move to another place to match real "
        "people. The synthetic curve should be near that of the training users, who are real people too: two groups of "
        "people are never quite alike. If there are fewer synthetic than training events, all curves are of equally "
        "few, because fewer events are further off by chance.",
    )
    gauges = data.gauges("population")
    if not data.has_map:
        return [gauges, by_hour, Text(("No maps: the places have no coordinates that tell them apart.",))]
    maps = Picture(
        population_maps({"synthetic": data.synthetic}, data.train, data.test),
        "Maps of the share of events at each place, at some times of the day, of real and synthetic traces.",
        "Where people are at some times of the day. All maps have one scale, so that the rows can be compared: the row "
        "of synthetic traces should look like the two above it. Where the scale ends in an arrow, a few places have "
        "larger shares than its last colour.",
    )
    return [gauges, by_hour, maps]


def distance_by_slot(data: ReportData, name: str) -> np.ndarray:
    """Total variation of a set from the test users in each slot, shape (slots,); NaN where they have no event.

    It is averaged over trace numbers, so that its mean over the slots is TP-TV if test users have events in all slots.
    If synthetic traces have fewer events than training users, it is that of equally few real traces and random places,
    with which the gauges compare them. Otherwise, for random places, it uses the expected population.
    """
    test = data.test
    expected = population_by_slot(test)
    few = [few_real(data.train, data.synthetic, number)[0] for number in range(N_FEW)]
    if name == TRAINING and few[0] is not None:
        parts = [population_by_slot(each) for each in few if each is not None]
    elif name == UNIFORM and few[0] is None:
        parts = [np.full_like(expected, 1 / test.n_places)]
    else:
        parts = [population_by_slot(part.traces) for part in data.comparison(name).parts()]
    distance = np.mean([variation(part, expected) for part in parts], axis=0)
    return np.where(np.bincount(test.slot, minlength=test.time_grid.n_slots) > 0, distance, np.nan)


@section(
    "transitions",
    UTILITY,
    "From where to where people go",
    "Traffic and epidemics depend on the moves of people: which place they visit after which.",
    question="Do people move between the right places?",
    if_poor="Do not study routes, or what spreads along them, with these traces.",
)
def transitions(data: ReportData) -> list[Block]:
    """How far steps and flows are off, and pictures of both."""
    gauges = data.gauges("transitions")
    if not data.has_map:
        return [gauges]
    flows = Picture(
        flow_maps({"training": data.train, "synthetic": data.synthetic}, n_flows=20),
        "Two maps with arrows for the largest flows of people, of training and of synthetic traces.",
        "The largest flows between parts of the town. Both maps should have the same arrows, with the same widths. The "
        "width is the share of all moves.",
    )
    matrices = Picture(
        transition_matrices(data.synthetic, data.train),
        "Two matrices of the probability to go from one place to another, of training and of synthetic traces.",
        "The colours have a logarithmic scale. The dark diagonal shows people who stay at a place.",
    )
    return [gauges, flows, Details("From each place to each other one, as matrices", (matrices,))]


@section(
    "trips",
    UTILITY,
    "How far people go",
    "Trips should have the right length. People should roam as widely in one period, such as a day, as real people, "
    "and visit as many places in a time as long as a synthetic trace. A trip is a move from one place to another from "
    "one instant to the next. Synthetic traces are measured only at hours at which real people were seen.",
    question="Do people go as far, and visit as many places, as real people?",
    if_poor="Do not study distances, or how people spend a day, with these traces.",
)
def trips(data: ReportData) -> list[Block]:
    """Gauges of lengths, stays and numbers of places, and their cumulative distributions."""
    gauges = data.gauges("trips", without=() if data.has_map else OF_LENGTHS)
    return [gauges, *if_available(lambda: _distributions(data))]


def _distributions(data: ReportData) -> list[Block]:
    statistics = (OF_A_MAP if data.has_map else {}) | OF_ANY
    samples = {
        label: {name: np.asarray(statistic(windows).value, float) for name, windows in data.windows.items()}
        for label, statistic in statistics.items()
    }
    draws = [partial(draw_cumulative, samples=each, label=label) for label, each in samples.items()]
    legend = LOWER | ({} if data.has_map else {"ncols": 2})
    picture = Picture(
        panels(draws, size=(3.4, 2.7), n_columns=3, room=(0.0, 0.4), legend=legend),
        f"Cumulative curves of {', '.join(samples)}, for real, synthetic and random traces.",
        "Each curve shows the share of people or trips up to each value. The solid curve (synthetic traces) should lie "
        "on the dotted curve (real people).",
    )
    names = {REAL: "Real, test users", TRAINING: "Real, training users", SYNTHETIC: "Synthetic", UNIFORM: "Random"}
    rows = [
        [label, *(f"{of[name].mean():.2f}" if len(of[name]) else "-" for name in names)]
        for label, of in samples.items()
    ]
    table = Table("On average", ("What", *names.values()), rows)
    note = [] if data.has_map else [Text(("No lengths: the places have no usable coordinates.",))]
    return [picture, table, *note]


@section(
    "visit-fractions",
    UTILITY,
    "Regulars and passers-by",
    "At an office the same people spend most of their day; many people pass through a station. The way in which "
    "visitors share their time tells what kind of place it is.",
    question="Do places keep their regulars and their passers-by?",
    if_poor="Do not infer the kind of a place from its visitors in these traces.",
)
def visit_fractions(data: ReportData) -> list[Block]:
    """Gauges of the shares of time at places, and curves of the share at the most visited place."""

    def top_places() -> list[Block]:
        shares = {name: 100 * share_of_rank(windows, 0).value for name, windows in data.windows.items()}
        draw = partial(draw_cumulative, samples=shares, label="time at the most visited place, percent")
        picture = Picture(
            panels([draw], size=(5.4, 2.8), room=(0.0, 0.4), legend=LOWER | {"ncols": 2}),
            "Cumulative curves of the share of a period at the most visited place, for real and synthetic traces.",
            "The share of a period, such as a day, that people spend at their most visited place. If a curve rises "
            "further left, its people move more. The solid curve (synthetic traces) should lie on the dotted curve "
            "(real people).",
        )
        return [picture]

    return [data.gauges("visit-fractions"), *if_available(top_places)]


@section(
    "places",
    UTILITY,
    "The most visited places",
    "Many questions need only a ranking of places by visits.",
    question="Are the most visited places the same?",
    if_poor="Do not rank places by these traces.",
)
def places(data: ReportData) -> list[Block]:
    """The rank correlation of visits, and the most visited places with their ranks."""

    def correlation_at_top(presence: np.ndarray, test: np.ndarray) -> float:
        # Ranks over all places would mislead: a rarely visited place is in the data only because training or test users
        # visit it, so a rare place with few visits of one set tends to have more visits of the other set.
        share, of_test = presence.sum(axis=0), test.sum(axis=0)
        top = np.argsort(-of_test, kind="stable")[:N_TOP]
        return rank_correlation(share[top], of_test[top])

    # The number of Uniform is 0, because equally often visited places have no order.
    gauges = data.gauge_of_presence(RANK, correlation_at_top, uniform=0.0)
    share = {name: presence.sum(axis=0) for name, presence in data.presence.items()}
    most = np.argsort(-share[REAL], kind="stable")
    most = most[data.is_shown(data.test)[most]][:N_SHOWN]
    rank = {name: stats.rankdata(-share[name], method="min").astype(int) for name in (REAL, SYNTHETIC)}
    rows = [
        [
            name,
            *(percent(share[each][place], 2) for each in (REAL, TRAINING, SYNTHETIC)),
            *(f"{rank[each][place]:,}" for each in (REAL, SYNTHETIC)),
        ]
        for name, place in zip(data.place_names(most), most.tolist(), strict=True)
    ]
    caption = (
        f"The places that test users visit most, at least {MIN_VISITORS} of them each: their share of the events, "
        f"and their rank among {len(data.places):,}"
    )
    headings = ("Place", "Test users", "Training users", "Synthetic", "Rank, test users", "Rank, synthetic")
    return [gauges, Table(caption, headings, rows)]


def rank_correlation(share: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation of the visits of places; NaN where all are visited equally often."""
    if len(share) < 2 or np.ptp(share) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(np.corrcoef(stats.rankdata(share), stats.rankdata(other))[0, 1])


Query = tuple[float, float, float, float, int, int]
"""A box on the plane of the places, km: its ends in the south, north, west and east; and a range of slots."""


@section(
    "range-queries",
    UTILITY,
    "Counts in a part of town",
    "How many people are in this district between these hours? This is asked for many random districts and hours.",
    question="Are counts in a part of town right?",
    if_poor="Do not use these traces to count people in districts.",
)
def range_queries(data: ReportData) -> list[Block]:
    """The mean error of random queries, and true against synthetic answers."""
    if not data.has_map:
        raise Unavailable("The places have no coordinates that tell them apart: this needs a map.")
    position_km = data.places.position_km()
    queries = random_queries(position_km, data.test.time_grid.n_slots)
    answers = {name: answer(presence, queries, position_km) for name, presence in data.presence.items()}

    def error(presence: np.ndarray, test: np.ndarray) -> float:
        return mean_error(*(answer(each, queries, position_km) for each in (presence, test)))

    gauges = data.gauge_of_presence(ERROR, error, uniform=mean_error(answers[UNIFORM], answers[REAL]))

    def draw(ax: Axes) -> None:
        true = 100 * answers[REAL]
        highest = max(100 * max(each.max() for each in (answers[REAL], answers[SYNTHETIC])), 1e-3)
        ax.plot([0, highest], [0, highest], color=DIM, linewidth=1)
        for name, marker in ((TRAINING, "x"), (SYNTHETIC, "o")):
            look = {"color": LOOKS[name]["color"], "label": LOOKS[name]["label"]}
            ax.plot(true, 100 * answers[name], marker, markersize=3.5, markerfacecolor="none", linestyle="none", **look)
        ax.set(xlabel="true answer (test users), percent of the events", ylabel="answer, percent")
        ax.set(xlim=(0, None), ylim=(0, None))

    picture = Picture(
        panels([draw], size=(4.4, 3.6), room=(0.0, 0.4), legend=LOWER | {"ncols": 2}),
        "A dot for each question: the true answer and the answer from synthetic traces.",
        "A dot for each question. On the line, the answer is the true one. Real training users do not give exactly the "
        "true answers either, because they are other people.",
    )
    return [gauges, picture]


def random_queries(position_km: np.ndarray, n_slots: int) -> list[Query]:
    """Random ranges of hours, and boxes around random places, with a tenth to a half of the town's width and height."""
    rng = numpy_stream(SEED, Stage.QUERIES)
    centre = position_km[rng.integers(len(position_km), size=N_QUERIES)]
    half = np.ptp(position_km, axis=0) * rng.uniform(MIN_SIDE, MAX_SIDE, (N_QUERIES, 2)) / 2
    length = rng.integers(1, max(1, n_slots // 2), size=N_QUERIES, endpoint=True)
    first = rng.integers(0, n_slots - length, endpoint=True)
    (south, west), (north, east) = (centre - half).T, (centre + half).T
    columns = (south, north, west, east, first, first + length)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def answer(presence: np.ndarray, queries: Sequence[Query], position_km: np.ndarray) -> np.ndarray:
    """Share of the events in each box at its hours, shape (queries,), from shares of each slot and place."""
    before = np.concatenate([np.zeros((1, len(position_km))), np.cumsum(presence, axis=0)])
    north, east = position_km.T
    found = np.empty(len(queries))
    for number, (low, high, left, right, first, after) in enumerate(queries):
        inside = (north >= low) & (north <= high) & (east >= left) & (east <= right)
        found[number] = (before[after] - before[first])[inside].sum()
    return found


def mean_error(answers: np.ndarray, true: np.ndarray) -> float:
    """Mean relative error, with a sanity bound on true answers."""
    return float(np.mean(np.abs(answers - true) / np.maximum(true, SANITY_BOUND)))
