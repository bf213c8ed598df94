"""How far people move: the distribution of the lengths of moves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.metrics.mobility import BIN_KM, JumpSettings, jump_lengths_km
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.figure


@styled
def jump_length_curves(sets: Mapping[str, Traces], *, bin_km: float = BIN_KM) -> matplotlib.figure.Figure:
    """How long the moves of trace sets are: the share of the moves in each bin of lengths, one curve for each set.

    A move is one to another place from an instant to the next; stays do not count. Jump-TV compares the same shares,
    but of traces thinned to the hours at which people are seen.

    Parameters
    ----------
    sets : mapping of names to Traces
        On the same places.
    bin_km : float
        Width of the bins.

    Raises
    ------
    InputError
        There is no set, the places differ, or the width is not above 0.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> figure = jump_length_curves({"training": train, "test": test})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['training', 'test']
    """
    from matplotlib.figure import Figure

    JumpSettings(bin_km)
    if not sets:
        raise InputError("jump lengths", [Problem("at least one trace set", "none")])
    check_same_places(**sets)
    length_bins = {
        name: np.floor(jump_lengths_km(Windows.of(traces)) / bin_km).astype(np.int64) for name, traces in sets.items()
    }
    n_bins = 1 + max((each.max() for each in length_bins.values() if len(each)), default=0)
    middle_km = (np.arange(n_bins) + 0.5) * bin_km

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    ax = figure.subplots()
    for (name, bins), colour in zip(length_bins.items(), cycle(LINE_COLOURS), strict=False):
        percent = 100 * np.bincount(bins, minlength=n_bins) / max(1, len(bins))
        # Nothing has no place on a logarithmic axis: the curve breaks there.
        drawn = np.where(percent > 0, percent, np.nan)
        ax.plot(middle_km, drawn, "o-", ms=3, lw=1.2, color=colour, label=name if len(bins) else f"{name}: no move")
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set(xlim=(0, n_bins * bin_km), xlabel="length, km", ylabel=f"moves in each {bin_km:g} km, percent")
    ax.legend(frameon=False)
    figure.suptitle("Lengths of the moves")
    return figure
