"""Steps within one period: stays, lengths of moves, radius of gyration, flows between cells, and next places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ppmtf_jax.data.measurement import Caveat, caveat_if
from ppmtf_jax.data.windows import Windows
from ppmtf_jax.evaluation.distributions import (
    pair_counts,
    row_shares,
    row_variation,
    variation_of_samples,
    wasserstein,
    weighted_mean,
)
from ppmtf_jax.evaluation.judgement import SPARSE_ROWS
from ppmtf_jax.evaluation.metrics.windows import Sample, mean_difference, one_point, window_metric
from ppmtf_jax.settings import Count, Positive, Settings

BIN_KM = 1.0
N_CELLS = 8


@dataclass(frozen=True)
class JumpSettings(Settings, subject="jump lengths"):
    """Settings of jump lengths.

    Parameters
    ----------
    bin_km : float
        Width of a bin of lengths, in kilometres.
    """

    bin_km: Positive = BIN_KM


@dataclass(frozen=True)
class FlowSettings(Settings, subject="flows"):
    """Settings of flows.

    Parameters
    ----------
    n_cells : int
        Number of cells of the grid on each side of the bounding box of the places.
    """

    n_cells: Count = N_CELLS


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
    "stay_difference",
    "Stay difference",
    "Share of steps from a place to the same place: synthetic users minus test users.",
    mean_difference,
    unit="share of steps, -1 to 1",
    plain="How often people stay",
    section="transitions",
    uses=("days",),
    one_period=True,
)
def stays(windows: Windows) -> Sample:
    """For each step, whether it leads to the same place."""
    later = np.flatnonzero(windows.is_step())
    return Sample.at(windows, later, windows.place[later] == windows.place[later - 1])


@window_metric(
    "row_tv",
    "Row-TV",
    "Total variation between the distributions of the next place of synthetic and of test users, for each place, "
    "averaged over the test users' steps.",
    row_distance,
    plain="Where people go next from a place",
    section="transitions",
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
    unit="hours",
    scale="hours",
    plain="How long people stay at a place",
    section="trips",
    uses=("days",),
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


def jump_lengths_km(windows: Windows) -> Sample:
    """Length of each move on the plane of the places."""
    user, ends = moves(windows)
    position_km = windows.places.position_km()
    return Sample(user, np.linalg.norm(position_km[ends[:, 1]] - position_km[ends[:, 0]], axis=1))


@window_metric(
    "jump_tv",
    "Jump-TV",
    "Total variation between the distributions of synthetic and of test users' move lengths, in bins of {bin_km:g} km.",
    variation_of_samples,
    plain="Length of a trip",
    section="trips",
    uses=("flows",),
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
    unit="km",
    scale="none",
    plain="How widely people roam (radius of gyration)",
    section="trips",
    uses=("days",),
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


@window_metric(
    "od_tv",
    "OD-TV",
    "Total variation between the distributions of synthetic and of test users' moves over pairs of cells, from and "
    "to, of a grid of {n_cells} x {n_cells}.",
    variation_of_samples,
    plain="Flows between parts of the town",
    section="transitions",
    uses=("flows",),
    one_period=True,
    settings=FlowSettings,
    caveats=one_point,
)
def cell_flows(windows: Windows, n_cells: int) -> Sample:
    """Number of the pair (cell, next cell) of each move: cell * number of cells + next cell."""
    user, ends = moves(windows)
    cell = windows.places.grid_cell(n_cells)[ends]
    return Sample(user, cell[:, 0] * n_cells**2 + cell[:, 1])
