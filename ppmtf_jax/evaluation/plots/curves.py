"""Curves: pass rates, lengths of moves, shares of visits, chains of a sampler, and cumulative distributions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.metrics.trips import BIN_KM, JumpSettings, jump_length_bins
from ppmtf_jax.evaluation.metrics.visits import visit_fractions
from ppmtf_jax.evaluation.plots.style import (
    DIM,
    LOWER,
    NOTHING,
    REAL_COLOUR,
    SYNTHETIC_COLOURS,
    UPPER,
    check_sets,
    coloured,
    panels,
)
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM

N_KINDS = 4

LOOKS: dict[str, dict[str, Any]] = {
    REAL: {"color": "#333333", "linestyle": (0, (1, 1)), "linewidth": 2.2, "label": "real, test users"},
    TRAINING: {"color": REAL_COLOUR, "linestyle": "--", "linewidth": 1.4, "label": "real, training users"},
    SYNTHETIC: {"color": SYNTHETIC_COLOURS[0], "linestyle": "-", "linewidth": 1.8, "label": "synthetic"},
    UNIFORM: {"color": DIM, "linestyle": "-.", "linewidth": 1.0, "label": "random places"},
}
"""Line styles of the trace sets of a report; they differ in dashes and widths as well as in colour."""


def pass_rate_curves(curves: Mapping[str, np.ndarray]) -> Figure:
    """Share of the traces that pass the privacy test against k, a line for each name: Fig. 16 of Murakami et al. 2021.

    A curve has a value for k = 1, 2, 3, ..., as `PlausibleDeniability.pass_rates` returns it.

    Examples
    --------
    >>> figure = pass_rate_curves({"New York": np.array([1.0, 0.8, 0.7])})
    >>> len(figure.axes[0].lines)
    1
    """

    def draw(ax: Axes) -> None:
        for name, rates, colour in coloured(curves):
            ax.plot(np.arange(1, len(rates) + 1), 100 * rates, color=colour, label=name)
        ax.set(xlabel="k, users for whom a trace must be as plausible", ylabel="traces that pass, percent")
        ax.set(ylim=(0, 102))
        ax.set_xlim(left=0)
        ax.legend(frameon=False)

    return panels([draw], size=(5.4, 3.2), title="Pass rate of the plausible-deniability test")


def jump_length_curves(sets: Mapping[str, Traces], *, bin_km: float = BIN_KM) -> Figure:
    """Share of the moves of trace sets in each bin of lengths, a curve for each set.

    A move is a step to another place from one instant to the next; stays do not count. Jump-TV compares the same
    shares, after synthetic traces are thinned to the instants at which people are seen. The sets have the same places.
    `bin_km`: width of the bins. Raises `InputError`: there is no set, the places differ, or the width is not above 0.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> figure = jump_length_curves({"training": train, "test": test})
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['training', 'test']
    """
    JumpSettings(bin_km)
    check_sets(sets, "jump lengths")
    length_bins = {name: jump_length_bins(Windows.of(traces), bin_km).value for name, traces in sets.items()}
    n_bins = 1 + max((each.max() for each in length_bins.values() if len(each)), default=0)

    def draw(ax: Axes) -> None:
        middle_km = (np.arange(n_bins) + 0.5) * bin_km
        for name, bins, colour in coloured(length_bins):
            percent = 100 * np.bincount(bins, minlength=n_bins) / max(1, len(bins))
            # A logarithmic axis has no 0, so the curve has a gap at a bin without moves.
            drawn = np.where(percent > 0, percent, np.nan)
            ax.plot(middle_km, drawn, "o-", ms=3, lw=1.2, color=colour, label=name if len(bins) else f"{name}: no move")
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set(xlim=(0, n_bins * bin_km), xlabel="length, km", ylabel=f"moves in each {bin_km:g} km, percent")
        ax.legend(frameon=False)

    return panels([draw], size=(6.4, 3.6), title="Lengths of the moves")


def visit_fraction_panels(sets: Mapping[str, Traces], *, kinds: tuple[str, ...] | None = None) -> Figure:
    """Distributions of users' shares of events at a kind of place: a panel for each category, a line for each set.

    A line shows the share of users in each bin, of users with at least 5 events who are at this kind of place and also
    elsewhere. There are as many bins as one period of the first set's grid has instants,
    such as 24. Without categories, each place is a kind of its own. The sets have the same places; the first one is the
    reference. `kinds`: categories, by default the four with the most events in the first set. Raises `InputError`:
    there is no set, the places differ, or a category is not among theirs.

    References
    ----------
    Murakami et al. 2021, Fig. 11.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100, seed=0).traces.split_users(0.5, seed=0)
    >>> figure = visit_fraction_panels({"test": test, "training": train}, kinds=("office", "park"))
    >>> [ax.get_title() for ax in figure.axes]
    ['office', 'park']
    """
    check_sets(sets, "visit fractions")
    first = next(iter(sets.values()))
    places = first.places
    labels = places.ids if places.category is None else places.category
    names, kind_of_place = np.unique(labels.astype(str), return_inverse=True)
    unknown = [kind for kind in kinds or () if kind not in names]
    if unknown:
        raise InputError("visit fractions", [Problem(f"categories among {', '.join(names)}", ", ".join(unknown))])
    busiest = np.argsort(-np.bincount(kind_of_place[first.place], minlength=len(names)), kind="stable")[:N_KINDS]
    shown = [names.tolist().index(kind) for kind in kinds] if kinds else busiest.tolist()
    n_bins = first.time_grid.one_period().n_instants
    kinds_as_places = PlaceTable(names, *np.zeros((2, len(names))))
    counts = {}
    for name, traces in sets.items():
        by_kind = replace(traces, places=kinds_as_places, place=kind_of_place[traces.place].astype(np.int32))
        counts[name] = visit_fractions(Windows.of(by_kind, by_kind.time_grid.n_instants), n_bins, published=True)

    def draw(ax: Axes, kind: int) -> None:
        for name, each, colour in coloured(counts):
            users, edges = each[kind], np.linspace(0, 1, n_bins + 1)
            ax.stairs(100 * users / max(1, users.sum()), edges, baseline=None, color=colour, lw=1.5, label=name)
        ax.set(xlim=(0, 1), xlabel="share of a user's events", ylabel="users, percent", title=names[kind])
        ax.set_ylim(bottom=0)

    return panels([partial(draw, kind=kind) for kind in shown], size=(3.4, 2.5), room=(0.0, 0.5), legend=UPPER)


def trace_plots(trace: Mapping[str, np.ndarray]) -> Figure:
    """Chains of a sampler, sweep by sweep: a panel for each quantity, a line for each chain.

    The second half of the sweeps has a grey background: convergence is judged from these sweeps. The vertical axis fits
    the values after the first tenth of the sweeps, because the first values may be far from all others. The arrays have
    the shape (chains, sweeps). NaN is not drawn.

    Examples
    --------
    >>> figure = trace_plots({"log joint density": np.zeros((2, 10))})
    >>> len(figure.axes[0].lines)
    2
    """
    n_columns = min(3, len(trace))

    def draw(ax: Axes, number: int, title: str, chains: np.ndarray) -> None:
        n_sweeps = chains.shape[1]
        ax.axvspan(n_sweeps // 2 + 0.5, n_sweeps + 0.5, color=NOTHING, linewidth=0, zorder=0)
        for name, values, colour in coloured({f"chain {chain + 1}": each for chain, each in enumerate(chains)}):
            ax.plot(np.arange(1, n_sweeps + 1), values, color=colour, linewidth=1, label=name)
        settled = chains[:, n_sweeps // 10 :]
        low, high = np.nanmin(settled), np.nanmax(settled)
        margin = 0.06 * (high - low) or 0.01 * abs(high) or 1.0
        ax.set(xlim=(0.5, n_sweeps + 0.5), ylim=(low - margin, high + margin), title=title)
        ax.locator_params(axis="y", nbins=5)
        ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))
        if number >= len(trace) - n_columns:
            ax.set_xlabel("sweep")

    draws = [partial(draw, number=number, title=each, chains=trace[each]) for number, each in enumerate(trace)]
    title = "Chains of the Gibbs sampler (grey: sweeps from which convergence is judged)"
    return panels(
        draws, size=(3.6, 1.9), n_columns=n_columns, room=(0.0, 0.8), legend=LOWER | {"ncols": 6}, title=title
    )


def draw_lines(ax: Axes, x: np.ndarray, lines: Mapping[str, np.ndarray], **options: Any) -> None:
    """A line for each trace set of a report."""
    for name, values in lines.items():
        ax.plot(x, values, **LOOKS[name], **options)


def draw_cumulative(ax: Axes, samples: Mapping[str, np.ndarray], *, label: str) -> None:
    """The cumulative distribution of a sample of each trace set of a report, in percent."""
    finite = {name: np.sort(values[np.isfinite(values)]) for name, values in samples.items()}
    last = max((np.quantile(each, 0.99) for each in finite.values() if len(each)), default=1.0)
    for name, values in finite.items():
        if len(values):
            # At most 400 quantiles: a line with more points looks the same.
            quantile = np.linspace(0, 1, min(len(values), 400))
            at = np.quantile(values, quantile, method="inverted_cdf")
            ax.step(np.append(0, at), 100 * np.append(0, quantile), where="post", **LOOKS[name])
    ax.set(xlim=(0, last if last > 0 else 1.0), ylim=(0, 101), xlabel=label, ylabel="share up to this value, percent")
