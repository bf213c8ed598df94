"""Pictures of what a synthetic trace set keeps: population maps, transitions, metrics, user clusters, pass rates.

Every function returns a `matplotlib.figure.Figure` that belongs to no window and to no pyplot state; save it with
`figure.savefig(...)`, or let `save_pictures` write them all. matplotlib is imported only when a picture is made.

"Population" of a place is its share of the events of one slot. Maps show shares in percent with one colour scale for
all maps of a figure; north is up, and longitude is shrunk by the cosine of the latitude so that distances are right.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, runtime_checkable

import numpy as np

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.evaluation import METRICS, population_by_slot, transition_counts
from ppmtf_jax.runtime.files import atomic_file

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.colors
    import matplotlib.figure

P = ParamSpec("P")

MAX_MATRIX_GROUPS = 100
MAX_NAMED_CATEGORIES = 15
TOP_USER_SHARE = 0.1
DPI = 150

_PLAIN_NAME = {
    "tp_tv": "population per slot",
    "tp_tv_top50": "population, 50 busiest places",
    "tm_emd_y": "transitions, north-south, bins",
    "tm_emd_x": "transitions, east-west, bins",
    "vf_tv": "share of a user's events at a place",
    "reid_rate": "share of traces",
    "mia_advantage": "true minus false positive rate",
}

# Blue, green and grey of Okabe and Ito, told apart with any colour vision.
_SERIES = {"": ("synthetic", "#0072B2"), "_train": ("training data", "#009E73"), "_uniform": ("uniform", "#BBBBBB")}
LINE_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
_COLOURS = "YlGnBu"
_NOTHING = "#F0F0F0"
_DIM = "#666666"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.titlesize": 11,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Ids and categories may hold dollar signs; they are text, not formulas.
    "text.parse_math": False,
}


@runtime_checkable
class Factors(Protocol):
    """Factor matrices: a row for each user, place, next place or slot, a column for each cluster."""

    user: Any
    place: Any
    next_place: Any
    slot: Any


def _styled(draw: Callable[P, matplotlib.figure.Figure]) -> Callable[P, matplotlib.figure.Figure]:
    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> matplotlib.figure.Figure:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


def save_pictures(
    folder: str | os.PathLike[str],
    *,
    synthetic: Traces,
    train: Traces,
    test: Traces,
    metrics: Mapping[str, float],
    factors: Factors | None = None,
) -> list[Path]:
    """Write population.png, transitions.png, utility.png and, where there are factors, clusters.png.

    Each file appears complete or not at all; existing ones are replaced. The folder is made where it is missing.

    Parameters
    ----------
    metrics : mapping
        What `evaluate` returns.
    factors : Factors, optional
        Factors of a model fitted to `train`.

    Returns
    -------
    list of Path

    Raises
    ------
    InputError
        The folder cannot be written to, or the trace sets do not belong together.
    """
    figures = {
        "population.png": population_maps(synthetic, train, test),
        "transitions.png": transition_matrices(synthetic, train),
        "utility.png": utility_bars(metrics),
    }
    if factors is not None:
        figures["clusters.png"] = user_clusters(factors, synthetic, train)
    paths = []
    for name, figure in figures.items():
        path = Path(folder) / name
        save_figure(figure, path)
        paths.append(path)
    return paths


def save_figure(figure: matplotlib.figure.Figure, path: Path) -> None:
    """Write a picture as PNG: it appears complete or not at all."""
    with atomic_file(path) as partial:
        figure.savefig(partial, dpi=DPI, format="png")


@_styled
def population_maps(
    synthetic: Traces, train: Traces, test: Traces | None = None, *, slots: Sequence[int] | None = None
) -> matplotlib.figure.Figure:
    """Where people are over the day: a column per slot, a row per trace set, one colour scale.

    Parameters
    ----------
    slots : sequence of int, optional
        Slots to show; by default four spread evenly.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> figure = population_maps(test, train, slots=[1, 6])
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['from 02:00', 'from 12:00']
    """
    from matplotlib.figure import Figure

    rows = {"training": train, "test": test, "synthetic": synthetic}
    shown = {name: traces for name, traces in rows.items() if traces is not None}
    check_comparable(**shown)
    if slots is None:
        slots = _spread(train.time_grid.n_slots, 4)
    labels = train.time_grid.slot_labels()
    percent = {name: _seen_population(traces)[list(slots)] for name, traces in shown.items()}
    scale = _share_scale(np.concatenate(list(percent.values())))

    width, height = _panel_inches(train.places, 2.1)
    figure = Figure(figsize=(width * len(slots) + 1.3, height * len(shown) + 0.8), layout="compressed")
    axes = figure.subplots(len(shown), len(slots), squeeze=False)
    for row, (name, values) in enumerate(percent.items()):
        for column, slot in enumerate(slots):
            ax = axes[row, column]
            drawn = _draw_map(ax, train.places, values[column], scale)
            if row == 0:
                ax.set_title(f"from {labels[slot]}")
        axes[row, 0].set_ylabel(name)
    _draw_scale_bar(axes[-1, 0], train.places)
    label = "share of the events of the slot, %"
    figure.colorbar(drawn, ax=axes, shrink=0.7, pad=0.02, ticks=_ticks(scale.vmax, 0.07), format="%g", label=label)
    figure.suptitle("Population over the day")
    return figure


@_styled
def transition_matrices(synthetic: Traces, train: Traces) -> matplotlib.figure.Figure:
    """Pooled transition probabilities of the training and the synthetic traces, side by side, logarithmic colours.

    Places are ordered by category, within it from west to east; where there are no or too many categories, from west
    to east. More than `MAX_MATRIX_GROUPS` places are drawn as groups of neighbours in that order.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> len(transition_matrices(test, train).axes)
    3
    """
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    check_comparable(training=train, synthetic=synthetic)
    groups = _place_groups(train.places)
    shown = {"training": train, "synthetic": synthetic}
    matrices = {name: group_transitions(traces, groups.of_place) for name, traces in shown.items()}
    smallest = min((m[m > 0].min() for m in matrices.values() if (m > 0).any()), default=0.1)
    scale = LogNorm(max(1e-4, min(0.1, smallest)), 1.0, clip=False)
    colours = colormaps[_COLOURS].with_extremes(bad=_NOTHING, under="white")

    figure = Figure(figsize=(9.6, 5.2 if groups.categories else 4.7), layout="compressed")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        # Zero is below the scale, not missing: missing (grey) is a row that is never visited.
        drawn = ax.imshow(np.where(matrix == 0, 1e-9, matrix), norm=scale, cmap=colours, interpolation="nearest")
        ax.set_title(name)
        ax.set_xlabel("to place")
        _label_groups(ax, groups)
    axes[0].set_ylabel("from place")
    figure.colorbar(drawn, ax=axes, shrink=0.8, extend="min", label="probability of the next place (grey: none seen)")
    figure.suptitle(f"Transitions between {groups.title}")
    return figure


@_styled
def utility_bars(metrics: Mapping[str, float]) -> matplotlib.figure.Figure:
    """Each metric of `evaluate` for the synthetic traces, beside the training data and uniform traces.

    Metrics that are absent or not finite are marked as such.

    Examples
    --------
    >>> figure = utility_bars({"tp_tv": 0.43, "tp_tv_train": 0.38, "tp_tv_uniform": 0.86})
    >>> len(figure.axes[0].patches)
    3
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    n_columns = 4
    n_rows = -(-(len(METRICS) + 1) // n_columns)
    figure = Figure(figsize=(10.4, 2.8 * n_rows), layout="constrained")
    axes = figure.subplots(n_rows, n_columns).ravel()
    for ax, (key, metric) in zip(axes, METRICS.items(), strict=False):
        _draw_bars(ax, [float(metrics.get(key + suffix, np.nan)) for suffix in _SERIES])
        ax.set_title(f"{metric.title}\nlower is better")
        ax.set_ylabel(_PLAIN_NAME.get(key, ""))
        ax.set_xlabel("\n".join(wrap(f"good: {metric.good_value}", 34)), fontsize=8, color=_DIM)
    for ax in axes[len(METRICS) :]:
        ax.set_axis_off()
    handles = [Patch(color=colour, label=name) for name, colour in _SERIES.values()]
    axes[len(METRICS)].legend(handles=handles, loc="center", frameon=False, fontsize=10)
    figure.suptitle("Utility and privacy of the synthetic traces")
    return figure


@_styled
def trace_plots(trace: Mapping[str, np.ndarray]) -> matplotlib.figure.Figure:
    """What a sampler's chains did, sweep by sweep: one panel for each quantity, one line for each chain.

    The second half of the sweeps, from which convergence is judged, has a grey ground. Values of the first tenth, which
    would dwarf all others, may lie outside a panel.

    Parameters
    ----------
    trace : mapping to float arrays, shape (chains, sweeps)
        By the titles of the panels, see `Diagnosis.shown_traces`; NaN is not drawn.

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


@_styled
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


@_styled
def user_clusters(
    factors: Factors, synthetic: Traces, train: Traces, *, n_clusters: int = 3
) -> matplotlib.figure.Figure:
    """The most distinct user clusters that the factors found, as Figs. 8 and 12 of Murakami et al. 2021.

    A column of the user factor is a cluster; its users are the 10 % with the largest values. One row per cluster:
    where these users are in the training and the synthetic traces (all slots), and the columns of the place and of the
    slot factor, normalized to a square sum of 1. Clusters come in the order of `cluster_strength`.

    Parameters
    ----------
    factors : Factors
        Arrays (users, rank), (places, rank), (places, rank), (slots, rank); users as in `train`.

    Raises
    ------
    InputError
        The shapes of the factors do not fit `train`.
    """
    from matplotlib.figure import Figure

    check_comparable(training=train, synthetic=synthetic)
    user, place, slot = _oriented(factors, train)
    strength = cluster_strength(user, train)
    chosen = np.argsort(-strength, kind="stable")[:n_clusters]
    maps = []
    for cluster in chosen:
        top = top_users(user[:, cluster])
        again = np.flatnonzero(np.isin(synthetic.user_ids, train.user_ids[top]))
        maps.append((len(top), 100 * _population_of(train, top), 100 * _population_of(synthetic, again)))
    scale = _share_scale(np.array([pair for _, *pair in maps]))
    factor_scale = _share_scale(place[:, chosen].T)

    width, height = _panel_inches(train.places, 2.2)
    figure = Figure(figsize=(3 * width + 3.6, height * len(chosen) + 1.3), layout="constrained")
    axes = figure.subplots(len(chosen), 4, squeeze=False, width_ratios=[1, 1, 1, 0.9])
    for row, (cluster, (n_top, training, synthesized)) in enumerate(zip(chosen, maps, strict=True)):
        population = _draw_map(axes[row, 0], train.places, training, scale)
        _draw_map(axes[row, 1], train.places, synthesized, scale)
        loading = _draw_map(axes[row, 2], train.places, place[:, cluster], factor_scale)
        _draw_slots(axes[row, 3], slot[:, cluster], train.time_grid.slot_labels())
        axes[row, 0].set_ylabel(f"cluster {cluster + 1}, {n_top} users\n{strength[cluster]:.2f} from everybody (TV)")
    for ax, title in zip(axes[0], ("training events", "synthetic events", "place factor", "slot factor"), strict=True):
        ax.set_title(title)
    axes[-1, 3].set_xlabel("time of day")
    _draw_scale_bar(axes[-1, 0], train.places)
    where = {"location": "bottom", "aspect": 30, "pad": 0.03, "shrink": 0.8}
    for drawn, ax, label in (
        (population, axes[:, :2], "share of the events of these users, %"),
        (loading, axes[:, 2], "place factor, unit square sum"),
    ):
        figure.colorbar(drawn, ax=ax, ticks=_ticks(drawn.norm.vmax, 0.16), format="%g", label=label, **where)
    figure.suptitle("User clusters that differ most from everybody: the 10 % strongest users of a factor column")
    return figure


def _seen_population(traces: Traces) -> np.ndarray:
    """Population in percent, shape (slots, places); NaN for a slot without events, where metrics assume uniform."""
    n_events = np.bincount(traces.slot, minlength=traces.time_grid.n_slots)
    return np.where(n_events[:, None] > 0, 100 * population_by_slot(traces), np.nan)


def group_transitions(traces: Traces, group_of_place: np.ndarray) -> np.ndarray:
    """Probability of the group of the next place given that of the current one, pooled over users and instants.

    Returns
    -------
    float array, shape (groups, groups)
        Rows sum to 1; NaN for a group that is never left from.
    """
    n_groups = int(group_of_place.max()) + 1
    counts = transition_counts(traces).tocoo()
    pair = group_of_place[counts.row] * n_groups + group_of_place[counts.col]
    return _counts_to_shares(np.bincount(pair, counts.data, minlength=n_groups**2).reshape(n_groups, n_groups))


def top_users(loading: np.ndarray) -> np.ndarray:
    """Indices of the tenth of the users (at least one) with the largest values of a column of the user factor."""
    n_top = max(1, round(TOP_USER_SHARE * len(loading)))
    return np.sort(np.argsort(-loading, kind="stable")[:n_top])


def cluster_strength(user_factor: np.ndarray, train: Traces) -> np.ndarray:
    """How far the top users of each column are from everybody: total variation between their populations, in [0, 1].

    Parameters
    ----------
    user_factor : float array, shape (users, rank)

    Returns
    -------
    float array, shape (rank,)
    """
    everybody = _population_of(train, np.arange(train.n_users))
    own = [_population_of(train, top_users(column)) for column in user_factor.T]
    return np.array([0.5 * np.abs(population - everybody).sum() for population in own])


def _population_of(traces: Traces, users: np.ndarray) -> np.ndarray:
    """Share of the events of some users at each place, shape (places,); NaN where they have none."""
    chosen = np.zeros(traces.n_users, bool)
    chosen[users] = True
    return _counts_to_shares(np.bincount(traces.place[chosen[traces.user]], minlength=traces.n_places))


def _counts_to_shares(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=-1, keepdims=True).astype(float)
    return np.divide(counts, total, out=np.full(counts.shape, np.nan), where=total > 0)


def _oriented(factors: Factors, train: Traces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """User, place and slot factor; signs such that place and slot columns are mostly positive, unit square sums.

    The products user * place * slot do not change when two of the three change sign.
    """
    user, place, slot = (np.asarray(part, np.float64) for part in (factors.user, factors.place, factors.slot))
    expected = (train.n_users, train.n_places, train.time_grid.n_slots)
    found = (len(user), len(place), len(slot))
    if found != expected:
        sizes = "factors of {} users, {} places, {} slots, as the training traces have"
        raise InputError("user clusters", [Problem(sizes.format(*expected), "{}, {}, {}".format(*found))])
    place_sign = np.where(place.sum(axis=0) < 0, -1.0, 1.0)
    slot_sign = np.where(slot.sum(axis=0) < 0, -1.0, 1.0)

    def unit(columns: np.ndarray) -> np.ndarray:
        norm = np.sqrt((columns**2).sum(axis=0))
        return columns / np.where(norm > 0, norm, 1.0)

    return user * place_sign * slot_sign, unit(place * place_sign), unit(slot * slot_sign)


def _spread(n: int, at_most: int) -> list[int]:
    """Up to `at_most` of the numbers 0 to n - 1, evenly spread, each in the middle of its stretch."""
    n_shown = min(n, at_most)
    return [int((i + 0.5) * n / n_shown) for i in range(n_shown)]


# Maps


def _draw_map(
    ax: matplotlib.axes.Axes, places: PlaceTable, values: np.ndarray, scale: matplotlib.colors.Normalize
) -> Any:
    """Values of places as cells of a grid or, where places lie anyhow, as dots whose area and colour grow with them."""
    from matplotlib import colormaps

    _map_frame(ax, places)
    colours = colormaps[_COLOURS].with_extremes(bad=_NOTHING, under="white")
    grid = _grid_of(places)
    if grid is not None:
        (rows, row), (columns, column) = grid
        cells = np.full((len(rows), len(columns)), np.nan)
        cells[row, column] = values
        x, y = _edges(columns), _edges(rows)
        ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        return ax.pcolormesh(x, y, cells, norm=scale, cmap=colours)
    crowd = min(1.0, (100 / len(places)) ** 0.5)
    ax.scatter(places.longitude, places.latitude, s=2 * crowd, color="#C8C8C8", linewidths=0)
    # The largest last, so that none is hidden by the smaller ones around it.
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    area = 170 * crowd * np.asarray(scale(values[order])) ** 2
    return ax.scatter(
        places.longitude[order], places.latitude[order], s=area, c=values[order], norm=scale, cmap=colours,
        edgecolors="#333333", linewidths=np.where(area > 10, 0.3, 0.0),
    )  # fmt: skip


def _share_scale(values: np.ndarray) -> matplotlib.colors.Normalize:
    """From 0 to the largest value; the square root keeps small shares visible beside the largest."""
    from matplotlib.colors import PowerNorm

    finite = values[np.isfinite(values)]
    largest = float(finite.max()) if len(finite) else 0.0
    return PowerNorm(0.5, 0.0, largest if largest > 0 else 1.0, clip=True)


def _ticks(top: float, gap: float) -> list[float]:
    """Round values from 0 to near the top of a square-root scale, none nearer than `gap` of its length."""
    unit = 10.0 ** np.floor(np.log10(top))
    ticks = [np.floor(10 * top / unit) * unit / 10]
    for value in (step * unit * 10.0**-back for back in range(3) for step in (5, 2, 1)):
        if np.sqrt(ticks[-1] / top) - np.sqrt(value / top) >= gap <= np.sqrt(value / top):
            ticks.append(value)
    # Without the last bits that powers of ten leave.
    return [0.0, *(float(f"{tick:.6g}") for tick in reversed(ticks))]


def _map_frame(ax: matplotlib.axes.Axes, places: PlaceTable) -> None:
    south, north, west, east = places.bounding_box()
    shrink = np.cos(np.radians((south + north) / 2))
    margin = 0.06 * max(north - south, (east - west) * shrink, 1e-3)
    ax.set(xlim=(west - margin / shrink, east + margin / shrink), ylim=(south - margin, north + margin))
    ax.set(xticks=[], yticks=[], facecolor="#FAFAFA", aspect=1 / shrink)
    ax.spines[:].set(visible=True, color="#CCCCCC")


def _panel_inches(places: PlaceTable, longest: float) -> tuple[float, float]:
    """Width and height of a map panel whose longer side is `longest`."""
    south, north, west, east = places.bounding_box()
    width = max((east - west) * np.cos(np.radians((south + north) / 2)), 1e-3)
    height = max(north - south, 1e-3)
    return longest * max(0.5, min(1.0, width / height)), longest * max(0.5, min(1.0, height / width))


def _grid_of(places: PlaceTable) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None:
    """Distinct latitudes and longitudes with the index of each place among them, where places fill a grid."""
    rows, row = np.unique(places.latitude.round(6), return_inverse=True)
    columns, column = np.unique(places.longitude.round(6), return_inverse=True)
    if min(len(rows), len(columns)) < 2 or len(places) < 9 or len(rows) * len(columns) > 2 * len(places):
        return None
    return (rows, row), (columns, column)


def _edges(centres: np.ndarray) -> np.ndarray:
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])


def _draw_scale_bar(ax: matplotlib.axes.Axes, places: PlaceTable) -> None:
    """A bar of a round length, about a third of the width, below the map."""
    south, north, west, east = places.bounding_box()
    km_per_degree = 111.2 * np.cos(np.radians((south + north) / 2))
    third_km = (east - west) * km_per_degree / 3
    if third_km <= 0:
        return
    power = 10.0 ** np.floor(np.log10(third_km))
    length_km = max(step * power for step in (1, 2, 5) if step * power <= third_km * 1.0001)
    share = length_km / km_per_degree / (ax.get_xlim()[1] - ax.get_xlim()[0])
    line = {"color": "#333333", "lw": 2, "clip_on": False, "solid_capstyle": "butt"}
    ax.plot([0, share], [-0.05, -0.05], transform=ax.transAxes, **line)
    name = f"{length_km:g} km" if length_km >= 1 else f"{1000 * length_km:g} m"
    ax.text(share + 0.03, -0.05, name, transform=ax.transAxes, va="center", fontsize=8)


def _draw_bars(ax: matplotlib.axes.Axes, values: Sequence[float]) -> None:
    """A bar with its number for each of `_SERIES`; "n/a" for what is not finite."""
    finite = [value for value in values if np.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    if low == high:
        high = 1.0
    for position, (value, (_, colour)) in enumerate(zip(values, _SERIES.values(), strict=True)):
        known = np.isfinite(value)
        if known:
            ax.bar(position, value, color=colour, width=0.75)
        text, height, shade = (f"{value:.3g}", max(value, 0.0), "black") if known else ("n/a", 0.0, _DIM)
        ax.text(position, height + 0.02 * (high - low), text, ha="center", va="bottom", fontsize=8, color=shade)
    ax.set(xticks=[], xlim=(-0.6, len(_SERIES) - 0.4), ylim=(low, high + 0.2 * (high - low)))
    ax.axhline(0, color="black", lw=0.8)
    ax.locator_params(axis="y", nbins=4)
    if not finite:
        ax.set_yticks([])


def _draw_chains(ax: matplotlib.axes.Axes, chains: np.ndarray) -> None:
    """A line for each chain, scaled to what comes after the first tenth of the sweeps."""
    n_sweeps = chains.shape[1]
    ax.axvspan(n_sweeps // 2 + 0.5, n_sweeps + 0.5, color=_NOTHING, linewidth=0, zorder=0)
    for number, (values, colour) in enumerate(zip(chains, LINE_COLOURS * len(chains), strict=False)):
        ax.plot(np.arange(1, n_sweeps + 1), values, color=colour, linewidth=1, label=f"chain {number + 1}")
    settled = chains[:, n_sweeps // 10 :]
    low, high = np.nanmin(settled), np.nanmax(settled)
    margin = 0.06 * (high - low) or 0.01 * abs(high) or 1.0
    ax.set(xlim=(0.5, n_sweeps + 0.5), ylim=(low - margin, high + margin))
    ax.locator_params(axis="y", nbins=5)
    ax.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))


def _draw_slots(ax: matplotlib.axes.Axes, values: np.ndarray, labels: Sequence[str]) -> None:
    ax.bar(np.arange(len(values)), values, color=_SERIES[""][1], width=0.85)
    every = -(-len(labels) // 5)
    ax.set_xticks(np.arange(0, len(labels), every), labels[::every])
    ax.margins(x=0.02)
    ax.locator_params(axis="y", nbins=4)


# Order of the places of a matrix


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of neighbouring places, numbered in drawing order; the categories they belong to, where these are used."""

    of_place: np.ndarray
    categories: list[str]
    category_of_group: np.ndarray
    title: str


def _place_groups(places: PlaceTable) -> _Groups:
    category, names = _usable_categories(places)
    # Rounded, so that a grid is ordered column by column in spite of the last bits.
    order = np.lexsort((places.latitude.round(6), places.longitude.round(6), category))
    n, n_groups = len(places), min(len(places), MAX_MATRIX_GROUPS)
    sizes = np.bincount(category, minlength=max(1, len(names)))
    groups_of_category = np.maximum(1, (sizes * n_groups // n))
    of_place = np.empty(n, np.int64)
    category_of_group = np.repeat(np.arange(len(sizes)), groups_of_category)
    first_group = np.cumsum(groups_of_category) - groups_of_category
    own = category[order]
    rank = np.arange(n) - (np.cumsum(sizes) - sizes)[own]
    of_place[order] = first_group[own] + rank * groups_of_category[own] // sizes[own]
    n_drawn = len(category_of_group)
    what = f"{n} places" if n == n_drawn else f"{n_drawn} groups of neighbours of {n} places"
    how = "by category, each from west to east" if names else "from west to east"
    return _Groups(of_place, names, category_of_group, f"{what}, {how}")


def _usable_categories(places: PlaceTable) -> tuple[np.ndarray, list[str]]:
    """Number of the category of each place, in the order in which they appear; no names where they say nothing."""
    none: tuple[np.ndarray, list[str]] = (np.zeros(len(places), np.int64), [])
    if places.category is None:
        return none
    labels, first, category = np.unique(places.category.astype(str), return_index=True, return_inverse=True)
    if not 2 <= len(labels) <= MAX_NAMED_CATEGORIES:
        return none
    rank = np.empty(len(labels), np.int64)
    rank[np.argsort(first)] = np.arange(len(labels))
    return rank[category], [str(label) for label in labels[np.argsort(first)]]


def _label_groups(ax: matplotlib.axes.Axes, groups: _Groups) -> None:
    n = len(groups.category_of_group)
    if not groups.categories:
        ax.set_yticks([0, n - 1], ["west", "east"])
        for label, side in zip(ax.set_xticks([0, n - 1], ["west", "east"]), ("left", "right"), strict=True):
            label.label1.set_horizontalalignment(side)
        return
    begin = np.flatnonzero(np.diff(groups.category_of_group, prepend=-1))
    middle = (begin + np.append(begin[1:], n) - 1) / 2
    for edge in begin[1:]:
        ax.axhline(edge - 0.5, color="#999999", lw=0.5)
        ax.axvline(edge - 0.5, color="#999999", lw=0.5)
    where = _apart(middle, 0.032 * n, n - 1.0)
    ax.set_xticks(where, groups.categories, rotation=90)
    ax.set_yticks(where, groups.categories)
    ax.tick_params(length=0)


def _apart(positions: np.ndarray, gap: float, last: float) -> np.ndarray:
    """Increasing positions moved as little as needed to be `gap` apart, the last at most `last`."""
    moved = positions.astype(float)
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    moved[-1] = min(moved[-1], last)
    for i in range(len(moved) - 2, -1, -1):
        moved[i] = min(moved[i], moved[i + 1] - gap)
    return moved
