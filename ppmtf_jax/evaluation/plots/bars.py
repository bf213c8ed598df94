"""How good the synthetic traces are: a bar for each number of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ppmtf_jax.evaluation.evaluation import TRAINING, UNIFORM, Evaluation
from ppmtf_jax.evaluation.plots.style import DIM, LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

N_COLUMNS = 4
# Colours of what synthetic sets are compared with, and the others, in the order of `LINE_COLOURS`, for these.
REAL_COLOUR, UNIFORM_COLOUR = LINE_COLOURS[2], "#BBBBBB"
SYNTHETIC_COLOURS = [colour for colour in LINE_COLOURS if colour != REAL_COLOUR]


@styled
def utility_bars(evaluation: Evaluation) -> matplotlib.figure.Figure:
    """Each metric of an evaluation for the synthetic traces, beside the training data and uniform traces.

    Numbers that are not finite are marked as such.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.evaluation.evaluation import evaluate
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> figure = utility_bars(evaluate(train, train, test))
    >>> len(figure.axes[0].patches)
    3
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = evaluation.rows()
    series = _series(evaluation.columns)
    n_rows = -(-(len(rows) + 1) // N_COLUMNS)
    figure = Figure(figsize=(10.4, 2.8 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, N_COLUMNS).ravel()
    for ax, (quantity, values) in zip(axes, rows, strict=False):
        _draw_bars(ax, values, list(series.values()))
        ax.set_title(f"{quantity.title}\n{quantity.direction} is better")
        ax.set_ylabel("\n".join(wrap(quantity.unit, 34)))
        ax.set_xlabel("\n".join(wrap(f"good: {quantity.good_value}", 34)), fontsize=8, color=DIM)
    for ax in axes[len(rows) :]:
        ax.set_axis_off()
    handles = [Patch(color=colour, label=name) for name, colour in series.items()]
    axes[len(rows)].legend(handles=handles, loc="center", frameon=False, fontsize=10)
    figure.suptitle("Utility and privacy of the synthetic traces")
    return figure


def _series(columns: Sequence[str]) -> dict[str, str]:
    """What each column is called, and its colour."""
    compared = {TRAINING: ("training data", REAL_COLOUR), UNIFORM: ("uniform", UNIFORM_COLOUR)}
    own = cycle(SYNTHETIC_COLOURS)
    return dict(compared[name] if name in compared else (name, next(own)) for name in columns)


def _draw_bars(ax: matplotlib.axes.Axes, values: Sequence[float], colours: Sequence[str]) -> None:
    """A bar with its number for each value; "n/a" for what is not finite."""
    finite = [value for value in values if np.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    if low == high:
        high = 1.0
    for position, (value, colour) in enumerate(zip(values, colours, strict=True)):
        known = np.isfinite(value)
        if known:
            ax.bar(position, value, color=colour, width=0.75)
        text, height, shade = (f"{value:.3g}", max(value, 0.0), "black") if known else ("n/a", 0.0, DIM)
        ax.text(position, height + 0.02 * (high - low), text, ha="center", va="bottom", fontsize=8, color=shade)
    ax.set(xticks=[], xlim=(-0.6, len(values) - 0.4), ylim=(low, high + 0.2 * (high - low)))
    ax.axhline(0, color="black", lw=0.8)
    ax.locator_params(axis="y", nbins=4)
    if not finite:
        ax.set_yticks([])
