"""Whether traces are copies: copied runs, nearest training traces, and unicity."""

from __future__ import annotations

from functools import partial

import numpy as np
from matplotlib.axes import Axes

from ppmtf_jax.attacks.copies import COPY_TITLES, CopyCheck, HeldOutComparison, check_copies
from ppmtf_jax.evaluation.plots.curves import draw_cumulative, draw_lines
from ppmtf_jax.evaluation.plots.style import LOWER, panels
from ppmtf_jax.evaluation.report.blocks import Block, Finding, Picture, Table, finding_of, percent
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
    """Copied runs and nearest training traces of synthetic and held-out traces, and unicity."""
    found = check_copies(data.synthetic, data.train, data.test, seed=SEED)
    runs = {SYNTHETIC: found.copied_run.synthetic.astype(float), REAL: found.copied_run.held_out.astype(float)}
    n_points = np.arange(1, len(found.unicity) + 1)

    def draw_unicity(ax: Axes) -> None:
        draw_lines(ax, n_points, {TRAINING: 100 * found.training_unicity, SYNTHETIC: 100 * found.unicity}, marker="o")
        ax.set(ylim=(0, 101), xlabel="known points", ylabel="people identified, percent", xticks=n_points)

    draws = [
        partial(draw_cumulative, samples=runs, label="longest run shared with a training trace, events"),
        draw_unicity,
    ]
    alt = "Curves of the lengths of copied runs, and of the share of people identified by a number of known points."
    caption = (
        "Left: the length of the longest piece of a trace that is also in a training trace. Traces of people whose "
        "data was not used share such pieces too, by chance; the curve of synthetic traces should not lie to the right "
        "of their curve. Right: the share of people whom a number of known places and times tells from all others. For "
        "real traces, this is why leaving out names does not protect people; for synthetic traces, it is neither good "
        "nor bad."
    )
    figure = panels(draws, size=(3.4, 2.7), room=(0.0, 0.4), legend=LOWER)
    return [_finding(found), _table(found), Picture(figure, alt, caption), _unicity_table(found)]


def _finding(found: CopyCheck) -> Finding:
    judged = {title: getattr(found, name).judgement() for name, title in COPY_TITLES.items()}
    by = "What was measured: {}."
    if found.nearest_share.is_saturated:
        by = "Whole traces of test users are also in the training data, so no synthetic trace can be nearer."
    return finding_of(QUESTION, judged, [COPIED], "Do not release these traces.", by)


def _table(found: CopyCheck) -> Table:
    rows = []
    for name, title in COPY_TITLES.items():
        each: HeldOutComparison = getattr(found, name)
        rows.append([title, f"{each.mean:.2f}", f"{each.held_out_mean:.2f}", percent(each.share_far, 1)])
    caption = (
        "Means of the synthetic traces and of people whose data was not used (test users). Far above: share of the "
        "synthetic traces above 95 % of the test users' traces (5 % by chance). At most 2,000 periods of each are "
        "measured, drawn at random"
    )
    return Table(caption, ("What", "Synthetic", "Real, test users", "Far above"), rows)


def _unicity_table(found: CopyCheck) -> Table:
    points = [f"{n} point{'s' * (n > 1)}" for n in range(1, len(found.unicity) + 1)]
    rows = [
        ["Synthetic", *(percent(share) for share in found.unicity)],
        ["Real, training users", *(percent(share) for share in found.training_unicity)],
    ]
    caption = (
        f"Share of people whom this number of known points tells from all others, in crowds of {found.crowd:,} people"
    )
    return Table(caption, ("Traces", *points), rows)
