"""How people share their time among places: regulars and passers-by."""

from __future__ import annotations

from functools import partial

from ppmtf_jax.evaluation.metrics.places_seen import top_place_share
from ppmtf_jax.evaluation.plots.curves import draw_cumulative
from ppmtf_jax.evaluation.plots.style import LOWER, panels
from ppmtf_jax.evaluation.report.blocks import Block, Picture
from ppmtf_jax.evaluation.report.gauges import gauges_of
from ppmtf_jax.evaluation.report.inputs import ReportData, if_available
from ppmtf_jax.evaluation.report.registry import UTILITY, section

TITLES = {
    "vf_tv": "Share of their time that people spend at each place",
    "window_vf_tv": "Share of one period, such as a day, at each place",
    "top_place_w1": "Share of one period at a person's most visited place",
}


@section(
    "visit-fractions",
    UTILITY,
    "Regulars and passers-by",
    "At an office the same people spend most of their day; many people pass through a station. The way in which "
    "visitors share their time tells what kind of place it is.",
    question="Do places keep their regulars and their passers-by?",
    if_poor="Do not tell kinds of places by their visitors in these traces.",
)
def make(data: ReportData) -> list[Block]:
    """How far the shares of people's time are off, and those of their most visited places."""
    return [gauges_of(data, TITLES), *if_available(lambda: [_top_places(data)])]


def _top_places(data: ReportData) -> Picture:
    shares = {name: 100 * top_place_share(windows) for name, windows in data.windows.items()}
    draw = partial(draw_cumulative, samples=shares, label="time at the most visited place, percent")
    return Picture(
        panels([draw], size=(5.4, 2.8), room=(0.0, 0.4), legend=LOWER | {"ncols": 2}),
        "Cumulative curves of the share of a period at the most visited place, for real and synthetic traces.",
        "The share of a period, such as a day, that people spend at their most visited place. If a curve rises further "
        "left, its people are more restless. The solid curve should lie on the dotted one.",
    )
