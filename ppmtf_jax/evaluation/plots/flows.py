"""From where to where people move: the largest flows as arrows on a map."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import Problem
from ppmtf_jax.evaluation.metrics.trips import N_CELLS, FlowSettings, cell_flows
from ppmtf_jax.evaluation.plots.maps import draw_scale_bar, map_frame, panel_inches
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, LOWER, check_sets, panels

N_FLOWS = 30
N_COLUMNS = 4
WIDEST = 5.0
"""Width of the arrow of a figure's largest flow, in points."""


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
