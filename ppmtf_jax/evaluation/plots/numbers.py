"""Measured numbers: bars of an evaluation, ROC curves of attacks, and trade-offs of utility and privacy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from ppmtf_jax.attacks.roc import Roc
from ppmtf_jax.data.measurement import MetricInfo
from ppmtf_jax.evaluation.plots.style import (
    DIM,
    LINE_COLOURS,
    LOWER,
    REAL_COLOUR,
    SYNTHETIC_COLOURS,
    UNIFORM_COLOUR,
    UPPER,
    Draw,
    coloured,
    panels,
    styled,
)
from ppmtf_jax.evaluation.results import TRAINING, UNIFORM, Evaluation, Row, references_text

N_COLUMNS = 4
LABEL_LENGTH, LINE_LENGTH = 30, 145
"""Characters that fit beside a panel, and in a line below all panels."""
NUMBER_LENGTH = 6
"""Characters that fit beside the number of the next bar."""
MIN_RATE = 0.01
"""Where a logarithmic axis of false positive rates begins, in percent."""
POINTS_OF_A_TIE = 40
GUESS = {"color": DIM, "linewidth": 1, "linestyle": (0, (1, 2)), "label": "a guess"}
MARKS = "osD^vP*X"
Points = Mapping[str, Mapping[str, Sequence[float]]]


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


# Attacks. A star at the end of a name marks an attack on all traces of a user together, as in Murakami et al., TIFS
# 2017. Its line is dashed and has the colour of the name without the star.


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
    least = MIN_RATE if logarithmic else 0.0
    for name, look in _looks(curves).items():
        false_rate, true_rate = with_ties(*(100 * np.asarray(rate) for rate in curves[name]))
        ax.plot(np.maximum(false_rate, least), true_rate, label=name, **look)
    # The diagonal needs many points, because it is curved if one axis is logarithmic.
    guess = np.append(0, np.geomspace(MIN_RATE, 100))
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


# Trade-offs


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
