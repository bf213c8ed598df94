"""Rare places: whether places with few visits get the right share of the visits, in the right parts of the town.

Single rare places cannot be compared, because most of them are visited by training users or by test users, but not by
both. So the events at all rare places are compared, first together and then by cells of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import variation_of_counts
from ppmtf_jax.evaluation.judgement import FEW_VALUES
from ppmtf_jax.evaluation.metrics.windows import one_point
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings, Share

RARE_SHARE = 0.2
N_CELLS = 8


@dataclass(frozen=True)
class RareSettings(Settings, subject="rare places"):
    """Settings of the metrics of rare places.

    Parameters
    ----------
    share : float
        Largest share of the real events that are at rare places.
    n_cells : int
        Number of cells of the grid on each side of the bounding box of the places.
    """

    share: Share = RARE_SHARE
    n_cells: Count = N_CELLS


def visits(traces: Traces) -> np.ndarray:
    """Number of events at each place, shape (places,)."""
    return np.bincount(traces.place, minlength=traces.n_places)


def is_rare(n_visits: np.ndarray, share: float) -> np.ndarray:
    """Whether each place is one of the least visited places, which together have at most this share of the visits.

    Of places with equally many visits, all are rare or none is. The result has the shape (places,).

    Examples
    --------
    >>> n_visits = np.array([80, 0, 9, 9, 2])
    >>> [np.flatnonzero(is_rare(n_visits, share)).tolist() for share in (0.2, 0.15)]
    [[1, 2, 3, 4], [1, 4]]
    """
    ascending = np.sort(n_visits)
    # For each place, the sum of the visits of all places with at most as many visits.
    up_to = np.append(0, np.cumsum(ascending))[np.searchsorted(ascending, n_visits, side="right")]
    return up_to <= share * n_visits.sum()


def _rare(comparison: Comparison, settings: RareSettings) -> np.ndarray:
    """Whether each place is rare for all real users together; raises `Undefined` if the test users visit none."""
    test = comparison.statistic(visits, comparison.test)
    rare = is_rare(comparison.statistic(visits, comparison.train) + test, settings.share)
    if not test[rare].sum():
        raise Undefined
    return rare


def _compared(comparison: Comparison, settings: RareSettings, found: np.ndarray) -> list[float]:
    """Both metrics; `found` has the number of visits of each place, shape (places,)."""
    rare, test = _rare(comparison, settings), comparison.statistic(visits, comparison.test)
    # Half an event is added, so that traces without any rare place are far off, but not infinitely far.
    shares = [(each[rare].sum() + 0.5) / (each.sum() + 0.5) for each in (found, test)]
    cell = comparison.test.places.grid_cell(settings.n_cells)[rare]
    by_cell = (np.bincount(cell, each[rare], settings.n_cells**2) for each in (found, test))
    return [float(np.log2(shares[0] / shares[1])), variation_of_counts(*by_cell)]


def _measure(comparison: Comparison, settings: RareSettings) -> list[float]:
    return _compared(comparison, settings, comparison.statistic(visits, comparison.traces))


def _uniform(comparison: Comparison, settings: RareSettings) -> list[float]:
    n_places = comparison.test.n_places
    return _compared(comparison, settings, np.full(n_places, comparison.test.n_events / n_places))


def _has_rare(comparison: Comparison) -> bool:
    """Whether the test users visit a rare place, at the default share."""
    try:
        return bool(_rare(comparison, RareSettings()).any())
    except Undefined:
        return False


def _reading(comparison: Comparison, settings: RareSettings) -> list[Interpretation]:
    n_events = int(comparison.statistic(visits, comparison.test)[_rare(comparison, settings)].sum())
    text = f"The test users have only {n_events} events at rare places, so chance decides"
    few = caveat_if(n_events < FEW_VALUES, "few_values", text)
    return [Interpretation(caveats=few), Interpretation(caveats=few + one_point(comparison.test))]


register_utility(
    MetricInfo(
        "rare_visits",
        "Rare visits",
        "Log2 of the ratio between the shares of synthetic and of test events at rare places: the least visited "
        "places, which have at most a share of {share:g} of all real events.",
        "log2 of a ratio",
        "zero",
        "near 0",
        "the test users visit no rare place",
        "bits",
        uses=("rare",),
    ),
    variation_quantity(
        "rare_tv",
        "Rare-TV",
        "Total variation between the distributions of the synthetic and of the test events at rare places over the "
        "cells of a grid of {n_cells} x {n_cells}.",
        "the test users or the synthetic users visit no rare place",
        uses=("rare",),
    ),
    name="rare_places",
    measure=_measure,
    uniform=_uniform,
    settings=RareSettings,
    reading=_reading,
    applies=_has_rare,
)
