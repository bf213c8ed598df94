"""How people move within one period: whether they stay, how far and where they go, how many places they see.

Everything is measured on windows (see `data.windows`) with at least two events. Synthetic traces are first thinned to
the instants at which windows of the test users, drawn at random with a fixed seed, have events: so both have the same
hours and the same gaps. A step is one between consecutive instants of a window, a move a step to another place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ppmtf_jax.data.measurement import Comparison, Measurement, NoSettings, Quantity, Reading
from ppmtf_jax.data.traces import Traces
from ppmtf_jax.data.windows import Windows, same_period
from ppmtf_jax.evaluation.distributions import (
    row_shares,
    row_variation,
    row_variation_from,
    variation_of_samples,
    wasserstein,
)
from ppmtf_jax.evaluation.registry import METRICS, NEAR_TRAINING
from ppmtf_jax.settings import Count, Positive, Settings
from ppmtf_jax.streams import Stage, numpy_stream

MIN_EVENTS = 2
SEED = 0
BIN_KM = 1.0
N_CELLS = 8
SPARSE_ROWS = 0.9
NO_WINDOWS = f"no window of {MIN_EVENTS} events in one of the sets, or periods of their grids that differ"
NO_STEPS = "no two events at consecutive instants of a window in one of the sets, or periods of their grids that differ"
NO_MOVES = "no move in one of the sets, or periods of their grids that differ"
COARSE_SHARES = f"Most test windows have {MIN_EVENTS} events, of which a place has one or all: it says little"
ONE_POINT = "All places are at one point: this says nothing"


@dataclass(frozen=True)
class JumpSettings(Settings, subject="jump lengths"):
    """Settings of jump lengths.

    Parameters
    ----------
    bin_km : float
        Width of the bins of lengths.

    Raises
    ------
    InputError
        It is not above 0.
    """

    bin_km: Positive = BIN_KM


@dataclass(frozen=True)
class FlowSettings(Settings, subject="flows"):
    """Settings of flows.

    Parameters
    ----------
    n_cells : int
        Number of cells of the grid on each side of the bounding box of the places.

    Raises
    ------
    InputError
        There is none.
    """

    n_cells: Count = N_CELLS


# What windows are like


def moves(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Place and next place of each step to another place, each of shape (moves,).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> place, next_place = moves(Windows.of(toy_city(n_users=5, seed=0).traces))
    >>> bool((place == next_place).any())
    False
    """
    place, next_place = windows.steps()
    moved = place != next_place
    return place[moved], next_place[moved]


def share_of_stays(windows: Windows) -> float:
    """Share of the steps that stay at their place; NaN where there is no step.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> 0 < share_of_stays(Windows.of(toy_city(n_users=5, seed=0).traces)) < 1
    True
    """
    place, next_place = windows.steps()
    return float(np.mean(place == next_place)) if len(place) else math.nan


def jump_lengths_km(windows: Windows) -> np.ndarray:
    """Length of each move on the plane of the places, shape (moves,).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> bool((jump_lengths_km(Windows.of(toy_city(n_users=5, seed=0).traces)) > 0).all())
    True
    """
    position_km = windows.places.position_km()
    place, next_place = moves(windows)
    return np.linalg.norm(position_km[next_place] - position_km[place], axis=1)


def distinct_places(windows: Windows) -> np.ndarray:
    """Number of different places of each window, shape (windows,).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> bool((distinct_places(windows) <= windows.events_per_window()).all())
    True
    """
    return np.bincount(windows.visits().window, minlength=windows.n_windows)


def top_place_share(windows: Windows) -> np.ndarray:
    """Share of each window's events that are at its most visited place, shape (windows,).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> bool((top_place_share(Windows.of(toy_city(n_users=5, seed=0).traces)) <= 1).all())
    True
    """
    visits = windows.visits()
    greatest = np.zeros(windows.n_windows, np.int64)
    np.maximum.at(greatest, visits.window, visits.count)
    return greatest / windows.events_per_window()


def radius_of_gyration_km(windows: Windows) -> np.ndarray:
    """Root mean square distance of each window's events from their centre, shape (windows,).

    References
    ----------
    González, Hidalgo and Barabási 2008, Understanding individual human mobility patterns.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> bool((radius_of_gyration_km(Windows.of(toy_city(n_users=5, seed=0).traces)) < 15).all())
    True
    """
    position_km, n_events = windows.places.position_km(), windows.events_per_window()
    square = np.zeros(windows.n_windows)
    for axis_km in position_km.T:
        event_km = axis_km[windows.place]
        centre_km = np.bincount(windows.window, event_km, minlength=windows.n_windows) / n_events
        square += np.bincount(windows.window, (event_km - centre_km[windows.window]) ** 2, minlength=windows.n_windows)
    return np.sqrt(square / n_events)


