"""Pictures that several sections draw, in the colours of one report: the same set has the same look everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ppmtf_jax.evaluation.plots.bars import REAL_COLOUR, SYNTHETIC_COLOURS
from ppmtf_jax.evaluation.plots.style import DIM, styled
from ppmtf_jax.evaluation.report.material import REAL, SYNTHETIC, TRAINING, UNIFORM

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

LOOKS: dict[str, dict[str, Any]] = {
    REAL: {"color": "#333333", "linestyle": (0, (1, 1)), "linewidth": 2.2, "label": "real, test users"},
    TRAINING: {"color": REAL_COLOUR, "linestyle": "--", "linewidth": 1.4, "label": "real, training users"},
    SYNTHETIC: {"color": SYNTHETIC_COLOURS[0], "linestyle": "-", "linewidth": 1.8, "label": "synthetic"},
    UNIFORM: {"color": DIM, "linestyle": "-.", "linewidth": 1.0, "label": "random places"},
}
"""How the line of each set looks: told apart by dashes and widths as well as by colour."""
PANEL_INCHES = 3.4, 2.7


def draw_lines(ax: matplotlib.axes.Axes, x: np.ndarray, lines: Mapping[str, np.ndarray], **options: Any) -> None:
    """A line for each set."""
    for name, values in lines.items():
        ax.plot(x, values, **LOOKS[name], **options)


def draw_cumulative(ax: matplotlib.axes.Axes, samples: Mapping[str, np.ndarray], *, label: str) -> None:
    """For each set, which share of a sample is at most so large, in percent."""
    finite = {name: np.sort(values[np.isfinite(values)]) for name, values in samples.items()}
    last = max((np.quantile(each, 0.99) for each in finite.values() if len(each)), default=1.0)
    for name, values in finite.items():
        if len(values):
            # Drawn at some of the values: a line of a million points shows no more.
            quantile = np.linspace(0, 1, min(len(values), 400))
            at = np.quantile(values, quantile, method="inverted_cdf")
            ax.step(np.append(0, at), 100 * np.append(0, quantile), where="post", **LOOKS[name])
    ax.set(xlim=(0, last if last > 0 else 1.0), ylim=(0, 101), xlabel=label, ylabel="share at most so large, percent")


@styled
def panels(
    draws: Sequence[Any], *, n_columns: int = 2, legend: bool = True, size: tuple[float, float] = PANEL_INCHES
) -> matplotlib.figure.Figure:
    """A figure with a panel for each function of an axis, and one legend below."""
    from matplotlib.figure import Figure

    n_columns = min(n_columns, len(draws))
    n_rows = -(-len(draws) // n_columns)
    width, height = size
    figure = Figure(figsize=(width * n_columns, height * n_rows + 0.4 * legend), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax, draw in zip(axes, draws, strict=False):
        draw(ax)
    for ax in axes[len(draws) :]:
        ax.set_axis_off()
    if legend:
        found = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        columns = len(found) if n_columns > 1 else 2
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns, frameon=False)
    return figure
