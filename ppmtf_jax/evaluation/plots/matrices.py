"""How people move: matrices of transition probabilities between places, or groups of neighbouring ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import counts_to_shares
from ppmtf_jax.evaluation.metrics.moves import transition_counts
from ppmtf_jax.evaluation.plots.style import MAP_COLOURS, NOTHING, styled

MAX_MATRIX_GROUPS = 100
MAX_NAMED_CATEGORIES = 15


@styled
def transition_matrices(synthetic: Traces, train: Traces) -> Figure:
    """Pooled transition probabilities of the training and the synthetic traces, side by side, logarithmic colours.

    Places are ordered by category, and from west to east within a category. Without categories, or with too many, they
    are ordered from west to east. More than `MAX_MATRIX_GROUPS` places are drawn as groups of neighbours in this order.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(100).traces.split_users(0.5, seed=0)
    >>> len(transition_matrices(test, train).axes)
    3
    """
    check_comparable(training=train, synthetic=synthetic)
    groups = neighbour_groups(train.places)
    shown = {"training": train, "synthetic": synthetic}
    matrices = {name: group_transitions(traces, groups.of_place) for name, traces in shown.items()}
    smallest = min((m[m > 0].min() for m in matrices.values() if (m > 0).any()), default=0.1)
    scale = LogNorm(max(1e-4, min(0.1, smallest)), 1.0, clip=False)
    colours = colormaps[MAP_COLOURS].with_extremes(bad=NOTHING, under="white")

    figure = Figure(figsize=(9.6, 5.2 if groups.categories else 4.7), layout="compressed")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        # A probability of 0 is drawn below the scale. Only rows of places that nobody leaves are missing (grey).
        drawn = ax.imshow(np.where(matrix == 0, 1e-9, matrix), norm=scale, cmap=colours, interpolation="nearest")
        ax.set_title(name)
        ax.set_xlabel("to place")
        _label_groups(ax, groups)
    axes[0].set_ylabel("from place")
    figure.colorbar(drawn, ax=axes, shrink=0.8, extend="min", label="probability of the next place (grey: none seen)")
    figure.suptitle(f"Transitions between {groups.title}")
    return figure


def group_transitions(traces: Traces, group_of_place: np.ndarray) -> np.ndarray:
    """Transition probabilities between groups of places, pooled over users and instants.

    Rows sum to 1; NaN for a group that nobody leaves. Shape (groups, groups).
    """
    n_groups = int(group_of_place.max()) + 1
    counts = transition_counts(traces).tocoo()
    pair = group_of_place[counts.row] * n_groups + group_of_place[counts.col]
    return counts_to_shares(np.bincount(pair, counts.data, minlength=n_groups**2).reshape(n_groups, n_groups))


@dataclass(frozen=True, eq=False)
class NeighbourGroups:
    """Groups of neighbouring places, numbered in drawing order; `categories` is empty where they are not used."""

    of_place: np.ndarray
    categories: list[str]
    category_of_group: np.ndarray
    title: str


def neighbour_groups(places: PlaceTable) -> NeighbourGroups:
    """Up to `MAX_MATRIX_GROUPS` groups of neighbours of one category, of nearly the same size."""
    category, names = _usable_categories(places)
    # Rounding lets a grid be ordered column by column in spite of rounding errors in the coordinates.
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
    return NeighbourGroups(of_place, names, category_of_group, f"{what}, {how}")


def moved_apart(positions: np.ndarray, gap: float, last: float) -> np.ndarray:
    """Move increasing positions until they are at least `gap` apart and the last position is at most `last`."""
    moved = positions.astype(float)
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    moved[-1] = min(moved[-1], last)
    for i in range(len(moved) - 2, -1, -1):
        moved[i] = min(moved[i], moved[i + 1] - gap)
    return moved


def _usable_categories(places: PlaceTable) -> tuple[np.ndarray, list[str]]:
    """Category number of each place, by first appearance, and the names; no names for one or too many categories."""
    if places.category is not None:
        category, labels = pd.factorize(places.category.astype(str))
        if 2 <= len(labels) <= MAX_NAMED_CATEGORIES:
            return category, labels.tolist()
    return np.zeros(len(places), np.int64), []


def _label_groups(ax: Axes, groups: NeighbourGroups) -> None:
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
    where = moved_apart(middle, 0.032 * n, n - 1.0)
    ax.set_xticks(where, groups.categories, rotation=90)
    ax.set_yticks(where, groups.categories)
    ax.tick_params(length=0)
