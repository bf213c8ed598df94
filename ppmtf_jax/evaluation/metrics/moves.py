"""How people move: next places, steps within one period, jumps over gaps, and flows between cells.

A step is from one instant to the next; a move is a step to another place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from ppmtf_jax.data.description import percent
from ppmtf_jax.data.measurement import Caveat, Comparison, Interpretation, MetricInfo, caveat_if
from ppmtf_jax.data.places import PlaceTable, longitude_near
from ppmtf_jax.data.runs import run_begins
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.errors import Problem
from ppmtf_jax.evaluation.distributions import (
    earth_movers_distance,
    pair_counts,
    row_shares,
    row_variation,
    variation_of_samples,
    wasserstein,
    weighted_mean,
)
from ppmtf_jax.evaluation.judgement import LARGE_PART, SPARSE_ROWS
from ppmtf_jax.evaluation.metrics.windows import (
    BETWEEN,
    Sample,
    distance_km,
    mean_difference,
    one_point,
    real_windows,
    window_metric,
)
from ppmtf_jax.evaluation.registry import Undefined, register_utility
from ppmtf_jax.settings import Count, Positive, Settings

BIN_KM, N_BINS, N_CELLS = 1.0, 20, 8
JUMP_KM = np.geomspace(0.25, 64, 17)
"""First kilometre of each bin of jump lengths, except for the first bin, which begins at 0."""
JUMP_HOURS = {
    "1h": (0.0, 1.0, "up to 1 h", "within an hour"),
    "6h": (1.0, 6.0, "1-6 h", "in 2 to 6 hours"),
    "24h": (6.0, 24.0, "6-24 h", "in 7 to 24 hours"),
    "later": (24.0, np.inf, "above 24 h", "in more than a day"),
}
"""Classes of hours between two events: more than the first number, at most the second number; and their titles."""
MOSTLY_GAPS = 0.5


# TM-EMD: earth mover's distance between the next places of people, in bins of latitude and of longitude


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


def bins_of_places(places: PlaceTable, settings: TransitionSettings) -> list[np.ndarray]:
    """Bin of latitude and bin of longitude of each place, shape (places,)."""
    south, north, west, east = settings.box or places.bounding_box()

    def bin_of(value: np.ndarray, low: float, high: float) -> np.ndarray:
        # All places may be on one line; the greatest value belongs to the last bin.
        width = (high - low) / settings.n_bins or 1.0
        # Where coordinates are not known, all places are in one bin.
        return np.clip(np.nan_to_num(np.floor((value - low) / width)), 0, settings.n_bins - 1).astype(np.int64)

    longitude = longitude_near(places.longitude, (west + east) / 2)
    return [bin_of(places.latitude, south, north), bin_of(longitude, west, east)]


def _measure(comparison: Comparison, settings: TransitionSettings, of: str = "traces") -> list[float]:
    """Distances on both axes of the traces, of people who go anywhere ("uniform") or who never move ("stays")."""
    if not comparison.statistic(Traces.has_transitions, comparison.test):
        raise Undefined
    made, test = (comparison.statistic(transition_matrix, each) for each in (comparison.traces, comparison.test))
    # The bins of each place as 0-1 matrices of shape (places, bins).
    axes = [np.eye(settings.n_bins)[each] for each in bins_of_places(comparison.test.places, settings)]
    # The next place of a person who never moves is the same place.
    onward = {"traces": lambda axis: made @ axis, "uniform": lambda axis: axis.mean(axis=0), "stays": lambda axis: axis}
    return [earth_movers_distance(onward[of](axis), test @ axis) for axis in axes]


def _reading(comparison: Comparison, settings: TransitionSettings) -> list[Interpretation]:
    """The reference is the value of traces that never move, because such traces score well on sparse test traces."""
    test, never_moving = comparison.test, _measure(comparison, settings, "stays")
    empty = 1 - len(np.unique(test.transitions().place)) / test.n_places
    text = (
        f"{percent(empty)} of the places have no test step, so all users stay there; traces that stay score well there"
    )
    caveats = caveat_if(empty > LARGE_PART, "places_never_left", text)
    return [Interpretation({"never moving": value}, caveats) for value in never_moving]


register_utility(
    *(
        MetricInfo(
            f"tm_emd_{axis}",
            f"TM-EMD-{axis.upper()}",
            meaning,
            f"bins, {way}",
            undefined="no transition in the test traces",
            plain=f"Next places, {way}",
            section="transitions",
            uses=("flows",),
        )
        for axis, way, meaning in (
            (
                "y",
                "north-south",
                "Earth mover's distance, in bins of latitude, between the distributions of the next place of synthetic "
                "and of test users, averaged over the places.",
            ),
            ("x", "east-west", "TM-EMD-Y in bins of longitude instead of latitude."),
        )
    ),
    name="tm_emd",
    measure=_measure,
    uniform=partial(_measure, of="uniform"),
    settings=TransitionSettings,
    per_trace_number=True,
    pools_gaps=True,
    reading=_reading,
)


# Steps and moves within one period


@window_metric(
    "stay_difference",
    "Stay difference",
    "Share of steps from a place to the same place: synthetic users minus test users.",
    mean_difference,
    shown=("transitions", "How often people stay", "days"),
    unit="share of steps, -1 to 1",
    one_period=True,
)
def stays(windows: Windows) -> Sample:
    """For each step, whether it leads to the same place."""
    user, ends = next_places(windows)
    return Sample(user, ends[:, 0] == ends[:, 1])


def row_distance(steps: np.ndarray, others: np.ndarray) -> float:
    """Total variation between the distributions of the next place, averaged over the other steps.

    A place without a step in `steps` has the total variation 1. NaN if there is no other step.
    """
    n_places = max(int(each.max(initial=0)) for each in (steps, others)) + 1
    counts, expected = (pair_counts(each[:, 0], each[:, 1], (n_places, n_places)) for each in (steps, others))
    return weighted_mean(row_variation(row_shares(counts), row_shares(expected)), expected.sum(axis=1))


def _sparse_rows(test: Windows, floor: float) -> tuple[Caveat, ...]:
    text = f"The rows are too sparse to compare: two random groups of real people are at {floor:.2f}"
    return caveat_if(floor >= SPARSE_ROWS, "sparse_rows", text)


@window_metric(
    "row_tv",
    "Row-TV",
    "Total variation between the distributions of the next place of synthetic and of test users, for each place, "
    "averaged over the test users' steps.",
    row_distance,
    shown=("transitions", "Where people go next from a place"),
    one_period=True,
    caveats=_sparse_rows,
)
def next_places(windows: Windows) -> Sample:
    """Place and next place of each step; values: (steps, 2)."""
    later = np.flatnonzero(windows.is_step())
    return Sample.at(windows, later, np.stack([windows.place[later - 1], windows.place[later]], axis=1))


def moves(windows: Windows) -> Sample:
    """Place and next place of each step to another place; values: (moves, 2)."""
    user, ends = next_places(windows)
    moved = ends[:, 0] != ends[:, 1]
    return Sample(user[moved], ends[moved])


@window_metric(
    "move_interval_w1_h",
    "Move interval, h",
    "Wasserstein distance between the lengths of synthetic and of test users' uninterrupted stays at a place "
    "within one period.",
    wasserstein,
    shown=("trips", "How long people stay at a place", "days"),
    unit="hours",
    scale="hours",
    one_period=True,
)
def move_intervals_h(windows: Windows) -> Sample:
    """Length of each uninterrupted stay at a place in hours.

    A stay lasts from one move to the next. The beginning and the end of a run of consecutive instants count as moves;
    otherwise people who hardly ever move would have no stays. An event without an event one instant earlier or later
    does not count.
    """
    step = windows.is_step()
    same = step.copy()
    same[1:] &= windows.place[1:] == windows.place[:-1]
    first = np.flatnonzero(~same)
    after = np.append(first, len(same))[1:]
    counted = (after - first > 1) | step[first] | np.append(step, False)[after]
    return Sample.at(windows, first[counted], (after - first)[counted] * windows.time_grid.step_s / 3600)


@dataclass(frozen=True)
class JumpSettings(Settings, subject="jump lengths"):
    """Settings of jump lengths.

    Parameters
    ----------
    bin_km : float
        Width of a bin of lengths, in kilometres.
    """

    bin_km: Positive = BIN_KM


def jump_lengths_km(windows: Windows) -> Sample:
    """Length of each move on the plane of the places."""
    user, ends = moves(windows)
    return Sample(user, distance_km(windows, ends[:, 0], ends[:, 1]))


@window_metric(
    "jump_tv",
    "Jump-TV",
    "Total variation between the distributions of synthetic and of test users' move lengths, in bins of {bin_km:g} km.",
    variation_of_samples,
    shown=("trips", "Length of a trip", "flows"),
    one_period=True,
    settings=JumpSettings,
    caveats=one_point,
)
def jump_length_bins(windows: Windows, bin_km: float) -> Sample:
    """Number of the bin that has the length of each move."""
    user, length_km = jump_lengths_km(windows)
    return Sample(user, np.floor(length_km / bin_km).astype(np.int64))


@window_metric(
    "radius_w1_km",
    "Gyration, km",
    "Wasserstein distance between the radii of gyration of synthetic and of test users in one period: the root "
    "mean square distance of their events from the centre of these events.",
    wasserstein,
    shown=("trips", "How widely people roam (radius of gyration)", "days"),
    unit="km",
    scale="none",
    one_period=True,
    caveats=one_point,
)
def radius_of_gyration_km(windows: Windows) -> Sample:
    """Root mean square distance of each window's events from their centre (González et al. 2008)."""
    position_km, n_events = windows.places.position_km(), windows.events_per_window()
    square = np.zeros(windows.n_windows)
    for axis_km in position_km.T:
        event_km = axis_km[windows.place]
        centre_km = np.bincount(windows.window, event_km, minlength=windows.n_windows) / n_events
        square += np.bincount(windows.window, (event_km - centre_km[windows.window]) ** 2, minlength=windows.n_windows)
    return Sample(windows.user, np.sqrt(square / n_events))


