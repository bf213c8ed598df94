"""How good the synthetic traces are: a bar for each number of an evaluation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import cycle
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ppmtf_jax.evaluation.evaluation import TRAINING, UNIFORM, Evaluation, Row, remarks
from ppmtf_jax.evaluation.plots.style import DIM, LINE_COLOURS, styled
from ppmtf_jax.evaluation.tables import references_text

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

N_COLUMNS = 4
PANEL_INCHES = 2.2, 2.5
LABEL_LENGTH, LINE_LENGTH = 30, 145
"""Characters that fit the side of a panel, and the width of the picture in the size of what stands below."""
# Colours of what synthetic sets are compared with, and the others, in the order of `LINE_COLOURS`, for these.
REAL_COLOUR, UNIFORM_COLOUR = LINE_COLOURS[2], "#BBBBBB"
SYNTHETIC_COLOURS = [colour for colour in LINE_COLOURS if colour != REAL_COLOUR]


@styled
def utility_bars(evaluation: Evaluation) -> matplotlib.figure.Figure:
    """Each number of utility of an evaluation for the synthetic traces, beside the training data and uniform traces.

    Numbers that are not finite are marked as such. What a number is to be held against on these data is a dashed line;
    metrics that say little on these data are pale and have a dagger, and why is told below. What is neither good nor
    bad, such as a count, has no bars.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> from ppmtf_jax.evaluation.evaluation import evaluate
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> figure = utility_bars(evaluate(train, train, test))
    >>> len(figure.axes[0].patches)
    3
    """
    return _bars(evaluation, "utility")


@styled
def privacy_bars(evaluation: Evaluation) -> matplotlib.figure.Figure:
    """The same of the numbers of privacy; above a line "alarms above" a number is poor."""
    return _bars(evaluation, "privacy")


def _bars(evaluation: Evaluation, kind: str) -> matplotlib.figure.Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    of_kind = Evaluation(evaluation.table[evaluation.table["kind"] == kind])
    rows = [row for row in of_kind.rows() if row.quantity.better]
    series = _series(evaluation.columns)
    n_rows = max(1, -(-len(rows) // N_COLUMNS))
    width, height = PANEL_INCHES
    # Half an inch for the title and what the colours mean.
    figure = Figure(figsize=(width * N_COLUMNS, height * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, N_COLUMNS).ravel()
    for ax, row in zip(axes, rows, strict=False):
        _draw_panel(ax, row, list(series.values()))
    for ax in axes[len(rows) :]:
        ax.set_axis_off()
    handles = [Patch(color=colour, label=name) for name, colour in series.items()]
    title = f"{kind.capitalize()} of the synthetic traces"
    figure.legend(title=title, handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    notes = [line for reason in remarks(of_kind) for line in wrap(reason, LINE_LENGTH)]
    if notes:
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=8, color=DIM)
    return figure


def _series(columns: Sequence[str]) -> dict[str, str]:
    """What each column is called, and its colour."""
    compared = {TRAINING: ("training data", REAL_COLOUR), UNIFORM: ("uniform", UNIFORM_COLOUR)}
    own = cycle(SYNTHETIC_COLOURS)
    return dict(compared[name] if name in compared else (name, next(own)) for name in columns)


def _draw_panel(ax: matplotlib.axes.Axes, row: Row, colours: Sequence[str]) -> None:
    quantity, references = row.quantity, row.reading.held_against()
    _draw_bars(ax, row.values, colours, references.values(), pale=bool(row.reading.caveat))
    for value in references.values():
        ax.axhline(value, color=DIM, lw=0.8, ls="--")
    ax.set_title(f"{row.title}\n{quantity.better} is better")
    ax.set_ylabel("\n".join(wrap(quantity.unit, LABEL_LENGTH)))
    below = [f"good: {quantity.good_value}"] + ([f"dashed: {references_text(row.reading)}"] if references else [])
    ax.set_xlabel("\n".join(line for text in below for line in wrap(text, LABEL_LENGTH)), fontsize=8, color=DIM)


def _draw_bars(
    ax: matplotlib.axes.Axes, values: Sequence[float], colours: Sequence[str], shown: Collection[float], *, pale: bool
) -> None:
    """A bar with its number for each value, "n/a" for what is not finite, on an axis that also shows other values."""
    finite = [value for value in values if np.isfinite(value)]
    low, high = min([0.0, *finite, *shown]), max([0.0, *finite, *shown])
    if low == high:
        high = 1.0
    gap = 0.02 * (high - low)
    for position, (value, colour) in enumerate(zip(values, colours, strict=True)):
        known = np.isfinite(value)
        if known:
            ax.bar(position, value, color=colour, width=0.75, alpha=0.35 if pale else None)
        digits = 2 if abs(value) < 0.01 else 3
        text, end, shade = (f"{value:.{digits}g}", value, "black") if known else ("n/a", 0.0, DIM)
        # The number is at the far end of its bar, which may be below 0.
        end, side = (end - gap, "top") if end < 0 else (end + gap, "bottom")
        ax.text(position, end, text, ha="center", va=side, fontsize=7, color=DIM if pale else shade)
    room = 0.2 * (high - low)
    ax.set(xticks=[], xlim=(-0.6, len(values) - 0.4), ylim=(low - room * (low < 0), high + room))
    ax.axhline(0, color="black", lw=0.8)
    ax.locator_params(axis="y", nbins=4)
    if not finite:
        ax.set_yticks([])
