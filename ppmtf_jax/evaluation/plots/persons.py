"""Single persons: timelines of where they are, and maps of their routes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ppmtf_jax.attacks.estimators.tensor import FactorizedCounts
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.time_grid import DAY_S, TimeGrid
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.plots.maps import draw_scale_bar, map_frame
from ppmtf_jax.evaluation.plots.style import DIM, LOWER, NOTHING, panels

RANK_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"]
OTHER_COLOUR = "#BBBBBB"
"""Colours of a person's five most visited places, the most visited first, and of all other places."""
RANK_NAMES = ["most visited place", "second", "third", "fourth", "fifth"]
DARK = ("#0072B2", "#009E73")
"""Colours on which text is white."""
NARROWEST, MIN_FOR_TEXT = 1 / 150, 1 / 45
"""Smallest widths of bars, as shares of the axis: of any bar, so that it is visible, and of a bar with a number."""
APART = 0.13
"""Smallest distance between two numbers on a map, as a share of the side of the map."""
MIN_DEGREES = 0.002
"""Smallest width of a map; it is used for a person who stays at one place."""
N_COLUMNS = 5
N_LABELS = 8


def person_timelines(people: Mapping[str, Windows]) -> Figure:
    """Draw where single persons are: a panel for each set of windows, a row for each window.

    A bar is a stay at one place. Its number and its colour say which of the places of the row it is: 1 is the place
    with the most events. Where there is no bar, nothing is known. All windows have the same length. Raises
    `InputError`: there is no set, a set has no window, or the windows differ in length.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> days = Windows.of(toy_city(n_users=4, n_days=1, seed=0).traces)
    >>> figure = person_timelines({"people": days})
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['1', '2', '3', '4']
    """
    grid = _grid_of(people)
    handles = [Patch(color=colour, label=name) for colour, name in zip(RANK_COLOURS, RANK_NAMES, strict=True)]
    handles.append(Patch(color=OTHER_COLOUR, label="others"))
    most = max(windows.n_windows for windows in people.values())
    return panels(
        [partial(_draw_timelines, name=name, windows=windows, grid=grid) for name, windows in people.items()],
        size=(7.2, 0.26 * most + 0.7),
        n_columns=1,
        room=(0.0, 0.4),
        legend=LOWER | {"handles": handles, "ncols": len(handles), "handlelength": 1.0, "columnspacing": 1.2},
    )


def person_maps(people: Mapping[str, Windows]) -> Figure:
    """Draw the routes of single persons on maps: a panel for each window, which shows only the places of this window.

    Arrows lead from each place to the next one. Numbers are the order in which the places are first visited; of places
    that are very near each other, only one has a number. Squares are the most and the second most visited place.
    Raises `InputError` as `person_timelines`, and if a place has no coordinates.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> days = Windows.of(toy_city(n_users=2, n_days=1, seed=0).traces)
    >>> [ax.get_title() for ax in person_maps({"real": days}).axes]
    ['real 1', 'real 2']
    """
    _grid_of(people)
    require_coordinates("maps of persons", *(windows.places for windows in people.values()))
    draws = [
        partial(_draw_way, title=f"{name} {row + 1}", places=windows.places, place=place)
        for name, windows in people.items()
        for row, place in enumerate(_by_window(windows, windows.place))
    ]
    of_ranks = zip([*RANK_COLOURS[:2], OTHER_COLOUR], [*RANK_NAMES[:2], "others"], "sso", strict=True)
    handles = [
        Line2D([], [], color=colour, label=name, marker=marker, linestyle="none", markersize=7)
        for colour, name, marker in of_ranks
    ]
    return panels(
        draws,
        size=(1.6, 1.9),
        n_columns=N_COLUMNS,
        room=(0.0, 0.4),
        legend=LOWER | {"handles": handles, "ncols": len(handles)},
    )


