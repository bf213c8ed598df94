"""VF-TV: how far a place is from having its share of regulars and of passers-by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.comparable import check_comparable
from ppmtf_jax.data.measurement import Comparison, Measurement, Quantity, Reading
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.evaluation.distributions import total_variation
from ppmtf_jax.evaluation.registry import LARGE_PART, METRICS, NEAR_TRAINING
from ppmtf_jax.settings import Count, Settings

MIN_EVENTS = 5


@dataclass(frozen=True)
class VisitSettings(Settings, subject="VF-TV"):
    """Settings of VF-TV.

    Parameters
    ----------
    n_bins : int, optional
        Number of bins of a share; as many as a synthetic trace covers instants where not given.

    Raises
    ------
    InputError
        There is no bin.
    """

    n_bins: Count | None = None


def visit_fractions(traces: Traces, n_bins: int) -> np.ndarray:
    """Histogram over users, for each place, of the share of a user's events that are there.

    Bins are (0, 1/n], (1/n, 2/n], ..., (1 - 1/n, 1). Users with fewer than 5 events, shares of 0, and shares of
    exactly 1 do not count.

    Returns
    -------
    int64 array, shape (places, n_bins)
        Numbers of users.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> visit_fractions(toy_city(n_users=5, seed=0).traces, 24).shape[1]
    24
    """
    n_events = np.bincount(traces.user, minlength=traces.n_users)
    cell, count = np.unique(traces.user.astype(np.int64) * traces.n_places + traces.place, return_counts=True)
    user, place = np.divmod(cell, traces.n_places)
    total = n_events[user]
    counted = (total >= MIN_EVENTS) & (count < total)
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    fraction_bin = -(-count * n_bins // total) - 1
    histogram = np.bincount((place * n_bins + fraction_bin)[counted], minlength=traces.n_places * n_bins)
    return histogram.reshape(traces.n_places, n_bins)


def vf_tv(traces: Traces, train: Traces, test: Traces, *, n_bins: int | None = None) -> float:
    """VF-TV of `traces`, all trace numbers taken together: total variation between visit fractions, over the places.

    The mean is over places that have a histogram in both `train` and `test`; where `traces` have none, all of theirs is
    in the lowest bin. NaN if there is no such place.

    Parameters
    ----------
    traces, train, test : Traces
    n_bins : int, optional
        Number of instants of one period of the grid of `traces` where not given.

    Raises
    ------
    InputError
        The numbers of slots or the place tables differ.

    References
    ----------
    Murakami et al. 2021, section 4.3.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> vf_tv(test, train, test)
    0.0
    """
    check_comparable(traces=traces, train=train, test=test)
    n_bins = n_bins or traces.time_grid.one_period().n_instants
    return _variation(*(visit_fractions(each, n_bins) for each in (traces, train, test)))


def _variation(released: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    known = (train.sum(axis=1) > 0) & (test.sum(axis=1) > 0)
    if not known.any():
        return float("nan")
    released, test = released[known].astype(np.float64), test[known]
    released[released.sum(axis=1) == 0, 0] = 1
    return total_variation(released / released.sum(axis=1, keepdims=True), test / test.sum(axis=1, keepdims=True))


def _measure(comparison: Comparison, settings: VisitSettings) -> list[float]:
    n_bins = settings.n_bins or comparison.n_instants
    return [_from_real(comparison.statistic(visit_fractions, comparison.traces, n_bins), comparison)]


def _uniform(comparison: Comparison, settings: VisitSettings) -> list[float]:
    """Every user is at every place equally often."""
    n_places, n_bins = comparison.test.n_places, settings.n_bins or comparison.n_instants
    fractions = np.zeros((n_places, n_bins), np.int64)
    fractions[:, -(-n_bins // n_places) - 1] = 1
    return [_from_real(fractions, comparison)]


def _from_real(fractions: np.ndarray, comparison: Comparison) -> float:
    n_bins = fractions.shape[1]
    real = (comparison.statistic(visit_fractions, traces, n_bins) for traces in (comparison.train, comparison.test))
    return _variation(fractions, *real)


def _n_instants_covered(traces: Traces) -> np.ndarray:
    """From each user's first to her last event; of users who count."""
    n_events = np.bincount(traces.user, minlength=traces.n_users)
    first = np.flatnonzero(np.diff(traces.user, prepend=-1))
    # A user's traces need not be in the order of time.
    last_instant, first_instant = (each.reduceat(traces.instant, first) for each in (np.maximum, np.minimum))
    return (last_instant - first_instant + 1)[n_events[traces.user[first]] >= MIN_EVENTS]


def _reading(comparison: Comparison, settings: VisitSettings) -> list[Reading]:
    covered = np.concatenate([_n_instants_covered(each) for each in (comparison.train, comparison.test)])
    longer = np.mean(covered > comparison.n_instants) if len(covered) else 0.0
    caveat = f"{longer:.0%} of the real users have longer traces than synthetic ones, so their shares do not compare"
    return [Reading(caveat=caveat if longer > LARGE_PART else "")]


METRICS.register(
    Measurement(
        "vf_tv",
        "utility",
        (
            Quantity(
                "vf_tv",
                "VF-TV",
                "Total variation between the distributions of the share of a user's events at a place, over users with "
                f"at least {MIN_EVENTS} events, averaged over the places.",
                "total variation, 0 to 1",
                "lower",
                NEAR_TRAINING,
                f"no place that users with at least {MIN_EVENTS} events visit among others in both real sets",
            ),
        ),
        _measure,
        _uniform,
        VisitSettings,
        per_trace_number=True,
        reading=_reading,
    )
)
