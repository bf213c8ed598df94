"""Which share of their time people spend at a place: regulars and passers-by."""

from __future__ import annotations

from functools import partial

from ppmtf_jax.evaluation.metrics.mobility import top_place_share
from ppmtf_jax.evaluation.report.content import Block, Content, Picture, Text
from ppmtf_jax.evaluation.report.drawing import draw_cumulative, panels
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_light
from ppmtf_jax.evaluation.report.material import Material, Unavailable
from ppmtf_jax.evaluation.report.registry import SECTIONS, UTILITY, SectionMaker

TITLES = {
    "vf_tv": "Share of their time that people spend at each place",
    "window_vf_tv": "Share of one period, such as a day, at each place",
    "top_place_w1": "Share of one period at the place where one is most",
}


def make(material: Material) -> Content:
    """How far the shares of people's time are off, and that of the place where they are most."""
    gauges = gauges_of(material, TITLES)
    if_poor = "Do not tell kinds of places by their visitors in these traces."
    light = utility_light("Do places keep their regulars and their passers-by?", gauges.items, if_poor)
    blocks: list[Block] = [gauges]
    try:
        shares = {name: 100 * top_place_share(windows) for name, windows in material.windows.items()}
        draw = partial(draw_cumulative, samples=shares, label="time at the most visited place, percent")
        alt = "Cumulative curves of the share of a period at the most visited place, for real and synthetic traces."
        caption = (
            "Which share of a period, such as a day, people are at the place where they are most. A curve that begins "
            "to rise further left is of people who are more restless. The solid curve should lie on the dotted one."
        )
        blocks.append(Picture(panels([draw], size=(5.4, 2.8)), alt, caption))
    except Unavailable as reason:
        blocks.append(Text((str(reason),)))
    return Content(blocks, [light])


SECTIONS.register(
    SectionMaker(
        "visit-fractions",
        UTILITY,
        "Regulars and passers-by",
        "At an office the same people spend most of their day, at a station many pass through. A place is known by how "
        "its visitors share their time.",
        make,
    )
)
