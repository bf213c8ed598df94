"""Curves: pass rates, lengths of moves, shares of visits, chains of a sampler, and meetings of friends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.metrics import degrees_in_part, meetings_by_category, meetings_by_hour
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.distributions import counts_to_shares
from ppmtf_jax.evaluation.metrics.friends import Encounters
from ppmtf_jax.evaluation.metrics.moves import BIN_KM, JumpSettings, jump_length_bins
from ppmtf_jax.evaluation.metrics.persons import visit_fractions
from ppmtf_jax.evaluation.plots.style import (
    DIM,
    LOWER,
    NOTHING,
    REAL_COLOUR,
    SYNTHETIC_COLOURS,
    UPPER,
    Draw,
    check_sets,
    coloured,
    panels,
)
from ppmtf_jax.evaluation.results import REAL, SYNTHETIC, TRAINING, UNIFORM

N_KINDS = 4
MIN_PERCENT = 0.05
"""Smaller shares of friends are not drawn: on a logarithmic axis they would take most of the room."""
LOOKS: dict[str, dict[str, Any]] = {
    REAL: {"color": "#333333", "linestyle": (0, (1, 1)), "linewidth": 2.2, "label": "real, test users"},
    TRAINING: {"color": REAL_COLOUR, "linestyle": "--", "linewidth": 1.4, "label": "real, training users"},
    SYNTHETIC: {"color": SYNTHETIC_COLOURS[0], "linestyle": "-", "linewidth": 1.8, "label": "synthetic"},
    UNIFORM: {"color": DIM, "linestyle": "-.", "linewidth": 1.0, "label": "random places"},
}
"""Line styles of the trace sets of a report; they differ in dashes and widths as well as in colour."""
Distributions = Mapping[str, np.ndarray]
"""An array of shares for each name."""


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


def _draw_steps(ax: Axes, percents: Distributions, edges: np.ndarray, **labels: Any) -> None:
    """A line of steps for each set, from percents of bins; `labels` are options of `Axes.set`."""
    for name, each, colour in coloured(percents):
        ax.stairs(each, edges, baseline=None, color=colour, lw=1.5, label=name)
    ax.set(xlim=(edges[0], edges[-1]), **labels)
    ax.set_ylim(bottom=0)


def pass_rate_curves(curves: Mapping[str, np.ndarray]) -> Figure:
    """Share of the traces that pass the privacy test against k, a line for each name: Fig. 16 of Murakami et al. 2021.

    A curve has a value for k = 1, 2, 3, ..., as `Verdicts.pass_rates` returns it.

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
    elsewhere: Fig. 11 of Murakami et al. 2021. There are as many bins as one period of the first set's grid has
    instants, such as 24. Without categories, each place is a kind of its own. The sets have the same places; the first
    one is the reference. `kinds`: categories, by default the four with the most events in the first set. Raises
    `InputError`: there is no set, the places differ, or a category is not among theirs.

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
    labels = first.places.ids if first.places.category is None else first.places.category
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
        percents = {name: 100 * each[kind] / max(1, each[kind].sum()) for name, each in counts.items()}
        label = {"xlabel": "share of a user's events", "ylabel": "users, percent"}
        _draw_steps(ax, percents, np.linspace(0, 1, n_bins + 1), title=names[kind], **label)

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
    legend = LOWER | {"ncols": 6}
    return panels(draws, size=(3.6, 1.9), n_columns=n_columns, room=(0.0, 0.8), legend=legend, title=title)


# Friends


def friend_panels(sets: Mapping[str, Traces]) -> Figure:
    """Panels for when, where and how often friends meet, and how many friends people have; a colour for each trace set.

    Meetings are counted as recorded. If people are seen at some hours only, their meetings at other hours are missing.
    The metrics of `evaluation.metrics.friends` correct this, but this picture does not. The number of meetings of two
    friends covers only periods in which both are seen at the same time. Numbers of friends are expected numbers among
    as many users as the smallest set has. The sets have the same places, and friendships; the real ones come first.
    Raises `InputError`: there is no set, the places differ, or friendships are not known.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100, seed=0).traces.split_users(0.5, seed=0)
    >>> figure = friend_panels({"training": train, "test": test})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['training', 'test']
    """
    check_sets(sets, "friends who meet")
    graphs = {name: FriendGraph.of(traces) for name, traces in sets.items()}
    counts = {name: find_colocations(traces, graphs[name]).counts() for name, traces in sets.items()}
    hours = {name: 100 * meetings_by_hour(counts[name], traces.time_grid) for name, traces in sets.items()}
    labels = {"xlabel": "hour of the day", "ylabel": "meetings, percent", "title": "When friends meet"}
    draws: list[Draw] = [
        partial(_draw_steps, percents=hours, edges=np.arange(25), xticks=np.arange(0, 25, 4), **labels)
    ]
    has_categories = all(traces.places.category is not None for traces in sets.values())
    if has_categories:
        categories = {name: meetings_by_category(counts[name], traces.places) for name, traces in sets.items()}
        draws.append(partial(_draw_categories, shares=categories))
    per_window = {name: Encounters.of(traces).meetings_per_window() for name, traces in sets.items()}
    pairs = {name: counts_to_shares(np.bincount(each)) for name, each in per_window.items()}
    labels = {"xlabel": "meetings in one period, at least", "ylabel": "pairs of friends, percent"}
    draws.append(partial(draw_at_least, shares=pairs, ylim=(0, 104), title="How often two friends meet", **labels))
    n_users = min(graph.n_users for graph in graphs.values())
    friends = {name: degrees_in_part(graph, n_users) for name, graph in graphs.items()}
    labels = {"xlabel": "friends, at least", "ylabel": "users, percent", "title": "How many friends people have"}
    draws.append(partial(draw_at_least, shares=friends, yscale="log", ylim=(None, 110), **labels))
    return panels(draws, size=(4.6, 3.0), n_columns=2 if has_categories else 3, room=(0.0, 0.5), legend=UPPER)


def _draw_categories(ax: Axes, shares: Mapping[str, Mapping[str, float]]) -> None:
    """A bar for each set and category of places, the first set's most frequent category on top."""
    first = next(iter(shares.values()))
    categories = sorted(first, key=lambda category: (-np.nan_to_num(first[category]), category))
    row, height = np.arange(len(categories)), 0.8 / len(shares)
    for number, (name, each, colour) in enumerate(coloured(shares)):
        percent = 100 * np.array([each[category] for category in categories])
        at = row + height * (number - (len(shares) - 1) / 2)
        ax.barh(at, percent, height, color=colour, label=name)
    ax.set_yticks(row, [category or "none" for category in categories])
    ax.invert_yaxis()
    ax.set(xlabel="meetings, percent", title="At what kind of place")


def draw_at_least(ax: Axes, shares: Distributions, **labels: Any) -> None:
    """Draw shares of at least 1, 2, ... from shares of 0, 1, ...; `labels` are options of `Axes.set`."""
    for name, each, colour in coloured(shares):
        percent = 100 * np.cumsum(each[::-1])[::-1][1:]
        shown = percent >= MIN_PERCENT
        ax.plot(np.arange(1, len(each))[shown], percent[shown], "o-", ms=3, lw=1.2, color=colour, label=name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(**labels)
    if labels.get("yscale") == "log":
        ax.yaxis.set_major_formatter("{x:g}")
