"""How far people go, how many places they visit, and how they share their time among places."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics.moves import jump_lengths_km, radius_of_gyration_km
from ppmtf_jax.evaluation.metrics.persons import distinct, share_of_rank
from ppmtf_jax.evaluation.metrics.windows import Sample
from ppmtf_jax.evaluation.plots.curves import draw_cumulative
from ppmtf_jax.evaluation.plots.style import LOWER, panels
from ppmtf_jax.evaluation.report.blocks import Block, Picture, Table, Text
from ppmtf_jax.evaluation.report.gauges import gauges_of
from ppmtf_jax.evaluation.report.inputs import ReportData, if_available
from ppmtf_jax.evaluation.report.registry import UTILITY, section
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM

OF_LENGTHS = ("jump_tv", "radius_w1_km")
OF_A_MAP: dict[str, Callable[[Windows], Sample]] = {
    "length of a trip, km": jump_lengths_km,
    "radius of gyration, km": radius_of_gyration_km,
}
OF_ANY: dict[str, Callable[[Windows], Sample]] = {"different places in one period": distinct}


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
def make(data: ReportData) -> list[Block]:
    """Gauges of lengths, stays and numbers of places, and their cumulative distributions."""
    gauges = gauges_of(data, "trips", without=() if data.has_map else OF_LENGTHS)
    return [gauges, *if_available(lambda: _distributions(data))]


def _distributions(data: ReportData) -> list[Block]:
    statistics = (OF_A_MAP if data.has_map else {}) | OF_ANY
    samples = {
        label: {name: np.asarray(statistic(windows).value, float) for name, windows in data.windows.items()}
        for label, statistic in statistics.items()
    }
    draws = [partial(draw_cumulative, samples=each, label=label) for label, each in samples.items()]
    picture = Picture(
        panels(
            draws, size=(3.4, 2.7), n_columns=3, room=(0.0, 0.4), legend=LOWER | ({} if data.has_map else {"ncols": 2})
        ),
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
def make_shares(data: ReportData) -> list[Block]:
    """Gauges of the shares of time at places, and curves of the share at the most visited place."""
    return [gauges_of(data, "visit-fractions"), *if_available(lambda: [_top_places(data)])]


def _top_places(data: ReportData) -> Picture:
    shares = {name: 100 * share_of_rank(windows, 0).value for name, windows in data.windows.items()}
    draw = partial(draw_cumulative, samples=shares, label="time at the most visited place, percent")
    return Picture(
        panels([draw], size=(5.4, 2.8), room=(0.0, 0.4), legend=LOWER | {"ncols": 2}),
        "Cumulative curves of the share of a period at the most visited place, for real and synthetic traces.",
        "The share of a period, such as a day, that people spend at their most visited place. If a curve rises further "
        "left, its people move more. The solid curve (synthetic traces) should lie on the dotted curve (real people).",
    )
