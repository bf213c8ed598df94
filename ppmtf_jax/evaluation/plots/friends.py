"""Friends who meet: at which hours, at what kind of place, how often, and how many friends people have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ppmtf_jax.colocation.counts import find_colocations
from ppmtf_jax.colocation.friends import FriendGraph
from ppmtf_jax.colocation.metrics import degrees_in_part, meetings_by_category, meetings_by_hour
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import counts_to_shares
from ppmtf_jax.evaluation.metrics.friends import Encounters
from ppmtf_jax.evaluation.plots.style import UPPER, Draw, check_sets, coloured, panels

Distributions = Mapping[str, np.ndarray]
"""An array of shares for each name."""

LEAST_PERCENT = 0.05
"""Smaller shares are not drawn: on a logarithmic axis they would take most of the room."""


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
    hours = {name: meetings_by_hour(counts[name], traces.time_grid) for name, traces in sets.items()}
    draws: list[Draw] = [partial(draw_meeting_hours, shares=hours)]
    has_categories = all(traces.places.category is not None for traces in sets.values())
    if has_categories:
        categories = {name: meetings_by_category(counts[name], traces.places) for name, traces in sets.items()}
        draws.append(partial(draw_meeting_categories, shares=categories))
    per_window = {name: Encounters.of(traces).meetings_per_window() for name, traces in sets.items()}
    pairs = {name: counts_to_shares(np.bincount(each)) for name, each in per_window.items()}
    n_users = min(graph.n_users for graph in graphs.values())
    friends = {name: degrees_in_part(graph, n_users) for name, graph in graphs.items()}
    draws += [partial(draw_pair_meetings, shares=pairs), partial(draw_friend_numbers, shares=friends)]
    return panels(draws, size=(4.6, 3.0), n_columns=2 if has_categories else 3, room=(0.0, 0.5), legend=UPPER)


def draw_meeting_hours(ax: Axes, shares: Distributions) -> None:
    """Draw shares of friends' meetings by hour of the day: a line of steps for each set."""
    for name, each, colour in coloured(shares):
        ax.stairs(100 * each, np.arange(25), baseline=None, color=colour, lw=1.5, label=name)
    ax.set(xlim=(0, 24), xticks=np.arange(0, 25, 4), xlabel="hour of the day", ylabel="meetings, percent")
    ax.set_ylim(bottom=0)
    ax.set_title("When friends meet")


def draw_meeting_categories(ax: Axes, shares: Mapping[str, Mapping[str, float]]) -> None:
    """Draw shares of friends' meetings by category of place: bars, the first set's most frequent category on top."""
    first = next(iter(shares.values()))
    categories = sorted(first, key=lambda category: (-np.nan_to_num(first[category]), category))
    row, height = np.arange(len(categories)), 0.8 / len(shares)
    for number, (name, each, colour) in enumerate(coloured(shares)):
        percent = 100 * np.array([each[category] for category in categories])
        at = row + height * (number - (len(shares) - 1) / 2)
        ax.barh(at, percent, height, color=colour, label=name)
    ax.set_yticks(row, [category or "none" for category in categories])
    ax.invert_yaxis()
    ax.set(xlabel="meetings, percent")
    ax.set_title("At what kind of place")


def draw_pair_meetings(ax: Axes, shares: Distributions) -> None:
    """Draw shares of pairs of friends who meet at least 1, 2, ... times, from shares who meet 0, 1, ... times."""
    _draw_at_least(ax, shares)
    ax.set(xlabel="meetings in one period, at least", ylabel="pairs of friends, percent", ylim=(0, 104))
    ax.set_title("How often two friends meet")


def draw_friend_numbers(ax: Axes, shares: Distributions) -> None:
    """Draw the share of users with at least 1, 2, ... friends; `shares` are of users with 0, 1, ... friends."""
    _draw_at_least(ax, shares)
    ax.set(xlabel="friends, at least", ylabel="users, percent", yscale="log", ylim=(None, 110))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set_title("How many friends people have")


def _draw_at_least(ax: Axes, shares: Distributions) -> None:
    for name, each, colour in coloured(shares):
        percent = 100 * np.cumsum(each[::-1])[::-1][1:]
        shown = percent >= LEAST_PERCENT
        ax.plot(np.arange(1, len(each))[shown], percent[shown], "o-", ms=3, lw=1.2, color=colour, label=name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
