"""Maps: where people are, the largest flows of their moves, and the clusters of users that a factorization found.

North is up, and longitude is shrunk by the cosine of the latitude so that distances are right. All maps of a figure
have one scale. "Population" of a place is its share of the events of one slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.distributions import counts_to_shares, variation
from ppmtf_jax.evaluation.metrics.moves import N_CELLS, FlowSettings, cell_flows
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.evaluation.plots.style import (
    LINE_COLOURS,
    LOWER,
    MAP_COLOURS,
    NOTHING,
    check_sets,
    label_slots,
    panels,
    styled,
)

N_SLOTS = 4
NEARLY_ALL, FAR_ABOVE = 0.99, 3
"""A colour scale ends at this quantile of the shares, if the largest share is more than so many times as large."""
N_FLOWS = 30
N_COLUMNS = 4
WIDEST = 5.0
"""Width of the arrow of a figure's largest flow, in points."""
TOP_USER_SHARE = 0.1


# Population


@styled
def population_maps(
    synthetic: Traces | Mapping[str, Traces],
    train: Traces,
    test: Traces | None = None,
    *,
    slots: Sequence[int] | None = None,
) -> Figure:
    """Draw maps of the population in some slots: a column for each slot, a row for each trace set, one colour scale.

    A single synthetic set is the row "synthetic". `slots`: slots to show, by default four spread evenly. Raises
    `InputError`: the places or the numbers of slots differ, or a synthetic set has the name of another row.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> figure = population_maps(test, train, slots=[1, 6])
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['from 02:00', 'from 12:00']
    """
    real = {"training": train} if test is None else {"training": train, "test": test}
    sets = {"synthetic": synthetic} if isinstance(synthetic, Traces) else synthetic
    taken = [name for name in sets if name in real]
    if taken:
        raise InputError("synthetic traces", [Problem(f"names other than {', '.join(real)}", ", ".join(taken))])
    shown = {**real, **sets}
    check_comparable(**shown)
    labels = train.time_grid.slot_labels()
    if slots is None:
        n_shown = min(len(labels), N_SLOTS)
        slots = [int((number + 0.5) * len(labels) / n_shown) for number in range(n_shown)]
    percent = {}
    for name, traces in shown.items():
        # A slot without events stays empty. Metrics assume it uniform.
        n_events = np.bincount(traces.slot, minlength=len(labels))
        percent[name] = np.where(n_events[:, None] > 0, 100 * population_by_slot(traces), np.nan)[list(slots)]
    scale = share_scale(np.concatenate(list(percent.values())))

    width, height = panel_inches(train.places, 2.1)
    figure = Figure(figsize=(width * len(slots) + 1.3, height * len(shown) + 0.8), layout="compressed")
    axes = figure.subplots(len(shown), len(slots), squeeze=False)
    for row, (name, values) in enumerate(percent.items()):
        for column, slot in enumerate(slots):
            ax = axes[row, column]
            drawn = draw_map(ax, train.places, values[column], scale)
            if row == 0:
                ax.set_title(f"from {labels[slot]}")
        axes[row, 0].set_ylabel(name)
    draw_scale_bar(axes[-1, 0], train.places)
    label = "share of the events of the slot, %"
    ends = {"extend": "max", "extendfrac": 0.03} if np.nanmax(list(percent.values())) > scale.vmax else {}
    ticks = round_ticks(scale.vmax, 0.07)
    figure.colorbar(drawn, ax=axes, shrink=0.7, pad=0.02, ticks=ticks, format="%g", label=label, **ends)
    figure.suptitle("Population at some times")
    return figure


