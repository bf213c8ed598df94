"""How well attacks tell apart: curves of rates, and areas under them along what the attacker knows or is denied.

Each function draws into an axis and returns it, so that panels can be put together; let `style.styled` wrap what makes
the figure. A name with a star at its end is all traces of a user together, as in Murakami et al., TIFS 2017: dashed, in
the colour of the name without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmtf_jax.evaluation.plots.style import DIM, LINE_COLOURS

if TYPE_CHECKING:
    import matplotlib.axes

GUESS = {"color": DIM, "linewidth": 1, "linestyle": (0, (1, 2)), "label": "a guess"}
LEAST_PERCENT = 0.01


def draw_roc(
    ax: matplotlib.axes.Axes, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], *, logarithmic: bool = False
) -> matplotlib.axes.Axes:
    """True against false positive rate, a line for each name, beside a guess: Fig. 10.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    curves : mapping of str to pairs of float arrays, shape (thresholds,)
        False and true positive rates, from 0 to 1, rising: those of a `Roc`, or means of several.
    logarithmic : bool
        The axis of the false positive rate, so that it shows what an attacker finds with few false alarms.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_roc(Figure().subplots(), {"ML": (np.array([0.0, 1.0]), np.array([0.5, 1.0]))})
    >>> [line.get_label() for line in ax.lines]
    ['ML', 'a guess']
    """
    least = LEAST_PERCENT if logarithmic else 0.0
    for name, look in _looks(curves).items():
        false_rate, true_rate = (100 * np.asarray(rate) for rate in curves[name])
        # Steps: between two thresholds there is none.
        ax.step(np.maximum(false_rate, least), true_rate, where="post", label=name, **look)
    # A straight line, which is a curve where one axis is logarithmic.
    guess = np.append(0, np.geomspace(LEAST_PERCENT, 100))
    ax.plot(guess, guess, **GUESS)
    ax.set_xlabel("false positive rate, percent")
    ax.set_ylabel("true positive rate, percent")
    if logarithmic:
        ax.set_xscale("log")
    ax.set_xlim(least, 100)
    ax.set_ylim(0, 101)
    ax.set_box_aspect(1)
    return ax


def draw_auc(
    ax: matplotlib.axes.Axes,
    along: np.ndarray,
    lines: Mapping[str, np.ndarray],
    *,
    label: str,
    errors: Mapping[str, np.ndarray] | None = None,
) -> matplotlib.axes.Axes:
    """Area under the curve against a number, such as that of deleted places, a line for each name: Figs. 11, 12, 17.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    along : array, shape (points,)
        What changes: numbers, or texts for groups of them.
    lines : mapping of str to float arrays, shape (points,)
        Area from 0 to 1; NaN where there is none.
    label : str
        What changes, in words.
    errors : mapping of str to float arrays, shape (points,), optional
        Half of the length of a bar at each point, of some or all names.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_auc(Figure().subplots(), np.arange(3), {"ML": np.array([0.6, 0.5, 0.3])}, label="deleted places")
    >>> ax.lines[0].get_ydata().tolist(), ax.get_xlabel()
    ([60.0, 50.0, 30.0], 'deleted places')
    """
    for name, look in _looks(lines).items():
        bars = (errors or {}).get(name)
        half = None if bars is None else 100 * np.asarray(bars)
        ax.errorbar(along, 100 * np.asarray(lines[name]), half, label=name, marker="o", markersize=3, **look)
    ax.axhline(50, **GUESS)
    if np.issubdtype(np.asarray(along).dtype, np.integer):
        ax.set_xticks(along)
    ax.set_xlabel(label)
    ax.set_ylabel("area under the curve, percent")
    return ax


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each name."""
    plain = list(dict.fromkeys(name.removesuffix("*") for name in names))
    colour = {name: LINE_COLOURS[number % len(LINE_COLOURS)] for number, name in enumerate(plain)}
    return {
        name: {"color": colour[name.removesuffix("*")], "linestyle": "--" if name.endswith("*") else "-"}
        for name in names
    }