@dataclass(frozen=True)
class FlowSettings(Settings, subject="flows"):
    """Settings of flows.

    Parameters
    ----------
    n_cells : int
        Number of cells of the grid on each side of the bounding box of the places.
    """

    n_cells: Count = N_CELLS


@window_metric(
    "od_tv",
    "OD-TV",
    "Total variation between the distributions of synthetic and of test users' moves over pairs of cells, from and "
    "to, of a grid of {n_cells} x {n_cells}.",
    variation_of_samples,
    shown=("transitions", "Flows between parts of the town", "flows"),
    one_period=True,
    settings=FlowSettings,
    caveats=one_point,
)
def cell_flows(windows: Windows, n_cells: int) -> Sample:
    """Number of the pair (cell, next cell) of each move: cell * number of cells + next cell."""
    user, ends = moves(windows)
    cell = windows.places.grid_cell(n_cells)[ends]
    return Sample(user, cell[:, 0] * n_cells**2 + cell[:, 1])


# From one event to the next one, however long the gap


@window_metric(
    "stay_any_gap_difference",
    "Stays, any gap",
    "Share of events at the same place as the event before in the window, however long ago: synthetic users minus "
    "test users.",
    mean_difference,
    shown=("events", "How often people are seen where they were seen last", "events"),
    unit="share of events, -1 to 1",
)
def stays_any_gap(windows: Windows) -> Sample:
    """For each event but the first of a window, whether it is at the same place as the event before it."""
    later, _ = gaps(windows)
    return Sample.at(windows, later, windows.place[later] == windows.place[later - 1])


