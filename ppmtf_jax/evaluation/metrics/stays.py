"""Stays within one period: how often people stay at their place, and for how long."""

from __future__ import annotations

import math
from operator import sub

import numpy as np

from ppmtf_jax.data.measurement import Comparison, MetricInfo, NoSettings
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.metrics.windows import NO_STEPS, distance_from_test, real_windows
from ppmtf_jax.evaluation.registry import difference_quantity, register_utility


def share_of_stays(windows: Windows) -> float:
    """Share of the steps that stay at their place; NaN where there is no step."""
    place, next_place = windows.steps()
    return float(np.mean(place == next_place)) if len(place) else math.nan


def move_intervals_h(windows: Windows) -> np.ndarray:
    """Hours that a person is seen at a place without a break, shape (intervals,).

    An interval lasts from one move to the next. The begin and the end of an unbroken stretch of a window count as
    moves, otherwise people who hardly ever move would seem not to stay. An event without a neighbour does not count.
    """
    step = windows.is_step()
    stays = step.copy()
    stays[1:] &= windows.place[1:] == windows.place[:-1]
    first = np.flatnonzero(~stays)
    after = np.append(first, len(stays))[1:]
    has_neighbour = (after - first > 1) | step[first] | np.append(step, False)[after]
    return (after - first)[has_neighbour] * windows.time_grid.step_s / 3600


def _uniform_stays(comparison: Comparison, settings: NoSettings) -> list[float]:
    return [1 / comparison.test.n_places - share_of_stays(real_windows(comparison, comparison.test))]


register_utility(
    difference_quantity(
        "stay_difference",
        "Stay difference",
        "Share of the synthetic steps that stay at their place, minus that of the test users.",
        "share of steps, -1 to 1",
        NO_STEPS,
    ),
    measure=distance_from_test(share_of_stays, sub),
    uniform=_uniform_stays,
)
register_utility(
    MetricInfo(
        "move_interval_w1_h",
        "Move interval, h",
        "Wasserstein distance between how long synthetic and test users are at a place without a break, as far "
        "as one period shows it.",
        "hours",
        undefined=NO_STEPS,
    ),
    measure=distance_from_test(move_intervals_h),
)
