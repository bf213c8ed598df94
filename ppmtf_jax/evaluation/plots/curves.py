"""Curves: how many traces pass the privacy test, and how well attacks tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from ppmtf_jax.evaluation.plots.attacks import draw_roc
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.figure


@runtime_checkable
class RatesOfThresholds(Protocol):
    """What a curve is drawn of, such as `ppmtf_jax.attacks.roc.Roc`."""

    @property
    def false_positive_rate(self) -> np.ndarray: ...

    @property
    def true_positive_rate(self) -> np.ndarray: ...


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


@styled
def roc_curves(
    curves: Mapping[str, RatesOfThresholds], *, title: str, logarithmic: bool = False
) -> matplotlib.figure.Figure:
    """True against false positive rate, one line for each name, beside a guess: Fig. 10 of Murakami et al., TIFS 2017.

    Parameters
    ----------
    curves : mapping of str to Roc
        See `draw_roc`.
    title : str
    logarithmic : bool
        Both axes, so that it shows what an attacker achieves with few false alarms.

    Examples
    --------
    >>> from ppmtf_jax.attacks.roc import Roc
    >>> roc = Roc.of(np.array([2.0, 1.0]), np.array([1.5, 0.0]))
    >>> figure = roc_curves({"ML": roc}, title="Re-identification")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['ML', 'a guess']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4, 4.6), layout="constrained")
    rates = {name: (roc.false_positive_rate, roc.true_positive_rate) for name, roc in curves.items()}
    ax = draw_roc(figure.subplots(), rates, logarithmic=logarithmic)
    ax.legend(frameon=False, loc="upper left" if logarithmic else "lower right")
    figure.suptitle(title)
    return figure
