"""The windows that the metrics compare.

A window has the events of a user within one period, such as a day, or within the span of a synthetic trace, which may
be several periods (see `data.windows`). Windows with fewer than two events do not count. Real traces have gaps; most
synthetic traces are complete. Each window of complete synthetic traces is first thinned to the instants of a random
window of the test users (fixed seed). Then both sets have the same hours and the same gaps. Synthetic traces with gaps
of their own, such as check-ins, are compared as they are. A step is from one instant to the next within a window; a
move is a step to another place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Windows, is_complete, same_period
from ppmtf_jax.evaluation.distributions import wasserstein
from ppmtf_jax.evaluation.registry import Undefined
from ppmtf_jax.streams import Stage, numpy_stream

SEED = 0
NO_STEPS = "no two events at consecutive instants of a window in one of the sets, or time grids with different periods"
NO_MOVES = "no move in one of the sets, or time grids with different periods"
ONE_POINT = "All places are at one point, so this number says nothing"


def real_windows(
    comparison: Comparison, traces: Traces, n_instants: int | None = None, *, min_events: int = MIN_WINDOW_EVENTS
) -> Windows:
    """The windows of traces as they are, with at least `min_events` events.

    `n_instants` is the length of a window: by default, one period.
    """
    return comparison.statistic(_windows, traces, n_instants or traces.time_grid.period, min_events)


def compared_windows(
    comparison: Comparison, n_instants: int | None = None, *, min_events: int = MIN_WINDOW_EVENTS
) -> Windows:
    """The windows to compare with the test users' windows; raises `Undefined` if none exist.

    Windows of complete synthetic traces are thinned. The arguments are those of `real_windows`.
    """
    traces, grid = comparison.traces, comparison.test.time_grid
    length = n_instants or grid.period
    test = real_windows(comparison, comparison.test, length, min_events=min_events)
    same_periods = all(same_period(each.time_grid, grid) for each in (traces, comparison.train))
    if test.n_windows and same_periods and length <= traces.time_grid.n_instants:
        if comparison.pool_traces or has_gaps(comparison):
            windows = real_windows(comparison, traces, length, min_events=min_events)
        else:
            windows = comparison.statistic(_thinned, traces, length, test, min_events)
        if windows.n_windows:
            return windows
    raise Undefined


def has_gaps(comparison: Comparison) -> bool:
    """Whether the measured traces have gaps of their own, as real traces have: an instant without an event."""
    return not comparison.statistic(is_complete, comparison.traces)


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
    return [Interpretation(caveats=one_point(comparison.test))]


def one_point(traces: Traces | Windows) -> tuple[Caveat, ...]:
    """A caveat if all places are at one point."""
    return caveat_if(not np.ptp(traces.places.position_km(), axis=0).any(), "one_point", ONE_POINT)


def _windows(traces: Traces, n_instants: int, min_events: int) -> Windows:
    return Windows.of(traces, n_instants).with_events(min_events)


def _thinned(traces: Traces, n_instants: int, test: Windows, min_events: int) -> Windows:
    windows = Windows.of(traces, n_instants)
    drawn = numpy_stream(SEED, Stage.METRICS).integers(test.n_windows, size=windows.n_windows)
    return windows.thinned(test, drawn).with_events(min_events)
