"""From where to where people go."""

from __future__ import annotations

from ppmtf_jax.evaluation.plots import flow_maps, transition_matrices
from ppmtf_jax.evaluation.report.content import Block, Content, Details, Picture
from ppmtf_jax.evaluation.report.gauges import gauges_of, utility_light
from ppmtf_jax.evaluation.report.material import Material
from ppmtf_jax.evaluation.report.registry import SECTIONS, UTILITY, SectionMaker

TITLES = {
    "od_tv": "Flows between parts of the town",
    "row_tv": "Where people go next from a place",
    "tm_emd_y": "How far off next places are, north-south",
    "tm_emd_x": "How far off next places are, east-west",
    "stay_share": "How often people stay",
}


def make(material: Material) -> Content:
    """How far steps and flows are off, and pictures of both."""
    gauges = gauges_of(material, TITLES)
    blocks: list[Block] = [gauges]
    real, synthetic = material.train, material.synthetic
    if material.has_map:
        alt = "Two maps with arrows for the largest flows of people, of training and of synthetic traces."
        caption = (
            "The largest flows between parts of the town. Arrows should be the same on both maps, and as wide: width "
            "is the share of all moves."
        )
        figure = flow_maps({"training": real, "synthetic": synthetic}, n_flows=20)
        blocks.append(Picture(figure, alt, caption))
        alt = "Two matrices of the probability to go from one place to another, of training and of synthetic traces."
        caption = "Colours on a logarithmic scale. The dark diagonal is people who stay where they are."
        matrices = Picture(transition_matrices(synthetic, real), alt, caption)
        blocks.append(Details("From each place to each other one, as matrices", (matrices,)))
    if_poor = "Do not study routes, or what spreads along them, with these traces."
    return Content(blocks, [utility_light("Do people move between the right places?", gauges.items, if_poor)])


SECTIONS.register(
    SectionMaker(
        "transitions",
        UTILITY,
        "From where to where people go",
        "Roads, lines and epidemics follow the steps of people: which place comes after which.",
        make,
    )
)
