"""TM-EMD: earth mover's distance between the next places of people, in bins of latitude and of longitude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, caveat_if
from ppmtf_jax.data.places import PlaceTable, longitude_near
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.errors import Problem
from ppmtf_jax.evaluation.distributions import earth_movers_distance, pair_counts, row_shares
from ppmtf_jax.evaluation.judgement import LARGE_PART
from ppmtf_jax.evaluation.registry import Undefined, register_utility
from ppmtf_jax.settings import Count, Settings

N_BINS = 20
NO_TEST_TRANSITIONS = "no transition in the test traces"
_Axes = list[np.ndarray]
"""An array for latitude and one for longitude."""


@dataclass(frozen=True)
class TransitionSettings(Settings, subject="bins of the transition matrix"):
    """Settings of TM-EMD.

    Parameters
    ----------
    n_bins : int
        Number of equal bins of the box on each axis.
    box : (south, north, west, east), optional
        Degrees. Places outside fall into the outermost bins. By default, the bounding box of the places.
    """

    n_bins: Count = N_BINS
    box: tuple[float, ...] | None = None

    def problems(self) -> list[Problem | str]:
        """A box with the wrong number of sides or without an area."""
        if self.box is None or (len(self.box) == 4 and self.box[0] < self.box[1] and self.box[2] < self.box[3]):
            return []
        return [Problem("a box (south, north, west, east) with south < north and west < east", repr(self.box))]


def transition_counts(traces: Traces) -> sparse.csr_array:
    """Number of steps from each place to each place at consecutive instants, of all users; shape (places, places)."""
    steps = traces.transitions()
    return pair_counts(steps.place, steps.next_place, (traces.n_places, traces.n_places))


def transition_matrix(traces: Traces) -> sparse.csr_array:
    """Transition matrix with rows that sum to 1; a place that nobody leaves has the row of the identity matrix."""
    counts = transition_counts(traces)
    never_left = sparse.diags_array((counts.sum(axis=1) == 0).astype(np.float64))
    return (row_shares(counts) + never_left).tocsr()


def _axes(places: PlaceTable, settings: TransitionSettings) -> _Axes:
    """Bin of latitude and bin of longitude of each place, as 0-1 matrices of shape (places, bins)."""
    south, north, west, east = settings.box or places.bounding_box()

    def indicator(value: np.ndarray, low: float, high: float) -> np.ndarray:
        # All places may be on one line; the greatest value belongs to the last bin.
        width = (high - low) / settings.n_bins or 1.0
        # Where coordinates are not known, all places are in one bin.
        which = np.clip(np.nan_to_num(np.floor((value - low) / width)), 0, settings.n_bins - 1).astype(np.int64)
        return np.eye(settings.n_bins)[which]

    longitude = longitude_near(places.longitude, (west + east) / 2)
    return [indicator(places.latitude, south, north), indicator(longitude, west, east)]


def _measure(comparison: Comparison, settings: TransitionSettings) -> list[float]:
    axes = _axes(comparison.test.places, settings)
    matrix = comparison.statistic(transition_matrix, comparison.traces)
    return _from_test([matrix @ axis for axis in axes], axes, comparison)


def _uniform(comparison: Comparison, settings: TransitionSettings) -> list[float]:
    axes = _axes(comparison.test.places, settings)
    return _from_test([np.tile(axis.mean(axis=0), (len(axis), 1)) for axis in axes], axes, comparison)


def _from_test(onward: _Axes, axes: _Axes, comparison: Comparison) -> list[float]:
    """Earth mover's distances on both axes between where people go next and where the test users do.

    `onward` has the probability of each bin of the next place, from each place.
    """
    if not comparison.statistic(Traces.has_transitions, comparison.test):
        raise Undefined
    matrix = comparison.statistic(transition_matrix, comparison.test)
    return [earth_movers_distance(next_bin, matrix @ axis) for next_bin, axis in zip(onward, axes, strict=True)]


def _reading(comparison: Comparison, settings: TransitionSettings) -> list[Interpretation]:
    """The reference is the value of traces that never move, because such traces score well on sparse test traces."""
    test = comparison.test
    axes = _axes(test.places, settings)
    # The next place of a person who never moves is the same place.
    never_moving = _from_test(axes, axes, comparison)
    empty = 1 - len(np.unique(test.transitions().place)) / test.n_places
    text = (
        f"{percent(empty)} of the places have no test step, so all users stay there; traces that stay score well there"
    )
    caveats = caveat_if(empty > LARGE_PART, "places_never_left", text)
    return [Interpretation({"never moving": value}, caveats) for value in never_moving]


register_utility(
    MetricInfo(
        "tm_emd_y",
        "TM-EMD-Y",
        "Earth mover's distance, in bins of latitude, between the distributions of the next place of synthetic and "
        "of test users, averaged over the places.",
        "bins, north-south",
        undefined=NO_TEST_TRANSITIONS,
        plain="Next places, north-south",
        section="transitions",
        uses=("flows",),
    ),
    MetricInfo(
        "tm_emd_x",
        "TM-EMD-X",
        "TM-EMD-Y in bins of longitude instead of latitude.",
        "bins, east-west",
        undefined=NO_TEST_TRANSITIONS,
        plain="Next places, east-west",
        section="transitions",
        uses=("flows",),
    ),
    name="tm_emd",
    measure=_measure,
    uniform=_uniform,
    settings=TransitionSettings,
    per_trace_number=True,
    pools_gaps=True,
    reading=_reading,
)