def draw_map(ax: Axes, places: PlaceTable, values: np.ndarray, scale: Normalize) -> Any:
    """Draw values of places as coloured grid cells or, if they fill no grid, as dots that grow with the value."""
    map_frame(ax, places)
    colours = colormaps[MAP_COLOURS].with_extremes(bad=NOTHING, under="white")
    grid = grid_of_places(places)
    longitude = places.unbroken_longitude()
    if grid is not None:
        (rows, row), (columns, column) = grid
        cells = np.full((len(rows), len(columns)), np.nan)
        cells[row, column] = values
        x, y = _edges(columns), _edges(rows)
        ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        return ax.pcolormesh(x, y, cells, norm=scale, cmap=colours)
    crowd = min(1.0, (100 / len(places)) ** 0.5)
    ax.scatter(longitude, places.latitude, s=2 * crowd, color="#C8C8C8", linewidths=0)
    # The largest last, so that none is hidden by the smaller ones around it.
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    area = 170 * crowd * np.asarray(scale(values[order])) ** 2
    return ax.scatter(
        longitude[order], places.latitude[order], s=area, c=values[order], norm=scale, cmap=colours,
        edgecolors="#333333", linewidths=np.where(area > 10, 0.3, 0.0),
    )  # fmt: skip


def share_scale(values: np.ndarray) -> Normalize:
    """Colour scale from 0 to the largest value; the square root keeps small shares visible beside the largest share.

    If the largest share is far above nearly all others, the scale ends where nearly all of them are: a single place
    with half of the events of a quiet hour would make all other places pale. Larger shares have the last colour.
    """
    shares = values[np.isfinite(values) & (values > 0)]
    if not len(shares):
        return PowerNorm(0.5, 0.0, 1.0, clip=True)
    largest, usual = float(shares.max()), float(np.quantile(shares, NEARLY_ALL))
    return PowerNorm(0.5, 0.0, usual if largest > FAR_ABOVE * usual else largest, clip=True)


def round_ticks(top: float, gap: float) -> list[float]:
    """Round ticks from 0 to near the top of a square-root scale, at least `gap` of its length apart."""
    unit = 10.0 ** np.floor(np.log10(top))
    ticks = [np.floor(10 * top / unit) * unit / 10]
    for value in (step * unit * 10.0**-back for back in range(3) for step in (5, 2, 1)):
        if np.sqrt(ticks[-1] / top) - np.sqrt(value / top) >= gap <= np.sqrt(value / top):
            ticks.append(value)
    # Formatting removes the rounding errors of powers of ten.
    return [0.0, *(float(f"{tick:.6g}") for tick in reversed(ticks))]


def panel_inches(places: PlaceTable, longest: float) -> tuple[float, float]:
    """Width and height of a map panel whose longer side is `longest`, neither less than half of it."""
    south, north, west, east = places.bounding_box()
    width = max((east - west) * np.cos(np.radians((south + north) / 2)), 1e-3)
    height = max(north - south, 1e-3)
    return longest * max(0.5, min(1.0, width / height)), longest * max(0.5, min(1.0, height / width))


def grid_of_places(places: PlaceTable) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None:
    """Distinct latitudes and longitudes with the index of each place among them; None if the places fill no grid."""
    rows, row = np.unique(places.latitude.round(6), return_inverse=True)
    columns, column = np.unique(places.unbroken_longitude().round(6), return_inverse=True)
    if min(len(rows), len(columns)) < 2 or len(places) < 9 or len(rows) * len(columns) > 2 * len(places):
        return None
    return (rows, row), (columns, column)


def draw_scale_bar(ax: Axes, places: PlaceTable) -> None:
    """A bar of a round length, about a third of the width, below the map."""
    south, north, _, _ = places.bounding_box()
    (west, east), km_per_degree = ax.get_xlim(), 111.2 * np.cos(np.radians((south + north) / 2))
    third_km = (east - west) * km_per_degree / 3
    power = 10.0 ** np.floor(np.log10(third_km))
    length_km = max(step * power for step in (1, 2, 5) if step * power <= third_km * 1.0001)
    share = length_km / km_per_degree / (east - west)
    line = {"color": "#333333", "lw": 2, "clip_on": False, "solid_capstyle": "butt"}
    ax.plot([0, share], [-0.05, -0.05], transform=ax.transAxes, **line)
    name = f"{length_km:g} km" if length_km >= 1 else f"{1000 * length_km:g} m"
    ax.text(share + 0.03, -0.05, name, transform=ax.transAxes, va="center", fontsize=8)


