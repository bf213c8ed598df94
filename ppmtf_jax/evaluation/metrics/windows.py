"""Metrics that compare values found in windows, such as one value for each move, day or window.

A window has the events of a user within one period, such as a day, or within the span of a synthetic trace, which may
be several periods (see `data.windows`). Windows with fewer than two events do not count. Real traces have gaps; most
synthetic traces are complete. Each window of complete synthetic traces is first thinned to the instants of a random
window of the test users (fixed seed). Then both sets have the same hours and the same gaps. Synthetic traces with gaps
of their own, such as check-ins, are compared as they are. If a set has more than 100,000 windows, 100,000 random ones
(fixed seed) are measured.

Each sample says which user a value belongs to. So a metric has a floor: the mean distance between two random groups of
the real users, which are as large as the training and the test users. This distance is due to chance alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation, MetricInfo, NoSettings, Scale, caveat_if
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import MIN_WINDOW_EVENTS, Windows, is_complete, same_period
from ppmtf_jax.evaluation.judgement import FEW_VALUES, FLOOR
from ppmtf_jax.evaluation.registry import Undefined, register_utility
from ppmtf_jax.streams import Stage, numpy_stream

SEED = 0
# Random-stream numbers; thinning uses the stream without a number, Group-TV 1 and 2, friends 3, entropy 4.
SPLITS, MEASURED = 3, 5
N_SPLITS = 10
MAX_WINDOWS = 100_000
NO_VALUE = (
    "no value to measure in one of the sets, synthetic traces shorter than the windows, or time grids with different "
    "periods"
)
ONE_POINT = "All places are at one point, so this number says nothing"
BETWEEN = "between the distributions of synthetic and of test users'"
Distance = Callable[[np.ndarray, np.ndarray], float]


class Sample(NamedTuple):
    """Values found in windows, and the index of the user of each value, shape (values,)."""

    user: np.ndarray
    value: np.ndarray

    @classmethod
    def at(cls, windows: Windows, event: np.ndarray, value: np.ndarray) -> Sample:
        """Values at some events, given by index."""
        return cls(windows.user[windows.window[event]], value)


Sampler = TypeVar("Sampler", bound=Callable[..., Sample])


def window_metric(
    name: str,
    title: str,
    meaning: str,
    distance: Distance,
    *,
    shown: tuple[str, ...] = ("", ""),
    unit: str = "total variation, 0 to 1",
    scale: Scale = "share",
    **options: Any,
) -> Callable[[Sampler], Sampler]:
    """Register a metric of the values that the decorated function finds in windows.

    `distance` compares the values of synthetic users with those of test users. A number with the distance
    `mean_difference` is best at 0. `shown`: where and how the report shows it (the fields `section`, `plain` and `uses`
    of `MetricInfo`, in this order). The options are fields of `WindowMetric`.
    """
    best = {"direction": "zero", "good_value": "near 0"} if distance is mean_difference else {}

    def register(sample: Sampler) -> Sampler:
        metric = WindowMetric(sample, distance, **options)
        undefined = f"complete synthetic traces, {NO_VALUE}" if metric.of_times else NO_VALUE
        section, plain, *uses = shown
        about = {"scale": scale, "plain": plain, "section": section, "uses": tuple(uses)}
        register_utility(
            MetricInfo(name, title, meaning, unit, undefined=undefined, **about, **best),
            measure=metric.measure,
            reading=metric.reading,
            applies=metric.applies_to,
            settings=metric.settings,
            **({"uniform": _undefined} if metric.of_times else {}),
        )
        return sample

    return register


@dataclass(frozen=True, eq=False)
class WindowMetric:
    """A metric that compares samples; see `window_metric`.

    Parameters
    ----------
    sample : function of Windows that returns Sample
        The settings of the metric are its keyword arguments.
    one_period : bool
        Whether a window lasts one period; otherwise it is as long as a synthetic trace.
    min_events : int
        Windows with fewer events do not count. If `min_events` is above the usual minimum, the metric is left out where
        no window of the test users has so many events.
    of_times : bool
        Whether the values depend only on the times of events. Then only synthetic traces with gaps of their own are
        measured, because thinned traces and uniform traces have the times of other traces.
    settings, applies
        As in `Measurement`.
    caveats : function of Windows and the floor that returns tuple of Caveat
        From the windows of the test users, returns why the number says little.
    """

    sample: Callable[..., Sample]
    distance: Distance
    one_period: bool = False
    min_events: int = MIN_WINDOW_EVENTS
    of_times: bool = False
    settings: type = NoSettings
    applies: Callable[[Comparison], bool] | None = None
    caveats: Callable[[Windows, float], tuple[Caveat, ...]] = lambda *_: ()

    def applies_to(self, comparison: Comparison) -> bool:
        """Whether the sets have such windows."""
        if self.of_times and not has_gaps(comparison):
            return False
        if self.min_events > MIN_WINDOW_EVENTS and not self._real(comparison, comparison.test).n_windows:
            return False
        return self.applies is None or self.applies(comparison)

    def measure(self, comparison: Comparison, settings: Any) -> list[float]:
        """The distance between the values of the measured set and those of the test users."""
        if self.of_times and not (comparison.pool_traces or has_gaps(comparison)):
            raise Undefined
        windows = compared_windows(comparison, self._length(comparison), min_events=self.min_events)
        windows = comparison.statistic(_measured_windows, comparison.traces, windows)
        test = self._real(comparison, comparison.test)
        return [self.distance(*(self.sample(each, **vars(settings)).value for each in (windows, test)))]

    def reading(self, comparison: Comparison, settings: Any) -> list[Interpretation]:
        """The floor, and why the number says little."""
        test = self._real(comparison, comparison.test)
        n_values, floor = len(self.sample(test, **vars(settings)).value), self._floor(comparison, settings)
        text = f"The test users have only {n_values} such values, so chance decides"
        few = caveat_if(n_values < FEW_VALUES, "few_values", text)
        return [Interpretation({FLOOR: floor}, few + self.caveats(test, floor))]

    def _floor(self, comparison: Comparison, settings: Any) -> float:
        """Mean distance between two random groups of the real users, as large as the training and the test users."""
        real = [(comparison.train, 0), (comparison.test, comparison.train.n_users)]
        samples = [(self.sample(self._real(comparison, each), **vars(settings)), first) for each, first in real]
        value = np.concatenate([sample.value for sample, _ in samples])
        user = np.concatenate([first + sample.user for sample, first in samples])
        n_train, distances = comparison.train.n_users, []
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


def one_point(traces: Traces | Windows, floor: float = 0.0) -> tuple[Caveat, ...]:
    """A caveat if all places are at one point, because all distances are then 0."""
    return caveat_if(not np.ptp(traces.places.position_km(), axis=0).any(), "one_point", ONE_POINT)


def mean_difference(values: np.ndarray, others: np.ndarray) -> float:
    """Mean of the first minus mean of the second values; NaN where there are none."""
    return float(values.mean() - others.mean()) if len(values) and len(others) else math.nan


def hour_bins(windows: Windows, n_instants: np.ndarray, first_hours: np.ndarray) -> np.ndarray:
    """Bin of each span of time; `first_hours` has the first hour of each bin."""
    return np.searchsorted(first_hours * 3600, n_instants.astype(np.int64) * windows.time_grid.step_s, side="right") - 1


def distance_km(windows: Windows, place: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Distances between pairs of places, given by index; NaN where coordinates are not known."""
    position_km = windows.places.position_km()
    return np.linalg.norm(position_km[other] - position_km[place], axis=1)


def random_windows(windows: Windows, n: int, number: int) -> Windows:
    """At most `n` of the windows, drawn from the random stream of this number."""
    if windows.n_windows <= n:
        return windows
    chosen = np.zeros(windows.n_windows, bool)
    chosen[numpy_stream(SEED, Stage.METRICS, number).permutation(windows.n_windows)[:n]] = True
    return windows.select(chosen)


def _windows(traces: Traces, n_instants: int, min_events: int) -> Windows:
    return Windows.of(traces, n_instants).with_events(min_events)


def _thinned(traces: Traces, n_instants: int, test: Windows, min_events: int) -> Windows:
    windows = Windows.of(traces, n_instants)
    drawn = numpy_stream(SEED, Stage.METRICS).integers(test.n_windows, size=windows.n_windows)
    return windows.thinned(test, drawn).with_events(min_events)


def _measured_windows(traces: Traces, windows: Windows) -> Windows:
    return random_windows(windows, MAX_WINDOWS, MEASURED)


def _undefined(comparison: Comparison, settings: Any) -> list[float]:
    raise Undefined
