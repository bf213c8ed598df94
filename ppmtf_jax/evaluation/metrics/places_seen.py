"""Places that people visit in one period: their number, and the share of time at each of them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings, caveat_if
from ppmtf_jax.data.runs import rank_in_run
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, NO_WINDOWS, Visits, Windows
from ppmtf_jax.evaluation.distributions import pair_counts, row_shares, row_variation, weighted_mean
from ppmtf_jax.evaluation.metrics.windows import compared_windows, distance_from_test, real_windows
from ppmtf_jax.evaluation.registry import register_utility, variation_quantity

COARSE_SHARES = f"Most test windows have only {MIN_WINDOW_EVENTS} events, so shares of events say little"


def distinct_places(windows: Windows) -> np.ndarray:
    """Number of different places of each window, shape (windows,)."""
    return np.bincount(windows.visits().window, minlength=windows.n_windows)


def place_share(windows: Windows, rank: int = 0) -> np.ndarray:
    """Share of each window's events at its most visited place of this rank (from 0); 0 if it has no such place."""
    visits = visits_of_rank(windows, rank)
    share = np.zeros(windows.n_windows)
    share[visits.window] = visits.count / windows.events_per_window()[visits.window]
    return share


def visits_of_rank(windows: Windows, rank: int) -> Visits:
    """For each window that has one, its place of this rank by number of events; ties in order of the place table."""
    visits = windows.visits()
    order = np.lexsort((-visits.count, visits.window))
    chosen = order[rank_in_run(visits.window[order]) == rank]
    return Visits(*(column[chosen] for column in visits))


def window_shares(windows: Windows) -> sparse.csr_array:
    """Histogram of each place over the windows' shares of events at the place: windows per bin, shape (places, n).

    Bins are (0, 1/n], ..., (1 - 1/n, 1], where n is the number of instants of a period. Shares of 0 do not count.
    """
    n_bins, visits = windows.time_grid.n_instants, windows.visits()
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    share_bin = -(-visits.count * n_bins // windows.events_per_window()[visits.window]) - 1
    return pair_counts(visits.place, share_bin, (len(windows.places), n_bins))


def share_variation(windows: Windows, train: Windows, test: Windows) -> float:
    """Total variation between rows of `window_shares`, averaged over places; NaN if the real sets share no place.

    The weight of a place is the number of windows that visit it: the smaller of the numbers in `train` and in `test`.
    So a place with a single window hardly counts, and a place that only one real set visits does not count. Otherwise,
    on data with few events per window, the metric would measure only chance. A place that `windows` never visit has the
    total variation 1.
    """
    histogram, others, expected = (window_shares(each) for each in (windows, train, test))
    weight = np.minimum(others.sum(axis=1), expected.sum(axis=1))
    return weighted_mean(row_variation(row_shares(histogram), row_shares(expected)), weight)


def _measure_shares(comparison: Comparison, settings: NoSettings) -> list[float]:
    real = (real_windows(comparison, each) for each in (comparison.train, comparison.test))
    return [share_variation(compared_windows(comparison), *real)]


def _read_shares(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    n_events = real_windows(comparison, comparison.test).events_per_window()
    is_coarse = len(n_events) > 0 and np.median(n_events) <= MIN_WINDOW_EVENTS
    return [Interpretation(caveats=caveat_if(is_coarse, "coarse_shares", COARSE_SHARES))]


register_utility(
    MetricInfo(
        "distinct_w1",
        "Distinct places",
        "Wasserstein distance between the numbers of different places of synthetic and of test users in one period.",
        "places",
        scale="places",
        undefined=NO_WINDOWS,
    ),
    measure=distance_from_test(distinct_places),
)
register_utility(
    MetricInfo(
        "top_place_w1",
        "Top place",
        "Wasserstein distance between the shares of events of synthetic and of test users at their most visited place "
        "of one period.",
        "share of events",
        scale="share",
        undefined=NO_WINDOWS,
    ),
    measure=distance_from_test(place_share),
)
register_utility(
    variation_quantity(
        "window_vf_tv",
        "Window VF-TV",
        "Total variation between the distributions of the share of a period's events at a place, averaged over "
        "the places that training and test users visit, weighted by the number of periods with a visit.",
        f"no place that windows of {MIN_WINDOW_EVENTS} events visit in both real sets, no such synthetic window, or "
        "time grids with different periods",
    ),
    measure=_measure_shares,
    reading=_read_shares,
)