def map_frame(ax: Axes, places: PlaceTable) -> None:
    """Set axes to the bounding box of the places with a margin, north up, without ticks."""
    south, north, west, east = places.bounding_box()
    shrink = np.cos(np.radians((south + north) / 2))
    margin = 0.06 * max(north - south, (east - west) * shrink, 1e-3)
    ax.set(xlim=(west - margin / shrink, east + margin / shrink), ylim=(south - margin, north + margin))
    ax.set(xticks=[], yticks=[], facecolor="#FAFAFA", aspect=1 / shrink)
    ax.spines[:].set(visible=True, color="#CCCCCC")


def _edges(centres: np.ndarray) -> np.ndarray:
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])


# Flows


class Flows(NamedTuple):
    """Moves from one cell to another, the largest flow first, and their shares of all moves."""

    cell: np.ndarray
    next_cell: np.ndarray
    share: np.ndarray


def flow_maps(sets: Mapping[str, Traces], *, n_cells: int = N_CELLS, n_flows: int = N_FLOWS) -> Figure:
    """Draw the largest flows of moves as arrows on a map: a panel for each trace set, all with one scale.

    A flow is the moves from one cell of a grid to another; a move is a step to another place from one instant to the
    next. Arrows bend to the right of their direction, so that the two directions do not hide each other; their width is
    the share of all moves. OD-TV compares the same shares, after synthetic traces are thinned to the instants at which
    people are seen.

    The sets have the same places. `n_cells`: number of cells on each side of the bounding box of the places. `n_flows`:
    largest number of flows to draw for each set. Raises `InputError`: there is no set, the places differ, or there is
    not at least one cell or flow.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> figure = flow_maps({"training": train, "test": test}, n_flows=20)
    >>> [ax.get_title().partition(":")[0] for ax in figure.axes]
    ['training', 'test']
    """
    FlowSettings(n_cells)
    check_sets(sets, "flow maps", *([Problem("n_flows of at least one", repr(n_flows))] if n_flows < 1 else []))
    places = next(iter(sets.values())).places
    flows = {name: flows_between_cells(traces, n_cells) for name, traces in sets.items()}
    largest = max((each.share[0] for each in flows.values() if len(each.share)), default=1.0)

    def draw(ax: Axes, name: str) -> None:
        shown = Flows(*(values[:n_flows] for values in flows[name]))
        _draw_flows(ax, places, shown, n_cells, WIDEST / largest)
        n, percent = len(shown.share), 100 * shown.share.sum()
        told = f"{n} flow{'s' * (n > 1)}, {percent:.0f} % of the moves" if n else "no move between cells"
        ax.set_title(f"{name}: {told}")
        if name == next(iter(sets)):
            draw_scale_bar(ax, places)

    width, height = panel_inches(places, 3.2)
    key = dict.fromkeys(float(f"{largest * part:.1g}") for part in (1.0, 0.5, 0.2))
    lines = [
        Line2D([], [], color=LINE_COLOURS[0], lw=WIDEST * share / largest, label=f"{100 * share:g} %") for share in key
    ]
    return panels(
        [partial(draw, name=name) for name in sets],
        size=(width, height + 0.35),
        n_columns=N_COLUMNS,
        room=(0.4, 0.9),
        legend=LOWER | {"handles": lines, "ncols": len(lines), "title": "of the moves"},
        title="The largest flows",
    )


def flows_between_cells(traces: Traces, n_cells: int) -> Flows:
    """All flows from one cell of a grid to another, with their shares of the moves."""
    flow, count = np.unique(cell_flows(Windows.of(traces), n_cells).value, return_counts=True)
    first, then = np.divmod(flow, n_cells**2)
    crossing = np.flatnonzero(first != then)
    order = crossing[np.argsort(-count[crossing], kind="stable")]
    return Flows(first[order], then[order], count[order] / max(1, count.sum()))


