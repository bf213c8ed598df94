"""Whether traces are copies: what people find of their traces in synthetic traces, and unicity."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes

from ppmtf_jax.attacks.copies import CopyCheck, check_copies
from ppmtf_jax.evaluation.plots.curves import draw_cumulative, draw_lines
from ppmtf_jax.evaluation.plots.style import LOWER, panels
from ppmtf_jax.evaluation.report.attack_tables import copies_table, unicity_table
from ppmtf_jax.evaluation.report.blocks import Block, Finding, Picture, finding_of, percent
from ppmtf_jax.evaluation.report.inputs import ReportData
from ppmtf_jax.evaluation.report.registry import PRIVACY, section
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING
from ppmtf_jax.privacy.limits import COPIED

SEED = 0
QUESTION = "Are real traces copied?"


@section(
    "copies",
    PRIVACY,
    "Are traces copies?",
    "A synthetic trace that repeats a long piece of a real trace reveals that piece.",
    question=QUESTION,
)
def make(data: ReportData) -> list[Block]:
    """What training users and test users find of their traces in synthetic traces, and unicity."""
    found = check_copies(data.synthetic, data.train, data.test, seed=SEED)
    shared = {TRAINING: found.training, REAL: found.test}
    n_points = np.arange(1, len(found.unicity) + 1)

    def draw_unicity(ax: Axes) -> None:
        draw_lines(ax, n_points, {TRAINING: 100 * found.training_unicity, SYNTHETIC: 100 * found.unicity}, marker="o")
        ax.set(ylim=(0, 101), xlabel="known points", ylabel="people identified, percent", xticks=n_points)

    draws = [
        partial(draw_cumulative, samples=shared, label="found in one synthetic trace, nats"),
        draw_unicity,
    ]
    alt = (
        "Curves of what people find of their traces, and of the share of people identified by a number of known points."
    )
    caption = (
        "Left: how much of a person's trace is in one synthetic trace, weighed by how unusual it is. People whose data "
        "was not used (real) find something too, by chance; the curve of the training users should not lie to the "
        "right of their curve. Right: the share of people whom a number of known places and times tells from all "
        "others. For real traces, this is why leaving out names does not protect people; for synthetic traces, it is "
        "neither good nor bad."
    )
    figure = panels(draws, size=(3.4, 2.7), room=(0.0, 0.4), legend=LOWER)
    unicity = {"Synthetic": found.unicity, "Real, training users": found.training_unicity}
    picture = Picture(figure, alt, caption)
    return [finding_of_copies(found), copies_table(found), picture, unicity_table(unicity, found.crowd)]


def finding_of_copies(found: CopyCheck) -> Finding:
    """The light of copies, and of how many people copies would be noticed."""
    also = " as well" if found.n_copied else ""
    if found.n_copied > 1:
        noticed = "More people may be copied."
    elif found.noticed_share < 1:
        share = percent(found.noticed_share)
        noticed = f"If whole traces of {share} of the people were copied{also}, it would be noticed."
    else:
        noticed = f"Even whole traces of a tenth of the people could be copied{also} without being noticed."
    return finding_of(QUESTION, {"": found.judgement()}, [COPIED], "Do not release these traces.", noticed)
