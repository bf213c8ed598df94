"""Moves within one period: their lengths, radius of gyration, flows between cells, and next places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ppmtf_jax.data.measurement import Comparison, Interpretation, MetricInfo, NoSettings, caveat_if
from ppmtf_jax.data.windows import NO_WINDOWS, Windows
from ppmtf_jax.evaluation.distributions import (
    pair_counts,
    row_shares,
    row_variation,
    row_variation_from,
    variation_of_samples,
    weighted_mean,
)
from ppmtf_jax.evaluation.judgement import SPARSE_ROWS
from ppmtf_jax.evaluation.metrics.windows import NO_MOVES, NO_STEPS, distance_from_test, read_places, real_windows
from ppmtf_jax.evaluation.registry import Undefined, register_utility, variation_quantity
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


def moves(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Place and next place of each step to another place, each of shape (moves,)."""
    place, next_place = windows.steps()
    moved = place != next_place
    return place[moved], next_place[moved]


def jump_lengths_km(windows: Windows) -> np.ndarray:
    """Length of each move on the plane of the places, shape (moves,)."""
    position_km = windows.places.position_km()
    place, next_place = moves(windows)
    return np.linalg.norm(position_km[next_place] - position_km[place], axis=1)


def jump_length_bins(windows: Windows, bin_km: float) -> np.ndarray:
    """Number of the bin that has the length of each move, shape (moves,)."""
    return np.floor(jump_lengths_km(windows) / bin_km).astype(np.int64)


def radius_of_gyration_km(windows: Windows) -> np.ndarray:
    """Root mean square distance of each window's events from their centre, shape (windows,) (González et al. 2008)."""
    position_km, n_events = windows.places.position_km(), windows.events_per_window()
    square = np.zeros(windows.n_windows)
    for axis_km in position_km.T:
        event_km = axis_km[windows.place]
        centre_km = np.bincount(windows.window, event_km, minlength=windows.n_windows) / n_events
        square += np.bincount(windows.window, (event_km - centre_km[windows.window]) ** 2, minlength=windows.n_windows)
    return np.sqrt(square / n_events)


def step_counts(windows: Windows) -> sparse.csr_array:
    """Number of steps from each place to each place within the windows, shape (places, places)."""
    n_places = len(windows.places)
    return pair_counts(*windows.steps(), (n_places, n_places))


def cell_flows(windows: Windows, n_cells: int) -> np.ndarray:
    """Number of the pair (cell, next cell) of each move: cell * number of cells + next cell, shape (moves,)."""
    cell = windows.places.grid_cell(n_cells)
    place, next_place = moves(windows)
    return cell[place] * n_cells**2 + cell[next_place]


def _row_variation(counts: sparse.csr_array, expected: sparse.csr_array) -> float:
    """Total variation between the distributions of the next place, averaged over the expected steps.

    A place without a step in `counts` has the total variation 1. NaN if there is no expected step.
    """
    return weighted_mean(row_variation(row_shares(counts), row_shares(expected)), expected.sum(axis=1))


_measure_rows = distance_from_test(step_counts, _row_variation)


def _uniform_flows(comparison: Comparison, settings: FlowSettings) -> list[float]:
    """OD-TV if all ordered pairs of two different places are equally frequent."""
    test, n_cells = comparison.test, settings.n_cells
    flow, count = np.unique(cell_flows(real_windows(comparison, test), n_cells), return_counts=True)
    if not len(flow):
        raise Undefined
    cell, next_cell = np.divmod(flow, n_cells**2)
    n_in_cell = np.bincount(test.places.grid_cell(n_cells), minlength=n_cells**2)
    n_pairs = n_in_cell[cell] * (n_in_cell[next_cell] - (cell == next_cell))
    probability = n_pairs / (test.n_places * (test.n_places - 1))
    return [float(row_variation_from(probability, row_shares(sparse.csr_array(count[None])))[0])]


def _uniform_rows(comparison: Comparison, settings: NoSettings) -> list[float]:
    counts = step_counts(real_windows(comparison, comparison.test))
    return [weighted_mean(row_variation_from(1 / comparison.test.n_places, row_shares(counts)), counts.sum(axis=1))]


def _read_rows(comparison: Comparison, settings: NoSettings) -> list[Interpretation]:
    (training,) = _measure_rows(comparison, settings)
    text = f"The test rows are too sparse to compare: Training itself is at {training:.2f}"
    return [Interpretation(caveats=caveat_if(training >= SPARSE_ROWS, "sparse_rows", text))]


register_utility(
    variation_quantity(
        "jump_tv",
        "Jump-TV",
        "Total variation between the distributions of synthetic and of test users' move lengths, in bins of "
        "{bin_km:g} km.",
        NO_MOVES,
    ),
    measure=distance_from_test(jump_length_bins, variation_of_samples),
    settings=JumpSettings,
    reading=read_places,
)
register_utility(
    MetricInfo(
        "radius_w1_km",
        "Gyration, km",
        "Wasserstein distance between the radii of gyration of synthetic and of test users in one period: the root "
        "mean square distance of their events from the centre of these events.",
        "km",
        undefined=NO_WINDOWS,
    ),
    measure=distance_from_test(radius_of_gyration_km),
    reading=read_places,
)
register_utility(
    variation_quantity(
        "od_tv",
        "OD-TV",
        "Total variation between the distributions of synthetic and of test users' moves over pairs of cells, from and "
        "to, of a grid of {n_cells} x {n_cells}.",
        NO_MOVES,
    ),
    measure=distance_from_test(cell_flows, variation_of_samples),
    uniform=_uniform_flows,
    settings=FlowSettings,
    reading=read_places,
)
register_utility(
    variation_quantity(
        "row_tv",
        "Row-TV",
        "Total variation between the distributions of the next place of synthetic and of test users, for each place, "
        "averaged over the test users' steps.",
        NO_STEPS,
    ),
    measure=_measure_rows,
    uniform=_uniform_rows,
    reading=_read_rows,
)
