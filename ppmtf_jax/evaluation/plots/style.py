"""How all pictures look: colours, fonts, and figures of panels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, TypeVar

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem

T = TypeVar("T")

DPI = 150
# From Okabe and Ito: people with any colour vision can tell them apart.
LINE_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
# Training data and uniform traces have their own colours; synthetic sets have the others, in this order.
REAL_COLOUR, UNIFORM_COLOUR = LINE_COLOURS[2], "#BBBBBB"
SYNTHETIC_COLOURS = [colour for colour in LINE_COLOURS if colour != REAL_COLOUR]
MAP_COLOURS = "YlGnBu"
NOTHING = "#F0F0F0"
DIM = "#666666"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.titlesize": 11,
    "legend.title_fontsize": 11,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Ids and categories may hold dollar signs; they are text, not formulas.
    "text.parse_math": False,
}
styled = rc_context(STYLE)
"""Decorator: the function draws in `STYLE`."""
UPPER: dict[str, Any] = {"loc": "outside upper center"}
LOWER: dict[str, Any] = {"loc": "outside lower center"}
"""Legend of a figure above or below its panels."""

Draw = Callable[["Axes"], object]


@styled
def panels(
    draws: Sequence[Draw],
    *,
    size: tuple[float, float],
    n_columns: int = 2,
    room: tuple[float, float] = (0.0, 0.0),
    legend: dict[str, Any] | None = None,
    title: str = "",
) -> Figure:
    """A figure with a panel for each drawing function, and one legend.

    Lengths are in inches: `size` of a panel, `room` beside and above the panels. `legend` is `UPPER` or `LOWER`, with
    more options if needed; the legend shows every label of the axes once.
    """
    n_columns = min(n_columns, len(draws))
    n_rows = -(-len(draws) // n_columns)
    width, height = size[0] * n_columns + room[0], size[1] * n_rows + room[1]
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[len(draws) :]:
        ax.remove()
    for ax, draw in zip(axes, draws, strict=False):
        draw(ax)
    if legend is not None:
        found = {label: line for ax in figure.axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(**{"handles": list(found.values()), "ncols": len(found), "frameon": False} | legend)
    if title:
        figure.suptitle(title)
    return figure


def label_slots(ax: Axes, labels: Sequence[str], n_labels: int) -> None:
    """Label at most `n_labels` slots on the x axis, with the hour below the day."""
    every = -(-len(labels) // n_labels)
    ax.set_xticks(np.arange(0, len(labels), every), [label.replace(" ", "\n") for label in labels[::every]])


def coloured(sets: Mapping[str, T]) -> Iterator[tuple[str, T, str]]:
    """Name, value and line colour of each set."""
    for (name, value), colour in zip(sets.items(), cycle(LINE_COLOURS), strict=False):
        yield name, value, colour


def check_sets(sets: Mapping[str, Traces], subject: str, *more: Problem) -> None:
    """Refuse an empty mapping, and sets on different places."""
    if not sets or more:
        raise InputError(subject, [*([] if sets else [Problem("at least one trace set", "none")]), *more])
    check_same_places(**sets)
