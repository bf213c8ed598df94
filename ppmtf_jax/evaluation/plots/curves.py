"""Curves: how many traces pass the privacy test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.figure


@styled
def pass_rate_curves(curves: Mapping[str, np.ndarray]) -> matplotlib.figure.Figure:
    """Share of the traces that pass the privacy test against k, one line for each name: Fig. 16 of the paper.

    Parameters
    ----------
    curves : mapping to float arrays, shape (k,)
        For k = 1, 2, 3, ...: what `PlausibleDeniability.pass_rates` returns.

    Examples
    --------
    >>> figure = pass_rate_curves({"New York": np.array([1.0, 0.8, 0.7])})
    >>> len(figure.axes[0].lines)
    1
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    ax = figure.subplots()
    for (name, rates), colour in zip(curves.items(), LINE_COLOURS * len(curves), strict=False):
        ax.plot(np.arange(1, len(rates) + 1), 100 * rates, color=colour, label=name)
    ax.set_xlabel("k, users for whom a trace must be as plausible")
    ax.set_ylabel("traces that pass, percent")
    ax.set_ylim(0, 102)
    ax.set_xlim(left=0)
    ax.legend(frameon=False)
    figure.suptitle("Pass rate of the plausible-deniability test")
    return figure
