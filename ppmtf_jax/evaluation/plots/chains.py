"""What a sampler's chains did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, NOTHING, styled

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


@styled
def trace_plots(trace: Mapping[str, np.ndarray]) -> matplotlib.figure.Figure:
    """What a sampler's chains did, sweep by sweep: one panel for each quantity, one line for each chain.

    The second half of the sweeps, from which convergence is judged, has a grey ground. Values of the first tenth, which
    would dwarf all others, may lie outside a panel.

    Parameters
    ----------
    trace : mapping of titles to float arrays, shape (chains, sweeps)
        NaN is not drawn.

    Examples
    --------
    >>> figure = trace_plots({"log joint density": np.zeros((2, 10))})
    >>> len(figure.axes[0].lines)
    2
    """
    from matplotlib.figure import Figure

    n_columns = min(3, len(trace))
    n_rows = -(-len(trace) // n_columns)
    figure = Figure(figsize=(3.6 * n_columns, 1.9 * n_rows + 0.8), layout="constrained")
    axes = np.ravel(figure.subplots(n_rows, n_columns, squeeze=False))
    for ax, (title, chains) in zip(axes, trace.items(), strict=False):
        _draw_chains(ax, chains)
        ax.set_title(title)
    for ax in axes[max(0, len(trace) - n_columns) : len(trace)]:
        ax.set_xlabel("sweep")
    for ax in axes[len(trace) :]:
        ax.set_axis_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle("Chains of the Gibbs sampler (grey: sweeps from which convergence is judged)")
    return figure


def _draw_chains(ax: matplotlib.axes.Axes, chains: np.ndarray) -> None:
    """A line for each chain, scaled to what comes after the first tenth of the sweeps."""
    n_sweeps = chains.shape[1]
    ax.axvspan(n_sweeps // 2 + 0.5, n_sweeps + 0.5, color=NOTHING, linewidth=0, zorder=0)
    for number, (values, colour) in enumerate(zip(chains, LINE_COLOURS * len(chains), strict=False)):
        ax.plot(np.arange(1, n_sweeps + 1), values, color=colour, linewidth=1, label=f"chain {number + 1}")
    settled = chains[:, n_sweeps // 10 :]
    low, high = np.nanmin(settled), np.nanmax(settled)
    margin = 0.06 * (high - low) or 0.01 * abs(high) or 1.0
    ax.set(xlim=(0.5, n_sweeps + 0.5), ylim=(low - margin, high + margin))
    ax.locator_params(axis="y", nbins=5)
    ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))
