"""VF-TV: total variation between the distributions over users of the share of events at each place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.measurement import Comparison, Interpretation, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import counts_to_shares, total_variation
from ppmtf_jax.evaluation.judgement import LARGE_PART
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
from ppmtf_jax.settings import Count, Settings

MIN_USER_EVENTS = 5


@dataclass(frozen=True)
class VisitSettings(Settings, subject="VF-TV"):
    """Settings of VF-TV.

    Parameters
    ----------
    n_bins : int, optional
        Number of bins of a share. By default, one for each instant of a period.
    """

    n_bins: Count | None = None


def visit_fractions(traces: Traces, n_bins: int) -> np.ndarray:
    """Histogram of each place over the users' shares of events at the place: users per bin, shape (places, bins).

    Bins are (0, 1/n], (1/n, 2/n], ..., (1 - 1/n, 1). Users with fewer than 5 events, shares of 0, and shares of exactly
    1 do not count.
    """
    n_events = np.bincount(traces.user, minlength=traces.n_users)
    cell, count = np.unique(traces.user.astype(np.int64) * traces.n_places + traces.place, return_counts=True)
    user, place = np.divmod(cell, traces.n_places)
    total = n_events[user]
    counted = (total >= MIN_USER_EVENTS) & (count < total)
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    fraction_bin = -(-count * n_bins // total) - 1
    histogram = np.bincount((place * n_bins + fraction_bin)[counted], minlength=traces.n_places * n_bins)
    return histogram.reshape(traces.n_places, n_bins)


def _from_real(released: np.ndarray, comparison: Comparison) -> list[float]:
    """VF-TV: mean over the places that have a histogram in both real sets.

    A place without a synthetic histogram counts as if all users were in the lowest bin (Murakami et al. 2021, 4.3).
    """
    n_bins, real = released.shape[1], (comparison.train, comparison.test)
    train, test = (comparison.statistic(visit_fractions, traces, n_bins) for traces in real)
    known = (train.sum(axis=1) > 0) & (test.sum(axis=1) > 0)
    if not known.any():
        raise Undefined
    released = released[known]
    released[released.sum(axis=1) == 0, 0] = 1
    return [total_variation(counts_to_shares(released), counts_to_shares(test[known]))]


def _n_bins(comparison: Comparison, settings: VisitSettings) -> int:
    return settings.n_bins or min(comparison.n_instants, comparison.test.time_grid.period)


def _measure(comparison: Comparison, settings: VisitSettings) -> list[float]:
    n_bins = _n_bins(comparison, settings)
    return _from_real(comparison.statistic(visit_fractions, comparison.traces, n_bins), comparison)


def _uniform(comparison: Comparison, settings: VisitSettings) -> list[float]:
    """VF-TV if every user is at every place equally often."""
    n_places, n_bins = comparison.test.n_places, _n_bins(comparison, settings)
    fractions = np.zeros((n_places, n_bins), np.int64)
    fractions[:, -(-n_bins // n_places) - 1] = 1
    return _from_real(fractions, comparison)


def _n_instants_covered(traces: Traces) -> np.ndarray:
    """Number of instants from the first to the last event of each user with at least `MIN_USER_EVENTS` events."""
    n_events = np.bincount(traces.user, minlength=traces.n_users)
    first = np.flatnonzero(np.diff(traces.user, prepend=-1))
    # A user's traces need not be in the order of time.
    last_instant, first_instant = (each.reduceat(traces.instant, first) for each in (np.maximum, np.minimum))
    return (last_instant - first_instant + 1)[n_events[traces.user[first]] >= MIN_USER_EVENTS]


def _reading(comparison: Comparison, settings: VisitSettings) -> list[Interpretation]:
    covered = np.concatenate([_n_instants_covered(each) for each in (comparison.train, comparison.test)])
    longer = np.mean(covered > comparison.n_instants) if len(covered) else 0.0
    share = percent(longer)
    text = f"{share} of the real users have longer traces than synthetic ones, so shares cannot be compared"
    return [Interpretation(caveats=caveat_if(longer > LARGE_PART, "longer_traces", text))]


register_utility(
    variation_quantity(
        "vf_tv",
        "VF-TV",
        "Total variation between the distributions of the share of a user's events at a place, over users with "
        f"at least {MIN_USER_EVENTS} events, averaged over the places.",
        f"no place that is, in both real sets, one of several places of a user with at least {MIN_USER_EVENTS} events",
    ),
    measure=_measure,
    uniform=_uniform,
    settings=VisitSettings,
    per_trace_number=True,
    reading=_reading,
)
