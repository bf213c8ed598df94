"""TM-EMD: distance between the places where people go next, in bins of latitude and of longitude."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo
from ppmtf_jax.data.places import PlaceTable, longitude_near
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem
from ppmtf_jax.evaluation.distributions import earth_movers_distance, pair_counts
from ppmtf_jax.evaluation.registry import LARGE_PART, register_utility
from ppmtf_jax.settings import Count, Settings

N_BINS = 20
NO_TEST_TRANSITIONS = "no transition in the test traces"
_Axes = tuple[np.ndarray, np.ndarray]
"""An array for latitude and one for longitude."""


@dataclass(frozen=True)
class TransitionSettings(Settings, subject="bins of the transition matrix"):
    """Settings of TM-EMD.

    Parameters
    ----------
    n_bins : int
        Number of equal bins of the box on each axis.
    box : (south, north, west, east), optional
        Degrees; places outside belong to the outermost bins. The bounding box of the places where not given.

    Raises
    ------
    InputError
        There is no bin, or the box is empty.
    """

    n_bins: Count = N_BINS
    box: tuple[float, ...] | None = None

    def problems(self) -> list[Problem | str]:
        """A box that is none."""
        if self.box is None or (len(self.box) == 4 and self.box[0] < self.box[1] and self.box[2] < self.box[3]):
            return []
        return [Problem("a box (south, north, west, east) with south < north and west < east", repr(self.box))]


def transition_counts(traces: Traces) -> sparse.csr_array:
    """How often each place follows each at consecutive instants, over all users; shape (places, places)."""
    steps = traces.transitions()
    return pair_counts(steps.place, steps.next_place, (traces.n_places, traces.n_places))


def transition_matrix(traces: Traces) -> sparse.csr_array:
    """Transition counts with rows that sum to 1; the row of a place that nobody left is that of the identity."""
    counts = transition_counts(traces)
    total = counts.sum(axis=1)
    return (
        sparse.diags_array(1 / np.maximum(total, 1)) @ counts + sparse.diags_array((total == 0).astype(np.float64))
    ).tocsr()


def _axes(places: PlaceTable, settings: TransitionSettings) -> _Axes:
    """The bins of latitude and of longitude that each place is in: 0-1 matrices of shape (places, bins)."""
    south, north, west, east = settings.box or places.bounding_box()
    return (
        _bin_indicator(places.latitude, south, north, settings.n_bins),
        _bin_indicator(longitude_near(places.longitude, (west + east) / 2), west, east, settings.n_bins),
    )


def _bin_indicator(value: np.ndarray, low: float, high: float, n_bins: int) -> np.ndarray:
    # All places may be on one line; the greatest value belongs to the last bin.
    width = (high - low) / n_bins or 1.0
    which = np.clip(np.floor((value - low) / width), 0, n_bins - 1).astype(np.int64)
    return np.eye(n_bins)[which]


def _onward(matrix: sparse.csr_array, axes: _Axes) -> _Axes:
    """Probability of the next bin of latitude, and of longitude, from each place; each of shape (places, bins)."""
    y, x = (np.asarray(matrix @ axis) for axis in axes)
    return y, x


def _measure(comparison: Comparison, settings: TransitionSettings) -> tuple[float, float]:
    axes = _axes(comparison.test.places, settings)
    return _from_test(_onward(comparison.statistic(transition_matrix, comparison.traces), axes), axes, comparison)


def _uniform(comparison: Comparison, settings: TransitionSettings) -> tuple[float, float]:
    axes = _axes(comparison.test.places, settings)
    y, x = (np.tile(axis.mean(axis=0), (len(axis), 1)) for axis in axes)
    return _from_test((y, x), axes, comparison)


def _from_test(onward: _Axes, axes: _Axes, comparison: Comparison) -> tuple[float, float]:
    """Earth mover's distances from the test users on both axes; NaN if no test user has a transition."""
    if not comparison.statistic(Traces.has_transitions, comparison.test):
        return math.nan, math.nan
    expected = _onward(comparison.statistic(transition_matrix, comparison.test), axes)
    y, x = (earth_movers_distance(*each) for each in zip(onward, expected, strict=True))
    return y, x


def _reading(comparison: Comparison, settings: TransitionSettings) -> list[Interpretation]:
    """The reference is the value of traces that never move, since sparse test traces reward these."""
    test = comparison.test
    axes = _axes(test.places, settings)
    # Somebody who never moves goes from each place to the same place.
    never_moving = _from_test(axes, axes, comparison)
    empty = 1 - len(np.unique(test.transitions().place)) / test.n_places
    caveat = f"{empty:.0%} of the places have no test step and count as stayed at, so traces that stay score well there"
    # Where nobody moves at all, the metric is undefined and says why.
    caveat = caveat if LARGE_PART < empty < 1 else ""
    return [Interpretation({"never moving": value}, caveat) for value in never_moving]


register_utility(
    MetricInfo(
        "tm_emd_y",
        "TM-EMD-Y",
        "Earth mover's distance, in bins of latitude, between where the synthetic and the test users go next, "
        "averaged over the places.",
        "bins, north-south",
        undefined=NO_TEST_TRANSITIONS,
    ),
    MetricInfo(
        "tm_emd_x",
        "TM-EMD-X",
        "The same in bins of longitude.",
        "bins, east-west",
        undefined=NO_TEST_TRANSITIONS,
    ),
    name="tm_emd",
    measure=_measure,
    uniform=_uniform,
    settings=TransitionSettings,
    per_trace_number=True,
    reading=_reading,
)