def _draw_flows(ax: Axes, places: PlaceTable, flows: Flows, n_cells: int, scale: float) -> None:
    """Draw arrows between the mean positions of cells' places; `scale` is the width in points of a share of 1."""
    map_frame(ax, places)
    longitude = places.unbroken_longitude()
    ax.scatter(longitude, places.latitude, s=4 * min(1.0, 100 / len(places)) ** 0.5, color="#C8C8C8", lw=0)
    cell = places.grid_cell(n_cells)
    n_in_cell = np.maximum(1, np.bincount(cell, minlength=n_cells**2))
    x, y = (np.bincount(cell, at, minlength=n_cells**2) / n_in_cell for at in (longitude, places.latitude))
    # The largest first, so that they do not hide the others.
    for first, then, share in zip(*flows, strict=True):
        width = scale * share
        head = f"simple,head_length={3 + width},head_width={3 + 1.4 * width},tail_width={width}"
        look = {"arrowstyle": head, "connectionstyle": "arc3,rad=0.15", "shrinkA": 1, "shrinkB": 1, "linewidth": 0}
        ends = (x[first], y[first]), (x[then], y[then])
        ax.add_patch(FancyArrowPatch(*ends, color=LINE_COLOURS[0], alpha=0.65, **look))


# Clusters of users


@runtime_checkable
class Factors(Protocol):
    """Factor matrices: a row for each user, place, next place or slot, a column for each cluster."""

    user: Any
    place: Any
    next_place: Any
    slot: Any


@styled
def user_clusters(factors: Factors, synthetic: Traces, train: Traces, *, n_clusters: int = 3) -> Figure:
    """Draw the user clusters that differ most from all users, as Figs. 8 and 12 of Murakami et al. 2021.

    A column of the user factor is a cluster; its users are the 10 % with the largest values. A row for each cluster
    shows the places of these users in the training and the synthetic traces, and the columns of the place, next-place
    and slot factors (B, C, D), normalized to a square sum of 1. A cluster is named by the first two kinds of its five
    top venues, which have the largest values in B. Clusters are in descending order of `cluster_strength`. The factors
    have the shapes (users, rank), (places, rank), (places, rank) and (slots, rank), with the users of `train`.
    Raises `InputError`: they do not fit `train`.
    """
    check_comparable(training=train, synthetic=synthetic)
    user, place, slot = oriented_factors(factors.user, factors.place, factors.slot, train)
    after = oriented_next_place(factors.next_place, factors.slot)
    members = [top_users(column) for column in user.T]
    strength = cluster_strength(members, train)
    chosen = np.argsort(-strength, kind="stable")[:n_clusters]
    maps = []
    for top in (members[cluster] for cluster in chosen):
        again = np.flatnonzero(np.isin(synthetic.user_ids, train.user_ids[top]))
        maps.append([100 * population_of(train, top), 100 * population_of(synthetic, again)])
    scale = share_scale(np.array(maps))
    factor_scale = share_scale(np.concatenate([place[:, chosen].T, after[:, chosen].T]))

    width, height = panel_inches(train.places, 2.2)
    figure = Figure(figsize=(4 * width + 3.6, height * len(chosen) + 1.3), layout="constrained")
    axes = figure.subplots(len(chosen), 5, squeeze=False, width_ratios=[1, 1, 1, 1, 0.9])
    for row, cluster, (training, synthesized) in zip(axes, chosen, maps, strict=True):
        population = draw_map(row[0], train.places, training, scale)
        draw_map(row[1], train.places, synthesized, scale)
        loading = draw_map(row[2], train.places, place[:, cluster], factor_scale)
        draw_map(row[3], train.places, after[:, cluster], factor_scale)
        draw_slot_factor(row[4], slot[:, cluster], train.time_grid.slot_labels())
        name = f"cluster {cluster + 1}, {len(members[cluster])} users"
        kinds = "".join(f"\n{kind}" for kind in kinds_of_top_venues(place[:, cluster], train.places))
        row[0].set_ylabel(f"{name}\n{strength[cluster]:.2f} from everybody (TV){kinds}")
    factors_shown = ("place factor", "next-place factor", "slot factor")
    for ax, title in zip(axes[0], ("training events", "synthetic events", *factors_shown), strict=True):
        ax.set_title(title)
    axes[-1, 4].set_xlabel("time of day")
    draw_scale_bar(axes[-1, 0], train.places)
    where = {"location": "bottom", "aspect": 30, "pad": 0.03, "shrink": 0.8}
    for drawn, ax, label in (
        (population, axes[:, :2], "share of the events of these users, %"),
        (loading, axes[:, 2:4], "factor of places, unit square sum"),
    ):
        figure.colorbar(drawn, ax=ax, ticks=round_ticks(drawn.norm.vmax, 0.16), format="%g", label=label, **where)
    figure.suptitle("User clusters that differ most from everybody: the 10 % strongest users of a factor column")
    return figure


