"""From where to where people go."""

from __future__ import annotations

from ppmtf_jax.evaluation.plots import flow_maps, transition_matrices
from ppmtf_jax.evaluation.report.blocks import Block, Details, Picture
from ppmtf_jax.evaluation.report.gauges import gauges_of
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import UTILITY, section


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
    gauges = gauges_of(data, "transitions")
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
