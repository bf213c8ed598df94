"""Trade-offs: utility against privacy, a line for each synthesizer along one of its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmtf_jax.data.measurement import Quantity
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Points = Mapping[str, Mapping[str, Sequence[float]]]
PANEL_INCHES = 2.6, 2.3


@styled
def trade_offs(
    points: Points,
    utility: Sequence[Quantity],
    privacy: Sequence[Quantity],
    *,
    published: Points | None = None,
    references: Mapping[str, Mapping[str, float]] | None = None,
) -> matplotlib.figure.Figure:
    """Each number of utility against each of privacy: Fig. 7 of Murakami et al. 2021.

    Parameters
    ----------
    points : mapping of str to a mapping of str to sequences of float
        For each synthesizer, by the name of the quantity, its values along a setting.
    utility, privacy : sequences of Quantity
        A row of panels for each of privacy, a column for each of utility.
    published : mapping, optional
        As `points`, of the same names: drawn hollow and dashed, in the same colour.
    references : mapping of str to a mapping of str to float, optional
        Values of what has no settings, such as the training data: a black mark each.

    Examples
    --------
    >>> tv = Quantity("tp_tv", "TP-TV", "How far the population is off.", "TV", "lower", "near Training")
    >>> reid = Quantity("reid_rate", "Re-identification", "Share of traces.", "share", "lower", "near Uniform")
    >>> figure = trade_offs({"sgd": {"tp_tv": [0.45, 0.44], "reid_rate": [0.001, 0.074]}}, [tv], [reid])
    >>> figure.axes[0].get_xscale(), len(figure.axes[0].lines)
    ('log', 1)
    """
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(utility), height * len(privacy) + 0.8), layout="constrained")
    axes = figure.subplots(len(privacy), len(utility), squeeze=False)
    for of_row, private in zip(axes, privacy, strict=True):
        scale = _scale(private.name, points, published or {})
        for ax, useful in zip(of_row, utility, strict=True):
            _draw_panel(ax, useful, private, points, published or {}, references or {})
            ax.set_xscale(**scale)
            ax.set_xlabel(private.title)
            ax.set_ylabel(useful.unit)
    for ax, useful in zip(axes[0], utility, strict=True):
        ax.set_title(useful.title)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return figure


def _draw_panel(
    ax: matplotlib.axes.Axes,
    useful: Quantity,
    private: Quantity,
    points: Points,
    published: Points,
    references: Mapping[str, Mapping[str, float]],
) -> None:
    # A series has the same colour and mark wherever it stands.
    marks = "osD^vP*X"
    for number, name in enumerate(dict.fromkeys([*points, *published])):
        colour, mark = LINE_COLOURS[number % len(LINE_COLOURS)], marks[number % len(marks)]
        for values, label, style in (
            (points.get(name), name, {"linestyle": "-"}),
            (published.get(name), f"{name}, published", {"linestyle": ":", "markerfacecolor": "white"}),
        ):
            if values is not None:
                x, y = values[private.name], values[useful.name]
                ax.plot(x, y, color=colour, marker=mark, markersize=4, linewidth=1, label=label, **style)
    for (name, numbers), mark in zip(references.items(), "x+1234" * len(references), strict=False):
        point = numbers[private.name], numbers[useful.name]
        ax.plot(*point, color="black", marker=mark, markersize=9, linestyle="", label=name)


def _scale(name: str, *sets: Points) -> dict[str, Any]:
    """Logarithmic where the largest value is fifty times the smallest that is positive, and none is negative."""
    values = np.concatenate([np.ravel(series[name]) for points in sets for series in points.values()])
    positive = values[np.isfinite(values) & (values > 0)]
    if (values < 0).any() or not len(positive) or positive.max() < 50 * positive.min():
        return {"value": "linear"}
    return {"value": "log"} if (values != 0).all() else {"value": "symlog", "linthresh": positive.min()}