def oriented_factors(user: Any, place: Any, slot: Any, train: Traces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The factors, with signs that make place and slot columns mostly positive; these columns have unit square sums.

    The signs of the products user * place * slot do not change if two of the three factors change sign. Raises
    `InputError` if the shapes of the factors do not fit `train`.
    """
    user, place, slot = (np.asarray(part, np.float64) for part in (user, place, slot))
    expected = (train.n_users, train.n_places, train.time_grid.n_slots)
    found = (len(user), len(place), len(slot))
    if found != expected:
        sizes = "factors of {} users, {} places, {} slots, as the training traces have"
        raise InputError("user clusters", [Problem(sizes.format(*expected), "{}, {}, {}".format(*found))])
    place_sign, slot_sign = (np.where(part.sum(axis=0) < 0, -1.0, 1.0) for part in (place, slot))
    return user * place_sign * slot_sign, _unit(place * place_sign), _unit(slot * slot_sign)


def oriented_next_place(next_place: Any, slot: Any) -> np.ndarray:
    """The next-place factor, columns of unit square sums: signs of user * place * next place stay as they were."""
    return _unit(np.asarray(next_place, np.float64) * np.where(np.asarray(slot).sum(axis=0) < 0, -1.0, 1.0))


def _unit(columns: np.ndarray) -> np.ndarray:
    norm = np.sqrt((columns**2).sum(axis=0))
    return columns / np.where(norm > 0, norm, 1.0)


def kinds_of_top_venues(loading: np.ndarray, places: PlaceTable, n_venues: int = 5) -> list[str]:
    """Categories of the places with the largest values of a column of the place factor, each once; none if unknown."""
    top = np.argsort(-loading, kind="stable")[:n_venues]
    return [] if places.category is None else list(dict.fromkeys(filter(None, places.category[top].tolist())))[:2]


def top_users(loading: np.ndarray) -> np.ndarray:
    """Indices of the tenth of the users (at least one) with the largest values of a column of the user factor."""
    n_top = max(1, round(TOP_USER_SHARE * len(loading)))
    return np.sort(np.argsort(-loading, kind="stable")[:n_top])


def cluster_strength(members: Sequence[np.ndarray], train: Traces) -> np.ndarray:
    """Total variation between the population of the users of each cluster and that of all users, shape (clusters,)."""
    everybody = population_of(train)
    return np.array([variation(population_of(train, users), everybody) if len(users) else 0.0 for users in members])


def population_of(traces: Traces, users: np.ndarray | slice = slice(None)) -> np.ndarray:
    """Share of the events of some or all users at each place, shape (places,); NaN where they have no event."""
    chosen = np.zeros(traces.n_users, bool)
    chosen[users] = True
    return counts_to_shares(np.bincount(traces.place[chosen[traces.user]], minlength=traces.n_places))


def draw_slot_factor(ax: Axes, values: np.ndarray, labels: Sequence[str], n_labels: int = 5) -> None:
    """A bar for each slot."""
    ax.bar(np.arange(len(values)), values, color=LINE_COLOURS[0], width=0.85)
    label_slots(ax, labels, n_labels)
    ax.margins(x=0.02)
    ax.locator_params(axis="y", nbins=4)
