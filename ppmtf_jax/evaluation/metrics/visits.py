"""VF-TV: total variation between the distributions over windows of the share of events at each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.measurement import Comparison
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.distributions import counts_to_shares, total_variation
from ppmtf_jax.evaluation.metrics.windows import compared_windows, real_windows
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings

MIN_EVENTS = 5


@dataclass(frozen=True)
class VisitSettings(Settings, subject="VF-TV"):
    """Settings of VF-TV.

    Parameters
    ----------
    n_bins : int, optional
        Number of bins of a share. By default, one for each instant of a period.
    """

    n_bins: Count | None = None


def visit_fractions(windows: Windows, n_bins: int) -> np.ndarray:
    """Histogram of each place over the windows' shares of events at the place: windows per bin, shape (places, bins).

    Bins are (0, 1/n], (1/n, 2/n], ..., (1 - 1/n, 1). Windows with fewer than 5 events, shares of 0, and shares of
    exactly 1 do not count.
    """
    visits, n_places = windows.visits(), len(windows.places)
    total = windows.events_per_window()[visits.window]
    counted = (total >= MIN_EVENTS) & (visits.count < total)
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    fraction_bin = -(-visits.count * n_bins // total) - 1
    cells = (visits.place * n_bins + fraction_bin)[counted]
    return np.bincount(cells, minlength=n_places * n_bins).reshape(n_places, n_bins)


def _from_real(released: np.ndarray, comparison: Comparison) -> list[float]:
    """VF-TV: mean over the places that have a histogram in both real sets.

    A place without a synthetic histogram counts as if all windows were in the lowest bin (Murakami et al. 2021, 4.3).
    """
    real = (_real(comparison, traces) for traces in (comparison.train, comparison.test))
    train, test = (visit_fractions(windows, released.shape[1]) for windows in real)
    known = (train.sum(axis=1) > 0) & (test.sum(axis=1) > 0)
    if not known.any():
        raise Undefined
    released = released[known]
    released[released.sum(axis=1) == 0, 0] = 1
    return [total_variation(counts_to_shares(released), counts_to_shares(test[known]))]


def _real(comparison: Comparison, traces: Traces) -> Windows:
    return real_windows(comparison, traces, comparison.window_length, min_events=MIN_EVENTS)


def _n_bins(comparison: Comparison, settings: VisitSettings) -> int:
    return settings.n_bins or min(comparison.n_instants, comparison.test.time_grid.period)


def _measure(comparison: Comparison, settings: VisitSettings) -> list[float]:
    windows = compared_windows(comparison, comparison.window_length, min_events=MIN_EVENTS)
    return _from_real(visit_fractions(windows, _n_bins(comparison, settings)), comparison)


def _uniform(comparison: Comparison, settings: VisitSettings) -> list[float]:
    """VF-TV if everybody is at every place equally often."""
    n_places, n_bins = comparison.test.n_places, _n_bins(comparison, settings)
    fractions = np.zeros((n_places, n_bins), np.int64)
    fractions[:, -(-n_bins // n_places) - 1] = 1
    return _from_real(fractions, comparison)


register_utility(
    variation_quantity(
        "vf_tv",
        "VF-TV",
        "Total variation between the distributions of the share of events at a place, over windows as long as a "
        f"synthetic trace with at least {MIN_EVENTS} events, averaged over the places.",
        f"no place that is, in both real sets, one of several places of a window of at least {MIN_EVENTS} events, no "
        "such synthetic window, or time grids with different periods",
        plain="Share of their time that people spend at each place",
        section="visit-fractions",
    ),
    measure=_measure,
    uniform=_uniform,
    settings=VisitSettings,
    per_trace_number=True,
)
