"""Trade-offs: utility against privacy, a line for each synthesizer along one of its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.evaluation.plots.style import LOWER, coloured, panels

Points = Mapping[str, Mapping[str, Sequence[float]]]
MARKS = "osD^vP*X"


def trade_offs(
    points: Points,
    utility: Sequence[MetricInfo],
    privacy: Sequence[MetricInfo],
    *,
    published: Points | None = None,
    references: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Draw each utility number against each privacy number: Fig. 7 of Murakami et al. 2021.

    Parameters
    ----------
    points : mapping of str to a mapping of str to sequences of float
        Values at several values of one setting, by synthesizer and name of the quantity.
    utility, privacy : sequences of MetricInfo
        The metrics: a row of panels for each privacy metric, a column for each utility metric.
    published : mapping, optional
        Published values, as `points` and with the same names; drawn hollow and dotted, in the same colour.
    references : mapping of str to a mapping of str to float, optional
        Single values, such as those of the training data: a black mark each.

    Examples
    --------
    >>> tv = MetricInfo("tp_tv", "TP-TV", "How far the population is off.", "TV", "lower", "near Training")
    >>> reid = MetricInfo("reid_rate", "Re-identification", "Share of traces.", "share", "lower", "near Uniform")
    >>> figure = trade_offs({"sgd": {"tp_tv": [0.45, 0.44], "reid_rate": [0.001, 0.074]}}, [tv], [reid])
    >>> figure.axes[0].get_xscale(), len(figure.axes[0].lines)
    ('log', 1)
    """
    official = published or {}

    def draw(ax: Axes, private: MetricInfo, useful: MetricInfo) -> None:
        _draw_lines(ax, private.name, useful.name, points, official)
        for (name, numbers), mark in zip((references or {}).items(), "x+1234" * len(references or {}), strict=False):
            point = numbers[private.name], numbers[useful.name]
            ax.plot(*point, color="black", marker=mark, markersize=9, linestyle="", label=name)
        ax.set_xscale(**_scale(private.name, points, official))
        ax.set(xlabel=private.title, ylabel=useful.unit)
        if private is privacy[0]:
            ax.set_title(useful.title)

    draws = [partial(draw, private=private, useful=useful) for private in privacy for useful in utility]
    return panels(draws, size=(2.6, 2.3), n_columns=len(utility), room=(0.0, 0.8), legend=LOWER | {"ncols": 5})


def _draw_lines(ax: Axes, private: str, useful: str, points: Points, published: Points) -> None:
    # A series has the same colour and mark in all panels.
    for number, (name, _, colour) in enumerate(coloured({**points, **published})):
        mark = MARKS[number % len(MARKS)]
        for values, label, style in (
            (points.get(name), name, {"linestyle": "-"}),
            (published.get(name), f"{name}, published", {"linestyle": ":", "markerfacecolor": "white"}),
        ):
            if values is not None:
                x, y = values[private], values[useful]
                ax.plot(x, y, color=colour, marker=mark, markersize=4, linewidth=1, label=label, **style)


def _scale(name: str, *sets: Points) -> dict[str, Any]:
    """A logarithmic axis if no value is negative and the largest is at least 50 times the smallest positive value."""
    values = np.concatenate([np.ravel(series[name]) for points in sets for series in points.values()])
    positive = values[np.isfinite(values) & (values > 0)]
    if (values < 0).any() or not len(positive) or positive.max() < 50 * positive.min():
        return {"value": "linear"}
    return {"value": "log"} if (values != 0).all() else {"value": "symlog", "linthresh": positive.min()}