def group_maps(train: Traces, counts: FactorizedCounts, *, n_groups: int = 4, n_users: int = 5) -> Figure:
    """Draw the traces of the users who go most to a group of places: Fig. 13 of Murakami et al. (TIFS 2017).

    A panel for each of the groups with the most events. Black dots are the places of the group, and each colour is one
    of the `n_users` users with the greatest mean of U^(b) V^(b)T over the group, above 0. This shows real people: keep
    it private. `counts` are of `gstf`, learned from `train`. Raises `InputError`: they have no groups or other users,
    or a place has no coordinates.

    Examples
    --------
    >>> from ppmtf_jax import toy_city
    >>> from ppmtf_jax.attacks import estimate_transitions
    >>> train = toy_city(n_users=12, n_places=20, seed=0).traces
    >>> counts = estimate_transitions(train, "gstf", beta=0.1, rank=4).counts
    >>> len(group_maps(train, counts, n_groups=1).axes)
    1
    """
    affinity = np.asarray(counts.factors.user_b @ counts.factors.next_place_b.T)
    if counts.group is None or affinity.shape != (train.n_users, train.n_places):
        expected = "matrices of gstf that were learned from these traces"
        raise InputError("maps of groups", [Problem(expected, "others, or matrices without groups")])
    require_coordinates("maps of groups", train.places)
    group, x, y = counts.group, train.places.unbroken_longitude(), train.places.latitude
    trace = train.trace_of_event()

    def draw(ax: Axes, which: int) -> None:
        inside = group == which
        map_frame(ax, train.places)
        ax.scatter(x, y, s=2 + 7 * inside, color=np.where(inside, "black", OTHER_COLOUR), linewidths=0)
        mean = affinity[:, inside].mean(axis=1)
        top = np.argsort(-mean, kind="stable")[: min(n_users, np.count_nonzero(mean))]
        for user, colour in zip(top.tolist(), cycle(RANK_COLOURS), strict=False):
            way, begins = train.place[train.user == user], run_begins(trace[train.user == user])
            for stops in np.split(way, np.flatnonzero(begins)[1:]):
                ax.plot(x[stops], y[stops], ".-", color=colour, lw=0.7, ms=3, alpha=0.7)
        at = inside[train.place[np.isin(train.user, top)]]
        ax.set_title(f"{inside.sum()} places, {100 * at.sum() / max(1, len(at)):.0f} % of events", fontsize=8)

    largest = np.argsort(-np.bincount(group[train.place]), kind="stable")[:n_groups]
    draws = [partial(draw, which=which) for which in largest.tolist()]
    return panels(draws, size=(3.2, 3.2), title="Users who go most to a group of places")


def require_coordinates(step: str, *tables: PlaceTable) -> None:
    """Refuse to draw maps if a place has no coordinates."""
    if any(np.isnan([places.latitude, places.longitude]).any() for places in tables):
        raise InputError(step, [Problem("places with coordinates", "places without")])


def _grid_of(people: Mapping[str, Windows]) -> TimeGrid:
    """The time grid of the windows."""
    lengths = {windows.time_grid.n_instants for windows in people.values()}
    if len(lengths) != 1 or not all(windows.n_windows for windows in people.values()):
        expected = "at least one set, each of at least one window, all of the same length"
        found = ", ".join(f"{name} of {each.n_windows}" for name, each in people.items()) or "none"
        raise InputError("persons to draw", [Problem(expected, found)])
    return next(iter(people.values())).time_grid


def _by_window(windows: Windows, values: np.ndarray) -> list[np.ndarray]:
    """Values of events, an array for each window."""
    return np.split(values, np.flatnonzero(run_begins(windows.window))[1:])


def _ranks(place: np.ndarray) -> np.ndarray:
    """For each event, the rank of its place by number of events: 0 is the most visited; ties by first visit."""
    _, first, inverse, count = np.unique(place, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(count), int)
    rank[np.lexsort((first, -count))] = np.arange(len(count))
    return rank[inverse]


def _colour(rank: int) -> str:
    return RANK_COLOURS[rank] if rank < len(RANK_COLOURS) else OTHER_COLOUR


