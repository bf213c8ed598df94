"""How large a part of their time people spend at a kind of place: Fig. 11 of Murakami et al. 2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from ppmtf_jax.data.comparable import check_same_places
from ppmtf_jax.data.places import PlaceTable
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.metrics.visits import visit_fractions
from ppmtf_jax.evaluation.plots.style import LINE_COLOURS, styled

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

N_KINDS = 4
PANEL_INCHES = (3.4, 2.5)


@styled
def visit_fraction_panels(
    sets: Mapping[str, Traces], *, kinds: tuple[str, ...] | None = None
) -> matplotlib.figure.Figure:
    """Who spends how much of her time at a kind of place: a panel for each of some categories, a line for each set.

    Of the users with at least 5 events who are there, and not only there, the share in each bin of the share of their
    events: those whom VF-TV counts. Bins are as wide as one instant of a period of the first set's grid, 1/24 where
    that has 24. Places without categories are kinds of their own.

    Parameters
    ----------
    sets : mapping of names to Traces
        On the same places; the first one is what the others are held against.
    kinds : tuple of str, optional
        Categories; the four with the most events of the first set where not given.

    Raises
    ------
    InputError
        There is no set, the places differ, or a category is not among theirs.

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
    from matplotlib.figure import Figure

    if not sets:
        raise InputError("visit fractions", [Problem("at least one trace set", "none")])
    check_same_places(**sets)
    first = next(iter(sets.values()))
    names, kind_of_place = _kinds(first.places)
    unknown = [kind for kind in kinds or () if kind not in names]
    if unknown:
        raise InputError("visit fractions", [Problem(f"categories among {', '.join(names)}", ", ".join(unknown))])
    busiest = np.argsort(-np.bincount(kind_of_place[first.place], minlength=len(names)), kind="stable")[:N_KINDS]
    shown = [names.index(kind) for kind in kinds] if kinds else busiest.tolist()
    n_bins = first.time_grid.one_period().n_instants
    counts = {name: visit_fractions(_by_kind(traces, names, kind_of_place), n_bins) for name, traces in sets.items()}

    n_columns = min(2, len(shown))
    n_rows = -(-len(shown) // n_columns)
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * n_columns, height * n_rows + 0.5), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for ax in axes[len(shown) :]:
        ax.remove()
    for ax, kind in zip(axes, shown, strict=False):
        draw_visit_fractions(ax, {name: each[kind] for name, each in counts.items()})
        ax.set_title(names[kind])
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def draw_visit_fractions(ax: matplotlib.axes.Axes, counts: Mapping[str, np.ndarray]) -> matplotlib.axes.Axes:
    """How many users spend each share of their time somewhere, in percent: a line of steps for each set.

    Parameters
    ----------
    counts : mapping of names to int arrays, shape (bins,)
        Users whose share is in each bin, as a row of `evaluation.metrics.visits.visit_fractions`; of a set of which
        nobody is there, 0.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = draw_visit_fractions(Figure().subplots(), {"real": np.array([1, 3])})
    >>> ax.get_ylabel()
    'users, percent'
    """
    for (name, each), colour in zip(counts.items(), cycle(LINE_COLOURS), strict=False):
        edges = np.linspace(0, 1, len(each) + 1)
        ax.stairs(100 * each / max(1, each.sum()), edges, baseline=None, color=colour, lw=1.5, label=name)
    ax.set(xlim=(0, 1), xlabel="share of a user's events", ylabel="users, percent")
    ax.set_ylim(bottom=0)
    return ax


def _kinds(places: PlaceTable) -> tuple[list[str], np.ndarray]:
    """Names of the kinds of places, and which kind each place is."""
    labels = places.ids if places.category is None else places.category
    names, kind = np.unique(labels.astype(str), return_inverse=True)
    return names.tolist(), kind


def _by_kind(traces: Traces, names: list[str], kind_of_place: np.ndarray) -> Traces:
    """The traces as if each kind were one place."""
    return replace(
        traces,
        places=PlaceTable(np.array(names), *np.zeros((2, len(names)))),
        place=kind_of_place[traces.place].astype(np.int32),
    )
