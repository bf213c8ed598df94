"""Where people are: maps of shares in percent, one colour scale for all maps of a figure.

North is up, and longitude is shrunk by the cosine of the latitude so that distances are right. "Population" of a place
is its share of the events of one slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.metrics.population import population_by_slot
from ppmtf_jax.evaluation.plots.style import MAP_COLOURS, NOTHING, styled

N_SLOTS = 4
NEARLY_ALL, FAR_ABOVE = 0.99, 3
"""A colour scale ends at this quantile of the shares, if the largest share is more than so many times as large."""


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
