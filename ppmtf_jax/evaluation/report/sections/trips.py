"""How far people go, how widely they roam, and how many places they see."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics.mobility import distinct_places, jump_lengths_km, radius_of_gyration_km
from ppmtf_jax.evaluation.report.content import Block, Content, Picture, Table, Text
from ppmtf_jax.evaluation.report.drawing import draw_cumulative, panels
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_light
from ppmtf_jax.evaluation.report.material import REAL, SYNTHETIC, TRAINING, UNIFORM, Material, Unavailable
from ppmtf_jax.evaluation.report.registry import SECTIONS, UTILITY, SectionMaker

TITLES = {
    "jump_tv": "Length of a trip",
    "radius_w1_km": "How widely people roam (radius of gyration)",
    "distinct_w1": "How many different places people see",
    "move_interval_w1_h": "How long people stay at a place",
}
OF_A_MAP: dict[str, Callable[[Windows], np.ndarray]] = {
    "length of a trip, km": jump_lengths_km,
    "radius of gyration, km": radius_of_gyration_km,
}
OF_ANY: dict[str, Callable[[Windows], np.ndarray]] = {"different places in one period": distinct_places}


def make(material: Material) -> Content:
    """Distances between the distributions of what people do, and these distributions."""
    titles = TITLES if material.has_map else {name: TITLES[name] for name in ("distinct_w1", "move_interval_w1_h")}
    gauges = gauges_of(material, titles)
    if_poor = "Do not study distances, or how people spend a day, with these traces."
    light = utility_light("Do people go as far, and see as many places?", gauges.items, if_poor)
    try:
        blocks = [gauges, *_pictures(material)]
    except Unavailable as reason:
        blocks = [gauges, Text((str(reason),))]
    return Content(blocks, [light])


def _pictures(material: Material) -> list[Block]:
    statistics = (OF_A_MAP if material.has_map else {}) | OF_ANY
    samples = {
        label: {name: np.asarray(statistic(windows), float) for name, windows in material.windows.items()}
        for label, statistic in statistics.items()
    }
    draws: list[Any] = [partial(draw_cumulative, samples=each, label=label) for label, each in samples.items()]
    alt = f"Cumulative curves of {', '.join(samples)}, for real, synthetic and random traces."
    caption = (
        "Each curve says which share of people or trips is at most so large. The solid curve, of synthetic traces, "
        "should lie on the dotted one, of real people."
    )
    names = {REAL: "Real, test users", TRAINING: "Real, training users", SYNTHETIC: "Synthetic", UNIFORM: "Random"}
    rows = [[label, *(_mean(each[name]) for name in names)] for label, each in samples.items()]
    note: list[Block] = [] if material.has_map else [Text(("No lengths: the places have no usable coordinates.",))]
    return [
        Picture(panels(draws, n_columns=3), alt, caption),
        Table("On average", ("What", *names.values()), rows),
        *note,
    ]


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.2f}" if len(values) else "-"


SECTIONS.register(
    SectionMaker(
        "trips",
        UTILITY,
        "How far people go",
        "Trips of the right length, by people who roam as widely and see as many places in one period, such as a day. "
        "A trip is a move from one place to another from one instant to the next. Synthetic traces are looked at only "
        "at hours at which real people were seen.",
        make,
    )
)
