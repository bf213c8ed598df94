"""From where to where people go."""

from __future__ import annotations

from ppmtf_jax.evaluation.plots import flow_maps, transition_matrices
from ppmtf_jax.evaluation.report.blocks import Block, Details, Picture
from ppmtf_jax.evaluation.report.gauges import gauges_of
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import UTILITY, section

TITLES = {
    "od_tv": "Flows between parts of the town",
    "jump_1h_tv": "How far people go within an hour",
    "jump_6h_tv": "How far people go in 2 to 6 hours",
    "jump_24h_tv": "How far people go in 7 to 24 hours",
    "jump_later_tv": "How far people go in more than a day",
    "row_tv": "Where people go next from a place",
    "tm_emd_y": "Next places, north-south",
    "tm_emd_x": "Next places, east-west",
    "stay_difference": "How often people stay",
}


@section(
    "transitions",
    UTILITY,
    "From where to where people go",
    "Traffic and epidemics depend on the moves of people: which place they visit after which.",
    question="Do people move between the right places?",
    if_poor="Do not study routes, or what spreads along them, with these traces.",
)
def make(data: ReportData) -> list[Block]:
    """How far steps and flows are off, and pictures of both."""
    gauges = gauges_of(data, TITLES)
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
