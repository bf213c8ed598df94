"""VF-TV: total variation between the distributions over windows of the share of events at each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.measurement import Comparison, Interpretation, caveat_if
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Windows
from ppmtf_jax.evaluation.distributions import counts_to_shares, variation, weighted_mean
from ppmtf_jax.evaluation.metrics.windows import compared_windows, real_windows
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings

COARSE_SHARES = f"Most test windows have only {MIN_WINDOW_EVENTS} events, so shares of events say little"
MIN_PUBLISHED_EVENTS = 5


@dataclass(frozen=True)
class VisitSettings(Settings, subject="VF-TV"):
    """Settings of VF-TV.

    Parameters
    ----------
    n_bins : int, optional
        Number of bins of a share. By default, one for each instant of a period.
    published : bool
        As in Murakami et al. 2021, 4.3: windows with fewer than 5 events and shares of exactly 1 do not count, all
        places weigh the same, and a place without synthetic visits counts as if all shares were in the lowest bin.
    """

    n_bins: Count | None = None
    published: bool = False


def visit_fractions(windows: Windows, n_bins: int, *, published: bool = False) -> np.ndarray:
    """Histogram of each place over the windows' shares of events at the place: windows per bin, shape (places, bins).

    Bins are (0, 1/n], (1/n, 2/n], ..., (1 - 1/n, 1]; shares of 0 do not count. See `VisitSettings` for `published`.
    """
    visits, n_places = windows.visits(), len(windows.places)
    total = windows.events_per_window()[visits.window]
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    cell = visits.place * n_bins - (-visits.count * n_bins // total) - 1
    if published:
        cell = cell[(total >= MIN_PUBLISHED_EVENTS) & (visits.count < total)]
    return np.bincount(cell, minlength=n_places * n_bins).reshape(n_places, n_bins)


def _measure(comparison: Comparison, settings: VisitSettings) -> list[float]:
    """VF-TV: mean over the places that have a histogram in both real sets.

    The weight of a place is the number of windows that visit it: the smaller of the numbers in the real sets.
    Otherwise, on data with few events per window, rare places would decide, and the metric would measure only chance. A
    place without a synthetic histogram has the total variation 1.
    """
    length, n_bins = comparison.window_length, settings.n_bins
    n_bins = n_bins or min(comparison.n_instants, comparison.test.time_grid.period)
    sets = (real_windows(comparison, each, length) for each in (comparison.train, comparison.test))
    released, train, test = (
        visit_fractions(windows, n_bins, published=settings.published)
        for windows in (compared_windows(comparison, length), *sets)
    )
    weight = np.minimum(train.sum(axis=1), test.sum(axis=1))
    known = weight > 0
    if not known.any():
        raise Undefined
    weight, released, test = weight[known], released[known], test[known]
    if settings.published:
        weight = np.ones(len(weight))
        released[released.sum(axis=1) == 0, 0] = 1
    distance = variation(counts_to_shares(released), counts_to_shares(test))
    return [weighted_mean(np.where(released.any(axis=1), distance, 1.0), weight)]


def _reading(comparison: Comparison, settings: VisitSettings) -> list[Interpretation]:
    n_events = real_windows(comparison, comparison.test, comparison.window_length).events_per_window()
    is_coarse = len(n_events) > 0 and np.median(n_events) <= MIN_WINDOW_EVENTS
    return [Interpretation(caveats=caveat_if(is_coarse, "coarse_shares", COARSE_SHARES))]


register_utility(
    variation_quantity(
        "vf_tv",
        "VF-TV",
        "Total variation between the distributions of the share of events at a place, over windows as long as a "
        "synthetic trace, averaged over the places, weighted by the number of windows with a visit.",
        "no place that windows visit in both real sets, no synthetic window, or time grids with different periods",
        plain="Share of their time that people spend at each place",
        section="visit-fractions",
    ),
    measure=_measure,
    settings=VisitSettings,
    per_trace_number=True,
    reading=_reading,
)
