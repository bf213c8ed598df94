"""Counts of people in a part of town at some hours: the error of random range queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.evaluation.plots.curves import LOOKS
from ppmtf_jax.evaluation.plots.style import DIM, LOWER, panels
from ppmtf_jax.evaluation.report.blocks import Block, Picture
from ppmtf_jax.evaluation.report.gauges import gauge_of_presence
from ppmtf_jax.evaluation.report.inputs import ReportData, Unavailable
from ppmtf_jax.evaluation.report.registry import UTILITY, section
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM
from ppmtf_jax.streams import Stage, numpy_stream

N_QUERIES = 500
SEED = 0
SMALLEST_SIDE, LARGEST_SIDE = 0.1, 0.5
"""Side of the box, as a share of that of the box around all places."""
SANITY_BOUND = 0.01
"""Smallest divisor of a relative error, as a share of all events, so that tiny answers do not outweigh all others."""
ERROR = MetricInfo(
    "range_query_error",
    "Range-query error",
    f"Mean relative error of {N_QUERIES} random questions: which share of the events is in this box, at these hours?",
    "relative error",
    scale="share",
    plain="Error of a count",
)


class Queries(NamedTuple):
    """Random boxes on the plane of the places, km, each with a range of slots; all arrays of shape (queries,)."""

    south: np.ndarray
    north: np.ndarray
    west: np.ndarray
    east: np.ndarray
    first: np.ndarray
    after: np.ndarray


@section(
    "range-queries",
    UTILITY,
    "Counts in a part of town",
    "How many people are in this district between these hours? This is asked for many random districts and hours.",
    question="Are counts in a part of town right?",
    if_poor="Do not use these traces to count people in districts.",
)
def make(data: ReportData) -> list[Block]:
    """The mean error of random queries, and true against synthetic answers."""
    if not data.has_map:
        raise Unavailable("The places have no coordinates that tell them apart: this needs a map.")
    position_km = data.places.position_km()
    queries = random_queries(position_km, data.test.time_grid.n_slots)
    answers = {name: answer(presence, queries, position_km) for name, presence in data.presence.items()}

    def error(presence: np.ndarray, test: np.ndarray) -> float:
        return mean_error(*(answer(each, queries, position_km) for each in (presence, test)))

    gauges = gauge_of_presence(data, ERROR, error, uniform=mean_error(answers[UNIFORM], answers[REAL]))

    def draw(ax: Axes) -> None:
        true = 100 * answers[REAL]
        highest = max(100 * max(each.max() for each in (answers[REAL], answers[SYNTHETIC])), 1e-3)
        ax.plot([0, highest], [0, highest], color=DIM, linewidth=1)
        for name, marker in ((TRAINING, "x"), (SYNTHETIC, "o")):
            look = {"color": LOOKS[name]["color"], "label": LOOKS[name]["label"]}
            ax.plot(true, 100 * answers[name], marker, markersize=3.5, markerfacecolor="none", linestyle="none", **look)
        ax.set(xlabel="true answer (test users), percent of the events", ylabel="answer, percent")
        ax.set(xlim=(0, None), ylim=(0, None))

    figure = panels([draw], size=(4.4, 3.6), room=(0.0, 0.4), legend=LOWER | {"ncols": 2})
    alt = "A dot for each question: the true answer and the answer from synthetic traces."
    caption = (
        "A dot for each question. On the line, the answer is the true one. Real training users do not give exactly the "
        "true answers either, because they are other people."
    )
    return [gauges, Picture(figure, alt, caption)]


def random_queries(position_km: np.ndarray, n_slots: int) -> Queries:
    """Random ranges of hours, and boxes around random places, with a tenth to a half of the town's width and height."""
    rng = numpy_stream(SEED, Stage.QUERIES)
    centre = position_km[rng.integers(len(position_km), size=N_QUERIES)]
    half = np.ptp(position_km, axis=0) * rng.uniform(SMALLEST_SIDE, LARGEST_SIDE, (N_QUERIES, 2)) / 2
    length = rng.integers(1, max(1, n_slots // 2), size=N_QUERIES, endpoint=True)
    first = rng.integers(0, n_slots - length, endpoint=True)
    (south, west), (north, east) = (centre - half).T, (centre + half).T
    return Queries(south, north, west, east, first, first + length)


def answer(presence: np.ndarray, queries: Queries, position_km: np.ndarray) -> np.ndarray:
    """Share of the events in each box at its hours, shape (queries,), from shares of each slot and place."""
    before = np.concatenate([np.zeros((1, len(position_km))), np.cumsum(presence, axis=0)])
    north, east = position_km.T
    found = np.empty(len(queries.first))
    for number, (low, high, left, right, first, after) in enumerate(zip(*queries, strict=True)):
        inside = (north >= low) & (north <= high) & (east >= left) & (east <= right)
        found[number] = (before[after] - before[first])[inside].sum()
    return found


def mean_error(answers: np.ndarray, true: np.ndarray) -> float:
    """Mean relative error, with a sanity bound on true answers."""
    return float(np.mean(np.abs(answers - true) / np.maximum(true, SANITY_BOUND)))