def _draw_timelines(ax: Axes, name: str, windows: Windows, grid: TimeGrid) -> None:
    length, n_rows = grid.n_instants, windows.n_windows
    # White edges would hide bars of the smallest width.
    edges = {"edgecolor": "white", "lw": 0.4} if length * NARROWEST <= 1 else {}
    rows = zip(_by_window(windows, windows.phase), _by_window(windows, windows.place), strict=True)
    for row, (phase, place) in enumerate(rows):
        rank = _ranks(place)
        first = np.flatnonzero(run_begins(place) | (np.diff(phase, prepend=-2) != 1))
        last = np.append(first, len(phase))[1:] - 1
        width = np.maximum(phase[last] + 1 - phase[first], NARROWEST * length)
        colours = [_colour(each) for each in rank[first].tolist()]
        ax.barh(np.full(len(first), row), width, left=phase[first], height=0.8, color=colours, **edges)
        for at, wide, which, colour in zip(phase[first], width, rank[first], colours, strict=True):
            if wide >= MIN_FOR_TEXT * length:
                ink = "white" if colour in DARK else "black"
                ax.text(at + wide / 2, row, str(which + 1), ha="center", va="center", fontsize=6.5, color=ink)
    ax.set_yticks(np.arange(n_rows), [str(row + 1) for row in range(n_rows)])
    ax.set(xlim=(0, length), ylim=(n_rows - 0.5, -0.5), ylabel="person", title=name, facecolor=NOTHING)
    ax.tick_params(axis="y", length=0)
    _label_time(ax, grid)


def _label_time(ax: Axes, grid: TimeGrid) -> None:
    """Label hours of a day, or the beginnings of days."""
    day = DAY_S // grid.step_s
    if day < 1 or grid.n_instants <= day:
        every = -(-grid.n_instants // N_LABELS)
        at = np.arange(0, grid.n_instants, every)
        labels = [grid.time_of(instant).strftime("%H:%M") for instant in at.tolist()]
    else:
        n_days = -(-grid.n_instants // day)
        every = day * (1 if n_days <= N_LABELS else 7)
        at = np.arange(0, grid.n_instants, every)
        labels = [f"day {instant // day + 1}" for instant in at.tolist()]
        for begin in range(day, grid.n_instants, day):
            ax.axvline(begin, color="white", lw=0.8, zorder=0)
    ax.set_xticks(at, labels)


def _draw_way(ax: Axes, title: str, places: PlaceTable, place: np.ndarray) -> None:
    """The route of a person, on a square map of their own places."""
    order = place[np.sort(np.unique(place, return_index=True)[1])]
    own = PlaceTable(places.ids[order], places.latitude[order], places.longitude[order])
    x, y = own.unbroken_longitude(), own.latitude
    number = np.full(len(places), -1)
    number[order] = np.arange(len(order))
    stop = number[place[run_begins(place)]]
    map_frame(ax, own)
    _make_square(ax)
    look = {"arrowstyle": "-|>", "color": DIM, "lw": 0.7, "mutation_scale": 6, "shrinkA": 3, "shrinkB": 3}
    for here, there in zip(stop[:-1].tolist(), stop[1:].tolist(), strict=True):
        arrow = look | {"connectionstyle": "arc3,rad=0.12"}
        ax.annotate("", (x[there], y[there]), (x[here], y[here]), arrowprops=arrow)
    rank_of = np.empty(len(order), int)
    rank_of[number[place]] = _ranks(place)
    (west, east), (south, north) = ax.get_xlim(), ax.get_ylim()
    share = np.column_stack([(x - west) / (east - west), (y - south) / (north - south)])
    labelled: list[np.ndarray] = []
    # The main places come first, so that they get numbers.
    for each in np.argsort(rank_of).tolist():
        is_main, is_apart = rank_of[each] < 2, all(np.hypot(*(share[each] - other)) >= APART for other in labelled)
        colour = _colour(int(rank_of[each])) if is_main else OTHER_COLOUR
        size = 7.5 if is_apart else 3.5
        ax.plot(x[each], y[each], "s" if is_main else "o", color=colour, markersize=size, zorder=3 if is_apart else 2.5)
        if is_apart:
            ink = "white" if colour in DARK else "black"
            ax.text(x[each], y[each], str(each + 1), ha="center", va="center", fontsize=5.5, color=ink, zorder=4)
            labelled.append(share[each])
    draw_scale_bar(ax, own)
    ax.set_title(title, fontsize=8)


def _make_square(ax: Axes) -> None:
    """Widen the shorter side of a map, so that all maps have the same shape."""
    aspect = float(ax.get_aspect())
    (west, east), (south, north) = ax.get_xlim(), ax.get_ylim()
    half = max(east - west, (north - south) * aspect, MIN_DEGREES) / 2
    x, y = (west + east) / 2, (south + north) / 2
    ax.set(xlim=(x - half, x + half), ylim=(y - half / aspect, y + half / aspect))
