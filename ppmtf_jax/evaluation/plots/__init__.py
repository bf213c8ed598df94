"""Pictures of trace sets and of their measured numbers: maps, matrices, flows, distributions, clusters, curves.

Every function returns a `matplotlib.figure.Figure` that does not depend on windows or on pyplot. Save a figure with
`save_figure`, or write all of them with `save_pictures`. Functions named `draw_` fill given axes instead. This package
imports Matplotlib, which takes half a second: import it only where a picture is made.
"""

from __future__ import annotations

import os
from pathlib import Path

from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.plots.curves import (
    friend_panels,
    jump_length_curves,
    pass_rate_curves,
    trace_plots,
    visit_fraction_panels,
)
from ppmtf_jax.evaluation.plots.maps import Factors, flow_maps, population_maps, user_clusters
from ppmtf_jax.evaluation.plots.matrices import transition_matrices
from ppmtf_jax.evaluation.plots.numbers import privacy_bars, roc_curves, trade_offs, utility_bars
from ppmtf_jax.evaluation.plots.persons import group_maps, person_maps, person_timelines
from ppmtf_jax.evaluation.plots.style import check_picture_name, is_own_picture, save_figure
from ppmtf_jax.evaluation.results import Evaluation

__all__ = [
    "Factors",
    "check_picture_name",
    "flow_maps",
    "friend_panels",
    "group_maps",
    "is_own_picture",
    "jump_length_curves",
    "pass_rate_curves",
    "person_maps",
    "person_timelines",
    "population_maps",
    "privacy_bars",
    "roc_curves",
    "save_figure",
    "save_pictures",
    "trace_plots",
    "trade_offs",
    "transition_matrices",
    "user_clusters",
    "utility_bars",
    "visit_fraction_panels",
]


def save_pictures(
    folder: str | os.PathLike[str],
    *,
    synthetic: Traces,
    train: Traces,
    test: Traces,
    evaluation: Evaluation,
    factors: Factors | None = None,
) -> list[Path]:
    """Write population.png, transitions.png, utility.png; privacy.png if there are attacks, clusters.png with factors.

    Each file appears complete or not at all; existing ones are replaced. A missing folder is created. `factors`: those
    of a model fitted to `train`. Raises `InputError`: the folder cannot be written to, or the sets do not match.
    """
    figures = {
        "population.png": population_maps(synthetic, train, test),
        "transitions.png": transition_matrices(synthetic, train),
        "utility.png": utility_bars(evaluation),
    }
    if any(row.kind == "privacy" for row in evaluation.rows):
        figures["privacy.png"] = privacy_bars(evaluation)
    if factors is not None:
        figures["clusters.png"] = user_clusters(factors, synthetic, train)
    paths = [Path(folder) / name for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        save_figure(figure, path)
    return paths
