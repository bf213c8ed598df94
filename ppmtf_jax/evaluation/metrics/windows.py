"""The windows that the metrics of one period compare.

A window has the events of a user within one period, such as a day (see `data.windows`); windows with fewer than two
events do not count. Real traces have gaps, synthetic traces are complete. So each synthetic window is first thinned to
the instants of a random window of the test users (fixed seed). Then both sets have the same hours and the same gaps. A
step is from one instant to the next within a window; a move is a step to another place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ppmtf_jax.data.measurement import Comparison, Interpretation
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.evaluation.distributions import wasserstein
from ppmtf_jax.evaluation.registry import Undefined
from ppmtf_jax.streams import Stage, numpy_stream

MIN_WINDOW_EVENTS = 2
SEED = 0
NO_WINDOWS = f"no window of {MIN_WINDOW_EVENTS} events in one of the sets, or time grids with different periods"
NO_STEPS = "no two events at consecutive instants of a window in one of the sets, or time grids with different periods"
NO_MOVES = "no move in one of the sets, or time grids with different periods"
ONE_POINT = "All places are at one point, so this number says nothing"


def real_windows(comparison: Comparison, traces: Traces) -> Windows:
    """The windows of real traces, as they are."""
    return comparison.statistic(_windows, traces)


def compared_windows(comparison: Comparison) -> Windows:
    """The windows to compare with the test users' windows, thinned if synthetic; raises `Undefined` if none exist."""
    traces, grid = comparison.traces, comparison.test.time_grid
    test = real_windows(comparison, comparison.test)
    same_periods = all(same_period(each.time_grid, grid) for each in (traces, comparison.train))
    if test.n_windows and same_periods:
        pooled = comparison.pool_traces
        windows = real_windows(comparison, traces) if pooled else comparison.statistic(_thinned, traces, test)
        if windows.n_windows:
            return windows
    raise Undefined


def distance_from_test(
    statistic: Callable[..., Any], distance: Callable[[Any, Any], float] = wasserstein
) -> Callable[[Comparison, Any], list[float]]:
    """Measure the distance between a statistic of the windows and that of the windows of the test users.

    The settings of the metric are keyword arguments of the statistic.
    """

    def measure(comparison: Comparison, settings: Any) -> list[float]:
        windows, test = compared_windows(comparison), real_windows(comparison, comparison.test)
        return [distance(statistic(windows, **vars(settings)), statistic(test, **vars(settings)))]

    return measure


def read_places(comparison: Comparison, settings: Any) -> list[Interpretation]:
    """A caveat if all places are at one point, because all distances are then 0."""
    is_point = not np.ptp(comparison.test.places.position_km(), axis=0).any()
    return [Interpretation(caveat=ONE_POINT if is_point else "")]


def _windows(traces: Traces) -> Windows:
    return Windows.of(traces).with_events(MIN_WINDOW_EVENTS)


def _thinned(traces: Traces, test: Windows) -> Windows:
    windows = Windows.of(traces)
    drawn = numpy_stream(SEED, Stage.METRICS).integers(test.n_windows, size=windows.n_windows)
    return windows.thinned(test, drawn).with_events(MIN_WINDOW_EVENTS)
