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
    """Share of the steps from a place to the same place; NaN if there is no step."""
    place, next_place = windows.steps()
    return float(np.mean(place == next_place)) if len(place) else math.nan


def move_intervals_h(windows: Windows) -> np.ndarray:
    """Length of each uninterrupted stay at a place in hours, shape (intervals,).

    A stay lasts from one move to the next. The beginning and the end of a run of consecutive instants count as moves;
    otherwise people who hardly ever move would have no stays. An event without an event one instant earlier or later
    does not count.
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
        "Share of steps from a place to the same place: synthetic users minus test users.",
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
        "Wasserstein distance between the lengths of synthetic and of test users' uninterrupted stays at a place "
        "within one period.",
        "hours",
        scale="hours",
        undefined=NO_STEPS,
    ),
    measure=distance_from_test(move_intervals_h),
)