def move_intervals_h(windows: Windows) -> np.ndarray:
    """Hours that somebody is at a place without a break, as far as they can be seen, shape (intervals,).

    From one move to the next, or from where the window or an unbroken stretch of it begins, and to where that ends:
    else people who hardly ever move would not be seen to stay. An event without a neighbour does not count.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> hours = move_intervals_h(Windows.of(toy_city(n_users=5, seed=0).traces))
    >>> float(hours.min()), bool(hours.max() <= 24)
    (1.0, True)
    """
    step = windows.is_step()
    stays = step.copy()
    stays[1:] &= windows.place[1:] == windows.place[:-1]
    first = np.flatnonzero(~stays)
    after = np.append(first, len(stays))[1:]
    has_neighbour = (after - first > 1) | step[first] | np.append(step, False)[after]
    return (after - first)[has_neighbour] * windows.time_grid.step_s / 3600


def window_shares(windows: Windows) -> sparse.csr_array:
    """Histogram over windows, for each place, of the share of a window's events that are there.

    Bins are (0, 1/n], ..., (1 - 1/n, 1] with n the instants of a period: in windows of two events a share is in one of
    two bins. Shares of 0 do not count.

    Returns
    -------
    sparse array, shape (places, n)
        Numbers of windows.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> int(window_shares(windows).sum()) == int(distinct_places(windows).sum())
    True
    """
    n_bins, visits = windows.time_grid.n_instants, windows.visits()
    # Whole numbers throughout: a share on the edge of a bin must not depend on rounding.
    share_bin = -(-visits.count * n_bins // windows.events_per_window()[visits.window]) - 1
    cells = (visits.place, share_bin)
    return sparse.coo_array((np.ones(len(share_bin)), cells), shape=(len(windows.places), n_bins)).tocsr()


def step_counts(windows: Windows) -> sparse.csr_array:
    """How often each place follows each at consecutive instants of a window, shape (places, places).

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> int(step_counts(windows).sum()) == len(windows.steps()[0])
    True
    """
    pair, n_places = windows.steps(), len(windows.places)
    return sparse.coo_array((np.ones(len(pair[0])), pair), shape=(n_places, n_places)).tocsr()


# How far windows are from each other


def jump_variation(windows: Windows, test: Windows, *, bin_km: float = BIN_KM) -> float:
    """Total variation between the lengths of moves, in bins; NaN where nobody moves in one of the sets.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> jump_variation(windows, windows)
    0.0
    """
    length_bin = (np.floor(jump_lengths_km(each) / bin_km) for each in (windows, test))
    return variation_of_samples(*length_bin)


def flow_variation(windows: Windows, test: Windows, *, n_cells: int = N_CELLS) -> float:
    """Total variation between the flows of moves from cell to cell; NaN where nobody moves in one of the sets.

    A move to another place of the same cell counts too.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> flow_variation(windows, windows)
    0.0
    """
    return variation_of_samples(*(_flows(each, n_cells) for each in (windows, test)))


def share_variation(windows: Windows, train: Windows, test: Windows) -> float:
    """Total variation between the rows of `window_shares`, averaged over places; NaN where real sets share no place.

    A place has as much weight as windows of `train` or of `test` visit it, whichever are fewer: what one window says of
    a place, or what only one of the real sets knows, hardly counts. Else data with a few events a window would
    measure nothing but chance. A place where `windows` never are counts as 1.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> share_variation(windows, windows, windows)
    0.0
    """
    histogram, others, expected = (window_shares(each) for each in (windows, train, test))
    weight = np.minimum(others.sum(axis=1), expected.sum(axis=1))
    return _weighted_mean(row_variation(row_shares(histogram), row_shares(expected)), weight)


def row_variation_of_steps(windows: Windows, test: Windows) -> float:
    """Total variation between where people go next from a place, averaged over the places from which test users go.

    A place has as much weight as steps of the test users leave from it. One from which nobody steps in `windows` counts
    as 1. NaN where the test users have no step.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> windows = Windows.of(toy_city(n_users=5, seed=0).traces)
    >>> row_variation_of_steps(windows, windows)
    0.0
    """
    counts, expected = step_counts(windows), step_counts(test)
    return _weighted_mean(row_variation(row_shares(counts), row_shares(expected)), expected.sum(axis=1))


def _flows(windows: Windows, n_cells: int) -> np.ndarray:
    """Number of the flow that each move belongs to, shape (moves,)."""
    cell = windows.places.grid_cell(n_cells)
    place, next_place = moves(windows)
    return cell[place] * n_cells**2 + cell[next_place]


def _weighted_mean(value: np.ndarray, weight: np.ndarray) -> float:
    return float(value @ weight / weight.sum()) if weight.sum() else math.nan


# Measured


def _windows(traces: Traces) -> Windows:
    return Windows.of(traces).with_events(MIN_EVENTS)


def _thinned(traces: Traces, test: Windows) -> Windows:
    """The windows of synthetic traces, each as one of the test users would have been seen in it."""
    windows = Windows.of(traces)
    drawn = numpy_stream(SEED, Stage.METRICS).integers(test.n_windows, size=windows.n_windows)
    return windows.thinned(test, drawn).with_events(MIN_EVENTS)


def _real_windows(comparison: Comparison, traces: Traces) -> Windows:
    return comparison.statistic(_windows, traces)


def _measured_windows(comparison: Comparison) -> Windows | None:
    """What is to be held against the test windows; None where that cannot be."""
    test = _real_windows(comparison, comparison.test)
    if not (test.n_windows and _same_periods(comparison)):
        return None
    if comparison.pool_traces:
        windows = _real_windows(comparison, comparison.traces)
    else:
        windows = comparison.statistic(_thinned, comparison.traces, test)
    return windows if windows.n_windows else None


def _same_periods(comparison: Comparison) -> bool:
    grid = comparison.test.time_grid
    return all(same_period(each.time_grid, grid) for each in (comparison.traces, comparison.train))


def _of_windows(distance: Callable[..., float]) -> Callable[[Comparison, Any], list[float]]:
    """Measure a distance from the windows of the test users, at settings that it takes by their names."""

    def measure(comparison: Comparison, settings: Any) -> list[float]:
        windows = _measured_windows(comparison)
        if windows is None:
            return [math.nan]
        return [distance(windows, _real_windows(comparison, comparison.test), **vars(settings))]

    return measure


def _by_wasserstein(statistic: Callable[[Windows], np.ndarray]) -> Callable[[Comparison, Any], list[float]]:
    return _of_windows(lambda windows, test: wasserstein(statistic(windows), statistic(test)))


def _measure_shares(comparison: Comparison, settings: NoSettings) -> list[float]:
    windows = _measured_windows(comparison)
    if windows is None:
        return [math.nan]
    return [
        share_variation(windows, *(_real_windows(comparison, each) for each in (comparison.train, comparison.test)))
    ]


_measure_rows = _of_windows(row_variation_of_steps)


# Uniform traces


def _uniform_stays(comparison: Comparison, settings: NoSettings) -> list[float]:
    return [1 / comparison.test.n_places - share_of_stays(_real_windows(comparison, comparison.test))]


def _uniform_flows(comparison: Comparison, settings: FlowSettings) -> list[float]:
    """All ordered pairs of two places are equally frequent."""
    test, n_cells = comparison.test, settings.n_cells
    flow, count = np.unique(_flows(_real_windows(comparison, test), n_cells), return_counts=True)
    if not len(flow):
        return [math.nan]
    cell, next_cell = np.divmod(flow, n_cells**2)
    n_in_cell = np.bincount(test.places.grid_cell(n_cells), minlength=n_cells**2)
    n_pairs = n_in_cell[cell] * (n_in_cell[next_cell] - (cell == next_cell))
    probability = n_pairs / (test.n_places * (test.n_places - 1))
    return [float(row_variation_from(probability, row_shares(sparse.csr_array(count[None])))[0])]


def _uniform_rows(comparison: Comparison, settings: NoSettings) -> list[float]:
    counts = step_counts(_real_windows(comparison, comparison.test))
    variation = row_variation_from(1 / comparison.test.n_places, row_shares(counts))
    return [_weighted_mean(variation, counts.sum(axis=1))]


# How to read them


def read_places(comparison: Comparison, settings: Any) -> list[Reading]:
    """A caveat where all places are at one point, so that there is no distance.

    Examples
    --------
    >>> from ppmtf_jax.datasets.toy_city import toy_city
    >>> train, test = toy_city(n_users=20, seed=0).traces.split_users(0.5, seed=0)
    >>> [each.caveat for each in read_places(Comparison(train, train, test, 24, pool_traces=True), NoSettings())]
    ['']
    """
    is_point = not np.ptp(comparison.test.places.position_km(), axis=0).any()
    return [Reading(caveat=ONE_POINT if is_point else "")]


def _read_rows(comparison: Comparison, settings: NoSettings) -> list[Reading]:
    (training,) = _measure_rows(comparison, settings)
    if not training >= SPARSE_ROWS:
        return [Reading()]
    return [Reading(caveat=f"The test rows are too sparse to compare: Training itself is at {training:.2f}")]


def _read_shares(comparison: Comparison, settings: NoSettings) -> list[Reading]:
    n_events = _real_windows(comparison, comparison.test).events_per_window()
    is_coarse = len(n_events) and np.median(n_events) <= MIN_EVENTS
    return [Reading(caveat=COARSE_SHARES if is_coarse else "")]


# Registered


def _register(
    quantity: Quantity,
    measure: Callable[[Comparison, Any], list[float]],
    uniform: Callable[[Comparison, Any], list[float]] | None = None,
    settings: type = NoSettings,
    reading: Callable[[Comparison, Any], list[Reading]] | None = None,
) -> None:
    METRICS.register(
        Measurement(quantity.name, "utility", (quantity,), measure, uniform, settings, reading=reading),
    )


_register(
    Quantity(
        "stay_share",
        "Stay share",
        "Share of the synthetic steps that stay at their place, less that of the test users.",
        "share of steps, -1 to 1",
        "zero",
        "near 0",
        NO_STEPS,
    ),
    _of_windows(lambda windows, test: share_of_stays(windows) - share_of_stays(test)),
    _uniform_stays,
)
_register(
    Quantity(
        "jump_tv",
        "Jump-TV",
        "Total variation between the lengths of the synthetic and of the test users' moves, in bins of {bin_km:g} km.",
        "total variation, 0 to 1",
        "lower",
        NEAR_TRAINING,
        NO_MOVES,
    ),
    _of_windows(jump_variation),
    settings=JumpSettings,
    reading=read_places,
)
_register(
    Quantity(
        "od_tv",
        "OD-TV",
        "Total variation between the flows of the synthetic and of the test users' moves, from cell to cell of a grid "
        "of {n_cells} x {n_cells}.",
        "total variation, 0 to 1",
        "lower",
        NEAR_TRAINING,
        NO_MOVES,
    ),
    _of_windows(flow_variation),
    _uniform_flows,
    FlowSettings,
    read_places,
)
_register(
    Quantity(
        "row_tv",
        "Row-TV",
        "Total variation between where the synthetic and the test users step from a place, averaged over the test "
        "users' steps.",
        "total variation, 0 to 1",
        "lower",
        NEAR_TRAINING,
        NO_STEPS,
    ),
    _measure_rows,
    _uniform_rows,
    reading=_read_rows,
)
_register(
    Quantity(
        "distinct_w1",
        "Distinct places",
        "Wasserstein distance between how many different places synthetic and test users see in one period.",
        "places",
        "lower",
        NEAR_TRAINING,
        NO_WINDOWS,
    ),
    _by_wasserstein(distinct_places),
)
_register(
    Quantity(
        "radius_w1_km",
        "Gyration, km",
        "Wasserstein distance between the radii of gyration, how far from their centre synthetic and test users are in "
        "one period.",
        "km",
        "lower",
        NEAR_TRAINING,
        NO_WINDOWS,
    ),
    _by_wasserstein(radius_of_gyration_km),
    reading=read_places,
)
_register(
    Quantity(
        "top_place_w1",
        "Top place",
        "Wasserstein distance between the shares of a period that synthetic and test users are at the place where they "
        "are most.",
        "share of events",
        "lower",
        NEAR_TRAINING,
        NO_WINDOWS,
    ),
    _by_wasserstein(top_place_share),
)
_register(
    Quantity(
        "move_interval_w1_h",
        "Move interval, h",
        "Wasserstein distance between how long synthetic and test users are at a place without a break, as far as one "
        "period shows it.",
        "hours",
        "lower",
        NEAR_TRAINING,
        NO_STEPS,
    ),
    _by_wasserstein(move_intervals_h),
)
_register(
    Quantity(
        "window_vf_tv",
        "Window VF-TV",
        "Total variation between the distributions of the share of a period's events at a place, averaged over the "
        "places that training and test users visit, weighted by how many periods do.",
        "total variation, 0 to 1",
        "lower",
        NEAR_TRAINING,
        f"no place that windows of {MIN_EVENTS} events visit in both real sets, no such synthetic window, or periods "
        "of their grids that differ",
    ),
    _measure_shares,
    reading=_read_shares,
)
