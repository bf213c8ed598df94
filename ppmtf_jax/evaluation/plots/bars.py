"""Bar charts of the numbers of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from textwrap import wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from ppmtf_jax.evaluation.plots.style import (
    DIM,
    REAL_COLOUR,
    SYNTHETIC_COLOURS,
    UNIFORM_COLOUR,
    UPPER,
    Draw,
    panels,
    styled,
)
from ppmtf_jax.evaluation.results import TRAINING, UNIFORM, Evaluation, Row
from ppmtf_jax.evaluation.tables import references_text

N_COLUMNS = 4
LABEL_LENGTH, LINE_LENGTH = 30, 145
"""Characters that fit beside a panel, and in a line below all panels."""
NUMBER_LENGTH = 6
"""Characters that fit beside the number of the next bar."""


def utility_bars(evaluation: Evaluation) -> Figure:
    """Draw a panel for each utility number of an evaluation, with bars for synthetic, training and uniform traces.

    Undefined numbers are marked "n/a". References on these data are dashed lines. Metrics that say little on these data
    are pale and have a dagger; the reasons are printed below. Counts, which are neither good nor bad, have no bars.

    Examples
    --------
    >>> from ppmtf_jax import evaluate
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> figure = utility_bars(evaluate(train, train, test))
    >>> len(figure.axes[0].patches)
    3
    """
    return _bars(evaluation, "utility")


def privacy_bars(evaluation: Evaluation) -> Figure:
    """Like `utility_bars`, for the privacy numbers; a number above the line "alarms above" is poor."""
    return _bars(evaluation, "privacy")


@styled
def _bars(evaluation: Evaluation, kind: str) -> Figure:
    of_kind = replace(evaluation, rows=[row for row in evaluation.rows if row.kind == kind], sampled={})
    own = cycle(SYNTHETIC_COLOURS)
    real = {TRAINING: ("training data", REAL_COLOUR), UNIFORM: ("uniform", UNIFORM_COLOUR)}
    series = dict(real[name] if name in real else (name, next(own)) for name in evaluation.columns)
    rows = [row for row in of_kind.rows if row.quantity.better]
    draws: list[Draw] = [partial(_draw_panel, row=row, colours=list(series.values())) for row in rows]
    # Removed panels keep the width of the figure if there are few numbers.
    draws += [lambda ax: ax.remove()] * (N_COLUMNS - len(draws))
    handles = [Patch(color=colour, label=name) for name, colour in series.items()]
    legend = {"handles": handles, "ncols": len(handles), "title": f"{kind.capitalize()} of the synthetic traces"}
    figure = panels(draws, size=(2.2, 2.5), n_columns=N_COLUMNS, room=(0.0, 0.5), legend=UPPER | legend)
    notes = [line for reason in of_kind.remarks() for line in wrap(reason, LINE_LENGTH)]
    if notes:
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=8, color=DIM)
    return figure


def _draw_panel(ax: Axes, row: Row, colours: Sequence[str]) -> None:
    """Draw a bar and its number for each value, "n/a" for an undefined value, and dashed lines at the references."""
    quantity, references, pale = row.quantity, row.reading.held_against(), bool(row.reading.caveats)
    finite = [value for value in row.numbers.values() if np.isfinite(value)]
    shown = [0.0, *finite, *references.values()]
    low, high = min(shown), max(shown)
    if low == high:
        high = 1.0
    gap = 0.02 * (high - low)
    for position, (value, colour) in enumerate(zip(row.numbers.values(), colours, strict=True)):
        known = np.isfinite(value)
        if known:
            ax.bar(position, value, color=colour, width=0.75, alpha=0.35 if pale else None)
        text = next(text for n in (3, 2, 1) if len(text := f"{value:.{n}g}") <= NUMBER_LENGTH or n == 1)
        text, end, shade = (text, value, "black") if known else ("n/a", 0.0, DIM)
        # The number is at the far end of its bar, which may be below 0.
        end, side = (end - gap, "top") if end < 0 else (end + gap, "bottom")
        how = {"ha": "center", "va": side, "fontsize": 7, "color": DIM if pale else shade}
        ax.text(position, end, text, **how, path_effects=[withStroke(linewidth=2, foreground="white")])
    room = 0.2 * (high - low)
    ax.set(xticks=[], xlim=(-0.6, len(row.numbers) - 0.4), ylim=(low - room * (low < 0), high + room))
    ax.axhline(0, color="black", lw=0.8)
    ax.locator_params(axis="y", nbins=4)
    if not finite:
        ax.set_yticks([])
    for value in references.values():
        ax.axhline(value, color=DIM, lw=0.8, ls="--")
    below = [f"good: {quantity.good_value}"] + ([f"dashed: {references_text(row.reading)}"] if references else [])
    ax.set(title=f"{row.title}\n{quantity.better} is better", ylabel="\n".join(wrap(quantity.unit, LABEL_LENGTH)))
    ax.set_xlabel("\n".join(line for text in below for line in wrap(text, LABEL_LENGTH)), fontsize=8, color=DIM)
