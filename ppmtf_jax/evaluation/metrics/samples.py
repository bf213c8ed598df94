"""Metrics that compare samples of values found in windows, such as one value for each move, day or window.

Each sample says which user a value belongs to. So a metric of samples has a floor: the mean distance between two random
groups of the real users, which are as large as the training and the test users. This distance is due to chance alone.

If a set has more than 100,000 windows, 100,000 random ones (fixed seed) are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation, MetricInfo, NoSettings, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Windows
from ppmtf_jax.evaluation.judgement import FEW_VALUES, FLOOR
from ppmtf_jax.evaluation.metrics.windows import SEED, compared_windows, has_gaps, real_windows
from ppmtf_jax.evaluation.registry import Undefined, register_utility
from ppmtf_jax.streams import Stage, numpy_stream

N_SPLITS = 10
MAX_WINDOWS = 100_000
# Random-stream numbers; groups.py uses 1 and 2, windows.py uses the stream without a number.
SPLITS, MEASURED = 3, 5
Distance = Callable[[np.ndarray, np.ndarray], float]
NO_VALUE = (
    "no value to measure in one of the sets, synthetic traces shorter than the windows, or time grids with different "
    "periods"
)


class Sample(NamedTuple):
    """Values found in windows, and the index of the user of each value, shape (values,)."""

    user: np.ndarray
    value: np.ndarray


@dataclass(frozen=True, eq=False)
class SampledMetric:
    """A metric that compares samples; `register` adds it to the registry of metrics.

    Parameters
    ----------
    quantity : MetricInfo
        `register` fills in its `undefined`.
    sample : function of Windows that returns Sample
    distance : function of two arrays of values that returns a number
        The values of synthetic users come first, those of test users second.
    one_period : bool
        Whether a window lasts one period; otherwise it is as long as a synthetic trace.
    min_events : int
        Windows with fewer events do not count. If `min_events` is above the usual minimum, the metric is left out where
        no window of the test users has so many events.
    of_times : bool
        Whether the values depend only on the times of events. Then only synthetic traces with gaps of their own are
        measured, because thinned traces and uniform traces have the times of other traces.
    applies : function of Comparison that returns bool, optional
        A further condition, as in `Measurement`.
    caveats : function of Windows that returns tuple of Caveat
        From the windows of the test users, returns why the number says little.
    """

    quantity: MetricInfo
    sample: Callable[[Windows], Sample]
    distance: Distance
    one_period: bool = field(default=False, kw_only=True)
    min_events: int = field(default=MIN_WINDOW_EVENTS, kw_only=True)
    of_times: bool = field(default=False, kw_only=True)
    applies: Callable[[Comparison], bool] | None = field(default=None, kw_only=True)
    caveats: Callable[[Windows], tuple[Caveat, ...]] = field(default=lambda windows: (), kw_only=True)

    def register(self) -> None:
        """Add the metric to the registry of metrics."""
        undefined, uniform = NO_VALUE, {}
        if self.of_times:
            undefined, uniform = f"complete synthetic traces, {NO_VALUE}", {"uniform": _undefined}
        quantity = replace(self.quantity, undefined=undefined)
        register_utility(quantity, measure=self._measure, reading=self._reading, applies=self._applies, **uniform)

    def _applies(self, comparison: Comparison) -> bool:
        if self.of_times and not has_gaps(comparison):
            return False
        if self.min_events > MIN_WINDOW_EVENTS and not self._real(comparison, comparison.test).n_windows:
            return False
        return self.applies is None or self.applies(comparison)

    def _measure(self, comparison: Comparison, settings: NoSettings) -> list[float]:
        if self.of_times and not (comparison.pool_traces or has_gaps(comparison)):
            raise Undefined
        windows = compared_windows(comparison, self._length(comparison), min_events=self.min_events)
        windows = comparison.statistic(_measured_windows, comparison.traces, windows)
        return [self.distance(self.sample(windows).value, self.sample(self._real(comparison, comparison.test)).value)]

    def _reading(self, comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
        test = self._real(comparison, comparison.test)
        n_values = len(self.sample(test).value)
        text = f"The test users have only {n_values} such values, so chance decides"
        few = caveat_if(n_values < FEW_VALUES, "few_values", text)
        return [Interpretation({FLOOR: self._floor(comparison)}, few + self.caveats(test))]

    def _floor(self, comparison: Comparison) -> float:
        """Mean distance between two random groups of the real users, as large as the training and the test users."""
        n_train, values, users = comparison.train.n_users, [], []
        for traces, first_user in ((comparison.train, 0), (comparison.test, n_train)):
            sample = self.sample(self._real(comparison, traces))
            values.append(sample.value)
            users.append(first_user + sample.user)
        value, user = np.concatenate(values), np.concatenate(users)
        distances = []
        for number in range(N_SPLITS):
            shuffled = numpy_stream(SEED, Stage.METRICS, SPLITS, number).permutation(n_train + comparison.test.n_users)
            is_first = shuffled[user] < n_train
            distances.append(abs(self.distance(value[is_first], value[~is_first])))
        return float(np.mean(distances))

    def _real(self, comparison: Comparison, traces: Traces) -> Windows:
        windows = real_windows(comparison, traces, self._length(comparison), min_events=self.min_events)
        return comparison.statistic(_measured_windows, traces, windows)

    def _length(self, comparison: Comparison) -> int:
        return comparison.test.time_grid.period if self.one_period else comparison.window_length


def _measured_windows(traces: Traces, windows: Windows) -> Windows:
    if windows.n_windows <= MAX_WINDOWS:
        return windows
    chosen = np.zeros(windows.n_windows, bool)
    chosen[numpy_stream(SEED, Stage.METRICS, MEASURED).permutation(windows.n_windows)[:MAX_WINDOWS]] = True
    return windows.select(chosen)


def mean_difference(values: np.ndarray, others: np.ndarray) -> float:
    """Mean of the first minus mean of the second values; NaN where there are none."""
    return float(values.mean() - others.mean()) if len(values) and len(others) else math.nan


def lasts_several_periods(comparison: Comparison) -> bool:
    """Whether a window as long as a synthetic trace lasts more than one period."""
    return comparison.window_length > comparison.test.time_grid.period


def _undefined(comparison: Comparison, settings: NoSettings) -> list[float]:
    raise Undefined