def jump_bins(windows: Windows, above_h: float, at_most_h: float) -> Sample:
    """Bins of the lengths of moves between two successive events that are so many hours apart."""
    later, gap = gaps(windows)
    gap_s = gap.astype(np.int64) * windows.time_grid.step_s
    moved = windows.place[later] != windows.place[later - 1]
    later = later[moved & (gap_s > above_h * 3600) & (gap_s <= at_most_h * 3600)]
    length_km = distance_km(windows, windows.place[later - 1], windows.place[later])
    known = np.isfinite(length_km)
    return Sample.at(windows, later[known], np.searchsorted(JUMP_KM, length_km[known], side="right"))


def gaps(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Index of each event except the first of a window, and the number of instants since the event before it."""
    later = np.flatnonzero(~run_begins(windows.window))
    return later, windows.phase[later] - windows.phase[later - 1]


def is_mostly_gaps(comparison: Comparison) -> bool:
    """Whether most successive events of the test users are not at consecutive instants."""
    _, gap = gaps(real_windows(comparison, comparison.test, comparison.window_length))
    return bool(len(gap)) and float(np.mean(gap > 1)) > MOSTLY_GAPS


for _name, (_above, _at_most, _title, _plain) in JUMP_HOURS.items():
    window_metric(
        f"jump_{_name}_tv",
        f"Jump-TV, {_title}",
        f"Total variation {BETWEEN} lengths of moves between successive events with {_title} between them.",
        variation_of_samples,
        shown=("transitions", f"How far people go {_plain}", "flows"),
        applies=is_mostly_gaps,
        caveats=one_point,
    )(partial(jump_bins, above_h=_above, at_most_h=_at_most))
