"""Friends who meet: at which hours, at what kind of place, how often, and how many friends people have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friend_graph import FriendGraph
from ppmtf_jax.colocation.metrics import degrees_in_part, meetings_by_category, meetings_by_hour
from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.distributions import counts_to_shares
from ppmtf_jax.evaluation.metrics.friends import Encounters
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

T = TypeVar("T")
Distributions = Mapping[str, np.ndarray]
"""An array of shares for each name."""

PANEL_INCHES = 4.6, 3.0
LEAST_PERCENT = 0.05
"""What is rarer is not drawn: on a logarithmic axis it would take most of the room."""


@styled
def friend_panels(sets: Mapping[str, Traces]) -> matplotlib.figure.Figure:
    """When, where and how often friends meet, and how many friends people have: a panel each, a colour a trace set.

    Meetings are as they stand in the sets. Of people who are seen at some hours only, those at other hours are missing;
    the metrics of `evaluation.metrics.friends` make up for that, this picture does not. How often two friends meet is
    of the periods in which both are seen at the same time. Numbers of friends are those to be expected among as many
    users as the smallest set has.

    Parameters
    ----------
    sets : mapping of names to Traces
        On the same places, with friendships; the real ones first.

    Raises
    ------
    InputError
        There is no set, the places differ, or friendships are not known.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100, seed=0).traces.split_users(0.5, seed=0)
    >>> figure = friend_panels({"training": train, "test": test})
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['training', 'test']
    """
    from matplotlib.figure import Figure

    if not sets:
        raise InputError("friends who meet", [Problem("at least one trace set", "none")])
    check_same_places(**sets)
    graphs = {name: FriendGraph.of(traces) for name, traces in sets.items()}
    counts = {name: find_colocations(traces, graphs[name]).counts() for name, traces in sets.items()}
    n_users = min(graph.n_users for graph in graphs.values())
    of_pairs = {name: Encounters.of(traces).meetings_per_window() for name, traces in sets.items()}

    has_categories = all(traces.places.category is not None for traces in sets.values())
    n_rows = 2 if has_categories else 1
    n_columns = 2 if has_categories else 3
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * n_columns, height * n_rows + 0.5), layout="constrained")
    axes = iter(figure.subplots(n_rows, n_columns).ravel())
    first = draw_meeting_hours(
        next(axes), {name: meetings_by_hour(counts[name], traces.time_grid) for name, traces in sets.items()}
    )
    if has_categories:
        draw_meeting_categories(
            next(axes), {name: meetings_by_category(counts[name], traces.places) for name, traces in sets.items()}
        )
    draw_pair_meetings(next(axes), {name: counts_to_shares(np.bincount(each)) for name, each in of_pairs.items()})
    draw_friend_numbers(next(axes), {name: degrees_in_part(graph, n_users) for name, graph in graphs.items()})
    handles, labels = first.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def draw_meeting_hours(ax: matplotlib.axes.Axes, shares: Distributions) -> matplotlib.axes.Axes:
    """At which hour of the day friends meet: a line of steps for each set.

    Parameters
    ----------
    shares : mapping of names to float arrays, shape (24,)
        Of the meetings, as `colocation.metrics.meetings_by_hour` gives them; of a set without meetings, NaN.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_meeting_hours(Figure().subplots(), {"real": np.full(24, 1 / 24)})
    >>> ax.get_xlabel()
    'hour of the day'
    """
    for (name, each), colour in _coloured(shares):
        ax.stairs(100 * each, np.arange(25), baseline=None, color=colour, lw=1.5, label=name)
    ax.set(xlim=(0, 24), xticks=np.arange(0, 25, 4), xlabel="hour of the day", ylabel="meetings, percent")
    ax.set_ylim(bottom=0)
    ax.set_title("When friends meet")
    return ax


def draw_meeting_categories(
    ax: matplotlib.axes.Axes, shares: Mapping[str, Mapping[str, float]]
) -> matplotlib.axes.Axes:
    """At what kind of place friends meet: bars for each category, the most frequent of the first set on top.

    Parameters
    ----------
    shares : mapping of names to mappings of categories to float
        Of the meetings, as `colocation.metrics.meetings_by_category` gives them, all of the same categories; of a set
        without meetings, NaN.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_meeting_categories(Figure().subplots(), {"real": {"bar": 0.2, "home": 0.8}})
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['home', 'bar']
    """
    first = next(iter(shares.values()))
    categories = sorted(first, key=lambda category: (-np.nan_to_num(first[category]), category))
    row, height = np.arange(len(categories)), 0.8 / len(shares)
    for number, ((name, each), colour) in enumerate(_coloured(shares)):
        percent = 100 * np.array([each[category] for category in categories])
        at = row + height * (number - (len(shares) - 1) / 2)
        ax.barh(at, percent, height, color=colour, label=name)
    ax.set_yticks(row, [category or "none" for category in categories])
    ax.invert_yaxis()
    ax.set(xlabel="meetings, percent")
    ax.set_title("At what kind of place")
    return ax


def draw_pair_meetings(ax: matplotlib.axes.Axes, shares: Distributions) -> matplotlib.axes.Axes:
    """How often two friends meet in one period: which part of them at least so often.

    Parameters
    ----------
    shares : mapping of names to float arrays, shape (numbers,)
        Of the pairs of friends, of those who meet 0, 1, ... times.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_pair_meetings(Figure().subplots(), {"real": np.array([0.5, 0.25, 0.25])})
    >>> ax.lines[0].get_ydata().tolist()
    [50.0, 25.0]
    """
    _draw_at_least(ax, shares)
    ax.set(xlabel="meetings in one period, at least", ylabel="pairs of friends, percent", ylim=(0, 104))
    ax.set_title("How often two friends meet")
    return ax


def draw_friend_numbers(ax: matplotlib.axes.Axes, shares: Distributions) -> matplotlib.axes.Axes:
    """How many friends people have: which part of them at least so many.

    Parameters
    ----------
    shares : mapping of names to float arrays, shape (numbers,)
        Of the users, of those who have 0, 1, ... friends.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_friend_numbers(Figure().subplots(), {"real": np.array([0.5, 0.25, 0.25])})
    >>> ax.lines[0].get_xdata().tolist()
    [1, 2]
    """
    _draw_at_least(ax, shares)
    ax.set(xlabel="friends, at least", ylabel="users, percent", yscale="log", ylim=(None, 110))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_title("How many friends people have")
    return ax


def _draw_at_least(ax: matplotlib.axes.Axes, shares: Distributions) -> None:
    """Which part has 1, 2, ... or more."""
    from matplotlib.ticker import MaxNLocator

    for (name, each), colour in _coloured(shares):
        percent = 100 * np.cumsum(each[::-1])[::-1][1:]
        shown = percent >= LEAST_PERCENT
        ax.plot(np.arange(1, len(each))[shown], percent[shown], "o-", ms=3, lw=1.2, color=colour, label=name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _coloured(sets: Mapping[str, T]) -> Iterator[tuple[tuple[str, T], str]]:
    return zip(sets.items(), cycle(LINE_COLOURS), strict=False)
