"""How well attacks tell traces or users apart: ROC curves, and areas under them.

A star at the end of a name marks an attack on all traces of a user together, as in Murakami et al., TIFS 2017. Its line
is dashed and has the colour of the name without the star.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.evaluation.plots.style import DIM, LINE_COLOURS, panels

GUESS = {"color": DIM, "linewidth": 1, "linestyle": (0, (1, 2)), "label": "a guess"}
LEAST_PERCENT = 0.01
POINTS_OF_A_TIE = 40


def roc_curves(curves: Mapping[str, Roc], *, title: str, logarithmic: bool = False) -> Figure:
    """ROC curves, a line for each name, and the line of a guess: Fig. 10 of Murakami et al., TIFS 2017.

    `logarithmic`: use a logarithmic axis of the false positive rate, to show what is found with few false alarms.

    Examples
    --------
    >>> roc = Roc.of(np.array([2.0, 1.0]), np.array([1.5, 0.0]))
    >>> figure = roc_curves({"ML": roc}, title="Re-identification")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['ML', 'a guess']
    """

    def draw(ax: Axes) -> None:
        rates = {name: (roc.false_positive_rate, roc.true_positive_rate) for name, roc in curves.items()}
        draw_roc(ax, rates, logarithmic=logarithmic)
        ax.legend(frameon=False, loc="upper left" if logarithmic else "lower right")

    return panels([draw], size=(4.4, 4.6), title=title)


def draw_roc(ax: Axes, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], *, logarithmic: bool = False) -> Axes:
    """Draw `roc_curves` into an axis, from false and true positive rates (0 to 1, rising) of each name.

    Where both rates rise at once, scores are tied: a coin decides among them, so the curve is straight, as the area
    under it counts ties half.
    """
    least = LEAST_PERCENT if logarithmic else 0.0
    for name, look in _looks(curves).items():
        false_rate, true_rate = (100 * np.asarray(rate) for rate in curves[name])
        false_rate, true_rate = with_ties(false_rate, true_rate)
        ax.plot(np.maximum(false_rate, least), true_rate, label=name, **look)
    # The diagonal needs many points, because it is curved if one axis is logarithmic.
    guess = np.append(0, np.geomspace(LEAST_PERCENT, 100))
    ax.plot(guess, guess, **GUESS)
    if logarithmic:
        ax.set_xscale("log")
    ax.set(xlabel="false positive rate, percent", ylabel="true positive rate, percent")
    ax.set(xlim=(least, 100), ylim=(0, 101), box_aspect=1)
    return ax


def with_ties(false_rate: np.ndarray, true_rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add points along the lines where both rates rise, because these lines are curved if an axis is logarithmic.

    Examples
    --------
    >>> false_rate, true_rate = with_ties(np.array([0.0, 0.5, 0.5]), np.array([0.0, 0.5, 1.0]))
    >>> bool(np.allclose(false_rate[:-1], true_rate[:-1])), len(false_rate)
    (True, 42)
    """
    tied = np.flatnonzero((np.diff(false_rate) > 0) & (np.diff(true_rate) > 0))
    points = np.arange(len(false_rate))
    along = np.union1d(points, tied[:, None] + np.geomspace(1e-4, 1, POINTS_OF_A_TIE)[:-1])
    return np.interp(along, points, false_rate), np.interp(along, points, true_rate)


def draw_auc(
    ax: Axes,
    along: np.ndarray,
    lines: Mapping[str, np.ndarray],
    *,
    label: str,
    errors: Mapping[str, np.ndarray] | None = None,
) -> Axes:
    """Area under the ROC curve against, say, the number of deleted places, a line for each name: Figs. 11, 12, 17.

    `along` has the values of the horizontal axis, numbers or names of groups; `label` is the label of this axis.
    `lines` are areas from 0 to 1, NaN if unknown. `errors` are half the lengths of error bars, for some or all names.
    """
    for name, look in _looks(lines).items():
        bars = (errors or {}).get(name)
        half = None if bars is None else 100 * np.asarray(bars)
        ax.errorbar(along, 100 * np.asarray(lines[name]), half, label=name, marker="o", markersize=3, **look)
    ax.axhline(50, **GUESS)
    if np.issubdtype(np.asarray(along).dtype, np.integer):
        ax.set_xticks(along)
    ax.set(xlabel=label, ylabel="area under the curve, percent")
    return ax


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each name."""
    plain = list(dict.fromkeys(name.removesuffix("*") for name in names))
    colour = {name: LINE_COLOURS[number % len(LINE_COLOURS)] for number, name in enumerate(plain)}
    return {
        name: {"color": colour[name.removesuffix("*")], "linestyle": "--" if name.endswith("*") else "-"}
        for name in names
    }
